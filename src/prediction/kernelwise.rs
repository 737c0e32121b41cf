//! Linear models of measured kernels (Li, Sun and Jog, "Path Forward Beyond Simulators: Fast and Accurate GPU Execution
//! Time Prediction for DNN Workloads", MICRO 2023).
//!
//! Four models, the simplest first:
//!
//! - end-to-end: the time of a step is linear in its floating-point operations;
//! - layer-wise: the time of a layer is linear in its operations, with one line per kind of layer; layers add up;
//! - kernel-wise: the time of each kernel is linear in one of the layer's input size, its operations and its output
//!   size, whichever explains it best. Kernels with similar lines share one; a table maps layer shapes to kernels;
//! - across GPUs: the rate of each kernel is linear in the memory bandwidth, learned from at least three GPUs.
//!
//! Extensions of the paper: two more drivers (bytes moved; operations on whole tiles), and lines fitted to relative
//! errors that tolerate outliers. Across GPUs, a rate is proportional to the streaming bandwidth or the sustained
//! product rate, whichever explains it better. [`crate::learn::kernelwise`] fits the models.

pub mod apply;
mod file;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::learned::Spread;
use crate::method::Method;
use crate::rate::Rates;
use habitat_base::regress::line::Line;
use habitat_base::units::GpuSlug;
use habitat_step::catalog::Vendor;
use habitat_step::profile::{Mode, PrecisionClass};

pub use crate::layer::{Driver, Layer, Layers};
pub use apply::{Across, Answer, FittedLines, Level};
pub use file::KernelWiseError;

/// Minimum number of GPUs to fit a rate by a property, as in the paper.
pub(crate) const LEAST_GPUS: usize = 3;

/// Kernels of one kind of layer with a common line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Quantity that the time is linear in.
    pub driver: Driver,
    /// Time in microseconds as a function of the driver.
    #[serde(flatten)]
    pub line: Line,
    /// Coefficient of determination of the line.
    pub r_squared: f64,
    /// Number of measured times.
    pub rows: usize,
    /// Largest measured size.
    pub largest: f64,
    /// Names of the kernels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
}

/// Kernels that layers of similar shape run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Binary logarithms of the shape's sizes, rounded.
    #[serde(rename = "octaves")]
    pub class: Vec<i8>,
    /// Indices into the groups of the kind.
    pub groups: Vec<usize>,
}

/// Lines of one kind of layer on one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kind {
    /// Common line of all layers of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Group>,
    /// Lines of its kernels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Kernels by shape; if empty, all layers of the kind run the first group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<Entry>,
}

/// Lines fitted on one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuLines {
    /// Lines by kind of layer; streaming kinds also have a common entry, [`STREAMING`](crate::layer::STREAMING).
    pub kinds: BTreeMap<String, Kind>,
    /// Whole steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<Group>,
    /// Ratio of a step to the sum of its layers by their kernels.
    pub step_factor: f64,
    /// Number of measured steps behind the ratio.
    pub steps: usize,
}

/// GPU property that may determine the rate of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Bandwidth that streaming kernels reach, by rule from the data sheet, GB/s.
    Bandwidth,
    /// Rate that long FP32 products sustain, by rule from the data sheet, TFLOP/s.
    ProductRate,
}

impl Property {
    /// Value of the property on a GPU.
    pub fn of(self, rates: &Rates<'_>) -> f64 {
        match self {
            Self::Bandwidth => rates.streaming.value.get() / 1e9,
            Self::ProductRate => rates.trained_fp32.sustained.get() / 1e12,
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::ProductRate => "product rate",
        })
    }
}

/// Line of a kind of layer across GPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcrossLine {
    /// Quantity that the times are linear in.
    pub driver: Driver,
    /// Time at size 0, microseconds: the median of the GPUs. Launches take equally long everywhere.
    pub intercept: f64,
    /// Size that takes as long as the time at size 0: the median of the GPUs. Fixed work other than launches scales
    /// with the rate, so predictions use the smaller of both.
    pub offset: f64,
    /// Property that explains the rates better.
    pub property: Property,
    /// Size per microsecond and unit of the property: the median of the GPUs.
    pub rate: f64,
    /// As published: size per microsecond, linear in the nominal memory bandwidth in GB/s.
    pub by_bandwidth: Line,
    /// Lowest rate among the GPUs, from which the minimum of predicted rates follows.
    pub slowest: f64,
    /// Number of GPUs behind the line.
    pub gpus: usize,
}

/// Mean error of steps whose network or GPU was left out of the fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// GPU whose steps were evaluated, with their networks left out; `None`: steps of any GPU, with their GPUs left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// Vendor of the GPUs; missing in files of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Vendor>,
    /// Precision of the products of these steps; missing in files of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<PrecisionClass>,
    /// Lines that were evaluated.
    pub method: Method,
    /// Training or inference; errors of one do not apply to the other.
    pub mode: Mode,
    /// Mean of |predicted / measured − 1|.
    pub error: f64,
    /// Number of steps.
    pub steps: u32,
}

/// 80 % ranges of measured over predicted times of networks or GPUs left out of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ranges {
    /// Steps predicted by kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_wise: Option<Spread>,
    /// Steps predicted by layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_wise: Option<Spread>,
    /// Steps predicted by their operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<Spread>,
    /// Single operations predicted by kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Spread>,
}

/// Fitted lines of kernels, layers and steps on several GPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelWise {
    /// Lines of measured GPUs.
    pub gpus: BTreeMap<GpuSlug, GpuLines>,
    /// Lines of layer kinds for other GPUs, with the best driver of each.
    pub across: BTreeMap<String, AcrossLine>,
    /// The same with operations as the driver of all kinds (layer-wise).
    pub across_layers: BTreeMap<String, AcrossLine>,
    /// Line of whole steps for other GPUs.
    pub across_steps: Option<AcrossLine>,
    /// Ranges on measured GPUs, from left-out networks.
    pub seen: Ranges,
    /// Ranges on other GPUs, from left-out GPUs.
    pub unseen: Ranges,
    /// Errors of steps left out of the fit.
    pub errors: Vec<Evaluated>,
}
