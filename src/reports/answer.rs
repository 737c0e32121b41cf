//! Short answer, the same on the first screen and in print: what bounds the step, which GPU to use, its price, and how
//! certain both are.

use std::io::{self, Write};

use super::words::{Words, price};
use super::{format, memory, run, summary, verdict};
use habitat_base::regress::quantile::median;
use habitat_base::text::{capitalised, clean};
use habitat_base::units::{OpenRange, UsdPerHour};
use habitat_planning::plan::other_platform;
use habitat_planning::plan::value::{self, Value};
use habitat_planning::pricing::{Offer, PriceBook};
use habitat_prediction::{Estimate, Finding, Fits, Host, Method, Precision, Prediction, Predictions};
use habitat_recorder::live::Snapshot;
use habitat_step::catalog::Catalog;
use habitat_step::profile::Profile;
use habitat_step::profile::breakdown::Entry;

/// A GPU and the offer that the answer names with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Pick {
    /// Index into the predictions.
    pub index: usize,
    /// The offer; `None` if no usable on-demand offer is known.
    pub offer: Option<Priced>,
}

/// An on-demand offer, with its price per GPU and samples per dollar.
#[derive(Debug, Clone, PartialEq)]
pub struct Priced {
    /// The offer.
    pub offer: Offer,
    /// Price of the offer divided by its number of GPUs.
    pub price_per_gpu: UsdPerHour,
    /// Samples per dollar; `None` if the batch size is unknown.
    pub samples_per_usd: Option<OpenRange<f64>>,
}

impl From<Value<'_>> for Priced {
    fn from(value: Value<'_>) -> Self {
        Self { offer: value.offer.clone(), price_per_gpu: value.price_per_gpu, samples_per_usd: value.samples_per_usd }
    }
}

/// The GPUs that the answer names, among those with enough memory for the step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Picks {
    /// The fastest GPU with an offer, preferably on the platform of the recording; without any offer, the fastest of
    /// all GPUs.
    pub fastest: Option<Pick>,
    /// A still faster GPU without a known offer or on another platform.
    pub unoffered: Option<Pick>,
    /// The GPU with the most samples per dollar at a firm price, preferably on the platform of the recording; at any
    /// price if none is firm. It may need micro-batches, as in a plan.
    pub best_value: Option<Pick>,
    /// A GPU with more samples per dollar, but at a price in doubt.
    pub doubted: Option<Pick>,
    /// The best of those that hold the whole batch, if the best value needs micro-batches.
    pub whole_batch: Option<Pick>,
    /// The GPU of the recording.
    pub recorded: Option<Pick>,
    /// GPUs with an offer.
    pub priced: usize,
    /// GPUs with an offer at a firm price.
    pub firm: usize,
}

impl Picks {
    /// Picks GPUs from predictions and prices.
    pub fn new(predictions: &Predictions, prices: &PriceBook) -> Self {
        let all = &predictions.predictions;
        let usable = |it: &Prediction| it.memory.fits != Fits::No && it.step.mid().get() > 0.0;
        let any: Vec<Pick> = (0..all.len())
            .map(|index| Pick { index, offer: value::best_value(&all[index], prices).map(Priced::from) })
            .collect();
        let firm: Vec<Pick> = (0..all.len())
            .filter_map(|index| {
                let offer = Some(value::best_firm_value(&all[index], prices)?.into());
                Some(Pick { index, offer })
            })
            .collect();
        let with_offer = any.iter().filter(|pick| pick.offer.is_some()).count();
        // Steps that wait for their data may take equally long on all GPUs: the cheapest of them.
        let price = |pick: &Pick| pick.offer.as_ref().map_or(f64::INFINITY, |priced| priced.price_per_gpu.get());
        let quickest = |picks: &mut dyn Iterator<Item = &Pick>| {
            let step = |pick: &Pick| all[pick.index].step.mid();
            let usable = picks.filter(|pick| usable(&all[pick.index]));
            usable.min_by(|a, b| step(a).total_cmp(&step(b)).then(price(a).total_cmp(&price(b)))).cloned()
        };
        // Prefer the recorded platform: whether the program runs on another one is unknown.
        let is_same = |pick: &&Pick| {
            let kind = pick.offer.as_ref().map_or("", |it| &it.offer.instance_type);
            other_platform(predictions, &all[pick.index].gpu, kind).is_none()
        };
        let ported: Vec<Pick> = firm.iter().filter(is_same).cloned().collect();
        let worth = |pick: &Pick| pick.offer.as_ref().and_then(|it| it.samples_per_usd).map_or(0.0, |it| it.mid);
        let richest = |picks: &[Pick]| {
            let picks = picks.iter().filter(|pick| usable(&all[pick.index]) && worth(pick) > 0.0);
            picks.max_by(|a, b| worth(a).total_cmp(&worth(b))).cloned()
        };
        // For each GPU, prefer a firm price to a lower price in doubt.
        let named: Vec<&Pick> =
            any.iter().map(|pick| firm.iter().find(|firm| firm.index == pick.index).unwrap_or(pick)).collect();
        let fastest_of_all = quickest(&mut named.iter().copied());
        let offered = || named.iter().copied().filter(|pick| pick.offer.is_some());
        let fastest = quickest(&mut offered().filter(is_same))
            .or_else(|| quickest(&mut offered()))
            .or_else(|| fastest_of_all.clone());
        // A tie, as it is shown, is not faster.
        let step = |pick: &Pick| format::time(all[pick.index].step.mid());
        let is_other = |pick: &Pick, of: Option<&Pick>| of.is_none_or(|of| step(of) != step(pick));
        let most = richest(&any);
        let whole = richest(&ported).or_else(|| richest(&firm)).or_else(|| most.clone());
        let is_split = |pick: &&Pick| memory::micro_batch(&all[pick.index].memory, &predictions.workload).is_some();
        let split = ported.iter().filter(is_split).max_by(|a, b| worth(a).total_cmp(&worth(b)));
        let split = split.filter(|split| whole.as_ref().is_some_and(|whole| worth(split) > worth(whole))).cloned();
        let (best_value, whole_batch) = if split.is_some() { (split, whole) } else { (whole, None) };
        let recorded = all.iter().position(|it| it.step.is_of_origin()).map(|index| named[index].clone());
        Self {
            unoffered: fastest_of_all.filter(|pick| is_other(pick, fastest.as_ref())),
            doubted: most.filter(|most| best_value.as_ref().is_some_and(|best| worth(most) > worth(best))),
            whole_batch,
            recorded,
            priced: with_offer,
            firm: firm.len(),
            fastest,
            best_value,
        }
    }
}

/// One answer: a question, the answer, and details such as range, method and price.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The question.
    pub question: &'static str,
    /// The answer: a name, two spaces, a figure.
    pub answer: String,
    /// Range, method and price.
    pub detail: Vec<String>,
}

/// The fastest GPU with an offer, and a faster one without.
pub fn fastest(predictions: &Predictions, picks: &Picks) -> Option<Answer> {
    let pick = picks.fastest.as_ref()?;
    let it = &predictions.predictions[pick.index];
    let step = it.step.as_estimate();
    // The recorded step excludes its communication with other ranks, and its waits if predictions leave them out.
    let recorded = picks.recorded.as_ref().filter(|recorded| recorded.index != pick.index);
    let times = recorded.map(|recorded| {
        let of = predictions.predictions[recorded.index].step.mid();
        let basis = match predictions.host {
            Host::AsRecorded => "the recorded speed".to_owned(),
            Host::KeepsUp => format!("the recording GPU without waits, {}", format::time(of)),
        };
        format!(" · {} × {basis}", format::number(of / step.range.mid))
    });
    let mut detail = vec![
        format!("{} · {}{}", range(&step), method_words(&step), times.unwrap_or_default()),
        format!("{}{}", offer_words(predictions, pick), may_fit(it)),
    ];
    detail.extend(picks.unoffered.as_ref().map(|other| {
        let it = &predictions.predictions[other.index];
        format!("{} is faster, {}: {}", name(it), format::time(it.step.mid()), offer_words(predictions, other))
    }));
    let alone = format::time(it.device);
    if waits_for_host(it) {
        detail.push(format!("bound by its assumed CPU; GPU alone {alone}"));
    } else if waits_for_data(it) && it.data_wait().get() >= DECIDES * step.range.mid.get() {
        detail.push(format!("waits {} for data; GPU alone {alone}", format::time(it.data_wait())));
    }
    let answer = format!("{}  {}", name(it), format::time(step.range.mid));
    Some(Answer { question: "Fastest GPU", answer, detail })
}

/// The GPU with the most samples per dollar at a firm price, and one with more at a price in doubt.
pub fn best_value(predictions: &Predictions, picks: &Picks) -> Option<Answer> {
    let pick = picks.best_value.as_ref()?;
    let it = &predictions.predictions[pick.index];
    let per_usd = pick.offer.as_ref()?.samples_per_usd?;
    let batch = memory::micro_batch(&it.memory, &predictions.workload);
    let split = batch.map_or_else(String::new, |batch| format!("micro-batches of {batch} · "));
    let mut detail = vec![
        format!("{split}{} · {}", format::short_range(per_usd.low, per_usd.high), method_words(&it.step.as_estimate())),
        format!("{}{}", offer_words(predictions, pick), may_fit(it)),
    ];
    detail.extend(picks.doubted.as_ref().and_then(|other| {
        let per_usd = other.offer.as_ref()?.samples_per_usd?.mid;
        let name = name(&predictions.predictions[other.index]);
        Some(format!("{name}: {} samples/$, {}", format::short_count(per_usd), offer_words(predictions, other)))
    }));
    detail.extend(picks.whole_batch.as_ref().and_then(|other| {
        let per_usd = other.offer.as_ref()?.samples_per_usd?.mid;
        let (name, count) = (name(&predictions.predictions[other.index]), format::short_count(per_usd));
        Some(format!("{name}, whole batch: {count} samples/$, {}", offer_words(predictions, other)))
    }));
    let answer = format!("{}  {} samples/$", name(it), format::short_count(per_usd.mid));
    Some(Answer { question: "Best value", answer, detail })
}

/// The GPU of the recording, with its step and price.
pub(crate) fn recorded(predictions: &Predictions, picks: &Picks) -> Option<Answer> {
    let pick = picks.recorded.as_ref()?;
    let it = &predictions.predictions[pick.index];
    let mut detail = vec![method_words(&it.step.as_estimate())];
    detail.extend(it.throughput.map(|rate| format!("{} samples/s", format::number(rate.mid.get()))));
    let per_usd = pick.offer.as_ref().and_then(|offer| offer.samples_per_usd);
    detail.extend(per_usd.map(|per_usd| format!("{} samples/$", format::short_count(per_usd.mid))));
    detail.push(offer_words(predictions, pick));
    let answer = format!("{}  {}", name(it), format::time(it.step.mid()));
    Some(Answer { question: "Recorded on", answer, detail })
}

/// Most GPUs of which each has an answer of its own.
const FEW: usize = 5;

/// The step, the price and the memory of each GPU, if there are few: the user has chosen them.
fn of_few(predictions: &Predictions, prices: &PriceBook) -> Vec<Answer> {
    let all = &predictions.predictions;
    if all.len() > FEW {
        return Vec::new();
    }
    let of = |(index, it): (usize, &Prediction)| {
        let value = value::firm_or_best(it, prices);
        let pick = Pick { index, offer: value.map(Priced::from) };
        let per_usd = pick.offer.as_ref().and_then(|offer| offer.samples_per_usd);
        let step = it.step.as_estimate();
        let mut detail = vec![format!("{} · {}", range(&step), method_words(&step))];
        detail.push(offer_words(predictions, &pick));
        detail.extend(per_usd.map(|per_usd| format!("{} samples/$", format::short_count(per_usd.mid))));
        let smaller = memory::micro_batch(&it.memory, &predictions.workload);
        detail.push(match (it.memory.fits, smaller) {
            (Fits::Yes, _) => "fits".to_owned(),
            (Fits::Unknown, _) => "unknown whether it fits".to_owned(),
            (Fits::No, Some(size)) => format!("does not fit, micro-batches of {size} do"),
            (Fits::No, None) => "does not fit".to_owned(),
        });
        Answer { question: "On", answer: format!("{}  {}", name(it), format::time(it.step.mid())), detail }
    };
    all.iter().enumerate().map(of).collect()
}

/// Whether the launches of an assumed host take longer than the work of the GPU.
fn waits_for_host(prediction: &Prediction) -> bool {
    prediction.warnings.iter().any(|warning| matches!(warning, Finding::LaunchBound { expected: true, .. }))
}

/// Share of a step from which its wait for data, not the GPU, decides how long it takes (a choice).
const DECIDES: f64 = 0.5;

/// Whether the data loader delays the step.
fn waits_for_data(prediction: &Prediction) -> bool {
    prediction.warnings.iter().any(Finding::is_of_data)
}

/// Waits that decide how long the step takes, in words; `None` if the GPU alone does.
fn bound_by(prediction: &Prediction) -> Option<&'static str> {
    let by_host = prediction.warnings.iter().any(|one| matches!(one, Finding::HostBound { .. }));
    match (waits_for_host(prediction) || by_host, waits_for_data(prediction)) {
        (_, true) => Some("with the waits for data"),
        (true, false) => Some("by its CPU"),
        (false, false) => None,
    }
}

/// For steps whose host is assumed and decides: the GPUs, their work alone, and what makes it certain or shorter.
pub fn bound_by_host(predictions: &Predictions) -> Option<String> {
    let all = &predictions.predictions;
    let bound: Vec<&Prediction> = all.iter().filter(|one| waits_for_host(one)).collect();
    let on = match (bound.len(), all.len()) {
        (0, _) => return None,
        (1..=FEW, 1..=FEW) => bound.iter().map(|one| name(one)).collect::<Vec<_>>().join(", "),
        (count, of) => format!("{count} of {of} GPUs"),
    };
    let alone: Vec<String> = match all.len() {
        1..=FEW => bound.iter().map(|one| format!("{} {}", name(one), format::time(one.device))).collect(),
        _ => Vec::new(),
    };
    let alone = if alone.is_empty() { String::new() } else { format!(" GPU alone: {}.", alone.join(", ")) };
    Some(format!(
        "CPU-bound on {on}, with assumed CPUs: these times do not rank the GPUs.{alone} `run` on the machine to rent records the real time, --host keeps-up compares the GPUs alone"
    ))
}

/// The slowest of a few GPUs against the others, and the work per dollar of each unless an assumed host decides it, a
/// line each.
fn compared(predictions: &Predictions, prices: &PriceBook) -> Vec<String> {
    let mut all: Vec<&Prediction> = predictions.predictions.iter().collect();
    if !(2..=FEW).contains(&all.len()) || all.iter().any(|it| it.step.mid().get() <= 0.0) {
        return Vec::new();
    }
    all.sort_by(|a, b| a.step.mid().total_cmp(&b.step.mid()));
    let is_known = !all.iter().any(|it| waits_for_host(it));
    let worth = is_known.then(|| work_per_dollar(predictions, &all, prices)).flatten();
    let speeds = all.pop().map(|slow| {
        let of = |fast: &&Prediction| {
            let speed = format::number(slow.step.mid() / fast.step.mid());
            let alone = slow.device / fast.device;
            let by = bound_by(slow).or(bound_by(fast)).filter(|_| alone.is_finite());
            let of_gpu =
                by.map_or_else(String::new, |by| format!(" {by} ({} × for the GPU alone)", format::number(alone)));
            format!("{} {speed} × as fast{of_gpu}", name(fast))
        };
        let each: Vec<String> = all.iter().map(of).collect();
        format!("Compared with {}: {}", name(slow), each.join("; "))
    });
    speeds.into_iter().chain(worth).collect()
}

/// Work per dollar of the GPUs that hold the step, most first, at firm prices if any is firm, of the machine that costs
/// least to rent. A plan also runs micro-batches on those that do not hold it, so a better one of these is named.
fn work_per_dollar(predictions: &Predictions, all: &[&Prediction], prices: &PriceBook) -> Option<String> {
    let (whole, split): (Vec<&Prediction>, Vec<&Prediction>) = all.iter().partition(|it| it.memory.fits != Fits::No);
    let is_firm = whole.iter().any(|it| value::best_firm_value(it, prices).is_some());
    let of = |it: &Prediction| {
        let value = if is_firm { value::best_firm_value(it, prices) } else { value::best_value(it, prices) }?;
        Some((value.samples_per_usd?.mid, value.offer.gpu_count))
    };
    let mut worth: Vec<_> = whole.iter().filter_map(|it| Some((of(it)?, *it))).collect();
    worth.sort_by(|((a, _), _), ((b, _), _)| b.total_cmp(a));
    let ((most, _), _) = *worth.first()?;
    let each = worth.iter().map(|((count, together), it)| {
        let together = if *together > 1 { format!(", {together} at a time") } else { String::new() };
        format!("{} {} samples/${together}", name(it), format::short_count(*count))
    });
    let left = split.iter().map(|it| {
        let Some(size) = memory::micro_batch(&it.memory, &predictions.workload) else {
            return format!("{} does not fit", name(it));
        };
        let count = of(it).map(|(count, _)| count);
        let words = count.map_or_else(String::new, |count| format!(", {} samples/$", format::short_count(count)));
        let first = if count.is_some_and(|count| count > most) { ", so a plan may take it" } else { "" };
        format!("{} fits only in micro-batches of {size}{words}{first}", name(it))
    });
    let (each, left): (Vec<String>, Vec<String>) = (each.collect(), left.collect());
    if each.len() + left.len() < 2 {
        return None;
    }
    let basis = if is_firm { "firm prices, " } else { "" };
    let all = [each, left].concat().join("; ");
    Some(format!("Work per dollar ({basis}the machine that costs least to rent): {all}"))
}

/// Prices without doubts.
const FIRM: &str = "firm prices (from the provider itself, not in doubt)";

/// How sure times and prices are.
pub(crate) fn certainty(predictions: &Predictions, picks: &Picks) -> String {
    let Picks { priced, firm, .. } = picks;
    let prices = match (priced, priced - firm) {
        (0, _) => "no offer of these GPUs".to_owned(),
        (_, 0) => format!("{FIRM} for {firm} of {priced} GPUs with an offer"),
        _ => format!("{FIRM} for {firm} of {priced} GPUs with an offer; the others are marked ?"),
    };
    let warnings = match predictions.warnings().len() {
        0 => String::new(),
        1 => "; 1 warning below".to_owned(),
        count => format!("; {count} warnings below"),
    };
    format!("ranges aim to cover 80 % of measured steps; {prices}{warnings}")
}

fn range(step: &Estimate) -> String {
    format::time_range(step.range.low, step.range.high)
}

/// Method, worded for readers who do not know the method names.
pub fn method_words(step: &Estimate) -> String {
    match step.method {
        Method::Measured => "measured".to_owned(),
        Method::Derived => "derived from the step recorded here".to_owned(),
        Method::Mixed => "predicted".to_owned(),
        method => format!("predicted, {method}"),
    }
}

/// Provider and price of the offer with its age, doubts and a change of platform.
fn offer_words(predictions: &Predictions, pick: &Pick) -> String {
    let kind = pick.offer.as_ref().map_or("", |it| &it.offer.instance_type);
    let platform = other_platform(predictions, &predictions.predictions[pick.index].gpu, kind);
    let platform = platform.map_or_else(String::new, |platform| format!(", {}", platform.words()));
    let Some(Priced { offer, price_per_gpu, .. }) = &pick.offer else {
        return format!("no offer known{platform}");
    };
    let marks = price::marks(&offer.trust.doubts);
    let doubt = if marks.is_empty() { String::new() } else { format!(" (in doubt: {marks})") };
    let price = format::price(*price_per_gpu);
    // Show how many GPUs are rented together, since the price is per GPU.
    let each = if offer.gpu_count > 1 { format!(" per GPU, {} at a time", offer.gpu_count) } else { String::new() };
    let age = offer.trust.age_days.map_or_else(String::new, |days| format!(", {days} days old"));
    format!("{} {price}{each}{age}{doubt}{platform}", clean(&offer.provider, 16))
}

/// A remark for a GPU if it is not known whether the step fits.
fn may_fit(prediction: &Prediction) -> &'static str {
    if prediction.memory.fits == Fits::Unknown { ", unknown whether it fits" } else { "" }
}

/// The name of a GPU without its remarks in brackets.
fn name(prediction: &Prediction) -> String {
    let name = &prediction.gpu.name;
    clean(name.split(" (").next().unwrap_or(name), 30)
}

/// Share of a step above which waits hide what a precision brings.
const WAITS: f64 = 0.25;

/// Speed in another precision than recorded, of each GPU if there are few, else over all; `None` without times in both.
pub fn precision(recorded: &Predictions, other: &Predictions, to: Precision) -> Option<String> {
    let from = recorded.workload.precision.filter(|from| *from != to)?;
    let (kept, changed): (Vec<&Prediction>, Vec<&Prediction>) =
        other.predictions.iter().partition(|one| one.keeps_precision);
    let times = |one: &&Prediction| {
        let before = recorded.predictions.iter().find(|before| before.gpu.slug == one.gpu.slug)?.step.mid();
        let now = one.step.mid();
        (before.get() > 0.0 && now.get() > 0.0).then(|| (one.gpu.slug.to_string(), before / now))
    };
    let speeds: Vec<(String, f64)> = changed.iter().filter_map(times).collect();
    let mut parts: Vec<String> = Vec::new();
    if other.predictions.len() <= FEW {
        parts.extend(speeds.iter().map(|(gpu, speed)| format!("{gpu} {}", format::speed(*speed))));
        parts.extend(kept.iter().map(|one| format!("{} unchanged", one.gpu.slug)));
    } else {
        let mut all: Vec<f64> = speeds.into_iter().map(|(_, speed)| speed).collect();
        let mid = median(&mut all);
        if let (Some(low), Some(mid), Some(high)) = (all.first(), mid, all.last()) {
            let (range, mid) = (format::speed_range(*low, *high), format::speed(mid));
            parts.push(format!("{range}, median {mid}, on {} GPUs", all.len()));
        }
        parts.extend((!kept.is_empty()).then(|| format!("unchanged on {} without its tensor cores", kept.len())));
    }
    // Waits stay as long as they are.
    let waits = |one: &Prediction| one.host_idle.get() > WAITS * one.step.mid().get();
    if !parts.is_empty() && recorded.predictions.iter().any(waits) {
        parts.push("--host keeps-up leaves out the waits of the GPU, which no precision shortens".to_owned());
    }
    (!parts.is_empty()).then(|| format!("In {to} instead of the recorded {from}: {}", parts.join("; ")))
}

/// Writes the answer in a few lines: what bounds the step, if known, the slowest layers, the fastest GPU, the best value,
/// the GPU of the recording, and how certain they are; for up to five GPUs, a line for each of them. Omits lines without
/// an answer; without predictions, writes the first line only.
///
/// # Errors
/// Write errors of `out`.
pub fn write(
    profile: &Profile,
    catalog: &Catalog,
    predictions: Option<&Predictions>,
    prices: &PriceBook,
    out: &mut dyn Write,
) -> io::Result<()> {
    first_lines(profile, catalog, predictions, prices).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// The lines of [`write()`].
pub fn first_lines(
    profile: &Profile,
    catalog: &Catalog,
    predictions: Option<&Predictions>,
    prices: &PriceBook,
) -> Vec<String> {
    let memory = run::memory(&Snapshot::default(), Some(profile), catalog);
    let bound = verdict::of_profile(profile, memory).ok().map(|verdict| capitalised(&verdict.to_string()));
    let picks = predictions.map(|predictions| lines(predictions, prices));
    let words = |entry: Entry| {
        format!("{} {} ({})", clean(&entry.label, 80), format::time(entry.time), format::percent(entry.share))
    };
    let layers: Vec<String> = summary::slowest_layers(profile, 2).into_iter().map(words).collect();
    let layers = (!layers.is_empty()).then(|| format!("Slowest layers: {}", layers.join(", ")));
    bound.into_iter().chain(layers).chain(picks.into_iter().flatten()).collect()
}

/// The GPUs of the answer, how they compare if they are few, and how certain all is.
pub fn lines(predictions: &Predictions, prices: &PriceBook) -> Vec<String> {
    let picks = Picks::new(predictions, prices);
    let few = of_few(predictions, prices);
    let all = [fastest(predictions, &picks), best_value(predictions, &picks), recorded(predictions, &picks)];
    let answers: Vec<Answer> = if few.is_empty() { all.into_iter().flatten().collect() } else { few };
    let words = |Answer { question, answer, detail }: Answer| {
        format!("{question}: {} ({})", answer.replacen("  ", ", ", 1), detail.join("; "))
    };
    let sure = format!("How sure: {}", certainty(predictions, &picks));
    let answers = answers.into_iter().map(words).chain(compared(predictions, prices));
    bound_by_host(predictions).into_iter().chain(answers).chain([sure]).collect()
}
