//! Why offers are not in a plan. [`Coded::code`](crate::Coded::code) names each reason for programs; the sentences are made elsewhere.

use serde::Serialize;

use super::{Accept, Confidence, Quota, RejectionKind, Risk};
use crate::pricing::{Tier, Unusable};
use habitat_base::units::{Bytes, GpuSlug, Hours, KilogramsCo2e, Usd, UsdPerHour};
use habitat_prediction::Sharding;
use habitat_prediction::memory::MemoryBasis;
use habitat_prediction::scale::{ModelParallel, ScaleError};

/// Why an offer is not in the plan.
#[derive(Debug, Clone, PartialEq, Serialize, strum::IntoStaticStr, strum::VariantNames)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Reason {
    /// The price cannot be used.
    UnusablePrice {
        /// Why not.
        why: Unusable,
    },
    /// The price is beyond any real one.
    InvalidPrice {
        /// The price.
        usd_per_hour: UsdPerHour,
    },
    /// The offer has no GPU.
    NoGpu,
    /// The GPU is ambiguous or not in the catalog.
    UnknownGpu {
        /// Its name in the price list.
        name: String,
    },
    /// The goal names other offers.
    OfferNotNamed,
    /// The goal does not allow the purchase option.
    TierNotAllowed {
        /// The purchase option.
        tier: Tier,
    },
    /// The goal names other GPUs.
    GpuNotNamed {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// The goal excludes the GPU.
    GpuExcluded {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// The goal names other providers.
    ProviderNotNamed {
        /// The provider.
        provider: String,
    },
    /// The goal excludes the provider.
    ProviderExcluded {
        /// The provider.
        provider: String,
    },
    /// The goal excludes hosts on peer-to-peer markets.
    MarketplaceExcluded,
    /// The goal names other regions.
    RegionNotNamed {
        /// The region.
        region: String,
    },
    /// The goal excludes the region.
    RegionExcluded {
        /// The region.
        region: String,
        /// The filter that matches it.
        filter: String,
    },
    /// Fewer GPUs than the goal requires.
    TooFewGpus {
        /// GPUs of all machines.
        gpus: u32,
        /// Required number.
        least: u32,
    },
    /// More GPUs than the goal allows.
    TooManyGpus {
        /// GPUs of all machines.
        gpus: u32,
        /// Allowed number.
        most: u32,
    },
    /// Dearer per hour than the goal allows.
    TooDearPerHour {
        /// Price of all machines.
        usd_per_hour: UsdPerHour,
        /// Allowed price.
        most: UsdPerHour,
    },
    /// Fewer virtual CPUs than the goal requires.
    TooFewVcpus {
        /// Virtual CPUs of the machine.
        vcpus: f64,
        /// Required number.
        least: u32,
    },
    /// Less host memory than the goal requires.
    TooLittleHostMemory {
        /// Memory of the host.
        bytes: Bytes,
        /// Required memory.
        least: Bytes,
    },
    /// The number of virtual CPUs is unknown.
    VcpusUnknown,
    /// The host memory is unknown.
    HostMemoryUnknown,
    /// More GPUs than a quota allows.
    OverQuota {
        /// GPUs of all machines.
        gpus: u32,
        /// The quota.
        quota: Box<Quota>,
    },
    /// The GPU has no prediction.
    NoPrediction {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// The predicted step has no duration.
    NoDuration {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// The step cannot be scaled to its GPUs.
    NotScalable {
        /// Number of GPUs.
        gpus: u32,
        /// Why not.
        #[serde(skip)]
        error: ScaleError,
    },
    /// Emissions matter, and the power of the GPU is unknown.
    PowerUnknown {
        /// The GPU.
        gpu: GpuSlug,
    },
    /// Emissions matter, and those of its electricity are unknown.
    CarbonUnknown,
    /// Its GPUs do not make whole replicas of the model.
    Layout {
        /// Why not.
        #[serde(skip)]
        error: ScaleError,
    },
    /// Its batches do not add up to the global batch.
    BatchesDoNotDivide {
        /// GPUs, or replicas of the model.
        count: u32,
        /// Whether these are replicas that several GPUs share.
        are_replicas: bool,
        /// Samples of one batch.
        batch_size: u64,
        /// Samples of the required global batch.
        global_batch_size: u64,
        /// Samples of the largest batch that would work; `None` if no smaller one does.
        smaller_batch_size: Option<u64>,
        /// How many of these make the global batch.
        accumulation: Option<u64>,
        /// Global batches that would work.
        multiples: Vec<u64>,
    },
    /// One update takes longer than a year.
    UpdateTooLong {
        /// Batches of one update.
        batches: u64,
    },
    /// The machines are lost more often than a job can write a checkpoint and restart.
    LostTooOften {
        /// Losses of all machines per hour.
        per_hour: f64,
        /// Number of machines.
        machines: u32,
    },
    /// The step needs more memory than the GPU has.
    OutOfMemory {
        /// Memory that the step needs.
        needed_bytes: Bytes,
        /// Usable memory of the GPU.
        usable_bytes: Bytes,
        /// Nominal memory of the GPU.
        gpu_bytes: Bytes,
        /// Training state that the GPUs divide.
        sharding: Sharding,
        /// Copies of the model.
        replicas: u32,
        /// GPUs that share one of them.
        model_parallel: Box<ModelParallel>,
        /// Changes with which it would fit.
        #[serde(flatten)]
        remedies: Remedies,
    },
    /// The step does not fit, and its need is not known in numbers.
    DoesNotFit {
        /// Why not.
        #[serde(skip)]
        memory: Box<MemoryBasis>,
    },
    /// It is unknown whether the step fits.
    MemoryUnknown {
        /// Why.
        #[serde(skip)]
        memory: Box<MemoryBasis>,
        /// Changes with which it would fit.
        #[serde(flatten)]
        remedies: Remedies,
    },
    /// Misses the deadline.
    TooSlow {
        /// Hours of all the work.
        hours: Hours,
        /// Their end that has to meet the deadline.
        confidence: Confidence,
        /// Hours after the deadline.
        late_hours: Hours,
    },
    /// Cheaper than the plan, but much longer, without a deadline.
    TooLong {
        /// Hours of all the work.
        hours: Hours,
        /// Their end that is compared.
        confidence: Confidence,
        /// Its cost.
        cost_usd: Usd,
    },
    /// Exceeds the budget.
    TooDear {
        /// Cost of all the work.
        cost_usd: Usd,
        /// Dollars above the budget.
        over_usd: Usd,
    },
    /// Emits more than the goal allows.
    TooMuchCo2 {
        /// Emissions of all the work.
        co2_kg: KilogramsCo2e,
        /// Kilograms above the limit.
        over_kg: KilogramsCo2e,
    },
    /// Possible alone, while other limits prevent a plan.
    Possible {
        /// Cost of all the work.
        cost_usd: Usd,
        /// Its expected hours.
        hours: Hours,
    },
    /// Costs more than the plan.
    CostsMore {
        /// Cost of all the work.
        cost_usd: Usd,
        /// Its expected hours.
        hours: Hours,
        /// Dollars more than the plan.
        more_usd: Usd,
    },
    /// Takes longer than the plan.
    TakesLonger {
        /// Hours of all the work.
        hours: Hours,
        /// The end of the hours that is compared.
        confidence: Confidence,
        /// Its cost.
        cost_usd: Usd,
        /// Hours more than the plan.
        more_hours: Hours,
        /// Hours of the plan.
        plan_hours: Hours,
    },
    /// Costs more than the plan, including the cost of its time.
    CostsMoreWithTime {
        /// Cost of all the work.
        cost_usd: Usd,
        /// Its hours.
        hours: Hours,
        /// The end of the hours that is compared.
        confidence: Confidence,
        /// Dollars more than the plan.
        more_usd: Usd,
    },
    /// Emits more than the plan.
    EmitsMore {
        /// Emissions of all the work.
        co2_kg: KilogramsCo2e,
        /// Kilograms more than the plan.
        more_kg: KilogramsCo2e,
        /// Its cost.
        cost_usd: Usd,
        /// Its expected hours.
        hours: Hours,
    },
    /// The user would have to accept its risks.
    NotAccepted {
        /// The risks.
        risks: Vec<Risk>,
        /// Values of `--accept` that admit it.
        accept: Vec<Accept>,
        /// Cost of all the work.
        cost_usd: Usd,
        /// Its expected hours.
        hours: Hours,
        /// Hours after the deadline; `None` if it meets it.
        late_hours: Option<Hours>,
        /// Dollars above the budget; `None` if it keeps it.
        over_usd: Option<Usd>,
    },
}

/// Changes with which a step would fit in memory; all `None` if no change is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Remedies {
    /// Samples of a batch that would fit.
    pub fitting_batch_size: Option<u64>,
    /// How many of these make the global batch, if a whole number does.
    pub accumulation: Option<u64>,
    /// Samples of the global batch.
    pub global_batch_size: Option<u64>,
    /// Sharding that would fit, and its number of GPUs.
    pub fitting_sharding: Option<(Sharding, u32)>,
}

impl Reason {
    /// Distance from acceptance, in the unit of the reason; infinite if it has none.
    pub(super) fn distance(&self) -> f64 {
        match self {
            Self::TooFewGpus { gpus, least } => f64::from(*least) - f64::from(*gpus),
            Self::TooManyGpus { gpus, most } => f64::from(*gpus) - f64::from(*most),
            Self::TooDearPerHour { usd_per_hour, most } => usd_per_hour.get() - most.get(),
            Self::OutOfMemory { needed_bytes, usable_bytes, .. } => needed_bytes.get() - usable_bytes.get(),
            Self::TooSlow { late_hours: more, .. } | Self::TakesLonger { more_hours: more, .. } => more.get(),
            Self::TooDear { over_usd: more, .. }
            | Self::CostsMore { more_usd: more, .. }
            | Self::CostsMoreWithTime { more_usd: more, .. }
            | Self::Possible { cost_usd: more, .. }
            | Self::TooLong { cost_usd: more, .. }
            | Self::NotAccepted { cost_usd: more, late_hours: None, over_usd: None, .. } => more.get(),
            Self::TooMuchCo2 { over_kg: more, .. } | Self::EmitsMore { more_kg: more, .. } => more.get(),
            _ => f64::INFINITY,
        }
    }

    /// Kind of reason.
    pub const fn kind(&self) -> RejectionKind {
        match self {
            Self::UnusablePrice { .. } | Self::InvalidPrice { .. } | Self::NoGpu => RejectionKind::UnusablePrice,
            Self::UnknownGpu { .. } => RejectionKind::UnknownGpu,
            Self::NoPrediction { .. } | Self::NoDuration { .. } | Self::NotScalable { .. } => {
                RejectionKind::NoPrediction
            }
            Self::PowerUnknown { .. } | Self::CarbonUnknown => RejectionKind::EmissionsUnknown,
            Self::Layout { .. } => RejectionKind::Layout,
            Self::BatchesDoNotDivide { .. } | Self::UpdateTooLong { .. } => RejectionKind::GlobalBatch,
            Self::OutOfMemory { .. } | Self::DoesNotFit { .. } => RejectionKind::Memory,
            Self::MemoryUnknown { .. } => RejectionKind::MemoryUnknown,
            Self::TooSlow { .. } | Self::TooLong { .. } => RejectionKind::Deadline,
            Self::LostTooOften { .. } => RejectionKind::LostTooOften,
            Self::TooDear { .. } => RejectionKind::Budget,
            Self::TooMuchCo2 { .. } => RejectionKind::Emissions,
            Self::Possible { .. }
            | Self::CostsMore { .. }
            | Self::TakesLonger { .. }
            | Self::CostsMoreWithTime { .. }
            | Self::EmitsMore { .. } => RejectionKind::Dominated,
            Self::NotAccepted { .. } => RejectionKind::NotAccepted,
            // All others are limits of the goal on single offers; a test of their sentences lists them.
            _ => RejectionKind::Limits,
        }
    }
}
