//! The profile: the operations of one training step, with measurements.
//!
//! Every recording ends in a [`Profile`], and every predictor starts from one. The file format is JSON
//! (`*.habitat.json`), described field by field by the JSON Schema that `habitat-tui schema` prints (generated from
//! these types).

pub mod breakdown;
pub mod difference;
mod kernel;
mod loading;
pub mod modules;
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
pub use loading::{Loader, LoaderTime, Loading};
pub use operation::{Attribute, DType, IN_FP4, Operation, Phase, Shape};
pub(crate) use read::json_error;
pub use read::{ProfileError, Warning};
pub use sample::Sample;
pub use timeline::Timeline;
pub use workload::{
    CpuStep, DeviceInfo, Execution, Memory, MemorySource, Mode, OP_LIST, Origin, Precision, PrecisionClass, Recording,
    Step, TRACE_OF_SHAPES, Working, Workload,
};

use habitat_base::units::Micros;

/// Value of the `format` field of every profile.
pub const FORMAT: &str = "habitat-profile";
/// Version of the format that this program writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// One training (or inference) step of one workload, at one batch size and precision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Profile {
    /// Always `habitat-profile`.
    pub format: String,
    /// Version of the format, 1.
    pub version: u32,
    /// The workload.
    pub workload: Workload,
    /// Where it was measured; left out if nothing was measured on a GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Measurements of the step as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// Operations of the step, in order of first occurrence.
    pub operations: Vec<Operation>,
    /// How the profile was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
    /// Timeline of one recorded step; left out if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

impl Profile {
    /// A profile in the current format.
    ///
    /// # Errors
    /// [`ProfileError`] if the parts violate the format (no operations, a batch size of zero, a kernel with a grid and
    /// no block …).
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

    /// Parses a profile from JSON text; unknown fields are returned as warnings.
    ///
    /// # Errors
    /// [`ProfileError`] naming the field and its position.
    pub fn from_json(json: &[u8]) -> Result<(Self, Vec<Warning>), ProfileError> {
        read::from_json(json)
    }

    /// Formats the profile as JSON on one line, with a final newline.
    ///
    /// # Errors
    /// None for profiles from [`Profile::new`] or [`Profile::from_json`].
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut json = serde_json::to_vec(self)?;
        json.push(b'\n');
        Ok(json)
    }

    /// SHA-256 of the recorded data, in hexadecimal. Two files with the same step have the same hash, however they are
    /// compressed. The hash leaves out everything that flags may complete (GPU, batch size, sequence length,
    /// parameters, peak memory) and the timeline.
    ///
    /// # Errors
    /// None for profiles from [`Profile::new`] or [`Profile::from_json`].
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

    /// JSON Schema of the format.
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self);
        schema.insert("title".to_owned(), "habitat-tui profile".into());
        schema.to_value()
    }

    /// Measured wall time of the step, if any.
    pub fn measured_step(&self) -> Option<Micros> {
        self.step.as_ref()?.duration
    }

    /// Total measured device time of all operations.
    pub fn total_device_time(&self) -> Micros {
        self.operations.iter().filter_map(Operation::total_device_time).sum()
    }

    /// The same step without any measurement on the origin: shapes only, like the result of a fake-tensor run.
    #[must_use]
    pub fn without_origin(&self) -> Self {
        let mut bare = self.clone();
        (bare.origin, bare.timeline) = (None, None);
        // These are properties of the workload, not of the GPU: memory, launch mode, and the wait for data in a
        // recording without a GPU.
        let kept = self.step.as_ref().map(|step| Step {
            peak_memory_bytes: step.peak_memory_bytes,
            memory: step.memory.clone(),
            execution: step.execution,
            data_wait: step.data_wait,
            loader_period: step.loader_period,
            loader_workers: step.loader_workers,
            cpus: step.cpus,
            ..Step::default()
        });
        bare.step = kept.filter(|step| *step != Step::default());
        for operation in &mut bare.operations {
            (operation.device_time, operation.cpu_time) = (None, None);
            operation.kernels.clear();
        }
        bare
    }

    /// The step of a recording without a GPU, with CPU times as device times: for comparisons of two
    /// such recordings. `None` if the CPU's times were not recorded.
    #[must_use]
    pub fn on_cpu(&self) -> Option<Self> {
        let cpu = self.step.as_ref()?.cpu.filter(|_| self.origin.is_none())?;
        let mut timed = self.clone();
        for operation in &mut timed.operations {
            operation.device_time = operation.cpu_time;
        }
        timed.step = Some(Step {
            duration: Some(cpu.duration),
            duration_range: cpu.duration_range,
            samples: Some(cpu.samples),
            profiled: cpu.profiled,
            cpu: Some(cpu),
            ..Step::default()
        });
        (timed.total_device_time().get() > 0.0).then_some(timed)
    }

    /// Whether the times are those of a CPU ([`Self::on_cpu`]).
    pub fn is_of_cpu(&self) -> bool {
        let step = self.step.as_ref();
        self.origin.is_none() && step.is_some_and(|step| step.cpu.is_some() && step.duration.is_some())
    }
}
