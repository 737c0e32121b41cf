//! Several jobs as input for tools that start them: a file for each job, and a script that starts them in the order of
//! their dependencies.
//!
//! | tool | copies of a job | a job after others |
//! | --- | --- | --- |
//! | Slurm | an array | `--dependency=afterok` |
//! | `SkyPilot` | one task, started for each | a managed pipeline if the jobs are a chain, else the script waits |
//! | dstack | one task, started for each | the script waits |
//! | Kubernetes | an indexed `Job` | the script waits |
//!
//! A copy finds its number, from 1, in `COPY`.

use std::collections::{HashMap, HashSet};

use super::{Copies, Job, LaunchError, Launcher, Start, dstack, kubernetes, skypilot, slurm};
use habitat_planning::plan::Part;
use habitat_planning::plan::jobs::{JobsPlan, PlannedJob};

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
    /// Name of its file without the ending. It and those of its runs are unique in the plan.
    name: String,
    copies: Option<Copies>,
}

/// Name of the script that starts all files.
const SCRIPT: &str = "start.sh";

/// Files that start all jobs of a plan, the script last. `starts` are those of its jobs, in the same order.
///
/// # Errors
/// [`LaunchError`] with the offer that the tool cannot rent, or the value that is missing or invalid.
pub fn files(plan: &JobsPlan, starts: &[JobStart], launcher: Launcher) -> Result<Vec<LaunchFile>, LaunchError> {
    if plan.jobs.is_empty() {
        return Err(LaunchError::NoPlan(crate::words::joined(&plan.reasons, "; ")));
    }
    let groups = groups(plan, starts, launcher);
    for group in &groups {
        group.start.start.launch.check()?;
    }
    let group_of: HashMap<usize, usize> =
        groups.iter().enumerate().flat_map(|(at, group)| group.jobs.iter().map(move |job| (*job, at))).collect();
    // Each group waits for whole groups: a job waits for all copies of another.
    let after: Vec<Vec<usize>> = groups
        .iter()
        .map(|group| {
            let mut before: Vec<usize> =
                group.first.after.iter().filter_map(|job| group_of.get(job).copied()).collect();
            before.sort_unstable();
            before.dedup();
            before
        })
        .collect();
    let mut files = Vec::new();
    let mut lines = Vec::new();
    let chains = if launcher == Launcher::SkyPilot { chains(&groups, &after) } else { Vec::new() };
    for chain in &chains {
        let (file, line) = pipeline(&groups, chain)?;
        files.push(file);
        lines.push(line);
    }
    for (at, group) in groups.iter().enumerate().filter(|(at, _)| !chains.iter().any(|chain| chain.contains(at))) {
        files.push(group.file(launcher)?);
        if launcher == Launcher::Slurm {
            lines.push(sbatch(group, at, &after[at]));
            continue;
        }
        let is_awaited = after.iter().any(|before| before.contains(&at));
        let before = after[at].iter().flat_map(|before| groups[*before].runs(launcher)).collect::<Vec<_>>();
        lines.extend(started(group, launcher, &before, is_awaited));
    }
    files.push(LaunchFile { name: SCRIPT.to_owned(), text: script(plan.jobs.len(), launcher, &lines) });
    Ok(files)
}

/// Jobs in the order of their planned starts, equal copies together.
fn groups<'a>(plan: &'a JobsPlan, starts: &'a [JobStart], launcher: Launcher) -> Vec<Group<'a>> {
    let mut order: Vec<usize> = (0..plan.jobs.len().min(starts.len())).collect();
    order.sort_by(|a, b| plan.jobs[*a].start.mid.total_cmp(&plan.jobs[*b].start.mid).then(a.cmp(b)));
    let mut groups: Vec<Group<'a>> = Vec::new();
    for at in order {
        let (job, start) = (&plan.jobs[at], &starts[at]);
        let is_same = |group: &&mut Group<'_>| {
            let [a, b] = [&group.first.part, &job.part];
            // Pods of several machines already have indexes; those of copies are without gaps.
            let last = group.jobs.last().and_then(|last| starts[*last].copy);
            let is_next = a.machines == 1 && last.zip(start.copy).is_some_and(|(last, own)| own == last + 1);
            let may = launcher != Launcher::Kubernetes || is_next;
            let layout =
                |part: &Part| (part.machines, part.batch_size, part.accumulation, part.sharding, part.parallel);
            let parts = a.offer.id == b.offer.id && layout(a) == layout(b);
            may && start.copy.is_some() && group.start.name == start.name && parts && group.first.after == job.after
        };
        match groups.iter_mut().rev().find(is_same) {
            Some(group) => group.jobs.push(at),
            None => groups.push(Group { jobs: vec![at], first: job, start, name: String::new(), copies: None }),
        }
    }
    let mut taken: HashSet<String> = HashSet::new();
    for group in &mut groups {
        group.jobs.sort_unstable();
        let numbers: Vec<u64> = group.jobs.iter().filter_map(|job| starts[*job].copy).collect();
        let at_once = at_once(&group.jobs.iter().map(|job| &plan.jobs[*job]).collect::<Vec<_>>());
        group.copies = (!numbers.is_empty()).then_some(Copies { numbers, at_once });
        let name = Job::new(&group.first.part, &group.first.goal, &group.start.name, &group.start.start).name();
        for number in 1.. {
            group.name = if number == 1 { name.clone() } else { format!("{name}-part{number}") };
            let own = [vec![group.name.clone()], group.runs(launcher)].concat();
            if !own.iter().any(|run| taken.contains(run)) {
                taken.extend(own);
                break;
            }
        }
    }
    groups
}

/// Most jobs that the plan runs at the same time. One starts at the planned end of another, or at the end of its range,
/// so the expected ends show which of them overlap.
fn at_once(jobs: &[&PlannedJob]) -> usize {
    let runs = |job: &PlannedJob, time: f64| job.start.mid.get() <= time && job.end.mid.get() > time + 1e-6;
    let at_start = |one: &&PlannedJob| jobs.iter().filter(|job| runs(job, one.start.mid.get())).count();
    jobs.iter().map(at_start).max().unwrap_or(1).max(1)
}

/// Chains of two or more groups of one job: each but the first waits for the one before it and nothing else, and is
/// there from the start.
fn chains(groups: &[Group<'_>], after: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let next = |at: usize| -> Vec<usize> { (0..groups.len()).filter(|other| after[*other].contains(&at)).collect() };
    let begins = (0..groups.len()).filter(|at| after[*at].is_empty());
    let chain = |first: usize| {
        let mut chain = vec![first];
        while let [only] = next(chain[chain.len() - 1])[..] {
            if after[only].len() > 1 || !groups[only].delay().is_empty() {
                return Vec::new();
            }
            chain.push(only);
        }
        let is_whole = next(chain[chain.len() - 1]).is_empty();
        let is_single = chain.iter().all(|at| groups[*at].copies.is_none());
        if is_whole && is_single && chain.len() > 1 { chain } else { Vec::new() }
    };
    begins.map(chain).filter(|chain| !chain.is_empty()).collect()
}

/// A managed pipeline, and the line that starts it.
fn pipeline(groups: &[Group<'_>], chain: &[usize]) -> Result<(LaunchFile, String), LaunchError> {
    let jobs: Vec<Job<'_>> = chain.iter().map(|at| groups[*at].job()).collect();
    let name = format!("{}.sky.yaml", groups[chain[0]].name);
    let secrets = skypilot::secrets(&jobs);
    let run = format!("sky jobs launch -y -d{secrets} {name}");
    let line = match groups[chain[0]].delay() {
        delay if delay.is_empty() => run,
        // Other jobs do not wait for it.
        delay => background(&groups[chain[0]].name, &format!("{delay}{run}")),
    };
    Ok((LaunchFile { name, text: skypilot::file(&jobs)? }, line))
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

    fn file(&self, launcher: Launcher) -> Result<LaunchFile, LaunchError> {
        let job = self.job();
        let (ending, text) = match launcher {
            Launcher::SkyPilot => ("sky.yaml", skypilot::file(&[job])?),
            Launcher::Dstack => ("dstack.yml", dstack::task(&job)?),
            Launcher::Slurm => ("sbatch", slurm::script(&job)?),
            Launcher::Kubernetes => ("k8s.yaml", kubernetes::manifest(&job)?),
        };
        Ok(LaunchFile { name: format!("{}.{ending}", self.name), text })
    }

    /// Names of its runs: one for each copy that the script starts.
    fn runs(&self, launcher: Launcher) -> Vec<String> {
        match &self.copies {
            Some(copies) if launcher != Launcher::Kubernetes => {
                copies.numbers.iter().map(|number| format!("{}-{number}", self.name)).collect()
            }
            _ => vec![self.name.clone()],
        }
    }

    /// Time until the job is there, as a command of the script.
    fn delay(&self) -> String {
        let seconds = (self.first.earliest.get() * 3600.0).round();
        if seconds > 0.0 { format!("sleep {seconds} && ") } else { String::new() }
    }
}

/// Line that submits a script to Slurm.
fn sbatch(group: &Group<'_>, at: usize, after: &[usize]) -> String {
    let minutes = (group.first.earliest.get() * 60.0).ceil();
    let begin = if minutes > 0.0 { format!(" --begin=now+{minutes}minutes") } else { String::new() };
    let ids: Vec<String> = after.iter().map(|before| format!("${{job[{before}]}}")).collect();
    // A job whose dependency failed would stay in the queue for ever.
    let wait = if ids.is_empty() {
        String::new()
    } else {
        format!(" --dependency=afterok:{} --kill-on-invalid-dep=yes", ids.join(":"))
    };
    format!("job[{at}]=$(sbatch --parsable{begin}{wait} {}.sbatch)", group.name)
}

/// Lines that start the runs of a group with another tool, each after those before it.
fn started(group: &Group<'_>, launcher: Launcher, before: &[String], is_awaited: bool) -> Vec<String> {
    let after = if before.is_empty() { String::new() } else { format!("after {} && ", before.join(" ")) };
    // A run that no other run waits for is detached.
    let apart = if is_awaited { "" } else { " -d" };
    let runs = group.runs(launcher);
    let numbers = group.copies.as_ref().map_or(&[][..], |copies| &copies.numbers);
    let line = |(at, run): (usize, &String)| {
        let copy = numbers.get(at);
        let command = match launcher {
            Launcher::SkyPilot => {
                let copy = copy.map_or_else(String::new, |copy| format!(" --env COPY={copy}"));
                let secrets = skypilot::secrets(&[group.job()]);
                format!("sky jobs launch -y{apart} -n {run}{copy}{secrets} {}.sky.yaml", group.name)
            }
            Launcher::Dstack => {
                let copy = copy.map_or_else(String::new, |copy| format!(" -e COPY={copy}"));
                format!("dstack apply -y{apart} -n {run}{copy} -f {}.dstack.yml", group.name)
            }
            _ => {
                let kind = if group.first.part.machines == 1 { "job" } else { "jobset" };
                let watch = if is_awaited { format!(" && finish {kind}/{}", group.name) } else { String::new() };
                format!("kubectl apply -f {}.k8s.yaml{watch}", group.name)
            }
        };
        background(run, &format!("{}{after}{command}", group.delay()))
    };
    runs.iter().enumerate().map(line).collect()
}

/// Line that runs a command in the background, and marks its end for the jobs after it.
fn background(run: &str, command: &str) -> String {
    format!("({command} && touch \"$state/{run}.done\" || touch \"$state/{run}.failed\") &")
}

/// The script that starts all jobs.
fn script(jobs: usize, launcher: Launcher, lines: &[String]) -> String {
    let head = format!(
        "#!/bin/bash\n# Made by habitat-tui {}: starts {} of a plan with {launcher}.\nset -euo pipefail\ncd \"$(dirname \"$0\")\"\n",
        env!("CARGO_PKG_VERSION"),
        if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") },
    );
    let lines = lines.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
    if launcher == Launcher::Slurm {
        return format!(
            "{head}# An array or a job starts when those before it have ended well.\ndeclare -a job\n{lines}echo \"submitted: ${{job[*]}}\"\n"
        );
    }
    if !lines.contains("$state") {
        return format!("{head}{lines}");
    }
    let finish = if launcher == Launcher::Kubernetes { FINISH } else { "" };
    format!(
        "{head}{WAITING}{finish}{lines}wait\nif ls \"$state\"/*.failed >/dev/null 2>&1; then\n  echo 'failed:' \"$state\"/*.failed >&2\n  exit 1\nfi\n"
    )
}

/// Functions of the script: a job waits for files that those before it leave.
const WAITING: &str = r#"state=$(mktemp -d)
# Waits until these jobs have ended well.
after() {
  local name
  for name in "$@"; do
    until [ -e "$state/$name.done" ]; do
      if [ -e "$state/$name.failed" ]; then return 1; fi
      sleep 2
    done
  done
}
"#;

/// Waits for the end of a job of Kubernetes.
const FINISH: &str = r#"finish() {
  local ended
  while true; do
    ended=$(kubectl get "$1" -o jsonpath='{range .status.conditions[?(@.status=="True")]}{.type} {end}')
    case "$ended" in
      *Complete*) return 0 ;;
      *Failed*) return 1 ;;
    esac
    sleep 10
  done
}
"#;
