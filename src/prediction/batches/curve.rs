//! Step time as a function of the batch size.
//!
//! Beyond the largest measured batch: a weighted least-squares line (weights proportional to the batch, intercept and
//! slope not negative). It is steeper if the upper measured batches rise faster than all of them together, since the
//! host hides device time at small batches but not at large ones. It is never flatter than `LEAST_SHARE`. Between two
//! measured batches: linear interpolation. Below the smallest: the line through the two smallest. If the device's busy
//! time is known at every batch, its own line plus the rest of the step also counts: in part or, if the step hardly
//! grows, alone.
//!
//! No higher powers: on PROFET's data a quadratic errs by 12 to 80 % at two to four times the batch, lines by 4 to 9 %.

use super::spread::{Calibration, REPETITION, Regime, SHIPPED, Spread};
use crate::estimate::Estimate;
use crate::finding::Finding;
use crate::method::Method;
use habitat_base::regress::line::{Line, Point};
use habitat_base::regress::quantile::median;
use habitat_base::regress::{RegressError, least_squares};
use habitat_base::units::{Micros, Range};

/// Minimum share of the step that grows with the batch: even a flat step grows at larger batches. Chosen on PROFET's
/// data (0, 0.1, 0.15, 0.2 and 0.25 tried, leaving out each network in turn; 0.15 and 0.2 do equally well).
const LEAST_SHARE: f64 = 0.15;
/// Weight of the busy-time line if the step grows. Chosen like `LEAST_SHARE` (0, 0.2, 0.3, 0.4, 0.5 and 0.7 tried; 0.2
/// or 0.3 is best whichever network is left out, and 1 if the step hardly grows).
const BUSY_SHARE: f64 = 0.3;

/// A step at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPoint {
    /// Samples in the step.
    pub batch: u64,
    /// Step time: measured, or itself a prediction.
    pub time: Estimate,
    /// Device busy time within the step, if known.
    pub busy: Option<Micros>,
}

impl BatchPoint {
    /// A measured step.
    pub fn measured(batch: u64, time: Micros) -> Self {
        Self { batch, time: Estimate::with_band(time, 0.0, Method::Measured), busy: None }
    }
}

/// Reason that no curve can be fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// All steps have the same batch size.
    #[error("{0} batch size is not enough: steps at two or more are needed")]
    TooFew(usize),
    /// A step without time or samples.
    #[error("the step at batch size {0} has no time; times and batch sizes must be above zero")]
    Zero(u64),
    /// The line fit failed.
    #[error(transparent)]
    Regress(#[from] RegressError),
}

/// Deviation of the points from a straight line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bend {
    /// Whether the time grows faster than linearly.
    pub upward: bool,
    /// Largest relative distance of a point from the line through all points.
    pub distance: f64,
}

/// Position of a batch size relative to the measured ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// One of the measured batch sizes.
    Measured,
    /// Between two measured batch sizes.
    Between,
    /// Below the smallest, by this many halvings.
    Below(f64),
    /// Beyond the largest, by this many doublings.
    Beyond(f64),
}

/// Predicted step at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTime {
    /// The time with its 80 % range.
    pub time: Estimate,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Position relative to the measured batches.
    pub place: Place,
    /// Regime at that batch size; the ranges depend on it.
    pub regime: Regime,
}

/// The step time over the batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchCurve {
    /// One per batch size, ascending.
    points: Vec<BatchPoint>,
    first: BatchPoint,
    last: BatchPoint,
    /// Line beyond the largest batch.
    upper: Line,
    /// Line below the smallest batch.
    lower: Line,
    /// Line through the device's busy time, and the rest of the step in µs.
    busy: Option<(Line, f64)>,
    share: f64,
    bend: Option<Bend>,
    raised: bool,
}

impl BatchCurve {
    /// Fits steps at two or more batch sizes; repeated sizes count by their median.
    ///
    /// # Errors
    /// Steps at fewer than two batch sizes, or one that takes no time.
    pub fn fit(points: &[BatchPoint]) -> Result<Self, CurveError> {
        let points = by_batch(points);
        let usable = |point: &BatchPoint| point.batch > 0 && point.time.range.mid.get() > 0.0;
        if let Some(point) = points.iter().find(|point| !usable(point)) {
            return Err(CurveError::Zero(point.batch));
        }
        let [first, second, ..] = &points[..] else { return Err(CurveError::TooFew(points.len())) };
        let times: Vec<Point> =
            points.iter().map(|point| weighted(point.batch as f64, point.time.range.mid.get())).collect();
        let Rise { line: upper, share, raised } = Rise::fit(&times)?;
        let lower = through([first, second].map(|point| (point.batch as f64, point.time.range.mid.get())));
        let (first, last) = (first.clone(), points.last().unwrap_or(second).clone());
        let busy: Option<Vec<Point>> = points
            .iter()
            .map(|point| {
                point.busy.filter(|busy| busy.get() > 0.0).map(|busy| weighted(point.batch as f64, busy.get()))
            })
            .collect();
        let busy = match (busy, times.last()) {
            (Some(busy), Some(time)) => {
                let besides = time.y - busy.last().map_or(0.0, |busy| busy.y);
                Some((Rise::fit(&busy)?.line, besides))
            }
            _ => None,
        };
        let bend = bend(&times);
        Ok(Self { points, first, last, upper, lower, busy, share, bend, raised })
    }

    /// Line beyond the largest batch: intercept in µs, slope in µs per sample.
    pub(crate) const fn line(&self) -> Line {
        self.upper
    }

    /// Share of the step at the largest batch that grows with it, 0 to 1.
    pub(crate) const fn share(&self) -> f64 {
        self.share
    }

    /// The regime at the largest batch, on which the ranges beyond it depend.
    pub fn regime(&self) -> Regime {
        Regime::of(self.share)
    }

    /// Whether the device's busy time is known at every batch.
    pub const fn has_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Predicted step at a batch size, with the shipped ranges.
    pub fn at(&self, batch: u64) -> BatchTime {
        self.at_by(batch, &SHIPPED)
    }

    /// Predicted step at a batch size, with ranges of another calibration.
    pub fn at_by(&self, batch: u64, calibration: &Calibration) -> BatchTime {
        let at = batch.max(1) as f64;
        if let Some(point) = self.points.iter().find(|point| point.batch == batch) {
            let time = point.time;
            let wide = [time.range.low, time.range.high];
            return BatchTime { time, wide, place: Place::Measured, regime: self.regime() };
        }
        if let Some([below, above]) = self.points.windows(2).find(|pair| pair[0].batch < batch && batch < pair[1].batch)
        {
            return between(at, below, above, calibration);
        }
        if batch < self.first.batch {
            let halvings = (self.first.batch as f64 / at).log2();
            let regime = Regime::of(1.0 - self.lower.intercept / self.first.time.range.mid.get());
            let spread = calibration.below.at(regime, halvings);
            return ranged(self.lower.at(at), &[&self.first], (Place::Below(halvings), regime), spread);
        }
        let doublings = (at / self.last.batch as f64).log2();
        let spreads = if self.busy.is_some() { &calibration.beyond_with_busy } else { &calibration.beyond };
        let regime = self.regime();
        ranged(self.beyond(at), &[&self.last], (Place::Beyond(doublings), regime), spreads.at(regime, doublings))
    }

    fn beyond(&self, at: f64) -> f64 {
        let by_step = self.upper.at(at);
        let Some((busy, besides)) = &self.busy else { return by_step };
        let by_busy = busy.at(at) + besides;
        if by_busy <= 0.0 {
            return by_step;
        }
        let weight = if self.regime() == Regime::Fixed { 1.0 } else { BUSY_SHARE };
        (by_step.ln() * (1.0 - weight) + by_busy.ln() * weight).exp()
    }

    /// Notes on the fit and on predictions at `batches`.
    pub(crate) fn notes(&self, batches: &[u64]) -> Vec<Finding> {
        let mut notes = Vec::new();
        notes.extend(self.bend.map(|Bend { upward, distance }| Finding::Bend { faster: upward, distance }));
        let largest = self.last.batch;
        let beyond = batches.iter().any(|&batch| batch > largest);
        if self.raised && beyond {
            notes.push(Finding::FlatStep { share: LEAST_SHARE, batch: largest });
        } else if self.regime() == Regime::Fixed && beyond {
            notes.push(Finding::MostlyFixed { share: self.share, batch: largest });
        }
        let far = batches.iter().copied().filter(|batch| *batch > 4 * largest).max();
        notes.extend(far.map(|batch| Finding::BeyondTested { batch, largest }));
        notes
    }
}

fn between(at: f64, below: &BatchPoint, above: &BatchPoint, calibration: &Calibration) -> BatchTime {
    let (from, to) = (below.batch as f64, above.batch as f64);
    let (start, end) = (below.time.range.mid.get(), above.time.range.mid.get());
    let time = start + (at - from) / (to - from) * (end - start);
    let regime = Regime::of((end - start) / (to - from) * to / end);
    let doublings = (at / from).min(to / at).log2();
    ranged(time, &[below, above], (Place::Between, regime), calibration.between.at(regime, doublings))
}

/// Line through two ascending points; its intercept is not negative and it does not fall.
fn through([(x, y), (to_x, to_y)]: [(f64, f64); 2]) -> Line {
    let slope = ((to_y - y) / (to_x - x)).clamp(0.0, y / x);
    Line { intercept: slope.mul_add(-x, y), slope }
}

fn weighted(batch: f64, time: f64) -> Point {
    Point { x: batch, y: time, weight: batch }
}

/// Rising line and the share of its last value that grows with x.
struct Rise {
    line: Line,
    share: f64,
    raised: bool,
}

impl Rise {
    /// Fits at least two points, sorted by x.
    fn fit(points: &[Point]) -> Result<Self, RegressError> {
        let all = Line::non_negative(points)?;
        let last = points.last().ok_or(RegressError::TooFew { found: 0, needed: 2 })?.x;
        let half = points.partition_point(|point| point.x < last / 2.0).min(points.len().saturating_sub(2));
        let end = Line::non_negative(&points[half..])?;
        let mut line = if end.slope > all.slope { end } else { all };
        let time = line.at(last);
        let share = (line.slope * last / time).clamp(0.0, 1.0);
        let raised = share < LEAST_SHARE;
        if raised {
            line = Line { slope: LEAST_SHARE * time / last, intercept: (1.0 - LEAST_SHARE) * time };
        }
        Ok(Self { line, share, raised })
    }
}

/// Merges points of equal batch size into their median; ascending.
fn by_batch(points: &[BatchPoint]) -> Vec<BatchPoint> {
    let mut sorted: Vec<&BatchPoint> = points.iter().collect();
    sorted.sort_by(|a, b| a.batch.cmp(&b.batch).then(a.time.range.mid.total_cmp(&b.time.range.mid)));
    sorted
        .chunk_by(|a, b| a.batch == b.batch)
        .filter_map(|same| {
            let middle = |of: &dyn Fn(&BatchPoint) -> f64| {
                median(&mut same.iter().map(|point| of(point)).collect::<Vec<f64>>()).map(Micros::known)
            };
            let busy: Option<Vec<f64>> = same.iter().map(|point| point.busy.map(Micros::get)).collect();
            let [first, ..] = same else { return None };
            let range = Range {
                low: middle(&|point| point.time.range.low.get())?,
                mid: middle(&|point| point.time.range.mid.get())?,
                high: middle(&|point| point.time.range.high.get())?,
            };
            let time = Estimate { range, method: first.time.method };
            Some(BatchPoint {
                batch: first.batch,
                time,
                busy: busy.and_then(|mut busy| median(&mut busy)).map(Micros::known),
            })
        })
        .collect()
}

/// Detects a bend beyond noise: a point is farther from the line through all than twice `REPETITION`. From four points
/// on, a quadratic must also leave less than half the line's variance (relative errors, one degree of freedom per
/// coefficient).
fn bend(points: &[Point]) -> Option<Bend> {
    let line = Line::non_negative(points).ok()?;
    let (first, last) = (points.first()?, points.last()?);
    let distance = points.iter().map(|point| (line.at(point.x) / point.y - 1.0).abs()).fold(0.0, f64::max);
    if points.len() < 3 || distance <= 2.0 * REPETITION {
        return None;
    }
    let chord = (last.y - first.y) / (last.x - first.x);
    let below: f64 = points.iter().map(|point| first.y + chord * (point.x - first.x) - point.y).sum();
    if points.len() > 3 {
        let weights: Vec<f64> = points.iter().map(|point| 1.0 / (point.y * point.y)).collect();
        let y: Vec<f64> = points.iter().map(|point| point.y).collect();
        let rows: Vec<Vec<f64>> = points.iter().map(|point| vec![1.0, point.x, point.x * point.x]).collect();
        let square = least_squares::fit(&rows, &y, Some(&weights)).ok()?;
        let left = |coefficients: &[f64]| -> f64 {
            let error = |(row, y): (&Vec<f64>, &f64)| {
                (row.iter().zip(coefficients).map(|(x, of)| x * of).sum::<f64>() / y - 1.0).powi(2)
            };
            rows.iter().zip(&y).map(error).sum::<f64>() / (points.len() - coefficients.len()) as f64
        };
        let points: Vec<Point> = points.iter().map(|point| Point::relative(point.x, point.y)).collect();
        let line = Line::fit(&points).ok()?;
        if left(&square) > 0.5 * left(&[line.intercept, line.slope]) {
            return None;
        }
    }
    Some(Bend { upward: below > 0.0, distance })
}

/// Combines the spread of the curve with that of the points under it. Both are assumed independent: squares of
/// logarithms add.
fn ranged(time: f64, from: &[&BatchPoint], (place, regime): (Place, Regime), spread: Spread) -> BatchTime {
    let time = Micros::known(time);
    let of_points = |end: fn(&Estimate) -> Micros| {
        from.iter().map(|point| (end(&point.time) / point.time.range.mid).ln().abs()).fold(0.0, f64::max)
    };
    let (below, above) = (of_points(|time| time.range.low), of_points(|time| time.range.high));
    let ends = |[low, high]: [f64; 2]| {
        let low = if below.is_finite() { time * (-low.hypot(below)).exp() } else { Micros::ZERO };
        [low, time * high.hypot(above).exp()]
    };
    let [low, high] = ends(spread.usual);
    BatchTime {
        time: Estimate { range: Range { low, mid: time, high }, method: Method::BatchLine },
        wide: ends(spread.wide),
        place,
        regime,
    }
}

#[cfg(test)]
mod tests;
