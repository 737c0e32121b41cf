//! Reasons in a job's processes and command for not recording anything.

use std::ffi::OsString;
use std::path::Path;

use super::outcome::End;
use super::report::Recorder;
use crate::store::{self, Limit};
use habitat_recorder::capture::{Barrier, ProcessScan, Recording, RecordingStatus, WithoutHook};

/// Facts about a job in addition to the hook's messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) command: &'a [OsString],
    pub(super) recording: &'a Recording,
    pub(super) scan: &'a ProcessScan,
    pub(super) recorder: Recorder,
}

impl Surroundings<'_> {
    /// The reason and the remedy; `None` if these facts do not explain it.
    pub(super) fn reason(&self, seen: &RecordingStatus, end: End) -> Option<String> {
        use RecordingStatus::{Dropped, NoKernels, NoPython, NoSteps, NoTorch, OtherRanks, Recorded, TooFew, TooOld};
        let reason = match seen {
            Recorded | TooOld(_) | OtherRanks | Dropped(_) | NoKernels(_) => None,
            TooFew { .. } => self.survivor(end, true),
            NoPython => self.survivor(end, false).or_else(|| self.handed_over()).or_else(|| self.without_hook(false)),
            NoTorch => self
                .survivor(end, false)
                .or_else(|| self.without_hook(true))
                .or_else(|| self.framework())
                .or_else(|| self.handed_over()),
            NoSteps => self
                .survivor(end, false)
                .or_else(|| self.without_hook(true))
                .or_else(|| self.by_hand())
                .or_else(|| self.framework()),
        };
        reason.map(|reason| format!("nothing recorded: {reason}"))
    }

    /// The same during the job, for reasons that are already certain.
    pub(super) fn so_far(&self, seen: &RecordingStatus) -> Option<String> {
        let reason = match seen {
            RecordingStatus::NoPython => self.without_hook(false),
            RecordingStatus::NoTorch => self.without_hook(true).or_else(|| self.framework()),
            _ => None,
        };
        reason.map(|reason| format!("nothing recorded yet: {reason}"))
    }

    /// A process that outlives the command; with `trains`, one that imported PyTorch.
    fn survivor(&self, end: End, trains: bool) -> Option<String> {
        if end != End::Well {
            return None;
        }
        let has_torch = |pid: &u32| self.recording.processes.get(pid).is_some_and(|process| process.has_torch);
        let (pid, command) = self.scan.survivors.iter().find(|(pid, _)| !trains || has_torch(pid))?;
        Some(format!(
            "the command has ended, but a process that it started is still running (process {pid}, `{command}`). Keep it in the \
             foreground (`wait` at the end of the script), or start it after `eval \"$(habitat-tui env)\"` and use \
             `habitat-tui attach`"
        ))
    }

    /// A Python process without the hook; with `trains`, one that loaded PyTorch.
    fn without_hook(&self, trains: bool) -> Option<String> {
        let all = || self.scan.without_hook.iter().filter(|one| one.has_torch || !trains);
        let WithoutHook { pid, command, why, .. } = all().max_by_key(|one| (one.has_torch, one.pid))?;
        let why = match why {
            Barrier::SearchPath(path) => {
                let set =
                    if path.is_empty() { "removes PYTHONPATH".to_owned() } else { format!("sets PYTHONPATH={path}") };
                let kept = if path.is_empty() {
                    "Keep it".to_owned()
                } else {
                    format!("Write `PYTHONPATH={path}:$PYTHONPATH`")
                };
                format!("the job {set}, which disables the hook. {kept}")
            }
            Barrier::Switch(switch) => {
                format!("`-{switch}` disables the hook. Omit it for the recording")
            }
            Barrier::Environment => "it lacks the hook's environment variables, as after `env -i` or `sudo`. Pass on \
                                     PYTHONPATH, HABITAT_TUI_SOCKET and HABITAT_TUI_HOOK"
                .to_owned(),
        };
        Some(format!("no hook in process {pid} (`{command}`): {why}"))
    }

    /// A command that hands the training over to another program and exits.
    fn handed_over(&self) -> Option<String> {
        let words: Vec<String> = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let scripts = words.iter().take(2).filter_map(|word| script_text(Path::new(word)));
        let lines: Vec<String> = words.iter().cloned().chain(scripts).collect();
        lines
            .iter()
            .flat_map(|text| commands(text))
            .chain(std::iter::once(words))
            .find_map(|command| elsewhere(&command))
    }

    /// Another framework.
    fn framework(&self) -> Option<String> {
        if self.recorder != Recorder::Hook {
            return None;
        }
        let name = self.recording.processes.values().flat_map(|process| &process.frameworks).next()?;
        let cupti = "`habitat-tui run --cupti` records its kernels on an NVIDIA GPU";
        let profile = |how: &str| format!("; or save a profile ({how}) and use `habitat-tui import FILE.xplane.pb`");
        let (name, profile) = match name.as_str() {
            "jax" => ("JAX", profile("jax.profiler.trace, with a StepTraceAnnotation around each step")),
            "tensorflow" => {
                ("TensorFlow", profile("tf.profiler.experimental.start and stop, with a Trace around each step"))
            }
            "paddle" => ("PaddlePaddle", String::new()),
            "mxnet" => ("MXNet", String::new()),
            "mindspore" => ("MindSpore", String::new()),
            other => (other, String::new()),
        };
        Some(format!("this is {name}, but the hook records PyTorch: {cupti}{profile}"))
    }

    /// Backward passes without a step of an optimizer.
    fn by_hand(&self) -> Option<String> {
        let passes = self.recording.processes.values().map(|process| process.backward_passes).max()?;
        (passes > 1).then(|| {
            format!(
                "the job made {passes} backward passes without calling step() afterwards: it updates its \
                 parameters in its own code. Put the update into a class with a step() method, or save a trace with \
                 torch.profiler and use `habitat-tui import`"
            )
        })
    }
}

/// Size limit of scripts to examine, bytes.
const SCRIPT: u64 = 1 << 16;

/// The text of a shell script; `None` for other files.
fn script_text(path: &Path) -> Option<String> {
    if !std::fs::metadata(path).is_ok_and(|there| there.is_file() && there.len() <= SCRIPT) {
        return None;
    }
    let text = store::read_text(path, Limit::SETTINGS).ok()?;
    let first = text.lines().next().unwrap_or_default();
    let is_shell = first.starts_with("#!") && first.ends_with("sh");
    (is_shell || path.extension().is_some_and(|extension| extension == "sh")).then_some(text)
}

/// The commands in a shell script, split into words; quotes are ignored.
fn commands(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let parts = lines.flat_map(|line| line.split([';', '|', '&', '(', ')', '`']));
    let word = |word: &str| word.trim_matches(['"', '\'']).to_owned();
    parts.map(|part| part.split_whitespace().map(word).collect()).collect()
}

/// Place in which a command runs the training, if not in a child process.
fn elsewhere(command: &[String]) -> Option<String> {
    let mut words = command.iter().map(|word| word.rsplit('/').next().unwrap_or(word));
    let name = words.find(|word| {
        !word.contains('=')
            && !matches!(*word, "exec" | "nohup" | "time" | "env" | "sudo" | "command" | "if" | "then" | "do" | "!")
    })?;
    let rest: Vec<&str> = words.collect();
    let has = |wanted: &[&str]| rest.iter().any(|word| wanted.contains(word));
    let is_detached = rest.iter().any(|word| {
        *word == "--detach"
            || word
                .strip_prefix('-')
                .is_some_and(|short| !short.starts_with('-') && short.contains('d') && short.len() < 5)
    });
    match name {
        "sbatch" | "qsub" | "bsub" | "msub" | "oarsub" | "condor_submit" => Some(format!(
            "`{name}` queues the training and exits. Put `habitat-tui run` into the batch script, before the training \
             command"
        )),
        "sky" | "dstack" | "kubectl" | "ray"
            if has(&["launch", "exec", "jobs", "apply", "create", "job", "run", "submit"]) =>
        {
            Some(format!(
                "`{name}` runs the training on another machine. Put `habitat-tui run` before the training command there"
            ))
        }
        "docker" | "podman" | "nerdctl" if has(&["run", "exec", "start", "compose"]) => {
            let ends = if is_detached { " and exits" } else { "" };
            Some(format!(
                "`{name}` runs the training in a container{ends}, which the hook does not reach. Run habitat-tui in \
                 there: `{name} run … habitat-tui run -- python train.py`"
            ))
        }
        "screen" | "tmux" => Some(format!(
            "`{name}` runs the training under its own server. Start habitat-tui in there: `{name} … habitat-tui run -- \
             python train.py`"
        )),
        "systemd-run" | "at" | "batch" => Some(format!(
            "`{name}` starts the training through another service. Let it start `habitat-tui run -- python train.py`"
        )),
        "ssh" => Some("`ssh` runs the training on another machine. Run habitat-tui there".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_recorder::capture::messages::{Hello, Message, Stage};

    struct Job {
        command: Vec<OsString>,
        recording: Recording,
        scan: ProcessScan,
    }

    impl Job {
        fn new(command: &[&str]) -> Self {
            let command = command.iter().map(OsString::from).collect();
            Self { command, recording: Recording::default(), scan: ProcessScan::default() }
        }

        fn reason(&self, end: End) -> Option<String> {
            let Self { command, recording, scan } = self;
            Surroundings { command, recording, scan, recorder: Recorder::Hook }.reason(&recording.status(), end)
        }

        fn hear(&mut self, pid: u32, message: Message) {
            self.recording.hear(pid, message);
        }
    }

    fn hello(stage: Stage) -> Message {
        Message::Hello(Hello { version: 1, pid: 7, stage, python: None, torch: None, rank: None })
    }

    #[test]
    fn commands_that_hand_the_training_over_are_named() {
        let says = |command: &[&str]| Job::new(command).reason(End::Well).unwrap_or_default();
        for (command, words) in [
            (&["sbatch", "job.sbatch"][..], "`sbatch` queues the training"),
            (&["bash", "-c", "cd run && /usr/bin/sbatch --wait job.sbatch"], "`sbatch` queues the training"),
            (&["env", "A=1", "qsub", "job"], "`qsub` queues"),
            (&["docker", "run", "-d", "image", "python", "train.py"], "in a container and exits"),
            (&["sh", "-c", "podman run --rm -it image python train.py"], "in a container, which"),
            (&["tmux", "new", "-d", "python train.py"], "under its own server"),
            (&["ssh", "node", "python", "train.py"], "on another machine"),
            (&["kubectl", "apply", "-f", "job.yaml"], "on another machine"),
        ] {
            assert!(says(command).contains(words), "{command:?}: {}", says(command));
        }
        for command in
            [&["python", "train.py"][..], &["bash", "-c", "python sbatch.py; echo docker run"], &["kubectl", "get"]]
        {
            assert_eq!(says(command), "", "{command:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("submit");
        std::fs::write(&script, "#!/bin/bash\n# sbatch is below\nfor i in 1 2\ndo sbatch job.$i\ndone\n").unwrap();
        assert!(says(&[script.to_str().unwrap()]).contains("`sbatch` queues"));
    }

    #[test]
    fn a_process_that_goes_on_is_named() {
        let mut job = Job::new(&["bash", "-c", "python train.py & echo"]);
        job.scan.survivors = vec![(41, "python train.py".into())];
        let said = job.reason(End::Well).unwrap();
        assert!(said.contains("is still running (process 41, `python train.py`)") && said.contains("attach"), "{said}");
        assert_eq!(job.reason(End::Stopped), None);
        // A server that outlives the training is not the reason.
        job.hear(7, hello(Stage::Torch));
        job.hear(7, Message::Exit { steps: 3, backward_passes: 1 });
        assert_eq!(job.reason(End::Well), None);
        job.hear(41, hello(Stage::Torch));
        assert!(job.reason(End::Well).unwrap().contains("process 41"));
    }

    #[test]
    fn what_shuts_the_hook_out_is_named() {
        let mut job = Job::new(&["bash", "train.sh"]);
        let one = |pid, has_torch, why| WithoutHook { pid, command: "python t.py".into(), has_torch, why };
        job.scan.without_hook =
            vec![one(5, true, Barrier::SearchPath("src".into())), one(6, false, Barrier::Switch('I'))];
        let said = job.reason(End::Well).unwrap();
        assert!(said.contains("process 5") && said.contains("`PYTHONPATH=src:$PYTHONPATH`"), "{said}");
        job.scan.without_hook.remove(0);
        assert!(job.reason(End::Failed).unwrap().contains("`-I` disables the hook"));
        // A helper process; the training is another Python process.
        job.hear(7, hello(Stage::Python));
        assert_eq!(job.reason(End::Well), None);
    }

    #[test]
    fn other_frameworks_and_updates_by_hand_are_named() {
        let mut job = Job::new(&["python", "train.py"]);
        job.hear(7, hello(Stage::Python));
        job.hear(7, Message::Framework { name: "jax".into() });
        let said = job.reason(End::Well).unwrap();
        let Job { command, recording, scan } = &job;
        let surroundings = Surroundings { command, recording, scan, recorder: Recorder::Hook };
        assert!(surroundings.so_far(&recording.status()).unwrap().contains("this is JAX"));
        for words in
            ["this is JAX", "habitat-tui run --cupti", "jax.profiler.trace", "habitat-tui import FILE.xplane.pb"]
        {
            assert!(said.contains(words), "{said}");
        }
        job.hear(7, hello(Stage::Torch));
        job.hear(7, Message::Exit { steps: 0, backward_passes: 40 });
        let said = job.reason(End::Well).unwrap();
        assert!(said.contains("40 backward passes") && said.contains("step()"), "{said}");
    }
}
