//! Case studies of Li et al.: the faster of two GPUs for a network, and a queue
//! of networks shared out over two GPUs.

use std::collections::{BTreeMap, BTreeSet};

use habitat_tui::report::table::{Cell, Column, Table};
use habitat_tui::units::{GpuSlug, Micros};
use serde::Serialize;

use super::super::tally::{Evaluation, percent};
use super::Evaluated;

/// Relative difference in measured times below which either GPU will do.
const CLOSE: f64 = 0.05;
/// Most steps of a queue: all 2ⁿ assignments are tried.
const MOST: usize = 16;

#[derive(Serialize)]
struct FasterRow {
    method: &'static str,
    pairs: usize,
    right: usize,
    right_share: f64,
    /// Pairs whose times differ by more than 5 %.
    clear_pairs: usize,
    clear_right: usize,
    /// Excess time of the chosen GPU over the faster one, mean over all pairs.
    mean_excess: f64,
}

/// For every step and pair of measured GPUs: whether the prediction picks the faster one.
pub(super) fn faster(evaluated: &[Evaluated], left_out: &str) -> Evaluation {
    let mut rows = Vec::new();
    for method in methods(evaluated) {
        let mut row = FasterRow {
            method,
            pairs: 0,
            right: 0,
            right_share: 0.0,
            clear_pairs: 0,
            clear_right: 0,
            mean_excess: 0.0,
        };
        for (index, a) in evaluated.iter().enumerate() {
            for b in evaluated[index + 1..].iter().filter(|b| b.name == a.name && b.gpu != a.gpu) {
                let (Some(at_a), Some(at_b)) = (a.predicted.get(method), b.predicted.get(method)) else { continue };
                let chosen = if at_a.get() <= at_b.get() { a } else { b };
                let excess = chosen.measured / a.measured.min(b.measured) - 1.0;
                let clear = a.measured.max(b.measured) / a.measured.min(b.measured) - 1.0 > CLOSE;
                let right = usize::from(excess == 0.0);
                row.pairs += 1;
                row.right += right;
                row.clear_pairs += usize::from(clear);
                row.clear_right += if clear { right } else { 0 };
                row.mean_excess += excess;
            }
        }
        if row.pairs > 0 {
            row.right_share = row.right as f64 / row.pairs as f64;
            row.mean_excess /= row.pairs as f64;
            rows.push(row);
        }
    }
    let mut table = Table::new(&[
        Column::text("method", "method"),
        Column::number("pairs", "pairs"),
        Column::number("right", "right"),
        Column::number("share", "right_share"),
        Column::number("of clear ones", "clear_pairs"),
        Column::number("right", "clear_right"),
        Column::number("time lost", "mean_excess"),
    ]);
    for row in &rows {
        table.push(vec![
            Cell::text(row.method),
            Cell::text(row.pairs),
            Cell::text(row.right),
            percent(row.right_share),
            Cell::text(row.clear_pairs),
            Cell::text(row.clear_right),
            percent(row.mean_excess),
        ]);
    }
    let protocol = format!(
        "the faster of two GPUs, {left_out}: every step, every two GPUs it was measured on; clear: more than 5 % apart; time lost: by how much the GPU chosen takes longer, mean"
    );
    Evaluation::new(protocol, Vec::new(), table, &rows)
}

#[derive(Serialize)]
struct QueueRow {
    gpus: String,
    steps: usize,
    method: &'static str,
    /// Measured, with the assignment that the predictions choose.
    makespan_ms: f64,
    best_ms: f64,
    excess: f64,
}

/// For every two GPUs, a queue of all steps measured on both: assigned so that both finish as early as possible by the
/// predicted times.
pub(super) fn queue(evaluated: &[Evaluated], left_out: &str) -> Evaluation {
    let gpus: Vec<&GpuSlug> = evaluated.iter().map(|step| &step.gpu).collect::<BTreeSet<_>>().into_iter().collect();
    let mut rows: Vec<QueueRow> = Vec::new();
    for (index, a) in gpus.iter().enumerate() {
        for b in &gpus[index + 1..] {
            let of = |gpu: &GpuSlug| -> BTreeMap<&str, &Evaluated> {
                evaluated.iter().filter(|step| step.gpu == *gpu).map(|step| (step.name.as_str(), step)).collect()
            };
            let (on_a, on_b) = (of(a), of(b));
            let mut both: Vec<(&Evaluated, &Evaluated)> =
                on_a.iter().filter_map(|(name, a)| Some((*a, *on_b.get(name)?))).collect();
            both.truncate(MOST);
            if both.len() < 3 {
                continue;
            }
            let measured: Vec<[Micros; 2]> = both.iter().map(|(a, b)| [a.measured, b.measured]).collect();
            let best = makespan(&measured, share_out(&measured));
            for method in methods(evaluated) {
                let times: Option<Vec<[Micros; 2]>> =
                    both.iter().map(|(a, b)| Some([*a.predicted.get(method)?, *b.predicted.get(method)?])).collect();
                let Some(times) = times else { continue };
                let ours = makespan(&measured, share_out(&times));
                rows.push(QueueRow {
                    gpus: format!("{a} + {b}"),
                    steps: both.len(),
                    method,
                    makespan_ms: ours.as_millis(),
                    best_ms: best.as_millis(),
                    excess: ours / best - 1.0,
                });
            }
        }
    }
    let pairs = rows.iter().map(|row| &row.gpus).collect::<BTreeSet<_>>().len();
    let notes = methods(evaluated)
        .into_iter()
        .filter_map(|method| {
            let own: Vec<f64> = rows.iter().filter(|row| row.method == method).map(|row| row.excess).collect();
            let best = own.iter().filter(|&&excess| excess < 1e-9).count();
            let mean = own.iter().sum::<f64>() / own.len().max(1) as f64;
            (!own.is_empty()).then(|| {
                format!(
                    "{method}: {:.1} % over the best on average, the best itself for {best} of {} pairs of GPUs",
                    mean * 100.0,
                    own.len()
                )
            })
        })
        .collect();
    let mut table = Table::new(&[
        Column::text("GPUs", "gpus"),
        Column::number("steps", "steps"),
        Column::text("method", "method"),
        Column::number("done after, ms", "makespan_ms"),
        Column::number("best, ms", "best_ms"),
        Column::number("over", "excess"),
    ]);
    for row in rows.iter().filter(|row| row.method == "kernel-wise") {
        table.push(vec![
            Cell::text(&row.gpus),
            Cell::text(row.steps),
            Cell::text(row.method),
            Cell::new(format!("{:.0}", row.makespan_ms), row.makespan_ms),
            Cell::new(format!("{:.0}", row.best_ms), row.best_ms),
            percent(row.excess),
        ]);
    }
    let protocol = format!(
        "a queue on two GPUs, {left_out}: for each of {pairs} pairs of GPUs the steps measured on both, shared out by predicted times (all ways tried); when both are done by measured times, against the best there is"
    );
    Evaluation::new(protocol, notes, table, &rows)
}

/// The assignment (bit set: second GPU) with which both finish earliest.
fn share_out(times: &[[Micros; 2]]) -> u32 {
    (0..1_u32 << times.len())
        .min_by(|&one, &other| makespan(times, one).total_cmp(&makespan(times, other)))
        .unwrap_or(0)
}

/// Time at which both GPUs are done.
fn makespan(times: &[[Micros; 2]], sharing: u32) -> Micros {
    let mut done = [Micros::ZERO; 2];
    for (index, of) in times.iter().enumerate() {
        let gpu = usize::from(sharing >> index & 1 == 1);
        done[gpu] += of[gpu];
    }
    done[0].max(done[1])
}

fn methods(evaluated: &[Evaluated]) -> Vec<&'static str> {
    evaluated.iter().flat_map(|step| step.predicted.keys().copied()).collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(of: &[[f64; 2]]) -> Vec<[Micros; 2]> {
        of.iter().map(|times| times.map(|time| Micros::new(time).unwrap())).collect()
    }

    /// 6 + 4 on one GPU, 9 on the other: 10; any other assignment takes longer.
    #[test]
    fn a_queue_of_three() {
        let of = times(&[[6.0, 12.0], [4.0, 8.0], [7.0, 9.0]]);
        let sharing = share_out(&of);
        assert_eq!(sharing, 0b100);
        assert_eq!(makespan(&of, sharing).get(), 10.0);
        assert_eq!(makespan(&of, 0).get(), 17.0);
    }

    #[test]
    fn the_faster_gpu_is_counted() {
        let step = |gpu: &str, measured: f64, predicted: f64| Evaluated {
            gpu: GpuSlug::new(gpu).unwrap(),
            name: "step".to_owned(),
            measured: Micros::new(measured).unwrap(),
            predicted: BTreeMap::from([("kernel-wise", Micros::new(predicted).unwrap())]),
        };
        let evaluated = [step("a", 1.0, 1.0), step("b", 2.0, 1.5), step("c", 4.0, 1.2)];
        let mut found = Vec::new();
        super::super::super::tally::print(&[faster(&evaluated, "")], true, &mut found).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&found).unwrap();
        // a before b and c is right; c before b is not, and takes twice as long.
        assert_eq!((json["rows"][0]["pairs"].as_u64(), json["rows"][0]["right"].as_u64()), (Some(3), Some(2)));
        assert_eq!(json["rows"][0]["mean_excess"].as_f64(), Some(1.0 / 3.0));
    }
}
