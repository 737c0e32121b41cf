//! Where the user's files are, by the conventions of the platform.

use std::path::{Path, PathBuf};

use directories::ProjectDirs;

/// Names the folder to use in place of the platform's configuration and data folders.
pub const CONFIG_DIR_VARIABLE: &str = "HABITAT_TUI_CONFIG_DIR";

/// The user's folders. None of them needs to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    config: PathBuf,
    data: PathBuf,
}

impl Paths {
    /// `$HABITAT_TUI_CONFIG_DIR`, else the platform's configuration and data folders, else
    /// `.habitat-tui` in the current folder (where the user has no home).
    pub fn find() -> Self {
        if let Some(path) = std::env::var_os(CONFIG_DIR_VARIABLE).filter(|path| !path.is_empty()) {
            return Self::at(path);
        }
        ProjectDirs::from("", "", "habitat-tui").map_or_else(
            || Self::at(".habitat-tui"),
            |dirs| Self { config: dirs.config_dir().to_owned(), data: dirs.data_dir().to_owned() },
        )
    }

    /// Where files that can be made anew belong, in a folder of ours: `$XDG_CACHE_HOME` on
    /// every platform, else the platform's. `None` where the user has no home.
    pub fn cache() -> Option<PathBuf> {
        let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let of_platform = || ProjectDirs::from("", "", "habitat-tui").map(|dirs| dirs.cache_dir().to_owned());
        set.map(|path| path.join("habitat-tui")).or_else(of_platform)
    }

    /// A folder that is there and cannot be entered, and why; what would be in it is not read.
    pub fn closed(&self) -> Option<(&Path, std::io::Error)> {
        [&self.config, &self.data]
            .into_iter()
            .find_map(|folder| Some((folder.as_path(), super::files::closed(folder)?)))
    }

    /// Whether the user named the folder, and so means it.
    pub fn is_given() -> bool {
        std::env::var_os(CONFIG_DIR_VARIABLE).is_some_and(|path| !path.is_empty())
    }

    /// A given folder for everything.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let config = folder.into();
        Self { data: config.clone(), config }
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

    /// Operators that the user measured.
    pub fn measured(&self) -> PathBuf {
        self.config.join("measured")
    }

    /// The user's themes.
    pub fn themes(&self) -> PathBuf {
        self.config.join("themes")
    }

    /// Trained networks.
    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }
}
