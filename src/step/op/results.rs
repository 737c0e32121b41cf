//! Result shapes that follow from the inputs.

use std::collections::BTreeMap;

use super::convolution::extent;
use super::name::{ResultForm, result};
use super::{Convolution, Pass};
use crate::profile::{Attribute, Shape};

type Attributes = BTreeMap<String, Attribute>;

/// Result shapes that the inputs and attributes determine.
pub fn results(name: &str, inputs: &[Shape], attributes: &Attributes) -> Vec<Shape> {
    let input = |index: usize| inputs.get(index).filter(|shape| !shape.is_empty());
    let shape = match result(name) {
        Some(ResultForm::Product { first, batch }) => {
            input(first).zip(input(first + 1)).and_then(|(a, b)| product(a, b, batch))
        }
        Some(ResultForm::Linear) => input(0).zip(input(1)).and_then(|(x, weight)| {
            let (last, lead) = x.split_last()?;
            (weight.len() == 2 && weight[1] == *last).then(|| lead.iter().copied().chain([weight[0]]).collect())
        }),
        Some(ResultForm::Convolution) => convolved(inputs, attributes),
        Some(ResultForm::Broadcast) => broadcast(inputs),
        Some(ResultForm::First) => input(0).cloned(),
        Some(ResultForm::ConvolutionGradients) | None => None,
    };
    shape.into_iter().collect()
}

/// Stride and padding of a convolution recorded without arguments, if its result shape determines them.
pub fn convolution_geometry(name: &str, inputs: &[Shape], outputs: &[Shape]) -> Option<Geometry> {
    let (input, weight, output) = match result(name)? {
        ResultForm::Convolution => (inputs.first()?, inputs.get(1)?, outputs.first()?),
        ResultForm::ConvolutionGradients => (inputs.get(1)?, inputs.get(2)?, inputs.first()?),
        _ => return None,
    };
    geometry(input, weight, output)
}

fn product(a: &Shape, b: &Shape, batch: usize) -> Option<Shape> {
    (a.len() == batch + 2 && b.len() == batch + 2 && a[batch + 1] == b[batch] && a[..batch] == b[..batch])
        .then(|| a[..=batch].iter().copied().chain([b[batch + 1]]).collect())
}

/// Shape of tensors broadcast together.
pub(super) fn broadcast<S: AsRef<[u64]>>(shapes: &[S]) -> Option<Shape> {
    let length = shapes.iter().map(|shape| shape.as_ref().len()).max().filter(|length| *length > 0)?;
    let mut out = vec![1; length];
    for shape in shapes.iter().map(AsRef::as_ref) {
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

/// Result shape of a convolution with all arguments recorded.
fn convolved(inputs: &[Shape], attributes: &Attributes) -> Option<Shape> {
    let [input, weight] = inputs.get(..2)? else { return None };
    let known = ["stride", "padding", "dilation"].iter().all(|name| attributes.contains_key(*name));
    let layer = Convolution::from_shapes(inputs, &[], attributes, Pass::Forward, false)?;
    (known && input.len() == weight.len() && !layer.transposed)
        .then(|| [input[0], weight[0]].into_iter().chain(layer.out_image.into_iter().flatten()).collect())
}

/// Geometry of a convolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Stride per dimension.
    pub stride: Vec<u64>,
    /// Padding on each side in pixels, per dimension.
    pub padding: Vec<u64>,
    /// Channel groups.
    pub groups: u64,
}

/// Stride and padding that turn `input` into `output`, with dilation 1: the smallest stride that fits, with "same"
/// padding if that fits, otherwise with none.
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
