//! The recording: sends requests, waits for the traces, and repeats for ranks that recorded different steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::align::{self, Span};
use super::attached::{Attached, Times, Traced};
use super::client::State;
use super::daemon::Member;
use super::error::AttachError;
use super::options::{AttachEvent, AttachOptions};
use super::request::Request;
use super::session::{LOOK, Session};
use super::trace_folder::{self, TraceFolder};
use crate::capture::folder::Folder;

/// Maximum number of tries to align the windows of all ranks.
const ROUNDS: u32 = 3;
/// Maximum number of traces that a process may start per round if each is cut off. Each costs the job a recording.
const TRIES: u32 = 5;

/// Records.
///
/// # Errors
/// [`AttachError`] with the remedy.
pub fn attach(options: &AttachOptions, report: &mut dyn FnMut(AttachEvent)) -> Result<Attached, AttachError> {
    let mut session = Session::open(&options.folder, options.at_abstract_name, report)?;
    let members = session.choose(options, report)?;
    report(AttachEvent::Chosen(members.clone()));
    let mut folders = Vec::new();
    let places = trace_folder::places(&session.known, &session.daemon.clients, &members, &mut folders)?;
    let mut work = Work::new(session, options, places, members);
    let done = work.record(report);
    // If a request may still be pending, keep the folder for its trace.
    if let Err(error) = done {
        let waits = work
            .session
            .daemon
            .clients
            .values()
            .any(|client| client.asked > 0 && !matches!(client.state, State::Idle | State::Written { .. }));
        let kept = folders.first().map(|folder| folder.path().to_owned()).filter(|_| waits);
        if kept.is_some() {
            folders.iter_mut().for_each(Folder::keep);
        }
        return Err(match error {
            AttachError::Interrupted { signal, .. } => AttachError::Interrupted { signal, waiting: kept },
            AttachError::Profiles { pid, version, .. } => AttachError::Profiles { pid, version, waiting: kept },
            error => error,
        });
    }
    work.session.daemon.withdraw();
    work.finish(folders)
}

/// The recording of some processes.
struct Work<'a> {
    session: Session,
    options: &'a AttachOptions,
    places: BTreeMap<u32, TraceFolder>,
    members: Vec<u32>,
    gone: Vec<u32>,
    told: BTreeSet<u32>,
    round: u32,
    /// Complete traces of this round.
    traces: BTreeMap<u32, PathBuf>,
}

/// Name of the trace for a try; each cut-off trace leads to another try.
fn name(round: u32, try_number: u32) -> String {
    match try_number {
        0 => format!("trace-{round}.json"),
        _ => format!("trace-{round}-{}.json", try_number + 1),
    }
}

/// Progress of a round, by process.
#[derive(Default)]
struct Watch {
    /// Size of each trace, and since when it has that size.
    sizes: BTreeMap<PathBuf, (u64, Instant)>,
    /// Number of requests and of cut-off traces at the last check.
    before: BTreeMap<u32, (u32, u32)>,
    asked: BTreeSet<u32>,
    asked_again: BTreeSet<u32>,
}

impl<'a> Work<'a> {
    fn new(
        session: Session,
        options: &'a AttachOptions,
        places: BTreeMap<u32, TraceFolder>,
        members: Vec<u32>,
    ) -> Self {
        Self {
            session,
            options,
            places,
            members,
            gone: Vec::new(),
            told: BTreeSet::new(),
            round: 0,
            traces: BTreeMap::new(),
        }
    }

    fn record(&mut self, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        let deadline = Instant::now() + self.options.timeout;
        let mut round_up = if self.members.len() > 1 { align::FIRST_ROUND_UP } else { 1 };
        loop {
            self.round += 1;
            self.ask(round_up);
            let before = (self.members.clone(), self.round - 1, std::mem::take(&mut self.traces));
            match self.wait(deadline, report) {
                Ok(()) => {}
                Err(
                    AttachError::NotTraced { .. }
                    | AttachError::Unfinished { .. }
                    | AttachError::CutOff { .. }
                    | AttachError::Profiles { .. }
                    | AttachError::Died { .. },
                ) if self.round > 1 => {
                    // Keep the traces of the previous try.
                    (self.members, self.round, self.traces) = before;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            if self.members.len() < 2 || self.round == ROUNDS {
                return Ok(());
            }
            let spans = self.spans();
            let (Some(iteration), false) = (
                align::iteration_us(&spans, self.options.iterations),
                align::are_aligned(&spans, self.options.iterations),
            ) else {
                return Ok(());
            };
            round_up = align::next_round_up(round_up, self.spread(), iteration);
            report(AttachEvent::NotAligned(round_up));
        }
    }

    /// Offers the request of this round.
    fn ask(&mut self, round_up: u32) {
        let request = |place: &TraceFolder, try_number: u32| Request {
            trace: place.named.join(name(self.round, try_number)),
            id: format!("habitat-tui-{}-{}-{try_number}", std::process::id(), self.round),
            iterations: self.options.iterations,
            shapes: self.options.shapes,
            stacks: self.options.stacks,
            round_up,
        };
        let member = |pid: &u32| {
            let place = self.places.get(pid)?;
            let after_its_own = self.session.known.get(pid)?.facts.bears_its_own_profiler();
            let texts = (0..TRIES).map(|try_number| request(place, try_number).text()).collect();
            Some((*pid, Member { texts, after_its_own }))
        };
        let members = self.members.iter().filter_map(member).collect();
        self.session.daemon.ask(members, Instant::now());
    }

    /// Waits until all members' traces are complete.
    fn wait(&mut self, deadline: Instant, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        let began = Instant::now();
        let mut watch = Watch::default();
        for (pid, client) in &self.session.daemon.clients {
            watch.before.insert(*pid, (client.asked, client.cut_off));
        }
        loop {
            for pid in self.members.clone() {
                self.look(pid, &mut watch, report)?;
            }
            if self.members.iter().all(|pid| self.is_written(*pid)) {
                return Ok(());
            }
            self.leave_out_the_dead(report)?;
            let now = Instant::now();
            if now >= deadline {
                return Err(self.too_late(now.duration_since(began)));
            }
            self.session.turn(report)?;
        }
    }

    /// Checks the progress of a process's request.
    fn look(&mut self, pid: u32, watch: &mut Watch, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        let Some(client) = self.session.daemon.clients.get(&pid) else { return Ok(()) };
        let (asked, cut_off) =
            watch.before.insert(pid, (client.asked, client.cut_off)).unwrap_or((client.asked, client.cut_off));
        if client.asked > asked {
            match watch.asked.insert(pid) {
                true => report(AttachEvent::Asked(pid)),
                false if client.cut_off > cut_off => report(AttachEvent::CutOff(pid)),
                false if watch.asked_again.insert(pid) => report(AttachEvent::AskedAgain(pid)),
                false => {}
            }
        }
        // After an earlier request, it may still be busy with that.
        if client.is_busy && client.asked == 0 && self.told.insert(pid) {
            report(AttachEvent::OwnProfiler(pid));
        }
        let is_asked = matches!(client.state, State::Asked { .. });
        if is_asked && self.has_begun(pid) {
            self.session.daemon.began(pid);
            report(AttachEvent::Began(pid));
        }
        if !self.is_written(pid)
            && let Some(trace) = self.complete(pid, watch, Instant::now())
        {
            self.traces.insert(pid, trace);
            self.session.daemon.written(pid);
            report(AttachEvent::Written(pid));
        }
        self.has_failed(pid).map_or(Ok(()), Err)
    }

    /// Reason why a process will not deliver a trace, if any.
    fn has_failed(&self, pid: u32) -> Option<AttachError> {
        let client = self.session.daemon.clients.get(&pid)?;
        let facts = &self.session.known.get(&pid)?.facts;
        if client.state == State::GivenUp {
            return Some(AttachError::CutOff { pid, tries: TRIES });
        }
        let is_first = client.was_busy_unasked && client.asked == 0 && !facts.bears_its_own_profiler();
        (is_first || client.state == State::Yielded).then(|| AttachError::Profiles {
            pid,
            version: facts.torch.clone().unwrap_or_default(),
            waiting: None,
        })
    }

    /// Names of traces that a process may have started in this round, latest first.
    fn names(&self, pid: u32) -> impl Iterator<Item = String> {
        let last = self.session.daemon.clients.get(&pid).map_or(0, |client| client.cut_off);
        let round = self.round;
        (0..=last).rev().map(move |try_number| name(round, try_number))
    }

    /// Whether its latest requested trace exists.
    fn has_begun(&self, pid: u32) -> bool {
        let (Some(place), Some(name)) = (self.places.get(&pid), self.names(pid).next()) else { return false };
        place.trace(&name).exists() || place.unfinished(&name).exists()
    }

    fn is_written(&self, pid: u32) -> bool {
        self.session.daemon.clients.get(&pid).is_some_and(|client| matches!(client.state, State::Written { .. }))
    }

    /// A trace of the process that has its end and has stopped growing, including one that was considered cut off.
    fn complete(&self, pid: u32, watch: &mut Watch, now: Instant) -> Option<PathBuf> {
        let place = self.places.get(&pid)?;
        self.names(pid).find_map(|name| {
            let trace = place.trace(&name);
            let length = fs::metadata(&trace).ok()?.len();
            let (size, since) = *watch.sizes.entry(trace.clone()).or_insert((length, now));
            if size != length {
                watch.sizes.insert(trace, (length, now));
                return None;
            }
            // A trace with a temporary name is complete once it has its final name.
            let is_still = !place.unfinished(&name).exists() && now.duration_since(since) >= LOOK;
            (is_still && trace_folder::ends(&trace)).then_some(trace)
        })
    }

    fn leave_out_the_dead(&mut self, report: &mut dyn FnMut(AttachEvent)) -> Result<(), AttachError> {
        let is_gone =
            |pid: &u32| !self.is_written(*pid) && self.session.known.get(pid).is_none_or(|known| !known.is_alive(*pid));
        let gone: Vec<u32> = self.members.iter().copied().filter(is_gone).collect();
        for pid in gone {
            // It may have completed the trace just before it ended.
            let at_last = self.places.get(&pid).and_then(|place| {
                self.names(pid).map(|name| place.trace(&name)).find(|trace| trace_folder::ends(trace))
            });
            if let Some(trace) = at_last {
                self.traces.insert(pid, trace);
                self.session.daemon.written(pid);
                report(AttachEvent::Written(pid));
                continue;
            }
            self.members.retain(|member| *member != pid);
            self.session.daemon.leave_out(pid);
            self.gone.push(pid);
            if self.members.is_empty() {
                return Err(AttachError::Died { pid });
            }
            report(AttachEvent::Gone(pid));
        }
        Ok(())
    }

    fn too_late(&self, waited: Duration) -> AttachError {
        let seconds = waited.as_secs_f64();
        let pid = self.members.iter().copied().find(|pid| !self.is_written(*pid)).unwrap_or_default();
        let client = self.session.daemon.clients.get(&pid);
        if self.has_begun(pid) {
            return AttachError::Unfinished { pid, seconds };
        }
        AttachError::NotTraced {
            pid,
            asked: client.map_or(0, |client| client.asked),
            seconds,
            is_busy: client.is_some_and(|client| client.is_busy),
            folder: self.places.get(&pid).map_or_else(PathBuf::new, |place| place.folder.clone()),
        }
    }

    fn spans(&self) -> Vec<Span> {
        self.members.iter().filter_map(|pid| align::span(self.traces.get(pid)?).ok().flatten()).collect()
    }

    fn asked(&self) -> impl Iterator<Item = Instant> {
        self.members.iter().filter_map(|pid| match self.session.daemon.clients.get(pid)?.state {
            State::Asked { at, .. } => Some(at),
            State::Began { asked, .. } | State::Written { asked } => Some(asked),
            State::Idle | State::Yielded | State::GivenUp => None,
        })
    }

    /// Time between the first and the last rank's request.
    fn spread(&self) -> Duration {
        match (self.asked().min(), self.asked().max()) {
            (Some(first), Some(last)) => last.duration_since(first),
            _ => Duration::ZERO,
        }
    }

    fn finish(self, folders: Vec<Folder>) -> Result<Attached, AttachError> {
        let started = self.session.started;
        let since = |at: Instant| at.duration_since(started).as_secs_f64();
        let written = since(Instant::now());
        let mut traces = Vec::new();
        let mut heard = 0.0_f64;
        for pid in &self.members {
            let (Some(client), Some(known)) = (self.session.daemon.clients.get(pid), self.session.known.get(pid))
            else {
                continue;
            };
            heard = heard.max(since(client.since));
            let failed = |source| AttachError::Unreadable { pid: *pid, source };
            let path = self.traces.get(pid).cloned().ok_or_else(|| failed(ErrorKind::NotFound.into()))?;
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
            aligned: (traces.len() > 1 && is_told).then(|| align::are_aligned(&spans, self.options.iterations)),
            traces,
            rounds: self.round,
            iterations: self.options.iterations,
            times,
            gone: self.gone,
            ignored: self.session.daemon.ignored.0,
            stale: self.session.daemon.stale,
            folders,
        })
    }
}
