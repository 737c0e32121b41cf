//! Steps of layouts after one or two others were measured on the same machines with the same program.

use std::collections::BTreeMap;

use habitat_tui::cli::CliError;
use habitat_tui::predict::scale::{ScaleError, fit_layouts};
use habitat_tui::units::Micros;

use super::{Job, PredictedRow, Row};
use crate::evaluate::tally::{Groups, Predicted};

/// A measured step.
struct Run {
    id: String,
    source: String,
    /// Layout, batch and number of GPUs.
    layout: String,
    of: Job,
    measured: Micros,
}

/// Steps by job and machine.
#[derive(Default)]
pub(super) struct Runs(BTreeMap<String, Vec<Run>>);

impl Runs {
    pub(super) fn add(&mut self, row: &Row, found: PredictedRow, seconds: f64) -> Result<(), CliError> {
        let Row { gpus, gbs, mbs, tp, pp, vpp, cp, ep, sharding, recompute, .. } = row;
        let layout = format!("{gpus} {gbs} {mbs} {tp} {pp} {vpp:?} {cp:?} {ep:?} {sharding} {recompute}");
        let measured = Micros::new(seconds * 1e6).map_err(CliError::other)?;
        let (id, source) = (row.id.clone(), row.source.clone());
        self.0.entry(row.of_machine()).or_default().push(Run { id, source, layout, of: found.of, measured });
        Ok(())
    }

    /// Every layout of a job by a factor from each other one, and by both from pairs of neighbours in the table.
    pub(super) fn evaluate(&self, groups: &mut Groups) -> Result<(), CliError> {
        for runs in self.0.values() {
            for place in 0..runs.len() {
                let next = (place + 1) % runs.len();
                for measured in [vec![place], vec![place, next]] {
                    compare(runs, &measured, groups).map_err(CliError::other)?;
                }
            }
        }
        Ok(())
    }
}

/// Steps of the layouts that were not `measured`.
fn compare(runs: &[Run], measured: &[usize], groups: &mut Groups) -> Result<(), ScaleError> {
    let known: Vec<&Run> = measured.iter().map(|&place| &runs[place]).collect();
    let is_known = |run: &&Run| known.iter().any(|one| one.layout == run.layout);
    let are_different = known.iter().skip(1).all(|one| one.layout != known[0].layout);
    let others: Vec<&Run> = runs.iter().filter(|run| !is_known(run)).collect();
    if others.is_empty() || !are_different {
        return Ok(());
    }
    let steps: Vec<Micros> = known.iter().map(|run| run.measured).collect();
    let factors = fit_layouts(&steps, |place, factors| Ok(known[place].of.step(Some(factors))?.step.range.mid))?;
    let method = if known.len() > 1 { "two measured" } else { "one measured" };
    for run in others {
        let seconds = run.of.step(Some(factors))?.step.range.map(|time| time.get() / 1e6);
        let predicted = Predicted { mid: seconds.mid, range: Some([seconds.low, seconds.high]) };
        let is_small = run.source == "vtrain-single";
        let all = if is_small { "other layouts, single machine, waits for the host" } else { "other layouts" };
        for group in [all.to_owned(), format!("other layouts, {}", run.source)] {
            groups.add(&group, method, predicted, run.measured.get() / 1e6, &|| {
                format!("{} by {}", run.id, known.iter().map(|one| one.id.as_str()).collect::<Vec<_>>().join(", "))
            });
        }
    }
    Ok(())
}
