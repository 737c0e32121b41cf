//! Measured operations under the roof of the GPU they ran on (Williams, Waterman and Patterson 2009):
//! what they reach over how much they compute for each byte.

use super::{Counted, Row, rows};
use crate::app::App;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_prediction::rate::Rates;
use habitat_prediction::{Options, Precision, origin};
use habitat_reports::format;
use habitat_step::catalog::GpuSpec;
use habitat_step::op;

/// The roof of a GPU: what memory streams and what long products reach.
#[derive(Debug, Clone, PartialEq)]
pub struct Roof {
    /// The GPU's name.
    pub gpu: String,
    /// Bytes a second.
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
        // Convolutions of a step in FP32 may run in TF32.
        let has_tf32 = arithmetic.any(|arithmetic| arithmetic == Some(Precision::Tf32));
        let precision = if has_tf32 { Some(Precision::Tf32) } else { recorded };
        let peak = rates.product(None, precision, false).sustained.get();
        let of_element = |element| rates.product(Some(element), precision, false).sustained.get();
        // Where the precision is not known, the fastest that any operation can use.
        let peak = app.profile.element_types.iter().map(of_element).fold(peak, f64::max);
        Self { gpu: clean(&gpu.name, 60), bandwidth: rates.streaming.value.get(), peak }
    }

    /// The most that is reached with so many FLOP a byte, in FLOP/s.
    pub fn at(&self, intensity: f64) -> f64 {
        (self.bandwidth * intensity).min(self.peak)
    }

    /// FLOP a byte from which on arithmetic bounds.
    pub fn ridge(&self) -> f64 {
        self.peak / self.bandwidth
    }
}

/// The roof of the GPU that the step was recorded on; `None` where it is not known, or nothing was measured.
pub fn roof(app: &App) -> Option<Roof> {
    let recorded = app.predict.rows.iter().find(|row| row.step.method.is_of_origin());
    let gpu = match recorded {
        Some(row) => app.setup.catalog.get(&row.slug),
        None => origin(&app.setup.profile, &app.setup.catalog, &Options::default()).ok().flatten(),
    };
    gpu.filter(|_| !super::is_unmeasured(&app.setup.profile)).map(|gpu| Roof::new(gpu, app))
}

/// FLOP a byte and FLOP/s of what was counted and timed; `None` of what computes nothing.
pub fn reached(counted: Counted, time: Micros) -> Option<(f64, f64)> {
    let is_known = counted.flops > 0.0 && counted.bytes > 0.0 && time.get() > 0.0;
    is_known.then(|| (counted.flops / counted.bytes, counted.flops / (time.get() * 1e-6)))
}

/// The rows shown that compute something, as (FLOP a byte, FLOP/s), with whether each is selected.
pub fn points(app: &App) -> Vec<(f64, f64, bool)> {
    let point = |(place, row): (usize, &Row)| {
        let (intensity, rate) = reached(row.counted, row.entry.time)?;
        Some((intensity, rate, place == app.profile.list.selected))
    };
    rows(app).into_iter().enumerate().filter_map(point).collect()
}

/// `12.1 FLOP a byte, 3.2 TFLOP/s, 61 % of what the Tesla V100 sustains there (memory)`.
pub fn words(roof: &Roof, counted: Counted, time: Micros) -> Option<String> {
    let (intensity, rate) = reached(counted, time)?;
    let bound = if intensity < roof.ridge() { "memory" } else { "arithmetic" };
    Some(format!(
        "{} FLOP a byte, {}FLOP/s: {} of what the {} sustains there ({bound})",
        format::number(intensity),
        rate_words(rate),
        format::percent(rate / roof.at(intensity)),
        roof.gpu
    ))
}

/// `3.2 T`, for FLOP/s.
pub fn rate_words(rate: f64) -> String {
    let text = format::short_count(rate);
    if text.contains(' ') { text } else { format!("{text} ") }
}
