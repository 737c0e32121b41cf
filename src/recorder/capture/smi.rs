//! Queries `nvidia-smi` for the state of a board: limits, clocks and throttle reasons.
//!
//! The program comes with the driver and uses the driver's management library (NVML), so our code does not depend on
//! that library's versions. Fields that a driver does not know are not queried again; unreported values are absent.
//! Nothing is ever changed.

mod boards;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub use boards::Boards;

use habitat_step::catalog::calibration::{CalibratedDevice, UnderLoad};

/// Time limit for an answer; with a broken driver it never comes.
const PATIENCE: Duration = Duration::from_secs(15);
const EVERY: Duration = Duration::from_millis(5);

/// Throttle reasons by NVML bit (`nvmlClocksEventReason…`).
const REASONS: [(u64, &str); 8] = [
    (0x02, "application clocks"),
    (0x04, "power cap"),
    (0x08, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "temperature (driver)"),
    (0x40, "temperature (hardware)"),
    (0x80, "external power brake"),
    (0x100, "display clocks"),
];

/// One board, queried through `nvidia-smi`.
#[derive(Debug, Clone)]
pub struct Smi {
    program: OsString,
    board: String,
}

/// Use of a board by other programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InUse {
    /// Share of the last moments in which a kernel ran, in percent; `None` if not reported.
    pub utilisation: Option<u32>,
    /// Number of programs that compute on it.
    pub programs: usize,
}

impl Smi {
    /// The board with this PCI address (`0000:01:00.0`).
    pub fn new(board: impl Into<String>) -> Self {
        Self { program: "nvidia-smi".into(), board: board.into() }
    }

    /// Whether `nvidia-smi` can be started.
    pub fn is_there() -> bool {
        Command::new("nvidia-smi")
            .arg("-L")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .is_ok_and(|mut child| {
                let _ = wait(&mut child);
                true
            })
    }

    fn ask(&self, question: &str) -> Option<(bool, String)> {
        let mut child = Command::new(&self.program)
            .args(["-i", &self.board, question, "--format=csv,noheader,nounits"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let done = wait(&mut child)?;
        let mut text = String::new();
        child.stdout.take()?.read_to_string(&mut text).ok()?;
        Some((done, text))
    }

    /// Values of those fields that the driver knows.
    fn fields(&self, wanted: &[&'static str]) -> BTreeMap<&'static str, String> {
        let mut left = wanted.to_vec();
        while !left.is_empty() {
            let Some((fine, text)) = self.ask(&format!("--query-gpu={}", left.join(","))) else { break };
            if fine {
                return values(&left, &text);
            }
            // Error message: Field "x" is not a valid field to query.
            let before = left.len();
            left.retain(|field| !text.contains(&format!("\"{field}\"")));
            if left.len() == before {
                break;
            }
        }
        BTreeMap::new()
    }

    /// Adds facts to `device` that the driver's library does not report.
    pub fn describe(&self, device: &mut CalibratedDevice) {
        let found = self.fields(&[
            "driver_version",
            "clocks.max.sm",
            "clocks.max.memory",
            "power.limit",
            "power.default_limit",
            "pcie.link.gen.max",
            "pcie.link.width.current",
            "ecc.mode.current",
            "mig.mode.current",
        ]);
        let number = |field: &str| found.get(field).and_then(|value| value.parse::<f64>().ok());
        let small = |field: &str| found.get(field).and_then(|value| value.parse::<u8>().ok());
        let switch = |field: &str| match found.get(field).map(String::as_str) {
            Some("Enabled") => Some(true),
            Some("Disabled") => Some(false),
            _ => None,
        };
        device.driver = found.get("driver_version").cloned();
        device.sm_clock_max_mhz = number("clocks.max.sm");
        device.memory_clock_max_mhz = number("clocks.max.memory");
        device.power_limit_w = number("power.limit");
        device.power_limit_default_w = number("power.default_limit");
        device.pcie_generation = small("pcie.link.gen.max");
        device.pcie_lanes = small("pcie.link.width.current");
        device.ecc = switch("ecc.mode.current");
        device.mig = switch("mig.mode.current");
    }

    /// Current use of the board; `None` if not reported.
    pub fn in_use(&self) -> Option<InUse> {
        let found = self.fields(&["utilization.gpu"]);
        let utilisation = found.get("utilization.gpu").and_then(|value| value.parse().ok());
        let (_, programs) = self.ask("--query-compute-apps=pid").filter(|(fine, _)| *fine)?;
        let is_pid = |line: &&str| line.trim().parse::<u32>().is_ok();
        Some(InUse { utilisation, programs: programs.lines().filter(is_pid).count() })
    }

    /// Current state of the board.
    pub fn state(&self) -> Option<UnderLoad> {
        let found = self.fields(&[
            "clocks.sm",
            "clocks.mem",
            "power.draw",
            "temperature.gpu",
            "clocks_event_reasons.active",
            "clocks_throttle_reasons.active",
        ]);
        let number = |field: &str| found.get(field).and_then(|value| value.parse::<f64>().ok());
        (!found.is_empty()).then(|| UnderLoad {
            sm_clock_mhz: number("clocks.sm"),
            memory_clock_mhz: number("clocks.mem"),
            power_w: number("power.draw"),
            temperature_c: number("temperature.gpu"),
            limited_by: limited_by(&found).map(str::to_owned).collect(),
        })
    }
}

/// Throttle reasons, from whichever field name the driver knows.
fn limited_by(found: &BTreeMap<&'static str, String>) -> impl Iterator<Item = &'static str> {
    let bits = found
        .get("clocks_event_reasons.active")
        .or_else(|| found.get("clocks_throttle_reasons.active"))
        .and_then(|text| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok())
        .unwrap_or(0);
    REASONS.iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, name)| *name)
}

/// Whether it exited successfully; `None` if it was killed at the time limit.
fn wait(child: &mut std::process::Child) -> Option<bool> {
    let until = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < until => thread::sleep(EVERY),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// Fields of the first line; `[N/A]`, `[Not Supported]` and the like are absent.
fn values(fields: &[&'static str], text: &str) -> BTreeMap<&'static str, String> {
    of_line(fields, text.lines().next().unwrap_or_default())
}

/// Fields of one line.
fn of_line(fields: &[&'static str], line: &str) -> BTreeMap<&'static str, String> {
    fields
        .iter()
        .zip(line.split(',').map(str::trim))
        .filter(|(_, value)| !value.is_empty() && !value.contains("N/A") && !value.starts_with('['))
        .map(|(field, value)| (*field, value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script that answers like `nvidia-smi` with a driver that knows only the older name.
    fn fake(folder: &std::path::Path, reasons: &str) -> Smi {
        let program = folder.join("nvidia-smi");
        let script = format!(
            r#"#!/bin/sh
case "$3" in
*clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
*clocks_throttle_reasons*) echo '1410, 1215, 249.53, 61, {reasons}';;
*driver_version*) echo '535.54.03, 1410, 1215, 250.00, 250.00, 4, 16, Enabled, [N/A]';;
*utilization*) echo '37';;
*compute-apps*) printf '4711\n4712\n';;
esac
"#
        );
        // Another process writes the program: if this process wrote it, a program started at that moment by a
        // concurrent test would hold the file open, and Linux does not execute such a file (ETXTBSY).
        let source = folder.join("script");
        std::fs::write(&source, script).unwrap();
        let installed = std::process::Command::new("install").args(["-m", "755"]).args([&source, &program]).status();
        assert!(installed.unwrap().success());
        Smi { program: program.into(), board: "0000:01:00.0".to_owned() }
    }

    #[test]
    fn what_a_driver_says_and_does_not_say() {
        let folder = tempfile::tempdir().unwrap();
        let smi = fake(folder.path(), "0x0000000000000024");
        let mut device = CalibratedDevice::default();
        smi.describe(&mut device);
        assert_eq!((device.driver.as_deref(), device.power_limit_w), (Some("535.54.03"), Some(250.0)));
        assert_eq!((device.pcie_generation, device.ecc, device.mig), (Some(4), Some(true), None));
        assert_eq!(smi.in_use(), Some(InUse { utilisation: Some(37), programs: 2 }));
        let state = smi.state().unwrap();
        assert_eq!((state.sm_clock_mhz, state.power_w), (Some(1410.0), Some(249.53)));
        assert_eq!(state.limited_by, ["power cap", "temperature (driver)"]);
        assert!(fake(folder.path(), "0x0").state().unwrap().limited_by.is_empty());
    }

    #[test]
    fn without_nvidia_smi_nothing_is_known() {
        let smi = Smi { program: "/nowhere/nvidia-smi".into(), board: "0".to_owned() };
        assert_eq!((smi.state(), smi.in_use()), (None, None));
        let mut device = CalibratedDevice::default();
        smi.describe(&mut device);
        assert_eq!(device, CalibratedDevice::default());
    }
}
