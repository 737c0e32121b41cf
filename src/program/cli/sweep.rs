//! `habitat-tui sweep`: hypothetical variants of a GPU.
//!
//! `bandwidth` plots the step time over the memory bandwidth, as in the case study of Li et al. (MICRO 2023). It uses
//! the linear models that transfer between GPUs, in our form and as published, with the roofline for comparison.

use std::io::Write;

use serde::Serialize;

use super::error::{At, CliError};
use super::gpu;
use super::input::load;
use super::options::{kernel_wise, settings, weights_folder};
use super::output::print_json;
use crate::settings::args::{InputArgs, SweepBandwidthArgs};
use crate::store::{self, Paths};
use habitat_base::units::Micros;
use habitat_prediction::kernelwise::{Across, KernelWise, Level};
use habitat_prediction::{Host, MethodChoice, Options, predict};
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Table};
use habitat_step::catalog::hypothetical::{Changes, Figure};
use habitat_step::catalog::{Catalog, GpuSpec};
use habitat_step::profile::Profile;

/// Below this elasticity, the step uses less than half of any additional bandwidth.
const HALF_LOST: f64 = 0.5;
/// If another 100 GB/s shorten the step by less than this share, the curve looks flat.
const FLAT: f64 = 0.05;
/// These 100 GB/s.
const HUNDRED_GBPS: f64 = 100.0;
/// A doubling that shortens the step by less than this share is not worth it.
const LEAST_GAIN: f64 = 0.10;
/// Maximum number of points of a curve.
const MOST_POINTS: f64 = 1000.0;
/// Points of a curve between a bandwidth and its double.
const POINTS_A_DOUBLING: u32 = 70;
/// Width of the longest bar in columns.
const BAR: f64 = 40.0;

#[derive(Serialize)]
struct Point {
    bandwidth_gbps: f64,
    kernel_wise_ms: f64,
    /// Percentage by which 1 % more bandwidth shortens the step.
    elasticity: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    published_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    roofline_ms: Option<f64>,
}

/// Bandwidths at which a curve flattens, so that more brings little. `None` if that is beyond four times the highest
/// bandwidth of the sweep.
#[derive(Serialize)]
struct Knee {
    method: &'static str,
    /// Elasticity below 0.5: 1 % more bandwidth saves less than 0.5 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    half_lost_gbps: Option<f64>,
    /// Another 100 GB/s save less than 5 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    flat_gbps: Option<f64>,
    /// Doubling saves less than 10 %.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubling_gbps: Option<f64>,
}

#[derive(Serialize)]
struct SweepJson<'a> {
    format: &'static str,
    version: u32,
    workload: &'a str,
    gpu: String,
    real_bandwidth_gbps: f64,
    /// Host assumption of the roofline; the linear models cover the GPU alone.
    host: &'static str,
    /// Share of the step in layers with a linear model.
    answered_share: f64,
    knees: &'a [Knee],
    points: &'a [Point],
}

pub(super) fn bandwidth(args: &SweepBandwidthArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let gpu = gpu::one(&catalog, "--gpu", &args.gpu)?;
    if args.from > args.to {
        return Err(CliError::Refused(format!("--from {} is above --to {}", args.from, args.to)));
    }
    if (args.to - args.from) / args.by > MOST_POINTS {
        return Err(CliError::Refused(format!("--by {}: more than {MOST_POINTS} points; use a larger step", args.by)));
    }
    let input = InputArgs { file: args.file.clone(), sample: args.sample, ..InputArgs::default() };
    let loaded = load(&input, &catalog)?;
    loaded.warn();
    let weights = weights_folder(args.models.as_deref(), &settings(&paths)?, &paths);
    let model = kernel_wise(args.kernel_wise.as_deref(), &weights)?;
    if model.across.is_empty() {
        return Err(CliError::Refused(
            "the linear models were fitted on fewer than three GPUs, so they cannot predict other GPUs; fit them on more"
                .to_owned(),
        ));
    }
    let sweep = Sweep { profile: &loaded.profile, label: &loaded.label, gpu, model: &model, host: args.host };
    let count = ((args.to - args.from) / args.by + 1e-9).floor() as u32;
    let points: Vec<Point> =
        (0..=count).map(|index| sweep.point(f64::from(index).mul_add(args.by, args.from))).collect::<Result<_, _>>()?;
    let knees = [
        sweep.knee("kernel-wise", args, Across::Proportional),
        sweep.knee("kernel-wise, as published", args, Across::Published),
    ];
    let real = gpu.memory_bandwidth.get() / 1e9;
    let answered = sweep.answered_share();
    if args.json {
        let json = SweepJson {
            format: "habitat-bandwidth-sweep",
            version: 1,
            workload: &loaded.profile.workload.name,
            gpu: gpu.slug.to_string(),
            real_bandwidth_gbps: real,
            host: args.host.name(),
            answered_share: answered,
            knees: &knees,
            points: &points,
        };
        return print_json(&json, out);
    }
    writeln!(out, "{} on a {} with other memory bandwidths (actual: {real:.0} GB/s)\n", loaded.label, gpu.name)?;
    table(&points).write_text(out)?;
    writeln!(out)?;
    knee_table(&knees).write_text(out)?;
    writeln!(
        out,
        "elasticity: % less time for 1 % more bandwidth; as published: kernel-wise, linear in the bandwidth; flattening: lowest bandwidth above which 1 % more saves less than {HALF_LOST} %, another {HUNDRED_GBPS} GB/s less than {}, and doubling less than {}",
        format::percent(FLAT),
        format::percent(LEAST_GAIN)
    )?;
    writeln!(out, "{}", host_words(args.host))?;
    if answered < 0.995 {
        writeln!(
            out,
            "{} of the step is in layers without a linear model, predicted by the roofline",
            format::percent(1.0 - answered)
        )?;
    }
    Ok(0)
}

const fn host_words(host: Host) -> &'static str {
    match host {
        Host::AsRecorded => "the linear models cover GPU time only; the roofline includes launch overhead",
        Host::KeepsUp => "assuming the CPU keeps up: GPU time only",
    }
}

struct Sweep<'a> {
    profile: &'a Profile,
    label: &'a str,
    gpu: &'a GpuSpec,
    model: &'a KernelWise,
    host: Host,
}

impl Sweep<'_> {
    /// The GPU with another bandwidth, at the same efficiency.
    fn version(&self, gbps: f64) -> GpuSpec {
        let times = gbps * 1e9 / self.gpu.memory_bandwidth.get();
        self.gpu.hypothetical(self.gpu.slug.clone(), &Changes::of(Figure::Bandwidth, times))
    }

    fn lines(&self, gbps: f64, across: Across) -> Micros {
        let version = self.version(gbps);
        self.model.across_to(&version, across).step(self.profile, Level::Kernels)
    }

    fn roofline(&self, gbps: f64) -> Result<Micros, CliError> {
        let version = self.version(gbps);
        let options = Options {
            targets: vec![version.slug.clone()],
            ignore_origin: true,
            method: MethodChoice::Roofline,
            host: self.host,
            ..Options::default()
        };
        let answer = predict(self.profile, &Catalog::new(vec![version]), &options).at(self.label)?;
        Ok(answer.predictions.first().map_or(Micros::ZERO, |prediction| prediction.step.mid()))
    }

    fn point(&self, gbps: f64) -> Result<Point, CliError> {
        let time = |gbps| self.lines(gbps, Across::Proportional).as_millis();
        let at = time(gbps);
        let more = 1.01_f64;
        let elasticity = -(time(gbps * more) / at).ln() / more.ln();
        Ok(Point {
            bandwidth_gbps: gbps,
            kernel_wise_ms: at,
            elasticity,
            published_ms: Some(self.lines(gbps, Across::Published).as_millis()),
            roofline_ms: Some(self.roofline(gbps)?.as_millis()),
        })
    }

    /// Finds the bandwidths at which a curve flattens, from the sweep's lowest bandwidth to four times its highest.
    fn knee(&self, method: &'static str, args: &SweepBandwidthArgs, across: Across) -> Knee {
        let at = |index: usize| args.from * (index as f64 / f64::from(POINTS_A_DOUBLING)).exp2();
        let doublings = (8.0 * args.to / args.from).log2();
        let count = (doublings * f64::from(POINTS_A_DOUBLING)).ceil() as usize + 1;
        let times: Vec<f64> = (0..=count).map(|index| self.lines(at(index), across).get()).collect();
        // Interpolates linearly in the logarithms of time and bandwidth.
        let time = |gbps: f64| {
            let place = (gbps / args.from).log2() * f64::from(POINTS_A_DOUBLING);
            let below = (place.floor() as usize).min(count - 1);
            times[below] * (times[below + 1] / times[below]).powf(place - below as f64)
        };
        let least = |is_flat: &dyn Fn(usize) -> bool| {
            (0..count).take_while(|&index| at(index) <= 4.0 * args.to).find(|&index| is_flat(index)).map(at)
        };
        let doubled = |index: usize| times.get(index + POINTS_A_DOUBLING as usize).copied();
        let step = at(1) / at(0);
        Knee {
            method,
            half_lost_gbps: least(&|index| -(times[index + 1] / times[index]).ln() < HALF_LOST * step.ln()),
            flat_gbps: least(&|index| time(at(index) + HUNDRED_GBPS) / times[index] > 1.0 - FLAT),
            doubling_gbps: least(&|index| doubled(index).is_some_and(|twice| twice / times[index] > 1.0 - LEAST_GAIN)),
        }
    }

    /// Share of the step that linear models cover, at the actual bandwidth.
    fn answered_share(&self) -> f64 {
        let lines = self.model.across_to(self.gpu, Across::Proportional);
        let precision = self.profile.workload.precision;
        let answered: Micros = self
            .profile
            .operations
            .iter()
            .filter_map(|operation| {
                let answer = lines.time(operation, precision, Level::Kernels).ok()?;
                Some(answer.time * f64::from(operation.count))
            })
            .sum();
        answered / lines.step(self.profile, Level::Kernels)
    }
}

fn knee_table(knees: &[Knee]) -> Table {
    let mut table = Table::new(&[
        Column::text("flattening, GB/s", "method"),
        Column::number("+1 % < 0.5 %", "half_lost_gbps"),
        Column::number("+100 GB/s < 5 %", "flat_gbps"),
        Column::number("doubled < 10 %", "doubling_gbps"),
    ]);
    let at =
        |gbps: Option<f64>| gbps.map_or_else(|| Cell::new("beyond", ""), |gbps| Cell::new(format!("{gbps:.0}"), gbps));
    for knee in knees {
        table.push(vec![Cell::text(knee.method), at(knee.half_lost_gbps), at(knee.flat_gbps), at(knee.doubling_gbps)]);
    }
    table
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        Column::number("GB/s", "bandwidth_gbps"),
        Column::number("kernel-wise, ms", "kernel_wise_ms"),
        Column::text("", ""),
        Column::number("elasticity", "elasticity"),
        Column::number("as published, ms", "published_ms"),
        Column::number("roofline, ms", "roofline_ms"),
        Column::text("kernel-wise", ""),
    ]);
    let longest = points.iter().map(|point| point.kernel_wise_ms).fold(0.0, f64::max);
    let milliseconds = |value: f64| Cell::new(format!("{value:.1}"), value);
    for point in points {
        let bar = "█".repeat((point.kernel_wise_ms / longest * BAR).round() as usize);
        table.push(vec![
            Cell::new(format!("{:.0}", point.bandwidth_gbps), point.bandwidth_gbps),
            milliseconds(point.kernel_wise_ms),
            Cell::text(""),
            Cell::new(format!("{:.2}", point.elasticity), point.elasticity),
            Cell::maybe(point.published_ms, milliseconds),
            Cell::maybe(point.roofline_ms, milliseconds),
            Cell::new(bar, ""),
        ]);
    }
    table
}
