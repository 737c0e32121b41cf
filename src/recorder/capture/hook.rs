//! The hook's files and settings: everything that a started job gets from us.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::messages;

/// Settings of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Settings {
    /// Protocol version.
    version: u32,
    /// Steps before the first window opens.
    pub after: u64,
    /// Steps per window.
    pub window: u32,
    /// Number of windows.
    pub windows: u32,
    /// Steps from the start of one window to that of the next, without end; replaces `windows`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Whether to record allocations too.
    pub memory: bool,
    /// Whether to record module calls too.
    pub stacks: bool,
    /// Whether every rank records, or only the first.
    pub all_ranks: bool,
    /// Folder for the traces.
    folder: PathBuf,
}

impl Settings {
    /// One window of `window` steps after `after` steps.
    pub fn new(after: u64, window: u32) -> Self {
        Self {
            version: messages::VERSION,
            after,
            window,
            windows: 1,
            every: None,
            memory: false,
            stacks: false,
            all_ranks: false,
            folder: PathBuf::new(),
        }
    }
}

/// Variables that make every Python of the job load the hook.
///
/// # Errors
/// If the folder's name contains the separator of search paths.
pub(super) fn environment(
    hook: &Path,
    socket: &Path,
    folder: &Path,
    settings: &Settings,
    own: impl Fn(&str) -> Option<OsString>,
) -> io::Result<Vec<(&'static str, OsString)>> {
    let settings = Settings { folder: folder.to_owned(), ..settings.clone() };
    let before = own("PYTHONPATH").filter(|path| !path.is_empty());
    let path = match &before {
        None => hook.as_os_str().to_owned(),
        // The user's entries stay unchanged, including empty ones.
        Some(before) => {
            std::env::join_paths([hook]).map_err(io::Error::other)?;
            [hook.as_os_str(), OsStr::new(":"), before].iter().copied().collect()
        }
    };
    let mut variables = vec![
        ("PYTHONPATH", path),
        ("HABITAT_TUI_SOCKET", socket.as_os_str().to_owned()),
        ("HABITAT_TUI_HOOK", serde_json::to_string(&settings)?.into()),
    ];
    // Until torch 2.2 the profiler's library logs its stages to standard error.
    if own("KINETO_LOG_LEVEL").is_none() {
        variables.push(("KINETO_LOG_LEVEL", "6".into()));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_search_path_comes_after_ours() {
        let settings = Settings::new(10, 3);
        let made = |own: Option<&'static str>| {
            environment(Path::new("/h"), Path::new("/s"), Path::new("/f"), &settings, |name| {
                (name == "PYTHONPATH").then(|| own.map(OsString::from)).flatten()
            })
            .unwrap()
        };
        assert_eq!(made(None)[0], ("PYTHONPATH", "/h".into()));
        assert_eq!(made(Some(""))[0], ("PYTHONPATH", "/h".into()));
        assert_eq!(made(Some("a::b"))[0], ("PYTHONPATH", "/h:a::b".into()));
        let text = made(None)[2].1.clone().into_string().unwrap();
        assert_eq!(
            text,
            r#"{"version":1,"after":10,"window":3,"windows":1,"memory":false,"stacks":false,"all_ranks":false,"folder":"/f"}"#
        );
    }

    #[test]
    fn the_users_own_log_level_is_kept() {
        let kept =
            environment(Path::new("/h"), Path::new("/s"), Path::new("/f"), &Settings::new(1, 1), |_| Some("0".into()));
        assert!(kept.unwrap().iter().all(|(name, _)| *name != "KINETO_LOG_LEVEL"));
    }
}
