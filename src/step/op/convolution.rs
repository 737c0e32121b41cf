//! Convolutions and their gradients.

use std::collections::BTreeMap;

use super::{Arithmetic, Pass, Primitive, Work, elements};
use crate::profile::tensors::is_channels_last;
use crate::profile::{Attribute, Operation, Shape};
use habitat_base::units::{Bytes, Flops};

/// A convolution or its gradients. The sizes are those of the forward pass.
#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    /// Batch size in images.
    pub images: f64,
    /// Channel groups.
    pub groups: f64,
    /// Input channels of all groups.
    pub in_channels: f64,
    /// Output channels of all groups.
    pub out_channels: f64,
    /// Spatial extents of an input image.
    pub image: Vec<u64>,
    /// Spatial extents of the filter.
    pub filter: Vec<u64>,
    /// Stride, per dimension or one for all.
    pub stride: Vec<i64>,
    /// Padding on each side in pixels, per dimension or one for all.
    pub padding: Vec<i64>,
    /// Dilation, per dimension or one for all.
    pub dilation: Vec<i64>,
    /// Spatial extents of an output image; `None` for a transposed convolution recorded without result and stride.
    pub out_image: Option<Vec<u64>>,
    /// Whether it is transposed, that is, computes like the data gradient of an ordinary convolution.
    pub transposed: bool,
    /// Gradients that it computes, by data and by weight; `None` in the forward pass.
    pub gradients: Option<[bool; 2]>,
    /// Whether the memory layout is channels-last (NHWC), as far as recorded.
    pub channels_last: bool,
}

impl Convolution {
    /// Sizes from the shapes: forward `[input, weight, …]`, backward `[grad_output, input, weight, …]`. A recorded
    /// `output_mask` lists the gradients that are computed.
    pub(super) fn of(operation: &Operation, pass: Pass, transposed: bool) -> Option<Self> {
        Self::from_shapes(&operation.inputs, &operation.outputs, &operation.attributes, pass, transposed)
    }

    pub(super) fn from_shapes(
        inputs: &[Shape],
        outputs: &[Shape],
        attributes: &BTreeMap<String, Attribute>,
        pass: Pass,
        transposed: bool,
    ) -> Option<Self> {
        let is_true = |attribute: Option<&Attribute>| matches!(attribute, Some(Attribute::Bool(true)));
        let transposed = transposed || is_true(attributes.get("transposed"));
        let tensors: Vec<&Shape> = inputs.iter().filter(|shape| shape.len() >= 3).collect();
        let backward = pass.is_backward();
        let [input, weight] = tensors.get(usize::from(backward)..usize::from(backward) + 2)? else { return None };
        // A single image has no batch dimension.
        let (images, input) = match (input.len().checked_sub(weight.len()), &input[..]) {
            (Some(0), [images, rest @ ..]) => (*images as f64, rest),
            (None, input) if input.len() + 1 == weight.len() => (1.0, input),
            _ => return None,
        };
        let result = if backward { tensors.first().copied() } else { outputs.first() };
        let result = result.filter(|result| result.len() == weight.len());
        let gradients = match (pass, attributes.get("output_mask")) {
            (Pass::Forward, _) => None,
            (_, Some(Attribute::List(mask))) => Some([is_true(mask.first()), is_true(mask.get(1))]),
            // The separate kernels of older releases compute one gradient each.
            (Pass::DataGradient, _) => Some([true, false]),
            (Pass::WeightGradient, _) => Some([false, true]),
            (Pass::Backward, _) => Some([true, true]),
        };
        // Weight shape: [out, in / groups, …]; transposed [in, out / groups, …].
        let (in_channels, first, second) = (input[0] as f64, weight[0] as f64, weight[1].max(1) as f64);
        let groups = if transposed {
            let counted = attributes.get("groups").and_then(Attribute::as_int).map(|groups| groups as f64);
            counted.or_else(|| Some(result?[1] as f64 / second)).unwrap_or(1.0)
        } else {
            in_channels / second
        };
        let list = |key: &str, default: i64| -> Vec<i64> {
            attributes.get(key).and_then(Attribute::as_ints).unwrap_or_else(|| vec![default])
        };
        let mut found = Self {
            images,
            groups: groups.max(1.0),
            in_channels,
            out_channels: if transposed { second * groups.max(1.0) } else { first },
            image: input[1..].to_vec(),
            filter: weight[2..].to_vec(),
            stride: list("stride", 1),
            padding: list("padding", 0),
            dilation: list("dilation", 1),
            out_image: None,
            transposed,
            gradients,
            channels_last: is_channels_last(attributes),
        };
        let is_same = matches!(attributes.get("padding"), Some(Attribute::Text(word)) if word == "same");
        if is_same {
            // "Same" padding of an even filter is one pixel larger on one side.
            let reach = |(index, kernel): (usize, &u64)| {
                Some(at(&found.dilation, index)?.checked_mul(kernel.checked_sub(1)?)?.cast_signed() / 2)
            };
            found.padding = found.filter.iter().enumerate().map(reach).collect::<Option<_>>()?;
        }
        found.out_image = match result {
            Some(result) => Some(result[2..].to_vec()),
            None if is_same => Some(found.image.clone()),
            None if transposed && !attributes.contains_key("stride") => None,
            None => Some(found.result(&list("output_padding", 0))?),
        };
        Some(found)
    }

    /// Spatial extents of the result; `extra` is the output padding of a transposed convolution. `None` if the filter
    /// does not fit.
    fn result(&self, extra: &[i64]) -> Option<Vec<u64>> {
        let sizes = self.image.iter().zip(&self.filter).enumerate();
        let extents = sizes.map(|(index, (&size, &kernel))| {
            let (stride, padding) = (at(&self.stride, index)?, at(&self.padding, index)?);
            let dilation = at(&self.dilation, index)?;
            if !self.transposed {
                return extent(size, kernel, stride, padding, dilation);
            }
            // (size − 1) · stride − 2 · padding + dilation · (kernel − 1) + extra + 1
            let reach = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(at(extra, index)?)?;
            let whole = size.checked_sub(1)?.checked_mul(stride)?.checked_add(reach)?.checked_add(1)?;
            whole.checked_sub(padding.checked_mul(2)?)
        });
        extents.collect()
    }

    /// Number of gradients computed; 1 in the forward pass.
    pub fn passes(&self) -> f64 {
        self.gradients.map_or(1.0, |formed| formed.into_iter().filter(|formed| *formed).count() as f64)
    }

    fn weights(&self) -> f64 {
        self.out_channels * elements(&self.filter) * self.in_channels / self.groups
    }

    /// Work of all passes. FLOPs are 2 · output pixels · weights; for a transposed convolution 2 · input pixels ·
    /// weights, because it computes like the data gradient of an ordinary one. Each gradient costs the same. Results of
    /// unknown size do not count as traffic.
    pub(super) fn work(&self, element: f64) -> Work {
        let in_pixels = elements(&self.image);
        let out_pixels = self.out_image.as_deref().map_or(0.0, elements);
        let pixels = if self.transposed { in_pixels } else { out_pixels };
        let flops = 2.0 * self.images * pixels * self.weights() * self.passes();
        let tensors = self.images * (self.in_channels * in_pixels + self.out_channels * out_pixels);
        let moved = (tensors + self.weights()) * self.passes();
        Work { flops: Flops::known(flops), bytes: Bytes::known(moved * element), arithmetic: Arithmetic::Convolution }
    }

    /// Parts for the learned models. The data gradient is a convolution with the channels exchanged. The weight
    /// gradient has the FLOPs of the forward pass and is assumed to run like it.
    pub(super) fn primitives(&self) -> Vec<(Primitive, f64)> {
        let (in_pixels, taps) = (elements(&self.image), elements(&self.filter));
        let out_pixels = self.out_image.as_deref().map_or(in_pixels * taps.sqrt(), elements);
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

/// Value for one dimension, from a list or one value for all.
fn at(values: &[i64], index: usize) -> Option<u64> {
    u64::try_from(*values.get(index).or(values.first())?).ok()
}

/// ⌊(size + 2·padding − dilation·(kernel − 1) − 1) / stride⌋ + 1.
pub(super) fn extent(size: u64, kernel: u64, stride: u64, padding: u64, dilation: u64) -> Option<u64> {
    let reach = dilation.checked_mul(kernel.checked_sub(1)?)?.checked_add(1)?;
    let padded = size.checked_add(padding.checked_mul(2)?)?.checked_sub(reach)?;
    padded.checked_div(stride)?.checked_add(1)
}

#[cfg(test)]
mod tests {
    use crate::op::{Op, Sizes};
    use crate::profile::Operation;

    #[test]
    fn the_order_in_memory_is_read_off_the_attribute() {
        let channels_last = |attributes: &str| {
            let json = format!(
                r#"{{"name": "aten::convolution", "phase": "forward", "dtype": "float16",
                "inputs": [[8, 64, 16, 16], [64, 64, 3, 3]], "attributes": {attributes}}}"#
            );
            let operation: Operation = serde_json::from_str(&json).unwrap();
            let Some(Sizes::Convolution(convolution)) = Op::of(&operation).sizes else { return None };
            Some(convolution.channels_last)
        };
        assert_eq!(channels_last("{}"), Some(false));
        assert_eq!(channels_last(r#"{"memory_format": "channels_last"}"#), Some(true));
        assert_eq!(channels_last(r#"{"memory_format": "contiguous"}"#), Some(false));
    }
}
