//! Recorder for CUDA programs: a library that the CUDA driver loads into the job.
//!
//! It is built beside the program, in releases also embedded in it, and only loaded on request. `profiler/cupti` has
//! its source, its rules and its messages.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::messages;
use super::private::{self, Private, PrivateError};

/// File name of the library.
pub const FILE: &str = "libhabitat_cupti.so";
/// Variable with the library's path, which replaces the search.
pub const VARIABLE: &str = "HABITAT_TUI_CUPTI";
/// Variable that makes the CUDA driver load a library.
const CUDA: &str = "CUDA_INJECTION64_PATH";
/// Variable that makes NVTX load a library.
const NVTX: &str = "NVTX_INJECTION64_PATH";

/// A time window to record.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Path of the library.
    pub library: PathBuf,
    /// Seconds from the start of CUDA to the window.
    pub after_seconds: f64,
    /// Length of the window in seconds.
    pub for_seconds: f64,
}

/// Reason why the library cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CuptiError {
    /// Not built, or in another place.
    #[error(
        "--cupti: the recorder {FILE} was not found\n  looked for {}\n  this habitat-tui was built without it: in the source \
         folder, `cargo build --release -p habitat-tui-cupti` makes target/release/{FILE}; copy it beside habitat-tui, \
         or set {VARIABLE} to its path",
        .places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join("\n         and ")
    )]
    NoLibrary {
        /// Places that were searched.
        places: Vec<PathBuf>,
    },
    /// The given path is wrong.
    #[error("--cupti: {}: no such file; {VARIABLE} names it and must name {FILE}", .path.display())]
    NotWhereSaid {
        /// Value of the variable.
        path: PathBuf,
    },
    /// Another tool is already configured.
    #[error("--cupti: {CUDA} is set to {}, another profiler, and a program can load only one; unset it", .path.to_string_lossy())]
    Taken {
        /// Value of the variable.
        path: OsString,
    },
    /// Other users could replace the library that the job would load.
    #[error("--cupti: {}: {problem}, and so can change what is loaded into your job; copy {FILE} to a folder of your own and \
             set {VARIABLE} to it", .path.display())]
    NotPrivate {
        /// The library.
        path: PathBuf,
        /// Who could replace it.
        problem: String,
    },
    /// It could not be unpacked.
    #[error("--cupti: {FILE} cannot be unpacked: {0}")]
    Unpacked(#[from] std::io::Error),
    /// There is no folder to unpack it to.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// The system is not Linux.
    #[error("--cupti: CUDA programs can be recorded on Linux only")]
    NotLinux,
}

/// Finds the library: at the path in [`VARIABLE`], beside the program, or in `../lib/habitat-tui`. Otherwise unpacks
/// the embedded one into the private folder.
///
/// # Errors
/// [`CuptiError`] with the places searched.
pub fn find(
    program: &Path,
    own: impl Fn(&str) -> Option<OsString>,
    private: impl FnOnce() -> Result<Private, PrivateError>,
) -> Result<PathBuf, CuptiError> {
    find_or_unpack(program, own, private, habitat_profiler::RECORDER)
}

fn find_or_unpack(
    program: &Path,
    own: impl Fn(&str) -> Option<OsString>,
    private: impl FnOnce() -> Result<Private, PrivateError>,
    carried: Option<&[u8]>,
) -> Result<PathBuf, CuptiError> {
    if !cfg!(target_os = "linux") {
        return Err(CuptiError::NotLinux);
    }
    // Absolute and without links: the job may change its folder, and other users the links.
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
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return checked(found.clone());
    }
    let Some(carried) = carried else { return Err(CuptiError::NoLibrary { places }) };
    Ok(private()?.unpacked("cupti", &[(FILE, carried)])?.join(FILE))
}

/// Variables that make the CUDA driver and NVTX load the library into the job.
///
/// # Errors
/// If another tool is already configured.
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
    // Do not replace another tool's NVTX library.
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
        let cache = folder.path().join("cache");
        let private = || Private::first(vec![cache.clone()]);
        let find = |own: Option<&str>, carried| find_or_unpack(&program, |_| own.map(OsString::from), private, carried);
        let none = find(None, None).unwrap_err().to_string();
        for part in ["bin/libhabitat_cupti.so\n", "lib/habitat-tui/libhabitat_cupti.so\n", "cargo build", VARIABLE] {
            assert!(none.contains(part), "{part:?} is not in {none}");
        }
        // The embedded one is unpacked; one beside the program takes precedence.
        let unpacked = find(None, Some(b"ours")).unwrap();
        assert!(unpacked.starts_with(cache.canonicalize().unwrap()) && unpacked.ends_with(FILE), "{unpacked:?}");
        assert_eq!(unpacked.metadata().unwrap().len(), 4);
        let library = folder.path().join("lib/habitat-tui").join(FILE);
        std::fs::create_dir_all(folder.path().join("bin")).unwrap();
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "").unwrap();
        assert!(find(None, Some(b"ours")).unwrap().ends_with("lib/habitat-tui/libhabitat_cupti.so"));
        let wrong = find(Some("/nowhere/x.so"), None).unwrap_err().to_string();
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
