//! Builds the timeline of one step: device and host activity in its window.
//!
//! The window is that of the step time: from the last device work of the previous step to its own. Host activity in it
//! may therefore belong to the next step.

use std::collections::{BTreeMap, HashMap};

use super::join::Joined;
use super::launched::Launched;
use super::nest::{LOADER, NO_RANGE, Nesting};
use super::timing::{Wall, median};
use crate::{Trace, WorkKind};
use habitat_base::text::clean;
use habitat_base::units::{Micros, most};
use habitat_step::op::name::is_collective_kernel;
use habitat_step::profile::Phase;
use habitat_step::profile::timeline::{Lane, LaneKind, Part, Timeline};

/// Maximum gap in µs between neighbours of one operation that are joined, for rounding errors only. GPUs leave about
/// one microsecond between kernels, and that is idle time.
const NEAR: f64 = 0.1;
/// Maximum number of threads, and of streams, with a lane of their own.
const OWN: usize = 4;
/// Time in microseconds beyond which floating point cannot separate neighbouring times.
const EXACT: f64 = 9e15;
/// Maximum characters of a name.
const NAME: usize = 160;

/// Label of an interval: an operation of the profile or a name of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    Operation(u32),
    Name(u32),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    start: f64,
    end: f64,
    of: Of,
}

/// Intervals by kind of lane and by stream or thread.
type Lanes = HashMap<(LaneKind, u32), Vec<Piece>>;

/// The timeline of the step nearest the median; `operations` has the operation of each occurrence.
pub(super) fn timeline(
    trace: &Trace,
    nesting: &Nesting,
    launched: &[Launched],
    joined: &Joined,
    operations: &[Option<u32>],
    walls: &[Wall],
) -> Option<Timeline> {
    let middle = median(walls.iter().map(|wall| wall.duration));
    let far = |wall: &Wall| (wall.duration - middle).abs();
    let wall = walls.iter().min_by(|a, b| far(a).total_cmp(&far(b)))?;
    let window = [wall.start, wall.start + wall.duration];
    if !(wall.duration <= Micros::MOST && window.iter().all(|end| end.abs() < EXACT)) {
        return None;
    }
    // Occurrence of each piece of work.
    let mut of_work: Vec<Option<usize>> = vec![None; trace.work.len()];
    for (place, occurrence) in joined.occurrences.iter().enumerate() {
        for work in &occurrence.work {
            of_work[*work as usize] = Some(place);
        }
    }
    let of = |work: usize| {
        let operation = of_work[work].and_then(|place| operations[place]);
        operation.map_or(Of::Name(trace.work[work].name), Of::Operation)
    };
    let mut lanes = Lanes::new();
    for (index, work) in trace.work.iter().enumerate() {
        if work.device != joined.device || work.end <= window[0] || work.start >= window[1] {
            continue;
        }
        let communicates = || {
            of_work[index].is_some_and(|place| joined.occurrences[place].phase == Phase::Communication)
                || is_collective_kernel(trace.name(work.name))
        };
        let lane = match work.kind {
            WorkKind::Kernel if communicates() => (LaneKind::Communication, 0),
            WorkKind::Kernel => (LaneKind::Compute, work.stream),
            WorkKind::Copy | WorkKind::Set => (LaneKind::Copies, 0),
        };
        lanes.entry(lane).or_default().push(Piece { start: work.start, end: work.end, of: of(index) });
    }
    // If a reader derived launch times from the device, they carry no information about the host.
    if trace.launches.iter().any(|launch| launch.end > launch.start) {
        let begins = |work: usize| {
            let operator = of_work[work].and_then(|place| joined.occurrences[place].operator);
            operator.map(|range| trace.ranges[range as usize].start)
        };
        host(trace, nesting, launched, window, (&of, &begins), &mut lanes);
    }
    finished(trace, nesting, lanes, window)
}

/// Label of launched work, and start of its operator.
type Known<'a> = (&'a dyn Fn(usize) -> Of, &'a dyn Fn(usize) -> Option<f64>);

/// Host intervals: the outermost operators of every thread, each divided at inner operators that launch work; calls
/// outside of any operator; and waits for the next batch.
fn host(
    trace: &Trace,
    nesting: &Nesting,
    launched: &[Launched],
    window: [f64; 2],
    (of, begins): Known<'_>,
    lanes: &mut Lanes,
) {
    let outermost = |range: u32| {
        let context = nesting.contexts.get(range as usize);
        context.map(|context| context.outermost).filter(|range| *range != NO_RANGE)
    };
    let meets = |start: f64, end: f64| end > window[0] && start < window[1];
    let mut within: HashMap<u32, Vec<(f64, Of)>> = HashMap::new();
    for (index, range) in (0..).zip(&trace.ranges) {
        if meets(range.start, range.end) && outermost(index) == Some(index) {
            within.insert(index, Vec::new());
        }
    }
    for launch in launched {
        let work = launch.device as usize;
        if let Some(range) = outermost(launch.range) {
            if let Some(launches) = within.get_mut(&range) {
                let start = trace.ranges[range as usize].start;
                launches.push((begins(work).unwrap_or(launch.time).max(start), of(work)));
            }
        } else if let Some(call) = launch.call.map(|call| &trace.launches[call as usize])
            && meets(call.start, call.end)
        {
            let piece = Piece { start: call.start, end: call.end, of: of(work) };
            lanes.entry((LaneKind::Host, call.thread)).or_default().push(piece);
        }
    }
    for (index, mut launches) in within {
        let range = &trace.ranges[index as usize];
        let lane = lanes.entry((LaneKind::Host, range.thread)).or_default();
        if launches.is_empty() || trace.name(range.name).starts_with(LOADER) {
            launches = vec![(range.start, Of::Name(range.name))];
        }
        launches.sort_by(|a, b| a.0.total_cmp(&b.0));
        launches[0].0 = range.start;
        let ends = launches.iter().skip(1).map(|launch| launch.0).chain([range.end]);
        lane.extend(launches.iter().zip(ends).map(|(&(start, of), end)| Piece { start, end: end.max(start), of }));
    }
}

/// Sorts the lanes and limits their intervals to the window and to the maximum number.
fn finished(trace: &Trace, nesting: &Nesting, lanes: Lanes, [from, to]: [f64; 2]) -> Option<Timeline> {
    let time = |pieces: &[Piece]| -> f64 { pieces.iter().map(|piece| piece.end - piece.start).sum() };
    let mut lanes: Vec<((LaneKind, u32), f64, Vec<Piece>)> =
        lanes.into_iter().map(|(lane, pieces)| (lane, time(&pieces), pieces)).collect();
    // The program's own threads come before autograd's, then by time.
    let is_second = |lane: &(LaneKind, u32)| lane.0 == LaneKind::Host && nesting.autograd_threads.contains(&lane.1);
    lanes.sort_by(|(a, first, _), (b, second, _)| {
        (a.0, is_second(a)).cmp(&(b.0, is_second(b))).then(second.total_cmp(first)).then(a.1.cmp(&b.1))
    });
    let mut of_kinds: BTreeMap<LaneKind, usize> = BTreeMap::new();
    for ((kind, _), ..) in &lanes {
        *of_kinds.entry(*kind).or_default() += 1;
    }
    let mut shown: Vec<(LaneKind, Option<u32>, Vec<Piece>)> = Vec::new();
    for ((kind, number), _, pieces) in &lanes {
        let before = shown.iter().filter(|(other, ..)| other == kind).count();
        let number = match kind {
            _ if of_kinds[kind] == 1 || before >= OWN => None,
            LaneKind::Host => u32::try_from(before + 1).ok(),
            _ => Some(*number),
        };
        match shown.last_mut() {
            Some(rest) if before > OWN => rest.2.extend(pieces),
            _ => shown.push((*kind, number, pieces.clone())),
        }
    }
    for (.., pieces) in &mut shown {
        let clipped =
            pieces.iter().map(|it| Piece { start: it.start.max(from) - from, end: it.end.min(to) - from, ..*it });
        let mut clipped: Vec<Piece> = clipped.filter(|piece| piece.end >= piece.start).collect();
        clipped.sort_by(|a, b| a.start.total_cmp(&b.start));
        *pieces = merged(&clipped, |last, next| last.of == next.of && next.start <= last.end + NEAR);
    }
    shown.retain(|(.., pieces)| !pieces.is_empty());
    let mut resolution = None;
    let count = |lanes: &[(LaneKind, Option<u32>, Vec<Piece>)]| lanes.iter().map(|lane| lane.2.len()).sum::<usize>();
    let mut few = shown.clone();
    while count(&few) > most::INTERVALS {
        let least = resolution.map_or((to - from) / most::INTERVALS as f64, |coarse: f64| 2.0 * coarse);
        resolution = Some(least);
        for (lane, all) in few.iter_mut().zip(&shown) {
            lane.2 = merged(&all.2, |last, next| next.end.max(last.end) - last.start <= least);
        }
    }
    let (mut parts, mut numbers) = (Vec::new(), HashMap::new());
    let tenths = |time: f64| Micros::known((time.max(0.0) * 10.0).round() / 10.0);
    let lanes: Vec<Lane> = few
        .into_iter()
        .map(|(kind, number, pieces)| Lane {
            kind,
            number,
            start: pieces.iter().map(|piece| tenths(piece.start)).collect(),
            duration: pieces.iter().map(|piece| tenths(piece.end - piece.start)).collect(),
            part: pieces
                .iter()
                .map(|piece| {
                    *numbers.entry(piece.of).or_insert_with(|| {
                        parts.push(part(trace, piece.of));
                        parts.len() as u32 - 1
                    })
                })
                .collect(),
        })
        .collect();
    let is_device = |lane: &Lane| lane.kind != LaneKind::Host;
    lanes.iter().any(is_device).then(|| Timeline {
        duration: tenths(to - from),
        resolution: resolution.map(tenths),
        parts,
        lanes,
    })
}

fn part(trace: &Trace, of: Of) -> Part {
    match of {
        Of::Operation(operation) => Part::Operation(operation),
        Of::Name(name) => match clean(trace.name(name), NAME) {
            name if name.trim().is_empty() => Part::Name("(unnamed)".to_owned()),
            name => Part::Name(name),
        },
    }
}

/// Merges neighbours into one interval, labelled by the longest.
fn merged(pieces: &[Piece], joins: impl Fn(&Piece, &Piece) -> bool) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    let mut longest = 0.0;
    for piece in pieces {
        let length = piece.end - piece.start;
        match all.last_mut() {
            Some(last) if joins(last, piece) => {
                last.end = last.end.max(piece.end);
                if length > longest {
                    (last.of, longest) = (piece.of, length);
                }
            }
            _ => {
                all.push(*piece);
                longest = length;
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers are exact")]

    use super::*;

    #[test]
    fn neighbours_become_one_of_the_longest() {
        let piece = |start: f64, end: f64, of: u32| Piece { start, end, of: Of::Operation(of) };
        let pieces = [piece(0.0, 1.0, 1), piece(1.0, 4.0, 2), piece(5.0, 6.0, 3), piece(20.0, 21.0, 3)];
        let coarse = merged(&pieces, |last, next| next.end.max(last.end) - last.start <= 6.0);
        assert_eq!(coarse, [piece(0.0, 6.0, 2), piece(20.0, 21.0, 3)]);
        let same = merged(&pieces, |last, next| last.of == next.of && next.start <= last.end + NEAR);
        assert_eq!(same.len(), 4);
        assert_eq!(same[0].end, 1.0);
    }
}
