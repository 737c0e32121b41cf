//! The program in a pseudo-terminal: starts, resizes, answers keys, quits, and leaves the
//! terminal as it found it.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of a test")]

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const PATIENCE: Duration = Duration::from_secs(30);

fn wait_for(screen: &Arc<Mutex<vt100::Parser>>, what: &str, holds: impl Fn(&vt100::Screen) -> bool) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if holds(screen.lock().unwrap().screen()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}: not seen in\n{}", screen.lock().unwrap().screen().contents());
}

#[test]
fn the_terminal_is_given_back() {
    let size = |rows, cols| PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size(24, 80)).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_habitat-tui"));
    command.env_clear();
    for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("PATH", "/usr/bin:/bin")] {
        command.env(name, value);
    }
    command.env("HOME", home.path());
    let mut child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let screen = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 0)));
    let mut reader = pair.master.try_clone_reader().unwrap();
    let shared = screen.clone();
    let reading = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = reader.read(&mut bytes) {
            shared.lock().unwrap().process(&bytes[..count]);
        }
    });
    let mut writer = pair.master.take_writer().unwrap();
    let press = |writer: &mut Box<dyn Write + Send>, text: &str| {
        writer.write_all(text.as_bytes()).unwrap();
        writer.flush().unwrap();
    };

    wait_for(&screen, "the overview with its answer", |screen| {
        screen.alternate_screen()
            && screen.contents().contains("Recommended offer")
            && screen.contents().contains("embedded sample")
    });
    pair.master.resize(size(40, 120)).unwrap();
    screen.lock().unwrap().screen_mut().set_size(40, 120);
    wait_for(&screen, "the larger overview", |screen| screen.contents().contains("all keys"));
    press(&mut writer, "4");
    wait_for(&screen, "the plan", |screen| screen.contents().contains("cost against time"));
    // Ctrl-L draws everything anew, also over what others wrote.
    screen.lock().unwrap().process(b"\x1b[2J");
    press(&mut writer, "\x0c");
    wait_for(&screen, "the plan drawn anew", |screen| screen.contents().contains("cost against time"));
    press(&mut writer, "?");
    wait_for(&screen, "the help", |screen| screen.contents().contains("Search actions"));
    press(&mut writer, "\x1b");
    wait_for(&screen, "the plan again", |screen| !screen.contents().contains("Search actions"));
    press(&mut writer, "q");
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "q does not quit");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status:?}");
    drop(writer);
    drop(pair.master);
    reading.join().unwrap();
    let parser = screen.lock().unwrap();
    let screen = parser.screen();
    assert!(!screen.alternate_screen(), "the alternate screen is still on");
    assert!(!screen.hide_cursor(), "the cursor is still hidden");
    assert!(!screen.bracketed_paste(), "bracketed paste is still on");
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is still taken");
}

/// The program in a terminal of its own, started and drawn: then its signals are in place.
struct Started {
    child: Box<dyn portable_pty::Child + Send + Sync>,
    master: Box<dyn portable_pty::MasterPty + Send>,
    reader: Box<dyn Read + Send>,
    /// Its configuration, kept while it runs.
    _home: tempfile::TempDir,
}

fn started() -> Started {
    let pair = native_pty_system().openpty(PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 }).unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_habitat-tui"));
    command.env_clear();
    command.env("TERM", "xterm-256color");
    command.env("HOME", home.path());
    let child = pair.slave.spawn_command(command).unwrap();
    drop(pair.slave);
    let mut reader = pair.master.try_clone_reader().unwrap();
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(&seen).contains("overview") {
        let count = reader.read(&mut bytes).unwrap();
        seen.extend_from_slice(&bytes[..count]);
    }
    Started { child, master: pair.master, reader, _home: home }
}

/// The window is closed: the process must not stay behind.
#[test]
fn a_terminal_that_goes_away_ends_the_program() {
    let Started { mut child, master, reader, _home } = started();
    drop(reader);
    drop(master);
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("still running after its terminal was closed");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `kill` ends the program in order, with the code that shells expect.
#[test]
fn sigterm_gives_the_terminal_back() {
    let Started { mut child, mut reader, master: _master, _home } = started();
    let id = child.process_id().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        seen.extend_from_slice(&bytes[..count]);
    }
    assert_eq!(child.wait().unwrap().exit_code(), 143);
    assert!(String::from_utf8_lossy(&seen).contains("\x1b[?1049l"), "the alternate screen is left");
}
