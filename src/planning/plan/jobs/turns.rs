//! Jobs whose place each job takes. A job uses what is free from the start, or what jobs that have ended by its planned
//! start used before it. If it waits for the ends of those jobs, no shared limit is exceeded however long the jobs take
//! (a resource flow; Artigues, Michelon and Reusser 2003).

use std::collections::BTreeSet;

use super::super::problem::RELATIVE_TOLERANCE;
use super::model::Model;
use super::schedule::Place;
use super::timeline::rounding;
use habitat_base::units::Hours;

/// When a job may start so that the shared limits hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Turn {
    /// Hours from the start of the plan: its arrival, or the end of a quota that it would exceed.
    pub not_before: Hours,
    /// Indices of the jobs that have to end first, well or not.
    pub ends: BTreeSet<usize>,
}

/// Rest of a limit from the end of a job on, or from the start.
struct Left {
    of: Option<usize>,
    end: f64,
    rest: f64,
}

impl Model {
    /// Turns of rented jobs with these starts.
    pub(super) fn turns(&self, places: &[Place]) -> Vec<Turn> {
        let tasks = &self.tasks.jobs;
        let mut turns = vec![Turn::default(); places.len()];
        let is_by = |time: f64, other: f64| time <= other + rounding(other);
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by(|a, b| places[*a].start.total_cmp(&places[*b].start));
        for (limit, most) in self.tasks.most.iter().enumerate() {
            let Some([from, until]) = self.tasks.limits[limit].span() else { continue };
            let mut left = vec![Left { of: None, end: 0.0, rest: *most }];
            for &job in &order {
                let Some(mode) = tasks[job].modes.get(places[job].mode) else { continue };
                let Some((_, amount)) = mode.uses.iter().find(|(of, _)| *of == limit) else { continue };
                let (start, end) = (places[job].start, places[job].start + mode.hours);
                if is_by(until, start) {
                    turns[job].not_before = turns[job].not_before.max(Hours::known(until));
                }
                if is_by(until, start) || is_by(end, from) {
                    continue;
                }
                let (mut missing, mut ends) = (*amount, turns[job].ends.clone());
                while missing > most * RELATIVE_TOLERANCE {
                    let may =
                        left.iter_mut().filter(|one| one.rest > most * RELATIVE_TOLERANCE && is_by(one.end, start));
                    let is_new = |of: usize| !ends.contains(&of) && !tasks[job].after.contains(&of);
                    let rank =
                        |one: &&mut Left| (one.rest < missing * (1.0 - RELATIVE_TOLERANCE), one.of.is_some_and(is_new));
                    let Some(Left { of, rest, .. }) = may.min_by_key(rank) else { break };
                    let part = missing.min(*rest);
                    (missing, *rest) = (missing - part, *rest - part);
                    let of = of.filter(|of| is_new(*of));
                    // One that is cancelled, as a job before it failed, leaves a place that is still taken.
                    let cancelled = of.filter(|of| !tasks[*of].after.is_empty());
                    ends.extend(cancelled.into_iter().flat_map(|of| &turns[of].ends));
                    ends.extend(of);
                }
                turns[job].ends = ends;
                left.push(Left { of: Some(job), end, rest: *amount });
            }
        }
        turns
    }
}
