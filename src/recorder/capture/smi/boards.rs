//! State of all GPUs of the machine while a job runs, from one `nvidia-smi` in loop mode.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::{limited_by, of_line};
use crate::live::Board;
use habitat_base::units::{Bytes, Megahertz, Watts};

/// Milliseconds between two reports.
const EVERY_MS: u32 = 2000;
/// Utilisation from which a GPU counts as under load.
const LOADED: f64 = 0.5;
/// Maximum bytes of a line.
const LONGEST: u64 = 4096;
/// Queried fields. Drivers know one of the last two, or both.
const FIELDS: [&str; 9] = [
    "index",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "clocks.sm",
    "power.draw",
    "temperature.gpu",
    "clocks_event_reasons.active",
    "clocks_throttle_reasons.active",
];

/// Reports of `nvidia-smi` on all GPUs, while this value lives.
#[derive(Debug)]
pub struct Boards {
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    boards: BTreeMap<u32, Board>,
    child: Option<Child>,
    is_over: bool,
}

impl Boards {
    /// Starts `nvidia-smi`; if it is missing or fails, there are no reports.
    pub fn start() -> Self {
        Self::of("nvidia-smi".into())
    }

    fn of(program: OsString) -> Self {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let ours = shared.clone();
        let thread = thread::spawn(move || listen(&program, &ours));
        Self { shared, thread: Some(thread) }
    }

    /// Latest report on each GPU, by number.
    pub fn latest(&self) -> Vec<Board> {
        lock(&self.shared).boards.values().cloned().collect()
    }
}

impl Drop for Boards {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.is_over = true;
        if let Some(child) = &mut shared.child {
            let _ = child.kill();
        }
        drop(shared);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads reports until the program ends; restarts it without a field that its driver does not know.
fn listen(program: &OsStr, shared: &Mutex<Shared>) {
    let mut fields = FIELDS.to_vec();
    loop {
        let unknown = ask(program, &fields, shared);
        if let Some(mut child) = lock(shared).child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let before = fields.len();
        fields.retain(|field| !unknown.as_deref().is_some_and(|text| text.contains(&format!("\"{field}\""))));
        if fields.len() == before {
            lock(shared).boards.clear();
            return;
        }
    }
}

/// Runs the program once; returns the line that names an unknown field, if any.
fn ask(program: &OsStr, fields: &[&'static str], shared: &Mutex<Shared>) -> Option<String> {
    let mut told = {
        let mut shared = lock(shared);
        if shared.is_over {
            return None;
        }
        let mut child = Command::new(program)
            .arg(format!("--query-gpu={}", fields.join(",")))
            .args(["--format=csv,noheader,nounits", &format!("--loop-ms={EVERY_MS}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let told = child.stdout.take()?;
        shared.child = Some(child);
        BufReader::new(told)
    };
    loop {
        let mut line = String::new();
        // End of the output, or not text.
        if told.by_ref().take(LONGEST).read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.contains("not a valid field") {
            return Some(line);
        }
        if let Some(board) = board(fields, &line) {
            let mut shared = lock(shared);
            let before = shared.boards.get(&board.index).and_then(|board| board.best_clock);
            shared.boards.insert(board.index, with_best(board, before));
        }
    }
}

/// Parses the GPU of a line.
fn board(fields: &[&'static str], line: &str) -> Option<Board> {
    let found = of_line(fields, line);
    let number = |field: &str| found.get(field).and_then(|value| value.parse::<f64>().ok()).filter(|it| *it >= 0.0);
    let mebibytes = |field: &str| Bytes::new(number(field)? * 1_048_576.0).ok();
    Some(Board {
        index: found.get("index")?.parse().ok()?,
        busy: number("utilization.gpu").map(|per_cent| (per_cent / 100.0).min(1.0)),
        used: mebibytes("memory.used"),
        memory: mebibytes("memory.total"),
        clock: number("clocks.sm").and_then(|clock| Megahertz::new(clock).ok()),
        best_clock: None,
        power: number("power.draw").and_then(|power| Watts::new(power).ok()),
        celsius: number("temperature.gpu"),
        limited_by: limited_by(&found).map(str::to_owned).collect(),
    })
}

/// Adds the highest clock under load so far; `before` is the previous maximum.
fn with_best(board: Board, before: Option<Megahertz>) -> Board {
    let now = board.clock.filter(|_| board.busy.is_some_and(|busy| busy >= LOADED));
    let best_clock = match (before, now) {
        (Some(before), Some(now)) if now.get() > before.get() => Some(now),
        (before, now) => before.or(now),
    };
    Board { best_clock, ..board }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;
    use habitat_base::units::GIB;

    /// A script in place of `nvidia-smi`.
    fn fake(folder: &Path, script: &str) -> OsString {
        let program = folder.join("nvidia-smi");
        std::fs::write(&program, format!("#!/bin/sh\n{script}")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program.into()
    }

    /// Waits for a report that satisfies `wanted`.
    fn told(boards: &Boards, wanted: impl Fn(&[Board]) -> bool) -> Vec<Board> {
        let began = Instant::now();
        loop {
            let latest = boards.latest();
            if wanted(&latest) {
                return latest;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{latest:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// A driver that knows only the older name of the reasons: two boards, one of them throttled.
    #[test]
    fn all_boards_are_told_of_again_and_again_and_the_process_ends_with_us() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"
case "$1" in *clocks_event*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;; esac
echo "$@" > "$(dirname "$0")/asked"
echo $$ > "$(dirname "$0")/pid"
echo '1, 3, 1024, 81920, 345, 70.00, 31, 0x0000000000000001'
echo '0, 99, 75776, 81920, 1980, 690.12, 66, 0x0000000000000000'
echo '0, 100, 75776, 81920, 1410, [N/A], 88, 0x0000000000000024'
exec sleep 600
"#;
        let boards = Boards::of(fake(folder.path(), script));
        let slow = |all: &[Board]| all.len() == 2 && all[0].clock == Some(Megahertz::known(1410.0));
        let all = told(&boards, slow);
        let first = Board {
            index: 0,
            busy: Some(1.0),
            used: Some(Bytes::known(74.0 * GIB)),
            memory: Some(Bytes::known(80.0 * GIB)),
            clock: Some(Megahertz::known(1410.0)),
            best_clock: Some(Megahertz::known(1980.0)),
            power: None,
            celsius: Some(88.0),
            limited_by: ["power cap", "temperature (driver)"].map(str::to_owned).to_vec(),
        };
        assert_eq!(all[0], first);
        assert_eq!((all[1].index, all[1].best_clock, all[1].busy), (1, None, Some(0.03)));
        let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
        assert!(asked.contains("--loop-ms=2000") && asked.contains("clocks_throttle_reasons.active"), "{asked}");
        let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
        drop(boards);
        let there = Command::new("ps").args(["-p", pid.trim()]).output().unwrap();
        assert!(!there.status.success(), "it has ended");
    }

    #[test]
    fn without_nvidia_smi_or_where_it_fails_nothing_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for program in ["/nowhere/nvidia-smi".into(), fake(folder.path(), "echo 'No devices were found'; exit 6")] {
            let boards = Boards::of(program);
            let thread = boards.thread.as_ref().unwrap();
            let began = Instant::now();
            while !thread.is_finished() {
                assert!(began.elapsed() < Duration::from_secs(30));
                thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(boards.latest(), []);
        }
    }
}
