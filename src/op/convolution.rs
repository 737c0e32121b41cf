//! Convolutions and their gradients.

use super::{Arithmetic, Pass, Primitive, Work};
use crate::profile::{Attribute, Operation, Shape};
use crate::units::{Bytes, Flops};

/// A convolution, or gradients of one: the sizes are those of the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// Images.
    pub images: f64,
    /// Groups of channels that do not meet.
    pub groups: f64,
    /// Input channels, of all groups.
    pub in_channels: f64,
    /// Output channels, of all groups; of a transposed convolution those of one group.
    pub out_channels: f64,
    /// Extents of an input image.
    pub image: Vec<u64>,
    /// Extents of the filter.
    pub filter: Vec<u64>,
    /// From one output pixel to the next, in each dimension or in all.
    pub stride: Vec<i64>,
    /// Pixels added on each side.
    pub padding: Vec<i64>,
    /// From one element of the filter to the next.
    pub dilation: Vec<i64>,
    /// Pixels of one output image; `None` of a transposed convolution whose result was not
    /// recorded.
    pub out_pixels: Option<f64>,
    /// Whether it is the gradient of an ordinary one by its data.
    pub transposed: bool,
    /// Whether gradients are formed, and of what: the data, the weight.
    pub gradients: Option<[bool; 2]>,
}

impl Convolution {
    /// Forward `[input, weight, …]`, backward `[grad_output, input, weight, …]`;
    /// `output_mask`, where recorded, says which gradients are formed.
    pub(super) fn of(operation: &Operation, pass: Pass, transposed: bool) -> Option<Self> {
        let is_true = |attribute: Option<&Attribute>| matches!(attribute, Some(Attribute::Bool(true)));
        let transposed = transposed || is_true(operation.attributes.get("transposed"));
        let tensors: Vec<&Shape> = operation.inputs.iter().filter(|shape| shape.len() >= 3).collect();
        let backward = pass.is_backward();
        let [input, weight] = tensors.get(usize::from(backward)..usize::from(backward) + 2)? else { return None };
        let gradients = match (pass, operation.attributes.get("output_mask")) {
            (Pass::Forward, _) => None,
            (_, Some(Attribute::List(mask))) => Some([is_true(mask.first()), is_true(mask.get(1))]),
            // The separate kernels of older releases form one gradient each.
            (Pass::DataGradient, _) => Some([true, false]),
            (Pass::WeightGradient, _) => Some([false, true]),
            (Pass::Backward, _) => Some([true, true]),
        };
        // [out, in / groups, …]; of a transposed one [in, out / groups, …].
        let (in_channels, first, second) = (input[1] as f64, weight[0] as f64, weight[1] as f64);
        let groups = if transposed { 1.0 } else { (in_channels / second.max(1.0)).max(1.0) };
        let list = |key: &str, default: i64| -> Vec<i64> {
            operation.attributes.get(key).and_then(Attribute::as_ints).unwrap_or_else(|| vec![default])
        };
        let mut found = Self {
            images: input[0] as f64,
            groups,
            in_channels,
            out_channels: if transposed { second } else { first },
            image: input[2..].to_vec(),
            filter: weight[2..].to_vec(),
            stride: list("stride", 1),
            padding: list("padding", 0),
            dilation: list("dilation", 1),
            out_pixels: None,
            transposed,
            gradients,
        };
        found.out_pixels = match operation.outputs.first() {
            _ if backward => Some(pixels(&tensors[0][2..])),
            Some(output) if output.len() >= 3 => Some(pixels(&output[2..])),
            _ if transposed => None,
            _ => Some(found.result_pixels()),
        };
        Some(found)
    }

    /// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1 in each dimension.
    fn result_pixels(&self) -> f64 {
        // Attributes come from files: no integer arithmetic on them, it could overflow.
        let at = |values: &[i64], index: usize| values.get(index).or(values.first()).map_or(1.0, |&value| value as f64);
        let mut pixels = 1.0;
        for (index, (&size, &kernel)) in self.image.iter().zip(&self.filter).enumerate() {
            let (padding, dilation) = (at(&self.padding, index), at(&self.dilation, index));
            let reach = size as f64 + 2.0 * padding - dilation * (kernel as f64 - 1.0) - 1.0;
            pixels *= (reach.max(0.0) / at(&self.stride, index).max(1.0)).floor() + 1.0;
        }
        pixels
    }

    /// How many gradients are formed; 1 of a forward pass.
    pub fn passes(&self) -> f64 {
        self.gradients.map_or(1.0, |formed| formed.into_iter().filter(|formed| *formed).count() as f64)
    }

    fn weights(&self) -> f64 {
        self.out_channels * pixels(&self.filter) * self.in_channels / self.groups
    }

    /// FLOPs: 2 · outputs · (weights of one output channel); of a transposed convolution
    /// 2 · inputs · (weights of one input channel), as it is the gradient of an ordinary one.
    /// As much for each gradient. Results that are not known are left out of the traffic.
    pub(super) fn work(&self, element: f64) -> Work {
        let (in_pixels, out_pixels) = (pixels(&self.image), self.out_pixels.unwrap_or(0.0));
        let pixels = if self.transposed { in_pixels } else { out_pixels };
        let flops = 2.0 * self.images * pixels * self.weights() * self.passes();
        let tensors = self.images * (self.in_channels * in_pixels + self.out_channels * out_pixels);
        let moved = (tensors + self.weights()) * self.passes();
        Work { flops: Flops::known(flops), bytes: Bytes::known(moved * element), arithmetic: Arithmetic::Convolution }
    }

    /// The gradient of the data is a convolution with the channels exchanged; that of the
    /// weights is taken to run as the forward pass does, with which it shares the arithmetic.
    pub(super) fn primitives(&self) -> Vec<(Primitive, f64)> {
        let (in_pixels, taps) = (pixels(&self.image), pixels(&self.filter));
        let out_pixels = self.out_pixels.unwrap_or_else(|| in_pixels * taps.sqrt());
        let (in_places, out_places) = if self.transposed { (out_pixels, in_pixels) } else { (in_pixels, out_pixels) };
        let convolution = |in_channels, out_channels| Primitive::Convolution {
            batch: self.images,
            groups: self.groups,
            in_channels,
            out_channels,
            taps,
            in_places,
            out_places,
        };
        let forward = convolution(self.in_channels, self.out_channels);
        match self.gradients {
            None => vec![(forward, 1.0)],
            Some(formed) => {
                let [data, weight] = formed.map(|formed| f64::from(u8::from(formed)));
                vec![(convolution(self.out_channels, self.in_channels), data), (forward, weight)]
            }
        }
    }
}

fn pixels(extents: &[u64]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}
