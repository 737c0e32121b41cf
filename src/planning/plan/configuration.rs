//! Builds possible configurations from predictions, offers and the goal, and the reasons why the other offers are not
//! possible.
//!
//! Everything nonlinear (scaling to several GPUs, memory, spot losses) is computed here for each configuration, which
//! keeps the model linear. A configuration uses all GPUs of an offer, on one or more of its machines.

mod cost;

use std::collections::HashMap;
use std::sync::Arc;

use super::batch::{self, Refusal, batch_size, check_global_batch, freed};
use super::data::{Brought, data};
use super::energy::{self, Draw, Site};
use super::goal::{Amount, Confidence, Goal, Work};
use super::limits::{self, needs, risks};
use super::problem::{Blocks, Choice};
use super::sizes::{SizedStep, check_model_parallel, sized_steps};
use super::spot::{Losses, expected};
use super::{Accept, Machines, Part, PlanError, PlanNote, Platform, Reason, Rejection, Risk};
use crate::pricing::spot::SpotSource;
use crate::pricing::{Billing, Offer, PriceBook, Tier};
use cost::used;
use habitat_base::units::{GpuSlug, Hours, Micros, Samples, UsdPerHour, most};
use habitat_prediction::scale::{Layout, ModelParallel, Network, Scaling};
use habitat_prediction::{Estimate, Finding, Mode, Prediction, Predictions, Sharding};

/// Dollars per hour above which a price is invalid.
const MOST_PRICE: f64 = 1e9;

/// An offer with the step on all its GPUs.
#[derive(Debug, Clone)]
pub(crate) struct Configuration {
    /// Index in the price book.
    pub(crate) place: usize,
    pub(crate) offer: Arc<Offer>,
    pub(crate) gpu: GpuSlug,
    pub(crate) machines: u32,
    sharding: Sharding,
    parallel: ModelParallel,
    /// Replicas of the model.
    replicas: u32,
    /// Effect of sharding on each GPU.
    divided: Option<PlanNote>,
    billing: Billing,
    /// Data to transfer to the offer, unless they are already there.
    data: Option<Brought>,
    /// Power of the machines; `None` if that of the GPU is unknown.
    draw: Option<Draw>,
    /// Samples per step on one GPU, or per batch of one replica. If unknown, work is counted in such steps.
    batch_size: Option<u64>,
    /// Batches that each GPU runs per optimizer step.
    accumulation: u64,
    /// Optimizer step on all GPUs.
    step: Estimate,
    scaling: Box<Scaling>,
    /// Method of the step time, if the batch is not the profile's.
    sized: Option<String>,
    precision: Option<Finding>,
    pub(crate) warnings: Vec<Finding>,
    memory: Option<PlanNote>,
    pub(crate) losses: Losses,
    /// Time of writing a checkpoint.
    write: Hours,
    /// Source of the spot losses.
    losses_source: SpotSource,
    setup: f64,
    /// Kinds of risks that the goal accepts.
    pub(crate) accepted: Vec<Accept>,
    /// Risks that the user has to accept for it.
    pub(crate) risks: Vec<Risk>,
}

/// Offers with the steps on all their GPUs, and the rejected offers.
#[derive(Clone)]
pub(crate) struct Usable {
    /// Configurations that the goal accepts.
    pub(crate) configurations: Arc<[Configuration]>,
    /// Configurations that the user would have to accept first.
    pub(crate) others: Arc<[Configuration]>,
    /// Offers that cannot be used.
    pub(crate) excluded: Arc<[Excluded]>,
}

/// An offer rejected before the model is built.
#[derive(Debug, Clone)]
pub(crate) struct Excluded {
    /// Index in the price book.
    pub(crate) place: usize,
    pub(crate) rejection: Rejection,
    /// Distance from acceptable, as a factor above 1; `None` if the reason has no such measure.
    pub(crate) miss: Option<f64>,
}

/// Work in samples, or in steps if the batch size is unknown, in which case only a number of steps can be planned.
///
/// # Errors
/// [`PlanError`] for a missing batch size or sequence length, or an invalid amount of work or data.
pub(crate) fn amount(predictions: &Predictions, goal: &Goal) -> Result<Amount, PlanError> {
    let (workload, work) = (&predictions.workload, goal.work);
    check_global_batch(workload, goal)?;
    if workload.mode == Mode::Inference && !goal.sharding.is_none() {
        return Err(PlanError::ShardingOfInference);
    }
    check_model_parallel(predictions, goal)?;
    goal.limits.check_lists()?;
    if let Some(gb) = goal.data.as_ref().map(|data| data.gb).filter(|gb| !(0.0..=most::WORK).contains(gb)) {
        return Err(PlanError::Data(gb));
    }
    if !(1..=most::MACHINES).contains(&goal.limits.max_machines) {
        return Err(PlanError::Machines(goal.limits.max_machines));
    }
    let Some(batch) = batch_size(workload) else {
        let Work::Steps(steps) = work else { return Err(PlanError::NoBatchSize) };
        let steps = steps as f64;
        let valid = steps > 0.0 && steps <= most::WORK;
        return if valid { Ok(Amount::Steps(steps)) } else { Err(PlanError::Work(steps)) };
    };
    let samples = match work {
        Work::Samples(samples) => samples.get(),
        Work::Steps(steps) => steps as f64 * goal.global_batch.unwrap_or(batch) as f64,
        Work::Epochs { epochs, dataset } => epochs * dataset.get(),
        Work::Tokens(tokens) => {
            let length = workload.sequence_length.filter(|length| *length > 0);
            tokens / length.ok_or(PlanError::NoSequenceLength)? as f64
        }
    };
    let valid = samples > 0.0 && samples <= most::WORK;
    Samples::new(samples).ok().filter(|_| valid).map(Amount::Samples).ok_or(PlanError::Work(samples))
}

/// Predictions and offers.
pub(crate) type Sources<'a> = (&'a Predictions, &'a PriceBook);
/// Numbers of machines that a search for a plan tries, by place of the offer in the price book.
pub(crate) type Tried<'a> = &'a dyn Fn(usize, u32) -> bool;

/// Turns each offer into configurations or a rejection. Configurations are sorted by the name of the offer, so that the
/// order of the price book has no influence. With `tried` it makes only these, and none that the goal does not accept.
pub(crate) fn configurations(sources: Sources<'_>, goal: &Goal, tried: Option<Tried<'_>>) -> Usable {
    let (predictions, prices) = sources;
    let by_gpu: HashMap<&GpuSlug, &Prediction> = predictions.predictions.iter().map(|p| (&p.gpu.slug, p)).collect();
    // Cache: many offers have the same GPUs and counts.
    let mut sized: HashMap<Alike<'_>, Result<Vec<(SizedStep, bool)>, Refusal>> = HashMap::new();
    let mut sites: HashMap<(&str, &str), Site> = HashMap::new();
    let (mut possible, mut excluded) = (Vec::new(), Vec::new());
    let knows_storage = goal.data.is_some() && prices.knows_storage();
    let recorded = Platform::recorded(predictions);
    let with_flag = |is_other: bool| move |goal| (goal, is_other);
    let other = freed(predictions, goal).map(with_flag(true));
    let kept = batch::recorded(predictions, goal);
    let freed_batch = kept.as_ref().and_then(|goal| goal.global_batch);
    let other = other.or_else(|| kept.map(with_flag(false))).filter(|_| tried.is_none());
    for (place, offer) in prices.offers().iter().enumerate() {
        let mut nearest: Option<Refusal> = None;
        let before = possible.len();
        let site = *sites.entry((&offer.provider, &offer.region)).or_insert_with(|| Site::new(offer, prices));
        let parallel = goal.model_parallel;
        let numbers = goal.limits.machines(parallel.machines(offer.gpu_count), offer);
        for machines in numbers.filter(|machines| tried.is_none_or(|tried| tried(place, *machines))) {
            let network = Network::new(offer.network_gbit_per_second, goal.assumptions.network(offer));
            let (gpus, cpus) = (offer.gpu_count, offer.vcpus);
            let layout = Layout { machines, gpus, cpus, network, sharding: Sharding::None, parallel };
            let steps = usable(offer, machines, &by_gpu, site, goal).and_then(|prediction| {
                let steps = sized
                    .entry(alike(prediction, &layout))
                    .or_insert_with(|| sized_steps(prediction, layout, predictions, (goal, other.as_ref())));
                Ok((prediction, steps.clone()?))
            });
            match steps {
                Ok((prediction, steps)) => {
                    let from = (place, offer, prices, knows_storage, site);
                    let needs = needs(offer, &prediction.gpu, recorded, &goal.limits);
                    let of = |step| Configuration::new(from, machines, prediction, step, (goal, &needs, freed_batch));
                    let all: Vec<Configuration> = steps.into_iter().map(of).collect();
                    if let Some(still) = all.first().filter(|one| one.losses.stand_still()) {
                        let per_hour = still.losses.per_hour;
                        // Nearer than one without enough memory: it fits.
                        nearest = Some((Reason::LostTooOften { per_hour, machines }, Some(1.0)));
                        continue;
                    }
                    possible.extend(all);
                }
                Err(refusal) => {
                    let miss = |refusal: &Refusal| refusal.1.unwrap_or(f64::INFINITY);
                    if nearest.as_ref().is_none_or(|known| miss(&refusal) < miss(known)) {
                        nearest = Some(refusal);
                    }
                }
            }
        }
        if let Some((reason, miss)) = nearest.filter(|_| possible.len() == before) {
            excluded.push(Excluded { place, rejection: Rejection { offer: offer.id.clone(), reason }, miss });
        }
    }
    possible.sort_by(|a, b| a.offer.id.cmp(&b.offer.id));
    admit_hosts(&mut possible, goal);
    let is_accepted = |c: &Configuration| c.risks.is_empty();
    let (configurations, others): (Vec<_>, Vec<_>) = possible.into_iter().partition(is_accepted);
    Usable { configurations: configurations.into(), others: others.into(), excluded: excluded.into() }
}

/// Accepts the marketplace hosts of named providers if these have nothing else that the goal accepts.
fn admit_hosts(possible: &mut [Configuration], goal: &Goal) {
    if goal.limits.providers.is_empty() || possible.iter().any(|c| c.risks.is_empty()) {
        return;
    }
    for host in possible.iter_mut().filter(|c| c.risks == [Risk::Marketplace]) {
        host.risks.clear();
        host.accepted.push(Accept::Marketplace);
    }
}

/// Key of the step on an offer's GPUs: GPU, GPUs per machine, machines, network, and CPUs if the step loads data.
type Alike<'a> = (&'a GpuSlug, u32, u32, Option<u64>, Option<u64>);

fn alike<'a>(prediction: &'a Prediction, layout: &Layout) -> Alike<'a> {
    let rate = match layout.network {
        Network::Rate(rate) if layout.machines > 1 => Some(rate.to_bits()),
        _ => None,
    };
    let cpus = layout.cpus.filter(|_| prediction.data.is_some()).map(f64::to_bits);
    (&prediction.gpu.slug, layout.gpus, layout.machines, rate, cpus)
}

/// Filters that depend on the offer and the number of machines, most important first.
fn usable<'p>(
    offer: &Offer,
    machines: u32,
    by_gpu: &HashMap<&GpuSlug, &'p Prediction>,
    site: Site,
    goal: &Goal,
) -> Result<&'p Prediction, Refusal> {
    if let Some(why) = offer.unusable.clone() {
        return Err((Reason::UnusablePrice { why }, None));
    }
    if offer.price.get() > MOST_PRICE {
        return Err((Reason::InvalidPrice { usd_per_hour: offer.price }, None));
    }
    let Some(gpu) = &offer.gpu else {
        return Err((Reason::UnknownGpu { name: offer.gpu_name.clone() }, None));
    };
    if offer.gpu_count == 0 {
        return Err((Reason::NoGpu, None));
    }
    if let Some(refusal) = limits::refusal(offer, machines, gpu, &goal.limits) {
        return Err(refusal);
    }
    let Some(prediction) = by_gpu.get(gpu).copied() else {
        return Err((Reason::NoPrediction { gpu: gpu.clone() }, None));
    };
    if goal.asks_emissions() {
        let draw = Draw::new(offer, machines, &prediction.gpu, site);
        if let Some(why) = energy::unknown(draw.as_ref(), &prediction.gpu) {
            return Err((why, None));
        }
    }
    Ok(prediction)
}

impl Configuration {
    fn new(
        (place, offer, prices, knows_storage, site): (usize, &Arc<Offer>, &PriceBook, bool, Site),
        machines: u32,
        prediction: &Prediction,
        (step, is_other_batch): (SizedStep, bool),
        (goal, needs, freed_batch): (&Goal, &[Accept], Option<u64>),
    ) -> Self {
        // A platform is accepted by naming its GPU.
        let is_named = goal.limits.gpus.contains(&prediction.gpu.slug);
        let is_accepted = |need: &Accept| goal.limits.accept.contains(need) || is_named && *need == Accept::Platform;
        let replicas = offer.gpu_count * machines / step.parallel.gpus();
        let global = step.batch_size.map(|batch| batch.saturating_mul(step.accumulation * u64::from(replicas)));
        let is_other = is_other_batch || freed_batch.is_some_and(|recorded| global != Some(recorded));
        let batch = is_other.then_some(Accept::Batch);
        let (accepted, needs): (Vec<Accept>, Vec<Accept>) = needs.iter().copied().chain(batch).partition(is_accepted);
        let risks = risks(offer, &prediction.gpu, &needs, global);
        // Gradients are not part of a checkpoint.
        let bytes = prediction.memory.states.map(|states| states.parameters + states.optimizer);
        let write = goal.assumptions.write(bytes, machines);
        let lost = expected(&goal.assumptions, &offer.provider, &offer.region, offer.gpu_count);
        Self {
            place,
            offer: Arc::clone(offer),
            gpu: prediction.gpu.slug.clone(),
            machines,
            sharding: step.sharding.0,
            parallel: step.parallel,
            replicas,
            divided: step.sharding.1,
            billing: prices.terms(offer).billing,
            data: data(offer, prices, knows_storage, goal),
            draw: Draw::new(offer, machines, &prediction.gpu, site),
            batch_size: step.batch_size,
            accumulation: step.accumulation,
            step: step.scaled.step,
            scaling: Box::new(step.scaled.scaling),
            sized: step.why,
            precision: prediction.precision_note.clone(),
            warnings: prediction.warnings.clone(),
            memory: step.memory,
            losses: Losses::of(offer.tier, [machines, offer.gpu_count * machines], &lost, (&goal.assumptions, write)),
            write,
            losses_source: lost.source,
            setup: if offer.tier == Tier::Owned { 0.0 } else { goal.assumptions.setup.get() },
            accepted,
            risks,
        }
    }

    /// GPUs of all machines.
    pub(crate) fn all_gpus(&self) -> u32 {
        self.offer.gpu_count * self.machines
    }

    /// Price of all machines per hour.
    pub(crate) fn price(&self) -> UsdPerHour {
        self.offer.price * f64::from(self.machines)
    }

    /// Whether it is a contract to buy, whose terms are paid in full.
    pub(crate) fn is_term(&self) -> bool {
        matches!(self.billing, Billing::Term(_))
    }

    /// Samples per optimizer step on all GPUs, if known.
    pub(crate) fn global_batch_size(&self) -> Option<u64> {
        let batches = self.accumulation.saturating_mul(u64::from(self.replicas));
        self.batch_size.map(|batch| batch.saturating_mul(batches))
    }

    /// Samples per optimizer step on all GPUs, or steps of one GPU if samples are unknown.
    fn global_batch(&self) -> f64 {
        self.global_batch_size().map_or(f64::from(self.replicas), |batch| batch as f64)
    }

    /// Samples (or steps of one GPU) per useful hour at the expected step time (r).
    pub(crate) fn rate(&self) -> f64 {
        self.global_batch() / Hours::from(self.step.range.mid).get()
    }

    /// Coefficients of the model.
    pub(crate) fn choice(&self, goal: &Goal) -> Choice {
        let hourly_kg = self.hourly_kg().filter(|_| goal.asks_emissions()).unwrap_or(0.0);
        let (price, kept) = (self.price().get(), self.storage().get());
        let (once_kept, hourly_kept) = (self.data_cost().get() + kept * self.before(), kept * self.losses.elapsed());
        let (once, hourly) = self.losses.allowance();
        let (hours, hours_shared) = match goal.confidence {
            Confidence::Expected => (self.losses.elapsed(), 0.0),
            Confidence::High => (self.running() * (1.0 + hourly * self.losses.each()), once * self.losses.each()),
        };
        Choice {
            rate: self.rate(),
            hours,
            hours_once: self.before(),
            hours_shared,
            usd: price * self.losses.billed() + hourly_kept,
            usd_once: price * self.before() + once_kept,
            kg: hourly_kg * self.losses.billed(),
            kg_once: hourly_kg * self.before(),
            most_hours: f64::INFINITY,
            blocks: self.billing.block().filter(|_| price > 0.0).map(|hours| Blocks {
                usd: price * hours,
                apart: hourly_kept,
                apart_once: once_kept,
            }),
        }
    }

    /// Kilograms of CO2e per hour of running; `None` if unknown.
    fn hourly_kg(&self) -> Option<f64> {
        self.draw.and_then(|draw| draw.hourly_kg())
    }

    /// Expected kilograms of CO2e for a number of useful hours; `None` if unknown.
    pub(crate) fn kilograms(&self, useful: f64) -> Option<f64> {
        Some(self.hourly_kg()? * (useful * self.losses.billed() + self.before()))
    }

    /// Hours of running per useful hour at the upper step time, including checkpoints.
    fn running(&self) -> f64 {
        (self.step.range.high / self.step.range.mid) * (1.0 + self.losses.writing)
    }

    /// Work done in a number of useful hours, rounded to a whole number within rounding errors.
    fn work(&self, useful: f64) -> f64 {
        let work = useful * self.rate();
        if (work / work.round() - 1.0).abs() < 1e-12 { work.round() } else { work }
    }

    /// Part of a plan that uses this configuration for a number of useful hours.
    pub(crate) fn part(&self, useful: f64, first: bool) -> Part {
        self.part_until(useful, first, f64::INFINITY)
    }

    /// A part that another machine ends after `most` hours.
    pub(super) fn part_until(&self, useful: f64, first: bool, most: f64) -> Part {
        let hours_by = self.hours_by(useful, first).until(most);
        let cost_by = self.cost_by(&hours_by);
        let (hours, cost) = (hours_by.sum(), cost_by.sum());
        let footprint = self.draw.map(|draw| draw.footprint(used(&hours_by)));
        let notes = self.notes(useful, first, hours.mid);
        Part {
            offer: Arc::clone(&self.offer),
            gpu: self.gpu.clone(),
            machines: self.machines,
            sharding: self.sharding,
            parallel: self.parallel,
            checkpoint_write: self.write,
            batch_size: self.batch_size,
            accumulation: self.accumulation,
            global_batch_size: self.global_batch_size(),
            work: match self.batch_size {
                Some(_) => Amount::Samples(Samples::known(self.work(useful))),
                None => Amount::Steps(self.work(useful)),
            },
            step_time_us: self.step.range.map(Micros::get),
            hours,
            cost,
            hours_by,
            cost_by,
            billing: self.billing,
            data_cost: self.data_cost(),
            storage: self.storage(),
            draw: self.draw,
            footprint: footprint.unwrap_or_default(),
            notes,
        }
    }

    /// Notes on a part that uses it for a number of useful hours and the expected elapsed hours.
    fn notes(&self, useful: f64, first: bool, hours: Hours) -> Vec<PlanNote> {
        let predicted = |of: &Option<String>, note: fn(String) -> PlanNote| of.clone().map(note);
        let losses = &self.losses;
        let lost = || match self.offer.tier {
            Tier::Spot => PlanNote::SpotLosses {
                per_hour: losses.per_hour,
                wait_hours: Hours::known(losses.wait()),
                source: self.losses_source.clone(),
                elapsed: losses.elapsed(),
                billed: losses.billed(),
                allowed: self.allowance(useful * self.running(), first),
            },
            _ => PlanNote::Failures {
                gpus: self.all_gpus(),
                hours_between: Hours::known(1.0 / losses.per_hour),
                checkpoint_hours: Hours::known(losses.interval()),
                elapsed: losses.elapsed(),
            },
        };
        let draw = self.draw.map(|draw| PlanNote::Power { draw });
        [
            Some(PlanNote::Scaling { scaling: self.scaling.clone() }),
            self.divided.clone(),
            predicted(&self.sized, |why| PlanNote::OtherBatch { why }),
            self.precision.clone().map(|finding| PlanNote::Precision { finding }),
            self.offer.held.map(|held| PlanNote::OwnMachine { held }),
            predicted(&self.offer.note, |remark| PlanNote::PriceList { remark }),
            match self.billing {
                Billing::Exact => None,
                Billing::Hour => Some(PlanNote::BilledByHour),
                Billing::Term(term_hours) => {
                    let paid_hours = self.billing.billed(hours.get());
                    Some(PlanNote::Terms { term_hours, paid_hours, used_hours: hours })
                }
            },
            (losses.per_hour > 0.0).then(lost),
            (self.setup > 0.0).then(|| PlanNote::Setup { hours: Hours::known(self.setup) }),
        ]
        .into_iter()
        .flatten()
        .chain(self.data.iter().flat_map(|data| data.notes(hours)))
        .chain([draw.unwrap_or_else(|| PlanNote::PowerUnknown { gpu: self.gpu.clone() })])
        .chain(self.memory.clone())
        .collect()
    }

    /// Its machines.
    pub(crate) fn label(&self) -> Machines {
        let Offer { id, provider, region, tier, .. } = &*self.offer;
        Machines {
            offer: id.clone(),
            provider: provider.clone(),
            region: region.clone(),
            tier: *tier,
            gpu: self.gpu.clone(),
            all_gpus: self.all_gpus(),
            machines: self.machines,
        }
    }
}
