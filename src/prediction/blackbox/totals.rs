//! Totals of a step that a black box exposes, and their file format (`habitat-black-box`, version 1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperatorKind;
use crate::communication::communicates;
use habitat_base::units::{GpuSlug, Micros, most};
use habitat_step::profile::{Mode, Precision, Profile};

/// Total device time of each operator kind in one step, and the step time.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorTotals {
    /// GPU that the step was measured on.
    pub gpu: GpuSlug,
    /// Wall time of one step, above 0.
    pub step: Micros,
    /// Samples of one step, above 0.
    pub batch_size: u64,
    /// Time of one step in which the device was idle while profiled; `None` if not recorded.
    pub idle: Option<Micros>,
    /// Device time of one step by kind; absent kinds took none.
    pub kinds: BTreeMap<OperatorKind, Micros>,
}

/// Reason that the numbers are not valid totals of a step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TotalsError {
    /// The content is invalid.
    #[error("{0}")]
    Form(String),
    /// The version is not supported.
    #[error("version {0} of {FORMAT}, but this program reads version {VERSION}; a newer habitat-tui may read it")]
    Version(u64),
    /// Step time is missing.
    #[error("no measured step time; record the step with a profiler (`habitat-tui import` reads its trace)")]
    NoStep,
    /// GPU is missing.
    #[error("unknown recording GPU; pass --origin")]
    NoGpu,
    /// Batch size is missing.
    #[error("no batch size; pass --batch-size")]
    NoBatch,
    /// The step is not a training step.
    #[error("an inference step; the black-box model covers training steps only")]
    Inference,
    /// The step was recorded in another precision.
    #[error("recorded in {0}; the black-box model covers FP32 steps only")]
    Precision(Precision),
    /// The step communicates with other GPUs.
    #[error(
        "recorded as one of several GPUs; the black-box model covers single-GPU steps only, and the totals omit communication"
    )]
    Communication,
    /// No operator has a measured time.
    #[error("no operator has a measured device time; a profile with only shapes cannot be exported")]
    NoTimes,
}

/// Name of the file format.
pub(super) const FORMAT: &str = "habitat-black-box";
/// Version of the file format.
pub(super) const VERSION: u64 = 1;

/// Layout of the file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    gpu: GpuSlug,
    step_time_us: Micros,
    batch_size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_idle_us: Option<Micros>,
    operators: Vec<Line>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Line {
    #[schemars(with = "String")]
    kind: OperatorKind,
    device_time_us: Micros,
}

impl OperatorTotals {
    /// Validates totals.
    ///
    /// # Errors
    /// Fails without step time, batch size or any operator time.
    pub fn new(
        gpu: GpuSlug,
        step: Micros,
        batch_size: u64,
        idle: Option<Micros>,
        mut kinds: BTreeMap<OperatorKind, Micros>,
    ) -> Result<Self, TotalsError> {
        kinds.retain(|_, time| time.get() > 0.0);
        if step.get() <= 0.0 {
            return Err(TotalsError::NoStep);
        }
        if batch_size == 0 {
            return Err(TotalsError::NoBatch);
        }
        if batch_size > most::BATCH {
            return Err(TotalsError::Form(format!("batch_size: {batch_size}; at most {} is allowed", most::BATCH)));
        }
        if kinds.is_empty() {
            return Err(TotalsError::NoTimes);
        }
        Ok(Self { gpu, step, batch_size, idle, kinds })
    }

    /// Reduces a profile to the parts that a black box exposes: totals by kind, step, batch size and GPU. `gpu`
    /// overrides the GPU's name in the profile with the catalog's.
    ///
    /// # Errors
    /// [`TotalsError`] naming the missing part.
    pub fn of_profile(profile: &Profile, gpu: Option<&GpuSlug>) -> Result<Self, TotalsError> {
        if profile.workload.mode == Mode::Inference {
            return Err(TotalsError::Inference);
        }
        if let Some(precision) =
            profile.workload.precision.filter(|precision| !matches!(precision, Precision::Fp32 | Precision::Fp32Strict))
        {
            return Err(TotalsError::Precision(precision));
        }
        if communicates(profile) {
            return Err(TotalsError::Communication);
        }
        let gpu = gpu
            .cloned()
            .or_else(|| profile.origin.as_ref().and_then(|origin| origin.gpu.clone()))
            .ok_or(TotalsError::NoGpu)?;
        let step = profile.measured_step().ok_or(TotalsError::NoStep)?;
        let batch = profile.workload.batch_size.ok_or(TotalsError::NoBatch)?;
        let busy = profile.step.as_ref().and_then(|recorded| recorded.device_busy);
        let mut kinds = BTreeMap::new();
        for operation in &profile.operations {
            let (Some(kind), Some(time)) = (OperatorKind::of_operation(operation), operation.total_device_time())
            else {
                continue;
            };
            *kinds.entry(kind).or_insert(Micros::ZERO) += time;
        }
        // More digits than 0.1 µs would only fingerprint the recording.
        let rounded = |time: Micros| Micros::known((time.get() * 10.0).round() / 10.0);
        for time in kinds.values_mut() {
            *time = rounded(*time);
        }
        let idle = busy.map(|busy| rounded(step.checked_sub(busy).unwrap_or_default()));
        Self::new(gpu, rounded(step), batch, idle, kinds)
    }

    /// Sum over all kinds.
    pub fn device_time(&self) -> Micros {
        self.kinds.values().copied().sum()
    }

    /// Parses the file format.
    ///
    /// # Errors
    /// [`TotalsError`] naming the invalid field or the version.
    pub fn from_json(json: &[u8]) -> Result<Self, TotalsError> {
        let value: serde_json::Value =
            serde_json::from_slice(json).map_err(|error| TotalsError::Form(format!("not JSON: {error}")))?;
        if value["format"] != FORMAT {
            return Err(TotalsError::Form(format!(
                "\"format\" is not {FORMAT:?}; write such a file with `habitat-tui export --black-box`"
            )));
        }
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(other) => return Err(TotalsError::Version(other)),
            None => return Err(TotalsError::Form("\"version\" is missing or not a whole number".to_owned())),
        }
        let file: File =
            serde_path_to_error::deserialize(value).map_err(|error| TotalsError::Form(error.to_string()))?;
        let mut kinds = BTreeMap::new();
        for line in file.operators {
            if kinds.insert(line.kind, line.device_time_us).is_some() {
                return Err(TotalsError::Form(format!("operators: {} appears twice", line.kind.name())));
            }
        }
        Self::new(file.gpu, file.step_time_us, file.batch_size, file.device_idle_us, kinds)
    }

    /// Writes the file format, with a final newline.
    ///
    /// # Errors
    /// None for totals that passed [`Self::new`].
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        let file = File {
            format: FORMAT.to_owned(),
            version: VERSION,
            gpu: self.gpu.clone(),
            step_time_us: self.step,
            batch_size: self.batch_size,
            device_idle_us: self.idle,
            operators: self.kinds.iter().map(|(&kind, &device_time_us)| Line { kind, device_time_us }).collect(),
        };
        let mut json = serde_json::to_vec_pretty(&file)?;
        json.push(b'\n');
        Ok(json)
    }

    /// JSON Schema of the file format.
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(File);
        schema.insert("title".to_owned(), "habitat-tui black box".into());
        schema.to_value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn totals() -> OperatorTotals {
        let kinds = [(OperatorKind::Convolution, 900.0), (OperatorKind::Transfer, 50.5)];
        let kinds = kinds.map(|(kind, time)| (kind, Micros::new(time).unwrap())).into();
        let idle = Some(Micros::new(120.0).unwrap());
        OperatorTotals::new(GpuSlug::new("t4").unwrap(), Micros::new(1100.0).unwrap(), 32, idle, kinds).unwrap()
    }

    #[test]
    fn the_file_form_comes_back() {
        let json = totals().to_json().unwrap();
        assert_eq!(OperatorTotals::from_json(&json).unwrap(), totals());
    }

    #[test]
    fn bad_files_are_refused_with_the_place() {
        let good = String::from_utf8(totals().to_json().unwrap()).unwrap();
        let error = |from: &str, to: &str| {
            let bad = good.replace(from, to);
            assert_ne!(bad, good, "{from}");
            OperatorTotals::from_json(bad.as_bytes()).unwrap_err().to_string()
        };
        assert!(error("habitat-black-box", "habitat-profile").contains("export --black-box"));
        assert!(error("\"version\": 1", "\"version\": 2").contains("version 2"));
        assert!(error("\"kind\": \"transfer\"", "\"kind\": \"secret\"").contains("operators[1].kind"));
        assert!(error("\"kind\": \"transfer\"", "\"kind\": \"convolution\"").contains("twice"));
        assert!(error("50.5", "-1").contains("operators[1]"));
        assert!(error("\"batch_size\": 32", "\"batch_size\": 0").contains("batch"));
        assert!(error("\"batch_size\"", "\"layers\": 3, \"batch_size\"").contains("layers"));
        assert!(error("1100.0", "0").contains("step time"));
        assert!(OperatorTotals::from_json(b"[").unwrap_err().to_string().contains("not JSON"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = OperatorTotals::from_json(&bytes);
        }
    }
}
