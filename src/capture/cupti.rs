//! The recorder for CUDA programs: a library that the CUDA driver loads into the job.
//!
//! It is built beside the program and never loaded unless asked for; `profiler/cupti` has
//! it, with the rules it keeps and what it tells.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::messages;
use super::private;

/// The library's file.
pub const FILE: &str = "libhabitat_cupti.so";
/// Names the library's path, in place of a search.
pub const VARIABLE: &str = "HABITAT_TUI_CUPTI";
/// What makes the CUDA driver load a library.
const CUDA: &str = "CUDA_INJECTION64_PATH";
/// What makes NVTX load one.
const NVTX: &str = "NVTX_INJECTION64_PATH";

/// A window of time to record.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The library.
    pub library: PathBuf,
    /// Seconds from the start of CUDA to the window.
    pub after_seconds: f64,
    /// Seconds of the window.
    pub for_seconds: f64,
}

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CuptiError {
    /// Not built, or elsewhere.
    #[error(
        "--cupti: {FILE}, the recorder, is not there\n  looked for {}\n  `cargo install` leaves it out: in the source \
         folder, `cargo build --release -p habitat-tui-cupti` makes target/release/{FILE}; copy it beside habitat-tui, \
         or set {VARIABLE} to its path",
        .places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join("\n         and ")
    )]
    NoLibrary {
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// The path given is wrong.
    #[error("--cupti: {}: no such file; {VARIABLE} names it, and is to name {FILE}", .path.display())]
    NotWhereSaid {
        /// What the variable names.
        path: PathBuf,
    },
    /// Another tool is to be loaded.
    #[error("--cupti: {CUDA} is set to {}: another profiler is to be loaded, and a program can have one; unset it", .path.to_string_lossy())]
    Taken {
        /// What it is set to.
        path: OsString,
    },
    /// Somebody else could put something else in its place, which the job would load.
    #[error("--cupti: {}: {problem}, and so can change what is loaded into your job; copy {FILE} to a folder of your own and \
             set {VARIABLE} to it", .path.display())]
    NotPrivate {
        /// The library.
        path: PathBuf,
        /// Who can.
        problem: String,
    },
    /// No CUPTI on this system.
    #[error("--cupti: CUDA programs can be recorded on Linux only")]
    NotLinux,
}

/// Finds the library: where [`VARIABLE`] says, beside the program, or in `../lib/habitat-tui`.
///
/// # Errors
/// [`CuptiError`] with the places looked at.
pub fn find(program: &Path, own: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, CuptiError> {
    if !cfg!(target_os = "linux") {
        return Err(CuptiError::NotLinux);
    }
    // Absolute and without links: the job may change its folder, and others the links.
    let checked = |path: PathBuf| {
        let path = path.canonicalize().unwrap_or(path);
        match private::check(&path, std::env::home_dir().as_deref()) {
            Ok(()) => Ok(path),
            Err(problem) => Err(CuptiError::NotPrivate { path, problem }),
        }
    };
    if let Some(path) = own(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        return if path.is_file() { checked(path) } else { Err(CuptiError::NotWhereSaid { path }) };
    }
    let folder = program.parent().unwrap_or(Path::new(""));
    let beside = folder.parent().map(|above| above.join("lib/habitat-tui"));
    let places: Vec<PathBuf> = std::iter::once(folder.to_owned()).chain(beside).map(|place| place.join(FILE)).collect();
    let found = places.iter().find(|place| place.is_file()).cloned();
    found.map_or(Err(CuptiError::NoLibrary { places }), checked)
}

/// The variables that make the CUDA driver, and NVTX, load the library into the job.
///
/// # Errors
/// Where another tool is to be loaded already.
pub(super) fn environment(
    settings: &Settings,
    socket: &Path,
    folder: &Path,
    own: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, OsString)>, CuptiError> {
    if let Some(path) = own(CUDA).filter(|path| !path.is_empty()) {
        return Err(CuptiError::Taken { path });
    }
    let text = json!({
        "version": messages::VERSION,
        "after_seconds": settings.after_seconds,
        "for_seconds": settings.for_seconds,
        "folder": folder.to_string_lossy(),
    });
    let mut variables = vec![
        (CUDA, settings.library.clone().into_os_string()),
        ("HABITAT_TUI_SOCKET", socket.as_os_str().to_owned()),
        ("HABITAT_TUI_CUPTI_SETTINGS", text.to_string().into()),
    ];
    // Ranges that another tool wants are left to it.
    if own(NVTX).is_none_or(|path| path.is_empty()) {
        variables.push((NVTX, settings.library.clone().into_os_string()));
    }
    Ok(variables)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_beside_the_program_or_where_it_is_said_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("bin/habitat-tui");
        let none = find(&program, |_| None).unwrap_err().to_string();
        for part in ["bin/libhabitat_cupti.so\n", "lib/habitat-tui/libhabitat_cupti.so\n", "cargo build", VARIABLE] {
            assert!(none.contains(part), "{part:?} is not in {none}");
        }
        let library = folder.path().join("lib/habitat-tui").join(FILE);
        std::fs::create_dir_all(folder.path().join("bin")).unwrap();
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "").unwrap();
        assert!(find(&program, |_| None).unwrap().ends_with("lib/habitat-tui/libhabitat_cupti.so"));
        let wrong = find(&program, |_| Some("/nowhere/x.so".into())).unwrap_err().to_string();
        assert!(wrong.contains("/nowhere/x.so"), "{wrong}");
    }

    #[test]
    fn another_tool_goes_first() {
        let settings = Settings { library: "/l.so".into(), after_seconds: 5.0, for_seconds: 2.5 };
        let made = |taken: &'static str| {
            environment(&settings, Path::new("/s"), Path::new("/f"), move |name| {
                (name == taken).then(|| "/nsys.so".into())
            })
        };
        assert!(made(CUDA).unwrap_err().to_string().contains("/nsys.so"));
        assert_eq!(made("").unwrap().len(), 4);
        assert_eq!(made(NVTX).unwrap().len(), 3);
        let text = made("").unwrap()[2].1.clone().into_string().unwrap();
        assert_eq!(text, r#"{"version":1,"after_seconds":5.0,"for_seconds":2.5,"folder":"/f"}"#);
    }
}
