//! The user's wishes for a plan: work, limits and acceptable offers. The command line, `[plan]` of the settings file
//! (without keys of a single job) and each `[[job]]` of a jobs file use the same type. Missing values leave the goal
//! unchanged. In files, values are strings as typed (`"24h"`, `"1.28M"`), or bare numbers.

use std::borrow::Cow;

use super::choices::choice;
use clap::Args;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

use habitat_base::units::{Bytes, Hours, KilogramsCo2e, Samples, Usd, UsdPerHour, most};
use habitat_planning::deadline::{Deadline, deadline};
use habitat_planning::plan::{Accept, Confidence, Data, Goal, LayoutChoice, Objective, Quota, ShardingChoice, Work};
use habitat_planning::pricing::Tier;
use habitat_planning::values;
use habitat_prediction::scale::LayoutFactors;

/// Work, limits and acceptable offers of a plan.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GoalArgs {
    /// Work in samples (1.28M).
    #[arg(long, value_name = "N", value_parser = values::samples, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(with = "Typed")]
    pub samples: Option<Samples>,
    /// Work in steps (of the recorded batch size).
    ///
    /// With --global-batch, steps of that size.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(with = "Typed")]
    pub steps: Option<u64>,
    /// Work in passes over the data set (--dataset).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work", requires = "dataset")]
    #[serde(with = "Typed")]
    pub epochs: Option<f64>,
    /// Samples of the data set, for --epochs.
    #[arg(long, value_name = "N", value_parser = values::samples, allow_hyphen_values = true, help_heading = "Work", requires = "epochs")]
    #[serde(with = "Typed")]
    pub dataset: Option<Samples>,
    /// Work in tokens (needs the sequence length).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(with = "Typed")]
    pub tokens: Option<f64>,
    /// Samples per optimizer step on all GPUs.
    ///
    /// Each GPU accumulates gradients over as many batches of the recorded size as needed.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work")]
    #[serde(with = "Typed")]
    pub global_batch: Option<u64>,
    /// Latest finish: 24h, "Friday 18:00", 2026-12-04.
    ///
    /// A duration (24h, "1d 12h"), or a date and time (2026-12-04T18:00) in local time; a day alone means its end. Includes set-up
    /// time.
    #[arg(long, value_name = "TIME", value_parser = deadline, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(with = "Typed")]
    pub deadline: Option<Deadline>,
    /// Maximum total cost, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(with = "Typed")]
    pub budget: Option<Usd>,
    /// Maximum cost per hour, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(rename = "max_usd_per_hour", with = "Typed")]
    pub max_price: Option<UsdPerHour>,
    /// Maximum emissions in kg of CO2e. Offers without this figure are excluded.
    #[arg(long, value_name = "KG", value_parser = values::kilograms, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(with = "Typed")]
    pub max_co2_kg: Option<KilogramsCo2e>,
    /// Objective within the limits.
    #[arg(long, value_name = "GOAL", value_parser = choice::<Objective>(), help_heading = "Limits")]
    #[serde(skip)]
    pub objective: Option<Objective>,
    /// Value of an hour of waiting, in US dollars: minimise cost plus this.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits", conflicts_with = "objective")]
    #[serde(skip)]
    pub hour_value: Option<UsdPerHour>,
    /// Time that must meet the deadline: the expected one, or the upper end of its range.
    #[arg(long, value_parser = choice::<Confidence>(), help_heading = "Limits")]
    #[serde(skip)]
    pub confidence: Option<Confidence>,
    /// Most consecutive parts (2 allows "spot, then on-demand").
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, 3), help_heading = "Limits")]
    pub max_parts: Option<u32>,
    /// Offers to accept in addition to firm ones.
    ///
    /// Firm offers are on-demand, from the provider itself, without doubts about the price, and match the platform and
    /// the global batch of the recording.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = choice::<Accept>(), help_heading = "Offers")]
    pub accept: Option<Vec<Accept>>,
    /// Only these tiers; naming `spot` accepts it.
    #[arg(long, value_name = "TIER", value_delimiter = ',', value_parser = choice::<Tier>(), help_heading = "Offers")]
    pub tiers: Option<Vec<Tier>>,
    /// Only these GPUs.
    #[arg(long = "gpus", value_name = "GPU", value_delimiter = ',', help_heading = "Machines")]
    pub gpus: Vec<String>,
    /// Only these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub providers: Option<Vec<String>>,
    /// Exclude these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_providers: Option<Vec<String>>,
    /// Exclude these GPUs.
    #[arg(long, value_name = "GPU", value_delimiter = ',', help_heading = "Machines")]
    pub exclude_gpus: Vec<String>,
    /// Only regions that match words of their names, places, countries or continents.
    ///
    /// All words must match (us-east, oregon, de, eu). Words of three letters or more may be the start of a name (fin);
    /// shorter words must match whole words. `eu` means all of Europe.
    #[arg(long, value_name = "REGION", value_delimiter = ',', help_heading = "Offers")]
    pub regions: Option<Vec<String>>,
    /// Exclude regions, as in --regions.
    #[arg(long, value_name = "REGION", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_regions: Option<Vec<String>>,
    /// Only this offer, by its id in `offers` (repeatable).
    #[arg(long = "offer", value_name = "ID", help_heading = "Offers")]
    pub offers: Vec<String>,
    /// Exclude offers of hosts on peer-to-peer markets.
    #[arg(long, help_heading = "Offers")]
    pub no_marketplace: bool,
    /// Minimum number of GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(0, u64::MAX), help_heading = "Machines")]
    pub min_gpus: Option<u32>,
    /// Maximum number of GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(0, u64::MAX), help_heading = "Machines")]
    pub max_gpus: Option<u32>,
    /// Maximum number of machines per offer: tries all up to 8, then 12, 16, 24, …; limits on GPUs and price apply to the total.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::MACHINES.into()), help_heading = "Machines")]
    pub max_machines: Option<u32>,
    /// Training state to shard across GPUs; zero3 is FSDP.
    #[arg(long, value_parser = choice::<ShardingChoice>(), help_heading = "Layout")]
    pub sharding: Option<ShardingChoice>,
    /// Degree of tensor parallelism: GPUs of one machine that share each layer (Megatron).
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Layout")]
    pub tensor_parallel: Option<u32>,
    /// Pipeline stages; --global-batch sets the number of micro-batches.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Layout")]
    pub pipeline_parallel: Option<u32>,
    /// Chunks of layers on each pipeline stage, interleaved (Megatron's virtual pipeline).
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), requires = "pipeline_parallel", help_heading = "Layout")]
    pub virtual_stages: Option<u32>,
    /// GPUs that share each sequence (ring attention).
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Layout")]
    pub context_parallel: Option<u32>,
    /// GPUs that share the experts of each layer.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Layout")]
    pub expert_parallel: Option<u32>,
    /// Search the fastest layout of a model that no single GPU holds (auto, unless a degree is given), or only the given
    /// degrees.
    #[arg(long, value_parser = choice::<LayoutChoice>(), help_heading = "Layout")]
    pub layout: Option<LayoutChoice>,
    /// Include GPUs on which it is unknown whether the step fits in memory.
    #[arg(long, help_heading = "Machines")]
    pub allow_unknown_memory: bool,
    /// Minimum vCPUs of a whole machine, regardless of its number of GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, u64::MAX), help_heading = "Machines")]
    pub min_vcpus: Option<u32>,
    /// Minimum host memory of a whole machine (64GB).
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, help_heading = "Machines")]
    #[serde(with = "Typed")]
    pub min_host_memory: Option<Bytes>,
    /// Include machines with unknown vCPUs or host memory, regardless of these limits.
    #[arg(long, help_heading = "Machines")]
    pub allow_unknown_host: bool,
    /// Data that the work needs, in GB: the plan includes time and cost of copying them, and their storage.
    #[arg(long, value_name = "GB", value_parser = values::count, allow_hyphen_values = true, help_heading = "Data")]
    #[serde(with = "Typed")]
    pub data_gb: Option<f64>,
    /// Current location of the data; region as in --regions.
    #[arg(long, value_name = "PROVIDER[/REGION]", help_heading = "Data", requires = "data_gb")]
    pub data_at: Option<String>,
    /// Rate for copying data to the machines, in Gbit/s.
    #[arg(long = "data-gbit", value_name = "GBIT/S", value_parser = values::network, allow_hyphen_values = true, help_heading = "Data")]
    #[serde(rename = "data_gbit_per_second")]
    pub data_rate: Option<f64>,
    /// Most GPUs at once, by provider; only in the settings file and in jobs files.
    #[arg(skip)]
    pub quota: Vec<Quota>,
    /// Time for boot and set-up before useful work.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "setup_hours")]
    pub setup: Option<Hours>,
    /// Losses of a spot machine per hour, regardless of its GPUs and region.
    #[arg(long, value_name = "RATE", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub spot_losses_per_hour: Option<f64>,
    /// Failures per GPU and hour of jobs on 64 GPUs or more (0.00002); 0 counts none.
    #[arg(long, value_name = "RATE", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub failures_per_gpu_hour: Option<f64>,
    /// Time between checkpoints on spot machines.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "checkpoint_interval_hours")]
    pub checkpoint_interval: Option<Hours>,
    /// Time of writing a checkpoint (1 minute, or its size at 0.65 GB/s a machine).
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "checkpoint_write_hours")]
    pub checkpoint_write: Option<Hours>,
    /// Measured overhead of several GPUs as a multiple of the model's (from `calibrate-scaling`).
    #[arg(long, value_name = "FACTOR", value_parser = values::count, allow_hyphen_values = true, help_heading = "Layout")]
    pub scaling_factor: Option<f64>,
    /// Measured operations and exchange of a language model's layouts as multiples of the model's (from
    /// `calibrate-scaling --runs`).
    #[arg(long, value_name = "COMPUTE,EXCHANGE", value_parser = values::layout_factors, help_heading = "Layout")]
    pub layout_factors: Option<LayoutFactors>,
    /// Line rate of the network between machines, in Gbit/s, for offers that lack it.
    #[arg(long = "network-gbit", value_name = "GBIT/S", value_parser = values::network, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "network_gbit_per_second")]
    pub network: Option<f64>,
}

/// A value that is a string as typed, or a bare number.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "a number or a string")]
pub(super) enum Typed {
    Text(String),
    Whole(i64),
    Number(f64),
}

impl Typed {
    pub(super) fn deserialize<'de, T: Read, D: Deserializer<'de>>(value: D) -> Result<Option<T>, D::Error> {
        let text = match Deserialize::deserialize(value)? {
            Self::Text(text) => text,
            Self::Whole(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
        };
        T::read(&text).map(Some).map_err(D::Error::custom)
    }

    /// The default value in a schema, which has none.
    pub(super) fn serialize<T, S: Serializer>(_: T, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_none()
    }
}

/// A type of [`Typed`] values.
pub(super) trait Read: Sized {
    fn read(text: &str) -> Result<Self, String>;
}

/// Implements [`Read`] with the parser of the command line.
macro_rules! readers {
    ($($type:ty: $parser:path),+) => {
        $(impl Read for $type {
            fn read(text: &str) -> Result<Self, String> {
                $parser(text)
            }
        })+
    };
}

readers!(
    Samples: values::samples, u64: values::whole, f64: values::count, Deadline: deadline, Usd: values::usd,
    UsdPerHour: values::usd_per_hour, KilogramsCo2e: values::kilograms, Bytes: values::bytes
);

/// Keys of the named fields that are set.
macro_rules! set_keys {
    ($wish:ident, $($field:ident $(= $key:literal)?),+) => {{
        let none = Self::default();
        let given = [$(([$($key,)? stringify!($field)][0], $wish.$field != none.$field)),+];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }};
}

impl GoalArgs {
    /// Keys of a single job that are set.
    pub(super) fn of_one_job(&self) -> impl Iterator<Item = &'static str> {
        set_keys!(
            self,
            samples,
            steps,
            epochs,
            dataset,
            tokens,
            global_batch,
            deadline,
            budget,
            gpus,
            exclude_gpus,
            offers,
            min_gpus,
            max_gpus,
            tensor_parallel,
            pipeline_parallel,
            virtual_stages,
            context_parallel,
            expert_parallel,
            layout,
            min_vcpus,
            min_host_memory,
            data_gb,
            data_at
        )
    }

    /// Keys about rented offers that are set.
    pub(super) fn of_offers(&self) -> impl Iterator<Item = &'static str> {
        set_keys!(
            self,
            budget,
            max_price = "max_usd_per_hour",
            max_co2_kg,
            tiers,
            accept,
            providers,
            exclude_providers,
            regions,
            exclude_regions,
            offers,
            no_marketplace,
            max_machines,
            network = "network_gbit_per_second",
            min_vcpus,
            min_host_memory,
            data_gb,
            data_rate = "data_gbit_per_second",
            quota
        )
    }

    /// The settings that also apply to available machines.
    #[must_use]
    pub(crate) fn for_machines(&self) -> Self {
        Self {
            allow_unknown_memory: self.allow_unknown_memory,
            failures_per_gpu_hour: self.failures_per_gpu_hour,
            checkpoint_interval: self.checkpoint_interval,
            checkpoint_write: self.checkpoint_write,
            scaling_factor: self.scaling_factor,
            layout_factors: self.layout_factors,
            ..Self::default()
        }
    }

    /// Checks for invalid wishes, which the command line refuses on its own.
    ///
    /// # Errors
    /// The key, and the problem.
    pub(super) fn check(&self) -> Result<(), (&'static str, Cow<'static, str>)> {
        let up_to = |most: u32| Cow::Owned(format!("must be 1 to {most}"));
        let works = [self.samples.is_some(), self.steps.is_some(), self.epochs.is_some(), self.tokens.is_some()];
        let is_line = |rate: f64| rate > 0.0 && rate <= most::NETWORK_GBIT;
        let lines = [("network_gbit_per_second", self.network), ("data_gbit_per_second", self.data_rate)];
        let rates = [
            ("spot_losses_per_hour", self.spot_losses_per_hour.unwrap_or_default()),
            ("failures_per_gpu_hour", self.failures_per_gpu_hour.unwrap_or_default()),
            ("scaling_factor", self.scaling_factor.unwrap_or_default()),
        ];
        let problem = if works.into_iter().filter(|given| *given).count() > 1 {
            ("work", "only one of samples, steps, epochs and tokens can be set")
        } else if self.epochs.is_some() != self.dataset.is_some() {
            ("epochs", "epochs needs dataset, the number of samples per epoch, and vice versa")
        } else if self.quota.iter().any(|quota| !quota.is_lasting()) {
            ("quota", "from_hours and until_hours are only allowed in a [[quota]] at the top of a jobs file")
        } else if self.data_gb.is_none() && self.data_at.is_some() {
            ("data_at", "needs data_gb, the amount of data")
        } else if self.min_vcpus == Some(0) {
            ("min_vcpus", "must be 1 or more")
        } else if self.max_parts.is_some_and(|parts| !(1..=3).contains(&parts)) {
            ("max_parts", "must be 1, 2 or 3")
        } else if let Some((key, _)) = rates.into_iter().find(|(_, rate)| !(0.0..f64::INFINITY).contains(rate)) {
            (key, "must be a finite number of 0 or more")
        } else if self.layout_factors.is_some_and(|factors| !factors.is_valid()) {
            ("layout_factors", "compute and exchange must be between 0.1 and 10")
        } else if self.max_machines.is_some_and(|machines| !(1..=most::MACHINES).contains(&machines)) {
            return Err(("max_machines", up_to(most::MACHINES)));
        } else if let Some((key, _)) = lines.into_iter().find(|(_, rate)| rate.is_some_and(|rate| !is_line(rate))) {
            (key, "must be a number above 0 and at most 1e6")
        } else if let Some(key) = self.wrong_degree() {
            return Err((key, up_to(most::REPLICA)));
        } else {
            return Ok(());
        };
        Err((problem.0, problem.1.into()))
    }

    /// First degree of parallelism that is out of range.
    fn wrong_degree(&self) -> Option<&'static str> {
        let degrees = [
            ("tensor_parallel", self.tensor_parallel),
            ("pipeline_parallel", self.pipeline_parallel),
            ("virtual_stages", self.virtual_stages),
            ("context_parallel", self.context_parallel),
            ("expert_parallel", self.expert_parallel),
        ];
        let is_wrong = |degree: Option<u32>| degree.is_some_and(|degree| !(1..=most::REPLICA).contains(&degree));
        degrees.into_iter().find(|(_, degree)| is_wrong(*degree)).map(|(key, _)| key)
    }

    /// The amount of work; `None` if not set.
    pub fn work(&self) -> Option<Work> {
        match *self {
            Self { samples: Some(samples), .. } => Some(Work::Samples(samples)),
            Self { steps: Some(steps), .. } => Some(Work::Steps(steps)),
            Self { epochs: Some(epochs), dataset: Some(dataset), .. } => Some(Work::Epochs { epochs, dataset }),
            Self { tokens: Some(tokens), .. } => Some(Work::Tokens(tokens)),
            _ => None,
        }
    }

    fn data(&self) -> Option<Data> {
        let gb = self.data_gb?;
        let Some(place) = &self.data_at else { return Some(Data { gb, provider: None, region: None }) };
        let (provider, region) =
            place.split_once('/').map_or((place.as_str(), None), |(name, region)| (name, Some(region)));
        Some(Data { gb, provider: Some(provider.to_owned()), region: region.map(str::to_owned) })
    }

    /// Applies the wishes to a goal, except for the work, a deadline that is a date (depends on the clock), and the
    /// GPUs (need the catalog).
    pub fn apply(&self, goal: &mut Goal) {
        fn set<T: Clone>(place: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                place.clone_from(value);
            }
        }
        goal.global_batch = self.global_batch.or(goal.global_batch);
        if let Some(Deadline::Within(hours)) = self.deadline {
            goal.deadline = Some(hours);
        }
        goal.budget = self.budget.or(goal.budget);
        set(&mut goal.objective, self.hour_value.map(Objective::CostPlusTime).or(self.objective).as_ref());
        set(&mut goal.confidence, self.confidence.as_ref());
        set(&mut goal.max_parts, self.max_parts.as_ref());
        set(&mut goal.sharding, self.sharding.as_ref());
        set(&mut goal.model_parallel.tensor, self.tensor_parallel.as_ref());
        set(&mut goal.model_parallel.pipeline, self.pipeline_parallel.as_ref());
        set(&mut goal.model_parallel.chunks, self.virtual_stages.as_ref());
        set(&mut goal.model_parallel.context, self.context_parallel.as_ref());
        set(&mut goal.model_parallel.expert, self.expert_parallel.as_ref());
        set(&mut goal.layout, self.layout.as_ref());
        goal.data = self.data().or(goal.data.take());
        let limits = &mut goal.limits;
        set(&mut limits.tiers, self.tiers.as_ref());
        set(&mut limits.accept, self.accept.as_ref());
        limits.accept.sort_unstable();
        limits.accept.dedup();
        let asks_spot = self.accept.is_none() && self.tiers.as_ref().is_some_and(|tiers| tiers.contains(&Tier::Spot));
        if asks_spot && !limits.accept.contains(&Accept::Spot) {
            limits.accept.push(Accept::Spot);
        }
        set(&mut limits.providers, self.providers.as_ref());
        set(&mut limits.exclude_providers, self.exclude_providers.as_ref());
        set(&mut limits.regions, self.regions.as_ref());
        set(&mut limits.exclude_regions, self.exclude_regions.as_ref());
        limits.offers.extend_from_slice(&self.offers);
        set(&mut limits.min_gpus, self.min_gpus.as_ref());
        limits.max_gpus = self.max_gpus.or(limits.max_gpus);
        set(&mut limits.max_machines, self.max_machines.as_ref());
        limits.max_price = self.max_price.or(limits.max_price);
        limits.max_co2 = self.max_co2_kg.or(limits.max_co2);
        limits.no_marketplace |= self.no_marketplace;
        limits.allow_unknown_memory |= self.allow_unknown_memory;
        limits.min_vcpus = self.min_vcpus.or(limits.min_vcpus);
        limits.min_host_memory = self.min_host_memory.or(limits.min_host_memory);
        limits.allow_unknown_host |= self.allow_unknown_host;
        limits.quotas.extend_from_slice(&self.quota);
        let assumptions = &mut goal.assumptions;
        set(&mut assumptions.setup, self.setup.as_ref());
        assumptions.spot_losses_per_hour = self.spot_losses_per_hour.or(assumptions.spot_losses_per_hour);
        set(&mut assumptions.failures_per_gpu_hour, self.failures_per_gpu_hour.as_ref());
        set(&mut assumptions.checkpoint_interval, self.checkpoint_interval.as_ref());
        assumptions.checkpoint_write = self.checkpoint_write.or(assumptions.checkpoint_write);
        assumptions.network_gbit_per_second = self.network.or(assumptions.network_gbit_per_second);
        assumptions.data_gbit_per_second = self.data_rate.or(assumptions.data_gbit_per_second);
        assumptions.scaling_factor = self.scaling_factor.or(assumptions.scaling_factor);
        assumptions.layout_factors = self.layout_factors.or(assumptions.layout_factors);
    }
}
