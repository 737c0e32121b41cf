//! The methods a time can come from, and which of them a user asks for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Linear models answer for a step where they know this much of its device time: what they
/// were found to err by says nothing of the rooflines that fill in.
pub const COVERED: f64 = 0.9;
/// The methods a time can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Recorded on this very GPU: no prediction at all.
    Measured,
    /// Recorded on this very GPU, less what is not to be counted: communication with other
    /// ranks, or waiting for the host.
    Derived,
    /// Habitat's wave scaling, kernel by kernel.
    WaveScaling,
    /// Ratio of memory bandwidths (operations whose launch is not known).
    BandwidthScaling,
    /// Between the ratio of memory bandwidths and that of arithmetic rates: without shapes
    /// nothing tells which bounds the kernel.
    BetweenRates,
    /// Measured time times the ratio of the two GPUs' rooflines, from shapes.
    RooflineRatio,
    /// Learned operator models, from shapes.
    Learned,
    /// Learned operator models, corrected by what was measured on the origin.
    LearnedRatio,
    /// The larger of compute time and memory time, from shapes.
    Roofline,
    /// Habitat's network of the operator, from shapes and four figures of the GPU.
    HabitatMlp,
    /// Linear models of kernels measured on GPUs, in what drives each of them (Li et al.).
    KernelWise,
    /// A linear model for each kind of layer, in its operations (Li et al.; Gianniti et al.).
    LayerWise,
    /// One line in the operations of the whole step (Li et al.).
    EndToEnd,
    /// From the times of operator kinds on an anchor GPU (PROFET), shapes unknown.
    BlackBox,
    /// A line through steps at other batch sizes.
    BatchLine,
    /// A regression on logged runs: batch size, iterations, time (Gianniti et al.).
    RunLog,
    /// Several methods, operation by operation.
    Mixed,
}

impl Method {
    /// The name in files and on screen.
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
    /// Whether a time by it comes from a step that was recorded on this very GPU.
    pub const fn is_of_origin(self) -> bool {
        matches!(self, Self::Measured | Self::Derived)
    }

    /// Whether the destination's rate of the element type goes into it.
    pub(super) const fn uses_rates(self) -> bool {
        matches!(self, Self::RooflineRatio | Self::Learned | Self::LearnedRatio | Self::Roofline)
    }

    /// Half-width of the range of ONE operation, relative to its middle value, for methods
    /// that were not calibrated here (learned models and regressions carry their own ranges): the mean
    /// error published for the method. Habitat section 5.2.3 for wave scaling (29.8 %), also
    /// taken for the two ratios, which need a measured origin as it does; the roofline of
    /// `NeuSight`'s comparison (31.9 %, on steps; no figure per operation). Habitat's networks
    /// are within 10 to 18 % on GPUs and sizes like those trained on, by its authors, but
    /// most are not: `NeuSight`'s reimplementation errs by 123 % on batched products outside
    /// them (799 % on linear layers), and the smaller of these is taken.
    ///
    /// Between two ratios it is what is added beyond both: on measured steps whose shapes were
    /// dropped (`habitat-lab evaluate methods`, "no shapes") four of five then lie in the range.
    pub const fn operation_band(self) -> f64 {
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

    /// The same for the part of a STEP that the method answers for: Habitat's 11.8 % over
    /// whole steps from a measured origin, the roofline's 31.9 % without one. For Habitat's
    /// networks as for one operation (on training steps `NeuSight` found 726 %, of which a
    /// range would say nothing).
    pub const fn step_band(self) -> f64 {
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

/// Which methods may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MethodChoice {
    /// The best available for each operation.
    #[default]
    Auto,
    /// The learned models wherever they know the operator, even where wave scaling could be
    /// used.
    Learned,
    /// Wave scaling wherever a launch is known, whatever the operation.
    WaveScaling,
    /// The roofline on shapes, even where times were measured.
    Roofline,
    /// Habitat's networks for products and convolutions, the rest as `Auto`.
    HabitatMlp,
    /// Linear models of kernels, on shapes, even where times were measured.
    KernelWise,
    /// Linear models of kinds of layers, likewise.
    LayerWise,
    /// The linear model of whole steps, likewise.
    EndToEnd,
    /// The black-box model, from the totals of operator kinds (PROFET); only on its GPUs.
    BlackBox,
}

impl MethodChoice {
    /// All of them, in the order they are listed in.
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

    /// The name in files, on screen and on the command line.
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

    /// What it is, in words.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Auto => "The best available for each operation",
            Self::Learned => "The learned models wherever they know the operator",
            Self::WaveScaling => "Wave scaling wherever launches are known",
            Self::Roofline => "The roofline on shapes, whatever was measured",
            Self::HabitatMlp => {
                "Habitat's networks for products and convolutions in FP32 (`habitat-lab train --habitat` makes them), the rest as auto"
            }
            Self::KernelWise => "Lines of kernels that `fit kernelwise` fitted to measured steps, on shapes",
            Self::LayerWise => "Lines of kinds of layers, of the same file",
            Self::EndToEnd => "The line of whole steps by their operations, of the same file",
            Self::BlackBox => "The black-box model (PROFET), from the totals of operator kinds: on its GPUs only",
        }
    }

    /// What has to be there for it, in words.
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

    /// Whether the learned models may answer.
    pub const fn is_learned(self) -> bool {
        matches!(self, Self::Auto | Self::Learned | Self::HabitatMlp)
    }

    /// Whether lines that were fitted to other recordings answer.
    pub const fn is_fitted(self) -> bool {
        matches!(self, Self::KernelWise | Self::LayerWise | Self::EndToEnd)
    }

    /// Whether what was measured on the origin is left aside.
    pub const fn ignores_origin(self) -> bool {
        matches!(self, Self::Roofline) || self.is_fitted()
    }
}
