//! Which tensors of an operator are parameters.

use super::name::{LookupForm, ProductForm};
use super::{Form, Name};
use crate::profile::{Operation, Phase, Shape};

/// Which inputs of an operator are parameters, by the operator's meaning.
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
        Form::Product(form) if operation.phase == Phase::Forward => {
            let weight_last = match form {
                ProductForm::Linear | ProductForm::LinearBackward => true,
                ProductForm::BiasFirst => inputs.last().is_some_and(|shape| shape.len() == 2),
                _ => inputs.iter().all(|shape| shape.len() == 2),
            };
            if weight_last { from(inputs.len().saturating_sub(1).max(1), &|_| true) } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Whether an output is the gradient of a parameter: of convolutions and normalisations, all
/// that have not the shape of the layer's input.
pub fn is_parameter_gradient(operation: &Operation, name: Name, output: &Shape) -> bool {
    matches!(name.form, Form::Convolution { .. } | Form::Normalisation(_))
        && name.pass.is_backward()
        && operation.inputs.get(1).is_some_and(|input| input != output)
}
