//! The tools: their arguments with schemas, and the command line of a call.

use std::ffi::OsString;
use std::sync::Arc;

use habitat_reports::{difference::DifferenceJson, json_schema, plans::PlanJson, predictions::PredictionsJson};
use rmcp::model::{Tool, ToolAnnotations};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Purpose of the server.
pub(super) const INSTRUCTIONS: &str = "Step time, cost and offers for training or running a neural network on GPUs, \
     from one recorded or traced step. Times have a range (low, mid, high) and a method; prices have an age. A step is a \
     file: a profile (.habitat.json.zst), or a trace of torch.profiler, Nsight Systems or JAX. Without a GPU, make one \
     with trace_shapes. Without a file, the embedded sample (BERT-large on an H100) is used, which is not the user's model.";

/// A number, or text with a unit (10M, 1.28e6).
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum Amount {
    Number(f64),
    Text(String),
}

/// Arguments of `predict`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Predict {
    /// The recorded step: a path. Left out: the embedded sample.
    file: Option<String>,
    /// GPUs: h100-sxm, 4090, l4. A word that fits several, such as h100, means all of them.
    #[serde(rename(serialize = "to"))]
    #[schemars(length(min = 1))]
    gpus: Vec<String>,
    /// Predict for another precision: bf16, amp-bf16, fp16, tf32, fp8.
    precision: Option<String>,
    /// Samples per step and GPU, if the file lacks it.
    batch_size: Option<u64>,
    /// Also the time of every operation.
    operations: Option<bool>,
}

/// Arguments of `plan`. The work is one of `samples`, `steps`, `tokens`, or `epochs` with `dataset`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Plan {
    /// The recorded step: a path. Left out: the embedded sample.
    file: Option<String>,
    /// Work in samples (1.28M).
    samples: Option<Amount>,
    /// Work in steps of the recorded batch size.
    steps: Option<Amount>,
    /// Work in tokens.
    tokens: Option<Amount>,
    /// Work in passes over the data set.
    epochs: Option<f64>,
    /// Samples of the data set, for `epochs`.
    dataset: Option<Amount>,
    /// Samples per optimizer step on all GPUs.
    global_batch: Option<u64>,
    /// Latest finish: 24h, "Friday 18:00", 2026-12-04.
    deadline: Option<String>,
    /// Maximum total cost in US dollars.
    budget: Option<f64>,
    /// cost, time or co2.
    objective: Option<String>,
    /// Offers beside firm ones: spot, marketplace, doubted and others; an error lists them.
    accept: Option<Vec<String>>,
    /// Only these GPUs.
    gpus: Option<Vec<String>>,
    /// Only these providers.
    providers: Option<Vec<String>>,
    /// Own machines by their GPUs: 2x3090.
    own: Option<Vec<String>>,
    /// Most machines of a plan.
    max_machines: Option<u64>,
    /// Predict for another precision.
    precision: Option<String>,
    /// List every rejected offer with its reason: thousands of lines.
    rejected: Option<bool>,
}

/// Arguments of `trace_shapes`: a `function`, or a `config`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TraceShapes {
    /// PLACE:FUNCTION, such as train.py:build. The function is called, on tensors without values. It returns a function
    /// that makes a step, or (model, inputs, optimizer, loss).
    function: Option<String>,
    /// A language model from its dimensions, without Python: a path of a config.json of Hugging Face, or a name such as
    /// llama3-8b.
    config: Option<String>,
    /// The profile to write: a path that ends in .habitat.json.zst. An existing file is an error.
    output: String,
    /// Samples per step.
    #[serde(rename(serialize = "batch_sizes"))]
    batch_size: Option<u64>,
    /// Tokens per sample.
    sequence_length: Option<u64>,
    /// A Python with PyTorch: a path.
    python: Option<String>,
}

/// Arguments of `explain`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Explain {
    /// The recorded step: a path. Left out: the embedded sample.
    file: Option<String>,
    /// Two GPUs, such as a100-pcie-40gb and h100-sxm.
    #[serde(rename(serialize = "to"))]
    gpus: [String; 2],
    /// Predict for another precision.
    precision: Option<String>,
}

/// All tools.
pub(super) fn all() -> Vec<Tool> {
    let reads = || ToolAnnotations::new().read_only(true).open_world(false);
    vec![
        of::<Predict>("predict", "Predict the step time on GPUs, with range, method, memory and the cheapest offer")
            .with_raw_output_schema(object(json_schema::<PredictionsJson<'_>>()))
            .with_annotations(reads()),
        of::<Plan>("plan", "Choose the best offers for an amount of work, within a deadline and a budget")
            .with_raw_output_schema(object(json_schema::<PlanJson<'_>>()))
            .with_annotations(reads()),
        of::<TraceShapes>(
            "trace_shapes",
            "Trace one step of a model without a GPU, and write it to a file for the other tools. Imports and runs the \
             user's Python code",
        )
        .with_annotations(ToolAnnotations::new().read_only(false).destructive(false).open_world(false)),
        of::<Explain>("explain", "Explain why a step takes longer on one GPU than on another, by operation")
            .with_raw_output_schema(object(json_schema::<DifferenceJson<'_>>()))
            .with_annotations(reads()),
    ]
}

/// A tool with the arguments `T`.
fn of<T: JsonSchema>(name: &'static str, about: &'static str) -> Tool {
    Tool::new(name, about, object(schema_for!(T).to_value()))
}

fn object(schema: Value) -> Arc<Map<String, Value>> {
    match schema {
        Value::Object(map) => Arc::new(map),
        _ => Arc::default(),
    }
}

/// A call as a command line.
pub(super) struct Call {
    /// The command and its arguments.
    pub(super) words: Vec<OsString>,
    /// Whether the list of rejected offers is left out.
    is_short: bool,
    /// Flags of the command, and the arguments that stand for them.
    names: Names,
}

impl Call {
    /// Parses the arguments of a tool.
    pub(super) fn parse(tool: &str, arguments: Value) -> Result<Self, String> {
        let is_short = arguments.get("rejected") != Some(&Value::Bool(true));
        let (words, mut names) = match tool {
            "predict" => words::<Predict>(&["predict"], "file", arguments),
            "plan" => words::<Plan>(&["plan"], "file", arguments),
            "trace_shapes" => words::<TraceShapes>(&["trace-shapes"], "function", arguments),
            "explain" => words::<Explain>(&["predict", "--difference"], "file", arguments),
            _ => Err(format!("no tool {tool:?}: predict, plan, trace_shapes or explain")),
        }?;
        names.push(("difference".to_owned(), tool.to_owned()));
        Ok(Self { words, is_short, names })
    }

    /// The answer without what fills the memory of an agent: thousands of offers that a plan rejects. Its sentences
    /// name arguments.
    pub(super) fn answer(&self, mut answer: Value) -> Value {
        if let Some(Value::Array(rejected)) = answer.get_mut("rejected").filter(|_| self.is_short) {
            rejected.clear();
        }
        self.name_arguments(&mut answer);
        answer
    }

    fn name_arguments(&self, answer: &mut Value) {
        match answer {
            Value::Array(items) => items.iter_mut().for_each(|item| self.name_arguments(item)),
            Value::Object(fields) => fields.iter_mut().for_each(|(name, field)| match field {
                Value::String(text) if name == "text" => *text = self.said(text),
                field => self.name_arguments(field),
            }),
            _ => {}
        }
    }

    /// A message of the command with arguments of the tool for flags; other flags are those of the command line.
    pub(super) fn said(&self, text: &str) -> String {
        // Help of the command line ends an error of its parser.
        let text = ["\n\nUsage:", "\n\nFor more information"]
            .iter()
            .fold(text, |text, help| text.split_once(help).map_or(text, |(message, _)| message));
        let mut parts = text.split("--");
        let mut said = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-').unwrap_or(part.len());
            let (flag, mut rest) = part.split_at(end);
            match self.names.iter().find(|(name, _)| name == flag) {
                Some((_, argument)) => {
                    said += argument;
                    // The form of its value.
                    rest = rest.strip_prefix(" <").and_then(|form| Some(form.split_once('>')?.1)).unwrap_or(rest);
                }
                None => said.extend(["--", flag, if flag.is_empty() { "" } else { " (of the command line)" }]),
            }
            said += rest;
        }
        said
    }
}

/// Flags without dashes, and the arguments that they stand for.
type Names = Vec<(String, String)>;

/// Flags named as the fields of `T`, then the positional argument; and the arguments that the flags stand for.
fn words<T: DeserializeOwned + Serialize + JsonSchema>(
    command: &[&str],
    positional: &str,
    arguments: Value,
) -> Result<(Vec<OsString>, Names), String> {
    let parsed: T = serde_path_to_error::deserialize(arguments).map_err(|error| error.to_string())?;
    let Ok(Value::Object(mut fields)) = serde_json::to_value(parsed) else { return Err("not an object".to_owned()) };
    // In the same order.
    let arguments = schema_for!(T).get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    let names = fields.keys().map(|field| field.replace('_', "-")).zip(arguments.into_iter().map(|(name, _)| name));
    let names = names.collect();
    let file = fields.shift_remove(positional);
    let mut words: Vec<OsString> = command.iter().map(|word| (*word).into()).collect();
    words.push("--json".into());
    for (name, value) in &fields {
        let flag = format!("--{}", name.replace('_', "-"));
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => words.push(flag.into()),
            value => words.push(format!("{flag}={}", text(value)).into()),
        }
    }
    if let Some(file) = file.filter(|file| !file.is_null()) {
        // A name that begins with a dash is not a flag.
        words.extend(["--".into(), text(&file).into()]);
    }
    Ok((words, names))
}

/// A value as it is typed.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::args::Cli;
    use clap::Parser as _;
    use serde_json::json;

    fn line(tool: &str, arguments: Value) -> Result<String, String> {
        let call = Call::parse(tool, arguments)?;
        Ok(call.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn arguments_are_flags() {
        let predict = line("predict", json!({"file": "-a.json", "gpus": ["h100", "l4"], "operations": true}));
        assert_eq!(predict.unwrap(), "predict --json --to=h100,l4 --operations -- -a.json");
        let explain = line("explain", json!({"gpus": ["h100", "l4"], "precision": "bf16"}));
        assert_eq!(explain.unwrap(), "predict --difference --json --to=h100,l4 --precision=bf16");
        let plan = line("plan", json!({"epochs": 3, "dataset": "10M", "budget": 300}));
        assert_eq!(plan.unwrap(), "plan --json --epochs=3.0 --dataset=10M --budget=300.0");
        let unknown = line("plan", json!({"epoch": 3})).unwrap_err();
        assert!(unknown.contains("epoch"), "{unknown}");
        assert!(line("predict", json!({})).unwrap_err().contains("gpus"));
        assert!(line("rm", json!({})).is_err());
    }

    #[test]
    fn messages_name_arguments() {
        let said = |tool: &str, arguments: Value, text: &str| Call::parse(tool, arguments).unwrap().said(text);
        let (gpus, plan) = (json!({"gpus": ["h100", "l4"]}), json!({"steps": 9}));
        assert_eq!(said("predict", gpus.clone(), "--to h100: matches h100-nvl"), "gpus h100: matches h100-nvl");
        assert_eq!(said("explain", gpus, "--difference compares two: --to a,b"), "explain compares two: gpus a,b");
        let missing = "not provided:\n  --dataset <N>\n\nUsage: habitat-tui plan --epochs <N> --dataset <N> [FILE]";
        assert_eq!(said("plan", plan.clone(), missing), "not provided:\n  dataset");
        let invalid =
            "invalid value '3x' for '--own <[[M×]N×]GPU>': such as 2x3090\n\nFor more information, try '--help'.";
        assert_eq!(said("plan", plan.clone(), invalid), "invalid value '3x' for 'own': such as 2x3090");
        let others = "--max-machines=2 -- or --what-if";
        assert_eq!(said("plan", plan.clone(), others), "max_machines=2 -- or --what-if (of the command line)");
        let traced = said("trace_shapes", json!({"output": "a", "config": "b"}), "--batch-sizes 8");
        assert_eq!(traced, "batch_size 8");
        let call = Call::parse("plan", plan).unwrap();
        let answer = call.answer(json!({"command": "a --budget 1", "reasons": [{"text": "(--budget 790.17)"}]}));
        assert_eq!(answer, json!({"command": "a --budget 1", "reasons": [{"text": "(budget 790.17)"}]}));
    }

    /// Every argument of a schema is a flag of its command.
    #[test]
    fn every_argument_is_a_flag_that_exists() {
        for tool in all() {
            let properties = tool.input_schema["properties"].as_object().unwrap();
            for name in properties.keys() {
                let value = match name.as_str() {
                    "file" => json!("a.json"),
                    "gpus" => json!(["l4", "h100"]),
                    "precision" => json!("bf16"),
                    "objective" => json!("time"),
                    "deadline" => json!("24h"),
                    "accept" => json!(["spot"]),
                    "providers" | "own" => json!(["l4"]),
                    "rejected" | "operations" => json!(true),
                    "function" | "config" | "output" | "python" => json!("a"),
                    _ => json!(8),
                };
                let mut arguments = json!({name: value});
                match &*tool.name {
                    "plan" if name == "epochs" => arguments["dataset"] = json!(8),
                    "plan" if name == "dataset" => arguments["epochs"] = json!(8),
                    "predict" | "explain" => arguments["gpus"] = json!(["l4", "h100"]),
                    "trace_shapes" => {
                        arguments["output"] = json!("a");
                        if name != "config" {
                            arguments["function"] = json!("a:b");
                        }
                    }
                    _ => {}
                }
                let call = Call::parse(&tool.name, arguments).unwrap();
                let typed = [OsString::from("habitat-tui")].into_iter().chain(call.words);
                Cli::try_parse_from(typed).unwrap_or_else(|error| panic!("{} {name}: {error}", tool.name));
            }
        }
    }
}
