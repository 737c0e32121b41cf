//! PyTorch traces, read in parallel. While one thread reads and decompresses a piece of the text, others parse the
//! events of earlier pieces, and several ranks are read at the same time. The result is independent of the number of
//! threads.

use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::decompress::Limit;
use super::files::open_counted;
use habitat_traces::import::{self, Import, ImportOptions};
use habitat_traces::kineto::{Packer, Pieces, Reader, Recorded, Spill};
use habitat_traces::{Fault, Format, TraceError};

/// Maximum number of threads; each has a piece of 4 MB in memory.
const THREADS: usize = 8;
/// Maximum bytes of packed events in memory for all traces read at the same time: those of 1 GB of text.
const PACKED: usize = 48 << 20;
/// Number of records above which traces are turned into profiles one at a time, to need the memory of only one.
const LARGE: u64 = 200_000;

/// Progress of reading traces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of decompressed text read from all traces.
    pub text: u64,
    /// Bytes read from the files, before decompression.
    pub read: u64,
}

/// Called regularly from any thread; [`ControlFlow::Break`] stops reading with [`Fault::Cancelled`].
pub type OnProgress<'a> = dyn FnMut(Progress) -> ControlFlow<()> + Send + 'a;

/// Imports the traces of all ranks of a job, compressed or not, into one profile.
///
/// # Errors
/// [`TraceError`] of the first trace that fails, with its rank if there are several.
pub fn import(
    paths: &[PathBuf],
    options: &ImportOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Import, TraceError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    import_with(threads, paths, options, progress)
}

fn import_with(
    threads: usize,
    paths: &[PathBuf],
    options: &ImportOptions<'_>,
    progress: &mut OnProgress<'_>,
) -> Result<Import, TraceError> {
    let at_once = threads.min(paths.len()).max(1);
    let shared = Shared {
        text: AtomicU64::new(0),
        read: Arc::default(),
        progress: Mutex::new(progress),
        failed: AtomicUsize::new(usize::MAX),
    };
    let building = Mutex::new(());
    let import_one = |rank: usize| {
        let spill = Spill { memory: PACKED / at_once, open: || Ok(Box::new(tempfile::tempfile()?)) };
        let recorded = record(&shared, rank, &paths[rank], threads / at_once, spill)?;
        let _turn = (recorded.kept() > LARGE).then(|| lock(&building));
        import::kineto(recorded, options)
    };
    let next = AtomicUsize::new(0);
    let imports = Mutex::new(Vec::new());
    let work = || {
        loop {
            let rank = next.fetch_add(1, Ordering::Relaxed);
            if rank >= paths.len() {
                break;
            }
            let import = import_one(rank);
            if import.is_err() {
                shared.failed.fetch_min(rank, Ordering::Relaxed);
            }
            lock(&imports).push((rank, import));
        }
    };
    thread::scope(|scope| {
        start(scope, at_once - 1, work);
        work();
    });
    let mut imports = imports.into_inner().unwrap_or_else(PoisonError::into_inner);
    imports.sort_by_key(|(rank, _)| *rank);
    let named = |(rank, import): (usize, Result<Import, TraceError>)| {
        import.map_err(|error| TraceError { rank: (paths.len() > 1).then_some(rank), ..error })
    };
    let imports = imports.into_iter().map(named).collect::<Result<_, _>>()?;
    import::combine(imports).ok_or(TraceError { format: Format::Kineto, rank: None, fault: Fault::NoSources })
}

/// Starts up to `threads` helper threads; works with fewer if some cannot be started.
fn start<'s>(scope: &'s thread::Scope<'s, '_>, threads: usize, work: impl Fn() + Copy + Send + 's) {
    for _ in 0..threads {
        if thread::Builder::new().spawn_scoped(scope, work).is_err() {
            break;
        }
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// State shared by all threads.
struct Shared<'a, 'p> {
    text: AtomicU64,
    read: Arc<AtomicU64>,
    progress: Mutex<&'a mut OnProgress<'p>>,
    /// The first rank that failed; later ranks need not be read.
    failed: AtomicUsize,
}

impl Shared<'_, '_> {
    /// Reports that a piece was read; returns whether to continue.
    fn goes_on(&self, rank: usize, piece: &[u8]) -> bool {
        let piece = piece.len() as u64;
        let text = self.text.fetch_add(piece, Ordering::Relaxed) + piece;
        let progress = Progress { text, read: self.read.load(Ordering::Relaxed) };
        lock(&self.progress)(progress).is_continue() && rank <= self.failed.load(Ordering::Relaxed)
    }
}

/// Reads one trace with a number of threads.
fn record(
    shared: &Shared<'_, '_>,
    rank: usize,
    path: &Path,
    threads: usize,
    spill: Spill,
) -> Result<Recorded, TraceError> {
    let reader = Reader::new(Some(spill));
    let text = open_counted(path, Limit::TRACE, shared.read.clone()).map_err(|error| reader.failed(error))?;
    let turns = Turns {
        pieces: Mutex::new((0, Pieces::new(text))),
        state: Mutex::new(State { reader, turn: 0, over: None }),
        changed: Condvar::new(),
    };
    thread::scope(|scope| {
        start(scope, threads - 1, || turns.work(shared, rank));
        turns.work(shared, rank);
    });
    let State { reader, over, .. } = turns.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    over.unwrap_or(Ok(()))?;
    reader.finish()
}

/// A trace whose pieces several threads parse in parallel. Each thread waits for its turn to add its events.
struct Turns {
    /// Number of the next piece, and its source.
    pieces: Mutex<(u64, Pieces<Box<dyn io::Read + Send>>)>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    reader: Reader,
    /// Number of the piece to add next.
    turn: u64,
    /// Set when no more pieces are added, with the result.
    over: Option<Result<(), TraceError>>,
}

impl Turns {
    /// Reads pieces until the end of the trace.
    fn work(&self, shared: &Shared<'_, '_>, rank: usize) {
        let _release = Release(self);
        let (mut piece, mut packer) = (Vec::new(), Packer::default());
        loop {
            let (number, is_there) = {
                let (next, pieces) = &mut *lock(&self.pieces);
                *next += 1;
                (*next - 1, pieces.next(&mut piece))
            };
            // The first piece does not start with an event.
            let events = (number > 0 && matches!(is_there, Ok(true))).then(|| packer.read(&piece));
            let is_early = |state: &mut State| state.turn != number && state.over.is_none();
            let state = self.changed.wait_while(lock(&self.state), is_early);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            if state.over.is_some() {
                return;
            }
            let is_end = matches!(is_there, Ok(false));
            let taken = match is_there {
                Ok(true) => state.reader.take(&piece, events),
                Ok(false) => Ok(()),
                Err(error) => Err(state.reader.failed(error)),
            };
            let is_last = is_end || state.reader.is_over();
            state.over = match taken {
                Ok(()) if is_last => Some(Ok(())),
                Ok(()) if shared.goes_on(rank, &piece) => None,
                Ok(()) => Some(Err(TraceError { format: Format::Kineto, rank: None, fault: Fault::Cancelled })),
                Err(error) => Some(Err(error)),
            };
            state.turn += 1;
            self.changed.notify_all();
        }
    }
}

/// Releases waiting threads if a thread panics before its turn is over.
struct Release<'a>(&'a Turns);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            lock(&self.0.state).over.get_or_insert(Ok(()));
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps with one operator and its kernel, in enough pieces for several threads.
    fn trace(steps: u32, names: &str) -> String {
        let step = |step: u32| {
            let start = 100.0 * f64::from(step);
            let (launch, run) = (start + 5.0, start + 20.0 + f64::from(step % 7));
            format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "pid": 1, "tid": 1, "ts": {start:.3}, "dur": 99.5}},
{{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": {start:.3}, "dur": 90.125, "args": {{"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]}}}},
{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": {launch:.3}, "dur": 1, "args": {{"correlation": {step}}}}},
{{"ph": "X", "cat": "kernel", "name": "{names}{}", "pid": 0, "tid": 7, "ts": {run:.3}, "dur": 30.016, "args": {{"correlation": {step}, "grid": [8, 1, 1]}}}},
"#,
                step % 3
            )
        };
        format!(
            r#"{{"traceEvents": [{}null], "cuda_runtime_version": 12040}}"#,
            (0..steps).map(step).collect::<String>()
        )
    }

    fn import_all(threads: usize, paths: &[PathBuf]) -> Result<String, TraceError> {
        let options = ImportOptions::default();
        let import = import_with(threads, paths, &options, &mut |_| ControlFlow::Continue(()))?;
        Ok(String::from_utf8(import.profile.to_json().unwrap()).unwrap())
    }

    /// Names that look like the start of an event, so that pieces end within strings.
    #[test]
    fn any_number_of_threads_finds_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let tricky = r#"},{\"a\": "#.repeat(20);
        let paths = [("a.json", 30_000, "mm"), ("b.json.gz", 20_000, tricky.as_str()), ("c.json.zst", 9_000, "mm")]
            .map(|(name, steps, names)| {
                let path = folder.path().join(name);
                crate::store::save_atomically(&path, trace(steps, names).as_bytes(), false).unwrap();
                path
            });
        assert!(trace(30_000, "mm").len() > 16 << 20);
        for paths in [&paths[..1], &paths[1..2], &paths] {
            let alone = import_all(1, paths).unwrap();
            assert!(alone.contains("aten::mm"));
            for threads in [2, 3, 8] {
                assert!(import_all(threads, paths).unwrap() == alone, "{threads} threads, {} traces", paths.len());
            }
        }
    }

    #[test]
    fn the_first_that_fails_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let [good, cut, missing] = ["good.json", "cut.json", "missing.json"].map(|name| folder.path().join(name));
        let text = trace(20_000, "mm");
        std::fs::write(&good, &text).unwrap();
        std::fs::write(&cut, &text[..text.len() - 30]).unwrap();
        for threads in [1, 4] {
            let fails = |paths: &[&PathBuf]| {
                let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
                let error = import_all(threads, &paths).unwrap_err();
                (error.rank, error.fault)
            };
            assert!(matches!(fails(&[&missing]), (None, Fault::Io { events: 0, .. })));
            assert!(matches!(fails(&[&cut]), (None, Fault::Truncated { events: 80_000, .. })));
            assert!(matches!(fails(&[&good, &cut, &missing]), (Some(1), Fault::Truncated { .. })));
            assert!(matches!(fails(&[&missing, &cut, &good]), (Some(0), Fault::Io { .. })));
        }
    }

    #[test]
    fn reading_can_be_stopped_and_says_how_far_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let text = trace(20_000, "mm");
        std::fs::write(&path, &text).unwrap();
        let mut seen = Vec::new();
        let mut progress = |progress: Progress| {
            seen.push(progress);
            if seen.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let error = import_with(2, &[path], &ImportOptions::default(), &mut progress).unwrap_err();
        assert!(matches!(error.fault, Fault::Cancelled));
        assert!(seen.len() == 2 && seen[0].text < seen[1].text && seen[1].read <= text.len() as u64, "{seen:?}");
    }
}
