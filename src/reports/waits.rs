//! Waits of the device in the timeline of a step, and what the host does meanwhile, in words.

use super::format;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_step::op;
use habitat_step::profile::Profile;
use habitat_step::profile::timeline::{Gap, Part, Timeline};

/// Number of waits to show.
const GAPS: usize = 3;
/// Shorter waits, as a share of the step, are not shown.
const SHORT: f64 = 0.01;
/// Share of a wait above which the host's activity in it is shown.
const TOLD: f64 = 0.2;

/// Short name of a part.
pub fn name(profile: &Profile, timeline: &Timeline, part: &Part) -> String {
    let full = timeline.name(part, profile);
    // Omit autograd's wrapper and the class after `#`, which add no information here.
    let bare = full.strip_prefix("autograd::engine::evaluate_function: ").unwrap_or(full);
    clean(op::name::short(bare.split('#').next().unwrap_or(bare)), 48)
}

/// Host activity in a wait: `the host was in aten::item for 2.10 ms`; empty if it was not recorded.
pub fn host_words(profile: &Profile, timeline: &Timeline, gap: &Gap) -> String {
    let one = |(part, time): &(Option<Part>, Micros)| match part {
        Some(part) => format!("in {} for {}", name(profile, timeline, part), format::time(*time)),
        None => format!("in no recorded operator for {}", format::time(*time)),
    };
    let told = gap.host.iter().take(2).enumerate();
    let told = told.filter(|(place, (_, time))| *place == 0 || time.get() >= TOLD * gap.duration.get());
    let words: Vec<String> = told.map(|(_, did)| one(did)).collect();
    let most = gap.host.first().is_some_and(|(_, time)| time.get() >= gap.duration.get() / 2.0);
    match words.is_empty() {
        true => String::new(),
        false if most => format!("the CPU was {}", words.join(" and ")),
        false => format!("the CPU was in several operators, longest {}", words.join(" and ")),
    }
}

/// Time that a recorded step waits for its data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loading {
    /// Share of the step, from 0 to 1.
    pub share: f64,
    /// Whether the loader ran in the training process (`num_workers=0`).
    pub in_process: bool,
}

/// Share of the step spent waiting for data: from the timeline while the device is idle, or as measured in a step
/// without a GPU; `None` if both are unknown.
pub(crate) fn loading(profile: &Profile) -> Option<Loading> {
    let step = profile.step.as_ref()?;
    if let Some((wait, duration)) = step.data_wait.zip(step.duration).filter(|(_, duration)| duration.get() > 0.0) {
        return Some(Loading { share: (wait / duration).min(1.0), in_process: false });
    }
    let duration = profile.timeline.as_ref().map(|timeline| timeline.duration).filter(|time| time.get() > 0.0)?;
    let seen = profile.loading_in_timeline(duration);
    Some(seen.map_or(Loading { share: 0.0, in_process: false }, |seen| Loading {
        share: (seen.wait / duration).min(1.0),
        in_process: seen.in_process,
    }))
}

/// The longest waits of the device with the host activity in each; `None` without a timeline.
pub(crate) fn words(profile: &Profile) -> Option<String> {
    let timeline = profile.timeline.as_ref()?;
    let of = format!("of one step of {}", format::time(timeline.duration));
    let gaps = timeline.gaps(GAPS);
    let longest = gaps.first().map_or(Micros::ZERO, |gap| gap.duration);
    let all: f64 = timeline.idle().into_iter().map(|[from, to]| to - from).sum();
    let all = format!("timeline {of}: the GPU is idle for {} in total", format::time(Micros::known(all)));
    if longest.get() < SHORT * timeline.duration.get() {
        return Some(format!("{all}, never longer than {}", format::time(longest)));
    }
    let worth = gaps.iter().filter(|gap| gap.duration.get() >= SHORT * timeline.duration.get());
    let words: Vec<String> = worth
        .map(|gap| {
            let host = host_words(profile, timeline, gap);
            let host = if host.is_empty() { host } else { format!(" ({host})") };
            let when = match gap.start {
                Micros::ZERO => "at its start".to_owned(),
                start => format!("after {}", format::time(start)),
            };
            format!("{} {when}{host}", format::time(gap.duration))
        })
        .collect();
    Some(format!("{all}, longest {}", words.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(timeline: &str) -> Profile {
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}},
            "operations": [{{"name": "aten::mm", "phase": "forward", "device_time_us": 10}}], "timeline": {timeline}}}"#
        );
        Profile::from_json(json.as_bytes()).unwrap().0
    }

    #[test]
    fn waits_are_told_with_what_the_host_did() {
        let step = profile(
            r#"{"duration_us": 1000, "parts": [{"operation": 0}, {"name": "enumerate(DataLoader)#_SingleProcess"}],
            "lanes": [{"kind": "host", "start_us": [0, 400], "duration_us": [300, 500], "part": [0, 1]},
            {"kind": "compute", "start_us": [0, 950], "duration_us": [395, 50], "part": [0, 0]}]}"#,
        );
        assert_eq!(
            words(&step).unwrap(),
            "timeline of one step of 1.0 ms: the GPU is idle for 555.0 µs in total, longest 555.0 µs after \
             395.0 µs (the CPU was in enumerate(DataLoader) for 500.0 µs)"
        );
        let busy = profile(
            r#"{"duration_us": 1000, "parts": [{"operation": 0}],
            "lanes": [{"kind": "compute", "start_us": [0, 505], "duration_us": [500, 495], "part": [0, 0]}]}"#,
        );
        assert_eq!(
            words(&busy).unwrap(),
            "timeline of one step of 1.0 ms: the GPU is idle for 5.0 µs in total, never longer than 5.0 µs"
        );
    }
}
