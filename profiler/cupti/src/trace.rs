//! Writes the collected records as a Chrome trace with the names of PyTorch's profiler.
//!
//! So one reader serves all recordings: `kernel`, `gpu_memcpy` and `gpu_memset` events with their launch configuration,
//! `cuda_runtime` and `cuda_driver` events with the same `correlation`, and NVTX ranges in their own category, `nvtx`.
//! The property `kernels_only` marks a trace without operators.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::collect::{Collected, What};
use crate::record::{Work, copy_name};

/// A GPU, as `deviceProperties` describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number in the process.
    pub id: u32,
    /// The driver's name.
    pub name: String,
    /// Memory in bytes.
    pub memory: u64,
    /// Major and minor compute capability.
    pub capability: [u32; 2],
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
}

/// Writes the trace. `function` names a function of the runtime's API (the driver's, if true).
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut dyn Write,
    collected: &Collected,
    devices: &[Device],
    driver: u32,
    function: &dyn Fn(bool, u32) -> String,
) -> io::Result<()> {
    let properties: Vec<Value> = devices
        .iter()
        .map(|device| {
            json!({
                "id": device.id, "name": device.name, "totalGlobalMem": device.memory,
                "computeMajor": device.capability[0], "computeMinor": device.capability[1],
                "numSms": device.multiprocessors,
            })
        })
        .collect();
    writeln!(out, "{{\"schemaVersion\": 1, \"kernels_only\": 1, \"cuda_driver_version\": {driver},")?;
    writeln!(out, "\"deviceProperties\": {},\n\"traceEvents\": [", Value::from(properties))?;
    let base = base(collected);
    let last = collected.work.iter().map(|(work, _)| work.end).max().unwrap_or(base);
    let names: Vec<String> =
        collected.names.iter().map(|name| Value::from(String::from_utf8_lossy(name)).to_string()).collect();
    let name = |number: u32| names.get(number as usize).map_or("\"\"", String::as_str);
    let process = std::process::id();
    let mut comma = "";
    for call in &collected.calls {
        let category = if call.driver { "cuda_driver" } else { "cuda_runtime" };
        write!(
            out,
            "{comma}{{\"ph\":\"X\",\"cat\":\"{category}\",\"name\":{},\"pid\":{},\"tid\":{},{},\"args\":{{\"correlation\":{}}}}}",
            Value::from(function(call.driver, call.function)),
            call.thread[0],
            call.thread[1],
            Times(base, call.times[0], call.times[1]),
            call.correlation
        )?;
        comma = ",\n";
    }
    for range in &collected.ranges {
        // A range that is still open lasts at least until the end.
        let end = range.end.unwrap_or(last).max(range.start);
        write!(
            out,
            "{comma}{{\"ph\":\"X\",\"cat\":\"nvtx\",\"name\":{},\"pid\":{},\"tid\":{},{}}}",
            name(range.name),
            range.thread[0],
            range.thread[1],
            Times(base, range.start, end)
        )?;
        comma = ",\n";
    }
    for (work, what) in &collected.work {
        write!(out, "{comma}{{\"ph\":\"X\",\"pid\":{},\"tid\":{},", work.device, work.stream)?;
        match what {
            What::Kernel(number, launch) => {
                let shared = i64::from(launch.static_shared) + i64::from(launch.dynamic_shared);
                write!(
                    out,
                    "\"cat\":\"kernel\",\"name\":{},\"args\":{{\"grid\":{:?},\"block\":{:?},\"registers per thread\":{},\"shared memory\":{shared}",
                    name(*number),
                    launch.grid,
                    launch.block,
                    launch.registers
                )?;
            }
            What::Copy(kinds, bytes) => {
                let name = copy_name(*kinds);
                write!(out, "\"cat\":\"gpu_memcpy\",\"name\":\"{name}\",\"args\":{{\"bytes\":{bytes}")?;
            }
            What::Set(bytes) => {
                write!(out, "\"cat\":\"gpu_memset\",\"name\":\"Memset (Device)\",\"args\":{{\"bytes\":{bytes}")?;
            }
        }
        let Work { device, context, stream, correlation, graph_node, .. } = work;
        write!(
            out,
            ",\"device\":{device},\"context\":{context},\"stream\":{stream},\"correlation\":{correlation},\"graph node id\":{graph_node}}},{}}}",
            Times(base, work.start, work.end)
        )?;
        comma = ",\n";
    }
    writeln!(out, "\n],\n\"process\": {process}, \"lost\": {}}}", collected.lost)
}

/// The earliest time, subtracted so that microseconds keep their fractions as floating-point numbers.
fn base(collected: &Collected) -> u64 {
    let work = collected.work.iter().map(|(work, _)| work.start);
    let calls = collected.calls.iter().map(|call| call.times[0]);
    let ranges = collected.ranges.iter().map(|range| range.start);
    work.chain(calls).chain(ranges).filter(|time| *time > 0).min().unwrap_or(0)
}

/// `ts` and `dur` in microseconds, exact; from the base, begin and end in nanoseconds.
struct Times(u64, u64, u64);

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = self.1.saturating_sub(self.0);
        let length = self.2.saturating_sub(self.1);
        write!(f, "\"ts\":{}.{:03},\"dur\":{}.{:03}", start / 1000, start % 1000, length / 1000, length % 1000)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::record::{Launch, Record};

    #[test]
    fn a_trace_is_json_with_exact_times() {
        let mut collected = Collected::default();
        let launch =
            Launch { grid: [8, 4, 1], block: [256, 1, 1], registers: 40, static_shared: 1024, dynamic_shared: 512 };
        let start = 1_700_000_000_123_456_789;
        let work = Work { start, end: start + 2_001, device: 0, context: 1, stream: 7, correlation: 9, graph_node: 0 };
        let names: [&[u8]; 2] = [b"a \"kernel\"\n\xff", b"step"];
        let mut take = |record| {
            collected.take(record, &mut |at| names.get(at).map(|name| name.to_vec()), &mut |_, _| true);
        };
        take(Record::Kernel { work, launch, name: 0 });
        take(Record::Copy { work, kinds: [1, 1, 3], bytes: 64 });
        take(Record::Set { work, bytes: 64 });
        let times = [start - 1_500, start - 500];
        take(Record::Call { times, thread: [5, 6], correlation: 9, function: 211, driver: false });
        take(Record::Begin { time: start - 2_000, id: 1, thread: [5, 6], name: 1 });
        let device = Device { name: "GPU \"x\"".into(), memory: 80, multiprocessors: 132, ..Device::default() };
        let mut out = Vec::new();
        write(&mut out, &collected, &[device], 12040, &|_, number| format!("cudaLaunchKernel{number}")).unwrap();
        let trace: Value = serde_json::from_slice(&out).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[2]["name"], "a \"kernel\"\n\u{fffd}");
        assert_eq!((events[2]["ts"].as_f64(), events[2]["dur"].as_f64()), (Some(2.0), Some(2.001)));
        assert_eq!(events[2]["args"]["grid"], json!([8, 4, 1]));
        assert_eq!(events[2]["args"]["shared memory"], 1536);
        assert_eq!(events[1]["dur"].as_f64(), Some(4.001), "an open range ends with the last work");
        assert_eq!(events[0]["args"]["correlation"], 9);
        assert_eq!(trace["deviceProperties"][0]["numSms"], 132);
    }

    #[test]
    fn nothing_collected_is_a_trace_too() {
        let mut out = Vec::new();
        write(&mut out, &Collected::default(), &[], 0, &|_, _| String::new()).unwrap();
        assert!(serde_json::from_slice::<Value>(&out).is_ok(), "{}", String::from_utf8_lossy(&out));
    }
}
