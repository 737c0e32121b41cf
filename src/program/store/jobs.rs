//! Jobs that `run` started: a folder for each in the user's data folder. The process that keeps a job writes its files;
//! everybody else only reads them, so any number of terminals may look on, and none is needed.
//!
//! | file | content |
//! | --- | --- |
//! | `job.json` | [`KeptJob`], written before the job starts, and replaced once its process is known |
//! | `state.json` | [`KeptState`], replaced while it runs and at its end |
//! | `stop.1`, `stop.2` … | requests to stop it, each stronger than the one before |
//! | `messages` | what the keeping process wrote to standard error |

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::decompress::Limit;
use super::files::{StoreError, read, there};
use super::paths::Paths;
use super::save::{refresh, save_private};
use habitat_planning::plan::Goal;
use habitat_recorder::capture::{Identity, Presence};
use habitat_recorder::live::{Job, Snapshot, Standing};

/// Version of the files.
pub const VERSION: u32 = 1;

/// Requests to stop a job that are counted: after the third it is killed.
const MOST_STOPS: usize = 100;

/// Facts on a job that do not change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptJob {
    /// Always `habitat-kept-job`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Facts for the screens.
    pub job: Job,
    /// Time of its start by the machine's clock.
    pub started: jiff::Timestamp,
    /// Folder that it was started in.
    pub folder: PathBuf,
    /// Its profile, which need not exist yet.
    pub profile: PathBuf,
    /// The file with its output.
    pub log: PathBuf,
    /// The process that records it.
    pub keeper: Identity,
    /// Its first process.
    pub process: Identity,
    /// Goal of the plan that it follows; `None` without a plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// State of a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptState {
    /// The latest state.
    pub seen: Snapshot,
    /// Number of profiles written so far.
    pub profiles: u32,
    /// Why the profile is missing or not up to date.
    pub problem: Option<String>,
    /// Its end.
    pub end: Option<End>,
}

/// End of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Exit code, as in a shell.
    pub code: u8,
    /// The report.
    pub report: String,
}

/// A job's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFolder {
    /// The name of the job, which is that of the folder.
    pub name: String,
    path: PathBuf,
}

impl JobFolder {
    /// A folder by its path.
    pub fn at(path: &Path) -> Self {
        Self { name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path: path.to_owned() }
    }

    /// Creates a folder for a new job: `name`, or `name-2` if there is one of that name.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn reserve(paths: &Paths, name: &str) -> Result<Self, StoreError> {
        let all = std::path::absolute(paths.jobs()).unwrap_or_else(|_| paths.jobs());
        let failed = |source| StoreError::Write { path: all.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&all).map_err(failed)?;
        for number in 1_u32.. {
            let name = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
            match DirBuilder::new().mode(0o700).create(all.join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self::at(&all.join(name))).map_err(failed),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }

    /// All jobs that were started, the latest first; files that cannot be read are left out.
    ///
    /// # Errors
    /// [`StoreError`] if the folder cannot be listed.
    pub fn all(paths: &Paths) -> Result<Vec<(Self, KeptJob)>, StoreError> {
        let folder = paths.jobs();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StoreError::read(&folder, error)),
        };
        let one = |entry: fs::DirEntry| {
            let folder = Self::at(&entry.path());
            let job = folder.job().ok()?;
            Some((folder, job))
        };
        let mut all: Vec<_> = entries.flatten().filter_map(one).collect();
        all.sort_by_key(|(folder, job)| (std::cmp::Reverse(job.started), folder.name.clone()));
        Ok(all)
    }

    /// Path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The facts on the job.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read or has another form.
    pub fn job(&self) -> Result<KeptJob, StoreError> {
        let path = self.file("job.json");
        serde_json::from_slice(&read(&path, Limit::SETTINGS)?).map_err(|error| StoreError::content(&path, error))
    }

    /// The state of the job; that of its start if there is none.
    ///
    /// # Errors
    /// [`StoreError`] if the file cannot be read or has another form.
    pub fn state(&self) -> Result<KeptState, StoreError> {
        let path = self.file("state.json");
        let bytes = there(read(&path, Limit::SETTINGS))?.filter(|bytes| !bytes.is_empty());
        let state = bytes.map(|bytes| serde_json::from_slice(&bytes)).transpose();
        Ok(state.map_err(|error| StoreError::content(&path, error))?.unwrap_or_default())
    }

    /// Whether the job runs, and its last state.
    ///
    /// # Errors
    /// Errors of [`state`](Self::state).
    pub fn look(&self, job: &KeptJob) -> Result<(Standing, KeptState), StoreError> {
        // In this order: a process writes the end before its own.
        let keeper = job.keeper.presence();
        let mut state = self.state()?;
        let standing = match (keeper, &state.end) {
            (_, Some(_)) => Standing::Ended,
            (Presence::Runs, None) => Standing::Runs,
            (Presence::Elsewhere, None) => Standing::Elsewhere(job.keeper.host.clone()),
            (Presence::Rebooted, None) => Standing::Rebooted,
            (Presence::Ended, None) if job.process.presence() == Presence::Runs => Standing::Unwatched,
            (Presence::Ended, None) => Standing::Lost,
        };
        if matches!(standing, Standing::Unwatched | Standing::Lost | Standing::Rebooted) {
            (state.seen.steps_at_least, state.seen.elapsed_at_least) = (true, true);
        }
        Ok((standing, state))
    }

    /// Writes the facts on the job.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn write_job(&self, job: &KeptJob) -> Result<(), StoreError> {
        let path = self.file("job.json");
        let bytes = serde_json::to_vec_pretty(job).map_err(|error| StoreError::content(&path, error))?;
        save_private(&path, &bytes, true)
    }

    /// Writes the state of the job.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn write_state(&self, state: &KeptState) -> io::Result<()> {
        refresh(&self.file("state.json"), &serde_json::to_vec(state)?)
    }

    /// Asks the process that keeps the job to stop it, or to send the next stronger signal.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn ask_to_stop(&self) -> io::Result<()> {
        let next = self.stops() + 1;
        match File::create_new(self.file(&format!("stop.{next}"))) {
            // Another terminal asks at the same time.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Number of requests to stop it.
    pub fn stops(&self) -> usize {
        (1..MOST_STOPS).take_while(|number| self.file(&format!("stop.{number}")).exists()).count()
    }

    /// Removes the folder with all its files.
    ///
    /// # Errors
    /// [`StoreError::Write`].
    pub fn remove(&self) -> Result<(), StoreError> {
        fs::remove_dir_all(&self.path).map_err(|source| StoreError::Write { path: self.path.clone(), source })
    }
}
