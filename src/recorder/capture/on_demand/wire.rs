//! Messages between a process that supports on-demand tracing and the daemon it polls, as bytes: little endian, one
//! datagram per message. Parsing never panics, whatever arrives.
//!
//! | part | form |
//! | --- | --- |
//! | header | u64 size of the part after the header, char\[32\] kind, zero-padded |
//! | `ctxt` | i32 GPU, i32 process, i64 job → reply `ctxt`: i32 number of known processes |
//! | `req` | i32 kinds, i32 n, i64 job, i32 processes\[n\]: itself, its parent, … → reply `req`: text, empty for none |
//!
//! Derived from the traffic of `PyTorch` 2.15 (libkineto's `IpcFabricConfigClient`).

/// Size of the header in bytes.
pub const HEADER: usize = 40;
/// Maximum size of a datagram in bytes; a poll of a process with two hundred ancestors has 900.
pub const LARGEST: usize = 8192;
/// Bit of a poll's kinds: the process can take a request for an activity trace. It is off while any such trace is
/// recorded or written.
pub const TAKES_ACTIVITIES: u32 = 2;
/// Maximum number of processes in a poll.
const MOST_PROCESSES: usize = 1024;

/// A message from a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Greeting (sent only if the process sees a GPU).
    Context {
        /// Device number.
        gpu: i32,
        /// Process id in its own namespace.
        pid: i32,
        /// Job of the batch system; 0 without one.
        job: i64,
    },
    /// Poll for requests.
    Poll {
        /// Bits of the requests it can take now; [`TAKES_ACTIVITIES`].
        kinds: u32,
        /// Job of the batch system; 0 without one.
        job: i64,
        /// Ids of the process, its parent and so on, in its own namespace.
        pids: Vec<i32>,
    },
}

/// Reason why a datagram is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Shorter than its kind requires.
    #[error("{there} bytes, but at least {needed} are needed")]
    Short {
        /// Actual size in bytes.
        there: usize,
        /// Required size in bytes.
        needed: usize,
    },
    /// The header has a wrong size.
    #[error("the header announces {said} bytes, but {there} follow")]
    Size {
        /// Size in the header.
        said: u64,
        /// Actual size.
        there: usize,
    },
    /// The sender is unknown.
    #[error("unknown sender")]
    Anonymous,
    /// Unknown kind of message.
    #[error("unknown kind {0:?}")]
    Kind(String),
    /// Invalid number.
    #[error("{what} {value}")]
    Value {
        /// Name of the field.
        what: &'static str,
        /// The number.
        value: i64,
    },
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn i64_at(bytes: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Kind and body of a datagram.
fn open(datagram: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let (Some(said), Some(kind), Some(body)) = (i64_at(datagram, 0), datagram.get(8..HEADER), datagram.get(HEADER..))
    else {
        return Err(WireError::Short { there: datagram.len(), needed: HEADER });
    };
    let said = said.cast_unsigned();
    if said != body.len() as u64 {
        return Err(WireError::Size { said, there: body.len() });
    }
    let end = kind.iter().position(|byte| *byte == 0).unwrap_or(kind.len());
    Ok((&kind[..end], body))
}

/// Parses a message of a process.
///
/// # Errors
/// [`WireError`]; the datagram should then get no reply.
pub fn read(datagram: &[u8]) -> Result<Message, WireError> {
    let (kind, body) = open(datagram)?;
    let short = WireError::Short { there: body.len(), needed: 16 };
    let process = |pid: i32| {
        if pid > 0 { Ok(pid) } else { Err(WireError::Value { what: "process", value: pid.into() }) }
    };
    match kind {
        b"ctxt" => {
            let (Some(gpu), Some(pid), Some(job)) = (i32_at(body, 0), i32_at(body, 4), i64_at(body, 8)) else {
                return Err(short);
            };
            Ok(Message::Context { gpu, pid: process(pid)?, job })
        }
        b"req" => {
            let (Some(kinds), Some(count), Some(job)) = (i32_at(body, 0), i32_at(body, 4), i64_at(body, 8)) else {
                return Err(short);
            };
            let wrong = || WireError::Value { what: "number of processes", value: count.into() };
            let count = usize::try_from(count).ok().filter(|n| (1..=MOST_PROCESSES).contains(n)).ok_or_else(wrong)?;
            let needed = 16 + 4 * count;
            let pids: Option<Vec<i32>> = (0..count).map(|index| i32_at(body, 16 + 4 * index)).collect();
            let pids = pids.ok_or(WireError::Short { there: body.len(), needed })?;
            process(pids[0])?;
            Ok(Message::Poll { kinds: kinds.cast_unsigned(), job, pids })
        }
        other => Err(WireError::Kind(habitat_base::text::clean(&String::from_utf8_lossy(other), 40))),
    }
}

fn frame(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(HEADER + body.len());
    datagram.extend_from_slice(&(body.len() as u64).to_le_bytes());
    let mut padded = [0; 32];
    padded[..kind.len()].copy_from_slice(kind);
    datagram.extend_from_slice(&padded);
    datagram.extend_from_slice(body);
    datagram
}

/// Reply to [`Message::Context`].
pub(crate) fn context_reply(known: u32) -> Vec<u8> {
    frame(b"ctxt", &known.to_le_bytes())
}

/// Reply to [`Message::Poll`]: the text of a request, or empty for none.
pub fn poll_reply(request: &str) -> Vec<u8> {
    frame(b"req", request.as_bytes())
}

impl Message {
    /// Encodes the message as a process does.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            Self::Context { gpu, pid, job } => {
                body.extend_from_slice(&gpu.to_le_bytes());
                body.extend_from_slice(&pid.to_le_bytes());
                body.extend_from_slice(&job.to_le_bytes());
                frame(b"ctxt", &body)
            }
            Self::Poll { kinds, job, pids } => {
                body.extend_from_slice(&kinds.to_le_bytes());
                body.extend_from_slice(&(pids.len() as u32).to_le_bytes());
                body.extend_from_slice(&job.to_le_bytes());
                for pid in pids {
                    body.extend_from_slice(&pid.to_le_bytes());
                }
                frame(b"req", &body)
            }
        }
    }
}

/// Text of a reply to a poll, as a process reads it.
///
/// # Errors
/// [`WireError`] if it is not such a reply.
pub fn read_poll_reply(datagram: &[u8]) -> Result<String, WireError> {
    match open(datagram)? {
        (b"req", body) => Ok(String::from_utf8_lossy(body).into_owned()),
        (other, _) => Err(WireError::Kind(habitat_base::text::clean(&String::from_utf8_lossy(other), 40))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message of `PyTorch` 2.15.0, byte for byte, except for the process ids.
    #[test]
    fn a_poll_as_recorded() {
        let mut bytes = vec![0_u8; 80];
        bytes[0] = 40;
        bytes[8..11].copy_from_slice(b"req");
        bytes[40] = 2;
        bytes[44] = 6;
        for (index, pid) in [29_964_i32, 29_963, 29_912, 29_911, 22_665, 22_643].iter().enumerate() {
            bytes[56 + 4 * index..60 + 4 * index].copy_from_slice(&pid.to_le_bytes());
        }
        let Message::Poll { kinds, job, pids } = read(&bytes).unwrap() else { panic!() };
        assert_eq!((kinds & TAKES_ACTIVITIES, job, pids.len(), pids[0]), (2, 0, 6, 29_964));
        let context = Message::Context { gpu: 1, pid: 7, job: 9 };
        assert_eq!(read(&context.to_bytes()), Ok(context));
    }

    #[test]
    fn what_is_no_message_says_why() {
        assert_eq!(read(b""), Err(WireError::Short { there: 0, needed: 40 }));
        let poll = Message::Poll { kinds: 2, job: 0, pids: vec![1, 2] }.to_bytes();
        assert!(matches!(read(&poll[..poll.len() - 1]), Err(WireError::Size { .. })));
        assert!(matches!(read(&frame(b"boo", b"")), Err(WireError::Kind(kind)) if kind == "boo"));
        assert!(matches!(read(&frame(b"ctxt", b"1234")), Err(WireError::Short { needed: 16, .. })));
        for count in [0_i32, -1, 3, 5000] {
            let mut bytes = poll.clone();
            bytes[44..48].copy_from_slice(&count.to_le_bytes());
            assert!(read(&bytes).is_err(), "{count}");
        }
        let nobody = Message::Poll { kinds: 2, job: 0, pids: vec![0] }.to_bytes();
        assert!(matches!(read(&nobody), Err(WireError::Value { what: "process", .. })));
    }

    #[test]
    fn replies_have_the_form_of_the_protocol() {
        let reply = poll_reply("A=1\n");
        assert_eq!((reply.len(), &reply[..8], &reply[8..12]), (44, &4_u64.to_le_bytes()[..], &b"req\0"[..]));
        assert_eq!(read_poll_reply(&reply).unwrap(), "A=1\n");
        assert_eq!(context_reply(1).len(), 44);
        assert!(read_poll_reply(&context_reply(1)).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let _ = read_poll_reply(&bytes);
        }

        #[test]
        fn any_body_under_a_right_header_is_read_without_panic(
            kind in prop_oneof![Just(&b"req"[..]), Just(&b"ctxt"[..])],
            body in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = read(&frame(kind, &body));
        }

        #[test]
        fn a_message_is_read_back(
            kinds in any::<u32>(), job in any::<i64>(), gpu in any::<i32>(),
            pids in proptest::collection::vec(1_i32.., 1..50),
        ) {
            let context = Message::Context { gpu, pid: pids[0], job };
            prop_assert_eq!(read(&context.to_bytes()), Ok(context));
            let poll = Message::Poll { kinds, job, pids };
            prop_assert_eq!(read(&poll.to_bytes()), Ok(poll));
        }

        #[test]
        fn a_message_cut_anywhere_is_refused(pids in proptest::collection::vec(1_i32.., 1..20), cut in 0.0..1.0) {
            let bytes = Message::Poll { kinds: 2, job: 0, pids }.to_bytes();
            let length = (bytes.len() as f64 * cut) as usize;
            prop_assert!(read(&bytes[..length]).is_err());
        }
    }
}
