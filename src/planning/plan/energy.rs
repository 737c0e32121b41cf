//! Energy and emissions of a plan.
//!
//! Energy = power of the machines × PUE × hours that they run. Emissions = energy × carbon intensity of the local
//! electricity. Waiting for spot needs no energy; set-up and lost work do. The power and PUE of own machines are given;
//! for other machines, the GPUs draw their power limit, and the whole machine [`WITH_REST`] times as much.

use serde::Serialize;

use super::Reason;
use super::goal::{Goal, Objective};
use crate::pricing::{Intensity, Offer, Ownership, PriceBook};
use habitat_base::units::{Hours, KilogramsCo2e, KilowattHours, Range, Watts};
use habitat_prediction::GpuFacts;

/// Power of a machine relative to the power limits of its GPUs. A node of eight H100 of 700 W each drew at most 8.4 kW
/// in training (Latif et al. 2024, arXiv:2412.08602).
pub const WITH_REST: f64 = 1.5;

/// Power of a data centre relative to its machines (PUE) if the provider's is unknown: the average of the Uptime
/// Institute's Global Data Center Survey 2024.
pub const PUE: f64 = 1.56;

/// Power of a part's machines while they run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Draw {
    /// Power of all machines.
    #[serde(rename = "watts")]
    pub machines: Watts,
    /// Power of the data centre relative to the machines.
    pub pue: f64,
    /// Emissions per kWh; `None` if unknown.
    pub intensity: Option<Intensity>,
}

/// Energy and emissions of a part or of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Footprint {
    /// Energy; `None` if the power of a machine is unknown.
    pub energy: Option<Range<KilowattHours>>,
    /// Emissions; `None` if the power or the carbon intensity is unknown.
    pub emissions: Option<Range<KilogramsCo2e>>,
}

/// Properties of an offer's location, for any number of machines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Site {
    pue: f64,
    intensity: Option<Intensity>,
}

impl Site {
    pub(super) fn new(offer: &Offer, prices: &PriceBook) -> Self {
        let pue = prices.terms_of(&offer.provider).pue.unwrap_or(PUE);
        Self { pue, intensity: prices.intensity(offer) }
    }
}

impl Draw {
    /// Power of a number of machines of an offer; `None` if the power of its GPU is unknown.
    pub(super) fn new(offer: &Offer, machines: u32, gpu: &GpuFacts, site: Site) -> Option<Self> {
        let Site { pue, intensity } = site;
        if let Some(Ownership::Owned { kw, pue, .. }) = offer.held {
            return Some(Self { machines: Watts::known(kw * 1e3 * f64::from(machines)), pue, intensity });
        }
        let gpus = gpu.power? * f64::from(offer.gpu_count) * f64::from(machines);
        Some(Self { machines: gpus * WITH_REST, pue, intensity })
    }

    /// Energy in a number of hours.
    fn energy(&self, hours: Hours) -> KilowattHours {
        self.machines * self.pue * hours
    }

    /// Kilograms of CO2e per hour; `None` if unknown.
    pub(super) fn hourly_kg(&self) -> Option<f64> {
        Some(self.energy(Hours::known(1.0)).get() * self.intensity?.kg_per_kwh)
    }

    /// Energy and emissions for the hours of running.
    pub(super) fn footprint(&self, running: Range<Hours>) -> Footprint {
        let energy = running.map(|hours| self.energy(hours));
        let emitted = |of: Intensity| energy.map(|energy| KilogramsCo2e::known(energy.get() * of.kg_per_kwh));
        Footprint { energy: Some(energy), emissions: self.intensity.map(emitted) }
    }
}

/// Reason to reject an offer if emissions matter but are unknown; `None` if they are known.
pub(super) fn unknown(draw: Option<&Draw>, gpu: &GpuFacts) -> Option<Reason> {
    match draw {
        None => Some(Reason::PowerUnknown { gpu: gpu.slug.clone() }),
        Some(Draw { intensity: None, .. }) => Some(Reason::CarbonUnknown),
        Some(_) => None,
    }
}

impl Goal {
    /// Whether the plan depends on emissions, so that offers with unknown emissions are rejected.
    pub(super) fn asks_emissions(&self) -> bool {
        self.limits.max_co2.is_some() || self.objective == Objective::Emissions
    }
}

/// Sum over parts that follow one another.
impl std::iter::Sum for Footprint {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        let parts: Vec<Self> = parts.collect();
        Self {
            energy: parts.iter().map(|part| part.energy).sum(),
            emissions: parts.iter().map(|part| part.emissions).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_times_pue_times_hours_times_intensity() {
        let intensity = Some(Intensity { kg_per_kwh: 0.4, average: None });
        let draw = Draw { machines: Watts::known(350.0), pue: 1.2, intensity };
        let running = Range { low: 5.0, mid: 10.0, high: 20.0 }.map(Hours::known);
        let found = draw.footprint(running);
        let close = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(close(found.energy.unwrap().mid.get(), 4.2) && close(found.emissions.unwrap().mid.get(), 1.68));
        assert!(close(draw.hourly_kg().unwrap(), 0.168) && close(found.emissions.unwrap().high.get(), 3.36));
        // If one part is unknown, so is the sum.
        let without = Draw { intensity: None, ..draw }.footprint(running);
        let both: Footprint = [found, without].into_iter().sum();
        assert!(close(both.energy.unwrap().mid.get(), 8.4) && both.emissions.is_none());
        assert_eq!([found, Footprint::default()].into_iter().sum::<Footprint>(), Footprint::default());
    }
}
