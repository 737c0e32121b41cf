//! Traces a step by its shapes: runs the user's function, in the user's Python, on tensors without values.
//!
//! The Python code for it (`profiler/shapes`) is in our private folder. It reads the request from a file and writes an
//! op list per batch size, and one answer. Output of the user's code goes to our standard error.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::folder;
use super::private::{Private, PrivateError};
use super::signals::Signals;
use habitat_step::op_list::from_op_list;
use habitat_step::profile::{OP_LIST, Profile, ProfileError, TRACE_OF_SHAPES};

/// Version of request and answer.
const VERSION: u32 = 1;
/// The script to start.
const START: &str = "start.py";
/// Interval for checking whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The function to trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// A Python file, or the name of a module.
    pub place: String,
    /// Name of the function in it.
    pub function: String,
    /// Whether `place` is a file.
    pub is_file: bool,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.place, self.function)
    }
}

/// Options of a trace.
#[derive(Debug, Clone)]
pub struct ShapesOrder {
    /// The function.
    pub target: Target,
    /// Name of the workload.
    pub name: String,
    /// Batch sizes to call it with; empty leaves it to the function.
    pub batch_sizes: Vec<u64>,
    /// Other arguments, as typed.
    pub arguments: BTreeMap<String, String>,
    /// The interpreter.
    pub python: OsString,
    /// Time limit in total.
    pub timeout: Duration,
    /// Whether to trace models as compiled (`torch.compile`), whatever the function does.
    pub compile: bool,
    /// Whether to show the whole traceback of a failure, and PyTorch's own log.
    pub verbose: bool,
}

/// Reason why tracing failed.
#[derive(Debug, thiserror::Error)]
pub enum ShapesError {
    /// The interpreter cannot be started.
    #[error("{}: {source}; name the Python that has PyTorch with --python", .python.to_string_lossy())]
    NotStarted {
        /// Path as typed or found.
        python: OsString,
        /// Reason.
        source: io::Error,
    },
    /// There is no private folder.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// We received a signal to end.
    #[error("interrupted")]
    Interrupted {
        /// The signal.
        signal: i32,
    },
    /// The folder for the exchange cannot be created, written or read.
    #[error("{}: {source}; set XDG_CACHE_HOME to a folder of your own with room", .path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// The time limit was exceeded.
    #[error(
        "{target}: stopped after {} s; a trace takes seconds: does the function read data, or train? \
         (--timeout allows more)", .after.as_secs()
    )]
    TimedOut {
        /// The function.
        target: String,
        /// The limit.
        after: Duration,
    },
    /// The interpreter ended without an answer.
    #[error("{}: ended without an answer ({status}); its last output is above", .python.to_string_lossy())]
    NoAnswer {
        /// The interpreter.
        python: OsString,
        /// How it ended.
        status: ExitStatus,
    },
    /// The interpreter crashed in native code that the function called.
    #[error(
        "{target}: native code crashed ({status}): a custom kernel may have received a tensor without values; \
         leave it out of the traced step, or record a real step: `habitat-tui run -- python ...`\n{stack}"
    )]
    Crashed {
        /// The function.
        target: String,
        /// How the interpreter ended.
        status: ExitStatus,
        /// The running Python lines, innermost first.
        stack: String,
    },
    /// The answer cannot be read.
    #[error("the answer of the traced function cannot be read: {0}")]
    Garbled(String),
    /// The trace is not a valid profile.
    #[error("the trace at batch size {batch}: {source}")]
    Profile {
        /// Batch size.
        batch: String,
        /// Reason.
        source: ProfileError,
    },
    /// The function, its module or its step failed; the message names it.
    #[error("{0}")]
    Refused(Box<Refusal>),
}

/// A failure in the user's code, as reported by the script.
#[derive(Debug, Clone, Deserialize)]
pub struct Refusal {
    kind: String,
    message: String,
    /// The innermost line of the user's own code, then that of a package it called.
    #[serde(default, rename = "where")]
    places: Vec<Place>,
    remedy: Option<String>,
    trace: Option<String>,
    /// Whether to show the traceback.
    #[serde(skip)]
    verbose: bool,
}

/// A line of Python.
#[derive(Debug, Clone, Deserialize)]
struct Place {
    file: String,
    line: Option<u64>,
    function: Option<String>,
    text: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match self.function.as_deref() {
            None | Some("<module>" | "<lambda>") => {}
            Some(function) => write!(f, ", in {function}")?,
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, "\n      {}", self.text) }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = &self.message;
        match self.kind.as_str() {
            "no_torch" => write!(f, "this Python has no PyTorch ({what}); name one that has it with --python")?,
            "old_torch" => write!(f, "PyTorch {what} is too old; tracing by shapes needs 2.2 or newer")?,
            "old_python" => write!(f, "Python {what} is too old; tracing by shapes needs 3.8 or newer")?,
            "no_module" => write!(f, "{what}: no such module; run this where it can be imported, or name its file")?,
            "trains_at_import" => {
                write!(f, "{what}: trains when it is imported; put the training under `if __name__ == \"__main__\":`")?;
            }
            "rebuilds" => write!(
                f,
                "{what}: every call creates a new model and optimizer, so there is no second step; \
                 return a function that makes one step, or (model, inputs, optimizer)"
            )?,
            "no_step" => write!(f, "{what}: its step called no operation of PyTorch")?,
            "no_loss" => write!(
                f,
                "{what}; return a loss function as the fourth: (model, inputs, optimizer, loss_fn), \
                 where loss_fn(output) is the loss"
            )?,
            "nonsense" => write!(
                f,
                "{what}; a function to trace returns a function that makes one step, or \
                 (model, inputs, optimizer[, loss_fn])"
            )?,
            _ => f.write_str(what)?,
        }
        for place in &self.places {
            write!(f, "\n  --> {place}")?;
        }
        if let Some(remedy) = &self.remedy {
            write!(f, "\n  {remedy}")?;
        }
        match &self.trace {
            Some(trace) if self.verbose => write!(f, "\n\n{trace}"),
            Some(_) => write!(f, "\n  --verbose shows the whole traceback"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Request<'a> {
    version: u32,
    folder: &'a Path,
    name: &'a str,
    target: &'a Target,
    batch_sizes: Option<&'a [u64]>,
    args: &'a BTreeMap<String, String>,
    compile: bool,
    verbose: bool,
}

#[derive(Deserialize)]
struct Answer {
    version: u32,
    failure: Option<Refusal>,
    #[serde(default)]
    traces: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    file: String,
    batch_size: Option<u64>,
}

/// Traces the function; returns one profile per batch size, in their order.
///
/// # Errors
/// [`ShapesError`] naming the function, the problem and the remedy.
pub fn trace(order: &ShapesOrder, private: &Private) -> Result<Vec<Profile>, ShapesError> {
    let failed = |source| ShapesError::Folder { path: private.path().to_owned(), source };
    let scripts = private.unpacked("shapes", &habitat_profiler::SHAPES).map_err(failed)?;
    let folder = private.recording().map_err(failed)?;
    let request = request(order, folder.path()).map_err(failed)?;
    let signals = Signals::watch().map_err(failed)?;
    let mut child = Command::new(&order.python)
        .arg(scripts.join(START))
        .arg(request)
        .stdin(Stdio::null())
        // Our standard output is for results.
        .stdout(io::stderr())
        .spawn()
        .map_err(|source| ShapesError::NotStarted { python: order.python.clone(), source })?;
    let status = wait(&mut child, order, &signals)?;
    let read = |name: &str| folder::read(&folder.path().join(name));
    let answer = match read("end.json") {
        Ok(json) => json,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(match read("crash.txt").ok().and_then(|text| crashed(&String::from_utf8_lossy(&text))) {
                Some(stack) => ShapesError::Crashed { target: order.target.to_string(), status, stack },
                None => ShapesError::NoAnswer { python: order.python.clone(), status },
            });
        }
        Err(error) => return Err(failed(error)),
    };
    let answer: Answer = serde_json::from_slice(&answer).map_err(|error| ShapesError::Garbled(error.to_string()))?;
    if answer.version != VERSION {
        return Err(ShapesError::Garbled(format!("version {} instead of {VERSION}", answer.version)));
    }
    if let Some(refusal) = answer.failure {
        return Err(ShapesError::Refused(Box::new(Refusal { verbose: order.verbose, ..refusal })));
    }
    answer
        .traces
        .iter()
        .map(|trace| {
            let json = read(&trace.file).map_err(failed)?;
            let batch = || trace.batch_size.map_or_else(|| "of its own".to_owned(), |batch| batch.to_string());
            let mut profile =
                from_op_list(&json, &order.name).map_err(|source| ShapesError::Profile { batch: batch(), source })?;
            if let Some(recording) = &mut profile.recording {
                recording.source = recording.source.replacen(OP_LIST, TRACE_OF_SHAPES, 1);
            }
            Ok(profile)
        })
        .collect()
}

/// Writes the request to `folder`; returns its path.
fn request(order: &ShapesOrder, folder: &Path) -> io::Result<PathBuf> {
    let request = Request {
        version: VERSION,
        folder,
        name: &order.name,
        target: &order.target,
        batch_sizes: (!order.batch_sizes.is_empty()).then_some(&order.batch_sizes),
        args: &order.arguments,
        compile: order.compile,
        verbose: order.verbose,
    };
    let path = folder.join("request.json");
    std::fs::write(&path, serde_json::to_vec(&request)?)?;
    Ok(path)
}

/// Lines from Python's `faulthandler` after a crash, innermost first; `None` if there was no crash. Leaves out
/// PyTorch's lines if there are others.
fn crashed(text: &str) -> Option<String> {
    const MOST: usize = 3;
    let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("File ")).collect();
    let own = lines.iter().copied().filter(|line| !line.contains("/torch/") && !line.contains("/habitat_shapes/"));
    let own: Vec<&str> = own.take(MOST).collect();
    let shown = if own.is_empty() { &lines[..lines.len().min(MOST)] } else { &own };
    (!text.trim().is_empty()).then(|| shown.join("\n"))
}

/// Waits for the interpreter to end, and kills it at the time limit or if we receive a signal to end.
fn wait(child: &mut Child, order: &ShapesOrder, signals: &Signals) -> Result<ExitStatus, ShapesError> {
    let unstarted = |source| ShapesError::NotStarted { python: order.python.clone(), source };
    let deadline = Instant::now().checked_add(order.timeout);
    loop {
        if let Some(status) = child.try_wait().map_err(unstarted)? {
            return Ok(status);
        }
        let ending = signals.came();
        if ending.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            // Having ended already is fine too.
            let _ = child.kill();
            child.wait().map_err(unstarted)?;
            return Err(match ending {
                Some(signal) => ShapesError::Interrupted { signal },
                None => ShapesError::TimedOut { target: order.target.to_string(), after: order.timeout },
            });
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_where_and_what_to_do() {
        let told = |json: &str| serde_json::from_str::<Refusal>(json).unwrap().to_string();
        assert_eq!(
            told(r#"{"kind": "old_torch", "message": "1.13.1"}"#),
            "PyTorch 1.13.1 is too old; tracing by shapes needs 2.2 or newer"
        );
        let raised = r#"{"kind": "raised", "message": "m", "remedy": "r", "trace": "t", "where": [
            {"file": "a.py", "line": 3, "function": "Net.forward", "text": "x @ y"},
            {"file": "b.py", "line": 1, "function": "<module>", "text": ""}]}"#;
        let short = "m\n  --> a.py:3, in Net.forward\n      x @ y\n  --> b.py:1\n  r";
        assert_eq!(told(raised), format!("{short}\n  --verbose shows the whole traceback"));
        let whole = Refusal { verbose: true, ..serde_json::from_str(raised).unwrap() };
        assert_eq!(whole.to_string(), format!("{short}\n\nt"));
    }

    #[test]
    fn a_crash_is_told_by_the_users_lines() {
        let text = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n\
                    File \"/x/torch/_ops.py\", line 7 in call\n  File \"/home/a/train.py\", line 3 in step\n  \
                    File \"/tmp/y/habitat_shapes/drive.py\", line 1 in one\n";
        assert_eq!(crashed(text).as_deref(), Some("  File \"/home/a/train.py\", line 3 in step"));
        assert_eq!(crashed(" \n"), None);
    }
}
