//! What losing spot machines costs: planner note B1.
//!
//! λ losses per hour of one machine, a checkpoint of ω hours every κ hours, ρ hours to
//! restart and δ unbilled hours of waiting after each loss. Per useful hour:
//! - billed β = (1 + ω/κ)·(1 + λ(κ/2 + ρ)), elapsed ε = β + λδ (expected: half an interval
//!   of work is lost);
//! - at confidence 1 − α: the (1 − α) quantile of a Poisson number of losses, each costing
//!   a full interval κ + ρ + δ; at least the mean number.
//!
//! Machines of other tiers are taken as never lost (λ = 0), for which no checkpoint is
//! needed either (κ* = √(2ω/λ) grows without limit), so β = ε = 1.

use super::goal::Assumptions;
use crate::pricing::Tier;

/// The numbers above, for one tier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Losses {
    /// λ, per hour of one machine.
    pub(crate) per_hour: f64,
    /// ω/κ.
    pub(crate) writing: f64,
    interval: f64,
    restart: f64,
    wait: f64,
    confidence: f64,
}

impl Losses {
    pub(crate) fn of(tier: Tier, assumptions: &Assumptions) -> Self {
        let spot = tier == Tier::Spot;
        let interval = assumptions.checkpoint_interval.get();
        Self {
            per_hour: if spot { assumptions.spot_losses_per_hour } else { 0.0 },
            writing: if spot { assumptions.checkpoint_write.get() / interval } else { 0.0 },
            interval,
            restart: assumptions.restart.get(),
            wait: assumptions.wait.get(),
            confidence: assumptions.spot_confidence,
        }
    }

    /// β, expected billed hours per useful hour.
    pub(crate) fn billed(&self) -> f64 {
        (1.0 + self.writing) * (1.0 + self.per_hour * (self.interval / 2.0 + self.restart))
    }

    /// ε, expected elapsed hours per useful hour.
    pub(crate) fn elapsed(&self) -> f64 {
        self.billed() + self.per_hour * self.wait
    }

    /// Losses that so many hours of running (checkpoints included) stay within, at the
    /// confidence assumed; at least the mean, so that the upper end of a range is never
    /// below what is expected (of little work, most runs lose nothing at all).
    pub(crate) fn allowance(&self, hours: f64) -> f64 {
        let mean = self.per_hour * hours;
        poisson_quantile(mean, self.confidence).max(mean)
    }

    /// Elapsed hours of one loss at confidence: κ + ρ + δ.
    pub(crate) fn each(&self) -> f64 {
        self.each_billed() + self.wait
    }

    /// Billed hours of one loss at confidence: κ + ρ.
    pub(crate) fn each_billed(&self) -> f64 {
        self.interval + self.restart
    }
}

/// The least n with P(N ≤ n) ≥ `confidence` for a Poisson number with this mean.
pub(crate) fn poisson_quantile(mean: f64, confidence: f64) -> f64 {
    if mean <= 0.0 {
        return 0.0;
    }
    // What lies ten deviations below the mean is less than 1e-20 of the whole.
    let first = (mean - 10.0 * mean.sqrt() - 1.0).floor().max(0.0);
    if mean > 1e7 {
        // Decades of losses: nine deviations are above every confidence below 1 − 1e-16.
        return (mean + 9.0 * mean.sqrt()).ceil();
    }
    let mut n = first;
    let mut term = (n * mean.ln() - mean - ln_factorial(n)).exp();
    let mut sum = term;
    let last = mean + 40.0 * mean.sqrt() + 40.0;
    while sum < confidence && n < last {
        n += 1.0;
        term *= mean / n;
        sum += term;
    }
    n
}

/// Numbers of losses a part may be charged for, with the largest mean that stays within
/// each: about half as much again from step to step, so that a part of the work is charged
/// for little more than its own losses and never for fewer.
#[derive(Debug, Clone)]
pub(crate) struct Ladder(Vec<(f64, f64)>);

impl Ladder {
    /// The steps below `most` losses.
    pub(crate) fn new(confidence: f64, most: f64) -> Self {
        let mut steps = Vec::new();
        let mut losses = 1.0f64;
        while losses < most {
            // The allowance is never below the mean, whatever the quantile.
            steps.push((losses, largest_mean(losses, confidence).min(losses)));
            losses = (losses * 1.5).ceil();
        }
        Self(steps)
    }

    /// Losses and largest mean of the steps below `most` losses.
    pub(crate) fn below(&self, most: f64) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.0.iter().copied().take_while(move |(losses, _)| *losses < most)
    }
}

/// The largest mean whose quantile is at most `losses`, by bisection, from below.
fn largest_mean(losses: f64, confidence: f64) -> f64 {
    let within = |mean: f64| poisson_quantile(mean, confidence) <= losses;
    let (mut low, mut high) = (0.0, losses + 1.0);
    while within(high) && high < 1e7 {
        (low, high) = (high, high * 2.0);
    }
    for _ in 0..50 {
        let middle = f64::midpoint(low, high);
        if within(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// ln n! : the product for small n, Stirling's series (error below 1e-10) for others.
fn ln_factorial(n: f64) -> f64 {
    if n < 20.0 {
        return (2..=n as u32).map(|k| f64::from(k).ln()).sum();
    }
    n * n.ln() - n + 0.5 * (2.0 * std::f64::consts::PI * n).ln() + 1.0 / (12.0 * n) - 1.0 / (360.0 * n * n * n)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "counts of losses are whole numbers")]
mod tests {
    use super::*;
    use crate::units::Hours;

    fn losses(per_hour: f64, interval: f64, write: f64, restart: f64, wait: f64) -> Losses {
        let assumptions = Assumptions {
            spot_losses_per_hour: per_hour,
            checkpoint_interval: Hours::known(interval),
            checkpoint_write: Hours::known(write),
            restart: Hours::known(restart),
            wait: Hours::known(wait),
            ..Assumptions::default()
        };
        Losses::of(Tier::Spot, &assumptions)
    }

    /// Planner note C.4: λ 0.1/h, κ 1 h, ρ 0.2 h, 20 useful hours.
    #[test]
    fn the_worked_example_of_the_note() {
        let losses = losses(0.1, 1.0, 0.0, 0.2, 0.0);
        assert!((20.0 * losses.elapsed() - 21.4).abs() < 1e-12);
        assert!((20.0 * losses.billed() * 1.2 - 25.68).abs() < 1e-12);
        assert_eq!(losses.allowance(20.0), 5.0);
        assert!((20.0 + 5.0 * losses.each() - 26.0).abs() < 1e-12);
    }

    #[test]
    fn waiting_is_elapsed_and_not_billed() {
        let losses = losses(0.5, 0.25, 0.025, 0.2, 1.0);
        assert!((losses.billed() - 1.1 * 1.1625).abs() < 1e-12);
        assert!((losses.elapsed() - losses.billed() - 0.5).abs() < 1e-12);
        assert!((losses.each() - losses.each_billed() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn other_tiers_lose_nothing() {
        let losses = Losses::of(Tier::OnDemand, &Assumptions::default());
        assert_eq!((losses.billed(), losses.elapsed(), losses.allowance(1e4)), (1.0, 1.0, 0.0));
    }

    /// Python: the least n with `sum(exp(k*log(m) - m - lgamma(k+1)) for k in range(n+1)) >= c`.
    #[test]
    fn quantiles_are_those_of_a_direct_sum() {
        let cases =
            [(0.95, 2.0, 5.0), (0.95, 0.05, 0.0), (0.5, 10.0, 10.0), (0.99, 100.0, 124.0), (0.95, 2500.0, 2583.0)];
        for (confidence, mean, expected) in cases {
            assert_eq!(poisson_quantile(mean, confidence), expected, "{mean} {confidence}");
        }
    }

    /// P(N ≤ n) at the largest mean is the confidence itself.
    #[test]
    fn each_step_of_the_ladder_is_as_far_as_it_goes() {
        let ladder = Ladder::new(0.95, 100.0);
        assert!((ladder.below(2.0).next().unwrap().1 - 0.355_361).abs() < 1e-6);
        for (losses, mean) in ladder.below(100.0) {
            assert_eq!(poisson_quantile(mean, 0.95), losses);
            assert_eq!(poisson_quantile(mean + 1e-6, 0.95), losses + 1.0);
        }
        let steps: Vec<f64> = ladder.below(30.0).map(|(losses, _)| losses).collect();
        assert_eq!(steps, [1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 18.0, 27.0]);
    }

    #[test]
    fn quantiles_grow_with_mean_and_confidence() {
        let mut before = 0.0;
        for step in 0..2000 {
            let now = poisson_quantile(f64::from(step) * 0.7, 0.95);
            assert!(now >= before, "{step}");
            assert!(now <= poisson_quantile(f64::from(step) * 0.7, 0.99));
            before = now;
        }
    }
}
