//! Black boxes: step times on other GPUs from operator kinds and their total times.

use std::collections::BTreeSet;
use std::path::Path;

use super::super::CliError;
use super::tally::{Evaluation, Groups, Predicted};
use crate::catalog::Catalog;
use crate::learn::blackbox::{Judged, cross_validate, fit, judge};
use crate::learn::blackbox::sizes::{self, Axis};
use crate::predict::blackbox::{Recorded, network_family};
use crate::settings::args::BlackBoxEvaluateArgs;
use crate::store::profet;

/// The tables that `args` asks for.
pub(super) fn evaluate(args: &BlackBoxEvaluateArgs, catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    match (&args.dir, &args.train, &args.test) {
        (Some(dir), None, None) => within(dir, args, catalog),
        (None, Some(train), Some(test)) => Ok(vec![across(train, test, args, catalog)?]),
        _ => Err(CliError(
            "on what? a folder of tables of PROFET's form, or two with --train and --test".to_owned(),
        )),
    }
}

/// Networks left out one after the other, then families if asked for, then sizes.
fn within(dir: &Path, args: &BlackBoxEvaluateArgs, catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    let rows = profet::read(dir)?;
    let mut evaluations = vec![left_out(&rows, "network", &str::to_owned, args, catalog)?];
    if args.families {
        let family = |network: &str| network_family(network).to_owned();
        evaluations.push(left_out(&rows, "family", &family, args, catalog)?);
    }
    if crate::store::operator_tables::find(dir, "latencies").is_some() {
        evaluations.push(interpolated(dir)?);
    }
    Ok(evaluations)
}

fn left_out(
    rows: &[Recorded],
    what: &str,
    group: &dyn Fn(&str) -> String,
    args: &BlackBoxEvaluateArgs,
    catalog: &Catalog,
) -> Result<Evaluation, CliError> {
    let mut chosen = Vec::new();
    let judged = cross_validate(rows, catalog, group, &mut |name, settings| {
        chosen.push(format!("{name} {}/{}/{}", settings.ridge, settings.length, settings.noise));
    })
    .map_err(CliError::of)?;
    let mut groups = Groups::default();
    add(&mut groups, "black box", &judged);
    let _ = args;
    let protocol = format!(
        "black box, leave one {what} out: absolute relative errors of the step on another GPU, every row and ordered pair pooled; \"in range\" is the share of measured steps in the 80 % range"
    );
    let notes = vec![
        format!("fitted on the medians of the repetitions of the other networks; what is chosen (ridge/length/noise) is chosen by leaving out each of those: {}", chosen.join(", ")),
    ];
    Ok(groups.evaluation(protocol, notes))
}

/// Fitted on one folder, judged on another.
fn across(train: &Path, test: &Path, args: &BlackBoxEvaluateArgs, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let (fitted, judged) = (profet::read(train)?, profet::read(test)?);
    let of: Vec<&Recorded> = fitted.iter().collect();
    let model = fit(&of, catalog, "").map_err(CliError::of)?;
    let rows: Vec<&Recorded> = judged.iter().collect();
    let networks = |rows: &[Recorded]| rows.iter().map(|row| row.network.to_string()).collect::<BTreeSet<_>>();
    let (seen, judged_on) = (networks(&fitted), networks(&judged));
    let both: Vec<&str> = seen.intersection(&judged_on).map(String::as_str).collect();
    let mut groups = Groups::default();
    add(&mut groups, "black box", &judge(&model, &rows));
    let _ = args;
    let protocol = "black box, fitted on one folder and judged on another: absolute relative errors of the step on another GPU, every row and ordered pair pooled; \"in range\" is the share of measured steps in the 80 % range".to_owned();
    let mut notes = vec![format!("fitted on {}", seen.iter().cloned().collect::<Vec<_>>().join(", "))];
    if !both.is_empty() {
        notes.push(format!("careful: in both folders, so no test of unseen networks: {}", both.join(", ")));
    }
    Ok(groups.evaluation(protocol, notes))
}

fn add(groups: &mut Groups, method: &str, judged: &[Judged<'_>]) {
    for Judged { row, target, predicted: [low, mid, high], measured } in judged {
        let predicted = Predicted { mid: *mid, range: Some([*low, *high]) };
        let anchor = &row.totals.gpu;
        let label = || format!("{}, {anchor} → {target}", row.label());
        for group in ["all".to_owned(), format!("{anchor} → {target}"), format!("network {}", row.network)] {
            groups.add(&group, method, predicted, *measured, &label);
        }
    }
}

/// Sizes between two measured ones.
fn interpolated(dir: &Path) -> Result<Evaluation, CliError> {
    let rows = profet::read_latencies(dir)?;
    let mut groups = Groups::default();
    for (axis, name) in [(Axis::Batch, "batch size"), (Axis::Pixels, "picture size")] {
        let series = sizes::series(&rows, axis);
        for between in sizes::cross_validate(&series) {
            let of = between.of;
            let label = || format!("{}, {} on {} at {}", of.network, of.held, of.gpu, between.size);
            for group in [name.to_owned(), format!("{name} on {}", of.gpu)] {
                for (method, mid) in [("order 2 (PROFET)", between.polynomial), ("line", between.line)] {
                    groups.add(&group, method, Predicted { mid, range: None }, between.measured, &label);
                }
            }
        }
    }
    let protocol = "steps at sizes between the smallest and the largest measured one (PROFET's min–max interpolation, its polynomial fitted per GPU without the network): absolute relative errors".to_owned();
    Ok(groups.evaluation(protocol, Vec::new()))
}
