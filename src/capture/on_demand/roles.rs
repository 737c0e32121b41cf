//! Which of the processes that poll trains.
//!
//! Every process that imports `PyTorch` polls: the one that trains, but also the launcher
//! that started it and the workers that load its data. A launcher and a worker make no
//! steps, and a request would wait in them for good. What tells them apart, in this order:
//!
//! 1. a process that has begun to record trains;
//! 2. a rank in the environment: launchers give ranks to what they start, and the workers
//!    of a rank inherit its own;
//! 3. an open GPU;
//! 4. processor time: a launcher waits for what it started, a process that trains works.
//!
//! Before what it starts polls, a launcher is alone: then its command tells.

/// What is known of a process that polls.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Program and arguments; empty where they cannot be read.
    pub command: Vec<String>,
    /// Its user.
    pub uid: Option<u32>,
    /// Rank, from the environment it was started with.
    pub rank: Option<u32>,
    /// Where the ranks of its job meet.
    pub rendezvous: Option<String>,
    /// GPUs that it has open, by the driver's numbers; `None` where that cannot be read.
    pub gpus: Option<Vec<u32>>,
    /// Processor time over time, 1 for a busy core; `None` until it was watched for long
    /// enough.
    pub cpu_share: Option<f64>,
    /// The numbering of processes that it lives in.
    pub pid_namespace: u64,
    /// Whether it sees other files than we (a container).
    pub is_contained: bool,
}

/// A process that polls.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Its number, as we count.
    pub pid: u32,
    /// Itself, its parent, and so on, as it counts.
    pub lineage: &'a [i32],
    /// Whether it has begun to record.
    pub began: bool,
    /// What is known of it.
    pub facts: &'a Facts,
}

/// What a process is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It trains, or nothing says otherwise.
    Trains,
    /// It started processes that train, and waits for them.
    Launches,
    /// It works for one that trains.
    Helps {
        /// That one.
        of: u32,
    },
    /// Not known yet.
    Unclear,
}

/// Processor time below this share of a core is waiting: torchrun, which looks after its
/// children ten times a second, takes 0.5 %.
const WAITING: f64 = 0.03;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Relation {
    Launches,
    Helped,
    Both,
    Unclear,
}

fn is_ancestor(ancestor: &Candidate<'_>, of: &Candidate<'_>) -> bool {
    let Some(own) = ancestor.lineage.first() else { return false };
    ancestor.facts.pid_namespace == of.facts.pid_namespace && of.lineage.iter().skip(1).any(|pid| pid == own)
}

/// Of a process and one that descends from it.
fn relation(above: &Candidate<'_>, below: &Candidate<'_>) -> Relation {
    match (above.began, below.began) {
        (true, false) => return Relation::Helped,
        (false, true) => return Relation::Launches,
        (true, true) => return Relation::Both,
        (false, false) => {}
    }
    match (above.facts.rank, below.facts.rank) {
        (None, Some(_)) => return Relation::Launches,
        (Some(one), Some(other)) if one != other => return Relation::Both,
        (Some(_), _) => return Relation::Helped,
        (None, None) => {}
    }
    let has_gpu = |candidate: &Candidate<'_>| candidate.facts.gpus.as_ref().map(|gpus| !gpus.is_empty());
    match (has_gpu(above), has_gpu(below)) {
        (Some(true), Some(false)) => return Relation::Helped,
        (Some(false), Some(true)) => return Relation::Launches,
        _ => {}
    }
    match above.facts.cpu_share {
        None => Relation::Unclear,
        Some(share) if share < WAITING => Relation::Launches,
        Some(_) => Relation::Helped,
    }
}

/// Whether the command is one of PyTorch's or Accelerate's launchers, and not of a rank.
fn is_launcher(facts: &Facts) -> bool {
    let named = |word: &String, name: &str| word.rsplit('/').next() == Some(name);
    let mut words = facts.command.iter().take(6);
    facts.rank.is_none()
        && words.any(|word| {
            named(word, "torchrun")
                || matches!(
                    word.as_str(),
                    "torch.distributed.run" | "torch.distributed.launch" | "accelerate.commands.launch"
                )
        })
}

/// The role of each, in their order.
pub fn roles(candidates: &[Candidate<'_>]) -> Vec<Role> {
    let role = |one: &Candidate<'_>| {
        let above = candidates.iter().filter(|other| is_ancestor(other, one));
        let below = candidates.iter().filter(|other| is_ancestor(one, other));
        let above: Vec<(u32, Relation)> = above.map(|other| (other.pid, relation(other, one))).collect();
        let below: Vec<Relation> = below.map(|other| relation(one, other)).collect();
        if let Some((of, _)) = above.iter().find(|(_, relation)| *relation == Relation::Helped) {
            return Role::Helps { of: *of };
        }
        if below.contains(&Relation::Launches) || (is_launcher(one.facts) && !one.began) {
            return Role::Launches;
        }
        let unclear = above.iter().map(|(_, relation)| relation).chain(&below).any(|it| *it == Relation::Unclear);
        if unclear { Role::Unclear } else { Role::Trains }
    };
    candidates.iter().map(role).collect()
}

/// Whom to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// This process, or those that it started.
    pub pid: Option<u32>,
    /// All ranks of the job, not the first only.
    pub all: bool,
}

/// What there is to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// These, the first rank first.
    Record(Vec<u32>),
    /// Not known yet.
    Wait,
    /// Nothing of the process named polls.
    NotThere(u32),
    /// Several jobs: their processes, a list each.
    Several(Vec<Vec<u32>>),
}

/// The processes that train, a list for each job; the first rank first.
pub fn jobs(candidates: &[Candidate<'_>], roles: &[Role]) -> Vec<Vec<u32>> {
    let mut jobs: Vec<(String, Vec<&Candidate<'_>>)> = Vec::new();
    for (one, _) in candidates.iter().zip(roles).filter(|(_, role)| **role == Role::Trains) {
        let launcher =
            candidates.iter().zip(roles).find(|(other, role)| **role == Role::Launches && is_ancestor(other, one));
        let key = match (&one.facts.rendezvous, launcher) {
            (Some(rendezvous), _) if one.facts.rank.is_some() => format!("at {rendezvous}"),
            (_, Some((launcher, _))) => format!("under {}", launcher.pid),
            _ => format!("alone {}", one.pid),
        };
        match jobs.iter_mut().find(|(other, _)| *other == key) {
            Some((_, members)) => members.push(one),
            None => jobs.push((key, vec![one])),
        }
    }
    jobs.into_iter()
        .map(|(_, mut members)| {
            members.sort_by_key(|one| (one.facts.rank.unwrap_or(u32::MAX), one.pid));
            members.iter().map(|one| one.pid).collect()
        })
        .collect()
}

/// Chooses. `is_settled` tells that all that will poll have done so.
pub fn choose(candidates: &[Candidate<'_>], wanted: Wanted, is_settled: bool) -> Choice {
    let roles = roles(candidates);
    let is_unclear = roles.contains(&Role::Unclear);
    if !is_settled || is_unclear {
        return Choice::Wait;
    }
    let mut jobs = jobs(candidates, &roles);
    let first = |job: &[u32]| if wanted.all { job.to_vec() } else { job.iter().take(1).copied().collect() };
    let Some(pid) = wanted.pid else {
        return match jobs.as_slice() {
            [] => Choice::Wait,
            [job] => Choice::Record(first(job)),
            _ => Choice::Several(jobs),
        };
    };
    let named = candidates.iter().zip(&roles).find(|(one, _)| one.pid == pid);
    let own_job = jobs.iter().find(|job| job.contains(&pid));
    match (named, own_job) {
        (Some(_), Some(job)) if wanted.all => Choice::Record(job.clone()),
        // A process named that was taken for another's worker: the user knows better.
        (Some((_, role)), _) if *role != Role::Launches => Choice::Record(vec![pid]),
        _ => {
            let under = |one: &u32| {
                let candidate = candidates.iter().find(|candidate| candidate.pid == *one);
                let pid = i64::from(pid);
                candidate
                    .is_some_and(|candidate| candidate.lineage.iter().skip(1).any(|above| i64::from(*above) == pid))
            };
            jobs.retain(|job| job.iter().any(under));
            match jobs.as_slice() {
                [] => Choice::NotThere(pid),
                [job] => Choice::Record(first(job)),
                _ => Choice::Several(jobs),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One {
        lineage: Vec<i32>,
        facts: Facts,
        began: bool,
    }

    fn one(lineage: &[i32]) -> One {
        One { lineage: lineage.to_vec(), facts: Facts::default(), began: false }
    }

    impl One {
        fn rank(mut self, rank: u32) -> Self {
            self.facts.rank = Some(rank);
            self.facts.rendezvous = Some("127.0.0.1:29500".to_owned());
            self
        }

        fn busy(mut self, share: f64) -> Self {
            self.facts.cpu_share = Some(share);
            self
        }

        fn gpus(mut self, gpus: &[u32]) -> Self {
            self.facts.gpus = Some(gpus.to_vec());
            self
        }
    }

    fn candidates(all: &[One]) -> Vec<Candidate<'_>> {
        all.iter()
            .map(|one| Candidate {
                pid: one.lineage[0].unsigned_abs(),
                lineage: &one.lineage,
                began: one.began,
                facts: &one.facts,
            })
            .collect()
    }

    fn chosen(all: &[One], pid: Option<u32>, every: bool) -> Choice {
        choose(&candidates(all), Wanted { pid, all: every }, true)
    }

    #[test]
    fn a_launcher_is_told_by_the_ranks_of_what_it_started() {
        let all = [one(&[10, 1]), one(&[12, 10, 1]).rank(1), one(&[11, 10, 1]).rank(0), one(&[13, 11, 10, 1]).rank(0)];
        let found = roles(&candidates(&all));
        assert_eq!(found, [Role::Launches, Role::Trains, Role::Trains, Role::Helps { of: 11 }]);
        assert_eq!(chosen(&all, None, false), Choice::Record(vec![11]));
        assert_eq!(chosen(&all, None, true), Choice::Record(vec![11, 12]));
        // The launcher named means what it launched, and so does the shell above it.
        assert_eq!(chosen(&all, Some(10), false), Choice::Record(vec![11]));
        assert_eq!(chosen(&all, Some(1), true), Choice::Record(vec![11, 12]));
        assert_eq!(chosen(&all, Some(12), false), Choice::Record(vec![12]));
        assert_eq!(chosen(&all, Some(99), false), Choice::NotThere(99));
    }

    #[test]
    fn a_launcher_alone_is_waited_for() {
        let command = |line: &str| {
            let mut one = one(&[10, 1]).busy(0.9);
            one.facts.command = line.split(' ').map(str::to_owned).collect();
            one
        };
        for line in
            ["/usr/bin/python /usr/bin/torchrun --nproc-per-node 2 t.py", "python -m torch.distributed.run t.py"]
        {
            assert_eq!(roles(&candidates(&[command(line)])), [Role::Launches], "{line}");
            assert_eq!(chosen(&[command(line)], None, true), Choice::Wait);
            // A rank may have what its launcher is called by in its own arguments.
            assert_eq!(chosen(&[command(line).rank(0)], None, true), Choice::Record(vec![10]));
        }
        assert_eq!(chosen(&[command("python train.py --like torchrun.py")], None, true), Choice::Record(vec![10]));
    }

    #[test]
    fn workers_that_load_data_help() {
        let all = [one(&[10, 1]).busy(0.9), one(&[11, 10, 1]), one(&[12, 10, 1])];
        let found = roles(&candidates(&all));
        assert_eq!(found, [Role::Trains, Role::Helps { of: 10 }, Role::Helps { of: 10 }]);
        assert_eq!(chosen(&all, None, true), Choice::Record(vec![10]));
        // Until it was watched, nothing is asked of anybody.
        assert_eq!(chosen(&[one(&[10, 1]), one(&[11, 10, 1])], None, false), Choice::Wait);
    }

    #[test]
    fn a_parent_that_waits_launches() {
        let all = [one(&[10, 1]).busy(0.0), one(&[11, 10, 1]).busy(0.9), one(&[12, 10, 1]).busy(0.9)];
        assert_eq!(chosen(&all, None, true), Choice::Record(vec![11, 12]));
        assert_eq!(chosen(&all, Some(10), false), Choice::Record(vec![11]));
        let all = [one(&[10, 1]).gpus(&[]).busy(0.5), one(&[11, 10, 1]).gpus(&[0])];
        assert_eq!(chosen(&all, None, false), Choice::Record(vec![11]));
        let all = [one(&[10, 1]).gpus(&[0, 1]).busy(0.0), one(&[11, 10, 1]).gpus(&[])];
        assert_eq!(chosen(&all, None, false), Choice::Record(vec![10]));
    }

    #[test]
    fn what_has_begun_trains() {
        let mut all = [one(&[10, 1]).busy(0.0), one(&[11, 10, 1]).busy(0.9)];
        all[0].began = true;
        assert_eq!(roles(&candidates(&all)), [Role::Trains, Role::Helps { of: 10 }]);
    }

    #[test]
    fn several_jobs_are_not_chosen_from() {
        let all = [one(&[20, 1]), one(&[10, 1])];
        assert_eq!(chosen(&all, None, false), Choice::Several(vec![vec![20], vec![10]]));
        assert_eq!(chosen(&all, Some(20), false), Choice::Record(vec![20]));
        assert_eq!(chosen(&[], None, false), Choice::Wait);
        assert_eq!(choose(&candidates(&all), Wanted { pid: None, all: false }, false), Choice::Wait);
    }

    #[test]
    fn numbers_of_another_container_are_not_compared() {
        let mut all = [one(&[10, 1]).busy(0.0), one(&[11, 10, 1])];
        all[1].facts.pid_namespace = 7;
        assert_eq!(roles(&candidates(&all)), [Role::Trains, Role::Trains]);
    }
}
