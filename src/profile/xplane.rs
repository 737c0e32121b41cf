//! XPlane recordings (`*.xplane.pb`, of JAX and everything else that runs on XLA) made a
//! [`Profile`](super::Profile).
//!
//! A recording has a plane for each GPU with a line for each stream; every kernel names
//! the instruction of the compiled program that launched it, and a plane `/host:metadata`
//! has the programs, with the shapes of every instruction. So the operations of the
//! profile are instructions: products and convolutions under PyTorch's names, which the
//! predictors know, the rest under their own.
//!
//! Where the steps are: the recorder's own marks (a line `Steps`, or
//! `jax.profiler.StepTraceAnnotation` on the host), else the runs of the compiled program
//! that takes most of the GPU's time.

mod device;
mod hlo;
mod host;
mod recording;
mod space;
mod wire;

use std::collections::{BTreeMap, HashMap};

use self::hlo::Program;
use self::host::host_steps;
use self::recording::Recording;
use self::space::{Plane, Stat};
pub use self::wire::WireError;
use super::kineto::{self, Import, ImportOptions, KinetoError, NoSuchDevice};

/// Why a recording could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum XplaneError {
    /// The bytes.
    #[error("damaged or cut off at {0}; record or copy it again")]
    Damaged(#[from] WireError),
    /// No GPU in it.
    #[error("no GPU in the recording{}; only steps that ran on a GPU can be imported", planes(.found))]
    NoGpu {
        /// The planes there are.
        found: Vec<String>,
    },
    /// GPUs that did nothing.
    #[error(
        "nothing ran on a GPU while it was recorded; record a few whole steps, and wait for them (block_until_ready) before the recording ends"
    )]
    NoKernels,
    /// None of them is the one asked for.
    #[error(transparent)]
    NoSuchDevice(#[from] NoSuchDevice),
    /// As with every trace.
    #[error(transparent)]
    Trace(#[from] KinetoError),
}

fn planes(found: &[String]) -> String {
    if found.is_empty() { String::new() } else { format!(" (its devices are {})", found.join(", ")) }
}

/// Whether the beginning of a file is that of such a recording: its first field is a plane
/// whose name begins as those of planes do.
pub fn looks_like_xplane(head: &[u8]) -> bool {
    let Some(rest) = head.strip_prefix(&[0x0a]) else { return false };
    // The length of the plane, at most ten bytes, then its number, if any, and its name.
    let length = rest.iter().take(10).take_while(|byte| **byte >= 0x80).count() + 1;
    let Some(mut plane) = rest.get(length..) else { return false };
    if plane.first() == Some(&0x08) {
        let number = plane[1..].iter().take(10).take_while(|byte| **byte >= 0x80).count() + 2;
        plane = plane.get(number..).unwrap_or_default();
    }
    matches!(plane, [0x12, _, name @ ..] if ["/host:", "/device:", "Task Environment", "/job:"].iter().any(|start| name.starts_with(start.as_bytes())))
}

/// Imports a recording; `device` takes one of several GPUs.
///
/// # Errors
/// [`XplaneError`], in words that say what to do.
pub fn import(bytes: &[u8], options: &ImportOptions<'_>, device: Option<u32>) -> Result<Import, XplaneError> {
    let mut programs = Programs::default();
    let mut gpus: BTreeMap<u32, Plane<'_>> = BTreeMap::new();
    let mut hosts = Vec::new();
    let mut found = Vec::new();
    for message in space::planes(bytes)? {
        let plane = Plane::read(message)?;
        if let Some(number) = plane.name.strip_prefix("/device:GPU:") {
            gpus.insert(number.trim().parse().unwrap_or(0), plane);
        } else if plane.name == "/host:metadata" {
            programs.read(&plane)?;
        } else if plane.name.starts_with("/host:") {
            hosts.push(plane);
        } else if let Some(name) = plane.name.strip_prefix("/device:").filter(|name| !name.starts_with("CUSTOM")) {
            found.push(crate::text::clean(name, 40));
        }
    }
    if gpus.is_empty() {
        return Err(XplaneError::NoGpu { found });
    }
    let marks = host_steps(&hosts)?;
    let mut recordings = Vec::with_capacity(gpus.len());
    for (number, plane) in &gpus {
        recordings.push((Recording::read(*number, plane, &programs)?, plane));
    }
    let time = |recording: &Recording<'_>| match recording.events.as_slice() {
        [] => Vec::new(),
        events => vec![(recording.device, events.iter().map(|event| event.end - event.start).sum())],
    };
    let parts: Vec<Vec<(u32, f64)>> = recordings.iter().map(|(recording, _)| time(recording)).collect();
    let ranks = kineto::choose(&parts, device, "GPUs")?;
    if ranks.places.is_empty() {
        return Err(XplaneError::NoKernels);
    }
    let mut imports = Vec::with_capacity(ranks.places.len());
    for (place, (mut recording, plane)) in recordings.into_iter().enumerate() {
        if ranks.places.contains(&place) {
            recording.steps(plane, &marks)?;
            imports.push(recording.import(plane, options)?);
        }
    }
    let mut import = kineto::combine(imports)?;
    if let Some(recording) = &mut import.profile.recording {
        recording.notes.extend(ranks.note);
    }
    Ok(import)
}

/// The compiled programs, by number and by name.
#[derive(Default)]
struct Programs {
    by_number: HashMap<u64, Program>,
    by_name: HashMap<String, u64>,
    unread: u64,
}

impl Programs {
    fn read(&mut self, plane: &Plane<'_>) -> Result<(), WireError> {
        let proto = plane.number_of("Hlo Proto").or_else(|| plane.number_of("hlo_proto"));
        for (number, kind) in &plane.kinds {
            let stat = kind.stats.iter().find(|(name, _)| Some(*name) == proto);
            if let Some((_, Stat::Text(proto))) = stat {
                let program = hlo::program(*proto)?;
                if program.operators.is_empty() {
                    self.unread += 1;
                }
                self.by_number.insert(*number, program);
                // "jit_step(17)"
                let name = kind.name.rsplit_once('(').map_or(kind.name.as_str(), |(name, _)| name);
                self.by_name.insert(name.to_owned(), *number);
            }
        }
        Ok(())
    }

    fn find(&self, number: Option<u64>, name: &str) -> Option<&Program> {
        let name = name.rsplit_once('(').map_or(name, |(name, _)| name);
        let by_name = || self.by_number.get(self.by_name.get(name)?);
        number.and_then(|number| self.by_number.get(&number)).or_else(by_name)
    }
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
            let _ = import(&bytes, &ImportOptions::default(), None);
        }
    }
}
