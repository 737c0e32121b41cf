//! Default assumptions and their sources.

use super::Accept;
use super::energy;
use super::goal::{Assumptions, Confidence, Goal, Limits, Objective, ShardingChoice, Work};
use crate::pricing::Tier;
use crate::pricing::spot::{self, MOST_GPUS, SpotMachine, WAIT};
use habitat_base::units::Hours;
use habitat_prediction::scale::ModelParallel;

/// An assumption.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "AssumedJson")]
pub struct Assumed {
    /// Name of the assumption.
    pub name: &'static str,
    /// The value with its unit.
    pub value: String,
    /// Source of the value.
    pub source: &'static str,
}

const SET: &str = "set by the user";

impl Default for Assumptions {
    /// Uses [`crate::pricing::spot`] for losses of spot machines and waits for them.
    fn default() -> Self {
        Self {
            setup: Hours::known(0.1),
            spot_losses_per_hour: None,
            // √(2ω/λ) = 0.26 h at 0.5 losses per hour.
            checkpoint_interval: Hours::known(0.25),
            checkpoint_write: Hours::known(1.0 / 60.0),
            restart: Hours::known(0.2),
            wait: None,
            spot_confidence: 0.95,
            scaling_factor: None,
            network_gbit_per_second: None,
            data_gbit_per_second: None,
        }
    }
}

/// Rate of copying data between providers, Gbit/s.
const DATA_GBIT: f64 = 1.0;

impl Assumptions {
    /// Rate of copying data to the place of work, Gbit/s.
    pub(crate) fn data_rate(&self) -> f64 {
        self.data_gbit_per_second.unwrap_or(DATA_GBIT)
    }

    /// All assumptions with value, unit and source, in a fixed order.
    pub(crate) fn describe(&self) -> Vec<Assumed> {
        let default = Self::default();
        let hours = |name, now: Hours, usual: Hours, source| Assumed {
            name,
            value: format!("{} h", trimmed(now.get())),
            source: if now == usual { source } else { SET },
        };
        let there = format!("in {} as measured there", spot::regions());
        let losses = |gpus| trimmed((SpotMachine::typical(gpus).per_hour * 100.0).round() / 100.0);
        vec![
            hours(
                "setup",
                self.setup,
                default.setup,
                "a guess, not measured: boot, image and data in 6 minutes; no set-up on owned machines",
            ),
            Assumed {
                name: "spot losses",
                value: self.spot_losses_per_hour.map_or_else(
                    || {
                        format!(
                            "{} per hour and machine of 1 GPU, {} with {MOST_GPUS}; {there}",
                            losses(1),
                            losses(MOST_GPUS)
                        )
                    },
                    |rate| format!("{} per hour and machine", trimmed(rate)),
                ),
                source: if self.spot_losses_per_hour.is_some() {
                    SET
                } else {
                    "measured: mean 0.51 (0.31 to 0.74) of one V100 in four AWS zones, April 2023; times GPUs^0.48 (1.5 to 3.6 times with 8 GPUs in two zones, October 2022), skypilot-org/spot-traces"
                },
            },
            hours(
                "checkpoint interval",
                self.checkpoint_interval,
                default.checkpoint_interval,
                "sqrt(2 x checkpoint write / spot losses) of the defaults, rounded; only spot machines write checkpoints",
            ),
            hours(
                "checkpoint write",
                self.checkpoint_write,
                default.checkpoint_write,
                "a guess, not measured: 1 minute",
            ),
            hours(
                "restart after a loss",
                self.restart,
                default.restart,
                "restart overhead simulated in \"Can't Be Late\" (NSDI 2024)",
            ),
            Assumed {
                name: "wait for spot capacity",
                value: self.wait.map_or_else(
                    || format!("{} h; {there}", trimmed(WAIT)),
                    |wait| format!("{} h", trimmed(wait.get())),
                ),
                source: if self.wait.is_some() {
                    SET
                } else {
                    "measured: median of the mean waits of one V100 in four AWS zones, April 2023, skypilot-org/spot-traces"
                },
            },
            Assumed {
                name: "spot confidence",
                value: format!("{} %", trimmed(self.spot_confidence * 100.0)),
                source: if self.spot_confidence.total_cmp(&default.spot_confidence).is_eq() {
                    "a choice; at 95 %: two losses plus 1.5 times the expected number, with five mean waits each; chosen on traces of one V100 in four AWS zones, so that every replayed run ends in time (habitat-lab evaluate spot)"
                } else {
                    SET
                },
            },
            Assumed {
                name: "several GPUs",
                value: self
                    .scaling_factor
                    .map_or_else(|| "as modelled".to_owned(), |factor| format!("{} × the model", trimmed(factor))),
                source: if self.scaling_factor.is_some() {
                    SET
                } else {
                    "fitted to 508 published pairs of one and several GPUs (habitat-lab evaluate scaling)"
                },
            },
        ]
    }
}

/// Number with at most four decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

impl Goal {
    /// All assumptions with value, unit and source, including the network if machines may be joined.
    pub fn assumed(&self) -> Vec<Assumed> {
        let mut all = self.assumptions.describe();
        all.extend([
            Assumed {
                name: "power",
                value: format!("power limit of the GPUs × {}", trimmed(energy::WITH_REST)),
                source: "at most 8.4 kW measured in training on a node of 8 H100 of 700 W, arXiv:2412.08602; set kw for own machines",
            },
            Assumed {
                name: "PUE",
                value: format!("{} unless the provider's is known", trimmed(energy::PUE)),
                source: "average of the Uptime Institute's Global Data Center Survey 2024; set pue in a price file",
            },
            Assumed {
                name: "emissions",
                value: "yearly average of the country or US state".to_owned(),
                source: "Our World in Data 2022 and 2023, life cycle of power plants; EPA eGRID2023, stack emissions; set kg_co2_per_kwh in a price file",
            },
        ]);
        if self.data.is_some() {
            all.push(Assumed {
                name: "transfer of the data",
                value: format!("{} Gbit/s before the first step, while the machine is paid", trimmed(self.assumptions.data_rate())),
                source: if self.assumptions.data_gbit_per_second.is_some() {
                    SET
                } else {
                    "a guess, not measured; an AWS machine sends at most 5 Gbit/s to the Internet, a Google machine 7 (Skyplane, NSDI 2023)"
                },
            });
        }
        if !self.model_parallel.is_none() {
            all.push(Assumed {
                name: "model parallel",
                value: self.model_parallel.words(),
                source: "set by the user; times from the formulas of arXiv:1909.08053, 2104.04473 and 2205.05198, not validated by measurements",
            });
        }
        if self.limits.max_machines > 1 {
            let own = self.assumptions.network_gbit_per_second;
            all.push(Assumed {
                name: "network between machines",
                value: own.map_or_else(
                    || "10 to 100 Gbit/s, 25 expected, unless the offer has it".to_owned(),
                    |rate| format!("{} Gbit/s unless the offer has it", trimmed(rate)),
                ),
                source: if own.is_some() {
                    SET
                } else {
                    "a guess, not measured; programs reach 35 to 50 % of the line rate over TCP, 60 to 80 % with RDMA (NVIDIA/nccl issues 450 and 495, nccl-tests issues 22 and 290)"
                },
            });
        }
        all
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_names_a_source_and_a_change_is_the_users() {
        assert!(Assumptions::default().describe().iter().all(|a| a.source != SET && !a.value.is_empty()));
        let changed =
            Assumptions { spot_losses_per_hour: Some(0.1), setup: Hours::known(0.5), ..Assumptions::default() };
        let set: Vec<_> = changed.describe().into_iter().filter(|a| a.source == SET).collect();
        assert_eq!(set.iter().map(|a| a.name).collect::<Vec<_>>(), ["setup", "spot losses"]);
        assert_eq!(set[1].value, "0.1 per hour and machine");
    }
}
