//! Traces of PyTorch's profiler (Kineto).
//!
//! Reads the Chrome-trace JSON that `torch.profiler` exports on NVIDIA and (as far as their fields go) AMD GPUs, with
//! the names of 2021 and the current ones; the CUPTI recorder writes the same. A trace is read once, as a stream: a
//! [`Packer`] turns [`Pieces`] of its text into [`Events`], on any thread, and a [`Reader`] joins them. The packed form
//! is a twentieth of the text. The steps to use are chosen after reading all of it, so memory is bounded for any file
//! size. The caller decompresses.
//!
//! Events with an unusable time (negative, not finite) or malformed text are dropped and counted in the notes; more
//! than one in a hundred is an error.

mod collect;
mod demangle;
mod event;
mod json;
mod pack;
mod parts;
mod scan;
mod settle;
mod unpack;

use std::collections::BTreeMap;
use std::io::{self, Read};

use serde_json::Value;

use self::collect::{Collector, Correlations, Keep};
use self::json::whole;
use self::pack::Strangers;
pub use self::pack::{Events, Packer};
use self::parts::Parts;
pub use self::parts::{Scratch, Spill};
pub use self::scan::{Pieces, Reader};
use super::error::Foreign;
use super::record::Unusable;
use super::{Fault, Format, Grouping, OnProgress, ReadOptions, Recorder, Trace, TraceError, steps};
use habitat_step::profile::DeviceInfo;

/// Trace of one rank, packed.
#[derive(Debug)]
pub struct Recorded {
    recorder: Recorder,
    devices: Vec<(Option<u64>, DeviceInfo)>,
    parts: Parts,
    events: u64,
    bytes: u64,
    records: u64,
    kept: u64,
    bad_times: Unusable,
    malformed: Unusable,
    peak_memory: BTreeMap<u32, u64>,
    foreign: Strangers,
    /// The outer object is written by the profile plugin of `TensorBoard`.
    of_xprof: bool,
}

impl Recorded {
    /// Reads a trace on this thread; `text` supplies it decompressed.
    ///
    /// # Errors
    /// [`TraceError`] if the text is not a trace or cannot be read.
    pub fn read(text: impl Read, spill: Option<Spill>, progress: &mut OnProgress<'_>) -> Result<Self, TraceError> {
        let mut reader = Reader::new(spill);
        let (mut pieces, mut piece) = (Pieces::new(text), Vec::new());
        while !reader.is_over() && pieces.next(&mut piece).map_err(|error| reader.failed(error))? {
            reader.take(&piece, None)?;
            if progress(reader.progress()).is_break() {
                return Err(Format::Kineto.error(Fault::Cancelled));
            }
        }
        reader.finish()
    }

    fn new(spill: Option<Spill>) -> Self {
        let recorder = Recorder {
            format: Format::Kineto,
            framework: Some("pytorch".to_owned()),
            runtime: None,
            driver: None,
            world_size: None,
            without_shapes: "the trace has no shapes: record it with record_shapes=True for better predictions",
            joined_to: "an operator",
            whole_remedy: "",
            finds_patterns: true,
            leaves_out_lists: true,
            slows_host: true,
            grouping: Grouping::Kernels,
            notes: Vec::new(),
        };
        Self {
            recorder,
            devices: Vec::new(),
            parts: Parts::new(spill),
            events: 0,
            bytes: 0,
            records: 0,
            kept: 0,
            bad_times: Unusable::default(),
            malformed: Unusable::default(),
            peak_memory: BTreeMap::new(),
            foreign: Strangers::default(),
            of_xprof: false,
        }
    }

    /// Number of kept records; each takes about 50 bytes when the profile is built.
    pub fn kept(&self) -> u64 {
        self.kept
    }

    /// Appends events.
    fn add(&mut self, events: Events) -> Result<(), Fault> {
        self.bad_times.join(events.bad_times, self.events);
        self.malformed.join(events.malformed, self.events);
        self.events += events.count;
        self.records += events.records;
        self.kept += events.kept;
        self.foreign.join(&events.foreign);
        for (device, allocated) in events.peak_memory {
            pack::peak(&mut self.peak_memory, device, allocated);
        }
        let read = self.events;
        self.parts.push(events.packed, events.extent).map_err(|source| Fault::Io { events: read, source })
    }

    /// Reads a property of the outer object.
    fn property(&mut self, key: &str, value: &[u8]) {
        let version = || whole(value).filter(|version| *version > 0);
        let recorder = &mut self.recorder;
        match key {
            "deviceProperties" => {
                if let Ok(Value::Array(list)) = serde_json::from_slice(value) {
                    self.devices = list.iter().map(device).collect();
                }
            }
            "cuda_runtime_version" => recorder.runtime = version().map(cuda_version).or(recorder.runtime.take()),
            "hip_runtime_version" => recorder.runtime = recorder.runtime.take().or(version().map(hip_version)),
            "cuda_driver_version" => {
                recorder.driver = version().map(|version| format!("CUDA {}", cuda_version(version)));
            }
            "distributedInfo" => recorder.world_size = world_size(value).or(recorder.world_size),
            "metadata" => self.of_xprof |= value.windows(13).any(|part| part == b"highres-ticks"),
            "kernels_only" if whole(value) == Some(1) => recorder.grouping = Grouping::RangesOnly,
            _ => {}
        }
    }

    /// Builds the trace; over budget, a few whole steps of it.
    pub(crate) fn trace(mut self, options: &ReadOptions<'_>) -> Result<Trace, TraceError> {
        let is_part = self.kept > options.budget() as u64;
        let mut all = Collector::new(self.recorder.clone(), options.step_range);
        self.collect(&mut all, &if is_part { Keep::Marks } else { Keep::All })?;
        let trace = &mut all.trace;
        trace.is_part = is_part;
        (trace.events, trace.bytes, trace.records) = (self.events, self.bytes, self.records);
        (trace.bad_times, trace.malformed) = (self.bad_times.clone(), self.malformed.clone());
        (trace.devices, trace.peak_memory) =
            (std::mem::take(&mut self.devices), std::mem::take(&mut self.peak_memory).into_iter().collect());
        trace.check()?;
        if trace.kernels + trace.operators + trace.kernel_launches == 0 && trace.ranges.is_empty() && self.kept == 0 {
            let (events, kind) = (self.events, self.stranger());
            return Err(Format::Kineto.error(Fault::NotOfPyTorch { events, kind }));
        }
        if !options.shapes_only {
            trace.needs_kernels()?;
        }
        if !is_part {
            settle::processes(trace);
        }
        let window = steps::select(trace, options);
        if let (None, Some(name)) = (&trace.steps, options.step_range) {
            let known = std::mem::take(&mut all.known_ranges).into_iter().collect();
            return Err(Format::Kineto.error(Fault::NoStepRange { name: habitat_base::text::clean(name, 60), known }));
        }
        let mut collected = all;
        if let Some((from, to)) = window {
            let mut part = Collector::new(self.recorder.clone(), options.step_range);
            part.trace.room = options.room();
            self.collect(&mut part, &Keep::HostOf { from, to })?;
            let wanted = Correlations::of(&part.trace.launches);
            self.collect(&mut part, &Keep::DevicesOf(wanted))?;
            part.trace.check_room()?;
            part.trace.take_totals(collected.trace);
            collected = part;
        }
        drop(self);
        settle::grids(&mut collected);
        settle::ranges(&mut collected.trace);
        settle::threads(&mut collected.trace);
        Ok(collected.trace)
    }

    /// Origin of a trace without events of PyTorch's profiler.
    fn stranger(&self) -> Foreign {
        if self.of_xprof {
            Foreign::Xprof
        } else if self.foreign.autograd {
            Foreign::LegacyAutograd
        } else if self.foreign.timed {
            Foreign::Other(self.foreign.categories.clone())
        } else {
            Foreign::Nothing
        }
    }

    fn collect(&mut self, collector: &mut Collector, keep: &Keep) -> Result<(), TraceError> {
        let events = self.events;
        let failed = |source: io::Error| Format::Kineto.error(Fault::Io { events, source });
        self.parts.each(|extent| keep.meets(extent), |part| collector.part(part, keep)).map_err(failed)
    }
}

/// Number of ranks from `distributedInfo`: the world size, otherwise the size of the largest process group.
fn world_size(value: &[u8]) -> Option<u64> {
    let info: Value = serde_json::from_slice(value).ok()?;
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
    let groups = info.get("pg_config").and_then(Value::as_array);
    let largest = || groups?.iter().filter_map(|group| group.get("pg_size").and_then(number)).max();
    info.get("world_size").and_then(number).or_else(largest)
}

/// Device from an entry of `deviceProperties`.
fn device(value: &Value) -> (Option<u64>, DeviceInfo) {
    let number = |key: &str| value.get(key).and_then(Value::as_u64);
    let small = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
    let name = habitat_base::text::clean(value.get("name").and_then(Value::as_str).unwrap_or("").trim(), 120);
    // Some traces write 0 for unknown values.
    let capability = small("computeMajor").zip(small("computeMinor")).filter(|(major, _)| *major > 0);
    let multiprocessors = small("numSms").filter(|count| *count > 0);
    let unnamed =
        DeviceInfo::unnamed("", capability, multiprocessors, number("totalGlobalMem").filter(|bytes| *bytes > 0));
    (number("id"), if name.is_empty() { unnamed } else { DeviceInfo { name, ..unnamed } })
}

/// 12040 → 12.4
fn cuda_version(version: u64) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// 60443483 → HIP 6.4.43483
fn hip_version(version: u64) -> String {
    format!("HIP {}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}
