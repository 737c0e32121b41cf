//! Why no plan can even be sought.

use super::check::CheckError;
use habitat_prediction::scale::ScaleError;

/// What is missing or wrong in the goal.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Samples of a step unknown.
    #[error(
        "the profile does not say how many samples a step has; give it with --batch-size, or the work in steps (--steps)"
    )]
    NoBatchSize,
    /// Work in tokens, tokens of a sample unknown.
    #[error(
        "work is given in tokens, but the profile does not say how many tokens a sample has; give it with --sequence-length"
    )]
    NoSequenceLength,
    /// A global batch of no samples, or of more than any job has.
    #[error("{0} is no global batch: it must be 1 to {most} samples", most = habitat_base::units::most::GLOBAL_BATCH)]
    GlobalBatch(u64),
    /// A global batch, samples of a step unknown.
    #[error(
        "the profile does not say how many samples a step of one GPU has, so no global batch can be made of them; give it with --batch-size"
    )]
    GlobalBatchWithoutBatchSize,
    /// A global batch of a step that updates nothing.
    #[error("the step is one of inference, which updates no weights: leave out --global-batch")]
    GlobalBatchOfInference,
    /// Sharding of a step that keeps nothing to divide.
    #[error("the step is one of inference, which keeps no gradients and no optimizer state: leave out --sharding")]
    ShardingOfInference,
    /// A replica of no GPUs or stages, or of more than any plan has.
    #[error("{1} {0}: it must be 1 to {most}", most = habitat_base::units::most::REPLICA)]
    ModelParallel(u32, &'static str),
    /// A model of an inference step divided.
    #[error(
        "the step is one of inference: only training is planned over models divided by layers or within them; leave out --tensor-parallel and --pipeline-parallel"
    )]
    ModelParallelOfInference,
    /// A model to be divided that is not known.
    #[error(transparent)]
    ModelParallelUnknown(ScaleError),
    /// Recorded as a share of a model that is to be divided again.
    #[error(
        "the recording is of one rank's share of a model that was split already: give the whole model's step (trace-shapes), or leave out --tensor-parallel and --pipeline-parallel"
    )]
    ModelParallelOfShare,
    /// State divided among replicas that stages cannot divide.
    #[error(
        "--sharding {0} with --pipeline-parallel: each micro-batch would gather or scatter again what the replicas divide; give zero1, auto or none"
    )]
    ShardingOfStages(&'static str),
    /// Machines that no plan is made for.
    #[error("{0} machines: a plan is made for 1 to {most}", most = habitat_base::units::most::MACHINES)]
    Machines(u32),
    /// A list of the limits that is too long.
    #[error(
        "{list}: {count} entries; a plan takes at most {most}: leave some out, or give names that hold for several \
         (a country, a continent, a provider)", most = habitat_base::units::most::NAMES
    )]
    LongList {
        /// Its key.
        list: &'static str,
        /// Its entries.
        count: usize,
    },
    /// A name in a list of the limits that is too long to be one.
    #[error(
        "{list}: entry {number} is a name of {length} bytes; names have at most {most}: correct it, or leave it out",
        most = habitat_base::units::most::NAME
    )]
    LongName {
        /// The key of the list.
        list: &'static str,
        /// Position in the list, from 1.
        number: usize,
        /// Bytes of the name.
        length: usize,
    },
    /// No amount of work.
    #[error("{0} is not an amount of work: it must be more than 0 and at most 1e18 samples")]
    Work(f64),
    /// No amount of data.
    #[error("data of {0} GB: it must be a number from 0 and at most 1e18")]
    Data(f64),
    /// No parts.
    #[error("a plan has at least one part; 0 were allowed")]
    NoParts,
    /// An assumption outside its range.
    #[error("assumption {name}: {value} is not {expected}")]
    Assumption {
        /// Which.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it must be.
        expected: &'static str,
    },
    /// One of several jobs.
    #[error("job {name:?}: {error}")]
    Job {
        /// Its name.
        name: String,
        /// What is wrong.
        error: Box<Self>,
    },
    /// The planner contradicted itself: a fault of this program, told instead of a plan.
    #[error("the plan found does not pass its own check: {0}")]
    Check(#[from] CheckError),
}

impl PlanError {
    /// The same, of one of several jobs.
    #[must_use]
    pub(super) fn of_job(self, name: &str) -> Self {
        Self::Job { name: name.to_owned(), error: Box::new(self) }
    }
}
