//! The program in a pseudo-terminal: starts, resizes, answers keys, quits, and leaves the
//! terminal as it found it.
#![cfg(unix)]

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
    let mut press = |text: &str| {
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
    press("4");
    wait_for(&screen, "the plan", |screen| screen.contents().contains("cost against time"));
    press("?");
    wait_for(&screen, "the help", |screen| screen.contents().contains("Search all actions"));
    press("\x1b");
    wait_for(&screen, "the plan again", |screen| !screen.contents().contains("Search all actions"));
    press("q");
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < end, "q does not quit");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status:?}");
    drop(press);
    drop(pair.master);
    reading.join().unwrap();
    let parser = screen.lock().unwrap();
    let screen = parser.screen();
    assert!(!screen.alternate_screen(), "the alternate screen is still on");
    assert!(!screen.hide_cursor(), "the cursor is still hidden");
    assert!(!screen.bracketed_paste(), "bracketed paste is still on");
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None, "the mouse is still taken");
}
