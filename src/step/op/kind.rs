//! Kinds of operators: one vocabulary for `TensorFlow`'s op types and `PyTorch`'s operators.

use super::Op;
use super::name::{Form, ReductionForm, StreamForm};
use crate::profile::{Operation, Phase};

/// A kind of operator: its function and direction, independent of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorKind {
    /// Convolutions, forward.
    Convolution,
    /// Gradients of convolutions, by input and by weight.
    ConvolutionBackward,
    /// Normalisation, forward.
    Normalisation,
    /// Gradient of a normalisation.
    NormalisationBackward,
    /// Pooling: windows over pixels with almost no arithmetic.
    Window,
    /// Gradient of pooling.
    WindowBackward,
    /// Depthwise convolutions, forward.
    Depthwise,
    /// Gradients of depthwise convolutions, by input and by weight.
    DepthwiseBackward,
    /// Matrix products, forward and backward; also library calls for recurrent layers and attention.
    MatrixProduct,
    /// Element-wise operators: activations, additions, bias, dropout.
    Elementwise,
    /// Gradients of element-wise operators.
    ElementwiseBackward,
    /// Sums and means, including gradients of biases.
    Reduction,
    /// Parameter updates.
    Optimizer,
    /// Softmax and the loss.
    Softmax,
    /// Data movement within the device: transposition, padding, concatenation, look-up.
    Rearrangement,
    /// Copies between host and device.
    Transfer,
    /// Everything else.
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

    /// Name in files and on screen.
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

    /// Whether it is likely to be compute-bound rather than memory-bound.
    pub const fn computes(self) -> bool {
        matches!(self, Self::Convolution | Self::ConvolutionBackward | Self::MatrixProduct)
    }

    /// Kind of an operation of a profile; `None` for communication between GPUs, which a single-GPU step does not have.
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
        // One input channel, as in a first layer on greyscale images, is an ordinary convolution.
        let grey = "[[8, 1, 28, 28], [32, 1, 5, 5]]";
        assert_eq!(kind("aten::cudnn_convolution", "forward", grey), Some(OperatorKind::Convolution));
        let grey = "[[8, 32, 24, 24], [8, 1, 28, 28], [32, 1, 5, 5]]";
        let backward = Some(OperatorKind::ConvolutionBackward);
        assert_eq!(kind("aten::convolution_backward", "backward", grey), backward);
        // The same holds for one output channel, as at the end of a discriminator.
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
