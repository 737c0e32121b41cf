//! Query to the learned models: a primitive on a GPU.

use crate::features::{Hardware, Load, OperatorModel};
use crate::learned_time::{LearnedTime, WIDE};
use crate::rate::{ALONE_LAUNCH_US, ProductRate, Rates, SHORTEST_KERNEL_US, STEP_LAUNCH_US};
use habitat_base::units::{GpuSlug, Micros};
use habitat_step::op::{Part, Primitive};
use habitat_step::profile::{DType, Precision};

/// Elements moved below which a stream counts as a mere launch.
const SMALL_STREAM: f64 = 16_384.0;

/// GPU as input of the learned models: its rates and hardware figures.
#[derive(Debug, Clone, Copy)]
pub struct ModelGpu<'a> {
    /// Rates that it sustains.
    pub rates: &'a Rates<'a>,
    /// Figures for the features.
    pub(super) hardware: Hardware,
    /// Whether the models were trained on it. Their figures of such a GPU are relative to rule-based rates, so
    /// calibrated rates are used only for others.
    is_seen: bool,
}

impl<'a> ModelGpu<'a> {
    /// Builds the inputs for a GPU; `is_seen` if the models were trained on it.
    pub(super) fn new(rates: &'a Rates<'a>, is_seen: bool) -> Self {
        Self { rates, hardware: Hardware::new(rates, is_seen), is_seen }
    }

    /// Identifier.
    pub(crate) const fn slug(&self) -> &'a GpuSlug {
        &self.rates.gpu.slug
    }

    /// Product rate for predictions.
    pub(crate) fn rate(&self, dtype: Option<&DType>, precision: Option<Precision>) -> ProductRate {
        self.rates.product(dtype, precision, self.is_seen)
    }
}

/// Inputs that determine a time: sizes, element size, rate and number of the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u64; 11]);

/// Primitive on a GPU.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// Primitive; its repetitions are ignored here.
    pub part: Part,
    /// The GPU.
    pub gpu: ModelGpu<'a>,
    /// Product rate of the GPU in the element type.
    pub rate: ProductRate,
    /// Separate or within a step.
    pub load: Load,
}

impl Query<'_> {
    /// Cache key, with the number of its GPU.
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

    /// Launch cost in microseconds.
    pub(crate) fn launch_us(&self) -> f64 {
        match self.load {
            Load::Alone => ALONE_LAUNCH_US,
            Load::Step => STEP_LAUNCH_US,
        }
    }

    /// Time of fused attention by rule: its share of the product rate, or its traffic.
    pub(super) fn by_rule(&self) -> Option<LearnedTime> {
        let Primitive::Fused { flops, moved, share } = self.part.primitive else { return None };
        let compute = flops / (self.rate.sustained.get() * share) * 1e6;
        let memory = moved * self.part.element_bytes / self.gpu.rates.streaming.value.get() * 1e6;
        let time = Micros::checked(self.launch_us() + compute.max(memory))?;
        Some(LearnedTime { shared_deviation: 1.0, ..LearnedTime::alone(time, WIDE, WIDE.widened(0.6)) })
    }

    /// Time of a tiny stream, which is only a launch.
    pub(super) fn small(&self) -> Option<LearnedTime> {
        let Primitive::Stream { moved } = self.part.primitive else { return None };
        let time = Micros::known(SHORTEST_KERNEL_US);
        (self.load == Load::Step && moved < SMALL_STREAM)
            .then(|| LearnedTime { shared_deviation: 1.0, ..LearnedTime::alone(time, WIDE, WIDE) })
    }
}
