//! Finds processes of a job without its hook, and processes that outlive its command. Linux only; elsewhere it finds
//! none.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use super::on_demand::process;
use super::recording::Recording;

/// Processes of a job without its hook, and processes that outlive its command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessScan {
    /// Pythons that ran without the hook; the last ones.
    pub without_hook: Vec<WithoutHook>,
    /// Processes that still ran when the command had ended: id and command.
    pub survivors: Vec<(u32, String)>,
}

/// A Python that does not load the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WithoutHook {
    /// Process id.
    pub pid: u32,
    /// Program and arguments.
    pub command: String,
    /// Whether it had loaded `PyTorch` when last seen.
    pub has_torch: bool,
    /// Reason why it does not load the hook.
    pub why: Barrier,
}

/// Reason why a Python does not load the hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Barrier {
    /// Another `PYTHONPATH`, with its value.
    SearchPath(String),
    /// A switch, such as `-I`.
    Switch(char),
    /// The variables of the hook are not set there, or unreadable.
    Environment,
}

/// Maximum number of processes to keep.
const MOST: usize = 8;
/// Time from the job's start to the first scan, and maximum interval between scans.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Scans the processes of a job, at intervals that grow.
#[derive(Debug)]
pub(super) struct Scanner {
    job: u32,
    socket: OsString,
    search_path: Option<OsString>,
    found: BTreeMap<u32, WithoutHook>,
    /// Result so far.
    pub(super) scan: ProcessScan,
    wait: Duration,
    /// Time of the next scan.
    pub(super) next: Option<Instant>,
}

impl Scanner {
    /// A scanner for the job whose first process is `job`, started with these variables.
    pub(super) fn new(job: u32, variables: &[(&'static str, OsString)]) -> Self {
        let own = |name: &str| variables.iter().find(|(given, _)| *given == name).map(|(_, value)| value.clone());
        let search_path = own("PYTHONPATH");
        let next = (cfg!(target_os = "linux") && search_path.is_some()).then(|| Instant::now() + FIRST);
        let socket = own("HABITAT_TUI_SOCKET").unwrap_or_default();
        Self { job, socket, search_path, found: BTreeMap::new(), scan: ProcessScan::default(), wait: FIRST, next }
    }

    /// Scans if it is time, until a process of the job trains.
    pub(super) fn look(&mut self, recording: &Recording, now: Instant) {
        if self.next.is_none_or(|next| next > now) {
            return;
        }
        if recording.training().next().is_some() {
            self.next = None;
            return;
        }
        self.pythons(recording);
        self.scan.without_hook = self.found.values().cloned().collect();
        self.wait = (self.wait * 2).min(LONGEST);
        self.next = Some(now + self.wait);
    }

    #[cfg(target_os = "linux")]
    fn pythons(&mut self, recording: &Recording) {
        let job = process::tree(self.job);
        for (pid, _) in process::pythons().filter(|(pid, _)| job.contains(pid)) {
            if recording.processes.contains_key(&pid) {
                self.found.remove(&pid);
                continue;
            }
            let command = process::command(pid);
            let hook = self.search_path.as_deref().and_then(first_entry).unwrap_or_default();
            let Some(why) = barrier(&command, process::variable(pid, "PYTHONPATH"), hook, || {
                process::variable(pid, "HABITAT_TUI_SOCKET").is_some_and(|socket| OsStr::new(&socket) == self.socket)
            }) else {
                continue; // It has just been started.
            };
            let has_torch = process::has_torch(pid);
            self.found.insert(pid, WithoutHook { pid, command: in_short(&command), has_torch, why });
        }
        while self.found.len() > MOST {
            // Keep those that have loaded PyTorch.
            let least = self.found.values().min_by_key(|one| (one.has_torch, one.pid)).map(|one| one.pid);
            least.and_then(|pid| self.found.remove(&pid));
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn pythons(&mut self, _recording: &Recording) {}

    /// Final result, once the command has ended.
    pub(super) fn finish(self, recording: &Recording) -> ProcessScan {
        let survivors = self.survivors(recording);
        let mut scan = self.scan;
        scan.without_hook.retain(|one| !recording.processes.contains_key(&one.pid));
        ProcessScan { survivors, ..scan }
    }

    #[cfg(target_os = "linux")]
    fn survivors(&self, recording: &Recording) -> Vec<(u32, String)> {
        let is_over = |pid: u32| recording.processes.get(&pid).is_some_and(|process| process.exited);
        let all = process::of_job(self.job, &self.socket).into_iter().filter(|pid| !is_over(*pid));
        let named = all.map(|pid| (pid, settled_command(pid)));
        // Python's own helpers end shortly after their program.
        let is_helper = |command: &[String]| {
            let helpers = ["multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker"];
            command.iter().any(|word| helpers.iter().any(|helper| word.contains(helper)))
        };
        let mut left: Vec<(u32, Vec<String>)> =
            named.filter(|(_, command)| !command.is_empty() && !is_helper(command)).collect();
        // A Python is more likely to train than its launcher.
        left.sort_by_key(|(_, command)| !command[0].contains("python"));
        left.truncate(MOST);
        left.into_iter().map(|(pid, command)| (pid, in_short(&command))).collect()
    }

    #[cfg(not(target_os = "linux"))]
    fn survivors(&self, _recording: &Recording) -> Vec<(u32, String)> {
        Vec::new()
    }
}

/// Command of a process; waits while it is briefly empty during an exec.
#[cfg(target_os = "linux")]
fn settled_command(pid: u32) -> Vec<String> {
    for _ in 0..20 {
        let command = process::command(pid);
        if !command.is_empty() || !process::runs(pid) {
            return command;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Vec::new()
}

/// First entry of a search path.
fn first_entry(path: &OsStr) -> Option<&str> {
    path.to_str()?.split(':').next()
}

/// The command on one line, with the program's name only.
fn in_short(command: &[String]) -> String {
    let (program, rest) = command.split_first().map_or(("", &[][..]), |(program, rest)| (program, rest));
    let program = program.rsplit('/').next().unwrap_or(program);
    let words: Vec<&str> = std::iter::once(program).chain(rest.iter().map(String::as_str)).collect();
    habitat_base::text::clean(&words.join(" "), 120)
}

/// Reason why a Python does not load the hook in the folder `hook`; `None` if there is none.
fn barrier(
    command: &[String],
    search_path: Option<String>,
    hook: &str,
    is_told: impl FnOnce() -> bool,
) -> Option<Barrier> {
    if let Some(switch) = shutting(command) {
        return Some(Barrier::Switch(switch));
    }
    if !is_told() {
        return Some(Barrier::Environment);
    }
    let path = search_path.unwrap_or_default();
    (!path.split(':').any(|entry| entry == hook)).then_some(Barrier::SearchPath(habitat_base::text::clean(&path, 120)))
}

/// A Python switch that disables `sitecustomize` or `PYTHONPATH`.
fn shutting(command: &[String]) -> Option<char> {
    let mut words = command.iter().skip(1);
    while let Some(switches) = words.next().and_then(|word| word.strip_prefix('-')) {
        if switches.starts_with('-') {
            continue;
        }
        // The text after these belongs to the program or is their own argument.
        let own = switches.split(['m', 'c', 'W', 'X']).next().unwrap_or_default();
        if let Some(switch) = own.chars().find(|switch| matches!(switch, 'I' | 'E' | 'S')) {
            return Some(switch);
        }
        match switches.chars().nth(own.chars().count()) {
            Some('m' | 'c') => return None,
            Some(_) if switches.chars().count() == own.chars().count() + 1 => drop(words.next()),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn switches_that_shut_the_hook_out() {
        for (line, switch) in [
            ("python train.py -I", None),
            ("python -I train.py", Some('I')),
            ("python -u -E train.py", Some('E')),
            ("python -uS train.py", Some('S')),
            ("python -Im torch.distributed.run train.py", Some('I')),
            ("python -m pkg -S", None),
            ("python -c import -S", None),
            ("python -W ignore -I train.py", Some('I')),
            ("python -Wignore::Error train.py", None),
            ("python -X faulthandler train.py", None),
            ("python", None),
        ] {
            assert_eq!(shutting(&words(line)), switch, "{line}");
        }
    }

    #[test]
    fn a_search_path_set_anew_has_no_hook() {
        let seen = |path: Option<&str>, is_told: bool| {
            barrier(&words("python train.py"), path.map(str::to_owned), "/h/hook", || is_told)
        };
        assert_eq!(seen(Some("/h/hook:src"), true), None);
        assert_eq!(seen(Some("src:/h/hook"), true), None);
        assert_eq!(seen(Some("src"), true), Some(Barrier::SearchPath("src".into())));
        assert_eq!(seen(None, true), Some(Barrier::SearchPath(String::new())));
        assert_eq!(seen(None, false), Some(Barrier::Environment));
    }
}
