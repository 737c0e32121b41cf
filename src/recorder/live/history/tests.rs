//! Tests of records and their sums.

use super::*;
use proptest::prelude::*;

fn step(step: u64, at: u32, total: f32, kind: Kind) -> Step {
    let parts = Parts { input: 1.0, forward: 2.0, backward: 3.0, optimizer: 1.0, idle: f32::NAN };
    Step { step, at, kind, total, parts }
}

/// NaN is unequal to itself.
fn same(a: &Stretch, b: &Stretch) -> bool {
    a.to_bytes() == b.to_bytes()
}

#[test]
fn records_have_their_size_and_come_back() {
    let one = step(1 << 40, 7, 10.5, Kind::Checkpoint);
    assert_eq!(one.to_bytes().len(), STEP_BYTES);
    assert_eq!(Step::from_bytes(&one.to_bytes()).unwrap().to_bytes(), one.to_bytes());
    let mut all = Stretch::of(&step(3, 20, 5e5, Kind::Training), Some(2));
    all.add(&Stretch::of(&step(4, 40, 2e6, Kind::Validation), Some(2)));
    assert_eq!(all.to_bytes().len(), STRETCH_BYTES);
    assert!(same(&Stretch::from_bytes(&all.to_bytes()).unwrap(), &all));
}

#[test]
fn a_damaged_record_is_dropped() {
    let one = step(9, 7, 10.5, Kind::Training).to_bytes();
    for end in 0..one.len() {
        assert_eq!(Step::from_bytes(&one[..end]), None, "cut off");
        let mut other = one.clone();
        other[end] ^= 4;
        assert!(Step::from_bytes(&other).is_none(), "byte {end} is another");
    }
    assert_eq!(Step::from_bytes(&[0; STEP_BYTES]), None, "what a file has after a power failure");
    assert_eq!(Stretch::from_bytes(&[0; STRETCH_BYTES]), None);
}

#[test]
fn what_is_not_training_is_counted_apart() {
    let mut all = Stretch::empty(0, None);
    for (number, total, kind) in
        [(1, 10.0, Kind::Training), (2, 30.0, Kind::Training), (3, 3e6, Kind::Validation), (4, 1e6, Kind::Checkpoint)]
    {
        all.add(&Stretch::of(&step(number, number as u32, total, kind), None));
    }
    assert_eq!((all.steps, all.first, all.total), (2, 1, [10.0, 20.0, 30.0]));
    assert_eq!(all.aside, [(1, 3.0), (1, 1.0), (0, 0.0)]);
    assert_eq!((all.all_steps(), all.parts.rest(20.0)), (4, Some(13.0)));
    assert_eq!(Parts::default().rest(20.0), None);
}

#[test]
fn hours_minutes_and_steps_follow_without_gap_or_overlap() {
    let stretch = |from: u32, to: u32, first: u64, steps: u32| Stretch {
        to,
        first,
        last: first + u64::from(steps) - 1,
        steps,
        total: [1.0, 2.0, 3.0],
        ..Stretch::empty(from, None)
    };
    let history = History {
        hours: vec![stretch(0, 36_000, 1, 100), stretch(36_000, 72_000, 101, 100)],
        // The first minutes are gone, and those of the second hour are there too.
        minutes: vec![stretch(71_400, 72_000, 190, 11), stretch(72_000, 72_600, 201, 10)],
        steps: (195..=215).map(|number| step(number, 71_000 + 10 * number as u32, 2.0, Kind::Training)).collect(),
    };
    let all = history.stretches();
    let firsts: Vec<(u64, u32)> = all.iter().map(|stretch| (stretch.first, stretch.steps)).collect();
    assert_eq!(firsts[..3], [(1, 100), (101, 100), (201, 10)]);
    assert_eq!(total(all).unwrap().first, 1);
    // With the first minutes gone, the hours stand for them.
    assert_eq!(History { hours: vec![], ..history.clone() }.stretches().len(), 3);
    assert!(History::default().stretches().is_empty());
    // Another rank ends its minute before the first one.
    let mut history = history;
    history.minutes.insert(0, Stretch { rank: Some(1), ..stretch(0, 600, 1, 5) });
    for own in history.minutes[1..].iter_mut().chain(&mut history.hours) {
        own.rank = Some(0);
    }
    let all = history.stretches();
    assert!(all.iter().all(|stretch| stretch.rank == Some(0)), "{all:?}");
    assert_eq!(total(all).unwrap().last, 215, "with the steps of the last minute");
    // Steps in a window are not timed: the number of the last one counts, not how many there are.
    let gap = Stretch { last: 50, ..stretch(0, 100, 1, 40) };
    let steps = (45..=52).map(|number| step(number, 100, 2.0, Kind::Training)).collect();
    let history = History { minutes: vec![gap], steps, ..History::default() };
    assert_eq!(total(history.stretches()).unwrap().steps, 42);
}

#[test]
fn a_rank_computes_what_it_does_not_wait() {
    let parts = Parts { input: 10.0, idle: 60.0, ..Parts::default() };
    let rank = Stretch { parts, steps: 1, total: [100.0; 3], ..Stretch::empty(0, Some(1)) };
    assert_eq!(rank.own(), Some(30.0));
    assert_eq!(Stretch::empty(0, None).own(), None);
}

proptest! {
    #[test]
    fn the_mean_of_parts_is_that_of_the_whole(times in proptest::collection::vec(1.0_f32..1e6, 1..200), cut in 0_usize..200) {
        let cut = cut.min(times.len());
        let sum = |times: &[f32]| {
            let mut all = Stretch::empty(0, None);
            for (number, time) in times.iter().enumerate() {
                all.add(&Stretch::of(&step(number as u64, 0, *time, Kind::Training), None));
            }
            all
        };
        let (whole, mut parts) = (sum(&times), sum(&times[..cut]));
        parts.add(&sum(&times[cut..]));
        prop_assert_eq!((whole.steps, whole.total[0], whole.total[2]), (parts.steps, parts.total[0], parts.total[2]));
        prop_assert!((whole.total[1] / parts.total[1] - 1.0).abs() < 1e-3);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Step::from_bytes(&bytes), Stretch::from_bytes(&bytes));
    }
}

#[test]
fn steps_in_a_row_have_no_period() {
    let of = |every: u64| {
        let kind = |number: u64| if number.is_multiple_of(every) { Kind::Other } else { Kind::Training };
        let steps = (6..90).map(|number| step(number, 0, 9.0, kind(number)));
        History { steps: steps.collect(), ..History::default() }.digest(9).period[2]
    };
    assert_eq!((of(1), of(10)), (None, Some(10)));
}

#[test]
fn long_steps_that_repeat_are_apart_from_the_first_ones_and_noise() {
    // Rollouts before every 320th step, and as many short pauses.
    let steps: Vec<Step> = (1..=1600)
        .map(|number| match number {
            ..=5 => step(number, 0, 2e4, Kind::Other),
            _ if number.is_multiple_of(320) => step(number, 0, 1.3e6 + 1e3 * number as f32, Kind::Other),
            17 | 30 | 90 | 800 => step(number, 0, 1.9e4, Kind::Other),
            700 => step(number, 0, 6e7, Kind::Other),
            _ => step(number, 0, 4e3, Kind::Training),
        })
        .collect();
    let of = |until: u64| {
        let steps: Vec<Step> = steps.iter().filter(|step| step.step <= until).copied().collect();
        let minutes = vec![total(steps.iter().map(|step| Stretch { to: 600, ..Stretch::of(step, None) })).unwrap()];
        History { steps, minutes, ..History::default() }.digest(1)
    };
    let all = of(1600);
    assert_eq!((all.alike.0, all.period[2], all.total.unwrap().aside[2].0), (5, Some(320), 15));
    assert!((all.alike.1 / 11.3 - 1.0).abs() < 1e-3, "{:?}", all.alike);
    assert_eq!((of(650).alike.0, of(650).period[2]), (2, None), "two have no period");
    assert_eq!(of(320).alike.0, 3, "the short pauses repeat, one rollout does not");
    assert_eq!(of(16).alike, (0, 0.0), "the first steps alone");
}

#[test]
fn the_spread_of_steps_tells_late_ones_from_the_usual() {
    let of = |late: usize| {
        let total = |number: usize| if number.is_multiple_of(late) { 900.0 } else { 100.0 + (number % 5) as f32 };
        let steps = (1..=1000).map(|number| step(number as u64, 0, total(number), Kind::Training));
        History { steps: steps.collect(), ..History::default() }.digest(9).spread.unwrap()
    };
    let noisy = of(10);
    assert_eq!((noisy.steps, noisy.median, noisy.deviation), (1000, 102.5, 1.5));
    assert!((noisy.late - 0.1).abs() < 1e-9 && (noisy.late_time - 0.4955).abs() < 0.01, "{noisy:?}");
    assert!(!noisy.by_chance, "every tenth");
    assert_eq!(of(2000).late, 0.0);
    let few = (1..9).map(|number| step(number, 0, 9.0, Kind::Training));
    assert_eq!(History { steps: few.collect(), ..History::default() }.digest(9).spread, None);
}

/// Steps of 10 ms, with these additional times.
fn spread_of(more: impl Fn(u64) -> f32, parts: impl Fn(f32) -> Parts) -> Spread {
    let steps = (6..=1005).map(|number| {
        let more = more(number);
        Step { total: 1e4 + more, parts: parts(more), ..step(number, 0, 0.0, Kind::Training) }
    });
    History { steps: steps.collect(), ..History::default() }.digest(9).spread.unwrap()
}

/// About every seventh step.
const fn by_chance(step: u64) -> bool {
    (step * step + step / 7) % 7 == 3
}

#[test]
fn waits_for_data_and_other_ranks_are_not_the_machines_noise() {
    let more = |number: u64| if by_chance(number) { 1e5 } else { 0.0 };
    let noisy = spread_of(more, |_| Parts { input: 100.0, ..Parts::default() });
    assert!(noisy.by_chance && noisy.late > 0.1 && noisy.late_time > 0.5, "{noisy:?}");
    let waits = spread_of(more, |more| Parts { input: more, ..Parts::default() });
    assert_eq!((waits.median, waits.late, waits.late_time, waits.by_chance), (1e4, 0.0, 0.0, false));
    let ranks = spread_of(more, |more| Parts { idle: more, ..Parts::default() });
    assert_eq!((ranks.late, ranks.by_chance), (0.0, false));
}

#[test]
fn periodic_work_is_not_by_chance() {
    let every = |steps: u64, more: f32| move |number: u64| if number.is_multiple_of(steps) { more } else { 0.0 };
    // Alone, with a few that really are by chance, and with other periodic work.
    for (also, share) in [(0, 0.1), (237, 0.104), (25, 0.12)] {
        let more = |number: u64| every(10, 35e3)(number) + if also > 0 { every(also, 4e4)(number) } else { 0.0 };
        let spread = spread_of(more, |_| Parts::default());
        assert!(!spread.by_chance && (spread.late - share).abs() < 1e-9, "{spread:?}");
    }
}

#[test]
fn distances_are_irregular_if_they_are_neither_the_same_nor_multiples() {
    let repeated = |some: &[u64]| are_irregular(&some.iter().copied().cycle().take(GAPS.0).collect::<Vec<_>>());
    assert!(!repeated(&[10]) && !repeated(&[10, 5, 5, 10, 10]) && repeated(&[10, 5, 6, 10, 10]));
    assert!(!are_irregular(&[3, 10, 7, 4, 11, 5, 6]), "too few");
    assert!(!are_irregular(&[]) && !are_irregular(&[0; 16]));
}
