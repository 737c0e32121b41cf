use super::*;

/// A minute of steps of `total` ms.
fn minute(at: u32, total: f32, input: f32) -> Stretch {
    let parts = Parts { input: input * 1e3, forward: 10e3, backward: 20e3, optimizer: 5e3, idle: f32::NAN };
    let total = total * 1e3;
    let mut one = Stretch { to: (at + 1) * 600, first: 1, steps: 100, parts, ..Stretch::empty(at * 600, None) };
    one.total = [total * 0.9, total, total * 2.0];
    one
}

fn digest(minutes: Vec<Stretch>) -> Digest {
    History { minutes, ..History::default() }.digest(60)
}

#[test]
fn a_steady_job_is_said_to_be_steady() {
    let text = |digest: &Digest| {
        let mut out = Vec::new();
        write_text(digest, &Err("unknown: no step recorded yet".to_owned()), ("train", false), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut minutes: Vec<Stretch> = (0..20).map(|at| minute(at, 40.0, 1.0)).collect();
    minutes[3].aside[0] = (2, 30.0);
    let said = text(&digest(minutes));
    for words in [
        "2,000 training steps of 40.0 ms (36.0 ms to 80.0 ms) in 20 min",
        "input 3 % · forward 25 % · backward 50 % · optimizer 12 % · rest 10 %",
        "2 validations of 14.96 s, 2 % of the time",
        "verdict    unknown: no step recorded yet",
        "bars from 0 to 40.0 ms",
    ] {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
    assert!(text(&Digest::default()).contains("no steps timed yet"));
}

#[test]
fn parts_of_a_few_long_steps_are_at_most_all_of_a_step() {
    assert_eq!(
        parts(&minute(0, 28.0, 35.0)).unwrap(),
        "input 50 % · forward 14 % · backward 29 % · optimizer 7 % · rest 0 %"
    );
}

#[test]
fn what_changes_over_days_is_found_with_its_part() {
    let slower = digest(
        (0..40).map(|at| minute(at, if at < 20 { 40.0 } else { 60.0 }, if at < 20 { 1.0 } else { 21.0 })).collect(),
    );
    assert_eq!(stands_out(&slower)[0], "steps became slower: 40.0 ms to 60.0 ms, most of it input: 1.0 ms to 21.0 ms");
    let grows =
        digest((0..40).map(|at| Stretch { resident: 2000.0 + 100.0 * at as f32, ..minute(at, 40.0, 1.0) }).collect());
    assert_eq!(stands_out(&grows), ["memory grows: 2.44 GB to 5.76 GB resident"]);
    assert!(stands_out(&digest(vec![minute(0, 100.0, 60.0)])).is_empty(), "the bottleneck is the verdict's to say");
}

#[test]
fn checkpoints_that_take_much_of_the_time_stand_out() {
    let of = |seconds: f32| {
        let mut one = minute(0, 100.0, 1.0);
        one.aside[1] = (3, seconds);
        stands_out(&digest(vec![one]))
    };
    assert!(
        of(24.0)[0].starts_with("checkpoints take 39 % of the time: 3 of 7.90 s; save less often"),
        "{:?}",
        of(24.0)
    );
    assert!(of(6.0).is_empty());
    // An evaluation that no DataLoader shows.
    let mut one = minute(0, 100.0, 1.0);
    one.aside[2] = (10, 33.0);
    let mut found = digest(vec![one]);
    assert!(stands_out(&found).is_empty(), "single pauses");
    found.alike = (10, 33.0);
    assert_eq!(
        stands_out(&found),
        ["long steps take 53 % of the time: 10 of 3.20 s; do less often, or faster, what the loop does there"]
    );
    found.period[2] = Some(60);
    found.total.as_mut().unwrap().aside[0] = (10, 43.0);
    assert!(stands_out(&found)[0].starts_with("validations take 70 %"), "the largest first");
    assert!(stands_out(&found)[1].starts_with("long steps take 53 % of the time: every 60 steps, 3.20 s each; do"));
}

#[test]
fn late_steps_are_spread_and_not_periodic_work() {
    let step = |number: u64, total: f32, kind| Step { step: number, at: 0, kind, total, parts: Parts::default() };
    let steps = (1..=900_u64).map(|number| match number {
        ..=5 => step(number, 3e4, Kind::Other),
        _ if number.is_multiple_of(300) => step(number, 2e4, Kind::Validation),
        _ => step(number, if (number * number + number / 7) % 7 == 3 { 5e3 } else { 600.0 }, Kind::Training),
    });
    let digest = History { steps: steps.collect(), ..History::default() }.digest(60);
    assert_eq!(
        aside(&digest).unwrap(),
        "3 validations (every 300 steps) of 18.8 ms · 5 first or long steps, 28.8 ms longer each"
    );
    assert_eq!(
        spread(&digest).unwrap(),
        "median 600.0 µs ± 0.0 µs of the last 892; 14 % are late by chance and take 58 % of the time, as when other \
         programs use the processors"
    );
    let mut minute = minute(0, 1.0, 0.0);
    minute.aside[2] = (5, 5e-3);
    let first = History { minutes: vec![minute], ..History::default() }.digest(60);
    assert_eq!(aside(&first), None, "the first steps took no longer");
    let steps = (1..=900_u64).map(|number| match number {
        ..=5 => step(number, 3e4, Kind::Other),
        _ if number.is_multiple_of(300) => step(number, 1e6, Kind::Other),
        450 => step(number, 7e3, Kind::Other),
        _ => step(number, 1e3, Kind::Training),
    });
    assert_eq!(
        aside(&History { steps: steps.collect(), ..History::default() }.digest(60)).unwrap(),
        "3 long steps (every 300 steps), 999.0 ms longer each · 6 other first or long steps, 25.2 ms longer each"
    );
    let periodic = (1..=900_u64).map(|number| step(number, if number % 10 == 0 { 4.5e4 } else { 1e4 }, Kind::Training));
    assert_eq!(
        spread(&History { steps: periodic.collect(), ..History::default() }.digest(60)).unwrap(),
        "median 10.0 ms ± 0.0 µs of the last 900; 10 % are late and take 33 % of the time"
    );
}

#[test]
fn a_slow_rank_is_named_by_its_own_time() {
    let rank = |rank: u16, idle: f32| {
        let mut one = Stretch { rank: Some(rank), ..minute(0, 100.0, 0.0) };
        one.parts.idle = idle * 1e3;
        one
    };
    let minutes = vec![rank(0, 60.0), rank(1, 58.0), rank(2, 5.0), rank(3, 61.0)];
    let found = stands_out(&digest(minutes));
    assert_eq!(
        found[0],
        "rank 2 is slow: it computes 95.0 ms of each step of 100.0 ms; the median of 4 ranks computes 40.0 ms and waits \
         60.0 ms"
    );
    assert_eq!(
        stands_out(&digest(vec![rank(0, 60.0), rank(1, 5.0)])),
        ["rank 1 is slow: it computes 95.0 ms of each step of 100.0 ms; rank 0 computes 40.0 ms and waits 60.0 ms"]
    );
    assert!(!stands_out(&digest(vec![rank(0, 60.0), rank(1, 58.0)])).iter().any(|words| words.contains("rank")));
}
