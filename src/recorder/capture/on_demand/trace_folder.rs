//! Folders for the processes' traces: private, and writable for each process.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::client::Client;
use super::error::AttachError;
use super::process::{self, Known};
use super::request;
use crate::capture::folder::{self, Folder, remove_dead};

/// Assumed maximum size of a trace in bytes: one of 400,000 events.
const LONGEST_TRACE: u64 = 200_000_000;

/// Folder for the traces of one process.
pub(super) struct TraceFolder {
    /// Path as we see it.
    pub(super) folder: PathBuf,
    /// Path as the process sees it.
    pub(super) named: PathBuf,
    /// The process's id in its own namespace.
    own_pid: i32,
}

impl TraceFolder {
    pub(super) fn trace(&self, name: &str) -> PathBuf {
        request::written_by(&self.folder.join(name), self.own_pid)
    }

    /// Name under which the process writes until the trace is complete (newer libkineto).
    pub(super) fn unfinished(&self, name: &str) -> PathBuf {
        let mut path = self.trace(name).into_os_string();
        path.push(".tmp");
        path.into()
    }
}

/// Creates a folder that each process can write to.
pub(super) fn places(
    known: &BTreeMap<u32, Known>,
    clients: &BTreeMap<u32, Client>,
    members: &[u32],
    folders: &mut Vec<Folder>,
) -> Result<BTreeMap<u32, TraceFolder>, AttachError> {
    let own = process::own_uid().unwrap_or(0);
    let mut places = BTreeMap::new();
    let mut shared: Option<PathBuf> = None;
    for pid in members {
        let (Some(known), Some(client)) = (known.get(pid), clients.get(pid)) else { continue };
        let uid = known.facts.uid;
        if own != 0 && uid != own {
            return Err(AttachError::OtherUser { pid: *pid, uid });
        }
        if let Some(bytes) = process::deadly_file_size(*pid).filter(|bytes| *bytes < LONGEST_TRACE) {
            return Err(AttachError::FileSize { pid: *pid, bytes });
        }
        let own_pid = client.lineage.first().copied().unwrap_or_default();
        let is_plain = !known.facts.is_contained && uid == own;
        let folder = if let Some(folder) = shared.clone().filter(|_| is_plain) {
            folder
        } else {
            let is_contained = known.facts.is_contained;
            let below = process::temporary(*pid, is_contained);
            let failed = |source| AttachError::Traces { pid: *pid, is_contained, source };
            if is_plain {
                remove_dead(&below);
            }
            let made = Folder::new(&below).map_err(failed)?;
            if uid != own {
                std::os::unix::fs::chown(made.path(), Some(uid), None).map_err(failed)?;
            }
            let folder = made.path().to_owned();
            if is_plain {
                shared = Some(folder.clone());
            }
            folders.push(made);
            folder
        };
        let named = Path::new("/tmp").join(folder.file_name().unwrap_or_default());
        places.insert(*pid, TraceFolder { folder, named, own_pid });
    }
    Ok(places)
}

/// Whether a trace has its closing brace.
pub(super) fn ends(trace: &Path) -> bool {
    let tail = || -> std::io::Result<Vec<u8>> {
        let mut file = folder::open(trace)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(tail)
    };
    tail().is_ok_and(|tail| tail.trim_ascii_end().ends_with(b"}"))
}
