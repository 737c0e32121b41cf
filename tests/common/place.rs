//! A folder to run the program in, and jobs that are recorded there.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use habitat_tui::profile::Profile;
use serde_json::Value;

/// A folder to run in, and its variables.
pub struct Place {
    pub folder: tempfile::TempDir,
    pub variables: Vec<(String, String)>,
}

/// A job that ran under `habitat-tui run`.
pub struct Ran {
    pub output: Output,
    /// Facts recorded about the job, as JSON; null if there is no file.
    pub seen: Value,
    pub profile: Option<Profile>,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    pub fn with(name: &str, value: &str) -> Self {
        Self { variables: vec![(name.to_owned(), value.to_owned())], ..Self::new() }
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// A program with the folder's own configuration and without injected libraries.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.folder.path().join("config"))
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"))
            .env_remove("PYTHONPATH")
            .env_remove("CUDA_INJECTION64_PATH")
            .env_remove("NVTX_INJECTION64_PATH")
            .envs(self.variables.clone())
            .stdin(Stdio::null());
        command
    }

    pub fn habitat(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_habitat-tui"));
        command.args(arguments);
        command
    }

    /// Starts a job under `habitat-tui run`.
    pub fn start(&self, options: &[&str], job: &[&str]) -> Child {
        self.habitat(&["run", "-o", "p.habitat.json", "--json", "seen.json", "--force"])
            .args(options)
            .arg("--")
            .args(job)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits for a job from [`start`](Self::start), and reads its files.
    pub fn end(&self, child: Child) -> Ran {
        let output = child.wait_with_output().unwrap();
        let read = |name: &str| std::fs::read(self.path(name)).ok();
        let seen = read("seen.json").map_or(Value::Null, |json| serde_json::from_slice(&json).unwrap());
        let profile = read("p.habitat.json").map(|json| Profile::from_json(&json).unwrap().0);
        Ran { output, seen, profile }
    }

    pub fn run(&self, options: &[&str], job: &[&str]) -> Ran {
        self.end(self.start(options, job))
    }

    /// The same job without us.
    pub fn bare(&self, job: &[&str]) -> Output {
        self.command(job[0]).args(&job[1..]).output().unwrap()
    }
}

impl Ran {
    pub fn out(&self) -> String {
        out(&self.output)
    }

    pub fn err(&self) -> String {
        err(&self.output)
    }

    pub fn code(&self) -> i32 {
        self.output.status.code().unwrap()
    }

    /// Exit code and output of the job.
    pub fn job(&self) -> (i32, String) {
        (self.code(), self.out())
    }

    pub fn notes(&self) -> String {
        let recording = self.profile.as_ref().and_then(|profile| profile.recording.as_ref());
        recording.map_or_else(String::new, |recording| recording.notes.join("\n"))
    }

    fn processes(&self) -> &[Value] {
        self.seen["processes"].as_array().unwrap()
    }

    /// Steps of the processes that trained.
    pub fn steps(&self) -> Vec<u64> {
        let all = self.processes().iter().map(|process| process["steps"].as_u64().unwrap());
        all.filter(|steps| *steps > 0).collect()
    }

    /// First and last step of every window.
    pub fn windows(&self) -> Vec<(u64, u64)> {
        let all = self.processes().iter().flat_map(|process| process["windows"].as_array().unwrap());
        all.map(|window| (window["first"].as_u64().unwrap(), window["last"].as_u64().unwrap())).collect()
    }
}

pub fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits a minute at most.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
