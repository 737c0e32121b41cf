//! Ranks of a training compared with their median.
//!
//! In synchronous training all ranks finish a step together, so a late rank holds up the others. Their step times are
//! alike, and the late rank waits least for the others. If ranks do not wait for one another, the slow one has the
//! longest steps. Separate trainings are not compared.

use super::format;
use habitat_base::units::Micros;
use habitat_recorder::live::history::Digest;
use habitat_recorder::live::{Process, Snapshot, Waiting};

/// A rank is slow if its step takes this many times the median.
pub const SLOW: f64 = 1.1;
/// A rank is late if the median rank computes less and waits longer than it, both by this share of the step.
pub const LATE: f64 = 0.2;

/// The rank with the highest value, and the median of all ranks.
#[derive(Debug, Clone, PartialEq)]
pub struct Farthest<'a, T> {
    /// The rank.
    pub process: &'a Process,
    /// Its value.
    pub value: T,
    /// Median of all ranks; for an even number, the lower of the middle two.
    pub median: T,
    /// The other rank of two, else that of the median, with their number.
    pub others: String,
}

/// The ranks of the training that made steps.
fn ranks(seen: &Snapshot) -> impl Iterator<Item = &Process> {
    seen.processes.iter().filter(|process| process.is_rank && process.steps > 0)
}

/// Words for the median of sorted ranks: of two, it is the value of the other one.
fn others(count: usize, first: &str) -> String {
    if count == 2 { first.to_owned() } else { format!("the median of {count} ranks") }
}

/// The rank with the highest known value; `None` for fewer than two ranks.
fn farthest<T: Copy>(
    seen: &Snapshot,
    value: impl Fn(&Process) -> Option<T>,
    number: fn(T) -> f64,
) -> Option<Farthest<'_, T>> {
    let mut known: Vec<(&Process, T)> = ranks(seen).filter_map(|process| Some((process, value(process)?))).collect();
    known.sort_by(|a, b| number(a.1).total_cmp(&number(b.1)));
    let (first, median) = known.get(known.len().checked_sub(1)? / 2)?;
    let &(process, value) = known.last()?;
    let others = others(known.len(), &name(first));
    (known.len() > 1).then_some(Farthest { process, value, median: *median, others })
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Late {
    /// Its name.
    pub(crate) name: String,
    /// Share of its step that the median rank waits; for an even number, the upper of the middle two.
    pub(crate) waited: f64,
    /// The finding with its figures.
    pub(crate) words: String,
}

/// The rank that the others wait for by at least [`LATE`] of its step: of the whole job, or of its last steps; `None` if
/// there is none or the waits are unknown.
pub(crate) fn late(seen: &Snapshot, history: &Digest) -> Option<Late> {
    let last = ranks(seen).filter_map(|process| {
        let (exchange, data) = (process.exchange?, process.waiting.map_or(0.0, |waiting| waiting.share));
        Some((name(process), exchange.step.get(), exchange.waiting.get(), data * exchange.step.get()))
    });
    late_ever(history).or_else(|| late_of(last.collect()))
}

/// The same, of the whole job alone.
pub(crate) fn late_ever(history: &Digest) -> Option<Late> {
    let known = history.ranks.iter().filter_map(|rank| {
        let [step, own, waiting] = [rank.total[1], rank.own()?, rank.parts.idle].map(f64::from);
        Some((format!("rank {}", rank.rank.unwrap_or_default()), step, waiting, step - waiting - own))
    });
    late_of(known.collect())
}

/// The late one of ranks: their names, and the times in microseconds of a step and of the waits for ranks and data in it.
fn late_of(mut ranks: Vec<(String, f64, f64, f64)>) -> Option<Late> {
    let own = |(_, step, waiting, data): &(String, f64, f64, f64)| (step - waiting - data).max(0.0);
    ranks.sort_by(|a, b| own(a).total_cmp(&own(b)));
    let (late, median) = (ranks.last()?, &ranks[(ranks.len() - 1) / 2]);
    let (name, step, waiting, _) = late;
    let least = (own(late) - own(median)).min(median.2 - waiting);
    let time = |micros: f64| format::time(Micros::known(micros));
    let words = || {
        let [own, step, theirs, waited] = [own(late), *step, own(median), median.2].map(time);
        let others = others(ranks.len(), &median.0);
        format!(
            "{name} is slow: it computes {own} of each step of {step}; {others} computes {theirs} and waits {waited}"
        )
    };
    (least >= LATE * step && *step > 0.0).then(|| Late { name: name.clone(), waited: median.2 / step, words: words() })
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
pub fn words(seen: &Snapshot, history: &Digest) -> Option<String> {
    let late = late(seen, history).map(|late| late.words);
    let times = slowest(seen).filter(|_| late.is_none()).map(|it| {
        let (median, slow) = (format::time(it.median), format::time(it.value));
        if it.value.get() >= it.median.get() * SLOW {
            format!("{} is the slowest: {slow} per step, {} {median}", name(it.process), it.others)
        } else {
            format!("{} ranks at the same pace: median step {median}", ranks(seen).count())
        }
    });
    let data = waits_most(seen).map(|it| {
        let [most, median] = [it.value, it.median].map(|waiting| format!("{:.0} %", waiting.share * 100.0));
        format!("{} waits most for data: {most} of its time, {} {median}", name(it.process), it.others)
    });
    let parts: Vec<String> = late.into_iter().chain(times).chain(data).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_recorder::live::Exchange;

    fn words(seen: &Snapshot) -> Option<String> {
        super::words(seen, &Digest::default())
    }

    fn late(seen: &Snapshot) -> Option<String> {
        super::late(seen, &Digest::default()).map(|late| late.words)
    }

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
             the median of 4 ranks 2 %"
        );
        let seen = ranks(&[(100.0, 0.0), (130.0, 0.0), (100.0, 0.0)]);
        let slow = slowest(&seen).unwrap();
        assert_eq!((slow.process.rank, slow.median.get()), (Some(1), 1e5));
        let said = words(&seen).unwrap();
        assert!(said.starts_with("rank 1 is the slowest: 130.0 ms per step, the median of 3 ranks 100.0 ms"), "{said}");
        // Of two, the median is the other's value.
        assert_eq!(
            words(&ranks(&[(130.0, 0.4), (100.0, 0.1)])).unwrap(),
            "rank 0 is the slowest: 130.0 ms per step, rank 1 100.0 ms · rank 0 waits most for data: 40 % of its time, \
             rank 1 10 %"
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
        let said = |step, waits: &[f64]| late(&in_step(step, waits));
        assert_eq!(
            said(67.0, &[58.0, 4.0]).unwrap(),
            "rank 1 is slow: it computes 63.0 ms of each step of 67.0 ms; rank 0 computes 9.0 ms and waits 58.0 ms"
        );
        assert_eq!(
            said(100.0, &[40.0, 41.0, 39.0, 5.0]).unwrap(),
            "rank 3 is slow: it computes 95.0 ms of each step of 100.0 ms; the median of 4 ranks computes 60.0 ms and \
             waits 40.0 ms"
        );
        assert_eq!(said(100.0, &[60.0, 55.0]), None, "a slow network holds up all");
        assert_eq!(said(100.0, &[3.0, 2.0, 40.0, 3.0]), None, "one has less to do");
        assert_eq!(said(100.0, &[58.0]), None);
        let mut data = in_step(67.0, &[58.0, 4.0]);
        data.processes[1].waiting = data.processes[1].waiting.map(|waiting| Waiting { share: 0.8, ..waiting });
        assert_eq!(late(&data), None, "it waits for data");
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
