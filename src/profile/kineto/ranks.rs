//! The profiles of several ranks of one job made one.

use std::collections::HashMap;

use super::timing::median;
use super::{Import, KinetoError};
use crate::profile::{Operation, Recording, Step};
use crate::units::{Bytes, Micros};

/// The rank with the median step, with every figure the median over the ranks.
///
/// Kernels of a collective wait for the slowest rank, so their time differs from rank to
/// rank; the median keeps one late rank from standing for all.
pub(super) fn combine(mut imports: Vec<Import>) -> Result<Import, KinetoError> {
    let count = imports.len();
    if count <= 1 {
        return imports.pop().ok_or(KinetoError::NoSources);
    }
    let duration = |import: &Import| import.profile.measured_step().unwrap_or_default();
    imports.sort_by(|a, b| duration(a).total_cmp(&duration(b)));
    let mut chosen = imports[(count - 1) / 2].clone();
    let others: Vec<HashMap<String, &Operation>> = imports
        .iter()
        .map(|import| import.profile.operations.iter().map(|operation| (identity(operation), operation)).collect())
        .collect();
    for operation in &mut chosen.profile.operations {
        let identity = identity(operation);
        let times = others.iter().filter_map(|rank| rank.get(&identity)?.device_time).map(Micros::get);
        if let Some(own) = operation.device_time {
            let time = median(times);
            let scale = if own.get() > 0.0 { time / own.get() } else { 1.0 };
            operation.device_time = Some(Micros::known(time));
            for kernel in &mut operation.kernels {
                kernel.duration = kernel.duration * scale;
            }
        }
    }
    if let Some(step) = &mut chosen.profile.step {
        combine_steps(step, &imports);
    }
    let recording = chosen.profile.recording.get_or_insert_with(|| Recording {
        source: "kineto traces".to_owned(),
        step_marks: None,
        ranks: None,
        joined_share: None,
        notes: Vec::new(),
    });
    recording.ranks = u32::try_from(count).ok();
    recording.notes.insert(
        0,
        format!("{count} ranks: the operations of the rank with the median step, with medians over the ranks"),
    );
    Ok(chosen)
}

fn identity(operation: &Operation) -> String {
    format!(
        "{}|{:?}|{:?}|{:?}|{:?}|{:?}|{:?}",
        operation.name,
        operation.phase,
        operation.module,
        operation.inputs,
        operation.dtype,
        operation.attributes,
        operation.kernels.iter().map(|kernel| &kernel.name).collect::<Vec<_>>()
    )
}

fn combine_steps(step: &mut Step, imports: &[Import]) {
    let steps = || imports.iter().filter_map(|import| import.profile.step.as_ref());
    let over = |value: fn(&Step) -> Option<Micros>| {
        let values: Vec<f64> = steps().filter_map(value).map(Micros::get).collect();
        (!values.is_empty()).then(|| Micros::known(median(values.into_iter())))
    };
    step.duration = over(|step| step.duration);
    step.device_busy = over(|step| step.device_busy);
    let low =
        steps().filter_map(|step| step.duration_range.map(|range| range[0]).or(step.duration)).reduce(Micros::min);
    let high =
        steps().filter_map(|step| step.duration_range.map(|range| range[1]).or(step.duration)).reduce(Micros::max);
    step.duration_range = low.zip(high).map(|(low, high)| [low, high]);
    step.peak_memory_bytes = steps().filter_map(|step| step.peak_memory_bytes).reduce(Bytes::max);
}
