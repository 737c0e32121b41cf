//! Words for the notes of a plan and its parts, and for the offers beside it.

use super::Words;
use super::price::{doubts, marks};
use habitat_base::text::{clean, dollars, duration, grouped};
use habitat_base::units::{GIB, Hours, Usd};
use habitat_planning::Coded;
use habitat_planning::plan::{Accept, Confidence, Draw, Machines, Objective, PlanNote, Platform, RejectionKind, Risk};
use habitat_prediction::Vendor;

impl Words for Machines {
    /// `2 × h100-sxm5-80gb at aws us-east-1, spot`.
    fn words(&self) -> String {
        let Self { provider, region, tier, gpu, all_gpus, machines, .. } = self;
        let on = if *machines > 1 { format!(" on {machines} machines") } else { String::new() };
        format!("{all_gpus} × {gpu}{on} at {provider} {}, {tier}", super::price::region(region))
    }
}

/// Hours that have to meet the deadline.
pub(super) fn time_limit(hours: f64, confidence: Confidence) -> String {
    match confidence {
        Confidence::Expected => duration(hours),
        Confidence::High => format!("up to {}", duration(hours)),
    }
}

/// Deadline that hours meet, as a flag: rounded up.
pub(crate) fn deadline_flag(hours: Hours) -> String {
    match hours.get() {
        hours if hours < 240.0 => format!("--deadline {:.1}h", (hours * 10.0).ceil() / 10.0),
        hours => format!("--deadline {}d", (hours / 24.0).ceil()),
    }
}

/// Budget that a cost meets, as a flag: rounded up.
pub(crate) fn budget_flag(cost: Usd) -> String {
    format!("--budget {:.2}", (cost.get() * 100.0).ceil() / 100.0)
}

/// Comparative and superlative of an objective.
pub(crate) const fn degrees(objective: Objective) -> [&'static str; 2] {
    match objective {
        Objective::Cost => ["cheaper", "cheapest"],
        Objective::Time => ["faster", "fastest"],
        Objective::CostPlusTime(_) => ["better", "best"],
        Objective::Emissions => ["less CO2e", "least CO2e"],
    }
}

/// Words for a kind of risk.
pub const fn accept(accept: Accept) -> &'static str {
    match accept {
        Accept::Spot => "a spot machine",
        Accept::Marketplace => "a marketplace host",
        Accept::Doubted => "a price in doubt",
        Accept::Platform => "another platform",
        Accept::Batch => "another global batch",
    }
}

/// Values for the flag `--accept`.
pub fn accept_names(accept: &[Accept]) -> String {
    accept.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")
}

impl Words for Risk {
    fn words(&self) -> String {
        match self {
            Self::Spot => accept(Accept::Spot).to_owned(),
            Self::Marketplace => accept(Accept::Marketplace).to_owned(),
            Self::Doubted(doubts) => format!("a price in doubt ({})", marks(doubts)),
            Self::Platform(platform) => platform.words(),
            Self::Batch(Some(batch)) => format!("a global batch of {}", grouped(*batch as f64)),
            Self::Batch(None) => accept(Accept::Batch).to_owned(),
        }
    }
}

impl Words for Platform {
    fn words(&self) -> String {
        let words = match (self.vendor, self.arm) {
            (Vendor::Amd, _) => "ROCm, an AMD GPU",
            (Vendor::Nvidia, true) => "a host with ARM CPUs",
            (Vendor::Nvidia, false) => "CUDA on x86",
        };
        words.to_owned()
    }
}

/// Words for the kind, to follow a number of offers.
pub(crate) const fn kind(kind: RejectionKind) -> &'static str {
    match kind {
        RejectionKind::UnusablePrice => "without a usable price",
        RejectionKind::UnknownGpu => "with an unknown GPU",
        RejectionKind::NoPrediction => "without a prediction",
        RejectionKind::Memory => "without enough memory",
        RejectionKind::MemoryUnknown => "on which the step may not fit",
        RejectionKind::EmissionsUnknown => "with unknown emissions",
        RejectionKind::GlobalBatch => "whose batches do not divide the global batch",
        RejectionKind::Layout => "whose GPUs do not form whole replicas of the model",
        RejectionKind::NotAccepted => "that need --accept",
        RejectionKind::Limits => "outside the limits set",
        RejectionKind::LostTooOften => "lost too often to get on",
        RejectionKind::Deadline => "too slow",
        RejectionKind::Budget => "over budget",
        RejectionKind::Emissions => "over the emission limit",
        RejectionKind::Dominated => "not the best",
    }
}

/// Power, PUE and carbon intensity.
fn power(draw: &Draw) -> String {
    let emits = draw.intensity.map_or_else(
        || "unknown carbon intensity (set kg_co2_per_kwh in a price file)".to_owned(),
        |intensity| intensity.words(),
    );
    format!("draws {:.2} kW × PUE {}; {emits}", draw.machines.get() / 1e3, draw.pue)
}

/// Paid and used time of a contract: `720 h paid (1 term of 720 h), 268 h used, 63 % idle`.
fn terms(term: u32, paid: f64, used: f64) -> String {
    let terms = paid / f64::from(term);
    let one = grouped(f64::from(term));
    let of = if terms > 1.5 { format!("{terms:.0} terms of {one} h") } else { format!("1 term of {one} h") };
    let idle = (1.0 - used / paid).max(0.0) * 100.0;
    format!("{} h paid ({of}), {used:.1} h used, {idle:.0} % idle", grouped(paid))
}

const fn recalled(is_recalled: bool) -> &'static str {
    if is_recalled { " (unverified price, without a source)" } else { "" }
}

impl Words for PlanNote {
    fn words(&self) -> String {
        of_part(self).or_else(|| of_plan(self)).unwrap_or_else(|| fallback(self))
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Scaling { scaling } => Some(scaling.words()),
            Self::ReplicaMemory { memory } | Self::Sharding { memory, .. } => Some(memory.words()),
            _ => None,
        }
    }
}

/// A note on a part.
fn of_part(note: &PlanNote) -> Option<String> {
    Some(match note {
        PlanNote::Scaling { scaling } => scaling.words(),
        PlanNote::OtherBatch { why } => why.clone(),
        PlanNote::Precision { finding } => finding.words(),
        PlanNote::ReplicaMemory { memory } => format!("each GPU {}", memory.words()),
        PlanNote::ShardingOfOneGpu { sharding } => format!("sharding {}: no effect on one GPU", sharding.name()),
        PlanNote::Sharding { sharding, gpus, memory } => {
            let (name, divided) = (sharding.name(), sharding.words());
            format!("sharding {name}: {divided} divided among {gpus} GPUs; {}", memory.words())
        }
        PlanNote::OwnMachine { held } => held.words(),
        PlanNote::PriceList { remark } => format!("price list: {}", clean(remark, 300)),
        PlanNote::BilledByHour => "each started hour is billed in full".to_owned(),
        PlanNote::Terms { term_hours, paid_hours, used_hours } => terms(*term_hours, *paid_hours, used_hours.get()),
        PlanNote::SpotLosses { per_hour, wait_hours, source, elapsed, billed, allowed } => format!(
            "spot: {per_hour:.2} losses per hour and {:.1} h of waiting after each, {}; expected {elapsed:.2} h elapsed and {billed:.2} h billed per useful hour; upper end with {allowed:.1} losses",
            wait_hours.get(),
            source.words(),
        ),
        PlanNote::Failures { gpus, hours_between, checkpoint_hours, elapsed } => format!(
            "failures: one of {gpus} GPUs every {} is expected, so a checkpoint every {}; {:.1} % more hours",
            duration(hours_between.get()),
            duration(checkpoint_hours.get()),
            (elapsed - 1.0) * 100.0,
        ),
        PlanNote::Setup { hours } => format!("set-up {:.2} h, billed", hours.get()),
        PlanNote::DataCopied { gb, hours } => {
            format!("data: copying {gb} GB takes {} before the first step", duration(hours.get()))
        }
        PlanNote::DataMoved { gb, cost_usd, is_recalled } => {
            format!("data: transfer of {gb} GB, {} once{}", dollars(cost_usd.get()), recalled(*is_recalled))
        }
        PlanNote::DataCostUnknown { gb } => {
            format!("data: cost of the transfer of {gb} GB unknown, not included (set egress_usd_per_gb)")
        }
        PlanNote::DataStored { gb, hours, cost_usd, is_recalled } => {
            let (time, cost) = (duration(hours.get()), dollars(cost_usd.get()));
            format!("storage: {gb} GB for {time}, {cost}{}", recalled(*is_recalled))
        }
        PlanNote::StorageUnknown { gb } => {
            format!("storage: cost of {gb} GB unknown, not included (set storage_usd_per_gb_month)")
        }
        PlanNote::Power { draw } => power(draw),
        PlanNote::PowerUnknown { gpu } => format!("unknown energy: the power of {gpu} is not in the catalog"),
        PlanNote::MemoryUnknown => "unknown whether the step fits in memory".to_owned(),
        PlanNote::NoRoom { needed_bytes, usable_bytes } => format!(
            "fits with no room to spare: each GPU needs {:.1} of the {:.1} GB that it can use, closer than such figures are known",
            needed_bytes.get() / GIB,
            usable_bytes.get() / GIB
        ),
        _ => return None,
    })
}

/// Tokens of an update in published pretraining: GPT-3 had 0.5 to 3.2 million (Brown et al. 2020, arXiv:2005.14165, table
/// 2.1), Llama 2 had 4 million (Touvron et al. 2023, arXiv:2307.09288, section 2.2).
const UPDATE_TOKENS: [f64; 2] = [1e6, 4e6];

/// Updates of one sample, with usual numbers of sequences: the nearest powers of two.
fn batch_of_one(sequence_length: Option<u64>) -> String {
    let Some(length) = sequence_length.filter(|length| *length > 0) else {
        return "each update has 1 sample, the batch of a model that was not recorded; set yours with --global-batch"
            .to_owned();
    };
    let length = length as f64;
    let [least, most] = UPDATE_TOKENS.map(|tokens| grouped((tokens / length).log2().round().max(0.0).exp2()));
    format!(
        "each update has 1 sample of {} tokens, as the model was not recorded; set yours: pretraining usually has 1 to 4 million tokens (--global-batch {least} to {most})",
        grouped(length)
    )
}

/// A note on a plan of one or several jobs.
fn of_plan(note: &PlanNote) -> Option<String> {
    Some(match note {
        PlanNote::StorageNotIncluded { gb } => format!(
            "cost of storing {gb} GB not included: no provider has a storage price (set storage_usd_per_gb_month in a price file)"
        ),
        PlanNote::CountedInSteps => {
            "unknown batch size: work is counted in steps of one GPU, and a step of n GPUs counts n times".to_owned()
        }
        PlanNote::DataCopiedTwice => {
            "two parts at one place each copy the data: if the second finds them there, the plan costs less".to_owned()
        }
        PlanNote::BatchOfOne { sequence_length } => batch_of_one(*sequence_length),
        PlanNote::OtherUpdates { updates, steps } => format!(
            "each update uses the batches of all GPUs: {} updates instead of {}; --batch-size with --global-batch keeps their number",
            grouped(*updates),
            grouped(*steps)
        ),
        PlanNote::OtherGlobalBatch { global_batch_sizes, recorded, updates, recorded_updates } => {
            let global: Vec<String> = global_batch_sizes.iter().map(|batch| grouped(*batch as f64)).collect();
            let (global, own) = (global.join(" and "), grouped(*recorded as f64));
            let [updates, before] = [updates, recorded_updates].map(|number| grouped(*number));
            format!(
                "global batch {global} instead of {own}: {updates} updates instead of {before}. --global-batch {recorded} keeps yours"
            )
        }
        PlanNote::PriceInDoubt { offer, doubts: all } => format!("the price of {offer} is in doubt: {}", doubts(all)),
        PlanNote::Switch { to, latest_hours } => format!(
            "switch to {to} when the remaining time is just enough for the remaining work there (after {} if no work is done by then); this meets the deadline if that machine is available then and no slower than its upper end",
            duration(latest_hours.get())
        ),
        PlanNote::SpotAssumed => {
            "spot losses are assumptions, shown for each part; the upper end allows for waits as long as in the worst measured zone".to_owned()
        }
        PlanNote::TwoParts { spot, to, latest_hours, cost_usd } => format!(
            "with two parts (--max-parts 2): {}, then {} after {} at the latest, has an expected cost of {}",
            spot.words(),
            to.words(),
            duration(latest_hours.get()),
            dollars(cost_usd.get())
        ),
        PlanNote::MorePartsNotTried => {
            "plans that switch from spot have two parts; more parts were not tried".to_owned()
        }
        PlanNote::TightDeadline { saved_usd } => {
            format!("the deadline is tight: one more hour saves {}", dollars(saved_usd.get()))
        }
        PlanNote::BudgetAtHighEnd { budget_usd, high_usd } => {
            let [budget, high] = [budget_usd, high_usd].map(|amount| dollars(amount.get()));
            format!("the expected cost meets the budget of {budget}; the high end is {high}")
        }
        PlanNote::NextBest { offer, usd_per_hour, now_usd_per_hour, shorter } => {
            let less = format!("at ${:.3}/h (now ${:.3})", usd_per_hour.get(), now_usd_per_hour.get());
            let faster = shorter.map(|share| format!(" or with a step {:.0} % shorter", share * 100.0));
            format!("the next best, {offer}, would match {less}{}", faster.unwrap_or_default())
        }
        PlanNote::TermPaysOff { offer, hours, against } => {
            let against = against.words();
            format!("a term of {offer} pays off above {:.0} h of use, compared with {against}", hours.get())
        }
        PlanNote::TermNeverPaysOff { offer, against } => {
            let against = against.words();
            format!("a term of {offer} never pays off: {against} does the work of its full term for less")
        }
        PlanNote::OtherTier { with, cost_usd, hours, objective } => {
            let ([better, _], cost, takes) = (degrees(*objective), dollars(cost_usd.get()), duration(hours.get()));
            format!("{better} {0}: {cost} in {takes}, {1} (--tiers {0})", with.tier, with.words())
        }
        PlanNote::LongPlan { hours } => format!(
            "the plan takes {}: prices and offers rarely last that long; shorten it with --deadline, --min-gpus or --max-machines",
            duration(hours.get())
        ),
        PlanNote::SharedLimitsCost { more_usd } => {
            let more = dollars(more_usd.get());
            format!("the shared limits cost {more} more than the cheapest offer for each job alone")
        }
        _ => return None,
    })
}

/// A note on what was used instead of the solver's answer.
fn fallback(note: &PlanNote) -> String {
    let (to, why) = match note {
        PlanNote::WorseParts { solver } => {
            ("the best single offer", format!("{solver} found only a worse plan of several parts"))
        }
        PlanNote::SolverMissedOffer => {
            ("the best single offer", "the solver found no plan, although this offer alone is one".to_owned())
        }
        PlanNote::PartsNotSearched { why } => {
            ("the best single offer", format!("plans of several parts were not searched: {why}"))
        }
        PlanNote::PartsFailedCheck { why } => {
            ("the best single offer", format!("the plan of several parts failed its check: {why}"))
        }
        PlanNote::NothingBetter { solver } => {
            ("greedy choices with local improvements", format!("{solver} found nothing better"))
        }
        PlanNote::SolverMissedGreedy => {
            ("greedy choices with local improvements", "the solver found no solution, although this is one".to_owned())
        }
        PlanNote::Greedy { why } => ("greedy choices with local improvements", why.clone()),
        // `of_part` and `of_plan` have all others.
        other => ("", other.code().to_owned()),
    };
    format!("fell back to {to}: {why}")
}
