//! Case study of Li et al. (MICRO 2023): the step time over the memory bandwidth of a GPU, and the bandwidths at which
//! the curve flattens.
//!
//! By the shipped linear models that transfer between GPUs, in our form and as published, and by the roofline.

use std::path::PathBuf;

use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::catalog::{Catalog, GpuSpec};
use habitat_tui::cli::CliError;
use habitat_tui::predict::kernelwise::{Across, KernelWise, Level};
use habitat_tui::predict::{MethodChoice, Options, predict};
use habitat_tui::profile::Profile;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store;
use habitat_tui::units::Micros;
use serde::Serialize;

use super::tally::Evaluation;

/// Bandwidths of the curve: first, last and distance, GB/s.
const CURVE_GBPS: [f64; 3] = [200.0, 1200.0, 100.0];
/// Below this elasticity, the step uses less than half of any additional bandwidth.
const HALF_LOST: f64 = 0.5;
/// If another 100 GB/s shorten the step by less than this share, the curve looks flat.
const FLAT: f64 = 0.05;
/// The 100 GB/s of [`FLAT`].
const HUNDRED_GBPS: f64 = 100.0;
/// A doubling that shortens the step by less than this share is not worth it.
const LEAST_GAIN: f64 = 0.10;
/// Points between a bandwidth and its double, at which the curve is evaluated.
const POINTS_A_DOUBLING: u32 = 70;

#[derive(Serialize)]
struct Point {
    group: String,
    bandwidth_gbps: f64,
    kernel_wise_ms: f64,
    /// Percentage by which 1 % more bandwidth shortens the step.
    elasticity: f64,
    published_ms: f64,
    roofline_ms: f64,
}

/// Bandwidths at which a curve flattens, GB/s; `None` if that is beyond four times the highest of the curve.
#[derive(Serialize)]
struct Knee {
    group: String,
    method: &'static str,
    /// Elasticity below 0.5: 1 % more bandwidth saves less than 0.5 %.
    half_lost_gbps: Option<f64>,
    /// Another 100 GB/s save less than 5 %.
    flat_gbps: Option<f64>,
    /// Doubling saves less than 10 %.
    doubling_gbps: Option<f64>,
}

/// The curves of these steps on a GPU, and their knees.
pub(super) fn evaluate(files: &[PathBuf], gpu: &str, catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    let (gpu, model) = (catalog.find(gpu)?, store::bundled::kernel_wise());
    let (mut points, mut knees, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let (profile, _) = store::read_profile(file)?;
        let study = Study { profile: &profile, gpu, model: &model };
        let [from, to, by] = CURVE_GBPS;
        for index in 0..=((to - from) / by) as u32 {
            points.push(study.point(f64::from(index).mul_add(by, from))?);
        }
        knees.push(study.knee("kernel-wise", Across::Proportional));
        knees.push(study.knee("kernel-wise, as published", Across::Published));
        let share = study.answered_share() * 100.0;
        notes.push(format!("{share:.0} % of {} is in layers with a linear model", profile.workload.name));
    }
    let real = gpu.memory_bandwidth.get() / 1e9;
    let curve = format!(
        "steps on a {} with other memory bandwidths (actual: {real:.0} GB/s), GPU time by linear models, launches in the roofline; elasticity: % less time for 1 % more bandwidth",
        gpu.name
    );
    let flattening = "lowest bandwidth above which 1 % more saves less than 0.5 %, another 100 GB/s less than 5 %, and doubling less than 10 %";
    Ok(vec![
        Evaluation::new(curve, notes, table(&points), &points),
        Evaluation::new(flattening.to_owned(), Vec::new(), knee_table(&knees), &knees),
    ])
}

/// A step on a GPU whose bandwidth varies, at the same efficiency.
struct Study<'a> {
    profile: &'a Profile,
    gpu: &'a GpuSpec,
    model: &'a KernelWise,
}

impl Study<'_> {
    fn version(&self, gbps: f64) -> GpuSpec {
        let times = gbps * 1e9 / self.gpu.memory_bandwidth.get();
        self.gpu.hypothetical(self.gpu.slug.clone(), &Changes::of(Figure::Bandwidth, times))
    }

    fn lines(&self, gbps: f64, across: Across) -> Micros {
        self.model.across_to(&self.version(gbps), across).step(self.profile, Level::Kernels)
    }

    fn roofline(&self, gbps: f64) -> Result<Micros, CliError> {
        let version = self.version(gbps);
        let options = Options {
            targets: vec![version.slug.clone()],
            ignore_origin: true,
            method: MethodChoice::Roofline,
            ..Options::default()
        };
        let answer = predict(self.profile, &Catalog::new(vec![version]), &options).map_err(CliError::other)?;
        Ok(answer.predictions.first().map_or(Micros::ZERO, |prediction| prediction.step.mid()))
    }

    fn point(&self, gbps: f64) -> Result<Point, CliError> {
        let time = |gbps| self.lines(gbps, Across::Proportional).as_millis();
        let (at, more) = (time(gbps), 1.01_f64);
        Ok(Point {
            group: self.profile.workload.name.clone(),
            bandwidth_gbps: gbps,
            kernel_wise_ms: at,
            elasticity: -(time(gbps * more) / at).ln() / more.ln(),
            published_ms: self.lines(gbps, Across::Published).as_millis(),
            roofline_ms: self.roofline(gbps)?.as_millis(),
        })
    }

    /// Finds where the curve flattens, from its lowest bandwidth to four times its highest.
    fn knee(&self, method: &'static str, across: Across) -> Knee {
        let [from, to, _] = CURVE_GBPS;
        let at = |index: usize| from * (index as f64 / f64::from(POINTS_A_DOUBLING)).exp2();
        let doublings = (8.0 * to / from).log2();
        let count = (doublings * f64::from(POINTS_A_DOUBLING)).ceil() as usize + 1;
        let times: Vec<f64> = (0..=count).map(|index| self.lines(at(index), across).get()).collect();
        // Interpolates linearly in the logarithms of time and bandwidth.
        let time = |gbps: f64| {
            let place = (gbps / from).log2() * f64::from(POINTS_A_DOUBLING);
            let below = (place.floor() as usize).min(count - 1);
            times[below] * (times[below + 1] / times[below]).powf(place - below as f64)
        };
        let least = |is_flat: &dyn Fn(usize) -> bool| {
            (0..count).take_while(|&index| at(index) <= 4.0 * to).find(|&index| is_flat(index)).map(at)
        };
        let doubled = |index: usize| times.get(index + POINTS_A_DOUBLING as usize).copied();
        let step = at(1) / at(0);
        Knee {
            group: self.profile.workload.name.clone(),
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
        let answered = self.profile.operations.iter().filter_map(|operation| {
            let answer = lines.time(operation, precision, Level::Kernels).ok()?;
            Some(answer.time * f64::from(operation.count))
        });
        answered.sum::<Micros>() / lines.step(self.profile, Level::Kernels)
    }
}

fn table(points: &[Point]) -> Table {
    let mut table = Table::new(&[
        Column::text("step", "group"),
        Column::number("GB/s", "bandwidth_gbps"),
        Column::number("kernel-wise, ms", "kernel_wise_ms"),
        Column::number("elasticity", "elasticity"),
        Column::number("as published, ms", "published_ms"),
        Column::number("roofline, ms", "roofline_ms"),
    ]);
    let milliseconds = |value: f64| Cell::new(format!("{value:.1}"), value);
    for point in points {
        table.push(vec![
            Cell::text(&point.group),
            Cell::new(format!("{:.0}", point.bandwidth_gbps), point.bandwidth_gbps),
            milliseconds(point.kernel_wise_ms),
            Cell::new(format!("{:.2}", point.elasticity), point.elasticity),
            milliseconds(point.published_ms),
            milliseconds(point.roofline_ms),
        ]);
    }
    table
}

fn knee_table(knees: &[Knee]) -> Table {
    let mut table = Table::new(&[
        Column::text("step", "group"),
        Column::text("flattening, GB/s", "method"),
        Column::number("+1 % < 0.5 %", "half_lost_gbps"),
        Column::number("+100 GB/s < 5 %", "flat_gbps"),
        Column::number("doubled < 10 %", "doubling_gbps"),
    ]);
    let at =
        |gbps: Option<f64>| gbps.map_or_else(|| Cell::new("beyond", ""), |gbps| Cell::new(format!("{gbps:.0}"), gbps));
    for knee in knees {
        let figures = [knee.half_lost_gbps, knee.flat_gbps, knee.doubling_gbps].map(at);
        table.push([Cell::text(&knee.group), Cell::text(knee.method)].into_iter().chain(figures).collect());
    }
    table
}
