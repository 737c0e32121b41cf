//! Data of a job at an offer: hours and dollars for the one-time transfer, and the cost of storage per hour.

use super::PlanNote;
use super::goal::Goal;
use crate::pricing::{Offer, PriceBook, Tier};
use habitat_base::units::{Hours, Usd, UsdPerHour};

/// Data to transfer to an offer and to store there during the work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brought {
    gb: f64,
    /// Hours of the transfer, during which a rented machine is paid.
    pub(super) hours: Hours,
    /// Egress cost at their provider; `None` if unknown.
    pub(super) egress: Option<Usd>,
    /// Storage cost per hour; `None` if unknown.
    pub(super) storage: Option<UsdPerHour>,
    /// Whether the prices of egress and storage were entered without a source.
    is_recalled: (bool, bool),
    /// Whether to note an unknown storage price: only if other offers have one and the machine is not the user's own,
    /// which has its own disks.
    is_missed: bool,
}

/// Data to transfer to an offer; `None` if they are there already and stay there in any plan.
pub(super) fn data(offer: &Offer, prices: &PriceBook, knows_storage: bool, goal: &Goal) -> Option<Brought> {
    let data = goal.data.as_ref().filter(|data| !data.is_at(&offer.provider, &offer.region))?;
    let from = data.provider.as_ref().map(|from| prices.terms_of(from));
    let is_same = data.provider.as_ref().is_some_and(|from| from.eq_ignore_ascii_case(&offer.provider));
    let egress = from.map_or(Some(0.0), |from| from.egress_to(is_same));
    let there = prices.terms_of(&offer.provider);
    // Own machines have the data if no place is given.
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
    /// Notes on the cost of transfer and storage; none for free ones.
    pub(super) fn notes(self, hours: Hours) -> impl Iterator<Item = PlanNote> {
        let gb = self.gb;
        let (egress_is_recalled, storage_is_recalled) = self.is_recalled;
        let copied = (self.hours.get() > 0.0).then_some(PlanNote::DataCopied { gb, hours: self.hours });
        let moved = match self.egress {
            Some(cost_usd) if cost_usd == Usd::ZERO => None,
            Some(cost_usd) => Some(PlanNote::DataMoved { gb, cost_usd, is_recalled: egress_is_recalled }),
            None => Some(PlanNote::DataCostUnknown { gb }),
        };
        let stored = match self.storage {
            Some(price) if price == UsdPerHour::ZERO => None,
            Some(price) => {
                Some(PlanNote::DataStored { gb, hours, cost_usd: price * hours, is_recalled: storage_is_recalled })
            }
            None => self.is_missed.then_some(PlanNote::StorageUnknown { gb }),
        };
        copied.into_iter().chain(moved).chain(stored)
    }
}
