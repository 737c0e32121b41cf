//! Converts op lists, of steps that were traced but not run, to a [`Profile`] without origin.
//!
//! An op list is a JSON object with `info` (the traced model) and `ops`, one record per distinct `ATen` call with its
//! phase, arguments, results and count, as a `TorchDispatchMode` under `FakeTensorMode` sees them. A tensor is
//! `{"shape": […], "dtype": "float32"}`, with `"layout": "channels_last"` if it is channels-last and not also
//! contiguous. A record has `"access": "strided"` or `"transposed"` if the call does not read its tensors in memory
//! order. All other arguments are plain values. Calls that only create a view (`"view": true`) are left out.
//! `habitat-tui trace-shapes` writes version 1 with `"format": "habitat-op-list"` (`profiler/shapes/README.md`
//! documents every field); lists without a format come from older scripts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::op;
use crate::profile::tensors::{Access, CHANNELS_LAST, INPUT_DTYPES, OUTPUT_DTYPES, note_channels_last, note_dtypes};
use crate::profile::{
    Attribute, DType, Execution, IN_FP4, Memory, MemorySource, Mode, OP_LIST, Operation, Phase, Precision, Profile,
    ProfileError, Recording, Shape, Step, Working, Workload, json_error,
};
use habitat_base::text;
use habitat_base::units::Bytes;

/// Maximum characters of a text argument.
const TEXT: usize = 64;
/// Maximum characters of a module path.
const MODULE: usize = 160;
/// Maximum number of notes, and characters per note.
const NOTES: usize = 16;
const NOTE: usize = 400;
/// Format name in lists that state their format.
const FORMAT: &str = "habitat-op-list";
const VERSION: u32 = 1;
/// Note of a step that was not run.
pub(crate) const TRACED: &str = "traced without running: no GPU measurements, all times are predicted";

#[derive(Deserialize)]
struct OpList {
    format: Option<String>,
    version: Option<u32>,
    #[serde(default)]
    info: Info,
    ops: Vec<Record>,
}

#[derive(Default, Deserialize)]
struct Info {
    case: Option<String>,
    torch: Option<String>,
    batch: Option<u64>,
    micro_batches: Option<u64>,
    seq: Option<u64>,
    params: Option<u64>,
    amp: Option<String>,
    /// Whether products of 32-bit tensors run in TF32.
    #[serde(default)]
    tf32: bool,
    /// Whether cuDNN's convolutions and recurrent layers of 32-bit tensors run in TF32; missing in lists of older
    /// programs.
    cudnn_tf32: Option<bool>,
    mode: Option<Mode>,
    /// Launch mode, unless kernels are launched one by one.
    execution: Option<Execution>,
    #[serde(default)]
    memory: Listed,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Default, Deserialize)]
struct Listed {
    /// Bytes by kind of tensor and in total (`Total`), by device, as in `mem_tracker`.
    #[serde(default)]
    peak: BTreeMap<String, BTreeMap<String, u64>>,
    /// Bytes by kind at the peak of allocated memory.
    kinds: Option<Kinds>,
    /// Bytes by kind when the memory for gradients, activations and temporaries peaks.
    working: Option<Kinds>,
    /// Phase of the peak.
    peak_phase: Option<Phase>,
}

#[derive(Clone, Copy, Deserialize)]
struct Kinds {
    parameters: u64,
    gradients: u64,
    optimizer_state: u64,
    activations: u64,
    temporary: u64,
}

impl Listed {
    /// Memory by kind, from either format.
    fn by_kind(&self) -> Option<Memory> {
        let of = |names: &[&str]| {
            let sizes = self.peak.values().flat_map(|kinds| names.iter().filter_map(|name| kinds.get(*name)));
            sizes.fold(0, |sum: u64, size| sum.saturating_add(*size))
        };
        let kinds = self.kinds.unwrap_or_else(|| Kinds {
            parameters: of(&["Parameter", "Buffer"]),
            gradients: of(&["Gradient"]),
            optimizer_state: of(&["Optstate"]),
            activations: of(&["Activation"]),
            temporary: of(&["Temp", "Other"]),
        });
        let memory = Memory {
            source: MemorySource::Computed,
            parameters: Bytes::known(kinds.parameters as f64),
            gradients: Bytes::known(kinds.gradients as f64),
            optimizer_state: Bytes::known(kinds.optimizer_state as f64),
            activations: Bytes::known(kinds.activations as f64),
            temporary: Bytes::known(kinds.temporary as f64),
            working: self.working.map(|kinds| Working {
                gradients: Bytes::known(kinds.gradients as f64),
                activations: Bytes::known(kinds.activations as f64),
                temporary: Bytes::known(kinds.temporary as f64),
            }),
        };
        (memory.total().get() > 0.0).then_some(memory)
    }

    /// Peak memory, if given.
    fn total(&self) -> Option<Bytes> {
        let total = self
            .peak
            .values()
            .filter_map(|kinds| kinds.get("Total"))
            .fold(0, |sum: u64, size| sum.saturating_add(*size));
        if self.kinds.is_none() && total > 0 {
            return Some(Bytes::known(total as f64));
        }
        self.by_kind().map(|memory| memory.total())
    }
}

#[derive(Deserialize)]
struct Record {
    op: String,
    #[serde(default)]
    phase: String,
    module: Option<String>,
    #[serde(default)]
    inputs: Vec<Value>,
    #[serde(default)]
    kwargs: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    outputs: Vec<Value>,
    count: u32,
    #[serde(default)]
    view: bool,
    access: Option<String>,
}

/// Whether the beginning of a text looks like an op list.
pub fn looks_like_op_list(head: &[u8]) -> bool {
    let has = |mark: &str| head.windows(mark.len()).any(|window| window == mark.as_bytes());
    has("\"ops\"") && has("\"op\"") && has("\"inputs\"") && !has(crate::profile::FORMAT) && !has("\"traceEvents\"")
}

/// Parses an op list; `name` replaces a missing case name.
///
/// # Errors
/// [`ProfileError`] naming the field and its position.
pub fn from_op_list(json: &[u8], name: &str) -> Result<Profile, ProfileError> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Err(ProfileError::Empty);
    }
    let json = &without_bare_words(json);
    let mut track = serde_path_to_error::Track::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let list = OpList::deserialize(serde_path_to_error::Deserializer::new(&mut deserializer, &mut track))
        .and_then(|list| deserializer.end().map(|()| list))
        .map_err(|error| json_error(&error, &track.path().to_string()))?;
    let refused = |path: &str, problem: String| ProfileError::Value { path: path.to_owned(), problem };
    match (list.format.as_deref(), list.version) {
        (None, _) | (Some(FORMAT), Some(VERSION)) => {}
        (Some(FORMAT), version) => {
            let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(refused("version", format!("{version}; this program reads version {VERSION}")));
        }
        (Some(other), _) => {
            return Err(refused("format", format!("{:?} is not {FORMAT:?}", text::clean(other, TEXT))));
        }
    }
    let operations = list.ops.iter().filter(|record| !record.view).map(operation).collect::<Vec<_>>();
    if operations.is_empty() {
        return Err(refused("ops", "only views; a step has at least one operation that computes".to_owned()));
    }
    let info = &list.info;
    let workload = Workload {
        name: text::clean(info.case.as_deref().unwrap_or(name), 80),
        mode: info.mode.unwrap_or_else(|| {
            if operations.iter().any(|operation| operation.phase == Phase::Backward) {
                Mode::Training
            } else {
                Mode::Inference
            }
        }),
        batch_size: info.batch,
        micro_batches: info.micro_batches,
        sequence_length: info.seq,
        precision: precision(info, &operations),
        parameter_count: info.params,
    };
    let peak = info.memory.total();
    let memory = info.memory.by_kind();
    let step = (peak.is_some() || info.execution.is_some()).then(|| Step {
        peak_memory_bytes: peak,
        memory,
        execution: info.execution,
        ..Step::default()
    });
    let mut notes = vec![TRACED.to_owned()];
    if peak.is_some() {
        let place = info.memory.peak_phase.map_or_else(String::new, |phase| format!(", largest in {phase}"));
        notes.push(format!(
            "peak memory is the sum of the traced tensors{place}; library workspaces and allocator overhead come on top"
        ));
    }
    let in_fp4 = operations.iter().any(is_fp4_product);
    notes.extend(in_fp4.then(|| format!("precision unknown: products are {IN_FP4}")));
    notes.extend(info.notes.iter().take(NOTES).map(|note| text::clean(note, NOTE)));
    let mut profile = Profile::new(workload, None, step, operations)?;
    let source = info
        .torch
        .as_ref()
        .map_or_else(|| OP_LIST.to_owned(), |version| format!("{OP_LIST}, torch {}", text::clean(version, 20)));
    let tf32_known = info.cudnn_tf32.is_some();
    profile.recording =
        Some(Recording { source, step_marks: None, ranks: None, joined_share: None, tf32_known, notes });
    Ok(profile)
}

/// Replaces `NaN` and `Infinity`, which Python writes but JSON lacks, by empty lists, because they are never sizes.
/// Other text keeps its position.
fn without_bare_words(json: &[u8]) -> Vec<u8> {
    let mut text = json.to_vec();
    let (mut quoted, mut at) = (false, 0);
    while at < text.len() {
        match text[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'N' | b'I' | b'-' if !quoted => {
                let word =
                    [&b"-Infinity"[..], b"Infinity", b"NaN"].into_iter().find(|word| text[at..].starts_with(word));
                if let Some(word) = word {
                    text[at..at + word.len()].fill(b' ');
                    text[at..at + 2].copy_from_slice(b"[]");
                }
            }
            _ => {}
        }
        at += 1;
    }
    text
}

fn is_fp4_product(operation: &Operation) -> bool {
    operation.dtype.as_ref().is_some_and(DType::is_fp4) && op::family(operation).varies_kernels()
}

fn precision(info: &Info, operations: &[Operation]) -> Option<Precision> {
    let multiplying = || operations.iter().filter(|operation| op::family(operation).varies_kernels());
    if operations.iter().any(is_fp4_product) {
        return None;
    }
    // In FP8 only products use 8 bits, and not all of them.
    if multiplying().any(|operation| matches!(operation.dtype, Some(DType::Float8E4m3 | DType::Float8E5m2))) {
        return Some(Precision::Fp8);
    }
    match info.amp.as_deref() {
        Some("bfloat16") => return Some(Precision::AmpBf16),
        Some("float16") => return Some(Precision::AmpFp16),
        _ => {}
    }
    // 16-bit models compute some small products, such as those of positions, in FP32.
    let mut by_type: BTreeMap<&DType, f64> = BTreeMap::new();
    for operation in multiplying() {
        if let Some(dtype) = &operation.dtype {
            let flops = op::work(operation, None).map_or(0.0, |work| work.flops.get());
            *by_type.entry(dtype).or_default() += flops * f64::from(operation.count);
        }
    }
    let (most, _) = by_type.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    match most {
        DType::Float32 => Some(Precision::with_tf32(info.tf32, info.cudnn_tf32.unwrap_or(true))),
        DType::Float16 => Some(Precision::Fp16),
        DType::Bfloat16 => Some(Precision::Bf16),
        _ => None,
    }
}

fn operation(record: &Record) -> Operation {
    let name = name(&record.op);
    let mut given = Vec::new();
    record.inputs.iter().for_each(|value| collect(value, &mut given));
    record.kwargs.iter().flatten().for_each(|(_, value)| collect(value, &mut given));
    let mut results = Vec::new();
    record.outputs.iter().for_each(|value| collect(value, &mut results));
    let dtype = dtype(&given).or_else(|| dtype(&results));
    if results.is_empty() && op::name::is_foreach(&name) && op::name::is_in_place(&name) {
        // In place: the result is the first list.
        record.inputs.iter().take(1).for_each(|value| collect(value, &mut results));
    }
    let mut attributes: BTreeMap<String, Attribute> = op::name::positions(&name)
        .iter()
        .filter_map(|(place, key)| {
            let value = record.inputs.get(*place).or_else(|| record.kwargs.as_ref()?.get(*key))?;
            Some(((*key).to_owned(), attribute(value)?))
        })
        .collect();
    for (key, listed) in [(INPUT_DTYPES, &given), (OUTPUT_DTYPES, &results)] {
        let typed = listed.iter().map(|tensor| (&tensor.shape, tensor.dtype.as_ref()));
        note_dtypes(&mut attributes, key, dtype.as_ref(), typed);
    }
    // The lists of an update mix parameters of all memory layouts.
    if !op::name::takes_lists(&name) {
        if given.iter().any(|tensor| tensor.channels_last) {
            note_channels_last(&mut attributes);
        }
        if let Some(access) = record.access.as_deref().and_then(Access::named) {
            access.note(&mut attributes);
        }
    }
    Operation {
        name,
        module: record.module.as_ref().map(|module| text::clean(module, MODULE)).filter(|module| !module.is_empty()),
        phase: match record.phase.as_str() {
            "forward" => Phase::Forward,
            "backward" => Phase::Backward,
            "gradient_accumulation" => Phase::GradientAccumulation,
            "optimizer" | "zero_grad" => Phase::Optimizer,
            "copy" => Phase::Copy,
            "communication" => Phase::Communication,
            _ => Phase::Other,
        },
        count: record.count,
        inputs: given.into_iter().map(|tensor| tensor.shape).collect(),
        outputs: results.into_iter().map(|tensor| tensor.shape).collect(),
        dtype,
        attributes,
        device_time: None,
        cpu_time: None,
        kernels: Vec::new(),
    }
}

/// Other recordings write `aten.add_.Tensor` as `aten::add_`.
fn name(op: &str) -> String {
    let mut parts = op.splitn(3, '.');
    match (parts.next(), parts.next()) {
        (Some(space), Some(operator)) => format!("{space}::{operator}"),
        _ => op.to_owned(),
    }
}

/// A tensor in the list.
struct Tensor {
    shape: Shape,
    dtype: Option<DType>,
    channels_last: bool,
}

/// Collects the tensors of a value: itself, or those of a list.
fn collect(value: &Value, tensors: &mut Vec<Tensor>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, tensors)),
        Value::Object(fields) => {
            let shape = fields.get("shape").and_then(Value::as_array);
            if let Some(shape) = shape.and_then(|shape| shape.iter().map(Value::as_u64).collect()) {
                let dtype = fields.get("dtype").and_then(|dtype| DType::deserialize(dtype).ok());
                let channels_last = fields.get("layout").and_then(Value::as_str) == Some(CHANNELS_LAST);
                tensors.push(Tensor { shape, dtype, channels_last });
            }
        }
        _ => {}
    }
}

/// Element type of an operation: that of its first floating-point tensor with an extent, otherwise of its first tensor.
fn dtype(tensors: &[Tensor]) -> Option<DType> {
    let floating = |dtype: &DType| dtype.name().starts_with("float") || *dtype == DType::Bfloat16;
    let known = || tensors.iter().filter_map(|tensor| Some((tensor.shape.is_empty(), tensor.dtype.as_ref()?)));
    known()
        .find(|(scalar, dtype)| !scalar && floating(dtype))
        .or_else(|| known().find(|(scalar, _)| !scalar))
        .or_else(|| known().next())
        .map(|(_, dtype)| dtype.clone())
}

fn attribute(value: &Value) -> Option<Attribute> {
    match value {
        Value::Bool(value) => Some(Attribute::Bool(*value)),
        Value::Number(number) => number.as_i64().map(Attribute::Int).or_else(|| number.as_f64().map(Attribute::Float)),
        Value::String(value) => Some(Attribute::Text(text::clean(value, TEXT))),
        Value::Array(items) => Some(Attribute::List(items.iter().take(64).filter_map(attribute).collect())),
        Value::Null | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests;
