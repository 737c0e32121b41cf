//! Machines that the user already has, with the cost of an hour; and contracts to buy, which are paid in whole terms.

use serde::Serialize;

use habitat_base::units::UsdPerHour;

/// Cost of a machine that the user already has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ownership {
    /// An own machine: power × PUE × price of electricity + wear.
    Owned {
        /// Power of the whole machine under load, in kW.
        kw: f64,
        /// PUE of the building, 1 or more.
        pue: f64,
        /// US dollars per kWh.
        usd_per_kwh: f64,
        /// Wear, or other cost per hour of use.
        #[serde(rename = "wear_usd_per_hour")]
        wear: UsdPerHour,
    },
    /// A contract that is paid whether used or not, so that another hour costs nothing.
    Contract {
        /// Amount already paid per hour.
        #[serde(rename = "usd_per_hour")]
        paid: UsdPerHour,
    },
}

impl Ownership {
    /// Cost of another hour.
    pub(crate) fn price(&self) -> UsdPerHour {
        match *self {
            Self::Owned { kw, pue, usd_per_kwh, wear } => UsdPerHour::known(kw * pue * usd_per_kwh + wear.get()),
            Self::Contract { .. } => UsdPerHour::ZERO,
        }
    }

    /// Amount already paid per hour, which is not in the cost of a plan.
    pub const fn paid(&self) -> Option<UsdPerHour> {
        match self {
            Self::Owned { .. } => None,
            Self::Contract { paid } => Some(*paid),
        }
    }
}
