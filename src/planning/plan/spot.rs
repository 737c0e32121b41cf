//! Cost of losing machines: spot machines that are taken away, and failures of large jobs.
//!
//! Parameters are λ losses per hour (λ of one machine depends on its GPUs; it is multiplied by the machines, because a
//! job stops when any of them is lost), a checkpoint of ω hours every κ hours, ρ hours to restart, and δ unbilled hours
//! of waiting after each loss. Expected per useful hour: billed β = (1 + ω/κ)·(1 + λ(κ/2 + ρ)), elapsed ε = β + λδ,
//! assuming that half an interval of work is lost.
//!
//! At the required confidence, `run` hours of running allow for L = a + b·λ·run losses, each with a full interval κ + ρ
//! and k·δ of waiting. At 95 %, a = 2 and b = 1.5 are about the Poisson quantile for few losses and above it for many,
//! since real losses come in clusters: mean lives are 2 to 8 times the median. k = 5 was chosen on traces of machines
//! kept running in `skypilot-org/spot-traces` at 221da1a, which had capacity 30 to 79 % of the time. With it, all
//! replayed runs end in time on spot alone in the four zones of single machines, and 64 to 100 % in the three zones of
//! four machines (`habitat-lab evaluate spot`, "without the change"). a counts once per plan for any number of spot
//! parts.
//!
//! A spot part before an on-demand part needs no such allowance if the on-demand machine could do all the work in time:
//! a switch while the remaining time still suffices is never late ("Can't Be Late", NSDI 2024). [`share_on_spot`] is
//! the share of work that spot then does.
//!
//! Machines of other tiers are lost by failures only. They count from [`MANY_GPUS`] on: λ is that of one GPU times the
//! GPUs, and κ = √(2ω/λ), which loses the least (Young 1974, "A first order approximation to the optimum checkpoint
//! interval"; Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps"). Replacements
//! wait, so δ = 0. L = 3·λ·run: at 95 % above Poisson's quantile from one expected failure on. With fewer GPUs λ = 0,
//! and β = ε = 1.

use super::goal::{Assumptions, MANY_GPUS};
use crate::pricing::Tier;
use crate::pricing::spot::{SpotMachine, SpotSource};
use habitat_base::units::Hours;

/// Number of losses allowed for once per plan, at 95 % (a).
const ONCE: f64 = 2.0;
/// Additional losses allowed for, relative to the expected ones, at 95 % (b − 1).
const MORE: f64 = 0.5;
/// Waiting time allowed for per loss, relative to the mean wait (k).
const WAITS: f64 = 5.0;
/// Additional failures allowed for, relative to the expected ones, at 95 %.
const MORE_FAILURES: f64 = 2.0;
/// Bounds of the interval between checkpoints of a large job, in hours (a choice).
const INTERVAL: [f64; 2] = [0.05, 24.0];
/// Mean extra hours per hour of work on spot, divided by those of the median zone (see [`share_on_spot`]).
const CAPACITY: f64 = 1.7;

/// Parameters above for one tier and number of machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Losses {
    /// λ, per hour, for all machines of the job.
    pub(crate) per_hour: f64,
    /// ω/κ.
    pub(crate) writing: f64,
    interval: f64,
    restart: f64,
    wait: f64,
    /// Losses allowed for: once per plan (a), and per hour of running (b·λ).
    allowed: (f64, f64),
}

impl Losses {
    /// Losses of a number of machines with a number of GPUs in all, from those expected of one spot machine.
    pub(crate) fn of(
        tier: Tier,
        [machines, gpus]: [u32; 2],
        one: &SpotMachine,
        (assumptions, write): (&Assumptions, Hours),
    ) -> Self {
        let write = write.get();
        // The probability of exceeding the allowance falls exponentially, from 5 % at scale 1.
        let reach = (1.0 - assumptions.spot_confidence).ln() / 0.05f64.ln();
        let (per_hour, interval, wait, at_first, more) = if tier == Tier::Spot {
            let rate = one.per_hour * f64::from(machines);
            let at_first = if rate > 0.0 { ONCE } else { 0.0 };
            (rate, assumptions.checkpoint_interval.get(), one.wait.get(), at_first, MORE)
        } else {
            let counted = if gpus >= MANY_GPUS { f64::from(gpus) } else { 0.0 };
            let rate = counted * assumptions.failures_per_gpu_hour;
            let [least, most] = INTERVAL;
            let interval = if rate > 0.0 { (2.0 * write / rate).sqrt().clamp(least, most) } else { most };
            (rate, interval, 0.0, 0.0, MORE_FAILURES)
        };
        Self {
            per_hour,
            writing: if per_hour > 0.0 || tier == Tier::Spot { write / interval } else { 0.0 },
            interval,
            restart: assumptions.restart.get(),
            wait,
            allowed: (at_first * reach, per_hour * (1.0 + more * reach)),
        }
    }

    /// Whether a job is lost before it has written a checkpoint and restarted, as expected.
    pub(crate) fn stand_still(&self) -> bool {
        self.per_hour * (self.writing * self.interval + self.restart) > 1.0
    }

    /// δ, unbilled hours of waiting after a loss.
    pub(crate) const fn wait(&self) -> f64 {
        self.wait
    }

    /// Elapsed hours allowed for once per plan.
    pub(crate) fn hours_once(&self) -> f64 {
        self.allowance().0 * self.each()
    }

    /// κ, hours between checkpoints.
    pub(crate) const fn interval(&self) -> f64 {
        self.interval
    }

    /// β, expected billed hours per useful hour.
    pub(crate) fn billed(&self) -> f64 {
        1.0 + self.writing + self.repeated()
    }

    /// Expected billed hours of repeated work and restarts per useful hour.
    pub(crate) fn repeated(&self) -> f64 {
        (1.0 + self.writing) * self.per_hour * (self.interval / 2.0 + self.restart)
    }

    /// Expected hours of waiting per useful hour.
    pub(crate) fn waited(&self) -> f64 {
        self.per_hour * self.wait
    }

    /// ε, expected elapsed hours per useful hour.
    pub(crate) fn elapsed(&self) -> f64 {
        self.billed() + self.waited()
    }

    /// Losses allowed for once per plan (a), and per hour of running (b·λ).
    pub(crate) const fn allowance(&self) -> (f64, f64) {
        self.allowed
    }

    /// Elapsed hours of one loss at confidence: κ + ρ + kδ.
    pub(crate) fn each(&self) -> f64 {
        self.each_billed() + WAITS * self.wait
    }

    /// Billed hours of one loss at confidence: κ + ρ.
    pub(crate) fn each_billed(&self) -> f64 {
        self.interval + self.restart
    }
}

/// Losses and waits of one machine: set by the user, or otherwise as measured.
pub(crate) fn expected(assumptions: &Assumptions, provider: &str, region: &str, gpus: u32) -> SpotMachine {
    let SpotMachine { per_hour, wait, source } = SpotMachine::new(provider, region, gpus);
    let (own_losses, own_wait) = (assumptions.spot_losses_per_hour, assumptions.wait);
    SpotMachine {
        per_hour: own_losses.unwrap_or(per_hour),
        wait: own_wait.unwrap_or(wait),
        source: SpotSource { sets_losses: own_losses.is_some(), sets_wait: own_wait.is_some(), ..source },
    }
}

/// Share of the work that spot is expected to do before an on-demand machine has to take over.
///
/// Parameters are in hours of work on spot without losses. `spare` is the time left to the deadline if the on-demand
/// machine did everything; `lost` the extra hours per hour of work on spot (ε − 1); `faster` the speed of spot relative
/// to the other machine.
///
/// Zones differ more than days do. In a zone where an hour of work takes u hours more, spot does min(1, spare / (u + 1
/// − faster)) of the work, or all of it if the denominator is not positive. With P(U < u) = (u / (u + m))² and equally
/// fast machines, the average is `spare / (spare + m)`. The mean cost of replayed traces follows this with m = `lost` /
/// 1.7, which was chosen on these traces (`habitat-lab evaluate spot`). For a different speed it is the same mean in
/// closed form, which for slower spot machines is a lower bound.
pub(crate) fn share_on_spot(spare: f64, lost: f64, faster: f64) -> f64 {
    let (x, m, d) = (spare.max(0.0), lost.max(1e-9) / CAPACITY, faster - 1.0);
    if x == 0.0 || d <= 0.0 {
        return x / (x + m - d);
    }
    let (all, far) = (d + x, d + m);
    let done = (all / (all + m)).powi(2);
    let part =
        d / far.powi(3) * ((x + far) / x).ln() - d / (far * far * (x + far)) + m / (2.0 * far * (x + far).powi(2));
    (done + 2.0 * m * x * part).min(1.0)
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "counts of losses are whole numbers")]
mod tests {
    use super::*;
    use habitat_base::units::Bytes;

    fn losses(per_hour: f64, interval: f64, write: f64, restart: f64, wait: f64) -> Losses {
        let assumptions = Assumptions {
            spot_losses_per_hour: Some(per_hour),
            checkpoint_interval: Hours::known(interval),
            checkpoint_write: Some(Hours::known(write)),
            restart: Hours::known(restart),
            wait: Some(Hours::known(wait)),
            ..Assumptions::default()
        };
        Losses::of(Tier::Spot, [1, 8], &expected(&assumptions, "cloud", "r", 8), (&assumptions, Hours::known(write)))
    }

    /// Example worked out by hand: λ 0.1/h, κ 1 h, ρ 0.2 h, 20 useful hours.
    #[test]
    fn the_worked_example_of_the_note() {
        let losses = losses(0.1, 1.0, 0.0, 0.2, 0.0);
        assert!((20.0 * losses.elapsed() - 21.4).abs() < 1e-12);
        assert!((20.0 * losses.billed() * 1.2 - 25.68).abs() < 1e-12);
        let (once, hourly) = losses.allowance();
        assert!((once + hourly * 20.0 - 5.0).abs() < 1e-12);
        assert!((20.0 + 5.0 * losses.each() - 26.0).abs() < 1e-12);
    }

    #[test]
    fn waiting_is_elapsed_and_not_billed() {
        let losses = losses(0.5, 0.25, 0.025, 0.2, 1.0);
        assert!((losses.billed() - 1.1 * 1.1625).abs() < 1e-12);
        assert!((losses.elapsed() - losses.billed() - 0.5).abs() < 1e-12);
        assert!((losses.each() - losses.each_billed() - WAITS).abs() < 1e-12);
    }

    /// 0.5 × 8^0.48 = 1.357 by a calculator, per machine; a given rate applies to the machine.
    #[test]
    fn larger_machines_are_lost_more_often() {
        let of = |machines, gpus, assumptions: &Assumptions| {
            Losses::of(
                Tier::Spot,
                [machines, gpus * machines],
                &expected(assumptions, "cloud", "r", gpus),
                (assumptions, assumptions.write(None, 1)),
            )
            .per_hour
        };
        let measured = Assumptions::default();
        assert_eq!((of(1, 1, &measured), of(3, 1, &measured)), (0.5, 1.5));
        assert!((of(2, 8, &measured) - 2.0 * 1.3566).abs() < 1e-3, "{}", of(2, 8, &measured));
        let given = Assumptions { spot_losses_per_hour: Some(0.2), ..measured };
        assert_eq!((of(1, 8, &given), of(2, 8, &given)), (0.2, 0.4));
    }

    #[test]
    fn few_machines_of_other_tiers_lose_nothing() {
        let losses =
            Losses::of(Tier::OnDemand, [7, 56], &SpotMachine::typical(8), (&Assumptions::default(), Hours::known(1.0)));
        assert_eq!((losses.billed(), losses.elapsed(), losses.allowance()), (1.0, 1.0, (0.0, 0.0)));
    }

    /// 1,024 GPUs fail every 48.8 hours. With a minute for a checkpoint, one every √(2/60 · 48.8) = 1.28 hours loses
    /// the least: 1/60 in 1.28 to write them, and 0.0205 · (0.64 + 0.2) repeated.
    #[test]
    fn failures_of_many_gpus_by_hand() {
        let of = |gpus, assumptions: &Assumptions| {
            Losses::of(
                Tier::Reserved,
                [gpus / 8, gpus],
                &SpotMachine::typical(8),
                (assumptions, assumptions.write(None, 1)),
            )
        };
        let usual = Assumptions::default();
        let losses = of(1024, &usual);
        assert!((losses.interval() - 1.2758).abs() < 1e-4, "{}", losses.interval());
        assert!(
            (losses.billed() - 1.030_45).abs() < 1e-5 && losses.elapsed() == losses.billed(),
            "{}",
            losses.billed()
        );
        let (once, hourly) = losses.allowance();
        for (mean, quantile) in [(1.0, 3.0), (2.0, 5.0), (4.0, 8.0), (10.0, 15.0)] {
            assert!(once + hourly / losses.per_hour * mean >= quantile * (1.0 - 1e-9), "{mean}");
        }
        assert!(!of(100_000, &usual).stand_still());
        assert!(of(1024, &Assumptions { failures_per_gpu_hour: 0.01, ..usual }).stand_still());
        assert_eq!(of(1024, &Assumptions { failures_per_gpu_hour: 0.0, ..usual }).billed(), 1.0);
    }

    /// Poisson quantiles at 95 %, from Python: the smallest n with `sum(exp(k*log(m) - m - lgamma(k+1)) for k in
    /// range(n+1)) >= 0.95`.
    #[test]
    fn the_allowance_is_about_the_poisson_quantile_or_above() {
        let (once, hourly) = losses(1.0, 1.0, 0.0, 0.0, 0.0).allowance();
        for (mean, quantile) in [(0.3, 1.0), (1.0, 3.0), (2.0, 5.0), (4.0, 8.0), (10.0, 15.0), (100.0, 117.0)] {
            assert!(once + hourly * mean >= quantile * (1.0 - 1e-9), "{mean}");
        }
    }

    #[test]
    fn more_time_to_spare_is_more_work_on_spot() {
        assert_eq!((share_on_spot(-1.0, 0.7, 1.0), share_on_spot(0.0, 0.7, 3.0)), (0.0, 0.0));
        // 1.5 times the time that the work takes on demand, at the default losses; value from the replays.
        assert!((share_on_spot(0.5, 0.74, 1.0) - 0.53).abs() < 0.02, "{}", share_on_spot(0.5, 0.74, 1.0));
        for faster in [0.5, 1.0, 1.5, 4.0] {
            let mut before = 0.0;
            for step in 1..100 {
                let now = share_on_spot(f64::from(step) * 0.1, 0.74, faster);
                assert!(now > before && now < 1.0, "{faster} {step}: {now} after {before}");
                assert!(now >= share_on_spot(f64::from(step) * 0.1, 0.74, faster * 0.9));
                before = now;
            }
        }
    }

    /// Compares the closed form with the mean of 100,000 zones drawn at the quantiles of their distribution.
    #[test]
    fn a_faster_machine_does_the_mean_share_over_zones() {
        let (spare, lost, faster) = (1.24, 0.74, 2.8);
        let m = lost / CAPACITY;
        let zones = 100_000;
        let done_in = |zone: i32| {
            let root = ((f64::from(zone) + 0.5) / f64::from(zones)).sqrt();
            let slower = m * root / (1.0 - root) + 1.0 - faster;
            if slower <= 0.0 { 1.0 } else { (spare / slower).min(1.0) }
        };
        let mean = (0..zones).map(done_in).sum::<f64>() / f64::from(zones);
        let found = share_on_spot(spare, lost, faster);
        assert!((found - mean).abs() < 1e-4, "{found} {mean}");
    }

    /// 70 billion parameters with 14 bytes each are 980 GB: 94 s from 16 machines, 6 s from 256.
    #[test]
    fn a_large_checkpoint_takes_as_long_as_its_size() {
        let seconds = |size: Option<f64>, machines| {
            let write = Assumptions::default().write(size.map(Bytes::known), machines);
            (write.get() * 3600.0).round()
        };
        assert_eq!([seconds(Some(980e9), 16), seconds(Some(980e9), 256), seconds(None, 1)], [94.0, 60.0, 60.0]);
        let given = Assumptions { checkpoint_write: Some(Hours::known(0.5)), ..Assumptions::default() };
        assert_eq!(given.write(Some(Bytes::known(980e9)), 16), Hours::known(0.5));
    }
}
