//! A language model and its layout from the command that trains it: a script or command line of Megatron-LM, a
//! configuration or command line of torchtitan.
//!
//! Flags of Megatron-LM are those of Megatron Core 0.12 to 0.16 (`megatron/training/arguments.py`), keys of torchtitan
//! those of 0.2 and 0.3 (`JobConfig`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::{Decoder, DecoderError, Known, Loss, Recompute};
use habitat_base::text;

/// A model, its step and its layout as a command trains it.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// The model.
    pub decoder: Decoder,
    /// Sequences of one micro-batch.
    pub micro_batch: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// Passes that the backward pass repeats.
    pub recompute: Recompute,
    /// Copies of the logits.
    pub loss: Loss,
    /// Whether gradients add up in 16 bits.
    pub has_narrow_gradients: bool,
    /// Flags of `plan` for the layout, the batch and the precision, with their values.
    pub plan: Vec<(&'static str, String)>,
}

/// Reason that a command has no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Neither Megatron-LM nor torchtitan.
    #[error("has neither --num-layers (Megatron-LM) nor model.flavor (torchtitan)")]
    Other,
    /// Invalid TOML.
    #[error("line {line}: {problem}")]
    Toml {
        /// The line.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// A script whose quotes do not close.
    #[error("a quote does not close")]
    Quote,
    /// A flag without a usable value.
    #[error("{flag} {value}: {problem}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// The problem and its remedy.
        problem: &'static str,
    },
    /// The dimensions make no model.
    #[error(transparent)]
    Model(#[from] DecoderError),
}

/// Flags or keys with their values: none for a bare flag, several if the file sets different ones, such as in the
/// branches of an `if`. Dashes are underscores.
struct Flags(Values);

type Values = BTreeMap<String, BTreeSet<String>>;

impl Flags {
    /// From a shell script, a command line or TOML.
    fn read(text: &str) -> Result<Self, LaunchError> {
        let is_header = |line: &str| line.trim_start().starts_with('[') && line.trim_end().ends_with(']');
        let table: Result<toml::Table, toml::de::Error> = toml::from_str(text);
        let is_command = table.is_err() && text.contains("--");
        if !text.lines().any(is_header) || is_command {
            return Self::of_script(text);
        }
        let table = table.map_err(|error| LaunchError::Toml {
            line: text[..error.span().map_or(0, |span| span.start)].matches('\n').count() + 1,
            problem: error.message().to_owned(),
        })?;
        let sections = table.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
        let keys = sections.flat_map(|(section, keys)| keys.iter().map(move |key| (section, key)));
        let shown = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Ok(Self(keys.map(|(section, (key, value))| (format!("{section}.{key}"), [shown(value)].into())).collect()))
    }

    fn of_script(text: &str) -> Result<Self, LaunchError> {
        // Older scripts keep their flags in quotes: GPT_ARGS="--num-layers 24 …".
        let quoted = |word: String| match word.split_once('=') {
            Some((name, flags)) if flags.contains("--") && !name.starts_with('-') => flags.to_owned(),
            _ => word,
        };
        let words = shell_words::split(text).map_err(|_| LaunchError::Quote)?.into_iter().map(quoted);
        // Without the parentheses of arrays and the ends of commands; what the shell computes is left as it is.
        let ends = |c: char| c.is_whitespace() || "();|&".contains(c);
        let words = words.flat_map(|word| {
            if word.contains("$(") {
                return vec![word];
            }
            word.split(ends).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        });
        let (mut all, mut set, mut last) = (Values::new(), Values::new(), None);
        for word in words {
            if let Some(flag) = word.strip_prefix("--") {
                let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
                let name = name.replace('-', "_");
                all.entry(name.clone()).or_default().extend(value.into_iter().flat_map(|value| valued(value, &set)));
                last = Some(name).filter(|_| value.is_none());
            } else if let Some(name) = last.take() {
                all.entry(name).or_default().extend(valued(&word, &set));
            } else if let Some((name, value)) = word.split_once('=') {
                let values = valued(value, &set);
                set.entry(name.to_owned()).or_default().extend(values);
            }
        }
        Ok(Self(all))
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The value; `None` without the flag, and for a bare flag.
    fn value(&self, name: &str) -> Result<Option<&str>, LaunchError> {
        let mut values = self.0.get(name).into_iter().flatten();
        match (values.next(), values.next()) {
            (_, Some(_)) => Err(wrong(name, "", "has several values in the file: keep the one that runs")),
            (value, None) => Ok(value.map(String::as_str)),
        }
    }

    /// A whole number; `None` without the flag.
    fn number(&self, name: &str) -> Result<Option<u64>, LaunchError> {
        let Some(value) = self.value(name)? else {
            return if self.has(name) { Err(wrong(name, "", "is not a whole number")) } else { Ok(None) };
        };
        let problem = if value.starts_with('$') {
            "is not in the file, or is computed by the shell: write its value (NAME=8)"
        } else {
            "is not a whole number"
        };
        value.replace('_', "").parse().map(Some).map_err(|_| wrong(name, value, problem))
    }

    /// A degree of parallelism as a flag of `plan`; none for one.
    fn degree(&self, flag: &'static str, name: &str) -> Result<Option<(&'static str, String)>, LaunchError> {
        Ok(self.number(name)?.filter(|degree| *degree > 1).map(|degree| (flag, degree.to_string())))
    }
}

/// A word, or the values that the script gives the variable which it names.
fn valued(word: &str, set: &Values) -> BTreeSet<String> {
    let Some(name) = word.strip_prefix('$') else { return [word.to_owned()].into() };
    let name = name.trim_start_matches('{').trim_end_matches('}');
    let (name, usual) = name.split_once(":-").map_or((name, word), |(name, usual)| (name, usual));
    set.get(name).cloned().unwrap_or_else(|| [usual.to_owned()].into())
}

/// Error of a flag, or of a key of a section.
fn wrong(name: &str, value: &str, problem: &'static str) -> LaunchError {
    let flag = if name.contains('.') { name.to_owned() } else { format!("--{}", name.replace('_', "-")) };
    LaunchError::Value { flag, value: text::clean(value, 40), problem }
}

/// Tokens of GPT-2's vocabulary, which Megatron's examples use.
const GPT2_TOKENS: u64 = 50_257;

/// Layers without experts at the start, of `--moe-layer-freq`: 1, or `([0]*3+[1]*57)`.
fn dense_layers(pattern: &str) -> Result<u32, LaunchError> {
    let plain: String = pattern.chars().filter(|c| !c.is_whitespace() && !"()".contains(*c)).collect();
    let first = plain.strip_prefix("[0]*").and_then(|rest| rest.split_once("+[1]*"));
    match first.and_then(|(dense, rest)| dense.parse().ok().filter(|_| rest.parse::<u32>().is_ok())) {
        Some(dense) => Ok(dense),
        None if plain == "1" || plain.strip_prefix("[1]*").is_some_and(|rest| rest.parse::<u32>().is_ok()) => Ok(0),
        None => {
            Err(wrong("moe_layer_freq", pattern, "only dense layers at the start are known, such as ([0]*3+[1]*57)"))
        }
    }
}

/// Dimensions by Megatron's flags, as a `config.json` of Hugging Face.
fn dimensions(flags: &Flags) -> Result<Map<String, Value>, LaunchError> {
    let is_gated = flags.has("swiglu");
    let kind = match (flags.has("multi_latent_attention"), is_gated) {
        (true, _) => "deepseek_v3",
        (false, true) => "llama",
        (false, false) => "gpt_neox",
    };
    let mut config = Map::new();
    config.insert("model_type".to_owned(), json!(kind));
    config.insert("tie_word_embeddings".to_owned(), json!(!flags.has("untie_embeddings_and_output_weights")));
    for (key, flag) in [
        ("num_hidden_layers", "num_layers"),
        ("hidden_size", "hidden_size"),
        ("num_attention_heads", "num_attention_heads"),
        ("head_dim", "kv_channels"),
        ("intermediate_size", "ffn_hidden_size"),
        ("vocab_size", "vocab_size"),
        // The padded one counts.
        ("vocab_size", "padded_vocab_size"),
        ("q_lora_rank", "q_lora_rank"),
        ("kv_lora_rank", "kv_lora_rank"),
        ("qk_nope_head_dim", "qk_head_dim"),
        ("qk_rope_head_dim", "qk_pos_emb_head_dim"),
        ("v_head_dim", "v_head_dim"),
        ("num_local_experts", "num_experts"),
        ("num_experts_per_tok", "moe_router_topk"),
        ("moe_intermediate_size", "moe_ffn_hidden_size"),
        ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"),
        ("max_position_embeddings", "max_position_embeddings"),
    ] {
        config.extend(flags.number(flag)?.map(|value| (key.to_owned(), json!(value))));
    }
    if flags.has("group_query_attention") {
        let groups = flags.number("num_query_groups")?;
        config.extend(groups.map(|groups| ("num_key_value_heads".to_owned(), json!(groups))));
    }
    if is_gated {
        // Megatron's default: two thirds of 4 h, in multiples of 64.
        let width = flags.number("hidden_size")?.unwrap_or(0);
        config.entry("intermediate_size").or_insert(json!(width.saturating_mul(8) / 3 / 64 * 64));
    }
    if let Some(pattern) = flags.value("moe_layer_freq")? {
        config.insert("first_k_dense_replace".to_owned(), json!(dense_layers(pattern)?));
    }
    // Megatron's default is two experts for a token.
    if config.contains_key("num_local_experts") {
        config.entry("num_experts_per_tok").or_insert(json!(2));
    }
    if flags.has("merge_file") || flags.value("tokenizer_type")? == Some("GPT2BPETokenizer") {
        config.entry("vocab_size").or_insert(json!(GPT2_TOKENS));
    }
    if config.contains_key("vocab_size") {
        return Ok(config);
    }
    Err(wrong("vocab_size", "", "missing: the tokenizer decides it; add --vocab-size to a copy of the file"))
}

/// Flag of `plan` for the global batch. Without one, both programs give each replica one micro-batch.
fn global_batch(batch: Option<u64>) -> (&'static str, String) {
    batch.map_or(("--accept", "batch".to_owned()), |batch| ("--global-batch", batch.to_string()))
}

/// Flags of `plan` for the GPUs that `torchrun` starts; none unless both numbers are known.
fn gpus(flags: &Flags) -> Vec<(&'static str, String)> {
    let number = |name: &str| flags.number(name).ok().flatten().filter(|count| *count > 0);
    if let Some(shards) = number("parallelism.data_parallel_shard_degree") {
        let degrees = ["data_parallel_replicate", "tensor_parallel", "pipeline_parallel", "context_parallel"];
        let degrees = degrees.iter().filter_map(|degree| number(&format!("parallelism.{degree}_degree")));
        let all = degrees.fold(shards, u64::saturating_mul).to_string();
        return vec![("--min-gpus", all.clone()), ("--max-gpus", all)];
    }
    let Some((machines, each)) = number("nnodes").zip(number("nproc_per_node")) else { return Vec::new() };
    let all = machines.saturating_mul(each).to_string();
    vec![("--min-gpus", all.clone()), ("--max-gpus", all), ("--max-machines", machines.to_string())]
}

impl Launch {
    /// Reads the text of a script, a command line or a configuration.
    ///
    /// # Errors
    /// [`LaunchError`] for another program, a value that is not a number, and dimensions that make no model.
    pub fn read(name: &str, text: &str, known: Known) -> Result<Self, LaunchError> {
        let flags = Flags::read(text)?;
        if flags.has("num_layers") {
            Self::of_megatron(name, &flags)
        } else if flags.has("model.flavor") {
            Self::of_torchtitan(name, &flags, known)
        } else {
            Err(LaunchError::Other)
        }
    }

    fn of_megatron(name: &str, flags: &Flags) -> Result<Self, LaunchError> {
        let config = Value::Object(dimensions(flags)?);
        let decoder = Decoder::from_config(name, config.to_string().as_bytes())?;
        let recompute = match flags.value("recompute_granularity")? {
            Some("full") => Recompute::Full,
            Some(_) => Recompute::Selective,
            None if flags.has("recompute_activations") => Recompute::Selective,
            None => Recompute::None,
        };
        let stages = flags.number("pipeline_model_parallel_size")?.unwrap_or(1);
        let of_chunk = flags.number("num_layers_per_virtual_pipeline_stage")?.filter(|layers| *layers > 0);
        let chunks = of_chunk.map(|layers| u64::from(decoder.layers) / stages.max(1) / layers);
        let chunks = flags.number("num_virtual_stages_per_pipeline_rank")?.or(chunks).filter(|chunks| *chunks > 1);
        let strategy = flags.value("data_parallel_sharding_strategy")?.unwrap_or("optim_grads_params");
        let sharding = match strategy {
            "optim_grads_params" if flags.has("use_megatron_fsdp") || flags.has("use_torch_fsdp2") => "zero3",
            "optim_grads" if flags.has("use_megatron_fsdp") => "zero2",
            _ if flags.has("use_distributed_optimizer") => "zero1",
            _ => "none",
        };
        let work = flags.number("train_iters")?.map(|steps| ("--steps", steps.to_string()));
        let samples = flags.number("train_samples")?.map(|samples| ("--samples", samples.to_string()));
        let work = work.or(samples);
        let plan = [
            flags.degree("--tensor-parallel", "tensor_model_parallel_size")?,
            flags.degree("--pipeline-parallel", "pipeline_model_parallel_size")?,
            chunks.map(|chunks| ("--virtual-stages", chunks.to_string())),
            flags.degree("--context-parallel", "context_parallel_size")?,
            flags.degree("--expert-parallel", "expert_model_parallel_size")?,
            Some(("--sharding", sharding.to_owned())),
            Some(global_batch(flags.number("global_batch_size")?)),
            flags.has("fp8_format").then(|| ("--precision", "fp8".to_owned())),
        ];
        let plan = plan.into_iter().chain([work]).flatten().chain(gpus(flags)).collect();
        let micro_batch = flags.number("micro_batch_size")?.unwrap_or(1);
        let length = flags.number("seq_length")?.unwrap_or(1024);
        let loss = if flags.has("cross_entropy_loss_fusion") { Loss::Fused } else { Loss::InPlace };
        let has_narrow_gradients = flags.has("grad_reduce_in_bf16");
        Ok(Self { decoder, micro_batch, length, recompute, loss, has_narrow_gradients, plan })
    }

    fn of_torchtitan(name: &str, flags: &Flags, known: Known) -> Result<Self, LaunchError> {
        let of = |key: &str| flags.value(key).map(Option::unwrap_or_default);
        let model = format!("{}-{}", of("model.name")?, of("model.flavor")?).to_lowercase();
        let model = if model == "deepseek_v3-671b" { "deepseek-v3" } else { &model };
        let decoder = Decoder { name: name.to_owned(), ..known.find(model)? };
        let recompute = match of("activation_checkpoint.mode")? {
            "full" => Recompute::Full,
            "none" => Recompute::None,
            // By operator, or of every Nth layer.
            _ if of("activation_checkpoint.selective_ac_option")? == "1" => Recompute::Full,
            _ => Recompute::Operators,
        };
        let reshards = of("parallelism.fsdp_reshard_after_forward")?;
        let copies = flags.number("parallelism.data_parallel_replicate_degree")?;
        let is_whole = of("parallelism.data_parallel_shard_degree")? == "1";
        // With pipeline stages, torchtitan keeps gathered parameters by default; a plan then divides the optimizer state.
        let has_stages = flags.number("parallelism.pipeline_parallel_degree")?.is_some_and(|stages| stages > 1);
        let sharding = if is_whole {
            "none"
        } else if has_stages && reshards != "always" {
            "zero1"
        } else if reshards == "never" {
            "zero2"
        } else if copies.is_some_and(|copies| copies > 1) {
            "hsdp"
        } else {
            "zero3"
        };
        // -1 is the default.
        let is_given = !of("training.global_batch_size")?.starts_with('-');
        let global = if is_given { flags.number("training.global_batch_size")? } else { None };
        let work = flags.number("training.steps")?.map(|steps| ("--steps", steps.to_string()));
        let plan = [
            flags.degree("--tensor-parallel", "parallelism.tensor_parallel_degree")?,
            flags.degree("--pipeline-parallel", "parallelism.pipeline_parallel_degree")?,
            flags.degree("--context-parallel", "parallelism.context_parallel_degree")?,
            flags.degree("--expert-parallel", "parallelism.expert_parallel_degree")?,
            Some(("--sharding", sharding.to_owned())),
            Some(global_batch(global)),
            of("model.converters")?.contains("float8").then(|| ("--precision", "fp8".to_owned())),
        ];
        let plan = plan.into_iter().chain([work]).flatten().chain(gpus(flags)).collect();
        let micro_batch = flags
            .number("parallelism.pipeline_parallel_microbatch_size")?
            .filter(|_| flags.has("parallelism.pipeline_parallel_degree"));
        let micro_batch = micro_batch.or(flags.number("training.local_batch_size")?).unwrap_or(8);
        let length = flags.number("training.seq_len")?.unwrap_or(2048);
        Ok(Self { decoder, micro_batch, length, recompute, loss: Loss::Plain, has_narrow_gradients: false, plan })
    }
}

#[cfg(test)]
mod tests;
