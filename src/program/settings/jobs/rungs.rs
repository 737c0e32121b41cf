//! Early stopping of copies, as successive halving (Jamieson and Talwalkar 2016): all copies run until a share of the
//! work, the best of them go on until the next share, and so on. Each such stretch is a rung, with jobs that start once
//! all copies of the rung before have ended. ASHA (Li et al. 2020) promotes copies earlier, with the same work.

use serde::{Deserialize, Deserializer};

use super::super::goal_args::GoalArgs;
use super::JobTable;
use habitat_base::units::Samples;
use habitat_reports::launch::Launch;

/// Maximum number of checks.
const MOST_CHECKS: usize = 20;

/// Copies that run between two checks.
pub(super) struct Rung {
    /// Name without the number of a copy.
    pub(super) name: String,
    pub(super) copies: u64,
    /// The wish of the job with the work of the rung.
    pub(super) wish: GoalArgs,
    /// The launch of the job, with `RUNG` in its environment if there are several.
    pub(super) launch: Launch,
}

/// One share of the work, or several.
#[derive(Deserialize, schemars::JsonSchema)]
#[serde(untagged, expecting = "expected a share of the work, such as 0.1, or several, such as [0.1, 0.4]")]
pub(super) enum Checks {
    One(f64),
    Several(Vec<f64>),
}

impl Checks {
    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        Ok(match Deserialize::deserialize(deserializer)? {
            Self::One(share) => vec![share],
            Self::Several(shares) => shares,
        })
    }
}

/// Rungs of a job; one if its copies all run to the end.
///
/// # Errors
/// The key and the problem.
pub(super) fn of(job: &JobTable) -> Result<Vec<Rung>, (&'static str, String)> {
    let whole = || Rung {
        name: job.name.clone(),
        copies: job.time.count.unwrap_or(1),
        wish: job.wish.clone(),
        launch: job.time.launch.clone(),
    };
    let checks = &job.time.check;
    let Some(survive) = job.time.survive else {
        let needed = "needs survive, the share of the copies that goes on, such as survive = 0.25";
        return if checks.is_empty() { Ok(vec![whole()]) } else { Err(("check", needed.to_owned())) };
    };
    check(job, survive)?;
    let mut from = 0.0;
    let mut copies = job.time.count.unwrap_or(1);
    let mut rungs = Vec::with_capacity(checks.len() + 1);
    for (number, until) in (1..).zip(checks.iter().copied().chain([1.0])) {
        let mut rung = Rung { copies, wish: scaled(&job.wish, until - from), ..whole() };
        if number > 1 {
            rung.name = format!("{} rung {number}", job.name);
        }
        rung.launch.env.insert("RUNG".to_owned(), number.to_string());
        rungs.push(rung);
        from = until;
        // Rounded down as in the paper; 0.1 × 40 is 4.
        copies = ((copies as f64 * survive + 1e-9) as u64).max(1);
    }
    Ok(rungs)
}

/// Checks the keys of early stopping.
fn check(job: &JobTable, survive: f64) -> Result<(), (&'static str, String)> {
    let checks = &job.time.check;
    let is_share = |share: f64| share > 0.0 && share < 1.0;
    let problem = if job.time.count.is_none_or(|count| count < 2) {
        ("survive", "needs count, the number of copies to choose among".to_owned())
    } else if !is_share(survive) {
        ("survive", format!("{survive}; use a share above 0 and below 1, such as 0.25"))
    } else if checks.is_empty() {
        ("survive", "needs check, the share of the work after which it applies, such as check = 0.1".to_owned())
    } else if checks.len() > MOST_CHECKS {
        ("check", format!("{} shares; at most {MOST_CHECKS} are possible", checks.len()))
    } else if let Some(share) = checks.iter().find(|share| !is_share(**share)) {
        ("check", format!("{share}; use shares of the work above 0 and below 1, such as 0.1"))
    } else if let Some((before, after)) = checks.iter().zip(checks.iter().skip(1)).find(|(a, b)| a >= b) {
        ("check", format!("{after} after {before}; use shares that grow, such as [0.1, 0.4]"))
    } else if job.wish.budget.is_some() {
        ("budget", "does not apply to copies that stop early; set it at the top, for all jobs".to_owned())
    } else if job.wish.max_co2_kg.is_some() {
        ("max_co2_kg", "does not apply to copies that stop early; omit it".to_owned())
    } else {
        return Ok(());
    };
    Err(problem)
}

/// A wish with a share of its work; whole steps, rounded up.
fn scaled(wish: &GoalArgs, share: f64) -> GoalArgs {
    let samples = |samples: Samples| Samples::new(samples.get() * share).unwrap_or(samples);
    GoalArgs {
        samples: wish.samples.map(samples),
        steps: wish.steps.map(|steps| (steps as f64 * share - 1e-9).ceil().max(1.0) as u64),
        epochs: wish.epochs.map(|epochs| epochs * share),
        tokens: wish.tokens.map(|tokens| tokens * share),
        ..wish.clone()
    }
}
