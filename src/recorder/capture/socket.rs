//! The private socket for the hook's messages.
//!
//! Any process of the user can connect, so the number of concurrent connections is limited, and with it threads and
//! memory. Each connection has one message in flight and reads the next after the current one was handled, and only one
//! message at a time is parsed.

use std::io::{self, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::error::{CaptureError, LONGEST_SOCKET_PATH};
use super::event::{Event, OURSELVES, SocketEvent};
use super::folder::Folder;
use super::messages::{self, Hello, Message};
use super::private::Private;

/// Maximum number of concurrent connections. A rank has at most two, a starting Python one for a moment.
const MOST: usize = 128;
/// Maximum time that a further connection waits for another to end.
const TURN: Duration = Duration::from_millis(100);
/// Time limit for a connection's greeting.
const GREETING: Duration = Duration::from_secs(5);
/// Stack size of a thread in bytes.
const STACK: usize = 1 << 19;

/// A folder with a socket; removed when dropped.
pub(super) struct Socket {
    pub(super) path: PathBuf,
    events: Sender<Event>,
    /// Folder of the socket, if it is not in the recording's own folder.
    _folder: Option<Folder>,
}

/// Sends an event and waits until it was handled; returns `false` if there is no receiver any more.
fn send(events: &Sender<Event>, event: SocketEvent) -> bool {
    let (until, taken) = mpsc::channel::<()>();
    // Dropped with the event.
    let is_sent = events.send(Event::Socket { event, until }).is_ok();
    let _ = taken.recv();
    is_sent
}

impl Socket {
    /// Connects last: connections are accepted in order, so once this message arrives, all earlier connections have
    /// been accepted.
    pub(super) fn connect_last(&self) {
        let (path, events) = (self.path.clone(), self.events.clone());
        let version = messages::VERSION;
        let text = format!(r#"{{"type":"hello","version":{version},"pid":{OURSELVES},"stage":"python"}}"#);
        let connect = move || -> io::Result<()> {
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(&u32::try_from(text.len()).unwrap_or_default().to_le_bytes())?;
            stream.write_all(text.as_bytes())
        };
        // It would have to wait if there are many others.
        thread::spawn(move || {
            if connect().is_err() {
                // No other process can be heard either.
                send(&events, SocketEvent::Message { pid: OURSELVES, message: Message::Unknown });
            }
        });
    }
}

/// Listens in `folder`, or in another private folder if a socket cannot be created there, and forwards the messages.
pub(super) fn listen(folder: &Path, private: &Private, events: Sender<Event>) -> Result<Socket, CaptureError> {
    let (listener, path, folder) = match bind(folder) {
        Ok((listener, path)) => (listener, path, None),
        Err(error) => {
            let Some(folder) = private.other().ok().and_then(|other| other.recording().ok()) else { return Err(error) };
            let (listener, path) = bind(folder.path())?;
            (listener, path, Some(folder))
        }
    };
    let socket = Socket { path, events: events.clone(), _folder: folder };
    thread::spawn(move || {
        let slots = Slots::default();
        let parser = parser();
        for (connection, stream) in (1_u64..).zip(listener.incoming()) {
            let Ok(stream) = stream else { continue };
            let Some(slot) = slots.take() else {
                if send(&events, SocketEvent::Refused) {
                    continue;
                }
                return;
            };
            if !send(&events, SocketEvent::Connected) {
                return;
            }
            let (of_thread, parser) = (events.clone(), parser.clone());
            let begun = thread::Builder::new().stack_size(STACK).spawn(move || {
                let problem = converse(stream, &of_thread, &parser).err().map(|error| error.to_string());
                send(&of_thread, SocketEvent::Disconnected { connection, problem });
                drop(slot);
            });
            if let Err(error) = begun {
                send(&events, SocketEvent::Disconnected { connection, problem: Some(error.to_string()) });
            }
        }
    });
    Ok(socket)
}

fn bind(folder: &Path) -> Result<(UnixListener, PathBuf), CaptureError> {
    let path = folder.join("socket");
    if path.as_os_str().as_bytes().len() > LONGEST_SOCKET_PATH {
        return Err(CaptureError::SocketPath { path });
    }
    match UnixListener::bind(&path) {
        Ok(listener) => Ok((listener, path)),
        Err(source) => Err(CaptureError::Socket { path, source }),
    }
}

/// Counter of connections.
#[derive(Default, Clone)]
struct Slots(Arc<(Mutex<usize>, Condvar)>);

/// Permission for one connection; returned when dropped.
struct Slot(Slots);

impl Slots {
    fn take(&self) -> Option<Slot> {
        let (taken, freed) = &*self.0;
        let taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut taken, _) =
            freed.wait_timeout_while(taken, TURN, |taken| *taken >= MOST).unwrap_or_else(PoisonError::into_inner);
        (*taken < MOST).then(|| {
            *taken += 1;
            Slot(self.clone())
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (taken, freed) = &*self.0.0;
        *taken.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        freed.notify_one();
    }
}

/// A message as received, and the channel for the parsed one.
struct Unparsed {
    text: Vec<u8>,
    answer: Sender<io::Result<Message>>,
}

/// Starts a thread that parses the messages of all connections one after another: a thread that parses large messages
/// retains memory, so there should be only one.
fn parser() -> Sender<Unparsed> {
    let (sender, unparsed) = mpsc::channel::<Unparsed>();
    thread::spawn(move || {
        for Unparsed { text, answer } in unparsed {
            // The requester may have ended.
            let _ = answer.send(messages::parse(&text));
        }
    });
    sender
}

/// Reads one connection to its end.
fn converse(stream: UnixStream, events: &Sender<Event>, parser: &Sender<Unparsed>) -> io::Result<()> {
    stream.set_read_timeout(Some(GREETING))?;
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    let mut stream = BufReader::with_capacity(1 << 12, stream);
    let mut pid = None;
    while let Some(text) = messages::frame(&mut stream)? {
        let (answer, parsed) = mpsc::channel();
        parser.send(Unparsed { text, answer }).map_err(|_| io::ErrorKind::BrokenPipe)?;
        let message = parsed.recv().map_err(|_| io::ErrorKind::BrokenPipe)??;
        let from = match (pid, &message) {
            (_, Message::Hello(Hello { version, .. })) if *version != messages::VERSION => {
                return wrong(format!("the hook uses protocol version {version}, this program {}", messages::VERSION));
            }
            (None, Message::Hello(hello)) => {
                stream.get_ref().set_read_timeout(None)?;
                *pid.insert(hello.pid)
            }
            (Some(pid), _) => pid,
            (None, _) => return wrong("a message before a greeting".to_owned()),
        };
        if !send(events, SocketEvent::Message { pid: from, message }) {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Receiver;

    fn long(folder: &Path) -> PathBuf {
        let path = folder.join("x".repeat(LONGEST_SOCKET_PATH));
        std::fs::create_dir(&path).unwrap();
        path
    }

    fn private(places: &[PathBuf]) -> Private {
        Private::first(places.to_vec()).unwrap()
    }

    fn next(heard: &Receiver<Event>) -> SocketEvent {
        match heard.recv().unwrap() {
            Event::Socket { event, .. } => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_that_is_too_long_goes_elsewhere_or_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let long = long(folder.path());
        let (events, _heard) = mpsc::channel();
        let places = [long.join("p"), folder.path().join("q")];
        let socket = listen(&long, &private(&places), events.clone()).unwrap();
        assert!(socket.path.exists() && socket.path.starts_with(folder.path().join("q").canonicalize().unwrap()));
        let error = listen(&long, &private(&places[..1]), events).err().unwrap().to_string();
        assert!(error.contains("XDG_CACHE_HOME"), "{error}");
    }

    #[test]
    fn a_stranger_is_heard_and_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let (events, heard) = mpsc::channel();
        let socket = listen(folder.path(), &private(&[folder.path().join("p")]), events).unwrap();
        for said in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x10\0\0\0{\"type\":\"exit\",", b""] {
            UnixStream::connect(&socket.path).unwrap().write_all(said).unwrap();
            assert!(matches!(next(&heard), SocketEvent::Connected));
            let SocketEvent::Disconnected { problem, .. } = next(&heard) else { panic!() };
            assert_eq!(problem.is_some(), !said.is_empty());
        }
        let old = br#"{"type":"hello","version":9,"pid":1,"stage":"torch"}"#;
        let mut stream = UnixStream::connect(&socket.path).unwrap();
        stream.write_all(&(old.len() as u32).to_le_bytes()).unwrap();
        stream.write_all(old).unwrap();
        assert!(matches!(next(&heard), SocketEvent::Connected));
        let SocketEvent::Disconnected { problem: Some(problem), .. } = next(&heard) else { panic!() };
        assert!(problem.contains("version 9"), "{problem}");
    }

    /// Unlimited connections create only a limited number of threads, and do not permanently block later ones.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_flood_of_connections_takes_a_bounded_number_of_threads() {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let folder = tempfile::tempdir().unwrap();
        let (events, heard) = mpsc::channel();
        let socket = listen(folder.path(), &private(&[folder.path().join("p")]), events).unwrap();
        let before = threads();
        let path = socket.path.clone();
        let flood =
            thread::spawn(move || (0..MOST + 20).filter_map(|_| UnixStream::connect(&path).ok()).collect::<Vec<_>>());
        let (mut connected, mut refused) = (0, 0);
        while refused < 5 {
            match next(&heard) {
                SocketEvent::Connected => connected += 1,
                SocketEvent::Refused => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(connected, MOST);
        // Other tests also run in threads.
        assert!(threads() <= before + 2 * MOST, "{} of {before}", threads());
        // All of them end, on their own or for lack of a greeting.
        let flood = flood.join().unwrap();
        drop(flood);
        let mut ended = 0;
        while ended < MOST {
            ended += usize::from(matches!(next(&heard), SocketEvent::Disconnected { .. }));
        }
        UnixStream::connect(&socket.path).unwrap();
        while !matches!(next(&heard), SocketEvent::Connected) {}
    }
}
