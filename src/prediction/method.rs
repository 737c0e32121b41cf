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
}

impl Method {
    /// Whether its times come from a step recorded on the predicted GPU itself.
    pub const fn is_of_origin(self) -> bool {
        matches!(self, Self::Measured | Self::Derived)
    }

    /// Whether it uses the destination's rate for the element type.
    pub(super) const fn uses_rates(self) -> bool {
        matches!(self, Self::RooflineRatio | Self::Learned | Self::LearnedRatio | Self::Roofline)
    }

    /// Half-width of the range of a single operation, relative to its middle value, for methods without their own
    /// calibration (learned models and regressions carry their own ranges). It is the published mean error of the
    /// method. Wave scaling: Habitat section 5.2.3 (29.8 %), also used for the two ratios, which likewise need a
    /// measured origin. Roofline: `NeuSight`'s comparison (31.9 %, on steps; no figure per operation). Habitat's
    /// networks: 10 to 18 % on GPUs and sizes like those of training, by their authors, but most are not like them.
    /// `NeuSight`'s reimplementation has 123 % on batched products outside the training sizes and 799 % on linear
    /// layers; the smaller figure is used.
    ///
    /// For `BetweenRates` it widens the range beyond both ratios: on measured steps without their shapes
    /// (`habitat-lab evaluate methods`, "no shapes"), four of five then lie in the range.
    pub(crate) const fn operation_band(self) -> f64 {
        match self {
            Self::Measured | Self::Derived => 0.0,
            Self::WaveScaling | Self::BandwidthScaling | Self::RooflineRatio | Self::LearnedRatio => 0.298,
            Self::BetweenRates => 0.35,
            Self::Learned
            | Self::Roofline
            | Self::KernelWise
            | Self::LayerWise
            | Self::EndToEnd
            | Self::BlackBox
            | Self::BatchLine
            | Self::RunLog
            | Self::Mixed => 0.319,
            Self::HabitatMlp => 1.23,
        }
    }

    /// Half-width for the part of a whole step that the method predicts: Habitat's 11.8 % over whole steps from a
    /// measured origin, the roofline's 31.9 % without one. Habitat's networks use the same value as for one operation
    /// (`NeuSight` found 726 % on training steps, too wide for a useful range).
    pub(crate) const fn step_band(self) -> f64 {
        match self {
            Self::WaveScaling | Self::BandwidthScaling | Self::RooflineRatio | Self::LearnedRatio => 0.118,
            other => other.operation_band(),
        }
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

    /// Name in files, on screen and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Learned => "learned",
            Self::WaveScaling => "wave-scaling",
            Self::Roofline => "roofline",
            Self::HabitatMlp => "habitat-mlp",
            Self::KernelWise => "kernel-wise",
            Self::LayerWise => "layer-wise",
            Self::EndToEnd => "end-to-end",
            Self::BlackBox => "black-box",
        }
    }

    /// One-line description.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Auto => "The best available for each operation",
            Self::Learned => "The learned models for every operator they know",
            Self::WaveScaling => "Wave scaling wherever launches are known",
            Self::Roofline => "The roofline from shapes, ignoring measurements",
            Self::HabitatMlp => {
                "Habitat's networks for products and convolutions in FP32 (`habitat-lab train --habitat` makes them), the rest as auto"
            }
            Self::KernelWise => "Linear models of kernels, made by `fit kernelwise` from measured steps",
            Self::LayerWise => "Linear models of layer kinds, from the same file",
            Self::EndToEnd => "Linear model of whole steps by their FLOPs, from the same file",
            Self::BlackBox => "The black-box model (PROFET), from the totals of operator kinds: on its GPUs only",
        }
    }

    /// Requirements, in words.
    pub const fn needs(self) -> &'static str {
        match self {
            Self::Auto => "a recorded step, or shapes",
            Self::Learned => "shapes; better with a step measured on any GPU",
            Self::WaveScaling => "a trace with the launches of its kernels",
            Self::Roofline => "shapes",
            Self::HabitatMlp => "shapes, and networks trained with `habitat-lab train --habitat`",
            Self::KernelWise | Self::LayerWise | Self::EndToEnd => {
                "shapes; better with lines fitted to your own steps by `fit kernelwise`"
            }
            Self::BlackBox => "a training step in FP32, measured on a GPU of the black-box model",
        }
    }

    /// Whether it may use the learned models.
    pub(crate) const fn is_learned(self) -> bool {
        matches!(self, Self::Auto | Self::Learned | Self::HabitatMlp)
    }

    /// Whether it uses lines fitted to other recordings.
    pub const fn is_fitted(self) -> bool {
        matches!(self, Self::KernelWise | Self::LayerWise | Self::EndToEnd)
    }

    /// Whether it ignores measurements on the origin.
    pub(crate) const fn ignores_origin(self) -> bool {
        matches!(self, Self::Roofline) || self.is_fitted()
    }
}
