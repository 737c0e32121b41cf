//! Goal of a plan as names with values, for reports that do not show the command.

use super::format;
use super::words::plan::accept_names;
use habitat_planning::plan::{Confidence, Goal, Objective, Plan, Work};
use habitat_planning::pricing::Tier;

/// The work and the limits, each with its name, without limits that are not set.
pub(crate) fn facts(plan: &Plan) -> Vec<(String, String)> {
    let Goal { limits, .. } = &plan.goal;
    let listed = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
    let slugs =
        |list: &[habitat_base::units::GpuSlug]| listed(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
    let all = limits.tiers.len() == Tier::ALL.len();
    let tiers = (!all).then(|| limits.tiers.iter().map(|tier| tier.name()).collect::<Vec<_>>().join(", "));
    let accepted = (!limits.accept.is_empty()).then(|| accept_names(&limits.accept));
    let best = match plan.goal.objective {
        Objective::Cost => "lowest cost".to_owned(),
        Objective::Time => "earliest finish".to_owned(),
        Objective::CostPlusTime(value) => format!("lowest cost, with ${} for each hour until it finishes", value.get()),
        Objective::Emissions => "lowest emissions".to_owned(),
    };
    let end = match plan.goal.confidence {
        Confidence::Expected => "",
        Confidence::High => " (upper end of the range)",
    };
    let facts = [
        ("Work", Some(work(plan))),
        ("Global batch", plan.goal.global_batch.map(|batch| format!("{} samples", format::grouped(batch as f64)))),
        ("Objective", Some(best)),
        ("Deadline", plan.goal.deadline.map(|deadline| format!("{}{end}", format::hours(deadline)))),
        ("Budget", plan.goal.budget.map(format::usd)),
        ("Most per hour", limits.max_price.map(format::price)),
        ("Most emissions", limits.max_co2.map(|most| format!("{} kg CO2e", format::number(most.get())))),
        ("Purchase options", tiers),
        ("Accepted", accepted),
        ("GPUs", slugs(&limits.gpus)),
        ("Without GPUs", slugs(&limits.exclude_gpus)),
        ("Providers", listed(&limits.providers)),
        ("Without providers", listed(&limits.exclude_providers)),
        ("Regions", listed(&limits.regions)),
        ("Without regions", listed(&limits.exclude_regions)),
        ("Offers", listed(&limits.offers)),
        ("GPUs at least", (limits.min_gpus > 1).then(|| limits.min_gpus.to_string())),
        ("GPUs at most", limits.max_gpus.map(|most| most.to_string())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The amount of work in words, with the resulting total.
fn work(plan: &Plan) -> String {
    let all = format!("{} {}", format::grouped(plan.work.get()), plan.work.unit());
    match plan.goal.work {
        Work::Epochs { epochs, dataset } => {
            format!("{} epochs of {} samples ({all})", number(epochs), format::grouped(dataset.get()))
        }
        Work::Steps(steps) if plan.work.unit() != "steps" => format!("{} steps ({all})", format::grouped(steps as f64)),
        Work::Tokens(tokens) => format!("{} tokens ({all})", format::short_count(tokens)),
        _ => all,
    }
}

/// A number without trailing zero decimals.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format::grouped(value) } else { format::number(value) }
}
