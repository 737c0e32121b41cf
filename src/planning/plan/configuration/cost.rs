//! Hours and cost of a configuration by use.

use super::Configuration;
use crate::plan::{ByUse, Use};
use habitat_base::units::{Hours, Range, Usd, UsdPerHour};

impl Configuration {
    /// Elapsed hours and cost of a number of useful hours, including set-up: without losses at the lower step time,
    /// with expected losses at the middle, and with the allowed losses at the upper one. `first`: includes the losses
    /// that are allowed for once per plan.
    pub(crate) fn ranges(&self, useful: f64, first: bool) -> (Range<Hours>, Range<Usd>) {
        let by = self.hours_by(useful, first);
        (by.sum(), self.cost_by(&by).sum())
    }

    /// Elapsed hours by use.
    pub(super) fn hours_by(&self, useful: f64, first: bool) -> ByUse<Hours> {
        let (step, losses) = (self.step.range, &self.losses);
        let training = [useful * (step.low / step.mid), useful, useful * (step.high / step.mid)];
        let lost = self.allowance(useful * self.running(), first);
        ByUse::new(|what| {
            let [low, mid, high] = match what {
                Use::Setup => [self.setup; 3],
                Use::Training => training,
                Use::Checkpoints => training.map(|hours| hours * losses.writing),
                Use::Repeated => [0.0, useful * losses.repeated(), lost * losses.each_billed()],
                Use::Waiting => [0.0, useful * losses.waited(), lost * (losses.each() - losses.each_billed())],
                Use::Data => [self.copying(); 3],
                Use::Unused | Use::Storage => [0.0; 3],
            }
            .map(Hours::known);
            Range { low, mid, high }
        })
    }

    /// Cost by use.
    pub(super) fn cost_by(&self, hours: &ByUse<Hours>) -> ByUse<Usd> {
        let (elapsed, used) = (hours.sum(), used(hours));
        let cost = |what: Use, hours: Hours, elapsed: Hours, used: Hours| {
            let billed = self.billing.billed(used.get());
            // An excess over a whole block within rounding errors is not billed.
            let running = self.price() * hours * (billed / used.get().max(f64::MIN_POSITIVE)).min(1.0);
            match what {
                Use::Setup | Use::Training | Use::Checkpoints | Use::Repeated => running,
                Use::Waiting => Usd::ZERO,
                Use::Unused => self.price() * Hours::known((billed - used.get()).max(0.0)),
                Use::Storage => self.storage() * elapsed,
                Use::Data => running + self.data_cost(),
            }
        };
        ByUse::new(|what| {
            let own = hours.of(what);
            Range {
                low: cost(what, own.low, elapsed.low, used.low),
                mid: cost(what, own.mid, elapsed.mid, used.mid),
                high: cost(what, own.high, elapsed.high, used.high),
            }
        })
    }

    /// Losses allowed for in a number of hours of running.
    pub(super) fn allowance(&self, running: f64, first: bool) -> f64 {
        let (once, hourly) = self.losses.allowance();
        hourly * running + if first { once } else { 0.0 }
    }

    /// One-time hours of copying the data.
    pub(super) fn copying(&self) -> f64 {
        self.data.map_or(0.0, |data| data.hours.get())
    }

    /// Hours before the first step: the machine starts, and the data are copied.
    pub(super) fn before(&self) -> f64 {
        self.setup + self.copying()
    }

    /// One-time cost of transferring the data.
    pub(super) fn data_cost(&self) -> Usd {
        self.data.and_then(|data| data.egress).unwrap_or(Usd::ZERO)
    }

    /// Storage price of the data per elapsed hour.
    pub(super) fn storage(&self) -> UsdPerHour {
        self.data.and_then(|data| data.storage).unwrap_or(UsdPerHour::ZERO)
    }
}

/// Hours in which the machines run, which exclude waits for spot.
pub(super) fn used(hours: &ByUse<Hours>) -> Range<Hours> {
    ByUse::new(|what| if what == Use::Waiting { Range::default() } else { hours.of(what) }).sum()
}
