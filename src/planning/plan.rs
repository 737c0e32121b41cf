//! The plan: which offers to use, for how long, at what cost, and why not the others.
//!
//! Predictions × offers × goal → configurations → an integer linear program ([`problem`])
//! → its solution ([`search`], [`solve`]) → a plan that a checker sharing no code with the
//! model has re-computed ([`check`]). Hours, US dollars and samples throughout; the solver
//! sees them scaled.
//!
//! [`plan`] answers one goal. Where deadline or budget are moved about, [`Prepared`] does
//! the part that depends on neither once.

pub mod accept;
mod answer;
pub mod assignment;
mod assumptions;
mod batch;
pub mod check;
mod configuration;
mod data;
mod energy;
mod error;
mod explain;
mod frontier;
mod goal;
pub mod jobs;
mod limits;
mod prepared;
pub mod problem;
mod relax;
pub mod search;
mod sizes;
pub mod solve;
mod spot;
mod switch;
mod uses;
pub mod value;

use jiff::civil::Date;
use serde::Serialize;

pub use accept::{Accept, Beside, Fallback, Instead, names as accept_names};
pub use assumptions::Assumed;
pub use energy::{Draw, Footprint, WITH_REST};
pub use error::PlanError;
pub use frontier::{FrontierPart, FrontierPoint};
pub use goal::{
    Amount, Assumptions, Confidence, Data, Goal, Limits, Objective, Quota, ShardingChoice, Work, check_list,
};

pub use answer::plan;
pub use prepared::Prepared;
pub use uses::{ByUse, Use};

use crate::pricing::{Billing, OfferId, Tier, Trust};
use habitat_base::units::{GpuSlug, Hours, Range, Usd, UsdPerHour};
use habitat_prediction::scale::ModelParallel;
use habitat_prediction::{Host, Sharding, Warning};

/// The answer to a [`Goal`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether it was found, and how good it is known to be.
    pub status: PlanStatus,
    /// What to run, one after another; empty when there is no plan.
    pub parts: Vec<Part>,
    /// Everything together; `None` when there is no plan.
    pub total: Option<Total>,
    /// What takes over from spot machines in time, whatever becomes of them; `None` where there are
    /// none, no deadline, or nothing else can do the work in time.
    pub switch: Option<Switch>,
    /// The best single configurations next to the plan, best first, the plan's own left out.
    pub alternatives: Vec<Part>,
    /// Offers that need something to be accepted, best first.
    pub beside: Vec<Beside>,
    /// An offer that costs a little more than the plan and takes at most half as long; of the earliest
    /// finish, one that takes a little longer and costs at most half as much.
    pub bargain: Option<Part>,
    /// Offers that were not used, with the reason, in the order of the price book.
    pub rejected: Vec<Rejection>,
    /// Why there is no plan and what would make one; empty otherwise.
    pub reasons: Vec<String>,
    /// The work.
    pub work: Amount,
    /// The goal it answers.
    pub goal: Goal,
    /// How it was solved.
    pub solver: SolverReport,
    /// Whether the device waits for the host in the steps, as in the predictions they rest on.
    pub host: Host,
    /// What is to be shown with the times and costs, as with the predictions they rest on.
    pub warnings: Vec<Warning>,
    /// Fall-backs and assumptions the reader should know.
    pub notes: Vec<String>,
}

impl Plan {
    /// No plan yet for a goal and its work.
    pub fn without_parts(goal: Goal, work: Amount) -> Self {
        Self {
            status: PlanStatus::Infeasible,
            parts: Vec::new(),
            total: None,
            switch: None,
            alternatives: Vec::new(),
            beside: Vec::new(),
            bargain: None,
            rejected: Vec::new(),
            reasons: Vec::new(),
            work,
            goal,
            solver: SolverReport { name: String::new(), configurations: 0, gap: None },
            host: Host::default(),
            warnings: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// Whether a plan was found, and how good it is known to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanStatus {
    /// Proved best.
    Optimal,
    /// Within the allowed gap of the best.
    GapLimit,
    /// The best found when time ran out.
    TimeLimit,
    /// There is none; the reasons say why.
    Infeasible,
}

/// One part of a plan: one configuration, used for some hours.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The offer.
    pub offer: OfferId,
    /// Provider.
    pub provider: String,
    /// Region.
    pub region: String,
    /// Instance type.
    pub instance_type: String,
    /// The GPU.
    pub gpu: GpuSlug,
    /// GPUs in all (offer's GPUs × nodes).
    pub gpu_count: u32,
    /// Machines.
    pub nodes: u32,
    /// Which state of the training its GPUs divide.
    pub sharding: Sharding,
    /// How many of its GPUs share one replica of the model.
    pub parallel: ModelParallel,
    /// How it is paid for.
    pub tier: Tier,
    /// Samples of one step on ONE GPU, or of a micro-batch of one replica; `None` where nothing says.
    pub batch_size: Option<u64>,
    /// Batches that each GPU, or replica, runs for one optimizer step; their gradients add up.
    pub accumulation: u64,
    /// Samples of one optimizer step on all GPUs; `None` where nothing says.
    pub global_batch_size: Option<u64>,
    /// The work that this part does, in the unit of the plan's.
    pub work: Amount,
    /// Time of one optimizer step on all GPUs, accumulation and communication included, in
    /// microseconds.
    pub step_time_us: Range<f64>,
    /// Elapsed hours, set-up, checkpoints and expected losses included.
    pub hours: Range<Hours>,
    /// Cost of those hours.
    pub cost: Range<Usd>,
    /// What the hours go to; they add up to them.
    pub hours_by: ByUse<Hours>,
    /// What the cost is made of; it adds up to it.
    pub cost_by: ByUse<Usd>,
    /// Price of all its machines.
    pub price: UsdPerHour,
    /// Date of the price; `None` where the source gives none.
    pub price_as_of: Option<Date>,
    /// Which time is billed.
    pub billing: Billing,
    /// For bringing the data, once; in the cost.
    pub data_cost: Usd,
    /// For keeping the data there, an hour on the clock; in the cost.
    pub storage: UsdPerHour,
    /// What its machines draw while they run; `None` where that is not known.
    pub draw: Option<Draw>,
    /// The energy that takes, and what it emits.
    pub footprint: Footprint,
    /// How far the price can be trusted.
    pub trust: Trust,
    /// What the hours and the step time are made of, in words.
    pub notes: Vec<String>,
}

impl Part {
    /// Of a contract to be bought: the hours of a term, how many terms are expected to be paid, and
    /// the hours of them that are not used.
    pub fn terms(&self) -> Option<(u32, f64, Hours)> {
        let Billing::Term(hours) = self.billing else { return None };
        let used = self.hours.mid.get();
        let paid = self.billing.billed(used);
        Some((hours, (paid / f64::from(hours)).round(), Hours::known((paid - used).max(0.0))))
    }

    /// Replicas of the model, each with batches of its own: GPUs where none share one.
    pub const fn replicas(&self) -> u32 {
        self.gpu_count / if self.parallel.gpus() == 0 { 1 } else { self.parallel.gpus() }
    }

    /// Steps of all GPUs together; in training each is an update of the weights.
    pub fn updates(&self) -> f64 {
        let update = self.global_batch_size.map_or(f64::from(self.replicas()), |batch| batch as f64);
        self.work.get() / update
    }
}

/// The change from a spot machine to one that is not taken away, at the last safe moment: when
/// the time left is what the other needs for the work that is left.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Switch {
    /// The offer that takes over.
    pub to: OfferId,
    /// Hours after which it has to, if nothing is done by then.
    #[serde(rename = "latest_hours")]
    pub latest: Hours,
    /// Whether some of the work is expected to be left to it: then it is the plan's second part.
    pub is_expected: bool,
}

/// A whole plan's time, cost and emissions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Total {
    /// Elapsed hours.
    pub hours: Range<Hours>,
    /// Cost.
    pub cost: Range<Usd>,
    /// What the cost is made of; it adds up to it.
    #[serde(skip)]
    pub cost_by: ByUse<Usd>,
    /// Energy and emissions.
    pub footprint: Footprint,
}

impl Total {
    /// The sum over parts that follow one another.
    pub(crate) fn of_parts(parts: &[Part]) -> Self {
        Self {
            hours: parts.iter().map(|part| part.hours).sum(),
            cost: parts.iter().map(|part| part.cost).sum(),
            cost_by: parts.iter().map(|part| part.cost_by).sum(),
            footprint: parts.iter().map(|part| part.footprint).sum(),
        }
    }
}

/// An offer that was not used, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejection {
    /// The offer.
    pub offer: OfferId,
    /// The kind of reason, for counting.
    pub kind: RejectionKind,
    /// The reason, with the numbers.
    pub reason: String,
}

/// Kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectionKind {
    /// The price cannot be used (host-only, GPU-only, suspect).
    UnusablePrice,
    /// The board is not known or not in the catalog.
    UnknownGpu,
    /// No prediction for the GPU.
    NoPrediction,
    /// The step does not fit in memory.
    Memory,
    /// It is not known whether the step fits in memory.
    MemoryUnknown,
    /// It is not known what it emits, and that is limited or minimised.
    EmissionsUnknown,
    /// No whole number of its batches makes the goal's global batch.
    GlobalBatch,
    /// Its GPUs do not make whole replicas of the model.
    Layout,
    /// Needs something to be accepted that the goal does not accept.
    NotAccepted,
    /// Excluded by the goal's limits.
    Limits,
    /// Too slow for the deadline.
    Deadline,
    /// Too dear for the budget.
    Budget,
    /// Emits more than allowed.
    Emissions,
    /// Possible, but another is better.
    Dominated,
}

impl RejectionKind {
    /// In words, after a number of offers.
    pub const fn words(self) -> &'static str {
        match self {
            Self::UnusablePrice => "without a usable price",
            Self::UnknownGpu => "with a GPU that is not known",
            Self::NoPrediction => "without a prediction",
            Self::Memory => "without enough memory",
            Self::MemoryUnknown => "on which the step may not fit",
            Self::EmissionsUnknown => "whose emissions are not known",
            Self::GlobalBatch => "whose batches do not make the global batch",
            Self::Layout => "whose GPUs do not make whole replicas of the model",
            Self::NotAccepted => "that need something to be accepted (--accept)",
            Self::Limits => "outside the limits set",
            Self::Deadline => "too slow",
            Self::Budget => "too dear",
            Self::Emissions => "with too high emissions",
            Self::Dominated => "not the best",
        }
    }
}

/// Which solver answered and how.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SolverReport {
    /// Solver, or `filter and sort` where none was needed.
    pub name: String,
    /// Configurations in the model.
    pub configurations: usize,
    /// Relative gap still open at a gap or time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<f64>,
}
