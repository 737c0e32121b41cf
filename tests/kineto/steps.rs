//! Steps of recordings: damaged ones, micro-batches, stalls, and work without a launch.
#![expect(clippy::float_cmp, reason = "sums of whole microseconds are exact")]

use habitat_tui::profile::{Operation, Phase};
use habitat_tui::trace::import::{Import, ImportOptions, kineto_ranks};
use habitat_tui::units::Micros;

use crate::trace::{AUTOGRAD, MAIN, Trace, recorded, training_step};

/// Kernel time and kernels of a step of [`training_step`].
const WHOLE: (f64, f64) = (54.0, 5.0);

fn steps(count: u32) -> Trace {
    let mut trace = Trace::default();
    for n in 0..count {
        training_step(&mut trace, n, start(n));
    }
    trace
}

fn start(step: u32) -> f64 {
    1000.0 + 100.0 * f64::from(step)
}

fn notes(import: &Import) -> String {
    import.profile.recording.as_ref().map(|recording| recording.notes.join("\n")).unwrap_or_default()
}

fn measured(import: &Import) -> (f64, f64) {
    (import.summary.kernel_time.get(), import.summary.kernels_per_step)
}

/// The number after a key of an event.
fn number(event: &str, key: &str) -> f64 {
    let rest = event.split(&format!("\"{key}\": ")).nth(1).expect("the event has the key");
    rest.split([',', '}']).next().and_then(|text| text.parse().ok()).expect("a number")
}

fn is_kernel(event: &str) -> bool {
    event.contains(r#""cat": "kernel""#)
}

fn is_launch(event: &str) -> bool {
    event.contains("cudaLaunchKernel")
}

/// Removes kernels, and their launches if `both`; by number of the step and of the kernel in it.
fn without(trace: &mut Trace, lost: &[(u32, usize)], both: bool) {
    let mut gone = Vec::new();
    for (step, kernel) in lost {
        let of_step =
            |event: &&String| is_launch(event) && (start(*step)..start(*step + 1)).contains(&number(event, "ts"));
        let launch = trace.events.iter().filter(of_step).nth(*kernel).expect("the step has that many");
        gone.push(number(launch, "correlation"));
    }
    trace.events.retain(|event| {
        !(is_kernel(event) || both && is_launch(event)) || !gone.contains(&number(event, "correlation"))
    });
}

#[test]
fn a_step_that_lost_kernels_does_not_displace_whole_ones() {
    for lost in [&[(0, 0)][..], &[(0, 0), (0, 1), (0, 2)], &[(1, 2)], &[(2, 4)], &[(1, 0), (2, 1)]] {
        let mut trace = steps(3);
        without(&mut trace, lost, false);
        let import = trace.import().unwrap();
        assert_eq!(measured(&import), WHOLE, "{lost:?}");
        assert_eq!(import.profile.measured_step().unwrap().get(), 100.0, "{lost:?}");
        assert!(notes(&import).contains("of its 5 kernels are not in the recording"), "{}", notes(&import));
    }
    // Without its last kernel the middle step ends early: the step after it is shorter than from there to its own end.
    let mut trace = steps(3);
    without(&mut trace, &[(1, 3), (1, 4)], false);
    let import = trace.import().unwrap();
    let step = import.profile.measured_step().unwrap().get();
    assert!((90.0..=100.0).contains(&step), "{step}");
    // Of two steps only the whole one is used, also if the launches are lost.
    for both in [false, true] {
        for step in [0, 1] {
            let mut trace = steps(2);
            without(&mut trace, &[(step, 0)], both);
            assert_eq!(measured(&trace.import().unwrap()), WHOLE, "{both} {step}");
        }
    }
    let mut trace = steps(3);
    without(&mut trace, &[(0, 0), (1, 0), (2, 0)], false);
    let import = trace.import().unwrap();
    assert_eq!(measured(&import), (34.0, 4.0));
    assert!(notes(&import).contains("20.0 % of the kernels of a step were launched but are not"), "{}", notes(&import));
}

/// Steps of 570 µs with ten kernels that are launched every 22 µs and take 530 µs; some lack a launch.
fn behind(count: u32, is_gone: &dyn Fn(usize) -> bool) -> Trace {
    let mut trace = Trace::default();
    for n in 0..count {
        let begin = 1000.0 + 570.0 * f64::from(n);
        trace.mark(&format!("ProfilerStep#{n}"), begin, 562.0);
        let mut start = begin + 13.0;
        for (kernel, duration) in [100.0, 10.0, 100.0, 10.0, 10.0, 90.0, 90.0, 10.0, 90.0, 20.0].into_iter().enumerate()
        {
            let call = begin + 8.0 + 22.0 * kernel as f64;
            let (thread, name) = match kernel {
                4..9 => (AUTOGRAD, format!("autograd::engine::evaluate_function: Op{kernel}Backward0")),
                _ => (MAIN, format!("aten::op{kernel}")),
            };
            trace.operator(thread, &name, call - 2.0, 6.0, "");
            trace.kernel(thread, call, &format!("kernel{kernel}"), start, duration);
            if is_gone(kernel) {
                let last = trace.events.len() - 2;
                trace.events.remove(last);
            }
            start += duration;
        }
    }
    trace
}

#[test]
fn kernels_without_a_launch_belong_to_the_step_in_which_they_run() {
    // Every second launch is missing: kernels are joined by their neighbours.
    for parity in [0, 1] {
        let mut trace = steps(6);
        let mut number = 0;
        trace.events.retain(|event| {
            number += usize::from(is_launch(event));
            !is_launch(event) || number % 2 == parity
        });
        let import = trace.import().unwrap();
        assert_eq!(measured(&import), WHOLE, "{parity}: {}", notes(&import));
        assert!(notes(&import).contains("kernels have no launch in the recording"), "{}", notes(&import));
    }
    // All but the last of each step, and the first: the GPU is far behind the host, and idle between the steps.
    for gone in [0..9, 0..2, 0..5] {
        for count in [3, 6] {
            let import = behind(count, &|kernel| gone.contains(&kernel)).import().unwrap();
            assert_eq!(measured(&import), (530.0, 10.0), "{gone:?} of {count}: {}", notes(&import));
            assert_eq!(import.profile.measured_step().unwrap().get(), 570.0, "{gone:?} of {count}");
        }
    }
    // One kernel of each step: the others stay joined.
    let mut trace = steps(4);
    trace.events.retain(|event| !(is_launch(event) && (number(event, "ts") as u32) % 100 == 28));
    let import = trace.import().unwrap();
    assert_eq!(measured(&import), WHOLE);
    assert!(import.profile.operations.iter().any(|one| one.name == "volta_sgemm_64x64_nt"));
    assert!(!notes(&import).contains("before the recording"), "{}", notes(&import));
}

#[test]
fn a_kernel_without_correlation_is_joined_to_the_launch_that_has_no_kernel() {
    let whole = steps(3).import().unwrap().profile;
    for every in [false, true] {
        let mut trace = steps(3);
        for event in trace.events.iter_mut().filter(|event| is_kernel(event)) {
            if every || event.contains("volta_sgemm_64x64_nt") {
                let was = format!("\"correlation\": {}", number(event, "correlation"));
                *event = event.replace(&was, "\"correlation\": -1");
            }
        }
        let import = trace.import().unwrap();
        assert_eq!(measured(&import), WHOLE);
        if !every {
            assert_eq!(import.profile.operations, whole.operations);
        }
    }
}

/// `prof.step()` runs for every micro-batch, and the optimizer in every n-th.
fn micro_batches(marks: u32, every: u32, mark: &str) -> Trace {
    let mut trace = steps(marks);
    let update = |event: &str, at: f64| {
        event.contains("Optimizer.step#") || (event.contains("aten::add_") || is_launch(event)) && at >= 56.0
    };
    let mut gone = Vec::new();
    trace.events.retain(|event| {
        let step = ((number(event, "ts") - 1000.0) / 100.0).floor();
        let at = number(event, "ts") - start(step as u32);
        let goes = !is_kernel(event) && update(event, at) && (step as u32) % every != every - 1;
        if goes && is_launch(event) {
            gone.push(number(event, "correlation"));
        }
        !goes
    });
    trace.events.retain(|event| !is_kernel(event) || !gone.contains(&number(event, "correlation")));
    for event in &mut trace.events {
        *event = event.replace("ProfilerStep#", mark);
    }
    trace
}

#[test]
fn marked_micro_batches_are_one_step_with_its_update() {
    for (marks, every, used) in [(12, 4, 3), (6, 2, 3), (7, 3, 2), (4, 4, 1)] {
        let import = micro_batches(marks, every, "ProfilerStep#").import().unwrap();
        assert_eq!(import.summary.steps_used, used, "{marks} {every}");
        let every = f64::from(every);
        assert_eq!(measured(&import), (44.0 * every + 10.0, 4.0 * every + 1.0), "{marks} {every}");
        assert!(import.profile.operations.iter().any(|one| one.phase == Phase::Optimizer));
        assert!(notes(&import).contains("micro-batches of one step"), "{}", notes(&import));
        assert_eq!(import.profile.workload.batch_size, Some(2 * every as u64), "{}", notes(&import));
    }
    // Every mark has an update, except skipped ones: they are steps.
    assert_eq!(measured(&steps(3).import().unwrap()), WHOLE);
    let mut skipped = steps(4);
    let update = skipped.events.iter().position(|event| event.contains("Optimizer.step#")).unwrap();
    skipped.events.remove(update);
    assert_eq!(measured(&skipped.import().unwrap()).1, 5.0);
}

#[test]
fn marked_micro_batches_are_one_step_from_shapes_alone() {
    let trace = micro_batches(6, 2, "ProfilerStep#");
    let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
    let import = crate::trace::read(trace.json().as_bytes(), &options).unwrap();
    assert!(notes(&import).contains("in every 2nd of the 6 marked steps"), "{}", notes(&import));
    let counted = |phase: Phase| -> u32 {
        import.profile.operations.iter().filter(|one| one.phase == phase).map(|one| one.count).sum()
    };
    assert_eq!(counted(Phase::Optimizer), 1);
    assert!(counted(Phase::Forward) >= 2);
}

/// Delays everything in and after some steps, and lengthens their kernels.
fn stretched(count: u32, is_long: impl Fn(u32) -> bool) -> Trace {
    let mut trace = steps(count);
    for event in &mut trace.events {
        let at = number(event, "ts");
        let step = ((at - 1000.0) / 100.0).floor() as u32;
        let before: f64 = (0..step).map(|step| if is_long(step) { 200.0 } else { 100.0 }).sum();
        let times = if is_long(step) { 2.0 } else { 1.0 };
        let ts = 1000.0 + before + times * (at - start(step));
        let long = number(event, "dur") * times;
        *event = event.replace(&format!("\"ts\": {at}"), &format!("\"ts\": {ts}"));
        *event = event.replace(&format!("\"dur\": {}", long / times), &format!("\"dur\": {long}"));
    }
    trace
}

#[test]
fn two_batch_sizes_in_turns_are_not_mixed() {
    for count in [8, 5, 2] {
        let import = stretched(count, |step| step % 2 == 1).import().unwrap();
        assert_eq!(measured(&import), WHOLE, "{count}");
        let step = import.profile.measured_step().unwrap().get();
        assert!(step >= WHOLE.0 && step < 130.0, "{count}: {step}");
        assert!(notes(&import).contains("device time by more than 25 %"), "{}", notes(&import));
    }
    let import = stretched(5, |step| step % 2 == 0).import().unwrap();
    assert_eq!(measured(&import), (108.0, 5.0));
}

#[test]
fn a_stall_in_one_of_few_steps_is_not_in_the_step_time() {
    for count in [2, 3] {
        let mut trace = steps(count);
        for event in &mut trace.events {
            let at = number(event, "ts");
            if at >= 1102.0 {
                *event = event.replace(&format!("\"ts\": {at}"), &format!("\"ts\": {}", at + 5000.0));
            }
        }
        let import = trace.import().unwrap();
        let step = import.profile.measured_step().unwrap().get();
        assert!((70.0..=110.0).contains(&step), "{count}: {step}");
    }
}

#[test]
fn kernels_without_times_are_noted() {
    // One step lacks a duration: the others are used.
    let mut trace = steps(4);
    let kernel = trace.events.iter_mut().find(|event| is_kernel(event)).unwrap();
    *kernel = kernel.replace(r#""dur": 20, "#, "");
    let import = trace.import().unwrap();
    assert_eq!((measured(&import), import.summary.steps_used), (WHOLE, 3));
    assert!(
        notes(&import).contains("1 of 20 kernels have no times in the recording: none of them in the steps used"),
        "{}",
        notes(&import)
    );
    // In all steps the time and the duration are 0, or only the duration.
    for (with_start, words) in
        [(false, "4 of 20 kernels have no times"), (true, "4 of 20 kernels have a duration of 0")]
    {
        let mut trace = steps(4);
        for kernel in trace.events.iter_mut().filter(|event| event.contains("volta_sgemm_32x32_tn")) {
            let at = number(kernel, "ts");
            *kernel = kernel.replace(r#""dur": 20"#, r#""dur": 0"#);
            if !with_start {
                *kernel = kernel.replace(&format!("\"ts\": {at}"), "\"ts\": 0.0");
            }
        }
        let import = trace.import().unwrap();
        assert_eq!(measured(&import), (34.0, 5.0));
        assert!(notes(&import).contains(words), "{}", notes(&import));
        assert!(notes(&import).contains("their time is missing"), "{}", notes(&import));
    }
}

#[test]
fn a_trace_may_begin_before_zero() {
    let whole = steps(3).import().unwrap().profile;
    for origin in [1150.0, 2500.0] {
        let mut trace = steps(3);
        for event in &mut trace.events {
            let at = number(event, "ts");
            *event = event.replace(&format!("\"ts\": {at}"), &format!("\"ts\": {:?}", at - origin));
        }
        let shifted = trace.import().unwrap().profile;
        assert_eq!((shifted.operations, shifted.step), (whole.operations.clone(), whole.step.clone()));
    }
}

#[test]
fn events_that_are_in_a_file_twice_count_once() {
    let whole = steps(3).import().unwrap();
    let mut twice = steps(3);
    twice.events.extend(twice.events.clone());
    let mut partly = steps(3);
    let later: Vec<String> = partly.events.iter().filter(|event| number(event, "ts") >= 1150.0).cloned().collect();
    partly.events.extend(later);
    for trace in [twice, partly] {
        let import = trace.import().unwrap();
        assert_eq!(measured(&import), WHOLE);
        assert_eq!(import.profile.operations, whole.profile.operations);
        assert!(notes(&import).contains("duplicate events in the file"), "{}", notes(&import));
    }
}

#[test]
fn of_ranks_in_one_file_one_is_used() {
    for device in [0, 1] {
        let mut both = steps(4);
        for event in &steps(4).events {
            let at = number(event, "ts");
            let mut event = event.replace(&format!("\"ts\": {at}"), &format!("\"ts\": {}", at + 30.0));
            if event.contains(r#""stream""#) {
                event = event.replace(r#""pid": 0"#, &format!("\"pid\": {device}"));
                event = event.replace(r#""device": 0"#, &format!("\"device\": {device}"));
            } else {
                event = event.replace(r#""pid": 1"#, r#""pid": 2"#);
            }
            both.events.push(event);
        }
        let import = both.import().unwrap();
        assert_eq!((measured(&import), import.summary.steps_used), (WHOLE, 4), "{}", notes(&import));
        assert_eq!(import.summary.joined_share, 1.0);
        assert!(notes(&import).contains("2 processes that launch kernels"), "{}", notes(&import));
    }
}

/// One rank of a job: computes for 40 µs, and communicates for the given time, partly hidden by the computation.
fn rank(computes: f64, communicates: f64, hidden: f64) -> Trace {
    let mut trace = Trace::default();
    for n in 0..3 {
        let t = 1000.0 + 1000.0 * f64::from(n);
        trace.mark(&format!("ProfilerStep#{n}"), t, 990.0);
        trace.operator(
            crate::trace::MAIN,
            "aten::mm",
            t + 1.0,
            5.0,
            r#""Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]"#,
        );
        trace.kernel(crate::trace::MAIN, t + 2.0, "sgemm", t + 10.0, computes);
        let from = t + 10.0 + computes - hidden;
        trace.work(
            "kernel",
            "cudaLaunchKernel",
            crate::trace::MAIN,
            t + 3.0,
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            from,
            communicates,
            9,
        );
    }
    trace
}

#[test]
fn what_of_the_communication_is_not_hidden_is_measured_and_at_most_the_whole() {
    let import = rank(40.0, 100.0, 30.0).import().unwrap();
    let step = import.profile.step.unwrap();
    assert_eq!(step.exposed_communication.unwrap().get(), 70.0);
    let none = steps(3).import().unwrap().profile.step.unwrap();
    assert_eq!(none.exposed_communication, None);
    // Ranks that wait for one another: medians of each figure do not belong to one rank.
    let ranks = [rank(40.0, 600.0, 0.0), rank(300.0, 340.0, 0.0), rank(620.0, 20.0, 0.0), rank(500.0, 140.0, 100.0)];
    let ranks = ranks.iter().map(|trace| recorded(trace.json().as_bytes()));
    let import = kineto_ranks(ranks, &ImportOptions::default()).unwrap();
    let step = import.profile.step.clone().unwrap();
    let exposed = step.exposed_communication.unwrap().get();
    let communicates: f64 = import
        .profile
        .operations
        .iter()
        .filter(|one| one.phase == Phase::Communication)
        .filter_map(Operation::total_device_time)
        .map(Micros::get)
        .sum();
    assert!(exposed > 0.0 && exposed <= communicates, "{exposed} of {communicates}");
}
