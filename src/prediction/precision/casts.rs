//! Casts of mixed precision, which a recording in 32 bits does not have.
//!
//! `PyTorch`'s autocast casts the parameters of products, convolutions and recurrent layers once per step, and their
//! gradients back. It casts each activation that goes from a 32-bit operator to one of these, or from a 16-bit operator
//! to a 32-bit one; the backward pass casts the gradients of such activations the other way. A profile does not link
//! operations to their inputs. Forward operations are in the order of their first call, and an input is assumed to be
//! the last result with the same number of elements (or, of a layer, two or three times as many).
//!
//! Compared with small steps traced with and without autocast, the bytes of these casts are within 10 % for GPT,
//! residual networks with batch norm, `ConvNeXt`, U-Net and LSTM, 11 % too high for BERT and 12 % too low for Llama.

use super::super::decoded::Decoded;
use habitat_step::op::name::{
    Form, LookupForm, NormalisationForm, ReductionForm, StreamForm, is_averaged, is_kept_wide,
};
use habitat_step::op::{parameters, volume};
use habitat_step::profile::tensors::{INPUT_DTYPES, OUTPUT_DTYPES};
use habitat_step::profile::{Attribute, DType, Phase};

/// Bytes per cast element: one side has 32 bits, the other 16.
pub(super) const BYTES: f64 = 6.0;

/// Type in which autocast runs an operator.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Runs in 16 bits.
    Narrow,
    /// Runs in 32 bits.
    Wide,
    /// Runs in the widest type of its tensors.
    Promotes,
    /// Runs in the type of its first tensor.
    Follows,
    /// Returns 32 bits for any input.
    Table,
}

/// Result of a forward operation.
#[derive(Clone, Copy)]
struct Made {
    elements: f64,
    wide: bool,
    /// Whether it has several input tensors or none, so that a residual connection may start here.
    begins: bool,
    /// Input elements, if a matrix product layer made it.
    layer_of: Option<f64>,
}

/// Casts that autocast would add to each operation of a step recorded in 32 bits: elements of each cast of one
/// occurrence. Casts of the backward pass are added to the forward operation whose cast they undo. Casts of parameters
/// are limited by the parameter count, if known.
pub(super) fn added(decoded: &[Decoded<'_>], parameter_count: Option<u64>) -> Vec<Vec<f64>> {
    let training = decoded.iter().any(|one| one.operation.phase == Phase::Backward);
    let ways = if training { 2 } else { 1 };
    let mut made: Vec<Made> = Vec::new();
    let mut activations = vec![Vec::new(); decoded.len()];
    let mut held = vec![Vec::new(); decoded.len()];
    for (index, one) in decoded.iter().enumerate() {
        let Some(rule) = rule(one) else { continue };
        let operation = one.operation;
        let parameters = if rule == Rule::Narrow { parameters(operation) } else { Vec::new() };
        let size = |place: &usize| volume(&operation.inputs[*place]);
        held[index] = parameters.iter().map(size).collect();
        let given: Vec<f64> = (0..operation.inputs.len())
            .filter(|place| !parameters.contains(place) && holds_numbers(one, *place))
            .map(|place| size(&place))
            .collect();
        let is_layer = matches!(one.op.name.form, Form::Product(_)) && !parameters.is_empty();
        let known: Vec<Option<Made>> = sources(&given, &made, rule, is_layer);
        let is_wide = |source: &Option<Made>| source.is_none_or(|source| source.wide);
        let wide = match rule {
            Rule::Narrow => false,
            Rule::Wide | Rule::Table => true,
            Rule::Promotes => known.iter().any(is_wide),
            Rule::Follows => known.first().is_none_or(is_wide),
        };
        for (elements, source) in given.iter().zip(&known) {
            // Inputs that no operator made have no gradient.
            let back = training && source.is_some();
            let times = match rule {
                Rule::Narrow | Rule::Wide if is_wide(source) != wide => 1 + usize::from(back),
                Rule::Promotes if wide && !is_wide(source) => usize::from(back),
                _ => 0,
            };
            activations[index].extend(std::iter::repeat_n(*elements, times));
        }
        let result = operation.outputs.first().map_or_else(|| given.iter().copied().fold(0.0, f64::max), volume);
        let begins = rule == Rule::Table || rule == Rule::Promotes && given.len() > 1;
        let layer_of = given.first().copied().filter(|_| is_layer);
        made.push(Made { elements: result, wide, begins, layer_of });
    }
    let counted = |sizes: &[f64], index: usize| sizes.iter().sum::<f64>() * f64::from(decoded[index].operation.count);
    let all: f64 = held.iter().enumerate().map(|(index, sizes)| counted(sizes, index)).sum();
    let share = parameter_count.map_or(1.0, |count| (count as f64 / all.max(1.0)).min(1.0));
    for (casts, held) in activations.iter_mut().zip(held) {
        casts.extend(held.into_iter().flat_map(|elements| std::iter::repeat_n(elements * share, ways)));
    }
    activations
}

/// Operation that made each input; `None` if no operator made it.
fn sources(given: &[f64], made: &[Made], rule: Rule, is_layer: bool) -> Vec<Option<Made>> {
    // Query, key and value are often parts of one layer's result.
    let is_from = |one: &&Made, elements: f64| {
        one.elements == elements
            || one.layer_of.is_some() && [2.0, 3.0].iter().any(|parts| one.elements == parts * elements)
    };
    // Parallel layers such as query, key and value have the same input.
    let is_beside = |one: &Made, elements: f64| is_layer && one.layer_of == Some(elements);
    let last = |elements: f64| {
        let mut before = made.iter().rev().skip_while(|one| is_beside(one, elements));
        before.find(|one| is_from(one, elements)).copied()
    };
    let each = given.iter().enumerate().map(|(place, &elements)| {
        let is_second = rule == Rule::Promotes && given[..place].contains(&elements);
        if !is_second {
            return last(elements);
        }
        // The other side of a residual connection, which starts before the last result.
        let mut before = made.iter().rev().filter(|one| one.elements == elements).skip(1);
        let first = made.iter().find(|one| one.elements == elements);
        before.find(|one| one.begins).or(first).copied()
    });
    each.collect()
}

/// Rule for a 32-bit forward operation; `None` if its result is not affected.
fn rule(one: &Decoded<'_>) -> Option<Rule> {
    let operation = one.operation;
    if operation.phase != Phase::Forward || one.dtype != Some(DType::Float32) {
        return None;
    }
    Some(match one.op.name.form {
        Form::View | Form::Communication | Form::Stream(StreamForm::Fill) => return None,
        Form::Product(_) | Form::Convolution { .. } | Form::Attention(_) | Form::Recurrent { .. } => Rule::Narrow,
        Form::Reduction(ReductionForm::Sum) if is_averaged(&operation.name) => Rule::Follows,
        Form::Lookup(LookupForm::Embedding) => Rule::Table,
        Form::Stream(StreamForm::Dropout | StreamForm::Copy)
        | Form::Normalisation(NormalisationForm::Channel | NormalisationForm::ChannelWithStatistics)
        | Form::Lookup(_)
        | Form::Pooling
        | Form::Unknown => Rule::Follows,
        Form::Stream(_) if !is_kept_wide(&operation.name) => Rule::Promotes,
        Form::Softmax | Form::Normalisation(_) | Form::Reduction(_) | Form::Stream(_) => Rule::Wide,
    })
}

/// Whether an input is a 32-bit number tensor, as far as recorded.
fn holds_numbers(one: &Decoded<'_>, place: usize) -> bool {
    let told = match one.operation.attributes.get(INPUT_DTYPES) {
        Some(Attribute::List(types)) => types.get(place),
        _ => None,
    };
    let is_mask = matches!(one.op.name.form, Form::Stream(StreamForm::Masked(mask)) if mask == place);
    !is_mask
        && !one.operation.inputs[place].is_empty()
        && !matches!(told, Some(Attribute::Text(name)) if *name != *DType::Float32.name())
}

/// Whether the recording shows that an operation only casts between 16 and 32 bits.
pub(super) fn is_told(one: &Decoded<'_>) -> bool {
    let operation = one.operation;
    let width = |name: &str| DType::named(name).size_bytes().filter(|_| DType::named(name).is_floating());
    let own = one.dtype.as_ref().filter(|own| own.is_floating()).and_then(DType::size_bytes);
    let is_other =
        |told: &Attribute| matches!(told, Attribute::Text(name) if width(name).is_some_and(|width| Some(width) != own));
    habitat_step::op::name::is_cast(&operation.name)
        && own.is_some()
        && [INPUT_DTYPES, OUTPUT_DTYPES].iter().any(
            |key| matches!(operation.attributes.get(*key), Some(Attribute::List(types)) if types.iter().any(is_other)),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::op_list::from_op_list;

    /// Phase, name, inputs and result.
    type Call = (&'static str, &'static str, &'static [&'static [u64]], &'static [u64]);

    /// Casts of a step of 32-bit calls.
    fn step(calls: &[Call]) -> Vec<Vec<f64>> {
        let tensor = |shape: &&[u64]| serde_json::json!({"shape": shape, "dtype": "float32"});
        let ops = calls.iter().map(|(phase, name, inputs, output)| {
            let inputs: Vec<_> = inputs.iter().map(tensor).collect();
            serde_json::json!({"op": format!("aten.{name}.default"), "phase": phase, "inputs": inputs,
                "outputs": [tensor(output)], "count": 1})
        });
        let list = serde_json::json!({"info": {}, "ops": ops.collect::<Vec<_>>()});
        let profile = from_op_list(list.to_string().as_bytes(), "step").unwrap();
        added(&Decoded::all(&profile), None)
    }

    /// Two parallel layers on a 32-bit norm, an activation, a layer, the residual sum.
    #[test]
    fn activations_are_cast_where_types_meet() {
        const X: &[u64] = &[8, 16];
        const WIDE: &[u64] = &[8, 64];
        let backward: Call = ("backward", "mm", &[&[8, 64], &[64, 16]], X);
        let forward: [Call; 7] = [
            ("forward", "embedding", &[&[100, 16], &[8]], X),
            ("forward", "native_layer_norm", &[X, &[16], &[16]], X),
            ("forward", "mm", &[X, &[16, 64]], WIDE),
            ("forward", "mm", &[X, &[16, 64]], WIDE),
            ("forward", "mul", &[WIDE, WIDE], WIDE),
            ("forward", "mm", &[WIDE, &[64, 16]], X),
            ("forward", "add", &[X, X], X),
        ];
        let casts = step(&[&forward[..], &[backward]].concat());
        // The activation and its gradient, the weight and its gradient.
        let layer = vec![128.0, 128.0, 1024.0, 1024.0];
        let none: Vec<f64> = Vec::new();
        let expected =
            [none.clone(), none.clone(), layer.clone(), layer, none.clone(), vec![1024.0; 2], vec![128.0], none];
        assert_eq!(casts, expected);
        let inference = step(&forward);
        assert_eq!((&inference[2], &inference[5], inference[6].len()), (&vec![128.0, 1024.0], &vec![1024.0], 0));
    }

    #[test]
    fn parameters_are_cast_once_a_step() {
        let json = r#"{"info": {"params": 256}, "ops": [{"op": "aten.mm.default", "phase": "forward", "count": 4,
            "inputs": [{"shape": [8, 16], "dtype": "float32"}, {"shape": [16, 16], "dtype": "float32"}],
            "outputs": [{"shape": [8, 16], "dtype": "float32"}]}]}"#;
        let profile = from_op_list(json.as_bytes(), "step").unwrap();
        // The input is cast in each of the four calls, the single weight in one.
        assert_eq!(added(&Decoded::all(&profile), Some(256)), [vec![128.0, 64.0]]);
    }
}
