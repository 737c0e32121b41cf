//! Habitat's case studies (USENIX ATC '21, section 5.3) from shapes alone: the fastest GPU, and the most cost-effective
//! one at the prices of the time.
//!
//! The steps are embedded op lists of the two networks (`profiler/samples/README.md`). The paper's findings are checked
//! as orderings; times and ratios are only printed.

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::predict::{Options, Prediction, predict};
use habitat_tui::profile::Profile;
use habitat_tui::report::format;
use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::store::files::decompress;
use habitat_tui::units::GpuSlug;
use serde::Serialize;

use super::tally::{Evaluation, micros};
use crate::models::ModelsByGpu;

/// The paper's six GPUs, with Google's on-demand price in 2021 if it rented them.
const GPUS: [(&str, Option<f64>); 6] = [
    ("quadro-p4000", None),
    ("p100-pcie-16gb", Some(1.46)),
    ("v100-sxm2-16gb", Some(2.48)),
    ("rtx-2070", None),
    ("rtx-2080-ti", None),
    ("t4", Some(0.35)),
];
/// Speedup of a V100 over a 2080 Ti for DCGAN in the paper.
const DCGAN_V100_OVER_2080TI: f64 = 1.1;

/// Steps of the paper's networks, traced without a GPU.
static STEPS: [(&str, &[u8]); 6] = [
    ("gnmt-b16", include_bytes!("../../../../profiler/samples/gnmt-b16.habitat.json.zst")),
    ("gnmt-b32", include_bytes!("../../../../profiler/samples/gnmt-b32.habitat.json.zst")),
    ("gnmt-b48", include_bytes!("../../../../profiler/samples/gnmt-b48.habitat.json.zst")),
    ("dcgan-b64", include_bytes!("../../../../profiler/samples/dcgan-b64.habitat.json.zst")),
    ("dcgan-b96", include_bytes!("../../../../profiler/samples/dcgan-b96.habitat.json.zst")),
    ("dcgan-b128", include_bytes!("../../../../profiler/samples/dcgan-b128.habitat.json.zst")),
];

/// The steps of the case studies: name and profile, without origin.
pub(super) fn profiles() -> Result<Vec<(&'static str, Profile)>, CliError> {
    let profile = |file: &[u8]| -> Result<Profile, CliError> {
        let json = decompress(file).map_err(CliError::other)?;
        Ok(Profile::from_json(&json).map_err(CliError::other)?.0)
    };
    STEPS.iter().map(|(name, file)| Ok((*name, profile(file)?))).collect()
}

#[derive(Serialize)]
struct Row {
    group: String,
    gpu: &'static str,
    step_us: f64,
    low_us: f64,
    high_us: f64,
    samples_per_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    samples_per_usd: Option<f64>,
    method: &'static str,
}

/// A finding of the paper, and whether it holds here.
#[derive(Serialize)]
struct Check {
    group: String,
    finding: String,
    holds: bool,
    detail: String,
}

/// Times and cost-effectiveness on the paper's GPUs, and the paper's findings.
pub(super) fn evaluate(catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Evaluation>, CliError> {
    let (mut rows, mut checks) = (Vec::new(), Vec::new());
    for (name, profile) in profiles()? {
        let own = one(name, &profile, catalog, models)?;
        checks.extend(check(name, &own));
        rows.extend(own);
    }
    let mut table = Table::new(&[
        Column::text("case", "group"),
        Column::text("GPU", "gpu"),
        Column::number("step", "step_us"),
        Column::number("low–high", "range"),
        Column::number("samples/s", "samples_per_s"),
        Column::number("samples/$ (2021)", "samples_per_usd"),
        Column::text("method", "method"),
    ]);
    let time = micros;
    for row in &rows {
        table.push(vec![
            Cell::text(&row.group),
            Cell::text(row.gpu),
            Cell::new(format::time(time(row.step_us)), row.step_us),
            Cell::text(format::time_range(time(row.low_us), time(row.high_us))),
            Cell::new(format::number(row.samples_per_s), row.samples_per_s),
            Cell::maybe(row.samples_per_usd, |value| Cell::new(format::grouped(value), value)),
            Cell::text(row.method),
        ]);
    }
    let times = "Habitat's case studies from shapes alone, FP32, prices of 2021 (Google: T4 $0.35, P100 $1.46, V100 $2.48 an hour)";
    let mut found = Table::new(&[
        Column::text("case", "group"),
        Column::text("finding of the paper", "finding"),
        Column::text("holds", "holds"),
        Column::text("here", "detail"),
    ]);
    for check in &checks {
        found.push(vec![
            Cell::text(&check.group),
            Cell::text(&check.finding),
            Cell::text(if check.holds { "yes" } else { "NO" }),
            Cell::text(&check.detail),
        ]);
    }
    Ok(vec![
        Evaluation::new(times.to_owned(), Vec::new(), table, &rows),
        Evaluation::new("the paper's findings on them".to_owned(), Vec::new(), found, &checks),
    ])
}

fn one(name: &str, profile: &Profile, catalog: &Catalog, models: &ModelsByGpu) -> Result<Vec<Row>, CliError> {
    let slugs = GPUS.iter().map(|(slug, _)| catalog.find(slug).map(|gpu| gpu.slug.clone()).map_err(CliError::other));
    let targets = slugs.collect::<Result<Vec<GpuSlug>, _>>()?;
    let options = Options { targets, models: models.shipped.clone(), ..Options::default() };
    let answer = predict(profile, catalog, &options).map_err(CliError::other)?;
    let batch = profile.workload.batch_size.unwrap_or(1) as f64;
    let row = |(prediction, (gpu, price)): (&Prediction, (&'static str, Option<f64>))| {
        let step = prediction.step.as_estimate();
        let rate = batch / step.range.mid.as_secs();
        Row {
            group: name.to_owned(),
            gpu,
            step_us: step.range.mid.get(),
            low_us: step.range.low.get(),
            high_us: step.range.high.get(),
            samples_per_s: rate,
            samples_per_usd: price.map(|price| rate * 3600.0 / price),
            method: step.method.name(),
        }
    };
    Ok(answer.predictions.iter().zip(GPUS).map(row).collect())
}

fn check(name: &str, rows: &[Row]) -> Vec<Check> {
    let check = |finding: String, holds: bool, detail: String| Check { group: name.to_owned(), finding, holds, detail };
    let step = |gpu: &str| rows.iter().find(|row| row.gpu == gpu).map_or(f64::NAN, |row| row.step_us);
    if name.starts_with("dcgan") {
        let ratio = step("rtx-2080-ti") / step("v100-sxm2-16gb");
        let finding = format!("a V100 is only about {DCGAN_V100_OVER_2080TI} times as fast as a 2080 Ti");
        // Within the paper's own mean error of a step.
        let holds = (ratio / DCGAN_V100_OVER_2080TI - 1.0).abs() <= 0.118;
        return vec![check(finding, holds, format!("{ratio:.2} times"))];
    }
    let fastest = rows.iter().min_by(|a, b| a.step_us.total_cmp(&b.step_us));
    let rented = || rows.iter().filter_map(|row| Some((row, row.samples_per_usd?)));
    let best = rented().max_by(|a, b| a.1.total_cmp(&b.1));
    let named = |gpu: Option<&str>| gpu.unwrap_or("none").to_owned();
    vec![
        check(
            "V100 is the fastest".to_owned(),
            fastest.is_some_and(|row| row.gpu == "v100-sxm2-16gb"),
            named(fastest.map(|row| row.gpu)),
        ),
        check(
            "T4 does most for a dollar".to_owned(),
            best.is_some_and(|(row, _)| row.gpu == "t4"),
            named(best.map(|(row, _)| row.gpu)),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_steps_are_valid() {
        for (name, profile) in profiles().unwrap() {
            assert!(profile.workload.name == name && profile.origin.is_none(), "{name}");
        }
    }
}
