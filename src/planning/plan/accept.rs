//! Decisions that a careful person takes before money is spent, and the offers that need one.
//!
//! A plan is made from firm offers: on demand, from a provider itself, at a price that nothing speaks
//! against, on the platform of the recording, with the recorded global batch. Everything else is an
//! offer *beside* it: it needs something to be accepted ([`Accept`]). The plan shows how much that saves, and
//! how much the work costs if it fails.

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

/// An offer beside the plan appears if its first aim is at most this share of the plan's.
const WORTH: f64 = 0.95;
/// "A little more": the most, in times the cost (or the hours) of the plan.
const LITTLE: f64 = 1.25;
/// "Buys a lot": the most, as a share of the hours (or the cost) of the plan.
const LOT: f64 = 0.5;

/// Something that has to be accepted before an offer is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accept {
    /// A machine that can be taken away at short notice.
    Spot,
    /// A machine of somebody who rents it out through a marketplace, at that host's own price.
    Marketplace,
    /// A provider's price that something speaks against.
    Doubted,
    /// A GPU of another maker than the recorded one, or a host with ARM CPUs if the recording's had x86 ones.
    Platform,
    /// Another global batch than the recorded one.
    Batch,
}

impl Accept {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Spot, Self::Marketplace, Self::Doubted, Self::Platform, Self::Batch];

    /// Whether these are all kinds.
    pub fn are_all(accepted: &[Self]) -> bool {
        Self::ALL.iter().all(|one| accepted.contains(one))
    }

    /// Its name in files and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Marketplace => "marketplace",
            Self::Doubted => "doubted",
            Self::Platform => "platform",
            Self::Batch => "batch",
        }
    }

    /// The thing itself, in words.
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

/// The best offer that needs one more thing to be accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The things it needs; several only if no single one makes a plan.
    pub accept: Vec<Accept>,
    /// All the work on it.
    pub part: Part,
    /// The same in a few words: the platform, the batch, the doubts of the price.
    pub what: String,
    /// Cost of the work if it fails.
    pub fallback: Fallback,
}

/// The way out if an offer beside the plan fails.
#[derive(Debug, Clone, PartialEq)]
pub struct Fallback {
    /// When, after `if`: `that host is gone`.
    pub when: &'static str,
    /// The work then; `None` if nothing else meets the limits.
    pub then: Option<Instead>,
}

/// The work on another offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Instead {
    /// Expected cost.
    pub cost: Usd,
    /// Expected hours.
    pub hours: Hours,
    /// The offer, in words.
    pub with: String,
}

/// The software that a step needs: maker of the GPU, and whether the host has ARM CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    vendor: Vendor,
    arm: bool,
}

impl Platform {
    /// That of the recording; CUDA on x86 if the recording names no GPU of the catalog.
    pub(super) fn recorded(predictions: &Predictions) -> Self {
        let slug = predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
        let own = predictions.predictions.iter().find(|one| Some(&one.gpu.slug) == slug);
        own.map_or(Self { vendor: Vendor::Nvidia, arm: false }, |own| Self::of(&own.gpu, ""))
    }

    /// That of a machine. Boards whose names begin with GH or GB carry NVIDIA's Grace (ARM); `g5g` are the
    /// machines of AWS with Graviton CPUs.
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

/// What another platform a machine has than the recording, in words; `None` for the same.
pub fn other_platform(predictions: &Predictions, gpu: &GpuFacts, instance_type: &str) -> Option<&'static str> {
    let platform = Platform::of(gpu, instance_type);
    (platform != Platform::recorded(predictions)).then(|| platform.words())
}

/// Everything that has to be accepted for an offer. The user accepts with a name: of the offer, its provider or its GPU.
pub(super) fn needs(offer: &Offer, gpu: &GpuFacts, recorded: Platform, limits: &Limits) -> Vec<Accept> {
    if limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Vec::new();
    }
    let is_named = limits.providers.iter().any(|name| name.eq_ignore_ascii_case(&offer.provider));
    let of_host = offer.trust.market == Market::PeerToPeer;
    let is_spot = offer.tier == Tier::Spot;
    // A host's price is that host's own, and a spot price of last month has moved: that is what is accepted.
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

/// The things accepted with an offer, in words.
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
    /// The best offer of each kind that has to be accepted, if it is clearly better than the plan. Without a
    /// plan, and if no single thing makes one, the best offer that needs several.
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

    /// The first aim's value of a plan; infinite without one.
    fn planned(&self, plan: &Plan) -> f64 {
        let Some(total) = &plan.total else { return f64::INFINITY };
        let emitted = total.footprint.emissions.map_or(0.0, |emitted| emitted.mid.get());
        let finish = self.goal.confidence.end(&total.hours).get();
        measure(aims(self.goal.objective)[0], (finish, total.cost.mid.get(), emitted))
    }

    /// The best of some offers beside the plan, with its value of the first aim.
    fn best_beside(&self, is_such: &dyn Fn(&Configuration) -> bool, limit: &Limit) -> Option<(usize, f64)> {
        let of_kind: Vec<usize> = (0..self.others.len()).filter(|c| is_such(&self.others[*c])).collect();
        let problem = self.beside.only(&of_kind);
        let found = best_single(&problem, self.goal.objective, limit)?;
        let value = problem.value(aims(self.goal.objective)[0], &found.hours);
        Some((of_kind[found.hours.first()?.0], value))
    }

    /// An offer beside the plan with all the work, and what is left if it fails: of a host or a price the next
    /// of its kind if that is better than the plan, of a platform or of spot the plan.
    fn with_fallback(&self, place: usize, plan: &Plan, limit: &Limit) -> Beside {
        let own = &self.others[place];
        let part = own.part(self.work.get() / own.rate(), true);
        let when = match own.needs[..] {
            [Accept::Batch] => "it takes as many updates",
            _ if own.needs.contains(&Accept::Marketplace) => "that host is gone",
            _ if own.needs.contains(&Accept::Spot) => "you get no spot machine",
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
                let next = self.best_beside(&|other| other.needs == own.needs && other.offer != own.offer, limit);
                let next = next.filter(|(_, value)| *value < self.planned(plan)).map(|(place, _)| &self.others[place]);
                next.map(|next| self.instead(next, 1.0, next.label())).or(plans)
            }
            _ => plans,
        };
        Beside { accept: own.needs.clone(), what: own.what.clone(), part, fallback: Fallback { when, then } }
    }

    /// The work on an offer, or several times as much.
    fn instead(&self, offer: &Configuration, times: f64, with: String) -> Instead {
        let (hours, cost) = offer.ranges(self.work.get() * times / offer.rate(), true);
        Instead { cost: cost.mid, hours: hours.mid, with }
    }

    /// An offer that costs a little more and takes at most half as long; for the
    /// earliest finish, one that takes a little longer and costs at most half as much.
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

    /// Why an offer beside the plan was not taken.
    pub(super) fn not_accepted(&self, place: usize, cost: f64) -> String {
        let own = &self.others[place];
        let (hours, _) = own.ranges(self.work.get() / own.rate(), true);
        let flags = names(&own.needs);
        format!("{}, which --accept {flags} uses: costs {} in {}", own.what, dollars(cost), duration(hours.mid.get()))
    }
}

/// The names for the flag `--accept`.
pub fn names(accept: &[Accept]) -> String {
    accept.iter().map(|one| one.name()).collect::<Vec<_>>().join(",")
}
