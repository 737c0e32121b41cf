//! Kinds of operators: one vocabulary for `TensorFlow`'s types and `PyTorch`'s operators.

use crate::predict::family::{Family, family};
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
    /// Windows over pixels with next to no arithmetic: pooling and depthwise convolution.
    Window,
    /// Its gradient.
    WindowBackward,
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

/// Types of `TensorFlow` operators and their kinds.
const TENSORFLOW: &[(OperatorKind, &[&str])] = &[
    (OperatorKind::Convolution, &["Conv2D", "_FusedConv2D", "Conv3D", "Conv1D"]),
    (
        OperatorKind::ConvolutionBackward,
        &["Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2"],
    ),
    (
        OperatorKind::Normalisation,
        &["FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx", "LRN"],
    ),
    (
        OperatorKind::NormalisationBackward,
        &["FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", "LRNGrad"],
    ),
    (
        OperatorKind::Window,
        &["MaxPool", "MaxPoolV2", "AvgPool", "DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"],
    ),
    (
        OperatorKind::WindowBackward,
        &[
            "MaxPoolGrad",
            "MaxPoolGradV2",
            "AvgPoolGrad",
            "DepthwiseConv2dNativeBackpropInput",
            "DepthwiseConv2dNativeBackpropFilter",
        ],
    ),
    (
        OperatorKind::MatrixProduct,
        &["MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "Einsum", "CudnnRNN", "CudnnRNNV3"],
    ),
    (
        OperatorKind::Elementwise,
        &[
            "Relu",
            "Relu6",
            "LeakyRelu",
            "Elu",
            "Selu",
            "Softplus",
            "Sigmoid",
            "Tanh",
            "BiasAdd",
            "Add",
            "AddV2",
            "AddN",
            "Mul",
            "Sub",
            "RealDiv",
            "Square",
            "Sqrt",
            "Rsqrt",
            "RsqrtGrad",
            "SquaredDifference",
            "Neg",
            "Exp",
            "Log",
            "Pow",
            "Maximum",
            "Minimum",
            "DivNoNan",
            "GreaterEqual",
            "Greater",
            "Less",
            "LessEqual",
            "Equal",
            "NotEqual",
            "LogicalAnd",
            "LogicalNot",
            "Select",
            "SelectV2",
            "Cast",
            "Tile",
            "BroadcastTo",
            "Fill",
            "ZerosLike",
            "OnesLike",
            "RandomUniform",
            "RandomStandardNormal",
            "StatelessRandomUniform",
        ],
    ),
    (
        OperatorKind::ElementwiseBackward,
        &[
            "ReluGrad",
            "Relu6Grad",
            "LeakyReluGrad",
            "EluGrad",
            "SeluGrad",
            "SoftplusGrad",
            "SigmoidGrad",
            "TanhGrad",
            "SqrtGrad",
        ],
    ),
    (OperatorKind::Reduction, &["BiasAddGrad", "Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "L2Loss"]),
    (OperatorKind::Optimizer, &["AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp"]),
    (
        OperatorKind::Softmax,
        &["Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits"],
    ),
    (
        OperatorKind::Rearrangement,
        &[
            "Transpose",
            "Slice",
            "StridedSlice",
            "StridedSliceGrad",
            "ConcatV2",
            "Concat",
            "Split",
            "SplitV",
            "Pad",
            "PadV2",
            "MirrorPad",
            "Pack",
            "Unpack",
            "Gather",
            "GatherV2",
            "GatherNd",
            "ScatterNd",
            "DynamicStitch",
            "ResizeNearestNeighbor",
            "ResizeBilinear",
            "SpaceToDepth",
            "DepthToSpace",
            "SpaceToBatchND",
            "BatchToSpaceND",
            "Reverse",
            "ReverseV2",
        ],
    ),
    (OperatorKind::Transfer, &["_Send", "_Recv", "_HostSend", "_HostRecv"]),
];

impl OperatorKind {
    /// All kinds, in the order of a step.
    pub const ALL: [Self; 15] = [
        Self::Convolution,
        Self::ConvolutionBackward,
        Self::Normalisation,
        Self::NormalisationBackward,
        Self::Window,
        Self::WindowBackward,
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

    /// The kind of a `TensorFlow` operator type, such as `Conv2DBackpropInput`; types that are
    /// not listed by their endings, and [`Self::Other`] where those say nothing.
    pub fn of_tensorflow(op: &str) -> Self {
        if let Some((kind, _)) = TENSORFLOW.iter().find(|(_, ops)| ops.contains(&op)) {
            return *kind;
        }
        let backward = op.contains("Grad") || op.contains("Backprop");
        let either = |forward, back| if backward { back } else { forward };
        if op.starts_with("ResourceApply") || op.starts_with("ResourceSparseApply") || op.starts_with("Apply") {
            Self::Optimizer
        } else if op.contains("Depthwise") || op.contains("Pool") {
            either(Self::Window, Self::WindowBackward)
        } else if op.contains("Conv") {
            either(Self::Convolution, Self::ConvolutionBackward)
        } else if op.contains("Norm") {
            either(Self::Normalisation, Self::NormalisationBackward)
        } else if op.contains("MatMul") {
            Self::MatrixProduct
        } else if op.contains("Softmax") {
            Self::Softmax
        } else if op.contains("Send") || op.contains("Recv") {
            Self::Transfer
        } else if backward {
            Self::ElementwiseBackward
        } else {
            Self::Other
        }
    }

    /// The kind of an operation of a profile; `None` for communication between GPUs, which is
    /// no part of a step on one.
    pub fn of_operation(operation: &Operation) -> Option<Self> {
        let backward = operation.phase == Phase::Backward;
        let either = |forward, back| Some(if backward { back } else { forward });
        match (family(operation), operation.phase) {
            (Family::Communication, _) => None,
            (_, Phase::Optimizer) => Some(Self::Optimizer),
            (_, Phase::Copy) => Some(Self::Transfer),
            (Family::Convolution, _) if is_depthwise(operation) => either(Self::Window, Self::WindowBackward),
            (Family::Convolution, _) => either(Self::Convolution, Self::ConvolutionBackward),
            (Family::Normalisation, _) => either(Self::Normalisation, Self::NormalisationBackward),
            (Family::Pooling, _) => either(Self::Window, Self::WindowBackward),
            (Family::Gemm | Family::Recurrent | Family::Attention, _) => Some(Self::MatrixProduct),
            (Family::Softmax, _) => Some(Self::Softmax),
            (Family::Reduction, _) if operation.name.contains("loss") => Some(Self::Softmax),
            (Family::Reduction, _) => Some(Self::Reduction),
            (Family::Embedding | Family::View, _) => Some(Self::Rearrangement),
            (Family::Elementwise, _) if moves(&operation.name) => Some(Self::Rearrangement),
            (Family::Elementwise, _) => either(Self::Elementwise, Self::ElementwiseBackward),
            (Family::Unknown, _) => Some(Self::Other),
        }
    }
}

/// Whether every channel has its own filter: the weight's second size is 1, the input's is not.
fn is_depthwise(operation: &Operation) -> bool {
    operation.name.contains("depthwise")
        || operation.inputs.iter().any(|shape| matches!(shape[..], [channels, 1, _, _] if channels > 1))
            && operation.inputs.iter().any(|shape| matches!(shape[..], [_, channels, _, _] if channels > 1))
}

/// Whether an operator only puts numbers elsewhere.
fn moves(name: &str) -> bool {
    let bare = name.rsplit("::").next().unwrap_or(name).trim_matches('_');
    ["cat", "stack", "contiguous", "clone", "constant_pad_nd", "pad", "repeat", "flip", "roll"].contains(&bare)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    #[test]
    fn types_of_tensorflow() {
        for (op, kind) in [
            ("Conv2D", OperatorKind::Convolution),
            ("_FusedConv2D", OperatorKind::Convolution),
            ("Conv2DBackpropFilter", OperatorKind::ConvolutionBackward),
            ("DepthwiseConv2dNativeBackpropFilter", OperatorKind::WindowBackward),
            ("FusedBatchNormGradV3", OperatorKind::NormalisationBackward),
            ("ResourceApplyGradientDescent", OperatorKind::Optimizer),
            ("ResourceApplyAdam", OperatorKind::Optimizer),
            ("BiasAddGrad", OperatorKind::Reduction),
            ("_HostRecv", OperatorKind::Transfer),
            ("MaxPool3DGrad", OperatorKind::WindowBackward),
            ("SwishGrad", OperatorKind::ElementwiseBackward),
            ("SomethingNew", OperatorKind::Other),
        ] {
            assert_eq!(OperatorKind::of_tensorflow(op), kind, "{op}");
        }
    }

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
        assert_eq!(kind("aten::cudnn_convolution", "forward", depthwise), Some(OperatorKind::Window));
        // One channel in, as in a first layer on grey pictures, is an ordinary convolution.
        let grey = "[[8, 1, 28, 28], [32, 1, 5, 5]]";
        assert_eq!(kind("aten::cudnn_convolution", "forward", grey), Some(OperatorKind::Convolution));
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
