//! Work beside training: validations, checkpoints, long steps.

use habitat_base::units::Micros;
use habitat_recorder::live::history::{Digest, Stretch};

/// Work beside training of one kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Beside {
    /// Number of steps with such work.
    pub(crate) count: u32,
    /// Mean time by which they took longer than a training step.
    pub(crate) each: Micros,
    /// Share of all time, 0 to 1; 0 if that is shorter than a tenth of a second.
    pub(crate) share: f64,
    /// Number of steps between two of them; `None` if it varies.
    pub(crate) period: Option<u64>,
}

/// Validations, checkpoints and long steps that repeat and are alike; then the first steps and other long ones.
pub(crate) fn beside(digest: &Digest) -> [Option<Beside>; 4] {
    let Some(total) = digest.total else { return [None; 4] };
    let ([validations, checkpoints, long], alike) = (total.aside, digest.alike);
    let first = (long.0.saturating_sub(alike.0), long.1 - alike.1);
    let [a, b, c] = digest.period;
    [(validations, a), (checkpoints, b), (alike, c), (first, None)].map(|(work, period)| of(&total, work, period))
}

/// Share of all time in training steps.
pub(crate) fn trained(digest: &Digest) -> f64 {
    (1.0 - beside(digest).iter().flatten().map(|work| work.share).sum::<f64>()).max(0.0)
}

/// Work in a number of steps, and their seconds; `None` without any.
fn of(total: &Stretch, (count, seconds): (u32, f32), period: Option<u64>) -> Option<Beside> {
    let all = f64::from(total.to.saturating_sub(total.from)) / 10.0;
    // These steps train as well.
    let usual = if total.total[1].is_nan() { 0.0 } else { f64::from(total.total[1]) / 1e6 };
    let more = (f64::from(seconds) - f64::from(count) * usual).max(0.0);
    let each = Micros::new(more * 1e6 / f64::from(count)).ok()?;
    Some(Beside { count, each, share: if all > 0.0 { (more / all).min(1.0) } else { 0.0 }, period })
}
