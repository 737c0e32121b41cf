//! Words for the assumptions of a plan, with their sources.

use super::Words;
use super::price::spot_regions;
use habitat_base::units::Hours;
use habitat_planning::plan::{Assumptions, FAILURES, Goal, MANY_GPUS, PUE, WITH_REST};
use habitat_planning::pricing::spot::{MOST_GPUS, SpotMachine, WAIT};
use habitat_prediction::scale::LayoutFactors;

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

/// Time to write a checkpoint.
fn checkpoint_write(of: &Assumptions) -> Assumed {
    let (value, source) = match of.checkpoint_write {
        Some(hours) => (format!("{} h", trimmed(hours.get())), SET),
        None => (
            "1 minute, or its size at 0.65 GB/s a machine if that is longer".to_owned(),
            "1 minute is a guess; 2 TB/s of storage for 3,072 machines (arXiv:2407.21783, section 3.3.1)",
        ),
    };
    Assumed { name: "checkpoint write", value, source }
}

/// All assumptions with value, unit and source, including the network if machines may be joined.
pub fn assumed(goal: &Goal) -> Vec<Assumed> {
    let mut all = described(&goal.assumptions);
    all.extend([
        Assumed {
            name: "power",
            value: format!("power limit of the GPUs × {}", trimmed(WITH_REST)),
            source: "at most 8.4 kW measured in training on a node of 8 H100 of 700 W, arXiv:2412.08602; set kw for own machines",
        },
        Assumed {
            name: "PUE",
            value: format!("{} unless the provider's is known", trimmed(PUE)),
            source: "average of the Uptime Institute's Global Data Center Survey 2024; set pue in a price file",
        },
        Assumed {
            name: "emissions",
            value: "yearly average of the country or US state".to_owned(),
            source: "Our World in Data 2022 and 2023, life cycle of power plants; EPA eGRID2023, stack emissions; set kg_co2_per_kwh in a price file",
        },
    ]);
    if goal.data.is_some() {
        all.push(Assumed {
            name: "transfer of the data",
            value: format!("{} Gbit/s before the first step, while the machine is paid", trimmed(goal.assumptions.data_rate())),
            source: if goal.assumptions.data_gbit_per_second.is_some() {
                SET
            } else {
                "a guess, not measured; an AWS machine sends at most 5 Gbit/s to the Internet, a Google machine 7 (Skyplane, NSDI 2023)"
            },
        });
    }
    if !goal.model_parallel.is_none() {
        all.push(Assumed {
            name: "model parallel",
            value: goal.model_parallel.words(),
            source: "set by the user; times from the formulas of arXiv:1909.08053, 2104.04473 and 2205.05198, not validated by measurements",
        });
    }
    all.extend(goal.assumptions.layout_factors.map(|LayoutFactors { compute, exchange }| Assumed {
        name: "layouts of language models",
        value: format!("{} × the operations, {} × the exchange", trimmed(compute), trimmed(exchange)),
        source: SET,
    }));
    if goal.limits.max_machines > 1 {
        let own = goal.assumptions.network_gbit_per_second;
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

/// Losses of spot machines.
fn spot_losses(of: &Assumptions) -> Assumed {
    let losses = |gpus| trimmed((SpotMachine::typical(gpus).per_hour * 100.0).round() / 100.0);
    let (value, source) = match of.spot_losses_per_hour {
        Some(rate) => (format!("{} per hour and machine", trimmed(rate)), SET),
        None => (
            format!(
                "{} per hour and machine of 1 GPU, {} with {MOST_GPUS}; in {} as measured there",
                losses(1),
                losses(MOST_GPUS),
                spot_regions()
            ),
            "measured: mean 0.51 (0.31 to 0.74) of one V100 in four AWS zones, April 2023; times GPUs^0.48 (1.5 to 3.6 times with 8 GPUs in two zones, October 2022), skypilot-org/spot-traces",
        ),
    };
    Assumed { name: "spot losses", value, source }
}

/// All assumptions with value, unit and source, in a fixed order.
fn described(of: &Assumptions) -> Vec<Assumed> {
    let default = Assumptions::default();
    let hours = |name, now: Hours, usual: Hours, source| Assumed {
        name,
        value: format!("{} h", trimmed(now.get())),
        source: if now == usual { source } else { SET },
    };
    vec![
        hours(
            "setup",
            of.setup,
            default.setup,
            "a guess, not measured: boot, image and data in 6 minutes; no set-up on owned machines",
        ),
        spot_losses(of),
        Assumed {
            name: "failures",
            value: format!("{} per hour and GPU, from {MANY_GPUS} GPUs on", of.failures_per_gpu_hour),
            source: if (of.failures_per_gpu_hour - FAILURES).abs() < f64::EPSILON {
                "published: 1.2 to 3.4 in 100,000 hours of a GPU (arXiv:2407.21783, arXiv:2410.21680); checkpoints every sqrt(2 x checkpoint write / failures)"
            } else {
                SET
            },
        },
        hours(
            "checkpoint interval",
            of.checkpoint_interval,
            default.checkpoint_interval,
            "sqrt(2 x checkpoint write / spot losses) of the defaults, rounded; only for spot machines",
        ),
        checkpoint_write(of),
        hours(
            "restart after a loss",
            of.restart,
            default.restart,
            "restart overhead simulated in \"Can't Be Late\" (NSDI 2024)",
        ),
        Assumed {
            name: "wait for spot capacity",
            value: of.wait.map_or_else(
                || format!("{} h; in {} as measured there", trimmed(WAIT), spot_regions()),
                |wait| format!("{} h", trimmed(wait.get())),
            ),
            source: if of.wait.is_some() {
                SET
            } else {
                "measured: median of the mean waits of one V100 in four AWS zones, April 2023, skypilot-org/spot-traces"
            },
        },
        Assumed {
            name: "spot confidence",
            value: format!("{} %", trimmed(of.spot_confidence * 100.0)),
            source: if of.spot_confidence.total_cmp(&default.spot_confidence).is_eq() {
                "a choice; at 95 %: two losses plus 1.5 times the expected number, with five mean waits each; chosen on traces of one V100 in four AWS zones, so that every replayed run ends in time (habitat-lab evaluate spot)"
            } else {
                SET
            },
        },
        Assumed {
            name: "several GPUs",
            value: of
                .scaling_factor
                .map_or_else(|| "as modelled".to_owned(), |factor| format!("{} × the model", trimmed(factor))),
            source: if of.scaling_factor.is_some() {
                SET
            } else {
                "fitted to 508 published pairs of one and several GPUs (habitat-lab evaluate scaling)"
            },
        },
    ]
}

/// Number with at most four decimals, without trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_names_a_source_and_a_change_is_the_users() {
        assert!(described(&Assumptions::default()).iter().all(|a| a.source != SET && !a.value.is_empty()));
        let changed =
            Assumptions { spot_losses_per_hour: Some(0.1), setup: Hours::known(0.5), ..Assumptions::default() };
        let set: Vec<_> = described(&changed).into_iter().filter(|a| a.source == SET).collect();
        assert_eq!(set.iter().map(|a| a.name).collect::<Vec<_>>(), ["setup", "spot losses"]);
        assert_eq!(set[1].value, "0.1 per hour and machine");
    }
}
