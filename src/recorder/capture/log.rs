//! The log file of a job's output, and the process that writes it.
//!
//! A job that writes its own log gets an error if the disk is full or a file size limit is reached, which ends most
//! training programs, and it blocks on a disk that does not respond. So it writes to a pipe, which accepts everything
//! while someone reads. If that reader were this process, our end would be the job's: writing to a pipe without a
//! reader kills the writer, and so does a pseudo-terminal. The reader is therefore a small process of its own: this
//! program again, in its own session, which runs until the last process with the other end of the pipe has ended,
//! whatever happens to us. It ignores all signals that can be ignored. If it is killed while we live, another one
//! replaces it; because we keep the reading end open too, the job notices nothing.
//!
//! Output that the log cannot accept is dropped and counted. The count is reported to us while we listen, and written
//! to the log once it accepts output again.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};

use super::error::CaptureError;
use super::event::{Event, LostOutput};

/// Argument that makes this program write a log.
pub const COMMAND: &str = "job-log";
/// First line that it writes.
const READS: &str = "reads";
/// Bytes read at a time, and maximum number of such blocks waiting to be written.
const PIECE: usize = 1 << 16;
const WAITING: usize = 64;
/// Time without progress of the log after which output is dropped.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between reports of dropped output.
const TELL: Duration = Duration::from_millis(500);

/// Truncates the file and starts the process that writes it; returns the job's end of the pipe.
pub(super) fn start(path: &Path, events: &Sender<Event>) -> Result<PipeWriter, CaptureError> {
    let failed = |source| CaptureError::Log { path: path.to_owned(), source };
    let file = File::options().create(true).append(true).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        file.set_len(0).map_err(failed)?;
    }
    let (reader, writer) = io::pipe().map_err(failed)?;
    // Capacity for output while the other process waits to be scheduled.
    #[cfg(target_os = "linux")]
    let _ = fcntl(&reader, FcntlArg::F_SETPIPE_SZ(1 << 20));
    let started = begin(&reader, &file).map_err(failed)?;
    let events = events.clone();
    thread::spawn(move || attend(started, reader, &file, &events));
    Ok(writer)
}

/// The process that writes the log, and the pipe with its reports.
type Started = (Child, BufReader<PipeReader>);

/// Starts the process and waits until it reads.
fn begin(from: &PipeReader, to: &File) -> io::Result<Started> {
    // This path still works if the program was rebuilt meanwhile.
    let own = PathBuf::from("/proc/self/exe");
    let program = if own.exists() { own } else { std::env::current_exe()? };
    let (news, tells) = io::pipe()?;
    let mut child = Command::new(program)
        .arg0(COMMAND)
        .arg(COMMAND)
        .current_dir("/")
        .stdin(from.try_clone()?)
        .stdout(to.try_clone()?)
        .stderr(tells)
        .spawn()?;
    let mut news = BufReader::new(news);
    let mut line = String::new();
    news.read_line(&mut line)?;
    if line.trim_end() != READS {
        let _ = child.wait();
        return Err(io::Error::other(format!("the process that writes it does not start {line}")));
    }
    Ok((child, news))
}

/// Passes on the reports of the process and restarts it if it is killed.
fn attend(mut started: Started, from: PipeReader, to: &File, events: &Sender<Event>) {
    loop {
        let (mut child, news) = started;
        for line in news.lines().map_while(Result::ok) {
            let event = match line.split_once(' ').map(|(bytes, why)| (bytes.parse(), why)) {
                Some((Ok(bytes), why)) => {
                    Event::LostOutput(LostOutput { bytes, why: habitat_base::text::clean(why, 200) })
                }
                _ => Event::Logged,
            };
            // The job may no longer be followed.
            let _ = events.send(event);
        }
        if child.wait().is_ok_and(|status| status.success()) {
            return;
        }
        match begin(&from, to) {
            Ok(again) => started = again,
            Err(error) => {
                let dropped = Event::LostOutput(LostOutput { bytes: 0, why: error.to_string() });
                let _ = events.send(dropped);
                let _ = io::copy(&mut { from }, &mut io::sink());
                let _ = events.send(Event::Logged);
                return;
            }
        }
    }
}

/// Main function of the process: copies standard input to standard output until its end and reports dropped bytes on
/// standard error.
///
/// # Errors
/// If standard input, output and error are not those that `start` sets up.
pub fn write() -> io::Result<()> {
    for signal in [SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    // Terminal keys and hang-ups then reach only its own session.
    let _ = nix::unistd::setsid();
    // Killing all processes of one name must not hit this one.
    let _ = fs::write("/proc/self/comm", COMMAND);
    // We may be stopped and not read.
    fcntl(io::stderr(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
    let tell = |text: &str| drop(io::stderr().write_all(format!("{text}\n").as_bytes()));
    tell(READS);
    // Bypasses the buffer of Rust's standard output.
    let to = File::from(std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned()?);
    drain(&mut io::stdin().lock(), to, &|cut: &LostOutput| tell(&format!("{} {}", cut.bytes, cut.why)));
    tell("written");
    Ok(())
}

/// Dropped bytes in total and since the log last accepted output, and the reason.
#[derive(Default)]
struct Dropped {
    all: AtomicU64,
    since: AtomicU64,
    why: Mutex<String>,
}

impl Dropped {
    fn add(&self, bytes: usize, why: &str) {
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
        self.since.fetch_add(bytes as u64, Ordering::Relaxed);
        if let Ok(mut last) = self.why.lock() {
            why.clone_into(&mut last);
        }
    }

    fn cut(&self, bytes: u64) -> LostOutput {
        LostOutput { bytes, why: self.why.lock().map(|why| why.clone()).unwrap_or_default() }
    }
}

/// Reads everything and writes what can be written.
fn drain(from: &mut dyn Read, to: impl Write + Send + 'static, tell: &dyn Fn(&LostOutput)) {
    let dropped = Arc::new(Dropped::default());
    let (pieces, waiting) = mpsc::sync_channel::<Vec<u8>>(WAITING);
    let of_writer = dropped.clone();
    let writer = thread::spawn(move || {
        let mut to = to;
        for piece in waiting {
            put(&mut to, &piece, &of_writer);
        }
    });
    let (mut buffer, mut told, mut last, mut is_stuck) = (vec![0; PIECE], 0, Instant::now(), false);
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        is_stuck = !offer(&pieces, buffer[..length].to_vec(), if is_stuck { Duration::ZERO } else { PATIENCE });
        if is_stuck {
            dropped.add(length, "it accepted nothing for a second");
        }
        let all = dropped.all.load(Ordering::Relaxed);
        if all > told && (told == 0 || last.elapsed() >= TELL) {
            (told, last) = (all, Instant::now());
            tell(&dropped.cut(all));
        }
    }
    drop(pieces);
    let _ = writer.join();
    let all = dropped.all.load(Ordering::Relaxed);
    if all > told {
        tell(&dropped.cut(all));
    }
}

/// Queues a block if there is room for it in time.
fn offer(pieces: &SyncSender<Vec<u8>>, mut piece: Vec<u8>, patience: Duration) -> bool {
    let began = Instant::now();
    loop {
        match pieces.try_send(piece) {
            Ok(()) => return true,
            Err(TrySendError::Full(back)) if began.elapsed() < patience => {
                piece = back;
                thread::sleep(Duration::from_millis(2));
            }
            Err(_) => return false,
        }
    }
}

/// Writes a block, preceded by a note on missing output.
fn put(to: &mut impl Write, piece: &[u8], dropped: &Dropped) {
    let missing = dropped.since.load(Ordering::Relaxed);
    if missing > 0 {
        let LostOutput { bytes, why } = dropped.cut(missing);
        let note = format!("\n[habitat-tui: {bytes} bytes of output are missing here: {why}]\n");
        if to.write_all(note.as_bytes()).is_err() {
            dropped.add(piece.len(), &why);
            return;
        }
        dropped.since.fetch_sub(missing, Ordering::Relaxed);
    }
    let mut rest = piece;
    while !rest.is_empty() {
        match to.write(rest) {
            Ok(length @ 1..) => rest = &rest[length..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) => return dropped.add(rest.len(), "it accepts nothing"),
            Err(error) => return dropped.add(rest.len(), &error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with limited room, which may also stop responding.
    #[derive(Clone, Default)]
    struct Disk {
        room: Arc<AtomicU64>,
        there: Arc<Mutex<Vec<u8>>>,
        hangs: Arc<AtomicBool>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            while self.hangs.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            let room = self.room.load(Ordering::Relaxed).min(bytes.len() as u64);
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(room, Ordering::Relaxed);
            self.there.lock().unwrap().extend_from_slice(&bytes[..room as usize]);
            Ok(room as usize)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn text(disk: &Disk) -> String {
        String::from_utf8(disk.there.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn a_full_disk_takes_what_it_can_and_says_what_is_missing_when_it_has_room_again() {
        let (disk, dropped) = (Disk::default(), Dropped::default());
        disk.room.store(5, Ordering::Relaxed);
        put(&mut disk.clone(), b"12345678", &dropped);
        put(&mut disk.clone(), b"90", &dropped);
        assert_eq!((text(&disk).as_str(), dropped.all.load(Ordering::Relaxed)), ("12345", 5));
        disk.room.store(1000, Ordering::Relaxed);
        put(&mut disk.clone(), b"on", &dropped);
        let written = text(&disk);
        assert!(written.starts_with("12345\n[habitat-tui: 5 bytes of output are missing here: "), "{written}");
        assert!(written.ends_with("]\non"), "{written}");
    }

    #[test]
    fn everything_is_taken_in_from_a_job_whose_log_hangs() {
        let disk = Disk::default();
        disk.room.store(u64::MAX, Ordering::Relaxed);
        disk.hangs.store(true, Ordering::Relaxed);
        let bytes = (WAITING as u64 + 20) * PIECE as u64;
        let later = disk.clone();
        thread::spawn(move || {
            thread::sleep(PATIENCE + Duration::from_millis(500));
            later.hangs.store(false, Ordering::Relaxed);
        });
        let told = Mutex::new(Vec::new());
        let began = Instant::now();
        drain(&mut io::repeat(b'x').take(bytes), disk.clone(), &|cut| told.lock().unwrap().push(cut.clone()));
        assert!(began.elapsed() < Duration::from_secs(30));
        let cut = told.lock().unwrap().last().unwrap().clone();
        assert!(cut.why.contains("accepted nothing") && cut.bytes > 0, "{cut:?}");
        let kept = text(&disk).matches('x').count() as u64;
        assert_eq!(kept + cut.bytes, bytes, "nothing is lost that is not counted");
    }
}
