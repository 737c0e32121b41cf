use super::*;

fn operation(name: &str, phase: &str, count: u32, inputs: &str, us: f64) -> String {
    format!(
        r#"{{"name": "aten::{name}", "phase": "{phase}", "count": {count}, "inputs": {inputs}, "dtype": "float32", "device_time_us": {us},
            "kernels": [{{"name": "{name}_kernel", "duration_us": {us}}}]}}"#
    )
}

fn profile(step: &str, operations: &[String]) -> Profile {
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}}, "step": {step},
            "operations": [{}]}}"#,
        operations.join(",")
    );
    Profile::from_json(json.as_bytes()).unwrap().0
}

const STEP: &str = r#"{"duration_us": 1000}"#;

fn matched(first: &Profile, second: &Profile, by: GroupBy) -> Vec<(String, Match, [u64; 2], [f64; 2])> {
    let found = Difference::of_recordings([first, second], by, |_| "all").unwrap();
    found.parts.into_iter().map(|part| (part.name, part.matched, part.counts, part.times)).collect()
}

#[test]
fn everything_adds_up_to_the_steps_in_every_grouping() {
    let first = profile(
        r#"{"duration_us": 1000}"#,
        &[operation("mm", "forward", 2, "[[8, 4], [4, 4]]", 100.0), operation("relu", "forward", 1, "[[8, 4]]", 50.0)],
    );
    let second = profile(
        r#"{"duration_us": 1300}"#,
        &[operation("mm", "forward", 3, "[[8, 4], [4, 4]]", 110.0), operation("gelu", "forward", 1, "[[8, 4]]", 70.0)],
    );
    for by in GroupBy::ALL {
        let found = Difference::of_recordings([&first, &second], by, |_| "all").unwrap();
        let change: f64 = found.parts.iter().map(Changed::change).sum();
        let rest = found.rest[1] - found.rest[0];
        assert!((change + rest - 300.0).abs() < 1e-9, "{by:?} {found:?}");
        assert_eq!(found.rest, [1000.0 - 250.0, 1300.0 - 400.0], "{by:?}");
    }
    assert_eq!(
        matched(&first, &second, GroupBy::Operation),
        [
            ("aten::mm".to_owned(), Match::Same, [2, 3], [200.0, 330.0]),
            ("aten::gelu".to_owned(), Match::OnlySecond, [0, 1], [0.0, 70.0]),
            ("aten::relu".to_owned(), Match::OnlyFirst, [1, 0], [50.0, 0.0]),
        ]
    );
    assert_eq!(matched(&first, &second, GroupBy::Family), [("all".to_owned(), Match::Same, [3, 4], [250.0, 400.0])]);
}

/// Modules, attributes and the order in the file do not matter; the phase and the element type do.
#[test]
fn the_same_operation_is_found_wherever_it_stands() {
    let with =
        |more: &str, us: f64| operation("mm", "forward", 1, "[[2, 2]]", us).replacen('{', &format!("{{{more}"), 1);
    let first = profile(STEP, &[with(r#""module": "a","#, 10.0), with(r#""module": "b","#, 20.0)]);
    let second = profile(
        STEP,
        &[operation("add", "forward", 1, "[[2, 2]]", 1.0), operation("mm", "forward", 2, "[[2, 2]]", 16.0)],
    );
    let found = matched(&first, &second, GroupBy::Operation);
    assert_eq!(found[0], ("aten::mm".to_owned(), Match::Same, [2, 2], [30.0, 32.0]));
    assert_eq!(found[1], ("aten::add".to_owned(), Match::OnlySecond, [0, 1], [0.0, 1.0]));
    let half = with("", 10.0).replace("float32", "float16");
    let found = matched(&profile(STEP, &[with("", 20.0)]), &profile(STEP, &[half]), GroupBy::Operation);
    assert_eq!(found, [("aten::mm".to_owned(), Match::OtherShapes, [1, 1], [20.0, 10.0])]);
    let backward = operation("mm", "backward", 1, "[[2, 2]]", 20.0);
    let found = matched(&profile(STEP, &[with("", 20.0)]), &profile(STEP, &[backward]), GroupBy::Operation);
    assert_eq!(found.iter().map(|part| part.1).collect::<Vec<_>>(), [Match::OnlyFirst, Match::OnlySecond]);
}

/// Twice the batch changes every shape; an additional layer leaves the other matches intact.
#[test]
fn other_shapes_go_together_in_order_and_one_more_stands_alone() {
    let layers = |batch: u64, widths: &[u64]| -> Vec<String> {
        widths
            .iter()
            .map(|width| operation("mm", "forward", 1, &format!("[[{batch}, {width}], [{width}, 7]]"), *width as f64))
            .collect()
    };
    let first = profile(STEP, &layers(16, &[100, 300, 200]));
    let found = matched(&first, &profile(STEP, &layers(32, &[100, 300, 200])), GroupBy::Operation);
    assert!(found.iter().all(|part| part.1 == Match::OtherShapes && part.3[0] == part.3[1]), "{found:?}");
    let found = matched(&first, &profile(STEP, &layers(32, &[100, 150, 300, 200])), GroupBy::Operation);
    let alone: Vec<_> = found.iter().filter(|part| part.1 != Match::OtherShapes).collect();
    assert_eq!(alone, [&("aten::mm".to_owned(), Match::OnlySecond, [0, 1], [0.0, 150.0])]);
    assert_eq!(found.len(), 4);
    // The same with the recordings exchanged.
    let found = matched(&profile(STEP, &layers(32, &[100, 150, 300, 200])), &first, GroupBy::Operation);
    assert_eq!(found.iter().filter(|part| part.1 == Match::OnlyFirst).count(), 1);
}

/// Among equal candidates, the first one matches.
#[test]
fn of_equals_the_first_go_together() {
    let product = |width: u64, us: f64| operation("mm", "forward", 1, &format!("[[16, {width}], [{width}, 7]]"), us);
    let first = profile(STEP, &[product(100, 10.0)]);
    let found = matched(&first, &profile(STEP, &[product(200, 20.0), product(300, 30.0)]), GroupBy::Operation);
    let alone: Vec<_> = found.iter().filter(|part| part.1 == Match::OnlySecond).collect();
    assert_eq!(alone, [&("aten::mm".to_owned(), Match::OnlySecond, [0, 1], [0.0, 30.0])]);
}

/// If one recording has no shapes, only names can match.
#[test]
fn without_shapes_names_are_matched() {
    let first = profile(
        STEP,
        &[operation("mm", "forward", 1, "[[2, 2]]", 10.0), operation("mm", "forward", 1, "[[4, 4]]", 20.0)],
    );
    let second = profile(STEP, &[operation("mm", "forward", 2, "[]", 16.0)]);
    let found = matched(&first, &second, GroupBy::Operation);
    assert_eq!(found, [("aten::mm".to_owned(), Match::Same, [2, 2], [30.0, 32.0])]);
}

#[test]
fn a_difference_is_beyond_the_spread_if_no_steps_overlap_or_half_of_many_do_not() {
    let of = |step: &str| profile(step, &[operation("mm", "forward", 1, "[[2, 2]]", 10.0)]);
    let steps = |samples: u32, low: f64, mid: f64, high: f64| {
        of(&format!(r#"{{"duration_us": {mid}, "duration_range_us": [{low}, {high}], "samples": {samples}}}"#))
    };
    let range = |low: f64, mid: f64, high: f64| steps(MANY - 1, low, mid, high);
    let spread = |first: &Profile, second: &Profile| {
        Difference::of_recordings([first, second], GroupBy::Name, |_| "all").unwrap().spread()
    };
    let (low, high, wide) = (range(90.0, 100.0, 110.0), range(120.0, 130.0, 140.0), range(95.0, 130.0, 140.0));
    assert_eq!([spread(&low, &high), spread(&high, &low)], [Spread::Beyond, Spread::Beyond]);
    assert_eq!([spread(&low, &wide), spread(&wide, &low), spread(&low, &low)], [Spread::Within; 3]);
    let many = |low: f64, mid: f64, high: f64| steps(MANY, low, mid, high);
    let (low, outlier, later) = (many(90.0, 100.0, 110.0), many(90.0, 100.0, 300.0), many(120.0, 130.0, 140.0));
    assert_eq!([spread(&outlier, &later), spread(&later, &outlier)], [Spread::Beyond; 2]);
    assert_eq!(spread(&low, &many(90.0, 109.0, 140.0)), Spread::Within);
    assert_eq!([spread(&low, &of(STEP)), spread(&of(STEP), &low)], [Spread::Unknown; 2]);
}

#[test]
fn a_recording_without_times_is_named() {
    let timed = profile(STEP, &[operation("mm", "forward", 1, "[[2, 2]]", 10.0)]);
    let shapes = timed.without_origin();
    let untimed = Profile { step: timed.step.clone(), ..shapes.clone() };
    let compared = |first, second| Difference::of_recordings([first, second], GroupBy::Name, |_| "all").map(|_| ());
    assert_eq!(compared(&timed, &shapes), Err((1, NotMeasured::Step)));
    assert_eq!(compared(&untimed, &timed), Err((0, NotMeasured::Operations)));
    assert_eq!(compared(&timed, &timed), Ok(()));
}
