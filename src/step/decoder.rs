//! Decoder-only language models by their dimensions: the operations of one training step, without code or weights.
//!
//! [`Decoder`] is read from a Hugging Face `config.json`; [`Decoder::profile`] makes the [`Profile`] that tracing a
//! plain implementation would give (`step.rs`): one product for queries, keys and values, one for both halves of a gated
//! layer, Adam on 32-bit copies of 16-bit weights, as in Megatron-LM. Vaswani et al. 2017, arXiv:1706.03762, section 3
//! (layers); Shazeer 2020, arXiv:2002.05202 (gated layers); DeepSeek-V2, arXiv:2405.04434, section 2.1 (latent
//! attention); Fedus et al. 2021, arXiv:2101.03961, section 2 (experts).
//!
//! [`Profile`]: crate::profile::Profile

mod config;
mod launch;
mod step;

pub use config::{DecoderError, Known};
pub use launch::{Launch, LaunchError};

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
    /// Layers whose tokens see only the nearest ones before them.
    pub window: Option<Window>,
    /// Longest sequence that the model was made for.
    pub longest: Option<u64>,
    /// Whether the model has parts for pictures or sound, which are left out.
    pub has_other_parts: bool,
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

/// Attention over the nearest tokens alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Tokens that a token sees, with itself.
    pub tokens: u64,
    /// Layers that have it.
    pub layers: u32,
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

impl Decoder {
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
