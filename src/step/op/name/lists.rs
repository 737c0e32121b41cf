//! Operators on lists of tensors, used in parameter updates.

use crate::profile::Attribute;

/// Whether the operator takes lists of tensors.
pub fn takes_lists(name: &str) -> bool {
    ["aten::_foreach_", "aten::_fused_", "aten::_amp_foreach_"].iter().any(|start| name.starts_with(start))
}

/// The operator that it calls for each tensor of its lists.
pub fn each(name: &str) -> Option<&str> {
    name.strip_prefix("aten::_foreach_").map(|each| each.trim_end_matches('_'))
}

/// Whether `name` is the per-tensor call of a list operator.
pub fn is_each(name: &str, each: &str) -> bool {
    name.strip_prefix("aten::").is_some_and(|name| name.trim_end_matches('_') == each)
        || each == "norm" && name == "aten::linalg_vector_norm"
}

/// Whether the operator also has a list form.
pub fn has_lists(name: &str) -> bool {
    EACH.contains(&name.strip_prefix("aten::").unwrap_or_default())
}

/// Operators that also have a list form.
#[rustfmt::skip]
const EACH: &[&str] = &[
    "abs", "add", "add_", "addcdiv", "addcdiv_", "addcmul", "addcmul_", "copy_", "div", "div_", "lerp", "lerp_",
    "maximum", "maximum_", "mul", "mul_", "neg", "pow", "reciprocal", "sign", "sqrt", "sqrt_", "sub_", "zero_",
];

/// Number of lists as long as the parameters that a fused optimizer takes: parameters, gradients and optimizer state.
/// `scalars` are its arguments by position.
pub fn fused_lists(name: &str, scalars: &[Option<Attribute>]) -> Option<usize> {
    let scalar = |position: usize| scalars.get(position).and_then(Option::as_ref);
    match name {
        // AMSGrad also keeps the largest second moments.
        "aten::_fused_adam_" | "aten::_fused_adamw_" => {
            Some(4 + usize::from(scalar(11) == Some(&Attribute::Bool(true))))
        }
        "aten::_fused_adagrad_" => Some(3),
        // Without momentum there are no momentum buffers.
        "aten::_fused_sgd_" => {
            let is_zero = |value: &Attribute| *value == Attribute::Int(0) || *value == Attribute::Float(0.0);
            Some(3 - usize::from(scalar(4).is_some_and(is_zero)))
        }
        _ => None,
    }
}

/// Function of an operator in an optimizer's update, which identifies the optimizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateStep {
    /// The whole update, which keeps at least this many numbers per parameter.
    Whole(u8),
    /// Moves a running average towards the gradient (Adam's first moment).
    Average,
    /// Adds a quotient to the parameter (divided by the root of an average of squares).
    Quotient,
    /// Scales in place.
    Scale,
    /// Adds in place.
    Add,
}

/// Function of an operator in an update, and whether it works on lists of tensors.
pub fn update_step(name: &str) -> Option<(UpdateStep, bool)> {
    let whole = |states| Some((UpdateStep::Whole(states), true));
    match name {
        "aten::_fused_adam_" | "aten::_fused_adamw_" => return whole(2),
        "aten::_fused_adagrad_" => return whole(1),
        _ => {}
    }
    let lists = name.strip_prefix("aten::_foreach_");
    let step = match lists.or_else(|| name.strip_prefix("aten::"))? {
        "lerp_" => UpdateStep::Average,
        "addcdiv_" => UpdateStep::Quotient,
        "mul_" => UpdateStep::Scale,
        "add_" => UpdateStep::Add,
        _ => return None,
    };
    Some((step, lists.is_some()))
}
