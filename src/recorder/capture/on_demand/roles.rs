//! Determines which of the polling processes trains.
//!
//! Every process that imports `PyTorch` polls: the training process, but also its launcher and its data loader workers.
//! Launchers and workers make no steps, so a request to them would wait forever. The criteria, in this order:
//!
//! 1. a process that has started a recording trains;
//! 2. a rank in the environment: launchers set ranks for their children, and workers inherit the rank of their parent;
//! 3. an open GPU;
//! 4. processor time: a launcher waits for its children, a training process works.
//!
//! A launcher polls before its children do; then its command identifies it.

/// Facts about a polling process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// Program and arguments; empty if unreadable.
    pub command: Vec<String>,
    /// User id.
    pub uid: u32,
    /// Rank, from the environment it was started with.
    pub rank: Option<u32>,
    /// Rendezvous of the ranks of its job.
    pub rendezvous: Option<String>,
    /// Number of ranks of its job on this machine, as set by its launcher.
    pub local_world_size: Option<u32>,
    /// Version of its `PyTorch`; empty if unknown.
    pub torch: Option<String>,
    /// GPUs that it has open, by the driver's numbers; `None` if unreadable.
    pub gpus: Option<Vec<u32>>,
    /// Processor time relative to wall time, 1 for a busy core; `None` until observed for long enough.
    pub cpu_share: Option<f64>,
    /// Process namespace.
    pub pid_namespace: u64,
    /// Whether it has another file system view than we (a container).
    pub is_contained: bool,
}

/// First version in which starting its own profiler while an on-demand trace is written does not crash the program.
/// Older ones end with "Can't disable Kineto profiler when it's not running" (observed with 2.6; 2.10 and 2.11 have
/// that check too, 2.12 only warns).
const SAFE_WITH_OWN_PROFILER: (u32, u32) = (2, 12);

impl Facts {
    /// Whether starting its own profiler during a recording does not crash the program. Assumes so if the version is
    /// unknown.
    pub fn bears_its_own_profiler(&self) -> bool {
        let mut parts = self.torch.as_deref().unwrap_or_default().split('.').map_while(|part| part.parse::<u32>().ok());
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => (major, minor) >= SAFE_WITH_OWN_PROFILER,
            _ => true,
        }
    }
}

/// A polling process.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Process id in our namespace.
    pub pid: u32,
    /// Ids of the process, its parent and so on, in its own namespace.
    pub lineage: &'a [i32],
    /// Whether it has started a recording.
    pub began: bool,
    /// Facts about it.
    pub facts: &'a Facts,
}

/// Role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It trains; also the default without evidence.
    Trains,
    /// It started training processes and waits for them.
    Launches,
    /// It works for a training process.
    Helps {
        /// The training process.
        of: u32,
    },
    /// Not known yet.
    Unclear,
}

/// Share of a core below which a process counts as waiting: torchrun, which checks its children ten times per second,
/// takes 0.5 %.
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
    // A process reports its own ancestors; claims about another user's processes count only from root.
    if of.facts.uid != ancestor.facts.uid && of.facts.uid != 0 {
        return false;
    }
    ancestor.facts.pid_namespace == of.facts.pid_namespace && of.lineage.iter().skip(1).any(|pid| pid == own)
}

/// Relation of a process to one of its descendants.
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

/// Launchers that run in Python, by program or module: `PyTorch`'s, Accelerate's, `DeepSpeed`'s, Horovod's. (`mpirun`
/// and `srun` are not Python programs and never poll.)
const LAUNCHERS: &str = "torchrun, torch.distributed.run, torch.distributed.launch, accelerate-launch, accelerate.commands.launch, \
     accelerate launch, accelerate.commands.accelerate_cli launch, deepspeed, deepspeed.launcher.runner, \
     deepspeed.launcher.launch, horovodrun, horovod.runner.launch";

/// Script or module that a command runs, without its folder, and the word after it.
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

/// Whether the command is a known launcher and not a rank.
fn is_launcher(facts: &Facts) -> bool {
    facts.rank.is_none()
        && program(&facts.command).is_some_and(|(program, next)| {
            let with_next = format!("{program} {}", next.unwrap_or_default());
            LAUNCHERS.split(", ").any(|launcher| launcher == program || launcher == with_next)
        })
}

/// Role of each candidate, in their order.
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

/// Processes to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// This process, or its descendants.
    pub pid: Option<u32>,
    /// All ranks of the job instead of only the first.
    pub all: bool,
}

/// Result of the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Record these, the first rank first.
    Record(Vec<u32>),
    /// Record these, although their launcher started more ranks on this machine than have polled.
    Fewer {
        /// Processes that polled, the first rank first.
        there: Vec<u32>,
        /// Number of ranks that it started.
        of: u32,
    },
    /// Not known yet.
    Wait,
    /// Neither the named process nor any of its descendants polls.
    NotThere(u32),
    /// There are several jobs: one list of processes per job.
    Several(Vec<Vec<u32>>),
}

/// Training processes by job, the first rank first.
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

/// Chooses processes. `is_settled` means that all processes that will poll have done so.
pub fn choose(candidates: &[Candidate<'_>], wanted: Selection, is_settled: bool) -> Choice {
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
        // The user named a process that looks like a worker of another: trust the user.
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
        choose(&candidates(all), Selection { pid, all: every }, true)
    }

    #[test]
    fn a_launcher_is_told_by_the_ranks_of_what_it_started() {
        let all = [one(&[10, 1]), one(&[12, 10, 1]).rank(1), one(&[11, 10, 1]).rank(0), one(&[13, 11, 10, 1]).rank(0)];
        let found = roles(&candidates(&all));
        assert_eq!(found, [Role::Launches, Role::Trains, Role::Trains, Role::Helps { of: 11 }]);
        assert_eq!(chosen(&all, None, false), Choice::Record(vec![11]));
        assert_eq!(chosen(&all, None, true), Choice::Record(vec![11, 12]));
        // Naming the launcher means its children, and so does naming the shell above it.
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
            // A rank may have a launcher's name in its own arguments.
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
        // A rank's worker inherits its variables but is not a rank.
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
        // Until the parent was observed, no process is chosen.
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
        assert_eq!(choose(&candidates(&all), Selection { pid: None, all: false }, false), Choice::Wait);
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
