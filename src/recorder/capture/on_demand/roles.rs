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
    pub uid: u32,
    /// Rank, from the environment it was started with.
    pub rank: Option<u32>,
    /// Where the ranks of its job meet.
    pub rendezvous: Option<String>,
    /// Ranks of its job that run on this machine, as its launcher told it.
    pub local_world_size: Option<u32>,
    /// The version of its `PyTorch`; empty where it is not known.
    pub torch: Option<String>,
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

/// From this version on a program bears that its own profiler starts while a trace on
/// demand is written. Before, it ends with "Can't disable Kineto profiler when it's not
/// running" (seen with 2.6; 2.10 and 2.11 have that check too, 2.12 warns in its place).
const BEARS_ITS_OWN: (u32, u32) = (2, 12);

impl Facts {
    /// Whether the program comes to no harm where its own profiler starts meanwhile. One
    /// whose version is not known is taken for a new one.
    pub fn bears_its_own_profiler(&self) -> bool {
        let mut parts = self.torch.as_deref().unwrap_or_default().split('.').map_while(|part| part.parse::<u32>().ok());
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => (major, minor) >= BEARS_ITS_OWN,
            _ => true,
        }
    }
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
    // A process reports its own ancestors: those of another user only on the word of root.
    if of.facts.uid != ancestor.facts.uid && of.facts.uid != 0 {
        return false;
    }
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

/// Launchers that run in Python, by the program or module that is started: `PyTorch`'s,
/// Accelerate's, `DeepSpeed`'s, Horovod's. (`mpirun` and `srun` are no Python and never poll.)
const LAUNCHERS: [&str; 12] = [
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate-launch",
    "accelerate.commands.launch",
    "accelerate launch",
    "accelerate.commands.accelerate_cli launch",
    "deepspeed",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
    "horovodrun",
    "horovod.runner.launch",
];

/// The script or module that a command runs, without its folder, and the word after it.
fn program(command: &[String]) -> Option<(&str, Option<&str>)> {
    let is_python = |word: &str| word.rsplit('/').next().is_some_and(|name| name.starts_with("python"));
    let mut words = command.iter().map(String::as_str).peekable();
    if is_python(words.peek()?) {
        words.next();
        while let Some(word) = words.peek().copied().filter(|word| word.starts_with('-')) {
            words.next();
            match word {
                "-m" => break,
                "-c" => return None,
                "-W" | "-X" => {
                    words.next();
                }
                _ => {}
            }
        }
    }
    let program = words.next()?;
    Some((program.rsplit('/').next().unwrap_or(program), words.next()))
}

/// Whether the command is one of the launchers known, and not of a rank.
fn is_launcher(facts: &Facts) -> bool {
    facts.rank.is_none()
        && program(&facts.command).is_some_and(|(program, next)| {
            let with_next = format!("{program} {}", next.unwrap_or_default());
            LAUNCHERS.iter().any(|launcher| *launcher == program || *launcher == with_next)
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
    /// These, but their launcher started more ranks on this machine than have been heard.
    Fewer {
        /// The first rank first.
        there: Vec<u32>,
        /// Ranks that it started.
        of: u32,
    },
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
    let record = |job: &[u32]| {
        if !wanted.all {
            return Choice::Record(job.iter().take(1).copied().collect());
        }
        let told = candidates.iter().filter(|one| job.contains(&one.pid)).filter_map(|one| one.facts.local_world_size);
        match told.max() {
            Some(of) if (job.len() as u64) < u64::from(of) => Choice::Fewer { there: job.to_vec(), of },
            _ => Choice::Record(job.to_vec()),
        }
    };
    let Some(pid) = wanted.pid else {
        return match jobs.as_slice() {
            [] => Choice::Wait,
            [job] => record(job),
            _ => Choice::Several(jobs),
        };
    };
    let named = candidates.iter().zip(&roles).find(|(one, _)| one.pid == pid);
    let own_job = jobs.iter().find(|job| job.contains(&pid));
    match (named, own_job) {
        (Some(_), Some(job)) if wanted.all => record(job),
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
                [job] => record(job),
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
        for line in [
            "/usr/bin/python /usr/bin/torchrun --nproc-per-node 2 t.py",
            "python -m torch.distributed.run t.py",
            "python3.11 -u -X dev -m torch.distributed.launch t.py",
            "/usr/bin/python /usr/bin/accelerate launch t.py",
            "/usr/bin/python /usr/bin/accelerate-launch t.py",
            "python -m accelerate.commands.launch t.py",
            "/usr/bin/python3 /usr/bin/deepspeed --num_gpus 2 t.py",
            "/usr/bin/python3 -u -m deepspeed.launcher.launch --world_info=e30 t.py",
            "/usr/bin/python /usr/bin/horovodrun -np 2 python t.py",
        ] {
            assert_eq!(roles(&candidates(&[command(line)])), [Role::Launches], "{line}");
            assert_eq!(chosen(&[command(line)], None, true), Choice::Wait);
            // A rank may have what its launcher is called by in its own arguments.
            assert_eq!(chosen(&[command(line).rank(0)], None, true), Choice::Record(vec![10]));
        }
        for line in [
            "python train.py --like torchrun.py",
            "python train.py --strategy deepspeed",
            "python -c deepspeed",
            "python -m accelerate.commands.test",
            "python",
            "",
        ] {
            assert_eq!(chosen(&[command(line)], None, true), Choice::Record(vec![10]), "{line}");
        }
    }

    #[test]
    fn ranks_that_are_still_coming_up_are_waited_for_with_all() {
        let of = |one: One, size: u32| {
            let rank = one.lineage[0].unsigned_abs() - 11;
            let mut one = one.rank(rank);
            one.facts.local_world_size = Some(size);
            one
        };
        let mut all = vec![one(&[10, 1]), of(one(&[12, 10, 1]), 3), of(one(&[11, 10, 1]), 3)];
        assert_eq!(chosen(&all, None, true), Choice::Fewer { there: vec![11, 12], of: 3 });
        assert_eq!(chosen(&all, Some(10), true), Choice::Fewer { there: vec![11, 12], of: 3 });
        assert_eq!(chosen(&all, Some(11), true), Choice::Fewer { there: vec![11, 12], of: 3 });
        assert_eq!(chosen(&all, None, false), Choice::Record(vec![11]), "one is enough without --all");
        all.push(of(one(&[13, 10, 1]), 3));
        // A rank's worker inherits its variables and is no rank.
        all.push(of(one(&[14, 13, 10, 1]), 3));
        all[4].facts.rank = Some(2);
        assert_eq!(chosen(&all, None, true), Choice::Record(vec![11, 12, 13]));
    }

    #[test]
    fn what_bears_its_own_profiler() {
        let bears =
            |version: &str| Facts { torch: Some(version.to_owned()), ..Facts::default() }.bears_its_own_profiler();
        assert!(bears("2.12.0+cpu") && bears("2.15.0") && bears("3.0.1") && bears("") && bears("main"));
        assert!(!bears("2.6.0+cu124") && !bears("2.11.1") && !bears("1.13.1") && !bears("2.9.0a0+git1"));
        assert!(Facts::default().bears_its_own_profiler());
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
    fn another_users_word_makes_no_ancestor() {
        let mut stranger = one(&[9, 7]).rank(0);
        stranger.facts.uid = 1000;
        assert_eq!(chosen(&[one(&[7, 1]).busy(0.9), stranger], Some(7), false), Choice::Record(vec![7]));
        let mut root = one(&[9, 7]).rank(0);
        let mut launcher = one(&[7, 1]);
        (root.facts.uid, launcher.facts.uid) = (0, 1000);
        assert_eq!(chosen(&[launcher, root], None, false), Choice::Record(vec![9]));
    }

    #[test]
    fn numbers_of_another_container_are_not_compared() {
        let mut all = [one(&[10, 1]).busy(0.0), one(&[11, 10, 1])];
        all[1].facts.pid_namespace = 7;
        assert_eq!(roles(&candidates(&all)), [Role::Trains, Role::Trains]);
    }
}
