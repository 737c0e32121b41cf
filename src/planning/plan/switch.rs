//! Spot with a switch to an on-demand machine at the last safe moment.
//!
//! While a spot machine runs or is unavailable, the remaining time is compared with the time that an on-demand machine
//! needs for the remaining work. When they are equal, that machine takes over ("Can't Be Late", NSDI 2024, the rule at
//! the end of "uniform progress"). This meets the deadline regardless of spot if the other machine could do everything
//! in time and is available. Only the cost is uncertain: [`share_on_spot`] is the expected share of the work on spot.

use std::cmp::Ordering;
use std::ops::Add;

use super::prepared::Prepared;
use super::problem::{Limit, over};
use super::spot::share_on_spot;
use super::{ByUse, Confidence, Footprint, Objective, Part, PlanNote, Switch, Total};
use crate::pricing::Tier;
use habitat_base::units::{Hours, Range, Usd};

/// A spot configuration, the one that takes over, and the expected hours and cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Switched {
    pub(super) spot: usize,
    pub(super) to: usize,
    /// Useful hours of each.
    pub(super) useful: [f64; 2],
    /// Latest hour of the switch if no work is done by then.
    pub(super) latest: f64,
    /// Expected cost in dollars.
    pub(super) cost: f64,
    pub(super) deadline: f64,
}

impl Prepared {
    /// Finds the cheapest pair within the limits; `None` if no other machine can do all the work in time, without a
    /// deadline, or if the deadline does not apply to the high end.
    pub(super) fn switched(&self, objective: Objective, limit: &Limit) -> Option<Switched> {
        let deadline = limit.deadline?;
        if objective != Objective::Cost || self.goal.confidence != Confidence::High || !limit.ceilings.is_empty() {
            return None;
        }
        let work = self.work.get();
        let in_time = |c: usize| {
            let choice = &self.singles.choices[c];
            let (whole, _) = choice.whole(work).filter(|(whole, _)| over(*whole, limit.deadline).is_none())?;
            Some((c, [whole, choice.usd / choice.rate, choice.usd_once, choice.kg / choice.rate, choice.kg_once]))
        };
        let is_rounded = |c: usize| self.singles.choices[c].blocks.is_some();
        // Drop spot machines that are slower and more expensive, and takeovers that are later and more expensive.
        let rescues = undominated(self.of_tier(false).filter_map(in_time).collect(), is_rounded);
        let spots = self.of_tier(true).map(|c| {
            let choice = &self.singles.choices[c];
            let lost = self.configurations[c].losses.elapsed();
            let emitted = [choice.kg / choice.rate, choice.kg_once];
            (c, [1.0 / choice.rate, choice.usd / choice.rate, choice.usd_once, lost, emitted[0], emitted[1]])
        });
        let spots = undominated(spots.collect(), is_rounded);
        let pairs = rescues.iter().flat_map(|rescue| spots.iter().map(move |spot| (*spot, *rescue)));
        let found = pairs.map(|((spot, _), (to, [whole, ..]))| self.pair(spot, to, deadline, whole));
        found
            .filter(|found| over(found.cost, limit.budget).is_none())
            .filter(|found| {
                let [spot, to] = found.useful;
                self.singles.keeps_emissions(&[(found.spot, spot), (found.to, to)])
            })
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// Configurations on spot, or not on spot.
    fn of_tier(&self, is_spot: bool) -> impl Iterator<Item = usize> {
        (0..self.configurations.len()).filter(move |c| (self.configurations[*c].offer.tier == Tier::Spot) == is_spot)
    }

    fn pair(&self, spot: usize, to: usize, deadline: f64, whole: f64) -> Switched {
        let [choice, rescue] = [spot, to].map(|c| &self.singles.choices[c]);
        let losses = &self.configurations[spot].losses;
        let work = self.work.get();
        let useful = work / choice.rate;
        // The switch loses the work since the last checkpoint.
        let latest = (deadline - whole - losses.interval()).max(0.0);
        let share = share_on_spot(latest / useful, losses.elapsed() - 1.0, choice.rate / rescue.rate);
        let hours = [share * useful, (1.0 - share) * work / rescue.rate];
        let cost = choice.cost(hours[0]) + rescue.cost(hours[1]);
        Switched { spot, to, useful: hours, latest, cost, deadline }
    }

    /// Parts, total and switch of a pair.
    pub(super) fn of_switched(&self, found: &Switched) -> (Vec<Part>, Total, Switch) {
        let [spot, to] = [found.spot, found.to].map(|c| &self.configurations[c]);
        let last = to.part(found.useful[1], true);
        // Time for the work of the last part remains.
        let most = found.deadline - last.hours.high.get() - spot.losses.interval();
        let parts = vec![spot.part_until(found.useful[0], true, most), last];
        let total = total([&parts[0], &parts[1]], [&self.whole(found.spot), &self.whole(found.to)], found.deadline);
        let switch = Switch { to: to.offer.id.clone(), latest: Hours::known(found.latest), is_expected: true };
        (parts, total, switch)
    }

    /// Takeover for spot parts that are expected to finish in time: the cheapest machine of another tier that can do
    /// everything by the deadline.
    pub(super) fn safety_net(&self, hours: &[(usize, f64)], deadline: Option<Hours>) -> Option<Switch> {
        let deadline = deadline.filter(|_| self.goal.confidence == Confidence::High)?.get();
        let spot = hours.iter().map(|(c, _)| &self.configurations[*c]).find(|c| c.offer.tier == Tier::Spot)?;
        let others = self.wholes().filter(|(c, ..)| self.configurations[*c].offer.tier != Tier::Spot);
        let in_time = others.filter(|(_, finish, _)| over(*finish, Some(deadline)).is_none());
        let (to, finish, _) = in_time.min_by(|a, b| a.2.total_cmp(&b.2))?;
        let latest = Hours::known((deadline - finish - spot.losses.interval()).max(0.0));
        Some(Switch { to: self.configurations[to].offer.id.clone(), latest, is_expected: false })
    }

    /// Note on the savings of two parts, if the goal allows one.
    pub(super) fn switch_note(&self, cost: f64, limit: &Limit) -> Option<PlanNote> {
        let found = self.switched(Objective::Cost, limit).filter(|found| found.cost < 0.98 * cost)?;
        let [spot, to] = [found.spot, found.to].map(|c| self.configurations[c].label());
        let (latest_hours, cost_usd) = (Hours::known(found.latest), Usd::known(found.cost));
        Some(PlanNote::TwoParts { spot, to, latest_hours, cost_usd })
    }
}

/// Entries that no other entry beats or equals in all numbers; of equal ones, the first. Entries billed in whole hours
/// are always kept and beat none, since the rounding of their costs depends on the parts.
fn undominated<const N: usize>(
    mut all: Vec<(usize, [f64; N])>,
    is_rounded: impl Fn(usize) -> bool,
) -> Vec<(usize, [f64; N])> {
    all.sort_by(|(_, a), (_, b)| {
        a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    let (mut kept, exact): (Vec<_>, Vec<_>) = all.into_iter().partition(|(c, _)| is_rounded(*c));
    let rounded = kept.len();
    for (c, numbers) in exact {
        if !kept[rounded..].iter().any(|(_, keeper)| keeper.iter().zip(&numbers).all(|(keeper, own)| keeper <= own)) {
            kept.push((c, numbers));
        }
    }
    kept
}

/// Energy or emissions of both parts together, combined like the cost.
fn joined<T: Copy + Add<Output = T>>([spot, to, all_spot, all_to]: [Option<Range<T>>; 4]) -> Option<Range<T>> {
    let (spot, to, all_spot, all_to) = (spot?, to?, all_spot?, all_to?);
    Some(Range { low: all_spot.low, mid: spot.mid + to.mid, high: spot.mid + all_to.high })
}

/// Total of both parts. Low: spot does everything without a loss. High: the work on spot is lost but paid as expected,
/// and the other machine does everything by the deadline.
fn total([spot, to]: [&Part; 2], [all_spot, all_to]: [&Part; 2], deadline: f64) -> Total {
    let deadline = Hours::known(deadline);
    let likely = Hours::known((spot.hours.mid + to.hours.mid).get().min(deadline.get()));
    Total {
        hours: Range { low: Hours::known(all_spot.hours.low.get().min(likely.get())), mid: likely, high: deadline },
        cost: Range {
            low: all_spot.cost.low,
            mid: spot.cost.mid + to.cost.mid,
            high: spot.cost.mid + all_to.cost.high,
        },
        cost_by: ByUse::new(|what| {
            let [spot, to, all_spot, all_to] = [spot, to, all_spot, all_to].map(|part| part.cost_by.of(what));
            Range { low: all_spot.low, mid: spot.mid + to.mid, high: spot.mid + all_to.high }
        }),
        footprint: Footprint {
            energy: joined([spot, to, all_spot, all_to].map(|part| part.footprint.energy)),
            emissions: joined([spot, to, all_spot, all_to].map(|part| part.footprint.emissions)),
        },
    }
}
