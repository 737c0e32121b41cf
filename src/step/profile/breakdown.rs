//! Breakdown of a recorded step's time, for screens and reports.
//!
//! Device time of an entry = Σ over its operations of `device_time × count`; for a kernel, Σ `duration × launches ×
//! count`. Operations without a measured time count as zero and are reported in [`Breakdown::unmeasured`], so that a
//! sum is never silently too small.

use std::collections::HashMap;

use super::{Operation, Phase, Profile};
use habitat_base::units::Micros;

/// Grouping of the entries of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GroupBy {
    /// One entry per operation of the profile (name, shapes, phase).
    #[default]
    Operation,
    /// One entry per operator name.
    Name,
    /// One entry per operator family (matrix products, convolutions …).
    Family,
    /// One entry per kernel name.
    Kernel,
    /// One entry per module.
    Module,
}

impl GroupBy {
    /// All groupings, in the order of the key that cycles through them.
    pub const ALL: [Self; 5] = [Self::Operation, Self::Name, Self::Family, Self::Kernel, Self::Module];

    /// Label on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Name => "name",
            Self::Family => "family",
            Self::Kernel => "kernel",
            Self::Module => "module",
        }
    }
}

/// Label for operations outside of all modules.
pub(crate) const OUTSIDE: &str = "outside modules";

/// One entry of a breakdown.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entry {
    /// Name as in the profile (not sanitised for a terminal).
    pub label: String,
    /// Device time in the step.
    pub time: Micros,
    /// Share of the device time of all operations (for kernels, of all kernels), 0 to 1.
    pub share: f64,
    /// Occurrences in the step (for kernels, launches).
    pub count: u64,
    /// Phase, if all its operations have the same one.
    pub phase: Option<Phase>,
    /// Indices into the profile's operations.
    pub operations: Vec<usize>,
}

impl Entry {
    /// Device time of one occurrence; `None` if there are none.
    pub fn per_call(&self) -> Option<Micros> {
        (self.count > 0).then(|| self.time * (1.0 / self.count as f64))
    }
}

/// Device time of one phase.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseTime {
    /// The phase.
    pub phase: Phase,
    /// Device time in the step.
    pub time: Micros,
    /// Share of the device time of all operations, 0 to 1.
    pub share: f64,
}

/// A part of the step's time: operations of one kind in one phase, other device work, or idle time.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    /// Phase of the operations.
    pub phase: Option<Phase>,
    /// Family of the operations, `other work` or `idle`.
    pub kind: &'static str,
    /// Share of the step, 0 to 1.
    pub share: f64,
    /// Indices into the profile's operations; empty for other work and idle time.
    pub operations: Vec<usize>,
}

impl Segment {
    /// Kind of the idle segment.
    pub const IDLE: &'static str = "idle";
}

/// Busy and idle time of the device in a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BusyIdle {
    /// Wall time of the step.
    pub step: Micros,
    /// Device busy time: recorded as a union of intervals, otherwise the sum of operations.
    pub busy: Micros,
    /// Idle time.
    pub idle: Micros,
    /// Whether `busy` was recorded (otherwise it is the sum of operations, at most the step).
    pub recorded: bool,
}

/// Time of a profile by phase, and busy and idle time.
#[derive(Debug, Clone, PartialEq)]
pub struct Breakdown {
    /// Device time of all operations: [`Profile::total_device_time`].
    pub total: Micros,
    /// Time by phase, in the order of a step, without empty phases.
    pub phases: Vec<PhaseTime>,
    /// Busy and idle time, if the step's wall time was measured.
    pub busy_idle: Option<BusyIdle>,
    /// Number of operations without a measured device time.
    pub unmeasured: usize,
}

impl Breakdown {
    /// Computes the breakdown of a profile.
    pub fn of(profile: &Profile) -> Self {
        let total = profile.total_device_time();
        let phases = Phase::ALL
            .into_iter()
            .map(|phase| {
                let time = profile.operations.iter().filter(|operation| operation.phase == phase).map(time_of).sum();
                PhaseTime { phase, time, share: share(time, total) }
            })
            .filter(|phase| phase.time.get() > 0.0)
            .collect();
        let busy_idle = profile.measured_step().map(|step| {
            let recorded = profile.step.as_ref().and_then(|step| step.device_busy);
            let busy = recorded.unwrap_or(total).min(step);
            BusyIdle { step, busy, idle: step.checked_sub(busy).unwrap_or_default(), recorded: recorded.is_some() }
        });
        let unmeasured = profile.operations.iter().filter(|operation| operation.device_time.is_none()).count();
        Self { total, phases, busy_idle, unmeasured }
    }

    /// Segments of the step: its operations by phase and by kind, longest first, then other device work, then idle
    /// time. The shares add up to 1; if operations run concurrently, each kind gets its proportion of the busy time.
    /// Without a measured step time, the segments cover the device time only; without any measurement there are none.
    /// `family` as for [`Breakdown::entries`].
    pub fn segments(profile: &Profile, family: impl Fn(&Operation) -> &'static str) -> Vec<Segment> {
        let whole = Self::of(profile);
        let total = whole.total.get();
        let (step, busy) = whole.busy_idle.map_or((total, total), |split| (split.step.get(), split.busy.get()));
        if total <= 0.0 || step <= 0.0 {
            return Vec::new();
        }
        let scale = (busy / total).min(1.0) / step;
        let mut segments = Vec::new();
        for phase in &whole.phases {
            let entries = Self::entries(profile, GroupBy::Family, Some(phase.phase), &family);
            segments.extend(entries.into_iter().filter(|entry| entry.time.get() > 0.0).map(|entry| Segment {
                phase: Some(phase.phase),
                kind: entry.operations.first().map_or("", |&at| family(&profile.operations[at])),
                share: entry.time.get() * scale,
                operations: entry.operations,
            }));
        }
        let rest = [("other work", (busy - total).max(0.0)), (Segment::IDLE, step - busy)];
        let rest = rest.into_iter().filter(|(_, time)| *time > 0.0);
        segments.extend(rest.map(|(kind, time)| Segment {
            phase: None,
            kind,
            share: time / step,
            operations: Vec::new(),
        }));
        segments
    }

    /// Entries of a grouping, longest first, for one phase or all.
    ///
    /// `family` names the family of an operation; only the predictors know the families.
    pub fn entries(
        profile: &Profile,
        by: GroupBy,
        phase: Option<Phase>,
        family: impl Fn(&Operation) -> &'static str,
    ) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let chosen = |operation: &&Operation| phase.is_none_or(|phase| operation.phase == phase);
        for (index, operation) in profile.operations.iter().enumerate().filter(|(_, operation)| chosen(operation)) {
            let count = u64::from(operation.count);
            let mut add = |key: String, label: &str, time: Micros, count: u64| {
                let place = *places.entry(key).or_insert_with(|| {
                    entries.push(Entry {
                        label: label.to_owned(),
                        time: Micros::ZERO,
                        share: 0.0,
                        count: 0,
                        phase: Some(operation.phase),
                        operations: Vec::new(),
                    });
                    entries.len() - 1
                });
                let entry = &mut entries[place];
                entry.time += time;
                entry.count += count;
                entry.phase = entry.phase.filter(|phase| *phase == operation.phase);
                if entry.operations.last() != Some(&index) {
                    entry.operations.push(index);
                }
            };
            match by {
                GroupBy::Operation => add(index.to_string(), &operation.name, time_of(operation), count),
                GroupBy::Name => add(operation.name.clone(), &operation.name, time_of(operation), count),
                GroupBy::Family => {
                    let family = family(operation);
                    add(family.to_owned(), family, time_of(operation), count);
                }
                GroupBy::Module => {
                    let module = operation.module.as_deref().unwrap_or(OUTSIDE);
                    add(module.to_owned(), module, time_of(operation), count);
                }
                GroupBy::Kernel => {
                    for kernel in &operation.kernels {
                        let launches = u64::from(kernel.count) * count;
                        add(kernel.name.clone(), &kernel.name, kernel.duration * launches as f64, launches);
                    }
                }
            }
        }
        // The share is of the whole step even if only one phase is shown.
        let whole: Micros = match by {
            GroupBy::Kernel => profile.operations.iter().map(kernel_time_of).sum(),
            _ => profile.total_device_time(),
        };
        for entry in &mut entries {
            entry.share = share(entry.time, whole);
        }
        entries.sort_by(|a, b| b.time.total_cmp(&a.time).then_with(|| a.label.cmp(&b.label)));
        entries
    }
}

fn time_of(operation: &Operation) -> Micros {
    operation.total_device_time().unwrap_or_default()
}

fn kernel_time_of(operation: &Operation) -> Micros {
    let one: Micros = operation.kernels.iter().map(|kernel| kernel.duration * f64::from(kernel.count)).sum();
    one * f64::from(operation.count)
}

fn share(part: Micros, whole: Micros) -> f64 {
    if whole.get() > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
        "workload": {"name": "w", "mode": "training"},
        "step": {"duration_us": 200, "device_busy_us": 150},
        "operations": [
          {"name": "aten::mm", "phase": "forward", "count": 2, "device_time_us": 30, "kernels": [
             {"name": "gemm", "duration_us": 20}, {"name": "splitk", "count": 2, "duration_us": 5}]},
          {"name": "aten::mm", "phase": "backward", "device_time_us": 40, "kernels": [{"name": "gemm", "duration_us": 40}]},
          {"name": "aten::relu", "phase": "forward", "device_time_us": 10},
          {"name": "aten::view", "phase": "forward"}
        ]}"#;

    fn family(operation: &Operation) -> &'static str {
        if operation.name == "aten::mm" { "matrix product" } else { "other" }
    }

    fn profile() -> Profile {
        Profile::from_json(PROFILE.as_bytes()).unwrap().0
    }

    #[test]
    fn every_grouping_of_operations_sums_to_the_total() {
        let profile = profile();
        let total = profile.total_device_time().get();
        assert!((total - 110.0).abs() < 1e-9);
        for by in [GroupBy::Operation, GroupBy::Name, GroupBy::Family, GroupBy::Module] {
            let entries = Breakdown::entries(&profile, by, None, family);
            let sum: f64 = entries.iter().map(|entry| entry.time.get()).sum();
            let shares: f64 = entries.iter().map(|entry| entry.share).sum();
            assert!((sum - total).abs() < 1e-9 && (shares - 1.0).abs() < 1e-9, "{by:?}");
        }
        let phases: f64 = Breakdown::of(&profile).phases.iter().map(|phase| phase.time.get()).sum();
        assert!((phases - total).abs() < 1e-9);
    }

    #[test]
    fn names_join_and_kernels_count_launches() {
        let profile = profile();
        let names = Breakdown::entries(&profile, GroupBy::Name, None, family);
        assert_eq!((names[0].label.as_str(), names[0].count, names[0].phase), ("aten::mm", 3, None));
        assert_eq!(names[0].operations, [0, 1]);
        let kernels = Breakdown::entries(&profile, GroupBy::Kernel, None, family);
        assert_eq!((kernels[0].label.as_str(), kernels[0].time.get(), kernels[0].count), ("gemm", 80.0, 3));
        assert_eq!((kernels[1].label.as_str(), kernels[1].time.get(), kernels[1].count), ("splitk", 20.0, 4));
    }

    #[test]
    fn busy_and_idle_make_the_step() {
        let breakdown = Breakdown::of(&profile());
        let split = breakdown.busy_idle.unwrap();
        assert_eq!((split.busy.get(), split.idle.get(), split.recorded), (150.0, 50.0, true));
        assert_eq!(breakdown.unmeasured, 1);
    }

    #[test]
    fn the_line_of_a_step_adds_up() {
        let of = |step: &str| {
            let json = PROFILE.replace(r#"{"duration_us": 200, "device_busy_us": 150}"#, step);
            let (profile, _) = Profile::from_json(json.as_bytes()).unwrap();
            let segments = Breakdown::segments(&profile, family);
            let sum: f64 = segments.iter().map(|segment| segment.share).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{segments:?}");
            segments.into_iter().map(|it| (it.phase, it.kind, (it.share * 1000.0).round())).collect::<Vec<_>>()
        };
        let (forward, backward) = (Some(Phase::Forward), Some(Phase::Backward));
        assert_eq!(
            of(r#"{"duration_us": 200, "device_busy_us": 150}"#),
            [
                (forward, "matrix product", 300.0),
                (forward, "other", 50.0),
                (backward, "matrix product", 200.0),
                (None, "other work", 200.0),
                (None, "idle", 250.0)
            ]
        );
        // Concurrent: 110 µs in 55.
        assert_eq!(of(r#"{"duration_us": 100, "device_busy_us": 55}"#)[0].2, 300.0);
        // Without a step time, the segments cover the device time only.
        assert_eq!(of("{}").len(), 3);
        assert!(Breakdown::segments(&profile().without_origin(), family).is_empty());
    }

    #[test]
    fn one_phase_keeps_shares_of_the_whole() {
        let entries = Breakdown::entries(&profile(), GroupBy::Operation, Some(Phase::Backward), family);
        assert_eq!(entries.len(), 1);
        assert!((entries[0].share - 40.0 / 110.0).abs() < 1e-9);
    }
}
