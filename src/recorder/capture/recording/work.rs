//! Computation of steps, measured by their number of autograd nodes: later steps may do more than the recorded ones.

use crate::capture::messages::Counted;
use habitat_base::regress::quantile::median;

/// Maximum number of reports to keep; the last ones.
const MOST: usize = 1000;
/// Ratio of nodes in later steps to recorded ones from which it is reported.
const FACTOR: f64 = 1.5;

/// Autograd nodes of the recorded steps and of later ones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// Nodes of the step in which the model was looked at.
    looked: Option<f64>,
    /// Nodes of a step in the last window.
    in_window: Option<f64>,
    /// The same, or those of the step before a window that is not over.
    recorded: Option<f64>,
    /// Nodes per step in each report since then.
    later: Vec<f64>,
}

impl Work {
    /// Adds a report.
    pub(super) fn add(&mut self, steps: u64, nodes: u64, of: Counted) {
        let each = nodes as f64 / steps.max(1) as f64;
        match of {
            // The model is looked at before the first window alone.
            Counted::Looked if self.in_window.is_none() => self.looked = Some(each),
            Counted::Recorded => self.in_window = Some(each),
            Counted::Later if self.recorded.is_some() && steps > 0 => {
                if self.later.len() >= MOST {
                    self.later.remove(0);
                }
                self.later.push(each);
            }
            Counted::Looked | Counted::Later => {}
        }
        if of != Counted::Later {
            self.recorded = Some(each);
            self.later.clear();
        }
    }

    /// Ratio of autograd nodes in recorded steps to those of the step in which the model was looked at, if both are
    /// known.
    pub(crate) fn recorded(&self) -> Option<f64> {
        let [looked, recorded] = [self.looked, self.in_window].map(|nodes| nodes.filter(|nodes| *nodes > 0.0));
        Some(recorded? / looked?)
    }

    /// Ratio of autograd nodes in later steps to recorded ones; `None` if it is about 1 or unknown.
    pub fn later(&self) -> Option<f64> {
        let recorded = self.recorded.filter(|nodes| *nodes > 0.0)?;
        let times = median(&mut self.later.clone())? / recorded;
        (times >= FACTOR || times <= 1.0 / FACTOR).then_some(times)
    }

    /// The same as advice.
    pub fn note(&self) -> Option<String> {
        self.later().map(|times| {
            format!(
                "later steps record {times:.1} times the autograd nodes of the recorded ones (gradient accumulation that \
                 ramps up, or other layers trained?): the profile is of early steps; --after records later ones"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(reports: &[(u64, u64, bool)]) -> Option<f64> {
        let mut work = Work::default();
        for &(steps, nodes, recorded) in reports {
            work.add(steps, nodes, if recorded { Counted::Recorded } else { Counted::Later });
        }
        work.later()
    }

    #[test]
    fn later_steps_that_do_more_are_noticed() {
        assert_eq!(later(&[]), None);
        assert_eq!(later(&[(10, 900, false), (1, 50, true)]), None, "nothing came later");
        assert_eq!(later(&[(1, 50, true), (10, 500, false), (10, 2000, false), (10, 2000, false)]), Some(4.0));
        // A validation with gradients in one of many reports.
        assert_eq!(later(&[(1, 50, true), (10, 500, false), (10, 9000, false), (10, 510, false)]), None);
        assert_eq!(later(&[(1, 60, true), (10, 300, false)]), Some(0.5), "layers that are frozen");
        assert_eq!(later(&[(1, 60, true), (10, 600, false), (1, 120, true), (9, 1080, false)]), None, "another window");
        assert_eq!(later(&[(1, 0, true), (10, 300, false)]), None, "no nodes are counted there");
        // A ramp: one batch when the model is looked at, two in the window, four later.
        let mut ramp = Work::default();
        ramp.add(1, 50, Counted::Looked);
        ramp.add(3, 300, Counted::Recorded);
        ramp.add(10, 2000, Counted::Later);
        assert_eq!((ramp.recorded(), ramp.later()), (Some(2.0), Some(2.0)));
    }
}
