use super::*;
use habitat_base::units::GIB;
use habitat_recorder::live::history::{Parts, Stretch};
use habitat_recorder::live::{Exchange, Process};
use habitat_step::profile::Step;

/// A step of 100 µs in which the GPU is busy for `busy` µs, with these operations.
fn profile(busy: u32, precision: &str, operations: &[(&str, u32)]) -> Profile {
    let operations: Vec<String> = operations
        .iter()
        .map(|(name, time)| format!(r#"{{"name": "{name}", "phase": "forward", "device_time_us": {time}}}"#))
        .collect();
    let json = format!(
        r#"{{"format": "habitat-profile", "version": 1,
            "workload": {{"name": "w", "mode": "training", "precision": "{precision}"}},
            "step": {{"duration_us": 100, "device_busy_us": {busy}}}, "operations": [{}]}}"#,
        operations.join(",")
    );
    Profile::from_json(json.as_bytes()).unwrap().0
}

/// A verdict of a job without a history.
fn verdict(seen: &Snapshot, profile: Option<&Profile>, memory: Option<MemoryUse>) -> Result<Verdict, String> {
    super::verdict(seen, profile, memory, &Digest::default())
}

fn waiting(share: f64, workers: Option<u32>) -> Snapshot {
    Snapshot { waiting: Some(Waiting { share, steps: 50, workers, cores: Some(8) }), ..Snapshot::default() }
}

#[test]
fn every_verdict_names_what_it_stands_on() {
    let memory = |used: f64| Some(MemoryUse { used: Bytes::known(used * GIB), all: Bytes::known(80.0 * GIB) });
    let busy = [("aten::mm", 60), ("aten::relu", 37)];
    let exchanging = [("aten::mm", 50), ("c10d::allreduce_", 40)];
    for (seen, profile, memory, bound, words) in [
        (
            waiting(0.62, Some(0)),
            None,
            None,
            Bound::Data,
            "waiting for data: 62 % of the time of the last 50 steps; num_workers=0 loads in the \
             training process: try num_workers=4",
        ),
        (
            waiting(0.62, Some(2)),
            Some(profile(60, "fp32", &busy)),
            None,
            Bound::Data,
            "waiting for data: 62 % of the time of the last 50 steps; use more workers than \
             num_workers=2, less work per sample, or persistent_workers=True if epochs are short",
        ),
        (
            // The data are loaded while the GPU computes.
            waiting(0.62, Some(0)),
            Some(profile(97, "fp32", &busy)),
            memory(40.0),
            Bound::Gpu,
            "GPU-bound: busy 97 % of the step, matrix product 60 % of it; autocast to bf16 (or \
             TF32) shortens them",
        ),
        (
            waiting(0.05, None),
            Some(profile(97, "bf16", &busy)),
            None,
            Bound::Gpu,
            "GPU-bound: busy 97 % of the step, matrix product 60 % of it; torch.compile fuses \
             elementwise kernels and norms (37 % of it); a faster GPU helps too",
        ),
        (
            Snapshot::default(),
            Some(profile(97, "bf16", &[("aten::mm", 97)])),
            None,
            Bound::Gpu,
            "GPU-bound: busy 97 % of the step, matrix product 97 % of it; a faster GPU \
             shortens the step",
        ),
        (
            Snapshot::default(),
            Some(profile(90, "bf16", &[("aten::relu", 90)])),
            None,
            Bound::Gpu,
            "GPU-bound: busy 90 % of the step, elementwise 90 % of it; torch.compile fuses \
             such operations",
        ),
        (
            Snapshot::default(),
            Some(profile(55, "bf16", &busy)),
            memory(79.0),
            Bound::Host,
            "CPU-bound: the GPU is idle 45 % of the recorded step; reduce launch overhead: torch.compile, CUDA graphs or a \
             larger batch",
        ),
        (
            Snapshot::default(),
            Some(profile(90, "bf16", &exchanging)),
            None,
            Bound::Communication,
            "communication: collectives take 40 % of the recorded step; communicate less often: use a larger batch \
             per GPU, or gradient accumulation",
        ),
        (
            Snapshot::default(),
            Some(profile(97, "bf16", &busy)),
            memory(79.0),
            Bound::Memory,
            "memory almost full: 79.0 GB of 80.0 GB in use; a larger batch will probably not fit; activation \
             checkpointing or bf16 frees memory",
        ),
    ] {
        let found = verdict(&seen, profile.as_ref(), memory).unwrap();
        assert_eq!((found.bound, found.to_string().as_str()), (bound, words));
    }
}

/// The first line says why there are no times.
#[test]
fn a_step_on_a_cpu_names_the_parts_of_its_time() {
    let mut on_cpu = profile(0, "fp32", &[("aten::mm", 0)]);
    (on_cpu.step, on_cpu.origin) = (None, None);
    let split = |input: f64, forward: f64, backward: f64, optimizer: f64| {
        let [step, input, forward, backward, optimizer] =
            [100e3, input, forward, backward, optimizer].map(|time| Micros::new(time).unwrap());
        Some(Split { step, input, forward, backward, optimizer })
    };
    for (split, next) in [
        (split(2e3, 30e3, 55e3, 8e3), "a GPU shortens forward and backward passes"),
        (split(2e3, 20e3, 30e3, 40e3), "try fused=True"),
        (split(2e3, 20e3, 30e3, 10e3), "look at what the loop does between the passes"),
    ] {
        let seen = Snapshot { split, ..Snapshot::default() };
        let found = verdict(&seen, Some(&on_cpu), None).unwrap();
        assert_eq!(found.bound, Bound::Cpu);
        assert!(found.next.contains(next), "{found}");
        let traced = profile(60, "fp32", &[("aten::mm", 60)]);
        assert_ne!(verdict(&seen, Some(&traced), None).unwrap().bound, Bound::Cpu, "the recorded step says more");
        assert!(verdict(&seen, None, None).is_err(), "nothing is recorded yet");
    }
    let seen = Snapshot { split: split(2e3, 30e3, 55e3, 8e3), ..Snapshot::default() };
    assert_eq!(
        verdict(&seen, Some(&on_cpu), None).unwrap().because,
        "computes on the CPU: forward 30 %, backward 55 %, optimizer 8 %, input 2 % and the rest 5 % of the last steps \
         (mean 100.0 ms)"
    );
}

#[test]
fn a_step_without_times_says_why() {
    let mut step = profile(0, "fp32", &[("aten::mm", 0)]);
    step.origin = None;
    step.step = None;
    let mut of = |source: &str| {
        let recording = format!(r#"{{"source": "{source}"}}"#);
        step.recording = serde_json::from_str(&recording).ok();
        of_profile(&step, None).unwrap_err()
    };
    assert_eq!(of("trace of shapes, torch 2.15.0"), "unknown: traced from shapes, nothing was timed");
    assert_eq!(of("op list"), "unknown: an op list, nothing was timed");
    assert_eq!(of("kineto trace, shapes only"), "unknown: recorded on a CPU or from shapes, without GPU timings");
}

/// The timeline of a file shows what the host did while the GPU waited.
#[test]
fn a_recorded_step_that_loads_data_waits_for_them() {
    let mut step = profile(55, "fp32", &[("aten::mm", 55)]);
    assert_eq!(of_profile(&step, None).unwrap().bound, Bound::Host);
    let timeline = |host: &str| {
        let json = format!(
            r#"{{"duration_us": 100, "parts": [{{"operation": 0}}, {{"name": "{host}"}}],
            "lanes": [{{"kind": "host", "start_us": [0, 41], "duration_us": [40, 10], "part": [1, 0]}},
            {{"kind": "compute", "start_us": [45], "duration_us": [55], "part": [0]}}]}}"#
        );
        serde_json::from_str(&json).ok()
    };
    step.timeline = timeline("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
    assert_eq!(
        of_profile(&step, None).unwrap().to_string(),
        "waiting for data: the GPU is idle 45 % of the recorded step, 40 % while the CPU loads data; \
         num_workers=0 loads in the training process: try one worker per free CPU core"
    );
    step.timeline = timeline("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__");
    assert!(of_profile(&step, None).unwrap().next.starts_with("use more DataLoader workers"));
    // The waits of the last steps count more than a step that the profiler slowed.
    assert_eq!(verdict(&waiting(0.02, Some(0)), Some(&step), None).unwrap().bound, Bound::Host);
    assert_eq!(
        verdict(&waiting(0.19, Some(2)), Some(&profile(70, "fp32", &[("aten::mm", 70)])), None).unwrap().because,
        "waiting for data: 19 % of the time of the last 50 steps, and the GPU is idle 30 % of the recorded step"
    );
    step.timeline = timeline("aten::item");
    assert_eq!(of_profile(&step, None).unwrap().bound, Bound::Host);
    // A step recorded on a CPU has no GPU idle time.
    let mut on_cpu = profile(0, "fp32", &[("aten::mm", 0)]);
    let waits = Some(Micros::known(30.0));
    on_cpu.step = Some(Step { duration: Some(Micros::known(100.0)), data_wait: waits, ..Step::default() });
    assert_eq!(of_profile(&on_cpu, None).unwrap().because, "waiting for data: 30 % of the recorded step");
    assert!(verdict(&waiting(0.1, Some(2)), Some(&on_cpu), None).is_err(), "the profiler slowed that step");
}

#[test]
fn no_more_workers_are_advised_than_there_are_cores() {
    let next = |workers: u32, cores: u32| {
        let waiting = Waiting { share: 0.5, steps: 9, workers: Some(workers), cores: Some(cores) };
        let seen = Snapshot { waiting: Some(waiting), ..Snapshot::default() };
        verdict(&seen, None, None).unwrap().next
    };
    assert!(next(0, 2).ends_with("try num_workers=1"), "{}", next(0, 2));
    assert!(next(0, 64).ends_with("try num_workers=4"));
    // Whether workers compute or wait is not known.
    let waits = "load faster only if they wait, as for files";
    assert_eq!(next(0, 1), format!("do less work per sample: with 1 CPU core, workers (num_workers) {waits}"));
    assert!(
        next(2, 2).starts_with("do less work per sample")
            && next(2, 2).ends_with(&format!("with 2 CPU cores, more than num_workers=2 {waits}"))
    );
    assert!(next(2, 8).starts_with("use more workers than num_workers=2"));
}

#[test]
fn one_rank_may_hold_up_the_others() {
    let rank = |rank: u32, ms: f64, share: f64| Process {
        rank: Some(rank),
        is_rank: true,
        steps: 9,
        median: Micros::new(ms * 1e3).ok(),
        waiting: Some(Waiting { share, steps: 8, workers: Some(0), cores: Some(8) }),
        ..Process::default()
    };
    let seen = |second: Process| {
        let processes = vec![rank(0, 100.0, 0.02), second, rank(2, 101.0, 0.03)];
        Snapshot { waiting: processes[0].waiting, processes, ..Snapshot::default() }
    };
    // The recorded step is another rank's, whose GPU is busy with communication.
    let busy = profile(97, "bf16", &[("aten::mm", 50), ("c10d::allreduce_", 45)]);
    let words = |second: Process| verdict(&seen(second), Some(&busy), None).unwrap();
    let late = words(rank(1, 101.0, 0.4));
    assert_eq!(late.bound, Bound::Data);
    assert_eq!(
        late.because,
        "waiting for data: rank 1, 40 % of the time of the last 8 steps; the median of 3 ranks 3 %"
    );
    let slow = words(rank(1, 130.0, 0.03));
    assert_eq!(slow.bound, Bound::Rank);
    assert_eq!(slow.because, "one rank is slow: rank 1 takes 130.0 ms per step, the median of 3 ranks 101.0 ms");
    let even = words(rank(1, 101.0, 0.03));
    assert_eq!(even.bound, Bound::Communication);
    assert!(even.next.contains("`run --all-ranks`"), "{}", even.next);
    let [step, least, most] = [100.0, 5.0, 60.0].map(|ms| Micros::new(ms * 1e3).unwrap());
    let mut waits = seen(rank(1, 100.0, 0.03));
    for (process, waiting) in waits.processes.iter_mut().zip([most, least, most]) {
        process.exchange = Some(Exchange { step, waiting });
    }
    let late = verdict(&waits, Some(&busy), None).unwrap();
    assert_eq!(late.bound, Bound::Rank);
    assert_eq!(late.because, "rank 1 is slow: the other ranks wait for it 60 % of each step");
}

#[test]
fn what_is_not_known_says_why() {
    let unknown = |seen: &Snapshot, profile: Option<&Profile>| verdict(seen, profile, None).unwrap_err();
    assert_eq!(unknown(&Snapshot::default(), None), "unknown: no step recorded yet");
    let shapes = Profile { step: None, ..profile(0, "fp32", &[("aten::mm", 0)]) };
    assert_eq!(
        unknown(&waiting(0.03, None), Some(&shapes)),
        "unknown: recorded on a CPU or from shapes, without GPU timings, and data took 3 % of the time of the last 50 steps"
    );
}

/// A job of 100 s with ten validations, checkpoints and long steps, of these shares of the time and periods.
fn history(beside: [(f32, Option<u64>); 3]) -> Digest {
    let aside = beside.map(|(share, _)| if share > 0.0 { (10, share * 100.0) } else { (0, 0.0) });
    let total = Some(Stretch { to: 1000, aside, ..Stretch::empty(0, None) });
    Digest { total, alike: aside[2], period: beside.map(|(_, period)| period), ..Digest::default() }
}

const NO_WORK: (f32, Option<u64>) = (0.0, None);

#[test]
fn work_beside_training_is_the_verdict_if_it_takes_most_of_the_time_outside_the_passes() {
    let on =
        |seen: &Snapshot, history: &Digest| super::verdict(seen, None, None, history).map(|found| found.to_string());
    let saves = history([NO_WORK, (0.46, Some(200)), NO_WORK]);
    let none = Snapshot::default();
    assert_eq!(
        on(&none, &saves).unwrap(),
        "checkpoints take 46 % of the time: every 200 steps, 4.60 s each; save less often, or in the background \
         (torch.distributed.checkpoint.async_save)"
    );
    // A step waits 80 % of its time for data, and half of all time is training.
    assert!(on(&waiting(0.8, Some(2)), &saves).unwrap().starts_with("checkpoints take 46 %"));
    assert!(
        on(&waiting(0.9, Some(2)), &saves)
            .unwrap()
            .starts_with("waiting for data: 90 % of the time of the last 50 steps; that is 49 % of all time; use")
    );
    let both = history([(0.24, None), NO_WORK, (0.28, None)]);
    assert!(on(&none, &both).unwrap().starts_with("long steps take 28 % of the time: 10 of 2.80 s"), "no period yet");
    assert!(on(&none, &history([NO_WORK, (0.19, Some(9)), NO_WORK])).is_err());
    let first = Digest { alike: (0, 0.0), ..history([NO_WORK, NO_WORK, (0.6, None)]) };
    assert!(on(&none, &first).is_err(), "the first steps and single pauses");
}

/// The loop spends 86 % of a step elsewhere.
#[test]
fn shares_of_a_step_are_compared_as_shares_of_all_time() {
    let on_cpu = Profile { step: None, origin: None, ..profile(0, "fp32", &[("aten::mm", 0)]) };
    let [step, input, pass] = [100e3, 0.0, 14e3 / 3.0].map(Micros::known);
    let split = Some(Split { step, input, forward: pass, backward: pass, optimizer: pass });
    let seen = Snapshot { split, ..Snapshot::default() };
    let of = |beside| super::verdict(&seen, Some(&on_cpu), None, &history(beside)).unwrap();
    let outside = of([(0.31, None), NO_WORK, NO_WORK]);
    assert!(outside.because.ends_with("optimizer 5 %; that is 59 % of all time"), "{outside}");
    assert!(of([(0.26, None), (0.2, None), NO_WORK]).because.contains("that is 46 % of all time"), "all work counts");
    assert_eq!(of([(0.5, None), NO_WORK, NO_WORK]).bound, Bound::Beside);
}

/// As in a job whose last steps look even.
#[test]
fn a_rank_that_is_slow_in_the_history_is_the_verdict() {
    let rank = |rank: u16, idle: f32| Stretch {
        steps: 100,
        total: [35e3; 3],
        parts: Parts { idle, ..Parts::default() },
        ..Stretch::empty(0, Some(rank))
    };
    let slow = Digest { ranks: vec![rank(0, 26e3), rank(1, 6e3)], ..history([(0.3, None), NO_WORK, NO_WORK]) };
    let of = |seen: &Snapshot, history: &Digest| super::verdict(seen, None, None, history).unwrap();
    assert_eq!(
        of(&Snapshot::default(), &slow).because,
        "rank 1 is slow: the other ranks wait for it 74 % of each step; that is 52 % of all time"
    );
    let saves = Digest { ranks: slow.ranks.clone(), ..history([NO_WORK, (0.6, None), NO_WORK]) };
    assert_eq!(of(&Snapshot::default(), &saves).bound, Bound::Beside);
    assert_eq!(of(&waiting(0.5, Some(2)), &slow).bound, Bound::Rank, "the larger of two");
    assert_eq!(of(&waiting(0.9, Some(2)), &slow).bound, Bound::Data);
}
