//! Errors of steps at other batch sizes, from measured steps.
//!
//! The error depends on how much of the step grows with the batch. A CPU-bound step hardly shows when it will become
//! GPU-bound (10 to 20 % error at four times the batch); a GPU-bound one extrapolates well (3 to 6 %). The ranges are
//! therefore empirical quantiles of ln(measured ÷ predicted), by that share and by the distance. Regression intervals
//! capture neither: with two points they do not exist, and with three a nominal 80 % held 72 and 59 % of these steps at
//! two and four times the batch (least squares).
//!
//! Source: PROFET's step times (12 CNNs on M60, T4, K80 and V100, batch 16 to 256, FP32; Lee et al.,
//! <https://github.com/ddps-lab/profet>, `latencies.csv`), medians over nine repetitions; every series with four or
//! more batch sizes. `habitat-lab evaluate batches` refits them with each network left out and reports the coverage; a
//! test compares the figures below with the data.

use habitat_base::regress::quantile::expected_quantile;

/// Class of a step by the share of it that grows with the batch, at the largest measured batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// Less than 30 %: the host or fixed work dominates.
    Fixed,
    /// 30 to 70 %.
    Mixed,
    /// More than 70 %: GPU-bound, in proportion to the batch.
    Proportional,
}

impl Regime {
    /// All regimes, from fixed to proportional.
    pub(crate) const ALL: [Self; 3] = [Self::Fixed, Self::Mixed, Self::Proportional];

    /// Classifies the share (0 to 1) of the step that grows with the batch.
    pub(crate) fn of(share: f64) -> Self {
        match share {
            share if share < 0.3 => Self::Fixed,
            share if share < 0.7 => Self::Mixed,
            _ => Self::Proportional,
        }
    }

    /// The name on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "hardly grows",
            Self::Mixed => "grows in part",
            Self::Proportional => "grows with the batch",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Fixed => 0,
            Self::Mixed => 1,
            Self::Proportional => 2,
        }
    }
}

/// Quantiles of ln(measured ÷ predicted).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spread {
    /// Ends of the 80 % range.
    pub usual: [f64; 2],
    /// Ends of the 90 % range.
    pub wide: [f64; 2],
}

impl Spread {
    const fn new(wide_low: f64, low: f64, high: f64, wide_high: f64) -> Self {
        Self { usual: [low, high], wide: [wide_low, wide_high] }
    }

    fn map(self, f: impl Fn(f64) -> f64) -> Self {
        Self { usual: self.usual.map(&f), wide: self.wide.map(&f) }
    }

    fn between(self, other: Self, part: f64) -> Self {
        let mix = |a: [f64; 2], b: [f64; 2]| [a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])];
        Self { usual: mix(self.usual, other.usual), wide: mix(self.wide, other.wide) }
    }
}

/// One measured error with its distance and regime.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// The regime of the fit.
    pub regime: Regime,
    /// Doublings of the batch from the nearest measured one, 1 or 2; 0 between two of them.
    pub doublings: u8,
    /// ln(measured ÷ predicted).
    pub log_ratio: f64,
}

/// Spreads by regime at one and two doublings; interpolation uses only the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spreads(pub [[Spread; 2]; 3]);

impl Spreads {
    /// Computes quantiles of measured errors. A regime without data uses those of all regimes; two doublings without
    /// data use twice the spread of one.
    pub fn of(residuals: &[Residual]) -> Self {
        let mut spreads = Self([[Spread::default(); 2]; 3]);
        for regime in Regime::ALL {
            for place in 0..2 {
                let at = |residual: &&Residual| usize::from(residual.doublings.max(1)) == place + 1;
                let of = |same: bool| -> Vec<f64> {
                    let chosen = residuals.iter().filter(at).filter(|it| !same || it.regime == regime);
                    chosen.map(|it| it.log_ratio).collect()
                };
                let mut values = of(true);
                if values.is_empty() {
                    values = of(false);
                }
                spreads.0[regime.index()][place] = if values.is_empty() && place == 1 {
                    spreads.0[regime.index()][0].map(|end| 2.0 * end)
                } else {
                    let mut at = |q: f64| expected_quantile(&mut values, q).unwrap_or(0.0);
                    Spread::new(at(0.05), at(0.1), at(0.9), at(0.95))
                };
            }
        }
        spreads
    }

    /// Spread at a distance in doublings. Up to one doubling it grows in proportion, but not below `REPETITION`. Beyond
    /// two it keeps growing in proportion; no measurements support that part.
    pub(crate) fn at(&self, regime: Regime, doublings: f64) -> Spread {
        let [one, two] = self.0[regime.index()];
        let spread = if doublings <= 1.0 {
            one.map(|end| end * doublings)
        } else if doublings <= 2.0 {
            one.between(two, doublings - 1.0)
        } else {
            two.map(|end| end * (doublings / 2.0))
        };
        // The range contains the middle value and the spread of repetitions.
        let held = |[low, high]: [f64; 2]| [low.min(-REPETITION), high.max(REPETITION)];
        Spread { usual: held(spread.usual), wide: held(spread.wide) }
    }
}

/// Relative difference between repetitions of one step: the largest of PROFET's four GPUs (V100).
pub(crate) const REPETITION: f64 = 0.025;

/// Spreads for each position relative to the measured batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// Beyond the largest measured batch.
    pub beyond: Spreads,
    /// Beyond the largest measured batch, with the device's busy time known at every batch.
    pub beyond_with_busy: Spreads,
    /// Between two measured batches.
    pub between: Spreads,
    /// Below the smallest.
    pub below: Spreads,
}

/// Calibration from PROFET's data; see the module.
pub const SHIPPED: Calibration = Calibration {
    beyond: Spreads([
        [Spread::new(-0.209, -0.132, 0.177, 0.202), Spread::new(-0.415, -0.293, 0.314, 0.461)],
        [Spread::new(-0.163, -0.069, 0.059, 0.084), Spread::new(-0.422, -0.097, 0.117, 0.153)],
        [Spread::new(-0.067, -0.045, 0.056, 0.083), Spread::new(-0.136, -0.079, 0.091, 0.148)],
    ]),
    beyond_with_busy: Spreads([
        [Spread::new(-0.104, -0.091, 0.149, 0.175), Spread::new(-0.219, -0.141, 0.310, 0.365)],
        [Spread::new(-0.140, -0.089, 0.066, 0.084), Spread::new(-0.384, -0.092, 0.118, 0.139)],
        [Spread::new(-0.060, -0.038, 0.057, 0.074), Spread::new(-0.116, -0.068, 0.078, 0.150)],
    ]),
    between: Spreads([
        [Spread::new(-0.085, -0.066, 0.093, 0.101), Spread::new(-0.170, -0.132, 0.186, 0.202)],
        [Spread::new(-0.085, -0.058, 0.050, 0.121), Spread::new(-0.170, -0.116, 0.100, 0.242)],
        [Spread::new(-0.054, -0.037, 0.024, 0.039), Spread::new(-0.108, -0.074, 0.048, 0.078)],
    ]),
    below: Spreads([
        [Spread::new(-0.204, -0.161, 0.078, 0.094), Spread::new(-0.617, -0.243, 0.090, 0.134)],
        [Spread::new(-0.101, -0.062, 0.084, 0.144), Spread::new(-0.296, -0.133, 0.175, 0.252)],
        [Spread::new(-0.088, -0.060, 0.065, 0.106), Spread::new(-0.219, -0.157, 0.144, 0.198)],
    ]),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_by_regime_and_distance() {
        let residuals: Vec<Residual> = (1..20)
            .map(|index| Residual { regime: Regime::Mixed, doublings: 1, log_ratio: f64::from(index - 10) / 10.0 })
            .collect();
        let spreads = Spreads::of(&residuals);
        let known = Spread::new(-0.9, -0.8, 0.8, 0.9);
        let close = |a: Spread, b: Spread| {
            a.usual.iter().chain(&a.wide).zip(b.usual.iter().chain(&b.wide)).all(|(a, b)| (a - b).abs() < 1e-12)
        };
        assert!(close(spreads.at(Regime::Mixed, 1.0), known), "{spreads:?}");
        // A regime without residuals uses those of all.
        assert!(close(spreads.at(Regime::Fixed, 1.0), known));
        assert!(close(spreads.at(Regime::Mixed, 0.5), Spread::new(-0.45, -0.4, 0.4, 0.45)));
        // No range is narrower than the spread of repetitions.
        assert!(close(spreads.at(Regime::Mixed, 0.0), Spread::new(-REPETITION, -REPETITION, REPETITION, REPETITION)));
    }

    #[test]
    fn ranges_widen_with_the_distance_and_hold_the_middle() {
        for regime in Regime::ALL {
            for spreads in [SHIPPED.beyond, SHIPPED.beyond_with_busy, SHIPPED.between, SHIPPED.below] {
                let width = |doublings: f64| {
                    let Spread { usual: [low, high], wide: [wide_low, wide_high] } = spreads.at(regime, doublings);
                    assert!(wide_low <= low && low < 0.0 && 0.0 < high && high <= wide_high);
                    high - low
                };
                let all: Vec<f64> = [0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0].map(width).to_vec();
                assert!(all.windows(2).all(|pair| pair[0] <= pair[1] + 1e-12), "{regime:?}: {all:?}");
            }
        }
    }

    #[test]
    fn a_step_that_hardly_grows_says_the_least() {
        let width = |regime| {
            let [low, high] = SHIPPED.beyond.at(regime, 2.0).usual;
            high - low
        };
        assert!(width(Regime::Fixed) > 2.0 * width(Regime::Mixed));
        assert!(width(Regime::Fixed) > 2.0 * width(Regime::Proportional));
    }
}
