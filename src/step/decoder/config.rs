//! A [`Decoder`] from the `config.json` of a model on Hugging Face, or from the table of known models.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Decoder, Experts, Latent, Window};
use habitat_base::units::most;

/// Names and dimensions of public models: the text of `models/decoders.toml`.
#[derive(Debug, Clone, Copy)]
pub struct Known(&'static str);

/// Reason that a model cannot be made from its `config.json`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecoderError {
    /// Not JSON, or a field of another type.
    #[error("{0}; a config.json of Hugging Face holds one object")]
    Json(String),
    /// A field that every decoder needs is missing or zero.
    #[error("{field}: {problem}; a decoder-only model has it, such as {example}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The problem.
        problem: String,
        /// Example of a value.
        example: &'static str,
    },
    /// Not a public model that the program knows.
    #[error("{name:?} is neither a file nor a known model; {}", near.as_ref().map_or_else(|| format!("known are {}", known.join(", ")), |near| format!("did you mean {near}?")))]
    Unknown {
        /// The name.
        name: String,
        /// All names.
        known: Vec<String>,
        /// The nearest one.
        near: Option<String>,
    },
    /// More parameters than a profile may have.
    #[error("{0} parameters; the limit is {1}: check the dimensions")]
    Large(u128, u64),
    /// Another kind of model.
    #[error(
        "model_type {0:?} is not a decoder-only language model that this program knows ({known}): trace its code with `habitat-tui trace-shapes FILE.py:build`",
        known = format!("{GATED} {PLAIN}").replace(' ', ", ")
    )]
    Kind(String),
}

/// Largest dimension.
const MOST: u64 = 10_000_000;

/// A dimension that every model has.
fn needed(field: &'static str, value: Option<u64>, example: &'static str) -> Result<u64, DecoderError> {
    match value {
        Some(1..) => bounded(field, value, example).map(Option::unwrap_or_default),
        Some(0) => Err(out_of_range(field, 0, example)),
        None => Err(DecoderError::Field { field, problem: "missing".to_owned(), example }),
    }
}

/// A dimension that some models have.
fn bounded(field: &'static str, value: Option<u64>, example: &'static str) -> Result<Option<u64>, DecoderError> {
    match value {
        Some(value) if value > MOST => Err(out_of_range(field, value, example)),
        value => Ok(value),
    }
}

fn out_of_range(field: &'static str, value: u64, example: &'static str) -> DecoderError {
    DecoderError::Field { field, problem: format!("{value} is out of range (at most {MOST})"), example }
}

/// Other kinds of models that share the weights of the embedding by default (transformers 5.23).
const TIED: [&str; 8] = ["gpt2", "gpt_neo", "opt", "starcoder2", "smollm3", "cohere", "cohere2", "ernie4_5"];

/// Heads, heads of keys, their size, and the vocabulary of Gemma 3, whose published files leave out what is usual
/// (transformers 5.23, `Gemma3TextConfig`).
const GEMMA_3: [u64; 4] = [8, 4, 256, 262_208];

/// Known values of `model_type` whose layers are gated, and those whose are not.
const GATED: &str = "llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi3 olmo olmo2 granite smollm3 glm4 glm olmo3 \
    seed_oss helium stablelm cohere ernie4_5 exaone4 cohere2 ministral3 qwen2_vl qwen2_vl_text \
    qwen2_5_vl qwen2_5_vl_text qwen3_vl_text qwen3_vl_moe_text llama4_text glm4_moe glm4v_moe_text \
    minimax_m2 granitemoe phimoe kimi_k2 mixtral qwen2_moe qwen3_moe olmoe deepseek_v2 deepseek_v3 \
    gpt_oss";
const PLAIN: &str = "gpt2 gpt_neox gpt_neo gptj opt starcoder2 nemotron apertus";

/// Fields of a `config.json`, with the names that older models use.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    model_type: Option<String>,
    /// The language model of a model that also takes pictures or sound.
    #[serde(rename = "text_config")]
    text: Option<Box<Config>>,
    #[serde(rename = "vision_config")]
    vision: Option<IgnoredAny>,
    sliding_window: Option<u64>,
    attention_chunk_size: Option<u64>,
    use_sliding_window: Option<bool>,
    /// Qwen: layers before the first with a window.
    max_window_layers: Option<u32>,
    layer_types: Option<Vec<String>>,
    #[serde(alias = "n_layer", alias = "num_layers")]
    num_hidden_layers: Option<u32>,
    #[serde(alias = "n_embd")]
    hidden_size: Option<u64>,
    #[serde(alias = "n_head", alias = "num_heads")]
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    #[serde(alias = "n_inner", alias = "ffn_dim")]
    intermediate_size: Option<u64>,
    vocab_size: Option<u64>,
    tie_word_embeddings: Option<bool>,
    #[serde(alias = "n_positions")]
    max_position_embeddings: Option<u64>,
    q_lora_rank: Option<u64>,
    kv_lora_rank: Option<u64>,
    qk_nope_head_dim: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    v_head_dim: Option<u64>,
    #[serde(alias = "num_experts", alias = "n_routed_experts")]
    num_local_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    moe_intermediate_size: Option<u64>,
    shared_expert_intermediate_size: Option<u64>,
    n_shared_experts: Option<u64>,
    first_k_dense_replace: Option<u32>,
    /// Llama 4: width of layers without experts, and distance of those with them.
    intermediate_size_mlp: Option<u64>,
    interleave_moe_layer_step: Option<u32>,
    /// Published number in billions, of known models.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it"))]
    pub(super) parameters: Option<f64>,
}

impl Known {
    /// From the embedded text.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    pub(super) fn all(self) -> Result<BTreeMap<String, Config>, DecoderError> {
        toml::from_str(self.0).map_err(|error| DecoderError::Json(error.to_string()))
    }

    /// The model with this name, in any case and with any dots, dashes and underscores.
    ///
    /// # Errors
    /// [`DecoderError::Unknown`] with the nearest name.
    pub fn find(self, name: &str) -> Result<Decoder, DecoderError> {
        let all = self.all()?;
        let plain = |name: &str| name.to_lowercase().replace(['.', '-', '_', ' '], "");
        let wanted = name.to_lowercase();
        if let Some((_, config)) = all.iter().find(|(known, _)| plain(known) == plain(name)) {
            return config.decoder(name);
        }
        let near = all.keys().map(|known| (strsim::jaro_winkler(known, &wanted), known));
        let near = near.filter(|(likeness, _)| *likeness > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
        let near = near.map(|(_, known)| known.clone());
        Err(DecoderError::Unknown { name: habitat_base::text::clean(name, 60), known: all.into_keys().collect(), near })
    }
}

impl Config {
    pub(super) fn decoder(&self, name: &str) -> Result<Decoder, DecoderError> {
        if let Some(text) = &self.text {
            return Ok(Decoder { has_other_parts: true, ..text.decoder(name)? });
        }
        let kind = self.model_type.as_deref().unwrap_or("");
        let usual = GEMMA_3.map(|value| (kind == "gemma3_text").then_some(value));
        let is_among = |names: &str| names.split(' ').any(|name| name == kind);
        let is_gated = is_among(GATED);
        if !is_gated && !is_among(PLAIN) {
            return Err(DecoderError::Kind(habitat_base::text::clean(kind, 40)));
        }
        let layers = needed("num_hidden_layers", self.num_hidden_layers.map(u64::from), "32")?;
        let width = needed("hidden_size", self.hidden_size, "4096")?;
        let heads = needed("num_attention_heads", self.num_attention_heads.or(usual[0]), "32")?;
        let own_size = self.head_dim.or(usual[2]);
        let given = own_size.or_else(|| Some(width / heads));
        if own_size.is_none() && self.qk_nope_head_dim.is_none() && !width.is_multiple_of(heads) {
            let problem = format!("{heads} does not divide the hidden_size, {width}");
            return Err(DecoderError::Field { field: "num_attention_heads", problem, example: "32" });
        }
        let positions = bounded("qk_rope_head_dim", self.qk_rope_head_dim, "64")?.unwrap_or(0);
        let size = self.qk_nope_head_dim.map(|size| size.saturating_add(positions)).or(given);
        let head_size = needed("head_dim", size, "128")?;
        let value_size = needed("v_head_dim", self.v_head_dim.or(Some(head_size)), "128")?;
        let kv_heads = needed("num_key_value_heads", self.num_key_value_heads.or(usual[1]).or(Some(heads)), "8")?;
        let inner = needed("intermediate_size", self.intermediate_size.or((!is_gated).then_some(4 * width)), "14336")?;
        let vocabulary = needed("vocab_size", self.vocab_size.or(usual[3]), "128256")?;
        let keys = bounded("kv_lora_rank", self.kv_lora_rank, "512")?;
        let queries = bounded("q_lora_rank", self.q_lora_rank, "1536")?;
        let latent = keys.map(|keys| Latent { queries, keys, positions });
        // Families that share weights unless their file denies it.
        let is_tied = self.tie_word_embeddings.unwrap_or_else(|| kind.starts_with("gemma") || TIED.contains(&kind));
        let decoder = Decoder {
            name: name.to_owned(),
            layers: layers as u32,
            width,
            heads,
            kv_heads,
            head_size,
            value_size,
            latent,
            inner: bounded("intermediate_size_mlp", self.intermediate_size_mlp, "16384")?.unwrap_or(inner),
            is_gated,
            vocabulary,
            is_tied,
            experts: self.experts(layers as u32, inner)?,
            window: self.window(kind, layers as u32),
            longest: self.max_position_embeddings,
            has_other_parts: self.vision.is_some(),
        };
        let [count, _] = decoder.counted();
        if count > u128::from(most::PARAMETERS) {
            return Err(DecoderError::Large(count, most::PARAMETERS));
        }
        Ok(decoder)
    }

    /// The layers with a window, as `layer_types` names them, or else as usual for the family.
    fn window(&self, kind: &str, layers: u32) -> Option<Window> {
        if !self.use_sliding_window.unwrap_or(!kind.starts_with("qwen")) {
            return None;
        }
        // A token of a chunk sees half of it on average.
        let tokens = self.sliding_window.or(self.attention_chunk_size.map(|chunk| chunk / 2))?;
        // Families that mix both kinds of layers (transformers 5.23).
        let of_family = || match kind {
            "gemma2" | "gpt_oss" => layers - layers / 2,
            "cohere2" | "exaone4" | "llama4_text" | "olmo3" => layers - layers / 4,
            "gemma3_text" => layers - layers / 6,
            _ => layers.saturating_sub(self.max_window_layers.unwrap_or(0)),
        };
        let is_windowed = |name: &&String| name.starts_with("sliding") || name.starts_with("chunked");
        let named = |names: &Vec<String>| names.iter().filter(is_windowed).count() as u32;
        let layers = self.layer_types.as_ref().map_or_else(of_family, |names| named(names).min(layers));
        (tokens > 0 && layers > 0).then_some(Window { tokens, layers })
    }

    /// The experts, if there are any. `inner` is the width of those without one of their own.
    fn experts(&self, layers: u32, inner: u64) -> Result<Option<Experts>, DecoderError> {
        let count = bounded("num_local_experts", self.num_local_experts, "8")?;
        let Some(count) = count.filter(|count| *count > 1) else { return Ok(None) };
        let chosen = needed("num_experts_per_tok", self.num_experts_per_tok, "8")?.min(count);
        let inner = bounded("moe_intermediate_size", self.moe_intermediate_size, "2048")?.unwrap_or(inner);
        let every = self.interleave_moe_layer_step;
        let of_shared = self.n_shared_experts.unwrap_or(u64::from(every.is_some())).saturating_mul(inner);
        let shared = self.shared_expert_intermediate_size.unwrap_or(of_shared);
        let shared = bounded("shared_expert_intermediate_size", Some(shared), "2048")?.unwrap_or(0);
        // Dense layers between the others do the same work at the start.
        let between = layers - layers / every.unwrap_or(1).max(1);
        let dense_layers = self.first_k_dense_replace.unwrap_or(between).min(layers);
        Ok(Some(Experts { count, chosen, inner, shared, dense_layers }))
    }
}

impl Decoder {
    /// Reads a `config.json` of Hugging Face.
    ///
    /// # Errors
    /// [`DecoderError`] for text that is not JSON, a missing field, or another kind of model.
    pub fn from_config(name: &str, json: &[u8]) -> Result<Self, DecoderError> {
        let config: Config = serde_json::from_slice(json).map_err(|error| DecoderError::Json(error.to_string()))?;
        config.decoder(name)
    }
}
