//! Black boxes: step times on other GPUs from operator kinds and their total times.

use std::collections::BTreeSet;
use std::path::Path;

use habitat_tui::catalog::Catalog;
use habitat_tui::cli::CliError;
use habitat_tui::learn::blackbox::{fit, sizes};
use habitat_tui::predict::blackbox::{Axis, Recorded, network_family};
use habitat_tui::store::profet;

use super::tally::{Evaluation, Groups, Predicted};
use crate::args::BlackBoxArgs;
use crate::learn::black_box::{self, Evaluated, cross_validate};
use crate::learn::published::{self, Part};

/// The tables for `args`.
pub(super) fn evaluate(args: &BlackBoxArgs, catalog: &Catalog) -> Result<Vec<Evaluation>, CliError> {
    match (&args.dir, &args.train, &args.test) {
        (Some(dir), None, None) => within(dir, &profet::read(dir)?, args, catalog),
        (None, Some(train), Some(test)) => Ok(vec![across(train, test, args, catalog)?]),
        _ => Err(CliError::Refused(
            "missing data: give a folder of tables in PROFET's form, or two with --train and --test".to_owned(),
        )),
    }
}

/// Leaves out networks in turn, then families if requested, then sizes.
pub(super) fn within(
    dir: &Path,
    rows: &[Recorded],
    args: &BlackBoxArgs,
    catalog: &Catalog,
) -> Result<Vec<Evaluation>, CliError> {
    let mut evaluations = vec![left_out(rows, "network", &str::to_owned, args, catalog)?];
    if args.families {
        let family = |network: &str| network_family(network).to_owned();
        evaluations.push(left_out(rows, "family", &family, args, catalog)?);
    }
    if args.kinds {
        evaluations.push(without_kinds(rows, catalog)?);
    }
    if habitat_tui::store::operator_tables::find(dir, "latencies").is_some() {
        evaluations.push(interpolated(dir)?);
    }
    Ok(evaluations)
}

fn left_out(
    rows: &[Recorded],
    what: &str,
    group: &dyn Fn(&str) -> String,
    args: &BlackBoxArgs,
    catalog: &Catalog,
) -> Result<Evaluation, CliError> {
    let mut chosen = Vec::new();
    let evaluated = cross_validate(rows, catalog, group, &mut |name, settings| {
        chosen.push(format!("{name} {}/{}/{}", settings.ridge, settings.length, settings.noise));
    })
    .map_err(CliError::other)?;
    let mut groups = Groups::default();
    add(&mut groups, OURS, &evaluated);
    if args.published {
        let names: BTreeSet<String> = rows.iter().map(|row| group(&row.network)).collect();
        for name in names {
            let (held, fitted): (Vec<&Recorded>, Vec<&Recorded>) =
                rows.iter().partition(|row| group(&row.network) == name);
            add_published(&mut groups, &fitted, &held)?;
        }
    }
    let protocol = format!(
        "black box, leave one {what} out: absolute relative errors of the step on another GPU, every row and ordered pair pooled; \"in range\" is the share of measured steps in the 80 % range"
    );
    let notes = vec![format!(
        "fitted on the medians of the repetitions of the other networks; what is chosen (ridge/length/noise) is chosen by leaving out each of those: {}",
        chosen.join(", ")
    )];
    Ok(groups.evaluation(protocol, notes))
}

/// Leaves out kinds of operators in turn.
fn without_kinds(rows: &[Recorded], catalog: &Catalog) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    for (kind, evaluated) in black_box::kinds_left_out(rows, catalog).map_err(CliError::other)? {
        add_to(&mut groups, OURS, &evaluated, &|one| {
            ["all".to_owned(), format!("without {kind}"), format!("from {}", one.row.totals.gpu)]
        });
    }
    let protocol = "black box, leave one kind of operator out: fitted on the networks in which it takes under 3 % of the device time, these operators taken out, and evaluated on the others; absolute relative errors of the step on another GPU, every row and ordered pair pooled";
    Ok(groups.evaluation(protocol.to_owned(), Vec::new()))
}

/// Fits on one folder, evaluates on another.
fn across(train: &Path, test: &Path, args: &BlackBoxArgs, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let (fitted, evaluated) = (profet::read(train)?, profet::read(test)?);
    let of: Vec<&Recorded> = fitted.iter().collect();
    let model = fit(&of, catalog, "", Vec::new()).map_err(CliError::other)?;
    let rows: Vec<&Recorded> = evaluated.iter().collect();
    let networks = |rows: &[Recorded]| rows.iter().map(|row| row.network.to_string()).collect::<BTreeSet<_>>();
    let (seen, evaluated_on) = (networks(&fitted), networks(&evaluated));
    let both: Vec<&str> = seen.intersection(&evaluated_on).map(String::as_str).collect();
    let mut groups = Groups::default();
    add(&mut groups, OURS, &black_box::evaluate(&model, &rows));
    if args.published {
        add_published(&mut groups, &of, &rows)?;
    }
    let protocol = "black box, fitted on one folder and evaluated on another: absolute relative errors of the step on another GPU, every row and ordered pair pooled; \"in range\" is the share of measured steps in the 80 % range".to_owned();
    let mut notes = vec![format!("fitted on {}", seen.iter().cloned().collect::<Vec<_>>().join(", "))];
    if !both.is_empty() {
        notes.push(format!("careful: in both folders, so no test of unseen networks: {}", both.join(", ")));
    }
    Ok(groups.evaluation(protocol, notes))
}

/// The name of the black-box model in tables.
const OURS: &str = "black box";
/// Seed of the published predictor's forest and network.
const SEED: u64 = 1;

fn add_published(groups: &mut Groups, fitted: &[&Recorded], held: &[&Recorded]) -> Result<(), CliError> {
    for found in published::evaluate(fitted, held, SEED).map_err(CliError::other)? {
        let anchor = &found.row.totals.gpu;
        let label = || format!("{}, {anchor} → {}", found.row.label(), found.target);
        let pair = format!("{anchor} → {}", found.target);
        for (part, mid) in Part::ALL.into_iter().zip(found.parts) {
            for group in ["all", &pair, &format!("network {}", found.row.network)] {
                groups.add(group, part.name(), Predicted { mid, range: None }, found.measured, &label);
            }
        }
    }
    Ok(())
}

fn add(groups: &mut Groups, method: &str, evaluated: &[Evaluated<'_>]) {
    add_to(groups, method, evaluated, &|Evaluated { row, target, .. }| {
        ["all".to_owned(), format!("{} → {target}", row.totals.gpu), format!("network {}", row.network)]
    });
}

/// Adds every step to the groups from `of`.
fn add_to(groups: &mut Groups, method: &str, evaluated: &[Evaluated<'_>], of: &dyn Fn(&Evaluated<'_>) -> [String; 3]) {
    for one in evaluated {
        let Evaluated { row, target, predicted: [low, mid, high], measured } = one;
        let predicted = Predicted { mid: *mid, range: Some([*low, *high]) };
        let label = || format!("{}, {} → {target}", row.label(), row.totals.gpu);
        for group in of(one) {
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
