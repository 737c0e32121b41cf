//! Packs kept events: about 12 bytes instead of 300 bytes of text each.
//!
//! Each part of the text becomes an independent run of bytes, so parts can be packed in parallel and stored anywhere.
//! Numbers are delta-encoded. A text (a name, the shapes of a call) is stored on its first use in the part; later uses
//! store its number.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use super::event::{Category, Event, LAUNCH};
use super::json::{Cursor, Stop, TICKS, number, ticks, unescape, whole};
use crate::intern::NAME_BYTES;
use crate::record::{RangeKind, Unusable, WorkKind};

/// Maximum length of raw shapes in bytes; longer ones are dropped.
const LONGEST_TEXT: usize = 256 << 10;
/// Maximum number of devices whose memory is tracked; no machine has as many.
pub(super) const DEVICES: usize = 4096;
/// Correlation id of work without one, such as -1 on some AMD GPUs.
const NO_CORRELATION: u64 = u64::MAX;
/// Maximum plausible duration, a year, in microseconds.
const LONGEST_TIME: f64 = 3.2e13;

/// Bits of the first byte of a record: its kind and its optional fields.
pub(super) const KIND: u8 = 7;
pub(super) const HAS_TENSORS: u8 = 1 << 3;
pub(super) const HAS_SCALARS: u8 = 1 << 4;
pub(super) const HAS_SEQUENCE: u8 = 1 << 5;
pub(super) const OF_FORWARD: u8 = 1 << 6;
/// For launches and work.
pub(super) const HAS_LAUNCH: u8 = 1 << 3;

/// Record kinds by number.
pub(super) const KINDS: [Category; 8] = [
    Category::Host(RangeKind::Operator),
    Category::Host(RangeKind::Annotation),
    Category::Host(RangeKind::Module),
    Category::Host(RangeKind::Part),
    Category::Launch,
    Category::Device(WorkKind::Kernel),
    Category::Device(WorkKind::Copy),
    Category::Device(WorkKind::Set),
];

/// How a part of the text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// After an event or within one.
    #[default]
    Text,
    /// After the bracket that closes the list of events.
    List,
    /// At text that cannot occur in the list.
    Unexpected,
}

/// Extent of the records of a part, to skip parts on a second pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    /// First start and last end on the host.
    pub(super) host: (f64, f64),
    /// Lowest and highest correlation id of device work.
    pub(super) correlations: (u64, u64),
}

impl Default for Extent {
    fn default() -> Self {
        Self { host: (f64::INFINITY, f64::NEG_INFINITY), correlations: (u64::MAX, 0) }
    }
}

/// Events of a part of a trace's text.
#[derive(Debug, Default)]
pub struct Events {
    /// Kept records, and their extent.
    pub(super) packed: Vec<u8>,
    pub(super) extent: Extent,
    /// Bytes of text read.
    pub(super) length: usize,
    pub(super) end: End,
    pub(super) count: u64,
    /// Events of kept kinds, and how many of them were kept.
    pub(super) records: u64,
    pub(super) kept: u64,
    pub(super) bad_times: Unusable,
    pub(super) malformed: Unusable,
    /// Peak allocated device memory in bytes, by device.
    pub(super) peak_memory: BTreeMap<u32, u64>,
    pub(super) foreign: Strangers,
}

/// Events that are not from PyTorch's profiler, and hints at their writer.
#[derive(Debug, Clone, Default)]
pub(super) struct Strangers {
    seen: u32,
    /// Some have a duration.
    pub(super) timed: bool,
    /// Processes have the names of the old autograd profiler.
    pub(super) autograd: bool,
    pub(super) categories: Vec<String>,
}

impl Strangers {
    /// Events inspected per part, and categories kept.
    const MOST: u32 = 256;
    const CATEGORIES: usize = 6;

    fn see(&mut self, event: &Event<'_>) {
        if self.seen >= Self::MOST {
            return;
        }
        self.seen += 1;
        self.timed |= event.is_complete();
        self.autograd |= matches!(event.pid, b"CPU functions" | b"CUDA functions");
        if event.is_complete() && !event.category.is_empty() {
            self.add(&unescape(&event.category[..event.category.len().min(60)]));
        }
    }

    fn add(&mut self, category: &str) {
        if self.categories.len() < Self::CATEGORIES && !self.categories.iter().any(|known| known == category) {
            self.categories.push(habitat_base::text::clean(category, 40));
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.timed |= other.timed;
        self.autograd |= other.autograd;
        other.categories.iter().for_each(|category| self.add(category));
    }
}

/// Numbers of texts, in order of first use.
type Numbers = HashMap<Box<[u8]>, u64, RandomState>;

/// Packs parts of a text one after another, and reuses its memory.
#[derive(Debug, Default)]
pub struct Packer {
    events: Events,
    names: Numbers,
    threads: Numbers,
    tensors: Numbers,
    scalars: Numbers,
    launches: Numbers,
    /// Buffer for several joined texts.
    key: Vec<u8>,
    last: Last,
}

/// Previous values, for delta encoding.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) start: u64,
    pub(super) correlation: u64,
    pub(super) sequence: u64,
}

/// Time as packed: ticks if they are exact.
#[derive(Clone, Copy)]
enum Time {
    Ticks(i64),
    Micros(f64),
    /// The duration of a kernel without one; packed as NaN.
    Unknown,
}

impl Time {
    fn read(value: &[u8]) -> Option<Self> {
        ticks(value).map(Self::Ticks).or_else(|| number(value).map(Self::Micros))
    }

    fn micros(self) -> f64 {
        match self {
            Self::Ticks(ticks) => micros(ticks),
            Self::Micros(time) => time,
            Self::Unknown => f64::NAN,
        }
    }
}

impl Packer {
    /// Packs the events of a text that starts between two events, up to the last complete one.
    pub fn read(&mut self, text: &[u8]) -> Events {
        for numbers in [&mut self.names, &mut self.threads, &mut self.tensors, &mut self.scalars, &mut self.launches] {
            // Clearing costs time in proportion to capacity, so a table with spare capacity is replaced.
            if numbers.capacity() > 64 * (numbers.len() + 1) {
                *numbers = Numbers::default();
            }
            numbers.clear();
        }
        self.last = Last::default();
        (self.events.length, self.events.end) = self.list(Cursor::new(text));
        std::mem::take(&mut self.events)
    }

    /// Packs the events of a list; returns the end position and how it ends.
    fn list(&mut self, mut cursor: Cursor<'_>) -> (usize, End) {
        let mut event = Event::default();
        loop {
            let Ok(byte) = cursor.next() else { return (cursor.at, End::Text) };
            let start = cursor.at;
            let read = match byte {
                b'{' => match event.read(&mut cursor) {
                    Ok(()) => {
                        self.event(&event);
                        self.events.count += 1;
                        Ok(())
                    }
                    Err(Stop::Bad) => self.malformed(&mut cursor, start),
                    Err(Stop::End) => Err(Stop::End),
                },
                b']' => return (start + 1, End::List),
                b',' => {
                    cursor.at += 1;
                    Ok(())
                }
                // Skip values that are not events (some writers end the list with null).
                _ => cursor.value().map(|_| ()),
            };
            match read {
                Ok(()) => {}
                Err(Stop::End) => return (start, End::Text),
                Err(Stop::Bad) => return (start, End::Unexpected),
            }
        }
    }

    /// Skips the malformed event at `start` and counts it.
    fn malformed(&mut self, cursor: &mut Cursor<'_>, start: usize) -> Result<(), Stop> {
        cursor.at = start;
        let text = cursor.balanced()?;
        let text = String::from_utf8_lossy(&text[..text.len().min(100)]);
        self.events.malformed.add(self.events.count, "", "event", &text);
        self.events.count += 1;
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>) {
        let Some(category) = event.category() else { return self.events.foreign.see(event) };
        if category == Category::Memory {
            return self.memory(event);
        }
        // Traces may be rebased to one of their steps, so earlier times are negative.
        let start = Time::read(event.ts).filter(|time| time.micros().is_finite());
        let Some(start) = start else { return self.bad_time(event, "ts", event.ts) };
        let is_kernel = category == Category::Device(WorkKind::Kernel);
        let duration = match Time::read(event.dur) {
            None if event.dur.is_empty() && is_kernel => Some(Time::Unknown),
            None if event.dur.is_empty() => Some(Time::Ticks(0)),
            Some(Time::Ticks(0)) if is_kernel && start.micros() == 0.0 => Some(Time::Unknown),
            given => given.filter(|time| (0.0..LONGEST_TIME).contains(&time.micros())),
        };
        let Some(duration) = duration else { return self.bad_time(event, "dur", event.dur) };
        self.events.records += 1;
        let kind = KINDS.iter().position(|kind| *kind == category).map_or(0, |kind| kind as u8);
        match category {
            Category::Host(of) => self.range(event, kind, of, start, duration),
            Category::Launch => {
                // Drop launches without a correlation id.
                let Some(correlation) = whole(event.args.correlation) else { return };
                // Only HIP launch events carry launch arguments, and only these two.
                let mut launch = [&b""[..]; LAUNCH];
                if event.name.starts_with(b"hip") {
                    launch[..2].copy_from_slice(&event.args.launch[..2]);
                }
                self.begin(event, kind, launch, start, duration);
                self.thread(event);
                self.correlation(correlation);
                self.host(start, duration);
            }
            Category::Device(_) | Category::Memory => {
                self.begin(event, kind, event.args.launch, start, duration);
                let correlation = whole(event.args.correlation).unwrap_or(NO_CORRELATION);
                self.correlation(correlation);
                let (least, greatest) = &mut self.events.extent.correlations;
                if correlation != NO_CORRELATION {
                    (*least, *greatest) = (correlation.min(*least), correlation.max(*greatest));
                }
                for (given, known) in [(event.args.device, event.pid), (event.args.stream, event.tid)] {
                    let number = whole(given).or_else(|| whole(known)).unwrap_or(0) as u32;
                    put(&mut self.events.packed, u64::from(number));
                }
            }
        }
        self.events.kept += 1;
    }

    fn host(&mut self, start: Time, duration: Time) {
        let (first, last) = &mut self.events.extent.host;
        (*first, *last) = (first.min(start.micros()), last.max(start.micros() + duration.micros()));
    }

    fn bad_time(&mut self, event: &Event<'_>, field: &'static str, value: &[u8]) {
        let name = unescape(&event.name[..event.name.len().min(200)]);
        let value = String::from_utf8_lossy(&value[..value.len().min(100)]);
        self.events.bad_times.add(self.events.count, &name, field, &value);
    }

    fn memory(&mut self, event: &Event<'_>) {
        // Type 1 is CUDA (ROCm uses the same).
        if let [Some(1), Some(device), Some(allocated)] = event.args.memory.map(whole) {
            peak(&mut self.events.peak_memory, device as u32, allocated);
        }
    }

    fn range(&mut self, event: &Event<'_>, kind: u8, of: RangeKind, start: Time, duration: Time) {
        let args = &event.args;
        let is_module = of == RangeKind::Module;
        let dims = if is_module { b"" } else { bounded(args.dims) };
        let values = if is_module { b"" } else { bounded(args.values) };
        let sequence = whole(args.sequence).filter(|number| !is_module && i64::try_from(*number).is_ok());
        let of_forward = !is_module && whole(args.forward).is_some_and(|id| id != 0);
        let flags = [
            (!dims.is_empty(), HAS_TENSORS),
            (!values.is_empty(), HAS_SCALARS),
            (sequence.is_some(), HAS_SEQUENCE),
            (of_forward, OF_FORWARD),
        ];
        let flags = flags.into_iter().filter(|(has, _)| *has).fold(kind, |all, (_, flag)| all | flag);
        self.events.packed.push(flags);
        self.host(start, duration);
        self.times(start, duration);
        self.name(event.name);
        self.thread(event);
        let out = &mut self.events.packed;
        if !dims.is_empty() {
            join(&mut self.key, [dims, bounded(args.types), bounded(args.strides)]);
            text(out, &mut self.tensors, &self.key);
        }
        if !values.is_empty() {
            text(out, &mut self.scalars, values);
        }
        if let Some(sequence) = sequence {
            difference(out, &mut self.last.sequence, sequence);
        }
    }

    /// Packs the fields common to launches and work.
    fn begin(&mut self, event: &Event<'_>, kind: u8, launch: [&[u8]; LAUNCH], start: Time, duration: Time) {
        let has_launch = launch.iter().any(|argument| !argument.is_empty());
        self.events.packed.push(kind | if has_launch { HAS_LAUNCH } else { 0 });
        self.times(start, duration);
        self.name(event.name);
        if has_launch {
            join(&mut self.key, launch.map(bounded));
            text(&mut self.events.packed, &mut self.launches, &self.key);
        }
    }

    fn times(&mut self, start: Time, duration: Time) {
        let out = &mut self.events.packed;
        let exact = |out: &mut Vec<u8>, time: f64| {
            out.push(1);
            out.extend_from_slice(&time.to_le_bytes());
        };
        match start {
            Time::Ticks(ticks) => {
                let ticks = ticks.cast_unsigned();
                put(out, zigzag(ticks.wrapping_sub(self.last.start)) << 1);
                self.last.start = ticks;
            }
            time => exact(out, time.micros()),
        }
        match duration {
            Time::Ticks(ticks) => put(out, ticks.cast_unsigned() << 1),
            time => exact(out, time.micros()),
        }
    }

    fn name(&mut self, name: &[u8]) {
        // One extra byte shows that the name is longer.
        text(&mut self.events.packed, &mut self.names, &name[..name.len().min(NAME_BYTES + 1)]);
    }

    fn thread(&mut self, event: &Event<'_>) {
        self.key.clear();
        self.key.extend_from_slice(&event.pid[..event.pid.len().min(23)]);
        self.key.push(b'/');
        self.key.extend_from_slice(&event.tid[..event.tid.len().min(24)]);
        text(&mut self.events.packed, &mut self.threads, &self.key);
    }

    fn correlation(&mut self, correlation: u64) {
        difference(&mut self.events.packed, &mut self.last.correlation, correlation);
    }
}

/// Updates the peak allocated memory of a device.
pub(super) fn peak(peaks: &mut BTreeMap<u32, u64>, device: u32, allocated: u64) {
    if peaks.len() < DEVICES || peaks.contains_key(&device) {
        let peak = peaks.entry(device).or_default();
        *peak = allocated.max(*peak);
    }
}

/// Text of an argument; empty if it has no content or is too long to keep.
fn bounded(value: &[u8]) -> &[u8] {
    if matches!(value, b"[]" | b"\"\"") || value.len() > LONGEST_TEXT { b"" } else { value }
}

/// Appends a number as a varint: seven bits per byte, lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Maps small differences of either sign to small numbers.
const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64) >> 63) as u64
}

pub(super) fn difference(out: &mut Vec<u8>, last: &mut u64, number: u64) {
    put(out, zigzag(number.wrapping_sub(*last)));
    *last = number;
}

/// Appends the number of a text, or 0 and the text itself if it is new.
fn text(out: &mut Vec<u8>, numbers: &mut Numbers, text: &[u8]) {
    if let Some(&number) = numbers.get(text) {
        return put(out, number);
    }
    put(out, 0);
    put(out, text.len() as u64);
    out.extend_from_slice(text);
    numbers.insert(text.into(), numbers.len() as u64 + 1);
}

/// Joins texts into one that [`apart`](super::unpack::apart) splits again.
fn join<const N: usize>(key: &mut Vec<u8>, texts: [&[u8]; N]) {
    key.clear();
    for text in texts {
        put(key, text.len() as u64);
        key.extend_from_slice(text);
    }
}

pub(super) fn micros(ticks: i64) -> f64 {
    ticks as f64 / TICKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_without_end_take_no_memory() {
        let memory = |number: usize| {
            format!(
                r#"{{"ph": "i", "name": "[memory]", "ts": 1, "args": {{"Device Type": 1, "Device Id": {number}, "Total Allocated": {number}}}}},"#
            )
        };
        let text: String = (0..2 * DEVICES).map(memory).collect();
        let peaks = Packer::default().read(text.as_bytes()).peak_memory;
        assert_eq!((peaks.len(), peaks[&7]), (DEVICES, 7));
    }

    /// Clearing a large table for each of 100,000 short lists would be slow.
    #[test]
    fn a_long_part_makes_short_ones_no_slower() {
        let event = |name: usize| format!(r#"{{"ph": "X", "cat": "cpu_op", "name": "{name}", "ts": 1}},"#);
        let mut packer = Packer::default();
        packer.read((0..10_000).map(event).collect::<String>().as_bytes());
        assert!(packer.names.capacity() >= 10_000);
        for _ in 0..2 {
            packer.read(event(1).as_bytes());
        }
        assert!(packer.names.capacity() < 1000);
    }
}
