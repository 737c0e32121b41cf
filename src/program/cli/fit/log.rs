//! `habitat-tui fit LOG`: fits a model of run times to a log and predicts other runs.

use std::io::Write;

use serde_json::{Value, json};

use crate::cli::error::{At, CliError};
use crate::cli::output::print_json;
use crate::settings::args::{FitLogArgs, RunSize};
use crate::store::run_logs::{self, LogColumns, RunLog};
use habitat_base::text;
use habitat_base::units::Micros;
use habitat_prediction::Method;
use habitat_prediction::runlog::{Form, Run, RunModel, RunTime, Weighting};
use habitat_reports::format::{grouped, percent, time, time_range};
use habitat_reports::table::{Cell, Column, Table};

/// Warn beyond this multiple of the logged batch sizes or iterations.
const FAR: f64 = 4.0;

pub(super) fn run(args: &FitLogArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let columns = LogColumns {
        time: args.time.as_deref(),
        batch: args.batch.as_deref(),
        iterations: args.iterations.as_deref(),
        gpu: args.gpu.as_deref(),
        unit: args.unit,
    };
    let log = run_logs::read(&args.log, &columns)?;
    let mut models = Vec::new();
    for (gpu, runs) in &log.runs {
        models.push(fitted(args, gpu, runs)?);
    }
    if args.json {
        let value = json!({
            "format": "habitat-run-log-fit", "version": 1, "log": args.log.display().to_string(),
            "weighting": weighting(args), "notes": log.notes,
            "models": models.iter().map(Fitted::json).collect::<Vec<_>>(),
        });
        print_json(&value, out)?;
        return Ok(0);
    }
    writeln!(out, "{}: {}", args.log.display(), read_as(&log))?;
    for fitted in &models {
        fitted.write(&log, weighting(args), out)?;
    }
    for note in &log.notes {
        writeln!(out, "note: {note}")?;
    }
    Ok(0)
}

const fn weighting(args: &FitLogArgs) -> Weighting {
    if args.absolute { Weighting::Absolute } else { Weighting::Relative }
}

/// A fitted model and its predictions at the requested sizes.
struct Fitted {
    gpu: String,
    model: RunModel,
    at: Vec<(Option<f64>, Option<f64>, RunTime)>,
}

fn fitted(args: &FitLogArgs, gpu: &str, runs: &[Run]) -> Result<Fitted, CliError> {
    let of = if gpu.is_empty() { String::new() } else { format!(", {}", text::clean(gpu, 60)) };
    let log = format!("{}{of}", args.log.display());
    let model = RunModel::fit(runs, args.form, weighting(args)).at(&log)?;
    let mut at = Vec::new();
    for &size in &args.at {
        let (batch, iterations) = wanted(size, model.form).map_err(CliError::Refused).at("--at").at(&log)?;
        let time = model.at(batch, iterations).ok_or_else(|| {
            let size = size_text(batch, iterations);
            CliError::Refused(format!(
                "--at {size}: the model predicts a time of zero or less; this is too far from the logged runs"
            ))
            .at(&log)
        })?;
        at.push((batch, iterations, time));
    }
    Ok(Fitted { gpu: gpu.to_owned(), model, at })
}

/// Batch size and iterations of a requested size, as the form needs them.
fn wanted(size: RunSize, form: Form) -> Result<(Option<f64>, Option<f64>), String> {
    match (size, form) {
        (RunSize::Both(batch, iterations), Form::Full) => Ok((Some(batch), Some(iterations))),
        (RunSize::One(batch), Form::Batch) => Ok((Some(batch), None)),
        (RunSize::One(iterations), Form::Iterations) => Ok((None, Some(iterations))),
        (RunSize::One(value), Form::Full) => {
            Err(format!("{value}: {} needs batch size and iterations; write {value}xITERATIONS", form.formula()))
        }
        (RunSize::Both(..), _) => Err(format!("{} has a single variable; pass one number", form.formula())),
    }
}

fn size_text(batch: Option<f64>, iterations: Option<f64>) -> String {
    match (batch, iterations) {
        (Some(batch), Some(iterations)) => format!("{}x{}", grouped(batch), grouped(iterations)),
        (Some(one), None) | (None, Some(one)) => grouped(one),
        (None, None) => String::new(),
    }
}

fn read_as(log: &RunLog) -> String {
    let [time, batch, iterations, gpu] = &log.headings;
    let name = |what: &str, heading: &Option<String>| {
        heading.as_ref().map(|heading| format!("{what} {:?}", text::clean(heading, 40)))
    };
    let names: Vec<String> =
        [name("time", time), name("batch", batch), name("iterations", iterations), name("by", gpu)]
            .into_iter()
            .flatten()
            .collect();
    let runs: usize = log.runs.iter().map(|(_, runs)| runs.len()).sum();
    format!("{} runs; columns: {}", grouped(runs as f64), names.join(", "))
}

/// Quantity that a coefficient's time is for.
const fn meaning(form: Form, letter: char) -> &'static str {
    match (form, letter) {
        (_, 'a') => "iteration and sample",
        (Form::Full, 'b') => "sample of the batch, once per run",
        (_, 'b') => "sample of the batch",
        (_, 'c') => "iteration",
        _ => "run",
    }
}

impl Fitted {
    fn json(&self) -> Value {
        let Self { gpu, model, at } = self;
        json!({
            "gpu": (!gpu.is_empty()).then_some(gpu),
            "method": Method::RunLog.name(),
            "form": model.form,
            "formula": model.form.formula(),
            "runs": model.runs,
            "degrees_of_freedom": model.degrees_of_freedom,
            "batch_range": model.batches,
            "iterations_range": model.iterations,
            "coefficients": model.coefficients().iter().map(|it| json!({
                "letter": it.letter, "value_us": it.value, "standard_error_us": (!it.is_held()).then_some(it.error),
                "held_at_zero": it.is_held(), "per": meaning(model.form, it.letter),
            })).collect::<Vec<_>>(),
            "fit": model.quality,
            "predictions": at.iter().map(|(batch, iterations, run)| json!({
                "batch_size": batch, "iterations": iterations, "time_us": run.time.range.mid,
                "low_us": run.time.range.low, "high_us": run.time.range.high,
                "low_90_us": run.wide[0], "high_90_us": run.wide[1], "times_beyond": run.beyond,
            })).collect::<Vec<_>>(),
            "warnings": self.warnings(),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (batch, iterations, run) in &self.at {
            if run.beyond > FAR {
                warnings.push(format!(
                    "{} is {:.1} times beyond the logged range: the model may not extrapolate that far",
                    size_text(*batch, *iterations),
                    run.beyond
                ));
            }
        }
        let quality = self.model.quality;
        if quality.worst_error > 0.25 {
            warnings.push(format!(
                "a logged run is {} off the model: check for disturbed runs, or try another form",
                percent(quality.worst_error)
            ));
        }
        warnings
    }

    fn write(&self, log: &RunLog, weighting: Weighting, out: &mut dyn Write) -> Result<(), CliError> {
        let model = &self.model;
        let of = if log.headings[3].is_some() { format!("{}: ", text::clean(&self.gpu, 60)) } else { String::new() };
        let variables: Vec<String> = [("x", "batch size", model.batches), ("y", "iterations", model.iterations)]
            .into_iter()
            .filter_map(|(letter, name, ends)| {
                let [least, most] = ends?;
                Some(format!("{letter} {name}, {} to {}", grouped(least), grouped(most)))
            })
            .collect();
        let errors = if weighting == Weighting::Relative { "relative errors" } else { "errors in seconds" };
        writeln!(
            out,
            "\n{of}{}   ({}; {} runs, least squares of {errors})\n",
            model.form.formula(),
            variables.join("; "),
            model.runs
        )?;
        let mut table = Table::new(&[
            Column::text(" ", "letter"),
            Column::number("time", "value_us"),
            Column::number("± standard error", "standard_error_us"),
            Column::text("per", "per"),
        ]);
        let micros = |value: f64| time(Micros::known(value));
        for one in model.coefficients() {
            let share = if one.value == 0.0 { 0.0 } else { one.error / one.value.abs() };
            table.push(vec![
                Cell::text(one.letter),
                Cell::new(micros(one.value), one.value),
                if one.is_held() {
                    Cell::text("held at 0")
                } else {
                    Cell::new(format!("{} ({})", micros(one.error), percent(share)), one.error)
                },
                Cell::text(meaning(model.form, one.letter)),
            ]);
        }
        table.write_text(out)?;
        let quality = model.quality;
        writeln!(
            out,
            "\nfit: R² {:.4}, mean error {}, worst {}",
            quality.r_squared,
            percent(quality.mean_error),
            percent(quality.worst_error)
        )?;
        self.write_runs(out)?;
        for warning in self.warnings() {
            writeln!(out, "warning: {warning}")?;
        }
        Ok(())
    }

    /// The times of the runs that were requested.
    fn write_runs(&self, out: &mut dyn Write) -> Result<(), CliError> {
        if self.at.is_empty() {
            return Ok(());
        }
        let mut table = Table::new(&[
            Column::text("run", "run"),
            Column::number("time", "time_us"),
            Column::number("80 % range", "range"),
            Column::number("90 % range", "range_90"),
            Column::text("method", "method"),
        ]);
        for (batch, iterations, run) in &self.at {
            table.push(vec![
                Cell::text(size_text(*batch, *iterations)),
                Cell::new(time(run.time.range.mid), run.time.range.mid.get()),
                Cell::text(time_range(run.time.range.low, run.time.range.high)),
                Cell::text(time_range(run.wide[0], run.wide[1])),
                Cell::text(run.time.method),
            ]);
        }
        writeln!(out)?;
        table.write_text(out)?;
        writeln!(
            out,
            "ranges: prediction interval for a new run, Student's t with {} degrees of freedom{}",
            self.model.degrees_of_freedom,
            if self.model.batches.is_some() && self.model.form != Form::Iterations {
                "; wider beyond the logged batch sizes, by the error of linear models there"
            } else {
                ""
            }
        )?;
        Ok(())
    }
}
