//! Parses one event of a trace.
//!
//! Skips values that are not needed and keeps the others as slices of the text, so nothing is copied before the event
//! is known to be kept.

use super::json::{Cursor, Stop, unquote};
use crate::{RangeKind, WorkKind};

/// Record type for the category of a kept event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    Host(RangeKind),
    Launch,
    Device(WorkKind),
    /// A memory usage sample.
    Memory,
}

/// An event as in the file; texts are without quotes and not yet unescaped.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    /// `X` for an event with a duration, `i` for an instant.
    ph: u8,
    pub(super) category: &'a [u8],
    pub(super) name: &'a [u8],
    pub(super) pid: &'a [u8],
    pub(super) tid: &'a [u8],
    pub(super) ts: &'a [u8],
    pub(super) dur: &'a [u8],
    pub(super) args: Args<'a>,
}

/// Arguments used by some kind of event, as in the file.
#[derive(Debug, Default)]
pub(super) struct Args<'a> {
    pub(super) dims: &'a [u8],
    pub(super) types: &'a [u8],
    pub(super) strides: &'a [u8],
    pub(super) values: &'a [u8],
    pub(super) sequence: &'a [u8],
    pub(super) forward: &'a [u8],
    pub(super) correlation: &'a [u8],
    pub(super) device: &'a [u8],
    pub(super) stream: &'a [u8],
    /// Launch arguments of kernels, and of HIP launches: see `Unpacker::launch`.
    pub(super) launch: [&'a [u8]; LAUNCH],
    /// Arguments of memory usage samples: device type, device number, bytes.
    pub(super) memory: [&'a [u8]; 3],
}

/// Number of arguments that describe a launch: grid, block, registers, shared memory; for collectives also name,
/// elements and ranks.
pub(super) const LAUNCH: usize = 7;

impl<'a> Event<'a> {
    /// Parses the event whose opening brace is at `cursor` and moves past it. If its arguments are malformed, keeps
    /// those before the fault.
    pub(super) fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        *self = Self::default();
        cursor.fields(|key, cursor| {
            if key == b"args" {
                return self.arguments(cursor);
            }
            let value = cursor.value()?;
            match key {
                b"ph" => self.ph = unquote(value).first().copied().unwrap_or(0),
                b"cat" => self.category = unquote(value),
                b"name" => self.name = unquote(value),
                b"pid" => self.pid = unquote(value),
                b"tid" => self.tid = unquote(value),
                b"ts" => self.ts = value,
                b"dur" => self.dur = value,
                _ => {}
            }
            Ok(())
        })
    }

    fn arguments(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Stop> {
        self.args = Args::default();
        // Profilers write category and name first.
        let is_told = self.ph != 0 && !self.category.is_empty() && !self.name.is_empty();
        if cursor.next()? != b'{' || is_told && self.category().is_none() {
            return cursor.value().map(|_| ());
        }
        let start = cursor.at;
        match cursor.fields(|key, cursor| cursor.value().map(|value| self.args.take(key, value))) {
            Err(Stop::Bad) => {
                cursor.at = start;
                cursor.balanced().map(|_| ())
            }
            read => read,
        }
    }

    /// Whether it has a duration.
    pub(super) fn is_complete(&self) -> bool {
        self.ph == b'X'
    }

    /// Record type by category, in old and current names; `None` for events that are not kept.
    pub(super) fn category(&self) -> Option<Category> {
        match self.ph {
            b'X' => {}
            b'i' if self.name == b"[memory]" => return Some(Category::Memory),
            _ => return None,
        }
        Some(match self.category {
            b"cpu_op" | b"Operator" => Category::Host(RangeKind::Operator),
            b"user_annotation" => Category::Host(RangeKind::Annotation),
            b"nvtx" => Category::Host(RangeKind::Part),
            b"python_function" if self.name.starts_with(b"nn.Module: ") => Category::Host(RangeKind::Module),
            b"cuda_runtime" | b"cuda_driver" | b"Runtime" if launches(self.name) => Category::Launch,
            b"kernel" | b"Kernel" => Category::Device(WorkKind::Kernel),
            b"gpu_memcpy" | b"Memcpy" => Category::Device(WorkKind::Copy),
            b"gpu_memset" | b"Memset" => Category::Device(WorkKind::Set),
            _ => return None,
        })
    }
}

impl<'a> Args<'a> {
    fn take(&mut self, key: &[u8], value: &'a [u8]) {
        let [grid, block, registers, shared, collective, elements, ranks] = &mut self.launch;
        let [device_type, device_id, allocated] = &mut self.memory;
        // By first letter, because most keys are none of these.
        let place = match key.first() {
            Some(b'I') => match key {
                b"Input Dims" | b"Input dims" => &mut self.dims,
                b"Input type" | b"Input Types" => &mut self.types,
                b"Input Strides" => &mut self.strides,
                b"In msg nelems" => elements,
                _ => return,
            },
            Some(b'C') => match key {
                b"Concrete Inputs" => &mut self.values,
                b"Collective name" => collective,
                _ => return,
            },
            Some(b'S') if key == b"Sequence number" => &mut self.sequence,
            Some(b'F') if matches!(key, b"Fwd thread id" | b"Fwd thread ID") => &mut self.forward,
            Some(b'c') if key == b"correlation" => &mut self.correlation,
            Some(b'd') if key == b"device" => &mut self.device,
            Some(b's') => match key {
                b"stream" => &mut self.stream,
                b"shared memory" => shared,
                _ => return,
            },
            Some(b'g') if key == b"grid" => grid,
            Some(b'b') if key == b"block" => block,
            Some(b'r') if key == b"registers per thread" => registers,
            Some(b'G') if key == b"Group size" => ranks,
            Some(b'D') => match key {
                b"Device Type" => device_type,
                b"Device Id" => device_id,
                _ => return,
            },
            Some(b'T') if key == b"Total Allocated" => allocated,
            _ => return,
        };
        *place = value;
    }
}

/// Whether a runtime or driver call can start work on the device: `cudaLaunchKernel`, `cuLaunchKernelEx`,
/// `hipModuleLaunchKernel`, `cudaGraphLaunch`, `cudaMemcpyAsync`, `cuMemsetD8Async` …
fn launches(name: &[u8]) -> bool {
    name.windows(4).any(|part| matches!(part, b"aunc" | b"emcp" | b"emse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Event<'_>, Stop> {
        let mut event = Event::default();
        event.read(&mut Cursor::new(text.as_bytes())).map(|()| event)
    }

    #[test]
    fn an_event_reads_in_any_order_and_spacing() {
        let event = read(
            r#"{ "args" : {"grid": [1, 2, 3], "blocks per SM": "inf"},"ts":1.5, "name":"a \"b\"" ,"ph" : "X","cat":"kernel"}"#,
        )
        .unwrap();
        assert_eq!(event.category(), Some(Category::Device(WorkKind::Kernel)));
        assert_eq!((event.name, event.ts, event.args.launch[0]), (&br#"a \"b\""#[..], &b"1.5"[..], &b"[1, 2, 3]"[..]));
    }

    #[test]
    fn malformed_events_are_refused() {
        for bad in [r#"{"a"}"#, r#"{"a": }"#, "{a: 1}", r#"{"a": [}, "b": 1"}"#, r#"{"a": 1{}}"#] {
            assert_eq!(read(bad).unwrap_err(), Stop::Bad, "{bad}");
        }
        for cut in ["{", r#"{"a": "b}"#, r#"{"a": [1"#, r#"{"args": {"grid": [1]"#] {
            assert_eq!(read(cut).unwrap_err(), Stop::End, "{cut}");
        }
    }

    #[test]
    fn malformed_arguments_leave_what_was_before() {
        let event = read(r#"{"ph": "X", "cat": "kernel", "args": {"stream": 7, "device" 3}, "ts": 2}"#).unwrap();
        assert_eq!((event.args.stream, event.args.device, event.ts), (&b"7"[..], &b""[..], &b"2"[..]));
    }
}
