//! Pictures of the screens as text, and their styles.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::common::{self, compared, jobs, keys, launch, text};
use habitat_tui::action::ACTIONS;
use habitat_tui::app::Source;
use habitat_tui::app::engine::Solved;
use habitat_tui::plan::{Beside, Confidence, Instead, Part, Plan, Risk};
use habitat_tui::predict::batches::Sweep;
use habitat_tui::predict::compare::Comparison;
use habitat_tui::predict::{Finding, Shared};
use habitat_tui::pricing::{Market, OfferId, PriceBook, Tier, Trust};
use habitat_tui::report::format;
use habitat_tui::report::theme::{ColourLevel, GlyphSet};
use habitat_tui::tui::{Launch, render, screenshot};
use habitat_tui::units::{GpuSlug, Range, UsdPerHour};
use proptest::prelude::*;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

fn picture(launch: &Launch, pressed: &str, size: (u16, u16)) -> String {
    text(&render(launch, &keys(pressed), size).1)
}

#[test]
fn screens_at_four_sizes() {
    for (name, pressed) in [("overview", "1"), ("profile", "2"), ("predict", "3"), ("plan", "4"), ("help", "?")] {
        for size in [(80, 24), (120, 40), (50, 15), (200, 60)] {
            insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), picture(&launch(), pressed, size));
        }
    }
}

/// Every theme with every number of colours.
fn looks() -> impl Iterator<Item = (String, Launch)> {
    let levels = [ColourLevel::None, ColourLevel::Ansi16, ColourLevel::Ansi256, ColourLevel::True];
    (0..launch().setup.themes.len()).flat_map(move |theme| {
        levels.map(|level| {
            let mut launch = launch();
            (launch.setup.theme, launch.setup.colours) = (theme, level);
            (format!("{} {level:?}", launch.setup.themes[theme].name), launch)
        })
    })
}

/// A theme changes neither words nor positions.
#[test]
fn every_theme_says_the_same() {
    for (look, themed) in looks() {
        for pressed in ["1", "2", "3", "4", "4 v", "?", "3 F", "2 R"] {
            for size in [(50, 15), (80, 24), (120, 40), (200, 60)] {
                assert_eq!(picture(&themed, pressed, size), picture(&launch(), pressed, size), "{look} {pressed}");
            }
        }
    }
}

/// Styles of selection, focus, good and doubtful values, in every theme class.
#[test]
fn selection_and_focus_in_every_theme() {
    let mut seen = String::new();
    for (look, themed) in looks() {
        let on_plan = render(&themed, &keys("4"), (80, 24)).1;
        let below = render(&themed, &keys("4 tab"), (80, 24)).1;
        let on_gpus = render(&themed, &keys("3"), (80, 24)).1;
        let place = |buffer: &Buffer, what: &str| {
            let drawn = text(buffer);
            let (y, line) = drawn.lines().enumerate().find(|(_, line)| line.contains(what)).expect(what);
            let x = line[..line.find(what).unwrap()].chars().count();
            // Two cells before a name is the marker of a row, or the frame of a pane.
            [x - 2, x].map(|x| buffer[(x as u16, y as u16)].clone())
        };
        let style = |[before, name]: &[Cell; 2]| {
            let look = |cell: &Cell| format!("{:?} on {:?} {:?}", cell.fg, cell.bg, cell.modifier);
            format!("{:?} {} · {}", before.symbol(), look(before), look(name))
        };
        let styles = [
            ("tab of the screen", place(&on_plan, "4 plan")),
            ("another tab", place(&on_plan, "3 predict")),
            ("slider in focus", place(&on_plan, "work")),
            ("another slider", place(&on_plan, "deadline")),
            ("pane in focus", place(&on_plan, "goal")),
            ("another pane", place(&below, "goal")),
            ("selected row", place(&on_gpus, "H100 SXM5")),
            ("another row", place(&on_gpus, "L4")),
        ];
        for (what, cells) in &styles {
            writeln!(seen, "{look:<24} {what:<18} {}", style(cells)).unwrap();
        }
        // Each pair is distinguishable, without colours too.
        for pair in styles.chunks(2) {
            assert_ne!(style(&pair[0].1), style(&pair[1].1), "{look}: {} and {}", pair[0].0, pair[1].0);
        }
    }
    insta::assert_snapshot!("styles", seen);
}

/// Random sequences of keys.
fn pressed() -> impl Strategy<Value = Vec<&'static str>> {
    let keys: Vec<&str> = ACTIONS.iter().flat_map(|spec| spec.keys).copied().collect();
    let typed = ["a", "9", "0", ".", "5", "!", "ü", "字"].into_iter();
    let keys: Vec<&str> = keys.into_iter().chain(typed).filter(|key| !["ctrl-c", "ctrl-z"].contains(key)).collect();
    proptest::collection::vec(proptest::sample::select(keys), 0..25)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Any keys, any window size: it is drawn completely, on any terminal.
    #[test]
    fn random_states_are_drawn_at_random_sizes(
        pressed in pressed(),
        columns in 1_u16..220,
        rows in 1_u16..70,
        ascii in any::<bool>(),
        colours in any::<bool>(),
        beside in any::<bool>(),
    ) {
        let mut launch = if beside { compared() } else { launch() };
        if ascii {
            launch.setup.glyphs = GlyphSet::Ascii;
        }
        if !colours {
            launch.setup.colours = ColourLevel::None;
        }
        let keys: Vec<_> = pressed.iter().map(|key| key.parse().unwrap()).collect();
        let (app, buffer) = render(&launch, &keys, (columns, rows));
        let drawn = text(&buffer);
        prop_assert!(!drawn.chars().any(|c| c.is_control() && c != '\n'), "{}", drawn);
        // Wide characters are not cut in half.
        let last = |y| buffer[(columns - 1, y)].symbol().width();
        prop_assert!((0..rows).all(|y| last(y) <= 1), "{}", drawn);
        // An input line shows the typed text.
        let typed = app.modal.clone().is_some_and(|mut modal| modal.input_mut().is_some());
        prop_assert!(!ascii || typed || drawn.is_ascii() || pressed.iter().any(|key| !key.is_ascii()), "{}", drawn);
        if !colours {
            prop_assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        }
    }
}

#[test]
fn dialogs_and_details() {
    for (name, pressed) in [
        ("gpu_opened", "3 enter"),
        ("infeasible", "4 j j = 0 . 5 enter"),
        ("palette", ": p l a n"),
        ("export", "4 e"),
        ("export_slurm", "4 e down down down down down down down tab p y t h o n tab g p u"),
        ("chart", "4 v v"),
        ("kernel_detail", "2 enter"),
        ("roofline", "2 R"),
        ("timeline", "2 T"),
        ("filter", "3 / v 1 0 0"),
        ("methods", "3 w j"),
        ("batches", "3 B"),
        ("difference", "3 space j D"),
        ("what_if", "3 F l l"),
        ("offer_of_the_plan", "4 tab enter"),
        ("offer_beside_the_plan", "4 tab j enter"),
        ("offer_rejected", "4 j j = 0 . 5 enter v v v tab enter"),
    ] {
        insta::assert_snapshot!(name, picture(&launch(), pressed, (80, 24)));
    }
}

#[test]
fn a_second_recording_stands_beside_the_first() {
    for (name, pressed) in [("profile_against", "2 s"), ("waterfall_of_recordings", "2 D")] {
        for size in [(80, 24), (120, 40)] {
            insta::assert_snapshot!(format!("{name}_{}x{}", size.0, size.1), picture(&compared(), pressed, size));
        }
    }
    // The change is always shown.
    assert!(picture(&compared(), "2", (50, 15)).contains("change, ms"));
}

#[test]
fn several_jobs_over_time() {
    for size in [(80, 24), (120, 40), (50, 15)] {
        insta::assert_snapshot!(format!("jobs_{}x{}", size.0, size.1), picture(&jobs(12.0), "", size));
    }
    insta::assert_snapshot!("jobs_details", picture(&jobs(12.0), "j enter", (80, 24)));
    insta::assert_snapshot!("jobs_export", picture(&jobs(12.0), "e", (80, 24)));
    // The reason why there is no plan, with a change that would give one.
    insta::assert_snapshot!("jobs_infeasible", picture(&jobs(1.0), "", (80, 24)));
    // The reason why the file cannot be used, with its line.
    let mut launch = jobs(12.0);
    launch.engine.jobs = Arc::new(|| Err("runs/jobs.toml: line 3: job \"a\": no work".into()));
    for size in [(80, 24), (120, 40), (50, 15)] {
        let drawn = picture(&launch, "", size);
        let words: Vec<&str> = drawn.split_whitespace().filter(|word| *word != "│").collect();
        assert_eq!(words.join(" ").matches("line 3: job \"a\": no work").count(), 1, "{drawn}");
    }
    let mut launch = jobs(12.0);
    launch.setup.glyphs = GlyphSet::Ascii;
    for pressed in ["", "enter", "e"] {
        for size in [(80, 24), (120, 40), (50, 15), (30, 8), (1, 1)] {
            assert!(picture(&launch, pressed, size).is_ascii());
        }
    }
    for width in [1, 20, 50, 51, 76, 77, 110, 300] {
        for height in [1, 5, 14, 15, 16, 20, 28, 100] {
            for launch in [&jobs(12.0), &jobs(1.0)] {
                picture(launch, "", (width, height));
            }
        }
    }
}

/// Spot alone: the bar shows the losses, with sign, time and cost.
#[test]
fn the_plan_is_a_bar_over_time_with_what_it_costs() {
    for size in [(80, 24), (120, 40), (50, 15)] {
        insta::assert_snapshot!(
            format!("timeline_{}x{}", size.0, size.1),
            picture(&launch(), "4 j = 3 0 h enter d v tab", size)
        );
    }
    let mut launch = launch();
    launch.setup.glyphs = GlyphSet::Ascii;
    let drawn = picture(&launch, "4 j = 3 0 h enter d v", (120, 40));
    assert!(drawn.contains("##") && drawn.contains("] latest end"), "{drawn}");
}

/// The selected row's part of the step is marked, not only by colour.
#[test]
fn the_step_is_a_line_with_names_in_any_glyphs() {
    for (glyphs, marker, idle) in
        [(GlyphSet::Braille, "▸", "░"), (GlyphSet::Block, ">", "░"), (GlyphSet::Ascii, ">", ".")]
    {
        let mut launch = launch();
        launch.setup.glyphs = glyphs;
        for level in [ColourLevel::None, ColourLevel::True] {
            launch.setup.colours = level;
            let drawn = picture(&launch, "2 b", (120, 40));
            let line = drawn.lines().find(|line| line.contains("step 10.0 ms")).unwrap_or_else(|| panic!("{drawn}"));
            assert_eq!(line.matches(&format!("{marker}matrix product")).count(), 2, "{line}");
            assert!(line.contains("matrix product 44.0 %") && line.contains("idle 20.0 %"), "{line}");
            assert!(line.contains(idle) && !line.contains(&format!("{marker}elementwise")), "{line}");
        }
    }
    // On a small screen only if a line is free, never instead of a row.
    assert!(picture(&launch(), "2", (80, 24)).contains("step 10.0 ms"));
    assert!(
        !picture(&launch(), "2", (50, 15)).contains("step 10.0 ms")
            || picture(&launch(), "2", (50, 15)).contains("layer_norm")
    );
}

#[test]
fn the_plans_that_none_beats_stand_beside_their_chart() {
    insta::assert_snapshot!("frontier_120x40", picture(&launch(), "4 v v tab k", (120, 40)));
    // Without a plan as well.
    insta::assert_snapshot!("frontier_infeasible_120x40", picture(&launch(), "4 j j = 0 . 5 enter v v tab", (120, 40)));
}

#[test]
fn the_selected_row_is_reversed_and_marked_with_and_without_colours() {
    for level in [ColourLevel::None, ColourLevel::Ansi16, ColourLevel::Ansi256, ColourLevel::True] {
        let mut launch = launch();
        launch.setup.colours = level;
        let (_, buffer) = render(&launch, &keys("3"), (80, 24));
        let row = (0..24).find(|y| buffer[(2, *y)].symbol() == "▸").expect("a marked row");
        assert!(buffer[(6, row)].modifier.contains(Modifier::REVERSED), "{level:?}");
        assert!(!buffer[(6, row + 1)].modifier.contains(Modifier::REVERSED), "{level:?}");
        if level == ColourLevel::None {
            assert!(buffer.content.iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
        }
    }
}

#[test]
fn ascii_is_ascii() {
    let mut launch = launch();
    launch.setup.glyphs = GlyphSet::Ascii;
    for pressed in ["1", "2", "3", "4", "4 v", "?", "3 enter", "3 F", "3 D", ": h 1 0 0", "4 v v"] {
        for size in [(80, 24), (120, 40), (50, 15), (30, 8)] {
            let drawn = picture(&launch, pressed, size);
            assert!(drawn.is_ascii(), "{pressed} {size:?}: {drawn}");
        }
    }
    let mut compared = compared();
    compared.setup.glyphs = GlyphSet::Ascii;
    for pressed in ["2", "2 D", "2 b b b b", "2 G enter"] {
        for size in [(80, 24), (120, 40), (50, 15), (30, 8)] {
            let drawn = picture(&compared, pressed, size);
            assert!(drawn.is_ascii(), "{pressed} {size:?}: {drawn}");
        }
    }
}

#[test]
fn names_from_files_cannot_write_escape_sequences() {
    for size in [(80, 24), (120, 40)] {
        assert!(!picture(&launch(), "2 b b b", size).contains('\u{1b}'));
        assert!(!screenshot(&launch(), &keys("2 b b b enter"), size).contains('\u{1b}'));
    }
}

#[test]
fn a_sample_is_said_to_be_one_at_every_size() {
    let mut launch = launch();
    launch.setup.source = Source::Sample("embedded sample, not your program: BERT on a V100".into());
    for size in [(50, 15), (80, 24), (120, 40)] {
        assert!(picture(&launch, "1", size).contains("embedded sample"), "{size:?}");
    }
    // Shortens a long description, but not the note that it is another program.
    let label = format!("embedded sample, not your program: {}", "BERT in many words ".repeat(5));
    launch.setup.source = Source::Sample(label);
    assert!(picture(&launch, "1", (80, 24)).contains("embedded sample, not your program: BERT"));
}

#[test]
fn too_small_says_what_is_needed() {
    let small = picture(&launch(), "", (40, 10));
    assert!(small.contains("40×10") && small.contains("50×15"), "{small}");
    // No size breaks it.
    for width in [1, 2, 5, 49, 50, 51, 76, 77, 109, 110, 111, 300] {
        for height in [1, 2, 3, 14, 15, 16, 19, 20, 21, 28, 100] {
            for pressed in ["1", "2", "3", "4", "?", ":", "4 v", "4 v v", "4 e", "3 /", "4 tab j enter"] {
                picture(&launch(), pressed, (width, height));
            }
        }
    }
}

/// Words on a screen between two marks, without frames and line ends.
fn between(drawn: &str, from: &str, to: &str) -> String {
    let from = drawn.find(from).unwrap_or_else(|| panic!("{from}\n{drawn}"));
    let rest = &drawn[from..];
    let words = rest[..rest.find(to).unwrap_or(rest.len())].split(|c: char| c.is_whitespace() || "│╭╮╰╯─".contains(c));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// A small terminal shows whole reasons and remedies: for keys without effect, and for a goal without a plan.
#[test]
fn nothing_that_decides_is_cut_at_80x24() {
    for screen in ["1", "2", "3", "4"] {
        for (key, remedy) in [
            ("5", "start one with `habitat-tui run -- python train.py`"),
            ("6", "open one with `habitat-tui --jobs jobs.toml`"),
            ("n", "start one with `habitat-tui run --plan plan.toml -- python train.py`"),
        ] {
            let drawn = picture(&launch(), &format!("{screen} {key}"), (80, 24));
            assert!(between(&drawn, "no ", "?").contains(remedy), "{screen} {key}\n{drawn}");
        }
    }
    let mut launch = launch();
    launch.setup.goal.deadline = Some(habitat_tui::units::Hours::known(0.1));
    launch.setup.goal.budget = Some(habitat_tui::units::Usd::known(0.1));
    let plan = launch.engine.plan.clone();
    // As many as for a plan with several limits.
    launch.engine.plan = Arc::new(move |predictions, prices, goal| {
        let solved = plan(predictions, prices, goal)?;
        let reasons = [&solved.plan.reasons[..], &solved.plan.reasons[..2]].concat();
        Ok(Solved { plan: Arc::new(Plan { reasons, ..(*solved.plan).clone() }), ..solved })
    });
    let of = |size| between(&picture(&launch, "4", size), "no plan", "├─ alternatives");
    let [small, large] = [(80, 24), (80, 60)].map(of);
    assert_eq!(small, large);
    assert!(small.matches('•').count() >= 6 && !small.contains('…'), "{small}");
    // The first screen shows the first of them.
    let overview = between(&picture(&launch, "1", (80, 24)), "Recommended offer", "Fastest GPU");
    let first = overview.trim_start_matches("Recommended offer ");
    assert!(first.len() > 20 && small.contains(first), "{overview}: {small}");
    // A whole error message, with the remedy at its end.
    let why = format!("{} --remedy", "the words of a long reason ".repeat(10));
    let failing = why.clone();
    launch.engine.plan = Arc::new(move |_, _, _| Err(failing.clone()));
    let drawn = picture(&launch, "4", (80, 24));
    let words = why.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(between(&drawn, "planning failed", "\u{0}").contains(&words), "{drawn}");
}

/// The cost if an offer fails is beside its price before the user accepts it.
#[test]
fn an_offer_to_accept_shows_what_its_failure_costs() {
    let mut launch = launch();
    launch.setup.goal.limits.accept.clear();
    let mut offers = launch.setup.prices.offers().to_vec();
    let mut host = (*offers[0]).clone();
    (host.id, host.price) = (OfferId::new("host", "r", "m", Tier::OnDemand), UsdPerHour::new(0.01).unwrap());
    host.trust = Trust::new(Market::PeerToPeer);
    offers.push(Arc::new(host));
    launch.setup.prices = Arc::new(PriceBook::new(offers));
    for size in [(80, 24), (120, 40)] {
        let drawn = picture(&launch, "4", size);
        let words: Vec<&str> = drawn.split_whitespace().filter(|word| *word != "│").collect();
        let words = words.join(" ");
        let offer = "Cheaper if you accept (if it fails: $1.00 in 2.9 h): [a] $0.0096 a marketplace host";
        assert!(words.contains(offer), "{drawn}");
    }
    // The fallback takes longer than the deadline.
    let solved = launch.engine.plan.clone();
    launch.engine.plan = Arc::new(move |predictions, prices, goal| {
        let solved = solved(predictions, prices, goal)?;
        let mut late = (*solved.plan).clone();
        late.beside[0].then.as_mut().unwrap().late = Some(habitat_tui::units::Hours::new(0.5).unwrap());
        Ok(Solved { plan: Arc::new(late), ..solved })
    });
    let drawn = picture(&launch, "4", (120, 40));
    assert!(
        drawn.contains("(if it fails: $1.00 in 2.9 h (up to 3.2 h) – misses the deadline by up to 30 min)"),
        "{drawn}"
    );
}

/// "Which layer is slow?" needs no key.
#[test]
fn the_slowest_layers_are_on_the_first_screen() {
    for size in [(80, 24), (120, 40)] {
        let drawn = picture(&launch(), "1", size);
        let line = drawn.lines().find(|line| line.contains("│ slowest  ")).unwrap_or_else(|| panic!("{drawn}"));
        assert!(line.contains("encoder.0.query ") && line.contains(" %"), "{line}");
    }
}

/// The cost of failure and the cheaper offers stay, the rest is a key away, and six offers keep the names of their
/// GPUs.
#[test]
fn a_long_recommendation_leaves_room_for_the_offers() {
    let mut launch = launch();
    let plan = launch.engine.plan.clone();
    launch.engine.plan = Arc::new(move |predictions, prices, goal| {
        let solved = plan(predictions, prices, goal)?;
        let mut found = (*solved.plan).clone();
        let gpu = GpuSlug::new("rtx-pro-6000-blackwell-server").unwrap();
        let part = Part { gpu, ..found.parts[0].clone() };
        let Range { mid: cost, .. } = part.cost;
        let then = Some(Instead { cost, hours: part.hours, end: part.hours.high, late: None, over: None, with: None });
        let risks = [Risk::Marketplace, Risk::Spot, Risk::Doubted(Vec::new())];
        let beside = risks.map(|risk| Beside { part: part.clone(), risks: vec![risk], then: then.clone() });
        (found.beside, found.bargain) = (beside.to_vec(), Some(part.clone()));
        found.alternatives = vec![part; 8];
        Ok(Solved { plan: Arc::new(found), ..solved })
    });
    let drawn = picture(&launch, "4", (80, 24));
    let offers = drawn.lines().filter(|line| line.contains("1 × rtx-pro-6000-blackwell-server ")).count();
    assert!(offers >= 5 && drawn.contains("▸ ✓"), "{drawn}");
    assert!(drawn.contains("enter: all of it") && drawn.contains("Cheaper if you accept (if it fails: $"), "{drawn}");
    assert!(!drawn.contains("Much faster for a little more: "), "{drawn}");
    assert!(picture(&launch, "4 enter", (80, 40)).contains("Much faster for a little more: "));
}

/// On a small terminal the longest answers lose their last details, so that every question has its answer.
#[test]
fn every_answer_is_on_a_small_first_screen() {
    let mut launch = launch();
    let plan = launch.engine.plan.clone();
    launch.engine.plan = Arc::new(move |predictions, prices, goal| {
        let solved = plan(predictions, prices, goal)?;
        let mut found = (*solved.plan).clone();
        Arc::make_mut(&mut found.parts[0].offer).region = "NORWAY-1 / CANADA-1 / US-1".into();
        found.bargain = found.parts.first().cloned();
        Ok(Solved { plan: Arc::new(found), ..solved })
    });
    for height in [24, 20] {
        let drawn = picture(&launch, "1", (80, height));
        for words in
            ["Recommended offer $", "NORWAY-1 / CANADA-1 / US-1", "Fastest GPU       H100", "Best value        L4"]
        {
            assert!(drawn.contains(words), "{words}\n{drawn}");
        }
    }
}

/// Typed as for `--own`: the plan, the prices and the command know the machine; an invalid value is explained.
#[test]
fn own_machines_are_entered_on_the_plan_screen() {
    let (app, buffer) = render(&launch(), &keys("4 I 2 x l 4 enter"), (120, 40));
    let drawn = text(&buffer);
    assert!(drawn.contains("own: 2xl4") && drawn.contains("2 × l4: $"), "{drawn}");
    assert!(app.command().contains("--own 2xl4"), "{}", app.command());
    let owned = |app: &habitat_tui::app::App| {
        app.setup.prices.offers().iter().filter(|offer| offer.tier == habitat_tui::pricing::Tier::Owned).count()
    };
    assert_eq!(owned(&app), 2, "both GPUs, or one of them");
    let (wrong, buffer) = render(&launch(), &keys("4 I 2 x n o enter"), (80, 24));
    // The whole error, with the remedy at its end.
    let drawn = text(&buffer);
    assert!(
        drawn.contains("no GPU \"no\" in the catalog") && drawn.contains("`habitat-tui gpus` lists all"),
        "{drawn}"
    );
    assert!(wrong.modal.is_some() && owned(&wrong) == 0);
    // A name of several GPUs lists them.
    let several = picture(&launch(), "4 I 2 x a 1 0 0 enter", (120, 40));
    assert!(several.contains("a100-sxm4-80gb") && !several.contains(" fit)"), "{several}");
    let (none, _) = render(&launch(), &keys("4 I l 4 enter I backspace backspace backspace backspace enter"), (80, 24));
    assert_eq!((owned(&none), none.command().contains("--own")), (0, false));
}

#[test]
fn failures_stay_in_the_pane_that_asked() {
    let mut launch = launch();
    launch.engine.plan = std::sync::Arc::new(|_, _, _| Err("the batch size is not known; give --batch-size".into()));
    let drawn = picture(&launch, "4", (80, 24));
    assert!(drawn.contains("planning failed") && drawn.contains("--batch-size"), "{drawn}");
    launch.engine.predict = std::sync::Arc::new(|_, _| Err("the origin is not known; give --origin".into()));
    let drawn = picture(&launch, "3", (80, 24));
    assert!(drawn.contains("prediction failed") && drawn.contains("--origin"), "{drawn}");
    assert!(!drawn.contains("0 of 0"), "{drawn}");
}

/// Each failure appears once per screen, and measurements stay.
#[test]
fn a_failure_is_said_once() {
    let mut launch = launch();
    launch.engine.predict = std::sync::Arc::new(|_, _| Err("the origin is not known; give --origin".into()));
    for size in [(80, 24), (120, 40), (50, 15)] {
        for (screen, times) in [("1", 1), ("2", 0), ("3", 1), ("4", 1)] {
            let drawn = picture(&launch, screen, size);
            assert_eq!(drawn.matches("prediction failed").count(), times, "{screen} {size:?}\n{drawn}");
        }
        assert!(picture(&launch, "2", size).contains("mm"));
    }
    let mut launch = common::launch();
    launch.engine.plan = std::sync::Arc::new(|_, _, _| Err("the batch size is not known; give --batch-size".into()));
    for screen in ["1", "4"] {
        let drawn = picture(&launch, screen, (120, 40));
        assert_eq!(drawn.matches("planning failed").count(), 1, "{screen}\n{drawn}");
    }
}

/// The caveat on times is on every screen and in every dialog with a time.
#[test]
fn warnings_stand_wherever_a_time_does() {
    let warnings = vec![Finding::NoShapes { all: true, share: 1.0 }];
    let mut launch = launch();
    let (predict, plan) = (launch.engine.predict.clone(), launch.engine.plan.clone());
    let (compare, batches) = (launch.engine.compare.clone(), launch.engine.batches.clone());
    let of = warnings.clone();
    launch.engine.predict = Arc::new(move |profile, method| {
        let mut all = predict(profile, method)?;
        all.predictions.iter_mut().for_each(|prediction| prediction.warnings.clone_from(&of));
        Ok(all)
    });
    let of = warnings.clone();
    launch.engine.plan = Arc::new(move |predictions, prices, goal| {
        let solved = plan(predictions, prices, goal)?;
        Ok(Solved { plan: Arc::new(Plan { warnings: of.clone(), ..(*solved.plan).clone() }), ..solved })
    });
    let shared = |finding: &Finding| Shared { finding: finding.clone(), gpus: 1, of_gpus: 1, waits: None };
    let of: Vec<Shared> = warnings.iter().map(shared).collect();
    launch.engine.compare =
        Arc::new(move |profile, gpu, method| Ok(Comparison { warnings: of.clone(), ..compare(profile, gpu, method)? }));
    launch.engine.batches = Arc::new(move |profile, gpu, method| {
        Ok(Sweep { warnings: warnings.clone(), ..batches(profile, gpu, method)? })
    });
    for size in [(50, 15), (80, 24), (120, 40)] {
        for pressed in ["1", "3", "3 enter", "3 w", "3 B", "3 F", "3 D", "4", "4 v", "4 v v"] {
            let drawn = picture(&launch, pressed, size);
            assert!(drawn.contains("no shapes recorded"), "{pressed} {size:?}\n{drawn}");
        }
    }
    assert!(picture(&launch, "3", (120, 40)).contains("no shapes were recorded: 100 %"));
}

/// The filter applies to the listed offers; the offer may be among the rejected ones.
#[test]
fn a_filter_without_a_match_says_where_the_offer_is() {
    let drawn = picture(&launch(), "4 d / h 1 0 0 enter", (120, 40));
    assert!(drawn.contains("No row matches the filter") && drawn.contains("rejected offers: 1"), "{drawn}");
}

/// The settings of the predictions matter more than the names of the other screens.
#[test]
fn a_small_screen_shows_all_modes() {
    for screen in ["1", "2", "3", "4"] {
        let drawn = picture(&launch(), &format!("3 P P P P W {screen}"), (80, 24));
        let bar = drawn.lines().next().unwrap();
        assert!(bar.contains("no CPU wait") && bar.contains("as "), "{bar}");
    }
}

/// All screens agree on the CPU wait: as recorded, or without.
#[test]
fn every_screen_says_that_the_host_keeps_up() {
    for size in [(50, 15), (80, 24), (120, 40)] {
        for pressed in ["3 W", "3 W 1", "3 W enter", "3 W w", "3 W B", "3 W F", "3 W D", "3 W 4"] {
            let drawn = picture(&launch(), pressed, size);
            let is_said = ["as if the host kept up", "assuming the CPU keeps up"].iter().any(|it| drawn.contains(it));
            assert!(is_said, "{pressed} {size:?}\n{drawn}");
        }
        assert!(!picture(&launch(), "3 W W", size).contains("assuming the CPU keeps up"));
    }
}

#[test]
fn screenshots_are_whole_and_titled() {
    let svg = screenshot(&launch(), &keys("4"), (80, 24));
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("<title id=\"title\">habitat-tui, plan screen, 80 by 24 cells</title>"));
    assert_eq!(svg, screenshot(&launch(), &keys("4"), (80, 24)));
}

/// Does not report missing offers if the batch size is missing.
#[test]
fn without_a_batch_size_prices_stay_and_the_flag_is_named() {
    let mut launch = launch();
    std::sync::Arc::make_mut(&mut launch.setup.profile).workload.batch_size = None;
    let engine = launch.engine.predict.clone();
    launch.engine.predict = std::sync::Arc::new(move |profile, method| {
        let mut answer = engine(profile, method)?;
        answer.workload.batch_size = None;
        answer.predictions.iter_mut().for_each(|prediction| prediction.throughput = None);
        Ok(answer)
    });
    let drawn = picture(&launch, "1", (120, 40));
    assert!(drawn.contains("unknown batch size: pass --batch-size N"), "{drawn}");
    let drawn = picture(&launch, "3", (120, 40));
    assert!(drawn.contains("2.400") && drawn.contains("samples/$ unknown: pass --batch-size N"), "{drawn}");
    assert_eq!(drawn.matches("no offer").count(), 1, "{drawn}");
}

/// The recommendation has expected cost and time with their ranges. The chart and the list have the hours of one end of
/// the range, and the axes end at the values.
#[test]
fn the_chart_and_the_list_of_plans_are_at_one_end_of_the_range() {
    for (pressed, end, axis) in
        [("4", Confidence::High, " time at the high end "), ("4 c", Confidence::Expected, " expected time ")]
    {
        let (app, buffer) = render(&launch(), &keys(pressed), (120, 40));
        let (drawn, plan) = (text(&buffer), app.plan.value().unwrap());
        let mut all: Vec<&Part> = plan.parts.iter().chain(&plan.alternatives).collect();
        all.sort_by(|a, b| end.end(&a.hours).total_cmp(&end.end(&b.hours)));
        let [shortest, longest] = [all[0], all[all.len() - 1]].map(|part| format::hours(end.end(&part.hours)));
        all.sort_by(|a, b| a.cost.mid.total_cmp(&b.cost.mid));
        let [least, greatest] = [all[0], all[all.len() - 1]].map(|part| format::usd(part.cost.mid));
        let total = plan.total.unwrap();
        let ranges = (format::usd_range(&total.cost), format::hours_range(&total.hours));
        let said = format!(
            "{} in {}  ({}, {})",
            format::usd(total.cost.mid),
            format::hours(total.hours.mid),
            ranges.0,
            ranges.1
        );
        assert!(drawn.contains(&said), "{said}: {drawn}");
        let axis = drawn.lines().rfind(|line| line.contains(axis)).unwrap_or_else(|| panic!("{drawn}"));
        assert!(axis.contains(&shortest) && axis.contains(&longest), "{axis}");
        let (low, high) = (format!("{least}│"), format!("{greatest}│"));
        for bound in [&low, &high] {
            assert_eq!(drawn.matches(bound).count(), 1, "{bound}\n{drawn}");
        }
        // In the list: the plan and the fastest offer.
        let row = |gpu: &str| drawn.lines().find(|line| line.contains(&format!("1 × {gpu} ")) && line.contains('$'));
        assert!(row("h100-sxm5-80gb").unwrap().contains(&shortest), "{drawn}");
        // The fastest offer is the left end of the curve: the first column of the plot.
        let top = drawn.lines().find(|line| line.contains(&high)).unwrap();
        assert_eq!(top.split(&high).nth(1).unwrap().chars().next(), Some('●'), "{drawn}");
    }
}
