//! A plan in the words of the tools that start jobs: a `SkyPilot` task, a dstack task, a Slurm
//! script. One text a part of the plan; what a tool cannot rent is refused by name.
//!
//! The recorded step does not hold the training command, so each text ends in a placeholder that
//! fails until it is replaced.

mod dstack;
mod names;
mod skypilot;
mod slurm;
mod yaml;

use std::fmt;

use super::format;
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
    /// All of them.
    pub const ALL: [Self; 3] = [Self::SkyPilot, Self::Dstack, Self::Slurm];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SkyPilot => "skypilot",
            Self::Dstack => "dstack",
            Self::Slurm => "slurm",
        }
    }

    /// The name as its makers write it.
    pub const fn title(self) -> &'static str {
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

/// Why a plan cannot be written for a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// There is nothing to start.
    #[error("there is no plan to export: {}", if .0.is_empty() { "no offer meets the limits" } else { .0 })]
    NoPlan(String),
    /// The tool cannot rent the offer.
    #[error("{launcher} cannot start {offer}: {reason}")]
    Refused {
        /// The tool.
        launcher: Launcher,
        /// The offer.
        offer: String,
        /// Why not.
        reason: String,
    },
    /// Slurm starts jobs on machines of one's own.
    #[error(
        "Slurm rents no machines, and {offer} is rented: --partition NAME names the partition of your cluster that has such GPUs"
    )]
    NoPartition {
        /// The offer.
        offer: String,
    },
    /// A name that would say something else in a script.
    #[error("partition {0:?}: write the name as Slurm has it, of letters, digits and . _ - ,")]
    Partition(String),
}

/// One part of a plan, on its way into a text.
struct Job<'a> {
    part: &'a Part,
    workload: &'a str,
    /// Its place among the parts, from 1, and how many there are.
    place: (usize, usize),
    /// What takes over from it in time.
    switch: Option<&'a Switch>,
}

/// The texts that start the parts of a plan, in their order.
///
/// # Errors
/// [`LaunchError`] naming the offer that the tool cannot rent.
pub fn texts(
    plan: &Plan,
    workload: &str,
    launcher: Launcher,
    partition: Option<&str>,
) -> Result<Vec<String>, LaunchError> {
    if plan.parts.is_empty() {
        return Err(LaunchError::NoPlan(plan.reasons.join("; ")));
    }
    let jobs = plan.parts.iter().enumerate().map(|(index, part)| Job {
        part,
        workload,
        place: (index + 1, plan.parts.len()),
        switch: plan.switch.as_ref().filter(|_| part.tier == Tier::Spot),
    });
    match launcher {
        Launcher::SkyPilot => skypilot::file(&jobs.collect::<Vec<_>>()).map(|text| vec![text]),
        Launcher::Dstack => jobs.map(|job| dstack::task(&job)).collect(),
        Launcher::Slurm => jobs.map(|job| slurm::script(&job, partition)).collect(),
    }
}

impl Job<'_> {
    fn refused(&self, launcher: Launcher, reason: impl Into<String>) -> LaunchError {
        LaunchError::Refused { launcher, offer: text::clean(self.part.offer.as_str(), 200), reason: reason.into() }
    }

    /// Refused for what the provider is called or has there, with the way around it.
    fn unknown(&self, launcher: Launcher, reason: &str) -> LaunchError {
        let provider = text::shell_word(&self.part.provider);
        self.refused(launcher, format!("{reason}; --exclude-providers {provider} plans without that provider"))
    }

    /// What the part is, as comments.
    fn comments(&self) -> String {
        let (place, of) = self.place;
        let part = self.part;
        let dated = part.price_as_of.map_or_else(String::new, |date| format!(", price of {date}"));
        let lines = [
            format!(
                "Made by habitat-tui {}: part {place} of {of} of the plan for {}.",
                env!("CARGO_PKG_VERSION"),
                text::clean(self.workload, 80)
            ),
            format!("{}, {}{dated}.", text::clean(part.offer.as_str(), 200), format::price(part.price)),
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
                "Stop it and start {} when the time left is what that needs for the work left: after {} if nothing is done by then.",
                text::clean(switch.to.as_str(), 200),
                format::hours(switch.latest)
            )
        });
        let joined = (part.nodes > 1).then(|| {
            format!(
                "One job on {} machines with {} GPUs each: the command runs on every machine.",
                part.nodes,
                self.gpus_of_a_node()
            )
        });
        let divided = (part.sharding != Sharding::None).then(|| {
            let (name, words) = (part.sharding.name(), part.sharding.words());
            format!("Planned with {name} ({words} divided among all GPUs): the command has to set that.")
        });
        let parallel = (!part.parallel.is_none()).then(|| {
            format!(
                "Planned with {} (replicas: {}): the command has to set that.",
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

    /// A name that all tools take: lower-case letters, digits and single dashes, a letter first.
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

    /// GPUs of one machine.
    fn gpus_of_a_node(&self) -> u32 {
        self.part.gpu_count / self.part.nodes.max(1)
    }

    /// The most that one machine may cost an hour: its planned price in dollars, rounded up to a
    /// hundredth of a cent so that the offer itself is not above it.
    fn highest_price(&self) -> f64 {
        let price = self.part.price.get() / f64::from(self.part.nodes.max(1));
        (price * 1e4 - 1e-6).ceil() / 1e4
    }

    /// Refused where it is on several machines and the tool starts no such job there.
    fn check_machines(&self, launcher: Launcher) -> Result<(), LaunchError> {
        if self.part.nodes <= 1 || names::joins(launcher, &self.part.provider) {
            return Ok(());
        }
        let reason = "it starts no job on several machines of that provider (--max-machines 1 plans without)";
        Err(self.unknown(launcher, reason))
    }

    /// Whether it is rented by the hour, on spot or not; others cannot be rented by a tool.
    fn is_spot(&self, launcher: Launcher) -> Result<bool, LaunchError> {
        match self.part.tier {
            Tier::OnDemand => Ok(false),
            Tier::Spot => Ok(true),
            tier @ (Tier::Reserved | Tier::Owned) => {
                Err(self.refused(launcher, format!("the machine is {tier}, not rented by the hour")))
            }
        }
    }

    /// The most minutes it is predicted to take.
    fn most_minutes(&self) -> u64 {
        (Hours::get(self.part.hours.high) * 60.0).ceil().max(1.0) as u64
    }
}

/// The lines that stand for the training command.
const COMMAND: [&str; 2] = ["echo 'put the training command here' >&2", "exit 1"];

#[cfg(test)]
mod tests;
