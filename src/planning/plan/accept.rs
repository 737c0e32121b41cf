//! Risks that the user has to accept before money is spent, and the offers with such risks.
//!
//! A plan uses firm offers: on-demand, from a provider itself, at a price not in doubt, on the platform of the
//! recording, with the recorded global batch. All others are offers *beside* the plan, which the user has to accept
//! ([`Accept`]). The plan shows how much they save, and the cost of the work if they fail.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::measure;
use super::configuration::Configuration;
use super::goal::Limits;
use super::prepared::Prepared;
use super::problem::Limit;
use super::search::{aims, best_single};
use super::{Objective, Part, Plan};
use crate::pricing::{Doubt, Market, Offer, Tier};
use habitat_base::text::{dollars, duration, grouped};
use habitat_base::units::{Hours, Usd};
use habitat_prediction::{GpuFacts, Predictions, Vendor};

/// An offer beside the plan is shown if its first aim is at most this share of the plan's.
const WORTH: f64 = 0.95;
/// "A little more": upper limit on the cost (or the hours), relative to the plan.
const LITTLE: f64 = 1.25;
/// "A lot": upper limit on the hours (or the cost), as a share of the plan.
const LOT: f64 = 0.5;

/// A risk to accept before an offer is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// A machine that the provider can take away at short notice.
    Spot,
    /// A marketplace host, rented out by its owner at the owner's price.
    Marketplace,
    /// A provider's price in doubt.
    Doubted,
    /// A GPU of another vendor than the recorded one, or a host with ARM CPUs instead of x86.
    Platform,
    /// A global batch other than the recorded one.
    Batch,
}

impl Accept {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Spot, Self::Marketplace, Self::Doubted, Self::Platform, Self::Batch];

    /// Whether the list has all kinds.
    pub fn are_all(accepted: &[Self]) -> bool {
        Self::ALL.iter().all(|one| accepted.contains(one))
    }

    /// Name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Marketplace => "marketplace",
            Self::Doubted => "doubted",
            Self::Platform => "platform",
            Self::Batch => "batch",
        }
    }

    /// Words for the kind.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Spot => "a spot machine",
            Self::Marketplace => "a marketplace host",
            Self::Doubted => "a price in doubt",
            Self::Platform => "another platform",
            Self::Batch => "another global batch",
        }
    }
}

/// The best offer that requires one more risk to be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The required kinds; several only if no single one makes a plan possible.
    pub accept: Vec<Accept>,
    /// The offer with all the work.
    pub part: Part,
    /// Details of the risks: the platform, the batch, the doubts about the price.
    pub what: String,
    /// Outcome if the offer fails.
    pub fallback: Fallback,
}

/// Outcome if an offer beside the plan fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    /// Event, to follow `if`: `that host is gone`.
    pub when: &'static str,
    /// Offer for the work in that event; `None` if no other offer meets the limits.
    pub then: Option<Instead>,
}

/// The work on another offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Instead {
    /// Expected cost.
    pub cost: Usd,
    /// Expected hours.
    pub hours: Hours,
    /// Words for the offer.
    pub with: String,
}

/// Software platform of a step: vendor of the GPU, and whether the host has ARM CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    vendor: Vendor,
    arm: bool,
}

impl Platform {
    /// Platform of the recording; CUDA on x86 if its GPU is not in the catalog.
    pub(super) fn recorded(predictions: &Predictions) -> Self {
        let slug = predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
        let own = predictions.predictions.iter().find(|one| Some(&one.gpu.slug) == slug);
        own.map_or(Self { vendor: Vendor::Nvidia, arm: false }, |own| Self::of(&own.gpu, ""))
    }

    /// Platform of a machine. Boards whose names start with GH or GB have NVIDIA Grace CPUs (ARM); `g5g` are AWS
    /// machines with Graviton CPUs.
    fn of(gpu: &GpuFacts, instance_type: &str) -> Self {
        let slug = gpu.slug.as_str();
        let arm = slug.starts_with("gh") || slug.starts_with("gb") || instance_type.starts_with("g5g.");
        Self { vendor: gpu.vendor, arm }
    }

    fn words(self) -> &'static str {
        match (self.vendor, self.arm) {
            (Vendor::Amd, _) => "ROCm, an AMD GPU",
            (Vendor::Nvidia, true) => "a host with ARM CPUs",
            (Vendor::Nvidia, false) => "CUDA on x86",
        }
    }
}

/// Words for the platform of a machine if it differs from that of the recording; `None` for the same platform.
pub fn other_platform(predictions: &Predictions, gpu: &GpuFacts, instance_type: &str) -> Option<&'static str> {
    let platform = Platform::of(gpu, instance_type);
    (platform != Platform::recorded(predictions)).then(|| platform.words())
}

/// Kinds that the user has to accept for an offer. A limit that names the offer, its provider or its GPU accepts some
/// of them.
pub(super) fn needs(offer: &Offer, gpu: &GpuFacts, recorded: Platform, limits: &Limits) -> Vec<Accept> {
    if limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Vec::new();
    }
    let is_named = limits.providers.iter().any(|name| name.eq_ignore_ascii_case(&offer.provider));
    let of_host = offer.trust.market == Market::PeerToPeer;
    let is_spot = offer.tier == Tier::Spot;
    // Hosts set their own prices, and the user accepts that old spot prices may have changed.
    let is_own = offer.trust.is_own;
    let is_moved = |doubt: &Doubt| is_spot && matches!(doubt, Doubt::Old { .. });
    let is_doubt = |doubt: &Doubt| !(of_host || is_own || is_moved(doubt));
    let port = Platform::of(gpu, &offer.instance_type) != recorded && !limits.gpus.contains(&gpu.slug);
    [
        is_spot.then_some(Accept::Spot),
        (of_host && !is_named).then_some(Accept::Marketplace),
        offer.trust.doubts.iter().any(is_doubt).then_some(Accept::Doubted),
        port.then_some(Accept::Platform),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Words for the risks of an offer.
pub(super) fn what(offer: &Offer, gpu: &GpuFacts, needs: &[Accept], batch: Option<u64>) -> String {
    let words = |need: &Accept| match need {
        Accept::Spot | Accept::Marketplace => need.words().to_owned(),
        Accept::Doubted => format!("a price in doubt ({})", offer.trust.marks()),
        Accept::Platform => Platform::of(gpu, &offer.instance_type).words().to_owned(),
        Accept::Batch => match batch {
            Some(batch) => format!("a global batch of {}", grouped(batch as f64)),
            None => need.words().to_owned(),
        },
    };
    needs.iter().map(words).collect::<Vec<_>>().join(", ")
}

impl Prepared {
    /// Best offer for each kind to accept, if it is clearly better than the plan. Without a plan, and if no single kind
    /// makes one possible: the best offer that requires several.
    pub(super) fn beside(&self, plan: &Plan, limit: &Limit) -> Vec<Beside> {
        let planned = self.planned(plan);
        let one = |accept: Accept| self.best_beside(&|other| other.needs == [accept], limit);
        let found = Accept::ALL.into_iter().filter_map(one);
        let mut found: Vec<(usize, f64)> = found.filter(|(_, value)| *value <= WORTH * planned).collect();
        if found.is_empty() && plan.total.is_none() {
            found.extend(self.best_beside(&|_| true, limit));
        }
        found.sort_by(|a, b| a.1.total_cmp(&b.1));
        found.into_iter().map(|(place, _)| self.with_fallback(place, plan, limit)).collect()
    }

    /// Value of the plan's first aim; infinite without a plan.
    fn planned(&self, plan: &Plan) -> f64 {
        let Some(total) = &plan.total else { return f64::INFINITY };
        let emitted = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
        let finish = self.goal.confidence.end(&total.hours).get();
        measure(aims(self.goal.objective)[0], (finish, total.cost.mid.get(), emitted))
    }

    /// Best of a subset of the offers beside the plan, with the value of its first aim.
    fn best_beside(&self, is_such: &dyn Fn(&Configuration) -> bool, limit: &Limit) -> Option<(usize, f64)> {
        let of_kind: Vec<usize> = (0..self.others.len()).filter(|c| is_such(&self.others[*c])).collect();
        let problem = self.beside.only(&of_kind);
        let found = best_single(&problem, self.goal.objective, limit)?;
        let value = problem.value(aims(self.goal.objective)[0], &found.hours);
        Some((of_kind[found.hours.first()?.0], value))
    }

    /// An offer beside the plan with all the work, and the fallback if it fails. For a host or a price, the fallback is
    /// the next offer of this kind if that is better than the plan, otherwise the plan.
    fn with_fallback(&self, place: usize, plan: &Plan, limit: &Limit) -> Beside {
        let own = &self.others[place];
        let part = own.part(self.work.get() / own.rate(), true);
        let when = match own.needs[..] {
            [Accept::Batch] => "it needs as many updates",
            _ if own.needs.contains(&Accept::Marketplace) => "that host is gone",
            _ if own.needs.contains(&Accept::Spot) => "no spot machine is available",
            _ if own.needs.contains(&Accept::Doubted) => "that price is gone",
            _ => "your program does not run there",
        };
        let total = plan.total.map(|total| (total.cost.mid, total.hours.mid));
        let plans = total.map(|(cost, hours)| Instead { cost, hours, with: "the plan above".to_owned() });
        let then = match own.needs[..] {
            [Accept::Batch] => {
                let recorded = part.global_batch_size.zip(self.goal.global_batch);
                let times = recorded.map_or(1.0, |(own, recorded)| own as f64 / recorded as f64);
                Some(self.instead(own, times, "the same machine".to_owned()))
            }
            [Accept::Marketplace | Accept::Doubted] => {
                let next = self.best_beside(&|other| other.needs == own.needs && other.offer.id != own.offer.id, limit);
                let next = next.filter(|(_, value)| *value < self.planned(plan)).map(|(place, _)| &self.others[place]);
                next.map(|next| self.instead(next, 1.0, next.label())).or(plans)
            }
            _ => plans,
        };
        Beside { accept: own.needs.clone(), what: own.what.clone(), part, fallback: Fallback { when, then } }
    }

    /// The work, multiplied by `times`, on an offer.
    fn instead(&self, offer: &Configuration, times: f64, with: String) -> Instead {
        let (hours, cost) = offer.ranges(self.work.get() * times / offer.rate(), true);
        Instead { cost: cost.mid, hours: hours.mid, with }
    }

    /// An offer that costs a little more and takes at most half the time. If the goal is the earliest finish: one that
    /// takes a little longer and costs at most half.
    pub(super) fn bargain(&self, plan: &Plan, limit: &Limit) -> Option<Part> {
        let total = plan.total.as_ref()?;
        let (finish, cost) = (self.goal.confidence.end(&total.hours).get(), total.cost.mid.get());
        let (most_hours, most_cost, aim) = match self.goal.objective {
            Objective::Cost => (LOT * finish, LITTLE * cost, Objective::Cost),
            Objective::Time => (LITTLE * finish, LOT * cost, Objective::Time),
            Objective::CostPlusTime(_) | Objective::Emissions => return None,
        };
        let least = |own: Option<f64>, other: f64| Some(own.map_or(other, |own| own.min(other)));
        let limit = Limit {
            deadline: least(limit.deadline, most_hours),
            budget: least(limit.budget, most_cost),
            ..Limit::default()
        };
        let found = best_single(&self.singles, aim, &limit)?;
        Some(self.whole(found.hours.first()?.0))
    }

    /// Reason why an offer beside the plan was not used.
    pub(super) fn not_accepted(&self, place: usize, cost: f64) -> String {
        let own = &self.others[place];
        let (hours, _) = own.ranges(self.work.get() / own.rate(), true);
        let flags = names(&own.needs);
        format!("{}: {} in {}; --accept {flags} allows it", own.what, dollars(cost), duration(hours.mid.get()))
    }
}

/// Values for the flag `--accept`.
pub fn names(accept: &[Accept]) -> String {
    accept.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")
}
