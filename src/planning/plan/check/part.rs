//! Recomputation of a part's hours and cost by use, from its steps, prices and the assumptions.

use super::{CheckError, compare, numbers};
use crate::plan::goal::MANY_GPUS;
use crate::plan::{Assumptions, ByUse, Part, Use};
use crate::pricing::spot::{WATCHED, Watched};
use crate::pricing::{Billing, Tier};
use habitat_base::units::{Hours, Range};

/// Values by use, a row for each of [`Use::ALL`], low to high.
pub(in crate::plan) type Rows = [[f64; 3]; Use::ALL.len()];

/// Recomputed values of a part, low to high.
pub(super) struct Own {
    /// Elapsed hours.
    pub(super) hours: [f64; 3],
    /// Dollars.
    pub(super) cost: [f64; 3],
    /// Hours in which the machines run.
    pub(super) running: [f64; 3],
    hours_by: Rows,
    pub(super) cost_by: Rows,
}

impl Own {
    /// Compares the values of the part with these.
    pub(super) fn check(&self, part: &Part) -> Result<(), CheckError> {
        compare(&format!("hours of {}", part.offer.id), &numbers(&part.hours), &self.hours)?;
        compare(&format!("cost of {}", part.offer.id), &numbers(&part.cost), &self.cost)?;
        check_rows(&format!("hours of {}", part.offer.id), &part.hours_by, &part.hours, &self.hours_by)?;
        check_rows(&format!("cost of {}", part.offer.id), &part.cost_by, &part.cost, &self.cost_by)
    }
}

/// Compares a breakdown with these rows, and its sum with the whole.
pub(in crate::plan) fn check_rows<T>(what: &str, by: &ByUse<T>, whole: &Range<T>, rows: &Rows) -> Result<(), CheckError>
where
    T: Copy + Default + PartialEq + std::ops::Add<Output = T> + Into<f64>,
{
    let mut sum = [0.0; 3];
    for (used_for, row) in Use::ALL.into_iter().zip(rows) {
        let stated = numbers(&by.of(used_for));
        // Entries that are tiny compared with the whole may differ by rounding.
        let slack = |end: usize, value: f64| value + numbers(whole)[end];
        let with = |values: &[f64; 3]| [0, 1, 2].map(|end| slack(end, values[end]));
        compare(&format!("{what}, {}", used_for.words()), &with(&stated), &with(row))?;
        sum = [0, 1, 2].map(|end| sum[end] + stated[end]);
    }
    compare(&format!("{what}, added up"), &sum, &numbers(whole))
}

/// Recomputes a part from its number of steps; `first`: includes the losses that are allowed for once per plan. If it
/// is ended after `most` hours, the high ends of all uses are nearer to the expected values by the same share.
pub(super) fn recompute(part: &Part, assumed: &Assumptions, first: bool, most: f64) -> Own {
    let of_one_gpu = match part.batch_size {
        Some(batch) => part.work.get() / batch as f64,
        None => part.work.get(),
    };
    let steps = of_one_gpu / f64::from(part.replicas()) / part.accumulation as f64;
    let mut training =
        [part.step_time_us.low, part.step_time_us.mid, part.step_time_us.high].map(|us| steps * us / 3.6e9);
    let setup = if part.offer.tier == Tier::Owned { 0.0 } else { assumed.setup.get() };
    let (mut saving, mut repeated, mut waiting) = ([0.0; 3], [0.0; 3], [0.0; 3]);
    if part.offer.tier == Tier::Spot {
        let (of_one, wait) = losses(part, assumed);
        let rate = of_one * f64::from(part.machines);
        let interval = assumed.checkpoint_interval.get();
        let restart = assumed.restart.get();
        saving = training.map(|hours| hours / interval * part.checkpoint_write.get());
        let [mid, high] = [training[1] + saving[1], training[2] + saving[2]];
        // At 95 %: two losses plus 1.5 times the expected number, with five mean waits each.
        let reach = f64::ln(1.0 - assumed.spot_confidence) / f64::ln(0.05);
        let once = if first && rate > 0.0 { 2.0 } else { 0.0 };
        let lost = rate * high + reach * (once + 0.5 * rate * high);
        // Expected: losses per hour of running, each with half an interval lost; waiting is per useful hour, as in
        // `spot`.
        repeated = [0.0, mid * rate * (interval / 2.0 + restart), lost * (interval + restart)];
        waiting = [0.0, training[1] * rate * wait, lost * 5.0 * wait];
    }
    let rate = assumed.failures_per_gpu_hour * f64::from(part.all_gpus());
    if part.offer.tier != Tier::Spot && part.all_gpus() >= MANY_GPUS && rate > 0.0 {
        let (write, restart) = (part.checkpoint_write.get(), assumed.restart.get());
        let interval = (2.0 * write / rate).sqrt().clamp(0.05, 24.0);
        saving = training.map(|hours| hours / interval * write);
        let [mid, high] = [training[1] + saving[1], training[2] + saving[2]];
        // At 95 %: three times the expected number, each with a whole interval.
        let reach = f64::ln(1.0 - assumed.spot_confidence) / f64::ln(0.05);
        let lost = rate * high * (1.0 + 2.0 * reach);
        repeated = [0.0, mid * rate * (interval / 2.0 + restart), lost * (interval + restart)];
    }
    // Taken from the part; `check_sources` compares it with the data and their rate.
    let copying = part.hours_by.of(Use::Data).mid.get();
    let fixed = setup + copying;
    let sum = |end: usize| fixed + training[end] + saving[end] + repeated[end] + waiting[end];
    let (mid, high) = (sum(1), sum(2));
    if high > most {
        for row in [&mut training, &mut saving, &mut repeated, &mut waiting] {
            row[2] -= (row[2] - row[1]) * ((high - most) / (high - mid)).min(1.0);
        }
    }
    let running = [0, 1, 2].map(|end| setup + copying + training[end] + saving[end] + repeated[end]);
    let used = |hours: f64| match part.billing {
        Billing::Exact => hours,
        Billing::Hour => begun(hours),
        Billing::Term(term) => begun(hours / f64::from(term)) * f64::from(term),
    };
    let hours = [0, 1, 2].map(|end| running[end] + waiting[end]);
    let (price, paid) = (part.price().get(), running.map(used));
    let kept = hours.map(|hours| part.storage.get() * hours);
    let cost = [0, 1, 2].map(|end| price * paid[end] + kept[end] + part.data_cost.get());
    let unused = [0, 1, 2].map(|end| price * (paid[end] - running[end]).max(0.0));
    let none = [0.0; 3];
    let cost_of = |hours: [f64; 3]| hours.map(|hours| price * hours);
    Own {
        hours,
        cost,
        running,
        hours_by: [[setup; 3], training, saving, repeated, waiting, none, none, [copying; 3]],
        cost_by: [
            [price * setup; 3],
            cost_of(training),
            cost_of(saving),
            cost_of(repeated),
            none,
            unused,
            kept,
            [price * copying + part.data_cost.get(); 3],
        ],
    }
}

/// The spot part with the longest waits, or the first of equal ones. It includes the losses that are allowed for once
/// per plan.
pub(super) fn longest_wait(parts: &[Part], assumed: &Assumptions) -> Option<usize> {
    let mut found: Option<(usize, f64)> = None;
    for (place, part) in parts.iter().enumerate().filter(|(_, part)| part.offer.tier == Tier::Spot && part.machines > 0)
    {
        let (_, wait) = losses(part, assumed);
        if found.is_none_or(|(_, longest)| wait > longest) {
            found = Some((place, wait));
        }
    }
    found.map(|(place, _)| place)
}

/// Losses per hour of one spot machine, and hours of waiting after each. Set by the user, or otherwise those of all
/// machines observed in the zone or region with the nearest size, or otherwise 0.5 and 1. Losses grow with the power
/// 0.48 of up to 8 GPUs.
fn losses(part: &Part, assumed: &Assumptions) -> (f64, f64) {
    let size = |gpus: u32| f64::from(gpus.clamp(1, 8));
    let own = size(part.offer.gpu_count);
    let at = |row: &&Watched| row.provider.eq_ignore_ascii_case(&part.offer.provider);
    let mut rows: Vec<&Watched> = WATCHED.iter().filter(at).filter(|row| row.zone == part.offer.region).collect();
    if rows.is_empty() {
        // A zone's name is that of its region plus a letter.
        let same = |row: &&Watched| {
            let region = &row.zone[..row.zone.len() - 1];
            part.offer.region.strip_prefix(region).is_some_and(|letter| {
                letter.is_empty() || letter.len() == 1 && letter.chars().all(|c| c.is_ascii_lowercase())
            })
        };
        rows = WATCHED.iter().filter(at).filter(same).collect();
    }
    let far = |row: &&Watched| (own / size(row.gpus)).max(size(row.gpus) / own);
    let nearest = rows.iter().map(far).fold(f64::INFINITY, f64::min);
    let (mut lost, mut there, mut away, mut times) = (0.0, 0.0, 0.0, 0.0);
    for row in rows.iter().filter(|row| far(row) <= nearest * (1.0 + 1e-9)) {
        lost += f64::from(row.losses) * (own / size(row.gpus)).powf(0.48);
        there += row.there;
        away += row.hours - row.there;
        times += f64::from(row.losses);
    }
    let (rate, wait) = if times > 0.0 { (lost / there, away / times) } else { (0.5 * own.powf(0.48), 1.0) };
    (assumed.spot_losses_per_hour.unwrap_or(rate), assumed.wait.map_or(wait, Hours::get))
}

/// Number of started blocks of an hour or a term. Any use starts the first block; an excess over a whole block within
/// the tolerance does not start another.
fn begun(blocks: f64) -> f64 {
    let whole = blocks.floor();
    let tolerated = if whole > 0.0 { 1e-6 + blocks * 1e-8 } else { 1e-12 };
    if blocks - whole > tolerated { whole + 1.0 } else { whole }
}
