//! Folders of the user's files, by the conventions of the platform.

use std::path::{Path, PathBuf};

use directories::ProjectDirs;

/// Environment variable with a folder to use instead of the platform's configuration and data folders.
pub(crate) const CONFIG_DIR_VARIABLE: &str = "HABITAT_TUI_CONFIG_DIR";

/// The user's folders, which need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    config: PathBuf,
    data: PathBuf,
}

impl Paths {
    /// `$HABITAT_TUI_CONFIG_DIR`, or otherwise the platform's configuration and data folders, or `.habitat-tui` in the
    /// current folder if the user has no home.
    pub fn find() -> Self {
        if let Some(path) = std::env::var_os(CONFIG_DIR_VARIABLE).filter(|path| !path.is_empty()) {
            return Self::at(path);
        }
        ProjectDirs::from("", "", "habitat-tui").map_or_else(
            || Self::at(".habitat-tui"),
            |dirs| Self { config: dirs.config_dir().to_owned(), data: dirs.data_dir().to_owned() },
        )
    }

    /// Our folder for files that can be recreated: in `$XDG_CACHE_HOME` on every platform, or otherwise in the
    /// platform's cache folder. `None` if the user has no home.
    pub fn cache() -> Option<PathBuf> {
        let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let of_platform = || ProjectDirs::from("", "", "habitat-tui").map(|dirs| dirs.cache_dir().to_owned());
        set.map(|path| path.join("habitat-tui")).or_else(of_platform)
    }

    /// An existing folder that cannot be entered, with the error. Its files are not read.
    pub fn closed(&self) -> Option<(&Path, std::io::Error)> {
        [&self.config, &self.data]
            .into_iter()
            .find_map(|folder| Some((folder.as_path(), super::files::closed(folder)?)))
    }

    /// Whether the user has set the folder explicitly.
    pub(crate) fn is_given() -> bool {
        std::env::var_os(CONFIG_DIR_VARIABLE).is_some_and(|path| !path.is_empty())
    }

    /// Uses one folder for everything.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        let config = folder.into();
        Self { data: config.clone(), config }
    }

    /// Settings file.
    pub fn settings(&self) -> PathBuf {
        self.config.join("config.toml")
    }

    /// Folder of the user's GPUs.
    pub fn catalog(&self) -> PathBuf {
        self.config.join("catalog")
    }

    /// Folder of the user's prices.
    pub fn pricing(&self) -> PathBuf {
        self.config.join("pricing")
    }

    /// Folder of operators that the user measured.
    pub fn measured(&self) -> PathBuf {
        self.config.join("measured")
    }

    /// Folder of the user's themes.
    pub fn themes(&self) -> PathBuf {
        self.config.join("themes")
    }

    /// Folder of started jobs.
    pub fn jobs(&self) -> PathBuf {
        self.data.join("jobs")
    }

    /// Folder of trained networks.
    pub fn models(&self) -> PathBuf {
        self.data.join("models")
    }
}
