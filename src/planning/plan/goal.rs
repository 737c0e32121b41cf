//! Goal of a plan: how much work, by when, for how much, and on which machines.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Accept, PlanError};
use crate::pricing::{Offer, Tier, region};
use habitat_base::units::{Bytes, GpuSlug, Hours, KilogramsCo2e, Range, Samples, Usd, UsdPerHour, most};
use habitat_prediction::Sharding;
use habitat_prediction::scale::{Factors, LayoutFactors, ModelParallel};

/// A job to plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Amount of work.
    pub work: Work,
    /// Samples per optimizer step on all GPUs. `None` = the profile's batch on each GPU if [`Accept::Batch`] is
    /// accepted, otherwise the profile's batch divided over all GPUs.
    #[serde(default, rename = "global_batch_size", skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Elapsed hours from the start, including set-up; `None` = no limit.
    #[serde(rename = "deadline_hours")]
    pub deadline: Option<Hours>,
    /// Total cost; `None` = no limit.
    #[serde(rename = "budget_usd")]
    pub budget: Option<Usd>,
    /// Objective among the plans within the limits.
    pub objective: Objective,
    /// End of the predicted range that has to meet the deadline.
    pub confidence: Confidence,
    /// Maximum number of parts that follow one another (1, or 2 for "spot, then on-demand").
    pub max_parts: u32,
    /// Training state to divide among the GPUs.
    #[serde(default, skip_serializing_if = "ShardingChoice::is_none")]
    pub sharding: ShardingChoice,
    /// GPUs that share one replica of the model.
    #[serde(default, skip_serializing_if = "ModelParallel::is_none")]
    pub model_parallel: ModelParallel,
    /// Whether to search for the division of a model that no single GPU holds.
    #[serde(default, skip_serializing_if = "LayoutChoice::is_auto")]
    pub layout: LayoutChoice,
    /// Limits on offers.
    #[serde(default)]
    pub limits: Limits,
    /// Data and their location; `None` = transfer and storage are free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// Values assumed where none are known.
    #[serde(default)]
    pub assumptions: Assumptions,
}

impl Work {
    /// A share of this work; steps are rounded up.
    #[must_use]
    pub fn scaled(self, share: f64) -> Self {
        match self {
            Self::Samples(samples) => Self::Samples(Samples::known((samples.get() * share).max(1.0))),
            Self::Steps(steps) => Self::Steps(((steps as f64 * share).ceil() as u64).max(1)),
            Self::Epochs { epochs, dataset } => Self::Epochs { epochs: epochs * share, dataset },
            Self::Tokens(tokens) => Self::Tokens(tokens * share),
        }
    }
}

/// An amount of training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Number of samples.
    Samples(Samples),
    /// Number of optimizer steps with the goal's global batch, or without one with the profile's batch size on one GPU.
    /// Needs no batch size.
    Steps(u64),
    /// Number of passes over a data set.
    Epochs {
        /// Passes.
        epochs: f64,
        /// Samples per pass.
        dataset: Samples,
    },
    /// Number of tokens; needs the profile's sequence length.
    Tokens(f64),
}

/// An amount of work in the known unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Samples.
    Samples(Samples),
    /// Steps of one GPU, if the batch size is unknown. A step of n GPUs counts n times, since each GPU does the work of
    /// one step.
    Steps(f64),
}

impl Amount {
    /// Number in its unit.
    pub const fn get(self) -> f64 {
        match self {
            Self::Samples(samples) => samples.get(),
            Self::Steps(steps) => steps,
        }
    }

    /// Words for the unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Samples(_) => "samples",
            Self::Steps(_) => "steps of one GPU",
        }
    }

    /// Number of samples, if known.
    pub const fn samples(self) -> Option<f64> {
        match self {
            Self::Samples(samples) => Some(samples.get()),
            Self::Steps(_) => None,
        }
    }

    /// Number of steps of one GPU, if samples are unknown.
    pub const fn steps(self) -> Option<f64> {
        match self {
            Self::Samples(_) => None,
            Self::Steps(steps) => Some(steps),
        }
    }
}

/// Training state that the GPUs divide in a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ShardingChoice {
    /// Nothing divided: all state on each GPU.
    #[default]
    None,
    /// [`Sharding::Zero1`].
    Zero1,
    /// [`Sharding::Zero2`].
    Zero2,
    /// [`Sharding::Zero3`].
    #[serde(alias = "fsdp")]
    Zero3,
    /// [`Sharding::Hsdp`].
    Hsdp,
    /// For each offer, the smallest degree that fits in memory.
    Auto,
}

impl ShardingChoice {
    /// Whether each GPU keeps all state.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// The choice of this degree alone.
    pub const fn of(sharding: Sharding) -> Self {
        match sharding {
            Sharding::None => Self::None,
            Sharding::Zero1 => Self::Zero1,
            Sharding::Zero2 => Self::Zero2,
            Sharding::Zero3 => Self::Zero3,
            Sharding::Hsdp => Self::Hsdp,
        }
    }

    /// Degrees to try, by what each GPU keeps. `in_groups`: replicas of a machine can divide the state among themselves.
    pub(super) const fn stages(self, in_groups: bool) -> &'static [Sharding] {
        match self {
            Self::None => &[Sharding::None],
            Self::Zero1 => &[Sharding::Zero1],
            Self::Zero2 => &[Sharding::Zero2],
            Self::Zero3 => &[Sharding::Zero3],
            Self::Hsdp => &[Sharding::Hsdp],
            Self::Auto if in_groups => {
                &[Sharding::None, Sharding::Zero1, Sharding::Zero2, Sharding::Hsdp, Sharding::Zero3]
            }
            Self::Auto => &[Sharding::None, Sharding::Zero1, Sharding::Zero2, Sharding::Zero3],
        }
    }
}

/// Search for the division of a model over GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LayoutChoice {
    /// For each offer the fastest layout within memory, if the step does not fit on one GPU and the goal names no
    /// degree.
    #[default]
    Auto,
    /// The goal's own degrees of sharding, tensor and pipeline parallelism.
    Given,
}

impl LayoutChoice {
    /// Whether the fastest layout is searched.
    pub const fn is_auto(&self) -> bool {
        matches!(self, Self::Auto)
    }
}

/// Data that have to be transferred to the place of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// Amount in GB.
    pub gb: f64,
    /// Provider of the data; `None` = transfer is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Regions with the data, as a filter; `None` = all regions of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

impl Data {
    /// Whether the data are at this place already.
    pub(super) fn is_at(&self, provider: &str, region: &str) -> bool {
        self.provider.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(provider))
            && self.region.as_ref().is_none_or(|filter| region::is_named(provider, region, filter))
    }
}

/// Objective of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Lowest expected cost; then the earliest finish.
    Cost,
    /// Earliest finish at the goal's confidence; then the lowest cost.
    Time,
    /// Cost plus the value of the time to the finish, in dollars per hour.
    CostPlusTime(UsdPerHour),
    /// Lowest expected emissions; then the lowest cost.
    #[serde(rename = "co2")]
    Emissions,
}

/// End of the step time's range that has to meet the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Expected value: late about half of the time.
    Expected,
    /// The upper end of the range.
    High,
}

impl Confidence {
    /// End of a range that has to meet the deadline; plans are compared and drawn with it.
    pub fn end<T: Copy>(self, range: &Range<T>) -> T {
        match self {
            Self::Expected => range.mid,
            Self::High => range.high,
        }
    }

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expected => "expected",
            Self::High => "high",
        }
    }
}

/// Limits on offers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Purchase options.
    pub tiers: Vec<Tier>,
    /// Risks accepted in addition to firm offers ([`Accept`]); if absent, all.
    #[serde(skip_serializing_if = "Accept::are_all")]
    pub accept: Vec<Accept>,
    /// Allowed GPUs; empty = all.
    pub gpus: Vec<GpuSlug>,
    /// Allowed providers; empty = all.
    pub providers: Vec<String>,
    /// Excluded providers.
    pub exclude_providers: Vec<String>,
    /// Excluded GPUs.
    pub exclude_gpus: Vec<GpuSlug>,
    /// Allowed regions, as filters ([`crate::pricing::region`]); empty = all.
    pub regions: Vec<String>,
    /// Excluded regions, as filters.
    pub exclude_regions: Vec<String>,
    /// Allowed offers by id; empty = all.
    pub offers: Vec<String>,
    /// Minimum number of GPUs.
    pub min_gpus: u32,
    /// Maximum number of GPUs; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u32>,
    /// Maximum number of machines of an offer in one job. A plan tries multiples of the number that makes whole
    /// replicas of the model: each up to 8, then two for each doubling.
    #[serde(skip_serializing_if = "is_one")]
    pub max_machines: u32,
    /// Maximum dollars per hour; `None` = no limit.
    #[serde(rename = "max_usd_per_hour", skip_serializing_if = "Option::is_none")]
    pub max_price: Option<UsdPerHour>,
    /// Maximum expected emissions of a plan, kg of CO2e; `None` = no limit. With a limit, offers with unknown emissions
    /// are excluded.
    #[serde(rename = "max_co2_kg", skip_serializing_if = "Option::is_none")]
    pub max_co2: Option<KilogramsCo2e>,
    /// Whether to exclude hosts on peer-to-peer markets.
    pub no_marketplace: bool,
    /// Whether to allow offers if it is unknown whether the step fits in memory.
    pub allow_unknown_memory: bool,
    /// Minimum virtual CPUs of a whole machine; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_vcpus: Option<u32>,
    /// Minimum host memory of a whole machine; `None` = no limit.
    #[serde(rename = "min_host_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub min_host_memory: Option<Bytes>,
    /// Whether to allow offers with unknown vCPUs or host memory despite these limits.
    pub allow_unknown_host: bool,
    /// Limits on GPUs used at the same time.
    #[serde(rename = "quota")]
    pub quotas: Vec<Quota>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
const fn is_one(machines: &u32) -> bool {
    *machines == 1
}

/// Rejects a list with too many or too long names, since each is compared with all offers. `lengths` in bytes.
///
/// # Errors
/// [`PlanError::LongList`] and [`PlanError::LongName`] with the key of the list.
pub fn check_list(list: &'static str, lengths: impl ExactSizeIterator<Item = usize>) -> Result<(), PlanError> {
    if lengths.len() > most::NAMES {
        return Err(PlanError::LongList { list, count: lengths.len() });
    }
    match (1..).zip(lengths).find(|(_, length)| *length > most::NAME) {
        Some((number, length)) => Err(PlanError::LongName { list, number, length }),
        None => Ok(()),
    }
}

impl Assumptions {
    /// Corrections by measured runs.
    pub(super) fn factors(&self) -> Factors {
        Factors { scaling: self.scaling_factor, layouts: self.layout_factors }
    }

    /// Line rate between the machines of an offer without one. A rented machine of a few GPUs has none to assume: its
    /// network is that of any virtual machine.
    pub(super) fn network(&self, offer: &Offer) -> Option<f64> {
        let is_of_cluster = offer.gpu_count >= 8 || offer.tier == Tier::Owned;
        self.network_gbit_per_second.filter(|_| is_of_cluster)
    }
}

impl Limits {
    /// Applies [`check_list`] to all lists.
    ///
    /// # Errors
    /// Errors of [`check_list`].
    pub fn check_lists(&self) -> Result<(), PlanError> {
        for (list, names) in [
            ("providers", &self.providers),
            ("exclude_providers", &self.exclude_providers),
            ("regions", &self.regions),
            ("exclude_regions", &self.exclude_regions),
            ("offers", &self.offers),
        ] {
            check_list(list, names.iter().map(String::len))?;
        }
        for (list, gpus) in [("gpus", &self.gpus), ("exclude_gpus", &self.exclude_gpus)] {
            check_list(list, gpus.iter().map(|gpu| gpu.as_str().len()))?;
        }
        let longest = |quota: &Quota| quota.provider.len().max(quota.region.as_ref().map_or(0, String::len));
        check_list("quota", self.quotas.iter().map(longest))
    }

    /// Numbers of machines to try, times the number that makes whole replicas of the model: all up to 8, then two for each
    /// doubling (a choice), and the maximum.
    /// Only 1 if that number exceeds the limit. Own machines are all used, whatever the limit.
    pub(super) fn machines(&self, whole: u32, offer: &Offer) -> impl Iterator<Item = u32> {
        let is_own = offer.tier == Tier::Owned;
        let asked = Some(self.max_machines.max(1)).filter(|_| !is_own);
        let most = asked.into_iter().chain(offer.most_machines()).min().unwrap_or(1);
        let (whole, most) = if whole <= most { (whole, most / whole) } else { (1, 1) };
        let next = |times: &u32| times.checked_add(if *times < 8 { 1 } else { 1 << (times.ilog2() - 1) });
        let steps = std::iter::successors(Some(1u32), next);
        steps.take_while(move |times| *times < most).chain([most]).map(move |times| times * whole)
    }
}

/// Maximum number of GPUs at a provider at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The provider.
    pub provider: String,
    /// Regions, as a filter; `None` = all regions. The parts of a plan never run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// GPU; `None` = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// Purchase option; `None` = all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Maximum number of GPUs; 0 excludes them.
    pub gpus: u32,
    /// Start of the limit in hours from the start of the plan, for jobs that wait for one another; `None` = from the
    /// start.
    #[serde(default, rename = "from_hours", skip_serializing_if = "Option::is_none")]
    pub from: Option<Hours>,
    /// End of the limit, likewise; `None` = until the end.
    #[serde(default, rename = "until_hours", skip_serializing_if = "Option::is_none")]
    pub until: Option<Hours>,
}

impl Quota {
    /// Whether it applies all the time.
    pub const fn is_lasting(&self) -> bool {
        self.from.is_none() && self.until.is_none()
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.gpus, self.provider)?;
        let gpu = self.gpu.as_ref().map(ToString::to_string);
        let tier = self.tier.map(|tier| tier.to_string());
        for narrower in [self.region.as_ref(), gpu.as_ref(), tier.as_ref()].into_iter().flatten() {
            write!(f, ", {narrower}")?;
        }
        for (word, time) in [("from", self.from), ("until", self.until)] {
            if let Some(time) = time {
                write!(f, ", {word} {} h", time.get())?;
            }
        }
        Ok(())
    }
}

/// Published failures per GPU-hour: 2.0e-5 of 16,384 H100 (419 unexpected interruptions in 54 days; "The Llama 3 Herd of
/// Models", arXiv:2407.21783, section 3.3.4), 3.4e-5 and 1.2e-5 of two clusters of A100 (6.5 and 2.34 in 1,000 days of a
/// machine; Kokolis et al. 2024, arXiv:2410.21680, section III).
pub const FAILURES: f64 = 2e-5;
/// GPUs from which a job counts failures: with fewer, the expected time between them is over 700 hours.
pub const MANY_GPUS: u32 = 64;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_usual_failures(rate: &f64) -> bool {
    *rate == FAILURES
}

/// Assumed rather than measured values. All of them are printed with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Assumptions {
    /// Hours of boot and set-up before useful work, billed.
    #[serde(rename = "setup_hours")]
    pub setup: Hours,
    /// Spot losses per hour of ONE machine, for any number of GPUs and any place (λ); `None` = as measured
    /// ([`crate::pricing::spot`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_losses_per_hour: Option<f64>,
    /// Failures of one GPU, its machine or its network per hour, for jobs on [`MANY_GPUS`] or more that nobody takes
    /// away; 0 = none.
    #[serde(skip_serializing_if = "is_usual_failures")]
    pub failures_per_gpu_hour: f64,
    /// Hours between checkpoints of spot machines (κ).
    #[serde(rename = "checkpoint_interval_hours")]
    pub checkpoint_interval: Hours,
    /// Hours to write one checkpoint (ω); `None` = by its size.
    #[serde(rename = "checkpoint_write_hours", skip_serializing_if = "Option::is_none")]
    pub checkpoint_write: Option<Hours>,
    /// Hours to boot and load after a loss (ρ).
    #[serde(rename = "restart_hours")]
    pub restart: Hours,
    /// Unbilled hours to wait for spot capacity after a loss (δ); `None` = as measured.
    #[serde(rename = "wait_hours", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Hours>,
    /// Probability that spot losses stay within the deadline's allowance (1 − α).
    pub spot_confidence: f64,
    /// Measured extra time of this job on several GPUs relative to that of `habitat_prediction::scale`; `None` = not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_factor: Option<f64>,
    /// Measured parts of a language model's step on several GPUs relative to the prediction; `None` = not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout_factors: Option<LayoutFactors>,
    /// Line rate of the network between machines if the offer does not have it; `None` = unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_gbit_per_second: Option<f64>,
    /// Rate of copying data to the machines of a part; `None` = assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_gbit_per_second: Option<f64>,
}
