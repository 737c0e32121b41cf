//! Peak memory in words: how much, of what, and from where.

use super::format;
use crate::profile::{Memory, MemorySource, Profile};
use crate::units::{Bytes, GIB};

/// The peak, by kind where it is known, and where it is from; `None` where there is none.
pub fn words(profile: &Profile) -> Option<String> {
    let step = profile.step.as_ref()?;
    let memory = step.memory.as_ref();
    let peak = step.peak_memory_bytes.or_else(|| memory.map(Memory::total))?;
    let source = if is_computed(profile) { ", computed from shapes" } else { "" };
    let kinds = memory.map_or_else(String::new, |memory| format!(": {}", kinds(memory)));
    Some(format!("peak memory {}{source}{kinds}", amount(peak)))
}

/// The kinds that hold something, in the order in which a job's life brings them.
pub fn kinds(memory: &Memory) -> String {
    let parts: Vec<String> = memory
        .kinds()
        .iter()
        .filter(|(_, bytes)| bytes.get() > 0.0)
        .map(|(name, bytes)| format!("{name} {}", amount(*bytes)))
        .collect();
    parts.join(" · ")
}

/// An amount of memory, small ones in smaller units.
pub fn amount(bytes: Bytes) -> String {
    let gib = bytes.get() / GIB;
    match gib * 1024.0 {
        _ if gib >= 0.095 => format::memory(bytes),
        mib if mib >= 0.95 => format!("{mib:.0} MB"),
        mib => format!("{:.0} KB", mib * 1024.0),
    }
}

/// Whether the peak was computed, with no device.
pub fn is_computed(profile: &Profile) -> bool {
    let memory = profile.step.as_ref().and_then(|step| step.memory.as_ref());
    memory.is_some_and(|memory| memory.source == MemorySource::Computed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_and_where_it_is_from() {
        let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
            "operations": [{"name": "aten::mm", "phase": "forward"}]}"#;
        let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
        assert_eq!(words(&profile), None);
        let step = profile.step.get_or_insert_default();
        step.peak_memory_bytes = Some(Bytes::known(6.0 * GIB));
        assert_eq!(words(&profile).as_deref(), Some("peak memory 6.0 GB"));
        let mib = |count: f64| Bytes::known(count * 1_048_576.0);
        profile.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: mib(98.0),
            gradients: mib(0.5),
            optimizer_state: Bytes::ZERO,
            activations: mib(5120.0),
            temporary: mib(51.0),
        });
        assert_eq!(
            words(&profile).as_deref(),
            Some(
                "peak memory 6.0 GB, computed from shapes: parameters 0.1 GB · gradients 512 KB · \
                 activations 5.0 GB · temporary 51 MB"
            )
        );
    }
}
