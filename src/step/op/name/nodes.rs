//! Nodes of the backward graph.

use super::accumulates_gradients;

/// Whether an operator is a node of the backward graph, such as `AddmmBackward0` or `CudnnConvolutionBackward`, or the
/// engine's wrapper around one.
pub fn is_autograd_node(name: &str) -> bool {
    if name.starts_with("autograd::engine::evaluate_function") || accumulates_gradients(name) {
        return true;
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    stem.ends_with("Backward") && !name.contains("::_") && !name.starts_with("aten::")
}

/// Whether a node computes the gradient of a loss.
pub fn is_loss_node(name: &str) -> bool {
    !name.starts_with("autograd::")
        && ["NllLoss", "MseLoss", "CrossEntropyLoss", "BinaryCrossEntropy", "L1Loss", "SmoothL1Loss", "KlDiv"]
            .iter()
            .any(|loss| name.starts_with(loss))
}
