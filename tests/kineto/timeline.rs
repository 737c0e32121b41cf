//! The timeline of the step nearest the median.

use habitat_tui::profile::Profile;
use habitat_tui::profile::timeline::{Gap, Interval, LaneKind, Part};
use habitat_tui::units::most;

use crate::trace::{MAIN, Trace, two_steps};

/// A name, start and end.
type Told<'a> = (&'a str, f64, f64);

/// Lanes by label, each with the names, starts and ends of its intervals.
fn lanes(profile: &Profile) -> Vec<(String, Vec<Told<'_>>)> {
    let timeline = profile.timeline.as_ref().expect("a timeline");
    let told =
        |interval: Interval| (timeline.name(&timeline.parts[interval.part], profile), interval.start, interval.end);
    timeline.lanes.iter().map(|lane| (timeline.label(lane), lane.intervals().map(told).collect())).collect()
}

#[test]
fn the_step_is_from_the_end_of_the_one_before_to_its_own() {
    let import = two_steps().import().unwrap();
    let timeline = import.profile.timeline.as_ref().unwrap();
    assert_eq!((timeline.duration.get().to_bits(), timeline.resolution), (100.0_f64.to_bits(), None));
    // It begins at 1080, where the first step ends.
    let expected: [(&str, &[Told<'_>]); 5] = [
        ("host 1", &[("aten::copy_", 21.0, 24.0), ("aten::addmm", 25.0, 40.0), ("aten::add_", 76.0, 80.0)]),
        ("host 2", &[("aten::mm", 45.0, 56.0), ("aten::sum", 56.0, 65.0), ("aten::add_", 66.0, 72.0)]),
        (
            "stream 7",
            &[
                ("aten::addmm", 34.0, 54.0),
                ("aten::mm", 60.0, 70.0),
                ("aten::add_", 76.0, 80.0),
                ("aten::add_", 90.0, 100.0),
            ],
        ),
        ("stream 8", &[("aten::sum", 65.0, 75.0)]),
        ("copies", &[("aten::copy_", 30.0, 32.0)]),
    ];
    let expected: Vec<_> = expected.map(|(label, lane)| (label.to_owned(), lane.to_vec())).into();
    assert_eq!(lanes(&import.profile), expected);
    let told = |gap: &Gap| {
        let host = gap.host.iter().map(|(part, time)| {
            (part.as_ref().map_or("none", |part| timeline.name(part, &import.profile)).to_owned(), time.get())
        });
        (gap.start.get(), gap.duration.get(), host.collect::<Vec<_>>())
    };
    let named = |names: &[(&str, f64)]| names.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect();
    assert_eq!(
        timeline.gaps(2).iter().map(told).collect::<Vec<_>>(),
        [
            (0.0, 30.0, named(&[("none", 22.0), ("aten::addmm", 5.0), ("aten::copy_", 3.0)])),
            (80.0, 10.0, named(&[("none", 10.0)])),
        ]
    );
}

/// Asynchronous copies are not gaps, and a second stream has its own lane.
#[test]
fn streams_have_lanes_of_their_own() {
    let mut trace = two_steps();
    for start in [1000.0, 1100.0] {
        trace.operator(MAIN, "aten::side", start + 21.0, 2.0, "");
        trace.work("kernel", "cudaLaunchKernel", MAIN, start + 22.0, "side", start + 30.0, 5.0, 20);
    }
    let profile = trace.import().unwrap().profile;
    let labels: Vec<String> = lanes(&profile).into_iter().map(|(label, _)| label).collect();
    assert_eq!(labels, ["host 1", "host 2", "stream 7", "stream 8", "stream 20", "copies"]);
}

/// Times do not count in the hash: two files of one step have the same name.
#[test]
fn the_name_of_a_recording_does_not_depend_on_its_timeline() {
    let profile = two_steps().import().unwrap().profile;
    let without = Profile { timeline: None, ..profile.clone() };
    assert_eq!(profile.sha256().unwrap(), without.sha256().unwrap());
    assert_eq!(profile.without_origin().timeline, None);
}

/// Thousands of kernels with gaps are merged into a few, with a note on the resolution.
#[test]
fn a_step_of_many_kernels_is_kept_coarsely() {
    let mut trace = Trace::default();
    for step in 0..2_u32 {
        let start = 200_000.0 * f64::from(step);
        trace.mark(&format!("ProfilerStep#{step}"), start, 190_000.0);
        for kernel in 0..most::INTERVALS {
            let at = start + 10.0 * kernel as f64;
            trace.operator(MAIN, "aten::relu", at, 4.0, r#""Input Dims": [[3, 4]], "Input type": ["float"]"#);
            trace.kernel(MAIN, at + 1.0, "relu", at + 3.0, 5.0);
        }
    }
    let profile = trace.import().unwrap().profile;
    let timeline = profile.timeline.as_ref().unwrap();
    let count: usize = timeline.lanes.iter().map(|lane| lane.start.len()).sum();
    assert!((100..=most::INTERVALS).contains(&count), "{count}");
    assert!(timeline.resolution.is_some_and(|resolution| resolution.get() > 10.0), "{:?}", timeline.resolution);
    assert!(timeline.lanes.iter().any(|lane| lane.kind == LaneKind::Compute));
    assert!(timeline.parts.iter().any(|part| matches!(part, Part::Operation(_))));
    // Its file reads back.
    let (again, warnings) = Profile::from_json(&profile.to_json().unwrap()).unwrap();
    assert_eq!((&again, warnings.len()), (&profile, 0));
}
