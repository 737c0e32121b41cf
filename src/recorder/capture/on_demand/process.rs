//! Facts about a process from `/proc`. Unreadable facts are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use super::roles::Facts;

/// Variable with the folder of the daemon's socket, for libkineto and for us.
pub const FOLDER_VARIABLE: &str = "KINETO_IPC_SOCKET_DIR";
/// Variable that makes a process poll.
pub const DAEMON_VARIABLE: &str = "KINETO_USE_DAEMON";

/// A process with the time of its first inspection.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) facts: Facts,
    /// Start time in the kernel's ticks, which differs if a process id is reused.
    started: Option<u64>,
    watched: Option<(Instant, u64)>,
}

/// Ticks per second in `/proc/PID/stat`: always 100 on Linux (proc(5), `USER_HZ`).
const TICKS: f64 = 100.0;
/// Minimum seconds of observation for a meaningful processor share.
const WATCH: f64 = 1.0;

fn folder(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// State, processor ticks and start of a process.
fn stat(pid: u32) -> Option<(char, u64, u64)> {
    parse_stat(&fs::read_to_string(folder(pid).join("stat")).ok()?)
}

/// Fields after the program's name, which may contain spaces and parentheses.
fn stat_fields(line: &str) -> Option<Vec<&str>> {
    Some(line[line.rfind(')')? + 1..].split_whitespace().collect())
}

fn parse_stat(line: &str) -> Option<(char, u64, u64)> {
    let fields = stat_fields(line)?;
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.first()?.chars().next()?, number(11)? + number(12)?, number(19)?))
}

/// Entries of `cmdline` or `environ`.
fn entries(pid: u32, name: &str) -> std::io::Result<Vec<String>> {
    let bytes = fs::read(folder(pid).join(name))?;
    Ok(bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(text).collect())
}

/// Value of a variable, if set and not empty.
fn value<'a>(environment: &'a [String], name: &str) -> Option<&'a str> {
    environment.iter().find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=')).filter(|value| !value.is_empty())
}

/// A variable from the environment that a process was started with; `None` if unset or empty.
pub(in crate::capture) fn variable(pid: u32, name: &str) -> Option<String> {
    value(&entries(pid, "environ").ok()?, name).map(str::to_owned)
}

/// Processes of a job: members of the process group of its first process, and processes started with its socket.
pub(in crate::capture) fn of_job(job: u32, socket: &OsStr) -> Vec<u32> {
    let group = |pid: u32| -> Option<u32> {
        stat_fields(&fs::read_to_string(folder(pid).join("stat")).ok()?)?.get(2)?.parse().ok()
    };
    let has_socket = |pid: u32| variable(pid, "HABITAT_TUI_SOCKET").is_some_and(|own| OsStr::new(&own) == socket);
    let own = std::process::id();
    all().filter(|pid| *pid != own && runs(*pid) && (group(*pid) == Some(job) || has_socket(*pid))).collect()
}

/// Program and arguments of a process, without secrets; empty if unreadable.
pub(in crate::capture) fn command(pid: u32) -> Vec<String> {
    habitat_base::text::without_secrets(&entries(pid, "cmdline").unwrap_or_default())
}

/// Whether the process exists and has not ended.
pub(in crate::capture) fn runs(pid: u32) -> bool {
    start(pid).is_some()
}

/// Start of a running process in clock ticks since the machine started; `None` if it has ended.
pub(in crate::capture) fn start(pid: u32) -> Option<u64> {
    stat(pid).filter(|(state, ..)| !matches!(state, 'Z' | 'X')).map(|(.., start)| start)
}

/// A process and its descendants.
pub(in crate::capture) fn tree(pid: u32) -> BTreeSet<u32> {
    let parent = |pid: u32| -> Option<u32> {
        stat_fields(&fs::read_to_string(folder(pid).join("stat")).ok()?)?.get(1)?.parse().ok()
    };
    let parents: BTreeMap<u32, u32> = all().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut tree = BTreeSet::from([pid]);
    // A parent may have a higher id than its child.
    loop {
        let before = tree.len();
        tree.extend(
            parents.iter().filter(|(_, parent)| tree.contains(parent)).map(|(pid, _)| *pid).collect::<Vec<_>>(),
        );
        if tree.len() == before {
            return tree;
        }
    }
}

/// All process ids.
fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// How a process was started, with regard to attaching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Started {
    /// Without the variable that makes it poll.
    Without,
    /// With the variable, and with this folder for the socket.
    With(Option<PathBuf>),
    /// Unreadable.
    Unknown,
}

/// How the process was started.
pub(super) fn started(pid: u32) -> Started {
    match entries(pid, "environ") {
        Err(_) => Started::Unknown,
        // Every program has an environment; a kernel process and one that is ending have none.
        Ok(environment) if environment.is_empty() => Started::Unknown,
        Ok(environment) if value(&environment, DAEMON_VARIABLE).is_none() => Started::Without,
        Ok(environment) => Started::With(value(&environment, FOLDER_VARIABLE).map(PathBuf::from)),
    }
}

/// Whether a process uses the daemon in this folder (or at the abstract name).
pub(super) fn meets(pid: u32, there: &Path, at_abstract_name: bool) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match started(pid) {
        Started::With(Some(folder)) => real(&folder) == real(there),
        Started::With(None) => at_abstract_name,
        Started::Without | Started::Unknown => false,
    }
}

/// Which of these sockets the process has open.
pub(super) fn sockets(pid: u32, inodes: &[u64]) -> Vec<u64> {
    let open = fs::read_dir(folder(pid).join("fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok())
        .filter(|inode| inodes.contains(inode))
        .collect()
}

/// Processes that run a Python interpreter, with their start time in the kernel's ticks.
pub(in crate::capture) fn pythons() -> impl Iterator<Item = (u32, u64)> {
    all().filter_map(|pid| {
        let program = fs::read_link(folder(pid).join("exe")).ok()?;
        if !program.file_name()?.to_string_lossy().starts_with("python") {
            return None;
        }
        let (state, _, start) = stat(pid)?;
        (!matches!(state, 'Z' | 'X')).then_some((pid, start))
    })
}

/// Time since a process started.
pub(super) fn age(start: u64) -> Option<Duration> {
    let text = fs::read_to_string("/proc/uptime").ok()?;
    let up: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(up - start as f64 / TICKS).ok()
}

/// Whether a process has loaded `PyTorch`.
pub(in crate::capture) fn has_torch(pid: u32) -> bool {
    fs::read_to_string(folder(pid).join("maps")).is_ok_and(|maps| library(&maps).is_some())
}

/// PyTorch's library among the files that a process has mapped.
fn library(maps: &str) -> Option<&str> {
    maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| {
        let name = path.rsplit('/').next().unwrap_or(path);
        name.starts_with("libtorch_cpu.so") || name.starts_with("libtorch_python.so") || name.starts_with("libtorch.so")
    })
}

/// Version of the `PyTorch` that a process has loaded: `None` if it has not, empty if unknown.
pub(super) fn torch(pid: u32) -> Option<String> {
    let maps = fs::read_to_string(folder(pid).join("maps")).ok()?;
    let library = library(&maps)?;
    // torch/lib/libtorch_cpu.so is beside torch/version.py in the process's file system.
    let package = Path::new(library).parent().and_then(Path::parent)?;
    let file = folder(pid).join("root").join(package.strip_prefix("/").unwrap_or(package)).join("version.py");
    let text = beginning(&file).unwrap_or_default();
    Some(parse_version(&text).unwrap_or_default().to_owned())
}

/// Beginning of a file that another user may have created: rejects pipes and devices, and limits the length.
fn beginning(path: &Path) -> Option<String> {
    let options = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let file = fs::File::options().read(true).custom_flags(options).open(path).ok()?;
    let mut text = String::new();
    let is_file = file.metadata().ok()?.is_file();
    is_file.then(|| file.take(1 << 16).read_to_string(&mut text).ok())??;
    Some(text)
}

/// Version in `torch/version.py`.
fn parse_version(text: &str) -> Option<&str> {
    let line = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    line.split(['\'', '"']).nth(1)
}

/// Number of a namespace, as in `pid:[4026531836]`.
fn namespace(pid: &str, kind: &str) -> Option<u64> {
    let link = fs::read_link(Path::new("/proc").join(pid).join("ns").join(kind)).ok()?;
    link.to_string_lossy().split(['[', ']']).nth(1)?.parse().ok()
}

/// File size limit of a process in bytes, if exceeding it kills the process; `None` without such a limit, or if the
/// process ignores SIGXFSZ, as Python does at its start.
pub(super) fn deadly_file_size(pid: u32) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(folder(pid).join(name)).unwrap_or_default();
    let limits = read("limits");
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max file size"))?.split_whitespace().next()?;
    let status = read("status");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    let ignored = u64::from_str_radix(ignored.trim(), 16).ok()?;
    // `unlimited` is not a number. Signal 25 is SIGXFSZ.
    soft.parse().ok().filter(|_| ignored >> 24 & 1 == 0)
}

/// Whether it has another file system view than we (a container).
pub(super) fn is_contained(pid: u32) -> bool {
    namespace(&pid.to_string(), "mnt").is_some_and(|own| namespace("self", "mnt") != Some(own))
}

/// Our user id.
pub(super) fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|there| there.uid())
}

impl Known {
    /// Inspects a process for the first time; `uid` comes from the kernel.
    pub(super) fn new(pid: u32, uid: u32) -> Self {
        let environment = entries(pid, "environ").unwrap_or_default();
        let get = |name: &str| value(&environment, name);
        let number = |names: [&str; 3]| names.iter().find_map(|name| get(name)?.parse().ok());
        let meeting = |address: &str, port: &str| Some(format!("{}:{}", get(address)?, get(port)?));
        let run = get("TORCHELASTIC_RUN_ID").unwrap_or_default();
        let rendezvous = meeting("MASTER_ADDR", "MASTER_PORT")
            .map(|meeting| format!("{meeting} {run}").trim().to_owned())
            .or_else(|| meeting("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"))
            .or_else(|| get("PMIX_NAMESPACE").map(str::to_owned));
        let facts = Facts {
            command: command(pid),
            uid,
            rank: number(["RANK", "OMPI_COMM_WORLD_RANK", "HOROVOD_RANK"]),
            local_world_size: number(["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "HOROVOD_LOCAL_SIZE"]),
            torch: torch(pid),
            rendezvous,
            gpus: gpus(pid),
            cpu_share: None,
            pid_namespace: namespace(&pid.to_string(), "pid").unwrap_or(0),
            is_contained: is_contained(pid),
        };
        let seen = stat(pid);
        Self {
            facts,
            started: seen.map(|(_, _, started)| started),
            watched: seen.map(|(_, ticks, _)| (Instant::now(), ticks)),
        }
    }

    /// Updates the facts that change.
    pub(super) fn look(&mut self, pid: u32, now: Instant) {
        if let (Some((since, before)), Some((_, ticks, _))) = (self.watched, stat(pid)) {
            let seconds = now.duration_since(since).as_secs_f64();
            if seconds >= WATCH {
                self.facts.cpu_share = Some(ticks.saturating_sub(before) as f64 / TICKS / seconds);
            }
        }
        if self.facts.gpus.as_ref().is_none_or(Vec::is_empty) {
            self.facts.gpus = gpus(pid);
        }
    }

    /// Whether the process still runs.
    pub(super) fn is_alive(&self, pid: u32) -> bool {
        match (stat(pid), self.started) {
            (Some((state, _, started)), Some(first)) => !matches!(state, 'Z' | 'X') && started == first,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// GPUs that a process has open, by the driver's numbers.
fn gpus(pid: u32) -> Option<Vec<u32>> {
    let mut found: Vec<u32> = fs::read_dir(folder(pid).join("fd"))
        .ok()?
        .flatten()
        .filter_map(|entry| gpu_of(&fs::read_link(entry.path()).ok()?.to_string_lossy()))
        .collect();
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// Parses `/dev/nvidia3` and `/dev/dri/renderD129` (AMD).
fn gpu_of(file: &str) -> Option<u32> {
    let number = |prefix: &str| file.strip_prefix(prefix)?.parse::<u32>().ok();
    number("/dev/nvidia").or_else(|| number("/dev/dri/renderD")?.checked_sub(128))
}

/// Folder for temporary files as the process sees it, as a path for us.
pub(super) fn temporary(pid: u32, is_contained: bool) -> PathBuf {
    // Libkineto writes on-demand traces only below /tmp, unless the job's environment has KINETO_ONDEMAND_TRACE_DIR.
    if is_contained { folder(pid).join("root/tmp") } else { PathBuf::from("/tmp") }
}

/// Processes started with the variable, for error messages: they poll in vain or elsewhere.
pub(super) fn with_variable(name: &str) -> Vec<u32> {
    all()
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| value(&entries(*pid, "environ").unwrap_or_default(), name).is_some())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let line = "12 (a) b (c)) S 1 12 12 0 -1 4194304 100 0 0 0 7 3 0 0 20 0 1 0 4242 1000 1 18446744073709551615";
        assert_eq!(parse_stat(line), Some(('S', 10, 4242)));
        assert_eq!(parse_stat("12 (a"), None);
    }

    #[test]
    fn a_version_is_read_from_the_file_of_the_package() {
        let text =
            "from typing import Optional\n__all__ = ['__version__']\n__version__ = '2.6.0+cu124'\ndebug = False\n";
        assert_eq!(parse_version(text), Some("2.6.0+cu124"));
        assert_eq!(parse_version("__version__ = 2"), None);
        assert_eq!(torch(std::process::id()), None);
    }

    #[test]
    fn a_limit_on_files_is_deadly_unless_its_signal_is_ignored() {
        let size = |before: &str| {
            let mut child =
                std::process::Command::new("bash").args(["-c", &format!("{before}; exec sleep 9")]).spawn().unwrap();
            while command(child.id()).first().is_none_or(|program| program != "sleep") {
                std::thread::yield_now();
            }
            let size = deadly_file_size(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            size
        };
        assert_eq!(size("ulimit -S -f 200"), Some(200 * 1024));
        assert_eq!(size("trap '' XFSZ; ulimit -S -f 200"), None);
        assert_eq!(size("ulimit -S -f unlimited"), None);
    }

    #[test]
    fn a_process_with_those_that_it_started() {
        let mut child = std::process::Command::new("sleep").arg("9").env(DAEMON_VARIABLE, "1").spawn().unwrap();
        let own = tree(std::process::id());
        assert!(own.contains(&child.id()) && own.contains(&std::process::id()) && !own.contains(&1));
        // The new environment is visible once the program has been executed, not right after the fork.
        while command(child.id()).first().is_none_or(|program| program != "sleep") {
            std::thread::yield_now();
        }
        assert_eq!(started(child.id()), Started::With(None));
        assert!(with_variable(DAEMON_VARIABLE).contains(&child.id()) && runs(child.id()));
        let here = Path::new("/tmp");
        assert!(meets(child.id(), here, true) && !meets(child.id(), here, false));
        let (.., start) = stat(child.id()).unwrap();
        assert!(age(start).unwrap() < Duration::from_secs(60) && !has_torch(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!runs(child.id()) && !runs(u32::MAX));
        assert_eq!(started(u32::MAX), Started::Unknown);
    }

    #[test]
    fn what_is_known_of_ourselves() {
        let own = std::process::id();
        let mut known = Known::new(own, own_uid().unwrap());
        assert!(!known.facts.command.is_empty() && !known.facts.is_contained && known.is_alive(own));
        assert_eq!(known.facts.cpu_share, None, "not watched yet");
        known.look(own, Instant::now() + Duration::from_secs(2));
        assert!(known.facts.cpu_share.is_some());
        known.started = Some(1);
        assert!(!known.is_alive(own), "another process with the same number");
        assert!(!Known::new(u32::MAX, 0).is_alive(u32::MAX));
    }

    #[test]
    fn gpus_are_told_by_open_devices() {
        assert_eq!((gpu_of("/dev/nvidia3"), gpu_of("/dev/dri/renderD129")), (Some(3), Some(1)));
        assert_eq!((gpu_of("/dev/nvidiactl"), gpu_of("/dev/null"), gpu_of("/dev/dri/renderD1")), (None, None, None));
    }
}
