//! Shell script of a part: environment, set-up, the training command, and the end of a spot part in time for the
//! machine that takes over.

use super::{Job, LaunchError, Launcher};
use habitat_base::units::Hours;

/// Placeholder for the training command.
const PLACEHOLDER: [&str; 2] = ["echo 'put the training command here' >&2", "exit 1"];
/// Seconds between two looks at the clock.
const LOOK_SECONDS: u32 = 20;

impl Launcher {
    /// Storage that it can mount, as an example.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::SkyPilot => "s3://BUCKET/PATH",
            Self::Dstack => "VOLUME",
            Self::Slurm => "FOLDER",
            Self::Kubernetes => "CLAIM",
        }
    }

    /// Whether what is mounted from a source outlives a machine; `None` = the machine's own disk.
    pub(super) fn keeps(self, source: Option<&String>) -> bool {
        match self {
            Self::SkyPilot => source.is_some_and(|source| source.contains("://")),
            Self::Dstack | Self::Kubernetes => source.is_some_and(|source| !source.starts_with('/')),
            Self::Slurm => true,
        }
    }
}

impl Job<'_> {
    /// Environment variables with their values, and those that come from the user's environment.
    pub(super) fn variables(&self) -> [Vec<(&str, &str)>; 2] {
        let all = self.start.launch.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let (passed, given) = all.partition(|(_, value)| value.is_empty());
        [given, passed]
    }

    /// Lines of a bash script that run on every machine of the part.
    pub(super) fn lines(&self, launcher: Launcher) -> Result<Vec<String>, LaunchError> {
        let launch = &self.start.launch;
        let Some(command) = &launch.command else {
            return Ok(PLACEHOLDER.map(str::to_owned).to_vec());
        };
        let [steps, program] = self.program(launcher, command)?;
        let mut lines = vec!["set -eo pipefail".to_owned()];
        if launcher == Launcher::Slurm {
            let [given, _] = self.variables();
            lines.extend(given.iter().map(|(name, value)| format!("export {name}={}", shell_words::quote(value))));
        }
        if let Some(copies) = self.copies {
            let first = copies.first();
            lines.extend(match launcher {
                Launcher::Slurm => Some("export COPY=\"$SLURM_ARRAY_TASK_ID\"".to_owned()),
                Launcher::Kubernetes if self.part.machines > 1 => Some(format!("export COPY={first}")),
                Launcher::Kubernetes => Some(format!("export COPY=\"$((JOB_COMPLETION_INDEX + {first}))\"")),
                Launcher::SkyPilot | Launcher::Dstack => None,
            });
        }
        if let Some(folder) = &launch.checkpoint_dir {
            let copy = if self.copies.is_some() { "-$COPY" } else { "" };
            let own = self.folder.map(|own| format!("$CHECKPOINT_ROOT/{own}{copy}"));
            lines.extend(own.is_some().then(|| format!("export CHECKPOINT_ROOT={folder}")));
            lines.push(format!("export CHECKPOINT_DIR={}", own.as_ref().unwrap_or(folder)));
            lines.push("mkdir -p \"$CHECKPOINT_DIR\"".to_owned());
        }
        // SkyPilot has a place of its own for it.
        lines.extend(launch.setup_command.clone().filter(|_| launcher != Launcher::SkyPilot));
        lines.extend(steps);
        match self.limit() {
            Some(limit) => lines.extend(ended(program, limit)),
            None => lines.extend(program),
        }
        Ok(lines)
    }

    /// Seconds from the submission after which another machine takes over, and microseconds more for each update that is
    /// done by then. That machine needs the rest of the time for the rest of the work. The script finds the time of the
    /// submission in `SUBMITTED`.
    pub(super) fn limit(&self) -> Option<[u64; 2]> {
        let (switch, next) = self.switch.zip(self.next).filter(|_| self.start.launch.command.is_some())?;
        let each = next.step_time_us.high.max(0.0);
        Some([(Hours::get(switch.latest) * 3600.0) as u64, each as u64])
    }
}

/// The program, ended at the limit. A machine that comes late, or after a loss, has less time, so the limit counts from
/// the submission.
fn ended(mut program: Vec<String>, [seconds, each]: [u64; 2]) -> Vec<String> {
    let last = program.pop().unwrap_or_default();
    let text = format!(
        r#"# Ends in time for the next part: {seconds} s after the submission, and {each} µs later for each update that the
# program has counted in $CHECKPOINT_DIR/progress (a number; without it, none).
[[ ${{SUBMITTED:-}} =~ ^[0-9]+$ ]] || {{ echo 'no time in SUBMITTED: submit it as its first lines say' >&2; exit 1; }}
updates=0
set -m
# When it is ended, this shell waits until the program has saved its work.
{{
trap 'exit 143' TERM
{last}
}} &
job=$!
while kill -0 "$job" 2>/dev/null; do
  read=$(cat "$CHECKPOINT_DIR/progress" 2>/dev/null || true)
  read=${{read%%[!0-9]*}}
  # The file may be half written, and updates do not get fewer.
  if [ "${{read:-0}}" -gt "$updates" ]; then updates=$read; fi
  if [ "$(date +%s)" -ge $((SUBMITTED + {seconds} + 10#$updates * {each} / 1000000)) ]; then
    kill -- "-$job" || true
    wait "$job" || true
    exit 0
  fi
  sleep {LOOK_SECONDS}
done
wait "$job""#
    );
    program.extend(text.lines().map(str::to_owned));
    program
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::ended;

    /// Exit code and output of a program that has to end some seconds after its submission, which was some seconds ago.
    fn run(name: &str, command: &str, seconds: u64, ago: u64) -> (Option<i32>, String) {
        let folder = std::env::temp_dir().join(format!("habitat-tui-ended-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let lines = ended(vec![command.to_owned()], [seconds, 0]).join("\n");
        let script = format!("set -eo pipefail\n{}", lines.replace("sleep 20", "sleep 0.1"));
        let mut bash = std::process::Command::new("bash");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        bash.args(["-c", &script]).env("CHECKPOINT_DIR", &folder).env("SUBMITTED", (now - ago).to_string());
        let out = bash.output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap())
    }

    #[test]
    fn a_program_with_a_comment_or_of_several_commands_ends_in_time() {
        assert_eq!(run("comment", "echo done # my run", 3600, 0), (Some(0), "done\n".to_owned()));
        assert_eq!(run("failed", "bash -c 'exit 7' # my run", 3600, 0), (Some(7), String::new()));
        // The first of two commands gets the time to save its work, and the second does not start.
        let saves =
            "bash -c 'trap \"sleep 1; echo saved; exit\" TERM; while :; do sleep 0.1; done'; echo second # both";
        assert_eq!(run("limit", saves, 4, 0), (Some(0), "saved\n".to_owned()));
        // A machine that comes late, or comes again after a loss, has the rest of the time only.
        assert_eq!(run("late", saves, 3600, 3596), (Some(0), "saved\n".to_owned()));
    }
}
