//! Which parts of a recording are the ranks of one job, and their profiles made one.

use std::collections::{BTreeSet, HashMap};

use super::timing::median;
use super::{Import, KinetoError};
use crate::profile::{Operation, Recording, Step};
use crate::units::{Bytes, Micros};

/// No kernel ran on the GPU asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no kernel ran on device {device}; the recording has kernels of device{} {}", if .known.len() == 1 { "" } else { "s" }, list(.known))]
pub struct NoSuchDevice {
    /// What was asked for.
    pub device: u32,
    /// What there is.
    pub known: Vec<u32>,
}

fn list(devices: &[u32]) -> String {
    devices.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// Parts with less than this share of the busiest one's kernel time are no ranks.
const SHARE: f64 = 0.5;

/// Which parts of a recording are ranks of the job.
#[derive(Debug)]
pub(in crate::profile) struct Ranks {
    /// Their places; none where there are no kernels at all.
    pub(in crate::profile) places: Vec<usize>,
    /// What was left out, for the notes.
    pub(in crate::profile) note: Option<String>,
}

/// Chooses among the parts of a recording (`what` they are, as `processes`), each of which
/// ran kernels on devices by number for so long, in any unit: on the device asked for the
/// busiest part alone (with `CUDA_VISIBLE_DEVICES` every rank calls its GPU 0), else all
/// that are about as busy as the busiest.
///
/// # Errors
/// [`NoSuchDevice`] where no kernel ran on the device asked for.
pub(in crate::profile) fn choose(
    parts: &[Vec<(u32, f64)>],
    device: Option<u32>,
    what: &str,
) -> Result<Ranks, NoSuchDevice> {
    let time = |part: &Vec<(u32, f64)>| {
        let times = part.iter().filter(|(number, _)| device.is_none_or(|device| device == *number));
        times.map(|(_, time)| *time).fold(0.0, f64::max)
    };
    let mut found: Vec<(usize, f64)> = parts.iter().map(time).enumerate().filter(|(_, time)| *time > 0.0).collect();
    let Some(most) = found.iter().map(|(_, time)| *time).max_by(f64::total_cmp) else {
        let known: BTreeSet<u32> =
            parts.iter().flatten().filter(|(_, time)| *time > 0.0).map(|(number, _)| *number).collect();
        return match device {
            Some(device) if !known.is_empty() => Err(NoSuchDevice { device, known: known.into_iter().collect() }),
            _ => Ok(Ranks { places: Vec::new(), note: None }),
        };
    };
    found.retain(|(_, time)| *time >= SHARE * most);
    if device.is_some() {
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found.truncate(1);
    }
    let left_out = parts.iter().filter(|part| !part.is_empty()).count() - found.len();
    let note = (left_out > 0).then(|| match device {
        Some(device) => {
            format!("{left_out} other {what} of the recording are left out, as device {device} was asked for")
        }
        None => format!("{left_out} {what} that worked far less than the others are left out"),
    });
    Ok(Ranks { places: found.into_iter().map(|(place, _)| place).collect(), note })
}

/// The rank with the median step, with every figure the median over the ranks.
///
/// Kernels of a collective wait for the slowest rank, so their time differs from rank to
/// rank; the median keeps one late rank from standing for all.
///
/// # Errors
/// [`KinetoError::NoSources`] where there are none.
pub fn combine(mut imports: Vec<Import>) -> Result<Import, KinetoError> {
    let count = imports.len();
    if count <= 1 {
        return imports.pop().ok_or(KinetoError::NoSources);
    }
    let duration = |import: &Import| import.profile.measured_step().unwrap_or_default();
    imports.sort_by(|a, b| duration(a).total_cmp(&duration(b)));
    let mut chosen = imports[(count - 1) / 2].clone();
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
    Ok(chosen)
}

/// What tells an operation apart in its rank: what it is, and of those that are the same
/// but for how long they take, which.
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
        // The launch too: without shapes it is all that tells a large call from a small one.
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
    let low =
        steps().filter_map(|step| step.duration_range.map(|range| range[0]).or(step.duration)).reduce(Micros::min);
    let high =
        steps().filter_map(|step| step.duration_range.map(|range| range[1]).or(step.duration)).reduce(Micros::max);
    step.duration_range = low.zip(high).map(|(low, high)| [low, high]);
    step.peak_memory_bytes = steps().filter_map(|step| step.peak_memory_bytes).reduce(Bytes::max);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_about_as_busy_as_the_busiest() {
        let parts = [vec![(0, 100.0)], vec![(1, 90.0), (0, 1.0)], vec![(0, 3.0)], Vec::new()];
        let all = choose(&parts, None, "processes").unwrap();
        assert_eq!(all.places, [0, 1]);
        assert!(all.note.unwrap().starts_with("1 processes that worked far less"));
        assert_eq!(choose(&parts, Some(1), "processes").unwrap().places, [1]);
        assert_eq!(choose(&parts, Some(0), "processes").unwrap().places, [0]);
        assert_eq!(choose(&parts, Some(7), "GPUs").unwrap_err(), NoSuchDevice { device: 7, known: vec![0, 1] });
        assert!(choose(&[], Some(7), "GPUs").unwrap().places.is_empty());
    }
}
