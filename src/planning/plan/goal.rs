//! What the user wants: how much work, by when, for how much, and with which machines.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Accept, PlanError};
use crate::pricing::{Tier, region};
use habitat_base::units::{Bytes, GpuSlug, Hours, KilogramsCo2e, Range, Samples, Usd, UsdPerHour, most};
use habitat_prediction::Sharding;
use habitat_prediction::scale::ModelParallel;

/// A job to be planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// How much is to be done.
    pub work: Work,
    /// Samples of one optimizer step on all GPUs; `None` = the profile's batch on each GPU if
    /// [`Accept::Batch`] is accepted, else the profile's batch on all of them.
    #[serde(default, rename = "global_batch_size", skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Elapsed hours from the start, set-up included; `None` = no limit.
    #[serde(rename = "deadline_hours")]
    pub deadline: Option<Hours>,
    /// Total cost; `None` = no limit.
    #[serde(rename = "budget_usd")]
    pub budget: Option<Usd>,
    /// What is best among the plans within the limits.
    pub objective: Objective,
    /// Which end of the predicted range must meet the deadline.
    pub confidence: Confidence,
    /// Parts that may follow one another (1, or 2 for "spot, then on demand").
    pub max_parts: u32,
    /// Which state of the training the GPUs divide.
    #[serde(default, skip_serializing_if = "ShardingChoice::is_none")]
    pub sharding: ShardingChoice,
    /// How many GPUs share one replica of the model.
    #[serde(default, skip_serializing_if = "ModelParallel::is_none")]
    pub model_parallel: ModelParallel,
    /// Which offers may be used.
    #[serde(default)]
    pub limits: Limits,
    /// The data, and where they are; `None` = bringing and keeping them costs nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Data>,
    /// What is assumed where nothing is known.
    #[serde(default)]
    pub assumptions: Assumptions,
}

/// An amount of training.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// So many samples.
    Samples(Samples),
    /// So many optimizer steps of the goal's global batch, or, without one, of the profile's
    /// batch size on one GPU: the only work that can be planned without knowing that.
    Steps(u64),
    /// So many passes over a data set.
    Epochs {
        /// Passes.
        epochs: f64,
        /// Samples of one pass.
        dataset: Samples,
    },
    /// So many tokens (needs the profile's sequence length).
    Tokens(f64),
}

/// An amount of work, in the unit that is known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Amount {
    /// Samples.
    Samples(Samples),
    /// Steps of one GPU, where nothing says how many samples a step has: a step of several
    /// GPUs counts as so many, since each does a step's work.
    Steps(f64),
}

impl Amount {
    /// The number, in its unit.
    pub const fn get(self) -> f64 {
        match self {
            Self::Samples(samples) => samples.get(),
            Self::Steps(steps) => steps,
        }
    }

    /// The unit, in words.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Samples(_) => "samples",
            Self::Steps(_) => "steps of one GPU",
        }
    }

    /// The samples, where they are known.
    pub const fn samples(self) -> Option<f64> {
        match self {
            Self::Samples(samples) => Some(samples.get()),
            Self::Steps(_) => None,
        }
    }

    /// The steps of one GPU, where nothing else is known.
    pub const fn steps(self) -> Option<f64> {
        match self {
            Self::Samples(_) => None,
            Self::Steps(steps) => Some(steps),
        }
    }
}

/// Which state of a training its GPUs divide in a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardingChoice {
    /// None: all of it on each GPU.
    #[default]
    None,
    /// [`Sharding::Zero1`].
    Zero1,
    /// [`Sharding::Zero2`].
    Zero2,
    /// [`Sharding::Zero3`].
    #[serde(alias = "fsdp")]
    Zero3,
    /// The least that fits in the memory, offer by offer.
    Auto,
}

impl ShardingChoice {
    /// Whether each GPU is to have all of it.
    pub const fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Those that may be used, in their order.
    ///
    /// With pipeline stages, gradients and parameters are not divided further: each micro-batch
    /// would have to gather and scatter them again.
    pub(super) fn stages(self, parallel: ModelParallel) -> &'static [Sharding] {
        match self {
            Self::Auto if parallel.pipeline > 1 => &Sharding::ALL[..2],
            _ => self.all(),
        }
    }

    const fn all(self) -> &'static [Sharding] {
        match self {
            Self::None => &[Sharding::None],
            Self::Zero1 => &[Sharding::Zero1],
            Self::Zero2 => &[Sharding::Zero2],
            Self::Zero3 => &[Sharding::Zero3],
            Self::Auto => &Sharding::ALL,
        }
    }
}

/// Data that have to be where the work is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// How much, in GB.
    pub gb: f64,
    /// The provider that they are at; `None` = they are brought at no cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Its regions that they are in, as a filter names them; `None` = in all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
}

impl Data {
    /// Whether they are there already.
    pub(super) fn is_at(&self, provider: &str, region: &str) -> bool {
        self.provider.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(provider))
            && self.region.as_ref().is_none_or(|filter| region::is_named(provider, region, filter))
    }
}

/// What "best" means.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Lowest expected cost; among equals the earliest finish.
    Cost,
    /// Earliest finish at the goal's confidence; among equals the lowest cost.
    Time,
    /// Cost plus what an hour of waiting is worth.
    CostPlusTime(UsdPerHour),
    /// Lowest expected emissions; among equals the lowest cost.
    #[serde(rename = "co2")]
    Emissions,
}

/// Which end of the range of the step time has to meet the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// The best single value: late about every second time.
    Expected,
    /// The upper end of the range.
    High,
}

impl Confidence {
    /// The end of a range that meets the deadline: where plans are compared and drawn.
    pub fn end<T: Copy>(self, range: &Range<T>) -> T {
        match self {
            Self::Expected => range.mid,
            Self::High => range.high,
        }
    }

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expected => "expected",
            Self::High => "high",
        }
    }
}

/// Which offers may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Ways to pay.
    pub tiers: Vec<Tier>,
    /// What may be used beside firm offers ([`Accept`]); absent: everything.
    #[serde(skip_serializing_if = "Accept::are_all")]
    pub accept: Vec<Accept>,
    /// Only these GPUs; empty = all.
    pub gpus: Vec<GpuSlug>,
    /// Only these providers; empty = all.
    pub providers: Vec<String>,
    /// Never these providers.
    pub exclude_providers: Vec<String>,
    /// Never these GPUs.
    pub exclude_gpus: Vec<GpuSlug>,
    /// Only regions that one of these names ([`crate::pricing::region`]); empty = all.
    pub regions: Vec<String>,
    /// Never regions that one of these names.
    pub exclude_regions: Vec<String>,
    /// Only these offers, by their ids; empty = all.
    pub offers: Vec<String>,
    /// Fewest GPUs.
    pub min_gpus: u32,
    /// Most GPUs; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u32>,
    /// Most machines of an offer at once, in one job: 1, 2, 4, … times so many as make whole replicas of
    /// the model are tried.
    #[serde(skip_serializing_if = "is_one")]
    pub max_machines: u32,
    /// Most dollars an hour; `None` = no limit.
    #[serde(rename = "max_usd_per_hour", skip_serializing_if = "Option::is_none")]
    pub max_price: Option<UsdPerHour>,
    /// Most kilograms of CO2e of a whole plan, expected; `None` = no limit. Offers of which the
    /// emissions are not known are left out with it.
    #[serde(rename = "max_co2_kg", skip_serializing_if = "Option::is_none")]
    pub max_co2: Option<KilogramsCo2e>,
    /// Leave out offers of hosts on peer-to-peer markets.
    pub no_marketplace: bool,
    /// Use offers where it is not known whether the step fits in memory.
    pub allow_unknown_memory: bool,
    /// Fewest virtual CPUs of a whole machine; `None` = no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_vcpus: Option<u32>,
    /// Least memory of a whole machine's host; `None` = no limit.
    #[serde(rename = "min_host_memory_bytes", skip_serializing_if = "Option::is_none")]
    pub min_host_memory: Option<Bytes>,
    /// Use offers of which vCPUs or host memory are not known, whatever is wanted of them.
    pub allow_unknown_host: bool,
    /// Most GPUs at once, by what they are.
    #[serde(rename = "quota")]
    pub quotas: Vec<Quota>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
const fn is_one(machines: &u32) -> bool {
    *machines == 1
}

/// Refuses a list of names that is too long to be compared with every offer, or has such a name;
/// `lengths` in bytes.
///
/// # Errors
/// [`PlanError::LongList`] and [`PlanError::LongName`], naming the list by its key.
pub fn check_list(list: &'static str, lengths: impl ExactSizeIterator<Item = usize>) -> Result<(), PlanError> {
    if lengths.len() > most::NAMES {
        return Err(PlanError::LongList { list, count: lengths.len() });
    }
    match (1..).zip(lengths).find(|(_, length)| *length > most::NAME) {
        Some((number, length)) => Err(PlanError::LongName { list, number, length }),
        None => Ok(()),
    }
}

impl Limits {
    /// As [`check_list`], of every list.
    ///
    /// # Errors
    /// As [`check_list`].
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

    /// The numbers of machines to try: 1, 2, 4, … times so many as make whole replicas of the model,
    /// and the most; 1 where so many are not allowed, or there is one only.
    pub(super) fn machines(&self, whole: u32, is_one: bool) -> impl Iterator<Item = u32> {
        let most = if is_one { 1 } else { self.max_machines.max(1) };
        let (whole, most) = if whole <= most { (whole, most / whole) } else { (1, 1) };
        let powers = std::iter::successors(Some(1u32), |times| times.checked_mul(2));
        powers.take_while(move |times| *times < most).chain([most]).map(move |times| times * whole)
    }
}

/// Most GPUs that a provider lets the user have at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The provider.
    pub provider: String,
    /// Only in regions that this names; `None` = in all of them together or apart: a plan's parts
    /// never run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Only of this GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// Only of offers paid for so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Most GPUs; 0 leaves all of them out.
    pub gpus: u32,
    /// Hours from the start from which on it holds, of jobs that wait for one another; `None` = from
    /// the start.
    #[serde(default, rename = "from_hours", skip_serializing_if = "Option::is_none")]
    pub from: Option<Hours>,
    /// Hours from the start until which it holds, likewise; `None` = to the end.
    #[serde(default, rename = "until_hours", skip_serializing_if = "Option::is_none")]
    pub until: Option<Hours>,
}

impl Quota {
    /// Whether it holds all the time.
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

/// Everything assumed rather than measured. All of it is printed with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Assumptions {
    /// Boot and set-up of a machine before useful work, billed.
    #[serde(rename = "setup_hours")]
    pub setup: Hours,
    /// Spot losses per hour of ONE machine, whatever its GPUs and where it is (planner B1, λ); `None` =
    /// as measured ([`crate::pricing::spot`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spot_losses_per_hour: Option<f64>,
    /// Hours between checkpoints (κ).
    #[serde(rename = "checkpoint_interval_hours")]
    pub checkpoint_interval: Hours,
    /// Hours to write one checkpoint (ω).
    #[serde(rename = "checkpoint_write_hours")]
    pub checkpoint_write: Hours,
    /// Hours to boot and load after a loss (ρ).
    #[serde(rename = "restart_hours")]
    pub restart: Hours,
    /// Unbilled hours to wait for spot capacity after a loss (δ); `None` = as measured.
    #[serde(rename = "wait_hours", skip_serializing_if = "Option::is_none")]
    pub wait: Option<Hours>,
    /// Probability with which spot losses stay within the deadline's allowance (1 − α).
    pub spot_confidence: f64,
    /// How many times the extra time that `predict::scale` expects of several GPUs this job was
    /// measured to need; `None` = not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling_factor: Option<f64>,
    /// Line rate of the network between machines whose offers do not say it; `None` = not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_gbit_per_second: Option<f64>,
    /// Rate at which the data are copied to the machines of a part; `None` = as assumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_gbit_per_second: Option<f64>,
}
