//! Notes on a plan, part or configuration. [`Coded::code`](crate::Coded::code) names each note for programs; the sentences are
//! made elsewhere.

use serde::Serialize;

use super::{Draw, Machines, Objective};
use crate::pricing::spot::SpotSource;
use crate::pricing::{OfferId, Ownership, PriceIssue};
use habitat_base::units::{Bytes, GpuSlug, Hours, Usd, UsdPerHour};
use habitat_prediction::memory::MemoryBasis;
use habitat_prediction::scale::Scaling;
use habitat_prediction::{Finding, Sharding};

/// A note on a plan or a part.
#[derive(Debug, Clone, PartialEq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PlanNote {
    /// How the step was scaled to the GPUs.
    Scaling {
        /// Parts of the step.
        #[serde(skip)]
        scaling: Box<Scaling>,
    },
    /// Memory of each GPU that shares a replica of the model.
    ReplicaMemory {
        /// The need of each.
        #[serde(skip)]
        memory: MemoryBasis,
    },
    /// Sharding on one GPU, which has no effect.
    ShardingOfOneGpu {
        /// State to divide.
        sharding: Sharding,
    },
    /// Sharding.
    Sharding {
        /// Divided state.
        sharding: Sharding,
        /// GPUs that divide it.
        gpus: u32,
        /// The need of each.
        #[serde(skip)]
        memory: MemoryBasis,
    },
    /// Method of the step time, if the batch is not the profile's.
    OtherBatch {
        /// Words of the prediction.
        why: String,
    },
    /// Precision of the predicted step.
    Precision {
        /// Finding of the prediction.
        finding: Finding,
    },
    /// Price of a machine that the user already has.
    OwnMachine {
        /// Its cost.
        held: Ownership,
    },
    /// A remark in the price list.
    PriceList {
        /// The remark.
        remark: String,
    },
    /// Each started hour is billed in full.
    BilledByHour,
    /// Terms of a contract that are paid and used.
    Terms {
        /// Hours per term.
        term_hours: u32,
        /// Paid hours.
        paid_hours: f64,
        /// Expected used hours.
        used_hours: Hours,
    },
    /// Losses of spot machines.
    SpotLosses {
        /// Losses per hour.
        per_hour: f64,
        /// Hours of waiting after each.
        wait_hours: Hours,
        /// Source of both.
        source: SpotSource,
        /// Expected elapsed hours per useful hour.
        elapsed: f64,
        /// Expected billed hours per useful hour.
        billed: f64,
        /// Losses at the upper end.
        allowed: f64,
    },
    /// Failures of a large job, with checkpoints as often as loses the least.
    Failures {
        /// GPUs of the job.
        gpus: u32,
        /// Expected hours between two failures.
        hours_between: Hours,
        /// Hours between two checkpoints.
        checkpoint_hours: Hours,
        /// Expected elapsed hours per useful hour.
        elapsed: f64,
    },
    /// Billed hours of set-up.
    Setup {
        /// Hours.
        hours: Hours,
    },
    /// Hours of copying the data.
    DataCopied {
        /// Amount.
        gb: f64,
        /// Hours before the first step.
        hours: Hours,
    },
    /// Cost of transferring the data.
    DataMoved {
        /// Amount.
        gb: f64,
        /// One-time cost.
        cost_usd: Usd,
        /// Whether the price was entered without a source.
        is_recalled: bool,
    },
    /// The cost of transferring the data is unknown.
    DataCostUnknown {
        /// Amount.
        gb: f64,
    },
    /// Cost of storing the data.
    DataStored {
        /// Amount.
        gb: f64,
        /// Hours of storage.
        hours: Hours,
        /// Cost.
        cost_usd: Usd,
        /// Whether the price was entered without a source.
        is_recalled: bool,
    },
    /// The cost of storing the data at the provider is unknown.
    StorageUnknown {
        /// Amount.
        gb: f64,
    },
    /// Two parts at one place, each of which copies the data there.
    DataCopiedTwice,
    /// No provider has a known storage price.
    StorageNotIncluded {
        /// Amount.
        gb: f64,
    },
    /// Power and emissions of the machines.
    Power {
        /// Power, PUE and carbon intensity.
        draw: Draw,
    },
    /// The power of the GPU is unknown.
    PowerUnknown {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// It is unknown whether the step fits in memory.
    MemoryUnknown,
    /// The step fits in memory, but leaves less room than such figures are usually off by.
    NoRoom {
        /// Memory that each GPU needs.
        needed_bytes: Bytes,
        /// Memory of each GPU that it may use.
        usable_bytes: Bytes,
    },
    /// Work is counted in steps of one GPU.
    CountedInSteps,
    /// Updates of one sample, the batch of a profile that no one recorded.
    BatchOfOne {
        /// Tokens of a sample, if it is a sequence.
        sequence_length: Option<u64>,
    },
    /// Updates use more than one batch of unknown size.
    OtherUpdates {
        /// Updates of the plan.
        updates: f64,
        /// Steps of the goal.
        steps: f64,
    },
    /// Updates use another global batch than the recorded one.
    OtherGlobalBatch {
        /// Global batch of each part; equal neighbours once.
        global_batch_sizes: Vec<u64>,
        /// The recorded batch.
        recorded: u64,
        /// Updates of the plan.
        updates: f64,
        /// Updates with the recorded batch.
        recorded_updates: f64,
    },
    /// The price of a part is in doubt.
    PriceInDoubt {
        /// The offer.
        offer: OfferId,
        /// The doubts.
        doubts: Vec<PriceIssue>,
    },
    /// When another offer takes over from spot.
    Switch {
        /// The other offer.
        to: OfferId,
        /// Latest hour.
        latest_hours: Hours,
    },
    /// Losses of spot machines are assumed.
    SpotAssumed,
    /// Two parts would be cheaper.
    TwoParts {
        /// The spot machines.
        spot: Machines,
        /// The machines that take over.
        to: Machines,
        /// Latest hour of the takeover.
        latest_hours: Hours,
        /// Expected cost.
        cost_usd: Usd,
    },
    /// Plans that switch from spot have two parts.
    MorePartsNotTried,
    /// The deadline is tight.
    TightDeadline {
        /// Dollars that one more hour saves.
        saved_usd: Usd,
    },
    /// The high end of the cost exceeds the budget.
    BudgetAtHighEnd {
        /// The budget.
        budget_usd: Usd,
        /// High end of the cost.
        high_usd: Usd,
    },
    /// When the next best offer would be as cheap as the plan.
    NextBest {
        /// The offer.
        offer: OfferId,
        /// Its price that would match.
        usd_per_hour: UsdPerHour,
        /// Its price.
        now_usd_per_hour: UsdPerHour,
        /// How much shorter its step would have to be, as a share; `None` if that does not suffice.
        shorter: Option<f64>,
    },
    /// Hours of use above which a term pays off.
    TermPaysOff {
        /// The contract.
        offer: OfferId,
        /// Hours of use.
        hours: Hours,
        /// The best offer without a contract.
        against: Machines,
    },
    /// A term never pays off.
    TermNeverPaysOff {
        /// The contract.
        offer: OfferId,
        /// The best offer without a contract.
        against: Machines,
    },
    /// A firm offer of a tier that the user excluded is as good as the plan, or better.
    OtherTier {
        /// Its machines.
        with: Machines,
        /// Its cost.
        cost_usd: Usd,
        /// Its hours.
        hours: Hours,
        /// The objective by which it is better.
        objective: Objective,
    },
    /// The plan takes longer than prices last.
    LongPlan {
        /// Expected hours.
        hours: Hours,
    },
    /// The plan of several parts is worse than the best single offer, which is used.
    WorseParts {
        /// Name of the solver.
        solver: &'static str,
    },
    /// The solver found no plan, although the best single offer, which is used, is one.
    SolverMissedOffer,
    /// Plans of several parts were not searched; the best single offer is used.
    PartsNotSearched {
        /// Why.
        why: String,
    },
    /// The plan of several parts failed its check; the best single offer is used.
    PartsFailedCheck {
        /// The error.
        why: String,
    },
    /// The solver found nothing better than greedy choices for several jobs.
    NothingBetter {
        /// Name of the solver.
        solver: &'static str,
    },
    /// The solver found no solution for several jobs, although greedy choices are one.
    SolverMissedGreedy,
    /// The solver failed; greedy choices are used for several jobs.
    Greedy {
        /// Why.
        why: String,
    },
    /// Cost of the limits of several jobs together.
    SharedLimitsCost {
        /// Dollars more than the cheapest offer for each job.
        more_usd: Usd,
    },
}
