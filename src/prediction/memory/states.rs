//! Memory of parameters, gradients and optimizer state, independent of the batch.
//!
//! Parameter, gradient and each optimizer state have the size of the element type. Adam in FP32 takes 16 bytes per
//! parameter, SGD with momentum 12, plain SGD 8; Adam in mixed precision also 16 (`ZeRO` paper, section 3.1); inference
//! 4 or 2.

use super::StateKept;
use crate::precision::infer;
use crate::sharding::ModelStates;
use habitat_base::units::Bytes;
use habitat_step::op::Optimizer;
use habitat_step::profile::{DType, Mode, Precision, Profile};

/// Bytes per parameter with gradient and two moments of Adam in FP32: the default if no optimizer is detected.
const MOST_TRAINING: f64 = 16.0;
const MOST_INFERENCE: f64 = 4.0;

/// State memory of a step, by its parameter count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct States {
    /// Minimum for any step.
    pub least: Option<Bytes>,
    /// Content of `least`.
    pub kept: StateKept,
    /// Estimate for the detected optimizer, or Adam if none is certain.
    pub usual: Option<Bytes>,
    /// Estimate with Adam, whatever was detected.
    pub most: Option<Bytes>,
}

/// Estimates the state memory of a recorded step; bytes are `None` without a parameter count.
pub(super) fn states(profile: &Profile) -> States {
    let optimizer = Optimizer::of(&profile.operations);
    let per_parameter = optimizer.as_ref().map_or(0, |found| found.states);
    let element = element(profile, optimizer.as_ref());
    let (least, kept, most) = match (profile.workload.mode, per_parameter) {
        (Mode::Inference, _) => (element, StateKept::Parameters, MOST_INFERENCE),
        (_, 0) => (2.0 * element, StateKept::Gradients, MOST_TRAINING),
        (_, 1) => (3.0 * element, StateKept::OneState, MOST_TRAINING),
        _ => (4.0 * element, StateKept::TwoStates, MOST_TRAINING),
    };
    let most = most.max(least);
    let all = |bytes: f64| profile.workload.parameter_count.map(|count| Bytes::known(count as f64 * bytes));
    States { least: all(least), kept, usual: all(if per_parameter > 0 { least } else { most }), most: all(most) }
}

/// State memory of a training step by kind: recorded, or estimated for the detected optimizer or Adam. `None` for
/// inference and without a parameter count.
///
/// Parameters in 16 bits have a 32-bit copy if the optimizer works on 32 bits.
pub(super) fn by_kind(profile: &Profile) -> Option<ModelStates> {
    if profile.workload.mode == Mode::Inference {
        return None;
    }
    let told = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    if let Some(memory) = told.filter(|memory| memory.parameters.get() > 0.0) {
        return Some(ModelStates {
            parameters: memory.parameters,
            gradients: memory.gradients,
            optimizer: memory.optimizer_state,
            is_assumed: false,
        });
    }
    let count = profile.workload.parameter_count? as f64;
    let optimizer = Optimizer::of(&profile.operations);
    let element = element(profile, optimizer.as_ref());
    let is_narrow = matches!(profile.workload.precision, Some(Precision::Fp16 | Precision::Bf16));
    let own = if is_narrow { element.min(2.0) } else { element };
    let total =
        optimizer.as_ref().map_or(MOST_TRAINING.max(2.0 * own), |found| element * (2.0 + f64::from(found.states)));
    Some(ModelStates {
        parameters: Bytes::known(count * own),
        gradients: Bytes::known(count * own),
        optimizer: Bytes::known(count * (total - 2.0 * own)),
        is_assumed: optimizer.is_none(),
    })
}

/// Bytes per parameter: from the optimizer's element type, otherwise from the precision of the step, otherwise 2.
fn element(profile: &Profile, optimizer: Option<&Optimizer>) -> f64 {
    let of_update = optimizer.and_then(|found| found.dtype.as_ref()).and_then(DType::size_bytes);
    if let Some(bytes) = of_update {
        return bytes as f64;
    }
    let is_typed = profile.operations.iter().any(|operation| operation.dtype.is_some());
    let precision = profile.workload.precision.or_else(|| is_typed.then(|| infer(&profile.operations)));
    match precision {
        // Autocast keeps the weights in 32 bits.
        Some(precision) if precision.is_32_bits() => 4.0,
        Some(Precision::AmpFp16 | Precision::AmpBf16) => 4.0,
        Some(Precision::Fp8) if profile.workload.mode == Mode::Inference => 1.0,
        _ => 2.0,
    }
}
