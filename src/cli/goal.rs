//! From arguments and the settings file to a goal: flags win over the file, the file over
//! the defaults.

use std::collections::BTreeSet;

use super::{CliError, gpu};
use crate::catalog::Catalog;
use crate::plan::{Confidence, Goal, Objective, Work};
use crate::pricing::PriceBook;
use crate::settings::args::{ConfidenceArg, GoalArgs, ObjectiveArg};
use crate::settings::file::PlanDefaults;
use crate::store::Paths;
use crate::text;
use crate::units::{BytesPerSecond, Samples};

/// The work the screens start with where none was given.
pub(super) const DEFAULT_WORK: Work = Work::Steps(100_000);

/// The goal asked for; `None` where no amount of work was given.
pub(super) fn goal(args: &GoalArgs, defaults: &PlanDefaults) -> Result<Option<Goal>, CliError> {
    let work = match args {
        GoalArgs { samples: Some(count), .. } => Some(Work::Samples(samples(*count)?)),
        GoalArgs { steps: Some(steps), .. } => Some(Work::Steps(*steps)),
        GoalArgs { epochs: Some(epochs), dataset: Some(dataset), .. } => {
            Some(Work::Epochs { epochs: *epochs, dataset: samples(*dataset)? })
        }
        GoalArgs { tokens: Some(tokens), .. } => Some(Work::Tokens(*tokens)),
        _ => None,
    };
    let Some(mut goal) = work.map(Goal::new) else { return Ok(None) };
    apply(args, defaults, &mut goal);
    Ok(Some(goal))
}

/// Puts the GPUs named into the goal and refuses names that no offer has: a typing error would
/// otherwise look like "no plan".
pub(super) fn names(goal: &mut Goal, args: &GoalArgs, catalog: &Catalog, prices: &PriceBook) -> Result<(), CliError> {
    goal.limits.gpus = gpu::all(catalog, "--gpus", &args.gpus)?;
    let limits = &goal.limits;
    let offers = prices.offers();
    // What was not typed stands in the settings.
    let place = |given: [&[String]; 2], name: &String| {
        let typed = given.iter().any(|given| given.contains(name));
        if typed { String::new() } else { format!("{}: ", Paths::find().settings().display()) }
    };
    for name in limits.providers.iter().chain(&limits.exclude_providers) {
        if !offers.iter().any(|offer| offer.provider.eq_ignore_ascii_case(name)) {
            let known: BTreeSet<&str> = offers.iter().map(|offer| offer.provider.as_str()).collect();
            let known: Vec<&str> = known.into_iter().collect();
            let place = place([&args.providers, &args.exclude_providers], name);
            return Err(CliError(format!(
                "{place}no provider {:?}; there are {}",
                text::clean(name, 40),
                known.join(", ")
            )));
        }
    }
    for start in &limits.regions {
        if !offers.iter().any(|offer| offer.region.starts_with(start.as_str())) {
            let place = place([&args.regions, &[]], start);
            let start = text::clean(start, 40);
            return Err(CliError(format!("{place}no region begins with {start:?}; `habitat-tui offers` lists all")));
        }
    }
    for name in &args.gpus {
        // Of a name of several boards, one with an offer is enough.
        let meant = catalog.named(name);
        if !offers.iter().any(|offer| meant.iter().any(|gpu| offer.gpu.as_ref() == Some(&gpu.slug))) {
            let gpu = meant.first().map_or_else(|| text::clean(name, 40), |gpu| gpu.slug.to_string());
            return Err(CliError(format!(
                "no offer has a {gpu}; `habitat-tui offers` lists all, your own go into the price overlay"
            )));
        }
    }
    Ok(())
}

/// Everything but the work and the GPUs.
pub(super) fn apply(args: &GoalArgs, defaults: &PlanDefaults, goal: &mut Goal) {
    goal.deadline = args.deadline.or(goal.deadline);
    goal.budget = args.budget.or(goal.budget);
    if let Some(value) = args.hour_value {
        goal.objective = Objective::CostPlusTime(value);
    }
    match args.objective {
        Some(ObjectiveArg::Cost) => goal.objective = Objective::Cost,
        Some(ObjectiveArg::Time) => goal.objective = Objective::Time,
        None => {}
    }
    match args.confidence {
        Some(ConfidenceArg::Expected) => goal.confidence = Confidence::Expected,
        Some(ConfidenceArg::High) => goal.confidence = Confidence::High,
        None => {}
    }
    set(&mut goal.max_parts, args.max_parts.or(defaults.max_parts));
    let limits = &mut goal.limits;
    set(&mut limits.tiers, given(&args.tiers).or_else(|| defaults.tiers.clone()));
    set(&mut limits.providers, given(&args.providers).or_else(|| defaults.providers.clone()));
    set(&mut limits.exclude_providers, given(&args.exclude_providers).or_else(|| defaults.exclude_providers.clone()));
    set(&mut limits.regions, given(&args.regions).or_else(|| defaults.regions.clone()));
    set(&mut limits.min_gpus, args.min_gpus);
    limits.max_gpus = args.max_gpus.or(limits.max_gpus);
    limits.max_price = args.max_price.or(defaults.max_usd_per_hour).or(limits.max_price);
    limits.allow_unknown_memory |= args.allow_unknown_memory || defaults.allow_unknown_memory.unwrap_or(false);
    let assumptions = &mut goal.assumptions;
    set(&mut assumptions.setup, args.setup.or(defaults.setup_hours));
    set(&mut assumptions.spot_losses_per_hour, args.spot_losses_per_hour.or(defaults.spot_losses_per_hour));
    set(&mut assumptions.checkpoint_interval, args.checkpoint_interval.or(defaults.checkpoint_interval_hours));
    let gbps = args.allreduce_gbps.or(defaults.allreduce_gbps).filter(|&gbps| gbps > 0.0);
    assumptions.allreduce_bandwidth =
        gbps.and_then(|gbps| BytesPerSecond::new(gbps * 1e9).ok()).or(assumptions.allreduce_bandwidth);
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn given<T: Clone>(list: &[T]) -> Option<Vec<T>> {
    (!list.is_empty()).then(|| list.to_vec())
}

fn samples(count: f64) -> Result<Samples, CliError> {
    Samples::new(count).map_err(CliError::of)
}
