//! Result shapes, which traces do not record, where they follow from the inputs.

use super::args::Description;
use crate::profile::{Attribute, Shape};

/// Fills in result shapes, and the stride and padding of a convolution of which the
/// result shape is known and the arguments are not.
///
/// `known` are the shapes of the gradients that come back for the results; they equal
/// those of the results.
pub(super) fn complete(call: &mut Description, known: &[Shape]) {
    let certain = follow(call);
    call.outputs = if certain.is_empty() { known.to_vec() } else { certain };
    if call.attributes.is_empty() {
        let shapes = match call.name.as_str() {
            "aten::cudnn_convolution" | "aten::convolution" | "aten::miopen_convolution" | "aten::conv2d" => {
                Some((call.inputs.first(), call.inputs.get(1), call.outputs.first()))
            }
            "aten::convolution_backward" => Some((call.inputs.get(1), call.inputs.get(2), call.inputs.first())),
            _ => None,
        };
        if let Some((Some(input), Some(weight), Some(output))) = shapes
            && let Some(geometry) = geometry(input, weight, output)
        {
            let list =
                |values: &[u64]| Attribute::List(values.iter().map(|v| Attribute::Int(v.cast_signed())).collect());
            let dilation = vec![1; geometry.stride.len()];
            call.attributes.insert("stride".to_owned(), list(&geometry.stride));
            call.attributes.insert("padding".to_owned(), list(&geometry.padding));
            call.attributes.insert("dilation".to_owned(), list(&dilation));
            call.attributes.insert("groups".to_owned(), Attribute::Int(geometry.groups.cast_signed()));
            call.inferred = true;
        }
    }
}

/// The result shapes that the inputs and attributes leave no doubt about.
fn follow(call: &Description) -> Vec<Shape> {
    let input = |index: usize| call.inputs.get(index).filter(|shape| !shape.is_empty());
    let product = |a: &Shape, b: &Shape, batch: usize| -> Option<Shape> {
        (a.len() == batch + 2 && b.len() == batch + 2 && a[batch + 1] == b[batch] && a[..batch] == b[..batch])
            .then(|| a[..=batch].iter().copied().chain([b[batch + 1]]).collect())
    };
    let one = |shape: Option<Shape>| shape.map_or_else(Vec::new, |shape| vec![shape]);
    let like_first = || one(input(0).cloned());
    match call.name.as_str() {
        "aten::mm" => one(input(0).zip(input(1)).and_then(|(a, b)| product(a, b, 0))),
        "aten::bmm" => one(input(0).zip(input(1)).and_then(|(a, b)| product(a, b, 1))),
        "aten::addmm" => one(input(1).zip(input(2)).and_then(|(a, b)| product(a, b, 0))),
        "aten::baddbmm" => one(input(1).zip(input(2)).and_then(|(a, b)| product(a, b, 1))),
        "aten::linear" => one(input(0).zip(input(1)).and_then(|(x, weight)| {
            let (last, lead) = x.split_last()?;
            (weight.len() == 2 && weight[1] == *last).then(|| lead.iter().copied().chain([weight[0]]).collect())
        })),
        "aten::cudnn_convolution" | "aten::miopen_convolution" | "aten::convolution" | "aten::conv2d" => {
            one(convolved(call))
        }
        "aten::add" | "aten::sub" | "aten::mul" | "aten::div" | "aten::where" | "aten::maximum" | "aten::minimum" => {
            one(broadcast(&call.inputs))
        }
        "aten::_softmax"
        | "aten::_log_softmax"
        | "aten::softmax"
        | "aten::log_softmax"
        | "aten::relu"
        | "aten::gelu"
        | "aten::silu"
        | "aten::sigmoid"
        | "aten::tanh"
        | "aten::exp"
        | "aten::sqrt"
        | "aten::rsqrt"
        | "aten::neg"
        | "aten::clamp"
        | "aten::clamp_min"
        | "aten::native_layer_norm"
        | "aten::native_group_norm"
        | "aten::native_batch_norm"
        | "aten::cudnn_batch_norm"
        | "aten::miopen_batch_norm"
        | "aten::native_dropout"
        | "aten::threshold_backward"
        | "aten::gelu_backward"
        | "aten::silu_backward"
        | "aten::sigmoid_backward"
        | "aten::tanh_backward"
        | "aten::_softmax_backward_data"
        | "aten::_log_softmax_backward_data" => like_first(),
        // In-place operators of ATen return their first argument.
        name if name.starts_with("aten::")
            && name.ends_with('_')
            && !name.ends_with("__")
            && !name.contains("_foreach_") =>
        {
            like_first()
        }
        _ => Vec::new(),
    }
}

fn broadcast(shapes: &[Shape]) -> Option<Shape> {
    let length = shapes.iter().map(Vec::len).max().filter(|length| *length > 0)?;
    let mut out = vec![1; length];
    for shape in shapes {
        for (extent, own) in out[length - shape.len()..].iter_mut().zip(shape) {
            if *extent == 1 {
                *extent = *own;
            } else if *own != 1 && *own != *extent {
                return None;
            }
        }
    }
    Some(out)
}

/// The result of a convolution whose arguments are all recorded.
fn convolved(call: &Description) -> Option<Shape> {
    let (input, weight) = (call.inputs.first()?, call.inputs.get(1)?);
    if input.len() < 3
        || input.len() != weight.len()
        || call.attributes.get("transposed") == Some(&Attribute::Bool(true))
    {
        return None;
    }
    let dims = input.len() - 2;
    let argument = |name: &str| -> Option<Vec<u64>> {
        let values = call.attributes.get(name)?.as_ints()?;
        let values: Vec<u64> = values.into_iter().map(|v| u64::try_from(v).ok()).collect::<Option<_>>()?;
        match values.len() {
            1 => Some(vec![values[0]; dims]),
            length if length == dims => Some(values),
            _ => None,
        }
    };
    let (stride, padding, dilation) = (argument("stride")?, argument("padding")?, argument("dilation")?);
    let mut out = vec![input[0], weight[0]];
    for d in 0..dims {
        out.push(extent(input[d + 2], weight[d + 2], stride[d], padding[d], dilation[d])?);
    }
    Some(out)
}

fn extent(input: u64, kernel: u64, stride: u64, padding: u64, dilation: u64) -> Option<u64> {
    let reach = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
    let padded = input.checked_add(padding.checked_mul(2)?)?.checked_sub(reach)?;
    padded.checked_div(stride)?.checked_add(1)
}

struct Geometry {
    stride: Vec<u64>,
    padding: Vec<u64>,
    groups: u64,
}

/// Stride and padding that turn `input` into `output`, with dilation 1: the smallest
/// stride that fits, with "same" padding if that fits and none otherwise.
fn geometry(input: &[u64], weight: &[u64], output: &[u64]) -> Option<Geometry> {
    let dims = input.len().checked_sub(2).filter(|dims| (1..=3).contains(dims))?;
    let fits = weight.len() == input.len()
        && output.len() == input.len()
        && output[1] == weight[0]
        && output[0] == input[0]
        && weight[1] > 0
        && input[1].is_multiple_of(weight[1]);
    if !fits {
        return None;
    }
    let (mut stride, mut padding) = (Vec::new(), Vec::new());
    for d in 2..2 + dims {
        let kernel = weight[d];
        let paddings = [kernel.checked_sub(1)? / 2, 0];
        let (s, p) = (1..=8)
            .flat_map(|s| paddings.map(|p| (s, p)))
            .find(|(s, p)| extent(input[d], kernel, *s, *p, 1) == Some(output[d]))?;
        stride.push(s);
        padding.push(p);
    }
    Some(Geometry { stride, padding, groups: input[1] / weight[1] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn call(name: &str, inputs: &[&[u64]]) -> Description {
        let inputs = inputs.iter().map(|shape| shape.to_vec()).collect();
        Description { name: name.to_owned(), inputs, attributes: BTreeMap::new(), ..Description::default() }
    }

    #[test]
    fn products_give_their_shape() {
        type Case = (&'static str, &'static [&'static [u64]], &'static [u64]);
        let cases: [Case; 5] = [
            ("aten::mm", &[&[2, 3], &[3, 4]], &[2, 4]),
            ("aten::addmm", &[&[4], &[2, 3], &[3, 4]], &[2, 4]),
            ("aten::bmm", &[&[7, 2, 3], &[7, 3, 4]], &[7, 2, 4]),
            ("aten::linear", &[&[5, 2, 3], &[4, 3]], &[5, 2, 4]),
            ("aten::add", &[&[5, 1, 3], &[4, 1], &[]], &[5, 4, 3]),
        ];
        for (name, inputs, output) in cases {
            let mut call = call(name, inputs);
            complete(&mut call, &[]);
            assert_eq!(call.outputs, [output], "{name}");
        }
    }

    #[test]
    fn doubtful_results_are_left_out() {
        let mut call = call("aten::mm", &[&[2, 3], &[4, 4]]);
        complete(&mut call, &[]);
        assert!(call.outputs.is_empty());
    }

    #[test]
    fn a_convolution_without_arguments_is_worked_out_from_its_result() {
        // The first convolution of ResNet-50 has stride 2 and padding 3.
        let mut call = call("aten::cudnn_convolution", &[&[32, 3, 224, 224], &[64, 3, 7, 7]]);
        complete(&mut call, &[vec![32, 64, 112, 112]]);
        assert_eq!(call.attributes["stride"].as_ints(), Some(vec![2, 2]));
        assert_eq!(call.attributes["padding"].as_ints(), Some(vec![3, 3]));
        assert!(call.inferred);
    }
}
