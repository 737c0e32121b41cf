//! The step time as a function of the batch size.
//!
//! Beyond the largest measured batch: the line of weighted least squares (weights in
//! proportion to the batch, intercept and slope not negative), made steeper where the upper
//! measured batches rise faster than all of them do (what the host hides at small batches
//! comes out at large ones), and never flatter than `LEAST_SHARE`. Between two measured
//! batches: straight between them. Below the smallest: the line of the two smallest. With
//! the device's busy time at every batch, the line of that with the rest of the step added,
//! in part or, where the step hardly grows, alone.
//!
//! No powers: on PROFET's data a quadratic errs by 12 to 80 % at two to four times the batch
//! where lines err by 4 to 9 %.

use super::spread::{Calibration, REPETITION, Regime, SHIPPED, Spread};
use crate::estimate::Estimate;
use crate::method::Method;
use habitat_base::regress::line::{Line, Point};
use habitat_base::regress::quantile::median;
use habitat_base::regress::{RegressError, least_squares};
use habitat_base::units::{Micros, Range};

/// A step that does not grow from one batch to the next yet will at larger ones: at least
/// this share of it is taken to grow with the batch. Chosen on PROFET's data (0, 0.1, 0.15,
/// 0.2 and 0.25 tried, every network left out in turn; 0.15 and 0.2 are alike).
const LEAST_SHARE: f64 = 0.15;
/// How much the line through the device's busy time counts where the step grows; chosen as
/// `LEAST_SHARE` was (0, 0.2, 0.3, 0.4, 0.5 and 0.7 tried; whichever network is left out,
/// 0.2 or 0.3 is best, and 1 where the step hardly grows).
const BUSY_SHARE: f64 = 0.3;

/// A step at one batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPoint {
    /// Samples in the step.
    pub batch: u64,
    /// Its time: measured, or itself a prediction.
    pub time: Estimate,
    /// The part of it in which the device is busy, where known.
    pub busy: Option<Micros>,
}

impl BatchPoint {
    /// A measured step.
    pub fn measured(batch: u64, time: Micros) -> Self {
        Self { batch, time: Estimate::with_band(time, 0.0, Method::Measured), busy: None }
    }
}

/// Why there is no curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// All at one batch size.
    #[error("steps at two or more batch sizes are needed, but there is {0} batch size")]
    TooFew(usize),
    /// A step of nothing.
    #[error("the step at batch size {0} takes no time; a line needs times above zero and batch sizes above zero")]
    Zero(u64),
    /// Numbers that no line goes through.
    #[error(transparent)]
    Regress(#[from] RegressError),
}

/// Points that no line goes through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bend {
    /// Whether the time grows faster and faster.
    pub upward: bool,
    /// The largest distance of a point from the line through all, relative to its time.
    pub distance: f64,
}

/// Where a batch size lies among the measured ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// It is one of them.
    Measured,
    /// Between two of them.
    Between,
    /// So many halvings below the smallest.
    Below(f64),
    /// So many doublings beyond the largest.
    Beyond(f64),
}

/// A step at a batch size of the curve.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchTime {
    /// The time with its 80 % range.
    pub time: Estimate,
    /// The 90 % range.
    pub wide: [Micros; 2],
    /// Where it lies.
    pub place: Place,
    /// How much of the step grows with the batch there: the ranges depend on it.
    pub regime: Regime,
}

/// The step time over the batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchCurve {
    /// One a batch size, ascending.
    points: Vec<BatchPoint>,
    first: BatchPoint,
    last: BatchPoint,
    /// Beyond the largest.
    upper: Line,
    /// Below the smallest.
    lower: Line,
    /// Of the device's busy time, with what the step takes besides.
    busy: Option<(Line, f64)>,
    share: f64,
    bend: Option<Bend>,
    raised: bool,
}

impl BatchCurve {
    /// Through steps at two or more batch sizes; of several at one, their median counts.
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

    /// The points, one a batch size, ascending.
    pub fn points(&self) -> &[BatchPoint] {
        &self.points
    }

    /// The line beyond the largest batch: µs, and µs a sample.
    pub const fn line(&self) -> Line {
        self.upper
    }

    /// The share of the step at the largest batch that grows with it, 0 to 1.
    pub const fn share(&self) -> f64 {
        self.share
    }

    /// The regime at the largest batch, on which the ranges beyond it depend.
    pub fn regime(&self) -> Regime {
        Regime::of(self.share)
    }

    /// Whether, and how, the points bend away from a line.
    pub const fn bend(&self) -> Option<Bend> {
        self.bend
    }

    /// Whether the device's busy time is known at every batch.
    pub const fn has_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// The step at a batch size, with ranges as found on measured steps.
    pub fn at(&self, batch: u64) -> BatchTime {
        self.at_by(batch, &SHIPPED)
    }

    /// The same with other spreads.
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

    /// What the reader should know of the fit and of a prediction at `batches`.
    pub fn notes(&self, batches: &[u64]) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(Bend { upward, distance }) = self.bend {
            let (how, what) = if upward {
                ("faster and faster", "the line follows the largest batches")
            } else {
                ("more and more slowly", "the line may be too high")
            };
            notes.push(format!(
                "the step grows {how} with the batch (points up to {:.0} % from one line): {what}",
                distance * 100.0
            ));
        }
        let largest = self.last.batch;
        let beyond = batches.iter().any(|&batch| batch > largest);
        if self.raised && beyond {
            notes.push(format!(
                "the step does not grow from batch to batch yet (the host may be the limit): {:.0} % of it at batch {largest} is taken to grow with the batch",
                LEAST_SHARE * 100.0
            ));
        } else if self.regime() == Regime::Fixed && beyond {
            notes.push(format!(
                "only {:.0} % of the step at batch {largest} grows with the batch: from where on the device decides is not known, and the ranges are wide",
                self.share * 100.0
            ));
        }
        if let Some(far) = batches.iter().filter(|&&batch| batch > 4 * largest).max() {
            notes.push(format!(
                "batch {far} is {:.1} times the largest known one; errors are known up to 4 times",
                *far as f64 / largest as f64
            ));
        }
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

/// The line through two points, ascending; neither below zero at no batch nor falling.
fn through([(x, y), (to_x, to_y)]: [(f64, f64); 2]) -> Line {
    let slope = ((to_y - y) / (to_x - x)).clamp(0.0, y / x);
    Line { intercept: slope.mul_add(-x, y), slope }
}

fn weighted(batch: f64, time: f64) -> Point {
    Point { x: batch, y: time, weight: batch }
}

/// A line that rises, and how much of its end does.
struct Rise {
    line: Line,
    share: f64,
    raised: bool,
}

impl Rise {
    /// `points` by ascending x, two at least.
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

/// One point a batch size, ascending: the one in the middle of those at it.
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

/// A bend that is more than noise: a point farther from the line through all than twice what
/// repetitions differ by, and, from four points on, a quadratic that leaves less than half the
/// variance that the line leaves (relative errors, a degree of freedom a coefficient).
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

/// A time with the spread of the curve and that of the points it rests on, taken as
/// independent of each other: squares of logarithms add.
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
