//! Steps that the program marked on the host, converted to GPU time.

use std::collections::{BTreeMap, HashMap};

use super::space::{Event, Plane};
use crate::Fault;

/// Maximum number of launches, and of steps.
const LAUNCHES: usize = 1 << 22;

/// Steps that the program marked on the host, and the launches of GPU work.
pub(super) struct HostSteps {
    /// Start and end in nanoseconds on the host's clock.
    steps: Vec<(f64, f64)>,
    launches: HashMap<i64, f64>,
}

pub(super) fn host_steps(hosts: &[Plane<'_>]) -> Result<HostSteps, Fault> {
    let mut found = HostSteps { steps: Vec::new(), launches: HashMap::new() };
    for plane in hosts {
        let (step, correlation) = (plane.number_of("step_num"), plane.number_of("correlation_id"));
        if step.is_none() && correlation.is_none() {
            continue;
        }
        for line in &plane.lines {
            let line = Plane::line(*line)?;
            for event in line.events() {
                let event = Event::read(event)?;
                if found.steps.len().max(found.launches.len()) >= LAUNCHES {
                    return Err(Fault::TooMany { what: "launches of the host", most: LAUNCHES });
                }
                let start = line.start as f64 + event.offset as f64 / 1e3;
                for (name, stat) in &event.stats {
                    if Some(*name) == step {
                        found.steps.push((start, start + event.duration as f64 / 1e3));
                    } else if Some(*name) == correlation
                        && let Some(number) = stat.whole()
                    {
                        found.launches.entry(number).or_insert(start);
                    }
                }
            }
        }
    }
    found.steps.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(found)
}

impl HostSteps {
    /// Steps in device time: from the first to the last work launched in each step. `events` are the correlation,
    /// start and end of each piece of work.
    pub(super) fn on_device(&self, events: impl Iterator<Item = (i64, f64, f64)>) -> Vec<(f64, f64)> {
        let mut spans: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for (correlation, start, end) in events {
            let Some(launch) = self.launches.get(&correlation) else { continue };
            let Some(step) = self.steps.partition_point(|step| step.0 <= *launch).checked_sub(1) else { continue };
            if *launch > self.steps[step].1 {
                continue;
            }
            let span = spans.entry(step).or_insert((start, end));
            *span = (span.0.min(start), span.1.max(end));
        }
        spans.into_values().collect()
    }
}
