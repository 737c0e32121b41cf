//! Exported jobs that run to their end with bash, with fake launchers.

use std::path::Path;
use std::process::{Command, Output};

use habitat_tui::plan::jobs::{Aim, JobsPlan, PlannedJob, Shared, Turn};
use habitat_tui::plan::{Confidence, Goal, Part, Plan, PlanStatus, SolverReport, Switch, Work};
use habitat_tui::pricing::{Offer, Tier};
use habitat_tui::report::launch::{JobStart, Launch, LaunchFile, Launcher, Start, files, texts};
use habitat_tui::store::bundled;
use habitat_tui::units::{Hours, Range, UsdPerHour};

use super::tests::{part, plan};

fn offer(tier: Tier) -> Offer {
    bundled::offers().into_iter().find(|offer| offer.instance_type == "g5.xlarge" && offer.tier == tier).unwrap()
}

fn job(name: &str, after: Vec<usize>, start: f64) -> PlannedJob {
    let at = |hours| Range { low: hours, mid: hours, high: hours }.map(Hours::known);
    PlannedJob {
        name: name.to_owned(),
        machine: None,
        part: part(&offer(Tier::OnDemand)).unwrap(),
        earliest: Hours::ZERO,
        after,
        turn: Turn::default(),
        priority: 1.0,
        soft_deadlines: Vec::new(),
        hour_value: None,
        start: at(start),
        end: at(start + 10.0),
        deadline: None,
        goal: Goal::new(Work::Steps(1000)),
        notes: Vec::new(),
    }
}

/// Three jobs in a chain, and three copies of another; each appends a line to `$LOG`.
pub(crate) fn chain_and_copies() -> (JobsPlan, Vec<JobStart>) {
    let jobs = vec![
        job("pretrain", Vec::new(), 0.0),
        job("fine-tune", vec![0], 10.0),
        job("evaluate", vec![1], 20.0),
        job("sweep 1", Vec::new(), 0.0),
        job("sweep 2", Vec::new(), 0.0),
        job("sweep 3", Vec::new(), 0.0),
    ];
    let usual: Launch = toml::from_str(
        "checkpoint_dir = \"$STORE\"\npartition = \"gpu\"\nimage = \"x\"\nqueue = \"lab\"\n[env]\nKIND = \"it's stub\"",
    )
    .unwrap();
    let starts = jobs.iter().map(|job| {
        let (name, copy) = match job.name.split_once(' ') {
            Some((name, number)) => (name.to_owned(), number.parse().ok()),
            None => (job.name.clone(), None),
        };
        let folder =
            if copy.is_some() { "" } else { "test ! -e $CHECKPOINT_DIR/done && touch $CHECKPOINT_DIR/done && " };
        let command = format!("{folder}echo \"{name} ${{COPY:-}} $KIND\" >> $LOG");
        let launch = Launch { command: Some(command), ..usual.clone() };
        JobStart { name, copy, start: Start { launch, ..Start::default() } }
    });
    let starts = starts.collect();
    let shared = Shared {
        deadline: None,
        budget: None,
        max_price: None,
        quotas: Vec::new(),
        wait: true,
        confidence: Confidence::High,
        late_price: None,
        hour_value: None,
    };
    let plan = JobsPlan {
        status: PlanStatus::Optimal,
        aim: Aim::Cost,
        jobs,
        time_cost: None,
        total: None,
        bound: None,
        reasons: Vec::new(),
        shared,
        solver: SolverReport { name: String::new(), offers: 0, configurations: 0, gap: None },
        warnings: Vec::new(),
        notes: Vec::new(),
    };
    (plan, starts)
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

/// Fake tools: each runs the command of its file at once.
const STUBS: [(&str, &str); 8] = [
    ("srun", "exec \"$@\""),
    (
        "sbatch",
        r#"for file; do :; done
array=$(sed -n 's/^#SBATCH --array=\([0-9]*\)-\([0-9]*\).*/\1 \2/p' "$file")
for id in $(seq ${array:-1 1}); do SLURM_ARRAY_TASK_ID=$id SLURM_CPUS_PER_TASK=4 bash "$file" 1>&2 || exit 1; done
echo "sbatch $*" >> "$CALLS"
echo 7"#,
    ),
    (
        "dstack",
        r#"[ "$1" = run ] && { echo '  "status": "done",'; exit; }
copy=$(echo "$*" | sed -n 's/.*-e COPY=\([0-9]*\).*/\1/p'); for file; do :; done
script=$(mktemp)
sed -n 's/^  - "\(KIND=.*\)"/export \1/p' "$file" | sed "s/=\(.*\)/=\"\1\"/" > "$script"
sed -n '/^  - |/,$p' "$file" | sed '1d' >> "$script"
COPY=$copy bash "$script""#,
    ),
    (
        "sky",
        r#"[ "$2" = logs ] && exit
for file; do :; done
for word; do case $word in COPY=*|SUBMITTED=*) export "$word" ;; esac; done
export KIND="it's stub"
scripts=$(mktemp -d)
awk -v to="$scripts" '/^---/ {n++} /^run: /{on=1; next} /^[^ ]/{on=0} on {print > sprintf("%s/%d", to, n)}' "$file"
for part in "$scripts"/*; do bash "$part" || exit 1; done
echo "Job submitted, ID: 7""#,
    ),
    (
        "kubectl",
        r#"case $1 in
  get) if [ "$2" = -f ]; then [ -e "$3.sh" ]; else echo "Complete "; fi ;;
  create)
    export KIND="it's stub"
    sed -nE '/^ *- \|/,/^ *(env|resources):/p' "$3" | sed '1d;$d' > "$3.sh"
    count=$(sed -n 's/^ *completions: //p' "$3")
    for index in $(seq 0 $((${count:-1} - 1))); do JOB_COMPLETION_INDEX=$index bash "$3.sh" || { rm "$3.sh"; exit 1; }; done ;;
esac"#,
    ),
    ("python", "echo \"python $*\" >> \"$LOG\""),
    ("torchrun", "echo \"torchrun $*\" >> \"$LOG\""),
    ("sleep", "exec /bin/sleep 0.05"),
];

pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        for (name, text) in STUBS {
            write(&dir.path().join("bin").join(name), &format!("#!/bin/bash\n{text}\n"));
        }
        Self { dir }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn bash(&self, script: &Path, store: &str) -> Output {
        self.bash_with(script, store, &[])
    }

    pub(crate) fn bash_with(&self, script: &Path, store: &str, more: &[(&str, String)]) -> Output {
        self.command(script, store).envs(more.iter().map(|(name, value)| (name, value))).output().unwrap()
    }

    fn command(&self, script: &Path, store: &str) -> Command {
        let path = format!("{}:{}", self.dir.path().join("bin").display(), std::env::var("PATH").unwrap());
        let at = |name: &str| self.dir.path().join(name);
        let mut bash = Command::new("bash");
        bash.arg(script).env("PATH", path).env("LOG", at("log")).env("CALLS", at("calls")).env("STORE", at(store));
        bash
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }
}

/// Each tool's files run all jobs once, a chain in its order, and every copy with its own number.
pub(crate) fn jobs_run_in_their_order() {
    let (plan, starts) = chain_and_copies();
    for launcher in Launcher::ALL {
        let place = Place::new();
        let folder = place.dir.path().join("out");
        std::fs::create_dir(&folder).unwrap();
        let all = files(&plan, &starts, launcher).unwrap().0;
        for LaunchFile { name, text } in &all {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let out = place.bash(&folder.join("start.sh"), "store");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{launcher}: {said}\n{}", all.last().unwrap().text);
        let log = place.read("log");
        let lines: Vec<&str> = log.lines().map(str::trim).collect();
        let chain: Vec<&str> = lines.iter().filter(|line| !line.starts_with("sweep")).copied().collect();
        assert_eq!(chain, ["pretrain  it's stub", "fine-tune  it's stub", "evaluate  it's stub"], "{launcher}: {said}");
        let mut copies: Vec<&str> = lines.iter().filter(|line| line.starts_with("sweep")).copied().collect();
        copies.sort_unstable();
        assert_eq!(copies, ["sweep 1 it's stub", "sweep 2 it's stub", "sweep 3 it's stub"], "{launcher}: {said}");
        if launcher == Launcher::Slurm {
            assert!(
                place
                    .read("calls")
                    .contains("sbatch --parsable --dependency=afterok:7 --kill-on-invalid-dep=yes evaluate.sbatch")
            );
        }
        // Started again, it starts nothing that it started before.
        let again = place.bash(&folder.join("start.sh"), "store");
        assert!(again.status.success(), "{launcher}: {again:?}");
        assert_eq!(place.read("log"), log, "{launcher}");
        // A run from the beginning finds the checkpoints of the first: the chain fails at its head, and nothing after it
        // starts.
        std::fs::remove_dir_all(folder.join(".started")).unwrap();
        for LaunchFile { name, .. } in &all {
            // `kubectl delete`.
            let _ = std::fs::remove_file(folder.join(format!("{name}.sh")));
        }
        let anew = place.bash(&folder.join("start.sh"), "store");
        assert!(launcher == Launcher::SkyPilot || !anew.status.success(), "{launcher}");
        assert_eq!(place.read("log").matches("evaluate").count(), 1, "{launcher}");
        // Jobs that failed start again.
        if [Launcher::Dstack, Launcher::Kubernetes].contains(&launcher) {
            std::fs::remove_dir_all(place.dir.path().join("store")).unwrap();
            let again = place.bash(&folder.join("start.sh"), "store");
            assert!(again.status.success(), "{launcher}: {again:?}");
            assert_eq!(place.read("log").matches("evaluate").count(), 2, "{launcher}");
        }
    }
}

/// A tool whose jobs go on without it. `sky` follows a job by its number, and loses the first connection; `kubectl`
/// creates a job once, and would stop it by an apply.
const SERVICE: &str = r#"#!/bin/bash
case "$1 $2" in
  "jobs logs")
    name=$(cat "$LOG.$3")
    [ -e "$LOG.$3.lost" ] || { touch "$LOG.$3.lost"; exit 1; }
    until [ -e "$LOG.$name" ]; do /bin/sleep 0.02; done ;;
  "run get") [ -e "$LOG.$3" ] && echo '  "status": "done",' || echo '  "status": "running",' ;;
  "get -f") [ -e "$LOG.of.$3" ] ;;
  get\ *) [ -e "$LOG.${2#job/}" ] && echo "Complete " ;;
  *)
    name=$(echo "$*" | sed -E 's/.* -n ([^ ]*).*/\1/; s/create -f (.*)\.k8s.yaml/\1/')
    [ "$1" != create ] || mkdir "$LOG.of.$3" || exit 1
    echo "$name" >> "$CALLS"
    (/bin/sleep 0.5; echo "$name" >> "$LOG"; touch "$LOG.$name") > /dev/null 2>&1 &
    echo "$name" > "$LOG.$$"
    printf '\033[2mJob submitted, ID: %s\033[0m\n' $$ ;;
esac
"#;

/// A script that is killed and started again follows the jobs that run, and starts each of the others once.
pub(crate) fn a_killed_start_goes_on_where_it_stopped() {
    let (mut plan, starts) = chain_and_copies();
    // No chain that one command starts.
    plan.jobs[3..].iter_mut().for_each(|job| job.after = vec![0]);
    let tools = [(Launcher::Dstack, "dstack"), (Launcher::SkyPilot, "sky"), (Launcher::Kubernetes, "kubectl")];
    for (launcher, tool) in tools {
        let place = Place::new();
        write(&place.dir.path().join("bin").join(tool), SERVICE);
        let script = place.dir.path().join("start.sh");
        let all = files(&plan, &starts, launcher).unwrap().0;
        std::fs::write(&script, &all.last().unwrap().text).unwrap();
        let mut first = place.command(&script, "store").spawn().unwrap();
        // The first job was launched, and has not ended. Copies are one job of Kubernetes.
        let (launched, copies): (&str, &[&str]) = match launcher {
            Launcher::Kubernetes => ("log.of.pretrain.k8s.yaml", &["sweep"]),
            _ => (".started/pretrain.id", &["sweep-1", "sweep-2", "sweep-3"]),
        };
        let expected = [&["evaluate", "fine-tune", "pretrain"], copies].concat();
        while !place.dir.path().join(launched).exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        first.kill().unwrap();
        first.wait().unwrap();
        let again = place.bash(&script, "store");
        assert!(again.status.success(), "{launcher}: {again:?}\n{}", all.last().unwrap().text);
        // The script does not wait for jobs that no other waits for.
        while place.read("log").lines().count() < expected.len() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (calls, log) = (place.read("calls"), place.read("log"));
        let mut ran: Vec<&str> = log.lines().collect();
        ran.sort_unstable();
        assert_eq!(ran, expected, "{launcher}: {calls}");
        assert!(log.find("pretrain") < log.find("fine-tune") && log.find("fine-tune") < log.find("evaluate"), "{log}");
        assert_eq!(calls.matches("pretrain\n").count(), 1, "{launcher}: {calls}");
        // All have ended: a third start does nothing.
        assert!(place.bash(&script, "store").status.success());
        assert_eq!(place.read("calls"), calls, "{launcher}");
    }
}

/// Counts its steps in the checkpoints' folder, ten per second, up to a hundred.
const TRAINS: &str = r#"done=$(cat "$CHECKPOINT_DIR/progress" 2>/dev/null || echo 0)
trap 'exit 143' TERM
while [ "$done" -lt 100 ]; do
  /bin/sleep 0.1
  done=$((done + 1))
  echo $done > "$CHECKPOINT_DIR/progress"
done
echo "all $done steps on $1" >> "$LOG"
"#;

/// The spot part stops when on-demand needs the remaining time, but not before; the next part finishes the work.
pub(crate) fn a_spot_part_ends_and_the_next_goes_on() {
    let to = offer(Tier::OnDemand);
    for (step_us, ends) in [(10_000.0, true), (1e6, false)] {
        let place = Place::new();
        let train = place.dir.path().join("train.sh");
        write(&train, TRAINS);
        let spot = part(&Offer { price: UsdPerHour::known(0.1), ..offer(Tier::Spot) }).unwrap();
        let next = Part { step_time_us: Range { low: step_us, mid: step_us, high: step_us }, ..part(&to).unwrap() };
        let switch = Switch { to: to.id.clone(), latest: Hours::known(2.0 / 3600.0), is_expected: true };
        let both = Plan { switch: Some(switch), ..plan(vec![spot, next]) };
        let launch = Launch {
            command: Some(format!("bash {} $TIER", train.display())),
            checkpoint_dir: Some("$STORE".to_owned()),
            partition: Some("gpu".to_owned()),
            ..Launch::default()
        };
        let start = Start { launch, ..Start::default() };
        let scripts = texts(&both, "stub", Launcher::Slurm, &start).unwrap();
        for (at, text) in scripts.iter().enumerate() {
            let script = place.dir.path().join(format!("part{at}.sbatch"));
            std::fs::write(&script, format!("TIER=part{at}\n{text}")).unwrap();
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
            let out = place.bash_with(&script, "store", &[("SUBMITTED", now.to_string())]);
            assert!(out.status.success(), "{}\n{text}", String::from_utf8_lossy(&out.stderr));
            let done: u32 = place.read("store/progress").trim().parse().unwrap();
            // Two seconds, and 10 ms for each of about 20 steps; or a second for each, so that the time never comes.
            assert_eq!(at == 0 && done < 60, at == 0 && ends, "{done}");
        }
        let log = place.read("log");
        assert!(log.starts_with(if ends { "all 100 steps on part1" } else { "all 100 steps on part0" }), "{log}");
    }
}
