//! `habitat-tui predict`, from a recorded step or from a black box.

use std::io::Write;
use std::path::Path;

use super::error::{At, CliError};
use super::input::{Loaded, load};
use super::options::{options, settings, weights_folder};
use super::output::{check_new, print_json, print_table, save_html};
use super::{gpu, hints};
use crate::settings::args::{BlackBoxArgs, InputArgs, PredictArgs, TableForm};
use crate::store::{self, Kind, Paths};
use crate::terminal;
use habitat_base::text::clean;
use habitat_base::units::most;
use habitat_planning::pricing::PriceBook;
use habitat_prediction::blackbox::{self, Axis, OperatorTotals, between};
use habitat_prediction::difference::{self as of_gpus, Difference};
use habitat_prediction::hypothetical::{WhatIf, what_if};
use habitat_prediction::{Finding, Options, Prediction, Predictions};
use habitat_reports::html::Report;
use habitat_reports::table::markdown;
use habitat_reports::words::Words;
use habitat_reports::{answer, comparison, difference, format, memory, predictions, summary};
use habitat_step::catalog::Catalog;
use habitat_step::catalog::hypothetical::{Changes, Figure};

pub(super) fn predict(args: &PredictArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let prices = store::prices(&paths)?;
    if let Some(path) = &args.html {
        check_new(path, args.file_args.force)?;
    }
    let mut step = None;
    // The first lines are the same on a terminal, in Markdown and in HTML.
    let mut first = Vec::new();
    let is_told = !args.difference && (args.form.is_text() || args.form.markdown || args.html.is_some());
    let mut answers = if let Some(file) = &args.black_box.black_box {
        let (answers, line) = from_black_box(&args.black_box, file, &args.input, &args.to, &catalog)?;
        first.extend(is_told.then(|| answer::lines(&answers, &prices)).into_iter().flatten());
        if args.form.is_text() {
            writeln!(out, "{line}\n")?;
            write_lines(&first, out)?;
        }
        answers
    } else {
        let loaded = load(&args.input, &catalog)?;
        loaded.warn();
        let names_step = args.form.is_text() || (args.form.markdown && !args.difference && !args.all_methods);
        if loaded.embedded && !names_step {
            terminal::say(format_args!("note: {}", loaded.label));
        }
        let steps_only = !args.operations && !args.difference;
        let options = Options { steps_only, ..options(&args.input, &args.to, &catalog, &paths)? };
        let gpus = if options.targets.is_empty() { catalog.len() } else { options.targets.len() };
        let operations = loaded.profile.operations.len();
        if !steps_only && operations * gpus > most::PREDICTED_OPERATIONS {
            return Err(CliError::Refused(format!(
                "{operations} operations on {gpus} GPUs exceed the limit of {} for listing each one: choose fewer GPUs (--to)",
                most::PREDICTED_OPERATIONS
            )));
        }
        if args.all_methods {
            if args.form.is_text() {
                recorded(&loaded, true, out)?;
            }
            return compare(args, &loaded, &catalog, &options, out);
        }
        let found = habitat_prediction::predict(&loaded.profile, &catalog, &options);
        if is_told {
            first = answer::first_lines(&loaded.profile, &catalog, found.as_ref().ok(), &prices);
            first.extend(speed_up(&loaded, &catalog, &options, found.as_ref().ok()));
        }
        if args.form.is_text() {
            // Measured figures need no catalog and are shown even if the prediction fails.
            write_lines(&first, out)?;
            recorded(&loaded, args.verbose || found.is_err(), out)?;
            out.flush()?;
        }
        let mut answers = gpu::predicted(found, &loaded.label)?;
        if let Some(asked) = &args.what_if {
            let changes = Changes::parse(asked).map_err(|why| CliError::Refused(format!("--what-if: {why}")))?;
            answers.predictions = changed(&changes, &loaded, &catalog, &options)?;
            let named = |one: &Prediction| Finding::HypotheticalGpu {
                gpu: one.gpu.slug.to_string(),
                name: one.gpu.name.clone(),
            };
            answers.notes.extend(answers.predictions.iter().skip(1).step_by(2).map(named));
        }
        step = Some(loaded);
        answers
    };
    if args.to.is_empty() {
        answers = fastest_first(answers);
    }
    if let Some(path) = &args.html {
        save_report(args, path, step.as_ref(), (&answers, &first), &prices)?;
    }
    if args.difference {
        return differ(args, &answers, out);
    }
    let label = step.map_or_else(String::new, |loaded| format!(" · {}", loaded.label));
    print_predictions(args, &answers, (&label, &first), &prices, out)
}

/// Prints the predictions in the requested form; Markdown with the source of the step and the `first` lines.
fn print_predictions(
    args: &PredictArgs,
    answers: &Predictions,
    (label, first): (&str, &[String]),
    prices: &PriceBook,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    match args.form {
        TableForm { json: true, .. } => return print_json(&predictions::json(answers, prices, args.operations), out),
        TableForm { csv: true, .. } if args.operations => {
            for (index, prediction) in answers.predictions.iter().enumerate() {
                let mut text = Vec::new();
                predictions::operations_table(prediction).write_csv(&mut text)?;
                // One header line for all GPUs.
                let from =
                    if index == 0 { 0 } else { text.iter().position(|&byte| byte == b'\n').map_or(0, |end| end + 1) };
                out.write_all(&text[from..])?;
            }
        }
        TableForm { csv: true, .. } => predictions::table(answers, prices).write_csv(out)?,
        TableForm { markdown: true, .. } => {
            let workload = &answers.workload;
            writeln!(out, "# Step times: {}\n", markdown(&clean(&workload.name, 80)))?;
            writeln!(out, "{}\n", markdown(&format!("{}{label}", summary::workload_facts(workload))))?;
            let lines: Vec<String> = first.iter().map(|line| format!("- {}", markdown(line))).collect();
            write_lines(&lines, out)?;
            predictions::write_warnings(&answers.warnings(), out)?;
            predictions::table(answers, prices).write_markdown(out)?;
            for prediction in answers.predictions.iter().filter(|_| args.operations) {
                writeln!(out, "\n### {}\n", prediction.gpu.slug)?;
                predictions::operations_table(prediction).write_markdown(out)?;
            }
        }
        _ => {
            summary::write_predictions(answers, prices, terminal::width(), out)?;
            memory::write_remedies(answers, |_| true, out)?;
            for prediction in answers.predictions.iter().filter(|_| args.operations) {
                writeln!(out, "\n{}: {}", prediction.gpu.slug, prediction.memory.basis.words())?;
                predictions::operations_table(prediction).write_lines(terminal::width(), out)?;
            }
        }
    }
    Ok(0)
}

/// Writes lines and an empty line, if there are lines.
pub(super) fn write_lines(lines: &[String], out: &mut dyn Write) -> std::io::Result<()> {
    if lines.is_empty() { Ok(()) } else { writeln!(out, "{}\n", lines.join("\n")) }
}

/// The speed in the requested precision, from a second prediction in the recorded one.
fn speed_up(loaded: &Loaded, catalog: &Catalog, options: &Options, other: Option<&Predictions>) -> Option<String> {
    let (to, other) = options.precision.zip(other)?;
    let options = Options { precision: None, steps_only: true, ..options.clone() };
    let recorded = habitat_prediction::predict(&loaded.profile, catalog, &options).ok()?;
    answer::precision(&recorded, other, to)
}

/// Writes the recorded step: all of it if `whole`, else two lines.
fn recorded(loaded: &Loaded, whole: bool, out: &mut dyn Write) -> Result<(), CliError> {
    if whole {
        summary::write_profile(&loaded.profile, &loaded.label, out)?;
    } else {
        summary::write_step(&loaded.profile, &loaded.label, out)?;
    }
    Ok(writeln!(out)?)
}

/// Sorts by step time, fastest first, for answers about all GPUs.
pub(super) fn fastest_first(mut predictions: Predictions) -> Predictions {
    predictions
        .predictions
        .sort_by(|a, b| a.step.mid().total_cmp(&b.step.mid()).then_with(|| a.gpu.slug.cmp(&b.gpu.slug)));
    predictions
}

/// Predictions for each GPU with its real and its changed specifications, for `--what-if`.
fn changed(
    changes: &Changes,
    loaded: &Loaded,
    catalog: &Catalog,
    options: &Options,
) -> Result<Vec<Prediction>, CliError> {
    let mut answers = Vec::new();
    for gpu in &options.targets {
        let found = what_if(&loaded.profile, catalog, options, gpu, changes, Figure::Bandwidth);
        let WhatIf { real, changed, .. } = gpu::predicted(found, &loaded.label)?;
        answers.extend([real, changed]);
    }
    Ok(answers)
}

/// The report to share, for `--html`.
fn save_report(
    args: &PredictArgs,
    path: &Path,
    step: Option<&Loaded>,
    (answers, first): (&Predictions, &[String]),
    prices: &PriceBook,
) -> Result<(), CliError> {
    let compared = args.difference.then(|| compared(answers)).transpose()?;
    let black_box = || args.black_box.black_box.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
    let report = Report {
        profile: step.map(|loaded| &loaded.profile),
        label: &step.map_or_else(black_box, |loaded| loaded.label.clone()),
        predictions: answers,
        prices,
        plan: None,
        frontier: &[],
        difference: compared.as_ref(),
        lines: first,
        command: &hints::typed().to_string(),
        created: store::now(),
    };
    save_html(&report.html(), path, args.file_args.force)
}

/// The two GPUs of `--difference`.
fn compared(answers: &Predictions) -> Result<Difference<'_>, CliError> {
    let [from, to] = &answers.predictions[..] else {
        let found = answers.predictions.len();
        return Err(CliError::Refused(format!(
            "--difference compares two GPUs, but {found} were given: pass two, such as --to a100-pcie-40gb,h100-sxm5-80gb, or one with --what-if"
        )));
    };
    Ok(of_gpus::between(from, to))
}

/// Explains the difference between two GPUs, for `--difference`.
fn differ(args: &PredictArgs, answers: &Predictions, out: &mut dyn Write) -> Result<u8, CliError> {
    let compared = compared(answers)?;
    if args.form.json {
        return print_json(&difference::json(&compared), out);
    }
    if !args.form.csv {
        predictions::write_warnings(&answers.warnings(), out)?;
    }
    if args.form.is_text() {
        difference::write_text(&compared, terminal::width(), out)?;
    } else {
        print_table(&difference::table(&compared), args.form, out)?;
    }
    Ok(0)
}

/// Every method, for `--all-methods`.
fn compare(
    args: &PredictArgs,
    loaded: &Loaded,
    catalog: &Catalog,
    options: &Options,
    out: &mut dyn Write,
) -> Result<u8, CliError> {
    let compared = habitat_prediction::compare::compare(&loaded.profile, catalog, options);
    let comparison = gpu::predicted(compared, &loaded.label)?;
    if args.form.json {
        return print_json(&comparison::json(&comparison), out);
    }
    if args.form.is_text() {
        comparison::write_text(&comparison, terminal::width(), out)?;
        return Ok(0);
    }
    if args.form.markdown {
        predictions::write_warnings(&comparison.warnings, out)?;
    }
    print_table(&comparison::table(&comparison), args.form, out)?;
    Ok(0)
}

/// Predicts from the black box of `args`, with a line that describes it.
pub(super) fn from_black_box(
    args: &BlackBoxArgs,
    file: &Path,
    input: &InputArgs,
    to: &[String],
    catalog: &Catalog,
) -> Result<(Predictions, String), CliError> {
    let paths = Paths::find();
    let weights = weights_folder(input.prediction.models.models.as_deref(), &settings(&paths)?, &paths);
    let model = store::black_box(&weights)?;
    let targets = gpu::all(catalog, "--to", to)?;
    let one = |path: &Path| -> Result<(OperatorTotals, Predictions), CliError> {
        let totals = match store::kind(path)? {
            Kind::BlackBox => store::read_totals(path)?,
            other => return Err(other.refused(path, "a black box, as `habitat-tui export --black-box` writes").into()),
        };
        let answers = blackbox::predict(&totals, &model, catalog, &targets, input.recorded.peak_memory);
        let predictions = answers.at(path.display())?;
        Ok((totals, predictions))
    };
    let (totals, mut predictions) = one(file)?;
    let mut line = format!(
        "{}: black box, {} kinds of operators on {}, {} per step, batch {}",
        file.display(),
        totals.kinds.len(),
        totals.gpu,
        format::time(totals.step),
        totals.batch_size
    );
    if let Some(path) = &args.up_to {
        let (largest, at_largest) = one(path)?;
        let (axis, sizes, size) = match (args.at_batch, args.at_pixels, &args.pixels[..]) {
            (Some(size), None, _) => (Axis::Batch, [totals.batch_size, largest.batch_size], size),
            (None, Some(size), &[small, large]) => (Axis::Pixels, [small, large], size),
            _ => {
                return Err(CliError::Refused(
                    "--up-to needs a size in between: pass --at-batch N, or --at-pixels N with --pixels SMALL,LARGE"
                        .to_owned(),
                ));
            }
        };
        predictions = between(&model, axis, &predictions, &at_largest, sizes, size)?;
        let what = if axis == Axis::Batch { "batch" } else { "image size" };
        line = format!("{line}; up to {}: {what} {size}", path.display());
    }
    Ok((predictions, line))
}
