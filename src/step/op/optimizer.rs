//! The optimizer of a step, and the state it keeps per parameter, from the operators of its update.

use super::name::{UpdateStep, update_step};
use crate::profile::{DType, Operation, Phase};

/// The optimizer of a recorded step.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    /// Numbers that it keeps per parameter, at least: 2 for Adam, 1 for SGD with momentum, `RMSprop` and Adagrad, 0 for
    /// plain SGD.
    pub states: u8,
    /// Element type of the update, if known.
    pub dtype: Option<DType>,
}

impl Optimizer {
    /// Identifies the optimizer from the operations of the update; `None` if they are missing or ambiguous.
    ///
    /// Gradient clipping also scales and adds. Momentum is recognized by two additions per scaling: the gradient to the
    /// buffer, and the buffer to the parameter.
    pub fn of(operations: &[Operation]) -> Option<Self> {
        let steps = || {
            let updates = operations.iter().filter(|operation| operation.phase == Phase::Optimizer);
            updates.filter_map(|operation| Some((operation, update_step(&operation.name)?)))
        };
        let count = |step: UpdateStep, lists: bool| -> u64 {
            let alike = steps().filter(|(_, found)| *found == (step, lists));
            alike.map(|(operation, _)| u64::from(operation.count)).sum()
        };
        let has = |step: UpdateStep| count(step, true) + count(step, false) > 0;
        let has_momentum = |lists: bool| {
            let scaled = count(UpdateStep::Scale, lists);
            scaled > 0 && count(UpdateStep::Add, lists) >= 2 * scaled
        };
        let whole = steps().filter_map(|(_, (step, _))| match step {
            UpdateStep::Whole(states) => Some(states),
            _ => None,
        });
        let states = match whole.min() {
            Some(states) => states,
            None if has(UpdateStep::Quotient) || has(UpdateStep::Average) => {
                u8::from(has(UpdateStep::Quotient)) + u8::from(has(UpdateStep::Average))
            }
            None if has_momentum(true) || has_momentum(false) => 1,
            None if has(UpdateStep::Add) => 0,
            None => return None,
        };
        Some(Self { states, dtype: steps().find_map(|(operation, _)| operation.dtype.clone()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn states(operations: &[(&str, u32)]) -> Option<u8> {
        let operations: Vec<String> = operations
            .iter()
            .map(|(name, count)| {
                format!(r#"{{"name": "aten::{name}", "phase": "optimizer", "count": {count}, "dtype": "float32"}}"#)
            })
            .collect();
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}}, "operations": [{}]}}"#,
            operations.join(",")
        );
        let profile = Profile::from_json(json.as_bytes()).unwrap().0;
        Optimizer::of(&profile.operations).map(|found| found.states)
    }

    #[test]
    fn optimizers_are_told_by_their_operators() {
        assert_eq!(states(&[("_fused_adamw_", 1)]), Some(2));
        assert_eq!(states(&[("_foreach_lerp_", 1), ("_foreach_mul_", 1), ("_foreach_addcdiv_", 1)]), Some(2));
        assert_eq!(states(&[("lerp_", 40), ("addcmul_", 40), ("addcdiv_", 40)]), Some(2));
        assert_eq!(states(&[("_foreach_mul_", 1), ("_foreach_addcmul_", 1), ("_foreach_addcdiv_", 1)]), Some(1));
        assert_eq!(states(&[("_foreach_mul_", 1), ("_foreach_add_", 2)]), Some(1));
        assert_eq!(states(&[("mul_", 161), ("add_", 322)]), Some(1));
        assert_eq!(states(&[("_foreach_add_", 1)]), Some(0));
        // Gradient clipping before plain SGD.
        assert_eq!(states(&[("mul_", 43), ("_foreach_add_", 1)]), Some(0));
        assert_eq!(states(&[("_foreach_mul_", 1), ("_foreach_add_", 1)]), Some(0));
        // Momentum is unknown.
        assert_eq!(states(&[("_fused_sgd_", 1)]), None);
        assert_eq!(states(&[("empty", 1)]), None);
    }

    #[test]
    fn the_samples_say_which_they_used() {
        for (name, states) in [("dcgan-b64", 2), ("gnmt-b16", 2), ("resnet50-b64", 1), ("resnet50-v100-b32", 1)] {
            let profile = crate::shipped::sample(name);
            let found = Optimizer::of(&profile.operations).unwrap();
            assert_eq!((found.states, found.dtype), (states, Some(DType::Float32)), "{name}");
        }
    }
}
