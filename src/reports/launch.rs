//! Plan as input for tools that start jobs: a `SkyPilot` task, a dstack task or a Slurm script, one text for each part
//! of the plan. An offer that the tool cannot rent is an error with its name.
//!
//! A recorded step does not contain the training command: each text ends in the one that the user gives, else in a
//! placeholder that fails until it is replaced.

mod command;
mod dstack;
mod names;
mod skypilot;
mod slurm;
mod yaml;

pub use command::{Framework, Start};

use std::fmt;

use super::{format, words};
use habitat_base::text;
use habitat_base::units::Hours;
use habitat_planning::plan::{Part, Plan, Switch};
use habitat_planning::pricing::Tier;
use habitat_prediction::Sharding;

/// A tool that starts jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// `SkyPilot` (task YAML, as of 0.14).
    SkyPilot,
    /// dstack (task YAML, as of 0.22).
    Dstack,
    /// Slurm (a script for `sbatch`).
    Slurm,
}

impl Launcher {
    /// Name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkyPilot => "skypilot",
            Self::Dstack => "dstack",
            Self::Slurm => "slurm",
        }
    }

    /// Name in the spelling of its makers.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::SkyPilot => "SkyPilot",
            Self::Dstack => "dstack",
            Self::Slurm => "Slurm",
        }
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
    /// Slurm does not rent machines, and no partition is given.
    #[error(
        "Slurm does not rent machines, and {offer} is rented: pass --partition NAME, the partition of your cluster with these GPUs"
    )]
    NoPartition {
        /// The offer.
        offer: String,
    },
    /// A training command that is not one line of text.
    #[error("invalid --command {0:?}: one line of text with closed quotes, such as 'python train.py'")]
    Command(String),
    /// Flags of a framework behind a command that is more than one program.
    #[error(
        "--framework adds flags to the end of --command, so {0:?} has to end in one program: leave out pipes, ; and #"
    )]
    Flags(String),
    /// A partition name with characters that have a meaning in a script.
    #[error("invalid partition {0:?}: use letters, digits and . _ - ,")]
    Partition(String),
}

/// One part of a plan to write.
struct Job<'a> {
    part: &'a Part,
    workload: &'a str,
    /// Number of this part, from 1, and the number of parts.
    place: (usize, usize),
    /// Switch to on-demand that a spot part has to make in time.
    switch: Option<&'a Switch>,
    start: &'a Start<'a>,
    /// Updates of this part and those before it.
    updates: f64,
}

/// Texts that start the parts of a plan, in order.
///
/// # Errors
/// [`LaunchError`] naming the offer that the tool cannot rent.
pub fn texts(plan: &Plan, workload: &str, launcher: Launcher, start: &Start<'_>) -> Result<Vec<String>, LaunchError> {
    if plan.parts.is_empty() {
        return Err(LaunchError::NoPlan(words::joined(&plan.reasons, "; ")));
    }
    let so_far = |index: usize| plan.parts[..=index].iter().map(Part::updates).sum();
    let jobs = plan.parts.iter().enumerate().map(|(index, part)| Job {
        updates: so_far(index),
        part,
        workload,
        place: (index + 1, plan.parts.len()),
        switch: plan.switch.as_ref().filter(|_| part.offer.tier == Tier::Spot),
        start,
    });
    match launcher {
        Launcher::SkyPilot => skypilot::file(&jobs.collect::<Vec<_>>()).map(|text| vec![text]),
        Launcher::Dstack => jobs.map(|job| dstack::task(&job)).collect(),
        Launcher::Slurm => jobs.map(|job| slurm::script(&job)).collect(),
    }
}

impl Job<'_> {
    fn refused(&self, launcher: Launcher, reason: impl Into<String>) -> LaunchError {
        LaunchError::Refused { launcher, offer: text::clean(self.part.offer.id.as_str(), 200), reason: reason.into() }
    }

    /// Error for a provider that the tool does not know or support, with a way around it.
    fn unknown(&self, launcher: Launcher, reason: &str) -> LaunchError {
        let provider = text::shell_word(&self.part.offer.provider);
        self.refused(launcher, format!("{reason}; pass --exclude-providers {provider} to plan without it"))
    }

    /// Describes the part in comments.
    fn comments(&self) -> String {
        let (place, of) = self.place;
        let part = self.part;
        let dated = part.offer.as_of.map_or_else(String::new, |date| format!(", price of {date}"));
        let lines = [
            format!(
                "Made by habitat-tui {}: part {place} of {of} of the plan for {}.",
                env!("CARGO_PKG_VERSION"),
                text::clean(self.workload, 80)
            ),
            format!("{}, {}{dated}.", text::clean(part.offer.id.as_str(), 200), format::price(part.price())),
            format!(
                "{} {} in {}, {}.",
                format::grouped(part.work.get()),
                part.work.unit(),
                format::hours_with_range(&part.hours),
                format::usd_with_range(&part.cost)
            ),
        ];
        let switch = self.switch.map(|switch| {
            format!(
                "Stop it and start {} when the remaining time is just enough for the remaining work there: after {} if no work is done by then.",
                text::clean(switch.to.as_str(), 200),
                format::hours(switch.latest)
            )
        });
        let joined = (part.machines > 1).then(|| {
            format!(
                "One job on {} machines with {} GPUs each: the command runs on every machine.",
                part.machines, part.offer.gpu_count
            )
        });
        // Flags of a framework say the layout.
        let is_unsaid = self.start.command.is_none() || self.start.framework.is_none();
        let divided = (is_unsaid && part.sharding != Sharding::None).then(|| {
            let (name, words) = (part.sharding.name(), part.sharding.words());
            format!("Planned with {name} ({words} divided among all GPUs): the training command has to enable it.")
        });
        let parallel = (is_unsaid && !part.parallel.is_none()).then(|| {
            format!(
                "Planned with {} (replicas: {}): the training command has to enable it.",
                part.parallel.words(),
                part.replicas()
            )
        });
        let lines: Vec<String> = lines
            .into_iter()
            .chain(joined)
            .chain(divided)
            .chain(parallel)
            .chain(switch)
            .map(|line| format!("# {line}\n"))
            .collect();
        lines.concat()
    }

    /// A job name that all tools accept: lower-case letters, digits and single dashes, starting with a letter.
    fn name(&self) -> String {
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
                Err(self.refused(launcher, format!("the machine is {tier}, not rented by the hour")))
            }
        }
    }

    /// Longest predicted duration, in minutes.
    fn most_minutes(&self) -> u64 {
        (Hours::get(self.part.hours.high) * 60.0).ceil().max(1.0) as u64
    }
}

#[cfg(test)]
mod tests;
