//! Differences between the steps on two GPUs, operation by operation.

use super::Prediction;
use habitat_step::op;
use habitat_step::profile::difference::{Changed, Match};

/// Steps of one workload on two GPUs.
pub type Difference<'a> = habitat_step::profile::difference::Difference<'a, Prediction>;

/// Compares two predictions of the same profile. A part is all occurrences of one operation in one phase, named
/// without the common name space. Methods that do not predict single operations give no parts.
pub fn between<'a>(from: &'a Prediction, to: &'a Prediction) -> Difference<'a> {
    let mut parts: Vec<Changed> = Vec::new();
    let mut places = std::collections::BTreeMap::new();
    for (index, (first, second)) in from.operations.iter().zip(&to.operations).enumerate() {
        let name = op::name::short(&first.name);
        let place = *places.entry((name, first.phase)).or_insert(parts.len());
        if place == parts.len() {
            parts.push(Changed {
                name: name.to_owned(),
                phase: Some(first.phase),
                counts: [0; 2],
                times: [0.0; 2],
                unknown: 0,
                matched: Match::Same,
                operations: [Vec::new(), Vec::new()],
            });
        }
        let part = &mut parts[place];
        for (step, one) in [first, second].into_iter().enumerate() {
            part.counts[step] += u64::from(one.count);
            part.times[step] += one.time.as_ref().map_or(0.0, |time| time.range.mid.get()) * f64::from(one.count);
            part.operations[step].push(index);
        }
        if first.time.is_none() || second.time.is_none() {
            part.unknown += u64::from(first.count);
        }
    }
    Difference::new([from, to], [from, to].map(|prediction| prediction.step.mid()), parts)
}
