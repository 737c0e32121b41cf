//! Session of an attach: listens, chooses, sends requests, waits for the traces.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::client::{Client, State};
use super::daemon::Daemon;
use super::endpoint::{self, Datagram, Endpoint};
use super::error::{AttachError, Listed, ProcessInfo};
use super::options::{AttachEvent, AttachOptions};
use super::process::{self, DAEMON_VARIABLE, Known, Started};
use super::roles::{self, Candidate, Choice, Role};
use super::starting::Starting;
use super::wire::WireError;
use crate::capture::signals::Signals;

/// Time after which all processes have polled: they poll every 5 s by default, plus a margin.
const ONE_POLL: Duration = Duration::from_secs(6);
/// Maximum total wait while new processes keep appearing, as a multiple of the wait for one.
const LONGEST_WAIT: u32 = 5;
/// Wait after the last new process for more to appear.
const QUIET: Duration = Duration::from_millis(300);
/// Time after arrival within which a message can be answered: the process waits 90 ms.
const ANSWER_WITHIN: Duration = Duration::from_millis(60);
/// Number of queued messages; further ones wait in the sending process.
const WAITING: usize = 256;
/// Maximum number of processes of other users kept for the list.
const MOST_FOREIGN: usize = 64;
/// Maximum number of sender names kept.
const MOST_ADDRESSES: usize = 10_000;
/// Interval between checks of files and processes.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// State of an attach.
pub(super) struct Session {
    pub(super) daemon: Daemon,
    folder: PathBuf,
    at_abstract_name: bool,
    /// Empty while it is not safe to listen.
    endpoints: Vec<Endpoint>,
    /// Start of listening, if active.
    listening: Option<Instant>,
    starting: Starting,
    /// The process that currently keeps us from listening.
    held_back: Option<u32>,
    told: BTreeSet<u32>,
    hear: SyncSender<Datagram>,
    heard: Receiver<Datagram>,
    pub(super) known: BTreeMap<u32, Known>,
    addresses: BTreeSet<String>,
    pub(super) started: Instant,
    /// The same, in seconds since 1970.
    pub(super) started_at: f64,
    newest: Instant,
    looked: Instant,
    signals: Signals,
    own_uid: Option<u32>,
}

impl Session {
    pub(super) fn open(
        folder: &Path,
        at_abstract_name: bool,
        report: &mut dyn FnMut(AttachEvent),
    ) -> Result<Self, AttachError> {
        let (hear, heard) = mpsc::sync_channel(WAITING);
        let failed = |source| AttachError::Socket { path: folder.to_owned(), source };
        let signals = Signals::watch().map_err(failed)?;
        let now = Instant::now();
        let mut session = Self {
            daemon: Daemon::default(),
            folder: folder.to_owned(),
            at_abstract_name,
            endpoints: Vec::new(),
            listening: None,
            starting: Starting::default(),
            held_back: None,
            told: BTreeSet::new(),
            hear,
            heard,
            known: BTreeMap::new(),
            addresses: BTreeSet::new(),
            started: now,
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            newest: now,
            looked: now,
            signals,
            own_uid: process::own_uid(),
        };
        session.look_out(report)?;
        Ok(session)
    }

    /// Starts listening if that is safe, and stops if it is not.
    fn look_out(&mut self, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        self.held_back = self.starting.look(&self.folder, self.at_abstract_name, self.looked);
        if let Some(pid) = self.held_back {
            self.endpoints.clear();
            self.listening = None;
            if self.told.insert(pid) {
                report(AttachEvent::Starting(pid));
            }
        } else if self.endpoints.is_empty() {
            self.endpoints.push(Endpoint::in_folder(&self.folder)?);
            if self.at_abstract_name {
                match Endpoint::at_abstract_name()? {
                    Some(endpoint) => self.endpoints.push(endpoint),
                    None => report(AttachEvent::OtherDaemon),
                }
            }
            endpoint::sweep(&self.folder);
            for (number, endpoint) in self.endpoints.iter().enumerate() {
                endpoint.listen(number, self.hear.clone());
            }
            (self.listening, self.newest) = (Some(self.looked), self.looked);
        }
        Ok(())
    }

    /// Handles messages for a moment, then checks signals, sockets and processes.
    pub(super) fn turn(&mut self, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        let until = Instant::now() + LOOK;
        loop {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(heard) => self.hear(&heard),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
            if self.looked.elapsed() >= LOOK {
                break;
            }
        }
        self.looked = Instant::now();
        if let Some(signal) = self.signals.came() {
            return Err(AttachError::Interrupted { signal, waiting: None });
        }
        if !self.endpoints.iter().all(Endpoint::is_ours) {
            return Err(self.lost());
        }
        for (pid, known) in &mut self.known {
            known.look(*pid, self.looked);
        }
        self.look_out(report)
    }

    fn lost(&self) -> AttachError {
        AttachError::Lost { folder: self.folder.clone() }
    }

    fn hear(&mut self, heard: &Datagram) {
        let Some(sender) = &heard.sender else { return self.daemon.ignore(WireError::Anonymous) };
        let is_foreign = self.is_foreign(sender.uid);
        let is_new = !self.daemon.clients.contains_key(&sender.pid);
        if is_foreign && is_new {
            let foreign = self.known.values().filter(|known| self.is_foreign(known.facts.uid)).count();
            if foreign >= MOST_FOREIGN {
                return;
            }
        }
        let is_stale = heard.is_stale || heard.at.elapsed() > ANSWER_WITHIN;
        let answer = self.daemon.hear(sender.pid, &heard.bytes, heard.at, is_stale);
        if let (Some(answer), Some(endpoint)) = (answer, self.endpoints.get(heard.endpoint)) {
            endpoint.answer(&sender.address, &answer);
        }
        if self.addresses.len() < MOST_ADDRESSES {
            self.addresses.extend(endpoint::shown(&sender.address));
        }
        if is_new && self.daemon.clients.contains_key(&sender.pid) {
            self.known.insert(sender.pid, Known::new(sender.pid, sender.uid));
            // Another user's process must not make us wait for more.
            if !is_foreign {
                self.newest = heard.at;
            }
        }
    }

    /// Whether this is another user, whose processes we cannot record; root can record all.
    fn is_foreign(&self, uid: u32) -> bool {
        self.own_uid.is_some_and(|own| own != 0 && own != uid)
    }

    fn candidates(&self) -> Vec<Candidate<'_>> {
        let began = |client: &Client| matches!(client.state, State::Began { .. } | State::Written { .. });
        self.daemon
            .clients
            .iter()
            .filter_map(|(pid, client)| {
                let known = self.known.get(pid)?;
                let facts = &known.facts;
                let candidate = Candidate { pid: *pid, lineage: &client.lineage, began: began(client), facts };
                known.is_alive(*pid).then_some(candidate)
            })
            .collect()
    }

    /// Processes to choose from. Another user's process counts only if it is named, because any user can send messages
    /// that make it look like a job, or like a part of ours.
    fn recordable(&self, named: Option<u32>) -> Vec<Candidate<'_>> {
        let mut all = self.candidates();
        all.retain(|one| named == Some(one.pid) || !self.is_foreign(one.facts.uid));
        all
    }

    /// Whether all processes that will poll here have done so.
    fn is_settled(&self) -> bool {
        let Some(listening) = self.listening else { return false };
        if self.daemon.clients.is_empty() || self.newest.elapsed() < QUIET {
            return false;
        }
        let here = format!("{}/", self.folder.display());
        let has_abstract = self.endpoints.len() > 1;
        let mut expected = endpoint::polling()
            .into_iter()
            .filter(|name| name.starts_with(&here) || (has_abstract && name.starts_with('@')));
        expected.all(|name| self.addresses.contains(&name)) || listening.elapsed() > ONE_POLL
    }

    fn nobody(&self) -> AttachError {
        if let Some(pid) = self.held_back {
            return AttachError::Starting { seen: seen(pid), seconds: self.started.elapsed().as_secs_f64() };
        }
        let here = format!("{}/", self.folder.display());
        AttachError::Nobody {
            seconds: self.started.elapsed().as_secs_f64(),
            started: process::with_variable(DAEMON_VARIABLE).into_iter().map(seen).collect(),
            polls_elsewhere: endpoint::polling().into_iter().filter(|name| !name.starts_with(&here)).collect(),
        }
    }

    fn listed(&self) -> Vec<Listed> {
        let candidates = self.candidates();
        let mut all: Vec<Listed> = candidates
            .iter()
            .zip(roles::roles(&candidates))
            .filter_map(|(one, role)| {
                let client = self.daemon.clients.get(&one.pid)?;
                Some(Listed {
                    pid: one.pid,
                    own_pid: client.lineage.first().copied().unwrap_or_default(),
                    role,
                    gpu: client.gpu,
                    job: client.job,
                    interval: client.interval,
                    is_busy: client.is_busy,
                    is_foreign: self.is_foreign(one.facts.uid),
                    facts: one.facts.clone(),
                })
            })
            .collect();
        all.sort_by_key(|one| (one.facts.rendezvous.clone(), one.facts.rank, one.pid));
        all
    }

    /// Whether the time for listening is over. It restarts with each new process, because a starting job takes its
    /// time.
    fn is_late(&self, wait: Duration) -> bool {
        (self.listening.is_some() && self.newest.elapsed() >= wait) || self.started.elapsed() >= LONGEST_WAIT * wait
    }

    /// Listens until the choice is clear.
    pub(super) fn choose(
        &mut self,
        options: &AttachOptions,
        report: &mut dyn FnMut(AttachEvent),
    ) -> Result<Vec<u32>, AttachError> {
        if let Some(pid) = options.wanted.pid {
            check(pid, options)?;
        }
        loop {
            self.turn(report)?;
            let choice = roles::choose(&self.recordable(options.wanted.pid), options.wanted, self.is_settled());
            let is_late = self.is_late(options.wait);
            match choice {
                Choice::Record(pids) => return Ok(pids),
                Choice::Fewer { there, of } if is_late => {
                    report(AttachEvent::Fewer(there.len(), of));
                    return Ok(there);
                }
                Choice::Several(jobs) => return Err(AttachError::Several { jobs: jobs.len(), listed: self.listed() }),
                Choice::NotThere(pid) if !process::runs(pid) => return Err(AttachError::NoSuchProcess { pid }),
                _ if !is_late => {}
                _ if self.held_back.is_some() => return Err(self.nobody()),
                Choice::NotThere(pid) => return Err(self.not_there(pid)),
                _ if self.recordable(options.wanted.pid).is_empty() => {
                    return Err(options.wanted.pid.map_or_else(|| self.nobody(), |pid| self.not_there(pid)));
                }
                _ => return Err(self.unclear()),
            }
        }
    }

    fn not_there(&self, pid: u32) -> AttachError {
        if !process::runs(pid) {
            return AttachError::NoSuchProcess { pid };
        }
        let torch = process::tree(pid).into_iter().find_map(process::torch);
        let seconds = self.started.elapsed().as_secs_f64();
        AttachError::NotThere { seen: ProcessInfo { torch, ..seen(pid) }, seconds, listed: self.listed() }
    }

    fn unclear(&self) -> AttachError {
        let listed = self.listed();
        if listed.iter().all(|one| one.role == Role::Launches) {
            return AttachError::Launching { seconds: self.started.elapsed().as_secs_f64(), listed };
        }
        AttachError::Unclear { listed }
    }
}

fn seen(pid: u32) -> ProcessInfo {
    ProcessInfo { pid, command: process::command(pid), torch: process::torch(pid) }
}

/// Checks the named process before listening.
fn check(pid: u32, options: &AttachOptions) -> Result<(), AttachError> {
    if !process::runs(pid) {
        return Err(AttachError::NoSuchProcess { pid });
    }
    match process::started(pid) {
        Started::Unknown => Ok(()),
        Started::With(folder) => {
            // In a container the folder has another path.
            if process::meets(pid, &options.folder, options.at_abstract_name) || process::is_contained(pid) {
                return Ok(());
            }
            Err(AttachError::Elsewhere { seen: seen(pid), folder })
        }
        Started::Without => {
            let inodes = endpoint::polling_inodes();
            // It may have set the variable itself, and the named process may be a shell or a launcher.
            let may_poll =
                |pid: &u32| process::started(*pid) != Started::Without || !process::sockets(*pid, &inodes).is_empty();
            if process::tree(pid).iter().any(may_poll) {
                return Ok(());
            }
            Err(AttachError::NotStarted { seen: seen(pid) })
        }
    }
}

/// Lists polling processes, after `options.wait` or as soon as all have polled.
///
/// # Errors
/// [`AttachError`] if there are none.
pub fn list(options: &AttachOptions, report: &mut dyn FnMut(AttachEvent)) -> Result<Vec<Listed>, AttachError> {
    let mut session = Session::open(&options.folder, options.at_abstract_name, report)?;
    while session.listening.is_none_or(|since| since.elapsed() < options.wait)
        && session.started.elapsed() < LONGEST_WAIT * options.wait
    {
        session.turn(report)?;
        let all = session.listed();
        if session.is_settled() && !all.iter().any(|one| one.role == Role::Unclear) {
            return Ok(all);
        }
    }
    let all = session.listed();
    if all.is_empty() { Err(session.nobody()) } else { Ok(all) }
}
