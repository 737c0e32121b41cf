//! Messages in frames of the hook's protocol: the length of the text as a 32-bit little-endian number, then one JSON
//! object.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::settings::VERSION;
use crate::system;

/// Longest time that a message may take before we assume the listener is gone.
const PATIENCE: Duration = Duration::from_millis(500);

/// The connection to `habitat-tui`; closed once the listener is gone.
#[derive(Debug)]
pub struct Line {
    stream: Option<UnixStream>,
}

impl Line {
    /// Connects and sends hello.
    ///
    /// # Errors
    /// If there is no listener.
    pub fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut line = Self { stream: Some(stream) };
        line.say(&json!({"type": "hello", "version": VERSION, "pid": std::process::id(), "stage": "cuda"}));
        Ok(line)
    }

    /// Sends one message. Never fails: an error closes the connection.
    pub fn say(&mut self, message: &Value) {
        let Some(stream) = &mut self.stream else { return };
        if frame(&message.to_string()).is_none_or(|frame| system::send(stream.as_raw_fd(), &frame).is_err()) {
            self.stream = None;
        }
    }

    /// The connection's descriptor, which children of this process close.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.stream.as_ref().map(AsRawFd::as_raw_fd)
    }
}

fn frame(text: &str) -> Option<Vec<u8>> {
    let length = u32::try_from(text.len()).ok()?;
    Some([&length.to_le_bytes()[..], text.as_bytes()].concat())
}

/// A window opened; `cost_us` is how long that took.
pub fn opened(cost: Duration) -> Value {
    json!({"type": "window", "state": "opened", "step": 0, "cost_us": micros(cost)})
}

/// A window closed.
pub fn closed(cost: Duration) -> Value {
    json!({"type": "window", "state": "closed", "step": 0, "cost_us": micros(cost)})
}

/// The trace is on disk.
pub fn written(file: &str, bytes: u64, cost: Duration, kernels: u64, lost: u64, seconds: f64) -> Value {
    json!({
        "type": "window", "state": "written", "number": 1, "first": 0, "last": 0, "file": file, "bytes": bytes,
        "cost_us": micros(cost), "kernels": kernels, "lost": lost, "seconds": seconds,
    })
}

/// The window gave no recording.
pub fn dropped(reason: &str) -> Value {
    json!({"type": "window", "state": "dropped", "step": 0, "reason": reason})
}

/// This process cannot be recorded.
pub fn refused(reason: &str) -> Value {
    json!({"type": "refused", "reason": reason})
}

/// The process ends.
pub fn exit() -> Value {
    json!({"type": "exit", "steps": 0})
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_greeting_goes_first_and_silence_follows_the_listeners_end() {
        let folder = std::env::temp_dir().join(format!("habitat-cupti-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let mut line = Line::open(&path).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let mut length = [0; 4];
        peer.read_exact(&mut length).unwrap();
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        peer.read_exact(&mut text).unwrap();
        let hello: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&hello["type"], &hello["stage"]), (&json!("hello"), &json!("cuda")));
        drop((peer, listener));
        for _ in 0..3 {
            line.say(&exit());
        }
        assert_eq!(line.descriptor(), None);
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Line::open(&path).is_err());
    }
}
