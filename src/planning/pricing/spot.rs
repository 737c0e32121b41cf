//! Measured frequency of losses of spot machines, and waits for another one.
//!
//! The data are from the traces of `skypilot-org/spot-traces` at 221da1a ("Can't Be Late", NSDI 2024), counted by
//! `models/lab/steps/spot.py`. They have repeated requests for the capacity of a single machine and, in April 2023,
//! machines kept running. Zones have the names of the account that measured.
//!
//! A machine in an observed region gets the figures of that region: all losses over all hours with machines, and the
//! hours without machines over the losses. A machine elsewhere gets [`SpotMachine::typical`], which predicts better
//! than the figures of another region (`habitat-lab evaluate spot`).

use std::collections::BTreeSet;

use habitat_base::units::Hours;
use serde::Serialize;

/// Losses per hour of a machine with one GPU: mean 0.51 of 0.31, 0.44, 0.57 and 0.74 for one V100 kept running in four
/// AWS zones, April 2023.
const PER_HOUR: f64 = 0.5;
/// Hours until another machine is available: median 1.0 of the means of the same four zones, 0.82, 0.82, 1.19 and 2.90.
pub const WAIT: f64 = 1.0;
/// Maximum number of GPUs of a measured machine. Larger machines are assumed to be lost as often.
pub const MOST_GPUS: u32 = 8;
/// Exponent by which losses grow with the number of GPUs of a machine. With 8 GPUs they are 2.70 times those with 1,
/// the geometric mean of 1.5 to 3.6 times for K80 and V100 in two AWS zones, October 2022. The waits do not grow (0.93
/// times).
const BY_GPUS: f64 = 0.48;

/// Observations of spot machines of one kind in one zone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Watched {
    /// The provider.
    pub provider: &'static str,
    /// Zone: its region and a letter.
    pub zone: &'static str,
    /// Short name of the GPU.
    pub gpu: &'static str,
    /// GPUs per machine.
    pub gpus: u32,
    /// First day.
    pub since: &'static str,
    /// Hours of observation.
    pub hours: f64,
    /// Hours with the machine available.
    pub there: f64,
    /// Number of losses.
    pub losses: u32,
}

impl Watched {
    const fn new(
        provider: &'static str,
        zone: &'static str,
        (gpu, gpus): (&'static str, u32),
        since: &'static str,
        [hours, there]: [f64; 2],
        losses: u32,
    ) -> Self {
        Self { provider, zone, gpu, gpus, since, hours, there, losses }
    }

    /// Region of the zone.
    pub fn region(&self) -> &'static str {
        region_of(self.zone)
    }
}

/// All observations: repeated requests first, then machines kept running.
pub const WATCHED: &[Watched] = &[
    Watched::new("aws", "us-east-1a", ("V100", 1), "2023-02-15", [1091.9, 182.0], 253),
    Watched::new("aws", "us-east-1c", ("V100", 1), "2023-02-15", [1091.9, 509.4], 343),
    Watched::new("aws", "us-east-1d", ("V100", 1), "2023-02-15", [1091.9, 488.4], 293),
    Watched::new("aws", "us-east-1f", ("V100", 1), "2023-02-15", [1091.9, 645.5], 285),
    Watched::new("aws", "us-east-2a", ("V100", 1), "2023-02-15", [1091.9, 829.1], 145),
    Watched::new("aws", "us-east-2b", ("V100", 1), "2023-02-15", [1091.9, 744.9], 174),
    Watched::new("aws", "us-west-2a", ("V100", 1), "2023-02-15", [1091.9, 964.2], 158),
    Watched::new("aws", "us-west-2b", ("V100", 1), "2023-02-15", [1091.9, 988.1], 94),
    Watched::new("aws", "us-west-2c", ("V100", 1), "2023-02-15", [1091.9, 973.2], 142),
    Watched::new("aws", "us-west-2a", ("K80", 1), "2022-10-26", [649.2, 579.5], 132),
    Watched::new("aws", "us-west-2a", ("K80", 8), "2022-10-26", [649.2, 211.8], 135),
    Watched::new("aws", "us-west-2a", ("V100", 1), "2022-10-26", [649.2, 514.5], 126),
    Watched::new("aws", "us-west-2a", ("V100", 8), "2022-10-26", [649.2, 311.5], 269),
    Watched::new("aws", "us-west-2b", ("K80", 1), "2022-10-26", [649.2, 75.7], 47),
    Watched::new("aws", "us-west-2b", ("K80", 8), "2022-10-26", [649.2, 264.8], 246),
    Watched::new("aws", "us-west-2b", ("V100", 1), "2022-10-26", [649.2, 464.7], 171),
    Watched::new("aws", "us-west-2b", ("V100", 8), "2022-10-26", [649.2, 302.3], 399),
    Watched::new("aws", "us-east-1c", ("V100", 1), "2023-04-22", [177.4, 55.8], 41),
    Watched::new("aws", "us-east-1f", ("V100", 1), "2023-04-22", [177.4, 105.0], 60),
    Watched::new("aws", "us-west-2b", ("V100", 1), "2023-04-22", [177.4, 140.7], 44),
    Watched::new("aws", "us-west-2c", ("V100", 1), "2023-04-22", [177.4, 129.7], 57),
];

/// Expected losses and waits of a spot machine.
#[derive(Debug, Clone, PartialEq)]
pub struct SpotMachine {
    /// Losses per hour.
    pub per_hour: f64,
    /// Mean hours from a loss to the next available machine.
    pub wait: Hours,
    /// Source of both.
    pub source: SpotSource,
}

/// Source of the figures of a spot machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct SpotSource {
    /// Observations of the place; empty for those of [`SpotMachine::typical`].
    pub observed: Vec<&'static Watched>,
    /// Factor on the observed losses for the number of GPUs.
    pub times: f64,
    /// GPUs of the machine.
    pub gpus: u32,
    /// Whether the user set the losses.
    pub sets_losses: bool,
    /// Whether the user set the wait.
    pub sets_wait: bool,
}

impl SpotMachine {
    /// Figures for a machine with this number of GPUs, in a region or zone of a provider.
    pub fn new(provider: &str, region: &str, gpus: u32) -> Self {
        let rows = || WATCHED.iter().filter(|row| row.provider.eq_ignore_ascii_case(provider));
        let of_zone = Self::measured(rows().filter(|row| row.zone == region), gpus);
        let of_region = || Self::measured(rows().filter(|row| row.region() == region_of(region)), gpus);
        of_zone.or_else(of_region).unwrap_or_else(|| Self::typical(gpus))
    }

    /// Figures for a machine in a region without observations.
    pub fn typical(gpus: u32) -> Self {
        let per_hour = PER_HOUR * growth(1, gpus);
        let source = SpotSource { times: growth(1, gpus), gpus, ..SpotSource::default() };
        Self { per_hour, wait: Hours::known(WAIT), source }
    }

    /// Figures from those rows whose number of GPUs is closest, as a ratio; `None` without rows.
    pub fn measured(rows: impl Iterator<Item = &'static Watched>, gpus: u32) -> Option<Self> {
        let mut rows: Vec<&'static Watched> = rows.collect();
        let far = |row: &Watched| growth(row.gpus, gpus).ln().abs();
        let nearest = rows.iter().map(|row| far(row)).min_by(f64::total_cmp)?;
        rows.retain(|row| far(row) <= nearest);
        let sum = |of: fn(&Watched) -> f64| rows.iter().map(|row| of(row)).sum::<f64>();
        let (there, losses) = (sum(|row| row.there), sum(|row| f64::from(row.losses)));
        let at_size: f64 = rows.iter().map(|row| f64::from(row.losses) * growth(row.gpus, gpus)).sum();
        let per_hour = at_size / there;
        let wait = Hours::new((sum(|row| row.hours) - there) / losses).ok()?;
        let times = growth(rows.first()?.gpus, gpus);
        let source = SpotSource { observed: rows, times, gpus, ..SpotSource::default() };
        Some(Self { per_hour, wait, source })
    }
}

/// Ratio of the losses of a machine with `to` GPUs to those with `from` GPUs.
fn growth(from: u32, to: u32) -> f64 {
    let [from, to] = [from, to].map(|gpus| f64::from(gpus.clamp(1, MOST_GPUS)));
    (to / from).powf(BY_GPUS)
}

/// Region of a zone; a region is returned unchanged.
fn region_of(zone: &str) -> &str {
    let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    if region.len() + 1 == zone.len() && region.ends_with(|last: char| last.is_ascii_digit()) { region } else { zone }
}

/// The observed regions, as provider and region, in order.
pub fn regions() -> BTreeSet<(&'static str, &'static str)> {
    WATCHED.iter().map(|row| (row.provider, row.region())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_grow_with_the_gpus_measured_and_no_further() {
        let of = |gpus| SpotMachine::typical(gpus).per_hour;
        assert!((of(1) - 0.5).abs() < 1e-12 && (of(8) - 0.5 * 2.713).abs() < 1e-3, "{}", of(8));
        assert!(of(2) > of(1) && of(4) < of(8));
        assert!([0, 16].map(of) == [1, 8].map(of));
        for region in ["us-east-1", "us-east-2", "us-west-2"] {
            let found = [1, 2, 4, 8, 16].map(|gpus| SpotMachine::new("aws", region, gpus).per_hour);
            assert!(found.is_sorted() && found[4] <= found[3], "{region}: {found:?}");
        }
    }

    /// us-east-2: 145 and 174 losses in 829.1 and 744.9 of 1,091.9 hours each.
    #[test]
    fn a_machine_takes_the_figures_of_its_zone_or_region() {
        let [zone, region, other, away] =
            [("AWS", "us-east-2a"), ("aws", "us-east-2"), ("aws", "us-east-2f"), ("gcp", "us-east-2")]
                .map(|(provider, region)| SpotMachine::new(provider, region, 1));
        assert!((zone.per_hour - 145.0 / 829.1).abs() < 1e-9 && (zone.wait.get() - 262.8 / 145.0).abs() < 1e-9);
        assert!((region.per_hour - 319.0 / 1574.0).abs() < 1e-9, "{region:?}");
        assert!((region.wait.get() - 609.8 / 319.0).abs() < 1e-9, "{region:?}");
        let zones =
            |found: &SpotMachine| found.source.observed.iter().map(|row| (row.zone, row.gpus)).collect::<Vec<_>>();
        assert_eq!(zones(&region), [("us-east-2a", 1), ("us-east-2b", 1)]);
        assert_eq!((&other, &away), (&region, &SpotMachine::typical(1)));
        assert_eq!(SpotMachine::new("aws", "eu-west-1", 8), SpotMachine::typical(8));
        // Machines with 8 GPUs were observed in us-west-2 only.
        let large = SpotMachine::new("aws", "us-west-2", 8);
        assert_eq!(zones(&large), [("us-west-2a", 8), ("us-west-2a", 8), ("us-west-2b", 8), ("us-west-2b", 8)]);
        let east = SpotMachine::new("aws", "us-east-2", 8);
        assert!((east.per_hour / region.per_hour - 2.713).abs() < 1e-3 && east.wait == region.wait);
        assert_eq!(east.source.observed, region.source.observed);
        assert!((east.source.times - 2.713).abs() < 1e-3);
    }

    #[test]
    fn what_was_watched_is_whole() {
        assert!(WATCHED.iter().all(|row| row.there < row.hours && row.losses > 0 && row.region() != row.zone));
        assert!(regions().into_iter().eq([("aws", "us-east-1"), ("aws", "us-east-2"), ("aws", "us-west-2")]));
        assert_eq!(
            ["us-west-2c", "us-west-2", "eastus", "r"].map(region_of),
            ["us-west-2", "us-west-2", "eastus", "r"]
        );
    }
}
