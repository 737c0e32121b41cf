//! `TensorFlow` op types.

use super::OperatorKind;

/// Kinds and their op types.
#[rustfmt::skip]
const TYPES: &[(OperatorKind, &[&str])] = &[
    (OperatorKind::Convolution, &[
        "Conv2D", "_FusedConv2D", "Conv3D", "Conv1D",
    ]),
    (OperatorKind::ConvolutionBackward, &[
        "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
    ]),
    (OperatorKind::Normalisation, &[
        "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3", "_FusedBatchNormEx", "LRN",
    ]),
    (OperatorKind::NormalisationBackward, &[
        "FusedBatchNormGrad", "FusedBatchNormGradV2", "FusedBatchNormGradV3", "LRNGrad",
    ]),
    (OperatorKind::Window, &[
        "MaxPool", "MaxPoolV2", "AvgPool",
    ]),
    (OperatorKind::WindowBackward, &[
        "MaxPoolGrad", "MaxPoolGradV2", "AvgPoolGrad",
    ]),
    (OperatorKind::Depthwise, &[
        "DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative",
    ]),
    (OperatorKind::DepthwiseBackward, &[
        "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    ]),
    (OperatorKind::MatrixProduct, &[
        "MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "Einsum", "CudnnRNN", "CudnnRNNV3",
    ]),
    (OperatorKind::Elementwise, &[
        "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Softplus", "Sigmoid", "Tanh", "BiasAdd", "Add", "AddV2",
        "AddN", "Mul", "Sub", "RealDiv", "Square", "Sqrt", "Rsqrt", "RsqrtGrad", "SquaredDifference", "Neg",
        "Exp", "Log", "Pow", "Maximum", "Minimum", "DivNoNan", "GreaterEqual", "Greater", "Less", "LessEqual",
        "Equal", "NotEqual", "LogicalAnd", "LogicalNot", "Select", "SelectV2", "Cast", "Tile", "BroadcastTo",
        "Fill", "ZerosLike", "OnesLike", "RandomUniform", "RandomStandardNormal", "StatelessRandomUniform",
    ]),
    (OperatorKind::ElementwiseBackward, &[
        "ReluGrad", "Relu6Grad", "LeakyReluGrad", "EluGrad", "SeluGrad", "SoftplusGrad", "SigmoidGrad",
        "TanhGrad", "SqrtGrad",
    ]),
    (OperatorKind::Reduction, &[
        "BiasAddGrad", "Sum", "Mean", "Max", "Min", "Prod", "ArgMax", "ArgMin", "L2Loss",
    ]),
    (OperatorKind::Optimizer, &[
        "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
    ]),
    (OperatorKind::Softmax, &[
        "Softmax", "LogSoftmax", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits",
    ]),
    (OperatorKind::Rearrangement, &[
        "Transpose", "Slice", "StridedSlice", "StridedSliceGrad", "ConcatV2", "Concat", "Split", "SplitV",
        "Pad", "PadV2", "MirrorPad", "Pack", "Unpack", "Gather", "GatherV2", "GatherNd", "ScatterNd",
        "DynamicStitch", "ResizeNearestNeighbor", "ResizeBilinear", "SpaceToDepth", "DepthToSpace",
        "SpaceToBatchND", "BatchToSpaceND", "Reverse", "ReverseV2",
    ]),
    (OperatorKind::Transfer, &[
        "_Send", "_Recv", "_HostSend", "_HostRecv",
    ]),
];

/// Kind of a `TensorFlow` op type such as `Conv2DBackpropInput`. Unlisted types are classified by parts of their names;
/// [`OperatorKind::Other`] if none matches.
pub fn kind(op: &str) -> OperatorKind {
    if let Some((kind, _)) = TYPES.iter().find(|(_, ops)| ops.contains(&op)) {
        return *kind;
    }
    let backward = op.contains("Grad") || op.contains("Backprop");
    let either = |forward, back| if backward { back } else { forward };
    if op.starts_with("ResourceApply") || op.starts_with("ResourceSparseApply") || op.starts_with("Apply") {
        OperatorKind::Optimizer
    } else if op.contains("Depthwise") {
        either(OperatorKind::Depthwise, OperatorKind::DepthwiseBackward)
    } else if op.contains("Pool") {
        either(OperatorKind::Window, OperatorKind::WindowBackward)
    } else if op.contains("Conv") {
        either(OperatorKind::Convolution, OperatorKind::ConvolutionBackward)
    } else if op.contains("Norm") {
        either(OperatorKind::Normalisation, OperatorKind::NormalisationBackward)
    } else if op.contains("MatMul") {
        OperatorKind::MatrixProduct
    } else if op.contains("Softmax") {
        OperatorKind::Softmax
    } else if op.contains("Send") || op.contains("Recv") {
        OperatorKind::Transfer
    } else if backward {
        OperatorKind::ElementwiseBackward
    } else {
        OperatorKind::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_tensorflow() {
        for (op, expected) in [
            ("Conv2D", OperatorKind::Convolution),
            ("_FusedConv2D", OperatorKind::Convolution),
            ("Conv2DBackpropFilter", OperatorKind::ConvolutionBackward),
            ("DepthwiseConv2dNativeBackpropFilter", OperatorKind::DepthwiseBackward),
            ("FusedBatchNormGradV3", OperatorKind::NormalisationBackward),
            ("ResourceApplyGradientDescent", OperatorKind::Optimizer),
            ("ResourceApplyAdam", OperatorKind::Optimizer),
            ("BiasAddGrad", OperatorKind::Reduction),
            ("_HostRecv", OperatorKind::Transfer),
            ("MaxPool3DGrad", OperatorKind::WindowBackward),
            ("SwishGrad", OperatorKind::ElementwiseBackward),
            ("SomethingNew", OperatorKind::Other),
        ] {
            assert_eq!(kind(op), expected, "{op}");
        }
    }
}
