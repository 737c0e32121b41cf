//! Machines that are the user's already: what an hour of them costs, or has cost.

use std::fmt;

use super::offer::Tier;
use super::snapshot::Row;
use crate::units::UsdPerHour;

/// Kilowatts of one machine at most.
const MOST_KW: f64 = 1e6;

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

/// What a row says of a machine that the user has; `None` for one to be rented.
///
/// # Errors
/// The key that is missing, out of its range, or of another kind of offer.
pub(super) fn read(row: &Row) -> Result<Option<(Tier, Held)>, String> {
    let power = [("kw", row.kw), ("pue", row.pue), ("usd_per_kwh", row.usd_per_kwh)];
    let wear = ("wear_usd_per_hour", row.wear_usd_per_hour.map(UsdPerHour::get));
    let paid = ("paid_usd_per_hour", row.paid_usd_per_hour.map(UsdPerHour::get));
    let refused = |keys: &[(&str, Option<f64>)], of: &str| match keys.iter().find(|(_, value)| value.is_some()) {
        Some((key, _)) => Err(format!("{key}: only of offers with tier = \"{of}\"")),
        None => Ok(()),
    };
    let Some(tier) = row.tier else {
        refused(&[power[0], power[1], power[2], wear], "owned")?;
        refused(&[paid], "reserved")?;
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
            refused(&[paid], "reserved")?;
            let kw = row.kw.ok_or("kw: missing; the power of the whole machine under load, in kW")?;
            let usd_per_kwh = row.usd_per_kwh.ok_or("usd_per_kwh: missing; what a kWh of electricity costs")?;
            let pue = row.pue.unwrap_or(1.0);
            for (key, value, least, most) in
                [("kw", kw, 0.0, MOST_KW), ("pue", pue, 1.0, 100.0), ("usd_per_kwh", usd_per_kwh, 0.0, 1e3)]
            {
                if !(least..=most).contains(&value) || (key == "kw" && value <= 0.0) {
                    let above = if key == "kw" { "above" } else { "from" };
                    return Err(format!("{key}: {value:?}; it must be a number {above} {least} and at most {most:e}"));
                }
            }
            Held::Owned { kw, pue, usd_per_kwh, wear: row.wear_usd_per_hour.unwrap_or(UsdPerHour::ZERO) }
        }
        Tier::Reserved => {
            refused(&[power[0], power[1], power[2], wear], "owned")?;
            let paid =
                row.paid_usd_per_hour.ok_or("paid_usd_per_hour: missing; what an hour of the contract has cost")?;
            Held::Contract { paid }
        }
        Tier::OnDemand | Tier::Spot => {
            let key = if tier == Tier::Spot { "spot_usd_per_hour" } else { "on_demand_usd_per_hour" };
            return Err(format!("tier: {:?} is said by {key}; owned and reserved are said here", tier.name()));
        }
    };
    Ok(Some((tier, held)))
}
