//! Settings of the library, from variables of the environment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Path of the socket.
pub const SOCKET: &str = "HABITAT_TUI_SOCKET";
/// Settings, as JSON.
pub const SETTINGS: &str = "HABITAT_TUI_CUPTI_SETTINGS";
/// Path of the CUPTI to load, instead of a search.
pub const LIBRARY: &str = "HABITAT_TUI_CUPTI_LIBRARY";
/// Version of the settings and of the protocol.
pub const VERSION: u64 = 1;

/// What to record, and where to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Delay from the start of CUDA to the window.
    pub after: Duration,
    /// Length of the window.
    pub length: Duration,
    /// Folder of the trace.
    pub folder: PathBuf,
    /// The socket.
    pub socket: PathBuf,
}

impl Settings {
    /// Reads the environment; `None` if this process is not recorded, or the settings are of another version.
    pub fn read(variable: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let socket = PathBuf::from(variable(SOCKET).filter(|path| !path.is_empty())?);
        let text = variable(SETTINGS)?.into_string().ok()?;
        let value: serde_json::Value = serde_json::from_str(&text).ok()?;
        if value.get("version")?.as_u64()? != VERSION {
            return None;
        }
        let seconds = |key: &str| {
            let seconds = value.get(key)?.as_f64()?;
            Duration::try_from_secs_f64(seconds.min(1e6)).ok()
        };
        Some(Self {
            after: seconds("after_seconds")?,
            length: seconds("for_seconds")?,
            folder: PathBuf::from(value.get("folder")?.as_str()?),
            socket,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Option<Settings> {
        Settings::read(|name| match name {
            SOCKET => Some("/s".into()),
            SETTINGS => Some(text.into()),
            _ => None,
        })
    }

    #[test]
    fn only_whole_settings_of_this_version_count() {
        let text = r#"{"version":1,"after_seconds":2.5,"for_seconds":5,"folder":"/f"}"#;
        let settings = read(text).unwrap();
        assert_eq!((settings.after, settings.length), (Duration::from_millis(2500), Duration::from_secs(5)));
        for wrong in ["", "{}", "[]", &text.replace("\"version\":1", "\"version\":2"), &text.replace("2.5", "-1")] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(Settings::read(|_| None), None);
    }
}
