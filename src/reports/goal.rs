//! Goal of a plan as names with values, for reports that do not show the command.

use super::format;
use super::words::plan::accept_names;
use habitat_planning::plan::{Confidence, Data, Limits, Objective, Plan, Work};
use habitat_planning::pricing::Tier;

/// The work and the limits, each with its name, without limits that are not set.
pub(crate) fn facts(plan: &Plan) -> Vec<(String, String)> {
    // All fields, so that the compiler finds a limit that is left out.
    let Limits {
        tiers,
        accept,
        gpus,
        providers,
        exclude_providers,
        exclude_gpus,
        regions,
        exclude_regions,
        offers,
        min_gpus,
        max_gpus,
        max_machines,
        max_price,
        max_co2,
        no_marketplace,
        allow_unknown_memory,
        min_vcpus,
        min_host_memory,
        allow_unknown_host,
        quotas,
    } = &plan.goal.limits;
    let listed = |list: &[String]| (!list.is_empty()).then(|| list.join(", "));
    let slugs =
        |list: &[habitat_base::units::GpuSlug]| listed(&list.iter().map(ToString::to_string).collect::<Vec<_>>());
    let all = tiers.len() == Tier::ALL.len();
    let tiers = (!all).then(|| tiers.iter().map(|tier| tier.name()).collect::<Vec<_>>().join(", "));
    let accepted = (!accept.is_empty()).then(|| accept_names(accept));
    let yes = |is_set: bool| is_set.then(|| "yes".to_owned());
    let quotas: Vec<String> = quotas.iter().map(ToString::to_string).collect();
    let place = |data: &Data| {
        let at = [&data.provider, &data.region].into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/");
        format!("{} GB{}", data.gb, if at.is_empty() { String::new() } else { format!(" at {at}") })
    };
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
        ("Most per hour", max_price.map(format::price)),
        ("Most emissions", max_co2.map(|most| format!("{} kg CO2e", format::number(most.get())))),
        ("Purchase options", tiers),
        ("Accepted", accepted),
        ("GPUs", slugs(gpus)),
        ("Without GPUs", slugs(exclude_gpus)),
        ("Providers", listed(providers)),
        ("Without providers", listed(exclude_providers)),
        ("Without marketplaces", yes(*no_marketplace)),
        ("Regions", listed(regions)),
        ("Without regions", listed(exclude_regions)),
        ("Offers", listed(offers)),
        ("GPUs at least", (*min_gpus > 1).then(|| min_gpus.to_string())),
        ("GPUs at most", max_gpus.map(|most| most.to_string())),
        ("Machines at most", (*max_machines > 1).then(|| max_machines.to_string())),
        ("vCPUs at least", min_vcpus.map(|least| least.to_string())),
        ("Host memory at least", min_host_memory.map(|least| least.to_string())),
        ("Unknown hosts allowed", yes(*allow_unknown_host)),
        ("Unknown memory needs allowed", yes(*allow_unknown_memory)),
        ("Quotas (GPUs)", listed(&quotas)),
        ("Data", plan.goal.data.as_ref().map(place)),
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
