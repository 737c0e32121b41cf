//! The private socket that the hook speaks to.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread;

use super::folder::{self, Folder};
use super::messages::{self, Hello, Message};
use super::{CaptureError, Event};

/// Bytes of a Unix socket's address, its closing zero not counted: 108 on Linux, 104 on
/// macOS and the BSDs (`sun_path` in unix(7) and unix(4)).
pub(super) const LONGEST: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A folder with a socket, removed when dropped.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    /// Where it is not in the recording's own folder.
    _folder: Option<Folder>,
}

/// The process that our own closing word names.
pub(super) const OURSELVES: u32 = 0;

impl Socket {
    /// Connects last: connections are taken in order, so once this one is heard, all
    /// that were made before are.
    pub(super) fn close_the_line(&self) -> io::Result<()> {
        let version = messages::VERSION;
        let text = format!(r#"{{"type":"hello","version":{version},"pid":{OURSELVES},"stage":"python"}}"#);
        let mut stream = UnixStream::connect(&self.path)?;
        stream.write_all(&u32::try_from(text.len()).unwrap_or_default().to_le_bytes())?;
        stream.write_all(text.as_bytes())
    }
}

/// Listens in `folder`, or in a private folder of its own where that name is too long,
/// and sends on what is said.
pub(super) fn listen(folder: &Path, short: &Path, events: Sender<Event>) -> Result<Socket, CaptureError> {
    let failed = |path: &Path, source| CaptureError::Socket { path: path.to_owned(), source };
    let mut path = folder.join("socket");
    let mut own = None;
    if path.as_os_str().as_bytes().len() > LONGEST {
        folder::remove_dead(short);
        let folder = Folder::new(short).map_err(|source| failed(short, source))?;
        path = folder.path().join("socket");
        own = Some(folder);
        if path.as_os_str().as_bytes().len() > LONGEST {
            return Err(CaptureError::SocketPath { path });
        }
    }
    let listener = UnixListener::bind(&path).map_err(|source| failed(&path, source))?;
    thread::spawn(move || {
        let mut number = 0_u64;
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            number += 1;
            let (events, number) = (events.clone(), number);
            if events.send(Event::Connected).is_err() {
                return;
            }
            thread::spawn(move || {
                let problem = converse(stream, &events).err().map(|error| error.to_string());
                // Nobody waits for it any more where this fails.
                let _ = events.send(Event::Disconnected { connection: number, problem });
            });
        }
    });
    Ok(Socket { path, _folder: own })
}

/// Reads one connection to its end.
fn converse(stream: UnixStream, events: &Sender<Event>) -> io::Result<()> {
    let mut stream = io::BufReader::new(stream);
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let pid = match messages::read(&mut stream)? {
        None => return Ok(()),
        Some(Message::Hello(Hello { version, .. })) if version != messages::VERSION => {
            return wrong(format!("the hook speaks version {version}, this program {}", messages::VERSION));
        }
        Some(Message::Hello(hello)) => {
            let pid = hello.pid;
            let _ = events.send(Event::Message { pid, message: Message::Hello(hello) });
            pid
        }
        Some(other) => return wrong(format!("{other:?} before a greeting")),
    };
    while let Some(message) = messages::read(&mut stream)? {
        if events.send(Event::Message { pid, message }).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn long(folder: &Path) -> PathBuf {
        let path = folder.join("x".repeat(LONGEST));
        std::fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_name_that_is_too_long_goes_elsewhere_or_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let long = long(folder.path());
        let (events, _heard) = mpsc::channel();
        let socket = listen(&long, folder.path(), events.clone()).unwrap();
        assert!(socket.path.exists() && !socket.path.starts_with(&long));
        let error = listen(&long, &long, events).err().unwrap().to_string();
        assert!(error.contains("TMPDIR"), "{error}");
    }

    #[test]
    fn a_stranger_is_heard_and_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (events, heard) = mpsc::channel();
        let socket = listen(folder.path(), folder.path(), events).unwrap();
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x10\0\0\0{\"type\":\"exit\",", b""] {
            UnixStream::connect(&socket.path).unwrap().write_all(said).unwrap();
            assert!(matches!(heard.recv().unwrap(), Event::Connected));
            let Event::Disconnected { problem, .. } = heard.recv().unwrap() else { panic!() };
            assert_eq!(problem.is_some(), !said.is_empty());
        }
        let old = br#"{"type":"hello","version":9,"pid":1,"stage":"torch"}"#;
        let mut stream = UnixStream::connect(&socket.path).unwrap();
        stream.write_all(&(old.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(old).unwrap();
        assert!(matches!(heard.recv().unwrap(), Event::Connected));
        let Event::Disconnected { problem: Some(problem), .. } = heard.recv().unwrap() else { panic!() };
        assert!(problem.contains("version 9"), "{problem}");
    }
}
