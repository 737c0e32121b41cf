//! Spot with a change to a machine on demand at the last safe moment.
//!
//! While a spot machine runs or is waited for, the time left is compared with what a machine on
//! demand needs for the work left; when the two are equal, it takes over ("Can't Be Late", NSDI
//! 2024, the rule that "uniform progress" ends in). So the deadline is met whatever spot does,
//! where the other machine could do everything in time and can be had. What is not certain is
//! the cost: the expected share of the work on spot is [`share_on_spot`].

use std::cmp::Ordering;
use std::ops::Add;

use super::prepared::Prepared;
use super::problem::Limit;
use super::spot::share_on_spot;
use super::{ByUse, Confidence, Footprint, Objective, Part, Switch, Total};
use crate::pricing::Tier;
use habitat_base::text::{dollars, duration};
use habitat_base::units::{Hours, Range};

/// A spot configuration, the one that takes over, and what is expected of both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Switched {
    pub(super) spot: usize,
    pub(super) to: usize,
    /// Useful hours of each.
    pub(super) useful: [f64; 2],
    /// Hours after which the other has to take over, if nothing is done by then.
    pub(super) latest: f64,
    /// Expected.
    pub(super) cost: f64,
    pub(super) deadline: f64,
}

impl Prepared {
    /// The cheapest of these within the limits; `None` where no machine on demand can do all the
    /// work in time, or time is not of the high end or not a limit.
    pub(super) fn switched(&self, objective: Objective, limit: &Limit) -> Option<Switched> {
        let deadline = limit.deadline?;
        if objective != Objective::Cost || self.goal.confidence != Confidence::High || !limit.ceilings.is_empty() {
            return None;
        }
        let work = self.work.get();
        let in_time = |c: usize| {
            let choice = &self.singles.choices[c];
            let (whole, _) = choice.whole(work).filter(|(whole, _)| *whole <= deadline)?;
            Some((c, [whole, choice.usd / choice.rate, choice.usd_once, choice.kg / choice.rate, choice.kg_once]))
        };
        let is_rounded = |c: usize| self.singles.choices[c].blocks.is_some();
        // Slower and dearer spot machines are never better, nor is what takes over later and for more.
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
            .filter(|found| limit.budget.is_none_or(|budget| found.cost <= budget))
            .filter(|found| {
                let [spot, to] = found.useful;
                self.singles.keeps_emissions(&[(found.spot, spot), (found.to, to)])
            })
            .min_by(|a, b| a.cost.total_cmp(&b.cost))
    }

    /// Configurations on spot, or not.
    fn of_tier(&self, is_spot: bool) -> impl Iterator<Item = usize> {
        (0..self.configurations.len()).filter(move |c| (self.configurations[*c].tier == Tier::Spot) == is_spot)
    }

    fn pair(&self, spot: usize, to: usize, deadline: f64, whole: f64) -> Switched {
        let [choice, rescue] = [spot, to].map(|c| &self.singles.choices[c]);
        let losses = &self.configurations[spot].losses;
        let work = self.work.get();
        let useful = work / choice.rate;
        // What is done since the last checkpoint is lost at the change.
        let latest = (deadline - whole - losses.interval()).max(0.0);
        let share = share_on_spot(latest / useful, losses.elapsed() - 1.0, choice.rate / rescue.rate);
        let hours = [share * useful, (1.0 - share) * work / rescue.rate];
        let cost = choice.cost(hours[0]) + rescue.cost(hours[1]);
        Switched { spot, to, useful: hours, latest, cost, deadline }
    }

    /// Its parts, what they come to, and the change.
    pub(super) fn of_switched(&self, found: &Switched) -> (Vec<Part>, Total, Switch) {
        let [spot, to] = [found.spot, found.to].map(|c| &self.configurations[c]);
        let parts = vec![spot.part(found.useful[0], true), to.part(found.useful[1], true)];
        let total = total([&parts[0], &parts[1]], [&self.whole(found.spot), &self.whole(found.to)], found.deadline);
        let switch = Switch { to: to.offer.clone(), latest: Hours::known(found.latest), is_expected: true };
        (parts, total, switch)
    }

    /// What takes over from spot parts that are expected to do their work in time: the cheapest
    /// machine of another tier that can do everything by the deadline.
    pub(super) fn safety_net(&self, hours: &[(usize, f64)], deadline: Option<Hours>) -> Option<Switch> {
        let deadline = deadline.filter(|_| self.goal.confidence == Confidence::High)?.get();
        let spot = hours.iter().map(|(c, _)| &self.configurations[*c]).find(|c| c.tier == Tier::Spot)?;
        let others = self.wholes().filter(|(c, ..)| self.configurations[*c].tier != Tier::Spot);
        let in_time = others.filter(|(_, finish, _)| *finish <= deadline);
        let (to, finish, _) = in_time.min_by(|a, b| a.2.total_cmp(&b.2))?;
        let latest = Hours::known((deadline - finish - spot.losses.interval()).max(0.0));
        Some(Switch { to: self.configurations[to].offer.clone(), latest, is_expected: false })
    }

    /// What two parts would save where one is allowed.
    pub(super) fn switch_note(&self, cost: f64, limit: &Limit) -> Option<String> {
        let found = self.switched(Objective::Cost, limit).filter(|found| found.cost < 0.98 * cost)?;
        let [spot, to] = [found.spot, found.to].map(|c| self.configurations[c].label());
        Some(format!(
            "with two parts (--max-parts 2): {spot}, and a change to {to} after {} at the latest, is expected to cost {}",
            duration(found.latest),
            dollars(found.cost)
        ))
    }
}

/// Those that no other beats or equals in all numbers; of equals the first stays. Those that are
/// billed in whole hours all stay and beat none: how their costs are rounded depends on their parts.
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

/// The same of what both parts take together, as of their cost.
fn joined<T: Copy + Add<Output = T>>([spot, to, all_spot, all_to]: [Option<Range<T>>; 4]) -> Option<Range<T>> {
    let (spot, to, all_spot, all_to) = (spot?, to?, all_spot?, all_to?);
    Some(Range { low: all_spot.low, mid: spot.mid + to.mid, high: spot.mid + all_to.high })
}

/// Of both parts: at best spot does everything without a loss; at worst it does nothing that
/// counts, is paid for what was expected of it, and the other does everything by the deadline.
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
