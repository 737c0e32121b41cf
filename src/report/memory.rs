//! Peak memory in words: how much, of what, and from where.

use crate::profile::{Memory, MemorySource, Profile};

/// The peak, by kind where it is known, and where it is from; `None` where there is none.
pub fn words(profile: &Profile) -> Option<String> {
    let step = profile.step.as_ref()?;
    let memory = step.memory.as_ref();
    let peak = step.peak_memory_bytes.or_else(|| memory.map(Memory::total))?;
    let source = if is_computed(profile) { ", computed from shapes" } else { "" };
    let kinds = memory.map_or_else(String::new, |memory| format!(": {}", kinds(memory)));
    Some(format!("peak memory {peak}{source}{kinds}"))
}

/// The kinds in at most `width` characters: the smallest go where there is no room.
pub fn kinds_within(memory: &Memory, width: usize) -> String {
    let mut left: Vec<_> = memory.kinds().into_iter().filter(|(_, bytes)| bytes.get() > 0.0).collect();
    let mut dropped = false;
    loop {
        let parts: Vec<String> = left.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
        let words = format!("{}{}", parts.join(" · "), if dropped { " · …" } else { "" });
        if words.chars().count() <= width || left.len() <= 1 {
            return words;
        }
        let smallest = left.iter().map(|(_, bytes)| bytes.get()).fold(f64::INFINITY, f64::min);
        left.retain(|(_, bytes)| bytes.get() > smallest);
        dropped = true;
        if left.is_empty() {
            return String::new();
        }
    }
}

/// The kinds that hold something, in the order in which a job's life brings them.
pub fn kinds(memory: &Memory) -> String {
    kinds_within(memory, usize::MAX)
}

/// Whether the peak was computed, with no device.
pub fn is_computed(profile: &Profile) -> bool {
    let memory = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    memory.is_some_and(|memory| memory.source == MemorySource::Computed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Bytes, GIB};

    #[test]
    fn what_is_held_and_where_it_is_from() {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
        assert_eq!(words(&profile), None);
        let step = profile.step.get_or_insert_default();
        step.peak_memory_bytes = Some(Bytes::known(6.0 * GIB));
        assert_eq!(words(&profile).as_deref(), Some("peak memory 6.00 GB"));
        let mib = |count: f64| Bytes::known(count * 1_048_576.0);
        profile.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: mib(98.0),
            gradients: mib(0.5),
            optimizer_state: Bytes::ZERO,
            activations: mib(5120.0),
            temporary: mib(51.0),
            working: None,
        });
        assert_eq!(
            words(&profile).as_deref(),
            Some(
                "peak memory 6.00 GB, computed from shapes: parameters 98.0 MB · gradients 512 KB · \
                 activations 5.00 GB · temporary 51.0 MB"
            )
        );
    }

    #[test]
    fn the_smallest_kinds_give_way() {
        let gib = |count: f64| Bytes::known(count * GIB);
        let memory = Memory {
            source: MemorySource::Recorded,
            parameters: gib(0.5),
            gradients: gib(0.4),
            optimizer_state: gib(1.0),
            activations: gib(5.0),
            temporary: gib(0.2),
            working: None,
        };
        assert_eq!(kinds_within(&memory, 60), "optimizer state 1.00 GB · activations 5.00 GB · …");
        assert_eq!(kinds_within(&memory, 30), "activations 5.00 GB · …");
        assert_eq!(kinds_within(&memory, 3), "activations 5.00 GB · …");
    }
}
