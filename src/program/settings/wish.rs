//! What the user wishes of a plan: how much work, within which limits, with which offers. The
//! same type is filled by the command line, by `[plan]` of the settings file, which takes none of
//! the keys that belong to one job, and by each `[[job]]` of a file of jobs. What is left out leaves
//! the goal as it is. In files, values are as they are typed (`"24h"`, `"1.28M"`), or bare numbers.

use super::choices::choice;
use clap::Args;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use habitat_base::units::{Bytes, Hours, KilogramsCo2e, Samples, Usd, UsdPerHour, most};
use habitat_planning::deadline::{Deadline, deadline};
use habitat_planning::plan::{Accept, Confidence, Data, Goal, Objective, Quota, ShardingChoice, Work};
use habitat_planning::pricing::Tier;
use habitat_planning::values;

/// How much is to be done, within which limits.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Wish {
    /// Work in samples (1.28M).
    #[arg(long, value_name = "N", value_parser = values::samples, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(deserialize_with = "read::samples")]
    pub samples: Option<Samples>,
    /// Work in steps (of the recorded batch size).
    ///
    /// With --global-batch, of that many samples.
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(deserialize_with = "read::whole")]
    pub steps: Option<u64>,
    /// Work in passes over the data set (--dataset).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work", requires = "dataset")]
    #[serde(deserialize_with = "read::count")]
    pub epochs: Option<f64>,
    /// Samples of the data set, for --epochs.
    #[arg(long, value_name = "N", value_parser = values::samples, allow_hyphen_values = true, help_heading = "Work", requires = "epochs")]
    #[serde(deserialize_with = "read::samples")]
    pub dataset: Option<Samples>,
    /// Work in tokens (needs the sequence length).
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true, help_heading = "Work", group = "work")]
    #[serde(deserialize_with = "read::count")]
    pub tokens: Option<f64>,
    /// Samples of one optimizer step on all GPUs.
    ///
    /// Each GPU runs as many batches of the recorded size as that takes (gradient accumulation).
    #[arg(long, value_name = "N", value_parser = values::whole, allow_hyphen_values = true, help_heading = "Work")]
    #[serde(deserialize_with = "read::whole")]
    pub global_batch: Option<u64>,
    /// Latest finish: 24h, "1d 12h", "Friday 18:00", 2026-12-04.
    ///
    /// A span, or a date and time (2026-12-04T18:00) in local time; a day alone means its end. Set-up is
    /// included.
    #[arg(long, value_name = "TIME", value_parser = deadline, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(deserialize_with = "read::deadline")]
    pub deadline: Option<Deadline>,
    /// Most to spend in all, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(deserialize_with = "read::usd")]
    pub budget: Option<Usd>,
    /// Most to spend an hour, in US dollars.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(rename = "max_usd_per_hour", deserialize_with = "read::usd_per_hour")]
    pub max_price: Option<UsdPerHour>,
    /// Most to emit in all, in kg of CO2e; offers of which that is not known are left out.
    #[arg(long, value_name = "KG", value_parser = values::kilograms, allow_hyphen_values = true, help_heading = "Limits")]
    #[serde(deserialize_with = "read::kilograms")]
    pub max_co2_kg: Option<KilogramsCo2e>,
    /// What is best within the limits.
    #[arg(long, value_parser = choice::<Objective>(), help_heading = "Limits")]
    #[serde(skip)]
    pub objective: Option<Objective>,
    /// What an hour of waiting is worth, in US dollars: minimise cost plus this.
    #[arg(long, value_name = "USD", value_parser = values::usd_per_hour, allow_hyphen_values = true, help_heading = "Limits", conflicts_with = "objective")]
    #[serde(skip)]
    pub hour_value: Option<UsdPerHour>,
    /// Which time has to meet the deadline: the expected one, or the upper end of its range.
    #[arg(long, value_parser = choice::<Confidence>(), help_heading = "Limits")]
    #[serde(skip)]
    pub confidence: Option<Confidence>,
    /// Parts that may follow one another (2 allows "spot, then on demand").
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, 3), help_heading = "Limits")]
    pub max_parts: Option<u32>,
    /// What to accept beside firm offers.
    ///
    /// Firm are those on demand, from a provider itself, at a price that nothing speaks against, on the
    /// platform and with the global batch of the recording.
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = choice::<Accept>(), help_heading = "Offers")]
    pub accept: Option<Vec<Accept>>,
    /// Only these purchase options; `spot` here accepts it.
    #[arg(long, value_name = "TIER", value_delimiter = ',', value_parser = choice::<Tier>(), help_heading = "Offers")]
    pub tiers: Option<Vec<Tier>>,
    /// Only these GPUs.
    #[arg(long = "gpus", value_name = "GPU", value_delimiter = ',', help_heading = "Offers")]
    pub gpus: Vec<String>,
    /// Only these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub providers: Option<Vec<String>>,
    /// Never these providers.
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_providers: Option<Vec<String>>,
    /// Never these GPUs.
    #[arg(long, value_name = "GPU", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_gpus: Vec<String>,
    /// Only regions named so: by words of their names and places, country or continent.
    ///
    /// All words must fit (us-east, oregon, de, eu). Of three letters or more a word may be the
    /// beginning of one (fin), shorter ones are whole words. `eu` is all of Europe.
    #[arg(long, value_name = "REGION", value_delimiter = ',', help_heading = "Offers")]
    pub regions: Option<Vec<String>>,
    /// Never regions named so, as in --regions.
    #[arg(long, value_name = "REGION", value_delimiter = ',', help_heading = "Offers")]
    pub exclude_regions: Option<Vec<String>>,
    /// Only this offer, by its id as `offers` lists it (again for more).
    #[arg(long = "offer", value_name = "ID", help_heading = "Offers")]
    pub offers: Vec<String>,
    /// No offers of hosts on peer-to-peer markets.
    #[arg(long, help_heading = "Offers")]
    pub no_marketplace: bool,
    /// Fewest GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(0, u64::MAX), help_heading = "Offers")]
    pub min_gpus: Option<u32>,
    /// Most GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(0, u64::MAX), help_heading = "Offers")]
    pub max_gpus: Option<u32>,
    /// Most machines of one offer in a job: 1, 2, 4, … of them are tried; limits of GPUs and price
    /// count all of them.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::MACHINES.into()), help_heading = "Offers")]
    pub max_machines: Option<u32>,
    /// Which state of the training the GPUs divide; zero3 is FSDP.
    #[arg(long, value_parser = choice::<ShardingChoice>(), help_heading = "Offers")]
    pub sharding: Option<ShardingChoice>,
    /// GPUs that divide each layer of the model, all of one machine (Megatron's tensor parallel).
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Offers")]
    pub tensor_parallel: Option<u32>,
    /// Stages that divide the layers of the model; micro-batches are those that --global-batch takes.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, most::REPLICA.into()), help_heading = "Offers")]
    pub pipeline_parallel: Option<u32>,
    /// Use GPUs whose memory may be too small: it is not known whether the step fits.
    #[arg(long, help_heading = "Offers")]
    pub allow_unknown_memory: bool,
    /// Fewest vCPUs of a whole machine, whatever its GPUs.
    #[arg(long, value_name = "N", value_parser = values::within::<u32>(1, u64::MAX), help_heading = "Offers")]
    pub min_vcpus: Option<u32>,
    /// Least memory of a whole machine's host (64GB).
    #[arg(long, value_name = "SIZE", value_parser = values::bytes, help_heading = "Offers")]
    #[serde(deserialize_with = "read::bytes")]
    pub min_host_memory: Option<Bytes>,
    /// Use machines of which vCPUs or host memory are not known, whatever is wanted of them.
    #[arg(long, help_heading = "Offers")]
    pub allow_unknown_host: bool,
    /// GB of data that the work needs: the plan counts the hours and dollars of copying them, and what
    /// keeping them costs.
    #[arg(long, value_name = "GB", value_parser = values::count, allow_hyphen_values = true, help_heading = "Offers")]
    #[serde(deserialize_with = "read::count")]
    pub data_gb: Option<f64>,
    /// Where the data are already; region as in --regions.
    #[arg(long, value_name = "PROVIDER[/REGION]", help_heading = "Offers", requires = "data_gb")]
    pub data_at: Option<String>,
    /// Rate at which the data are copied to the machines, in Gbit/s.
    #[arg(long = "data-gbit", value_name = "GBIT/S", value_parser = values::network, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "data_gbit_per_second")]
    pub data_rate: Option<f64>,
    /// Most GPUs at once, by provider; in the settings and in files of jobs only.
    #[arg(skip)]
    pub quota: Vec<Quota>,
    /// Boot and set-up before useful work.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "setup_hours")]
    pub setup: Option<Hours>,
    /// Losses of a spot machine in an hour, whatever its GPUs and region.
    #[arg(long, value_name = "RATE", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub spot_losses_per_hour: Option<f64>,
    /// Time between checkpoints.
    #[arg(long, value_name = "TIME", value_parser = values::hours, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "checkpoint_interval_hours")]
    pub checkpoint_interval: Option<Hours>,
    /// How many times the model's extra time several GPUs cost this job (`calibrate-scaling` prints
    /// it).
    #[arg(long, value_name = "FACTOR", value_parser = values::count, allow_hyphen_values = true, help_heading = "Assumptions")]
    pub scaling_factor: Option<f64>,
    /// Line rate of the network between machines, in Gbit/s, where an offer does not say it.
    #[arg(long = "network-gbit", value_name = "GBIT/S", value_parser = values::network, allow_hyphen_values = true, help_heading = "Assumptions")]
    #[serde(rename = "network_gbit_per_second")]
    pub network: Option<f64>,
}

/// Reads values as they are typed, or as bare numbers.
macro_rules! readers {
    ($($name:ident $type:ty),+) => {
        mod read {
            use super::*;

            $(pub(super) fn $name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<$type>, D::Error> {
                let text = match Typed::deserialize(value)? {
                    Typed::Text(text) => text,
                    Typed::Whole(number) => number.to_string(),
                    Typed::Number(number) => number.to_string(),
                };
                parse::$name(&text).map(Some).map_err(D::Error::custom)
            })+
        }
    };
}

/// The parsers by name.
mod parse {
    pub(super) use super::deadline;
    pub(super) use habitat_planning::values::{bytes, count, kilograms, samples, usd, usd_per_hour, whole};
}

readers!(samples Samples, whole u64, count f64, deadline Deadline, usd Usd, usd_per_hour UsdPerHour, kilograms KilogramsCo2e, bytes Bytes);

/// A value of a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or a text as it is typed")]
enum Typed {
    Text(String),
    Whole(i64),
    Number(f64),
}

impl Wish {
    /// The keys that belong to one job and are given here.
    pub(super) fn of_one_job(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("samples", self.samples.is_some()),
            ("steps", self.steps.is_some()),
            ("epochs", self.epochs.is_some()),
            ("dataset", self.dataset.is_some()),
            ("tokens", self.tokens.is_some()),
            ("global_batch", self.global_batch.is_some()),
            ("deadline", self.deadline.is_some()),
            ("budget", self.budget.is_some()),
            ("gpus", !self.gpus.is_empty()),
            ("exclude_gpus", !self.exclude_gpus.is_empty()),
            ("offers", !self.offers.is_empty()),
            ("min_gpus", self.min_gpus.is_some()),
            ("max_gpus", self.max_gpus.is_some()),
            ("tensor_parallel", self.tensor_parallel.is_some()),
            ("pipeline_parallel", self.pipeline_parallel.is_some()),
            ("min_vcpus", self.min_vcpus.is_some()),
            ("min_host_memory", self.min_host_memory.is_some()),
            ("data_gb", self.data_gb.is_some()),
            ("data_at", self.data_at.is_some()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }

    /// The keys that choose among offers to rent and are given here.
    pub(super) fn of_offers(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("budget", self.budget.is_some()),
            ("max_usd_per_hour", self.max_price.is_some()),
            ("max_co2_kg", self.max_co2_kg.is_some()),
            ("tiers", self.tiers.is_some()),
            ("accept", self.accept.is_some()),
            ("providers", self.providers.is_some()),
            ("exclude_providers", self.exclude_providers.is_some()),
            ("regions", self.regions.is_some()),
            ("exclude_regions", self.exclude_regions.is_some()),
            ("offers", !self.offers.is_empty()),
            ("no_marketplace", self.no_marketplace),
            ("max_machines", self.max_machines.is_some()),
            ("network_gbit_per_second", self.network.is_some()),
            ("min_vcpus", self.min_vcpus.is_some()),
            ("min_host_memory", self.min_host_memory.is_some()),
            ("data_gb", self.data_gb.is_some()),
            ("data_gbit_per_second", self.data_rate.is_some()),
            ("quota", !self.quota.is_empty()),
        ];
        given.into_iter().filter(|(_, given)| *given).map(|(key, _)| key)
    }

    /// What of the settings holds for machines that are there as well.
    #[must_use]
    pub fn for_machines(&self) -> Self {
        Self {
            allow_unknown_memory: self.allow_unknown_memory,
            checkpoint_interval: self.checkpoint_interval,
            scaling_factor: self.scaling_factor,
            ..Self::default()
        }
    }

    /// What makes it no wish at all, which the command line refuses by itself.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let works = [self.samples.is_some(), self.steps.is_some(), self.epochs.is_some(), self.tokens.is_some()];
        let rate = |rate: Option<f64>| rate.is_some_and(|rate| !rate.is_finite() || rate < 0.0);
        let problem = if works.into_iter().filter(|given| *given).count() > 1 {
            ("work", "only one of samples, steps, epochs and tokens can be given")
        } else if self.epochs.is_some() != self.dataset.is_some() {
            ("epochs", "epochs and dataset go together: passes, and the samples of one")
        } else if self.quota.iter().any(|quota| !quota.is_lasting()) {
            ("quota", "from_hours and until_hours are only for a [[quota]] at the top of a file of jobs")
        } else if self.data_gb.is_none() && self.data_at.is_some() {
            ("data_at", "it goes with data_gb: how much there is")
        } else if self.min_vcpus == Some(0) {
            ("min_vcpus", "it must be 1 or more")
        } else if self.max_parts.is_some_and(|parts| !(1..=3).contains(&parts)) {
            ("max_parts", "it must be 1, 2 or 3")
        } else if rate(self.spot_losses_per_hour) {
            ("spot_losses_per_hour", "it must be a finite number of 0 or more")
        } else if rate(self.scaling_factor) {
            ("scaling_factor", "it must be a finite number of 0 or more")
        } else if self.max_machines.is_some_and(|machines| !(1..=most::MACHINES).contains(&machines)) {
            ("max_machines", "it must be 1 to 1024")
        } else if self.network.is_some_and(|rate| !(rate > 0.0 && rate <= most::NETWORK_GBIT)) {
            ("network_gbit_per_second", "it must be a number above 0 and at most 1e6")
        } else if self.data_rate.is_some_and(|rate| !(rate > 0.0 && rate <= most::NETWORK_GBIT)) {
            ("data_gbit_per_second", "it must be a number above 0 and at most 1e6")
        } else if self.tensor_parallel.is_some_and(|gpus| !(1..=most::REPLICA).contains(&gpus)) {
            ("tensor_parallel", "it must be 1 to 1024")
        } else if self.pipeline_parallel.is_some_and(|stages| !(1..=most::REPLICA).contains(&stages)) {
            ("pipeline_parallel", "it must be 1 to 1024")
        } else {
            return Ok(());
        };
        Err(problem)
    }

    /// The amount of work; `None` where none is given.
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

    /// Puts what is wished into a goal: everything but the work, a deadline that is a date, which
    /// depends on the clock, and the GPUs, whose names only a catalog knows.
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
        set(&mut assumptions.checkpoint_interval, self.checkpoint_interval.as_ref());
        assumptions.network_gbit_per_second = self.network.or(assumptions.network_gbit_per_second);
        assumptions.data_gbit_per_second = self.data_rate.or(assumptions.data_gbit_per_second);
        assumptions.scaling_factor = self.scaling_factor.or(assumptions.scaling_factor);
    }
}
