//! `habitat-tui models suggest`: suggests operators of a step to measure on a GPU, and writes tables for their times.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::error::{At, CliError};
use super::input::load;
use super::output::make_folder;
use super::{gpu, options};
use crate::settings::args::{InputArgs, SuggestArgs};
use crate::store::operator_tables::{self, TableLine};
use crate::store::{self, Paths};
use habitat_base::text;
use habitat_base::units::GpuSlug;
use habitat_prediction::suggest::{Suggestion, suggest};
use habitat_reports::format::percent;
use habitat_reports::table::{Cell, Column, Table};

pub(super) fn run(args: &SuggestArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let loaded = load(&InputArgs { file: args.file.clone(), sample: args.sample, ..InputArgs::default() }, &catalog)?;
    loaded.warn();
    let gpu = gpu::one(&catalog, "--to", &args.to)?;
    let models = options::models(&args.models, &catalog, &paths)?;
    let found = suggest(&loaded.profile, gpu, &models, args.count as usize).at(&loaded.label)?;
    if found.is_empty() {
        writeln!(
            out,
            "nothing to measure: no operator of this step is both predicted from its shapes and long enough"
        )?;
        return Ok(1);
    }
    table(&found, &gpu.slug)?.write_text(out)?;
    if let Some(dir) = &args.csv {
        write(&found, &gpu.slug, dir, args.force, out)?;
    }
    Ok(0)
}

fn line(suggestion: &Suggestion, gpu: &GpuSlug) -> Result<TableLine, CliError> {
    operator_tables::line(&suggestion.operation, suggestion.precision, gpu)
        .ok_or_else(|| CliError::Refused(format!("{}: no table covers this operator", suggestion.operation.name)))
}

fn table(found: &[Suggestion], gpu: &GpuSlug) -> Result<Table, CliError> {
    let mut table = Table::new(&[
        Column::text("operator", "operator"),
        Column::text("sizes", "sizes"),
        Column::text("type", "dtype"),
        Column::text("in the step", "within"),
        Column::number("ms alone", "predicted_ms"),
        Column::number("of the step", "share"),
        Column::number("uncertainty", "deviation"),
        Column::number("would remove", "removed"),
    ]);
    for one in found {
        let line = line(one, gpu)?;
        let sizes: Vec<String> = line.sizes.iter().map(|(column, value)| format!("{column}={value}")).collect();
        let mut within = text::clean(one.within.first().map_or("", String::as_str), 40);
        if one.within.len() > 1 {
            within = format!("{within} +{}", one.within.len() - 1);
        }
        let share = |value: f64| Cell::new(percent(value), value);
        table.push(vec![
            Cell::text(line.table),
            Cell::text(sizes.join(" ")),
            Cell::text(line.dtype),
            Cell::text(within),
            Cell::new(format!("{:.3}", one.time.as_millis()), one.time.as_millis()),
            share(one.share),
            share(one.deviation),
            share(one.removed),
        ]);
    }
    Ok(table)
}

/// Writes one file per table, with empty times.
fn write(found: &[Suggestion], gpu: &GpuSlug, dir: &Path, force: bool, out: &mut dyn Write) -> Result<(), CliError> {
    let mut files: BTreeMap<&'static str, String> = BTreeMap::new();
    for one in found {
        let line = line(one, gpu)?;
        let text = files.entry(line.table).or_insert_with(|| line.heading());
        text.push_str(&line.text());
    }
    make_folder(dir)?;
    for (name, text) in files {
        let path = dir.join(format!("{name}.csv"));
        store::save_atomically(&path, text.as_bytes(), force)?;
        writeln!(out, "{}: fill in latency_ms", path.display())?;
    }
    Ok(())
}
