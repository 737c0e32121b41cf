//! Machines that are the user's already, what an hour of them costs or has cost; and contracts to
//! be bought, whose terms are paid whole.

use std::fmt;

use super::offer::Tier;
use super::snapshot::Row;
use habitat_base::units::{UsdPerHour, most};

/// Kilowatts of one machine at most.
const MOST_KW: f64 = 1e6;

/// Hours of a contract's term at most: ten years.
const MOST_TERM: u32 = 87_600;

/// What the price of a machine is made of that the user has already.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Held {
    /// An own machine: power × PUE × price of electricity + wear.
    Owned {
        /// Power of the whole machine under load, in kW.
        kw: f64,
        /// Power of the building over that of its machines, 1 or more.
        pue: f64,
        /// US dollars a kWh.
        usd_per_kwh: f64,
        /// Wear, or what else an hour of use costs.
        wear: UsdPerHour,
    },
    /// A contract that is paid whether it is used or not: another hour costs nothing.
    Contract {
        /// What an hour has cost.
        paid: UsdPerHour,
    },
}

impl Held {
    /// What another hour of it costs.
    pub fn price(&self) -> UsdPerHour {
        match *self {
            Self::Owned { kw, pue, usd_per_kwh, wear } => UsdPerHour::known(kw * pue * usd_per_kwh + wear.get()),
            Self::Contract { .. } => UsdPerHour::ZERO,
        }
    }

    /// What was paid for an hour and is in no plan's cost.
    pub const fn paid(&self) -> Option<UsdPerHour> {
        match self {
            Self::Owned { .. } => None,
            Self::Contract { paid } => Some(*paid),
        }
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owned { kw, pue, usd_per_kwh, wear } => {
                write!(f, "{kw} kW × PUE {pue} × ${usd_per_kwh}/kWh")?;
                if wear.get() > 0.0 { write!(f, " + ${}/h of wear", wear.get()) } else { Ok(()) }
            }
            Self::Contract { paid } => write!(f, "${}/h already paid, not in the cost", paid.get()),
        }
    }
}

/// What a row says with its `tier`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Tiered {
    pub(super) tier: Tier,
    pub(super) price: UsdPerHour,
    /// Of a machine that the user has.
    pub(super) held: Option<Held>,
    /// Of a contract to be bought.
    pub(super) term_hours: Option<u32>,
}

/// What a row says of a machine that the user has, or of a contract to be bought; `None` for one
/// that is rented by the hour.
///
/// # Errors
/// The key that is missing, out of its range, or of another kind of offer.
pub(super) fn read(row: &Row) -> Result<Option<Tiered>, String> {
    let power = [("kw", row.kw), ("pue", row.pue), ("usd_per_kwh", row.usd_per_kwh)];
    let wear = ("wear_usd_per_hour", row.wear_usd_per_hour.map(UsdPerHour::get));
    let own = [power[0], power[1], power[2], wear];
    let contract = [
        ("paid_usd_per_hour", row.paid_usd_per_hour.map(UsdPerHour::get)),
        ("usd_per_hour", row.usd_per_hour.map(UsdPerHour::get)),
        ("term_hours", row.term_hours.map(f64::from)),
    ];
    let refused = |keys: &[(&str, Option<f64>)], of: &str| match keys.iter().find(|(_, value)| value.is_some()) {
        Some((key, _)) => Err(format!("{key}: only of offers with tier = \"{of}\"")),
        None => Ok(()),
    };
    let Some(tier) = row.tier else {
        refused(&own, "owned")?;
        refused(&contract, "reserved")?;
        return Ok(None);
    };
    if row.on_demand.is_some() || row.spot.is_some() {
        return Err(format!(
            "tier: {tier:?} goes without on_demand_usd_per_hour and spot_usd_per_hour",
            tier = tier.name()
        ));
    }
    let held = match tier {
        Tier::Owned => {
            refused(&contract, "reserved")?;
            let kw = row.kw.ok_or("kw: missing; the power of the whole machine under load, in kW")?;
            let usd_per_kwh = row.usd_per_kwh.ok_or("usd_per_kwh: missing; what a kWh of electricity costs")?;
            let pue = row.pue.unwrap_or(1.0);
            for (key, value, least, most) in [
                ("kw", kw, 0.0, MOST_KW),
                ("pue", pue, 1.0, 100.0),
                ("usd_per_kwh", usd_per_kwh, 0.0, most::USD_PER_KWH),
            ] {
                if !(least..=most).contains(&value) || (key == "kw" && value <= 0.0) {
                    let above = if key == "kw" { "above" } else { "from" };
                    return Err(format!("{key}: {value:?}; it must be a number {above} {least} and at most {most:e}"));
                }
            }
            Held::Owned { kw, pue, usd_per_kwh, wear: row.wear_usd_per_hour.unwrap_or(UsdPerHour::ZERO) }
        }
        Tier::Reserved => {
            refused(&own, "owned")?;
            match (row.paid_usd_per_hour, row.usd_per_hour, row.term_hours) {
                (Some(paid), None, None) => Held::Contract { paid },
                (Some(_), ..) => {
                    return Err(
                        "paid_usd_per_hour: of a contract that is paid; usd_per_hour and term_hours are of one to be bought"
                            .to_owned(),
                    );
                }
                (None, Some(price), Some(hours)) => return to_buy(price, hours).map(Some),
                (None, Some(_), None) => {
                    return Err("term_hours: missing; the hours that the contract is bought for".to_owned());
                }
                (None, None, Some(_)) => {
                    return Err("usd_per_hour: missing; what each hour of the term costs, used or not".to_owned());
                }
                (None, None, None) => {
                    return Err(
                        "paid_usd_per_hour: missing; what an hour of the contract has cost (of one to be bought: usd_per_hour and term_hours)"
                            .to_owned(),
                    );
                }
            }
        }
        Tier::OnDemand | Tier::Spot => {
            let key = if tier == Tier::Spot { "spot_usd_per_hour" } else { "on_demand_usd_per_hour" };
            return Err(format!("tier: {:?} is said by {key}; owned and reserved are said here", tier.name()));
        }
    };
    Ok(Some(Tiered { tier, price: held.price(), held: Some(held), term_hours: None }))
}

/// A contract to be bought, each hour of its term at this price.
fn to_buy(price: UsdPerHour, hours: u32) -> Result<Tiered, String> {
    if price.get() <= 0.0 {
        return Err(
            "usd_per_hour: 0 is not a valid price; of a contract that is paid, paid_usd_per_hour says what it has cost"
                .to_owned(),
        );
    }
    if !(1..=MOST_TERM).contains(&hours) {
        return Err(format!("term_hours: {hours}; whole hours, 1 to {MOST_TERM} (ten years)"));
    }
    Ok(Tiered { tier: Tier::Reserved, price, held: None, term_hours: Some(hours) })
}
