//! Op lists of a step that was traced and not run → [`Profile`] without origin.
//!
//! The form: one JSON object of `info` (what was traced) and `ops`, one record for every
//! distinct `ATen` call with its phase, arguments, results and count, as a
//! `TorchDispatchMode` under `FakeTensorMode` sees them. A tensor is `{"shape": […],
//! "dtype": "float32"}`; everything else among the arguments is a plain value. Calls that
//! only view a tensor (`"view": true`) are left out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::kineto::positions;
use super::read::json_error;
use super::{
    Attribute, DType, Mode, Operation, Phase, Precision, Profile, ProfileError, Recording, Shape, Step, Workload,
};
use crate::text;
use crate::units::Bytes;

/// Characters of a textual argument.
const TEXT: usize = 64;

#[derive(Deserialize)]
struct OpList {
    #[serde(default)]
    info: Info,
    ops: Vec<Record>,
}

#[derive(Default, Deserialize)]
struct Info {
    case: Option<String>,
    torch: Option<String>,
    batch: Option<u64>,
    seq: Option<u64>,
    params: Option<u64>,
    amp: Option<String>,
    #[serde(default)]
    memory: Memory,
}

#[derive(Default, Deserialize)]
struct Memory {
    /// Bytes by kind of tensor and in all (`Total`), by device.
    #[serde(default)]
    peak: BTreeMap<String, BTreeMap<String, u64>>,
}

#[derive(Deserialize)]
struct Record {
    op: String,
    #[serde(default)]
    phase: String,
    #[serde(default)]
    inputs: Vec<Value>,
    #[serde(default)]
    kwargs: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    outputs: Vec<Value>,
    count: u32,
    #[serde(default)]
    view: bool,
}

/// Whether the beginning of a text has the marks of an op list.
pub fn looks_like_op_list(head: &[u8]) -> bool {
    let has = |mark: &str| head.windows(mark.len()).any(|window| window == mark.as_bytes());
    has("\"ops\"") && has("\"op\"") && has("\"inputs\"") && !has(super::FORMAT) && !has("\"traceEvents\"")
}

/// Reads an op list; `name` stands in for a missing name of the case.
///
/// # Errors
/// [`ProfileError`] naming the field and the place.
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
    let operations = list.ops.iter().filter(|record| !record.view).map(operation).collect::<Vec<_>>();
    if operations.is_empty() {
        let problem = "no operation but views; a step has at least one that computes".to_owned();
        return Err(ProfileError::Value { path: "ops".to_owned(), problem });
    }
    let info = &list.info;
    let workload = Workload {
        name: text::clean(info.case.as_deref().unwrap_or(name), 80),
        mode: if operations.iter().any(|operation| operation.phase == Phase::Backward) {
            Mode::Training
        } else {
            Mode::Inference
        },
        batch_size: info.batch,
        sequence_length: info.seq,
        precision: precision(info, &operations),
        parameter_count: info.params,
    };
    let peak = info.memory.peak.values().filter_map(|kinds| kinds.get("Total")).sum::<u64>();
    let step = (peak > 0).then(|| Step { peak_memory_bytes: Some(Bytes::known(peak as f64)), ..Step::default() });
    let mut notes = vec!["traced without running: nothing was measured on a GPU, all times are predicted".to_owned()];
    if peak > 0 {
        notes.push("peak memory is the sum of the traced tensors, without the allocator's loss".to_owned());
    }
    let mut profile = Profile::new(workload, None, step, operations)?;
    let source = info
        .torch
        .as_ref()
        .map_or_else(|| "op list".to_owned(), |version| format!("op list, torch {}", text::clean(version, 20)));
    profile.recording = Some(Recording { source, step_marks: None, ranks: None, joined_share: None, notes });
    Ok(profile)
}

/// Python writes numbers that JSON does not have as `NaN` and `Infinity`; they stand for no
/// size, so an empty list takes their place, and all other text keeps its own.
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

fn precision(info: &Info, operations: &[Operation]) -> Option<Precision> {
    match info.amp.as_deref() {
        Some("bfloat16") => return Some(Precision::AmpBf16),
        Some("float16") => return Some(Precision::AmpFp16),
        _ => {}
    }
    let products = ["mm", "conv", "linear", "matmul", "attention", "rnn"];
    let first = operations.iter().find(|operation| products.iter().any(|part| operation.name.contains(part)))?;
    match first.dtype.as_ref()? {
        DType::Float32 => Some(Precision::Fp32),
        DType::Float16 => Some(Precision::Fp16),
        DType::Bfloat16 => Some(Precision::Bf16),
        _ => None,
    }
}

fn operation(record: &Record) -> Operation {
    let name = name(&record.op);
    let mut tensors = Vec::new();
    record.inputs.iter().for_each(|value| collect(value, &mut tensors));
    record.kwargs.iter().flatten().for_each(|(_, value)| collect(value, &mut tensors));
    let mut results = Vec::new();
    record.outputs.iter().for_each(|value| collect(value, &mut results));
    let dtype = dtype(&tensors).or_else(|| dtype(&results));
    let mut outputs: Vec<Shape> = results.into_iter().map(|(shape, _)| shape).collect();
    if outputs.is_empty() && name.contains("_foreach_") && name.ends_with('_') {
        // In place: the first list is the result.
        let mut first = Vec::new();
        record.inputs.iter().take(1).for_each(|value| collect(value, &mut first));
        outputs = first.into_iter().map(|(shape, _)| shape).collect();
    }
    let attributes = positions(&name)
        .iter()
        .filter_map(|(place, key)| {
            let value = record.inputs.get(*place).or_else(|| record.kwargs.as_ref()?.get(*key))?;
            Some(((*key).to_owned(), attribute(value)?))
        })
        .collect();
    Operation {
        name,
        module: None,
        phase: match record.phase.as_str() {
            "forward" => Phase::Forward,
            "backward" => Phase::Backward,
            "optimizer" | "zero_grad" => Phase::Optimizer,
            "copy" => Phase::Copy,
            "communication" => Phase::Communication,
            _ => Phase::Other,
        },
        count: record.count,
        inputs: tensors.into_iter().map(|(shape, _)| shape).collect(),
        outputs,
        dtype,
        attributes,
        device_time: None,
        kernels: Vec::new(),
    }
}

/// `aten.add_.Tensor` is `aten::add_` elsewhere.
fn name(op: &str) -> String {
    let mut parts = op.splitn(3, '.');
    match (parts.next(), parts.next()) {
        (Some(space), Some(operator)) => format!("{space}::{operator}"),
        _ => op.to_owned(),
    }
}

/// The tensors of a value: itself, or those of a list.
fn collect(value: &Value, tensors: &mut Vec<(Shape, Option<DType>)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect(item, tensors)),
        Value::Object(fields) => {
            let shape = fields.get("shape").and_then(Value::as_array);
            if let Some(shape) = shape.and_then(|shape| shape.iter().map(Value::as_u64).collect()) {
                let dtype = fields.get("dtype").and_then(|dtype| DType::deserialize(dtype).ok());
                tensors.push((shape, dtype));
            }
        }
        _ => {}
    }
}

/// The element type of an operation: that of its first floating-point tensor with an
/// extent, else of its first tensor.
fn dtype(tensors: &[(Shape, Option<DType>)]) -> Option<DType> {
    let floating = |dtype: &DType| dtype.name().starts_with("float") || *dtype == DType::Bfloat16;
    let known = || tensors.iter().filter_map(|(shape, dtype)| Some((shape.is_empty(), dtype.as_ref()?)));
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
mod tests {
    use super::*;

    const LIST: &str = r#"{"info": {"case": "net", "torch": "2.15.0", "batch": 64, "params": 9408, "amp": null,
        "memory": {"param_bytes": 37632, "peak": {"cpu": {"Parameter": 1, "Total": 1000000}}}},
      "ops": [
        {"phase": "forward", "op": "aten.convolution.default", "inputs": [{"shape": [64, 3, 224, 224], "dtype": "float32"},
          {"shape": [64, 3, 7, 7], "dtype": "float32"}, null, [2, 2], [3, 3], [1, 1], false, [0, 0], 1], "kwargs": null,
          "outputs": [{"shape": [64, 64, 112, 112], "dtype": "float32"}], "count": 1, "flops": 15105785856, "view": false},
        {"phase": "forward", "op": "aten.view.default", "inputs": [{"shape": [4], "dtype": "float32"}], "outputs": [], "count": 3, "view": true},
        {"phase": "backward", "op": "aten.ones_like.default", "inputs": [{"shape": [], "dtype": "float32"}], "kwargs": {"pin_memory": false},
          "outputs": [{"shape": [], "dtype": "float32"}], "count": 1},
        {"phase": "optimizer", "op": "aten._foreach_add_.List", "inputs": [[{"shape": [64, 3, 7, 7], "dtype": "float32"}, {"shape": [64], "dtype": "float32"}],
          [{"shape": [64, 3, 7, 7], "dtype": "float32"}, {"shape": [64], "dtype": "float32"}]], "kwargs": {"alpha": -0.1}, "outputs": [], "count": 2}]}"#;

    #[test]
    fn an_op_list_becomes_a_profile_without_origin() {
        let profile = from_op_list(LIST.as_bytes(), "file").unwrap();
        let workload = &profile.workload;
        assert_eq!((workload.name.as_str(), workload.mode, workload.batch_size), ("net", Mode::Training, Some(64)));
        assert_eq!((workload.precision, workload.parameter_count), (Some(Precision::Fp32), Some(9408)));
        assert_eq!((&profile.origin, profile.measured_step()), (&None, None));
        assert_eq!(profile.step.as_ref().unwrap().peak_memory_bytes, Some(Bytes::known(1e6)));
        let names: Vec<&str> = profile.operations.iter().map(|operation| operation.name.as_str()).collect();
        assert_eq!(names, ["aten::convolution", "aten::ones_like", "aten::_foreach_add_"]);
        let convolution = &profile.operations[0];
        assert_eq!(convolution.attributes["stride"].as_ints(), Some(vec![2, 2]));
        assert_eq!(convolution.attributes["transposed"], Attribute::Bool(false));
        let update = &profile.operations[2];
        assert_eq!((update.phase, update.count, update.inputs.len()), (Phase::Optimizer, 2, 4));
        assert_eq!(update.outputs, [vec![64, 3, 7, 7], vec![64]]);
    }

    #[test]
    fn errors_name_the_field_and_the_place() {
        let error = |text: &str| from_op_list(text.as_bytes(), "f").expect_err("must be refused").to_string();
        assert!(error("").contains("empty"));
        assert!(error("{\"info\": {}}").contains("missing field `ops`"));
        assert!(error("{\"ops\": []}").starts_with("ops: no operation"));
        let count = error(&LIST.replacen("\"count\": 1", "\"count\": -1", 1));
        assert!(count.starts_with("ops[0].count: invalid value"), "{count}");
        let zero = error(&LIST.replacen("\"count\": 1,", "\"count\": 0,", 1));
        assert!(zero.contains("aten::convolution") && zero.contains("count: 0"), "{zero}");
    }

    #[test]
    fn numbers_that_json_does_not_have_are_passed_over() {
        let text =
            r#"{"ops": [{"op": "aten.full.default", "inputs": [[2], -Infinity, NaN, "-Infinity"], "count": 1}]}"#;
        let json = without_bare_words(text.as_bytes());
        let value: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(value["ops"][0]["inputs"], serde_json::json!([[2], [], [], "-Infinity"]));
        assert_eq!(json.len(), text.len());
    }

    #[test]
    fn op_lists_are_told_from_other_files() {
        assert!(looks_like_op_list(LIST.as_bytes()));
        assert!(!looks_like_op_list(br#"{"format": "habitat-profile", "ops": [{"op": 1, "inputs": 2}]}"#));
        assert!(!looks_like_op_list(br#"{"traceEvents": []}"#));
    }
}
