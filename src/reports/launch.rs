//! Plan as input for tools that start jobs: a `SkyPilot` task, a dstack task, a Slurm script or a Kubernetes job, one
//! text for each part of the plan. An offer that the tool cannot rent is an error with its name.
//!
//! A recorded step does not contain the training command: each text ends in the one of [`Launch`], else in a
//! placeholder that fails until it is replaced.

mod command;
mod dstack;
mod jobs;
mod kubernetes;
mod names;
mod script;
mod skypilot;
mod slurm;
mod table;
mod yaml;

pub use jobs::{JobStart, LaunchFile, files};
pub use table::{Framework, Launch};

use std::fmt;

use super::format;
use super::words::{self, Words};
use habitat_base::text;
use habitat_base::units::Hours;
use habitat_planning::plan::{Goal, Part, Plan, PlanNote, Switch};
use habitat_planning::pricing::Tier;
use habitat_prediction::{Predictions, Sharding};
use habitat_step::profile::Precision;

/// A tool that starts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `SkyPilot` (task YAML, as of 0.14).
    SkyPilot,
    /// dstack (task YAML, as of 0.22).
    Dstack,
    /// Slurm (a script for `sbatch`).
    Slurm,
    /// Kubernetes (a `Job`, or a `JobSet` v1alpha2 of several machines).
    Kubernetes,
}

impl Launcher {
    /// All tools, in the order of the export dialog.
    pub const ALL: [Self; 4] = [Self::SkyPilot, Self::Dstack, Self::Slurm, Self::Kubernetes];

    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkyPilot => "skypilot",
            Self::Dstack => "dstack",
            Self::Slurm => "slurm",
            Self::Kubernetes => "kubernetes",
        }
    }

    /// Name in the spelling of its makers.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::SkyPilot => "SkyPilot",
            Self::Dstack => "dstack",
            Self::Slurm => "Slurm",
            Self::Kubernetes => "Kubernetes",
        }
    }

    /// Whether it rents the machines that its jobs need.
    pub const fn rents(self) -> bool {
        matches!(self, Self::SkyPilot | Self::Dstack)
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

/// Error: the plan cannot be written for the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The plan has no parts.
    #[error("no plan to export: {}", if .0.is_empty() { "no offer meets the limits" } else { .0 })]
    NoPlan(String),
    /// The tool cannot rent the offer.
    #[error("{launcher} cannot start {offer}: {reason}")]
    Refused {
        /// The tool.
        launcher: Launcher,
        /// The offer.
        offer: String,
        /// Reason.
        reason: String,
    },
    /// The tool does not rent machines, and no place of a cluster is given.
    #[error("{launcher} does not rent machines, and {offer} is rented: pass {flag}, of your cluster with these GPUs")]
    NoPlace {
        /// The tool.
        launcher: Launcher,
        /// The offer.
        offer: String,
        /// The flag for the place.
        flag: &'static str,
    },
    /// The tool starts containers, and no image is given.
    #[error("{0} starts containers: pass --image NAME, such as pytorch/pytorch:latest, with the program in it")]
    NoImage(Launcher),
    /// A later part goes on from checkpoints, and their folder is unknown or ends with the machine.
    #[error("the plan has {parts} parts, and each goes on from the checkpoints of the one before: {remedy}")]
    NoCheckpoints {
        /// Number of parts.
        parts: usize,
        /// The value or flag to pass.
        remedy: String,
    },
    /// A value that is not what its key takes.
    #[error("invalid --{key} {value:?}: {}{expected}", if expected.starts_with(char::is_lowercase) { "expected " } else { "" })]
    Invalid {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// Valid values.
        expected: &'static str,
    },
    /// Flags of a framework behind a command that is more than one program.
    #[error(
        "--framework adds flags to the end of --command, so {0:?} has to end in one program: leave out pipes, ; and #"
    )]
    Flags(String),
}

/// How a plan starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Start {
    /// The user's settings for the start.
    pub launch: Launch,
    /// Tokens of a sequence.
    pub sequence_length: Option<u64>,
    /// Layers of the model, which pipeline stages divide.
    pub layers: Option<u32>,
    /// Precision of the predicted step.
    pub precision: Option<Precision>,
}

impl Start {
    /// Start of a plan for a predicted step.
    pub fn new(launch: Launch, predictions: &Predictions) -> Self {
        let model = predictions.predictions.iter().find_map(|one| one.transformer.as_ref());
        let sequence_length = predictions.workload.sequence_length;
        let precision = predictions.workload.precision;
        Self { launch, sequence_length, layers: model.map(|model| model.layers), precision }
    }
}

/// One part of a plan to write.
#[derive(Clone, Copy)]
struct Job<'a> {
    part: &'a Part,
    workload: &'a str,
    /// Number of this part, from 1, and the number of parts.
    place: (usize, usize),
    /// Switch to on-demand that a spot part has to make in time.
    switch: Option<&'a Switch>,
    /// The part that takes over.
    next: Option<&'a Part>,
    start: &'a Start,
    /// Updates of this part and those before it.
    updates: f64,
    /// Longest time that it takes.
    most: Hours,
    /// Hours between checkpoints.
    checkpoint: Hours,
    /// GB of data that the machine needs room for.
    data_gb: f64,
    /// Whether the tool watches it from outside its machine, as one of several parts or jobs, or on spot.
    is_managed: bool,
    /// Name among the jobs of a plan, also of its checkpoints' folder below those of all jobs.
    folder: Option<&'a str>,
    /// Equal jobs that start from the same text.
    copies: Option<&'a Copies>,
}

/// Equal jobs that start from one text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Copies {
    /// Their numbers, ascending.
    numbers: Vec<u64>,
    /// How many the plan runs at once.
    at_once: usize,
}

impl Copies {
    fn first(&self) -> u64 {
        self.numbers.first().copied().unwrap_or(1)
    }

    /// Whether no number between the first and the last is missing.
    fn is_range(&self) -> bool {
        self.numbers.last().is_none_or(|last| last - self.first() + 1 == self.numbers.len() as u64)
    }
}

/// Texts that start the parts of a plan, in order.
///
/// # Errors
/// [`LaunchError`] naming the offer that the tool cannot rent, or the value of [`Launch`] that is missing or invalid.
pub fn texts(plan: &Plan, workload: &str, launcher: Launcher, start: &Start) -> Result<Vec<String>, LaunchError> {
    if plan.parts.is_empty() {
        return Err(LaunchError::NoPlan(words::joined(&plan.reasons, "; ")));
    }
    start.launch.check()?;
    let so_far = |index: usize| plan.parts[..=index].iter().map(Part::updates).sum();
    // The script ends spot. The machine that takes over may have to do all of the work.
    let most = |part: &Part| match plan.switch.as_ref().filter(|switch| switch.is_expected).zip(plan.total) {
        Some((_, total)) if part.offer.tier == Tier::Spot => total.hours.high,
        Some((switch, total)) => Hours::known(total.hours.high.get() - switch.latest.get()),
        None => part.hours.high,
    };
    let jobs: Vec<Job<'_>> = plan
        .parts
        .iter()
        .enumerate()
        .map(|(index, part)| Job {
            updates: so_far(index),
            most: most(part),
            next: plan.parts.get(index + 1),
            is_managed: part.offer.tier == Tier::Spot || plan.parts.len() > 1,
            place: (index + 1, plan.parts.len()),
            switch: plan.switch.as_ref().filter(|_| part.offer.tier == Tier::Spot),
            ..Job::new(part, &plan.goal, workload, start)
        })
        .collect();
    check_checkpoints(launcher, start, jobs.len())?;
    match launcher {
        Launcher::SkyPilot => skypilot::file(&jobs).map(|text| vec![text]),
        Launcher::Dstack => jobs.iter().map(dstack::task).collect(),
        Launcher::Slurm => jobs.iter().map(slurm::script).collect(),
        Launcher::Kubernetes => jobs.iter().map(kubernetes::manifest).collect(),
    }
}

/// Refuses a plan of several parts whose checkpoints would end with the first machine.
fn check_checkpoints(launcher: Launcher, start: &Start, parts: usize) -> Result<(), LaunchError> {
    if parts == 1 || start.launch.command.is_none() {
        return Ok(());
    }
    let remedy = match &start.launch.checkpoint_dir {
        None => "pass --checkpoint-dir DIR, which the command finds in CHECKPOINT_DIR".to_owned(),
        Some(dir) if !launcher.keeps(start.launch.checkpoint_mount().map(|(_, source)| source)) => {
            let dir = text::clean(dir, 80);
            format!("pass --mount {dir}={}, as {dir} ends with the machine", launcher.source())
        }
        Some(_) => return Ok(()),
    };
    Err(LaunchError::NoCheckpoints { parts, remedy })
}

impl<'a> Job<'a> {
    /// A job of one part.
    fn new(part: &'a Part, goal: &Goal, workload: &'a str, start: &'a Start) -> Self {
        let often = part.notes.iter().find_map(|note| match note {
            PlanNote::Failures { checkpoint_hours, .. } => Some(*checkpoint_hours),
            _ => None,
        });
        Self {
            part,
            workload,
            place: (1, 1),
            switch: None,
            next: None,
            start,
            updates: part.updates(),
            most: part.hours.high,
            checkpoint: often.unwrap_or(goal.assumptions.checkpoint_interval),
            data_gb: goal.data.as_ref().map_or(0.0, |data| data.gb),
            is_managed: part.offer.tier == Tier::Spot,
            folder: None,
            copies: None,
        }
    }
}

impl Job<'_> {
    fn refused(&self, launcher: Launcher, reason: impl Into<String>) -> LaunchError {
        LaunchError::Refused { launcher, offer: text::clean(self.part.offer.id.as_str(), 200), reason: reason.into() }
    }

    /// Error for a provider that the tool does not know or support, with the tools that do and a way around it.
    fn unknown(&self, launcher: Launcher, reason: &str) -> LaunchError {
        let (others, has) = (self.renters(launcher), names::providers(launcher).join(","));
        let others = if others.is_empty() { others } else { format!("{others} has it, or ") };
        self.refused(launcher, format!("{reason}; {others}plan with --providers {has} (or fewer, or the key of a job)"))
    }

    /// Other tools that rent at its provider, as flags.
    fn renters(&self, launcher: Launcher) -> String {
        let others = Launcher::ALL.into_iter().filter(|other| other.rents() && *other != launcher);
        let others = others.filter(|other| names::provider(*other, &self.part.offer.provider).is_some());
        others.map(|other| format!("--export {}", other.name())).collect::<Vec<_>>().join(" or ")
    }

    /// The place of a cluster, which rented machines need.
    fn place_of<'b>(
        &self,
        launcher: Launcher,
        place: Option<&'b String>,
        flag: &'static str,
    ) -> Result<Option<&'b String>, LaunchError> {
        if place.is_none() && self.part.offer.tier != Tier::Owned {
            return Err(LaunchError::NoPlace { launcher, offer: text::clean(self.part.offer.id.as_str(), 200), flag });
        }
        Ok(place)
    }

    /// When a later part of a plan starts, behind its command.
    fn after_words(&self) -> String {
        if self.place.0 > 1 { format!("   (once part {} has ended)", self.place.0 - 1) } else { String::new() }
    }

    /// Describes the part in comments.
    fn comments(&self, launcher: Launcher) -> String {
        let (place, of) = self.place;
        let (part, launch) = (self.part, &self.start.launch);
        let dated = part.offer.as_of.map_or_else(String::new, |date| format!(", price of {date}"));
        let (version, workload) = (env!("CARGO_PKG_VERSION"), text::clean(self.workload, 80));
        let [hours, cost] = [format::hours_with_range(&part.hours), format::usd_with_range(&part.cost)];
        let lines = [
            format!("Made by habitat-tui {version}: part {place} of {of} of the plan for {workload}."),
            format!("{}, {}{dated}.", text::clean(part.offer.id.as_str(), 200), format::price(part.price())),
            format!("{} {} in {hours}, {cost}.", format::grouped(part.work.get()), part.work.unit()),
        ];
        let is_lost = part.offer.tier == Tier::Spot && launch.command.is_some() && launch.checkpoint_dir.is_none();
        let lost = is_lost.then(|| {
            "After a loss it starts again from the beginning, unless the command keeps checkpoints elsewhere (--checkpoint-dir).".to_owned()
        });
        // The script ends the first of two parts in time.
        let switch = self.switch.filter(|_| self.next.is_none() || launch.command.is_none()).map(|switch| {
            format!(
                "Stop it and start {} when the remaining time is just enough for the remaining work there: after {} if no work is done by then.",
                text::clean(switch.to.as_str(), 200),
                format::hours(switch.latest)
            )
        });
        let is_kept = launcher.keeps(launch.checkpoint_mount().map(|(_, source)| source));
        let unkept = launch.checkpoint_dir.as_ref().filter(|_| launch.command.is_some() && !is_kept).map(|dir| {
            let (dir, source) = (text::clean(dir, 80), launcher.source());
            format!(
                "{dir} ends with the machine: after a loss it starts again from the beginning, and later jobs find no checkpoints. --mount {dir}={source} keeps them."
            )
        });
        let waits = self.switch.zip(self.next).filter(|_| launch.command.is_some()).map(|(switch, _)| {
            format!(
                "It has to end {} after its submission, or later by the work done. If no spot machine runs it then, cancel it and start part {} alone.",
                format::hours(switch.latest),
                place + 1
            )
        });
        let joined = (part.machines > 1).then(|| {
            let (machines, gpus) = (part.machines, part.offer.gpu_count);
            format!("One job on {machines} machines with {gpus} GPUs each: the command runs on every machine.")
        });
        let is_moved = !launcher.rents() && part.offer.tier != Tier::Owned;
        let moved = is_moved.then(|| format!("The plan rents this machine; {launcher} needs one like it."));
        // Flags of a framework say the layout.
        let is_unsaid = launch.command.is_none() || launch.framework.is_none();
        let divided = (is_unsaid && part.sharding != Sharding::None).then(|| {
            let (name, words) = (part.sharding.name(), part.sharding.words());
            format!("Planned with {name} ({words} divided among all GPUs): the training command has to enable it.")
        });
        let parallel = (is_unsaid && !part.parallel.is_none()).then(|| {
            let (layout, replicas) = (part.parallel.words(), part.replicas());
            format!("Planned with {layout} (replicas: {replicas}): the training command has to enable it.")
        });
        let more = [moved, joined, divided, parallel, lost, unkept, waits, switch];
        let lines = lines.into_iter().chain(more.into_iter().flatten());
        lines.map(|line| format!("# {line}\n")).collect::<Vec<_>>().concat()
    }

    /// A job name that all tools accept: lower-case letters, digits and single dashes, starting with a letter.
    fn name(&self) -> String {
        if let Some(own) = self.folder {
            return own.to_owned();
        }
        let (place, of) = self.place;
        let ending = if of > 1 { format!("-{place}") } else { String::new() };
        let words = self.workload.to_ascii_lowercase();
        let words: Vec<&str> =
            words.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let mut name = words.join("-");
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            name = format!("training-{name}");
        }
        name.truncate(40 - ending.len());
        format!("{}{ending}", name.trim_end_matches('-'))
    }

    /// Price limit per machine in dollars per hour: the planned price, rounded up to a hundredth of a cent so that the
    /// offer itself passes.
    fn highest_price(&self) -> f64 {
        (self.part.offer.price.get() * 1e4 - 1e-6).ceil() / 1e4
    }

    /// Rejects a part on several machines if the tool cannot start such a job at the provider.
    fn check_machines(&self, launcher: Launcher) -> Result<(), LaunchError> {
        if self.part.machines <= 1 || names::joins(launcher, &self.part.offer.provider) {
            return Ok(());
        }
        let reason = "it cannot start a job on several machines of this provider (--max-machines 1 plans with one)";
        Err(self.unknown(launcher, reason))
    }

    /// Whether the part is rented as spot rather than on demand. Errors for machines that are not rented by the hour.
    fn is_spot(&self, launcher: Launcher) -> Result<bool, LaunchError> {
        match self.part.offer.tier {
            Tier::OnDemand => Ok(false),
            Tier::Spot => Ok(true),
            tier @ (Tier::Reserved | Tier::Owned) => {
                let own = "--export slurm and --export kubernetes start jobs on machines that you have";
                Err(self.refused(launcher, format!("the machine is {tier}, not rented by the hour; {own}")))
            }
        }
    }

    /// Disk in GB: as given, else room for the data with as much again, and 100 GB for the system.
    fn disk_gb(&self) -> Option<u64> {
        let data = (self.data_gb > 0.0).then(|| (self.data_gb * 2.0 + 100.0).ceil() as u64);
        self.start.launch.disk_gb.map(u64::from).or(data)
    }

    /// Longest predicted duration with a margin of 10 %, in minutes. Tools stop a job then, and a measured step has no
    /// range of its own.
    fn most_minutes(&self) -> u64 {
        let most = (self.most.get() * 60.0).ceil().max(1.0) as u64;
        (most * 11).div_ceil(10)
    }
}

#[cfg(test)]
mod tests;
