//! Straight lines of measured kernels (Li, Sun and Jog, "Path Forward Beyond Simulators: Fast
//! and Accurate GPU Execution Time Prediction for DNN Workloads", MICRO 2023).
//!
//! Four models, the simplest first:
//!
//! - end-to-end: the time of a step is linear in its floating-point operations;
//! - layer-wise: the time of a layer is linear in its operations, a line a kind of layer, and
//!   layers add up;
//! - kernel-wise: the time of each kernel is linear in ONE of the size of the layer's input,
//!   its operations and the size of its output, whichever explains it best; kernels of similar
//!   lines share one; a table says which kernels a layer of some shape runs;
//! - across GPUs: the rate of each kernel is linear in the memory bandwidth, learned from at
//!   least three GPUs.
//!
//! Two drivers are added here to the published three (bytes moved; operations on whole
//! tiles), lines count relative errors and bear outliers, and across GPUs a rate goes with
//! the bandwidth that streams reach or with the rate that products hold, whichever explains
//! it better. [`crate::learn::kernelwise`] fits them.

pub mod apply;
mod file;
pub mod layer;

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

pub use apply::{Across, Answer, Level, Lines};
pub use file::KernelWiseError;
pub use layer::{Layer, Layers};

/// The least number of GPUs that tell how a rate goes with a property, as in the paper.
pub const LEAST_GPUS: usize = 3;

/// What the time of a kernel is linear in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// Elements of the layer's inputs.
    Input,
    /// The layer's floating-point operations.
    Operations,
    /// Elements of the layer's result.
    Output,
    /// Bytes that the layer moves at least. Not in the paper.
    Bytes,
    /// Operations, those on tiles that stick out of the result included; the tile as in the
    /// kernel's name. Not in the paper.
    Tiles([u32; 2]),
}

impl fmt::Display for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.pad("input"),
            Self::Operations => f.pad("operations"),
            Self::Output => f.pad("output"),
            Self::Bytes => f.pad("bytes"),
            Self::Tiles([down, across]) => f.pad(&format!("operations on tiles of {down} × {across}")),
        }
    }
}

/// Kernels of one kind of layer whose times lie on one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// What the time is linear in.
    pub driver: Driver,
    /// Time in microseconds by the driver's size.
    #[serde(flatten)]
    pub line: Line,
    /// Share of the variance that the line explains.
    pub r_squared: f64,
    /// Measured times behind it.
    pub rows: usize,
    /// The largest size among them.
    pub largest: f64,
    /// The kernels' names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
}

/// The kernels that layers of about one shape run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Binary logarithms of the shape's sizes, rounded.
    #[serde(rename = "octaves")]
    pub class: Vec<i8>,
    /// Groups, by their place among those of the kind.
    pub groups: Vec<usize>,
}

/// What is known of one kind of layer on one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kind {
    /// All layers of the kind on one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layers: Option<Group>,
    /// Its kernels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Which of them run; empty where all layers of the kind run the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub table: Vec<Entry>,
}

/// What was fitted on one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GpuLines {
    /// By kind of layer; kinds that stream through memory also together, as
    /// [`layer::STREAMING`].
    pub kinds: BTreeMap<String, Kind>,
    /// Whole steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<Group>,
    /// What a step takes of the sum of its layers by their kernels.
    pub step_factor: f64,
    /// Measured steps behind that.
    pub steps: usize,
}

/// A property of GPUs that the rate of a kernel may go with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// The bandwidth that streaming kernels reach, by rule from the data sheet, GB/s.
    Bandwidth,
    /// The rate that long FP32 products hold, by rule from the data sheet, TFLOP/s.
    ProductRate,
}

impl Property {
    /// Its value on a GPU.
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

/// How the line of a kind goes from GPU to GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AcrossLine {
    /// What the times are linear in.
    pub driver: Driver,
    /// Time at size 0, microseconds: the median of the GPUs. A launch takes as long everywhere.
    pub intercept: f64,
    /// The same as the size that takes as long: the median of the GPUs. What is no launch
    /// goes with the rate; the lesser of both is taken.
    pub offset: f64,
    /// The property that explains the rates better.
    pub property: Property,
    /// Size a microsecond for one unit of the property: the median of the GPUs.
    pub rate: f64,
    /// As published: size a microsecond, linear in the nominal memory bandwidth in GB/s.
    pub by_bandwidth: Line,
    /// The lowest rate among the GPUs, for what lies below them.
    pub slowest: f64,
    /// GPUs behind it.
    pub gpus: usize,
}

/// The mean error of steps whose network (or GPU) was left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluated {
    /// Steps of this GPU, their networks left out; `None`: of any, their GPUs left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// Maker of the GPUs; files of older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<Vendor>,
    /// What the products of these steps ran in; files of older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<PrecisionClass>,
    /// By which lines.
    pub method: Method,
    /// Of training or of inference: the errors of the one say little of the other's.
    pub mode: Mode,
    /// Mean of |predicted / measured − 1|.
    pub error: f64,
    /// Of so many steps.
    pub steps: u32,
}

/// 80 % ranges of measured over predicted times of networks (or GPUs) that were left out.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ranges {
    /// Steps by kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_wise: Option<Spread>,
    /// Steps by layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_wise: Option<Spread>,
    /// Steps by their operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_to_end: Option<Spread>,
    /// One operation by its kernels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<Spread>,
}

/// Lines of kernels, layers and steps on several GPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KernelWise {
    /// On GPUs that were measured.
    pub gpus: BTreeMap<GpuSlug, GpuLines>,
    /// Kinds of layers on other GPUs, by what explains each best.
    pub across: BTreeMap<String, AcrossLine>,
    /// The same with all kinds by their operations (layer-wise).
    pub across_layers: BTreeMap<String, AcrossLine>,
    /// Whole steps on other GPUs.
    pub across_steps: Option<AcrossLine>,
    /// Of steps on measured GPUs, networks left out.
    pub seen: Ranges,
    /// Of steps on GPUs left out.
    pub unseen: Ranges,
    /// What steps were off that the lines were not fitted to.
    pub errors: Vec<Evaluated>,
}
