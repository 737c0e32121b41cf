//! What makes the difference between the steps on two GPUs, operation by operation.

use super::Prediction;
use crate::op;
use crate::profile::Phase;
use crate::units::Micros;

/// The steps of one workload on two GPUs, the second compared with the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference<'a> {
    /// The predictions compared.
    pub steps: [&'a Prediction; 2],
    /// The operations, by what they add to the difference, the most first; empty where a method
    /// predicts no single operations.
    pub operations: Vec<Changed<'a>>,
    /// What of each step is no operation's time: waiting for the host, less what runs side by side.
    /// Microseconds; below zero where more runs side by side than is waited for.
    pub rest: [f64; 2],
}

/// All occurrences of one operation in one phase.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed<'a> {
    /// Its name without the name space that nearly all share.
    pub name: &'a str,
    /// Its phase.
    pub phase: Phase,
    /// Occurrences in the step.
    pub count: u32,
    /// Device time of all of them on each GPU, microseconds; what is not known counts nothing.
    pub times: [f64; 2],
    /// Occurrences of which nothing is known on one of the GPUs.
    pub unknown: u32,
}

impl Changed<'_> {
    /// By how much they take longer on the second GPU, microseconds.
    pub fn change(&self) -> f64 {
        self.times[1] - self.times[0]
    }
}

impl<'a> Difference<'a> {
    /// Of two predictions of the same profile.
    pub fn between(from: &'a Prediction, to: &'a Prediction) -> Self {
        let mut operations: Vec<Changed<'a>> = Vec::new();
        let mut places = std::collections::BTreeMap::new();
        for (first, second) in from.operations.iter().zip(&to.operations) {
            let name = op::name::short(&first.name);
            let place = *places.entry((name, first.phase)).or_insert(operations.len());
            if place == operations.len() {
                operations.push(Changed { name, phase: first.phase, count: 0, times: [0.0; 2], unknown: 0 });
            }
            let operation = &mut operations[place];
            operation.count = operation.count.saturating_add(first.count);
            for (sum, one) in operation.times.iter_mut().zip([first, second]) {
                *sum += one.time.as_ref().map_or(0.0, |time| time.range.mid.get()) * f64::from(one.count);
            }
            if first.time.is_none() || second.time.is_none() {
                operation.unknown = operation.unknown.saturating_add(first.count);
            }
        }
        if operations.iter().all(|operation| operation.times == [0.0; 2]) {
            operations.clear();
        }
        operations.sort_by(|a, b| b.change().abs().total_cmp(&a.change().abs()).then(a.name.cmp(b.name)));
        let rest = [0, 1].map(|gpu| {
            let step = [from, to][gpu].step.mid().get();
            operations.iter().fold(step, |rest, operation| rest - operation.times[gpu])
        });
        Self { steps: [from, to], operations, rest }
    }

    /// The two steps.
    pub fn totals(&self) -> [Micros; 2] {
        self.steps.map(|prediction| prediction.step.mid())
    }
}
