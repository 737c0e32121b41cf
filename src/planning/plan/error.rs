//! Errors in a goal that prevent planning, and errors found in a plan.

use crate::pricing::OfferId;
use habitat_prediction::scale::ScaleError;

/// Missing or invalid part of a goal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The batch size is unknown.
    #[error("the profile has no batch size; set it with --batch-size, or give the work in steps (--steps)")]
    NoBatchSize,
    /// The work is in tokens, but the sequence length is unknown.
    #[error("the work is in tokens, but the profile has no sequence length; set it with --sequence-length")]
    NoSequenceLength,
    /// The global batch is out of range.
    #[error("invalid global batch {0}: use 1 to {most} samples", most = habitat_base::units::most::GLOBAL_BATCH)]
    GlobalBatch(u64),
    /// A global batch is given, but the batch size is unknown.
    #[error(
        "a global batch needs the batch size of one GPU, which the profile does not have; set it with --batch-size"
    )]
    GlobalBatchWithoutBatchSize,
    /// A global batch for inference, which has no updates.
    #[error("inference does not update weights: remove --global-batch")]
    GlobalBatchOfInference,
    /// Sharding for inference, which has no state to divide.
    #[error("inference has no gradients or optimizer state: remove --sharding")]
    ShardingOfInference,
    /// The number of GPUs or stages of a replica is out of range.
    #[error("{1} {0}: use 1 to {most}", most = habitat_base::units::most::REPLICA)]
    ModelParallel(u32, &'static str),
    /// Model parallelism for inference.
    #[error(
        "model parallelism is planned for training only, and the step is inference: remove --tensor-parallel and --pipeline-parallel"
    )]
    ModelParallelOfInference,
    /// Model parallelism for a model whose structure is unknown.
    #[error(transparent)]
    ModelParallelUnknown(ScaleError),
    /// Model parallelism for a recording of one rank's share of a divided model.
    #[error(
        "the recording has one rank's share of a model that is already divided: use a step of the whole model (trace-shapes), or remove --tensor-parallel and --pipeline-parallel"
    )]
    ModelParallelOfShare,
    /// The number of machines is out of range.
    #[error("{0} machines: use 1 to {most}", most = habitat_base::units::most::MACHINES)]
    Machines(u32),
    /// A list in the limits is too long.
    #[error(
        "{list}: {count} entries; at most {most} are allowed: remove some, or use names that cover several \
         (a country, a continent, a provider)", most = habitat_base::units::most::NAMES
    )]
    LongList {
        /// Key of the list.
        list: &'static str,
        /// Number of entries.
        count: usize,
    },
    /// A name in a list of the limits is too long.
    #[error(
        "{list}: entry {number} has {length} bytes; names have at most {most}: correct or remove it",
        most = habitat_base::units::most::NAME
    )]
    LongName {
        /// Key of the list.
        list: &'static str,
        /// Position in the list, from 1.
        number: usize,
        /// Length of the name in bytes.
        length: usize,
    },
    /// The amount of work is out of range.
    #[error(
        "invalid amount of work {0}: use more than 0 and at most 1e18 samples (--samples, --steps, --tokens, or --epochs with --dataset)"
    )]
    Work(f64),
    /// The amount of data is out of range.
    #[error("data of {0} GB: use 0 to 1e18")]
    Data(f64),
    /// The goal allows no parts.
    #[error("a plan needs at least one part; the limit is 0")]
    NoParts,
    /// An assumption outside its range.
    #[error("assumption {name}: {value} is not {expected}")]
    Assumption {
        /// Name of the assumption.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Allowed range.
        expected: &'static str,
    },
    /// An error in one of several jobs.
    #[error("job {name:?}: {error}")]
    Job {
        /// Name of the job.
        name: String,
        /// Error of the job.
        error: Box<Self>,
    },
    /// The plan contradicts its own recomputation, which is a bug in this program.
    #[error("the plan failed its own check: {0}")]
    Check(#[from] CheckError),
}

impl PlanError {
    /// Same error for one of several jobs.
    #[must_use]
    pub(super) fn of_job(self, name: &str) -> Self {
        Self::Job { name: name.to_owned(), error: Box::new(self) }
    }
}

/// Error found in a plan.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// The parts do not add up to the work.
    #[error("the parts do {planned} of {wanted} {unit}")]
    Work {
        /// Work of the parts.
        planned: f64,
        /// Work of the goal.
        wanted: f64,
        /// Unit of work: samples or steps.
        unit: &'static str,
    },
    /// Too many parts, or parts without a plan.
    #[error("{found} parts, {allowed} allowed")]
    Parts {
        /// Number of parts.
        found: usize,
        /// Maximum number of parts.
        allowed: usize,
    },
    /// A number in the plan differs from the recomputed one.
    #[error("{what}: {stated} in the plan, {found} recomputed")]
    Number {
        /// Name of the number, with the offer.
        what: String,
        /// Value in the plan.
        stated: f64,
        /// Recomputed value.
        found: f64,
    },
    /// The deadline is missed.
    #[error("{hours} h, the deadline is {deadline} h")]
    Deadline {
        /// Hours at the end of the range that the confidence selects.
        hours: f64,
        /// The deadline.
        deadline: f64,
    },
    /// The budget is exceeded.
    #[error("${cost}, the budget is ${budget}")]
    Budget {
        /// Expected cost.
        cost: f64,
        /// The budget.
        budget: f64,
    },
    /// Emissions exceed the limit.
    #[error("{kg} kg CO2e, the limit is {most} kg")]
    Emissions {
        /// Expected emissions; infinite if unknown.
        kg: f64,
        /// The limit.
        most: f64,
    },
    /// A part uses an offer that the goal's limits exclude or that does not exist.
    #[error("{offer}: {what}")]
    Offer {
        /// The offer.
        offer: OfferId,
        /// Problem with the offer.
        what: &'static str,
    },
    /// Several jobs exceed a shared limit.
    #[error("{what}: {used} of {most}")]
    Shared {
        /// Shared limit.
        what: String,
        /// Sum over the jobs.
        used: f64,
        /// The limit.
        most: f64,
    },
}
