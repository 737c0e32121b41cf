//! The recorder for CUDA programs: a library that the CUDA driver loads into the job.
//!
//! It is built beside the program, in releases also into it, and never loaded unless asked for;
//! `profiler/cupti` has it, with the rules it keeps and what it tells.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::messages;
use super::private::{self, Private, PrivateError};

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
        "--cupti: {FILE}, the recorder, is not there\n  looked for {}\n  this habitat-tui was built without it: in the source \
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
    /// It could not be unpacked.
    #[error("--cupti: {FILE} cannot be unpacked: {0}")]
    Unpacked(#[from] std::io::Error),
    /// There is no folder to unpack it to.
    #[error(transparent)]
    Private(#[from] PrivateError),
    /// No CUPTI on this system.
    #[error("--cupti: CUDA programs can be recorded on Linux only")]
    NotLinux,
}

/// Finds the library: where [`VARIABLE`] says, beside the program, or in `../lib/habitat-tui`; else the
/// program's own is unpacked into the private folder.
///
/// # Errors
/// [`CuptiError`] with the places looked at.
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
    if let Some(found) = places.iter().find(|place| place.is_file()) {
        return checked(found.clone());
    }
    let Some(carried) = carried else { return Err(CuptiError::NoLibrary { places }) };
    Ok(private()?.unpacked("cupti", &[(FILE, carried)])?.join(FILE))
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
        let cache = folder.path().join("cache");
        let private = || Private::first(vec![cache.clone()]);
        let find = |own: Option<&str>, carried| find_or_unpack(&program, |_| own.map(OsString::from), private, carried);
        let none = find(None, None).unwrap_err().to_string();
        for part in ["bin/libhabitat_cupti.so\n", "lib/habitat-tui/libhabitat_cupti.so\n", "cargo build", VARIABLE] {
            assert!(none.contains(part), "{part:?} is not in {none}");
        }
        // The program's own is unpacked; one beside it counts more.
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
