//! Operations and memory of a decoder's training step.

mod passes;

use std::collections::BTreeMap;

use super::{Decoder, Experts, Recompute, StepOf};
use crate::op_list::TRACED;
use crate::profile::tensors::Access;
use crate::profile::{
    Attribute, DType, Memory, MemorySource, Operation, Phase, Precision, Profile, ProfileError, Recording, Shape, Step,
    TRACE_OF_SHAPES, Working, Workload,
};
use habitat_base::units::{Bytes, most};

/// Bytes per parameter: 16-bit weights, 32-bit gradients, and Adam's two moments with a 32-bit copy of the weights
/// (Rajbhandari et al. 2020, section 3.1, with the gradients that Megatron-LM adds up in 32 bits).
const STATE_BYTES: [f64; 3] = [2.0, 4.0, 12.0];

/// Bytes of a gradient that adds up in 16 bits (`grad_reduce_in_fp32 = False` in `NeMo`'s recipes for speed).
const NARROW_GRADIENT: f64 = 2.0;

/// Operations under construction, in the order of a step.
struct Made<'a> {
    of: &'a Decoder,
    step: StepOf,
    operations: Vec<Operation>,
    phase: Phase,
}

/// Note of a model that also takes pictures or sound.
const OTHER_PARTS: &str =
    "the language model alone: its parts for pictures or sound are left out; trace the program's code to count them";

/// One matrix of weights between tokens.
#[derive(Debug, Clone, Copy)]
struct Linear {
    rows: u64,
    reduction: u64,
    columns: u64,
}

impl Decoder {
    /// One training step: forward and backward pass of a micro-batch, and the update of all weights, in BF16.
    ///
    /// # Errors
    /// [`ProfileError`] for sizes beyond the limits of a profile.
    pub fn profile(&self, step: StepOf) -> Result<Profile, ProfileError> {
        // No product of sizes below overflows.
        let tokens = step.batch as f64 * step.length as f64;
        let visits = self.experts.map_or(1, |experts| experts.chosen.max(experts.count));
        let inner = self.experts.map_or(self.inner, |experts| self.inner.max(experts.inner).max(experts.shared));
        let widest = [self.vocabulary, 3 * inner, visits.saturating_mul(3 * self.width.max(inner))];
        let pairs = if step.is_fused { 1.0 } else { step.length as f64 };
        let heads = self.heads.max(self.kv_heads) * self.head_size.max(self.value_size);
        let largest = widest.into_iter().fold(heads, u64::max) as f64 * tokens * pairs;
        if largest.is_nan() || largest > most::ELEMENTS {
            return Err(ProfileError::Value {
                path: "config".to_owned(),
                problem: format!(
                    "a tensor of {largest:e} elements; the limit is {:e}: fewer sequences or tokens",
                    most::ELEMENTS
                ),
            });
        }
        let mut made = Made { of: self, step, operations: Vec::new(), phase: Phase::Forward };
        made.forward();
        made.backward();
        made.update();
        let count = self.parameters()[0];
        let workload = Workload {
            name: self.name.clone(),
            batch_size: Some(step.batch),
            sequence_length: Some(step.length),
            precision: Some(Precision::Bf16),
            parameter_count: Some(count),
            ..Workload::default()
        };
        let memory = self.memory(step, count as f64);
        let whole = Step { peak_memory_bytes: Some(memory.total()), memory: Some(memory), ..Step::default() };
        let mut profile = Profile::new(workload, None, Some(whole), made.operations)?;
        let repeated = match step.recompute {
            Recompute::None => "no activation recomputed",
            Recompute::Selective => "attention recomputed",
            Recompute::Operators => "every second product recomputed",
            Recompute::Full => "whole layers recomputed",
        };
        let experts = "experts: tokens are evenly spread over them";
        let mut notes = vec![
            TRACED.to_owned(),
            format!(
                "made from the model's dimensions, not from its code: Adam with 32-bit copies of 16-bit weights, {repeated}"
            ),
        ];
        notes.extend(self.experts.map(|_| experts.to_owned()));
        notes.extend(self.has_other_parts.then(|| OTHER_PARTS.to_owned()));
        let source = format!("{TRACE_OF_SHAPES}, from dimensions");
        profile.recording =
            Some(Recording { source, step_marks: None, ranks: None, joined_share: None, tf32_known: false, notes });
        Ok(profile)
    }

    /// Memory of state, activations and temporaries: what the backward pass of each operation reads.
    fn memory(&self, step: StepOf, parameters: f64) -> Memory {
        let (tokens, width) = ((step.batch * step.length) as f64, self.width as f64);
        let projected = (self.heads * self.head_size + self.kv_heads * (self.head_size + self.value_size)) as f64;
        let mixed = (self.heads * self.value_size) as f64;
        let pairs = if step.is_fused { 0.0 } else { (step.batch * self.heads) as f64 * (step.length as f64).powi(2) };
        let attention = 2.0 * tokens * (projected + mixed);
        // Inputs of both norms and both products behind them, then attention and the inner layer.
        let whole = |inner: f64| {
            2.0 * tokens * (4.0 * width + (self.halves() + 1) as f64 * inner)
                + if step.recompute == Recompute::Selective { attention } else { attention + 5.0 * pairs }
        };
        let kept = |inner: f64| match step.recompute {
            Recompute::None | Recompute::Selective => whole(inner),
            Recompute::Operators => {
                let kept = self.products(inner as u64).into_iter().step_by(2).map(|[_, columns]| columns);
                2.0 * tokens * (width + mixed + kept.sum::<u64>() as f64)
            }
            Recompute::Full => 2.0 * tokens * width,
        };
        let inner = |experts: Experts| (experts.chosen * experts.inner + experts.shared) as f64;
        let dense = self.inner as f64;
        let (mut all, mut largest) = (f64::from(self.layers) * kept(dense), whole(dense));
        if let Some(experts) = self.experts {
            let spread = 2.0 * tokens * width * experts.chosen as f64 * 2.0;
            let own = kept(inner(experts)) + if step.recompute == Recompute::Full { 0.0 } else { spread };
            let before = f64::from(experts.dense_layers);
            all = before * kept(dense) + (f64::from(self.layers) - before) * own;
            largest = (whole(inner(experts)) + spread).max(if before > 0.0 { whole(dense) } else { 0.0 });
        }
        // At the loss all activations are kept; later, a layer that runs again.
        let logits = tokens * self.vocabulary as f64;
        let repeated = if matches!(step.recompute, Recompute::Operators | Recompute::Full) { largest } else { 0.0 };
        let temporary = Bytes::known((step.loss.bytes() * logits).max(repeated));
        let activations = Bytes::known(all + 2.0 * logits + 4.0 * tokens * width);
        let [weights, wide, optimizer] = STATE_BYTES;
        let gradients = if step.has_narrow_gradients { NARROW_GRADIENT } else { wide };
        let [weights, gradients, optimizer] =
            [weights, gradients, optimizer].map(|bytes| Bytes::known(bytes * parameters));
        Memory {
            source: MemorySource::Computed,
            parameters: weights,
            gradients,
            optimizer_state: optimizer,
            activations,
            temporary,
            working: Some(Working { gradients, activations, temporary }),
        }
    }
}

impl Decoder {
    /// Reduction and columns of a layer's products, one by one as PyTorch code has them: towards queries, keys and
    /// values, behind attention, halves of the inner layer, and behind it.
    fn products(&self, inner: u64) -> Vec<[u64; 2]> {
        let mut all = match self.latent {
            None => [self.heads * self.head_size, self.kv_heads * self.head_size, self.kv_heads * self.value_size]
                .map(|columns| [self.width, columns])
                .to_vec(),
            Some(_) => self.projections(),
        };
        all.push([self.heads * self.value_size, self.width]);
        all.extend(std::iter::repeat_n([self.width, inner], self.halves() as usize));
        all.push([inner, self.width]);
        all
    }
}

impl Made<'_> {
    fn tokens(&self) -> u64 {
        self.step.batch * self.step.length
    }

    /// Layers with and without experts.
    fn parts(&self) -> Vec<(u32, Option<Experts>)> {
        let Some(experts) = self.of.experts else { return vec![(self.of.layers, None)] };
        let both = [(experts.dense_layers, None), (self.of.layers - experts.dense_layers, Some(experts))];
        both.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    fn add(&mut self, count: u32, module: &str, name: &str, inputs: Vec<Shape>, outputs: Vec<Shape>) -> &mut Operation {
        self.operations.push(Operation {
            name: name.to_owned(),
            module: (!module.is_empty()).then(|| module.to_owned()),
            phase: self.phase,
            count,
            inputs,
            outputs,
            dtype: Some(DType::Bfloat16),
            attributes: BTreeMap::new(),
            device_time: None,
            cpu_time: None,
            kernels: Vec::new(),
        });
        let last = self.operations.len() - 1;
        &mut self.operations[last]
    }

    /// Element-wise operations that read and write as many elements; launched as one, or as `names`.
    fn elementwise(&mut self, count: u32, module: &str, [read, written]: [u64; 2], names: &[(&str, Shape)]) {
        if self.step.is_compiled {
            self.add(count, module, "triton_poi_fused", vec![vec![read]], vec![vec![written]]);
            return;
        }
        for (name, shape) in names {
            let inputs = if matches!(*name, "add" | "mul" | "gelu_backward" | "silu_backward") { 2 } else { 1 };
            self.add(count, module, &format!("aten::{name}"), vec![shape.clone(); inputs], vec![shape.clone()]);
        }
    }

    fn product(&mut self, count: u32, module: &str, [rows, reduction, columns]: [u64; 3], access: Option<Access>) {
        let made = self.add(
            count,
            module,
            "aten::mm",
            vec![vec![rows, reduction], vec![reduction, columns]],
            vec![vec![rows, columns]],
        );
        if let Some(access) = access {
            access.note(&mut made.attributes);
        }
    }

    fn batched(&mut self, count: u32, module: &str, batch: u64, [rows, reduction, columns]: [u64; 3]) {
        let inputs = vec![vec![batch, rows, reduction], vec![batch, reduction, columns]];
        self.add(count, module, "aten::bmm", inputs, vec![vec![batch, rows, columns]]);
    }

    /// Forward pass of a linear layer.
    fn linear(&mut self, count: u32, module: &str, of: Linear) {
        self.product(count, module, [of.rows, of.reduction, of.columns], Some(Access::Transposed));
    }

    /// Its backward pass: gradients of the weights, then of its input.
    fn linear_backward(&mut self, count: u32, module: &str, of: Linear) {
        self.product(count, module, [of.columns, of.rows, of.reduction], Some(Access::Transposed));
        self.product(count, module, [of.rows, of.columns, of.reduction], None);
    }

    fn of_layers(module: &str) -> String {
        format!("layers.*.{module}")
    }

    /// Products of a layer's attention: towards queries, keys and values, and behind attention.
    fn projections(&self) -> Vec<Linear> {
        let rows = self.tokens();
        self.of.projections().into_iter().map(|[reduction, columns]| Linear { rows, reduction, columns }).collect()
    }

    fn output(&self) -> Linear {
        Linear { rows: self.tokens(), reduction: self.of.heads * self.of.value_size, columns: self.of.width }
    }

    fn inner(&self, inner: u64) -> [Linear; 2] {
        let rows = self.tokens();
        [
            Linear { rows, reduction: self.of.width, columns: inner * self.of.halves() },
            Linear { rows, reduction: inner, columns: self.of.width },
        ]
    }

    /// Norm of the residual stream after it received the last result.
    fn norm(&mut self, count: u32, module: &str) {
        let (elements, shape) = (self.tokens() * self.of.width, self.stream());
        if self.step.is_compiled {
            self.elementwise(count, module, [2 * elements, 2 * elements], &[]);
            return;
        }
        self.elementwise(count, module, [0, 0], &[("add", shape.clone())]);
        self.normalise(count, module, "aten::native_layer_norm", shape);
    }

    fn normalise(&mut self, count: u32, module: &str, name: &str, shape: Shape) {
        let weights = vec![self.of.width];
        let rows = vec![self.step.batch, self.step.length, 1];
        let is_backward = name.ends_with("backward");
        let (inputs, outputs) = if is_backward {
            let inputs = vec![shape.clone(), shape.clone(), rows.clone(), rows, weights.clone(), weights.clone()];
            (inputs, vec![shape, weights.clone(), weights])
        } else {
            (vec![shape.clone(), weights.clone(), weights], vec![shape, rows.clone(), rows])
        };
        self.add(count, module, name, inputs, outputs);
    }

    fn norm_backward(&mut self, count: u32, module: &str) {
        let (elements, shape) = (self.tokens() * self.of.width, self.stream());
        if self.step.is_compiled {
            self.elementwise(count, module, [4 * elements, elements], &[]);
            self.elementwise(count, module, [elements, self.of.width], &[]);
            return;
        }
        self.normalise(count, module, "aten::native_layer_norm_backward", shape.clone());
        self.elementwise(count, module, [0, 0], &[("add", shape)]);
    }

    fn stream(&self) -> Shape {
        vec![self.step.batch, self.step.length, self.of.width]
    }

    /// Shapes of queries, keys and values.
    fn heads(&self) -> [Shape; 3] {
        let of = |heads, size| vec![self.step.batch, heads, self.step.length, size];
        let kv = if self.of.latent.is_some() { self.of.heads } else { self.of.kv_heads };
        [of(self.of.heads, self.of.head_size), of(kv, self.of.head_size), of(kv, self.of.value_size)]
    }

    /// Rotation of queries and keys, there or back.
    fn rotation(&mut self, count: u32, module: &str) {
        let [queries, keys, _] = self.heads();
        let elements = queries.iter().product::<u64>() + keys.iter().product::<u64>();
        self.elementwise(count, module, [elements, elements], &[("mul", queries.clone()), ("add", queries)]);
    }

    /// Fused causal attention, with a window in its share of `count` layers.
    fn fused(&mut self, count: u32, module: &str, name: &str, [inputs, outputs]: [&[Shape]; 2]) {
        let window = self.of.window.filter(|window| window.tokens < self.step.length);
        let share = window.map_or(0.0, |window| f64::from(window.layers) / f64::from(self.of.layers));
        let windowed = (f64::from(count) * share.min(1.0)).round() as u32;
        let sizes = |tokens: u64| [("window_size_left", tokens as i64 - 1), ("window_size_right", 0)];
        let limits = window.map(|window| sizes(window.tokens));
        for (count, limits) in [(count - windowed, None), (windowed, limits)] {
            if count > 0 {
                let made = self.add(count, module, name, inputs.to_vec(), outputs.to_vec());
                made.attributes.insert("is_causal".to_owned(), Attribute::Bool(true));
                let limits = limits.into_iter().flatten();
                made.attributes.extend(limits.map(|(name, value)| (name.to_owned(), Attribute::Int(value))));
            }
        }
    }

    fn attention(&mut self, count: u32, module: &str) {
        let [queries, keys, values] = self.heads();
        let (batch, length) = (self.step.batch, self.step.length);
        let result = vec![batch, self.of.heads, length, self.of.value_size];
        if self.step.is_fused {
            let outputs = vec![result, vec![batch, self.of.heads, length]];
            let inputs = vec![queries, keys, values];
            self.fused(count, module, "aten::_scaled_dot_product_flash_attention", [&inputs, &outputs]);
            return;
        }
        let (folded, pairs) = (batch * self.of.heads, vec![batch, self.of.heads, length, length]);
        let (size, value) = (self.of.head_size, self.of.value_size);
        self.batched(count, module, folded, [length, size, length]);
        self.batched(count, module, folded, [length, length, value]);
        self.add(count, module, "aten::_softmax", vec![pairs.clone()], vec![pairs]);
    }

    fn attention_backward(&mut self, count: u32, module: &str) {
        let [queries, keys, values] = self.heads();
        let (batch, length) = (self.step.batch, self.step.length);
        let result = vec![batch, self.of.heads, length, self.of.value_size];
        if self.step.is_fused {
            let sums = vec![batch, self.of.heads, length];
            let inputs = vec![result.clone(), queries.clone(), keys.clone(), values.clone(), result, sums];
            let name = "aten::_scaled_dot_product_flash_attention_backward";
            self.fused(count, module, name, [&inputs, &[queries, keys, values]]);
            return;
        }
        let (folded, pairs) = (batch * self.of.heads, vec![batch, self.of.heads, length, length]);
        let (size, value) = (self.of.head_size, self.of.value_size);
        for sizes in [[length, value, length], [length, length, value], [length, length, size], [length, length, size]]
        {
            self.batched(count, module, folded, sizes);
        }
        self.add(count, module, "aten::_softmax_backward_data", vec![pairs.clone(), pairs.clone()], vec![pairs]);
    }

    fn activation(&mut self, count: u32, module: &str, elements: u64, is_backward: bool) {
        let halves = self.of.halves();
        let shape = vec![elements];
        let name = match (self.of.is_gated, is_backward) {
            (true, false) => "silu",
            (true, true) => "silu_backward",
            (false, false) => "gelu",
            (false, true) => "gelu_backward",
        };
        let moved =
            if is_backward { [(halves + 1) * elements, halves * elements] } else { [halves * elements, elements] };
        let gate: &[&str] = if self.of.is_gated { if is_backward { &["mul", "mul"] } else { &["mul"] } } else { &[] };
        let names: Vec<(&str, Shape)> =
            std::iter::once(name).chain(gate.iter().copied()).map(|name| (name, shape.clone())).collect();
        self.elementwise(count, module, moved, &names);
    }

    /// Inner layer of every token.
    fn dense(&mut self, count: u32, module: &str, inner: u64) {
        let [up, down] = self.inner(inner);
        self.linear(count, module, up);
        self.activation(count, module, self.tokens() * inner, false);
        self.linear(count, module, down);
    }

    fn dense_backward(&mut self, count: u32, module: &str, inner: u64) {
        let [up, down] = self.inner(inner);
        self.linear_backward(count, module, down);
        self.activation(count, module, self.tokens() * inner, true);
        self.linear_backward(count, module, up);
    }

    /// Products of the experts, batched: tokens are evenly spread over them.
    fn experts(&mut self, count: u32, experts: Experts, is_backward: bool) {
        let module = &Self::of_layers("experts");
        let visits = self.tokens() * experts.chosen;
        let rows = visits.div_ceil(experts.count).max(1);
        let router = Linear { rows: self.tokens(), reduction: self.of.width, columns: experts.count };
        let [up, down] = self.inner(experts.inner);
        let moved = [visits * self.of.width, visits * self.of.width];
        let spread = [("index", vec![visits, self.of.width])];
        let multiply = |made: &mut Self, sizes| made.batched(count, module, experts.count, sizes);
        self.elementwise(count, module, moved, &spread);
        if is_backward {
            multiply(self, [down.columns, rows, down.reduction]);
            multiply(self, [rows, down.columns, down.reduction]);
            self.activation(count, module, visits * experts.inner, true);
            multiply(self, [up.columns, rows, up.reduction]);
            multiply(self, [rows, up.columns, up.reduction]);
            self.linear_backward(count, module, router);
        } else {
            self.linear(count, module, router);
            multiply(self, [rows, up.reduction, up.columns]);
            self.activation(count, module, visits * experts.inner, false);
            multiply(self, [rows, down.reduction, down.columns]);
        }
        self.elementwise(count, module, moved, &spread);
        if experts.shared > 0 {
            let module = &Self::of_layers("shared_experts");
            if is_backward {
                self.dense_backward(count, module, experts.shared);
            } else {
                self.dense(count, module, experts.shared);
            }
        }
    }
}
