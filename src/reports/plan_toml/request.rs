//! Recorded step behind a plan, and how it was predicted.

use serde::{Deserialize, Serialize};

use habitat_base::units::{Bytes, GpuSlug};
use habitat_prediction::{Host, MethodChoice, Options, Precision, WaveForm};
use habitat_step::profile::Profile;

/// Recorded step behind a plan, and how it was predicted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Command line that made the plan; in the file it is part of `[plan]`.
    #[serde(skip)]
    pub command: String,
    /// Name of the file as given; `None` for the embedded sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// SHA-256 of the recording ([`Profile::sha256`]); `None` for a black box.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_sha256: Option<String>,
    /// Methods that may be used.
    pub method: MethodChoice,
    /// Equation of wave scaling.
    pub waves: WaveForm,
    /// Whether steps include waiting for the host.
    pub host: Host,
    /// Precision of the prediction, if different from the recorded one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,
    /// GPU that the step was recorded on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<GpuSlug>,
    /// Whether the measured times were ignored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_origin: bool,
    /// Samples of one step on one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_size: Option<u64>,
    /// Other batch sizes per GPU to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub batch_sizes: Vec<u64>,
    /// Own machines without a price file (`2x3090`), in addition to the offers of the price files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<String>,
    /// Price of their electricity in US dollars per kWh; `None` = assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_kwh: Option<f64>,
    /// Tokens of one sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_length: Option<u64>,
    /// Parameters of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Peak device memory of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<Bytes>,
}

impl Request {
    /// Describes a recorded step, as completed by flags, and how it is predicted.
    ///
    /// # Errors
    /// Errors of [`Profile::sha256`].
    pub fn new(
        command: String,
        file: Option<String>,
        profile: &Profile,
        options: &Options,
    ) -> Result<Self, serde_json::Error> {
        let workload = &profile.workload;
        let recorded = profile.origin.as_ref().and_then(|origin| origin.gpu.clone());
        Ok(Self {
            command,
            file,
            profile_sha256: Some(profile.sha256()?),
            method: options.method,
            waves: options.wave_form,
            host: options.host,
            precision: options.precision,
            origin: options.origin.clone().or(recorded),
            ignore_origin: options.ignore_origin,
            batch_size: workload.batch_size,
            batch_sizes: Vec::new(),
            own: Vec::new(),
            usd_per_kwh: None,
            sequence_length: workload.sequence_length,
            parameters: workload.parameter_count,
            peak_memory_bytes: profile.step.as_ref().and_then(|step| step.peak_memory_bytes),
        })
    }

    /// Completes a recorded step with facts that are not in its file.
    pub fn complete(&self, profile: &mut Profile) {
        let workload = &mut profile.workload;
        workload.batch_size = self.batch_size.or(workload.batch_size);
        workload.sequence_length = self.sequence_length.or(workload.sequence_length);
        workload.parameter_count = self.parameters.or(workload.parameter_count);
        if let Some(peak) = self.peak_memory_bytes {
            profile.step.get_or_insert_default().peak_memory_bytes = Some(peak);
        }
    }
}
