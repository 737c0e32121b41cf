//! Facts on a running or finished job: time left, cost, and the same run on other GPUs.
//!
//! - time left = steps left × mean step time; its range is that of the paces that the job has sustained
//!   ([`Times::pace`](habitat_recorder::live::Times))
//! - cost so far = hours since the job's start × price of the machine
//! - the same run elsewhere = all steps × the step predicted there, at the price of the cheapest on-demand offer: of
//!   those at firm prices, otherwise of all; without set-up

pub mod planned;

use super::verdict::{self, MemoryUse, Verdict, verdict};
use super::words::price;
use super::{format, ranks};
use habitat_base::text::clean;
use habitat_base::units::{Bytes, Hours, Micros, Range, Usd, UsdPerHour};
use habitat_planning::plan::value::{Value, best_firm_value, best_value};
use habitat_planning::pricing::{Offer, PriceBook, Tier};
use habitat_prediction::{Estimate, Fits, Prediction, Predictions};
use habitat_recorder::live::history::Digest;
use habitat_recorder::live::{Aim, Snapshot};
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;

/// Price of the machine that runs the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Price per hour.
    pub per_hour: UsdPerHour,
    /// Name of the own machine, if its price was not given with the job.
    pub own: Option<String>,
}

/// The given price, that of the plan if the job runs on its GPU as far as known, or that of the own machine with the
/// recording's GPU if there is exactly one.
pub fn price(aim: &Aim, profile: Option<&Profile>, prices: &PriceBook) -> Option<Price> {
    // The plan's machine has the plan's price.
    let planned = aim.plan.as_ref().filter(|plan| planned::other_device(plan, profile).is_none());
    if let Some(per_hour) = aim.price.or(planned.and_then(|plan| plan.price)) {
        return Some(Price { per_hour, own: None });
    }
    let gpu = profile?.origin.as_ref()?.gpu.as_ref()?;
    let mut own = prices.offers().iter().filter(|offer| offer.tier == Tier::Owned && offer.gpu.as_ref() == Some(gpu));
    let first = own.next()?;
    let name = clean(&first.instance_type, 40);
    own.next().is_none().then_some(Price { per_hour: first.price, own: Some(name) })
}

/// Memory used and available. Prefers the recorded peak and the catalog's memory size; otherwise uses `nvidia-smi` if
/// there is a single GPU, since with several the job's GPU is unknown.
pub fn memory(seen: &Snapshot, profile: Option<&Profile>, catalog: &Catalog) -> Option<MemoryUse> {
    let recorded = || {
        let profile = profile?;
        let gpu = catalog.get(profile.origin.as_ref()?.gpu.as_ref()?)?;
        Some(MemoryUse { used: profile.step.as_ref()?.peak_memory_bytes?, all: gpu.memory })
    };
    recorded().or_else(|| match &seen.boards[..] {
        [board] => Some(MemoryUse { used: board.used?, all: board.memory? }),
        _ => None,
    })
}

/// Hours for a number of steps at this pace.
fn at_pace(steps: u64, pace: Range<Micros>) -> Range<Hours> {
    pace.map(|time| Hours::from(time * steps as f64))
}

/// Time left.
///
/// # Errors
/// Reason why it is unknown and how to provide it, or that no steps are left.
pub(crate) fn left(aim: &Aim, seen: &Snapshot) -> Result<Range<Hours>, String> {
    let Some(total) = aim.steps else {
        return Err("unknown: pass `run --total-steps N` with the number of steps".to_owned());
    };
    let Some(times) = seen.times else {
        return Err("unknown: no steps timed yet".to_owned());
    };
    match total.checked_sub(seen.steps) {
        None | Some(0) => Err(format!("none: all {} steps are done", format::grouped(total as f64))),
        Some(steps) => Ok(at_pace(steps, times.pace)),
    }
}

/// Words for the time left; `None` once the job is over.
pub fn left_words(aim: &Aim, seen: &Snapshot) -> Option<String> {
    let count = |steps: u64| format::grouped(steps as f64);
    (!seen.is_over()).then(|| match (left(aim, seen), aim.steps) {
        (Ok(hours), Some(total)) => format!(
            "{} for {} of {} steps",
            hours_with_range(&hours),
            count(total.saturating_sub(seen.steps)),
            count(total)
        ),
        (Ok(hours), None) => hours_with_range(&hours),
        (Err(why), _) => why,
    })
}

/// Hours with their range, unless both ends round to the same text.
fn hours_with_range(range: &Range<Hours>) -> String {
    let [low, high] = [range.low, range.high].map(format::hours);
    if low == high { format::hours(range.mid) } else { format::hours_with_range(range) }
}

/// Cost of the job so far.
pub(crate) fn cost(price: &Price, seen: &Snapshot) -> Usd {
    price.per_hour * seen.hours()
}

/// Words for the cost so far and the predicted total.
pub fn cost_words(aim: &Aim, price: Option<&Price>, seen: &Snapshot) -> String {
    let Some(price) = price else {
        return "unknown: pass `run --price USD` with the hourly price of this machine".to_owned();
    };
    let so_far = cost(price, seen);
    let own = price.own.as_ref().map(|name| format!(", own machine {name}")).unwrap_or_default();
    let hours = format::hours(seen.hours());
    let least = if seen.elapsed_at_least { "at least " } else { "" };
    let when = if seen.is_over() { "" } else { " so far" };
    let all = match left(aim, seen) {
        Ok(hours) if !seen.is_over() => {
            let all = hours.map(|hours| so_far + price.per_hour * hours);
            format!(" · {} in total", format::usd_with_range(&all))
        }
        _ => String::new(),
    };
    format!("{least}{}{when}{all} · {least}{hours} at {}{own}", format::usd(so_far), format::price(price.per_hour))
}

/// The same run on another GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Elsewhere<'a> {
    /// The step predicted there.
    pub prediction: &'a Prediction,
    /// The offer.
    pub offer: &'a Offer,
    /// Price of one GPU of the offer.
    pub price: UsdPerHour,
    /// Hours for all steps.
    pub hours: Range<Hours>,
    /// Cost of all steps.
    pub cost: Range<Usd>,
}

/// The cheapest and the fastest GPU for this number of steps. Considers GPUs with an on-demand offer on which the step
/// may fit, without the GPU of the recording; at prices in doubt only if none of them has a firm one.
pub(crate) fn elsewhere<'a>(
    predictions: &'a Predictions,
    prices: &'a PriceBook,
    steps: u64,
) -> [Option<Elsewhere<'a>>; 2] {
    let at = |value: fn(&Prediction, &'a PriceBook) -> Option<Value<'a>>| {
        let one = |prediction: &'a Prediction| {
            let Estimate { range, method } = prediction.step.as_estimate();
            if method.is_of_origin() || prediction.memory.fits == Fits::No || range.mid.get() <= 0.0 {
                return None;
            }
            let value = value(prediction, prices)?;
            let hours = at_pace(steps, range);
            let cost = hours.map(|hours| value.price_per_gpu * hours);
            Some(Elsewhere { prediction, offer: value.offer, price: value.price_per_gpu, hours, cost })
        };
        predictions.predictions.iter().filter_map(one).collect::<Vec<_>>()
    };
    let firm = at(best_firm_value);
    let others = if firm.is_empty() { at(best_value) } else { firm };
    let least = |of: &dyn Fn(&Elsewhere<'a>) -> f64| others.iter().min_by(|a, b| of(a).total_cmp(&of(b))).cloned();
    [least(&|it| it.cost.mid.get()), least(&|it| it.hours.mid.get())]
}

/// Labels and texts for the same run on the cheapest and the fastest other GPU: the difference in cost (or the cost, if
/// that of this machine is unknown) and in time, then both. Empty if the number of steps or a step time is unknown.
///
/// Also empty for a job that trains in several processes, which needs a plan, and for a step that was not recorded on a
/// GPU: a prediction from shapes excludes waiting for the host and for data, unlike the run.
pub fn elsewhere_words(
    aim: &Aim,
    seen: &Snapshot,
    price: Option<&Price>,
    predictions: &Predictions,
    prices: &PriceBook,
) -> Vec<(&'static str, String)> {
    let (Some(steps), Some(times), Some(_)) = (aim.steps, seen.times, &predictions.origin) else { return Vec::new() };
    if seen.processes.iter().filter(|process| process.steps > 0).count() > 1 {
        return Vec::new();
    }
    let here = at_pace(steps, times.pace).mid;
    let recorded = match seen.windows.last() {
        Some((first, last)) if first != last => format!("steps {first}–{last}"),
        Some((step, _)) => format!("step {step}"),
        None => "the recorded step".to_owned(),
    };
    let [cheapest, fastest] = elsewhere(predictions, prices, steps);
    let is_same = |a: &Elsewhere<'_>, b: &Elsewhere<'_>| a.prediction.gpu.slug == b.prediction.gpu.slug;
    let both = cheapest.as_ref().zip(fastest.as_ref()).is_some_and(|(a, b)| is_same(a, b));
    let words = |it: &Elsewhere<'_>| {
        let cost = match price {
            Some(price) => signed(it.cost.mid.get() - (price.per_hour * here).get(), format::usd, Usd::known),
            None => format::usd(it.cost.mid),
        };
        let hours = signed(it.hours.mid.get() - here.get(), format::hours, Hours::known);
        // The whole machine is rented, but only one of its GPUs is used.
        let share = match it.offer.gpu_count {
            0 | 1 => String::new(),
            gpus => format!(" for one of its {gpus} GPUs"),
        };
        let doubts = price::doubts(&it.offer.trust.doubts);
        let doubts = if doubts.is_empty() { doubts } else { format!(" (price in doubt: {doubts})") };
        format!(
            "{}: {cost}, {hours} · {}, {} · predicted from {recorded} ({}) · {} {}{share}{doubts}",
            clean(&it.prediction.gpu.name, 30),
            format::usd_with_range(&it.cost),
            hours_with_range(&it.hours),
            it.prediction.step.as_estimate().method,
            clean(&it.offer.provider, 16),
            format::price(it.price),
        )
    };
    let label = if both { "same run, cheapest and fastest other GPU" } else { "same run, cheapest other GPU" };
    let fastest = fastest.filter(|_| !both);
    let fastest = fastest.iter().map(|it| ("same run, fastest other GPU", words(it)));
    cheapest.iter().map(|it| (label, words(it))).chain(fastest).collect()
}

/// A difference with its sign.
fn signed<T>(difference: f64, words: impl Fn(T) -> String, known: impl Fn(f64) -> T) -> String {
    format!("{}{}", if difference < 0.0 { "−" } else { "+" }, words(known(difference.abs())))
}

/// Results of a run, collected at its end.
#[derive(Debug)]
pub struct RunReport {
    /// Bottleneck of the run, or why it is unknown.
    pub verdict: Result<Verdict, String>,
    /// Price of the machine.
    pub price: Option<Price>,
    /// Cost of the run.
    pub cost: Option<Usd>,
    /// Peak memory of tensors on the GPU in the recorded step.
    pub peak_memory: Option<Bytes>,
    lines: Vec<(&'static str, String)>,
}

impl RunReport {
    /// Collects the results of a finished job.
    pub fn new(
        aim: &Aim,
        seen: &Snapshot,
        profile: Option<&Profile>,
        (catalog, prices): (&Catalog, &PriceBook),
        predictions: Option<&Predictions>,
        history: &Digest,
    ) -> Self {
        let verdict = verdict(seen, profile, memory(seen, profile, catalog), history);
        let price = price(aim, profile, prices);
        let mut lines: Vec<(&'static str, String)> = Vec::new();
        // With several ranks, `ranks::words` reports the waits.
        let alone = seen.waiting.filter(|_| ranks::waits_most(seen).is_none());
        lines.extend(alone.map(|waiting| ("waited for data", verdict::waited(waiting))));
        lines.extend(ranks::words(seen, history).map(|words| ("ranks", words)));
        lines.extend(ranks::trainings(seen).map(|words| ("trainings", words)));
        lines.push(match &verdict {
            Ok(verdict) => ("verdict", verdict.to_string()),
            Err(why) => ("verdict", why.clone()),
        });
        let planned = planned::lines(aim, seen, price.as_ref(), profile);
        lines.extend(
            planned.into_iter().map(|(label, words, _)| (if label.is_empty() { "of the plan" } else { label }, words)),
        );
        if price.is_some() {
            lines.push(("cost", cost_words(aim, price.as_ref(), seen)));
        }
        if let Some(predictions) = predictions {
            lines.extend(elsewhere_words(aim, seen, price.as_ref(), predictions, prices));
        }
        let cost = price.as_ref().map(|price| cost(price, seen));
        let peak_memory = profile.and_then(|profile| profile.step.as_ref()?.peak_memory_bytes);
        Self { verdict, price, cost, peak_memory, lines }
    }

    /// Labels and texts.
    pub fn lines(&self) -> &[(&'static str, String)] {
        &self.lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use habitat_recorder::live::{State, Times};

    fn micros(value: f64) -> Micros {
        Micros::new(value).unwrap()
    }

    /// State after 200 steps of 0.1 s each, in 36 s.
    fn seen() -> Snapshot {
        let times = Times {
            now: micros(1e5),
            median: micros(1e5),
            mean: micros(1e5),
            pace: Range { low: micros(0.9e5), mid: micros(1e5), high: micros(1.2e5) },
            range: [micros(0.5e5), micros(3e5)],
            count: 190,
            only_last: false,
        };
        Snapshot { steps: 200, times: Some(times), elapsed: Duration::from_secs(36), ..Snapshot::default() }
    }

    fn aim(steps: Option<u64>, price: Option<f64>) -> Aim {
        Aim { steps, price: price.map(UsdPerHour::known), plan: None }
    }

    #[test]
    fn time_left_has_the_range_of_the_paces() {
        let words = |steps, seen: &Snapshot| left_words(&aim(steps, None), seen);
        assert_eq!(words(Some(36_200), &seen()).unwrap(), "1 h (0.9–1.2 h) for 36,000 of 36,200 steps");
        let even = |times: Times| Times { pace: Range { low: times.mean, mid: times.mean, high: times.mean }, ..times };
        let even = Snapshot { times: seen().times.map(even), ..seen() };
        assert_eq!(words(Some(36_200), &even).unwrap(), "1 h for 36,000 of 36,200 steps");
        assert_eq!(words(Some(200), &seen()).unwrap(), "none: all 200 steps are done");
        assert_eq!(words(Some(100), &seen()).unwrap(), "none: all 100 steps are done");
        assert!(words(None, &seen()).unwrap().contains("--total-steps N"));
        assert!(words(Some(9), &Snapshot::default()).unwrap().contains("no steps timed yet"));
        let over = Snapshot { state: State::Ended { words: String::new(), well: true }, ..seen() };
        assert_eq!(words(Some(36_200), &over), None);
    }

    #[test]
    fn cost_is_the_time_so_far_at_the_price_and_that_in_all() {
        let words = |aim: Aim, seen: &Snapshot| {
            let none = PriceBook::default();
            cost_words(&aim, price(&aim, None, &none).as_ref(), seen)
        };
        assert!(words(aim(None, None), &seen()).contains("--price USD"));
        assert_eq!(words(aim(None, Some(2.0)), &seen()), "$0.0200 so far · 36 s at $2.000/h");
        // 0.01 h so far, and 1 h (0.9 to 1.2 h) to go.
        assert_eq!(
            words(aim(Some(36_200), Some(2.0)), &seen()),
            "$0.0200 so far · $2.02 ($1.82–2.42) in total · 36 s at $2.000/h"
        );
        let over = Snapshot { state: State::Ended { words: String::new(), well: true }, ..seen() };
        assert_eq!(words(aim(Some(36_200), Some(2.0)), &over), "$0.0200 · 36 s at $2.000/h");
        let left = Snapshot { elapsed_at_least: true, ..over };
        assert_eq!(words(aim(None, Some(2.0)), &left), "at least $0.0200 · at least 36 s at $2.000/h");
    }
}
