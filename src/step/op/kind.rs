//! Kinds of operators: one vocabulary for `TensorFlow`'s types and `PyTorch`'s operators.

use super::Op;
use super::name::{Form, ReductionForm, StreamForm};
use crate::profile::{Operation, Phase};

/// A kind of operator: what it does and in which direction, nothing of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorKind {
    /// Convolutions, forward.
    Convolution,
    /// Their gradients, by input and by weight.
    ConvolutionBackward,
    /// Normalisation, forward.
    Normalisation,
    /// Its gradient.
    NormalisationBackward,
    /// Windows over pixels with next to no arithmetic: pooling.
    Window,
    /// Its gradient.
    WindowBackward,
    /// Convolutions of one channel each.
    Depthwise,
    /// Their gradients, by input and by weight.
    DepthwiseBackward,
    /// Matrix products, forward and backward; recurrent cells and attention by libraries.
    MatrixProduct,
    /// Element by element: activations, sums, bias, dropout.
    Elementwise,
    /// Gradients of the same.
    ElementwiseBackward,
    /// Sums and means, gradients of biases.
    Reduction,
    /// The parameter update.
    Optimizer,
    /// Softmax and the loss.
    Softmax,
    /// The same numbers at other places: transposition, padding, concatenation, look-up.
    Rearrangement,
    /// Copies between host and device.
    Transfer,
    /// Anything else.
    Other,
}

impl OperatorKind {
    /// All kinds, in the order of a step.
    pub const ALL: [Self; 17] = [
        Self::Convolution,
        Self::ConvolutionBackward,
        Self::Normalisation,
        Self::NormalisationBackward,
        Self::Window,
        Self::WindowBackward,
        Self::Depthwise,
        Self::DepthwiseBackward,
        Self::MatrixProduct,
        Self::Elementwise,
        Self::ElementwiseBackward,
        Self::Reduction,
        Self::Optimizer,
        Self::Softmax,
        Self::Rearrangement,
        Self::Transfer,
        Self::Other,
    ];

    /// The name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Convolution => "convolution",
            Self::ConvolutionBackward => "convolution-backward",
            Self::Normalisation => "normalisation",
            Self::NormalisationBackward => "normalisation-backward",
            Self::Window => "window",
            Self::WindowBackward => "window-backward",
            Self::Depthwise => "depthwise",
            Self::DepthwiseBackward => "depthwise-backward",
            Self::MatrixProduct => "matrix-product",
            Self::Elementwise => "elementwise",
            Self::ElementwiseBackward => "elementwise-backward",
            Self::Reduction => "reduction",
            Self::Optimizer => "optimizer",
            Self::Softmax => "softmax",
            Self::Rearrangement => "rearrangement",
            Self::Transfer => "transfer",
            Self::Other => "other",
        }
    }

    /// Whether arithmetic, not memory, is likely to be what takes the time.
    pub const fn computes(self) -> bool {
        matches!(self, Self::Convolution | Self::ConvolutionBackward | Self::MatrixProduct)
    }

    /// The kind of an operation of a profile; `None` for communication between GPUs, which is
    /// no part of a step on one.
    pub fn of_operation(operation: &Operation) -> Option<Self> {
        let op = Op::of(operation);
        let backward = operation.phase == Phase::Backward;
        let either = |forward, back| Some(if backward { back } else { forward });
        match (op.name.form, operation.phase) {
            (Form::Communication, _) => None,
            (_, Phase::Optimizer) => Some(Self::Optimizer),
            (_, Phase::Copy) => Some(Self::Transfer),
            (Form::Convolution { .. }, _) if op.is_depthwise() => either(Self::Depthwise, Self::DepthwiseBackward),
            (Form::Convolution { .. }, _) => either(Self::Convolution, Self::ConvolutionBackward),
            (Form::Normalisation(_), _) => either(Self::Normalisation, Self::NormalisationBackward),
            (Form::Pooling, _) => either(Self::Window, Self::WindowBackward),
            (Form::Product(_) | Form::Recurrent { .. } | Form::Attention { .. }, _) => Some(Self::MatrixProduct),
            (Form::Softmax | Form::Reduction(ReductionForm::Likelihood | ReductionForm::Loss), _) => {
                Some(Self::Softmax)
            }
            (Form::Reduction(_), _) => Some(Self::Reduction),
            (Form::Lookup(_) | Form::View | Form::Stream(StreamForm::Concatenation | StreamForm::Rearrangement), _) => {
                Some(Self::Rearrangement)
            }
            (Form::Stream(_), _) => either(Self::Elementwise, Self::ElementwiseBackward),
            (Form::Unknown, _) => Some(Self::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn operators_of_a_profile() {
        let kind = |name: &str, phase: &str, inputs: &str| {
            let json = format!(
                r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}},
                "operations": [{{"name": "{name}", "phase": "{phase}", "inputs": {inputs}}}]}}"#
            );
            OperatorKind::of_operation(&Profile::from_json(json.as_bytes()).unwrap().0.operations[0])
        };
        let dense = "[[8, 64, 56, 56], [64, 64, 3, 3]]";
        assert_eq!(kind("aten::cudnn_convolution", "forward", dense), Some(OperatorKind::Convolution));
        assert_eq!(kind("aten::convolution_backward", "backward", dense), Some(OperatorKind::ConvolutionBackward));
        let depthwise = "[[8, 64, 56, 56], [64, 1, 3, 3]]";
        assert_eq!(kind("aten::cudnn_convolution", "forward", depthwise), Some(OperatorKind::Depthwise));
        // One channel in, as in a first layer on grey pictures, is an ordinary convolution.
        let grey = "[[8, 1, 28, 28], [32, 1, 5, 5]]";
        assert_eq!(kind("aten::cudnn_convolution", "forward", grey), Some(OperatorKind::Convolution));
        let grey = "[[8, 32, 24, 24], [8, 1, 28, 28], [32, 1, 5, 5]]";
        let backward = Some(OperatorKind::ConvolutionBackward);
        assert_eq!(kind("aten::convolution_backward", "backward", grey), backward);
        // Nor is one with a single channel out, as at the end of a discriminator.
        let single = "[[8, 1, 1, 1], [8, 64, 4, 4], [1, 64, 4, 4]]";
        assert_eq!(kind("aten::convolution_backward", "backward", single), backward);
        assert_eq!(kind("aten::threshold_backward", "backward", "[]"), Some(OperatorKind::ElementwiseBackward));
        assert_eq!(kind("aten::addcdiv_", "optimizer", "[]"), Some(OperatorKind::Optimizer));
        assert_eq!(kind("aten::cat", "forward", "[]"), Some(OperatorKind::Rearrangement));
        assert_eq!(kind("aten::mm", "backward", "[]"), Some(OperatorKind::MatrixProduct));
        assert_eq!(kind("aten::nll_loss_forward", "forward", "[]"), Some(OperatorKind::Softmax));
        assert_eq!(kind("Memcpy HtoD", "copy", "[]"), Some(OperatorKind::Transfer));
        assert_eq!(kind("my::thing", "forward", "[]"), Some(OperatorKind::Other));
        assert_eq!(kind("ncclAllReduce", "communication", "[]"), None);
    }

    #[test]
    fn names_are_those_of_the_file_form() {
        for kind in OperatorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
