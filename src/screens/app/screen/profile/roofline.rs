//! Measured operations in the roofline plot of the recording GPU (Williams, Waterman and Patterson 2009): FLOP/s over
//! FLOP per byte.

use super::{Counted, Row, rows};
use crate::app::App;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_prediction::rate::Rates;
use habitat_prediction::{Options, Precision, origin};
use habitat_reports::format;
use habitat_step::catalog::GpuSpec;
use habitat_step::op;

/// Roofline of a GPU: sustained memory bandwidth and product rate.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// The GPU's name.
    pub gpu: String,
    /// Bytes per second.
    pub bandwidth: f64,
    /// FLOP/s of products in the precision of the step.
    pub peak: f64,
}

impl Roof {
    fn new(gpu: &GpuSpec, app: &App) -> Self {
        let rates = Rates::new(gpu);
        let profile = &app.setup.profile;
        let recorded = profile.workload.precision;
        let mut arithmetic = profile.operations.iter().map(|one| op::arithmetic(one, op::family(one), recorded));
        // Convolutions of an FP32 step may run in TF32.
        let has_tf32 = arithmetic.any(|arithmetic| arithmetic == Some(Precision::Tf32));
        let precision = if has_tf32 { Some(Precision::Tf32) } else { recorded };
        let peak = rates.product(None, precision, false).sustained.get();
        let of_element = |element| rates.product(Some(element), precision, false).sustained.get();
        // If the precision is unknown, use the fastest rate that any operation can use.
        let peak = app.profile.element_types.iter().map(of_element).fold(peak, f64::max);
        Self { gpu: clean(&gpu.name, 60), bandwidth: rates.streaming.value.get(), peak }
    }

    /// Highest reachable FLOP/s at this intensity in FLOP per byte.
    pub fn at(&self, intensity: f64) -> f64 {
        (self.bandwidth * intensity).min(self.peak)
    }

    /// Intensity, in FLOP per byte, above which operations are compute-bound.
    pub fn ridge(&self) -> f64 {
        self.peak / self.bandwidth
    }
}

/// Roofline of the recording GPU; `None` if the GPU is unknown or nothing was measured.
pub fn roof(app: &App) -> Option<Roof> {
    let recorded = app.predict.rows.iter().find(|row| row.step.method.is_of_origin());
    let gpu = match recorded {
        Some(row) => app.setup.catalog.get(&row.slug),
        None => origin(&app.setup.profile, &app.setup.catalog, &Options::default()).ok().flatten(),
    };
    gpu.filter(|_| !super::is_unmeasured(&app.setup.profile)).map(|gpu| Roof::new(gpu, app))
}

/// FLOP per byte and FLOP/s of counted and timed work; `None` if it computes nothing.
pub fn reached(counted: Counted, time: Micros) -> Option<(f64, f64)> {
    let is_known = counted.flops > 0.0 && counted.bytes > 0.0 && time.get() > 0.0;
    is_known.then(|| (counted.flops / counted.bytes, counted.flops / (time.get() * 1e-6)))
}

/// Visible rows that compute something, as (FLOP per byte, FLOP/s, selected).
pub fn points(app: &App) -> Vec<(f64, f64, bool)> {
    let point = |(place, row): (usize, &Row)| {
        let (intensity, rate) = reached(row.counted, row.entry.time)?;
        Some((intensity, rate, place == app.profile.list.selected))
    };
    rows(app).into_iter().enumerate().filter_map(point).collect()
}

/// Text such as `memory-bound: 12.1 FLOP per byte, 3.2 TFLOP/s, 61 % of what the Tesla V100 sustains`.
pub fn words(roof: &Roof, counted: Counted, time: Micros) -> Option<String> {
    let (intensity, rate) = reached(counted, time)?;
    let bound = if intensity < roof.ridge() { "memory-bound" } else { "compute-bound" };
    Some(format!(
        "{bound}: {} FLOP per byte, {}FLOP/s, {} of what the {} sustains",
        format::number(intensity),
        rate_words(rate),
        format::percent(rate / roof.at(intensity)),
        roof.gpu
    ))
}

/// Prefix for FLOP/s, such as `3.2 T`.
pub(crate) fn rate_words(rate: f64) -> String {
    let text = format::short_count(rate);
    if text.contains(' ') { text } else { format!("{text} ") }
}
