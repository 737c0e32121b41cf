//! The screens on a running job: pictures from the start to its end, and leaving it.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{keys, text};
use habitat_tui::action::Screen;
use habitat_tui::app::live::Leaving;
use habitat_tui::app::modal::Modal;
use habitat_tui::app::{Effect, Msg, Source};
use habitat_tui::live::history::{History, Parts, Stretch};
use habitat_tui::live::{JobRequest, Kernels, RecordingWindows, Snapshot, State, StopSignal, Update};
use habitat_tui::predict::{Estimate, Finding, Method, Prediction, StepTime};
use habitat_tui::profile::Profile;
use habitat_tui::profile::breakdown::GroupBy;
use habitat_tui::report::theme::GlyphSet;
use habitat_tui::tui::render_after;
use habitat_tui::units::Micros;

use crate::running::{
    after, at, cuda, effects, ended, micros, output, picture, process, profile, recorded, running, seen, started,
    steady,
};

#[test]
fn the_job_at_three_sizes() {
    for size in [(80, 24), (120, 40), (50, 15)] {
        let name = |name: &str| format!("job_{name}_{}x{}", size.0, size.1);
        insta::assert_snapshot!(name("started"), picture(vec![at(State::Started)], size));
        insta::assert_snapshot!(name("running"), picture(running(""), size));
        insta::assert_snapshot!(name("leaving"), picture(running("q"), size));
    }
}

#[test]
fn from_the_start_to_the_end() {
    for (name, messages) in [
        ("torch", vec![at(State::Torch)]),
        ("recording", vec![at(State::Recording(11, 13))]),
        ("awaited_predict", vec![at(State::Steps), Msg::Key(keys("3")[0])]),
        ("overview_of_a_job", running("1")),
        ("ended", [running(""), vec![ended("ended with exit code 0", true, None)]].concat()),
        (
            "nothing_recorded",
            vec![ended(
                "ended with exit code 1",
                false,
                Some(
                    "nothing recorded: the job made 7 steps, but recording needs 13 (--after 10 and --window 3); try --after 4 --window 3",
                ),
            )],
        ),
    ] {
        insta::assert_snapshot!(format!("job_{name}"), picture(messages, (80, 24)));
    }
}

#[test]
fn every_state_has_its_words() {
    for (state, words) in [
        (State::Started, "waiting for its Python"),
        (State::Python, "waiting for PyTorch to be imported"),
        (State::Torch, "waiting for the first optimizer step"),
        (State::Steps, "step 7; steps 11–13 will be recorded"),
        (State::Recording(11, 13), "recording steps 11–13"),
        (State::Writing, "writing the trace"),
        (State::Stopping(StopSignal::Interrupt), "sent SIGINT; SIGTERM follows if it still runs after 30 s"),
        (State::Stopping(StopSignal::Kill), "sent SIGKILL"),
        (State::Stopped, "--no-tui"),
        (State::Left, "continues unwatched"),
    ] {
        let drawn = picture(vec![at(state.clone())], (120, 40));
        assert!(drawn.contains(words), "{state:?}: {drawn}");
    }
    let silent = picture(vec![seen(Snapshot { silent: Some(31), ..steady() })], (120, 40));
    assert!(silent.contains("step 137; recorded; no message for 31 s"), "{silent}");
}

/// Ten days, the last five of them slower because of the input.
fn ten_days() -> Msg {
    let hour = |hour: u32| {
        let wait = if hour < 120 { 5e3 } else { 80e3 };
        let parts = Parts { input: wait, forward: 100e3, backward: 200e3, optimizer: 50e3, idle: f32::NAN };
        let mut one =
            Stretch { to: (hour + 1) * 36_000, first: 1, steps: 9000, parts, ..Stretch::empty(hour * 36_000, None) };
        (one.total, one.aside) = ([360e3, 370e3 + wait, 900e3], [(2, 60.0), (1, 9.0), (0, 0.0)]);
        one
    };
    let history = History { hours: (0..240).map(hour).collect(), ..History::default() };
    Msg::Live(Update::History(Box::new(history.digest(240))))
}

#[test]
fn the_history_of_days_is_on_the_screen() {
    for size in [(80, 24), (120, 40)] {
        let drawn = picture(vec![seen(steady()), ten_days()], size);
        for words in
            ["mean step over 10 days, to 450.0 ms", "steps became slower: 375.0 ms to 450.0 ms", "480 validations"]
        {
            assert!(drawn.contains(words), "{words:?}: {drawn}");
        }
        insta::assert_snapshot!(format!("job_history_{}x{}", size.0, size.1), drawn);
    }
    let drawn = picture(vec![seen(steady()), ten_days()], (50, 15));
    assert!(drawn.contains("state") && drawn.contains("output"), "{drawn}");
}

/// A CUDA program: recorded for a time, without steps.
#[test]
fn a_cuda_program_is_followed_without_steps() {
    let mut launch = started();
    if let Some(job) = &mut launch.setup.job {
        let (after, length) = (Duration::from_secs(5), Duration::from_millis(2500));
        job.wanted = RecordingWindows::Kernels { after, length };
        job.command = "program --all".into();
    }
    let drawn = |state: State, more: Snapshot, size| {
        text(&render_after(&launch, vec![seen(Snapshot { state, ..more })], size).1)
    };
    let started = || Snapshot { processes: vec![cuda(4242)], ..Snapshot::default() };
    let recorded = Kernels { count: 48_000, lost: 0, length: micros(2_500_000.0) };
    let kernels = Some(recorded);
    for (state, more, words) in [
        (State::Started, Snapshot::default(), "started; waiting for it to start CUDA"),
        (State::Cuda(4), started(), "CUDA started; recording begins in 4 s"),
        (State::Cuda(0), started(), "CUDA started; recording begins   "),
        (State::Kernels(3), started(), "recording kernels, 3 s left"),
        (State::Writing, started(), "writing the trace"),
        (State::Running, started(), "running; recording is over"),
        (State::Running, Snapshot { kernels, ..started() }, "48,000 kernels in 2.5"),
        (State::Left, Snapshot { kernels, ..started() }, "continues unwatched"),
        (State::Cuda(4), Snapshot { processes: vec![cuda(51), cuda(52)], ..started() }, "4242, CUDA in 51, 52"),
        (State::Cuda(4), started(), "2.5 s of kernels, 5 s after CUDA's start"),
    ] {
        let drawn = drawn(state.clone(), more, (120, 40));
        assert!(drawn.contains(words), "{state:?}, {words:?}: {drawn}");
        for word in ["Python", "PyTorch", "timed", "step 0"] {
            assert!(!drawn.contains(word), "{state:?}: {drawn}");
        }
    }
    insta::assert_snapshot!("job_cuda", drawn(State::Cuda(4), started(), (80, 24)));
    insta::assert_snapshot!("job_cuda_recorded", drawn(State::Running, Snapshot { kernels, ..started() }, (80, 24)));
    let lost = Snapshot { kernels: Some(Kernels { lost: 1200, ..recorded }), ..started() };
    assert!(drawn(State::Running, lost, (120, 40)).contains("1,200 records lost"));
}

#[test]
fn nothing_is_shown_that_was_not_measured() {
    let drawn = picture(vec![at(State::Steps)], (120, 40));
    assert!(drawn.contains("no steps timed yet") && !drawn.contains("steps/s") && !drawn.contains("median"), "{drawn}");
    assert!(drawn.contains("known after recording"), "{drawn}");
    let ranks = Snapshot { processes: vec![process(51, Some(0), 20), process(52, Some(1), 20)], ..steady() };
    let drawn = picture(vec![seen(ranks)], (120, 40));
    assert!(drawn.contains("trains in 51 (rank 0), 52 (rank 1)"), "{drawn}");
}

#[test]
fn a_job_without_a_gpu_is_said_to_have_none() {
    let shapes = Msg::Live(Update::Recorded(Box::new(recorded().without_origin())));
    let drawn = picture(vec![seen(steady()), shapes], (80, 24));
    assert!(drawn.contains("CPU: no GPU kernels in the window"), "{drawn}");
    assert!(picture(running(""), (80, 24)).contains("Tesla V100"));
}

/// What is shown of a step that no GPU ran: no empty columns, no advice on traces.
#[test]
fn without_a_gpu_the_screens_show_what_the_step_computes() {
    let shapes = || Msg::Live(Update::Recorded(Box::new(recorded().without_origin())));
    let on = |pressed: &str, size| {
        let mut messages = vec![seen(steady()), shapes()];
        messages.extend(keys(pressed).into_iter().map(Msg::Key));
        picture(messages, size)
    };
    for (name, pressed) in [("profile", "2"), ("overview", "1")] {
        insta::assert_snapshot!(format!("job_without_gpu_{name}"), on(pressed, (80, 24)));
    }
    for size in [(80, 24), (120, 40), (50, 15)] {
        let drawn = on("2", size);
        assert!(!drawn.contains("not measured") && !drawn.contains("0.0 µs"), "{drawn}");
        assert!(drawn.contains("FLOPs") && drawn.contains("mm"), "{drawn}");
    }
    // mm: 2·128·2048·128 operations 8 times and 2·2048·128·128 4 times.
    let detail = on("2", (120, 40));
    assert!(detail.contains("537 M") && detail.contains("67.1 MFLOP · 2.06 MB read and written per call"), "{detail}");
    let mut app = after(vec![seen(steady()), shapes(), Msg::Key(keys("2")[0])]);
    for _ in 0..4 {
        effects(&mut app, "b");
        assert_ne!(app.profile.by, GroupBy::Kernel, "there are no kernels");
    }
    assert!(!on("1", (120, 40)).contains("CUDA activity"));
}

/// Steps of microseconds are told in microseconds, and what bounds them is said.
#[test]
fn short_steps_are_told_apart_and_what_bounds_them_is_said() {
    let with = |change: fn(&mut Prediction)| {
        let mut launch = started();
        let by = launch.engine.predict.clone();
        launch.engine.predict = Arc::new(move |profile, method| {
            let mut all = by(profile, method)?;
            all.predictions.iter_mut().for_each(change);
            Ok(all)
        });
        move |profile: Profile, size| {
            let recorded = Msg::Live(Update::Recorded(Box::new(profile)));
            text(&render_after(&launch, vec![seen(steady()), recorded, Msg::Key(keys("3")[0])], size).1)
        }
    };
    let short = |prediction: &mut Prediction| {
        let mid = prediction.step.mid() * 1e-2;
        prediction.step = StepTime::Predicted(Estimate::with_band(mid, 0.1, Method::Mixed));
        prediction.host_idle = Micros::ZERO;
    };
    for size in [(80, 24), (120, 40)] {
        let drawn = with(short)(recorded().without_origin(), size);
        assert!(drawn.contains("step, µs") && drawn.contains("18.5–22.6"), "{drawn}");
        let waiting = |prediction: &mut Prediction| {
            let (launch_us, data_us) = (None, Micros::ZERO);
            let (idle_us, step_us) = (prediction.host_idle, prediction.step.mid());
            prediction.warnings = vec![Finding::HostBound { idle_us, data_us, step_us, launch_us }];
        };
        let drawn = with(waiting)(recorded(), size);
        assert!(drawn.contains("GPU idle"), "{drawn}");
        assert!(drawn.contains("step, ms") && drawn.contains("2.6–5.4"), "{drawn}");
    }
}

/// In a dialog the bottom line has the keys of the dialog.
#[test]
fn dialogs_have_their_own_keys_at_the_bottom() {
    for (pressed, wanted) in
        [("q", "esc stay"), ("3 w", "esc close"), ("?", "esc close"), (":", "enter run"), ("2 /", "Esc: restore")]
    {
        let drawn = picture(running(pressed), (80, 24));
        let bottom = drawn.lines().rev().take(3).collect::<Vec<_>>().join("\n");
        assert!(bottom.contains(wanted) && !drawn.contains("esc clear"), "{pressed}: {drawn}");
    }
}

#[test]
fn the_screens_fill_when_a_profile_comes_and_keep_what_was_chosen() {
    let mut app = after(vec![at(State::Steps)]);
    for key in ["1", "2", "3", "4"] {
        effects(&mut app, key);
        assert!(effects(&mut app, "j r enter s").is_empty(), "{key}: there is nothing to do yet");
    }
    let app = after(running("2 j b s"));
    assert_eq!(app.setup.source, Source::Given("train-2026-11-21.habitat.json.zst".into()));
    assert!(app.plan.value().is_some() && !app.profile.entries.is_empty());
    // Another profile: grouping, order and selection stay.
    let (by, sort, selected) = (app.profile.by, app.profile.list.sort, app.profile.list.selected);
    let app = after([running("2 j b s"), vec![profile()]].concat());
    assert_eq!((app.profile.by, app.profile.list.sort, app.profile.list.selected), (by, sort, selected));
    assert!(!app.predictions.is_stale());
}

#[test]
fn leaving_while_it_runs_asks() {
    for (pressed, selected) in [("q", 0), ("4 q", 0), ("ctrl-c", 1)] {
        let mut app = after(running(""));
        assert!(effects(&mut app, pressed).is_empty(), "{pressed}");
        assert_eq!(app.modal, Some(Modal::Leave { selected }), "{pressed}");
    }
    for stay in ["esc", "q", "j j enter"] {
        let mut app = after(running("q"));
        assert!(effects(&mut app, stay).is_empty());
        assert_eq!(app.modal, None, "{stay}");
    }
    for leave in ["l", "enter", "j k enter"] {
        let mut app = after(running("q"));
        assert!(matches!(effects(&mut app, leave)[..], [Effect::Quit]), "{leave} leaves it running");
    }
    assert_eq!(Leaving::ALL[0], Leaving::Leave, "who presses Enter without reading loses no training");
}

#[test]
fn stopping_waits_for_the_end() {
    for (opened, stop) in
        [("3 q", "s"), ("3 q", "j enter"), ("3 q", "ctrl-c"), ("3 ctrl-c", "ctrl-c"), ("ctrl-c", "enter")]
    {
        let mut app = after(running(opened));
        assert!(matches!(effects(&mut app, stop)[..], [Effect::Job(JobRequest::Stop)]), "{opened}, {stop}");
        assert_eq!(app.screen, Screen::Job);
        assert!(app.update(at(State::Stopping(StopSignal::Interrupt))).is_empty());
        assert!(matches!(app.update(ended("stopped by you", true, None))[..], [Effect::Quit]));
    }
}

/// A job that saves a checkpoint on Ctrl-C is not killed by a key held down.
#[test]
fn a_job_that_was_asked_to_end_is_pushed_only_by_choice() {
    let mut app = after(running("ctrl-c ctrl-c"));
    for _ in 0..20 {
        assert!(effects(&mut app, "ctrl-c").is_empty());
    }
    app.update(at(State::Stopping(StopSignal::Interrupt)));
    assert!(effects(&mut app, "ctrl-c").is_empty());
    assert!(matches!(effects(&mut app, "s")[..], [Effect::Job(JobRequest::Stop)]), "the next signal at once");
    assert!(matches!(effects(&mut app, "q l")[..], [Effect::Quit]), "or let it finish alone");
    let mut stopping = running("ctrl-c ctrl-c");
    stopping.push(at(State::Stopping(StopSignal::Interrupt)));
    let drawn = picture(stopping.clone(), (80, 24));
    assert!(!drawn.contains("can keep running") && drawn.contains("the screens close once"), "{drawn}");
    stopping.push(Msg::Key(keys("ctrl-c")[0]));
    let asked = picture(stopping, (80, 24));
    assert!(asked.contains("SIGTERM; 15 s later SIGKILL"), "{asked}");
}

/// `x` cancels what is computed. Beside a job it asks, and neither stops it nor does nothing.
#[test]
fn cancelling_beside_a_job_asks_before_it_stops_it() {
    let mut app = after(vec![at(State::Steps)]);
    assert!(effects(&mut app, "x").is_empty());
    let Some(Modal::Leave { selected }) = app.modal else { panic!("{:?}", app.modal) };
    assert_eq!(Leaving::ALL[selected], Leaving::Stop);
    assert!(effects(&mut app, "x").is_empty() && app.modal.is_some(), "a second time is no answer");
    assert!(matches!(effects(&mut app, "enter")[..], [Effect::Job(JobRequest::Stop)]));
    // What is computed goes first.
    let mut app = after(running(""));
    effects(&mut app, "r");
    assert!(app.predictions.is_running());
    effects(&mut app, "x");
    assert!(!app.predictions.is_running() && app.modal.is_none());
    app.update(ended("ended with exit code 0", true, None));
    effects(&mut app, "x");
    assert_eq!(app.modal, None, "nothing is left to cancel");
}

#[test]
fn after_its_end_the_screens_stay_and_leaving_asks_nothing() {
    let mut app = after(running("q"));
    assert!(app.update(ended("ended with exit code 0", true, None)).is_empty());
    assert_eq!(app.modal, None, "the question has answered itself");
    assert!(matches!(effects(&mut app, "q")[..], [Effect::Quit]));
}

#[test]
fn output_scrolls_and_stays_where_it_is_read() {
    let lines: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
    let all: Vec<&str> = lines.iter().map(String::as_str).collect();
    let end = picture(vec![output(&all)], (80, 24));
    assert!(end.contains("line 99") && !end.contains("line 80\n"), "{end}");
    let mut messages = vec![output(&all[..90])];
    messages.extend(keys("g").into_iter().map(Msg::Key));
    let top = picture(messages.clone(), (80, 24));
    assert!(top.contains("line 0") && top.contains("lines below"), "{top}");
    messages.push(output(&all));
    let still = picture(messages.clone(), (80, 24));
    assert!(still.contains("line 0") && !still.contains("line 99"), "{still}");
    messages.extend(keys("G").into_iter().map(Msg::Key));
    assert!(picture(messages, (80, 24)).contains("line 99"));
}

#[test]
fn whatever_the_size_nothing_breaks() {
    let mut ascii = started();
    ascii.setup.glyphs = GlyphSet::Ascii;
    for width in [1, 2, 49, 50, 51, 76, 80, 110, 300] {
        for height in [1, 2, 14, 15, 16, 19, 20, 21, 28, 100] {
            for pressed in ["", "q", "1", "3"] {
                let drawn = text(&render_after(&ascii, running(pressed), (width, height)).1);
                assert!(drawn.is_ascii(), "{width}×{height} {pressed}: {drawn}");
                picture(vec![at(State::Steps), Msg::Key(keys("2")[0])], (width, height));
            }
        }
    }
}
