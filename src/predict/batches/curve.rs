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
use crate::predict::estimate::Estimate;
use crate::predict::method::Method;
use crate::regress::line::{Line, Point};
use crate::regress::quantile::median;
use crate::regress::{RegressError, least_squares};
use crate::units::{Micros, Range};

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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(pairs: &[(u64, f64)]) -> Vec<BatchPoint> {
        pairs.iter().map(|&(batch, time)| BatchPoint::measured(batch, Micros::new(time).unwrap())).collect()
    }

    fn curve(pairs: &[(u64, f64)]) -> BatchCurve {
        BatchCurve::fit(&points(pairs)).unwrap()
    }

    fn mid(curve: &BatchCurve, batch: u64) -> f64 {
        curve.at(batch).time.range.mid.get()
    }

    #[test]
    fn an_exact_line_comes_back_everywhere() {
        let of = |batch: u64| 500.0 + 30.0 * batch as f64;
        for batches in [&[16, 32][..], &[16, 32, 64], &[8, 24, 100, 128], &[3, 4, 5, 6, 7, 8]] {
            let curve = curve(&batches.iter().map(|&batch| (batch, of(batch))).collect::<Vec<_>>());
            for batch in [1, 2, 10, 16, 20, 48, 99, 256, 1024] {
                assert!((mid(&curve, batch) / of(batch) - 1.0).abs() < 1e-6, "{batches:?}: {batch}");
            }
            assert_eq!(curve.bend(), None);
            assert!((curve.line().slope - 30.0).abs() < 1e-6 && (curve.line().intercept - 500.0).abs() < 1e-3);
        }
    }

    #[test]
    fn a_measured_batch_is_its_measurement() {
        let curve = curve(&[(16, 100.0), (32, 190.0), (64, 410.0)]);
        let at = curve.at(32);
        assert_eq!((at.time.range.mid.get(), at.time.method, at.place), (190.0, Method::Measured, Place::Measured));
        assert_eq!(at.time.range.low, at.time.range.high);
        assert_eq!(curve.at(65).time.method, Method::BatchLine);
        assert_eq!(mid(&curve, 48), 300.0);
    }

    #[test]
    fn repetitions_count_by_their_median() {
        let curve = curve(&[(16, 100.0), (32, 9000.0), (32, 200.0), (32, 190.0), (16, 100.0)]);
        assert_eq!(curve.points().len(), 2);
        assert_eq!(mid(&curve, 32), 200.0);
    }

    #[test]
    fn a_step_bound_by_the_host_rises_at_least_a_little_and_says_so() {
        let flat = curve(&[(16, 100.0), (32, 100.0)]);
        assert_eq!(flat.regime(), Regime::Fixed);
        // 15 % of 100 µs grows with the batch: + 15 µs a doubling, then 30.
        assert!((mid(&flat, 64) - 115.0).abs() < 1e-9 && (mid(&flat, 128) - 145.0).abs() < 1e-9);
        assert!(flat.notes(&[64])[0].contains("does not grow"), "{:?}", flat.notes(&[64]));
        assert!(flat.notes(&[24]).is_empty());
        // Times that fall do not go on falling.
        assert!(mid(&curve(&[(16, 110.0), (32, 100.0)]), 64) >= 100.0);
        let growing = curve(&[(16, 100.0), (32, 190.0)]);
        let width = |curve: &BatchCurve| curve.at(128).time.range.high / curve.at(128).time.range.low;
        assert!(width(&flat) > width(&growing));
    }

    #[test]
    fn points_that_bend_are_told() {
        // Bound by the host up to 32, by the device beyond.
        let host = curve(&[(8, 100.0), (16, 100.0), (32, 105.0), (64, 200.0), (128, 400.0)]);
        assert!(host.bend().is_some_and(|bend| bend.upward), "{host:?}");
        assert!((mid(&host, 256) / 800.0 - 1.0).abs() < 1e-9, "{}", mid(&host, 256));
        assert!(host.notes(&[])[0].contains("faster and faster"));
        let saturating = curve(&[(16, 100.0), (32, 180.0), (64, 250.0)]);
        assert!(saturating.bend().is_some_and(|bend| !bend.upward));
        // Noise alone does not bend: three per cent up and down.
        let noisy: Vec<(u64, f64)> =
            (1..=8).map(|n| (n * 16, (50.0 + 10.0 * n as f64) * if n % 2 == 0 { 1.03 } else { 0.97 })).collect();
        assert_eq!(curve(&noisy).bend(), None);
    }

    #[test]
    fn the_devices_busy_time_tells_when_it_will_decide() {
        let mut known = points(&[(16, 100.0), (32, 101.0)]);
        for (point, busy) in known.iter_mut().zip([20.0, 40.0]) {
            point.busy = Some(Micros::new(busy).unwrap());
        }
        let with_busy = BatchCurve::fit(&known).unwrap();
        // 80 µs of work at batch 64, and the 61 that the step took besides.
        assert!((mid(&with_busy, 64) - 141.0).abs() < 1e-9);
        known[0].busy = None;
        assert!(!BatchCurve::fit(&known).unwrap().has_busy());
    }

    #[test]
    fn the_range_of_predicted_points_is_carried_over() {
        let predicted: Vec<BatchPoint> = [(16, 100.0), (32, 190.0)]
            .map(|(batch, time)| BatchPoint {
                batch,
                time: Estimate::with_band(Micros::new(time).unwrap(), 0.2, Method::Learned),
                busy: None,
            })
            .to_vec();
        let (of, sure) = (BatchCurve::fit(&predicted).unwrap().at(64), curve(&[(16, 100.0), (32, 190.0)]).at(64));
        assert_eq!(of.time.range.mid, sure.time.range.mid);
        assert!(of.time.range.low.get() < sure.time.range.low.get().min(sure.time.range.mid.get() * 0.8));
        assert!(of.time.range.high.get() > sure.time.range.high.get().max(sure.time.range.mid.get() * 1.2));
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        assert_eq!(BatchCurve::fit(&points(&[(16, 1.0), (16, 2.0)])), Err(CurveError::TooFew(1)));
        assert_eq!(BatchCurve::fit(&points(&[(16, 0.0), (32, 2.0)])), Err(CurveError::Zero(16)));
        assert_eq!(BatchCurve::fit(&points(&[(0, 1.0), (32, 2.0)])), Err(CurveError::Zero(0)));
        assert_eq!(BatchCurve::fit(&[]), Err(CurveError::TooFew(0)));
    }

    proptest! {
        /// Times in another unit give the same curve in that unit, and the order is nothing.
        #[test]
        fn unit_and_order_do_not_matter(
            steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
            factor in 1e-3..1e3_f64,
            batch in 1..5000_u64,
        ) {
            let pairs: Vec<(u64, f64)> = steps.into_iter().collect();
            let plain = curve(&pairs).at(batch);
            let mut other: Vec<(u64, f64)> = pairs.iter().map(|&(batch, time)| (batch, time * factor)).collect();
            other.reverse();
            let scaled = curve(&other).at(batch);
            for (a, b) in [(plain.time.range.low, scaled.time.range.low), (plain.time.range.mid, scaled.time.range.mid), (plain.wide[1], scaled.wide[1])] {
                prop_assert!((a.get() * factor - b.get()).abs() <= 1e-6 * b.get().max(1e-9), "{a:?} {b:?}");
            }
        }

        /// A range always holds its middle value, and the wider one the narrower.
        #[test]
        fn ranges_hold(
            steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
            batch in 1..5000_u64,
        ) {
            let at = curve(&steps.into_iter().collect::<Vec<_>>()).at(batch);
            prop_assert!(at.wide[0].get() <= at.time.range.low.get() && at.time.range.low.get() <= at.time.range.mid.get());
            prop_assert!(at.time.range.mid.get() <= at.time.range.high.get() && at.time.range.high.get() <= at.wide[1].get());
        }

        /// A larger batch beyond the measured ones never takes less time.
        #[test]
        fn larger_batches_take_longer(
            steps in proptest::collection::btree_map(1..2000_u64, 1.0..1e6_f64, 2..7),
            batch in 2000..5000_u64,
        ) {
            let of = curve(&steps.into_iter().collect::<Vec<_>>());
            prop_assert!(mid(&of, batch) <= mid(&of, batch + 1));
        }
    }
}
