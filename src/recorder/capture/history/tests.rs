use super::*;

/// Reports of steps of 100 ms each, one a second; `change` changes them.
fn gathered(steps: u64, change: impl Fn(u64, &mut f64, &mut messages::Parts)) -> Vec<(Level, Vec<u8>)> {
    let mut gather = Gather::default();
    let mut now = 0.0;
    let mut all = Vec::new();
    for first in (2..=steps).step_by(10) {
        let mut parts = messages::Parts { batches: Some(1), every: 1, ..messages::Parts::default() };
        let mut times_us = vec![1e5; 10];
        for (step, time) in (first..).zip(&mut times_us) {
            change(step, time, &mut parts);
        }
        parts.forward_us = vec![2e4; 10];
        parts.backward_us = vec![5e4; 10];
        parts.optimizer_us = vec![1e4; 10];
        now += times_us.iter().sum::<f64>() / 1e6;
        let (parts, waits_us) = (Box::new(parts), vec![]);
        let message = Message::Steps { first, times_us, waits_us, workers: None, idle_us: vec![], parts };
        gather.hear(7, &message, Duration::from_secs_f64(now));
        all.extend(gather.due());
    }
    gather.end();
    all.extend(gather.due());
    all
}

fn stretches(all: &[(Level, Vec<u8>)], level: Level) -> Vec<Stretch> {
    all.iter().filter(|(of, _)| *of == level).map(|(_, bytes)| Stretch::from_bytes(bytes).unwrap()).collect()
}

fn kinds(all: &[(Level, Vec<u8>)]) -> Vec<(u64, Kind)> {
    let steps = all.iter().filter(|(level, _)| *level == Level::Steps);
    let steps = steps.map(|(_, bytes)| Step::from_bytes(bytes).unwrap());
    steps.filter(|step| step.step > FIRST && step.kind != Kind::Training).map(|step| (step.step, step.kind)).collect()
}

#[test]
fn steps_become_minutes_and_hours() {
    let all = gathered(80_001, |_, _, _| ());
    let (minutes, hours) = (stretches(&all, Level::Minutes), stretches(&all, Level::Hours));
    assert_eq!((minutes.len(), hours.len()), (134, 3));
    for list in [&minutes, &hours] {
        assert_eq!(list.iter().map(Stretch::all_steps).sum::<u64>(), 80_000);
        assert!(list.windows(2).all(|pair| pair[0].to <= pair[1].from && pair[0].first < pair[1].first));
    }
    assert!((minutes[5].total[1] - 1e5).abs() < 1.0 && (hours[1].parts.backward - 5e4).abs() < 1.0);
    assert_eq!(all.iter().filter(|(level, _)| *level == Level::Steps).count(), 80_000);
}

#[test]
fn validations_checkpoints_and_pauses_are_told_from_training() {
    let all = gathered(400, |step, time, parts| match step {
        // A validation of 20 batches, one of them with a checkpoint that takes a little more.
        100 | 200 => {
            *time = 2e6;
            parts.other_batches.push((step, 21));
        }
        150 => {
            *time = 1e6;
            parts.saved_us.push((step, 8e5));
        }
        // Another process took the machine; and a step that is slow, as some are.
        300 => *time = 9e5,
        350 => *time = 2e5,
        _ => {}
    });
    let told = [(100, Kind::Validation), (150, Kind::Checkpoint), (200, Kind::Validation), (300, Kind::Other)];
    assert_eq!(kinds(&all), told);
    let minute = crate::live::history::total(stretches(&all, Level::Minutes)).unwrap();
    assert_eq!(minute.aside.map(|(count, _)| count), [2, 1, 5]);
    assert!(minute.total[2] <= 2e5, "none of them is in the training's times");
}

#[test]
fn a_validation_and_a_save_in_one_step_are_two_with_their_own_times() {
    for (validation, saved) in [(254e4, 330e4), (256e4, 40e4), (40e4, 300e4)] {
        let all = gathered(1000, |step, time, parts| {
            if step.is_multiple_of(100) {
                *time += validation + saved;
                parts.other_batches.push((step, 101));
                parts.saved_us.push((step, saved));
            }
        });
        let kinds = kinds(&all);
        assert_eq!(kinds.len(), 20, "{kinds:?}");
        assert_eq!(kinds[..2], [(100, Kind::Validation), (100, Kind::Checkpoint)]);
        let mut history = crate::live::history::History::default();
        history.add(&all);
        let digest = history.digest(1);
        assert_eq!((digest.period[..2].to_vec(), digest.alike), (vec![Some(100); 2], (0, 0.0)));
        let aside = digest.total.unwrap().aside;
        for ((count, seconds), true_time) in [(aside[0], validation), (aside[1], saved)] {
            let each = f64::from(seconds) * 1e6 / f64::from(count) - 1e5;
            assert!(count == 10 && (each / true_time - 1.0).abs() < 1e-3, "{count} of {each}, {true_time}");
        }
    }
}

#[test]
fn what_follows_the_last_step_counts_if_it_is_a_validation_or_a_save() {
    let after = |batches, saved_us| {
        let mut gather = Gather::default();
        let parts = Box::new(messages::Parts { batches: Some(1), ..messages::Parts::default() });
        let (times_us, waits_us) = (vec![1e5; 50], vec![]);
        let steps = Message::Steps { first: 2, times_us, waits_us, workers: None, idle_us: vec![], parts };
        gather.hear(7, &steps, Duration::from_secs(5));
        let (other_batches, saved_us) = (vec![(51, batches)], vec![(51, saved_us)]);
        let parts = Box::new(messages::Parts { other_batches, saved_us, ..messages::Parts::default() });
        let after = Message::After { step: 51, time_us: 2e6, parts };
        gather.hear(7, &after, Duration::from_secs(9));
        gather.hear(7, &Message::Exit { steps: 51, backward_passes: 0 }, Duration::from_secs(9));
        crate::live::history::total(stretches(&gather.due(), Level::Minutes)).unwrap()
    };
    let (validation, save) = (after(20, 0.0), after(0, 1.5e6));
    assert_eq!([validation, save].map(|one| (one.to, one.last, one.steps)), [(70, 51, 46); 2]);
    assert_eq!((validation.aside[0], save.aside[1]), ((1, 2.0), (1, 2.0)));
    assert_eq!(after(1, 1e4).to, 50, "a batch that no step followed");
}

#[test]
fn long_steps_at_irregular_distances_are_noise_and_periodic_ones_are_work() {
    // About every seventh step another program has the processor meanwhile.
    let noise = |step: u64| (step * step + step / 7) % 7 == 3;
    let all = gathered(4001, |step, time, _| *time = if noise(step) { 8e5 } else { 1e5 });
    let found = kinds(&all);
    assert!(found.len() <= 2 * GAPS.1, "only until the pattern is known: {found:?}");
    let whole = crate::live::history::total(stretches(&all, Level::Minutes)).unwrap();
    let share = (6..=4001).filter(|step| noise(*step)).count() as f64 / 3996.0;
    let mean = 1e5 + share * 7e5;
    assert!((f64::from(whole.total[1]) / mean - 1.0).abs() < 0.02, "they are in the mean: {whole:?}, {mean}");
    // Work that a loop repeats every ten steps is counted apart.
    let all = gathered(4001, |step, time, _| *time = if step % 10 == 0 { 8e5 } else { 1e5 });
    assert_eq!(kinds(&all).len(), 400);
    // And two such things together, whose distances are 10, 5, 5 and 10 steps.
    let all = gathered(4001, |step, time, _| {
        *time += if step % 10 == 0 { 12e5 } else { 0.0 } + if step % 25 == 0 { 16e5 } else { 0.0 };
    });
    assert_eq!(kinds(&all).len(), 480);
    // Evaluations every sixty steps, beside noise that takes less.
    let all = gathered(4001, |step, time, _| {
        *time = if step % 60 == 0 {
            6e6
        } else if noise(step) {
            8e5
        } else {
            1e5
        }
    });
    let found = kinds(&all);
    let evaluations = (1..=66).filter(|number| found.contains(&(60 * number, Kind::Other))).count();
    assert!(evaluations == 66 && found.len() <= 66 + 2 * GAPS.1, "{evaluations}: {found:?}");
}

#[test]
fn a_slower_machine_is_not_a_pause_for_ever() {
    let all = gathered(2000, |step, time, _| *time = if step > 1000 { 3e5 } else { 1e5 });
    assert_eq!(kinds(&all), []);
    let all = gathered(2000, |step, time, _| *time = if step > 1000 { 9e5 } else { 1e5 });
    assert_eq!(kinds(&all).len(), STRANGE as usize);
}

#[test]
fn other_processes_take_no_room() {
    let mut gather = Gather::default();
    let steps = |first: u64| Message::Steps {
        first,
        times_us: vec![100.0; 3],
        waits_us: vec![],
        workers: None,
        idle_us: vec![],
        parts: Box::default(),
    };
    let exit = Message::Exit { steps: 0, backward_passes: 0 };
    for pid in 1..=2 * MOST as u32 {
        // Helpers that end, and processes that train one after the other.
        gather.hear(pid, &exit, Duration::ZERO);
        gather.hear(10_000 + pid, &steps(6), Duration::from_secs(1));
        gather.hear(10_000 + pid, &exit, Duration::from_secs(1));
    }
    gather.hear(7, &steps(6), Duration::from_secs(2));
    gather.end();
    let minutes = stretches(&gather.due(), Level::Minutes);
    assert_eq!(minutes.len(), 2 * MOST + 1);
}

#[test]
fn the_steps_kept_one_by_one_are_those_of_the_first_rank() {
    let mut gather = Gather::default();
    let world = |rank| Message::World(messages::World { rank: Some(rank), size: 2, group: "g".into() });
    let steps = |first: u64| Message::Steps {
        first,
        times_us: vec![100.0; 3],
        waits_us: vec![1.0; 3],
        workers: None,
        idle_us: vec![30.0; 3],
        parts: Box::default(),
    };
    for (pid, rank, first) in [(2, 1, 60), (1, 0, 6)] {
        gather.hear(pid, &world(rank), Duration::ZERO);
        gather.hear(pid, &steps(first), Duration::from_secs(1));
    }
    gather.busy([0.5, 1.0].into_iter());
    gather.end();
    let all = gather.due();
    let one_by_one = all.iter().filter(|(level, _)| *level == Level::Steps);
    let one_by_one: Vec<u64> = one_by_one.map(|(_, bytes)| Step::from_bytes(bytes).unwrap().step).collect();
    assert_eq!(one_by_one, [6, 7, 8]);
    let minutes = stretches(&all, Level::Minutes);
    assert_eq!(minutes.iter().map(|minute| minute.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    assert_eq!(minutes[0].own(), Some(69.0));
    assert!(minutes[0].busy == 0.75 && minutes[1].busy.is_nan(), "the GPUs are those of the machine");
}
