//! What losing spot machines costs: planner note B1.
//!
//! λ losses per hour (of one machine, by its GPUs, times the machines: a job stops whenever one is lost), a checkpoint of ω hours every κ hours, ρ hours to
//! restart and δ unbilled hours of waiting after each loss. Per useful hour, expected:
//! billed β = (1 + ω/κ)·(1 + λ(κ/2 + ρ)), elapsed ε = β + λδ (half an interval of work is
//! lost).
//!
//! At confidence, of `run` hours of running, L = a + b·λ·run losses are allowed for, each with a
//! full interval κ + ρ and k·δ of waiting. At 95 % a = 2 and b = 1.5 are about the Poisson quantile
//! at few losses and above it at many, since real losses come in clusters: mean lives are 2 to 8
//! times the median. k = 5 was chosen on the traces of machines kept running in
//! `skypilot-org/spot-traces` at 221da1a, whose capacity is there 30 to 79 % of the time. With it all
//! replayed runs end in time on spot alone in the four zones of single machines, 64 to 100 % of them
//! in the three zones of four machines (`habitat-lab evaluate spot`, "without the change"). a counts
//! once a plan, however many parts of it are spot.
//!
//! A spot part in front of a part on demand needs no such allowance, where that machine could do
//! all the work in time: whoever changes over while the time left still suffices is never late
//! ("Can't Be Late", NSDI 2024). What spot then does of the work is [`share_on_spot`].
//!
//! Machines of other tiers are taken as never lost (λ = 0), for which no checkpoint is
//! needed either (κ* = √(2ω/λ) grows without limit), so β = ε = 1.

use super::goal::Assumptions;
use crate::pricing::Tier;
use crate::pricing::spot::SpotMachine;

/// Losses allowed for once, at 95 % (a).
const ONCE: f64 = 2.0;
/// Losses allowed for in times of those expected, beyond once, at 95 % (b − 1).
const MORE: f64 = 0.5;
/// Waits allowed for in times of the mean wait (k).
const WAITS: f64 = 5.0;
/// What an hour of work loses on spot, over the middle zone's (see [`share_on_spot`]).
const CAPACITY: f64 = 1.7;

/// The numbers above, for one tier and number of machines.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Losses {
    /// λ, per hour: a job on several machines stops whenever one of them is taken away.
    pub(crate) per_hour: f64,
    /// ω/κ.
    pub(crate) writing: f64,
    interval: f64,
    restart: f64,
    wait: f64,
    /// How far the allowance goes: 1 at 95 %.
    reach: f64,
}

impl Losses {
    /// Of so many machines of which this is expected of one.
    pub(crate) fn of(tier: Tier, machines: u32, one: &SpotMachine, assumptions: &Assumptions) -> Self {
        let spot = tier == Tier::Spot;
        let interval = assumptions.checkpoint_interval.get();
        Self {
            per_hour: if spot { one.per_hour * f64::from(machines) } else { 0.0 },
            writing: if spot { assumptions.checkpoint_write.get() / interval } else { 0.0 },
            interval,
            restart: assumptions.restart.get(),
            wait: one.wait.get(),
            // What is left out falls off as an exponential: 5 % of it at 95 %.
            reach: (1.0 - assumptions.spot_confidence).ln() / 0.05f64.ln(),
        }
    }

    /// δ, unbilled hours of waiting after a loss.
    pub(crate) const fn wait(&self) -> f64 {
        self.wait
    }

    /// Elapsed hours allowed for once a plan.
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

    /// Of them those of work done again and of restarts.
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

    /// Losses allowed for once a plan (a), and per hour of running (b·λ).
    pub(crate) fn allowance(&self) -> (f64, f64) {
        let once = if self.per_hour > 0.0 { ONCE * self.reach } else { 0.0 };
        (once, self.per_hour * (1.0 + MORE * self.reach))
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

/// Losses and waits of one machine: as the user gives them, else as measured.
pub(crate) fn expected(assumptions: &Assumptions, provider: &str, region: &str, gpus: u32) -> SpotMachine {
    let SpotMachine { per_hour, wait, why } = SpotMachine::new(provider, region, gpus);
    let why = match (assumptions.spot_losses_per_hour, assumptions.wait) {
        (None, None) => why,
        (Some(_), None) => format!("the losses as given, the wait {why}"),
        (None, Some(_)) => format!("the losses {why}, the wait as given"),
        (Some(_), Some(_)) => "as given".to_owned(),
    };
    SpotMachine {
        per_hour: assumptions.spot_losses_per_hour.unwrap_or(per_hour),
        wait: assumptions.wait.unwrap_or(wait),
        why,
    }
}

/// The share of the work that spot is expected to do before a machine on demand has to take over.
///
/// All in hours of the work on spot without losses: `spare` is what is left of the deadline if the
/// machine on demand did everything, `lost` the hours beyond one that an hour of work takes on
/// spot (ε − 1). `faster`: how many times as fast as the other machine spot works.
///
/// Zones differ more than days do. Of a zone where an hour of work takes u hours more, spot does
/// min(1, spare / (u + 1 − faster)) of the work, all of it where the denominator is not above 0. With
/// P(U < u) = (u / (u + m))² and equally fast machines that is `spare / (spare + m)` on average, which
/// the mean cost of replayed traces follows with m = `lost` / 1.7, chosen on these (`habitat-lab evaluate spot`). Of
/// other machines it is the same mean in closed form, for slower spot machines a lower bound of it.
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
    use habitat_base::units::Hours;

    fn losses(per_hour: f64, interval: f64, write: f64, restart: f64, wait: f64) -> Losses {
        let assumptions = Assumptions {
            spot_losses_per_hour: Some(per_hour),
            checkpoint_interval: Hours::known(interval),
            checkpoint_write: Hours::known(write),
            restart: Hours::known(restart),
            wait: Some(Hours::known(wait)),
            ..Assumptions::default()
        };
        Losses::of(Tier::Spot, 1, &expected(&assumptions, "cloud", "r", 8), &assumptions)
    }

    /// Planner note C.4: λ 0.1/h, κ 1 h, ρ 0.2 h, 20 useful hours.
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

    /// 0.5 × 8^0.48 = 1.357 by a calculator, of each machine; a rate that is given is of the machine.
    #[test]
    fn larger_machines_are_lost_more_often() {
        let of = |machines, gpus, assumptions: &Assumptions| {
            Losses::of(Tier::Spot, machines, &expected(assumptions, "cloud", "r", gpus), assumptions).per_hour
        };
        let measured = Assumptions::default();
        assert_eq!((of(1, 1, &measured), of(3, 1, &measured)), (0.5, 1.5));
        assert!((of(2, 8, &measured) - 2.0 * 1.3566).abs() < 1e-3, "{}", of(2, 8, &measured));
        let given = Assumptions { spot_losses_per_hour: Some(0.2), ..measured };
        assert_eq!((of(1, 8, &given), of(2, 8, &given)), (0.2, 0.4));
    }

    #[test]
    fn other_tiers_lose_nothing() {
        let losses = Losses::of(Tier::OnDemand, 1, &SpotMachine::typical(8), &Assumptions::default());
        assert_eq!((losses.billed(), losses.elapsed(), losses.allowance()), (1.0, 1.0, (0.0, 0.0)));
    }

    /// Poisson quantiles at 95 %, by Python: the least n with
    /// `sum(exp(k*log(m) - m - lgamma(k+1)) for k in range(n+1)) >= 0.95`.
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
        // Half as much again as the work takes on demand, at the default losses: by the replays.
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

    /// The closed form against the mean of 100,000 zones drawn at the quantiles of their law.
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
}
