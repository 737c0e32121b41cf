//! Combines the profiles of the ranks of one job.

use std::collections::HashMap;

use super::options::Import;
use super::timing::median;
use habitat_base::units::{Bytes, Micros};
use habitat_step::profile::{Operation, Recording, Step};

/// The rank with the median step, with all times as medians over the ranks.
///
/// Kernels of a collective wait for the slowest rank, so their time differs between ranks; the median keeps one late
/// rank from representing all. `None` for an empty list.
pub fn combine(mut imports: Vec<Import>) -> Option<Import> {
    let count = imports.len();
    if count <= 1 {
        return imports.pop();
    }
    let exchanges = imports.iter().flat_map(|import| import.summary.exchanges.clone()).collect();
    let duration = |import: &Import| import.profile.measured_step().unwrap_or_default();
    imports.sort_by(|a, b| duration(a).total_cmp(&duration(b)));
    let mut chosen = imports[(count - 1) / 2].clone();
    chosen.summary.exchanges = exchanges;
    let others: Vec<HashMap<(String, usize), &Operation>> = imports
        .iter()
        .map(|import| identities(&import.profile.operations).into_iter().zip(&import.profile.operations).collect())
        .collect();
    let own = identities(&chosen.profile.operations);
    for (operation, identity) in chosen.profile.operations.iter_mut().zip(own) {
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
        tf32_known: false,
        source: "recordings of several ranks".to_owned(),
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
    Some(chosen)
}

/// Identity of each operation in its rank, and a number among operations with the same identity.
fn identities(operations: &[Operation]) -> Vec<(String, usize)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let number = |operation: &Operation| {
        let identity = identity(operation);
        let next = seen.entry(identity.clone()).or_default();
        *next += 1;
        (identity, *next)
    };
    operations.iter().map(number).collect()
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
        // Include the launch: without shapes only it distinguishes a large call from a small one.
        operation.kernels.iter().map(|kernel| (&kernel.name, kernel.grid, kernel.block)).collect::<Vec<_>>()
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
    step.exposed_communication = over(|step| step.exposed_communication);
    let low =
        steps().filter_map(|step| step.duration_range.map(|range| range[0]).or(step.duration)).reduce(Micros::min);
    let high =
        steps().filter_map(|step| step.duration_range.map(|range| range[1]).or(step.duration)).reduce(Micros::max);
    step.duration_range = low.zip(high).map(|(low, high)| [low, high]);
    step.peak_memory_bytes = steps().filter_map(|step| step.peak_memory_bytes).reduce(Bytes::max);
}
