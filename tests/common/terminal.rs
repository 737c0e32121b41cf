//! The program in a pseudo-terminal, in its own folder.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// A program in its own terminal and folder.
pub struct Terminal {
    pub folder: tempfile::TempDir,
    pub child: Box<dyn Child + Send + Sync>,
    pub master: Option<Box<dyn MasterPty + Send>>,
    pub writer: Option<Box<dyn Write + Send>>,
    pub screen: Arc<Mutex<vt100::Parser>>,
    pub closed: Arc<AtomicBool>,
    /// Number of bytes written so far.
    pub written: Arc<AtomicUsize>,
    /// All bytes written so far.
    pub output: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Starts `program` with `arguments`.
    pub fn open(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let size = PtySize { rows: 40, cols: 120, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut command = CommandBuilder::new(program);
        command.args(arguments);
        command.cwd(folder.path());
        command.env_clear();
        for (name, value) in [("TERM", "xterm-256color"), ("LANG", "C.UTF-8"), ("PYTHONDONTWRITEBYTECODE", "1")] {
            command.env(name, value);
        }
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", folder.path());
        command.env("HABITAT_TUI_CONFIG_DIR", folder.path().join("config"));
        // Files of a killed program are removed with the folder.
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        command.env("TMPDIR", folder.path().join("tmp"));
        for (name, value) in variables {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(40, 120, 1000)));
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (shared, closed) = (screen.clone(), Arc::new(AtomicBool::new(false)));
        let (gone, written) = (closed.clone(), Arc::new(AtomicUsize::new(0)));
        let count_up = written.clone();
        let output = Arc::new(Mutex::new(Vec::new()));
        let kept = output.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shared.lock().unwrap().process(&bytes[..count]);
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
                count_up.fetch_add(count, Ordering::SeqCst);
                if gone.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        let writer = pair.master.take_writer().unwrap();
        Self { folder, child, master: Some(pair.master), writer: Some(writer), screen, closed, written, output }
    }

    /// Resizes the window.
    pub fn resize(&self, cols: u16, rows: u16) {
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        self.screen.lock().unwrap().screen_mut().set_size(rows, cols);
        self.master.as_ref().unwrap().resize(size).unwrap();
    }

    /// Modes that the program still has on: alternate screen, hidden cursor, bracketed paste, mouse.
    pub fn taken(&self) -> Vec<&'static str> {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let taken = [
            (screen.alternate_screen(), "alternate screen"),
            (screen.hide_cursor(), "hidden cursor"),
            (screen.bracketed_paste(), "bracketed paste"),
            (screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None, "mouse"),
        ];
        taken.into_iter().filter(|(is_on, _)| *is_on).map(|(_, name)| name).collect()
    }

    /// All output of the program, with line ends as in a file.
    pub fn written_text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).replace("\r\n", "\n")
    }

    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    pub fn sees(&self, what: &str) {
        self.sees_that(what, |screen| screen.contents().contains(what));
    }

    /// Waits until a condition holds on the screen, which may be half drawn before.
    pub fn sees_that(&self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so(self.screen.lock().unwrap().screen()) {
            assert!(Instant::now() < end, "{what:?}: not seen in\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn press(&mut self, text: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(text.as_bytes()).unwrap();
        writer.flush().unwrap();
    }

    /// Waits for the program's end; returns its exit code.
    pub fn ends(&mut self) -> u32 {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // The last output may still be on its way.
                std::thread::sleep(Duration::from_millis(100));
                return status.exit_code();
            }
            assert!(Instant::now() < end, "still running:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Closes the terminal, as soon as the reader has read once more.
    pub fn close(&mut self) {
        self.closed.store(true, Ordering::SeqCst);
        self.writer = None;
        self.master = None;
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Files with this extension.
    pub fn files(&self, ending: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
    }

    /// The log, in the file that the program chose.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.files(".log")[0]).unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A job that a failed test left running.
        if let Ok(saw) = serde_json::from_str::<Value>(&self.read("saw"))
            && std::thread::panicking()
        {
            let _ = Command::new("kill").arg(saw["pid"].to_string()).status();
        }
    }
}
