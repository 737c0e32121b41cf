//! One attach: listen, choose, ask, wait for the traces.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::align::{self, Span};
use super::daemon::{Client, Daemon, State};
use super::endpoint::{self, Endpoint, Heard};
use super::process::{self, Known};
use super::request::{self, Request};
use super::roles::{self, Candidate, Choice, Facts, Role, Wanted};
use super::{AttachError, DAEMON_VARIABLE};
use crate::capture::recording::{Process, Recorded, Recording};

/// What to attach to, and what to record.
#[derive(Debug, Clone)]
pub struct Order {
    /// The folder of the socket.
    pub folder: PathBuf,
    /// Listen at dynolog's abstract name too.
    pub at_abstract_name: bool,
    /// Whom to record.
    pub wanted: Wanted,
    /// Iterations of each window.
    pub iterations: u32,
    /// Record shapes.
    pub shapes: bool,
    /// Record Python stacks.
    pub stacks: bool,
    /// How long to listen for processes.
    pub wait: Duration,
    /// How long the traces may take, from the choice on.
    pub timeout: Duration,
}

/// What happens on the way.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// Another daemon has dynolog's abstract name.
    OtherDaemon,
    /// These are recorded.
    Chosen(Vec<u32>),
    /// A process was given the request.
    Asked(u32),
    /// A process was given it again, since it showed no effect.
    AskedAgain(u32),
    /// A process runs a profiler of its own.
    OwnProfiler(u32),
    /// A process began its trace.
    Began(u32),
    /// A process's trace is complete.
    Written(u32),
    /// The windows were of different steps; ranks are asked again, to begin at a multiple
    /// of so many iterations.
    NotAligned(u32),
    /// A rank ended.
    Gone(u32),
}

/// A process that polls, for a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its number, as we count.
    pub pid: u32,
    /// Its number, as it counts; another one in a container.
    pub own_pid: i32,
    /// What it is for.
    pub role: Role,
    /// Device number, where it told one.
    pub gpu: Option<i32>,
    /// Job of the batch system, 0 without one.
    pub job: i64,
    /// Time between its polls.
    pub interval: Option<Duration>,
    /// Whether it could not take a request at its last poll.
    pub is_busy: bool,
    /// Whether it belongs to another user, whose traces we cannot take.
    pub is_foreign: bool,
    /// What `/proc` says.
    pub facts: Facts,
}

/// A trace that was recorded.
#[derive(Debug, Clone)]
pub struct Traced {
    /// The process, as we count.
    pub pid: u32,
    /// Its rank.
    pub rank: Option<u32>,
    /// Its command line.
    pub command: Vec<String>,
    /// Device number, where it told one.
    pub gpu: Option<i32>,
    /// The trace.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Its window.
    pub span: Option<Span>,
    /// Times it was asked.
    pub asked: u32,
    /// Time between its polls.
    pub interval: Option<Duration>,
}

/// Where the time went, in seconds from the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    /// The last of the recorded processes was heard.
    pub heard: f64,
    /// The last of them was given the request.
    pub asked: f64,
    /// The first window began, where the trace tells.
    pub began: Option<f64>,
    /// The last window ended.
    pub ended: Option<f64>,
    /// The last trace was complete.
    pub written: f64,
}

/// What was recorded.
#[derive(Debug)]
pub struct Attached {
    /// The traces, the first rank first.
    pub traces: Vec<Traced>,
    /// Whether the ranks' windows are of the same steps, where there are several.
    pub aligned: Option<bool>,
    /// Tries that it took.
    pub rounds: u32,
    /// Iterations of a window.
    pub iterations: u32,
    /// Where the time went.
    pub times: Times,
    /// Ranks that ended before their traces.
    pub gone: Vec<u32>,
    /// Datagrams that were no messages.
    pub ignored: u64,
    /// Messages that could not be answered in time.
    pub stale: u64,
    /// Removed with this value.
    pub folders: Vec<tempfile::TempDir>,
}

/// Tries to bring the windows of all ranks to the same steps.
const ROUNDS: u32 = 3;
/// A process polls every 5 s unless told otherwise; a little more has heard them all.
const ONE_POLL: Duration = Duration::from_secs(6);
/// After the last new process, wait for others this long.
const QUIET: Duration = Duration::from_millis(300);
/// Within this time of a message's arrival it can be answered: the process waits 90 ms.
const ANSWER_WITHIN: Duration = Duration::from_millis(60);
/// Between looks at files and processes.
const LOOK: Duration = Duration::from_millis(100);
/// Signals that end us.
const ENDING: [i32; 3] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP];

/// Everything at work.
struct Session {
    daemon: Daemon,
    folder: PathBuf,
    endpoints: Vec<Endpoint>,
    heard: Receiver<Heard>,
    known: BTreeMap<u32, Known>,
    addresses: BTreeSet<String>,
    started: Instant,
    started_at: f64,
    newest: Instant,
    looked: Instant,
    signals: Vec<(i32, Arc<AtomicBool>)>,
}

impl Session {
    fn open(folder: &Path, at_abstract_name: bool, tell: &mut dyn FnMut(Said)) -> Result<Self, AttachError> {
        let mut endpoints = vec![Endpoint::in_folder(folder)?];
        if at_abstract_name {
            match Endpoint::at_abstract_name()? {
                Some(endpoint) => endpoints.push(endpoint),
                None => tell(Said::OtherDaemon),
            }
        }
        endpoint::sweep(folder);
        let (send, heard) = mpsc::channel();
        for (number, endpoint) in endpoints.iter().enumerate() {
            endpoint.listen(number, send.clone());
        }
        let failed = |source| AttachError::Socket { path: folder.to_owned(), source };
        let signals = ENDING
            .into_iter()
            .map(|signal| {
                let flag = Arc::new(AtomicBool::new(false));
                signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| (signal, flag))
            })
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        let now = Instant::now();
        Ok(Self {
            daemon: Daemon::default(),
            folder: folder.to_owned(),
            endpoints,
            heard,
            known: BTreeMap::new(),
            addresses: BTreeSet::new(),
            started: now,
            started_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            newest: now,
            looked: now,
            signals,
        })
    }

    /// Hears and answers for a moment; whether it is time to look around.
    fn turn(&mut self) -> Result<bool, AttachError> {
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
        if let Some((signal, _)) = self.signals.iter().find(|(_, flag)| flag.load(Ordering::Relaxed)) {
            return Err(AttachError::Interrupted { signal: *signal, waiting: None });
        }
        if !self.endpoints.iter().all(Endpoint::is_ours) {
            return Err(self.lost());
        }
        for (pid, known) in &mut self.known {
            known.look(*pid, self.looked);
        }
        Ok(true)
    }

    fn lost(&self) -> AttachError {
        AttachError::Lost { folder: self.folder.clone() }
    }

    fn hear(&mut self, heard: &Heard) {
        let is_stale = heard.is_stale || heard.at.elapsed() > ANSWER_WITHIN;
        let before = self.daemon.clients.len();
        let answer = self.daemon.hear(heard.pid, &heard.bytes, heard.at, is_stale);
        if let (Some(answer), Some(from), Some(endpoint)) = (answer, &heard.from, self.endpoints.get(heard.endpoint)) {
            endpoint.answer(from, &answer);
        }
        self.addresses.extend(heard.from.as_ref().and_then(endpoint::shown));
        if self.daemon.clients.len() > before {
            self.newest = heard.at;
            for pid in self.daemon.clients.keys() {
                self.known.entry(*pid).or_insert_with(|| Known::new(*pid, heard.uid));
            }
        }
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

    /// Whether all that will poll here have done so.
    fn is_settled(&self) -> bool {
        if self.daemon.clients.is_empty() || self.newest.elapsed() < QUIET {
            return false;
        }
        let here = format!("{}/", self.folder.display());
        let has_abstract = self.endpoints.len() > 1;
        let mut expected = endpoint::polling()
            .into_iter()
            .filter(|name| name.starts_with(&here) || (has_abstract && name.starts_with('@')));
        expected.all(|name| self.addresses.contains(&name)) || self.started.elapsed() > ONE_POLL
    }

    fn nobody(&self) -> AttachError {
        let here = format!("{}/", self.folder.display());
        AttachError::Nobody {
            seconds: self.started.elapsed().as_secs_f64(),
            elsewhere: process::with_variable(DAEMON_VARIABLE),
            polls_elsewhere: endpoint::polling().into_iter().filter(|name| !name.starts_with(&here)).collect(),
        }
    }

    fn listed(&self) -> Vec<Listed> {
        let candidates = self.candidates();
        let own = process::own_uid();
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
                    is_foreign: own.is_some_and(|own| own != 0 && one.facts.uid.is_some_and(|uid| uid != own)),
                    facts: one.facts.clone(),
                })
            })
            .collect();
        all.sort_by_key(|one| (one.facts.rendezvous.clone(), one.facts.rank, one.pid));
        all
    }

    /// Listens until it is clear whom to record.
    fn choose(&mut self, order: &Order) -> Result<Vec<u32>, AttachError> {
        loop {
            self.turn()?;
            let choice = roles::choose(&self.candidates(), order.wanted, self.is_settled());
            let is_late = self.started.elapsed() >= order.wait;
            match choice {
                Choice::Record(pids) => return Ok(pids),
                Choice::Several(jobs) => return Err(AttachError::Several { jobs: jobs.len(), listed: self.listed() }),
                Choice::NotThere(pid) if is_late || self.started.elapsed() > ONE_POLL => {
                    let runs = Path::new(&format!("/proc/{pid}")).exists();
                    return Err(AttachError::NotThere { pid, runs, listed: self.listed() });
                }
                _ if !is_late => {}
                _ if self.candidates().is_empty() => return Err(self.nobody()),
                _ => return Err(AttachError::Unclear { listed: self.listed() }),
            }
        }
    }
}

/// Lists who polls, after `order.wait` or as soon as all have done so.
///
/// # Errors
/// [`AttachError`] where nobody does.
pub fn list(order: &Order, tell: &mut dyn FnMut(Said)) -> Result<Vec<Listed>, AttachError> {
    let mut session = Session::open(&order.folder, order.at_abstract_name, tell)?;
    while session.started.elapsed() < order.wait {
        session.turn()?;
        let all = session.listed();
        if session.is_settled() && !all.iter().any(|one| one.role == Role::Unclear) {
            return Ok(all);
        }
    }
    let all = session.listed();
    if all.is_empty() { Err(session.nobody()) } else { Ok(all) }
}

/// Where a process writes its traces.
struct Place {
    /// As we see it.
    folder: PathBuf,
    /// As the process sees it.
    named: PathBuf,
    /// The process's own number.
    own_pid: i32,
}

impl Place {
    fn trace(&self, name: &str) -> PathBuf {
        request::written_by(&self.folder.join(name), self.own_pid)
    }

    /// The process writes under this name until the trace is complete (newer libkineto).
    fn unfinished(&self, name: &str) -> PathBuf {
        let mut path = self.trace(name).into_os_string();
        path.push(".tmp");
        path.into()
    }
}

/// Records.
///
/// # Errors
/// [`AttachError`], with the remedy.
pub fn attach(order: &Order, tell: &mut dyn FnMut(Said)) -> Result<Attached, AttachError> {
    let mut session = Session::open(&order.folder, order.at_abstract_name, tell)?;
    let members = session.choose(order)?;
    tell(Said::Chosen(members.clone()));
    let mut folders = Vec::new();
    let places = places(&session, &members, &mut folders)?;
    let mut work = Work { session, order, places, members, gone: Vec::new(), told: BTreeSet::new(), round: 0 };
    let done = work.record(tell);
    // Where a request may still wait, its trace must have a place to go to.
    if let Err(error) = done {
        let waits = work
            .session
            .daemon
            .clients
            .values()
            .any(|client| matches!(client.state, State::Asked { .. } | State::Began { .. }));
        let kept = folders.first().map(|folder| folder.path().to_owned()).filter(|_| waits);
        if kept.is_some() {
            for folder in &mut folders {
                folder.disable_cleanup(true);
            }
        }
        return Err(match error {
            AttachError::Interrupted { signal, .. } => AttachError::Interrupted { signal, waiting: kept },
            error => error,
        });
    }
    work.session.daemon.withdraw();
    work.finish(folders)
}

/// Makes a folder that each process can write to.
fn places(
    session: &Session,
    members: &[u32],
    folders: &mut Vec<tempfile::TempDir>,
) -> Result<BTreeMap<u32, Place>, AttachError> {
    let own = process::own_uid().unwrap_or(0);
    let mut places = BTreeMap::new();
    let mut shared: Option<PathBuf> = None;
    for pid in members {
        let (Some(known), Some(client)) = (session.known.get(pid), session.daemon.clients.get(pid)) else { continue };
        let uid = known.facts.uid.unwrap_or(own);
        if own != 0 && uid != own {
            return Err(AttachError::OtherUser { pid: *pid, uid });
        }
        let own_pid = client.lineage.first().copied().unwrap_or_default();
        let is_plain = !known.facts.is_contained && uid == own;
        let folder = if let Some(folder) = shared.clone().filter(|_| is_plain) {
            folder
        } else {
            let below = process::temporary(*pid, known.facts.is_contained);
            let failed = |source| AttachError::Traces { path: below.clone(), source };
            let made = crate::capture::private_folder(&below).map_err(failed)?;
            if uid != own {
                std::os::unix::fs::chown(made.path(), Some(uid), None).map_err(failed)?;
            }
            let folder = made.path().to_owned();
            if is_plain {
                shared = Some(folder.clone());
            }
            folders.push(made);
            folder
        };
        let named = Path::new("/tmp").join(folder.file_name().unwrap_or_default());
        places.insert(*pid, Place { folder, named, own_pid });
    }
    Ok(places)
}

/// The recording of some processes.
struct Work<'a> {
    session: Session,
    order: &'a Order,
    places: BTreeMap<u32, Place>,
    members: Vec<u32>,
    gone: Vec<u32>,
    told: BTreeSet<u32>,
    round: u32,
}

impl Work<'_> {
    fn name(&self) -> String {
        format!("trace-{}.json", self.round)
    }

    fn record(&mut self, tell: &mut dyn FnMut(Said)) -> Result<(), AttachError> {
        let deadline = Instant::now() + self.order.timeout;
        let mut round_up = if self.members.len() > 1 { align::FIRST_ROUND_UP } else { 1 };
        loop {
            self.round += 1;
            self.ask(round_up);
            let before = self.members.clone();
            match self.wait(deadline, tell) {
                Ok(()) => {}
                Err(AttachError::NotTraced { .. } | AttachError::Unfinished { .. } | AttachError::Died { .. })
                    if self.round > 1 =>
                {
                    // The traces of the try before are there.
                    (self.members, self.round) = (before, self.round - 1);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if self.members.len() < 2 || self.round == ROUNDS {
                return Ok(());
            }
            let spans = self.spans();
            let (Some(iteration), false) =
                (align::iteration_us(&spans, self.order.iterations), align::are_aligned(&spans, self.order.iterations))
            else {
                return Ok(());
            };
            round_up = align::next_round_up(round_up, self.spread(), iteration);
            tell(Said::NotAligned(round_up));
        }
    }

    /// Offers the request of this round.
    fn ask(&mut self, round_up: u32) {
        let name = self.name();
        let request = |place: &Place| Request {
            trace: place.named.join(&name),
            id: format!("habitat-tui-{}-{}", std::process::id(), self.round),
            iterations: self.order.iterations,
            shapes: self.order.shapes,
            stacks: self.order.stacks,
            round_up,
        };
        let texts = self.members.iter().filter_map(|pid| Some((*pid, request(self.places.get(pid)?).text()))).collect();
        self.session.daemon.ask(texts, Instant::now());
    }

    /// Waits until all members' traces are complete.
    fn wait(&mut self, deadline: Instant, tell: &mut dyn FnMut(Said)) -> Result<(), AttachError> {
        let began = Instant::now();
        let mut sizes: BTreeMap<u32, (u64, Instant)> = BTreeMap::new();
        let mut asked_before: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut asked_now, mut asked_again) = (BTreeSet::new(), BTreeSet::new());
        for (pid, client) in &self.session.daemon.clients {
            asked_before.insert(*pid, client.asked);
        }
        loop {
            self.session.turn()?;
            let now = Instant::now();
            for pid in self.members.clone() {
                let Some(client) = self.session.daemon.clients.get(&pid) else { continue };
                let before = asked_before.entry(pid).or_default();
                if client.asked > *before {
                    *before = client.asked;
                    match asked_now.insert(pid) {
                        true => tell(Said::Asked(pid)),
                        false if asked_again.insert(pid) => tell(Said::AskedAgain(pid)),
                        false => {}
                    }
                }
                let has_trace = self.has_begun(pid);
                let Some(client) = self.session.daemon.clients.get(&pid) else { continue };
                // Where it was asked before, it may still be at work on that.
                if client.is_busy && client.asked == 0 && self.told.insert(pid) {
                    tell(Said::OwnProfiler(pid));
                }
                if has_trace && matches!(client.state, State::Asked { .. }) {
                    self.session.daemon.began(pid, now);
                    tell(Said::Began(pid));
                }
                if has_trace && !self.is_written(pid) && self.is_complete(pid, &mut sizes, now) {
                    self.session.daemon.written(pid);
                    tell(Said::Written(pid));
                }
            }
            if self.members.iter().all(|pid| self.is_written(*pid)) {
                return Ok(());
            }
            self.leave_out_the_dead(tell)?;
            if now >= deadline {
                return Err(self.too_late(now.duration_since(began)));
            }
        }
    }

    fn has_begun(&self, pid: u32) -> bool {
        let name = self.name();
        self.places.get(&pid).is_some_and(|place| place.trace(&name).exists() || place.unfinished(&name).exists())
    }

    fn is_written(&self, pid: u32) -> bool {
        self.session.daemon.clients.get(&pid).is_some_and(|client| matches!(client.state, State::Written { .. }))
    }

    /// Whether the trace has its end and has stopped growing.
    fn is_complete(&self, pid: u32, sizes: &mut BTreeMap<u32, (u64, Instant)>, now: Instant) -> bool {
        let name = self.name();
        let Some(place) = self.places.get(&pid) else { return false };
        let Ok(length) = fs::metadata(place.trace(&name)).map(|there| there.len()) else { return false };
        let (size, since) = *sizes.entry(pid).or_insert((length, now));
        if size != length {
            sizes.insert(pid, (length, now));
            return false;
        }
        // With a name of its own until it is complete, it is complete when it has the other.
        !place.unfinished(&name).exists() && now.duration_since(since) >= LOOK && ends(&place.trace(&name))
    }

    fn leave_out_the_dead(&mut self, tell: &mut dyn FnMut(Said)) -> Result<(), AttachError> {
        let is_gone =
            |pid: &u32| !self.is_written(*pid) && self.session.known.get(pid).is_none_or(|known| !known.is_alive(*pid));
        let gone: Vec<u32> = self.members.iter().copied().filter(is_gone).collect();
        for pid in gone {
            // Its last act may have been to complete the trace.
            let name = self.name();
            if self.places.get(&pid).is_some_and(|place| ends(&place.trace(&name))) {
                self.session.daemon.written(pid);
                tell(Said::Written(pid));
                continue;
            }
            self.members.retain(|member| *member != pid);
            self.session.daemon.leave_out(pid);
            self.gone.push(pid);
            if self.members.is_empty() {
                return Err(AttachError::Died { pid });
            }
            tell(Said::Gone(pid));
        }
        Ok(())
    }

    fn too_late(&self, waited: Duration) -> AttachError {
        let seconds = waited.as_secs_f64();
        let pid = self.members.iter().copied().find(|pid| !self.is_written(*pid)).unwrap_or_default();
        let client = self.session.daemon.clients.get(&pid);
        let place = self.places.get(&pid);
        if let (Some(place), true) = (place, self.has_begun(pid)) {
            let name = self.name();
            let (done, unfinished) = (place.trace(&name), place.unfinished(&name));
            return AttachError::Unfinished { pid, path: if done.exists() { done } else { unfinished }, seconds };
        }
        AttachError::NotTraced {
            pid,
            asked: client.map_or(0, |client| client.asked),
            seconds,
            is_busy: client.is_some_and(|client| client.is_busy),
            folder: place.map_or_else(PathBuf::new, |place| place.folder.clone()),
        }
    }

    fn spans(&self) -> Vec<Span> {
        let name = self.name();
        self.members.iter().filter_map(|pid| align::span(&self.places.get(pid)?.trace(&name)).ok().flatten()).collect()
    }

    fn asked(&self) -> impl Iterator<Item = Instant> {
        self.members.iter().filter_map(|pid| match self.session.daemon.clients.get(pid)?.state {
            State::Asked { at, .. } => Some(at),
            State::Began { asked, .. } | State::Written { asked } => Some(asked),
            State::Idle => None,
        })
    }

    /// Time between the first and the last rank's request.
    fn spread(&self) -> Duration {
        match (self.asked().min(), self.asked().max()) {
            (Some(first), Some(last)) => last.duration_since(first),
            _ => Duration::ZERO,
        }
    }

    fn finish(self, folders: Vec<tempfile::TempDir>) -> Result<Attached, AttachError> {
        let name = self.name();
        let started = self.session.started;
        let since = |at: Instant| at.duration_since(started).as_secs_f64();
        let written = since(Instant::now());
        let mut traces = Vec::new();
        let mut heard = 0.0_f64;
        for pid in &self.members {
            let (Some(client), Some(known), Some(place)) =
                (self.session.daemon.clients.get(pid), self.session.known.get(pid), self.places.get(pid))
            else {
                continue;
            };
            heard = heard.max(since(client.since));
            let path = place.trace(&name);
            let failed = |source| AttachError::Traces { path: path.clone(), source };
            let bytes = fs::metadata(&path).map_err(failed)?.len();
            traces.push(Traced {
                pid: *pid,
                rank: known.facts.rank,
                command: known.facts.command.clone(),
                gpu: client.gpu,
                bytes,
                span: align::span(&path).map_err(failed)?,
                path,
                asked: client.asked,
                interval: client.interval,
            });
        }
        let spans: Vec<Span> = traces.iter().filter_map(|trace| trace.span).collect();
        let on_our_clock = |us: f64| us / 1e6 - self.session.started_at;
        let is_told = spans.len() == traces.len();
        let times = Times {
            heard,
            asked: self.asked().max().map_or(heard, since),
            began: spans.iter().map(|span| on_our_clock(span.start_us)).reduce(f64::min).filter(|_| is_told),
            ended: spans.iter().map(|span| on_our_clock(span.end_us)).reduce(f64::max).filter(|_| is_told),
            written,
        };
        Ok(Attached {
            aligned: (traces.len() > 1 && is_told).then(|| align::are_aligned(&spans, self.order.iterations)),
            traces,
            rounds: self.round,
            iterations: self.order.iterations,
            times,
            gone: self.gone,
            ignored: self.session.daemon.ignored.0,
            stale: self.session.daemon.stale,
            folders,
        })
    }
}

impl Attached {
    /// The windows in the form of those that the hook records. Ranks that the environment
    /// does not number are numbered in their order.
    pub fn recording(&self) -> Recording {
        let mut recording = Recording::default();
        let several = self.traces.len() > 1;
        let are_numbered = self.traces.iter().all(|trace| trace.rank.is_some());
        for (number, trace) in (0_u32..).zip(&self.traces) {
            let rank = if several && !are_numbered { Some(number) } else { trace.rank };
            let steps = (1, u64::from(self.iterations));
            let file = trace.path.display().to_string();
            let windows = vec![Recorded { number: 1, steps, file, bytes: trace.bytes, cuda: None }];
            recording.processes.insert(trace.pid, Process { has_torch: true, rank, windows, ..Process::default() });
        }
        recording
    }
}

/// Whether a trace has its closing brace.
fn ends(trace: &Path) -> bool {
    let tail = || -> std::io::Result<Vec<u8>> {
        let mut file = fs::File::open(trace)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(64)))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        Ok(tail)
    };
    tail().is_ok_and(|tail| tail.trim_ascii_end().ends_with(b"}"))
}
