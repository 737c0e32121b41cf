//! Measured steps of a language model's layouts, and the factors for its other layouts.

use std::io::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cli::error::{At, CliError};
use crate::cli::gpu;
use crate::cli::input::Loaded;
use crate::cli::options::options;
use crate::cli::output::print_json;
use crate::settings::args::{CalibrateScalingArgs, InputArgs};
use crate::store::{Limit, Paths, read_text};
use habitat_base::units::{Micros, most};
use habitat_prediction::scale::{Factors, Layout, LayoutFactors, ModelParallel, Network, fit_layouts, optimizer_step};
use habitat_prediction::{Mode, Options, Prediction, Sharding, Workload, predict};
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::words::Words;
use habitat_step::catalog::Catalog;

/// A line of the table. Empty cells are as without the column.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    machines: u32,
    gpus: u32,
    step_ms: f64,
    tensor: Option<u32>,
    pipeline: Option<u32>,
    chunks: Option<u32>,
    context: Option<u32>,
    expert: Option<u32>,
    sharding: Option<Sharding>,
    recompute: Option<bool>,
    global_batch: Option<u64>,
    network_gbit: Option<f64>,
}

/// JSON form (`habitat-layout-factors`, version 1).
#[derive(Serialize)]
struct FactorsJson {
    format: &'static str,
    version: u32,
    gpu: String,
    #[serde(flatten)]
    factors: LayoutFactors,
    runs: Vec<Compared>,
}

/// Steps of a run in milliseconds.
#[derive(Serialize)]
struct Compared {
    layout: String,
    measured_ms: f64,
    predicted_ms: f64,
    corrected_ms: f64,
}

impl Run {
    fn layout(&self) -> Layout {
        let or_one = |degree: Option<u32>| degree.unwrap_or(1);
        Layout {
            machines: self.machines,
            gpus: self.gpus,
            cpus: None,
            network: Network::new(self.network_gbit, None),
            sharding: self.sharding.unwrap_or_default(),
            parallel: ModelParallel {
                tensor: or_one(self.tensor),
                pipeline: or_one(self.pipeline),
                context: or_one(self.context),
                chunks: or_one(self.chunks),
                expert: or_one(self.expert),
                recompute: self.recompute.unwrap_or(false),
            },
        }
    }

    /// The problem of a line, with its column.
    fn problem(&self, workload: &Workload) -> Option<String> {
        let degrees = [self.tensor, self.pipeline, self.chunks, self.context, self.expert];
        let is_count = |count: u32, most: u64| (1..=most).contains(&u64::from(count));
        if !(is_count(self.machines, most::MACHINES.into()) && is_count(self.gpus, most::GPUS.into())) {
            return Some(format!("machines and gpus are {} and {}; both must be 1 or more", self.machines, self.gpus));
        }
        if degrees.into_iter().flatten().any(|degree| !is_count(degree, most::REPLICA.into())) {
            return Some(format!("tensor, pipeline, chunks, context and expert must be 1 to {}", most::REPLICA));
        }
        if self.network_gbit.is_some_and(|rate| !(rate > 0.0 && rate <= most::NETWORK_GBIT)) {
            return Some("network_gbit must be above 0 and at most 1,000,000".to_owned());
        }
        let whole = u64::from(self.layout().replicas().max(1)) * workload.batch_size.unwrap_or(1);
        let global = self.global_batch.filter(|global| *global == 0 || !global.is_multiple_of(whole));
        global.map(|global| format!("global_batch {global} is not a multiple of {whole}, the batch times the replicas"))
    }

    /// Every column in which runs may differ.
    fn words(&self) -> String {
        let Layout { machines, gpus, sharding, parallel, .. } = self.layout();
        let words = [
            Some(if machines > 1 { format!("{machines} × {gpus} GPUs") } else { format!("{gpus} GPUs") }),
            (!parallel.is_none()).then(|| parallel.words()),
            (parallel.is_none() || sharding != Sharding::None).then(|| sharding.name().to_owned()),
            self.global_batch.map(|batch| format!("global batch {batch}")),
            self.network_gbit.map(|rate| format!("{rate} Gbit/s")),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn batches(&self, workload: &Workload) -> u64 {
        let whole = u64::from(self.layout().replicas().max(1)) * workload.batch_size.unwrap_or(1);
        self.global_batch.map_or(1, |global| (global / whole.max(1)).max(1))
    }
}

/// Lines of a table, each with its step.
fn read(table: &Path, workload: &Workload) -> Result<Vec<(Run, Micros)>, CliError> {
    let text = read_text(table, Limit::TABLE)?;
    let mut runs = Vec::new();
    for (place, line) in csv::Reader::from_reader(text.as_bytes()).deserialize::<Run>().enumerate() {
        let refused = |why: String| CliError::Refused(format!("{}, run {}: {why}", table.display(), place + 1));
        let run = line.map_err(|error| refused(error.to_string()))?;
        if let Some(problem) = run.problem(workload) {
            return Err(refused(problem));
        }
        let step = Micros::from_millis(run.step_ms).ok().filter(|step| step.get() > 0.0);
        let step = step.ok_or_else(|| refused(format!("step_ms is {}; it must be above 0", run.step_ms)))?;
        runs.push((run, step));
    }
    if runs.is_empty() {
        return Err(CliError::Refused(format!(
            "{} has no run; add a line with machines, gpus and step_ms",
            table.display()
        )));
    }
    Ok(runs)
}

/// Step of a run with factors.
fn step(
    run: &Run,
    prediction: &Prediction,
    workload: &Workload,
    layouts: Option<LayoutFactors>,
) -> Result<Micros, habitat_prediction::scale::ScaleError> {
    let single = prediction.planning_step();
    let micro = prediction.micro_batch(&single, workload.batch_size, prediction.data.as_ref());
    let factors = Factors { scaling: None, layouts };
    let scaled = optimizer_step(&micro, &prediction.gpu, &run.layout(), workload, factors, run.batches(workload))?;
    Ok(scaled.step.range.mid)
}

pub(super) fn run(
    args: &CalibrateScalingArgs,
    table: &Path,
    loaded: &Loaded,
    catalog: &Catalog,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let to = args.to.as_deref().unwrap_or_default();
    let to = gpu::one(catalog, "--to", to)?.slug.to_string();
    let input = InputArgs { file: Some(args.file.clone()), recorded: args.recorded.clone(), ..InputArgs::default() };
    let options = Options { precision: args.precision, ..options(&input, &[to], catalog, &Paths::find())? };
    let answer = predict(&loaded.profile, catalog, &options).map_err(CliError::other)?;
    let refused = |why: &str| CliError::Refused(why.to_owned());
    let prediction = answer.predictions.first().ok_or_else(|| refused("no prediction for this GPU"))?;
    let workload = &answer.workload;
    if workload.mode == Mode::Inference || prediction.transformer.is_none() {
        return Err(refused("--runs needs the training step of a language model; leave it out for other networks"))
            .at(&loaded.label);
    }
    let runs = read(table, workload)?;
    let measured: Vec<Micros> = runs.iter().map(|(_, step)| *step).collect();
    let of = |place: usize, factors| step(&runs[place].0, prediction, workload, factors);
    for (place, (run, _)) in runs.iter().enumerate() {
        let refused = |why: String| CliError::Refused(format!("{}, run {}: {why}", table.display(), place + 1));
        of(place, None).map_err(|error| refused(error.to_string()))?;
        if run.layout().all() < 2 {
            return Err(refused("one GPU; a run needs two".to_owned()));
        }
    }
    let factors = fit_layouts(&measured, |place, factors| of(place, Some(factors))).map_err(CliError::other)?;
    if [factors.compute, factors.exchange].iter().any(|factor| LayoutFactors::ENDS.contains(factor)) {
        return Err(refused(
            "a measured step is more than 10 times from the predicted one: check the batch, the sequence length, the GPUs and the layout",
        ));
    }
    let compare = |place: usize| {
        let [predicted, corrected] = [None, Some(factors)].map(|factors| of(place, factors).unwrap_or_default());
        Compared {
            layout: runs[place].0.words(),
            measured_ms: measured[place].as_millis(),
            predicted_ms: predicted.as_millis(),
            corrected_ms: corrected.as_millis(),
        }
    };
    let told = FactorsJson {
        format: "habitat-layout-factors",
        version: 1,
        gpu: prediction.gpu.slug.to_string(),
        factors,
        runs: (0..runs.len()).map(compare).collect(),
    };
    if args.json {
        return print_json(&told, out);
    }
    write(&told, out)?;
    Ok(0)
}

fn write(told: &FactorsJson, out: &mut dyn Write) -> Result<(), CliError> {
    let mut shown = Table::new(&[
        Column::text("layout", "layout"),
        Column::number("measured", "measured_ms"),
        Column::number("predicted", "predicted_ms"),
        Column::number("corrected", "corrected_ms"),
    ]);
    let time = |millis: f64| Cell::new(format!("{millis:.0} ms"), millis);
    for Compared { layout, measured_ms, predicted_ms, corrected_ms } in &told.runs {
        shown.push(vec![Cell::text(layout), time(*measured_ms), time(*predicted_ms), time(*corrected_ms)]);
    }
    shown.write_text(out)?;
    let LayoutFactors { compute, exchange } = told.factors;
    writeln!(
        out,
        "\nFor plans of this model on these machines: --layout-factors {compute:.3},{exchange:.3}, or layout_factors = {{ compute = {compute:.3}, exchange = {exchange:.3} }} under [plan] in the settings.",
    )?;
    if told.runs.len() == 1 {
        writeln!(out, "One run gives one factor for both; several layouts separate operations and exchange.")?;
    }
    Ok(())
}
