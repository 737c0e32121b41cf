//! `habitat-tui batches`: step time and memory at batch sizes that were not recorded. Also adds these to the
//! predictions that a plan uses.

use std::io::Write;

use super::error::{At, CliError};
use super::input::{Loaded, load};
use super::options::options;
use super::output::print_json;
use crate::settings::args::{BatchesArgs, TableForm};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_planning::values::BatchSizes;
use habitat_prediction::batches::{add_shares, add_sizes, sweep, sweep_to_largest, usual_sizes};
use habitat_prediction::{Options, Predictions};
use habitat_reports::batches;
use habitat_reports::predictions::write_warnings;
use habitat_reports::words::{self, Words};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

pub(super) fn run(args: &BatchesArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    // Without files, the sample.
    let files = if args.files.is_empty() { vec![None] } else { args.files.iter().cloned().map(Some).collect() };
    if files.len() > 1 && (args.recorded.batch_size.is_some() || args.recorded.peak_memory.is_some()) {
        return Err(CliError::Refused(
            "--batch-size and --peak-memory apply to a single file; to correct several, pass the flags to `habitat-tui import` for each".to_owned(),
        ));
    }
    let mut profiles = Vec::new();
    for file in &files {
        let loaded = load(&args.input(file.clone()), &catalog)?;
        loaded.warn();
        if loaded.embedded && (args.table.form.is_text() || args.table.form.markdown) {
            writeln!(out, "{}", loaded.label)?;
        }
        profiles.push((loaded.label, loaded.profile));
    }
    let mut options = options(&args.input(files[0].clone()), &args.to, &catalog, &paths)?;
    if options.targets.is_empty() {
        let origin = habitat_prediction::origin(&profiles[0].1, &catalog, &options).at(&profiles[0].0)?;
        let gpu = origin.ok_or_else(|| {
            CliError::Refused("no GPU timings in this profile; choose GPUs, such as --to h100-sxm5-80gb,l4".to_owned())
        })?;
        options.targets.push(gpu.slug.clone());
    }
    let largest = profiles.iter().filter_map(|(_, profile)| profile.workload.batch_size).max().unwrap_or(0);
    let sweep = if args.at.is_empty() {
        let larger = [2, 4, 8].map(|times| largest.saturating_mul(times));
        sweep_to_largest(&profiles, &catalog, &options, &larger)
    } else {
        sweep(&profiles, &catalog, &options, &args.at)
    };
    let sweep = sweep.at(&profiles[0].0)?;
    match args.table.form {
        TableForm { json: true, .. } => return print_json(&batches::json(&sweep), out),
        TableForm { csv: true, .. } if args.families => batches::families(&sweep).write_csv(out)?,
        TableForm { csv: true, .. } => batches::table(&sweep).write_csv(out)?,
        TableForm { markdown: true, .. } => {
            write_warnings(&sweep.warnings, out)?;
            batches::table(&sweep).write_markdown(out)?;
            writeln!(out)?;
            batches::lines(&sweep).write_markdown(out)?;
            if args.families {
                writeln!(out)?;
                batches::families(&sweep).write_markdown(out)?;
            }
            writeln!(out)?;
            let of_gpus = sweep
                .gpus
                .iter()
                .flat_map(|gpu| gpu.notes.iter().map(|note| format!("{}: {}", gpu.gpu.slug, note.words())));
            for note in of_gpus.chain(words::all(&sweep.notes)) {
                writeln!(out, "- {}", habitat_reports::table::markdown(&note))?;
            }
        }
        TableForm { .. } => batches::write_text(&sweep, args.families, terminal::width(), out)?,
    }
    Ok(0)
}

/// Requested batch sizes in addition to the recorded one.
pub(super) fn sizes(asked: Option<&BatchSizes>, profile: &Profile) -> Vec<u64> {
    match asked {
        None => Vec::new(),
        Some(BatchSizes::Given(sizes)) => sizes.clone(),
        Some(BatchSizes::Auto) => usual_sizes(profile.workload.batch_size.unwrap_or(0)),
    }
}

/// Adds predictions at other batch sizes; without any, at the per-GPU shares of the recorded batch on several GPUs.
pub(super) fn add(
    sizes: &[u64],
    predictions: &mut Predictions,
    loaded: &Loaded,
    catalog: &Catalog,
    options: &Options,
) -> Result<(), CliError> {
    let profile = (loaded.label.clone(), loaded.profile.clone());
    if sizes.is_empty() {
        add_shares(predictions, profile, catalog, options);
        return Ok(());
    }
    let profiles = [profile];
    add_sizes(predictions, &sweep(&profiles, catalog, options, sizes).at(&loaded.label)?);
    Ok(())
}
