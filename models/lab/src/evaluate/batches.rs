//! Larger batches: a step at two and four times the largest batch size that was measured.
//!
//! On step times in PROFET's format: every series with four or more batch sizes, a fit on its two or three smallest.
//! Ranges are calibrated on the other networks.

mod series;

use std::collections::BTreeSet;
use std::path::Path;

use habitat_tui::cli::CliError;
use habitat_tui::predict::Method;
use habitat_tui::predict::batches::spread::{Calibration, Residual, Spreads};
use habitat_tui::predict::batches::{BatchCurve, BatchPoint, Place};
use habitat_tui::predict::estimate::Estimate;
use habitat_tui::regress::least_squares;
use habitat_tui::regress::line::{Line, Point};
use habitat_tui::units::{Micros, Range};

use super::tally::{Evaluation, Groups, Predicted};
use series::{Series, read_series};

/// Numbers of smallest batch sizes to fit.
const FITTED: [usize; 2] = [2, 3];
/// Predicted batch sizes, in multiples of the largest fitted one.
const FACTORS: [u64; 2] = [2, 4];
/// Needs three points or more: not a method for all cases.
const QUADRATIC: &str = "quadratic";
/// Fewest batch sizes of a series.
const LEAST: usize = 4;

/// One prediction.
struct Case<'a> {
    series: &'a Series,
    fitted: Vec<BatchPoint>,
    /// Whether they are the smallest: only those are evaluated, others are for calibration.
    evaluated: bool,
    place: Where,
    batch: u64,
    measured: f64,
}

/// Position of the predicted batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    /// This multiple of the largest fitted one.
    Beyond(u64),
    Between,
    /// The smallest fitted one divided by this number.
    Below(u64),
}

impl Where {
    const fn doublings(self) -> u8 {
        match self {
            Self::Between => 0,
            Self::Beyond(2) | Self::Below(2) => 1,
            Self::Beyond(_) | Self::Below(_) => 2,
        }
    }
}

/// Errors by number of points and distance, by regime and by GPU.
pub(super) fn evaluate(dir: &Path) -> Result<Vec<Evaluation>, CliError> {
    let all = read_series(dir)?;
    let series: Vec<&Series> = all.iter().filter(|series| series.steps.len() >= LEAST).collect();
    let cases: Vec<Case<'_>> = series.iter().flat_map(|series| cases(series)).collect();
    let networks: BTreeSet<&str> = series.iter().map(|series| &*series.network).collect();
    let (mut beyond, mut others) = (Groups::default(), Groups::default());
    for network in &networks {
        let known: Vec<&Case<'_>> = cases.iter().filter(|case| *case.series.network != **network).collect();
        let calibration = calibrate(&known);
        for case in cases.iter().filter(|case| *case.series.network == **network && case.evaluated) {
            match case.place {
                Where::Beyond(_) => add_beyond(case, &calibration, &mut beyond),
                Where::Between | Where::Below(_) => add_inside(case, &calibration, &mut others),
            }
        }
    }
    let notes = vec![
        format!(
            "{} of {} series ({} networks) have {LEAST} or more batch sizes; medians over repetitions",
            series.len(),
            all.len(),
            networks.len()
        ),
        "ranges are calibrated on the other networks; \"in range\" of a nominal 80 %, or 90 % if the method says so"
            .to_owned(),
    ];
    let protocol = "absolute relative errors of steps at 2 and 4 times the largest batch size fitted, from the 2 or 3 smallest of a series";
    let inside = "the same inside: between two measured batch sizes (every one that has neighbours left out in turn), and below the smallest fitted one";
    Ok(vec![beyond.evaluation(protocol.to_owned(), notes.clone()), others.evaluation(inside.to_owned(), notes)])
}

fn cases(series: &Series) -> Vec<Case<'_>> {
    let steps = &series.steps;
    let points: Vec<BatchPoint> = steps
        .iter()
        .map(|step| BatchPoint { busy: step.busy, ..BatchPoint::measured(step.batch, step.time) })
        .collect();
    let mut cases = Vec::new();
    let mut add = |fitted: Vec<BatchPoint>, evaluated, place, batch| {
        if let Some(step) = steps.iter().find(|step| step.batch == batch) {
            cases.push(Case { series, fitted, evaluated, place, batch, measured: step.time.get() });
        }
    };
    for count in FITTED {
        for (start, window) in points.windows(count).enumerate() {
            for factor in FACTORS {
                let [first, .., last] = window else { continue };
                // Start at the smallest and, for calibration, at the second smallest.
                if start < 2 {
                    add(window.to_vec(), start == 0, Where::Beyond(factor), last.batch * factor);
                }
                if first.batch % factor == 0 {
                    add(window.to_vec(), true, Where::Below(factor), first.batch / factor);
                }
            }
        }
    }
    for left_out in 1..points.len().saturating_sub(1) {
        let mut others = points.clone();
        let batch = others.remove(left_out).batch;
        add(others, true, Where::Between, batch);
    }
    cases
}

fn without_busy(points: &[BatchPoint]) -> Vec<BatchPoint> {
    points.iter().map(|point| BatchPoint { busy: None, ..point.clone() }).collect()
}

/// Spreads on `cases`.
fn calibrate(cases: &[&Case<'_>]) -> Calibration {
    let spreads = |keep: &dyn Fn(Where) -> bool, busy: bool| {
        let residuals: Vec<Residual> =
            cases.iter().filter(|case| keep(case.place)).filter_map(|case| residual(case, busy)).collect();
        Spreads::of(&residuals)
    };
    let beyond = |place| matches!(place, Where::Beyond(_));
    Calibration {
        beyond: spreads(&beyond, false),
        beyond_with_busy: spreads(&beyond, true),
        between: spreads(&|place| place == Where::Between, false),
        below: spreads(&|place| matches!(place, Where::Below(_)), false),
    }
}

fn residual(case: &Case<'_>, busy: bool) -> Option<Residual> {
    let points = if busy { case.fitted.clone() } else { without_busy(&case.fitted) };
    let curve = BatchCurve::fit(&points).ok()?;
    if busy && !curve.has_busy() {
        return None;
    }
    let at = curve.at(case.batch);
    let mid = at.time.range.mid.get();
    Some(Residual { regime: at.regime, doublings: case.place.doublings(), log_ratio: (case.measured / mid).ln() })
}

fn add_beyond(case: &Case<'_>, calibration: &Calibration, groups: &mut Groups) {
    let Where::Beyond(factor) = case.place else { return };
    let label = || {
        let Series { network, pixels, gpu, .. } = case.series;
        format!("{network}, {pixels} px, {gpu}, batch {}", case.batch)
    };
    let group = format!("{} points, {factor} times", case.fitted.len());
    let mut add = |group: &str, method: &str, mid: f64, range: Option<[f64; 2]>| {
        groups.add(group, method, Predicted { mid, range }, case.measured, &label);
    };
    for (method, mid) in published(&case.fitted, case.batch as f64) {
        add(&group, method, mid, None);
        if method != QUADRATIC {
            add(&format!("all, {factor} times"), method, mid, None);
        }
    }
    for (method, points) in [("batch line", without_busy(&case.fitted)), ("batch line, busy time", case.fitted.clone())]
    {
        let Ok(curve) = BatchCurve::fit(&points) else { continue };
        if points.iter().any(|point| point.busy.is_some()) && !curve.has_busy() {
            continue;
        }
        let at = curve.at_by(case.batch, calibration);
        let Estimate { range: Range { low, mid, high }, method: from } = at.time;
        debug_assert_eq!(from, Method::BatchLine);
        let usual = Some([low.get(), high.get()]);
        add(&group, method, mid.get(), usual);
        add(&group, &format!("{method}, 90 %"), mid.get(), Some(at.wide.map(Micros::get)));
        add(&format!("all, {factor} times"), method, mid.get(), usual);
        add(&format!("all, {factor} times"), &format!("{method}, 90 %"), mid.get(), Some(at.wide.map(Micros::get)));
        add(&format!("{}, {factor} times", curve.regime().name()), method, mid.get(), usual);
        add(&format!("{}, {factor} times", case.series.gpu), method, mid.get(), usual);
    }
}

fn add_inside(case: &Case<'_>, calibration: &Calibration, groups: &mut Groups) {
    let Ok(curve) = BatchCurve::fit(&without_busy(&case.fitted)) else { return };
    let at = curve.at_by(case.batch, calibration);
    let group = match case.place {
        Where::Between => "between".to_owned(),
        Where::Below(factor) | Where::Beyond(factor) => format!("below, 1/{factor}"),
    };
    let label = || {
        let Series { network, pixels, gpu, .. } = case.series;
        format!("{network}, {pixels} px, {gpu}, batch {}", case.batch)
    };
    let range = Some([at.time.range.low.get(), at.time.range.high.get()]);
    groups.add(&group, "batch line", Predicted { mid: at.time.range.mid.get(), range }, case.measured, &label);
    let range = Some(at.wide.map(Micros::get));
    groups.add(&group, "batch line, 90 %", Predicted { mid: at.time.range.mid.get(), range }, case.measured, &label);
    debug_assert!(!matches!(at.place, Place::Measured | Place::Beyond(_)));
}

/// The formulas of the papers, and others that we tried.
fn published(points: &[BatchPoint], batch: f64) -> Vec<(&'static str, f64)> {
    let plain: Vec<Point> =
        points.iter().map(|point| Point::new(point.batch as f64, point.time.range.mid.get())).collect();
    let by_batch: Vec<Point> = plain.iter().map(|point| Point { weight: point.x, ..*point }).collect();
    let mut found: Vec<(&'static str, Option<f64>)> = vec![
        ("least squares", Line::fit(&plain).ok().map(|line| line.at(batch))),
        ("least squares, not negative", Line::non_negative(&plain).ok().map(|line| line.at(batch))),
        ("weights by batch, not negative", Line::non_negative(&by_batch).ok().map(|line| line.at(batch))),
        ("Theil-Sen", Line::theil_sen(&plain).ok().map(|line| line.at(batch))),
    ];
    if points.len() > 2 {
        let rows: Vec<Vec<f64>> = plain.iter().map(|point| vec![1.0, point.x, point.x * point.x]).collect();
        let y: Vec<f64> = plain.iter().map(|point| point.y).collect();
        let square = least_squares::fit(&rows, &y, None).ok();
        found.push((QUADRATIC, square.map(|of| of[0] + of[1] * batch + of[2] * batch * batch)));
    }
    found.into_iter().filter_map(|(method, value)| Some((method, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_tui::predict::batches::spread::{SHIPPED, Spread};
    use std::path::PathBuf;

    /// The shipped spreads equal those of their data.
    #[test]
    fn the_shipped_spreads_are_those_of_the_data() {
        let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/profet");
        if !dir.exists() {
            println!("skipped: {} is not there", dir.display());
            return;
        }
        let all = read_series(&dir).unwrap();
        let cases: Vec<Case<'_>> = all.iter().filter(|series| series.steps.len() >= LEAST).flat_map(cases).collect();
        let found = calibrate(&cases.iter().collect::<Vec<_>>());
        let pairs = [
            ("beyond", found.beyond, SHIPPED.beyond),
            ("beyond, busy time", found.beyond_with_busy, SHIPPED.beyond_with_busy),
            ("between", found.between, SHIPPED.between),
            ("below", found.below, SHIPPED.below),
        ];
        for (name, Spreads(found), Spreads(shipped)) in pairs {
            let of = |spreads: [[Spread; 2]; 3]| {
                spreads.into_iter().flatten().flat_map(|spread| spread.usual.into_iter().chain(spread.wide))
            };
            let apart = of(found).zip(of(shipped)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(apart < 0.0025, "{name}: found {found:.3?}, shipped {shipped:.3?}");
        }
    }
}
