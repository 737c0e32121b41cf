//! Steps on several machines from the step on fewer of them, against published pairs with full sharding. The tables do
//! not name the machines' networks, so several are assumed.

use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::scale::{Factors, Layout, MicroBatch, Network, optimizer_step};
use habitat_tui::predict::{Estimate, GpuFacts, Method, Precision, Sharding};
use habitat_tui::profile::{Mode, Workload};
use habitat_tui::units::{Micros, Range};

use super::tally::{Evaluation, Groups, Predicted};

/// Header of the table (`models/lab/steps/scaling.py --machines`).
pub(super) const COLUMNS: &str =
    "source,network,gpu,precision,batch,gpus_of_a_machine,parameters,machines,step_ms,more_machines,more_ms";
/// Assumed networks.
const NETWORKS: [(&str, Network); 4] = [
    ("network not known", Network::Unknown),
    ("100 Gbit/s assumed", Network::Rate(100.0)),
    ("400 Gbit/s assumed", Network::Rate(400.0)),
    ("1,600 Gbit/s assumed", Network::Rate(1600.0)),
];

/// Training of a network with this many parameters; `None` if they are not a number.
pub(super) fn training(network: &str, parameters: &str, precision: Option<Precision>) -> Option<Workload> {
    Some(Workload {
        name: network.to_owned(),
        mode: Mode::Training,
        batch_size: None,
        micro_batches: None,
        sequence_length: None,
        precision,
        parameter_count: Some(parameters.parse().ok()?),
    })
}

struct Pair {
    network: String,
    gpu: GpuFacts,
    gpus: u32,
    workload: Workload,
    /// Machines, and the step on them.
    few: (u32, Micros),
    many: (u32, Micros),
}

fn pair(line: &str, catalog: &Catalog) -> Option<Pair> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, network, gpu, _, _, gpus, parameters, few, few_ms, many, many_ms] = fields[..] else { return None };
    let millis = |text: &str| text.parse().ok().and_then(|millis| Micros::from_millis(millis).ok());
    Some(Pair {
        network: network.to_owned(),
        gpu: GpuFacts::new(&Rates::from(catalog.find(gpu).ok()?)),
        gpus: gpus.parse().ok()?,
        // All of them transfer BF16.
        workload: training(network, parameters, Some(Precision::Bf16))?,
        few: (few.parse().ok()?, millis(few_ms)?),
        many: (many.parse().ok()?, millis(many_ms)?),
    })
}

impl Pair {
    fn on(&self, machines: u32, network: Network, single: Micros) -> Result<Range<Micros>, CliError> {
        let layout = Layout { machines, network, sharding: Sharding::Zero3, ..Layout::one_machine(self.gpus) };
        let single = Estimate::with_band(single, 0.0, Method::Measured);
        let one = MicroBatch { step: &single, update: Micros::ZERO, batch: None, model: None, data: None };
        let scaled = optimizer_step(&one, &self.gpu, &layout, &self.workload, Factors::default(), 1);
        Ok(scaled.map_err(CliError::other)?.step.range)
    }

    /// The single-GPU step that gives the step on the few machines; `None` if the model's extra time alone is longer.
    fn single(&self, network: Network) -> Result<Option<Micros>, CliError> {
        let (machines, measured) = self.few;
        let (mut low, mut high) = (Micros::ZERO, measured);
        for _ in 0..60 {
            let middle = (low + high) * 0.5;
            let is_below = self.on(machines, network, middle)?.mid.get() < measured.get();
            (low, high) = if is_below { (middle, high) } else { (low, middle) };
        }
        Ok(Some(high).filter(|single| single.get() > 0.01 * measured.get()))
    }
}

/// Throughputs of a GPU on more machines, by source, network and number of machines.
pub(super) fn evaluate(text: &str, file: &Path, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for (line, number) in text.lines().zip(1..).skip(1) {
        let wrong = || CliError::Refused(format!("{}:{number}: not a pair of steps", file.display()));
        let pair = pair(line, catalog).ok_or_else(wrong)?;
        let measured = 1.0 / pair.many.1.get();
        let label = || format!("{} on {} × {} × {}", pair.network, pair.many.0, pair.gpus, pair.gpu.slug);
        for group in ["all pairs".to_owned(), format!("network {}", pair.network), format!("{} machines", pair.many.0)]
        {
            let linear = Predicted { mid: 1.0 / pair.few.1.get(), range: None };
            groups.add(&group, "linear", linear, measured, &label);
            for (name, network) in NETWORKS {
                let Some(single) = pair.single(network)? else { continue };
                let Range { low, mid, high } = pair.on(pair.many.0, network, single)?;
                let range = Some([1.0 / high.get(), 1.0 / low.get()]);
                groups.add(&group, name, Predicted { mid: 1.0 / mid.get(), range }, measured, &label);
            }
        }
    }
    let protocol = "relative errors of the throughput of several machines from the step on fewer of them, full sharding, the same batch on each GPU; the tables do not say how fast the networks are";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}
