//! Plans: which offers to use, for how long, at what cost, and why not the others.
//!
//! Predictions × offers × goal → configurations → an integer linear program ([`problem`]) → its solution ([`search`],
//! [`solve`]) → a plan, which a checker without shared code recomputes ([`check`]). Units are hours, US dollars and
//! samples; the solver gets scaled values.
//!
//! [`plan`] answers one goal. If only deadline or budget change, [`Prepared`] does the work that depends on neither
//! once.

mod accept;
mod answer;
pub mod assignment;
mod assumptions;
mod batch;
mod beside;
pub mod check;
mod configuration;
mod data;
mod energy;
mod error;
mod explain;
mod frontier;
mod goal;
pub mod jobs;
mod layout_options;
mod layouts;
mod limits;
mod machines;
mod no_plan;
mod note;
mod prepared;
pub mod problem;
mod reason;
mod relax;
pub mod search;
mod sizes;
pub mod solve;
mod spot;
mod switch;
mod uses;
pub mod value;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use accept::{Accept, Platform, Risk, Setback};
pub use beside::{Beside, Fallback, Instead, Longer};
pub use energy::{Draw, Footprint, PUE, WITH_REST};
pub use error::PlanError;
pub use frontier::{FrontierPart, FrontierPoint};
pub use goal::{
    Amount, Assumptions, Confidence, Data, FAILURES, Goal, LayoutChoice, Limits, MANY_GPUS, Objective, Quota,
    ShardingChoice, Work, check_list,
};

pub use answer::plan;
pub use layout_options::{LayoutOption, LayoutVerdict};
pub use limits::other_platform;
pub use no_plan::{Lift, NoPlan, SharedLimit};
pub use note::PlanNote;
pub use prepared::Prepared;
pub use reason::{Reason, Remedies};
pub use uses::{ByUse, Use};

use crate::pricing::{Billing, Offer, OfferId, Tier};
use habitat_base::units::{GpuSlug, Hours, Range, Usd, UsdPerHour};
use habitat_prediction::scale::{Layout, ModelParallel, Network};
use habitat_prediction::{Finding, Host, Sharding};

/// Answer to a [`Goal`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether a plan was found, and how good it is.
    pub status: PlanStatus,
    /// Parts to run one after another; empty without a plan.
    pub parts: Vec<Part>,
    /// Totals of all parts; `None` without a plan.
    pub total: Option<Total>,
    /// Offer that takes over from spot machines in time for the deadline; `None` without spot machines, without a
    /// deadline, or if no other offer can do the work in time.
    pub switch: Option<Switch>,
    /// The best other single configurations, best first.
    pub alternatives: Vec<Part>,
    /// The layout of the first part among others on its machines, fastest first; empty if none was searched.
    pub layouts: Vec<LayoutOption>,
    /// Offers that the user would have to accept first, best first.
    pub beside: Vec<Beside>,
    /// The work if an accepted risk of the only part comes true; `None` for a firm offer and for several parts.
    pub fallback: Option<Fallback>,
    /// An offer that costs a little more than the plan and takes at most half the time. If the goal is the earliest
    /// finish: one that takes a little longer and costs at most half.
    pub bargain: Option<Part>,
    /// The cheapest plan, which gave way to this one since it takes over 60 days, at least twice as long, and costs at
    /// most a fifth less. Only without a deadline.
    pub longer: Option<Longer>,
    /// The user's own machines ([`Offer::is_at_own_place`]) with all the work within the limits, most GPUs first.
    pub own: Vec<Part>,
    /// One of them with a global batch larger than the recorded one, if that is clearly faster: its GPUs exchange their
    /// gradients less often.
    pub larger_batch: Option<Part>,
    /// Rejected offers with their reasons, in the order of the price book.
    pub rejected: Vec<Rejection>,
    /// Reasons why no plan exists and changes that would allow one; empty otherwise.
    pub reasons: Vec<NoPlan>,
    /// The work.
    pub work: Amount,
    /// The goal.
    pub goal: Goal,
    /// The solver and its result.
    pub solver: SolverReport,
    /// Whether the predicted steps include waiting for the host.
    pub host: Host,
    /// Warnings of the predictions, to show with times and costs.
    pub warnings: Vec<Finding>,
    /// Fallbacks and assumptions that affect the result.
    pub notes: Vec<PlanNote>,
}

impl Plan {
    /// An empty plan for a goal and its work.
    pub fn without_parts(goal: Goal, work: Amount) -> Self {
        Self {
            status: PlanStatus::Infeasible,
            parts: Vec::new(),
            total: None,
            switch: None,
            alternatives: Vec::new(),
            layouts: Vec::new(),
            beside: Vec::new(),
            fallback: None,
            bargain: None,
            longer: None,
            own: Vec::new(),
            larger_batch: None,
            rejected: Vec::new(),
            reasons: Vec::new(),
            work,
            goal,
            solver: SolverReport { name: String::new(), offers: 0, configurations: 0, gap: None },
            host: Host::default(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Whether a plan was found, and how good it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Proven optimal.
    Optimal,
    /// Within the allowed gap of the best.
    GapLimit,
    /// Best plan found within the time limit.
    TimeLimit,
    /// No plan exists; the reasons explain it.
    Infeasible,
}

/// One part of a plan: one configuration for some hours.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The offer, of one machine.
    pub offer: Arc<Offer>,
    /// The GPU whose prediction it uses.
    pub gpu: GpuSlug,
    /// Number of machines.
    pub machines: u32,
    /// Training state divided among the GPUs.
    pub sharding: Sharding,
    /// GPUs that share one replica of the model.
    pub parallel: ModelParallel,
    /// Hours to write a checkpoint.
    pub checkpoint_write: Hours,
    /// Samples per step on ONE GPU, or per micro-batch of one replica; `None` if unknown.
    pub batch_size: Option<u64>,
    /// Batches that each GPU or replica runs per optimizer step, with accumulated gradients.
    pub accumulation: u64,
    /// Samples per optimizer step on all GPUs; `None` if unknown.
    pub global_batch_size: Option<u64>,
    /// Work of this part, in the unit of the plan.
    pub work: Amount,
    /// Time of one optimizer step on all GPUs, including accumulation and communication, in microseconds.
    pub step_time_us: Range<f64>,
    /// Elapsed hours, including set-up, checkpoints and expected losses.
    pub hours: Range<Hours>,
    /// Cost of those hours.
    pub cost: Range<Usd>,
    /// Breakdown of the hours; the entries add up to them.
    pub hours_by: ByUse<Hours>,
    /// Breakdown of the cost; the entries add up to it.
    pub cost_by: ByUse<Usd>,
    /// Unit of billed time.
    pub billing: Billing,
    /// One-time cost of transferring the data, part of the cost.
    pub data_cost: Usd,
    /// Storage price of the data per elapsed hour, part of the cost.
    pub storage: UsdPerHour,
    /// Power of the machines while they run; `None` if unknown.
    pub draw: Option<Draw>,
    /// Energy and emissions.
    pub footprint: Footprint,
    /// Notes on the hours and the step time.
    pub notes: Vec<PlanNote>,
}

impl Part {
    /// GPUs of all machines.
    pub fn all_gpus(&self) -> u32 {
        self.offer.gpu_count * self.machines
    }

    /// Price of all machines per hour.
    pub fn price(&self) -> UsdPerHour {
        self.offer.price * f64::from(self.machines)
    }

    /// Terms of a contract to buy; `None` without a contract.
    pub fn contract(&self) -> Option<Contract> {
        let Billing::Term(term_hours) = self.billing else { return None };
        let used = self.hours.mid.get();
        let paid = self.billing.billed(used);
        let terms = (paid / f64::from(term_hours)).round();
        Some(Contract { term_hours, terms, idle_hours: (paid - used).max(0.0) })
    }

    /// Its GPUs and how they divide the model.
    pub fn layout(&self, goal: &Goal) -> Layout {
        let offer = &*self.offer;
        let network = Network::new(offer.network_gbit_per_second, goal.assumptions.network(offer));
        let (machines, gpus, cpus, sharding) = (self.machines, offer.gpu_count, offer.vcpus, self.sharding);
        Layout { machines, gpus, cpus, network, sharding, parallel: self.parallel }
    }

    /// Replicas that divide the state among one another.
    pub fn shards(&self) -> u32 {
        let (machines, sharding, parallel) = (self.machines, self.sharding, self.parallel);
        Layout { machines, sharding, parallel, ..Layout::one_machine(self.offer.gpu_count) }.shards()
    }

    /// Replicas of the model, each with its own batches; the number of GPUs if they do not share one.
    pub fn replicas(&self) -> u32 {
        self.all_gpus() / self.parallel.gpus().max(1)
    }

    /// Steps of all GPUs together; in training each updates the weights.
    pub fn updates(&self) -> f64 {
        let update = self.global_batch_size.map_or(f64::from(self.replicas()), |batch| batch as f64);
        self.work.get() / update
    }
}

/// Machines of an offer that do the work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machines {
    /// The offer.
    pub offer: OfferId,
    /// Provider.
    pub provider: String,
    /// Region.
    pub region: String,
    /// Purchase option.
    pub tier: Tier,
    /// The GPU.
    pub gpu: GpuSlug,
    /// GPUs of all machines.
    #[serde(rename = "gpu_count")]
    pub all_gpus: u32,
    /// Number of machines.
    #[serde(rename = "nodes")]
    pub machines: u32,
}

/// Terms of a contract, paid in full, for the expected hours.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ContractJson")]
pub struct Contract {
    /// Hours per term.
    pub term_hours: u32,
    /// Terms to pay.
    pub terms: f64,
    /// Hours paid but not used.
    pub idle_hours: f64,
}

/// Switch from spot to an on-demand machine at the moment when the remaining time is just enough for the remaining work
/// there.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SwitchJson")]
pub struct Switch {
    /// The offer that takes over.
    #[schemars(with = "String")]
    pub to: OfferId,
    /// Latest hour of the switch if no work is done by then.
    #[serde(rename = "latest_hours")]
    #[schemars(with = "f64")]
    pub latest: Hours,
    /// Whether it is expected to do some of the work; if so, it is the second part.
    pub is_expected: bool,
}

/// Time, cost and emissions of a whole plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Total {
    /// Elapsed hours.
    pub hours: Range<Hours>,
    /// Cost.
    pub cost: Range<Usd>,
    /// Breakdown of the cost; the entries add up to it.
    #[serde(skip)]
    pub cost_by: ByUse<Usd>,
    /// Energy and emissions.
    pub footprint: Footprint,
}

impl Total {
    /// Sums over parts that follow one another.
    pub(crate) fn of_parts(parts: &[Part]) -> Self {
        Self {
            hours: parts.iter().map(|part| part.hours).sum(),
            cost: parts.iter().map(|part| part.cost).sum(),
            cost_by: parts.iter().map(|part| part.cost_by).sum(),
            footprint: parts.iter().map(|part| part.footprint).sum(),
        }
    }
}

/// A rejected offer.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// Name of the offer.
    pub offer: OfferId,
    /// The reason, with the numbers.
    pub reason: Reason,
}

/// Kind of reason for a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectionKind {
    /// The price cannot be used (host-only, GPU-only, suspect).
    UnusablePrice,
    /// The board is unknown or not in the catalog.
    UnknownGpu,
    /// No prediction for the GPU.
    NoPrediction,
    /// The step does not fit in memory.
    Memory,
    /// Unknown whether the step fits in memory.
    MemoryUnknown,
    /// Unknown emissions, while emissions are limited or minimised.
    EmissionsUnknown,
    /// Its batches do not add up to the global batch.
    GlobalBatch,
    /// Its GPUs do not make whole replicas of the model.
    Layout,
    /// Has a property that the user would have to accept.
    NotAccepted,
    /// Excluded by the goal's limits.
    Limits,
    /// Lost before it has written a checkpoint and restarted.
    LostTooOften,
    /// Too slow for the deadline.
    Deadline,
    /// Too expensive for the budget.
    Budget,
    /// Emits more than allowed.
    Emissions,
    /// Possible, but not the best.
    Dominated,
}

impl Plan {
    /// Place of the plan's own layout in [`Self::layouts`].
    pub fn chosen_layout(&self) -> Option<usize> {
        self.layouts.iter().position(|option| option.verdict == LayoutVerdict::Chosen)
    }

    /// Places of the rejected offers in [`Self::rejected`], those that came closest to being used first.
    pub fn closest_rejected(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.rejected.len()).collect();
        let reason = |place: &usize| &self.rejected[*place].reason;
        let kind = |place: &usize| std::cmp::Reverse(reason(place).kind());
        all.sort_by(|a, b| kind(a).cmp(&kind(b)).then_with(|| reason(a).distance().total_cmp(&reason(b).distance())));
        all
    }
}

/// The solver and its result.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "SolverJson")]
pub struct SolverReport {
    /// Name.
    pub name: String,
    /// Number of offers to choose from.
    pub offers: usize,
    /// Number of configurations to choose from: an offer with a number of machines, a batch size and a sharding.
    pub configurations: usize,
    /// Remaining relative gap; absent if the plan is proven optimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
}
