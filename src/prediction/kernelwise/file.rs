//! File format of fitted lines: JSON, `"format": "habitat-kernel-wise"`, version 1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AcrossLine, Evaluated, GpuLines, Group, KernelWise, Ranges};
use crate::learned::Spread;
use habitat_base::units::GpuSlug;

const FORMAT: &str = "habitat-kernel-wise";
const VERSION: u32 = 1;

/// Reason that a file of fitted lines cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KernelWiseError {
    /// The content is invalid.
    #[error("not a file of linear models: {0}; make one with `habitat-tui fit kernelwise`")]
    Form(String),
    /// The version is not supported.
    #[error(
        "version {0} of linear models, but this program reads version {VERSION}; fit them again with `habitat-tui fit kernelwise`"
    )]
    Version(u32),
    /// A number is invalid.
    #[error("{place}: {problem}; fit the lines again with `habitat-tui fit kernelwise`")]
    Value {
        /// Place in the file.
        place: String,
        /// Problem with the number.
        problem: &'static str,
    },
}

#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct File {
    format: String,
    version: u32,
    gpus: BTreeMap<GpuSlug, GpuLines>,
    across: BTreeMap<String, AcrossLine>,
    across_layers: BTreeMap<String, AcrossLine>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    across_steps: Option<AcrossLine>,
    #[serde(default)]
    seen: Ranges,
    #[serde(default)]
    unseen: Ranges,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    errors: Vec<Evaluated>,
}

impl KernelWise {
    /// Parses a file (not compressed).
    ///
    /// # Errors
    /// [`KernelWiseError`] with the place and the remedy.
    pub fn from_json(bytes: &[u8]) -> Result<Self, KernelWiseError> {
        let head: Head = serde_json::from_slice(bytes).map_err(|error| KernelWiseError::Form(error.to_string()))?;
        if head.format != FORMAT {
            return Err(KernelWiseError::Form(format!(
                "format is {:?}, not {FORMAT:?}",
                habitat_base::text::clean(&head.format, 40)
            )));
        }
        if head.version != VERSION {
            return Err(KernelWiseError::Version(head.version));
        }
        let file: File = serde_json::from_slice(bytes).map_err(|error| KernelWiseError::Form(error.to_string()))?;
        let File { gpus, across, across_layers, across_steps, seen, unseen, errors, .. } = file;
        let model = Self { gpus, across, across_layers, across_steps, seen, unseen, errors };
        model.check()?;
        Ok(model)
    }

    /// Serializes to JSON with a final newline.
    pub fn to_json(&self) -> String {
        let file = File {
            format: FORMAT.to_owned(),
            version: VERSION,
            gpus: self.gpus.clone(),
            across: self.across.clone(),
            across_layers: self.across_layers.clone(),
            across_steps: self.across_steps.clone(),
            seen: self.seen,
            unseen: self.unseen,
            errors: self.errors.clone(),
        };
        let mut value = serde_json::to_value(&file).unwrap_or_default();
        shorten(&mut value);
        let mut text = value.to_string();
        text.push('\n');
        text
    }

    fn check(&self) -> Result<(), KernelWiseError> {
        for (slug, gpu) in &self.gpus {
            let at = |what: &str| format!("gpus.{slug}.{what}");
            ensure(gpu.step_factor.is_finite() && gpu.step_factor > 0.0, at("step_factor"), "must be above 0")?;
            gpu.end_to_end.as_ref().map_or(Ok(()), |group| check_group(group, &at("end_to_end")))?;
            for (name, kind) in &gpu.kinds {
                let at = format!("gpus.{slug}.kinds.{}", habitat_base::text::clean(name, 60));
                for group in kind.layers.iter().chain(&kind.groups) {
                    check_group(group, &at)?;
                }
                let width = kind.table.first().map_or(0, |entry| entry.class.len());
                for entry in &kind.table {
                    let known = entry.groups.iter().all(|&group| group < kind.groups.len());
                    ensure(known && !entry.groups.is_empty(), format!("{at}.table"), "refers to missing groups")?;
                    ensure(entry.class.len() == width, format!("{at}.table"), "has shapes of different lengths")?;
                }
            }
        }
        for (name, line) in self.across.iter().chain(&self.across_layers) {
            check_across(line, &format!("across.{}", habitat_base::text::clean(name, 60)))?;
        }
        self.across_steps.as_ref().map_or(Ok(()), |line| check_across(line, "across_steps"))?;
        for (name, ranges) in [("seen", self.seen), ("unseen", self.unseen)] {
            for spread in [ranges.kernel_wise, ranges.layer_wise, ranges.end_to_end, ranges.operation] {
                ensure(spread.is_none_or(Spread::is_sound), name.to_owned(), "is not a valid range")?;
            }
        }
        for (index, judged) in self.errors.iter().enumerate() {
            ensure(not_negative(judged.error), format!("errors[{index}].error"), "must be 0 or more")?;
        }
        Ok(())
    }
}

fn check_group(group: &Group, place: &str) -> Result<(), KernelWiseError> {
    ensure(not_negative(group.line.intercept), format!("{place}.intercept"), "must be 0 or more")?;
    ensure(not_negative(group.line.slope), format!("{place}.slope"), "must be 0 or more")?;
    ensure(not_negative(group.largest), format!("{place}.largest"), "must be 0 or more")
}

fn check_across(line: &AcrossLine, place: &str) -> Result<(), KernelWiseError> {
    ensure(not_negative(line.intercept), format!("{place}.intercept"), "must be 0 or more")?;
    ensure(not_negative(line.offset), format!("{place}.offset"), "must be 0 or more")?;
    for (name, value) in [("rate", line.rate), ("slowest", line.slowest)] {
        ensure(value.is_finite() && value > 0.0, format!("{place}.{name}"), "must be above 0")?;
    }
    let finite = line.by_bandwidth.intercept.is_finite() && line.by_bandwidth.slope.is_finite();
    ensure(finite, format!("{place}.by_bandwidth"), "must be finite")
}

const fn not_negative(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

fn ensure(sound: bool, place: String, problem: &'static str) -> Result<(), KernelWiseError> {
    if sound { Ok(()) } else { Err(KernelWiseError::Value { place, problem }) }
}

/// Rounds to six digits, more than any measured time has.
fn shorten(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            let short = number.as_f64().and_then(|full| format!("{full:.5e}").parse::<f64>().ok());
            if let Some(short) = short.and_then(serde_json::Number::from_f64) {
                *number = short;
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(shorten),
        serde_json::Value::Object(values) => values.values_mut().for_each(shorten),
        _ => {}
    }
}
