//! Work of recurrent layers and cells.

use super::{Work, bare_name, product, total, volume};
use crate::profile::{Attribute, Operation, Shape};

/// Input `[length, batch, features]` (or packed `[rows, features]`), then the weights of
/// the layers as matrices of gates × features, for the input and for the hidden state in
/// turn: each is multiplied with every position of the sequence.
///
/// The products of the input are one matrix product a layer. Those of the hidden state
/// follow one another, so their weights are read again at every position in time. A cell
/// (`[batch, features]`) is one position. Backward forms two gradients.
pub(super) fn recurrent(operation: &Operation, element: f64) -> Option<Work> {
    let bare = bare_name(operation);
    let (input, rest) = operation.inputs.split_first()?;
    let cell = bare.contains("_cell");
    let (positions, length) = match input.as_slice() {
        [first, second, _] => {
            let batch_first = matches!(operation.attributes.get("batch_first"), Some(Attribute::Bool(true)));
            (*first as f64 * *second as f64, if batch_first { *second } else { *first } as f64)
        }
        // A packed sequence: its length is the number of batch sizes, the last vector.
        [rows, _] if !cell => {
            let sizes = rest.iter().rev().find(|shape| shape.len() == 1).map_or(1.0, volume);
            (*rows as f64, sizes.min(*rows as f64))
        }
        [rows, _] => (*rows as f64, 1.0),
        _ => return None,
    };
    // A cell's state is a matrix too, before its weights.
    let state = |shape: &&Shape| cell && shape.first() == input.first();
    let weights: Vec<f64> = rest.iter().filter(|shape| shape.len() == 2 && !state(shape)).map(volume).collect();
    let all: f64 = weights.iter().sum();
    let hidden: f64 = weights.iter().skip(1).step_by(2).sum();
    let factor = if bare.contains("backward") { 2.0 } else { 1.0 };
    // Weights once, the hidden ones at every further position; the input and all results.
    let tensors: f64 = operation.inputs.iter().filter(|shape| shape.len() == 3).map(volume).sum();
    let written = total(&operation.outputs).max(volume(input));
    let moved = all + hidden * (length - 1.0).max(0.0) + tensors.max(volume(input)) + written;
    product(2.0 * positions * all * factor, moved * factor, element)
}

#[cfg(test)]
mod tests {
    use super::super::tests::operation;
    use super::super::{Arithmetic, work};
    use super::*;

    /// Two layers of 1024 features over 50 positions of 64 samples: 2 · 50 · 64 · 4 ·
    /// 4096 · 1024 operations; the hidden weights of both layers are read 50 times.
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
        // The same positions in the other order, and packed.
        let mut first = operation("aten::lstm", &[&[&[64, 50, 1024][..]][..], &inputs[1..]].concat(), &[]);
        first.attributes.insert("batch_first".into(), Attribute::Bool(true));
        assert_eq!(work(&first, None).unwrap(), forward);
        let packed = [&[&[3200, 1024][..]][..], &inputs[1..], &[&[50][..]]].concat();
        assert_eq!(work(&operation("aten::_cudnn_rnn", &packed, &[]), None).unwrap().flops, forward.flops);
        // A cell: input, hidden and cell state, two weights.
        let cell =
            operation("aten::lstm_cell", &[&[64, 1024], &[64, 1024], &[64, 1024], weight, weight, bias, bias], &[]);
        assert_eq!(work(&cell, None).unwrap().flops.get(), 2.0 * 64.0 * 2.0 * 4096.0 * 1024.0);
        // Its element-wise part has none.
        let gates = operation("aten::_thnn_fused_lstm_cell", &[&[64, 4096], &[64, 4096], &[64, 1024]], &[&[64, 1024]]);
        assert_eq!(work(&gates, None).unwrap().arithmetic, Arithmetic::Vector);
    }
}
