//! Parameters and batch dimensions among the tensors of an operator.

use super::name::{LookupForm, ProductForm};
use super::{Form, Name};
use crate::profile::{Operation, Phase, Shape};

/// Input positions that hold parameters, by the operator's meaning.
pub fn parameters(operation: &Operation) -> Vec<usize> {
    let name = Name::of(&operation.name);
    let inputs = &operation.inputs;
    let backward = name.pass.is_backward();
    let from = |first: usize, keep: &dyn Fn(&Shape) -> bool| -> Vec<usize> {
        (first..inputs.len()).filter(|&index| keep(&inputs[index])).collect()
    };
    match name.form {
        Form::Convolution { .. } if backward => from(2, &|_| true).into_iter().take(1).collect(),
        Form::Convolution { .. } => from(1, &|_| true),
        Form::Normalisation(_) => from(if backward { 2 } else { 1 }, &|shape| shape.len() == 1),
        Form::Recurrent { .. } => from(1, &|shape| shape.len() < 3),
        Form::Lookup(LookupForm::Embedding | LookupForm::Index | LookupForm::Put { .. }) if !backward => {
            from(0, &|_| true).into_iter().take(1).collect()
        }
        Form::Product(form) if operation.phase == Phase::Forward => match form {
            // The weight and tensors that belong to it: a bias, scales.
            ProductForm::Linear | ProductForm::Packed { .. } | ProductForm::Grouped => from(1, &|_| true),
            ProductForm::LinearBackward => from(2, &|_| true),
            ProductForm::BiasFirst => {
                let is_layer = inputs.last().is_some_and(|shape| shape.len() == 2);
                let is_held = |index: &usize| *index == 2 || inputs[*index].len() == 1;
                (0..inputs.len()).filter(|index| is_layer && is_held(index)).collect()
            }
            _ if inputs.iter().all(|shape| shape.len() == 2) => from(inputs.len().saturating_sub(1).max(1), &|_| true),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Possible positions of the batch among the extents of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchAxis {
    /// Nowhere: a parameter, its gradient, or one number per channel.
    None,
    /// The first extent, or nowhere.
    First,
    /// Any extent.
    Any,
}

/// Possible positions of the batch in each input and each output of an operator.
pub fn batch_axes(operation: &Operation) -> [Vec<BatchAxis>; 2] {
    let name = Name::of(&operation.name);
    let parameters = parameters(operation);
    // Outputs of the backward pass of convolutions and normalisations whose shape differs from the input's: gradients
    // of parameters.
    let forms_gradients =
        name.pass.is_backward() && matches!(name.form, Form::Convolution { .. } | Form::Normalisation(_));
    let input = operation.inputs.get(1).filter(|_| forms_gradients);
    let axis = |held: bool, shape: &Shape| match name.form {
        _ if held => BatchAxis::None,
        Form::Recurrent { .. } if shape.len() < 3 => BatchAxis::None,
        Form::Normalisation(_) if shape.len() < 2 => BatchAxis::None,
        Form::Convolution { .. } | Form::Pooling if shape.len() > 2 => BatchAxis::First,
        _ => BatchAxis::Any,
    };
    let inputs = operation.inputs.iter().enumerate().map(|(index, shape)| axis(parameters.contains(&index), shape));
    let outputs = operation.outputs.iter().map(|shape| axis(input.is_some_and(|input| input != shape), shape));
    [inputs.collect(), outputs.collect()]
}
