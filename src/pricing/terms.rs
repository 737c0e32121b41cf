//! What holds for all offers of a provider.

use serde::{Deserialize, Serialize};

/// How a provider charges beside the prices of its offers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// Which time is billed.
    pub billing: Billing,
    /// US dollars for a GB of data that leaves the provider; `None` where that is not known.
    pub egress_usd_per_gb: Option<f64>,
}

impl Terms {
    /// These, and where they say nothing, what was known before.
    #[must_use]
    pub fn or(self, before: Self) -> Self {
        Self {
            billing: if self.billing == Billing::Exact { before.billing } else { self.billing },
            egress_usd_per_gb: self.egress_usd_per_gb.or(before.egress_usd_per_gb),
        }
    }
}

/// Which time is billed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Billing {
    /// The time used, to the second or minute.
    #[default]
    Exact,
    /// Every hour begun.
    Hour,
}

impl Billing {
    /// The hours billed for so many used. What is over a full hour by no more than the rounding of
    /// a plan (a few milliseconds) begins no new one.
    pub fn billed(self, hours: f64) -> f64 {
        match self {
            Self::Exact => hours,
            Self::Hour => (hours - ROUNDING - hours * 1e-8).ceil().max(0.0),
        }
    }
}

/// Hours by which two computations of one part may differ.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_begun_is_billed() {
        let hours = [0.0, 0.2, 1.0, 1.000_000_1, 1.01, 250.000_000_1].map(|hours| Billing::Hour.billed(hours));
        assert_eq!(hours, [0.0, 1.0, 1.0, 1.0, 2.0, 250.0]);
        assert_eq!(Billing::Exact.billed(1.01), 1.01);
        let hourly = Terms { billing: Billing::Hour, egress_usd_per_gb: Some(0.0) };
        assert_eq!((hourly.or(Terms::default()), Terms::default().or(hourly)), (hourly, hourly));
    }
}
