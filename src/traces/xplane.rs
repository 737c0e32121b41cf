//! XPlane recordings (`*.xplane.pb`) of JAX and other programs on XLA.
//!
//! A recording has a plane per GPU with a line per stream. Every kernel names the instruction of the compiled program
//! that launched it, and the plane `/host:metadata` has the programs with the shapes of every instruction. The
//! operators of the trace are therefore instructions: products and convolutions under PyTorch's names, which the
//! predictors know, the others under their own.
//!
//! Steps come from the recorder's own marks (a line `Steps`, or `jax.profiler.StepTraceAnnotation` on the host),
//! otherwise from the runs of the compiled program with the most GPU time.

mod device;
mod hlo;
mod host;
mod programs;
mod recording;
mod space;
mod wire;

use std::collections::BTreeMap;

use self::host::host_steps;
use self::programs::Programs;
use self::recording::Recording;
use self::space::Plane;
use super::{EachRank, Fault, Format, ReadOptions, TraceError, ranks};

/// Whether a file starts like an XPlane recording: its first field is a plane with one of the usual name prefixes.
pub fn looks_like_xplane(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0x0a]) else { return false };
    // Length of the plane, at most ten bytes, then its optional number and its name.
    let length = rest.iter().take(10).take_while(|byte| **byte >= 0x80).count() + 1;
    let Some(mut plane) = rest.get(length..) else { return false };
    if plane.first() == Some(&0x08) {
        let number = plane[1..].iter().take(10).take_while(|byte| **byte >= 0x80).count() + 2;
        plane = plane.get(number..).unwrap_or_default();
    }
    matches!(plane, [0x12, _, name @ ..] if ["/host:", "/device:", "Task Environment", "/job:"].iter().any(|start| name.starts_with(start.as_bytes())))
}

/// Reads a recording and passes the trace of every rank's GPU to `each`. Returns a note on omitted GPUs.
pub(crate) fn read(
    bytes: &[u8],
    options: &ReadOptions<'_>,
    each: &mut EachRank<'_>,
) -> Result<Option<String>, TraceError> {
    let fault = |fault| Format::Xplane.error(fault);
    let mut programs = Programs::default();
    let mut gpus: BTreeMap<u32, Plane<'_>> = BTreeMap::new();
    let mut hosts = Vec::new();
    let mut found = Vec::new();
    let mut room = space::room();
    for message in space::planes(bytes, &mut room).map_err(fault)? {
        let plane = Plane::read(message, &mut room).map_err(fault)?;
        if let Some(number) = plane.name.strip_prefix("/device:GPU:") {
            gpus.insert(number.trim().parse().unwrap_or(0), plane);
        } else if plane.name == "/host:metadata" {
            programs.read(&plane).map_err(fault)?;
        } else if plane.name.starts_with("/host:") {
            hosts.push(plane);
        } else if let Some(name) = plane.name.strip_prefix("/device:").filter(|name| !name.starts_with("CUSTOM")) {
            found.push(habitat_base::text::clean(name, 40));
        }
    }
    if gpus.is_empty() {
        return Err(fault(Fault::NoGpu { found }));
    }
    let marks = host_steps(&hosts).map_err(fault)?;
    let mut recordings = Vec::with_capacity(gpus.len());
    for (number, plane) in &gpus {
        recordings.push((Recording::read(*number, plane, &programs).map_err(fault)?, plane));
    }
    let time = |recording: &Recording<'_>| match recording.events.as_slice() {
        [] => Vec::new(),
        events => vec![(recording.device, events.iter().map(|event| event.end - event.start).sum())],
    };
    let parts: Vec<Vec<(u32, f64)>> = recordings.iter().map(|(recording, _)| time(recording)).collect();
    let ranks = ranks::choose(&parts, options.device, "GPUs").map_err(fault)?;
    if ranks.chosen.is_empty() {
        let remedy = "record a few whole steps, and wait for them (block_until_ready) before the recording ends";
        return Err(fault(Fault::Idle { remedy }));
    }
    for (index, (mut recording, plane)) in recordings.into_iter().enumerate() {
        if ranks.chosen.contains(&index) {
            recording.find_steps(plane, &marks).map_err(fault)?;
            let trace = recording.trace(plane, options);
            trace.check()?;
            trace.needs_kernels()?;
            each(trace)?;
        }
    }
    Ok(ranks.note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recordings_are_told_by_their_first_plane() {
        assert!(looks_like_xplane(b"\x0a\xc0\x01\x08\x07\x12\x0d/device:GPU:0"));
        assert!(looks_like_xplane(b"\x0a\x05\x12\x09/host:CPU"));
        for other in [&b"{\"traceEvents\""[..], b"", b"\x0a", b"\x0a\x05\x12\x03abc", b"SQLite format 3\0", b"\n\n[1]"]
        {
            assert!(!looks_like_xplane(other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = looks_like_xplane(&bytes);
            let _ = read(&bytes, &ReadOptions::default(), &mut |_| Ok(()));
        }
    }
}
