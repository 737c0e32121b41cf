//! Where the user's files are, by the conventions of the platform.

use std::path::PathBuf;

use directories::ProjectDirs;

/// Names the folder to use in place of the platform's configuration folder.
pub const CONFIG_DIR_VARIABLE: &str = "HABITAT_TUI_CONFIG_DIR";

/// The user's folders. None of them needs to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    config: PathBuf,
}

impl Paths {
    /// `$HABITAT_TUI_CONFIG_DIR`, else the platform's configuration folder, else
    /// `.habitat-tui` in the current folder (where the user has no home).
    pub fn find() -> Self {
        let config = std::env::var_os(CONFIG_DIR_VARIABLE)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from)
            .or_else(|| ProjectDirs::from("", "", "habitat-tui").map(|dirs| dirs.config_dir().to_owned()))
            .unwrap_or_else(|| PathBuf::from(".habitat-tui"));
        Self { config }
    }

    /// Weights that replace the shipped ones.
    pub fn models(&self) -> PathBuf {
        self.config.join("models")
    }

    /// A given configuration folder.
    pub fn at(config: impl Into<PathBuf>) -> Self {
        Self { config: config.into() }
    }

    /// The settings file.
    pub fn settings(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// The user's GPUs.
    pub fn catalog(&self) -> PathBuf {
        self.config.join("catalog")
    }

    /// The user's prices.
    pub fn pricing(&self) -> PathBuf {
        self.config.join("pricing")
    }
}
