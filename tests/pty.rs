//! The real program in a pseudo-terminal: its screens, and that it restores the terminal.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::terminal::Terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_habitat-tui");

fn opened(variables: &[(&str, &str)]) -> Terminal {
    let terminal = Terminal::open(PROGRAM, &[], variables);
    terminal.sees("Recommended offer");
    terminal
}

#[test]
fn the_terminal_is_given_back() {
    let mut terminal = opened(&[]);
    terminal.sees("embedded sample");
    assert_eq!(terminal.taken(), ["alternate screen", "hidden cursor", "bracketed paste", "mouse"]);
    terminal.press("2");
    terminal.sees("gelu_backward");
    terminal.press("3");
    terminal.sees("predicted, 1 measured");
    terminal.press("4");
    terminal.sees("v: timeline");
    // A slider, one step up from 100,000.
    terminal.press("l");
    terminal.sees("120,000 steps");
    // Ctrl-L redraws everything, also over foreign output.
    terminal.screen.lock().unwrap().process(b"\x1b[2J");
    terminal.press("\x0c");
    terminal.sees("v: timeline");
    terminal.press("?");
    terminal.sees("Search actions");
    terminal.press("\x1b");
    let end = Instant::now() + Duration::from_secs(60);
    while terminal.text().contains("Search actions") {
        assert!(Instant::now() < end, "Esc does not close the help");
    }
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(terminal.taken(), [""; 0]);
}

/// Reports a window that is too small, and recovers.
#[test]
fn a_window_may_become_small_and_large_again() {
    let mut terminal = opened(&[]);
    terminal.press("4");
    terminal.sees("v: timeline");
    for (columns, rows) in [(30, 8), (20, 5), (1, 1), (80, 24), (200, 60)] {
        terminal.resize(columns, rows);
        match columns {
            30 => terminal.sees("50×15"),
            80 | 200 => terminal.sees("v: timeline"),
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
    }
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(terminal.taken(), [""; 0]);
}

/// Reads a key that arrives together with a resize.
#[test]
fn a_key_beside_a_resize_is_not_lost() {
    let mut terminal = opened(&[]);
    for round in 0..50 {
        for (key, seen) in [("4", "v: timeline"), ("2", "gelu_backward")] {
            terminal.resize(120 + round % 2, 40);
            terminal.press(key);
            terminal.sees(seen);
        }
    }
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// Ctrl-Z from a shell, and `fg`.
#[test]
fn suspended_it_leaves_the_terminal_and_continued_it_comes_back() {
    let mut terminal = Terminal::open("bash", &["--norc", "--noprofile", "-i"], &[("PS1", "ready> ")]);
    terminal.sees("ready>");
    terminal.press(&format!("{PROGRAM}\n"));
    terminal.sees("Recommended offer");
    terminal.press("\x1a");
    terminal.sees("Stopped");
    let taken = terminal.taken();
    // The shell uses bracketed paste for its own line.
    assert!(taken.is_empty() || taken == ["bracketed paste"], "{taken:?}");
    terminal.press("fg\n");
    terminal.sees("Recommended offer");
    assert!(terminal.taken().contains(&"alternate screen"));
    terminal.press("4");
    terminal.sees("v: timeline");
    terminal.press("q");
    // The shell's next prompt, which the screens have never shown.
    terminal.sees("ready> ");
    terminal.press("exit\n");
    assert_eq!(terminal.ends(), 0);
    assert!(!terminal.taken().contains(&"alternate screen"));
}

/// Terminals with fewer capabilities get plainer screens; the selection is reversed on each.
#[test]
fn terminals_of_every_kind_are_drawn_on() {
    for (variables, is_ascii, has_colours) in [
        (&[("TERM", "xterm-256color"), ("COLORTERM", "truecolor")][..], false, true),
        (&[("TERM", "xterm")], false, true),
        (&[("TERM", "linux")], false, true),
        (&[("TERM", "screen-256color"), ("NO_COLOR", "1")], false, false),
        (&[("TERM", "dumb")], true, false),
        (&[("LANG", "C")], true, true),
    ] {
        let mut terminal = opened(variables);
        terminal.press("3");
        terminal.sees("predicted, 1 measured");
        let any = |screen: &vt100::Screen, is_such: fn(&vt100::Cell) -> bool| {
            (0..40).any(|row| (0..120).any(|column| screen.cell(row, column).is_some_and(is_such)))
        };
        terminal.sees_that("a selection", |screen| any(screen, vt100::Cell::inverse));
        let parser = terminal.screen.lock().unwrap();
        let screen = parser.screen();
        assert_eq!(any(screen, |cell| cell.fgcolor() != vt100::Color::Default), has_colours, "{variables:?}");
        assert_eq!(screen.contents().is_ascii(), is_ascii, "{variables:?}:\n{}", screen.contents());
        drop(parser);
        terminal.press("q");
        assert_eq!(terminal.ends(), 0, "{variables:?}");
        assert_eq!(terminal.taken(), [""; 0], "{variables:?}");
    }
}

/// Without input, nothing moves and nothing costs time.
#[test]
fn nothing_is_drawn_while_nothing_happens() {
    let terminal = opened(&[]);
    // Wait for the remaining computation, which may pause on a busy machine.
    let is_still = |_| {
        let before = terminal.written.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(3));
        terminal.written.load(Ordering::SeqCst) == before
    };
    assert!((0..20).any(is_still));
}

#[test]
fn a_panic_of_the_screen_gives_the_terminal_back_first() {
    let mut terminal = opened(&[("HABITAT_TUI_TEST_PANIC", "screen")]);
    terminal.press("\x0c");
    assert_eq!(terminal.ends(), 101);
    assert_eq!(terminal.taken(), [""; 0]);
    terminal.sees("requested by HABITAT_TUI_TEST_PANIC");
}

#[test]
fn a_panic_of_a_worker_is_a_failed_computation() {
    let mut terminal = Terminal::open(PROGRAM, &["--screen", "plan"], &[("HABITAT_TUI_TEST_PANIC", "worker")]);
    terminal.sees("planning failed: internal error");
    assert!(terminal.taken().contains(&"alternate screen"));
    terminal.press("3");
    terminal.sees("predicted, 1 measured");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    assert_eq!(terminal.taken(), [""; 0]);
}

/// The window is closed: the process must end.
#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let mut terminal = opened(&[]);
    terminal.close();
    terminal.ends();
}

fn kill(signal: &str, id: &str) {
    assert!(std::process::Command::new("kill").args([signal, id]).status().unwrap().success());
}

/// `kill` ends the program cleanly, with the code that shells expect.
#[test]
fn signals_that_end_the_program_give_the_terminal_back() {
    for (signal, code) in [
        ("-HUP", 129),
        ("-INT", 130),
        ("-QUIT", 131),
        ("-ABRT", 134),
        ("-USR1", 138),
        ("-USR2", 140),
        ("-ALRM", 142),
        ("-TERM", 143),
        ("-XCPU", 152),
    ] {
        let mut terminal = opened(&[]);
        kill(signal, &terminal.child.process_id().unwrap().to_string());
        assert_eq!(terminal.ends(), code, "{signal}");
        assert_eq!(terminal.taken(), [""; 0], "{signal}");
    }
}

/// Stopped by another program, with a signal that can be caught and one that cannot, and continued.
#[test]
fn stopped_from_outside_it_comes_back() {
    for signal in ["-TSTP", "-STOP"] {
        let mut terminal = Terminal::open("bash", &["--norc", "--noprofile", "-i"], &[("PS1", "ready> ")]);
        terminal.sees("ready>");
        terminal.press(&format!("sh -c 'echo $$ >id; exec {PROGRAM}'\n"));
        terminal.sees("Recommended offer");
        let id = terminal.read("id").trim().to_owned();
        kill(signal, &id);
        terminal.sees("Stopped");
        if signal == "-TSTP" {
            let taken = terminal.taken();
            assert!(taken.is_empty() || taken == ["bracketed paste"], "{taken:?}");
        }
        // The shell has its own terminal mode meanwhile.
        terminal.press("echo a; stty -a | grep -o -e '-*icanon'; fg\n");
        terminal.sees("Recommended offer");
        terminal.press("4");
        terminal.sees("v: timeline");
        terminal.press("q");
        terminal.sees("ready> ");
        terminal.press("exit\n");
        assert_eq!(terminal.ends(), 0);
        assert!(!terminal.taken().contains(&"alternate screen"));
    }
    // No shell could continue it here, so it goes on.
    let mut terminal = opened(&[]);
    let id = terminal.child.process_id().unwrap().to_string();
    for signal in ["-TSTP", "-CONT"] {
        kill(signal, &id);
        terminal.press("4");
        terminal.sees("v: timeline");
        terminal.press("2");
        terminal.sees("gelu_backward");
    }
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// A terminal may report any size; there is no memory for that many cells.
#[test]
fn a_terminal_of_any_size_is_drawn_on_as_far_as_is_sensible() {
    let mut terminal = opened(&[]);
    for (cols, rows) in [(65_535, 65_535), (65_535, 1), (1, 65_535), (0, 0)] {
        let size = portable_pty::PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        terminal.master.as_ref().unwrap().resize(size).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    terminal.resize(120, 40);
    terminal.press("4");
    terminal.sees("v: timeline");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
    let start = "stty rows 65535 columns 65535; exec \"$0\"";
    let mut terminal = Terminal::open("sh", &["-c", start, PROGRAM], &[]);
    terminal.sees("habitat-tui");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// The file of jobs is opened in the editor, read and planned again; if it cannot be read, the last plan stays and the
/// line is named.
#[test]
fn the_file_of_jobs_is_edited_and_planned_again() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/profiler/samples/dcgan-b64.habitat.json.zst");
    let jobs = format!(
        "[[machine]]\ngpu = \"rtx-3090\"\n\n[[job]]\nname = \"faces\"\nprofile = {sample:?}\nsamples = \"10M\"\n"
    );
    // The editor changes the name, and the second time makes it invalid.
    let editor = "sed -i -e 's/^name = \"portraits\"/name = nothing/' -e 's/faces/portraits/'";
    let start = format!("printf %s '{jobs}' > jobs.toml; exec \"$0\" --jobs jobs.toml");
    let mut terminal = Terminal::open("sh", &["-c", &start, PROGRAM], &[("VISUAL", editor)]);
    terminal.sees("1 job: ");
    terminal.sees("faces");
    terminal.press("E");
    terminal.sees("portraits");
    assert!(!terminal.text().contains("faces") && terminal.read("jobs.toml").contains("portraits"));
    terminal.press("E");
    terminal.sees("of the earlier file");
    terminal.sees("planning failed: jobs.toml: line 5");
    terminal.sees("portraits");
    terminal.press("q");
    assert_eq!(terminal.ends(), 0);
}

/// The table has the columns that fit, and the line below names the others.
#[test]
fn tables_fit_the_terminal() {
    let terminal = Terminal::open(PROGRAM, &["predict", "--to", "h100-sxm5-80gb,l4"], &[]);
    terminal.sees("columns hidden to fit the terminal: ");
    let shown = terminal.screen.lock().unwrap().screen().contents();
    let rows: Vec<&str> =
        shown.lines().filter(|line| line.starts_with("h100-sxm5-80gb") || line.starts_with("l4 ")).collect();
    assert!(rows.len() == 2 && rows[0].contains("130.4 ms"), "{shown}");
}

/// A pager that prints its number of lines.
const COUNTS: &str = "echo \"paged $(wc -l) lines\"";

fn printed(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut terminal = Terminal::open(PROGRAM, arguments, variables);
    assert!(terminal.ends() <= 1, "{}", terminal.text());
    terminal.written_text()
}

#[test]
fn what_is_longer_than_the_terminal_is_paged() {
    for arguments in [&["gpus"][..], &["predict"], &["plan", "--steps", "1k"], &["prices"], &["offers"]] {
        let text = printed(arguments, &[("PAGER", COUNTS)]);
        let lines = text.strip_prefix("paged ").and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
        assert!(lines.is_some_and(|lines| lines >= 30), "{arguments:?}: {text}");
    }
    // Short text, --no-pager and machine-readable output are not paged.
    for arguments in [
        &["gpus", "h100"][..],
        &["batches"],
        &["gpus", "--no-pager"],
        &["prices", "list", "--no-pager"],
        &["gpus", "--json"],
        &["gpus", "--csv"],
        &["plan", "--steps", "1k", "--toml"],
    ] {
        let text = printed(arguments, &[("PAGER", COUNTS)]);
        assert!(!text.contains("paged "), "{arguments:?}: {text}");
    }
    for variables in [
        &[("PAGER", "cat")][..],
        &[("PAGER", "")],
        &[("PAGER", COUNTS), ("HABITAT_TUI_PAGER", "cat")],
        &[("PAGER", COUNTS), ("TERM", "dumb")],
    ] {
        let text = printed(&["gpus"], variables);
        assert!(text.starts_with("GPU ") && text.contains("rtx-4090"), "{variables:?}: {text}");
    }
    assert!(printed(&["gpus"], &[("PAGER", "cat"), ("HABITAT_TUI_PAGER", COUNTS)]).starts_with("paged "));
}

/// If the pager is missing or fails, the whole text follows. Leaving it early is not an error.
#[test]
fn a_pager_that_fails_costs_nothing() {
    for pager in ["no-such-pager-here", "exit 3", "kill -SEGV $$"] {
        let text = printed(&["gpus"], &[("PAGER", pager)]);
        assert!(text.contains(&format!("the pager `{pager}` failed")), "{pager}: {text}");
        assert!(text.contains("\nGPU ") && text.contains("rtx-4090"), "{pager}: {text}");
    }
    for pager in ["head -n 1", "true", "kill -INT $$", "exit 141"] {
        let mut terminal = Terminal::open(PROGRAM, &["offers"], &[("PAGER", pager)]);
        assert_eq!(terminal.ends(), 0, "{pager}: {}", terminal.text());
        assert!(terminal.written_text().lines().count() <= 1, "{pager}: {}", terminal.text());
    }
    // Without any, as on a system without `less`.
    let alone = tempfile::tempdir().unwrap();
    let path = alone.path().to_str().unwrap();
    let text = printed(&["gpus"], &[("PATH", path)]);
    assert!(text.starts_with("GPU ") && text.contains("rtx-4090"), "{text}");
}

/// Ctrl-C in the pager does not end the program before it.
#[test]
fn keys_belong_to_the_pager() {
    let pager = "trap 'echo interrupted; exit' INT; echo waits; while :; do sleep 0.1; done";
    let mut terminal = Terminal::open(PROGRAM, &["gpus"], &[("PAGER", pager)]);
    terminal.sees("waits");
    terminal.press("\x03");
    terminal.sees("interrupted");
    assert_eq!(terminal.ends(), 0);
}
