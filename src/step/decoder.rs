//! Decoder-only language models by their dimensions: the operations of one training step, without code or weights.
//!
//! [`Decoder`] is read from a Hugging Face `config.json`; [`Decoder::profile`] makes the [`Profile`] that tracing a
//! plain implementation would give (`step.rs`): one product for queries, keys and values, one for both halves of a gated
//! layer, Adam on 32-bit copies of 16-bit weights, as in Megatron-LM. Vaswani et al. 2017, arXiv:1706.03762, section 3
//! (layers); Shazeer 2020, arXiv:2002.05202 (gated layers); DeepSeek-V2, arXiv:2405.04434, section 2.1 (latent
//! attention); Fedus et al. 2021, arXiv:2101.03961, section 2 (experts).
//!
//! [`Profile`]: crate::profile::Profile

mod launch;
mod step;

use std::collections::BTreeMap;

use serde::Deserialize;

pub use launch::{Launch, LaunchError};

use habitat_base::units::most;

/// Dimensions of a decoder-only language model.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoder {
    /// Name, for titles.
    pub name: String,
    /// Number of layers.
    pub layers: u32,
    /// Width of activations between layers (h).
    pub width: u64,
    /// Heads of the queries.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Size of a query or key of one head.
    pub head_size: u64,
    /// Size of a value of one head.
    pub value_size: u64,
    /// Ranks of latent attention.
    pub latent: Option<Latent>,
    /// Width between the two products of a dense layer.
    pub inner: u64,
    /// Whether the first of these products has two halves, one of which gates the other.
    pub is_gated: bool,
    /// Tokens of the vocabulary.
    pub vocabulary: u64,
    /// Whether the last product shares its weights with the embedding.
    pub is_tied: bool,
    /// Mixture of experts.
    pub experts: Option<Experts>,
    /// Longest sequence that the model was made for.
    pub longest: Option<u64>,
}

/// Ranks of `DeepSeek`'s multi-head latent attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latent {
    /// Rank of the queries; `None` if they are not compressed.
    pub queries: Option<u64>,
    /// Rank of keys and values.
    pub keys: u64,
    /// Elements of a head's key that carry the position; all heads share them.
    pub positions: u64,
}

/// Experts of the layers that have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Experts {
    /// Experts per layer.
    pub count: u64,
    /// Experts that each token visits.
    pub chosen: u64,
    /// Width between the two products of an expert.
    pub inner: u64,
    /// The same for all shared experts together, which every token visits; 0 without one.
    pub shared: u64,
    /// Layers at the start that have none.
    pub dense_layers: u32,
}

/// Forward passes that the backward pass repeats to keep fewer activations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Recompute {
    /// None.
    #[default]
    None,
    /// Attention between its products ("selective", Korthikanti et al. 2022, arXiv:2205.05198, section 5).
    Selective,
    /// Every second product and the operations between products, but not attention (torchtitan's selective checkpoints by
    /// operator).
    Operators,
    /// Whole layers.
    Full,
}

impl Recompute {
    /// All of them, by increasing extent.
    pub const ALL: [Self; 4] = [Self::None, Self::Selective, Self::Operators, Self::Full];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selective => "selective",
            Self::Operators => "operators",
            Self::Full => "full",
        }
    }
}

/// Copies of the logits that a program's loss makes. The operations are those of [`Loss::Plain`]; only memory differs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Loss {
    /// Log-probabilities in 32 bits, their gradients and those of the logits (`PyTorch`'s cross-entropy).
    #[default]
    Plain,
    /// A copy in 32 bits that becomes the gradient in place, then narrow (Megatron-LM's cross-entropy of divided logits:
    /// `megatron/core/tensor_parallel/cross_entropy.py`).
    InPlace,
    /// Gradients in 16 bits alone (fused kernels, such as those of flash-attention, which llm-foundry uses by default).
    Fused,
}

impl Loss {
    /// All of them, by decreasing memory.
    pub const ALL: [Self; 3] = [Self::Plain, Self::InPlace, Self::Fused];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::InPlace => "in-place",
            Self::Fused => "fused",
        }
    }

    /// Bytes per logit beside a 16-bit logit while the gradient is computed. Plain programs have dropped the 16-bit logits
    /// by then (peaks of torchtitan, `habitat-lab evaluate llm`).
    pub(crate) const fn bytes(self) -> f64 {
        match self {
            Self::Plain => 10.0,
            Self::InPlace => 4.0,
            Self::Fused => 2.0,
        }
    }
}

/// The step to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepOf {
    /// Sequences.
    pub batch: u64,
    /// Tokens of a sequence.
    pub length: u64,
    /// Parts of the forward pass that the backward pass repeats.
    pub recompute: Recompute,
    /// Whether attention is one fused operation.
    pub is_fused: bool,
    /// Whether element-wise operations are fused, as `torch.compile` does.
    pub is_compiled: bool,
    /// Copies of the logits.
    pub loss: Loss,
    /// Whether gradients of several micro-batches add up in 16 bits, not in 32.
    pub has_narrow_gradients: bool,
}

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
        known = KNOWN.map(|(name, _)| name).join(", ")
    )]
    Kind(String),
}

/// Largest dimension.
const MOST: u64 = 10_000_000;

fn out_of_range(value: u64) -> String {
    format!("{value} is out of range (at most {MOST})")
}

/// Other kinds of models that share the weights of the embedding by default (transformers 5.23).
const TIED: [&str; 7] = ["gpt2", "gpt_neo", "opt", "starcoder2", "smollm3", "cohere", "ernie4_5"];

/// Known values of `model_type`, and whether their layers are gated.
const KNOWN: [(&str, bool); 35] = [
    ("llama", true),
    ("mistral", true),
    ("qwen2", true),
    ("qwen3", true),
    ("gemma", true),
    ("gemma2", true),
    ("gemma3_text", true),
    ("phi3", true),
    ("olmo", true),
    ("olmo2", true),
    ("granite", true),
    ("smollm3", true),
    ("glm4", true),
    ("glm", true),
    ("olmo3", true),
    ("seed_oss", true),
    ("helium", true),
    ("stablelm", true),
    ("cohere", true),
    ("ernie4_5", true),
    ("exaone4", true),
    ("mixtral", true),
    ("qwen2_moe", true),
    ("qwen3_moe", true),
    ("olmoe", true),
    ("deepseek_v2", true),
    ("deepseek_v3", true),
    ("gpt_oss", true),
    ("gpt2", false),
    ("gpt_neox", false),
    ("gpt_neo", false),
    ("gptj", false),
    ("opt", false),
    ("starcoder2", false),
    ("nemotron", false),
];

/// Fields of a `config.json`, with the names that older models use.
#[derive(Debug, Deserialize)]
struct Config {
    model_type: Option<String>,
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
    /// Published number in billions, of known models.
    #[cfg_attr(not(test), expect(dead_code, reason = "a test compares it"))]
    parameters: Option<f64>,
}

impl Known {
    /// From the embedded text.
    pub const fn new(text: &'static str) -> Self {
        Self(text)
    }

    fn all(self) -> Result<BTreeMap<String, Config>, DecoderError> {
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
    fn decoder(&self, name: &str) -> Result<Decoder, DecoderError> {
        let kind = self.model_type.as_deref().unwrap_or("");
        let known = KNOWN.iter().find(|(known, _)| *known == kind);
        let (_, is_gated) = *known.ok_or_else(|| DecoderError::Kind(habitat_base::text::clean(kind, 40)))?;
        let needed = |field, value: Option<u64>, example| match value {
            Some(value @ 1..=MOST) => Ok(value),
            Some(value) => Err(DecoderError::Field { field, problem: out_of_range(value), example }),
            None => Err(DecoderError::Field { field, problem: "missing".to_owned(), example }),
        };
        let layers = needed("num_hidden_layers", self.num_hidden_layers.map(u64::from), "32")?;
        let width = needed("hidden_size", self.hidden_size, "4096")?;
        let heads = needed("num_attention_heads", self.num_attention_heads, "32")?;
        let given = self.head_dim.or_else(|| Some(width / heads));
        if self.head_dim.is_none() && self.qk_nope_head_dim.is_none() && !width.is_multiple_of(heads) {
            let problem = format!("{heads} does not divide the hidden_size, {width}");
            return Err(DecoderError::Field { field: "num_attention_heads", problem, example: "32" });
        }
        let bounded = |field, value: Option<u64>, example| match value {
            Some(value) if value > MOST => Err(DecoderError::Field { field, problem: out_of_range(value), example }),
            value => Ok(value),
        };
        let positions = bounded("qk_rope_head_dim", self.qk_rope_head_dim, "64")?.unwrap_or(0);
        let size = self.qk_nope_head_dim.map(|size| size.saturating_add(positions)).or(given);
        let head_size = needed("head_dim", size, "128")?;
        let value_size = needed("v_head_dim", self.v_head_dim.or(Some(head_size)), "128")?;
        let kv_heads = needed("num_key_value_heads", self.num_key_value_heads.or(Some(heads)), "8")?;
        let inner = needed("intermediate_size", self.intermediate_size.or((!is_gated).then_some(4 * width)), "14336")?;
        let vocabulary = needed("vocab_size", self.vocab_size, "128256")?;
        let keys = bounded("kv_lora_rank", self.kv_lora_rank, "512")?;
        let queries = bounded("q_lora_rank", self.q_lora_rank, "1536")?;
        let latent = keys.map(|keys| Latent { queries, keys, positions });
        let experts = match bounded("num_local_experts", self.num_local_experts, "8")?.filter(|count| *count > 1) {
            None => None,
            Some(count) => {
                let chosen = needed("num_experts_per_tok", self.num_experts_per_tok, "8")?.min(count);
                let own = bounded("moe_intermediate_size", self.moe_intermediate_size, "2048")?.unwrap_or(inner);
                let of_shared = self.n_shared_experts.unwrap_or(0).saturating_mul(own);
                let shared = self.shared_expert_intermediate_size.unwrap_or(of_shared);
                Some(Experts {
                    count,
                    chosen,
                    inner: own,
                    shared: bounded("shared_expert_intermediate_size", Some(shared), "2048")?.unwrap_or(0),
                    dense_layers: self.first_k_dense_replace.unwrap_or(0).min(layers as u32),
                })
            }
        };
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
            inner,
            is_gated,
            vocabulary,
            is_tied,
            experts,
            longest: self.max_position_embeddings,
        };
        let [count, _] = decoder.counted();
        if count > u128::from(most::PARAMETERS) {
            return Err(DecoderError::Large(count, most::PARAMETERS));
        }
        Ok(decoder)
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

    /// Halves of the first product of a layer.
    const fn halves(&self) -> u64 {
        if self.is_gated { 2 } else { 1 }
    }

    /// Columns of the products that lead to queries, keys and values, and elements of their weights.
    fn projections(&self) -> Vec<[u64; 2]> {
        let (keys, values) = (self.head_size, self.value_size);
        let Some(latent) = self.latent else {
            return vec![[self.width, self.heads * keys + self.kv_heads * (keys + values)]];
        };
        let queries = self.heads * keys;
        let unrotated = keys - latent.positions.min(keys);
        let mut found = match latent.queries {
            Some(rank) => vec![[self.width, rank], [rank, queries]],
            None => vec![[self.width, queries]],
        };
        found.push([self.width, latent.keys + latent.positions]);
        found.push([latent.keys, self.heads * (unrotated + values)]);
        found
    }

    /// Parameters in all, and those that one token uses.
    pub fn parameters(&self) -> [u64; 2] {
        self.counted().map(|count| u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// The same, for any dimensions.
    fn counted(&self) -> [u128; 2] {
        let wide = u128::from;
        let (layers, width) = (u128::from(self.layers), wide(self.width));
        let attention: u128 =
            self.projections().iter().map(|[rows, columns]| wide(*rows) * wide(*columns)).sum::<u128>()
                + wide(self.heads) * wide(self.value_size) * width;
        let of = |inner: u64| width * wide(inner) * (wide(self.halves()) + 1);
        let dense = self.experts.map_or(layers, |experts| u128::from(experts.dense_layers));
        let common = layers * (attention + 2 * width) + dense * of(self.inner);
        let [all, used] = self.experts.map_or([0, 0], |experts| {
            let beside = width * wide(experts.count) + of(experts.shared);
            [experts.count, experts.chosen].map(|count| (layers - dense) * (beside + wide(count) * of(experts.inner)))
        });
        let ends = wide(self.vocabulary) * width * if self.is_tied { 1 } else { 2 } + width;
        [all, used].map(|experts| common + experts + ends)
    }
}

#[cfg(test)]
mod tests;
