//! Identity of a process beyond its number, which the system gives to another process after its end: its start, the
//! machine, and the machine's boot.

use serde::{Deserialize, Serialize};

/// A process on a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start in clock ticks since the machine started, which does not depend on its clock; `None` without `/proc`.
    started: Option<u64>,
    /// Identifier of the boot; empty if unknown.
    boot: String,
    /// Name of the machine; empty if unknown.
    pub host: String,
}

/// Whether a process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It runs.
    Runs,
    /// It has ended; another process may have its number.
    Ended,
    /// It ran before the machine was restarted.
    Rebooted,
    /// It runs or ran on another machine, which this one cannot see.
    Elsewhere,
}

impl Identity {
    /// Identity of a process of this machine.
    pub fn of(pid: u32) -> Self {
        let [boot, host] = here();
        Self { pid, started: started(pid), boot, host }
    }

    /// Whether it still runs.
    pub fn presence(&self) -> Presence {
        let [boot, host] = here();
        if self.host != host {
            Presence::Elsewhere
        } else if self.boot != boot {
            Presence::Rebooted
        } else if is_there(self.pid, self.started) {
            Presence::Runs
        } else {
            Presence::Ended
        }
    }
}

/// Boot and name of this machine.
fn here() -> [String; 2] {
    let read = |name: &str| super::folder::read_text(&format!("/proc/sys/kernel/{name}"));
    ["random/boot_id", "hostname"].map(|name| read(name).trim().to_owned())
}

#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<u64> {
    super::on_demand::process::start(pid)
}

#[cfg(target_os = "linux")]
fn is_there(pid: u32, start: Option<u64>) -> bool {
    started(pid).is_some_and(|now| start.is_none_or(|start| start == now))
}

#[cfg(not(target_os = "linux"))]
const fn started(_pid: u32) -> Option<u64> {
    None
}

#[cfg(not(target_os = "linux"))]
fn is_there(pid: u32, _start: Option<u64>) -> bool {
    super::launch::exists(pid)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_told_from_another_with_its_number() {
        let own = Identity::of(std::process::id());
        assert_eq!(own.presence(), Presence::Runs);
        let earlier = Identity { started: own.started.map(|start| start - 1), ..own.clone() };
        assert_eq!(earlier.presence(), Presence::Ended, "its number was given to this process");
        assert_eq!(Identity { boot: "x".into(), ..own.clone() }.presence(), Presence::Rebooted);
        assert_eq!(Identity { host: "x".into(), ..own }.presence(), Presence::Elsewhere);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = Identity::of(child.id());
        // Until its parent waits for it, it is a zombie.
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(ended.presence(), Presence::Ended);
        child.wait().unwrap();
        assert_eq!(ended.presence(), Presence::Ended);
    }
}
