//! What the screen tells of a running job beside its state: what it waits for, what holds it back,
//! time left, cost, the GPUs; and screens that stay live.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "helpers of tests")]

use std::sync::Arc;
use std::time::Duration;

use crate::common::text;
use crate::running::{micros, picture, process, profile, recorded, running, seen, started, steady};
use habitat_tui::action::Screen;
use habitat_tui::app::{App, Msg};
use habitat_tui::live::{Aim, Board, PlanFigures, RecordingWindows, Snapshot, State, Update, Waiting};
use habitat_tui::plan::Work;
use habitat_tui::pricing::PriceBook;
use habitat_tui::tui::{Launch, render_after};
use habitat_tui::units::{Bytes, GIB, GpuSlug, Hours, Megahertz, Micros, Range, Usd, UsdPerHour, Watts};

/// After 300 steps of five million, on a machine of a known price; half of each waits.
fn aimed() -> Launch {
    let mut launch = started();
    let job = launch.setup.job.as_mut().unwrap();
    job.aim = Aim { steps: Some(5_000_000), price: Some(UsdPerHour::new(1.25).unwrap()), plan: None };
    launch
}

fn waiting() -> Snapshot {
    let waiting = Some(Waiting { share: 0.47, steps: 50, workers: Some(0), cores: Some(8) });
    Snapshot { steps: 300, elapsed: Duration::from_secs(5400), waiting, ..steady() }
}

/// What was waited for data, what holds the job back, time left, cost and the same run elsewhere.
#[test]
fn a_recorded_job_tells_what_holds_it_back_and_what_it_costs() {
    for (size, name) in [((80, 24), "small"), ((120, 40), "large")] {
        let drawn = text(&render_after(&aimed(), vec![seen(waiting()), profile()], size).1);
        insta::assert_snapshot!(format!("job_aimed_{name}"), drawn);
    }
    let of = |launch: &Launch, messages| text(&render_after(launch, messages, (120, 40)).1);
    let early = of(&aimed(), vec![seen(waiting())]);
    assert!(early.contains("waiting for data: 47 %") && !early.contains("cheapest"), "{early}");
    let ranks = Snapshot { processes: vec![process(1, Some(0), 300), process(2, Some(1), 300)], ..waiting() };
    let several = of(&aimed(), vec![seen(ranks), profile()]);
    assert!(!several.contains("cheapest"), "of several GPUs a plan tells: {several}");
    let over = Snapshot { state: State::Ended { words: "ended with exit code 0".into(), well: true }, ..waiting() };
    let ended = of(&aimed(), vec![profile(), seen(over)]);
    assert!(ended.contains("waiting for data: 47 %") && ended.contains("$1.88 · 1.5 h at $1.250/h"), "{ended}");
    assert!(!ended.contains(" left "), "{ended}");
    let unknown = of(&started(), vec![seen(waiting()), profile()]);
    assert!(unknown.contains("pass --total-steps and --price"), "{unknown}");
}

/// The plan beside the job: what will be missed, and the key that plans the rest.
#[test]
fn a_job_that_follows_a_plan_says_what_it_will_miss_and_plans_the_rest() {
    let mut launch = aimed();
    let range = |low, mid, high| Range { low, mid, high };
    let plan = PlanFigures {
        gpu: None,
        price: None,
        hours: range(200.0, 240.0, 300.0).map(|hours| Hours::new(hours).unwrap()),
        cost: range(250.0, 300.0, 375.0).map(|usd| Usd::new(usd).unwrap()),
        step: range(150e3, 170e3, 200e3).map(|us| Micros::new(us).unwrap()),
        deadline: Hours::new(5.0).ok(),
        budget: Usd::new(5.0).ok(),
    };
    launch.setup.job.as_mut().unwrap().aim.plan = Some(plan.clone());
    launch.setup.goal.work = Work::Steps(5_000_000);
    // On a small screen, what will be missed comes before other facts, on another device too.
    for gpu in [None, GpuSlug::new("k80").ok()] {
        let mut small = launch.clone();
        small.setup.job.as_mut().unwrap().aim.plan = Some(PlanFigures { gpu, ..plan.clone() });
        let drawn = text(&render_after(&small, vec![seen(waiting()), profile()], (80, 24)).1);
        for words in ["will be late by", "n plans the rest anew"] {
            assert!(drawn.contains(words), "{words}: {drawn}");
        }
    }
    let (mut app, drawn) = render_after(&launch, vec![seen(waiting()), profile()], (120, 40));
    let drawn = text(&drawn);
    for words in ["of the work left", "will be late by", "will exceed the budget of $5.00", "n plans the rest anew"] {
        assert!(drawn.contains(words), "{words}: {drawn}");
    }
    let effects = app.update(Msg::Key("n".parse().unwrap()));
    assert!(!effects.is_empty());
    assert_eq!(app.screen, Screen::Plan);
    // 1.5 of 5 hours have passed, $1.88 of $5 are spent, and 300 of 5,000,000 steps are done.
    let goal = app.goal();
    assert_eq!((goal.work, goal.deadline.unwrap().get()), (Work::Steps(4_999_700), 3.5));
    assert!((goal.budget.unwrap().get() - 3.125).abs() < 1e-9);
}

/// With `--every`, the profile of a later window comes: what is read stays where it is.
#[test]
fn a_later_window_keeps_the_rows_in_their_order() {
    let mut launch = started();
    launch.setup.job.as_mut().unwrap().wanted =
        RecordingWindows::Steps { windows: 1, after: 10, window: 3, every: Some(100) };
    let mut app = render_after(&launch, running("2 j j"), (120, 40)).0;
    let labels = |app: &App| app.profile.entries.iter().map(|row| row.entry.label.clone()).collect::<Vec<_>>();
    let (before, selected) = (labels(&app), app.profile.list.selected);
    let mut slower = recorded();
    let most = slower.operations.len() - 1;
    slower.operations[most].device_time = Some(micros(1e6));
    let name = slower.operations[most].name.clone();
    app.update(Msg::Live(Update::Recorded(Box::new(slower.clone()))));
    assert_eq!((labels(&app), app.profile.list.selected), (before, selected));
    let time = |app: &App| {
        app.profile
            .entries
            .iter()
            .filter(|row| row.entry.label == name)
            .map(|row| row.entry.time.get())
            .fold(0.0, f64::max)
    };
    assert!(time(&app) >= 1e6, "and its times are the new ones");
    let windows = vec![(11, 13), (111, 113)];
    let drawn = text(&render_after(&launch, vec![seen(Snapshot { windows, ..steady() }), profile()], (80, 24)).1);
    assert!(drawn.contains("recorded every 100 steps · last steps 111–113"), "{drawn}");
}

/// One GPU in a line; one that is slowed down with the reason.
#[test]
fn the_gpus_of_the_machine_are_told_of() {
    let board = |index, busy: f64, clock: f64, limited_by: &[&str]| Board {
        index,
        busy: Some(busy),
        used: Some(Bytes::new(61.2 * GIB).unwrap()),
        memory: Some(Bytes::new(80.0 * GIB).unwrap()),
        clock: Some(Megahertz::new(clock).unwrap()),
        best_clock: Some(Megahertz::new(1980.0).unwrap()),
        power: Some(Watts::new(689.6).unwrap()),
        celsius: Some(71.0),
        limited_by: limited_by.iter().map(|one| (*one).to_owned()).collect(),
    };
    let drawn = |boards| picture(vec![seen(Snapshot { boards, ..steady() }), profile()], (120, 40));
    let one = drawn(vec![board(0, 0.97, 1980.0, &["power cap"])]);
    assert!(one.contains("97 % busy · 61.2 GB of 80.0 GB · 1,980 MHz · 690 W · 71 °C"), "{one}");
    assert!(!one.contains("throttled"), "{one}");
    let two = drawn(vec![board(0, 0.99, 1410.0, &["power cap", "temperature (driver)"]), board(1, 0.1, 345.0, &[])]);
    assert!(two.contains("GPU 0, the busiest of 2"), "{two}");
    assert!(two.contains("GPU 0 throttled to 1,410 of 1,980 MHz: power cap, temperature (driver)"), "{two}");
    assert!(!two.contains("GPU 1 throttled"), "an idle one saves power: {two}");
    assert!(!drawn(Vec::new()).contains("GPU  "));
    let silent = drawn(vec![Board { index: 0, ..Board::default() }]);
    assert!(!silent.contains("GPU  "), "{silent}");
}

/// The price of an hour of the one own machine with the GPU of the recording, where none is given.
#[test]
fn an_own_machine_with_that_gpu_has_its_price() {
    let gpu = recorded().origin.unwrap().gpu.unwrap();
    let own = |name: &str| {
        let file = format!(
            "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"office\"\ninstance_type = \"{name}\"\ngpu = \"{gpu}\"\n\
             gpu_count = 1\ntier = \"owned\"\nkw = 0.35\nusd_per_kwh = 0.20\nscope = \"instance_total\"\nsource = \"meter\"\n"
        );
        habitat_tui::pricing::Snapshot::parse(&file).unwrap().offers().collect::<Vec<_>>()
    };
    let drawn = |names: &[&str]| {
        let mut launch = started();
        launch.setup.prices = Arc::new(PriceBook::new(names.iter().flat_map(|name| own(name))));
        text(&render_after(&launch, vec![seen(waiting()), profile()], (120, 40)).1)
    };
    let one = drawn(&["workstation"]);
    assert!(one.contains("$0.105 so far") && one.contains("1.5 h at $0.070/h, own machine workstation"), "{one}");
    assert!(one.contains("left     unknown: pass `run --total-steps N`"), "{one}");
    for unknown in [drawn(&[]), drawn(&["first", "second"])] {
        assert!(unknown.contains("cost     pass --total-steps and --price"), "no own machine, or several: {unknown}");
    }
}
