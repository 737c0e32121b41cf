//! State machine of the daemon that the processes poll: receives messages, returns answers.
//!
//! Libkineto holds one request at a time: it refuses a second one while the first waits or runs (observed with
//! `PyTorch` 2.15). A request is therefore sent once, and again only if it shows no effect several polls later. A
//! process that has made no step yet drops a request silently, and so does one whose own profiler starts.
//!
//! A started trace can be lost as well: if the program's own profiler starts meanwhile, it cuts the trace off, and the
//! file remains incomplete. The polls show this. From the creation of the file until it is complete, however long
//! writing takes, a process reports that it cannot take a request (observed with 2.6 and 2.15, 15 s for 91 MB); a
//! process that can take one is not recording. The request is then sent again with another file name, so that nothing
//! is lost if the first trace is completed after all.
//!
//! Before 2.12, `PyTorch` raises an error **in the program** if its own profiler starts while an on-demand trace is
//! being written. Such a process only receives requests until a profiler of its own is observed, and none afterwards:
//! [`State::Yielded`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::client::{Client, State};
use super::wire::{self, Message, TAKES_ACTIVITIES, WireError};

/// Requests for one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Texts of the requests: the first, and one more for each trace that is cut off.
    pub texts: Vec<String>,
    /// Whether to send requests after a profiler of its own was observed in it.
    pub after_its_own: bool,
}

/// A request to some processes.
#[derive(Debug, Clone)]
struct Round {
    members: BTreeMap<u32, Member>,
    offered: Instant,
    has_started: bool,
}

/// Number of polls after which a request without effect is sent again.
const AGAIN_AFTER: u32 = 2;
/// Number of consecutive polls able to take a request after which a started trace counts as cut off. At the first one
/// the trace may just have been completed.
const CUT_OFF_AFTER: u32 = 2;
/// Maximum interval between polls to wait for before a round starts anyway.
const LONGEST_POLL: Duration = Duration::from_secs(11);

/// Maximum number of processes to track.
const MOST_CLIENTS: usize = 4096;

/// State of the daemon.
#[derive(Debug, Default)]
pub struct Daemon {
    /// Polling processes by id in our namespace.
    pub clients: BTreeMap<u32, Client>,
    /// Number of invalid datagrams, and the error of the last one.
    pub ignored: (u64, Option<WireError>),
    /// Number of messages that came too late to be answered.
    pub stale: u64,
    round: Option<Round>,
}

impl Daemon {
    /// Handles a datagram of the process `pid` (in our namespace) received at `at`; returns the reply. `is_stale`: the
    /// sender no longer waits for the reply.
    pub fn hear(&mut self, pid: u32, datagram: &[u8], at: Instant, is_stale: bool) -> Option<Vec<u8>> {
        let message = match wire::read(datagram) {
            Ok(message) => message,
            Err(fault) => {
                self.ignore(fault);
                return None;
            }
        };
        let own = match &message {
            Message::Context { pid, .. } => *pid,
            Message::Poll { pids, .. } => pids[0],
        };
        if self.clients.len() >= MOST_CLIENTS && !self.clients.contains_key(&pid) {
            return None;
        }
        let client = self.clients.entry(pid).or_insert_with(|| Client::new(own, at));
        match message {
            Message::Context { gpu, job, .. } => {
                (client.gpu, client.job) = (Some(gpu), job);
                let known = u32::try_from(self.clients.len()).unwrap_or(u32::MAX);
                (!is_stale).then(|| wire::context_reply(known))
            }
            Message::Poll { kinds, job, pids } => {
                client.poll(kinds & TAKES_ACTIVITIES == 0, is_stale, job, pids, at);
                if is_stale {
                    // The process would read a reply now as that of its next poll.
                    self.stale += 1;
                    return None;
                }
                Some(wire::poll_reply(&self.answer(pid, at).unwrap_or_default()))
            }
        }
    }

    /// Counts a datagram that gets no reply.
    pub fn ignore(&mut self, fault: WireError) {
        self.ignored = (self.ignored.0 + 1, Some(fault));
    }

    /// Sends requests to these processes from their next polls on; previous requests are dropped.
    pub fn ask(&mut self, members: BTreeMap<u32, Member>, now: Instant) {
        for client in self.clients.values_mut() {
            (client.state, client.cut_off) = (State::Idle, 0);
        }
        let has_started = members.len() < 2;
        self.round = Some(Round { members, offered: now, has_started });
    }

    /// Stops sending requests.
    pub(crate) fn withdraw(&mut self) {
        self.round = None;
    }

    /// Removes a process that has ended.
    pub fn leave_out(&mut self, pid: u32) {
        if let Some(round) = &mut self.round {
            round.members.remove(&pid);
        }
    }

    /// Records that the process has started its trace.
    pub fn began(&mut self, pid: u32) {
        if let Some(client) = self.clients.get_mut(&pid)
            && let State::Asked { at: asked, .. } = client.state
        {
            client.state = State::Began { asked, free: 0 };
        }
    }

    /// Records that the process's trace is complete.
    pub fn written(&mut self, pid: u32) {
        if let Some(client) = self.clients.get_mut(&pid)
            && let State::Asked { at: asked, .. } | State::Began { asked, .. } = client.state
        {
            client.state = State::Written { asked };
        }
    }

    /// Request to send to a process that polls now, if any.
    fn answer(&mut self, pid: u32, now: Instant) -> Option<String> {
        let round = self.round.as_ref()?;
        let member = round.members.get(&pid)?;
        let client = self.clients.get(&pid)?;
        if client.is_busy {
            return None;
        }
        let is_due = match client.state {
            State::Idle => round.has_started || self.may_start(round, pid, now),
            State::Asked { polls, was_busy, .. } => was_busy || polls >= AGAIN_AFTER,
            State::Began { free, .. } => free >= CUT_OFF_AFTER,
            State::Written { .. } | State::Yielded | State::GivenUp => false,
        };
        if !is_due {
            return None;
        }
        let was_cut_off = matches!(client.state, State::Began { .. });
        let has_its_own =
            client.was_busy_unasked || was_cut_off || matches!(client.state, State::Asked { was_busy: true, .. });
        let cut_off = client.cut_off + u32::from(was_cut_off);
        let text = member.texts.get(cut_off as usize).cloned();
        let may_ask = member.after_its_own || !has_its_own;
        if let Some(round) = &mut self.round {
            round.has_started = true;
        }
        let client = self.clients.get_mut(&pid)?;
        client.cut_off = cut_off;
        client.state = match (may_ask, &text) {
            (false, _) => State::Yielded,
            (true, None) => State::GivenUp,
            (true, Some(_)) => State::Asked { at: now, polls: 0, was_busy: false },
        };
        client.asked += u32::from(matches!(client.state, State::Asked { .. }));
        text.filter(|_| may_ask)
    }

    /// Whether this is the best moment to start a round. Each member polls once per interval, so a round that starts
    /// after the longest pause reaches all members within the shortest time.
    fn may_start(&self, round: &Round, pid: u32, now: Instant) -> bool {
        if now.duration_since(round.offered) > LONGEST_POLL {
            return true;
        }
        let Some(interval) = self.clients.get(&pid).and_then(|client| client.interval) else { return false };
        let interval = interval.as_secs_f64();
        let mut phases: Vec<f64> = round
            .members
            .keys()
            .filter_map(|member| self.clients.get(member))
            .map(|client| now.duration_since(client.last).as_secs_f64() % interval.max(1e-3))
            // Time until its next poll; 0 for the process that polls now.
            .map(|since| if since == 0.0 { 0.0 } else { interval - since })
            .collect();
        phases.sort_by(f64::total_cmp);
        let last = phases.last().copied().unwrap_or(0.0);
        let pauses = phases.windows(2).map(|pair| pair[1] - pair[0]).fold(interval - last, f64::max);
        last <= interval - pauses + 0.1 * interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(pids: &[i32], kinds: u32) -> Vec<u8> {
        Message::Poll { kinds, job: 3, pids: pids.to_vec() }.to_bytes()
    }

    /// A member that may start two traces.
    fn member(after_its_own: bool) -> Member {
        Member { texts: vec!["do".to_owned(), "do 2".to_owned()], after_its_own }
    }

    /// A daemon and a clock.
    struct Scene {
        daemon: Daemon,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { daemon: Daemon::default(), start: Instant::now() }
        }

        fn at(&self, seconds: f64) -> Instant {
            self.start + Duration::from_secs_f64(seconds)
        }

        /// The reply to a poll of the process at this time.
        fn poll(&mut self, pid: i32, seconds: f64, kinds: u32) -> String {
            let at = self.at(seconds);
            let reply = self.daemon.hear(pid.unsigned_abs(), &poll(&[pid, 1], kinds), at, false).unwrap();
            wire::read_poll_reply(&reply).unwrap()
        }

        fn ask(&mut self, members: &[u32], seconds: f64) {
            let at = self.at(seconds);
            self.daemon.ask(members.iter().map(|pid| (*pid, member(true))).collect(), at);
        }
    }

    #[test]
    fn only_who_is_meant_is_asked_and_once() {
        let mut scene = Scene::new();
        assert_eq!(scene.poll(7, 0.0, 2), "");
        scene.ask(&[7], 0.5);
        assert_eq!(scene.poll(8, 0.9, 2), "", "another process");
        assert_eq!(scene.poll(7, 1.0, 2), "do");
        assert_eq!(scene.poll(7, 2.0, 2), "");
        scene.daemon.began(7);
        for second in 3..900 {
            assert_eq!(scene.poll(7, f64::from(second), 0), "", "it records, or writes for long");
        }
        assert_eq!(scene.poll(7, 900.0, 2), "", "it may have been completed just now");
        scene.daemon.written(7);
        assert_eq!([scene.poll(7, 901.0, 2), scene.poll(7, 902.0, 2)], ["", ""]);
        assert!(matches!(scene.daemon.clients[&7].state, State::Written { asked } if asked == scene.at(1.0)));
        assert_eq!((scene.daemon.clients[&7].asked, scene.daemon.clients[&8].asked), (1, 0));
    }

    #[test]
    fn of_a_flood_of_processes_so_many_are_kept() {
        let mut scene = Scene::new();
        for pid in 1..10_000_i32 {
            let at = scene.at(f64::from(pid));
            scene.daemon.hear(pid.unsigned_abs(), &poll(&[pid, 1], 2), at, false);
        }
        assert_eq!(scene.daemon.clients.len(), MOST_CLIENTS);
        scene.ask(&[7], 10_000.0);
        assert_eq!(scene.poll(7, 10_001.0, 2), "do", "who is known is heard on");
    }

    #[test]
    fn a_request_without_effect_is_given_again() {
        let mut scene = Scene::new();
        scene.ask(&[7], 0.0);
        assert_eq!(scene.poll(7, 1.0, 2), "do");
        assert_eq!(scene.poll(7, 2.0, 2), "");
        assert_eq!(scene.poll(7, 3.0, 2), "do");
        assert_eq!(scene.daemon.clients[&7].asked, 2);
    }

    #[test]
    fn a_process_with_its_own_profiler_is_not_asked_until_that_ends() {
        let mut scene = Scene::new();
        scene.ask(&[7], 0.0);
        assert_eq!(scene.poll(7, 1.0, 0), "");
        assert!(scene.daemon.clients[&7].was_busy_unasked);
        assert_eq!(scene.poll(7, 2.0, 2), "do");
        // It started its own profiler after the request, which is lost then.
        assert_eq!(scene.poll(7, 3.0, 0), "");
        assert_eq!(scene.poll(7, 4.0, 2), "do");
    }

    /// Polls and files as observed with 2.15: requested, started, cut off by the program's own profiler, which runs for
    /// three polls.
    #[test]
    fn a_trace_that_was_cut_off_is_asked_for_again_and_not_for_ever() {
        let mut scene = Scene::new();
        scene.ask(&[7], 0.0);
        assert_eq!(scene.poll(7, 1.0, 2), "do");
        scene.daemon.began(7);
        for second in [2.0, 3.0, 4.0] {
            assert_eq!(scene.poll(7, second, 0), "", "its own profiler is on");
        }
        assert_eq!(scene.poll(7, 5.0, 2), "");
        assert_eq!(scene.poll(7, 6.0, 2), "do 2", "with another file");
        assert_eq!((scene.daemon.clients[&7].asked, scene.daemon.clients[&7].cut_off), (2, 1));
        // Again, by a profiler that ran only between two polls.
        scene.daemon.began(7);
        assert_eq!([scene.poll(7, 7.0, 2), scene.poll(7, 8.0, 2)], ["", ""]);
        assert_eq!(scene.daemon.clients[&7].state, State::GivenUp);
        assert_eq!([scene.poll(7, 9.0, 2), scene.poll(7, 10.0, 2)], ["", ""]);
        // The next round starts from scratch.
        scene.ask(&[7], 10.5);
        assert_eq!(scene.poll(7, 11.0, 2), "do");
    }

    #[test]
    fn polls_that_have_waited_do_not_tell_that_a_trace_was_cut_off() {
        let mut scene = Scene::new();
        scene.ask(&[7], 0.0);
        assert_eq!(scene.poll(7, 1.0, 2), "do");
        scene.daemon.began(7);
        for second in [2.0, 3.0] {
            let at = scene.at(second);
            assert_eq!(scene.daemon.hear(7, &poll(&[7], 2), at, true), None);
        }
        assert_eq!(scene.poll(7, 4.0, 2), "");
        assert!(matches!(scene.daemon.clients[&7].state, State::Began { free: 1, .. }));
    }

    /// Like [`Scene::ask`] for process 7 alone, with a `PyTorch` that fails if its own profiler starts.
    fn ask_carefully(scene: &mut Scene) {
        let at = scene.at(0.5);
        scene.daemon.ask(BTreeMap::from([(7, member(false))]), at);
    }

    #[test]
    fn where_asking_again_is_not_safe_nobody_does() {
        // Cut off.
        let mut scene = Scene::new();
        ask_carefully(&mut scene);
        assert_eq!(scene.poll(7, 1.0, 2), "do");
        scene.daemon.began(7);
        assert_eq!([scene.poll(7, 2.0, 0), scene.poll(7, 3.0, 2), scene.poll(7, 4.0, 2)], ["", "", ""]);
        assert_eq!(scene.daemon.clients[&7].state, State::Yielded);
        assert_eq!(scene.poll(7, 5.0, 2), "");
        // Before its trace was started.
        let mut scene = Scene::new();
        ask_carefully(&mut scene);
        assert_eq!([scene.poll(7, 1.0, 2), scene.poll(7, 2.0, 0), scene.poll(7, 3.0, 2)], ["do", "", ""]);
        assert_eq!(scene.daemon.clients[&7].state, State::Yielded);
        // Before the request.
        let mut scene = Scene::new();
        scene.poll(7, 0.0, 0);
        ask_carefully(&mut scene);
        assert_eq!([scene.poll(7, 1.0, 2), scene.poll(7, 2.0, 2)], ["", ""]);
        assert_eq!((scene.daemon.clients[&7].state, scene.daemon.clients[&7].asked), (State::Yielded, 0));
        // A request without effect is sent again.
        let mut scene = Scene::new();
        ask_carefully(&mut scene);
        assert_eq!([scene.poll(7, 1.0, 2), scene.poll(7, 2.0, 2), scene.poll(7, 3.0, 2)], ["do", "", "do"]);
    }

    #[test]
    fn what_comes_too_late_is_not_answered() {
        let mut scene = Scene::new();
        scene.ask(&[7], 0.0);
        let at = scene.at(1.0);
        assert_eq!(scene.daemon.hear(7, &poll(&[7], 2), at, true), None);
        assert_eq!(scene.daemon.stale, 1);
        assert_eq!(scene.poll(7, 2.0, 2), "do", "the next one is");
    }

    #[test]
    fn what_is_no_message_is_counted() {
        let mut scene = Scene::new();
        let now = scene.start;
        for bytes in [&b""[..], b"GET /", &poll(&[7], 2)[..50]] {
            assert_eq!(scene.daemon.hear(7, bytes, now, false), None);
        }
        assert_eq!((scene.daemon.ignored.0, scene.daemon.clients.len()), (3, 0));
    }

    #[test]
    fn who_it_is_is_the_kernels_word_before_its_own() {
        let mut scene = Scene::new();
        let now = scene.start;
        scene.daemon.ask(BTreeMap::from([(500, member(true))]), now);
        let reply = scene.daemon.hear(500, &poll(&[7, 1], 2), now, false).unwrap();
        assert_eq!(wire::read_poll_reply(&reply).unwrap(), "do");
        assert_eq!(scene.daemon.clients[&500].lineage, [7, 1]);
        let context = Message::Context { gpu: 2, pid: 7, job: 0 }.to_bytes();
        assert!(scene.daemon.hear(500, &context, now, false).is_some());
        assert_eq!(scene.daemon.clients[&500].gpu, Some(2));
    }

    #[test]
    fn ranks_are_asked_in_the_order_that_keeps_them_closest() {
        // Polls every 5 s: 7 at 0.0, 8 at 4.8, so 8 first and 7 0.2 s later.
        let mut scene = Scene::new();
        scene.poll(7, 0.0, 2);
        scene.poll(8, 4.8, 2);
        scene.ask(&[7, 8], 4.9);
        assert_eq!(scene.poll(7, 5.0, 2), "", "8 would wait for 4.8 s");
        assert_eq!(scene.poll(8, 9.8, 2), "do");
        assert_eq!(scene.poll(7, 10.0, 2), "do");
    }

    #[test]
    fn a_rank_that_is_gone_holds_nobody_up() {
        let mut scene = Scene::new();
        scene.poll(7, 0.0, 2);
        scene.poll(8, 0.1, 2);
        scene.ask(&[7, 8], 0.5);
        scene.daemon.leave_out(8);
        assert_eq!(scene.poll(7, 5.0, 2), "do");
        // Neither does a process with irregular polls.
        scene.ask(&[7, 8], 6.0);
        assert_eq!(scene.poll(7, 30.0, 2), "do");
    }
}
