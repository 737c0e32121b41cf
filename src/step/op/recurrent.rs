//! Recurrent layers and cells.

use super::{Arithmetic, Pass, Primitive, Work, total, volume};
use crate::profile::{Attribute, Operation, Shape};

/// A recurrent layer or cell.
///
/// The input products are one matrix product per layer. Those of the hidden state run one after another, so their
/// weights are read again at every time step.
#[derive(Debug, Clone, PartialEq)]
pub struct Recurrent {
    /// Time steps; 1 for a cell.
    pub steps: f64,
    /// Time steps of all sequences together.
    pub positions: f64,
    /// Matrices of gates × features, alternating between input and hidden state.
    pub weights: Vec<[f64; 2]>,
    /// Whether it is a cell, which computes one time step.
    pub cell: bool,
    /// Whether it computes gradients, of data and weights.
    pub is_backward: bool,
    /// Elements that the forward pass reads and writes.
    moved: f64,
}

impl Recurrent {
    /// Sizes from the input `[length, batch, features]` (or packed `[rows, features]`), followed by states and layer
    /// weights. A cell's input is `[batch, features]`.
    pub(super) fn of(operation: &Operation, pass: Pass, cell: bool) -> Option<Self> {
        let (input, rest) = operation.inputs.split_first()?;
        let (positions, steps) = match input.as_slice() {
            [first, second, _] => {
                let batch_first = matches!(operation.attributes.get("batch_first"), Some(Attribute::Bool(true)));
                (*first as f64 * *second as f64, if batch_first { *second } else { *first } as f64)
            }
            // The length of a packed sequence is the number of batch sizes. `lstm` takes these right after the input,
            // libraries take them last.
            [rows, _] if !cell => {
                let is_vector = |shape: &&Shape| shape.len() == 1;
                let sizes = rest.first().filter(is_vector).or_else(|| rest.iter().rev().find(is_vector));
                let told = match operation.attributes.get("batch_sizes") {
                    Some(Attribute::List(sizes)) if !sizes.is_empty() => Some(sizes.len() as f64),
                    _ => None,
                };
                (*rows as f64, told.unwrap_or_else(|| sizes.map_or(1.0, volume)).min(*rows as f64))
            }
            [rows, _] => (*rows as f64, 1.0),
            _ => return None,
        };
        // For packed sequences, tensors after the next states are results.
        let parameters = rest.iter().skip_while(|shape| shape.len() != 2).take_while(|shape| shape.len() != 3);
        let matrices = parameters.filter(|shape| shape.len() == 2).map(|shape| [shape[0] as f64, shape[1] as f64]);
        let mut weights: Vec<[f64; 2]> = match gates(operation) {
            // Autocast stores all parameters in one row and passes cuDNN pieces of it, including biases.
            Some(gates) => matrices
                .filter(|&[rows, columns]| columns > 1.0 || rows > gates)
                .map(|[rows, columns]| if columns > 1.0 { [rows, columns] } else { [gates, rows / gates] })
                .collect(),
            None => matrices.collect(),
        };
        if cell {
            // States of a cell are matrices too and precede the two weights.
            weights.drain(..weights.len().saturating_sub(2));
        }
        let elements = |weights: &[f64; 2]| weights[0] * weights[1];
        let all: f64 = weights.iter().map(elements).sum();
        let hidden: f64 = weights.iter().skip(1).step_by(2).map(elements).sum();
        // Weights once, hidden ones again at every further time step; the input and all results.
        let tensors: f64 = operation.inputs.iter().filter(|shape| shape.len() == 3).map(volume).sum();
        let written = total(&operation.outputs).max(volume(input));
        let moved = all + hidden * (steps - 1.0).max(0.0) + tensors.max(volume(input)) + written;
        Some(Self { steps, positions, weights, cell, is_backward: pass.is_backward(), moved })
    }

    /// Work: each weight meets every time step; backward computes two gradients.
    pub(super) fn work(&self, element: f64) -> Option<Work> {
        let all: f64 = self.weights.iter().map(|weights| weights[0] * weights[1]).sum();
        let factor = if self.is_backward { 2.0 } else { 1.0 };
        Work::of_products(2.0 * self.positions * all * factor, self.moved * factor * element, Arithmetic::Product)
    }

    /// Parts for the learned models. The first of two weights is multiplied with the whole sequence at once, the second
    /// with one step at a time; backward adds the gradients of both over the whole sequence. Gates pass through memory.
    /// Cells have no parts: no model was trained on them.
    pub(super) fn primitives(&self) -> Vec<(Primitive, f64)> {
        if self.cell {
            return Vec::new();
        }
        let (positions, backward) = (self.positions, self.is_backward);
        let product = |rows, columns, reduction| Primitive::Product { batch: 1.0, rows, columns, reduction };
        let mut found = Vec::new();
        for (index, &[gates, inner]) in self.weights.iter().enumerate() {
            let is_hidden = index % 2 == 1;
            let (rows, times) = if is_hidden { (positions / self.steps, self.steps) } else { (positions, 1.0) };
            found.push((product(rows, gates, inner), times));
            if backward {
                found.push((product(gates, inner, positions), 1.0));
            }
            if is_hidden {
                found.push((Primitive::Stream { moved: positions * gates * if backward { 3.0 } else { 2.0 } }, 1.0));
            }
        }
        found
    }
}

/// Rows of a layer's weights: features times gates; an LSTM has four gates and a GRU three (modes 2 and 3 of cuDNN).
/// `None` if the operator was recorded without mode or size.
fn gates(operation: &Operation) -> Option<f64> {
    let told = |name: &str| operation.attributes.get(name).and_then(Attribute::as_int);
    let gates = match told("mode")? {
        2 => 4.0,
        3 => 3.0,
        _ => 1.0,
    };
    Some(told("hidden_size").filter(|size| *size > 0)? as f64 * gates)
}

#[cfg(test)]
mod tests {
    use super::super::work;
    use super::super::work::tests::operation;
    use super::*;

    /// Two layers of 1024 features, 50 time steps, batch 64: 2 · 50 · 64 · 4 · 4096 · 1024 operations. The hidden
    /// weights of both layers are read 50 times.
    #[test]
    fn recurrent_layers_multiply_every_position_with_every_weight() {
        let (weight, bias, state): (&[u64], &[u64], &[u64]) = (&[4096, 1024], &[4096], &[2, 64, 1024]);
        let inputs: [&[u64]; 11] =
            [&[50, 64, 1024], weight, weight, bias, bias, weight, weight, bias, bias, state, state];
        let forward = work(&operation("aten::_cudnn_rnn", &inputs, &[]), None).unwrap();
        assert_eq!(forward.flops.get(), 2.0 * 50.0 * 64.0 * 4.0 * 4096.0 * 1024.0);
        let moved = 4096.0 * 1024.0 * (2.0 + 2.0 * 50.0) + 2.0 * 50.0 * 64.0 * 1024.0 + 2.0 * 2.0 * 64.0 * 1024.0;
        assert_eq!(forward.bytes.get(), 4.0 * moved);
        let backward = work(&operation("aten::_cudnn_rnn_backward", &inputs, &[]), None).unwrap();
        assert_eq!(backward.flops.get(), 2.0 * forward.flops.get());
        // The same with the batch first, and packed.
        let mut first = operation("aten::lstm", &[&[&[64, 50, 1024][..]][..], &inputs[1..]].concat(), &[]);
        first.attributes.insert("batch_first".into(), Attribute::Bool(true));
        assert_eq!(work(&first, None).unwrap(), forward);
        let packed = [&[&[3200, 1024][..]][..], &inputs[1..], &[&[50][..]]].concat();
        assert_eq!(work(&operation("aten::_cudnn_rnn", &packed, &[]), None).unwrap().flops, forward.flops);
        // In mixed precision, parameters are pieces of one row.
        let piece: &[u64] = &[4_194_304, 1];
        let pieces = inputs.map(|shape| match shape {
            [4096, 1024] => piece,
            [4096] => &[4096, 1][..],
            other => other,
        });
        let mut cast = operation("aten::_cudnn_rnn", &pieces, &[]);
        cast.attributes.extend([("mode".into(), Attribute::Int(2)), ("hidden_size".into(), Attribute::Int(1024))]);
        assert_eq!(work(&cast, None).unwrap(), forward);
        // A cell: input, hidden and cell state, two weights.
        let cell =
            operation("aten::lstm_cell", &[&[64, 1024], &[64, 1024], &[64, 1024], weight, weight, bias, bias], &[]);
        assert_eq!(work(&cell, None).unwrap().flops.get(), 2.0 * 64.0 * 2.0 * 4096.0 * 1024.0);
        // Its element-wise part has no products.
        let gates = operation("aten::_thnn_fused_lstm_cell", &[&[64, 4096], &[64, 4096], &[64, 1024]], &[&[64, 1024]]);
        assert_eq!(work(&gates, None).unwrap().arithmetic, Arithmetic::Vector);
    }
}
