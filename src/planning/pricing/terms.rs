//! Terms for all offers of a provider.

use serde::{Deserialize, Serialize};

use habitat_base::units::UsdPerHour;

/// Hours per month, as providers bill storage: a twelfth of 8,760.
const MONTH: f64 = 730.0;

/// Terms of a provider besides the prices of its offers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Terms {
    /// Unit of billed time.
    pub billing: Billing,
    /// US dollars per GB of data that leaves the provider; `None` if unknown.
    pub egress_usd_per_gb: Option<f64>,
    /// US dollars per GB of data that goes to another region of the provider; `None` if unknown.
    pub egress_other_region_usd_per_gb: Option<f64>,
    /// Whether the price of egress was entered without a source.
    pub egress_is_recalled: bool,
    /// US dollars per GB of stored data per month; `None` if unknown.
    pub storage_usd_per_gb_month: Option<f64>,
    /// Whether the price of storage was entered without a source.
    pub storage_is_recalled: bool,
    /// PUE of its data centres, 1 or more; `None` if unknown.
    pub pue: Option<f64>,
    /// Kilograms of CO2e per kWh; `None` = by the region's place.
    pub kg_co2_per_kwh: Option<f64>,
}

impl Terms {
    /// Fills in missing terms from `before`.
    #[must_use]
    pub(crate) fn or(self, before: Self) -> Self {
        Self {
            billing: if self.billing == Billing::Exact { before.billing } else { self.billing },
            egress_usd_per_gb: self.egress_usd_per_gb.or(before.egress_usd_per_gb),
            egress_other_region_usd_per_gb: self
                .egress_other_region_usd_per_gb
                .or(before.egress_other_region_usd_per_gb.filter(|_| self.egress_usd_per_gb.is_none())),
            egress_is_recalled: self.egress_usd_per_gb.map_or(before.egress_is_recalled, |_| self.egress_is_recalled),
            storage_usd_per_gb_month: self.storage_usd_per_gb_month.or(before.storage_usd_per_gb_month),
            storage_is_recalled: self
                .storage_usd_per_gb_month
                .map_or(before.storage_is_recalled, |_| self.storage_is_recalled),
            pue: self.pue.or(before.pue),
            kg_co2_per_kwh: self.kg_co2_per_kwh.or(before.kg_co2_per_kwh),
        }
    }

    /// US dollars per GB that goes to another region or another provider; `None` if unknown.
    pub(crate) fn egress_to(&self, is_same_provider: bool) -> Option<f64> {
        self.egress_other_region_usd_per_gb.filter(|_| is_same_provider).or(self.egress_usd_per_gb)
    }

    /// Storage price per hour of `gb` GB, for months of 730 hours; `None` if unknown.
    pub(crate) fn storage(&self, gb: f64) -> Option<UsdPerHour> {
        self.storage_usd_per_gb_month.map(|price| UsdPerHour::known(gb * price / MONTH))
    }
}

/// Unit of billed time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Billing {
    /// The time used, to the second or minute.
    #[default]
    Exact,
    /// Each started hour.
    Hour,
    /// Each started term of a contract, with its hours; only for an offer, not for a provider.
    #[serde(skip)]
    Term(u32),
}

impl Billing {
    /// Hours of a billed block; `None` if the time used is billed.
    pub(crate) fn block(self) -> Option<f64> {
        match self {
            Self::Exact => None,
            Self::Hour => Some(1.0),
            Self::Term(hours) => Some(f64::from(hours)),
        }
    }

    /// Billed hours for a number of used hours.
    pub(crate) fn billed(self, hours: f64) -> f64 {
        self.block().map_or(hours, |block| begun(hours / block) * block)
    }
}

/// Whole blocks for a number of used blocks. Any use starts the first block; an excess over a whole block within a
/// plan's rounding (a few milliseconds per hour) does not start another.
pub(crate) fn begun(blocks: f64) -> f64 {
    let first = if blocks > NOTHING { 1.0 } else { 0.0 };
    (blocks - ROUNDING - blocks * 1e-8).ceil().max(first)
}

/// Difference in blocks that two computations of a part may have.
const ROUNDING: f64 = 1e-6;
/// Blocks below which a use counts as zero.
const NOTHING: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_begun_is_billed() {
        let hours = [0.0, 0.2, 1.0, 1.000_000_1, 1.01, 250.000_000_1].map(|hours| Billing::Hour.billed(hours));
        assert_eq!(hours, [0.0, 1.0, 1.0, 1.0, 2.0, 250.0]);
        assert_eq!(Billing::Exact.billed(1.01), 1.01);
        let terms = [0.0, 1e-4, 720.0, 720.1, 1_441.0].map(|hours| Billing::Term(720).billed(hours));
        assert_eq!(terms, [0.0, 720.0, 720.0, 1_440.0, 2_160.0]);
        let hourly = Terms {
            billing: Billing::Hour,
            egress_usd_per_gb: Some(0.0),
            egress_other_region_usd_per_gb: Some(0.0),
            egress_is_recalled: true,
            storage_usd_per_gb_month: Some(0.1),
            storage_is_recalled: false,
            pue: Some(1.1),
            kg_co2_per_kwh: Some(0.4),
        };
        assert_eq!((hourly.or(Terms::default()), Terms::default().or(hourly)), (hourly, hourly));
    }
}
