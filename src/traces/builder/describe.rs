//! Describes a call from its arguments. Traces do not record the shapes of results; they are filled in if they follow
//! from the inputs.

use std::collections::BTreeMap;

use crate::{Layout, Scalars, TENSORS, Tensors};
use habitat_step::op::name::{Form, Name};
use habitat_step::op::{convolution_geometry, name, results, volume};
use habitat_step::profile::tensors::{INPUT_DTYPES, note_channels_last, note_dtypes};
use habitat_step::profile::{Attribute, DType, Shape};

/// Description of an operator call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Description {
    pub(super) name: String,
    pub(super) inputs: Vec<Shape>,
    pub(super) outputs: Vec<Shape>,
    pub(super) dtype: Option<DType>,
    pub(super) attributes: BTreeMap<String, Attribute>,
    /// Stride and padding were derived from shapes.
    pub(super) inferred: bool,
}

/// Describes a call from its arguments, and from the shapes of its results if known.
pub(super) fn describe(operator: &str, tensors: &Tensors, scalars: &Scalars, known_outputs: &[Shape]) -> Description {
    let attribute =
        |(position, attribute): &(usize, &str)| Some(((*attribute).to_owned(), scalars.get(*position)?.clone()?));
    let mut description = Description {
        name: operator.to_owned(),
        inputs: tensors.shapes.clone(),
        dtype: tensors.dtype.clone(),
        attributes: name::positions(operator).iter().filter_map(attribute).collect(),
        ..Description::default()
    };
    let mut dtypes = tensors.dtypes.clone();
    // With `out=` the result is an argument too.
    description.inputs.truncate(name::tensors(operator).unwrap_or(TENSORS));
    present_name(&mut description, &mut dtypes);
    complete(&mut description, known_outputs);
    note_tensors(&mut description, &dtypes, tensors.layout);
    description
}

/// Adds attributes of single tensors, after everything else has read the arguments.
fn note_tensors(call: &mut Description, dtypes: &[Option<DType>], layout: Layout) {
    let Description { name, inputs, outputs, dtype, attributes, .. } = call;
    let typed = inputs.iter().zip(dtypes.iter().map(Option::as_ref).chain(std::iter::repeat(None)));
    note_dtypes(attributes, INPUT_DTYPES, dtype.as_ref(), typed);
    if layout.channels_last {
        note_channels_last(attributes);
    }
    // Softmax and norms copy non-contiguous inputs first, and that copy is an operator of its own. A compiled kernel is
    // specialised for its layout. A result larger than all inputs is written in memory order.
    let elements = |shapes: &[Shape]| shapes.iter().map(volume).fold(0.0, f64::max);
    let is_eager = name::is_own(name) && matches!(Name::of(name).form, Form::Stream(_));
    if let Some(access) = layout.access.filter(|_| is_eager && elements(outputs) <= elements(inputs)) {
        access.note(attributes);
    }
}

/// Gives renamed operators their current name and argument order, so that predictors need to know only that one.
fn present_name(description: &mut Description, dtypes: &mut [Option<DType>]) {
    if let Some(name) = name::gradients_since(&description.name)
        && description.inputs.len() >= 3
    {
        name.clone_into(&mut description.name);
        description.inputs.swap(0, 1);
        if dtypes.len() >= 2 {
            dtypes.swap(0, 1);
        }
    }
}

/// Fills in result shapes, and the stride and padding of a convolution with a known result shape but unknown arguments.
///
/// `known` are the shapes of the gradients of the results, which equal those of the results.
fn complete(call: &mut Description, known: &[Shape]) {
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
    use habitat_step::profile::tensors::{ACCESS, Access, MEMORY_FORMAT};

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

    fn shapes(shapes: &[&[u64]]) -> Tensors {
        let shapes = shapes.iter().map(|shape| shape.to_vec()).collect();
        Tensors { shapes, dtype: Some(DType::Float32), ..Tensors::default() }
    }

    #[test]
    fn attributes_are_taken_by_position() {
        let ones = || Some(Attribute::List(vec![Attribute::Int(1); 2]));
        let (not, one) = (Some(Attribute::Bool(false)), Some(Attribute::Int(1)));
        let scalars = vec![None, None, None, None, ones(), ones(), ones(), not, ones(), one, None];
        let tensors = shapes(&[&[10, 512, 7, 7], &[10, 512, 7, 7], &[512, 512, 3, 3]]);
        let call = describe("aten::convolution_backward", &tensors, &scalars, &[]);
        assert_eq!(call.attributes["stride"].as_ints(), Some(vec![1, 1]));
        assert_eq!(call.attributes["groups"], Attribute::Int(1));
        assert_eq!(call.attributes["transposed"], Attribute::Bool(false));
    }

    #[test]
    fn what_is_said_of_single_tensors_is_noted() {
        let half = |shape: &[u64]| (shape.to_vec(), Some(DType::Float16));
        let single = |shape: &[u64]| (shape.to_vec(), Some(DType::Float32));
        let image: &[u64] = &[8, 64, 16, 16];
        let layout = Layout { channels_last: true, access: Some(Access::Strided) };
        let tensors = Tensors { layout, ..Tensors::new([half(image), single(&[64]), single(&[64])]) };
        let call = describe("aten::native_batch_norm", &tensors, &Scalars::new(), &[]);
        assert_eq!(call.attributes[MEMORY_FORMAT], Attribute::Text("channels_last".to_owned()));
        let named = ["float16", "float32", "float32"].map(|name| Attribute::Text(name.to_owned()));
        assert_eq!(call.attributes[INPUT_DTYPES], Attribute::List(named.to_vec()));
        // A norm copies its input first.
        assert!(!call.attributes.contains_key(ACCESS));
        let access = |name: &str, tensors: &Tensors| {
            describe(name, tensors, &Scalars::new(), &[]).attributes.get(ACCESS).cloned()
        };
        assert_eq!(access("aten::copy_", &tensors), Some(Attribute::Text("strided".to_owned())));
        assert_eq!(access("triton_poi_fused_add_0", &tensors), None);
        // Two vectors broadcast to a result.
        let spread = Tensors { layout, ..Tensors::new([half(&[64, 1]), half(&[1, 64])]) };
        assert_eq!(access("aten::mul", &spread), None);
        // Before PyTorch 1.10 the gradient of the result was the second argument.
        let tensors = Tensors::new([half(image), single(image), half(&[64, 64, 1, 1])]);
        let call = describe("aten::cudnn_convolution_backward", &tensors, &Scalars::new(), &[]);
        let named = ["float32", "float16", "float16"].map(|name| Attribute::Text(name.to_owned()));
        assert_eq!(call.attributes[INPUT_DTYPES], Attribute::List(named.to_vec()));
        assert!(!call.attributes.contains_key(MEMORY_FORMAT) && call.inferred);
    }

    #[test]
    fn renamed_operators_take_their_present_argument_order() {
        let tensors = shapes(&[&[32, 512, 7, 7], &[32, 2048, 7, 7], &[2048, 512, 1, 1]]);
        let call = describe("aten::cudnn_convolution_backward", &tensors, &Scalars::new(), &[]);
        assert_eq!(call.name, "aten::convolution_backward");
        assert_eq!(call.inputs[0], [32, 2048, 7, 7]);
    }
}
