//! Times of windows, and whether the windows of several ranks cover the same steps.
//!
//! Ranks that train together wait for one another in every step, so windows of the same steps start within a fraction
//! of a step, and windows one step apart do not. Iteration numbers cannot be compared, because traces do not contain
//! them.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use crate::capture::folder;

/// Start and end of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Start in microseconds since 1970.
    pub start_us: f64,
    /// End in microseconds since 1970.
    pub end_us: f64,
}

impl Span {
    /// Length in microseconds.
    pub fn duration_us(self) -> f64 {
        self.end_us - self.start_us
    }
}

/// Bytes at both ends of a trace that contain its time base and its marks.
const ENDS: usize = 1 << 20;

/// The window of a trace, from its marks `Iteration Start` and `Record Window End`.
///
/// # Errors
/// Errors of reading the file.
pub fn span(trace: &Path) -> io::Result<Option<Span>> {
    let mut file = folder::open(trace)?;
    let mut head = Vec::new();
    file.by_ref().take(ENDS as u64).read_to_end(&mut head)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ENDS as u64)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    Ok(between(&head, &tail))
}

fn between(head: &[u8], tail: &[u8]) -> Option<Span> {
    let base = number_after(head, b"\"baseTimeNanoseconds\"").unwrap_or(0.0) / 1e3;
    let time = |mark: &[u8]| {
        let at = find(tail, mark)?;
        number_after(&tail[at..], b"\"ts\"")
    };
    let (start, end) = (time(b"\"Iteration Start")?, time(b"\"Record Window End\"")?);
    (end > start).then_some(Span { start_us: base + start, end_us: base + end })
}

fn find(text: &[u8], pattern: &[u8]) -> Option<usize> {
    text.windows(pattern.len()).position(|window| window == pattern)
}

fn number_after(text: &[u8], key: &[u8]) -> Option<f64> {
    let rest = &text[find(text, key)? + key.len()..];
    let start = rest.iter().position(|byte| byte.is_ascii_digit() || *byte == b'-')?;
    // Between a key and its number there may be only a colon and spaces.
    if !rest[..start].iter().all(|byte| matches!(byte, b':' | b' ')) {
        return None;
    }
    let end = rest[start..]
        .iter()
        .position(|byte| !matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E'))
        .map_or(rest.len(), |length| start + length);
    std::str::from_utf8(&rest[start..end]).ok()?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether windows of `iterations` iterations each cover the same steps.
pub(crate) fn are_aligned(spans: &[Span], iterations: u32) -> bool {
    let starts = spans.iter().map(|span| span.start_us);
    let (Some(first), Some(last)) = (starts.clone().reduce(f64::min), starts.reduce(f64::max)) else { return true };
    iteration_us(spans, iterations).is_none_or(|iteration| last - first < 0.5 * iteration)
}

/// Length of an iteration in microseconds, from the shortest window.
pub(crate) fn iteration_us(spans: &[Span], iterations: u32) -> Option<f64> {
    spans.iter().map(|span| span.duration_us() / f64::from(iterations.max(1))).reduce(f64::min)
}

/// First multiple of iterations to start at, before the step time is known.
pub(crate) const FIRST_ROUND_UP: u32 = 16;
/// Length of the wait for a common iteration, as a multiple of the time between the first and the last rank's request.
/// With 8, one try in eight falls on both sides of such an iteration.
const LONGER: f64 = 8.0;
/// Maximum wait of the ranks due to rounding up, in seconds, if possible.
const LONGEST_S: f64 = 60.0;

/// Multiple of iterations to start at after a try with `last` failed; the requests were `spread` apart, and an
/// iteration takes `iteration_us`.
pub(crate) fn next_round_up(last: u32, spread: Duration, iteration_us: f64) -> u32 {
    let iteration = (iteration_us / 1e6).max(1e-6);
    let wanted = (LONGER * spread.as_secs_f64().max(0.05)).min(LONGEST_S) / iteration;
    let wanted = (wanted.ceil().clamp(1.0, f64::from(1_u32 << 20)) as u32).next_power_of_two();
    wanted.max(last.saturating_mul(2)).min(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_found_in_both_ways_of_writing() {
        let new = br#"{"baseTimeNanoseconds":1790857026000000000,"traceEvents":[{"ph":"i","name":"Iteration Start: PyTorch Profiler","pid":"Traces","ts":1000.5},{"ph":"i","s":"g","name":"Record Window End","pid":"","ts":3000.5}]}"#;
        let old = br#"{"traceEvents": [{"name": "Iteration Start: PyTorch Profiler", "ph": "i", "ts": 1000}, {"name": "Record Window End", "ph": "i", "ts": 3000}]}"#;
        let span = between(new, new).unwrap();
        assert_eq!((span.start_us, span.duration_us()), (1_790_857_026_001_000.5, 2000.0));
        assert_eq!(between(old, old).unwrap().start_us, 1000.0);
        for broken in [&b""[..], b"{}", br#""Iteration Start" "ts":"x" "Record Window End" "ts":1"#] {
            assert_eq!(between(broken, broken), None);
        }
    }

    #[test]
    fn windows_a_step_apart_are_told_from_windows_of_one_step() {
        let at = |start: f64| Span { start_us: start, end_us: start + 40_000.0 };
        assert!(are_aligned(&[at(0.0), at(3_000.0)], 4));
        assert!(!are_aligned(&[at(0.0), at(10_000.0)], 4));
        assert!(are_aligned(&[at(0.0)], 4) && are_aligned(&[], 4));
        assert_eq!(iteration_us(&[at(0.0)], 4), Some(10_000.0));
    }

    #[test]
    fn the_next_try_waits_for_longer_than_the_requests_are_apart() {
        // 0.3 s apart at 10 ms: 8 × 0.3 s are 240 iterations.
        assert_eq!(next_round_up(16, Duration::from_millis(300), 10_000.0), 256);
        assert_eq!(next_round_up(16, Duration::from_millis(300), 5e6), 32);
        assert!(next_round_up(1 << 20, Duration::from_secs(5), 1.0) <= 1 << 20);
    }
}
