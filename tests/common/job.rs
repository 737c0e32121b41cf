//! A running job for the tests of its screens: what is told of it, step by step.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;

use habitat_tui::action::Screen;
use habitat_tui::app::{App, Effect, Msg, Source};
use habitat_tui::live::{Aim, Job, Process, RecordingWindows, Snapshot, State, Times, Update};
use habitat_tui::profile::Profile;
use habitat_tui::tui::{Launch, render_after};
use habitat_tui::units::{Micros, Range};

use super::common::{keys, launch, text};

/// A launch on a job of which nothing is known.
pub fn started() -> Launch {
    let mut launch = launch();
    launch.setup.profile = Arc::new(Profile { operations: Vec::new(), origin: None, step: None, ..recorded() });
    launch.setup.source = Source::Awaited;
    launch.setup.screen = Screen::Job;
    launch.setup.job = Some(Job {
        id: "train".into(),
        command: "python train.py --epochs 3".into(),
        pid: 4242,
        name: "train".into(),
        log: "train-2026-11-21.log".into(),
        output: "train-2026-11-21.habitat.json.zst".into(),
        wanted: RecordingWindows::Steps { windows: 1, after: 10, window: 3, every: None },
        aim: Aim::default(),
    });
    launch
}

/// The step of the other tests.
pub fn recorded() -> Profile {
    (*launch().setup.profile).clone()
}

pub fn micros(value: f64) -> Micros {
    Micros::new(value).unwrap()
}

pub fn process(pid: u32, rank: Option<u32>, steps: u64) -> Process {
    let (python, torch) = (Some("3.12.3".into()), Some("2.15.0".into()));
    Process { pid, rank, python, torch, steps, ..Process::default() }
}

/// One that started CUDA.
pub fn cuda(pid: u32) -> Process {
    Process { pid, ..Process::default() }
}

/// After 137 steps: all recorded.
pub fn steady() -> Snapshot {
    let recent: Vec<Micros> =
        (0..120).map(|step| micros(4000.0 + f64::from(step % 7) * 100.0 + f64::from(step / 119) * 9000.0)).collect();
    Snapshot {
        state: State::Steps,
        processes: vec![process(4242, None, 137)],
        steps: 137,
        times: Some(Times {
            now: micros(4120.0),
            median: micros(4300.0),
            mean: micros(4375.0),
            pace: Range { low: micros(4300.0), mid: micros(4375.0), high: micros(4500.0) },
            range: [micros(4000.0), micros(13100.0)],
            count: 119,
            only_last: false,
        }),
        recent,
        windows: vec![(11, 13)],
        cost: micros(62_000.0),
        ..Snapshot::default()
    }
}

pub fn seen(snapshot: Snapshot) -> Msg {
    Msg::Live(Update::Snapshot(Box::new(snapshot)))
}

pub fn at(state: State) -> Msg {
    let early = Snapshot { times: None, recent: Vec::new(), windows: Vec::new(), cost: Micros::ZERO, ..steady() };
    match state {
        State::Started => seen(Snapshot::default()),
        State::Python | State::Torch => {
            seen(Snapshot { state, steps: 0, processes: vec![process(4242, None, 0)], ..early })
        }
        State::Steps => seen(Snapshot { state, steps: 7, ..early }),
        State::Recording(..) | State::Writing => seen(Snapshot { state, steps: 10, ..early }),
        state => seen(Snapshot { state, ..steady() }),
    }
}

pub fn output(lines: &[&str]) -> Msg {
    Msg::Live(Update::Output(Arc::new(lines.iter().map(|line| (*line).to_owned()).collect())))
}

pub fn profile() -> Msg {
    Msg::Live(Update::Recorded(Box::new(recorded())))
}

pub fn ended(words: &str, well: bool, remedy: Option<&str>) -> Msg {
    let state = State::Ended { words: words.into(), well };
    let remedy = remedy.map(str::to_owned);
    if remedy.is_some() {
        return seen(Snapshot {
            state,
            remedy,
            steps: 7,
            processes: vec![process(4242, None, 7)],
            ..Snapshot::default()
        });
    }
    seen(Snapshot { state, ..steady() })
}

/// A job in full swing, recorded, then the keys.
pub fn running(pressed: &str) -> Vec<Msg> {
    let mut messages =
        vec![at(State::Started), output(&["epoch 1", "loss 2.31", "loss 2.29"]), seen(steady()), profile()];
    messages.extend(keys(pressed).into_iter().map(Msg::Key));
    messages
}

pub fn after(messages: Vec<Msg>) -> App {
    render_after(&started(), messages, (80, 24)).0
}

/// The effects of the last key.
pub fn effects(app: &mut App, text: &str) -> Vec<Effect> {
    keys(text).into_iter().map(|key| app.update(Msg::Key(key))).last().unwrap_or_default()
}

pub fn picture(messages: Vec<Msg>, size: (u16, u16)) -> String {
    text(&render_after(&started(), messages, size).1)
}
