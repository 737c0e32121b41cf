//! Several jobs as input for tools that start them: a file for each job, and a script that starts them in the order of
//! the plan. A job waits for those before it, and for the ends of those whose place it takes
//! ([`Turn`](habitat_planning::plan::jobs::Turn)), so that shared limits hold however long jobs take.
//!
//! | tool | copies of a job | a job after others | a job that takes the place of others |
//! | --- | --- | --- | --- |
//! | Slurm | an array, if the limits need no other order; else one by one | `--dependency=afterok` | `afterany` |
//! | `SkyPilot` | one task, started for each | a managed pipeline if the jobs are a chain, else the script waits | the script waits |
//! | dstack | one task, started for each | the script waits | the script waits |
//! | Kubernetes | an indexed `Job`, as the array of Slurm; else a `Job` for each | the script waits | the script waits |
//!
//! A copy finds its number, from 1, in `COPY`.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Copies, Job, LaunchError, Launcher, Start, dstack, kubernetes, skypilot, slurm};
use habitat_base::text;
use habitat_base::units::Hours;
use habitat_planning::plan::Part;
use habitat_planning::plan::jobs::{JobsPlan, PlannedJob};
use habitat_planning::pricing::Tier;

/// How one job of a plan starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobStart {
    /// Name without the number of a copy.
    pub name: String,
    /// Number of a copy, from 1; `None` if the job has no copies.
    pub copy: Option<u64>,
    /// The user's settings for the start.
    pub start: Start,
}

/// A file of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchFile {
    /// Its name, without a folder.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// Equal copies of one job, or one job alone.
struct Group<'a> {
    /// Places in the plan.
    jobs: Vec<usize>,
    first: &'a PlannedJob,
    start: &'a JobStart,
    /// Name of its file without the ending. It and those of its copies are unique in the plan.
    name: String,
    copies: Option<Copies>,
    /// Whether one command starts all copies.
    is_array: bool,
}

/// Jobs that one command starts.
struct Run<'a> {
    /// One, or those of a pipeline.
    tasks: Vec<&'a Group<'a>>,
    name: String,
    /// Places in the plan.
    jobs: Vec<usize>,
    copy: Option<u64>,
}

/// Name of the script that starts all files.
const SCRIPT: &str = "start.sh";

/// Files, and what the tool does not start.
type Exported = (Vec<LaunchFile>, Vec<String>);

/// Files that start the jobs of a plan that the tool can start, the script last; and for the other jobs, the reason and
/// the tools that can. `starts` are those of its jobs, in the same order.
///
/// # Errors
/// [`LaunchError`] with the offer if the tool can start no job, with the job if it waits for one that the tool cannot
/// start, or with the value that is missing or invalid.
pub fn files(plan: &JobsPlan, starts: &[JobStart], launcher: Launcher) -> Result<Exported, LaunchError> {
    if plan.jobs.is_empty() {
        return Err(LaunchError::NoPlan(crate::words::joined(&plan.reasons, "; ")));
    }
    let (mut groups, mut left) = (Vec::new(), Vec::new());
    let has_own = plan.jobs.iter().any(|job| job.part.offer.tier == Tier::Owned);
    for group in self::groups(plan, starts, launcher) {
        group.start.start.launch.check()?;
        match group.check_owner(launcher, has_own).and_then(|()| file(&[&group], launcher)) {
            Ok(_) => groups.push(group),
            Err(error @ LaunchError::Refused { .. }) => left.push((group, error)),
            Err(error) => return Err(error),
        }
    }
    if groups.is_empty() {
        return Err(left.swap_remove(0).1);
    }
    let named = |jobs: &[usize]| {
        let names: Vec<&str> = jobs.iter().map(|job| plan.jobs[*job].name.as_str()).collect();
        text::clean(&names.join(", "), 200)
    };
    let missing: Vec<usize> = left.iter().flat_map(|(group, _)| group.jobs.clone()).collect();
    for job in groups.iter().flat_map(|group| &group.jobs) {
        let mut before = plan.jobs[*job].after.iter().chain(&plan.jobs[*job].turn.ends);
        if let Some(before) = before.find(|before| missing.contains(before)) {
            let both = "plan both on rented machines or both on your own";
            let reason = format!("it waits for {}, which {launcher} cannot start; {both}", named(&[*before]));
            return Err(LaunchError::Refused { launcher, offer: named(&[*job]), reason });
        }
    }
    let left: Vec<String> =
        left.iter().map(|(group, error)| format!("not started: {}: {error}", named(&group.jobs))).collect();
    let chains = if launcher == Launcher::SkyPilot { chains(plan, &groups) } else { Vec::new() };
    let alone = groups.iter().filter(|group| !chains.iter().flatten().any(|one| one.jobs == group.jobs));
    let tasks: Vec<Vec<&Group<'_>>> = chains.iter().cloned().chain(alone.map(|group| vec![group])).collect();
    let mut files = tasks.iter().map(|tasks| file(tasks, launcher)).collect::<Result<Vec<_>, _>>()?;
    let lines = lines(plan, tasks.iter().flat_map(|tasks| runs(tasks)).collect(), launcher);
    files.push(LaunchFile { name: SCRIPT.to_owned(), text: script(&left, launcher, &lines) });
    Ok((files, left))
}

/// File of a job, or of the jobs of a pipeline.
fn file(tasks: &[&Group<'_>], launcher: Launcher) -> Result<LaunchFile, LaunchError> {
    let jobs: Vec<Job<'_>> = tasks.iter().map(|group| group.job()).collect();
    let (ending, text) = match launcher {
        Launcher::SkyPilot => ("sky.yaml", skypilot::file(&jobs)?),
        Launcher::Dstack => ("dstack.yml", dstack::task(&jobs[0])?),
        Launcher::Slurm => ("sbatch", slurm::script(&jobs[0])?),
        Launcher::Kubernetes => ("k8s.yaml", kubernetes::manifest(&jobs[0])?),
    };
    Ok(LaunchFile { name: format!("{}.{ending}", tasks[0].name), text })
}

/// Runs of tasks: all copies or all tasks, or each copy.
fn runs<'a>(tasks: &[&'a Group<'a>]) -> Vec<Run<'a>> {
    let Group { name, jobs, copies, is_array, .. } = tasks[0];
    let run = |name: String, jobs: Vec<usize>, copy: Option<u64>| Run { tasks: tasks.to_vec(), name, jobs, copy };
    match copies {
        Some(Copies { numbers, .. }) if !is_array && jobs.len() > 1 => {
            let one = |(number, job): (&u64, &usize)| run(format!("{name}-{number}"), vec![*job], Some(*number));
            numbers.iter().zip(jobs).map(one).collect()
        }
        _ => vec![run(name.clone(), tasks.iter().flat_map(|group| group.jobs.clone()).collect(), None)],
    }
}

/// Lines that start jobs, in the order of their planned starts.
fn lines(plan: &JobsPlan, mut runs: Vec<Run<'_>>, launcher: Launcher) -> Vec<String> {
    // The bits of times have their order.
    runs.sort_by_key(|run| run.jobs.iter().map(|job| (plan.jobs[*job].start.mid.get().to_bits(), *job)).min());
    let run_of: HashMap<usize, usize> =
        runs.iter().enumerate().flat_map(|(at, run)| run.jobs.iter().map(move |job| (*job, at))).collect();
    // Runs that have to end well, and those that have to end.
    let waits = |(at, run): (usize, &Run<'_>)| {
        let of = |before: fn(&PlannedJob) -> Vec<usize>| -> BTreeSet<usize> {
            let before = run.jobs.iter().flat_map(|job| before(&plan.jobs[*job]));
            before.map(|job| run_of[&job]).filter(|before| *before != at).collect()
        };
        let after = of(|job| job.after.clone());
        let ends = &of(|job| job.turn.ends.iter().copied().collect()) - &after;
        [after, ends]
    };
    let waits: Vec<[BTreeSet<usize>; 2]> = runs.iter().enumerate().map(waits).collect();
    let line = |(at, run): (usize, &Run<'_>)| {
        let [after, ends] = &waits[at];
        let list = |word: &str, of: &BTreeSet<usize>, name: &dyn Fn(&usize) -> String, end: &str| {
            let names = of.iter().map(name).collect::<Vec<_>>().concat();
            if names.is_empty() { names } else { format!("{word}{names}{end}") }
        };
        let hours = plan.jobs[run.jobs[0]].turn.not_before.get();
        if launcher == Launcher::Slurm {
            let id = |of: &usize| format!(":${{job[{of}]}}");
            return run.sbatch(at, hours, &(list("afterok", after, &id, ",") + &list("afterany", ends, &id, ",")));
        }
        let is_awaited = waits.iter().flatten().any(|of| of.contains(&at));
        let name = |of: &usize| format!(" {}", runs[*of].name);
        let delay = if hours > 0.0 { format!("after {} && ", (hours * 3600.0).ceil()) } else { String::new() };
        let before = list("ends", &(after | ends), &name, " && ") + &list("well", after, &name, " && ");
        let (command, run) = (run.command(launcher, is_awaited), &run.name);
        format!("job {run} '{delay}{before}{}' &", command.replace('\'', r"'\''"))
    };
    runs.iter().enumerate().map(line).collect()
}

/// Jobs in the order of their planned starts, equal copies together.
fn groups<'a>(plan: &'a JobsPlan, starts: &'a [JobStart], launcher: Launcher) -> Vec<Group<'a>> {
    let mut order: Vec<usize> = (0..plan.jobs.len().min(starts.len())).collect();
    order.sort_by(|a, b| plan.jobs[*a].start.mid.total_cmp(&plan.jobs[*b].start.mid).then(a.cmp(b)));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for at in order {
        let (job, start) = (&plan.jobs[at], &starts[at]);
        let is_same = |group: &&mut Vec<usize>| {
            let (first, own) = (&plan.jobs[group[0]], &starts[group[0]]);
            let [a, b] = [&first.part, &job.part];
            // Pods of several machines already have indexes; those of copies are without gaps.
            let last = group.last().and_then(|last| starts[*last].copy);
            let is_next = a.machines == 1 && last.zip(start.copy).is_some_and(|(last, own)| own == last + 1);
            let may = launcher != Launcher::Kubernetes || is_next;
            let layout =
                |part: &Part| (part.machines, part.batch_size, part.accumulation, part.sharding, part.parallel);
            let parts = a.offer.id == b.offer.id && layout(a) == layout(b);
            may && start.copy.is_some() && own.name == start.name && parts && first.after == job.after
        };
        match groups.iter_mut().rev().find(is_same) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    let apart = |group: Vec<usize>| {
        let is_apart = launcher == Launcher::Kubernetes && !is_closed(plan, &group);
        if is_apart { group.into_iter().map(|job| vec![job]).collect() } else { vec![group] }
    };
    let mut taken: HashSet<String> = HashSet::new();
    let named = |mut jobs: Vec<usize>| {
        jobs.sort_unstable();
        let (first, start) = (&plan.jobs[jobs[0]], &starts[jobs[0]]);
        let numbers: Vec<u64> = jobs.iter().filter_map(|job| starts[*job].copy).collect();
        let at_once = at_once(&jobs.iter().map(|job| &plan.jobs[*job]).collect::<Vec<_>>());
        let copies = (!numbers.is_empty()).then_some(Copies { numbers, at_once });
        let is_array = !launcher.rents() && is_closed(plan, &jobs);
        let name = Job::new(&first.part, &first.goal, &start.name, &start.start).name();
        let mut group = Group { jobs, first, start, name: name.clone(), copies, is_array };
        let mut parts = 1;
        while group.names().iter().any(|own| taken.contains(own)) {
            parts += 1;
            group.name = format!("{name}-part{parts}");
        }
        taken.extend(group.names());
        group
    };
    groups.into_iter().flat_map(apart).map(named).collect()
}

/// Most jobs that the plan runs at the same time. One starts at the planned end of another, or at the end of its range,
/// so the expected ends show which of them overlap.
fn at_once(jobs: &[&PlannedJob]) -> usize {
    let runs = |job: &PlannedJob, time: f64| job.start.mid.get() <= time && job.end.mid.get() > time + 1e-6;
    let at_start = |one: &&PlannedJob| jobs.iter().filter(|job| runs(job, one.start.mid.get())).count();
    jobs.iter().map(at_start).max().unwrap_or(1).max(1)
}

/// Whether one array of copies keeps the limits: they take the places of one another only, and others take theirs once
/// all of them have ended.
fn is_closed(plan: &JobsPlan, copies: &[usize]) -> bool {
    let jobs = || copies.iter().map(|job| &plan.jobs[*job]);
    let takes = |job: &PlannedJob| job.turn.ends.iter().any(|end| copies.contains(end));
    let last = jobs().map(|job| job.end.mid.get()).fold(0.0, f64::max);
    let is_later =
        |(at, job): (usize, &PlannedJob)| copies.contains(&at) || job.start.mid.get() + 1e-6 >= last || !takes(job);
    jobs().all(|job| {
        job.turn.not_before == plan.jobs[copies[0]].turn.not_before
            && job.turn.ends.iter().all(|end| copies.contains(end))
    }) && plan.jobs.iter().enumerate().all(is_later)
}

/// Chains of two or more jobs without copies: each but the first waits for those before it and nothing else, is there
/// from the start, and leaves its place to the next one.
fn chains<'a>(plan: &JobsPlan, groups: &'a [Group<'a>]) -> Vec<Vec<&'a Group<'a>>> {
    let single = |job: &usize| groups.iter().find(|group| group.copies.is_none() && group.jobs == [*job]);
    let next = |at: &usize| -> Vec<usize> {
        let all = plan.jobs.iter().enumerate();
        all.filter(|(_, job)| job.after.contains(at) || job.turn.ends.contains(at)).map(|(at, _)| at).collect()
    };
    let chain = |first: usize| {
        let mut chain = vec![first];
        while let [only] = next(&chain[chain.len() - 1])[..] {
            let job = &plan.jobs[only];
            let waits = job.after.iter().chain(&job.turn.ends).all(|before| chain.contains(before));
            if !waits || job.after.is_empty() || job.turn.not_before != Hours::ZERO {
                break;
            }
            chain.push(only);
        }
        chain
    };
    let begin = (0..plan.jobs.len()).filter(|at| plan.jobs[*at].after.is_empty());
    begin.map(chain).filter(|chain| chain.len() > 1).filter_map(|chain| chain.iter().map(single).collect()).collect()
}

impl Group<'_> {
    fn job(&self) -> Job<'_> {
        Job {
            is_managed: true,
            folder: Some(&self.name),
            copies: self.copies.as_ref(),
            ..Job::new(&self.first.part, &self.first.goal, &self.start.name, &self.start.start)
        }
    }

    /// Rejects a rented machine of a plan with own ones (`has_own`) if the tool runs jobs on a cluster.
    fn check_owner(&self, launcher: Launcher, has_own: bool) -> Result<(), LaunchError> {
        if !has_own || launcher.rents() || self.first.part.offer.tier == Tier::Owned {
            return Ok(());
        }
        let renters = self.job().renters(launcher);
        let others = if renters.is_empty() { renters } else { format!("; {renters} starts it") };
        Err(self.job().refused(launcher, format!("the machine is rented, and others of the plan are your own{others}")))
    }

    /// Its name, and the name of each copy.
    fn names(&self) -> Vec<String> {
        let numbers = self.copies.iter().flat_map(|copies| &copies.numbers);
        std::iter::once(self.name.clone()).chain(numbers.map(|number| format!("{}-{number}", self.name))).collect()
    }
}

impl Run<'_> {
    /// Line that submits its script to Slurm.
    fn sbatch(&self, at: usize, hours: f64, waits: &str) -> String {
        let minutes = (hours * 60.0).ceil();
        let begin = if minutes > 0.0 { format!(" --begin=now+{minutes}minutes") } else { String::new() };
        // A job whose dependency failed would stay in the queue for ever.
        let wait = match waits.trim_end_matches(',') {
            "" => String::new(),
            waits => format!(" --dependency={waits} --kill-on-invalid-dep=yes"),
        };
        let copy = self.copy.map_or_else(String::new, |copy| format!(" --array={copy}"));
        format!("submit {at} {}{copy}{begin}{wait} {}.sbatch", self.name, self.tasks[0].name)
    }

    /// Command of another tool: launches the job once, and lasts until it ends if others wait for it.
    fn command(&self, launcher: Launcher, is_awaited: bool) -> String {
        let Self { tasks, name, copy, .. } = self;
        let copy = |flag: &str| copy.map_or_else(String::new, |copy| format!(" {flag} COPY={copy}"));
        let file = &tasks[0].name;
        let (launch, job) = match launcher {
            Launcher::SkyPilot => {
                let secrets = skypilot::secrets(&tasks.iter().map(|group| group.job()).collect::<Vec<_>>());
                let copy = copy("--env");
                (format!("{name} sky jobs launch -y -d -n {name}{copy}{secrets} {file}.sky.yaml"), name.clone())
            }
            Launcher::Dstack => {
                (format!("{name} dstack apply -y -d -n {name}{} -f {file}.dstack.yml", copy("-e")), name.clone())
            }
            _ => {
                let kind = if tasks[0].first.part.machines == 1 { "job" } else { "jobset" };
                (format!("{file}.k8s.yaml"), format!("{kind}/{file}"))
            }
        };
        if is_awaited { format!("launch {launch} && finish {job}") } else { format!("launch {launch}") }
    }
}

/// The script that starts all jobs of its tool.
fn script(left: &[String], launcher: Launcher, lines: &[String]) -> String {
    let left = left.iter().map(|one| format!("# {one}\n")).collect::<Vec<_>>().concat();
    let lines = lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    let waits = if launcher == Launcher::Slurm { "afterany" } else { "ends " };
    let order = "# Shared limits hold: a job waits for the ends of those whose place it takes in the plan.\n";
    let order = if lines.contains(waits) { order } else { "" };
    let head = format!(
        "#!/bin/bash\n# Made by habitat-tui {}: starts jobs of a plan with {launcher}.\n{order}{left}",
        env!("CARGO_PKG_VERSION"),
    );
    let again =
        format!("# Started again, it follows jobs that run and starts the rest; `rm -r {STATE}` forgets them.\n");
    let here = format!("set -euo pipefail\ncd \"$(dirname \"$0\")\"\nstate={STATE}\nmkdir -p \"$state\"\n");
    if launcher == Launcher::Slurm {
        return format!("{head}{again}{here}{SUBMIT}{lines}echo \"submitted: ${{job[*]}}\"\n");
    }
    let functions = match launcher {
        Launcher::SkyPilot => SKYPILOT,
        Launcher::Dstack => DSTACK,
        _ => KUBERNETES,
    };
    format!(
        "{head}# It has to run until the last job has started.\n{again}{here}{WAITING}{functions}{lines}wait\nif ls \"$state\"/*.failed >/dev/null 2>&1; then\n  echo 'failed:' \"$state\"/*.failed >&2\n  exit 1\nfi\n"
    )
}

/// Folder beside the script with what it started.
const STATE: &str = ".started";

/// Submits a job to Slurm, and keeps its number.
const SUBMIT: &str = r#"declare -a job
submit() {
  [ -s "$state/$2" ] || { sbatch --parsable "${@:3}" > "$state/$2.new" && mv "$state/$2.new" "$state/$2"; }
  job[$1]=$(cat "$state/$2")
}
"#;

/// Functions of the script: a job waits for files that those before it leave. Jobs that failed start again.
const WAITING: &str = r#"for one in "$state"/*.failed; do rm -rf "$one" "${one%.failed}".{id,ended}; done
[ -e "$state/begin" ] || date +%s > "$state/begin"
# Ends if the script was killed meanwhile.
pause() { sleep "$1"; kill -0 $$ 2>/dev/null || exit 1; }
after() { local rest=$(($(cat "$state/begin") + $1 - $(date +%s))); [ "$rest" -le 0 ] || pause "$rest"; }
ends() { local name; for name; do until [ -e "$state/$name.ended" ]; do pause 5; done; done; }
well() { local name; for name; do [ ! -e "$state/$name.failed" ] || return 1; done; }
job() {
  [ ! -e "$state/$1.ended" ] || return 0
  eval "$2" || touch "$state/$1.failed"
  touch "$state/$1.ended"
}
"#;

/// Launches a job once and keeps its number; asks for its end until an answer comes. Finished jobs have no name: their
/// logs need the number. Exit codes are `JobExitCode` of `SkyPilot` 0.14.
const SKYPILOT: &str = r#"launch() {
  [ ! -s "$state/$1.id" ] || return 0
  "${@:2}" 2>&1 | tee "$state/$1.log" || return 1
  grep -oE 'Job submitted, ID: [0-9]+' "$state/$1.log" | grep -oE '[0-9]+' > "$state/$1.new" || true
  [ -s "$state/$1.new" ] || echo "-n $1" > "$state/$1.new"
  mv "$state/$1.new" "$state/$1.id"
}
finish() {
  local code
  while :; do
    code=0
    sky jobs logs $(cat "$state/$1.id") || code=$?
    case $code in 0) return 0 ;; 100 | 102 | 103) return 1 ;; esac
    pause 60
  done
}
"#;

/// Launches a run once, and asks for its status until it has ended.
const DSTACK: &str = r#"launch() { [ -e "$state/$1.id" ] || { "${@:2}" && touch "$state/$1.id"; }; }
finish() {
  local status=
  until [[ $status =~ ^(done|failed|terminated)$ ]]; do
    pause 10
    status=$(dstack run get "$1" --json | sed -n 's/^  "status": "\(.*\)".*/\1/p') || true
  done
  [ "$status" = done ]
}
"#;

/// Creates a job unless it exists (an apply would restore Kueue's `suspend` and stop it), and waits for its end.
const KUBERNETES: &str = r#"launch() { kubectl create -f "$1" || kubectl get -f "$1" >/dev/null; }
finish() {
  local ended=
  local types='{range .status.conditions[?(@.status=="True")]}{.type} {end}'
  until [[ $ended =~ Complete|Failed ]]; do pause 10; ended=$(kubectl get "$1" -o jsonpath="$types") || true; done
  [[ $ended = *Complete* ]]
}
"#;
