//! The data of a job at an offer: the hours and dollars that copying them there takes once, and what keeping them costs each hour.

use super::goal::Goal;
use crate::pricing::{Offer, PriceBook, Tier};
use habitat_base::text::{dollars, duration};
use habitat_base::units::{Hours, Usd, UsdPerHour};

/// Data that an offer has to be brought, and that are kept there while it works.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought {
    gb: f64,
    /// Hours until they are there; a rented machine is paid meanwhile.
    pub(super) hours: Hours,
    /// What leaving their provider costs; `None` where that is not known.
    pub(super) egress: Option<Usd>,
    /// What keeping them costs an hour; `None` where that is not known.
    pub(super) storage: Option<UsdPerHour>,
    /// Whether what egress and storage cost is recalled: no source was read for it.
    is_recalled: (bool, bool),
    /// Whether it is worth a word that it is not known: of other offers it is, and the machine is
    /// not one's own, which has its disks.
    is_missed: bool,
}

/// What of the data has to be brought to an offer; `None` where they are there, and kept there
/// whatever the plan is.
pub(super) fn data(offer: &Offer, prices: &PriceBook, knows_storage: bool, goal: &Goal) -> Option<Brought> {
    let data = goal.data.as_ref().filter(|data| !data.is_at(&offer.provider, &offer.region))?;
    let from = data.provider.as_ref().map(|from| prices.terms_of(from));
    let is_same = data.provider.as_ref().is_some_and(|from| from.eq_ignore_ascii_case(&offer.provider));
    let egress = from.map_or(Some(0.0), |from| from.egress_to(is_same));
    let there = prices.terms_of(&offer.provider);
    // Data of no stated place are taken to be at hand for a machine of the user's own.
    let is_at_hand = data.provider.is_none() && matches!(offer.tier, Tier::Owned);
    let rate = offer.network_gbit_per_second.unwrap_or(f64::INFINITY).min(goal.assumptions.data_rate());
    Some(Brought {
        gb: data.gb,
        hours: if is_at_hand { Hours::ZERO } else { Hours::known(data.gb * 8.0 / rate / 3600.0) },
        egress: egress.map(|price| Usd::known(data.gb * price)),
        storage: there.storage(data.gb),
        is_recalled: (from.is_some_and(|from| from.egress_is_recalled), there.storage_is_recalled),
        is_missed: knows_storage && offer.tier != Tier::Owned,
    })
}

impl Brought {
    /// What bringing and keeping them costs, in words; nothing of what costs nothing.
    pub(super) fn notes(self, hours: Hours) -> Vec<String> {
        let gb = self.gb;
        let recalled = |is: bool| if is { " (the price is recalled, not read)" } else { "" };
        let (of_egress, of_storage) = (recalled(self.is_recalled.0), recalled(self.is_recalled.1));
        let copying = (self.hours.get() > 0.0)
            .then(|| format!("data: {gb} GB are copied in {}, at the beginning", duration(self.hours.get())));
        let egress = match self.egress {
            Some(cost) if cost == Usd::ZERO => None,
            Some(cost) => Some(format!("data: {gb} GB from elsewhere, {} once{of_egress}", dollars(cost.get()))),
            None => Some(format!(
                "data: {gb} GB from elsewhere; what that costs is not known and not counted (egress_usd_per_gb)"
            )),
        };
        let storage = match self.storage {
            Some(price) if price == UsdPerHour::ZERO => None,
            Some(price) => {
                let cost = dollars((price * hours).get());
                Some(format!("storage: {gb} GB for {}, {cost}{of_storage}", duration(hours.get())))
            }
            None => self.is_missed.then(|| {
                format!(
                    "storage: what keeping {gb} GB there costs is not known and not counted (storage_usd_per_gb_month)"
                )
            }),
        };
        copying.into_iter().chain(egress).chain(storage).collect()
    }
}
