//! Key sequences → state, without a terminal.

use std::sync::Arc;

use crate::common::{self, compared, jobs, keys, launch};
use clap::Parser;
use habitat_tui::action::{ACTIONS, Action, Screen};
use habitat_tui::app::modal::Modal;
use habitat_tui::app::palette::{self, SearchResult};
use habitat_tui::app::screen::plan::{Lower, Pane};
use habitat_tui::app::screen::profile::Below;
use habitat_tui::app::screen::{overview, predict, profile};
use habitat_tui::app::slider::Knob;
use habitat_tui::app::{Answer, App, Chosen, Effect, Msg, Question, SaveOutcome, Target};
use habitat_tui::catalog::Catalog;
use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::live::{Job, RecordingWindows};
use habitat_tui::plan::{PlanStatus, Work};
use habitat_tui::predict::{Fits, Host, MethodChoice, Precision};
use habitat_tui::pricing::{PriceBook, Tier};
use habitat_tui::profile::breakdown::GroupBy;
use habitat_tui::profile::{Operation, Profile};
use habitat_tui::report::jobs::JobsForm;
use habitat_tui::report::launch::Launcher;
use habitat_tui::report::plan_form::PlanForm;
use habitat_tui::settings::args::Cli;
use habitat_tui::store::bundled;
use habitat_tui::tui::{Launch, render};
use habitat_tui::units::{Hours, Micros, Samples, Usd};

fn after(text: &str) -> App {
    render(&launch(), &keys(text), (80, 24)).0
}

/// The effects of the last key.
fn effects(app: &mut App, text: &str) -> Vec<Effect> {
    keys(text).into_iter().map(|key| app.update(Msg::Key(key))).last().unwrap_or_default()
}

#[test]
fn numbers_choose_screens() {
    for (key, screen) in [("1", Screen::Overview), ("2", Screen::Profile), ("3", Screen::Predict), ("4", Screen::Plan)]
    {
        assert_eq!(after(key).screen, screen);
    }
}

#[test]
fn several_jobs_have_a_screen_where_a_file_of_them_was_given() {
    assert!(after("").unavailable(Action::Jobs).is_some_and(|why| why.contains("--jobs")));
    let on_jobs = |text: &str| render(&jobs(12.0), &keys(text), (80, 24)).0;
    assert_eq!((on_jobs("1").screen, on_jobs("1 6").screen), (Screen::Overview, Screen::Jobs));
    // The details are those of the row, whose order is not that of the file.
    let app = on_jobs("j enter");
    let Some(Modal::PlannedJob { job, .. }) = app.modal else { panic!("{:?}", app.modal) };
    let row = app.screen.behaviour().table(&app).unwrap().rows[1][0].text.clone();
    assert_eq!(app.jobs.plan.value().unwrap().jobs[job].name, row);
    assert!(on_jobs("j enter q").modal.is_none());

    // What is written is what the command prints.
    let mut app = on_jobs("e down");
    let saved = effects(&mut app, "enter");
    let [Effect::SaveJobs { plan, form, path, overwrite: false }] = &saved[..] else { panic!("{saved:?}") };
    assert_eq!((*form, path.as_str()), (JobsForm::Csv, "jobs-plan.csv"));
    assert!(form.text(plan).unwrap().starts_with("job,machine,gpus,start_hours"));
    let answer = jobs(12.0).engine.answer(&saved[0]);
    assert!(matches!(answer, Some(Msg::Saved(SaveOutcome::Saved(path))) if path == "jobs-plan.csv"));

    // Planned anew, the last plan stays until the new one is there, and where there is none.
    let mut app = on_jobs("");
    let again = effects(&mut app, "r");
    let [Effect::Ask { generation, question: Question::Jobs }] = again[..] else { panic!("{again:?}") };
    assert!(app.jobs.plan.is_running() && app.jobs.plan.value().is_some() && app.unavailable(Action::Cancel).is_none());
    app.update(Msg::Answered { generation, answer: Answer::Jobs(Err("line 2: no job".into())) });
    assert!(app.jobs.plan.is_stale() && app.jobs.plan.value().unwrap().jobs.len() == 3);
    effects(&mut app, "r x");
    assert!(!app.jobs.plan.is_running());
    // Edited, the file is read anew, whatever the editor says of itself.
    let mut app = on_jobs("");
    assert!(matches!(&effects(&mut app, "E")[..], [Effect::Edit(path)] if path == "runs/jobs.toml"));
    for ended in [Ok(()), Err("the editor exited with exit status: 1; reading the file again".to_owned())] {
        assert!(matches!(app.update(Msg::Edited(ended))[..], [Effect::Ask { question: Question::Jobs, .. }]));
    }
    assert!(app.message.is_some() && after("").unavailable(Action::Edit).is_some());
    // Without a plan there is nothing to write.
    let mut launch = jobs(12.0);
    launch.engine.jobs = Arc::new(|| Err("line 2: no job".into()));
    let app = render(&launch, &keys("e"), (80, 24)).0;
    assert!(app.modal.is_none() && app.message.is_some());
}

#[test]
fn back_closes_one_level_and_then_quits() {
    let mut app = after("3 enter");
    assert!(app.predict.opened.is_some());
    assert!(effects(&mut app, "q").is_empty());
    assert!(app.predict.opened.is_none());
    assert!(matches!(effects(&mut app, "q")[..], [Effect::Quit]));
}

#[test]
fn two_gpus_are_compared() {
    // Where none is marked, with the one that the step was recorded on.
    let gpus =
        |app: &App| app.predict.difference.as_ref().unwrap().gpus.as_ref().unwrap().each_ref().map(ToString::to_string);
    let app = after("3 D");
    assert_eq!(gpus(&app), ["v100-pcie-32gb", "h100-sxm5-80gb"]);
    let app = after("3 space j D");
    assert_eq!(gpus(&app), ["h100-sxm5-80gb", "v100-pcie-32gb"]);
    // The rows are those between the two steps, with the steps themselves; nothing opens or filters there.
    let table = app.screen.behaviour().table(&app).unwrap();
    let changed = |row: usize| table.rows[row][5].text.parse::<f64>();
    assert!(changed(0).is_err() && changed(table.len() - 1).is_err());
    let sum: f64 = (1..table.len() - 1).map(|row| changed(row).unwrap()).sum();
    let step = |row: usize, column: usize| table.rows[row][column].text.parse::<f64>().unwrap();
    let total = step(table.len() - 1, 4) - step(0, 3);
    assert!((sum - total).abs() < 0.01 * table.len() as f64, "{sum} {total}");
    assert!(app.unavailable(Action::Open).is_some() && app.unavailable(Action::Filter).is_some());
    // q goes back to the table of GPUs; a mark is taken off by the same key.
    let app = after("3 space j D q");
    assert!(app.predict.difference.is_none() && app.predict.marked.is_some());
    assert!(after("3 space space").predict.marked.is_none());
    // With itself nothing is compared.
    let app = after("3 space D");
    assert!(app.predict.difference.is_none() && app.message.is_some());
}

#[test]
fn figures_of_a_gpu_are_moved() {
    use Action as A;

    let app = after("3 F l l l l");
    let version = app.predict.version.as_ref().unwrap();
    assert_eq!((version.gpu.as_str(), version.along), ("h100-sxm5-80gb", Figure::Bandwidth));
    assert_eq!(version.changes, Changes::of(Figure::Bandwidth, 2.0));
    let found = app.what_if.value().unwrap();
    let [real, changed] = [&found.real, &found.changed].map(|prediction| prediction.step.mid().get());
    let on_curve = found.curve.iter().find(|(times, _)| *times == 2.0).unwrap().1.get();
    assert!(changed < real && (on_curve / changed - 1.0).abs() < 1e-9, "{changed} {on_curve} {real}");
    // Large steps double and halve; 0 takes a change back; the ends hold.
    let times = |text: &str| after(text).predict.version.unwrap().changes;
    assert_eq!(times("3 F L L L L"), Changes::of(Figure::Bandwidth, 4.0));
    assert_eq!(times("3 F j j H"), Changes::of(Figure::Clock, 0.5));
    assert!(times("3 F l 0").is_none());
    // D shows what makes the difference, q goes back to the figures, and again to the GPUs.
    let app = after("3 F L D");
    assert!(app.predict.difference.as_ref().unwrap().gpus.is_none());
    assert!(app.screen.behaviour().table(&app).unwrap().len() > 3);
    assert!(after("3 F L D q").predict.version.is_some());
    let app = after("3 j F L q");
    assert!(app.predict.version.is_none());
    assert_eq!(app.predict.list.selected, 1);
    // What was found of another GPU is not shown for this one while it is looked for.
    let mut app = after("3 F L q j");
    effects(&mut app, "F");
    assert!(predict::changed(&app).is_none() && app.what_if.value().is_some());
    assert_eq!(predict::what_if::answer(&app)[0].1, "predicting …");
    effects(&mut app, "D");
    assert!(app.predict.difference.is_none());
    // There is no table to copy or filter meanwhile, and no value to type.
    let app = after("3 F");
    for action in [A::Filter, A::CopyTable, A::SetValue, A::Open, A::NoLimit, A::Methods, A::Mark, A::WhatIf] {
        assert!(app.unavailable(action).is_some(), "{action:?}");
    }
}

#[test]
fn escape_never_quits_and_ctrl_c_always_does() {
    let mut app = after("3 esc esc");
    assert!(effects(&mut app, "esc").is_empty());
    for before in ["", "?", ":", "3 /", "4 =", "4 e"] {
        let mut app = after(before);
        assert!(matches!(effects(&mut app, "ctrl-c")[..], [Effect::Quit]), "{before:?}");
    }
}

#[test]
fn filters_follow_and_escape_restores() {
    let app = after("3 / h 1 0 0");
    assert_eq!(predict::rows(&app).len(), 1);
    assert_eq!(predict::rows(&after("3 / h 1 0 0 esc")).len(), 4);
    let kept = after("3 / h 1 0 0 enter");
    assert_eq!(predict::rows(&kept).len(), 1);
    assert_eq!(predict::rows(&after("3 / h 1 0 0 enter esc")).len(), 4);
    assert_eq!(predict::rows(&after("3 / ! h 1 0 0 enter")).len(), 3);
    // Figures are compared.
    let shown = |text: &str| predict::rows(&after(text)).iter().map(|row| row.slug.to_string()).collect::<Vec<_>>();
    assert_eq!(shown("3 / m e m o r y > = 3 2 enter"), ["h100-sxm5-80gb", "v100-pcie-32gb"]);
    assert_eq!(shown("3 / s t e p < 1 2 space $ < 2 enter"), ["v100-pcie-32gb"]);
    assert_eq!(shown("3 / v e n d o r = a m d enter"), [""; 0]);
    // The selected row stays the same when Esc clears the filter, or restores the one before.
    let gpus = |text: &str| after(text).predict.difference.unwrap().gpus.unwrap().each_ref().map(ToString::to_string);
    assert_eq!(gpus("3 / l 4 enter D"), ["v100-pcie-32gb", "l4"]);
    assert_eq!(gpus("3 / l 4 enter D esc esc D"), ["v100-pcie-32gb", "l4"]);
    assert_eq!(gpus("3 G k / h 1 0 0 esc D"), gpus("3 G k D"));
    assert_ne!(gpus("3 G k D"), gpus("3 D"));
    for (start, list, typed) in [
        ("2 G", "the profile", "m m"),
        ("3 enter G", "the operations of a GPU", "m m"),
        ("4 tab G", "the plan", "h 1 0 0"),
    ] {
        let key = |text: &str| {
            let app = after(text);
            app.screen.behaviour().selected_key(&app).unwrap_or_else(|| panic!("{list}: no row"))
        };
        assert_eq!(key(&format!("{start} / {typed} esc")), key(start), "{list}");
        let filtered = format!("{start} / {typed} enter G");
        assert_eq!(key(&format!("{filtered} esc")), key(&filtered), "{list}");
    }
    // A letter that is a key types in the filter.
    assert_eq!(after("3 / q").predict.list.filter, "q");
}

#[test]
fn rows_sort_by_every_column() {
    let names =
        |text: &str| -> Vec<String> { predict::rows(&after(text)).iter().map(|row| row.name.clone()).collect() };
    assert_eq!(names("3")[0], "H100 SXM5 80GB");
    assert_eq!(names("3 S")[0], "GeForce RTX 2060");
    assert_eq!(names("3 s")[0], "L4");
    assert_eq!(names("3 s s")[0], "H100 SXM5 80GB");
    assert_eq!(names("3 s s s")[0], "GeForce RTX 2060");
    assert_eq!(names("3 s s s S")[0], "Tesla V100-PCIE-32GB");
    // By price, what has none last; by the high end; by what another precision brings.
    let cheapest = names("3 s s s s");
    assert_eq!((cheapest[0].as_str(), cheapest.last().unwrap().as_str()), ("L4", "GeForce RTX 2060"));
    assert_eq!(names("3 s s s s s")[0], "H100 SXM5 80GB");
    assert_eq!(names("3 s s s s s s"), names("3"));
    let by_gain = after("3 P P s s s s s s");
    let gains = |app: &App| -> Vec<f64> {
        predict::rows(app).into_iter().filter_map(|row| predict::speed_up(app, row)).collect()
    };
    let found = gains(&by_gain);
    assert!(found.len() == 4 && found.is_sorted_by(|a, b| a >= b) && found[0] > found[3], "{found:?}");
    // In any order of the keys, and from the start.
    assert_eq!(gains(&after("3 P P W")), gains(&after("3 W P P")));
    assert_eq!(gains(&after("3 P P W")).len(), 4);
    let mut from_start = launch();
    from_start.setup.precision = Some(Precision::Tf32);
    assert_eq!(gains(&render(&from_start, &keys("3"), (80, 24)).0).len(), 4);
}

/// After a change of the order, the best rows are on screen.
#[test]
fn a_list_starts_at_its_top_in_a_new_order() {
    for text in ["3 G s", "3 G S", "2 G s", "4 tab G s", "4 tab G S", "3 enter G s"] {
        let app = after(text);
        assert_eq!(app.screen.behaviour().list(&app).unwrap().selected, 0, "{text}");
    }
}

#[test]
fn filters_name_several_gpus() {
    let count = |filter: &str| {
        let mut launch = launch();
        launch.setup.filter = Some(filter.to_owned());
        launch.setup.screen = Screen::Predict;
        let app = render(&launch, &[], (120, 40)).0;
        predict::rows(&app).len()
    };
    for filter in ["l4|h100", "l4, h100", "H100 SXM | L4", "l4,h100-sxm"] {
        assert_eq!(count(filter), 2, "{filter}");
    }
    assert_eq!((count("!l4|h100"), count("nvidia l4|h100|2060")), (2, 3));
}

#[test]
fn what_does_not_fit_is_never_the_answer() {
    let app = after("");
    let picks = &app.predict.picks;
    assert_eq!(app.predict.rows[picks.fastest.as_ref().unwrap().index].name, "H100 SXM5 80GB");
    let best = picks.best_value.as_ref().unwrap();
    let row = &app.predict.rows[best.index];
    assert_eq!(row.name, "L4");
    let per_usd = best.offer.as_ref().unwrap().samples_per_usd.unwrap();
    // A batch of 16 at $0.35 an hour on demand: spot prices are the plan's business.
    let samples_per_hour = 16.0 / row.step.range.mid.as_secs() * 3600.0;
    assert!((per_usd.mid - samples_per_hour / 0.35).abs() < 1.0);
    // Nothing is for sale that holds the step for less, and the smallest does not hold it.
    assert_eq!(app.predict.rows.iter().find(|row| row.slug.as_str() == "rtx-2060").unwrap().fits, Fits::No);
}

#[test]
fn the_profile_is_grouped_and_filtered_by_phase() {
    assert_eq!(after("2").profile.entries.len(), 4);
    let names = after("2 b");
    assert_eq!((names.profile.by, names.profile.entries.len()), (GroupBy::Name, 3));
    assert_eq!(after("2 p").profile.entries.len(), 2);
    assert_eq!(after("2 b b b").profile.by, GroupBy::Kernel);
}

/// Two recordings: each row has its time in the other and the change; D opens the waterfall.
#[test]
fn two_recordings_stand_beside_each_other() {
    let after = |text: &str| render(&compared(), &keys(text), (80, 24)).0;
    let app = after("2");
    let table = app.screen.behaviour().table(&app).unwrap();
    let cells = |row: usize| table.rows[row][..4].iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>();
    assert_eq!(cells(0), ["mm", "4.400", "4.400", "+0.000"]);
    assert_eq!(cells(1), ["mm", "2.000", "1.600", "+0.400"]);
    // What is only in one of them is a row, and says so.
    assert_eq!(cells(3), ["native_layer_norm", "0.600", "absent", "+0.600"]);
    assert_eq!(cells(4), ["native_batch_norm", "absent", "0.900", "-0.900"]);
    assert_eq!(table.len(), 5);
    // By change: what grew first, or what shrank.
    let first = |text: &str| profile::rows(&after(text))[0].entry.label.clone();
    assert_eq!([first("2 s"), first("2 s S")], ["aten::native_layer_norm", "aten::native_batch_norm"]);
    assert_eq!(profile::rows(&after("2 s s"))[0].entry.count, 40);
    // The rows of both are filtered, grouped and opened.
    assert_eq!(profile::rows(&after("2 / b a t c h enter")).len(), 1);
    assert_eq!(after("2 b").profile.entries.len(), 4);
    for pressed in ["2 G", "2 G enter", "2 b G", "2 b b b G"] {
        let app = after(pressed);
        assert_eq!(profile::detail(&app)[0].0, "against", "{pressed}");
    }
    // Modules are a tree of both: what changed of one changed of those around it.
    let modules = after("2 b b b b");
    let table = modules.screen.behaviour().table(&modules).unwrap();
    let cells: Vec<_> = table.rows.iter().map(|row| (row[0].text.as_str(), row[3].text.as_str())).collect();
    assert_eq!(
        cells,
        [("outside modules", "-0.300"), ("encoder", "+0.400"), ("  0", "+0.400"), ("    query", "+0.400")]
    );
    // The waterfall from the other to this one.
    let app = after("2 D");
    let table = app.screen.behaviour().table(&app).unwrap();
    let place = |heading: &str| table.columns.iter().position(|column| column.heading == heading).unwrap();
    let change = |row: usize| table.rows[row][place("change, ms")].text.parse::<f64>();
    let sum: f64 = (1..table.len() - 1).map(|row| change(row).unwrap()).sum();
    // Their batches are unlike.
    assert!(table.rows[1][place("a sample, µs")].text.contains(" → "), "{table:?}");
    assert!((sum - 0.5).abs() < 0.01 * table.len() as f64, "{sum}");
    assert!(app.unavailable(Action::Filter).is_some() && app.unavailable(Action::Group).is_some());
    assert_eq!(after("2 D j").profile.difference.unwrap().list.selected, 1);
    for closed in ["2 D q", "2 D esc"] {
        assert!(after(closed).profile.difference.is_none(), "{closed}");
    }
    // With one recording there is nothing to compare.
    let app = render(&launch(), &keys("2 D"), (80, 24)).0;
    assert!(app.profile.difference.is_none() && app.message.unwrap().1.contains("--against FILE"));
}

/// Modules are a tree: each has what lies in those within, and stands before them.
#[test]
fn modules_are_a_tree() {
    let mut launch = launch();
    let modules = [Some("Net.Block.Linear"), Some("Net.Block"), Some("Net"), None];
    let profile = Arc::make_mut(&mut launch.setup.profile);
    for (operation, module) in profile.operations.iter_mut().zip(modules) {
        operation.module = module.map(str::to_owned);
    }
    let after = |text: &str| render(&launch, &keys(text), (80, 24)).0;
    let app = after("2 b b b b");
    assert_eq!(app.profile.by, GroupBy::Module);
    let table = app.screen.behaviour().table(&app).unwrap();
    let cells: Vec<_> = table.rows.iter().map(|row| (row[0].text.as_str(), row[1].text.as_str())).collect();
    let tree = [("Net", "7.000"), ("  Block", "6.400"), ("    Linear", "2.000"), ("outside modules", "0.800")];
    assert_eq!(cells, tree);
    // Nothing is counted twice.
    assert!(profile::summary(&app).contains("7.8 ms of device time (100.0 %)"), "{}", profile::summary(&app));
    let app = after("2 b b b b / b l o c k enter");
    assert!(
        profile::summary(&app).contains("2 of 4 rows · 6.4 ms of device time (82.1 %)"),
        "{}",
        profile::summary(&app)
    );
    // In another order whole paths stand for themselves.
    let app = after("2 b b b b s s");
    let table = app.screen.behaviour().table(&app).unwrap();
    assert_eq!(table.rows.iter().filter(|row| row[0].text == "Net.Block.Linear").count(), 1);
    // Where no module was recorded there is no such grouping.
    let mut without = launch.clone();
    for operation in &mut Arc::make_mut(&mut without.setup.profile).operations {
        operation.module = None;
    }
    assert_eq!(render(&without, &keys("2 b b b b"), (80, 24)).0.profile.by, GroupBy::Operation);
}

/// The step as a line, with the parts that the selected row is of.
#[test]
fn the_selected_row_is_marked_in_the_line_of_the_step() {
    let marked = |text: &str| {
        let app = after(text);
        let segments = profile::segments(&app);
        let sum: f64 = segments.iter().map(|(segment, _)| segment.share).sum();
        assert!((sum - 1.0).abs() < 1e-12);
        segments.iter().map(|(segment, marked)| (segment.kind, *marked)).collect::<Vec<_>>()
    };
    let kinds = ["matrix product", "normalisation", "matrix product", "elementwise", "other work", "idle"];
    let of = |chosen: &[usize]| -> Vec<_> {
        kinds.into_iter().enumerate().map(|(at, kind)| (kind, chosen.contains(&at))).collect()
    };
    assert_eq!(marked("2"), of(&[2]));
    assert_eq!(marked("2 j"), of(&[0]));
    assert_eq!(marked("2 b"), of(&[0, 2]));
    assert_eq!(marked("2 / n o n e s u c h enter"), of(&[]));
}

#[test]
fn the_timeline_tells_what_lies_under_its_cursor() {
    use habitat_tui::app::screen::profile::timeline::{View, cells, shown, under};
    let device = |pressed: &str| under(&after(pressed))[0].1.clone();
    // It begins in the longest wait.
    assert_eq!(device("2 T"), "idle for 1.7 ms, 0.000–1.700 ms; the CPU was in enumerate(DataLoader) for 1.6 ms");
    assert!(device("2 T L").starts_with("mm, forward, compute, 1.800–3.800 ms"), "{}", device("2 T L"));
    assert_eq!(device("2 T L h h h h h h h h"), device("2 T"));
    // Half as much is shown about the cursor, and as much again.
    let view = |pressed: &str| shown(&after(pressed)).unwrap().1;
    let rounded = |view: View| View { from: view.from.round(), ..view };
    assert_eq!(rounded(view("2 T +")), View { from: 425.0, span: 5000.0, cursor: 850.0 });
    assert_eq!(rounded(view("2 T + -")), view("2 T"));
    // The row that is selected, wherever it ran; the table still takes the keys of lists.
    let marked = |pressed: &str| {
        let app = after(pressed);
        let (timeline, view) = shown(&app).unwrap();
        let cells = cells(&app, timeline, &timeline.lanes[1], view, 20);
        cells.iter().map(|cell| if cell.marked { '*' } else { '.' }).collect::<String>()
    };
    assert_eq!(marked("2 T"), ".........**********.");
    assert_eq!(marked("2 T j"), "...*****............");
    assert!(after("2 T enter").profile.zoomed);
    assert_eq!(marked("2 T enter j"), marked("2 T j"));
    // Away again; without it the sliders' keys do nothing.
    assert_eq!(after("2 T T").profile.below, Below::Detail);
    assert!(after("2 T T").unavailable(Action::Right).is_some());
    assert!(after("2 T").unavailable(Action::Right).is_none());
    assert_eq!(after("2 T R").profile.below, Below::Roof);
}

/// Its key says how to get one.
#[test]
fn a_recording_without_a_timeline_says_so() {
    let mut launch = launch();
    let profile = Profile { timeline: None, ..(*launch.setup.profile).clone() };
    launch.setup.profile = std::sync::Arc::new(profile);
    let (app, buffer) = render(&launch, &keys("2 T + l j"), (80, 24));
    assert!(common::text(&buffer).contains("This recording has no timeline"));
    assert!(app.unavailable(Action::Right).is_some());
}

#[test]
fn operations_stand_under_the_roof_of_their_gpu() {
    use habitat_tui::app::screen::profile::roofline;
    let app = after("2 R");
    let roof = roofline::roof(&app).unwrap();
    assert!(app.profile.below == Below::Roof && roof.gpu == "Tesla V100-PCIE-32GB");
    assert!(after("2 R R").profile.below != Below::Roof);
    // Below the ridge memory bounds, above it arithmetic.
    assert!((roof.at(roof.ridge() / 2.0) / roof.peak - 0.5).abs() < 1e-12);
    assert_eq!(roof.at(roof.ridge() * 2.0), roof.peak);
    // 2 FLOP of a product's element are counted, and the bytes of its three matrices.
    let rows = profile::rows(&app);
    let product = rows.iter().find(|row| row.entry.label.ends_with("mm")).unwrap();
    let (intensity, rate) = roofline::reached(product.counted, product.entry.time).unwrap();
    assert_eq!(intensity, product.counted.flops / product.counted.bytes);
    assert!((rate * product.entry.time.get() * 1e-6 / product.counted.flops - 1.0).abs() < 1e-12);
    assert_eq!(roofline::points(&app).iter().filter(|(.., selected)| *selected).count(), 1);
    assert!(after("3 R").unavailable(Action::Roofline).is_some());
}

#[test]
fn sliders_move_solve_again_and_are_unlimited() {
    let app = after("4 j h");
    assert_eq!(app.planner.knob, Knob::Deadline);
    // From no limit: the first round number that the plan (3.2 h at the high end) meets.
    assert_eq!(app.goal().deadline.unwrap().get(), 4.0);
    assert_eq!(app.plan.value().unwrap().goal.deadline, app.goal().deadline);
    assert_eq!(after("4 j h h").goal().deadline.unwrap().get(), 3.0);
    assert_eq!(after("4 j h -").goal().deadline.unwrap().get(), 3.0);
    assert_eq!(after("4 j h +").goal().deadline.unwrap().get(), 5.0);
    assert!(after("4 j h 0").goal().deadline.is_none());
    assert!(after("4 j h backspace").goal().deadline.is_none());
    assert_eq!(after("4 j = 2 d enter").goal().deadline.unwrap().get(), 48.0);
    assert_eq!(after("4 j j = 5 0 0 enter").goal().budget.unwrap().get(), 500.0);
    // From no limit the first step is what the plan has; the lowest is one GPU.
    let [any, one] = ["4 o", "4 o j j j h h"].map(after);
    assert_eq!((any.goal().limits.max_gpus, one.goal().limits.max_gpus), (None, Some(1)));
    assert!(one.plan.value().unwrap().parts.iter().all(|part| part.all_gpus() == 1));
    assert_eq!(after("4 j j j = 6 enter").goal().limits.max_gpus, Some(6));
    assert_eq!(after("4 j j j = 6 enter l").goal().limits.max_gpus, Some(8));
    assert_eq!(after("4 j j j = 6 enter 0").goal().limits.max_gpus, None);
    assert!(matches!(after("4 j = x enter").modal, Some(Modal::Value { error: Some(_), .. })));
    // A date counts from now, which is a Wednesday at noon; one that is past is refused.
    let app = after("4 j = F r i d a y space 1 8 : 0 0 enter");
    assert_eq!(app.goal().deadline.unwrap().get(), 54.0);
    assert!(app.message.as_ref().unwrap().1.contains("Friday 27 November 2026, 18:00"), "{:?}", app.message);
    let past = after("4 j = 2 0 2 6 - 1 1 - 0 1 enter");
    assert!(matches!(past.modal, Some(Modal::Value { error: Some(_), .. })) && past.goal().deadline.is_none());
    // Work has its unit.
    let work = |typed: &str| after(&format!("4 = {typed} enter")).goal().work;
    assert_eq!(work("2 k space s t e p s"), Work::Steps(2000));
    let epochs = Work::Epochs { epochs: 90.0, dataset: Samples::new(1.28e6).unwrap() };
    assert_eq!(work("9 0 space e p o c h s space o f space 1 . 2 8 M"), epochs);
    assert!(matches!(after("4 = 9 0 space e p o c h s enter").modal, Some(Modal::Value { error: Some(_), .. })));
}

#[test]
fn a_typed_goal_is_read_to_its_last_word() {
    let typed = |text: &str| {
        let keys: Vec<String> =
            text.chars().map(|letter| if letter == ' ' { "space".to_owned() } else { letter.to_string() }).collect();
        after(&format!("4 = {} enter", keys.join(" ")))
    };
    let epochs = Work::Epochs { epochs: 90.0, dataset: Samples::new(1.28e6).unwrap() };
    // Now is a Wednesday at noon.
    for (text, hours, usd) in [
        ("90 epochs of 1.28M by Friday 18:00 under 300", Some(54.0), Some(300.0)),
        ("90 epochs of 1.28M images, in 48h and under $1,000", Some(48.0), Some(1000.0)),
        ("90 epochs of 1.28M for $300 before Friday 18:00", Some(54.0), Some(300.0)),
        ("90 epochs of 1.28M samples within 2 days", Some(48.0), None),
        ("90 Epochs of 1.28m Images IN 48H UNDER 1K USD", Some(48.0), Some(1000.0)),
    ] {
        let app = typed(text);
        let goal = app.goal();
        let limits = (goal.deadline.map(Hours::get), goal.budget.map(Usd::get));
        assert_eq!((goal.work, limits), (epochs, (hours, usd)), "{text}: {:?}", app.modal);
    }
    assert_eq!(typed("by Friday 18:00").goal().deadline.unwrap().get(), 54.0);
    // An unknown word is named, and the goal stays as it was.
    let before = after("4").goal().clone();
    for (text, word) in [
        ("90 epochs of 1.28M bananas", "\"bananas\""),
        ("90 epochs of 1.28M samples bananas by Friday", "\"bananas\""),
        ("2k steps quickly", "\"quickly\""),
        ("2k furlongs", "\"furlongs\""),
        ("90 epochs of many", "\"many\""),
        ("2k steps by bananas", "\"bananas\""),
        ("2k steps under bananas", "\"bananas\""),
    ] {
        let app = typed(text);
        let Some(Modal::Value { error: Some(error), .. }) = &app.modal else { panic!("{text}: {:?}", app.modal) };
        assert!(error.contains(word), "{text}: {error}");
        assert_eq!(*app.goal(), before, "{text}");
    }
}

#[test]
fn toggles_change_the_goal_and_the_plan() {
    for (pressed, tier) in [("4", Tier::OnDemand), ("4 i", Tier::OnDemand), ("4 d", Tier::Spot)] {
        let app = after(pressed);
        let plan = app.plan.value().unwrap();
        assert_eq!(plan.parts[0].offer.tier, tier, "{pressed}");
        let both = pressed == "4";
        assert_eq!(plan.alternatives.iter().any(|part| part.offer.tier == Tier::Spot), both, "{pressed}");
    }
    assert_eq!(after("4 m").goal().max_parts, 2);
    assert_eq!(after("4 m m m").goal().max_parts, 1);
    let infeasible = after("4 j j = 0 . 5 enter");
    assert_eq!(infeasible.plan.value().unwrap().status, PlanStatus::Infeasible);
    assert!(infeasible.unavailable(habitat_tui::action::Action::Export).is_some());
}

#[test]
fn providers_and_regions_are_chosen_from_lists() {
    let limits = |text: &str| {
        let limits = after(text).setup.goal.limits;
        (limits.providers, limits.regions)
    };
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    // Enter allows what is selected or no longer does, and the dialog stays open.
    let app = after("4 f a l p h a enter");
    assert_eq!(app.setup.goal.limits.providers, ["alpha"]);
    assert!(app.plan.value().unwrap().parts.iter().all(|part| part.offer.provider == "alpha"));
    assert!(matches!(app.modal, Some(Modal::Places { .. })));
    assert!(app.command().contains("--providers alpha"), "{}", app.command());
    assert_eq!(limits("4 f a l p h a enter enter"), (names(&[]), names(&[])));
    // The first row stands for all, the others are the providers by name.
    assert_eq!(limits("4 f down enter down enter").0, ["alpha", "beta"]);
    assert_eq!(limits("4 f down enter down enter up up enter").0, names(&[]));
    assert_eq!(limits("4 f d o w n enter").0, names(&[]));
    // Regions by continent, and by their own name.
    assert_eq!(limits("4 A e u r o p e enter").1, ["europe"]);
    assert!(!after("4 A e u r o p e enter").plan.value().unwrap().parts.is_empty());
    assert_eq!(limits("4 A e u - 1 enter").1, ["eu-1"]);
    // The command separates regions by commas, so their names have none.
    let mut launch = launch();
    let prices = launch.setup.prices.offers().iter().cloned().map(|mut offer| {
        Arc::make_mut(&mut offer).region = ", Utah, US".to_owned();
        offer
    });
    launch.setup.prices = Arc::new(PriceBook::new(prices.collect::<Vec<_>>()));
    let (app, _) = render(&launch, &keys("4 A u t a h enter"), (80, 24));
    assert_eq!(app.setup.goal.limits.regions, ["Utah US"]);
    assert!(app.setup.prices.offers()[0].is_in("Utah US") && app.command().contains("--regions 'Utah US'"));
    // A region without offers cannot be chosen.
    assert_eq!(limits("4 A a s i a enter").1, names(&[]));
    assert_eq!(limits("4 f a l p h a enter esc u").0, names(&[]));
    // What excludes a provider goes when it is allowed.
    launch.setup.goal.limits.exclude_providers = names(&["alpha"]);
    let (app, _) = render(&launch, &keys("4 f a l p h a enter"), (80, 24));
    assert!(app.setup.goal.limits.exclude_providers.is_empty());
    // What is chosen stands above the sliders.
    let shown = common::text(&render(&launch, &keys("4 f b e t a enter esc"), (80, 24)).1);
    assert!(shown.contains("f providers: beta · A regions: all"), "{shown}");
}

#[test]
fn focus_flows_between_the_panes_of_the_plan() {
    assert_eq!(after("4 j j j j").planner.pane, Pane::Lower);
    assert_eq!(after("4 j j j j j k k").planner.pane, Pane::Goal);
    assert_eq!(after("4 tab").planner.pane, Pane::Lower);
    assert_eq!(after("4 v v v").planner.lower, Lower::Beside);
    assert_eq!(after("4 v v v v").planner.lower, Lower::Rejected);
    // The plan over time: its own rows, of which none opens.
    let app = after("4 v tab j");
    assert_eq!((app.planner.lower, app.planner.list.selected), (Lower::Timeline, 1));
    assert!(app.screen.behaviour().table(&app).unwrap().len() > 2 && app.unavailable(Action::Open).is_some());
    assert_eq!(after("4 v v v v v v").planner.lower, Lower::Alternatives);
}

/// What `C` copies opens the same view: parsed as the command line, it has the same goal.
#[test]
fn the_command_of_a_view_opens_it_again() {
    let copied = |text: &str| {
        let mut app = after(text);
        let effects = effects(&mut app, "C");
        let [Effect::Copy { text, .. }] = &effects[..] else { panic!("{effects:?}") };
        text.clone()
    };
    assert_eq!(copied("1"), "habitat-tui runs/bert-tiny.habitat.json");
    assert_eq!(copied("2"), "habitat-tui runs/bert-tiny.habitat.json --screen profile");
    assert_eq!(
        copied("3 / h 1 0 0 enter W"),
        "habitat-tui runs/bert-tiny.habitat.json --screen predict --host keeps-up --gpu h100-sxm5-80gb --filter h100"
    );
    let changes = "4 = 2 . 5 e 6 enter j = 3 6 h enter j = 7 . 5 enter j = 8 enter o i c m";
    let command = copied(changes);
    assert_eq!(
        command,
        "habitat-tui runs/bert-tiny.habitat.json --screen plan --samples 2500000 --deadline 36h --budget 7.5 --objective time --confidence expected --max-parts 2 --max-gpus 8 --accept marketplace,doubted,platform,batch"
    );
    let typed = Cli::try_parse_from(command.split(' ')).unwrap().screens.wish;
    let mut goal = after("").goal().clone();
    typed.apply(&mut goal);
    goal.work = typed.work().unwrap();
    assert_eq!(goal, *after(changes).goal());
    // What is as it was at the start is not said.
    assert_eq!(copied("4 j = 4 h enter 0"), "habitat-tui runs/bert-tiny.habitat.json --screen plan");
}

#[test]
fn changes_of_the_goal_are_undone_one_by_one() {
    let first = after("4").goal().clone();
    let one = after("4 j = 2 enter").goal().clone();
    assert_eq!(*after("4 j = 2 enter o i u u").goal(), one);
    let all = after("4 j = 2 enter o i u u u");
    assert_eq!((all.goal(), all.plan.value().unwrap().total), (&first, after("4").plan.value().unwrap().total));
    assert!(all.unavailable(Action::Undo).is_some() && after("3 u").unavailable(Action::Undo).is_some());
    // What the cursor of the frontier took is undone as well.
    assert_eq!(*after("4 v v tab g enter u").goal(), first);
}

#[test]
fn the_cursor_walks_the_plans_that_none_beats() {
    let start = after("4 v v tab");
    let (plan, points) = (start.plan.value().unwrap(), start.frontier.clone());
    // The cheapest plan is the last of them, and the cursor begins on it.
    assert_eq!(start.planner.list.selected, points.len() - 1);
    assert_eq!(points.last().unwrap().cost.mid, plan.total.unwrap().cost.mid);
    let taken = after("4 v v tab g enter");
    let (first, total) = (&points[0], taken.plan.value().unwrap().total.unwrap());
    assert_eq!((total.cost.mid, taken.goal().deadline), (first.cost.mid, Some(first.hours.high)));
    // From there another one, though a budget stood in its way; the list stays without a plan too.
    assert_eq!(
        after("4 v v tab g enter G enter").plan.value().unwrap().total.unwrap().cost.mid,
        plan.total.unwrap().cost.mid
    );
    let none = after("4 j j = 0 . 5 enter v v tab");
    assert_eq!((none.plan.value().unwrap().status, none.frontier.len()), (PlanStatus::Infeasible, points.len()));
    let app = after("4 j j = 0 . 5 enter v v tab enter");
    assert_eq!((app.goal().budget, app.plan.value().unwrap().total.unwrap().cost.mid), (None, first.cost.mid));
}

#[test]
fn results_of_earlier_goals_are_dropped() {
    let mut app = after("4 j");
    let first = effects(&mut app, "h");
    let second = effects(&mut app, "h");
    let answer = |effect: &Effect| match effect {
        Effect::Ask { question: Question::Plan(..), .. } => launch().engine.answer(effect).unwrap(),
        other => panic!("{other:?}"),
    };
    assert!(app.plan.is_stale());
    app.update(answer(&first[0]));
    assert!(app.plan.is_stale() && app.plan.is_running());
    app.update(answer(&second[0]));
    assert!(!app.plan.is_stale());
    assert_eq!(app.plan.value().unwrap().goal.deadline, app.goal().deadline);
}

#[test]
fn cancelling_keeps_the_last_plan_marked_stale() {
    let mut app = after("4 j");
    effects(&mut app, "h x");
    assert!(!app.plan.is_running() && app.plan.is_stale() && app.plan.value().is_some());
    let words = |app: &App| overview::answers(app)[0].stale.clone();
    assert_eq!(words(&app), " – of the earlier limits");
    effects(&mut app, "h");
    assert_eq!(words(&app), " – still computing with the new limits");
    assert_eq!(words(&after("4")), "");
}

#[test]
fn the_palette_finds_and_runs() {
    assert_eq!(after(": p l a n - e r r").screen, Screen::Overview);
    assert_eq!(after(": s c r e e n . p l a n enter").screen, Screen::Plan);
    assert!(after(": x y z z y enter").modal.is_none());
}

#[test]
fn the_palette_goes_to_gpus_operations_and_offers() {
    // What is found stands behind the actions of the same words.
    let app = after("3 enter : v 1 0 0 enter");
    assert_eq!((app.screen, predict::selected(&app).unwrap().slug.as_str()), (Screen::Predict, "v100-pcie-32gb"));
    assert!(app.predict.opened.is_none());
    let app = after(": l a y e r _ n o r m enter");
    assert_eq!((app.screen, app.profile.list.filter.as_str()), (Screen::Profile, "native_layer_norm"));
    let found = palette::search(&app, "on-demand");
    let offer = found.iter().position(|found| matches!(found, SearchResult::Offer(_))).unwrap();
    let app = after(&format!(": o n - d e m a n d{} enter", " down".repeat(offer)));
    assert_eq!(app.screen, Screen::Plan);
    assert!(matches!(&app.modal, Some(Modal::Offer { offer, .. }) if offer.as_str().contains("on-demand")));
    // Nothing typed shows actions alone; offers that are not used in plans are not found.
    assert!(palette::search(&app, " ").iter().all(|found| matches!(found, SearchResult::Action(_))));
}

/// An action of one screen takes the user there.
#[test]
fn the_palette_goes_to_the_screen_of_an_action() {
    let app = after("1 : r o o f l i n e enter");
    assert_eq!(app.screen, Screen::Profile);
    assert!(app.message.is_none(), "{:?}", app.message);
    assert_eq!(after("1 : p r e c i s i o n enter").screen, Screen::Predict);
}

#[test]
fn a_plan_is_written_in_the_form_chosen() {
    let mut app = after("4 e down down down down down");
    let saved = effects(&mut app, "enter");
    let [save @ Effect::Save { export, path, .. }] = &saved[..] else { panic!("{saved:?}") };
    assert_eq!((export.form, path.as_str()), (PlanForm::Launch(Launcher::SkyPilot), "plan.sky.yaml"));
    // The provider of these prices is none that SkyPilot knows.
    let answer = launch().engine.answer(save);
    assert!(
        matches!(&answer, Some(Msg::Saved(SaveOutcome::Failed(why))) if why.contains("SkyPilot cannot start")),
        "{answer:?}"
    );
    let mut app = after("4 e");
    let toml = launch().engine.answer(&effects(&mut app, "enter")[0]);
    assert!(matches!(toml, Some(Msg::Saved(SaveOutcome::Saved(path))) if path == "plan.toml"));
    // A name of one's own stays.
    let mut app = after("4 e x up");
    let saved = effects(&mut app, "down enter");
    assert!(matches!(&saved[..], [Effect::Save { path, .. }] if path == "plan.tomlx"));
}

#[test]
fn an_existing_file_is_replaced_only_when_confirmed() {
    let mut app = after("4 e");
    let first = effects(&mut app, "enter");
    assert!(matches!(&first[..], [Effect::Save { overwrite: false, path, .. }] if path == "plan.toml"));
    app.update(Msg::Saved(SaveOutcome::Exists));
    assert!(matches!(app.modal, Some(Modal::Export { exists: true, .. })));
    let second = effects(&mut app, "enter");
    assert!(matches!(second[..], [Effect::Save { overwrite: true, .. }]));
    // Another name asks anew.
    app.update(Msg::Saved(SaveOutcome::Exists));
    let third = effects(&mut app, "2 enter");
    assert!(matches!(third[..], [Effect::Save { overwrite: false, .. }]));
    app.update(Msg::Saved(SaveOutcome::Saved("/tmp/plan.toml2".into())));
    assert!(app.modal.is_none());
}

/// Of a long list only what is near the selected row is made for the screen; keys, filter and copies
/// know all of it.
#[test]
fn a_long_list_is_walked_filtered_and_copied_whole() {
    let mut launch = launch();
    let mut profile = (*launch.setup.profile).clone();
    let first = profile.operations[0].clone();
    profile.operations = (0..1_000_u64)
        .map(|number| Operation {
            name: format!("aten::op{number}"),
            device_time: Micros::new(2_000.0 - number as f64).ok(),
            count: 1,
            ..first.clone()
        })
        .collect();
    launch.setup.profile = profile.into();
    let shows = |pressed: &str| {
        let (app, buffer) = render(&launch, &keys(pressed), (80, 24));
        (app.profile.list.selected, common::text(&buffer))
    };
    for (pressed, selected, name) in
        [("2 j j", 2, "op2 "), ("2 G", 999, "op999 "), ("2 G k", 998, "op998 "), ("2 S G", 999, "op0 ")]
    {
        let (at, drawn) = shows(pressed);
        let marked = drawn.lines().find(|line| line.contains('▸')).unwrap();
        assert!(at == selected && marked.contains(name), "{pressed}: {at} {marked}");
    }
    // Row by row, over the places where other rows are made.
    let down = |count: usize| format!("2 {}", "j ".repeat(count));
    for count in [240, 260, 510] {
        assert!(shows(&down(count)).1.contains(&format!("▸ op{count} ")), "{count}");
    }
    let (at, drawn) = shows("2 / o p 7 7 enter G");
    assert!(at == 10 && drawn.contains("11 of 1000 rows") && drawn.contains("op779"), "{at} {drawn}");
    let mut app = render(&launch, &keys("2"), (80, 24)).0;
    let [Effect::Copy { text, what }] = &effects(&mut app, "Y")[..] else { panic!("no copy") };
    assert_eq!((text.lines().count(), what.as_str()), (1_001, "the table, 1000 rows"));
}

/// What the line of news says is gone with the next key, and found again.
#[test]
fn messages_are_kept_with_what_failed() {
    let mut launch = launch();
    launch.engine.plan = Arc::new(|_, _, _| Err("no batch size; give --batch-size".into()));
    let (app, buffer) = render(&launch, &keys("3 s Z S s !"), (80, 24));
    let drawn = common::text(&buffer);
    let said: Vec<&str> = app.said.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        said[2..],
        ["sorted by samples per dollar", "the plan failed: no batch size; give --batch-size"],
        "{said:?}"
    );
    assert!(said[1].contains("Z does nothing") && drawn.contains("the plan failed: no batch size"), "{drawn}");
    let closed = after("! q");
    assert!(closed.modal.is_none() && after("! !").modal.is_none());
}

#[test]
fn copies_are_the_table_shown() {
    let mut app = after("3");
    let copied = effects(&mut app, "Y");
    let [Effect::Copy { text, .. }] = &copied[..] else { panic!("{copied:?}") };
    assert!(text.starts_with("GPU\tstep, ms\tlow–high, ms\t"), "{text}");
    assert_eq!(text.lines().count(), 5);
}

#[test]
fn the_mouse_selects_sorts_and_slides() {
    let mut app = after("3");
    app.update(Msg::Click(Target::Row(2)));
    assert_eq!(app.predict.list.selected, 2);
    app.update(Msg::Click(Target::Row(2)));
    assert!(app.predict.opened.is_some());
    let mut app = after("3");
    app.update(Msg::Click(Target::Header(3)));
    assert_eq!(predict::rows(&app)[0].name, "GeForce RTX 2060");
    app.update(Msg::Click(Target::Tab(Screen::Plan)));
    app.update(Msg::Click(Target::Slider(Knob::Deadline, 0.0)));
    assert_eq!(app.goal().deadline.unwrap().get(), 0.25);
    app.update(Msg::Click(Target::Slider(Knob::Deadline, 1.0)));
    assert!(app.goal().deadline.is_none());
}

#[test]
fn no_key_sequence_breaks_the_state() {
    // Every key in every screen, one after the other, drawn each time at three sizes.
    let all: Vec<String> = habitat_tui::action::ACTIONS
        .iter()
        .flat_map(|spec| spec.keys)
        .filter(|key| **key != "ctrl-c" && **key != "q")
        .map(|key| (*key).to_owned())
        .collect();
    for screen in ["1", "2", "3", "4"] {
        for size in [(80, 24), (50, 15), (200, 60)] {
            render(&launch(), &keys(&format!("{screen} {}", all.join(" "))), size);
            render(&compared(), &keys(&format!("{screen} {}", all.join(" "))), size);
        }
    }
    // In every grouping, order and phase of two recordings, on every row.
    for by in ["", "b", "b b", "b b b", "b b b b"] {
        for sort in ["", "s", "s s", "s s s", "s s s s", "S", "p", "p p"] {
            for row in ["", "j", "G", "G enter", "R", "D G"] {
                render(&compared(), &keys(&format!("2 {by} {sort} {row}")), (80, 24));
            }
        }
    }
}

#[test]
fn a_method_is_chosen_for_all_gpus() {
    let app = after("3 w");
    let Some(Modal::Methods { gpu, selected: 0 }) = &app.modal else { panic!("{:?}", app.modal) };
    assert_eq!(gpu.as_str(), "h100-sxm5-80gb");
    assert_eq!(app.comparison.value().unwrap().methods.len(), 9);
    for closing in ["w", "q", "esc"] {
        assert_eq!(after(&format!("3 w {closing}")).modal, None, "{closing}");
    }
    // j and k move; what is chosen is predicted with.
    let mut app = after("3 w j j j");
    let chosen = effects(&mut app, "enter");
    assert_eq!(app.chosen.method, Some(MethodChoice::Roofline));
    assert!(
        matches!(&chosen[..], [Effect::Ask { question: Question::Predict(_, chosen), .. }] if *chosen == app.chosen),
        "{chosen:?}"
    );
    // A method without an answer is not.
    let refused = after("3 w j enter");
    assert_eq!(refused.chosen.method, None);
    assert!(matches!(refused.modal, Some(Modal::Methods { selected: 1, .. })));
    assert!(refused.message.unwrap().1.contains("no learned models"));
    // Elsewhere there is nothing to compare.
    assert_eq!(after("2 w").modal, None);
}

#[test]
fn the_precision_is_chosen_for_all_screens() {
    // Recorded in FP32, which is therefore not among the others.
    let chosen = |text: &str| after(text).chosen.precision.map(|precision| precision.map(Precision::name));
    assert_eq!(chosen("3"), None);
    assert_eq!(chosen("3 P"), Some(Some("tf32")));
    assert_eq!(chosen("3 P P P"), Some(Some("amp-bf16")));
    assert_eq!(chosen("3 P P P P P"), Some(Some("fp32-strict")));
    assert_eq!(chosen("3 P P P P P P"), Some(None));
    let [recorded, narrow, back] = ["3", "3 P P", "3 P P P P P P"].map(after);
    let step = |app: &App| app.predict.rows[0].step.range.mid.get();
    assert!(step(&narrow) < step(&recorded), "{} {}", step(&narrow), step(&recorded));
    assert_eq!(step(&back), step(&recorded));
    let total = |app: &App| app.plan.value().unwrap().total.unwrap();
    assert_ne!(total(&narrow), total(&recorded));
    assert_eq!(total(&back), total(&recorded));
    let mut app = narrow;
    let copied = effects(&mut app, "C");
    assert!(
        matches!(&copied[..], [Effect::Copy { text, .. }] if text.contains(" --precision amp-fp16 ")),
        "{copied:?}"
    );
}

#[test]
fn the_host_is_waited_for_or_keeps_up_on_every_screen() {
    let app = after("3 W");
    assert_eq!((app.chosen.host, app.predictions.value().unwrap().host), (Some(Host::KeepsUp), Host::KeepsUp));
    assert_eq!(app.plan.value().unwrap().host, Host::KeepsUp);
    assert_eq!(after("3 W B").sweep.value().unwrap().host, Host::KeepsUp);
    assert_eq!(after("3 W w").comparison.value().unwrap().host, Host::KeepsUp);
    assert_eq!(after("3 W W").predictions.value().unwrap().host, Host::AsRecorded);
    // What was asked for at the start is turned off by the same key.
    let mut launch = launch();
    let from_start = launch.engine.predict.clone();
    launch.engine.predict = Arc::new(move |profile, chosen| {
        from_start(profile, Chosen { host: chosen.host.or(Some(Host::KeepsUp)), ..chosen })
    });
    let (app, _) = render(&launch, &keys("3 W"), (80, 24));
    assert_eq!(app.predictions.value().unwrap().host, Host::AsRecorded);
    // The list of GPUs has it, the plan has not.
    assert_eq!(after("4 W").chosen.host, None);
}

#[test]
fn a_slider_moves_over_batch_sizes_and_lets_plans_use_one() {
    use predict::batches::{answer, row};
    let app = after("3 j B");
    let gpu = &app.predict.sizes.as_ref().unwrap().gpu;
    assert_eq!(*gpu, app.sweep.value().unwrap().gpus[0].gpu.slug);
    // From the recorded batch, and back to it.
    let batch = |pressed: &str| row(&after(pressed)).unwrap().batch;
    let moved = ["3 B", "3 B l", "3 B right right left", "3 B h", "3 B H H", "3 B + +", "3 B l l 0"].map(batch);
    assert_eq!(moved, [16, 24, 24, 12, 4, 32, 16]);
    let told = |pressed: &str| answer(&after(pressed)).into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert!(told("3 / v 1 0 0 enter B")[0].ends_with("(measured)"), "{:?}", told("3 / v 1 0 0 enter B"));
    assert!(told("3 / v 1 0 0 enter B l")[0].contains("predicted"), "{:?}", told("3 / v 1 0 0 enter B l"));
    // The slider reaches the largest batch that fits.
    let app = after("3 / l 4 enter B L L L L");
    let largest = app.sweep.value().unwrap().gpus[0].largest.unwrap();
    let reached = &app.sweep.value().unwrap().gpus[0].rows;
    assert!(reached.iter().any(|row| row.batch == largest && row.memory.fits == Fits::Yes), "{largest}");
    assert!(reached.iter().filter(|row| row.batch > largest).all(|row| row.memory.fits != Fits::Yes));
    for closing in ["q", "esc"] {
        assert_eq!(after(&format!("3 B {closing}")).predict.sizes, None, "{closing}");
    }
    assert_eq!(after("4 B").predict.sizes, None);
    // Plans may use it beside the recorded one, until that alone is chosen again.
    let sizes = |app: &App| -> Vec<u64> {
        app.predictions.value().unwrap().predictions[0].at_batches.iter().map(|at| at.batch_size).collect()
    };
    let app = after("3 B l l enter");
    assert_eq!((app.chosen.batch, sizes(&app)), (Some(Some(32)), vec![32]));
    assert!(app.command().contains("--batch-sizes 32"), "{}", app.command());
    assert!(app.message.as_ref().unwrap().1.contains("a batch of 32 per GPU"), "{:?}", app.message);
    let app = after("3 B l l enter 0 enter");
    // The shares of the recorded one stay: several GPUs keep the global batch with them.
    assert_eq!((app.chosen.batch, sizes(&app)), (Some(None), vec![1, 2, 4, 8]));
    assert!(!app.command().contains("--batch-sizes"), "{}", app.command());
    // It is where it was when the slider is opened again.
    assert_eq!(batch("3 B l l enter q B"), 32);
}

#[test]
fn every_offer_of_the_plan_screen_opens() {
    let app = after("4 tab j enter");
    let alternative = &app.plan.value().unwrap().alternatives[0].offer.id;
    assert_eq!(app.modal, Some(Modal::Offer { offer: alternative.clone(), scroll: 0 }));
    let Some(Modal::Offer { scroll, .. }) = after("4 tab enter j down up").modal else { panic!("no dialog") };
    assert_eq!(scroll, 1);
    for closing in ["q", "esc", "enter"] {
        assert_eq!(after(&format!("4 tab enter {closing}")).modal, None, "{closing}");
    }
    // On the sliders that of the plan opens; on the notes no row is selected.
    let own = app.plan.value().unwrap().parts[0].offer.id.clone();
    assert_eq!(after("4 enter").modal, Some(Modal::Offer { offer: own, scroll: 0 }));
    assert_eq!(after("4 v v v v v tab enter").modal, None);
}

/// A recording on one of several boards.
fn unknown_origin() -> Launch {
    let mut launch = launch();
    launch.setup.catalog = Arc::new(Catalog::new(bundled::gpus()));
    let origin = Arc::make_mut(&mut launch.setup.profile).origin.as_mut().expect("an origin");
    (origin.gpu, origin.gpu_name) = (None, Some("NVIDIA A100-SXM4".to_owned()));
    let engine = launch.engine.predict.clone();
    launch.engine.predict = Arc::new(move |profile, method| match profile.origin.as_ref().expect("an origin").gpu {
        Some(_) => engine(profile, method),
        None => Err("say which it is with --origin".to_owned()),
    });
    launch
}

#[test]
fn the_gpu_of_a_recording_that_may_be_one_of_several_is_chosen() {
    let launch = unknown_origin();
    let after = |text: &str| render(&launch, &keys(text), (80, 24));
    // The dialog opens by itself, and again with its key.
    for pressed in ["", "esc 3 O"] {
        let (app, buffer) = after(pressed);
        let Some(Modal::Origin { candidates, selected: 0 }) = &app.modal else { panic!("{:?}", app.modal) };
        assert_eq!(candidates.gpus[0].as_str(), "a100-sxm4-40gb");
        assert!(common::text(&buffer).contains("a100-sxm4-80gb"));
    }
    let (left, buffer) = after("esc 3");
    assert_eq!(left.modal, None);
    assert!(common::text(&buffer).contains("O to choose it"), "{}", common::text(&buffer));
    let (app, _) = after("j enter");
    assert_eq!(app.setup.profile.origin.as_ref().unwrap().gpu.as_ref().unwrap().as_str(), "a100-sxm4-80gb");
    assert!(app.predictions.value().is_some() && app.plan.value().is_some());
    // Where it is known there is nothing to choose.
    let (known, _) = after("enter O");
    assert_eq!(known.modal, None);
}

#[test]
fn filters_take_the_names_of_gpus_as_people_type_them() {
    let mut launch = launch();
    launch.setup.catalog = Arc::new(Catalog::new(bundled::gpus()));
    for typed in ["h 1 0 0 s x m", "h 1 0 0 - 8 0"] {
        let app = render(&launch, &keys(&format!("3 / {typed}")), (80, 24)).0;
        let rows: Vec<_> = predict::rows(&app).iter().map(|row| row.slug.as_str()).collect();
        assert_eq!(rows, ["h100-sxm5-80gb"], "{typed}");
    }
}

/// The keys before an action, after which its own keys do something.
#[expect(clippy::match_same_arms, reason = "by group")]
fn before(action: Action) -> &'static str {
    use Action as A;
    match action {
        A::Help | A::Palette | A::Messages | A::Back | A::Quit | A::Suspend | A::Redraw | A::Theme | A::Mouse => "",
        A::CopyCommand => "",
        // What is being computed is cancelled: the test asks for it anew.
        A::Profile | A::Predict | A::Plan | A::Job | A::Rerun | A::Export | A::Cancel => "",
        A::Close => "?",
        A::Overview | A::Phase | A::Group | A::Roofline | A::Timeline => "2",
        A::Down | A::PageDown | A::Bottom | A::Open | A::CopyRow | A::CopyTable => "3",
        A::Filter
        | A::Sort
        | A::Reverse
        | A::Methods
        | A::Host
        | A::Precision
        | A::Batches
        | A::Mark
        | A::Difference => "3",
        A::WhatIf => "3",
        A::Up | A::PageUp | A::Top => "3 j j",
        A::Left | A::Right | A::FarLeft | A::FarRight | A::Increase | A::Decrease | A::SetValue => "4",
        A::NextPane | A::PreviousPane | A::Objective | A::OnDemand | A::Spot | A::Confidence => "4",
        A::Marketplace | A::Doubted | A::Platform | A::GlobalBatch | A::Providers | A::Regions | A::Own => "4",
        A::Parts | A::Lower => "4",
        A::NoLimit | A::Undo => "4 j = 5 enter",
        A::Origin => "esc 3",
        A::Jobs => "1",
        A::Rest => "5",
        A::Edit => "6",
    }
}

/// The aim of a job that follows a plan.
fn followed() -> habitat_tui::live::Aim {
    let hours = habitat_tui::units::Hours::known;
    let range = habitat_tui::units::Range { low: 1.0, mid: 2.0, high: 3.0 };
    let plan = habitat_tui::live::PlanFigures {
        gpu: None,
        price: None,
        hours: range.map(hours),
        cost: range.map(habitat_tui::units::Usd::known),
        step: range.map(habitat_tui::units::Micros::known),
        deadline: Some(hours(900.0)),
        budget: None,
    };
    habitat_tui::live::Aim { steps: Some(100), price: None, plan: Some(plan) }
}

/// Every action, by each of its keys: those of vim and the arrows.
#[test]
fn every_key_of_every_action_does_something() {
    for spec in ACTIONS {
        let mut launch = launch();
        if [Action::Job, Action::Rest].contains(&spec.action) {
            launch.setup.job = Some(Job {
                id: String::new(),
                command: "python train.py".into(),
                pid: 1,
                name: "train".into(),
                log: "train.log".into(),
                output: "train.habitat.json.zst".into(),
                wanted: RecordingWindows::Steps { windows: 1, after: 10, window: 3, every: None },
                aim: followed(),
            });
        } else if matches!(spec.action, Action::Jobs | Action::Edit) {
            launch = jobs(12.0);
        } else if spec.action == Action::Origin {
            launch = unknown_origin();
        }
        let (app, _) = render(&launch, &keys(before(spec.action)), (80, 24));
        for key in spec.keys {
            let mut app = app.clone();
            if spec.action == Action::Cancel {
                app.update(Msg::Key("r".parse().unwrap()));
            }
            let state = format!("{app:?}");
            let effects = effects(&mut app, key);
            assert!(!effects.is_empty() || format!("{app:?}") != state, "{} by {key}", spec.name);
            assert_eq!(launch.setup.keymap.action(key.parse().unwrap()), Some(spec.action), "{key}");
        }
    }
}
