//! Derives a figure from timed regions: warms up until steady, then takes the median and its spread.

use habitat_base::units::Micros;
use habitat_step::catalog::calibration::Spread;

use super::Problem;

/// Timing parameters of a figure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Regions {
    /// Target length of a region in microseconds.
    region_us: f64,
    /// Minimum device time of the warm-up in microseconds.
    warm_us: f64,
    /// Maximum number of warm-up regions.
    most_warm: u32,
    /// Number of measured regions.
    kept: u32,
}

/// Relative difference between the last regions below which the warm-up ends.
const STEADY: f64 = 0.02;
/// Number of regions compared for it.
const COMPARED: usize = 3;
/// Maximum number of runs per region.
const MOST_RUNS: f64 = 1e6;
/// Length of the region during which the board is queried, as a multiple of the usual one.
const WATCHED: u64 = 15;

impl Regions {
    /// Empty kernels: a region is a thousand of them, or one and its wait.
    pub(super) const LAUNCHES: Self = Self { region_us: 0.0, warm_us: 5_000.0, most_warm: 200, kept: 51 };
    /// Copies: a fifth of a second in total.
    pub(super) const BANDWIDTH: Self = Self { region_us: 20_000.0, warm_us: 200_000.0, most_warm: 40, kept: 15 };
    /// Products: a second of warm-up and two of measurement, long enough for boards to reach their power limit.
    pub(super) const PRODUCTS: Self = Self { region_us: 100_000.0, warm_us: 1_000_000.0, most_warm: 40, kept: 20 };

    /// Spread of a figure, such as GB/s, over timed regions. `one` runs a region and returns its time in microseconds
    /// and its figure.
    pub(super) fn collect(self, mut one: impl FnMut() -> Result<(f64, f64), Problem>) -> Result<Spread, Problem> {
        let mut last: Vec<f64> = Vec::new();
        let mut warm_us = 0.0;
        for _ in 0..self.most_warm {
            let (time, figure) = one()?;
            warm_us += time;
            last.push(figure);
            if warm_us >= self.warm_us && is_steady(&last) {
                break;
            }
        }
        let figures = (0..self.kept).map(|_| one().map(|(_, figure)| figure)).collect::<Result<Vec<_>, _>>()?;
        spread(figures)
    }

    /// Measures the rate of work with `each` units per run, in units per microsecond; `time` runs it a number of times
    /// in a row.
    pub(super) fn rate(
        self,
        each: f64,
        mut time: impl FnMut(u64) -> Result<Micros, Problem>,
    ) -> Result<Spread, Problem> {
        let runs = self.runs(&mut time)?;
        self.collect(|| {
            let took = positive(time(runs)?)?;
            Ok((took, each * runs as f64 / took))
        })
    }

    /// The same, followed by a longer region during which the board is queried.
    pub(super) fn rate_watched(
        self,
        each: f64,
        mut time: impl FnMut(u64, bool) -> Result<Micros, Problem>,
    ) -> Result<Spread, Problem> {
        let found = self.rate(each, |runs| time(runs, false))?;
        let runs = self.runs(&mut |runs| time(runs, false))?;
        time(WATCHED * runs, true)?;
        Ok(found)
    }

    /// Number of runs per region, from the second of two short ones (the first also loads the kernel).
    fn runs(self, time: &mut impl FnMut(u64) -> Result<Micros, Problem>) -> Result<u64, Problem> {
        time(1)?;
        let mut runs = 1;
        // If a run is short compared with the clock's resolution, time more of them.
        loop {
            let took = positive(time(runs)?)?;
            if took >= self.region_us / 20.0 || runs as f64 >= MOST_RUNS {
                return Ok((self.region_us / took * runs as f64).clamp(1.0, MOST_RUNS).round() as u64);
            }
            runs = runs.saturating_mul(10);
        }
    }
}

fn positive(time: Micros) -> Result<f64, Problem> {
    if time.get() > 0.0 {
        Ok(time.get())
    } else {
        Err(Problem::LeftOut("the device's clock did not advance".to_owned()))
    }
}

fn is_steady(figures: &[f64]) -> bool {
    let Some(last) = figures.len().checked_sub(COMPARED).and_then(|from| figures.get(from..)) else { return false };
    let (low, high) = last.iter().fold((f64::MAX, 0.0_f64), |(low, high), &figure| (low.min(figure), high.max(figure)));
    high - low <= STEADY * high
}

/// Median, 10th and 90th percentile (the nearest figures).
fn spread(mut figures: Vec<f64>) -> Result<Spread, Problem> {
    figures.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (share * figures.len().saturating_sub(1) as f64).round() as usize;
        figures.get(place).copied().filter(|figure| figure.is_finite() && *figure > 0.0)
    };
    match (at(0.5), at(0.1), at(0.9)) {
        (Some(median), Some(low), Some(high)) => Ok(Spread { median, low, high, regions: figures.len() as u32 }),
        _ => Err(Problem::LeftOut("no time was measured".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_its_spread() {
        let found = spread((0..=20).rev().map(|n| 100.0 + f64::from(n)).collect()).unwrap();
        assert_eq!((found.median, found.low, found.high, found.regions), (110.0, 102.0, 118.0, 21));
        assert!(spread(Vec::new()).is_err());
        assert!(spread(vec![f64::NAN]).is_err());
    }

    #[test]
    fn warming_up_ends_when_it_is_steady() {
        // 50 slow figures, then steady ones: the slow ones are not kept.
        let mut asked = 0;
        let found = Regions::LAUNCHES
            .collect(|| {
                asked += 1;
                Ok((200.0, if asked <= 50 { f64::from(asked) } else { 80.0 }))
            })
            .unwrap();
        assert_eq!((found.low, found.median, found.high), (80.0, 80.0, 80.0));
        // Figures that never become steady are measured nevertheless.
        let mut odd = false;
        let found = Regions::BANDWIDTH.collect(|| {
            odd = !odd;
            Ok((1e6, if odd { 1.0 } else { 3.0 }))
        });
        assert_eq!((found.as_ref().unwrap().low, found.unwrap().high), (1.0, 3.0));
    }

    #[test]
    fn regions_are_long_against_the_clock() {
        // 0.2 µs per run on a clock with steps of 0.5 µs.
        let mut longest = 0;
        let found = Regions::BANDWIDTH
            .rate(1.0, |runs| {
                longest = longest.max(runs);
                Ok(Micros::new(((runs as f64 * 0.2) / 0.5).ceil() * 0.5).unwrap())
            })
            .unwrap();
        assert!((found.median - 5.0).abs() < 0.01 && longest == 100_000, "{found:?} {longest}");
    }
}
