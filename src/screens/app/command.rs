//! The command that opens the current view: the original command line with later changes.

use super::App;
use super::screen::predict;
use crate::action::Screen;
use habitat_base::text::CommandLine;
use habitat_planning::plan::{Accept, Goal, Objective, ShardingChoice, Work};
use habitat_planning::pricing::Tier;
use habitat_prediction::Sharding;
use habitat_prediction::scale::ModelParallel;
use habitat_reports::words::plan::accept_names;

impl App {
    /// The command that opens this view again. For a job that was started along with the screens, it opens the job's
    /// recording.
    pub fn command(&self) -> String {
        let mut line = match &self.setup.job {
            Some(job) => [job.output.clone()].into_iter().collect(),
            None => self.setup.typed.clone(),
        };
        let is_typed = !matches!(self.screen, Screen::Overview | Screen::Job);
        put(&mut line, "--screen", is_typed.then(|| self.screen.name().to_owned()));
        if let Some(method) = self.chosen.method {
            line.set("--method", method.name());
        }
        if let Some(host) = self.chosen.host {
            line.set("--host", host.name());
        }
        if let Some(precision) = self.chosen.precision {
            put(&mut line, "--precision", precision.map(|precision| precision.name().to_owned()));
        }
        if let Some(batch) = self.chosen.batch {
            put(&mut line, "--batch-sizes", batch.map(|batch| batch.to_string()));
        }
        if self.setup.own.is_changed {
            put(&mut line, "--own", Some(self.setup.own.names.join(",")).filter(|own| !own.is_empty()));
        }
        if self.screen == Screen::Predict {
            put(&mut line, "--gpu", predict::selected(self).map(|row| row.slug.to_string()));
        }
        let filter = self.screen.behaviour().list(self).map(|list| list.filter.clone());
        put(&mut line, "--filter", filter.filter(|filter| !filter.is_empty()));
        if let Some(first) = self.planner.earlier.first() {
            goal(&mut line, first, &self.setup.goal, self.chosen.batch.flatten().is_some());
        }
        line.to_string()
    }
}

fn put(line: &mut CommandLine, flag: &str, value: Option<String>) {
    match value {
        Some(value) => line.set(flag, &value),
        None => line.remove(flag),
    }
}

/// Adds flags for changes to the goal. If `sized`, batch sizes are given, which implies accepting another global batch.
fn goal(line: &mut CommandLine, first: &Goal, now: &Goal, sized: bool) {
    if first.work != now.work {
        for flag in ["--samples", "--steps", "--epochs", "--dataset", "--tokens"] {
            line.remove(flag);
        }
        match now.work {
            Work::Samples(samples) => line.set("--samples", &samples.get().to_string()),
            Work::Steps(steps) => line.set("--steps", &steps.to_string()),
            Work::Epochs { epochs, dataset } => {
                line.set("--epochs", &epochs.to_string());
                line.set("--dataset", &dataset.get().to_string());
            }
            Work::Tokens(tokens) => line.set("--tokens", &tokens.to_string()),
        }
    }
    if first.deadline != now.deadline {
        put(line, "--deadline", now.deadline.map(|deadline| format!("{}h", deadline.get())));
    }
    if first.budget != now.budget {
        put(line, "--budget", now.budget.map(|budget| budget.get().to_string()));
    }
    if first.objective != now.objective {
        line.remove("--objective");
        line.remove("--hour-value");
        match now.objective {
            Objective::CostPlusTime(worth) => line.set("--hour-value", &worth.get().to_string()),
            Objective::Cost => line.set("--objective", "cost"),
            Objective::Time => line.set("--objective", "time"),
            Objective::Emissions => line.set("--objective", "co2"),
        }
    }
    if first.confidence != now.confidence {
        line.set("--confidence", now.confidence.name());
    }
    if first.max_parts != now.max_parts {
        line.set("--max-parts", &now.max_parts.to_string());
    }
    if first.limits.max_gpus != now.limits.max_gpus {
        put(line, "--max-gpus", now.limits.max_gpus.map(|most| most.to_string()));
    }
    let layout = |goal: &Goal| (goal.layout, goal.sharding, goal.model_parallel);
    if layout(first) != layout(now) {
        let ModelParallel { tensor, pipeline, context, chunks, expert, .. } = now.model_parallel;
        for (flag, degree) in [
            ("--tensor-parallel", tensor),
            ("--pipeline-parallel", pipeline),
            ("--virtual-stages", chunks),
            ("--context-parallel", context),
            ("--expert-parallel", expert),
        ] {
            put(line, flag, Some(degree.to_string()).filter(|_| degree > 1));
        }
        let sharding = Sharding::ALL.into_iter().find(|sharding| ShardingChoice::of(*sharding) == now.sharding);
        line.set("--sharding", sharding.map_or("auto", Sharding::name));
        put(line, "--layout", (!now.layout.is_auto()).then(|| "given".to_owned()));
    }
    let (before, accept) = (&first.limits.accept, &now.limits.accept);
    let typed =
        |all: &[Accept]| all.iter().copied().filter(|one| !(sized && *one == Accept::Batch)).collect::<Vec<_>>();
    if typed(before) != typed(accept) {
        put(line, "--accept", Some(accept_names(accept)).filter(|names| !names.is_empty()));
    }
    for (flag, before, now) in [
        ("--providers", &first.limits.providers, &now.limits.providers),
        ("--regions", &first.limits.regions, &now.limits.regions),
        ("--exclude-providers", &first.limits.exclude_providers, &now.limits.exclude_providers),
        ("--exclude-regions", &first.limits.exclude_regions, &now.limits.exclude_regions),
    ] {
        if before != now {
            put(line, flag, Some(now.join(",")).filter(|names| !names.is_empty()));
        }
    }
    if first.limits.tiers != now.limits.tiers {
        // Naming spot here accepts it.
        let is_meant = |tier: &&Tier| **tier != Tier::Spot || accept.contains(&Accept::Spot);
        let tiers: Vec<&str> = now.limits.tiers.iter().filter(is_meant).map(|tier| tier.name()).collect();
        line.set("--tiers", &tiers.join(","));
    }
}
