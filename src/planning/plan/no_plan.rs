//! Why no plan exists, and the changes that would allow one. [`Coded::code`](crate::Coded::code) names each for programs; the sentences
//! are made elsewhere. Amounts are exact; sentences round them up, so that a proposed change suffices.

use serde::Serialize;

use super::{Amount, Machines, Quota, Reason, RejectionKind};
use crate::pricing::OfferId;
use habitat_base::units::{Bytes, Hours, KilogramsCo2e, Micros, Usd, UsdPerHour};

/// Why no plan exists, or a change that would allow one.
#[derive(Debug, Clone, PartialEq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum NoPlan {
    /// No offer can be used.
    NoOffer,
    /// Only offers that the user would have to accept can be used.
    NoFirmOffer,
    /// A longer deadline would do.
    MoreTime {
        /// Additional hours.
        hours: Hours,
        /// The plan's machines, one after another.
        with: Vec<Machines>,
        /// Its cost.
        cost_usd: Usd,
    },
    /// A longer deadline alone would not do.
    TimeDoesNotHelp {
        /// The cheapest plan, if any: its cost.
        cost_usd: Option<Usd>,
        /// Its machines.
        with: Vec<Machines>,
    },
    /// A larger budget would do.
    MoreMoney {
        /// Additional dollars.
        usd: Usd,
        /// The plan's machines, one after another.
        with: Vec<Machines>,
        /// Its hours.
        hours: Hours,
    },
    /// A larger budget alone would not do.
    MoneyDoesNotHelp {
        /// The fastest plan, if any: its hours.
        hours: Option<Hours>,
        /// The end of the hours that has to meet the deadline.
        confidence: super::Confidence,
        /// Its machines.
        with: Vec<Machines>,
    },
    /// A longer deadline and a larger budget together would do.
    MoreTimeAndMoney {
        /// Additional hours.
        hours: Hours,
        /// Additional dollars.
        usd: Usd,
        /// The plan's machines, one after another.
        with: Vec<Machines>,
    },
    /// Set-up alone exceeds the limits.
    SetupTooLong {
        /// Whether there is a deadline.
        has_deadline: bool,
        /// Whether there is a budget.
        has_budget: bool,
    },
    /// Less work would do.
    LessWork {
        /// Work to remove.
        fewer: Amount,
        /// Share of the work, from 0 to 1.
        share: f64,
    },
    /// An offer meets the limits at its expected time.
    AtExpectedTime {
        /// Its machines.
        with: Vec<Machines>,
        /// Expected hours.
        hours: Hours,
        /// Expected cost.
        cost_usd: Usd,
    },
    /// The recorded GPU waited for its host or its data; without these waits, steps are shorter.
    HostWaits {
        /// Idle time of the recorded step.
        idle_us: Micros,
        /// The recorded step.
        step_us: Micros,
    },
    /// Another limit on offers would do.
    OtherLimit {
        /// The change.
        change: Lift,
        /// The plan's machines, one after another.
        with: Vec<Machines>,
        /// Its hours.
        hours: Hours,
        /// Its cost.
        cost_usd: Usd,
    },
    /// Lifting a single limit on offers would not do.
    LimitsDoNotHelp,
    /// Rejected offers of one kind.
    Rejected {
        /// The kind.
        kind: RejectionKind,
        /// Number of offers.
        offers: usize,
        /// The one nearest to acceptable, or one of them.
        such_as: OfferId,
        /// Why it was rejected.
        reason: Box<Reason>,
        /// Its distance from acceptable, as a factor above 1.
        miss: Option<f64>,
    },
    /// A job has no plan even alone.
    JobAlone {
        /// Name of the job.
        job: String,
        /// Why not.
        reason: Box<Self>,
    },
    /// A job cannot start early enough for its deadline.
    JobTooLate {
        /// Name of the job.
        job: String,
        /// Its earliest start within the shared limits; `None` if they never leave room for it.
        earliest_hours: Option<Hours>,
    },
    /// A later deadline of a job would do.
    JobLater {
        /// Name of the job.
        job: String,
        /// Additional hours.
        more_hours: Hours,
    },
    /// Jobs need more than the shared limits provide, however they are scheduled: no plan exists.
    Overload {
        /// Number of these jobs.
        jobs: usize,
        /// Their latest deadline; `None` if one has none.
        until_hours: Option<Hours>,
        /// The limits.
        limits: Vec<SharedLimit>,
        /// Smallest need, as a multiple of what the limits provide.
        times: f64,
    },
    /// The jobs have a plan if they may wait for one another.
    JobsMayWait {
        /// Its cost.
        cost_usd: Usd,
        /// Hours until the last job ends.
        hours: Hours,
    },
    /// Each job has a plan, but not all together; each of the changes that follow would allow one.
    AnyChange,
    /// Each job has a plan, but not all together, and no single change would allow one.
    NoSingleChange,
    /// All of the changes that follow would together allow a plan.
    AllChanges,
    /// A change of a limit that jobs share.
    SharedLimit {
        /// The limit.
        limit: SharedLimit,
        /// By how much to raise it, in its unit.
        more: f64,
        /// Existing machines that the jobs share; 0 if they rent.
        machines: usize,
    },
    /// It is unknown whether raising a shared limit would help.
    SharedLimitUnknown {
        /// The limit.
        limit: SharedLimit,
        /// Why.
        why: String,
    },
    /// No plan was found, and it is unknown whether one exists.
    NotFound {
        /// Why.
        why: String,
    },
}

/// A limit shared by the jobs.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedLimit {
    /// Dollars for all jobs.
    BudgetUsd(Usd),
    /// Dollars per hour for all jobs.
    UsdPerHour(UsdPerHour),
    /// GPUs at the same time.
    Quota(Box<Quota>),
    /// A single machine: own, under contract, or of a marketplace host.
    OneMachine(OfferId),
    /// Hours of the jobs on a machine that are due by this deadline.
    DeadlineHours(Hours),
}

/// A limit on offers to lift, or its smallest value that allows a plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lift {
    /// Other purchase options.
    Tiers,
    /// Other GPUs.
    Gpus,
    /// Excluded GPUs.
    ExcludeGpus,
    /// Other providers.
    Providers,
    /// Excluded providers.
    ExcludeProviders,
    /// Other regions.
    Regions,
    /// Excluded regions.
    ExcludeRegions,
    /// Other offers.
    Offers,
    /// Hosts on peer-to-peer markets.
    Marketplace,
    /// GPUs on which the step may not fit.
    UnknownMemory,
    /// Machines with an unknown host.
    UnknownHost,
    /// Number of machines.
    MaxMachines(u32),
    /// Number of machines, with another global batch.
    BatchOnMachines(u32),
    /// Smallest number of GPUs.
    MinGpus(u32),
    /// Largest number of GPUs.
    MaxGpus(u32),
    /// Price per hour.
    MaxUsdPerHour(UsdPerHour),
    /// Smallest number of virtual CPUs.
    MinVcpus(f64),
    /// Smallest host memory.
    MinHostMemoryBytes(Bytes),
    /// A quota.
    Quota {
        /// The quota.
        quota: Box<Quota>,
        /// Number of GPUs.
        gpus: u32,
    },
    /// Emissions.
    MaxCo2Kg(KilogramsCo2e),
    /// Offers with unknown emissions.
    UnknownCo2,
}
