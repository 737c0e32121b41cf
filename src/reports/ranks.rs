//! Ranks of a training compared with their median.
//!
//! In synchronous training all ranks finish a step together, so a late rank holds up the others. Their step times are
//! alike, and the late rank waits least for the others. If ranks do not wait for one another, the slow one has the
//! longest steps. Separate trainings are not compared.

use super::format;
use habitat_base::units::Micros;
use habitat_recorder::live::{Exchange, Process, Snapshot, Waiting};

/// A rank is slow if its step takes this many times the median.
pub const SLOW: f64 = 1.1;
/// A rank is late if the median rank waits longer than it by this share of the step.
pub const LATE: f64 = 0.2;

/// The rank with the highest value, and the median of all ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Farthest<'a, T> {
    /// The rank.
    pub process: &'a Process,
    /// Its value.
    pub value: T,
    /// Median of all ranks; for an even number, the lower of the middle two.
    pub median: T,
    /// Number of ranks.
    pub ranks: usize,
}

/// Ranks with a known value, in ascending order.
fn sorted<T: Copy>(
    seen: &Snapshot,
    value: impl Fn(&Process) -> Option<T>,
    number: impl Fn(T) -> f64,
) -> Vec<(&Process, T)> {
    let ranks = seen.processes.iter().filter(|process| process.is_rank && process.steps > 0);
    let mut known: Vec<(&Process, T)> = ranks.filter_map(|process| Some((process, value(process)?))).collect();
    known.sort_by(|a, b| number(a.1).total_cmp(&number(b.1)));
    known
}

/// The rank with the highest known value; `None` for fewer than two ranks.
fn farthest<T: Copy>(
    seen: &Snapshot,
    value: impl Fn(&Process) -> Option<T>,
    number: fn(T) -> f64,
) -> Option<Farthest<'_, T>> {
    let ranks = sorted(seen, value, number);
    let median = ranks.get(ranks.len().checked_sub(1)? / 2)?.1;
    let &(process, value) = ranks.last()?;
    (ranks.len() > 1).then_some(Farthest { process, value, median, ranks: ranks.len() })
}

/// The rank with the longest steps.
pub(crate) fn slowest(seen: &Snapshot) -> Option<Farthest<'_, Micros>> {
    farthest(seen, |process| process.median, Micros::get)
}

/// The rank that waits most for its data.
pub fn waits_most(seen: &Snapshot) -> Option<Farthest<'_, Waiting>> {
    farthest(seen, |process| process.waiting, |waiting| waiting.share)
}

/// A late rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Late<'a> {
    /// The rank.
    pub process: &'a Process,
    /// Time per step that it does not wait.
    pub own: Micros,
    /// Step time.
    pub step: Micros,
    /// Time that the median rank waits; for an even number, the upper of the middle two.
    pub waited: Micros,
    /// The other rank, if there are two.
    pub other: Option<&'a Process>,
}

/// The rank that the others wait for by at least [`LATE`] of its step; `None` if there is none or the waits are
/// unknown.
pub(crate) fn late(seen: &Snapshot) -> Option<Late<'_>> {
    let ranks = sorted(seen, |process| process.exchange, |exchange: Exchange| exchange.waiting.get());
    let &(process, Exchange { step, waiting }) = ranks.first()?;
    let median = ranks[ranks.len() / 2].1.waiting;
    let is_late = median.get() - waiting.get() >= LATE * step.get();
    is_late.then(|| Late {
        process,
        own: Micros::known((step.get() - waiting.get()).max(0.0)),
        step,
        waited: median,
        other: (ranks.len() == 2).then(|| ranks[1].0),
    })
}

/// Words for a late rank.
fn late_words(late: &Late<'_>) -> String {
    let others = late.other.map_or_else(|| "the median rank".to_owned(), name);
    format!(
        "{} is slow: {} of its {} step are its own work; {others} waits {} in collectives",
        name(late.process),
        format::time(late.own),
        format::time(late.step),
        format::time(late.waited)
    )
}

/// Number of separate trainings if there are several, and the one that the profile shows.
pub fn trainings(seen: &Snapshot) -> Option<String> {
    let (count, main) = seen.trainings?;
    let of = seen.processes.iter().find(|process| process.pid == main)?;
    let step = of.median.map(|median| format!(" of {}", format::time(median))).unwrap_or_default();
    let steps = format::grouped(of.steps as f64);
    Some(format!("{count} separate; shown: process {main} ({steps} steps{step})"))
}

/// Name of a process.
pub(crate) fn name(process: &Process) -> String {
    process.rank.map_or_else(|| format!("process {}", process.pid), |rank| format!("rank {rank}"))
}

/// The slowest rank and the one that waits most for data, each compared with the median; `None` if the training runs in
/// one process.
pub fn words(seen: &Snapshot) -> Option<String> {
    let late = late(seen).map(|late| late_words(&late));
    let times = slowest(seen).filter(|_| late.is_none()).map(|it| {
        let (median, slow) = (format::time(it.median), format::time(it.value));
        let times = it.value.get() / it.median.get();
        if times >= SLOW {
            format!("{} is the slowest of {} ranks: {slow} per step, median {median}", name(it.process), it.ranks)
        } else {
            format!("{} ranks at the same pace: median step {median}", it.ranks)
        }
    });
    let data = waits_most(seen).map(|it| {
        let [most, median] = [it.value, it.median].map(|waiting| format!("{:.0} %", waiting.share * 100.0));
        format!("{} waits most for data: {most} of its time, median {median}", name(it.process))
    });
    let parts: Vec<String> = late.into_iter().chain(times).chain(data).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(of: &[(f64, f64)]) -> Snapshot {
        let process = |(rank, (ms, share)): (usize, &(f64, f64))| Process {
            pid: 100 + rank as u32,
            rank: Some(rank as u32),
            is_rank: true,
            steps: 20,
            median: Micros::new(ms * 1e3).ok(),
            waiting: Some(Waiting { share: *share, steps: 19, workers: Some(2), cores: None }),
            ..Process::default()
        };
        // A process that does not train, such as the launcher.
        let launcher = Process { pid: 99, ..Process::default() };
        Snapshot { processes: of.iter().enumerate().map(process).chain([launcher]).collect(), ..Snapshot::default() }
    }

    #[test]
    fn each_rank_is_beside_the_median() {
        let seen = ranks(&[(100.0, 0.02), (101.0, 0.05), (102.0, 0.4), (100.5, 0.01)]);
        assert_eq!(
            words(&seen).unwrap(),
            "4 ranks at the same pace: median step 100.5 ms · rank 2 waits most for data: 40 % of its time, \
             median 2 %"
        );
        let seen = ranks(&[(100.0, 0.0), (130.0, 0.0), (100.0, 0.0)]);
        let slow = slowest(&seen).unwrap();
        assert_eq!((slow.process.rank, slow.median.get(), slow.ranks), (Some(1), 1e5, 3));
        assert!(
            words(&seen).unwrap().starts_with("rank 1 is the slowest of 3 ranks: 130.0 ms per step, median 100.0 ms")
        );
    }

    /// Synchronous ranks with these waiting times, in milliseconds.
    fn in_step(step: f64, waits: &[f64]) -> Snapshot {
        let mut seen = ranks(&vec![(step, 0.0); waits.len()]);
        for (process, waiting) in seen.processes.iter_mut().zip(waits) {
            let [step, waiting] = [step, *waiting].map(|time| Micros::new(time * 1e3).unwrap());
            process.exchange = Some(Exchange { step, waiting });
        }
        seen
    }

    #[test]
    fn the_rank_that_waits_least_is_late() {
        let said = |step, waits: &[f64]| late(&in_step(step, waits)).map(|late| late_words(&late));
        assert_eq!(
            said(67.0, &[58.0, 4.0]).unwrap(),
            "rank 1 is slow: 63.0 ms of its 67.0 ms step are its own work; rank 0 waits 58.0 ms in collectives"
        );
        assert_eq!(
            said(100.0, &[40.0, 41.0, 39.0, 5.0]).unwrap(),
            "rank 3 is slow: 95.0 ms of its 100.0 ms step are its own work; the median rank waits 40.0 ms in collectives"
        );
        assert_eq!(said(100.0, &[60.0, 55.0]), None, "a slow network holds up all");
        assert_eq!(said(100.0, &[3.0, 2.0, 40.0, 3.0]), None, "one has less to do");
        assert_eq!(said(100.0, &[58.0]), None);
        let words = words(&in_step(67.0, &[58.0, 4.0])).unwrap();
        assert!(words.starts_with("rank 1 is slow: ") && !words.contains("at the same pace"), "{words}");
    }

    #[test]
    fn separate_trainings_are_not_compared() {
        let mut seen = in_step(67.0, &[58.0, 4.0]);
        seen.processes.iter_mut().for_each(|process| process.is_rank = false);
        seen.processes[1].median = Micros::new(9e6).ok();
        seen.trainings = Some((2, 101));
        assert!(words(&seen).is_none() && late(&seen).is_none() && slowest(&seen).is_none());
        assert_eq!(trainings(&seen).unwrap(), "2 separate; shown: process 101 (20 steps of 9.00 s)");
    }

    #[test]
    fn one_process_has_none_beside_it() {
        assert_eq!(words(&ranks(&[(100.0, 0.5)])), None);
        assert_eq!(words(&Snapshot::default()), None);
    }
}
