//! Tests that need something this machine may lack: a Python, PyTorch, a compiler, recordings beside the checkout,
//! root. Each lists its needs ([`trials!`]), which are checked just before it runs. If one is missing, the test is
//! reported as ignored, with the reason, never as passed.
#![allow(dead_code, unused_macros, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// A need of a test, or why it is missing.
pub type Need<T> = Result<T, String>;

/// The tests of a file, by their needs: `always ()` none, `when (need())` one that is only checked, `with (need())` one
/// that the test takes by reference.
macro_rules! trials {
    ($($kind:ident $need:tt => [$($(#[$attribute:meta])* $test:path),* $(,)?]),* $(,)?) => {
        /// Every test of this file; the compiler warns of a function that is not listed.
        #[allow(clippy::vec_init_then_push, reason = "tests of one system are left out of others")]
        pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
            let mut all = Vec::new();
            $($(
                $(#[$attribute])*
                all.push(trials!(@$kind $need $test));
            )*)*
            all
        }
    };
    (@always () $test:path) => { $crate::needs::trial(concat!(module_path!(), "::", stringify!($test)), || Ok(()), |()| $test()) };
    (@when ($need:expr) $test:path) => { $crate::needs::trial(concat!(module_path!(), "::", stringify!($test)), || $need, |_| $test()) };
    (@with ($need:expr) $test:path) => { $crate::needs::trial(concat!(module_path!(), "::", stringify!($test)), || $need, |it| $test(&it)) };
}

/// One test by its path in the crate, in a thread of its name, so that a panic message names it.
pub fn trial<T: Send + 'static>(
    name: &'static str,
    need: impl FnOnce() -> Need<T> + Send + 'static,
    test: impl FnOnce(T) + Send + 'static,
) -> Trial {
    let name = name.strip_prefix(concat!(env!("CARGO_CRATE_NAME"), "::")).unwrap_or(name);
    Trial::ignorable_test(name, move || match need() {
        Err(reason) => Ok(Completion::ignored_with(reason)),
        Ok(it) => {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || test(it)).unwrap();
            thread.join().map(|()| Completion::Completed).map_err(|_| Failed::without_message())
        }
    })
}

/// The `main` of a file of tests, which run in the order of the lists: the longest first.
pub fn run(trials: impl IntoIterator<Item = Vec<Trial>>) -> ExitCode {
    run_with(None, trials)
}

/// The same for tests that mostly wait, with this number of threads unless the user sets one.
pub fn run_with(threads: Option<usize>, trials: impl IntoIterator<Item = Vec<Trial>>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if arguments.test_threads.is_none() {
        let asked = std::env::var("RUST_TEST_THREADS").ok().and_then(|count| count.parse().ok());
        arguments.test_threads = asked.or(threads);
    }
    libtest_mimic::run(&arguments, trials.into_iter().flatten().collect()).exit_code()
}

/// A program that supports `--version`.
pub fn program(name: &str) -> Need<String> {
    let found = Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    if found { Ok(name.to_owned()) } else { Err(format!("there is no {name}")) }
}

/// Any Python 3, with PyTorch or without.
pub fn python() -> Need<String> {
    program("python3")
}

/// The interpreter with PyTorch.
pub fn torch() -> Need<String> {
    let python = std::env::var("HABITAT_TUI_TEST_PYTHON").ok().filter(|python| !python.is_empty());
    python.ok_or_else(|| "HABITAT_TUI_TEST_PYTHON names no Python with PyTorch".to_owned())
}

/// The interpreter with PyTorch of this version or a later one.
pub fn torch_from(major: u32, minor: u32) -> Need<String> {
    let python = torch()?;
    let found = torch_version(&python);
    if found >= (major, minor) {
        Ok(python)
    } else {
        Err(format!("PyTorch {}.{} is older than {major}.{minor}", found.0, found.1))
    }
}

/// Major and minor version of the interpreter's PyTorch, without loading it.
pub fn torch_version(python: &str) -> (u32, u32) {
    let ask = "import importlib.metadata; print(importlib.metadata.version('torch'))";
    let output = Command::new(python).args(["-c", ask]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split('.').map(|part| part.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A file or folder of the measurements and recordings beside the checkout.
pub fn shared(name: &str) -> Need<PathBuf> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let found = folders.map(|folder| folder.join("shared/data").join(name)).find(|path| path.exists());
    found.ok_or_else(|| format!("there is no shared/data/{name} beside the checkout"))
}

/// Root, and the program with which root becomes another user.
pub fn root() -> Need<()> {
    let user = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    if !user {
        return Err("only root can be another user too".to_owned());
    }
    program("setpriv").map(drop)
}
