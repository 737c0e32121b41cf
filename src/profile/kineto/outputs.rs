//! Result shapes, which traces do not record, where they follow from the inputs.

use super::args::Description;
use crate::op::{convolution_geometry, results};
use crate::profile::{Attribute, Shape};

/// Fills in result shapes, and the stride and padding of a convolution of which the
/// result shape is known and the arguments are not.
///
/// `known` are the shapes of the gradients that come back for the results; they equal
/// those of the results.
pub(super) fn complete(call: &mut Description, known: &[Shape]) {
    let certain = results(&call.name, &call.inputs, &call.attributes);
    call.outputs = if certain.is_empty() { known.to_vec() } else { certain };
    if call.attributes.is_empty()
        && let Some(geometry) = convolution_geometry(&call.name, &call.inputs, &call.outputs)
    {
        let list = |values: &[u64]| Attribute::List(values.iter().map(|v| Attribute::Int(v.cast_signed())).collect());
        let dilation = vec![1; geometry.stride.len()];
        call.attributes.insert("stride".to_owned(), list(&geometry.stride));
        call.attributes.insert("padding".to_owned(), list(&geometry.padding));
        call.attributes.insert("dilation".to_owned(), list(&dilation));
        call.attributes.insert("groups".to_owned(), Attribute::Int(geometry.groups.cast_signed()));
        call.inferred = true;
    }
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
