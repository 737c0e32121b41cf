//! What is asked of the learned models: a primitive on a GPU.

use super::time::{LearnedTime, WIDE};
use crate::features::{Hardware, Load, OperatorModel};
use crate::rate::{ALONE_LAUNCH_US, ProductRate, Rates, SHORTEST_KERNEL_US, STEP_LAUNCH_US};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::op::{Part, Primitive};
use habitat_step::profile::{DType, Precision};

/// Elements moved below which a stream is taken for a launch alone.
const SMALL_STREAM: f64 = 16_384.0;

/// A GPU as the learned models see it: its rates, and what the features take from it.
#[derive(Debug, Clone, Copy)]
pub struct ModelGpu<'a> {
    /// What it sustains.
    pub rates: &'a Rates<'a>,
    /// What features take from it.
    pub(super) hardware: Hardware,
    /// Whether the models were trained on it. What they know of such a GPU is relative to the
    /// rules, so a calibrated bandwidth or FP32 rate serves the others only.
    is_seen: bool,
}

impl<'a> ModelGpu<'a> {
    /// Of a GPU; `is_seen` where the models were trained on it.
    pub(super) fn new(rates: &'a Rates<'a>, is_seen: bool) -> Self {
        Self { rates, hardware: Hardware::new(rates, is_seen), is_seen }
    }

    /// Its identifier.
    pub const fn slug(&self) -> &'a GpuSlug {
        &self.rates.gpu.slug
    }

    /// The rate of products that its times are predicted from.
    pub fn rate(&self, dtype: Option<&DType>, precision: Option<Precision>) -> ProductRate {
        self.rates.product(dtype, precision, self.is_seen)
    }
}

/// Sizes, element size, rate and number of the GPU: what a time depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u64; 11]);

/// A primitive on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The primitive; how often it occurs does not matter here.
    pub part: Part,
    /// The GPU.
    pub gpu: ModelGpu<'a>,
    /// Its product rate in the element type.
    pub rate: ProductRate,
    /// By itself or in a step.
    pub load: Load,
}

impl Query<'_> {
    /// With the number that its GPU goes by.
    pub(super) fn key(&self, gpu: u64) -> Key {
        let kind = OperatorModel::of(&self.part.primitive).map_or(u64::MAX, |model| model as u64);
        let rate = self.rate.sustained.get().to_bits() ^ u64::from(self.load == Load::Step);
        let mut numbers = [0; 11];
        numbers[..4].copy_from_slice(&[kind, rate, self.part.element_bytes.to_bits(), gpu]);
        numbers[4..].copy_from_slice(&self.part.primitive.sizes().map(f64::to_bits));
        Key(numbers)
    }

    pub(super) fn is_other_precision(&self) -> bool {
        let rates = self.gpu.rates;
        let product = matches!(self.part.primitive, Primitive::Product { .. } | Primitive::Convolution { .. });
        self.part.element_bytes < 4.0
            || product && ![rates.trained_fp32, rates.fp32].iter().any(|fp32| self.rate.burst == fp32.burst)
    }

    /// What the launch costs, in microseconds.
    pub fn launch_us(&self) -> f64 {
        match self.load {
            Load::Alone => ALONE_LAUNCH_US,
            Load::Step => STEP_LAUNCH_US,
        }
    }

    /// Fused attention: its share of the product rate, or its traffic.
    pub(super) fn by_rule(&self) -> Option<LearnedTime> {
        let Primitive::Fused { flops, moved, share } = self.part.primitive else { return None };
        let compute = flops / (self.rate.sustained.get() * share) * 1e6;
        let memory = moved * self.part.element_bytes / self.gpu.rates.streaming.value.get() * 1e6;
        let time = Micros::checked(self.launch_us() + compute.max(memory))?;
        Some(LearnedTime { shared_deviation: 1.0, ..LearnedTime::alone(time, WIDE, WIDE.widened(0.6)) })
    }

    /// A few elements: the launch is all there is.
    pub(super) fn small(&self) -> Option<LearnedTime> {
        let Primitive::Stream { moved } = self.part.primitive else { return None };
        let time = Micros::known(SHORTEST_KERNEL_US);
        (self.load == Load::Step && moved < SMALL_STREAM)
            .then(|| LearnedTime { shared_deviation: 1.0, ..LearnedTime::alone(time, WIDE, WIDE) })
    }
}
