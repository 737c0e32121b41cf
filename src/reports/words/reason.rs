//! Words for the reasons why offers are not in a plan.

use super::Words;
use super::plan::{accept_names, budget_flag, deadline_flag, time_limit};
use crate::format::number;
use habitat_base::text::{dollars, duration, grouped};
use habitat_base::units::GIB;
use habitat_planning::Coded;
use habitat_planning::plan::{Reason, Remedies};
use habitat_prediction::Sharding;

impl Words for Reason {
    fn words(&self) -> String {
        of_offer(self).or_else(|| of_step(self)).unwrap_or_else(|| of_plan(self))
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::DoesNotFit { memory } | Self::MemoryUnknown { memory, .. } => Some(memory.words()),
            Self::Layout { error } | Self::NotScalable { error, .. } => Some(error.to_string()),
            _ => None,
        }
    }
}

/// An offer that the goal does not allow, or whose price cannot be used.
fn of_offer(reason: &Reason) -> Option<String> {
    Some(match reason {
        Reason::UnusablePrice { why } => why.words(),
        Reason::InvalidPrice { usd_per_hour } => format!("${:e}/h is not a valid price", usd_per_hour.get()),
        Reason::NoGpu => "the offer has no GPU".to_owned(),
        Reason::UnknownGpu { name } => format!("GPU not in the catalog, or ambiguous: {name}"),
        Reason::OfferNotNamed => "not among the requested offers".to_owned(),
        Reason::TierNotAllowed { tier } => format!("{tier} offers are not allowed"),
        Reason::GpuNotNamed { gpu } => format!("{gpu} is not among the allowed GPUs"),
        Reason::GpuExcluded { gpu } => format!("{gpu} is excluded"),
        Reason::ProviderNotNamed { provider } => format!("{provider} is not among the allowed providers"),
        Reason::ProviderExcluded { provider } => format!("{provider} is excluded"),
        Reason::MarketplaceExcluded => "hosts on peer-to-peer markets are excluded".to_owned(),
        Reason::RegionNotNamed { region } => format!("region {region} is not among the allowed ones"),
        Reason::RegionExcluded { region, filter } => format!("region {region} is excluded ({filter})"),
        Reason::TooFewGpus { gpus, least } => format!("{gpus} GPUs, fewer than the required {least}"),
        Reason::TooManyGpus { gpus, most } => format!("{gpus} GPUs, more than the allowed {most}"),
        Reason::TooDearPerHour { usd_per_hour, most } => {
            format!("${:.2}/h, more than the allowed ${:.2}/h", usd_per_hour.get(), most.get())
        }
        Reason::TooFewVcpus { vcpus, least } => format!("{vcpus} vCPUs, fewer than the required {least}"),
        Reason::TooLittleHostMemory { bytes, least } => {
            let [has, least] = [bytes, least].map(|bytes| bytes.get() / GIB);
            format!("{has} GB of host memory, fewer than the required {least}")
        }
        Reason::VcpusUnknown => "unknown vCPUs (allow it with --allow-unknown-host)".to_owned(),
        Reason::HostMemoryUnknown => "unknown GB of host memory (allow it with --allow-unknown-host)".to_owned(),
        Reason::OverQuota { gpus, quota } => format!("{gpus} GPUs, more than the quota of {quota}"),
        _ => return None,
    })
}

/// A step that is unknown or does not run there.
fn of_step(reason: &Reason) -> Option<String> {
    Some(match reason {
        Reason::NoPrediction { gpu } => format!("no prediction for {gpu}"),
        Reason::NoDuration { gpu } => format!("the predicted step on {gpu} has no duration"),
        Reason::NotScalable { gpus, error } => format!("{gpus} GPUs: {error}"),
        Reason::PowerUnknown { gpu } => format!("unknown emissions: the power of {gpu} is not in the catalog"),
        Reason::CarbonUnknown => {
            "unknown emissions: carbon intensity missing (set kg_co2_per_kwh in a price file)".to_owned()
        }
        Reason::Layout { error } => error.to_string(),
        Reason::DoesNotFit { memory } => memory.words(),
        Reason::BatchesDoNotDivide { .. } => batches(reason),
        Reason::LostTooOften { per_hour, machines } => format!(
            "{machines} machine{} lost {per_hour:.1} times an hour, more often than the job can restart",
            if *machines == 1 { " is" } else { "s are" },
        ),
        Reason::UpdateTooLong { batches } => format!("an update of {batches} batches takes longer than a year"),
        Reason::OutOfMemory { .. } => memory(reason),
        Reason::MemoryUnknown { memory, remedies } => {
            let why = memory.words();
            let unknown = if why.starts_with("may fit") { "" } else { "unknown whether it fits: " };
            format!("{unknown}{why}{}", remedies_words(remedies))
        }
        _ => return None,
    })
}

/// An offer that exceeds a limit of the plan, or is not the best.
fn of_plan(reason: &Reason) -> String {
    match reason {
        Reason::TooSlow { hours, confidence, late_hours } => {
            let takes = time_limit(hours.get(), *confidence);
            let (late, flag) = (duration(late_hours.get()), deadline_flag(*hours));
            format!("takes {takes}, misses the deadline by {late} ({flag})")
        }
        Reason::TooLong { hours, confidence, cost_usd } => {
            let takes = time_limit(hours.get(), *confidence);
            format!("costs {}, but takes {takes} ({})", dollars(cost_usd.get()), deadline_flag(*hours))
        }
        Reason::TooDear { cost_usd, over_usd } => {
            let [cost, over] = [cost_usd, over_usd].map(|usd| dollars(usd.get()));
            format!("costs {cost}, {over} more than the budget ({})", budget_flag(*cost_usd))
        }
        Reason::TooMuchCo2 { co2_kg, over_kg } => {
            let [emits, over] = [co2_kg, over_kg].map(|kg| number(kg.get()));
            format!("emits {emits} kg CO2e, {over} kg more than allowed")
        }
        Reason::Possible { cost_usd, hours } => {
            format!("costs {} in {}", dollars(cost_usd.get()), duration(hours.get()))
        }
        Reason::CostsMore { cost_usd, hours, more_usd } => {
            let [cost, more] = [cost_usd, more_usd].map(|usd| dollars(usd.get()));
            format!("costs {cost} in {}, {more} more than the plan", duration(hours.get()))
        }
        Reason::TakesLonger { hours, confidence, cost_usd, more_hours, plan_hours } => {
            let (takes, cost) = (time_limit(hours.get(), *confidence), dollars(cost_usd.get()));
            let [more, plans] = [more_hours, plan_hours].map(|hours| duration(hours.get()));
            format!("takes {takes} for {cost}, {more} longer than the plan's {plans}")
        }
        Reason::CostsMoreWithTime { cost_usd, hours, confidence, more_usd } => {
            let takes = time_limit(hours.get(), *confidence);
            let [cost, more] = [cost_usd, more_usd].map(|usd| dollars(usd.get()));
            format!("costs {cost}, takes {takes}: {more} more than the plan, including the cost of its time")
        }
        Reason::EmitsMore { co2_kg, more_kg, cost_usd, hours } => {
            let [emits, more] = [co2_kg, more_kg].map(|kg| number(kg.get()));
            let (cost, takes) = (dollars(cost_usd.get()), duration(hours.get()));
            format!("emits {emits} kg CO2e, {more} kg more than the plan, and costs {cost} in {takes}")
        }
        Reason::NotAccepted { risks, accept, cost_usd, hours, late_hours, over_usd } => {
            let late = late_hours.map(|late| format!("misses the deadline by {}", duration(late.get())));
            let dear = over_usd.map(|over| format!("exceeds the budget by {}", dollars(over.get())));
            let too_much: Vec<String> = late.into_iter().chain(dear).collect();
            let but = if too_much.is_empty() { String::new() } else { format!(", but it {}", too_much.join(" and ")) };
            let (what, flags) = (super::joined(risks, ", "), accept_names(accept));
            let (cost, takes) = (dollars(cost_usd.get()), duration(hours.get()));
            format!("{what}: {cost} in {takes}; --accept {flags} allows it{but}")
        }
        // `of_offer` and `of_step` have all others.
        other => other.code().to_owned(),
    }
}

/// Words for a batch: `1 sample`, `32 samples`.
fn samples(batch: u64) -> String {
    if batch == 1 { "1 sample".to_owned() } else { format!("{} samples", grouped(batch as f64)) }
}

/// Batches of a step that do not make the global batch, and what would.
fn batches(reason: &Reason) -> String {
    let Reason::BatchesDoNotDivide {
        count,
        are_replicas,
        batch_size,
        global_batch_size,
        smaller_batch_size,
        accumulation,
        multiples,
    } = reason
    else {
        return String::new();
    };
    let word = if *are_replicas { "replica" } else { "GPU" };
    let own = samples(*batch_size);
    let each = if *count == 1 { format!("1 {word} with {own}") } else { format!("{count} {word}s with {own} each") };
    let step = batch_size.saturating_mul(u64::from(*count));
    let relation = if *global_batch_size < step { "less than" } else { "not a multiple of" };
    let smaller = smaller_batch_size.map_or_else(
        || format!("no batch of up to {own} per {word} works"),
        |batch_size| {
            let times = accumulation.filter(|times| *times > 1);
            let times = times.map(|times| format!(" (accumulation ×{})", grouped(times as f64)));
            format!("{} per {word} works{}", samples(batch_size), times.unwrap_or_default())
        },
    );
    let multiples: Vec<String> = multiples.iter().map(|multiple| grouped(*multiple as f64)).collect();
    let [step, global] = [step, *global_batch_size].map(|batch| grouped(batch as f64));
    format!(
        "{each} make {step} per step; the global batch of {global} is {relation} that: {smaller}, or a global batch of {}",
        multiples.join(" or ")
    )
}

/// Memory that the step needs, and what would fit.
fn memory(reason: &Reason) -> String {
    let Reason::OutOfMemory { needed_bytes, usable_bytes, gpu_bytes, sharding, replicas, model_parallel, remedies } =
        reason
    else {
        return String::new();
    };
    let with = match (model_parallel.is_none(), *sharding) {
        (true, Sharding::None) => String::new(),
        (true, _) => format!(" with {} on {replicas} GPUs", sharding.name()),
        (false, stage) if stage == Sharding::None || *replicas == 1 => format!(" with {}", model_parallel.words()),
        (false, _) => format!(" with {}, {} over {replicas} replicas", model_parallel.words(), sharding.name()),
    };
    let [needed, usable, nominal] = [needed_bytes, usable_bytes, gpu_bytes].map(|bytes| bytes.get() / GIB);
    let remedies = remedies_words(remedies);
    format!("needs {needed:.1} GB{with}; the GPU has {usable:.1} of {nominal:.0} GB available{remedies}")
}

/// Changes with which a step would fit, to follow its need; empty without any.
fn remedies_words(remedies: &Remedies) -> String {
    let Remedies { fitting_batch_size, accumulation, global_batch_size, fitting_sharding } = *remedies;
    let keeps = accumulation.zip(global_batch_size).map(|(times, global)| {
        let [times, global] = [times, global].map(|number| grouped(number as f64));
        format!(": accumulation ×{times} keeps the global batch of {global}")
    });
    let keeps = keeps.unwrap_or_default();
    let batch = fitting_batch_size.map(|batch| format!("; {} samples per GPU would fit{keeps}", grouped(batch as f64)));
    let divided = fitting_sharding
        .map(|(sharding, gpus)| format!("; would fit with --sharding {} on {gpus} GPUs", sharding.name()));
    batch.into_iter().chain(divided).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_that_do_not_divide_are_told_what_would_do() {
        let words = |count, batch_size, global_batch_size, smaller: Option<(u64, u64)>, multiples: &[u64]| {
            let (smaller_batch_size, accumulation) = smaller.unzip();
            let (multiples, are_replicas) = (multiples.to_vec(), false);
            Reason::BatchesDoNotDivide {
                count,
                are_replicas,
                batch_size,
                global_batch_size,
                smaller_batch_size,
                accumulation,
                multiples,
            }
            .words()
        };
        assert_eq!(
            words(8, 32, 1000, Some((25, 5)), &[768, 1024]),
            "8 GPUs with 32 samples each make 256 per step; the global batch of 1,000 is not a multiple of that: 25 samples per GPU works (accumulation ×5), or a global batch of 768 or 1,024"
        );
        assert_eq!(
            words(8, 32, 64, Some((8, 1)), &[256]),
            "8 GPUs with 32 samples each make 256 per step; the global batch of 64 is less than that: 8 samples per GPU works, or a global batch of 256"
        );
        assert!(words(8, 32, 100, None, &[256]).contains("no batch of up to 32 samples per GPU works"));
        assert!(words(1, 32, 48, Some((24, 2)), &[32, 64]).starts_with("1 GPU with 32 samples make 32 per step"));
    }
}
