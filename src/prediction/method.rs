//! Methods that a time can come from, and the user's choice among them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Minimum share of device time that linear models must cover to predict a step: their validated error does not include
/// the rooflines that fill the gaps.
pub(crate) const COVERED: f64 = 0.9;

/// Declares [`Method`] and [`MethodChoice`]: a line for each method, first those that users can choose, in listing
/// order.
macro_rules! methods {
    (
        choices { $($(#[$doc:meta])* $choice:ident $name:literal,)* }
        others { $($(#[$other_doc:meta])* $other:ident $other_name:literal,)* }
    ) => {
        /// Method of a predicted time.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum Method {
            $($(#[$doc])* $choice,)*
            $($(#[$other_doc])* $other,)*
        }

        impl Method {
            /// Name in files and on screen.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$choice => $name,)*
                    $(Self::$other => $other_name,)*
                }
            }
        }

        /// User's choice of method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum MethodChoice {
            /// Best available method for each operation.
            #[default]
            Auto,
            $($(#[$doc])* $choice,)*
        }

        impl MethodChoice {
            /// All choices, in listing order.
            pub const ALL: [Self; 1 + [$($name),*].len()] = [Self::Auto, $(Self::$choice),*];

            /// The method; `None` for the best available.
            pub const fn method(self) -> Option<Method> {
                match self {
                    Self::Auto => None,
                    $(Self::$choice => Some(Method::$choice),)*
                }
            }
        }
    };
}

methods! {
    choices {
        /// Learned operator models, from shapes.
        Learned "learned",
        /// Habitat's wave scaling, kernel by kernel.
        WaveScaling "wave-scaling",
        /// The larger of compute time and memory time, from shapes.
        Roofline "roofline",
        /// Habitat's network for the operator, from shapes and four figures of the GPU.
        HabitatMlp "habitat-mlp",
        /// Linear models of measured kernels in the best driver of each (Li et al.).
        KernelWise "kernel-wise",
        /// Linear model of each kind of layer, in its operations (Li et al.; Gianniti et al.).
        LayerWise "layer-wise",
        /// Linear model of whole steps in their operations (Li et al.).
        EndToEnd "end-to-end",
        /// From the times of operator kinds on an anchor GPU (PROFET), without shapes.
        BlackBox "black-box",
    }
    others {
        /// Recorded on this GPU, not predicted.
        Measured "measured",
        /// Recorded on this GPU, less the parts that do not count: communication with other ranks, or the wait for the
        /// host.
        Derived "derived",
        /// Ratio of memory bandwidths (operations without recorded launches).
        BandwidthScaling "bandwidth-scaling",
        /// Between the ratio of memory bandwidths and that of arithmetic rates: without shapes, the kernel may be bound by
        /// either.
        BetweenRates "between-rates",
        /// Measured time multiplied by the ratio of the two GPUs' rooflines, from shapes.
        RooflineRatio "roofline-ratio",
        /// Learned operator models, corrected by measurements on the origin.
        LearnedRatio "learned-ratio",
        /// Line through steps at other batch sizes.
        BatchLine "batch-line",
        /// Regression on logged runs: batch size, iterations, time (Gianniti et al.).
        RunLog "run-log",
        /// Several methods, operation by operation.
        Mixed "mixed",
    }
}

impl Method {
    /// Whether its times come from a step recorded on the predicted GPU itself.
    pub const fn is_of_origin(self) -> bool {
        matches!(self, Self::Measured | Self::Derived)
    }
}

impl MethodChoice {
    /// Name in files, on screen and on the command line.
    pub const fn name(self) -> &'static str {
        match self.method() {
            Some(method) => method.name(),
            None => "auto",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
