//! Determines which processes of a job train together as ranks, and which train separately.

use std::cmp::Reverse;

use super::{Process, Recording};

impl Process {
    /// Whether it is one of several ranks but not the first, so that it opens no window.
    pub(super) fn is_later_rank(&self) -> bool {
        self.rank.is_some_and(|rank| rank > 0) && self.world.as_ref().is_none_or(|world| world.size > 1)
    }

    /// Whether two processes are ranks of one training: launchers and `torch.distributed` give them different ranks and
    /// the same rendezvous, and their lifetimes overlap.
    ///
    /// The recorder for CUDA programs knows only the ranks.
    pub(super) fn trains_with(&self, other: &Self) -> bool {
        let at_once = self.heard[0] <= other.heard[1] && other.heard[0] <= self.heard[1];
        let numbered = self.rank.zip(other.rank).is_some_and(|(own, other)| own != other);
        let together = match (&self.world, &other.world) {
            (Some(own), Some(other)) => own.size > 1 && own.size == other.size && own.group == other.group,
            (None, None) => true,
            _ => false,
        };
        at_once && numbered && together
    }
}

impl Recording {
    /// Processes that made steps or were recorded, grouped by training and sorted by rank. The first training is that
    /// of the profile; the others are in order of their start.
    pub fn trainings(&self) -> Vec<Vec<&Process>> {
        let trains = |process: &&Process| process.steps > 0 || !process.windows.is_empty();
        let mut all: Vec<&Process> = self.processes.values().filter(trains).collect();
        let kernels = |process: &Process| -> u64 {
            process.windows.iter().filter_map(|window| window.cuda).map(|cuda| cuda.kernels).sum()
        };
        // Prefer recorded processes, then the most steps; of equals the first.
        all.sort_by_key(|process| process.heard[0]);
        let main = (0..all.len()).max_by_key(|at| {
            let process = all[*at];
            (!process.windows.is_empty(), process.steps, kernels(process), Reverse(*at))
        });
        if let Some(main) = main {
            let main = all.remove(main);
            all.insert(0, main);
        }
        let mut trainings: Vec<Vec<&Process>> = Vec::new();
        for process in all {
            let own = |training: &&mut Vec<&Process>| training.iter().all(|other| process.trains_with(other));
            match trainings.iter_mut().find(own) {
                Some(training) => training.push(process),
                None => trainings.push(vec![process]),
            }
        }
        for training in &mut trainings {
            training.sort_by_key(|process| process.rank);
        }
        trainings
    }

    /// Processes whose windows make the profile: all ranks of one training that recorded.
    pub fn recorded(&self) -> Vec<&Process> {
        let first = self.trainings().into_iter().next().unwrap_or_default();
        first.into_iter().filter(|process| !process.windows.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::messages::{Hello, Message, Stage, Window, World};

    /// Messages of a process in a training of more than ten steps.
    fn begins(recording: &mut Recording, pid: u32, rank: Option<u32>, size: u32, group: &str) {
        let hello = Hello { version: 1, pid, stage: Stage::Torch, python: None, torch: None, rank };
        recording.hear(pid, Message::Hello(hello));
        recording.hear(pid, Message::World(World { rank, size, group: group.to_owned() }));
        let times_us = vec![10.0; 10];
        recording.hear(
            pid,
            Message::Steps {
                first: 2,
                times_us,
                waits_us: vec![],
                workers: None,
                idle_us: vec![],
                parts: Box::default(),
            },
        );
    }

    fn ends(recording: &mut Recording, pid: u32, steps: u64) {
        let window = Window::Written {
            number: 1,
            first: 11,
            last: 13,
            file: format!("trace-{pid}-1.json"),
            bytes: 1,
            cost_us: 1.0,
            kernels: 0,
            lost: 0,
            seconds: None,
        };
        recording.hear(pid, Message::Window(window));
        recording.hear(pid, Message::Exit { steps, backward_passes: 1 });
    }

    fn pids(recording: &Recording) -> Vec<Vec<u32>> {
        recording.trainings().iter().map(|training| training.iter().map(|process| process.pid).collect()).collect()
    }

    #[test]
    fn processes_one_after_another_are_trainings_of_their_own() {
        let mut recording = Recording::default();
        // A program around the job may have given it a rank.
        for (pid, rank) in [(30, None), (20, None), (10, Some(0))] {
            begins(&mut recording, pid, rank, 1, "children of 5");
            ends(&mut recording, pid, 60);
        }
        assert_eq!(pids(&recording), [[30], [20], [10]], "in their order, the first of equals before all");
        assert_eq!(recording.recorded().len(), 1);
        // Two jobs of two ranks, started one after the other with the same port.
        let mut recording = Recording::default();
        for (pids, steps) in [([1, 2], 40), ([3, 4], 50)] {
            for (pid, rank) in pids.into_iter().zip([1, 0]) {
                begins(&mut recording, pid, Some(rank), 2, "localhost:29500");
            }
            for pid in pids {
                ends(&mut recording, pid, steps);
            }
        }
        assert_eq!(pids(&recording), [[4, 3], [2, 1]], "that with most steps first, by rank");
        assert_eq!(recording.recorded().iter().map(|process| process.rank).collect::<Vec<_>>(), [Some(0), Some(1)]);
    }

    #[test]
    fn processes_at_one_time_are_ranks_where_they_say_so() {
        let at_once = |said: &[(Option<u32>, u32, &str)]| {
            let mut recording = Recording::default();
            for (pid, (rank, size, group)) in (1..).zip(said) {
                begins(&mut recording, pid, *rank, *size, group);
            }
            (1..=said.len() as u32).for_each(|pid| ends(&mut recording, pid, 60));
            pids(&recording)
        };
        assert_eq!(at_once(&[(Some(1), 2, "a:1"), (Some(0), 2, "a:1")]), [[2, 1]]);
        // A hyperparameter search: of single processes, of tasks numbered by Slurm, of pairs.
        assert_eq!(at_once(&[(None, 1, "children of 5"), (None, 1, "children of 5")]), [[1], [2]]);
        assert_eq!(at_once(&[(Some(0), 1, "7 0"), (Some(1), 1, "7 0")]), [[1], [2]]);
        let pairs = [(Some(0), 2, "a:1"), (Some(0), 2, "a:2"), (Some(1), 2, "a:2"), (Some(1), 2, "a:1")];
        assert_eq!(at_once(&pairs), [[1, 4], [2, 3]]);
        // The same rank twice.
        assert_eq!(at_once(&[(Some(0), 2, "a:1"), (Some(0), 2, "a:1")]), [[1], [2]]);
    }
}
