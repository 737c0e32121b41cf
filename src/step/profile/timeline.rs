//! Timeline of one recorded step: lanes of the host and the device with intervals in order, and analyses beyond sums:
//! when the device was idle, and what the host did meanwhile.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Profile;
use super::read::ProfileError;
use habitat_base::units::{Micros, most};

/// One recorded step, the one nearest the median. Times are microseconds from its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// Length of the step.
    #[serde(rename = "duration_us")]
    pub duration: Micros,
    /// Resolution, if there were more intervals than a profile keeps: neighbours that together last no longer than this
    /// are merged into one interval of the longest among them, without the short gaps between them. Left out if only
    /// gapless neighbours of one operation were merged.
    #[serde(default, rename = "resolution_us", skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Micros>,
    /// Labels of the intervals, which refer to them by index, from 0.
    pub parts: Vec<Part>,
    /// Host threads first, then the lanes of the device.
    pub lanes: Vec<Lane>,
}

/// Label of an interval.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// An operation, by its index in the profile's `operations`, from 0.
    Operation(u32),
    /// Something other than an operation of the step: an operator that launched nothing, or a wait for data.
    Name(String),
}

/// Kind of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LaneKind {
    /// A host thread: its outermost operators, divided where they launch several operations.
    Host,
    /// Kernels; of one stream if there are several.
    Compute,
    /// Memory copies and fills.
    Copies,
    /// Kernels of collectives.
    Communication,
}

/// Consecutive intervals, as columns of equal length. They may overlap if several streams share a lane.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    /// Kind of the lane.
    pub kind: LaneKind,
    /// Number of the stream or thread, if there are several; left out for the lane that combines the remaining ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// Start of each interval, in order.
    #[serde(rename = "start_us")]
    pub start: Vec<Micros>,
    /// Length of each interval.
    #[serde(rename = "duration_us")]
    pub duration: Vec<Micros>,
    /// Label of each interval: its index in `parts`.
    pub part: Vec<u32>,
}

/// An interval of a lane, in microseconds from the start of the step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Start.
    pub start: f64,
    /// End.
    pub end: f64,
    /// Index in [`Timeline::parts`].
    pub part: usize,
}

/// A gap in which the device is idle.
#[derive(Debug, Clone, PartialEq)]
pub struct Gap {
    /// Start, from the start of the step.
    pub start: Micros,
    /// Length.
    pub duration: Micros,
    /// Host activity during the gap with its time, longest first; `None` = in no recorded operator. Empty if the host
    /// was not recorded.
    pub host: Vec<(Option<Part>, Micros)>,
}

impl Lane {
    /// Intervals in order.
    pub fn intervals(&self) -> impl Iterator<Item = Interval> + '_ {
        (0..self.start.len()).map(|place| self.interval(place))
    }

    fn interval(&self, place: usize) -> Interval {
        let start = self.start[place].get();
        Interval { start, end: start + self.duration[place].get(), part: self.part[place] as usize }
    }

    /// The interval at a time; of several, the last to start.
    pub fn at(&self, time: f64) -> Option<Interval> {
        let after = self.start.partition_point(|start| start.get() <= time);
        // Few intervals overlap, so the one that contains a time is near.
        let near = (after.saturating_sub(64)..after).rev();
        near.map(|place| self.interval(place)).find(|interval| time < interval.end)
    }
}

impl Timeline {
    /// Label of a lane: `host`, `stream 7`, `copies`.
    pub fn label(&self, lane: &Lane) -> String {
        let several = self.lanes.iter().filter(|other| other.kind == lane.kind).count() > 1;
        match (lane.kind, lane.number) {
            (LaneKind::Host, Some(number)) => format!("host {number}"),
            (LaneKind::Host, None) if several => "host, others".to_owned(),
            (LaneKind::Host, None) => "host".to_owned(),
            (LaneKind::Compute, Some(number)) => format!("stream {number}"),
            (LaneKind::Compute, None) if several => "other streams".to_owned(),
            (LaneKind::Compute, None) => "compute".to_owned(),
            (LaneKind::Copies, _) => "copies".to_owned(),
            (LaneKind::Communication, _) => "communicate".to_owned(),
        }
    }

    /// Name of a part of the timeline of `profile`.
    pub fn name<'a>(&self, part: &'a Part, profile: &'a Profile) -> &'a str {
        match part {
            Part::Operation(place) => profile.operations.get(*place as usize).map_or("", |operation| &operation.name),
            Part::Name(name) => name,
        }
    }

    /// Idle intervals of the device in order, as start and end in microseconds. A step ends with device work, so the
    /// idle time after the end of the previous step belongs to this one.
    pub fn idle(&self) -> Vec<[f64; 2]> {
        outside(&self.union(|kind| kind != LaneKind::Host), [0.0, self.duration.get()])
    }

    /// Union of the intervals of some lanes, disjoint and in order.
    fn union(&self, of: impl Fn(LaneKind) -> bool) -> Vec<[f64; 2]> {
        let lanes = self.lanes.iter().filter(|lane| of(lane.kind));
        let mut all: Vec<[f64; 2]> =
            lanes.flat_map(Lane::intervals).map(|interval| [interval.start, interval.end]).collect();
        all.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let mut union: Vec<[f64; 2]> = Vec::new();
        for [start, end] in all {
            match union.last_mut() {
                Some(last) if start <= last[1] => last[1] = last[1].max(end),
                _ => union.push([start, end]),
            }
        }
        union
    }

    /// The longest gaps in which the device is idle, longest first, at most `count`.
    pub fn gaps(&self, count: usize) -> Vec<Gap> {
        let mut idle = self.idle();
        idle.sort_by(|a, b| (b[1] - b[0]).total_cmp(&(a[1] - a[0])));
        idle.truncate(count);
        let host = self.union(|kind| kind == LaneKind::Host);
        idle.into_iter().map(|[from, to]| self.gap(&host, from, to)).collect()
    }

    /// The gap that contains `time`, if the device is idle then.
    pub fn gap_at(&self, time: f64) -> Option<Gap> {
        let [from, to] = self.idle().into_iter().find(|[from, to]| (*from..*to).contains(&time))?;
        Some(self.gap(&self.union(|kind| kind == LaneKind::Host), from, to))
    }

    fn gap(&self, host: &[[f64; 2]], from: f64, to: f64) -> Gap {
        let within = |start: f64, end: f64| (end.min(to) - start.max(from)).max(0.0);
        let mut times = vec![0.0; self.parts.len()];
        for interval in self.lanes.iter().filter(|lane| lane.kind == LaneKind::Host).flat_map(Lane::intervals) {
            times[interval.part] += within(interval.start, interval.end);
        }
        let named = self.parts.iter().zip(times).map(|(part, time)| (Some(part.clone()), time));
        let none: f64 = outside(host, [from, to]).into_iter().map(|[start, end]| end - start).sum();
        let mut did: Vec<(Option<Part>, Micros)> = named
            .chain((!host.is_empty()).then_some((None, none)))
            .filter(|(_, time)| *time > 0.0)
            .map(|(part, time)| (part, Micros::known(time)))
            .collect();
        did.sort_by(|a, b| b.1.total_cmp(&a.1));
        Gap { start: Micros::known(from), duration: Micros::known(to - from), host: did }
    }

    /// Checks constraints that the types alone cannot express, for a step with `operations` operations.
    pub(super) fn validate(&self, operations: usize) -> Result<(), ProfileError> {
        let fail =
            |path: String, problem: String| Err(ProfileError::Value { path: format!("timeline.{path}"), problem });
        let intervals: usize = self.lanes.iter().map(|lane| lane.start.len()).sum();
        if intervals > most::INTERVALS || self.lanes.len() > LANES || self.parts.len() > most::INTERVALS {
            let most = most::INTERVALS;
            let problem = format!(
                "{} lanes, {} parts and {intervals} intervals; the limits are {LANES}, {most} and {most}",
                self.lanes.len(),
                self.parts.len()
            );
            return fail("lanes".to_owned(), problem);
        }
        for (place, part) in self.parts.iter().enumerate() {
            match part {
                Part::Operation(operation) if *operation as usize >= operations => {
                    let problem = format!("{operation}; the profile has {operations} operations, counted from 0");
                    return fail(format!("parts[{place}].operation"), problem);
                }
                Part::Name(name) if name.trim().is_empty() => {
                    return fail(format!("parts[{place}].name"), "empty".to_owned());
                }
                _ => {}
            }
        }
        for (number, lane) in self.lanes.iter().enumerate() {
            let count = lane.start.len();
            for (field, length) in [("duration_us", lane.duration.len()), ("part", lane.part.len())] {
                if length != count {
                    let problem = format!("has {length} values, but start_us has {count}");
                    return fail(format!("lanes[{number}].{field}"), problem);
                }
            }
            let mut before = 0.0;
            for (place, interval) in lane.intervals().enumerate() {
                let Interval { start, end, part } = interval;
                if start < before {
                    let problem = format!("{start} is before the previous interval, which starts at {before}");
                    return fail(format!("lanes[{number}].start_us[{place}]"), problem);
                }
                before = start;
                // Starts and durations are rounded separately.
                if end > self.duration.get() + 1.0 {
                    let problem =
                        format!("the interval ends at {end}, after the step, which lasts {}", self.duration.get());
                    return fail(format!("lanes[{number}].duration_us[{place}]"), problem);
                }
                if part >= self.parts.len() {
                    let problem = format!("{part}; there are {} parts, counted from 0", self.parts.len());
                    return fail(format!("lanes[{number}].part[{place}]"), problem);
                }
            }
        }
        Ok(())
    }
}

/// Maximum number of lanes in a timeline.
const LANES: usize = 64;

/// Parts of a window outside of disjoint, ordered intervals.
fn outside(intervals: &[[f64; 2]], [from, to]: [f64; 2]) -> Vec<[f64; 2]> {
    let mut at = from;
    let mut left = Vec::new();
    for [start, end] in intervals.iter().filter(|[start, end]| *end > from && *start < to) {
        if *start > at {
            left.push([at, *start]);
        }
        at = at.max(*end);
    }
    if to > at {
        left.push([at, to]);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(values: &[f64]) -> Vec<Micros> {
        values.iter().copied().map(Micros::known).collect()
    }

    fn lane(kind: LaneKind, intervals: &[(f64, f64, u32)]) -> Lane {
        Lane {
            kind,
            number: None,
            start: micros(&intervals.iter().map(|it| it.0).collect::<Vec<_>>()),
            duration: micros(&intervals.iter().map(|it| it.1).collect::<Vec<_>>()),
            part: intervals.iter().map(|it| it.2).collect(),
        }
    }

    fn timeline() -> Timeline {
        Timeline {
            duration: Micros::known(100.0),
            resolution: None,
            parts: vec![Part::Operation(0), Part::Name("aten::item".to_owned())],
            lanes: vec![
                lane(LaneKind::Host, &[(0.0, 10.0, 0), (30.0, 25.0, 1)]),
                lane(LaneKind::Compute, &[(5.0, 15.0, 0), (60.0, 40.0, 0)]),
                lane(LaneKind::Copies, &[(10.0, 20.0, 1)]),
            ],
        }
    }

    #[test]
    fn gaps_are_where_no_lane_of_the_device_is_busy() {
        let timeline = timeline();
        assert_eq!(timeline.idle(), [[0.0, 5.0], [30.0, 60.0]]);
        let gaps = timeline.gaps(1);
        assert_eq!((gaps[0].start.get(), gaps[0].duration.get()), (30.0, 30.0));
        let did: Vec<(Option<Part>, f64)> =
            gaps[0].host.iter().map(|(part, time)| (part.clone(), time.get())).collect();
        assert_eq!(did, [(Some(Part::Name("aten::item".to_owned())), 25.0), (None, 5.0)]);
        assert_eq!(timeline.gap_at(4.0).map(|gap| gap.duration.get()), Some(5.0));
        assert_eq!(timeline.gap_at(29.0), None);
    }

    #[test]
    fn the_interval_at_a_time() {
        let timeline = timeline();
        let at = |time| timeline.lanes[1].at(time).map(|interval| interval.start);
        assert_eq!([at(4.9), at(5.0), at(19.9), at(20.0), at(99.0)], [None, Some(5.0), Some(5.0), None, Some(60.0)]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_field_and_place() {
        let said = |change: &dyn Fn(&mut Timeline)| {
            let mut wrong = timeline();
            change(&mut wrong);
            wrong.validate(1).map_or_else(|error| error.to_string(), |()| "taken".to_owned())
        };
        assert_eq!(said(&|_| {}), "taken");
        assert_eq!(
            said(&|it| it.lanes[1].start.swap(0, 1)),
            "timeline.lanes[1].start_us[1]: 5 is before the previous interval, which starts at 60"
        );
        assert_eq!(
            said(&|it| it.lanes[2].part[0] = 2),
            "timeline.lanes[2].part[0]: 2; there are 2 parts, counted from 0"
        );
        assert_eq!(
            said(&|it| it.parts[0] = Part::Operation(1)),
            "timeline.parts[0].operation: 1; the profile has 1 operations, counted from 0"
        );
        assert!(
            said(&|it| it.lanes[0].duration[1] = Micros::known(80.0)).starts_with("timeline.lanes[0].duration_us[1]")
        );
        assert!(said(&|it| it.lanes[0].part.truncate(1)).starts_with("timeline.lanes[0].part: has 1 values"));
        let many = |it: &mut Timeline| it.lanes[2] = lane(LaneKind::Copies, &vec![(0.0, 1.0, 0); most::INTERVALS]);
        assert!(said(&many).contains("8004 intervals"), "{}", said(&many));
    }
}
