//! Steps on several GPUs of one machine from the step on one, against published pairs, beside
//! linear scaling; and with one measured pair of the same job on two GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::rate::Rates;
use habitat_tui::predict::scale::{Factors, Layout, MicroBatch, optimizer_step, scaling_factor};
use habitat_tui::predict::{Estimate, GpuFacts, Method};
use habitat_tui::profile::Workload;
use habitat_tui::store::{Limit, read_text};
use habitat_tui::units::Micros;

use super::machines;
use super::tally::{Evaluation, Groups, Predicted};

/// A row of the table that models/lab/steps/scaling.py writes.
struct Pair {
    source: String,
    network: String,
    /// Network, GPU, precision and batch.
    job: String,
    gpu: GpuFacts,
    gpus: u32,
    workload: Workload,
    on_one: Micros,
    on_several: Micros,
    fitted: bool,
}

const COLUMNS: &str = "source,network,gpu,precision,batch,gpus,parameters,one_gpu_ms,step_ms,fitted";

fn read(text: &str, file: &Path, catalog: &Catalog) -> Result<Vec<Pair>, CliError> {
    let wrong = |line: usize, what: &str| CliError::Refused(format!("{}:{line}: {what}", file.display()));
    let mut lines = text.lines().zip(1..);
    if lines.next().is_none_or(|(head, _)| head != COLUMNS) {
        return Err(wrong(1, &format!("the columns are not {COLUMNS}, nor {}", machines::COLUMNS)));
    }
    lines.map(|(text, line)| pair(text, catalog).ok_or_else(|| wrong(line, "not a pair of steps"))).collect()
}

fn pair(line: &str, catalog: &Catalog) -> Option<Pair> {
    let fields: Vec<&str> = line.split(',').collect();
    let [source, network, gpu, precision, batch, gpus, parameters, on_one, on_several, fitted] = fields[..] else {
        return None;
    };
    let millis = |text: &str| text.parse().ok().and_then(|millis| Micros::from_millis(millis).ok());
    let spec = catalog.find(gpu).ok()?;
    Some(Pair {
        source: source.to_owned(),
        network: network.to_owned(),
        job: format!("{source} {network} {gpu} {precision} {batch} {on_one}"),
        gpu: GpuFacts::new(&Rates::from(spec)),
        gpus: gpus.parse().ok()?,
        workload: machines::training(network, parameters, None)?,
        on_one: millis(on_one)?,
        on_several: millis(on_several)?,
        fitted: fitted == "1",
    })
}

/// Throughputs, by source, network, GPU and number of GPUs; of machines, for a table of these.
pub(super) fn evaluate(file: &Path, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let text = read_text(file, Limit::TABLE)?;
    if text.lines().next() == Some(machines::COLUMNS) {
        return machines::evaluate(&text, file, catalog);
    }
    let pairs = read(&text, file, catalog)?;
    let twos: BTreeMap<&str, &Pair> =
        pairs.iter().filter(|pair| pair.gpus == 2).map(|pair| (&*pair.job, pair)).collect();
    let mut groups = Groups::default();
    for pair in &pairs {
        let single = Estimate::with_band(pair.on_one, 0.0, Method::Measured);
        let label = || format!("{} on {} × {}", pair.network, pair.gpus, pair.gpu.slug);
        let fit = if pair.fitted { "pairs fitted to" } else { "pairs not fitted to" };
        let known = twos.get(&*pair.job).filter(|_| pair.gpus > 2);
        let factor = known.map(|two| scaling_factor([two.on_one, two.on_several], &two.gpu, 2, &two.workload));
        let factor = factor.transpose().map_err(CliError::other)?;
        for group in [
            fit.to_owned(),
            pair.source.clone(),
            format!("network {}", pair.network),
            format!("GPU {}", pair.gpu.slug),
            format!("{} GPUs", pair.gpus),
        ] {
            let mut add = |method: &str, predicted: Predicted| {
                groups.add(&group, method, predicted, 1.0 / pair.on_several.get(), &label);
            };
            let scaled = |factor| -> Result<Predicted, CliError> {
                let one = MicroBatch { step: &single, update: Micros::ZERO, batch: None, model: None, data: None };
                let layout = Layout::one_machine(pair.gpus);
                let scaled = optimizer_step(
                    &one,
                    &pair.gpu,
                    &layout,
                    &pair.workload,
                    Factors { scaling: factor, layouts: None },
                    1,
                );
                let range = scaled.map_err(CliError::other)?.step.range;
                let ends = [1.0 / range.high.get(), 1.0 / range.low.get()];
                Ok(Predicted { mid: 1.0 / range.mid.get(), range: Some(ends) })
            };
            add("model", scaled(None)?);
            add("linear", Predicted { mid: 1.0 / pair.on_one.get(), range: None });
            if let Some(factor) = factor {
                add("model, where 2 GPUs are measured", scaled(None)?);
                add("calibrated on 2 GPUs", scaled(Some(factor))?);
            }
        }
    }
    let protocol = "relative errors of the throughput of several GPUs of one machine from the step on one; \"calibrated\": more than 2 GPUs, from the same job on 1 and 2";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}
