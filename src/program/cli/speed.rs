//! `habitat-tui compare-speed`: the speed of a training job against the predicted one and published ones.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::error::{At, CliError};
use super::gpu;
use super::input::load;
use super::options::options;
use super::output::print_json;
use crate::settings::args::CompareSpeedArgs;
use crate::store::{self, Paths, bundled};
use habitat_base::text::grouped;
use habitat_base::units::{FlopsPerSecond, Micros, Range};
use habitat_prediction::scale::{Factors, Layout, Network, optimizer_step};
use habitat_prediction::{Method, Mode, Options, Precision, Prediction, Workload, predict};
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Table};
use habitat_reports::words::Words;
use habitat_step::catalog::Catalog;
use habitat_step::op::StepWork;
use habitat_step::profile::Profile;

/// Published rows to show.
const NEAREST: usize = 3;
/// Causes to show.
const CAUSES: usize = 2;
/// Forward passes that recomputing whole layers adds to three passes of equal work.
const RECOMPUTED: f64 = 4.0 / 3.0;
/// Steps that differ by less are alike.
const ALIKE: f64 = 1.05;
/// Ratio to the prediction below which the figures are doubted.
const DOUBTED: f64 = 0.5;
/// Slowdown of a GPU that is hot or limited in power: half of its clock.
const THROTTLED: f64 = 2.0;
/// Gbit/s of a network that programs reach over TCP.
const OVER_TCP: f64 = 25.0;

/// A published speed (`models/speeds.csv`).
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Published {
    model: String,
    parameters: f64,
    active_parameters: f64,
    gpu: String,
    gpus: u32,
    tensor: u32,
    pipeline: u32,
    context: u32,
    expert: u32,
    sequence_length: u64,
    precision: String,
    /// Of one GPU.
    tokens_per_second: f64,
    source: String,
    software: String,
}

/// A cause of a slow step, and the step that it predicts.
#[derive(Debug, Serialize)]
struct Cause {
    cause: &'static str,
    step_us: f64,
}

/// JSON form (`habitat-speed`, version 1).
#[derive(Serialize)]
struct SpeedJson {
    format: &'static str,
    version: u32,
    gpu: String,
    gpus: u32,
    measured_step_us: f64,
    /// Low, middle, high.
    expected_step_us: [f64; 3],
    /// How the middle is known.
    method: Method,
    ratio: f64,
    verdict: &'static str,
    causes: Vec<Cause>,
    published: Vec<Published>,
    layout: String,
}

pub(super) fn run(args: &CompareSpeedArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let loaded = load(&args.input, &catalog)?;
    loaded.warn();
    let recorded = || loaded.profile.origin.as_ref().and_then(|origin| origin.gpu.as_ref()).map(ToString::to_string);
    let Some(to) = args.to.clone().or_else(recorded) else {
        return Err(CliError::Refused("the recording does not name its GPU: pass --to GPU".to_owned()));
    };
    let to = gpu::one(&catalog, "--to", &to)?.slug.to_string();
    let options = options(&args.input, &[to], &catalog, &paths)?;
    let job = Job { args, profile: &loaded.profile, catalog: &catalog };
    let Expected { step, method, workload, why, gpu } = job.step(&options, 1.0, None).at(&loaded.label)?;
    let measured = job.measured(&workload, &options).at(&loaded.label)?;
    let Range { low, mid, high } = step;
    let ratio = measured / mid;
    let verdict = match () {
        () if ratio > (high / mid).max(ALIKE) => "slower than expected",
        () if ratio < (low / mid).min(1.0 / ALIKE) => "faster than expected",
        () => "as expected",
    };
    let causes = if ratio > (high / mid).max(ALIKE) { job.causes(&options, measured, mid) } else { Vec::new() };
    let published = nearest(&workload, &gpu, job.precision(&options));
    let told = SpeedJson {
        format: "habitat-speed",
        version: 1,
        gpu,
        gpus: args.machines * args.gpus,
        measured_step_us: measured.get(),
        expected_step_us: [low, mid, high].map(Micros::get),
        method,
        ratio,
        verdict,
        causes,
        published,
        layout: why,
    };
    if args.json {
        return print_json(&told, out);
    }
    let tokens = job.tokens(&workload);
    let speed = |step: Micros| match tokens {
        Some(tokens) => format!(" ({} tokens/s a GPU)", grouped(tokens / step.get() * 1e6 / f64::from(told.gpus))),
        None => String::new(),
    };
    let ranged = format!("{}–{}", format::time(low), format::time(high));
    writeln!(out, "Your step takes {}{}: {verdict}.", format::time(measured), speed(measured))?;
    writeln!(
        out,
        "{} {} × {}: {} ({ranged}){}; yours is {ratio:.2} times that.\n  {}",
        if method == Method::Measured { "Recorded, for" } else { "Predicted for" },
        told.gpus,
        told.gpu,
        format::time(mid),
        speed(mid),
        told.layout
    )?;
    if ratio < DOUBTED {
        writeln!(
            out,
            "That is hardly possible: check the batch, the sequence length, the number of GPUs and the layout."
        )?;
    }
    if !told.causes.is_empty() {
        writeln!(out, "\nWhat would explain it, nearest first:")?;
        for Cause { cause, step_us } in &told.causes {
            writeln!(out, "  {cause}: {}", format::time(Micros::known(*step_us)))?;
        }
        writeln!(
            out,
            "Or the GPU waits for data or the host: `habitat-tui attach` records a step of the running job and says what it waits for."
        )?;
    }
    if !told.published.is_empty() {
        writeln!(out, "\nPublished speeds nearest to it:")?;
        table(&told.published).write_text(out)?;
    }
    Ok(0)
}

/// The step that a job should take.
struct Expected {
    step: Range<Micros>,
    /// Measured if the recorded step is of this GPU alone.
    method: Method,
    workload: Workload,
    why: String,
    gpu: String,
}

/// A job whose speed is known.
struct Job<'a> {
    args: &'a CompareSpeedArgs,
    profile: &'a Profile,
    catalog: &'a Catalog,
}

impl Job<'_> {
    fn layout(&self) -> Layout {
        let args = self.args;
        Layout {
            machines: args.machines,
            gpus: args.gpus,
            cpus: None,
            network: Network::new(args.network_gbit, None),
            sharding: args.sharding.unwrap_or_default(),
            parallel: args.parallel(),
        }
    }

    /// Step of all GPUs, with products `slower` and another network; its workload, layout and GPU.
    fn step(&self, options: &Options, slower: f64, network: Option<Network>) -> Result<Expected, CliError> {
        let refused = |why: &str| CliError::Refused(why.to_owned());
        let answer = predict(self.profile, self.catalog, options).map_err(CliError::other)?;
        if answer.workload.mode == Mode::Inference {
            return Err(refused("it is inference; compare-speed knows training steps only"));
        }
        let prediction: &Prediction =
            answer.predictions.first().ok_or_else(|| refused("no prediction for this GPU"))?;
        let mut single = prediction.planning_step();
        single.range = single.range.map(|time| time * slower);
        let mut layout = self.layout();
        layout.network = network.unwrap_or(layout.network);
        let mut data = prediction.data;
        if let Some(data) = &mut data {
            data.alone.range = data.alone.range.map(|time| time * slower);
        }
        let micro = prediction.micro_batch(&single, answer.workload.batch_size, data.as_ref());
        let scaled = optimizer_step(
            &micro,
            &prediction.gpu,
            &layout,
            &answer.workload,
            Factors::default(),
            self.batches(&answer.workload)?,
        )
        .map_err(CliError::other)?;
        let method = if layout.all() > 1 && scaled.step.method == Method::Measured {
            Method::Derived
        } else {
            scaled.step.method
        };
        let gpu = prediction.gpu.slug.to_string();
        Ok(Expected { step: scaled.step.range, method, workload: answer.workload, why: scaled.scaling.words(), gpu })
    }

    /// Micro-batches of each replica.
    fn batches(&self, workload: &Workload) -> Result<u64, CliError> {
        let Some(global) = self.args.global_batch else { return Ok(1) };
        let batch =
            workload.batch_size.ok_or_else(|| CliError::Refused("unknown batch size; pass --batch-size".to_owned()))?;
        let each = batch.saturating_mul(u64::from(self.layout().replicas().max(1)));
        if each == 0 || !global.is_multiple_of(each) {
            return Err(CliError::Refused(format!(
                "--global-batch {global} is not a multiple of {each}, the batch times the replicas"
            )));
        }
        Ok(global / each)
    }

    /// Samples of a step on all GPUs.
    fn samples(&self, workload: &Workload) -> Option<f64> {
        let own = workload.batch_size.map(|batch| batch as f64 * f64::from(self.layout().replicas().max(1)));
        self.args.global_batch.map(|samples| samples as f64).or(own)
    }

    fn tokens(&self, workload: &Workload) -> Option<f64> {
        Some(self.samples(workload)? * workload.sequence_length? as f64)
    }

    /// Time of an update, from the speed that was measured.
    fn measured(&self, workload: &Workload, options: &Options) -> Result<Micros, CliError> {
        let refused = |why: &str| CliError::Refused(why.to_owned());
        let CompareSpeedArgs { step_ms, samples_per_second, tokens_per_second, tflops, mfu, .. } = *self.args;
        if [step_ms, samples_per_second, tokens_per_second, tflops, mfu].into_iter().flatten().any(|speed| speed <= 0.0)
        {
            return Err(refused("the speed must be above 0"));
        }
        let samples = || self.samples(workload).ok_or_else(|| refused("unknown batch size; pass --batch-size"));
        let seconds = match (step_ms, samples_per_second, tokens_per_second, tflops, mfu) {
            (Some(millis), ..) => millis / 1e3,
            (_, Some(rate), ..) => samples()? / rate,
            (_, _, Some(rate), ..) => {
                let unknown = "unknown batch or sequence length; pass --batch-size and --sequence-length";
                self.tokens(workload).ok_or_else(|| refused(unknown))? / rate
            }
            (.., None, None) => {
                return Err(refused(
                    "no speed; pass --tokens-per-second, --samples-per-second, --tflops, --mfu or --step-ms",
                ));
            }
            (.., tflops, mfu) => {
                let rate = match mfu {
                    Some(percent) => self.peak(options)? * percent / 100.0,
                    None => tflops.unwrap_or_default() * 1e12,
                };
                let each =
                    3.0 * StepWork::of(self.profile).forward.get() / workload.batch_size.unwrap_or(1).max(1) as f64;
                each * samples()? / (rate * f64::from(self.layout().all()))
            }
        };
        Micros::new(seconds * 1e6).map_err(CliError::other)
    }

    /// FLOP/s of the GPU's tensor cores in the precision of the step.
    fn peak(&self, options: &Options) -> Result<f64, CliError> {
        let target = options.targets.first();
        let peak = target.and_then(|gpu| self.catalog.find(gpu.as_str()).ok()).map(|gpu| &gpu.peak);
        let rate = peak.and_then(|peak| match self.precision(options) {
            Some(Precision::Fp8) => peak.fp8_tensor,
            Some(Precision::Fp16 | Precision::AmpFp16) => peak.fp16_tensor,
            _ => peak.bf16_tensor.or(peak.fp16_tensor),
        });
        let unknown = || CliError::Refused("the GPU's peak is unknown: pass --tflops instead of --mfu".to_owned());
        rate.map(FlopsPerSecond::get).ok_or_else(unknown)
    }

    fn precision(&self, options: &Options) -> Option<Precision> {
        options.precision.or(self.profile.workload.precision)
    }

    /// Causes whose step is nearest to the measured one, of those that make it slower.
    fn causes(&self, options: &Options, measured: Micros, expected: Micros) -> Vec<Cause> {
        let wider = match self.precision(options) {
            Some(Precision::Fp8) => Some((Precision::Bf16, "products run in BF16, not in FP8")),
            Some(Precision::Bf16 | Precision::AmpBf16 | Precision::Fp16 | Precision::AmpFp16) => {
                Some((Precision::Fp32, "products run in FP32: no autocast or 16-bit weights"))
            }
            _ => None,
        };
        let of = |cause, options: &Options, slower, network| {
            let expected = self.step(options, slower, network).ok()?;
            Some(Cause { cause, step_us: expected.step.mid.get() })
        };
        let in_wider = wider.and_then(|(precision, cause)| {
            of(cause, &Options { precision: Some(precision), ..options.clone() }, 1.0, None)
        });
        let tcp = Some(Network::Rate(OVER_TCP)).filter(|_| self.args.machines > 1);
        let known = [
            in_wider,
            tcp.and_then(|network| {
                of("the network is used over TCP, 25 Gbit/s, not by RDMA", options, 1.0, Some(network))
            }),
            of("whole layers are recomputed in the backward pass, or more than here", options, RECOMPUTED, None),
            of("the GPU runs at half its clock (heat, power limit, another job)", options, THROTTLED, None),
        ];
        let far = |cause: &Cause| (cause.step_us / measured.get()).ln().abs();
        let slower = known.into_iter().flatten().filter(|cause| cause.step_us > expected.get() * ALIKE);
        let mut found: Vec<Cause> = slower.collect();
        found.sort_by(|a, b| far(a).total_cmp(&far(b)));
        found.truncate(CAUSES);
        found
    }
}

/// Published rows of the same GPU first, then of the same precision, then with the nearest number of parameters.
fn nearest(workload: &Workload, gpu: &str, precision: Option<Precision>) -> Vec<Published> {
    let Some(parameters) = workload.parameter_count.filter(|_| workload.sequence_length.is_some()) else {
        return Vec::new();
    };
    let narrow = if precision == Some(Precision::Fp8) { "fp8" } else { "bf16" };
    let far = |row: &Published| {
        (row.gpu != gpu, !row.precision.contains(narrow), (row.parameters / parameters as f64).ln().abs())
    };
    let mut rows = bundled::speeds::<Published>();
    rows.sort_by(|a, b| {
        let (a, b) = (far(a), far(b));
        (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
    });
    rows.truncate(NEAREST);
    rows
}

fn table(rows: &[Published]) -> Table {
    let mut table = Table::new(&[
        Column::text("model", "model"),
        Column::text("GPUs", "gpus"),
        Column::text("T × P × C × X", "layout"),
        Column::number("length", "sequence_length"),
        Column::text("in", "precision"),
        Column::number("tokens/s a GPU", "tokens_per_second"),
        Column::text("source", "source"),
        Column::text("software", "software"),
    ]);
    for row in rows {
        table.push(vec![
            Cell::text(&row.model),
            Cell::text(format!("{} × {}", row.gpus, row.gpu)),
            Cell::text(format!("{} × {} × {} × {}", row.tensor, row.pipeline, row.context, row.expert)),
            Cell::text(row.sequence_length),
            Cell::text(&row.precision),
            Cell::new(grouped(row.tokens_per_second), row.tokens_per_second),
            Cell::text(&row.source),
            Cell::text(&row.software),
        ]);
    }
    table
}
