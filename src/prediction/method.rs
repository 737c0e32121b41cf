//! Methods that a time can come from, and the user's choice among them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Minimum share of device time that linear models must cover to predict a step: their validated error does not include
/// the rooflines that fill the gaps.
pub(crate) const COVERED: f64 = 0.9;
/// Method of a predicted time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Recorded on this GPU, not predicted.
    Measured,
    /// Recorded on this GPU, less the parts that do not count: communication with other ranks, or the wait for the
    /// host.
    Derived,
    /// Habitat's wave scaling, kernel by kernel.
    WaveScaling,
    /// Ratio of memory bandwidths (operations without recorded launches).
    BandwidthScaling,
    /// Between the ratio of memory bandwidths and that of arithmetic rates: without shapes, the kernel may be bound by
    /// either.
    BetweenRates,
    /// Measured time multiplied by the ratio of the two GPUs' rooflines, from shapes.
    RooflineRatio,
    /// Learned operator models, from shapes.
    Learned,
    /// Learned operator models, corrected by measurements on the origin.
    LearnedRatio,
    /// The larger of compute time and memory time, from shapes.
    Roofline,
    /// Habitat's network for the operator, from shapes and four figures of the GPU.
    HabitatMlp,
    /// Linear models of measured kernels in the best driver of each (Li et al.).
    KernelWise,
    /// Linear model of each kind of layer, in its operations (Li et al.; Gianniti et al.).
    LayerWise,
    /// Linear model of whole steps in their operations (Li et al.).
    EndToEnd,
    /// From the times of operator kinds on an anchor GPU (PROFET), without shapes.
    BlackBox,
    /// Line through steps at other batch sizes.
    BatchLine,
    /// Regression on logged runs: batch size, iterations, time (Gianniti et al.).
    RunLog,
    /// Several methods, operation by operation.
    Mixed,
}

impl Method {
    /// Name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::WaveScaling => "wave-scaling",
            Self::BandwidthScaling => "bandwidth-scaling",
            Self::BetweenRates => "between-rates",
            Self::RooflineRatio => "roofline-ratio",
            Self::Learned => "learned",
            Self::LearnedRatio => "learned-ratio",
            Self::Roofline => "roofline",
            Self::HabitatMlp => "habitat-mlp",
            Self::KernelWise => "kernel-wise",
            Self::LayerWise => "layer-wise",
            Self::EndToEnd => "end-to-end",
            Self::BlackBox => "black-box",
            Self::BatchLine => "batch-line",
            Self::RunLog => "run-log",
            Self::Mixed => "mixed",
        }
    }

    /// Whether its times come from a step recorded on the predicted GPU itself.
    pub const fn is_of_origin(self) -> bool {
        matches!(self, Self::Measured | Self::Derived)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// User's choice of method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodChoice {
    /// Best available method for each operation.
    #[default]
    Auto,
    /// Learned models for every operator they know, even if wave scaling applies.
    Learned,
    /// Wave scaling for every operation with recorded launches.
    WaveScaling,
    /// Roofline from shapes, even if times were measured.
    Roofline,
    /// Habitat's networks for products and convolutions, otherwise as `Auto`.
    HabitatMlp,
    /// Linear models of kernels from shapes, even if times were measured.
    KernelWise,
    /// Linear models of layer kinds from shapes, even if times were measured.
    LayerWise,
    /// Linear model of whole steps, even if times were measured.
    EndToEnd,
    /// Black-box model, from the totals of operator kinds (PROFET); only on its GPUs.
    BlackBox,
}

impl MethodChoice {
    /// All choices, in listing order.
    pub const ALL: [Self; 9] = [
        Self::Auto,
        Self::Learned,
        Self::WaveScaling,
        Self::Roofline,
        Self::HabitatMlp,
        Self::KernelWise,
        Self::LayerWise,
        Self::EndToEnd,
        Self::BlackBox,
    ];

    /// The method; `None` for the best available.
    pub const fn method(self) -> Option<Method> {
        Some(match self {
            Self::Auto => return None,
            Self::Learned => Method::Learned,
            Self::WaveScaling => Method::WaveScaling,
            Self::Roofline => Method::Roofline,
            Self::HabitatMlp => Method::HabitatMlp,
            Self::KernelWise => Method::KernelWise,
            Self::LayerWise => Method::LayerWise,
            Self::EndToEnd => Method::EndToEnd,
            Self::BlackBox => Method::BlackBox,
        })
    }

    /// Name in files, on screen and on the command line.
    pub const fn name(self) -> &'static str {
        match self.method() {
            Some(method) => method.name(),
            None => "auto",
        }
    }
}
