//! `habitat-tui fit kernelwise`: fits linear models of kernels, layers and steps.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::cli::error::{At, CliError};
use crate::cli::input::load_file;
use crate::cli::output::{check_new, print_json};
use crate::settings::args::FitKernelWiseArgs;
use crate::store::operator_tables::{self, TABLES};
use crate::store::{self, Paths};
use habitat_base::regress::quantile::{median, quantile};
use habitat_base::units::GpuSlug;
use habitat_prediction::Method;
use habitat_prediction::kernelwise::{Driver, Group, KernelWise};
use habitat_prediction::learn::kernelwise::{CrossValidation, Data, Recipe, fit};
use habitat_reports::format;
use habitat_reports::table::{Cell, Column, Table};

/// Label of the input: the first profile, folder or tables, and how many more.
fn of_what(args: &FitKernelWiseArgs) -> String {
    let given: Vec<&PathBuf> = args.profiles.iter().chain(&args.tables).collect();
    let first = given.first().map_or_else(String::new, |path| path.display().to_string());
    if given.len() > 1 { format!("{first} and {} more", given.len() - 1) } else { first }
}

pub(super) fn run(args: &FitKernelWiseArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    check_new(&args.output, args.force)?;
    let mut data = Data::default();
    let (mut read, mut useless) = (0, Vec::new());
    for path in paths(&args.profiles)? {
        let loaded = load_file(&path, &catalog)?;
        loaded.warn();
        read += 1;
        if data.add_profile(loaded.profile) == 0 {
            useless.push(path);
        }
    }
    if let Some(dir) = &args.tables {
        add_tables(dir, &mut data)?;
    }
    let (model, held) = fit(&data, &catalog, Recipe { published: false }).at(of_what(args))?;
    store::save_atomically(&args.output, model.to_json().as_bytes(), args.force)?;
    let rows = rows(&data, &model, &held);
    let mut notes = Vec::new();
    if !useless.is_empty() {
        notes.push(format!(
            "{} of {read} profiles were not usable (GPU unknown, or no operator with a time and shapes): {}",
            useless.len(),
            useless.iter().take(3).map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
        ));
    }
    if model.across.is_empty() {
        notes.push("models for other GPUs need measurements of at least three GPUs".to_owned());
    }
    if model.seen.kernel_wise.is_none() {
        notes.push("one network per GPU: no cross-validation, so step times get a wide default range".to_owned());
    }
    if args.json {
        let json = FitJson {
            format: "habitat-fit-kernel-wise",
            version: 1,
            output: args.output.display().to_string(),
            kinds_across_gpus: model.across.len(),
            gpus: rows,
            notes,
        };
        return print_json(&json, out);
    }
    table(&rows).write_text(out)?;
    writeln!(out, "\n{} kinds of layers can be predicted on other GPUs", model.across.len())?;
    for note in notes {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "written: {}", args.output.display())?;
    Ok(0)
}

/// Expands folders to the profiles in them.
fn paths(given: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    for path in given {
        if path.is_dir() {
            let inside = store::profiles(path)?;
            if inside.is_empty() {
                return Err(
                    CliError::Refused("no profiles (*.habitat.json) in this folder".to_owned()).at(path.display())
                );
            }
            found.extend(inside);
        } else {
            found.push(path.clone());
        }
    }
    Ok(found)
}

/// Adds every operator table of a folder.
///
/// # Errors
/// [`CliError`] with the table and its line, or if there is no table.
pub fn add_tables(dir: &Path, data: &mut Data) -> Result<(), CliError> {
    let mut found = false;
    for name in TABLES {
        let Some(path) = operator_tables::find(dir, name) else { continue };
        found = true;
        for row in operator_tables::read(&path, name)? {
            data.add_measured(&row.gpu, &row.operation, row.precision, &row.kernel.name, row.time);
        }
    }
    if found {
        Ok(())
    } else {
        let names = TABLES.join(", ");
        Err(CliError::Refused(format!("{}: no operator tables ({names}; .csv or .csv.gz)", dir.display())))
    }
}

#[derive(Serialize)]
struct FitJson {
    format: &'static str,
    version: u32,
    output: String,
    kinds_across_gpus: usize,
    gpus: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Results of the fit on one GPU.
#[derive(Serialize)]
struct Row {
    gpu: String,
    rows: usize,
    steps: usize,
    kinds: usize,
    kernels: usize,
    groups: usize,
    /// Number of groups by the quantity that drives them.
    input_driven: usize,
    operation_driven: usize,
    output_driven: usize,
    bytes_driven: usize,
    tile_driven: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    median_r_squared: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p10_r_squared: Option<f64>,
    /// Steps of held-out networks, predicted from kernels.
    held_out_steps: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_out_mean_absolute_error: Option<f64>,
}

fn rows(data: &Data, model: &KernelWise, held: &CrossValidation) -> Vec<Row> {
    let mut measured: BTreeMap<&GpuSlug, usize> = BTreeMap::new();
    for row in &data.rows {
        *measured.entry(&row.gpu).or_default() += 1;
    }
    model
        .gpus
        .iter()
        .map(|(slug, lines)| {
            let groups: Vec<&Group> = lines
                .kinds
                .iter()
                .filter(|(kind, _)| *kind != habitat_prediction::layer::STREAMING)
                .flat_map(|(_, kind)| &kind.groups)
                .collect();
            let driven = |of: fn(Driver) -> bool| groups.iter().filter(|group| of(group.driver)).count();
            let mut explained: Vec<f64> = groups.iter().map(|group| group.r_squared).collect();
            let errors: Vec<f64> = held
                .networks
                .iter()
                .filter(|step| step.gpu == *slug && step.method == Method::KernelWise)
                .map(habitat_prediction::learn::kernelwise::HeldOut::error)
                .collect();
            Row {
                gpu: slug.to_string(),
                rows: measured.get(slug).copied().unwrap_or(0),
                steps: lines.steps,
                kinds: lines.kinds.len().saturating_sub(1),
                kernels: groups.iter().map(|group| group.kernels.len()).sum(),
                groups: groups.len(),
                input_driven: driven(|driver| driver == Driver::Input),
                operation_driven: driven(|driver| driver == Driver::Operations),
                output_driven: driven(|driver| driver == Driver::Output),
                bytes_driven: driven(|driver| driver == Driver::Bytes),
                tile_driven: driven(|driver| matches!(driver, Driver::Tiles(_))),
                median_r_squared: median(&mut explained),
                p10_r_squared: quantile(&mut explained, 0.1),
                held_out_steps: errors.len(),
                held_out_mean_absolute_error: (!errors.is_empty())
                    .then(|| errors.iter().sum::<f64>() / errors.len() as f64),
            }
        })
        .collect()
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        Column::text("GPU", "gpu"),
        Column::number("rows", "rows"),
        Column::number("steps", "steps"),
        Column::number("kinds", "kinds"),
        Column::number("kernels", "kernels"),
        Column::number("lines", "groups"),
        Column::number("input", "input_driven"),
        Column::number("operations", "operation_driven"),
        Column::number("output", "output_driven"),
        Column::number("bytes", "bytes_driven"),
        Column::number("tiles", "tile_driven"),
        Column::number("R² median", "median_r_squared"),
        Column::number("10 %", "p10_r_squared"),
        Column::number("left out", "held_out_steps"),
        Column::number("mean error", "held_out_mean_absolute_error"),
    ]);
    let r_squared = |value: f64| Cell::new(format!("{value:.3}"), value);
    for row in rows {
        table.push(vec![
            Cell::text(&row.gpu),
            Cell::text(row.rows),
            Cell::text(row.steps),
            Cell::text(row.kinds),
            Cell::text(row.kernels),
            Cell::text(row.groups),
            Cell::text(row.input_driven),
            Cell::text(row.operation_driven),
            Cell::text(row.output_driven),
            Cell::text(row.bytes_driven),
            Cell::text(row.tile_driven),
            Cell::maybe(row.median_r_squared, r_squared),
            Cell::maybe(row.p10_r_squared, r_squared),
            Cell::text(row.held_out_steps),
            Cell::maybe(row.held_out_mean_absolute_error, |error| Cell::new(format::percent(error), error)),
        ]);
    }
    table
}
