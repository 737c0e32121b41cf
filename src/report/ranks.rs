//! The processes of a training that runs in several, each against their median.
//!
//! In data parallel training every step ends with all ranks, so that one that is late holds up the
//! others: their step times are alike, and what each waits for its own data tells them apart. Where
//! ranks do not wait for one another, their step times do.

use super::format;
use crate::live::{Process, Snapshot, Waiting};
use crate::units::Micros;

/// How much longer than the median a rank's step is that is called slow.
pub const SLOW: f64 = 1.1;

/// One of several ranks, in which something is most, beside the median of all.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Farthest<'a, T> {
    /// The rank.
    pub process: &'a Process,
    /// Its value.
    pub value: T,
    /// The middle value of all; the lower one of the two in the middle.
    pub median: T,
    /// How many ranks there are.
    pub ranks: usize,
}

/// The rank with the most of something, of those of which it is known; `None` with fewer than two.
fn farthest<T: Copy>(
    seen: &Snapshot,
    value: impl Fn(&Process) -> Option<T>,
    number: fn(T) -> f64,
) -> Option<Farthest<'_, T>> {
    let known = |process: &'_ Process| process.steps > 0;
    let mut ranks: Vec<(&Process, T)> = seen
        .processes
        .iter()
        .filter(|process| known(process))
        .filter_map(|process| Some((process, value(process)?)))
        .collect();
    ranks.sort_by(|a, b| number(a.1).total_cmp(&number(b.1)));
    let median = ranks.get(ranks.len().checked_sub(1)? / 2)?.1;
    let &(process, value) = ranks.last()?;
    (ranks.len() > 1).then_some(Farthest { process, value, median, ranks: ranks.len() })
}

/// The rank with the longest steps.
pub fn slowest(seen: &Snapshot) -> Option<Farthest<'_, Micros>> {
    farthest(seen, |process| process.median, Micros::get)
}

/// The rank that waits most for its data.
pub fn waits_most(seen: &Snapshot) -> Option<Farthest<'_, Waiting>> {
    farthest(seen, |process| process.waiting, |waiting| waiting.share)
}

/// What a rank is called.
pub fn name(process: &Process) -> String {
    process.rank.map_or_else(|| format!("process {}", process.pid), |rank| format!("rank {rank}"))
}

/// The slowest rank and the one that waits most for data, each beside the median; `None` where the
/// training runs in one process.
pub fn words(seen: &Snapshot) -> Option<String> {
    let times = slowest(seen).map(|it| {
        let (median, slow) = (format::time(it.median), format::time(it.value));
        let times = it.value.get() / it.median.get();
        if times >= SLOW {
            format!("{} is the slowest of {} ranks: {slow} a step, the median is {median}", name(it.process), it.ranks)
        } else {
            format!("{} ranks at one pace: median step {median}", it.ranks)
        }
    });
    let data = waits_most(seen).map(|it| {
        let [most, median] = [it.value, it.median].map(|waiting| format!("{:.0} %", waiting.share * 100.0));
        format!("{} waits most for data: {most} of its time, the median is {median}", name(it.process))
    });
    let parts: Vec<String> = times.into_iter().chain(data).collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(of: &[(f64, f64)]) -> Snapshot {
        let process = |(rank, (ms, share)): (usize, &(f64, f64))| Process {
            pid: 100 + rank as u32,
            rank: Some(rank as u32),
            steps: 20,
            median: Micros::new(ms * 1e3).ok(),
            waiting: Some(Waiting { share: *share, steps: 19, workers: Some(2), cores: None }),
            ..Process::default()
        };
        // One that does not train, as the one that started the others.
        let launcher = Process { pid: 99, ..Process::default() };
        Snapshot { processes: of.iter().enumerate().map(process).chain([launcher]).collect(), ..Snapshot::default() }
    }

    #[test]
    fn each_rank_is_beside_the_median() {
        let seen = ranks(&[(100.0, 0.02), (101.0, 0.05), (102.0, 0.4), (100.5, 0.01)]);
        assert_eq!(
            words(&seen).unwrap(),
            "4 ranks at one pace: median step 100.5 ms · rank 2 waits most for data: 40 % of its time, the \
             median is 2 %"
        );
        let seen = ranks(&[(100.0, 0.0), (130.0, 0.0), (100.0, 0.0)]);
        let slow = slowest(&seen).unwrap();
        assert_eq!((slow.process.rank, slow.median.get(), slow.ranks), (Some(1), 1e5, 3));
        assert!(
            words(&seen)
                .unwrap()
                .starts_with("rank 1 is the slowest of 3 ranks: 130.0 ms a step, the median is 100.0 ms")
        );
    }

    #[test]
    fn one_process_has_none_beside_it() {
        assert_eq!(words(&ranks(&[(100.0, 0.5)])), None);
        assert_eq!(words(&Snapshot::default()), None);
    }
}
