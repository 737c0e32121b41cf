//! Default assumptions, and their limits.

use super::goal::{Assumptions, Confidence, FAILURES, Goal, LayoutChoice, Limits, Objective, ShardingChoice, Work};
use super::{Accept, PlanError};
use crate::pricing::Tier;
use habitat_base::units::{Bytes, Hours, most};
use habitat_prediction::scale::{LayoutFactors, ModelParallel};

impl Default for Assumptions {
    /// Uses [`crate::pricing::spot`] for losses of spot machines and waits for them.
    fn default() -> Self {
        Self {
            setup: Hours::known(0.1),
            spot_losses_per_hour: None,
            failures_per_gpu_hour: FAILURES,
            // √(2ω/λ) = 0.26 h at 0.5 losses per hour.
            checkpoint_interval: Hours::known(0.25),
            checkpoint_write: None,
            restart: Hours::known(0.2),
            wait: None,
            spot_confidence: 0.95,
            scaling_factor: None,
            layout_factors: None,
            network_gbit_per_second: None,
            data_gbit_per_second: None,
        }
    }
}

/// Rate of copying data between providers, Gbit/s (a choice).
const DATA_GBIT: f64 = 1.0;

/// Time of writing a small checkpoint, hours (a guess, not measured: 1 minute).
const LEAST_WRITE: f64 = 1.0 / 60.0;
/// Rate at which a machine writes a large one, bytes per second: 2 TB/s of sustained storage for 3,072 machines with
/// 24,576 GPUs ("The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.1).
const STORAGE: f64 = 0.65e9;

impl Assumptions {
    /// Time of writing a checkpoint of this size from all machines (ω).
    pub(super) fn write(&self, size: Option<Bytes>, machines: u32) -> Hours {
        let each = size.map_or(0.0, |size| size.get() / f64::from(machines.max(1)));
        self.checkpoint_write.unwrap_or_else(|| Hours::known((each / STORAGE / 3600.0).max(LEAST_WRITE)))
    }

    /// Rate of copying data to the place of work, Gbit/s.
    pub fn data_rate(&self) -> f64 {
        self.data_gbit_per_second.unwrap_or(DATA_GBIT)
    }
}

impl Goal {
    /// Accepts another global batch than the recorded one if the user lists batch sizes per GPU without a global batch.
    #[must_use]
    pub fn with_sizes(mut self, are_named: bool) -> Self {
        let accept = &mut self.limits.accept;
        if are_named && self.global_batch.is_none() && !accept.contains(&Accept::Batch) {
            accept.push(Accept::Batch);
        }
        self
    }

    /// Goal restricted to firm offers.
    pub fn firm(work: Work) -> Self {
        let mut goal = Self::new(work);
        goal.limits.accept.clear();
        goal
    }

    /// Goal of the cheapest single offer for `work`, without limits.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            global_batch: None,
            deadline: None,
            budget: None,
            objective: Objective::Cost,
            confidence: Confidence::High,
            max_parts: 1,
            sharding: ShardingChoice::default(),
            model_parallel: ModelParallel::NONE,
            layout: LayoutChoice::default(),
            limits: Limits::default(),
            data: None,
            assumptions: Assumptions::default(),
        }
    }
}

impl Default for Limits {
    /// Allows and accepts all offers on which the step is known to fit in memory.
    fn default() -> Self {
        Self {
            tiers: Tier::ALL.to_vec(),
            accept: Accept::ALL.to_vec(),
            gpus: Vec::new(),
            providers: Vec::new(),
            exclude_providers: Vec::new(),
            exclude_gpus: Vec::new(),
            regions: Vec::new(),
            exclude_regions: Vec::new(),
            offers: Vec::new(),
            min_gpus: 1,
            max_gpus: None,
            max_machines: 1,
            max_price: None,
            max_co2: None,
            no_marketplace: false,
            allow_unknown_memory: false,
            min_vcpus: None,
            min_host_memory: None,
            allow_unknown_host: false,
            quotas: Vec::new(),
        }
    }
}

/// Checks the range of assumptions that are plain numbers or divisors.
///
/// # Errors
/// [`PlanError::Assumption`] for a value out of range.
pub(crate) fn check_assumptions(assumptions: &Assumptions) -> Result<(), PlanError> {
    let wrong = |name, value, expected| Err(PlanError::Assumption { name, value, expected });
    let losses = assumptions.spot_losses_per_hour.unwrap_or_default();
    for (name, rate) in [("spot losses per hour", losses), ("failures per GPU-hour", assumptions.failures_per_gpu_hour)]
    {
        if !(0.0..=1e4).contains(&rate) {
            return wrong(name, rate, "between 0 and 10,000");
        }
    }
    let interval = assumptions.checkpoint_interval.get();
    if interval <= 0.0 {
        return wrong("checkpoint interval", interval, "more than 0 hours");
    }
    for (name, hours) in [
        ("setup", assumptions.setup),
        ("checkpoint interval", assumptions.checkpoint_interval),
        ("checkpoint write", assumptions.checkpoint_write.unwrap_or_default()),
        ("restart after a loss", assumptions.restart),
        ("wait for spot capacity", assumptions.wait.unwrap_or_default()),
    ] {
        if hours.get() > 1e6 {
            return wrong(name, hours.get(), "at most 1,000,000 hours");
        }
    }
    let confidence = assumptions.spot_confidence;
    if !(confidence > 0.0 && confidence < 1.0) {
        return wrong("spot confidence", confidence, "between 0 and 1, both excluded");
    }
    let scaling = assumptions.scaling_factor.unwrap_or(1.0);
    if !(0.0..=most::SCALING).contains(&scaling) {
        return wrong("scaling factor", scaling, "between 0 and 1,000");
    }
    let LayoutFactors { compute, exchange } = assumptions.layout_factors.unwrap_or(LayoutFactors::NONE);
    let [least, most] = LayoutFactors::ENDS;
    let factors = [("operations factor", compute), ("exchange factor", exchange)];
    if let Some((name, factor)) = factors.into_iter().find(|(_, factor)| !(least..=most).contains(factor)) {
        return wrong(name, factor, "0.1 to 10");
    }
    for (name, rate) in [
        ("network between machines", assumptions.network_gbit_per_second.unwrap_or(1.0)),
        ("transfer of the data", assumptions.data_rate()),
    ] {
        if !(rate > 0.0 && rate <= most::NETWORK_GBIT) {
            return wrong(name, rate, "above 0 and at most 1,000,000 Gbit/s");
        }
    }
    Ok(())
}
