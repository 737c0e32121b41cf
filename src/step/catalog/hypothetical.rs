//! Hypothetical GPUs: a catalog GPU with some specifications changed (the case study of Li et al., MICRO '23, varies
//! the memory bandwidth).

use std::fmt;

use super::{AchievedMatmul, GpuSpec, Layer, PeakRates};
use habitat_base::text;
use habitat_base::units::{FlopsPerSecond, GpuSlug};

/// A specification that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Memory bandwidth.
    Bandwidth,
    /// Multiprocessors, which scale all arithmetic rates.
    Multiprocessors,
    /// Clock, which scales all arithmetic rates.
    Clock,
    /// Matrix-product rates on tensor cores (AMD: matrix cores).
    Tensor,
    /// Memory size.
    Memory,
}

impl Figure {
    /// All figures in display order.
    pub const ALL: [Self; 5] = [Self::Bandwidth, Self::Multiprocessors, Self::Clock, Self::Tensor, Self::Memory];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Multiprocessors => "sms",
            Self::Clock => "clock",
            Self::Tensor => "tensor",
            Self::Memory => "memory",
        }
    }

    /// Label for display.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Bandwidth => "memory bandwidth",
            Self::Multiprocessors => "multiprocessors",
            Self::Clock => "clock",
            Self::Tensor => "tensor-core rate",
            Self::Memory => "memory",
        }
    }
}

/// Factors by which each figure differs from the real GPU's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Changes([f64; 5]);

impl Default for Changes {
    fn default() -> Self {
        Self([1.0; 5])
    }
}

impl Changes {
    /// Smallest and largest factor.
    pub(crate) const LIMITS: [f64; 2] = [0.1, 10.0];

    /// Factor of one figure.
    pub const fn get(&self, figure: Figure) -> f64 {
        self.0[figure as usize]
    }

    /// The same changes with another factor for one figure.
    #[must_use]
    pub const fn with(mut self, figure: Figure, times: f64) -> Self {
        self.0[figure as usize] = times;
        self
    }

    /// Changes with a factor for one figure.
    pub fn of(figure: Figure, times: f64) -> Self {
        Self::default().with(figure, times)
    }

    /// Whether nothing changes.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Parses factors by name: `bandwidth=2,sms=1.5`.
    ///
    /// # Errors
    /// A message with the invalid part and the expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut changes = Self::default();
        for change in text.split(',').map(str::trim).filter(|change| !change.is_empty()) {
            let known = Figure::ALL.map(Figure::name).join(", ");
            let (name, times) = change.split_once('=').ok_or_else(|| {
                format!("{:?}: expected NAME=FACTOR, such as bandwidth=2; names: {known}", text::clean(change, 40))
            })?;
            let figure = Figure::ALL.into_iter().find(|figure| figure.name().eq_ignore_ascii_case(name.trim()));
            let figure = figure.ok_or_else(|| format!("unknown name {:?}; names: {known}", text::clean(name, 40)))?;
            let [least, most] = Self::LIMITS;
            let value = times.trim().trim_end_matches(['x', '×']).trim().parse::<f64>();
            let value = value.ok().filter(|value| (least..=most).contains(value)).ok_or_else(|| {
                format!("{}={}: the factor must be from {least} to {most}", figure.name(), text::clean(times, 40))
            })?;
            changes = changes.with(figure, value);
        }
        Ok(changes)
    }
}

/// For display: `2 × memory bandwidth, 1.5 × clock`.
impl fmt::Display for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = Figure::ALL.into_iter().filter(|figure| self.get(*figure) != 1.0);
        let words = changed.map(|figure| format!("{} × {}", (self.get(figure) * 1e3).round() / 1e3, figure.words()));
        let words: Vec<String> = words.collect();
        f.pad(&if words.is_empty() { "nothing changed".to_owned() } else { words.join(", ") })
    }
}

impl GpuSpec {
    /// This GPU with changed figures under another slug. Measurements scale with the figure they belong to. The power
    /// limit grows with the arithmetic rates, so that it does not throttle more than on the real GPU; caches stay the
    /// same.
    #[must_use]
    pub fn hypothetical(&self, slug: GpuSlug, changes: &Changes) -> Self {
        let sm_count = ((f64::from(self.sm_count) * changes.get(Figure::Multiprocessors)).round() as u32).max(1);
        let clock = changes.get(Figure::Clock);
        let vector = f64::from(sm_count) / f64::from(self.sm_count.max(1)) * clock;
        let tensor = vector * changes.get(Figure::Tensor);
        let bandwidth = changes.get(Figure::Bandwidth);
        let of = |dtype: &str| if dtype == "fp32" { vector } else { tensor };
        let matrix = |rate: Option<FlopsPerSecond>| rate.map(|rate| rate * tensor);
        let calibration = self.calibration.as_ref().map(|calibration| {
            let mut calibration = calibration.clone().with_bandwidth_times(bandwidth);
            for product in &mut calibration.product {
                let times = of(&product.dtype);
                let spread = &mut product.tflops;
                [spread.median, spread.low, spread.high] =
                    [spread.median, spread.low, spread.high].map(|tflops| tflops * times);
            }
            Box::new(calibration)
        });
        Self {
            slug,
            name: format!("{} with {changes}", self.name),
            sm_count,
            boost_clock: self.boost_clock * clock,
            memory: self.memory * changes.get(Figure::Memory),
            memory_bandwidth: self.memory_bandwidth * bandwidth,
            measured_bandwidth: self.measured_bandwidth.map(|measured| measured * bandwidth),
            peak: PeakRates {
                fp32: self.peak.fp32 * vector,
                tf32_tensor: matrix(self.peak.tf32_tensor),
                fp16_tensor: matrix(self.peak.fp16_tensor),
                bf16_tensor: matrix(self.peak.bf16_tensor),
                fp8_tensor: matrix(self.peak.fp8_tensor),
                fp16_tensor_fp16_accumulate: matrix(self.peak.fp16_tensor_fp16_accumulate),
            },
            achieved_matmul: self
                .achieved_matmul
                .iter()
                .map(|achieved| AchievedMatmul { tflops: achieved.tflops * of(&achieved.dtype), ..achieved.clone() })
                .collect(),
            power: self.power.map(|power| power * vector.max(tensor)),
            calibration,
            layer: Layer::User("hypothetical".to_owned()),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn real() -> GpuSpec {
        let path = format!("{}/../../catalog/h100-sxm5-80gb.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn changed(text: &str) -> GpuSpec {
        real().hypothetical(GpuSlug::new("x").unwrap(), &Changes::parse(text).unwrap())
    }

    #[test]
    fn a_figure_changes_what_hangs_on_it_and_nothing_else() {
        let real = real();
        let ratio = |a: f64, b: f64| (a / b * 1e6).round() / 1e6;
        let all = |text: &str| {
            let new = changed(text);
            [
                ratio(new.memory_bandwidth.get(), real.memory_bandwidth.get()),
                ratio(new.peak.fp32.get(), real.peak.fp32.get()),
                ratio(new.peak.bf16_tensor.unwrap().get(), real.peak.bf16_tensor.unwrap().get()),
                ratio(new.memory.get(), real.memory.get()),
                ratio(new.power.unwrap().get(), real.power.unwrap().get()),
            ]
        };
        assert_eq!(all("bandwidth=2"), [2.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(all("sms=0.5"), [1.0, 0.5, 0.5, 1.0, 0.5]);
        assert_eq!(all("sms=0.5,clock=2, tensor = 3x"), [1.0, 1.0, 3.0, 1.0, 3.0]);
        assert_eq!(all("memory=1.5"), [1.0, 1.0, 1.0, 1.5, 1.0]);
        // Rounded to whole multiprocessors: 132 × 0.1.
        assert_eq!(changed("sms=0.1").sm_count, 13);
        assert_eq!(all("sms=0.1")[1], ratio(13.0, 132.0));
        let rate = |gpu: &GpuSpec| gpu.fastest_published("bf16").map(FlopsPerSecond::get);
        assert_eq!(rate(&changed("tensor=2")), rate(&real).map(|rate| rate * 2.0));
        // Without changes it is the same GPU under another name.
        let same = GpuSpec { slug: real.slug.clone(), name: real.name.clone(), layer: Layer::Shipped, ..changed("") };
        assert_eq!(Catalog::new([same]), Catalog::new([real]));
    }

    #[test]
    fn changes_are_said_in_words() {
        assert_eq!(Changes::parse("clock=1.25,bandwidth=2").unwrap().to_string(), "2 × memory bandwidth, 1.25 × clock");
        assert_eq!(Changes::default().to_string(), "nothing changed");
    }
}
