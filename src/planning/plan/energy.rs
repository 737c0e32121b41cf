//! The energy that a plan takes, and what that emits.
//!
//! Energy = power of the machines × PUE × hours that they run; emissions = energy × carbon intensity
//! of the electricity where they stand. Waiting for spot takes none, set-up and lost work do. Of an own machine
//! power and PUE are said; of others the GPUs draw their power limit, and the rest of the machine
//! [`WITH_REST`] times as much with them.

use serde::Serialize;

use super::goal::{Goal, Objective};
use crate::pricing::{Held, Intensity, Offer, PriceBook};
use habitat_base::text::grouped;
use habitat_base::units::{Hours, KilogramsCo2e, KilowattHours, Range, Watts};
use habitat_prediction::GpuFacts;

/// Power of a machine over the power limits of its GPUs: of a node of eight H100 of 700 W each at most
/// 8.4 kW were measured in training (Latif et al. 2024, arXiv:2412.08602).
pub const WITH_REST: f64 = 1.5;

/// Power of a building over that of its machines where a provider's is not known: the average of
/// the Uptime Institute's Global Data Center Survey 2024.
pub(super) const PUE: f64 = 1.56;

/// What the machines of a part draw while they run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Of all its machines.
    pub machines: Watts,
    /// Power of the building over that of the machines.
    pub pue: f64,
    /// What a kWh emits there; `None` where that is not known.
    pub intensity: Option<Intensity>,
}

/// The energy and emissions of a part or of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Footprint {
    /// Energy; `None` where the power of a machine is not known.
    pub energy: Option<Range<KilowattHours>>,
    /// Emissions; `None` where the power, or what a kWh emits, is not known.
    pub emissions: Option<Range<KilogramsCo2e>>,
}

/// What holds where an offer is, however many machines of it are taken.
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
    /// Of so many machines of an offer; `None` where the power of its GPU is not known.
    pub(super) fn new(offer: &Offer, machines: u32, gpu: &GpuFacts, site: Site) -> Option<Self> {
        let Site { pue, intensity } = site;
        if let Some(Held::Owned { kw, pue, .. }) = offer.held {
            return Some(Self { machines: Watts::known(kw * 1e3 * f64::from(machines)), pue, intensity });
        }
        let gpus = gpu.power? * f64::from(offer.gpu_count) * f64::from(machines);
        Some(Self { machines: gpus * WITH_REST, pue, intensity })
    }

    /// kWh in so many hours.
    fn energy(&self, hours: Hours) -> KilowattHours {
        self.machines * self.pue * hours
    }

    /// Kilograms of CO2e in an hour; `None` where that is not known.
    pub(super) fn hourly_kg(&self) -> Option<f64> {
        Some(self.energy(Hours::known(1.0)).get() * self.intensity?.kg_per_kwh)
    }

    /// In so many hours of running.
    pub(super) fn footprint(&self, running: Range<Hours>) -> Footprint {
        let energy = running.map(|hours| self.energy(hours));
        let emitted = |of: Intensity| energy.map(|energy| KilogramsCo2e::known(energy.get() * of.kg_per_kwh));
        Footprint { energy: Some(energy), emissions: self.intensity.map(emitted) }
    }

    /// What it is made of, in words.
    pub(super) fn words(&self) -> String {
        let kw = self.machines.get() / 1e3;
        let emits = match self.intensity {
            Some(Intensity { kg_per_kwh, average: Some((place, year)) }) => {
                format!("{kg_per_kwh} kg CO2e/kWh ({}, {year})", place.to_uppercase())
            }
            Some(Intensity { kg_per_kwh, average: None }) => format!("{kg_per_kwh} kg CO2e/kWh (price file)"),
            None => "what a kWh emits there is not known (kg_co2_per_kwh of a price file)".to_owned(),
        };
        format!("draws {kw:.2} kW × PUE {}; {emits}", self.pue)
    }
}

/// Kilograms in words, about three significant digits.
pub(super) fn kilograms(kg: f64) -> String {
    match kg {
        kg if kg >= 99.95 => grouped(kg),
        kg if kg >= 9.995 => format!("{kg:.1}"),
        kg if kg >= 0.9995 || kg == 0.0 => format!("{kg:.2}"),
        kg if kg >= 0.001 => format!("{kg:.3}"),
        kg => format!("{kg:.1e}"),
    }
}

/// Why a limit on emissions leaves out an offer of such machines; `None` where they are known.
pub(super) fn unknown(draw: Option<&Draw>, gpu: &GpuFacts) -> Option<String> {
    match draw {
        None => Some(format!("emissions not known: the power of {} is not in the catalog", gpu.slug)),
        Some(Draw { intensity: None, .. }) => {
            Some("emissions not known: nothing says what a kWh emits there (kg_co2_per_kwh of a price file)".to_owned())
        }
        Some(_) => None,
    }
}

impl Goal {
    /// Whether the plan depends on emissions: then offers of which they are not known are left out.
    pub(super) fn asks_emissions(&self) -> bool {
        self.limits.max_co2.is_some() || self.objective == Objective::Emissions
    }
}

/// Of parts that follow one another.
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
        // What is not known of one part is not known of the whole.
        let without = Draw { intensity: None, ..draw }.footprint(running);
        let both: Footprint = [found, without].into_iter().sum();
        assert!(close(both.energy.unwrap().mid.get(), 8.4) && both.emissions.is_none());
        assert_eq!([found, Footprint::default()].into_iter().sum::<Footprint>(), Footprint::default());
    }
}
