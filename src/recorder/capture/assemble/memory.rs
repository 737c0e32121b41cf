//! Splits the job's memory by kind.
//!
//! Parameters, gradients and optimizer state are measured in the job after a step (sizes of the tensors); the allocator
//! reports the peak. The rest of the peak is allocated by the passes: activations including temporary results, which
//! cannot be distinguished from outside the allocator. At the peak, early in the backward pass, some gradients may not
//! exist yet; they count in full, so the activations are a lower bound.

use crate::capture::messages::TensorMemory;
use crate::capture::recording::Process;
use habitat_base::units::Bytes;
use habitat_step::profile::{Memory, MemorySource, Profile};

/// Adds memory by kind to the profile, if the kinds and the peak are of a GPU and consistent.
pub(super) fn fill(profile: &mut Profile, process: &Process, notes: &mut Vec<String>) {
    let Some(held) = process.held.as_ref().filter(|held| held.device == "cuda") else { return };
    // Only the allocator's own peak covers the same tensors.
    let (Some(peak), Some(step)) = (process.peak_memory_bytes, &mut profile.step) else { return };
    let Some(memory) = of(held, peak) else {
        notes.push(format!(
            "parameters, gradients and optimizer state ({}) exceed the recorded peak ({}): memory is not split by kind",
            held.total().map_or_else(|| "too large".to_owned(), shown),
            shown(peak)
        ));
        return;
    };
    // The kinds add up to the peak of the same process.
    step.peak_memory_bytes = Some(memory.total());
    step.memory = Some(memory);
    notes.push(
        "memory by kind: parameters, gradients and optimizer state are measured; activations are the rest of the peak, including temporary results"
            .to_owned(),
    );
    if !held.whole_model {
        notes.push("untrained parameters and buffers count as activations: the model was not observed".to_owned());
    }
}

/// Memory by kind at a peak; `None` if the kinds exceed it.
fn of(held: &TensorMemory, peak: u64) -> Option<Memory> {
    let rest = peak.checked_sub(held.total()?)?;
    let bytes = |bytes: u64| Bytes::new(bytes as f64).ok();
    Some(Memory {
        source: MemorySource::Recorded,
        parameters: bytes(held.parameters_bytes)?,
        gradients: bytes(held.gradients_bytes)?,
        optimizer_state: bytes(held.optimizer_state_bytes)?,
        activations: bytes(rest)?,
        temporary: Bytes::new(0.0).ok()?,
        working: None,
    })
}

/// Note for a job without a GPU: the tensors would be as large on one, but the peak is unknown.
pub(super) fn words(held: &TensorMemory) -> String {
    format!(
        "parameters{} {}, gradients {}, optimizer state {}, measured after a step; without a GPU the peak, and so the activations, are unknown",
        if held.whole_model { " and buffers" } else { "" },
        shown(held.parameters_bytes),
        shown(held.gradients_bytes),
        shown(held.optimizer_state_bytes)
    )
}

fn shown(bytes: u64) -> String {
    Bytes::new(bytes as f64).unwrap_or_default().to_string()
}

impl TensorMemory {
    /// Total; `None` if it exceeds 64 bits.
    fn total(&self) -> Option<u64> {
        self.parameters_bytes.checked_add(self.gradients_bytes)?.checked_add(self.optimizer_state_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(device: &str, parameters: u64) -> TensorMemory {
        TensorMemory {
            device: device.to_owned(),
            parameters_bytes: parameters,
            gradients_bytes: 100,
            optimizer_state_bytes: 200,
            whole_model: true,
        }
    }

    fn filled(held: TensorMemory, peak: Option<u64>) -> (Option<Memory>, Option<f64>, Vec<String>) {
        let json = br#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "step": {"duration_us": 5, "peak_memory_bytes": 900},
            "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        let mut profile = Profile::from_json(json).unwrap().0;
        let process = Process { held: Some(held), peak_memory_bytes: peak, ..Process::default() };
        let mut notes = Vec::new();
        fill(&mut profile, &process, &mut notes);
        let step = profile.step.unwrap();
        (step.memory, step.peak_memory_bytes.map(Bytes::get), notes)
    }

    #[test]
    fn the_kinds_add_up_to_the_peak() {
        let (memory, peak, notes) = filled(held("cuda", 100), Some(1000));
        let memory = memory.unwrap();
        assert_eq!((memory.activations.get(), memory.total().get(), peak), (600.0, 1000.0, Some(1000.0)));
        assert_eq!(memory.source, MemorySource::Recorded);
        assert_eq!(notes.len(), 1, "{notes:?}");
    }

    #[test]
    fn what_does_not_agree_is_left_out_and_said() {
        let (memory, peak, notes) = filled(held("cuda", 800), Some(1000));
        assert_eq!((memory, peak), (None, Some(900.0)));
        assert!(notes[0].contains("exceed the recorded peak"), "{notes:?}");
        assert_eq!(filled(held("cuda", u64::MAX), Some(1000)).0, None);
        assert_eq!(filled(held("cuda", 100), None).0, None);
        // Tensors on a CPU are not device memory.
        assert_eq!(filled(held("cpu", 100), Some(1000)).0, None);
        assert!(words(&held("cpu", 4_000_000)).contains("parameters and buffers 3.81 MB, gradients 0.098 KB"));
    }
}
