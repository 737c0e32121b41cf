//! The profile: the operations of one training step and what was measured of them.
//!
//! Every way of recording a step ends in a [`Profile`] and every predictor starts from
//! one. The file form is JSON (`*.habitat.json`), described field by field by the JSON
//! Schema that `habitat-tui schema` prints (generated from these types).

pub mod breakdown;
mod builder;
pub mod difference;
pub mod import;
mod kernel;
pub mod modules;
pub mod op_list;
mod operation;
mod read;
mod sample;
pub mod tensors;
pub mod timeline;
mod workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use kernel::{Kernel, is_host_transfer};
pub use operation::{Attribute, DType, Operation, Phase, Shape};
pub use read::{ProfileError, Warning};
pub use sample::Sample;
pub use timeline::Timeline;
pub use workload::{
    DeviceInfo, Execution, Memory, MemorySource, Mode, OP_LIST, Origin, Precision, PrecisionClass, Recording, Step,
    TRACE_OF_SHAPES, Working, Workload,
};

use crate::units::Micros;

/// The value of the `format` field of every profile.
pub const FORMAT: &str = "habitat-profile";
/// The version of the format that this program writes, and the only one it reads.
pub const VERSION: u32 = 1;

/// One training (or inference) step of one workload, at one batch size and precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Always `habitat-profile`.
    pub format: String,
    /// Version of the format, 1.
    pub version: u32,
    /// What was run.
    pub workload: Workload,
    /// Where it was measured; left out when nothing was measured on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What was measured of the step as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// The operations of the step, in the order in which they first occur.
    pub operations: Vec<Operation>,
    /// How the profile came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
    /// When what ran, in one of the recorded steps; left out where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

impl Profile {
    /// A profile in the current format.
    ///
    /// # Errors
    /// [`ProfileError`] if the parts contradict the format (no operations, a zero batch
    /// size, a kernel with a grid and no block …).
    pub fn new(
        workload: Workload,
        origin: Option<Origin>,
        step: Option<Step>,
        operations: Vec<Operation>,
    ) -> Result<Self, ProfileError> {
        let profile = Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            workload,
            origin,
            step,
            operations,
            recording: None,
            timeline: None,
        };
        profile.validate()?;
        Ok(profile)
    }

    /// Reads a profile from JSON text; unknown fields come back as warnings.
    ///
    /// # Errors
    /// [`ProfileError`] naming the field and the place.
    pub fn from_json(json: &[u8]) -> Result<(Self, Vec<Warning>), ProfileError> {
        read::from_json(json)
    }

    /// The profile as JSON, one line a profile field, with a final newline.
    ///
    /// # Errors
    /// None for profiles made by [`Profile::new`] or [`Profile::from_json`].
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        Ok(json)
    }

    /// SHA-256 of what was recorded, in hexadecimal, by which two files are told to hold the same
    /// step, however they are packed. What flags may complete (the GPU, the batch size, the
    /// sequence length, the parameters, the peak memory) is left out, and so is the timeline: a
    /// file with one and a file without are of the same step.
    ///
    /// # Errors
    /// None for profiles made by [`Profile::new`] or [`Profile::from_json`].
    pub fn sha256(&self) -> Result<String, serde_json::Error> {
        let mut recorded = self.clone();
        let workload = &mut recorded.workload;
        (workload.batch_size, workload.sequence_length, workload.parameter_count) = (None, None, None);
        if let Some(origin) = &mut recorded.origin {
            origin.gpu = None;
        }
        recorded.step.get_or_insert_default().peak_memory_bytes = None;
        recorded.timeline = None;
        Ok(format!("{:x}", Sha256::digest(recorded.to_json()?)))
    }

    /// The JSON Schema of the format.
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self);
        schema.insert("title".to_owned(), "habitat-tui profile".into());
        schema.to_value()
    }

    /// The measured wall time of the step, where there is one.
    pub fn measured_step(&self) -> Option<Micros> {
        self.step.as_ref()?.duration
    }

    /// Sum of the measured device times of all operations.
    pub fn total_device_time(&self) -> Micros {
        self.operations.iter().filter_map(Operation::total_device_time).sum()
    }

    /// The same step with everything that was measured on the origin taken out: shapes
    /// only, as a fake-tensor run would give.
    #[must_use]
    pub fn without_origin(&self) -> Self {
        let mut bare = self.clone();
        (bare.origin, bare.timeline) = (None, None);
        // Memory, the way of launching and the wait for data of a recording without a GPU are
        // properties of the workload, not of the GPU it was measured on.
        let kept = self.step.as_ref().map(|step| Step {
            peak_memory_bytes: step.peak_memory_bytes,
            memory: step.memory.clone(),
            execution: step.execution,
            data_wait: step.data_wait,
            loader_period: step.loader_period,
            ..Step::default()
        });
        bare.step = kept.filter(|step| *step != Step::default());
        for operation in &mut bare.operations {
            operation.device_time = None;
            operation.kernels.clear();
        }
        bare
    }
}
