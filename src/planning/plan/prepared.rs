//! Data of a goal that do not depend on deadline and budget: configurations, and the problems that choose among them.

use super::assumptions::check_assumptions;
use super::batch::{batch_size, kept};
use super::configuration::{Configuration, Excluded, Sources, Tried, Usable, amount, configurations};
use super::problem::{Choice, Limit, Problem};
use super::search::{Solution, best};
use super::{Amount, Goal, Limits, Objective, Part, PlanError};
use crate::pricing::{PriceBook, Tier};
use habitat_base::units::{Hours, KilogramsCo2e, Usd};
use habitat_prediction::{Host, Mode, Predictions};
use std::sync::Arc;

/// Multiples of the recorded global batch that own machines with several GPUs are tried with (a choice).
const LARGER: [u64; 2] = [2, 4];

/// Data of a goal that do not depend on deadline and budget: configurations with their coefficients, and rejected
/// offers with the reasons.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub(super) goal: Goal,
    pub(super) work: Amount,
    /// Whether the predicted steps include waiting for the host.
    pub(super) host: Host,
    /// Whether the step updates weights.
    pub(super) training: bool,
    /// Whether any provider with an offer has a known storage price.
    pub(super) knows_storage: bool,
    /// Samples of the profile's step.
    pub(super) recorded_batch: Option<u64>,
    /// Tokens of a sample, if it is a sequence.
    pub(super) sequence_length: Option<u64>,
    /// Whether the goal's global batch is the profile's, which the user did not choose.
    pub(super) keeps_batch: bool,
    /// Whether the profile was recorded, not made from shapes.
    pub(super) is_recorded: bool,
    pub(super) configurations: Arc<[Configuration]>,
    pub(super) excluded: Arc<[Excluded]>,
    /// Configurations with risks that the goal does not accept.
    pub(super) others: Arc<[Configuration]>,
    /// Problem with `others` as choices, each with all the work; one part.
    pub(super) beside: Problem,
    /// Problem with all configurations as choices, each with all the work; one part.
    pub(super) singles: Problem,
    /// Problem for plans of several parts, without dominated choices.
    pub(super) mixed: Problem,
    /// Index of the configuration for each choice of `mixed`.
    mixed_of: Vec<usize>,
}

impl Prepared {
    /// Builds configurations from predictions, offers and the goal. Ignores the goal's deadline and budget.
    ///
    /// # Errors
    /// [`PlanError`] for a missing batch size or sequence length, zero work or parts, or an assumption out of range.
    pub fn new(predictions: &Predictions, prices: &PriceBook, goal: &Goal) -> Result<Self, PlanError> {
        Self::of((predictions, prices), goal, None)
    }

    /// The same, or only what a search for a plan needs.
    pub(super) fn of(sources: Sources<'_>, goal: &Goal, tried: Option<Tried<'_>>) -> Result<Self, PlanError> {
        Self::with(sources, goal, |goal| configurations(sources, goal, tried))
    }

    /// Configurations for another job that differs in its work, deadline and budget alone.
    pub(super) fn usable(&self) -> Usable {
        let [configurations, others] = [&self.configurations, &self.others].map(Arc::clone);
        Usable { configurations, others, excluded: Arc::clone(&self.excluded) }
    }

    /// With the configurations of a goal, whose global batch may be the recorded one.
    pub(super) fn with(
        (predictions, prices): Sources<'_>,
        goal: &Goal,
        usable: impl FnOnce(&Goal) -> Usable,
    ) -> Result<Self, PlanError> {
        if goal.max_parts == 0 {
            return Err(PlanError::NoParts);
        }
        check_assumptions(&goal.assumptions)?;
        let kept = kept(predictions, goal);
        let keeps_batch = goal.global_batch.is_none() && kept.is_some();
        let goal = &Goal { global_batch: kept, ..goal.clone() };
        let work = amount(predictions, goal)?;
        let Usable { configurations, others, excluded } = usable(goal);
        let most_kg = goal.limits.max_co2.map(KilogramsCo2e::get);
        let problem = |of: &[Configuration]| {
            let choices = of.iter().map(|c| c.choice(goal)).collect();
            Problem { work: work.get(), choices, max_parts: 1, most_kg }
        };
        let (singles, beside) = (problem(&configurations), problem(&others));
        let all = Problem { max_parts: goal.max_parts, ..singles.clone() };
        let mixed_of = if goal.max_parts > 1 { all.undominated() } else { Vec::new() };
        let mixed = all.only(&mixed_of);
        let host = predictions.host;
        let recorded_batch = batch_size(&predictions.workload);
        let training = predictions.workload.mode == Mode::Training;
        Ok(Self {
            goal: goal.clone(),
            work,
            host,
            training,
            knows_storage: prices.knows_storage(),
            recorded_batch,
            sequence_length: predictions.workload.sequence_length,
            keeps_batch,
            is_recorded: predictions.origin.is_some(),
            configurations,
            excluded,
            others,
            beside,
            singles,
            mixed,
            mixed_of,
        })
    }

    /// Choices of the model, without dominated ones.
    pub fn choices(&self) -> &[Choice] {
        &self.problem().choices
    }

    /// Keeps only these configurations, and forgets the rejected offers.
    pub(super) fn keep(&mut self, configurations: &[usize]) {
        self.configurations = configurations.iter().map(|c| self.configurations[*c].clone()).collect();
        self.singles = self.singles.only(configurations);
        (self.others, self.excluded) = (Arc::default(), Arc::default());
        self.beside = self.beside.only(&[]);
    }

    /// Number of offers to choose from.
    pub(super) fn offers(&self) -> usize {
        self.configurations.chunk_by(|a, b| a.place == b.place).count()
    }

    pub(super) fn limit(deadline: Option<Hours>, budget: Option<Usd>) -> Limit {
        Limit { deadline: deadline.map(Hours::get), budget: budget.map(Usd::get), ceilings: Vec::new() }
    }

    /// Problem for the goal's number of parts.
    pub(super) fn problem(&self) -> &Problem {
        if self.goal.max_parts > 1 { &self.mixed } else { &self.singles }
    }

    /// Useful hours per configuration in the best plan.
    pub(super) fn solution(&self, objective: Objective, limit: &Limit) -> Option<(Solution, Vec<(usize, f64)>)> {
        let found = best(self.problem(), objective, limit)?;
        let hours = self.by_configuration(&found.hours);
        Some((found, hours))
    }

    /// Converts hours of choices to hours of configurations, in the order in which to run them.
    pub(super) fn by_configuration(&self, hours: &[(usize, f64)]) -> Vec<(usize, f64)> {
        let place = |choice: usize| if self.goal.max_parts > 1 { self.mixed_of[choice] } else { choice };
        let mut hours: Vec<(usize, f64)> = hours.iter().map(|(choice, useful)| (place(*choice), *useful)).collect();
        // Run spot first, then the cheapest per sample.
        let per_sample = |c: usize| self.singles.choices[c].usd / self.singles.choices[c].rate;
        hours.sort_by(|(a, _), (b, _)| {
            let spot = |c: usize| self.configurations[c].offer.tier != Tier::Spot;
            spot(*a).cmp(&spot(*b)).then(per_sample(*a).total_cmp(&per_sample(*b))).then(a.cmp(b))
        });
        hours
    }

    /// Adds to each configuration whether it accounts for the losses that are allowed once per plan.
    pub(super) fn counted(&self, hours: &[(usize, f64)]) -> impl Iterator<Item = (&Configuration, f64, bool)> {
        let of_spot = (0..hours.len()).filter(|place| self.configurations[hours[*place].0].offer.tier == Tier::Spot);
        let once = |place: usize| self.configurations[hours[place].0].losses.hours_once();
        // The part with the longest allowance, or the first of equal ones.
        let longest = of_spot.max_by(|a, b| once(*a).total_cmp(&once(*b)).then(b.cmp(a)));
        let counted = hours.iter().enumerate();
        counted.map(move |(place, (c, useful))| (&self.configurations[*c], *useful, longest == Some(place)))
    }

    /// Own machines with several GPUs at larger global batches than the recorded one, smallest first, with all the work;
    /// empty if the user chose the batch.
    pub(super) fn larger(&self, sources: Sources<'_>) -> Vec<Part> {
        let Limits { offers: named, .. } = &self.goal.limits;
        let own = sources.1.offers().iter().filter(|offer| offer.is_at_own_place() && offer.gpu_count > 1);
        let offers = own.map(|offer| offer.id.to_string()).filter(|id| named.is_empty() || named.contains(id));
        let limits = Limits { offers: offers.collect(), ..self.goal.limits.clone() };
        let batch = self.goal.global_batch.filter(|_| self.keeps_batch && !limits.offers.is_empty());
        let Some(batch) = batch else { return Vec::new() };
        let of = |times: u64| {
            let global_batch = Some(batch.saturating_mul(times));
            let goal = Goal { global_batch, limits: limits.clone(), ..self.goal.clone() };
            configurations(sources, &goal, Some(&|_, _| true)).configurations
        };
        LARGER
            .into_iter()
            .flat_map(|batch| of(batch).to_vec())
            .map(|one| one.part(self.work.get() / one.rate(), true))
            .collect()
    }

    /// A configuration with all the work.
    pub(super) fn whole(&self, configuration: usize) -> Part {
        let configuration = &self.configurations[configuration];
        configuration.part(self.work.get() / configuration.rate(), true)
    }

    /// Finish (at the goal's confidence) and cost of each configuration with all the work that keeps the limit on
    /// emissions.
    pub(super) fn wholes(&self) -> impl Iterator<Item = (usize, f64, f64)> + '_ {
        (0..self.configurations.len()).filter_map(|c| self.singles.whole(c).map(|(finish, cost)| (c, finish, cost)))
    }

    /// Kilograms of CO2e of a configuration with all the work; 0 unless the goal involves emissions.
    pub(super) fn kilograms(&self, configuration: usize) -> f64 {
        let choice = &self.singles.choices[configuration];
        choice.emits(self.work.get() / choice.rate)
    }
}
