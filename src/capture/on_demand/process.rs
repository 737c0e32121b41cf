//! What `/proc` says of a process. What cannot be read is left out.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use std::os::unix::fs::MetadataExt;

use super::roles::Facts;

/// A process and when it was looked at.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) facts: Facts,
    /// When it started, in the kernel's ticks: a number given anew has another.
    started: Option<u64>,
    watched: Option<(Instant, u64)>,
}

/// Ticks a second of the times in `/proc/PID/stat`: always 100 on Linux (proc(5), `USER_HZ`).
const TICKS: f64 = 100.0;
/// Seconds of watching before processor time says anything.
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

fn parse_stat(line: &str) -> Option<(char, u64, u64)> {
    // The program's name may have spaces and parentheses.
    let fields: Vec<&str> = line[line.rfind(')')? + 1..].split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.first()?.chars().next()?, number(11)? + number(12)?, number(19)?))
}

/// The number of a namespace, as in `pid:[4026531836]`.
fn namespace(pid: &str, kind: &str) -> Option<u64> {
    let link = fs::read_link(Path::new("/proc").join(pid).join("ns").join(kind)).ok()?;
    link.to_string_lossy().split(['[', ']']).nth(1)?.parse().ok()
}

/// The user that we are.
pub(super) fn own_uid() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|there| there.uid())
}

impl Known {
    /// Looks at a process for the first time; `uid` is what the kernel said of it.
    pub(super) fn new(pid: u32, uid: Option<u32>) -> Self {
        let at = folder(pid);
        let list = |name: &str| -> Vec<Vec<u8>> {
            let bytes = fs::read(at.join(name)).unwrap_or_default();
            bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
        };
        let command = list("cmdline").iter().map(|word| text(word)).collect();
        let environment: Vec<String> = list("environ").iter().map(|entry| text(entry)).collect();
        let get = |name: &str| {
            environment
                .iter()
                .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
                .filter(|value| !value.is_empty())
        };
        let rank = get("RANK").or(get("OMPI_COMM_WORLD_RANK")).and_then(|rank| rank.parse().ok());
        let rendezvous = match (get("MASTER_ADDR"), get("MASTER_PORT")) {
            (Some(address), Some(port)) => {
                Some(format!("{address}:{port} {}", get("TORCHELASTIC_RUN_ID").unwrap_or_default()).trim().to_owned())
            }
            _ => None,
        };
        let facts = Facts {
            command,
            uid: uid.or_else(|| fs::metadata(&at).ok().map(|there| there.uid())),
            rank,
            rendezvous,
            gpus: gpus(pid),
            cpu_share: None,
            pid_namespace: namespace(&pid.to_string(), "pid").unwrap_or(0),
            is_contained: namespace(&pid.to_string(), "mnt").is_some_and(|own| namespace("self", "mnt") != Some(own)),
        };
        let seen = stat(pid);
        Self {
            facts,
            started: seen.map(|(_, _, started)| started),
            watched: seen.map(|(_, ticks, _)| (Instant::now(), ticks)),
        }
    }

    /// Looks again at what changes.
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

    /// Whether the process is still there.
    pub(super) fn is_alive(&self, pid: u32) -> bool {
        match (stat(pid), self.started) {
            (Some((state, _, started)), Some(first)) => !matches!(state, 'Z' | 'X') && started == first,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

/// The GPUs a process has open, by the driver's numbers.
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

/// `/dev/nvidia3` and `/dev/dri/renderD129` (AMD).
fn gpu_of(file: &str) -> Option<u32> {
    let number = |prefix: &str| file.strip_prefix(prefix)?.parse::<u32>().ok();
    number("/dev/nvidia").or_else(|| number("/dev/dri/renderD")?.checked_sub(128))
}

/// The folder for temporary files as the process sees it, by our names.
pub(super) fn temporary(pid: u32, is_contained: bool) -> PathBuf {
    // Libkineto writes traces on demand below /tmp only, unless the job's environment has
    // KINETO_ONDEMAND_TRACE_DIR.
    if is_contained { folder(pid).join("root/tmp") } else { PathBuf::from("/tmp") }
}

/// The processes that poll in vain or elsewhere, named in a remedy: those started with the
/// variable that makes them poll.
pub(super) fn with_variable(name: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let wanted = format!("{name}=");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != std::process::id())
        .filter(|pid| {
            let environment = fs::read(folder(*pid).join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry.starts_with(wanted.as_bytes()))
        })
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
    fn what_is_known_of_ourselves() {
        let own = std::process::id();
        let mut known = Known::new(own, None);
        assert!(!known.facts.command.is_empty() && !known.facts.is_contained && known.is_alive(own));
        assert_eq!(known.facts.uid, own_uid());
        assert_eq!(known.facts.cpu_share, None, "not watched yet");
        known.look(own, Instant::now() + std::time::Duration::from_secs(2));
        assert!(known.facts.cpu_share.is_some());
        known.started = Some(1);
        assert!(!known.is_alive(own), "another process with the same number");
        assert!(!Known::new(u32::MAX, None).is_alive(u32::MAX));
    }

    #[test]
    fn gpus_are_told_by_open_devices() {
        assert_eq!((gpu_of("/dev/nvidia3"), gpu_of("/dev/dri/renderD129")), (Some(3), Some(1)));
        assert_eq!((gpu_of("/dev/nvidiactl"), gpu_of("/dev/null"), gpu_of("/dev/dri/renderD1")), (None, None, None));
    }
}
