//! Run logs: fitted on small batch sizes and few iterations, evaluated far beyond both (the protocol of Gianniti et
//! al., SBAC-PAD 2018, table 4), on synthetic logs with known noise and on logs of real runs.

use std::path::PathBuf;

use habitat_tui::cli::CliError;
use habitat_tui::predict::runlog::{Run, RunModel, Weighting};
use habitat_tui::random::Random;
use habitat_tui::store::run_logs::{self, LogColumns};
use habitat_tui::units::Micros;

use super::tally::{Evaluation, Groups, Predicted, micros};

/// Relative noise of a run in the synthetic logs.
const NOISE: f64 = 0.03;
/// Logs of each kind.
const REPEATS: u64 = 50;
const BATCHES: [f64; 7] = [16.0, 32.0, 48.0, 64.0, 128.0, 192.0, 256.0];
const ITERATIONS: [f64; 7] = [1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 30_000.0, 50_000.0];
/// Names with a, b, c and d in µs: a GPU-bound image network, a small CPU-bound one, and one with a long start.
const KINDS: [(&str, [f64; 4]); 3] = [
    ("made: 2.9 ms a sample", [2900.0, 1500.0, 12_000.0, 8e6]),
    ("made: 2 ms an iteration", [12.0, 300.0, 2000.0, 1e6]),
    ("made: half a minute to start", [400.0, 20_000.0, 5000.0, 3e7]),
];

/// Synthetic logs, then those of `files`.
pub(super) fn evaluate(files: &[PathBuf]) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for (kind, (name, of)) in KINDS.iter().enumerate() {
        for repeat in 0..REPEATS {
            add_runs(name, &made(*of, kind as u64 * REPEATS + repeat), &mut groups)?;
        }
    }
    for file in files {
        let log = run_logs::read(file, &LogColumns::default())?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (gpu, runs) in &log.runs {
            let name = if gpu.is_empty() { name.clone() } else { format!("{name}, {gpu}") };
            add_runs(&name, runs, &mut groups)
                .map_err(|error| CliError::Refused(format!("{}: {error}", file.display())))?;
        }
    }
    let protocol = "absolute relative errors of run times: fitted on the lower half of the batch sizes and of the iterations of a log, evaluated on the runs beyond both";
    let notes = vec![
        format!(
            "made: {REPEATS} logs each with {:.0} % noise, fitted on batch 16 to 64 and 1,000 to 10,000 iterations, evaluated at batch 128 to 256 and 20,000 to 50,000 iterations",
            NOISE * 100.0
        ),
        "\"in range\" of a nominal 80 %, or 90 % if the method says so; beyond the fitted batch sizes the ranges allow for nonlinearity of real steps, which synthetic logs lack".to_owned(),
    ];
    Ok(groups.evaluation(protocol.to_owned(), notes))
}

/// A synthetic log with normally distributed relative noise.
fn made(coefficients: [f64; 4], seed: u64) -> Vec<Run> {
    let mut random = Random::of(2018, seed);
    let mut runs = Vec::new();
    for x in BATCHES {
        for y in ITERATIONS {
            // Box–Muller transform.
            let (radius, angle) = (1.0 - random.unit(), random.unit());
            let normal = (-2.0 * radius.ln()).sqrt() * (2.0 * std::f64::consts::PI * angle).cos();
            let exact: f64 = coefficients.iter().zip([x * y, x, y, 1.0]).map(|(of, x)| of * x).sum();
            let time = exact * (1.0 + NOISE * normal);
            runs.push(Run { batch: Some(x), iterations: Some(y), time: micros(time) });
        }
    }
    runs
}

/// Median (lower of the two middle values); values above it are held out.
fn lower_half(runs: &[Run], of: fn(&Run) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = runs.iter().map(of).collect::<Option<_>>()?;
    values.sort_by(f64::total_cmp);
    values.dedup();
    values.get(values.len().div_ceil(2) - 1).copied()
}

fn add_runs(name: &str, runs: &[Run], groups: &mut Groups) -> Result<(), CliError> {
    let both = lower_half(runs, |run| run.batch).zip(lower_half(runs, |run| run.iterations));
    let (batch, iterations) =
        both.ok_or_else(|| CliError::Refused("batch size and iterations are needed in every run".to_owned()))?;
    let up_to = |value: Option<f64>, limit: f64| value.is_some_and(|value| value <= limit);
    let small: Vec<Run> =
        runs.iter().filter(|run| up_to(run.batch, batch) && up_to(run.iterations, iterations)).copied().collect();
    let far = || runs.iter().filter(|run| !up_to(run.batch, batch) && !up_to(run.iterations, iterations));
    for (method, weighting) in [("run log", Weighting::Relative), ("least squares of seconds", Weighting::Absolute)] {
        let model = RunModel::fit(&small, None, weighting).map_err(CliError::other)?;
        for run in far() {
            let Some(found) = model.at(run.batch, run.iterations) else { continue };
            let label = || format!("batch {}, {} iterations", run.batch.unwrap_or(0.0), run.iterations.unwrap_or(0.0));
            let mid = found.time.range.mid.get();
            let mut add = |method: &str, low: Micros, high: Micros| {
                let range = Some([low.get(), high.get()]);
                groups.add(name, method, Predicted { mid, range }, run.time.get(), &label);
            };
            add(method, found.time.range.low, found.time.range.high);
            add(&format!("{method}, 90 %"), found.wide[0], found.wide[1]);
        }
    }
    Ok(())
}
