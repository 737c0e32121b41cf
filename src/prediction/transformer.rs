//! Parts of a transformer's training step that can be divided over GPUs: layers, activations between them, and shares
//! of the time.
//!
//! Tensor parallel GPUs (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3) divide matrix products, attention,
//! the elementwise operations between them, the embedding and the loss. Normalisation, dropout and residual additions
//! use whole activations (b·s·h elements: batch, length, width) on each GPU. Layers are counted by the attention of the
//! forward pass; without attention there is no result.

use std::collections::HashMap;

use super::decoded::Decoded;
use super::estimate::OperationPrediction;
use habitat_base::units::Bytes;
use habitat_step::op::{Attention, Form, Product, Sizes, volume};
use habitat_step::profile::{DType, Operation, Phase, Shape};

/// FLOPs of the products of the backward pass relative to the forward pass, above which it repeats the layers: twice
/// without, three times with all of them.
const REPEATED: f64 = 2.4;

/// Layers of a profile and their activations; the same on every GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layers {
    count: u32,
    heads: u64,
    /// Extents of the activations between layers: rows and columns.
    tokens: f64,
    width: f64,
    activations: Bytes,
    recomputes: bool,
    experts: Option<Experts>,
    batch_size: Option<u64>,
    ends: [f64; 2],
    inside: f64,
    inputs: Bytes,
    /// Division of each operation.
    sharing: Vec<Sharing>,
}

/// Layers with experts.
#[derive(Debug, Clone, PartialEq)]
struct Experts {
    count: u64,
    layers: u32,
    exchanged: Bytes,
    weights: f64,
    /// Their products, each with the same product if all tokens were at one expert.
    products: Vec<(usize, Operation)>,
}

/// Division of an operation over GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sharing {
    /// Whether tensor parallel GPUs divide it.
    is_divided: bool,
    /// Whether it occurs less than half as often as layers do, or once.
    is_outside: bool,
    /// Whether it is fused attention of the forward pass that the backward pass repeats.
    is_repeated: bool,
}

/// Transformer training step on one GPU, as far as others can share it. Times are of one batch through the whole model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransformerStep {
    /// Layers with attention.
    pub layers: u32,
    /// Heads of the queries, the minimum over all layers.
    pub heads: u64,
    /// Samples of the batch for which the bytes hold; `None` if unknown.
    pub batch_size: Option<u64>,
    /// Activations between two layers (b·s·h elements).
    pub activations: Bytes,
    /// Whether the backward pass recomputes whole layers to keep less; attention alone does not count.
    pub recomputes: bool,
    /// Experts of its layers, if they have any.
    pub experts: Option<ExpertShare>,
    /// Share of the step that tensor parallel GPUs divide, 0 to 1.
    pub divided: f64,
    /// Share of the optimizer update; every GPU does the rest of the step.
    pub update: f64,
    /// Share outside the layers: the embedding, the last product, the loss.
    pub outside: f64,
    /// Elements of the weights of the embedding and of the last product; 0 if not found.
    pub ends: [f64; 2],
    /// Elements of the weights of products within the layers, without those of experts.
    pub inside: f64,
    /// Share that computing the layers again adds: their forward pass, less the attention that the backward pass repeats
    /// already.
    pub forward: f64,
    /// Activations that remain if whole layers are computed again: inputs of the layers, and logits.
    pub inputs: Bytes,
    /// Operations of a batch that the host launches one by one.
    pub launches: f64,
    /// Those that computing the layers again adds.
    pub launches_again: f64,
}

/// Experts of a step's layers: batched products with the activations between layers. All have equally many tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpertShare {
    /// Experts per layer.
    pub count: u64,
    /// Layers with experts.
    pub layers: u32,
    /// Activations of all tokens that the experts of a layer read, each as often as it has experts.
    pub exchanged: Bytes,
    /// Elements of the weights of all experts.
    pub weights: f64,
    /// Share of the step that their products take.
    pub products: f64,
    /// Time of the same products with all tokens at one expert, relative to it: each GPU reads fewer weights.
    pub together: f64,
}

impl Layers {
    /// Finds the layers of a step; `None` if the forward pass has no attention, or the width of activations is unknown.
    pub(super) fn of(decoded: &[Decoded<'_>], batch_size: Option<u64>) -> Option<Self> {
        let products = forward_products(decoded);
        let attentions: Vec<(&Decoded<'_>, AttentionShape)> =
            decoded.iter().filter_map(|one| Some((one, attention(one, &products)?))).collect();
        let forward = || attentions.iter().filter(|(one, _)| one.operation.phase == Phase::Forward);
        let count = forward().map(|(one, _)| one.operation.count).sum();
        let (_, most) = forward().max_by(|a, b| a.1.tokens.total_cmp(&b.1.tokens))?;
        let heads = forward().map(|(_, seen)| seen.heads).min()?;
        let mut activations = 0.0f64;
        for (_, seen) in &attentions {
            let (product, width) = between(&products, *seen)?;
            let bytes = product.dtype.as_ref().and_then(DType::size_bytes)? as f64 * seen.tokens * width;
            activations = activations.max(bytes);
        }
        let [once, again] = [Phase::Forward, Phase::Backward].map(|phase| products_of(decoded, phase));
        let repeats_layers = again == 0.0 || again > REPEATED * once;
        let mut layers = Self {
            count,
            heads,
            tokens: most.tokens,
            width: between(&products, *most)?.1,
            activations: Bytes::checked(activations)?,
            recomputes: attentions.iter().any(|(one, _)| one.operation.phase == Phase::Backward) && repeats_layers,
            experts: None,
            batch_size,
            ends: [0.0; 2],
            inside: 0.0,
            inputs: Bytes::ZERO,
            sharing: Vec::new(),
        };
        // Probabilities times values have as many columns as a head.
        let head = most.columns / most.heads as f64;
        let first = products
            .iter()
            .find(|(_, product)| product.batch > 1.0 && product.reduction == layers.width && product.columns != head);
        layers.experts = first.and_then(|(one, product)| Experts::of(decoded, one, product));
        layers.sharing = layers.shared(decoded);
        (layers.ends, layers.inside) = layers.weights(decoded);
        let logits = layers.ends[1] / (layers.width * layers.width);
        layers.inputs = layers.activations * (f64::from(count) + logits);
        Some(layers)
    }

    /// Weights of the largest table and of the widest product behind the layers; and of all products within these.
    fn weights(&self, decoded: &[Decoded<'_>]) -> ([f64; 2], f64) {
        let all = || decoded.iter().zip(&self.sharing);
        let forward = || all().filter(|(one, _)| one.operation.phase == Phase::Forward);
        let tables = forward().filter(|(one, _)| matches!(one.op.name.form, Form::Lookup(_)));
        let table = tables.filter_map(|(one, _)| one.operation.inputs.first().map(volume)).fold(0.0, f64::max);
        let (mut last, mut inside) = (0.0f64, 0.0);
        for (one, sharing) in forward() {
            let Some(Sizes::Product(product)) = &one.op.sizes else { continue };
            let weights = product.reduction * product.columns;
            if product.batch != 1.0 {
                continue;
            }
            if !sharing.is_outside {
                inside += weights * f64::from(one.operation.count);
            } else if product.reduction == self.width {
                last = last.max(weights);
            }
        }
        ([table, last], inside)
    }

    fn shared(&self, decoded: &[Decoded<'_>]) -> Vec<Sharing> {
        let mut occurrences: HashMap<(&str, &[Shape]), u32> = HashMap::new();
        for one in decoded {
            *occurrences.entry((&one.operation.name, &one.operation.inputs)).or_default() += one.operation.count;
        }
        // Not all layers are alike.
        let is_outside = |times: u32| times < self.count && (times == 1 || 2 * times < self.count);
        let sharing = |one: &Decoded<'_>| {
            let times = occurrences.get(&(one.operation.name.as_str(), one.operation.inputs.as_slice()));
            Sharing {
                is_divided: self.is_divided(one),
                is_outside: times.is_some_and(|&times| is_outside(times)),
                is_repeated: one.operation.phase == Phase::Backward
                    && matches!(&one.op.sizes, Some(Sizes::Attention(attention)) if !attention.is_backward),
            }
        };
        decoded.iter().map(sharing).collect()
    }

    /// Adds the shares of the time predicted for one GPU. `is_launched`: whether the host launches each operation;
    /// `together`: time of an operation that replaces the one at a place, relative to it.
    pub(super) fn on(
        &self,
        operations: &[OperationPrediction],
        is_launched: bool,
        together: impl Fn(usize, &Operation) -> f64,
    ) -> Option<TransformerStep> {
        let (mut all, mut divided, mut update, mut outside) = (0.0, 0.0, 0.0, 0.0);
        let (mut forward, mut launches, mut launches_again) = (0.0, 0.0, 0.0);
        for (sharing, predicted) in self.sharing.iter().zip(operations) {
            let count = f64::from(predicted.count);
            let time = predicted.time.map_or(0.0, |time| time.range.mid.get()) * count;
            if time <= 0.0 {
                continue;
            }
            all += time;
            if predicted.phase == Phase::Optimizer {
                update += time;
                continue;
            }
            launches += count;
            divided += if sharing.is_divided { time } else { 0.0 };
            outside += if sharing.is_outside { time } else { 0.0 };
            let again = match predicted.phase {
                Phase::Forward if !sharing.is_outside => 1.0,
                _ if sharing.is_repeated => -1.0,
                _ => 0.0,
            };
            forward += again * time;
            launches_again += again * count;
        }
        (all > 0.0).then(|| TransformerStep {
            layers: self.count,
            heads: self.heads,
            batch_size: self.batch_size,
            ends: self.ends,
            inside: self.inside,
            inputs: self.inputs,
            forward: (forward / all).max(0.0),
            activations: self.activations,
            recomputes: self.recomputes,
            experts: self.experts.as_ref().map(|experts| experts.on(operations, all, together)),
            divided: divided / all,
            update: update / all,
            outside: outside / all,
            launches: if is_launched { launches } else { 0.0 },
            launches_again: if is_launched { launches_again.max(0.0) } else { 0.0 },
        })
    }

    /// Whether tensor parallel GPUs divide an operation: all except operations on whole activations or without known
    /// shapes.
    fn is_divided(&self, one: &Decoded<'_>) -> bool {
        let largest = one.operation.inputs.iter().max_by(|a, b| volume(a).total_cmp(&volume(b)));
        let is_whole = largest.is_none_or(|shape| {
            shape.last().is_some_and(|last| *last as f64 == self.width) && volume(shape) == self.tokens * self.width
        });
        match one.op.name.form {
            Form::Product(_) | Form::Attention(_) | Form::Lookup(_) | Form::Softmax => true,
            Form::Normalisation(_) => false,
            _ => !is_whole,
        }
    }
}

impl Experts {
    /// From the first product of the experts: all products of its batch with as many rows and its width are theirs.
    fn of(decoded: &[Decoded<'_>], first: &Decoded<'_>, product: &Product) -> Option<Self> {
        let Product { batch: count, rows, reduction: width, columns, .. } = *product;
        let is_theirs = |other: &Product| {
            let extents = [other.rows, other.reduction, other.columns];
            other.batch == count && extents.contains(&rows) && extents.contains(&width)
        };
        let theirs = decoded.iter().enumerate().filter_map(|(place, one)| match &one.op.sizes {
            Some(Sizes::Product(product)) if is_theirs(product) => Some((place, one, product)),
            _ => None,
        });
        let (mut weights, mut products) = (0.0, Vec::new());
        for (place, one, product) in theirs {
            if one.operation.phase == Phase::Forward {
                weights += f64::from(one.operation.count) * count * product.reduction * product.columns;
            }
            // If rows and columns are equally many, they cannot be distinguished.
            let is_clear = rows != width
                && [product.rows, product.reduction, product.columns].iter().filter(|extent| **extent == rows).count()
                    == 1;
            let all = if is_clear { merged(one.operation, count as u64, rows as u64) } else { one.operation.clone() };
            products.push((place, all));
        }
        let is_first = |one: &&Decoded<'_>| {
            let same = matches!(&one.op.sizes, Some(Sizes::Product(other)) if is_theirs(other) && other.reduction == width && other.columns == columns);
            one.operation.phase == Phase::Forward && same
        };
        let layers = decoded.iter().filter(is_first).map(|one| one.operation.count).sum();
        let element = first.dtype.as_ref().and_then(DType::size_bytes)? as f64;
        let exchanged = Bytes::checked(count * rows * width * element)?;
        Some(Self { count: count as u64, layers, exchanged, weights, products })
    }

    fn on(
        &self,
        operations: &[OperationPrediction],
        all: f64,
        together: impl Fn(usize, &Operation) -> f64,
    ) -> ExpertShare {
        let (mut own, mut merged) = (0.0, 0.0);
        for (place, operation) in &self.products {
            let Some(one) = operations.get(*place) else { continue };
            let time = one.time.map_or(0.0, |time| time.range.mid.get()) * f64::from(one.count);
            own += time;
            merged += time * together(*place, operation).clamp(0.0, 1.0);
        }
        let Self { count, layers, exchanged, weights, .. } = *self;
        let together = if own > 0.0 { merged / own } else { 1.0 };
        ExpertShare { count, layers, exchanged, weights, products: own / all, together }
    }
}

/// Product of one expert with the `rows` of all `count`.
fn merged(operation: &Operation, count: u64, rows: u64) -> Operation {
    let merge = |shape: &Shape| match shape[..] {
        [batch, a, b] if batch == count => {
            let extent = |extent| if extent == rows { rows.saturating_mul(count) } else { extent };
            vec![1, extent(a), extent(b)]
        }
        [only] if only == count => vec![1],
        _ => shape.clone(),
    };
    let [inputs, outputs] = [&operation.inputs, &operation.outputs].map(|shapes| shapes.iter().map(merge).collect());
    Operation { inputs, outputs, ..operation.clone() }
}

/// Attention of a layer in the forward pass.
#[derive(Debug, Clone, Copy)]
struct AttentionShape {
    heads: u64,
    /// Sequences × queries.
    tokens: f64,
    /// Columns of its result.
    columns: f64,
}

/// Product of the forward pass.
type Multiplied<'d, 'a> = (&'d Decoded<'a>, &'d Product);

/// Detects fused attention, or a softmax over `[batch, heads, queries, keys]` with the products around it.
fn attention(one: &Decoded<'_>, products: &[Multiplied<'_, '_>]) -> Option<AttentionShape> {
    if !matches!(one.operation.phase, Phase::Forward | Phase::Backward) || one.op.name.pass.is_backward() {
        return None;
    }
    match (&one.op.sizes, one.op.name.form) {
        (Some(Sizes::Attention(attention)), _) if !attention.is_backward => {
            let Attention { batch, heads, queries, value_size, .. } = *attention;
            Some(AttentionShape { heads: heads as u64, tokens: batch * queries, columns: heads * value_size })
        }
        (_, Form::Softmax) => {
            let [batch, heads, queries, keys] = one.operation.inputs.first()?[..] else { return None };
            let of_pairs = |(_, product): &&Multiplied<'_, '_>| {
                product.batch == (batch * heads) as f64
                    && (product.rows, product.columns) == (queries as f64, keys as f64)
            };
            let head = products.iter().find(of_pairs)?.1.reduction;
            Some(AttentionShape { heads, tokens: (batch * queries) as f64, columns: heads as f64 * head })
        }
        _ => None,
    }
}

/// Multiply-adds of the matrix products of a phase.
fn products_of(decoded: &[Decoded<'_>], phase: Phase) -> f64 {
    let of_phase = decoded.iter().filter(|one| one.operation.phase == phase);
    let work = of_phase.map(|one| match &one.op.sizes {
        Some(Sizes::Product(product)) => {
            let passes = f64::from(one.operation.count) * if product.is_backward { 2.0 } else { 1.0 };
            product.batch * product.rows * product.columns * product.reduction * passes
        }
        _ => 0.0,
    });
    work.sum()
}

fn forward_products<'d, 'a>(decoded: &'d [Decoded<'a>]) -> Vec<Multiplied<'d, 'a>> {
    let product = |one: &'d Decoded<'a>| match &one.op.sizes {
        Some(Sizes::Product(product)) if !product.is_backward => Some((one, product)),
        _ => None,
    };
    decoded.iter().filter(|one| one.operation.phase == Phase::Forward).filter_map(product).collect()
}

/// Product that consumes attention's result, and its number of columns; its own result is reduced and passed to the
/// next layer. Prefers a product that keeps the number of columns. Its element type gives the bytes, because autocast
/// runs the softmax of attention in 32 bits.
fn between<'d, 'a>(products: &[Multiplied<'d, 'a>], seen: AttentionShape) -> Option<(&'d Decoded<'a>, f64)> {
    let behind = |(_, product): &&Multiplied<'d, 'a>| {
        product.batch * product.rows == seen.tokens && product.reduction == seen.columns
    };
    let found: Vec<_> = products.iter().filter(behind).map(|(one, product)| (*one, product.columns)).collect();
    let same = found.iter().copied().find(|(_, columns)| *columns == seen.columns);
    same.or_else(|| found.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)))
}

#[cfg(test)]
mod tests;
