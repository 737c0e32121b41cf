//! State of the job for the screens.

use std::time::{Duration, Instant};

use super::outcome::End;
use super::report::{self, Recorder};
use super::surroundings::Surroundings;
use habitat_base::units::Micros;
use habitat_recorder::capture::recording::Timed;
use habitat_recorder::capture::{Finished, JobOptions, Process, Progress, Recording, RecordingStatus, Settings, cupti};
use habitat_recorder::live::{self, Exchange, Kernels, Snapshot, State, Times};

/// Number of last steps that the statistics cover.
const SUMMED: usize = 1000;
/// Dropped windows before the screens explain why the job is not recorded.
const PATIENCE: usize = 5;

/// Times at which a CUDA program first reported, and at which its window opened.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CudaTimes {
    cuda: Option<Instant>,
    window: Option<Instant>,
}

impl CudaTimes {
    /// Updates the times from the recording.
    pub(super) fn look(&mut self, recording: &Recording, now: Instant) {
        let any = |which: fn(&Process) -> bool| recording.processes.values().any(which);
        if any(|process| process.has_cuda) {
            self.cuda.get_or_insert(now);
        }
        if any(|process| process.in_window) {
            self.window.get_or_insert(now);
        }
    }
}

/// Seconds, rounded up, from `now` until `time` seconds after `since`.
fn left(since: Option<Instant>, time: f64, now: Instant) -> u64 {
    let past = since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
    (time - past.as_secs_f64()).max(0.0).ceil() as u64
}

/// The job at this moment.
pub(super) fn snapshot(progress: Progress<'_>, options: &JobOptions, cuda: CudaTimes, now: Instant) -> Snapshot {
    let recording = progress.recording;
    let settings = &options.settings;
    let mut seen = from_recording(recording);
    seen.elapsed = whole_seconds(progress.lasted);
    seen.notes.extend(report::cut(progress.cut));
    let state = match &options.cupti {
        Some(cupti) => state_of_cuda(recording, cupti, cuda, now),
        None => state(recording, settings),
    };
    seen.state = match (progress.ending, state) {
        _ if progress.stopped => State::Stopped,
        (Some(signal), _) => State::Stopping(signal),
        (None, state) => state,
    };
    let hopeless = match recording.status() {
        seen @ RecordingStatus::NoKernels(_) if is_past(recording) => Some(seen),
        seen @ RecordingStatus::TooOld(_) => Some(seen),
        RecordingStatus::Dropped(reasons) if reasons.len() >= PATIENCE => Some(RecordingStatus::Dropped(reasons)),
        _ => None,
    };
    let recorder = Recorder::new(options);
    let (command, scan) = (&options.command, progress.scan);
    // Processes without the hook, or another framework, are detected long before the end.
    let surroundings = Surroundings { command, recording, scan, recorder };
    seen.remedy = hopeless
        .map(|seen| report::remedy(&seen, settings, recorder, End::NotYet))
        .or_else(|| surroundings.so_far(&recording.status()));
    seen
}

/// The job at its end.
pub(super) fn at_end(finished: &Finished, state: State) -> Snapshot {
    let recording = &finished.recording;
    let most = recording.training().map(|(_, process)| process).max_by_key(|process| process.steps);
    let steps_at_least = most.is_some_and(|process| !process.exited);
    let mut last = Snapshot { state, elapsed: finished.lasted, steps_at_least, ..from_recording(recording) };
    last.notes.extend(report::cut(finished.cut.as_ref()));
    last
}

/// Replaces the waits for other ranks by those of the recorded steps, which contain more than the measurements outside,
/// if all ranks have them: ranks are compared by values of one source.
pub(super) fn with_exchanges(seen: &mut Snapshot, exchanges: &[(u32, Exchange)]) {
    // Use the last window.
    let own = |pid: u32| exchanges.iter().rev().find(|(of, _)| *of == pid).map(|(_, exchange)| *exchange);
    if seen.processes.iter().all(|process| !process.is_rank || own(process.pid).is_some()) {
        for process in &mut seen.processes {
            process.exchange = own(process.pid).or(process.exchange);
        }
    }
}

/// Rounds down to seconds, so that the screens get one update per second.
const fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// Everything except the state, clock and machine readings.
fn from_recording(recording: &Recording) -> Snapshot {
    let trainings = recording.trainings();
    let mut shown: Vec<&Process> = trainings.iter().flatten().copied().filter(|process| process.steps > 0).collect();
    let most = shown.iter().copied().max_by_key(|process| process.steps);
    if shown.is_empty() {
        shown.extend(recording.processes.values().filter(|process| process.has_cuda));
    }
    if shown.is_empty() {
        shown.extend(recording.processes.values().max_by_key(|process| process.has_torch));
    }
    let ranks = trainings.first().filter(|training| training.len() > 1).map_or(&[][..], |ranks| ranks);
    let main = recording.recorded().first().copied().or(most);
    let times: &[Timed] = main.map_or(&[], |main| &main.times);
    let micros = |timed: &Timed| Micros::new(timed.time_us).ok();
    Snapshot {
        state: State::default(),
        processes: shown
            .iter()
            .map(|process| live::Process {
                pid: process.pid,
                rank: process.rank.filter(|_| process.world.as_ref().is_none_or(|world| world.size > 1)),
                python: process.python.clone(),
                torch: process.torch.clone(),
                steps: process.steps,
                median: summed(process).map(|times| times.median),
                waiting: process.waiting(),
                exchange: process.exchange(),
                is_rank: ranks.iter().any(|rank| rank.pid == process.pid),
            })
            .collect(),
        steps: most.map_or(0, |process| process.steps),
        trainings: main.filter(|_| trainings.len() > 1).map(|main| (trainings.len(), main.pid)),
        times: main.and_then(summed),
        recent: times[times.len().saturating_sub(report::RECENT)..].iter().filter_map(micros).collect(),
        waiting: main.and_then(Process::waiting),
        split: main.filter(|main| main.is_on_cpu()).and_then(Process::split),
        windows: main.map(|main| main.windows.iter().map(|window| window.steps).collect()).unwrap_or_default(),
        kernels: kernels(recording),
        cost: main.and_then(|main| Micros::new(main.costs.iter().sum()).ok()).unwrap_or_default(),
        notes: main.map(dropped).into_iter().flatten().chain(report::faults(recording)).collect(),
        steps_at_least: false,
        elapsed: Duration::ZERO,
        elapsed_at_least: false,
        boards: Vec::new(),
        silent: None,
        remedy: None,
    }
}

fn state(recording: &Recording, settings: &Settings) -> State {
    let all = || recording.processes.values();
    if let Some(open) = all().find(|process| process.in_window) {
        return State::Recording(open.steps + 1, open.steps + u64::from(settings.window));
    }
    if all().any(Process::is_writing) {
        return State::Writing;
    }
    if recording.training().next().is_some() {
        return State::Steps;
    }
    if all().any(|process| process.has_torch) {
        return State::Torch;
    }
    if recording.processes.is_empty() { State::Started } else { State::Python }
}

/// Whether all processes that started CUDA have reported their final result.
fn is_past(recording: &Recording) -> bool {
    let has_said_why = |process: &Process| {
        process.exited || process.refused.is_some() || !process.dropped.is_empty() || !process.faults.is_empty()
    };
    let mut all = recording.processes.values().filter(|process| process.has_cuda).peekable();
    all.peek().is_some() && all.all(|process| !process.in_window && has_said_why(process))
}

/// Progress of a CUDA program: it has a window in time, without steps.
fn state_of_cuda(recording: &Recording, settings: &cupti::Settings, cuda: CudaTimes, now: Instant) -> State {
    let any = |which: fn(&Process) -> bool| recording.processes.values().any(which);
    if !any(|process| process.has_cuda) {
        State::Started
    } else if any(|process| process.in_window) {
        State::Kernels(left(cuda.window, settings.for_seconds, now))
    } else if any(|process| process.is_writing() && process.dropped.is_empty()) {
        State::Writing
    } else if any(|process| !process.windows.is_empty()) || is_past(recording) {
        State::Running
    } else {
        State::Cuda(left(cuda.cuda, settings.after_seconds, now))
    }
}

/// Windows in time that the profile is made from.
fn kernels(recording: &Recording) -> Option<Kernels> {
    let recorded = recording.recorded();
    let windows: Vec<_> = recorded.iter().flat_map(|process| &process.windows).filter_map(|it| it.cuda).collect();
    let longest = windows.iter().map(|cuda| cuda.seconds).max_by(f64::total_cmp)?;
    Some(Kernels {
        count: windows.iter().map(|cuda| cuda.kernels).sum(),
        lost: windows.iter().map(|cuda| cuda.lost).sum(),
        length: Micros::new(longest * 1e6).ok()?,
    })
}

/// Times of the last steps only, to avoid sorting all steps of a long job four times per second.
fn summed(process: &Process) -> Option<Times> {
    let from = process.times.len().saturating_sub(SUMMED);
    let last = Process { times: process.times[from..].to_vec(), ..Process::default() };
    let times = last.step_times()?;
    Some(Times {
        now: Micros::new(process.times.last()?.time_us).ok()?,
        median: times.median,
        mean: times.mean,
        pace: last.pace()?,
        range: times.range,
        count: times.count,
        only_last: from > 0,
    })
}

/// Dropped windows in words, each reason once; and why a window is shorter than requested.
fn dropped(process: &Process) -> Vec<String> {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in &process.dropped {
        match reasons.iter_mut().find(|(other, _)| other == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    let words = |(reason, count): (&str, usize)| {
        let why = if reason == report::USERS_PROFILER { "the job's own profiler has priority" } else { reason };
        let what = if count == 1 { "a window was dropped".to_owned() } else { format!("{count} windows were dropped") };
        format!("{what}: {}", habitat_base::text::clean(why, 300))
    };
    let shortened = process.shortened.as_ref().map(|note| habitat_base::text::clean(note, 300));
    reasons.into_iter().map(words).chain(shortened).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_recorder::capture::ProcessScan;
    use habitat_recorder::capture::messages::{Hello, Message, Stage, Window};

    fn seen(messages: &[Message]) -> Snapshot {
        let mut recording = Recording::default();
        for message in messages {
            recording.hear(7, message.clone());
        }
        let folder = std::path::Path::new("/none");
        let progress = Progress {
            recording: &recording,
            folder,
            stopped: false,
            ending: None,
            cut: None,
            scan: &ProcessScan::default(),
            lasted: Duration::ZERO,
        };
        snapshot(progress, &options(None), CudaTimes::default(), Instant::now())
    }

    fn options(cupti: Option<cupti::Settings>) -> JobOptions {
        JobOptions {
            command: Vec::new(),
            settings: Settings::new(10, 3),
            cupti,
            log: None,
            apart: true,
            stop_after: false,
            timeout: None,
        }
    }

    #[test]
    fn a_cuda_program_has_a_window_of_time() {
        let settings = cupti::Settings { library: "/l.so".into(), after_seconds: 5.0, for_seconds: 2.5 };
        let (options, began) = (options(Some(settings)), Instant::now());
        let (mut recording, mut cuda) = (Recording::default(), CudaTimes::default());
        let mut at = |messages: &[Message], milliseconds: u64| {
            for message in messages {
                recording.hear(7, message.clone());
            }
            let now = began + Duration::from_millis(milliseconds);
            cuda.look(&recording, now);
            let folder = std::path::Path::new("/none");
            let progress = Progress {
                recording: &recording,
                folder,
                stopped: false,
                ending: None,
                cut: None,
                scan: &ProcessScan::default(),
                lasted: Duration::ZERO,
            };
            snapshot(progress, &options, cuda, now)
        };
        assert_eq!(at(&[], 0).state, State::Started);
        let cuda =
            Message::Hello(Hello { version: 1, pid: 7, stage: Stage::Cuda, python: None, torch: None, rank: None });
        assert_eq!(at(&[cuda], 1000).state, State::Cuda(5));
        assert_eq!(at(&[], 2900).state, State::Cuda(4));
        assert_eq!(at(&[], 9000).state, State::Cuda(0), "late, and not below nothing");
        let opened = Message::Window(Window::Opened { step: 0, cost_us: 5.0, note: None });
        let seen = at(std::slice::from_ref(&opened), 9000);
        assert_eq!((seen.state, seen.remedy), (State::Kernels(3), None));
        let closed = Message::Window(Window::Closed {
            step: 0,
            cost_us: 7.0,
            parameters: 0,
            optimizers: 0,
            rank: None,
            peak_memory_bytes: None,
            held: None,
        });
        assert_eq!(at(std::slice::from_ref(&closed), 11_500).state, State::Writing);
        let written = Message::Window(Window::Written {
            number: 1,
            first: 0,
            last: 0,
            file: "cupti-7-1.json".into(),
            bytes: 1,
            cost_us: 1.0,
            kernels: 480,
            lost: 2,
            seconds: Some(2.5),
        });
        let seen = at(&[written], 12_000);
        assert_eq!((seen.state, seen.remedy, seen.processes.len()), (State::Running, None, 1));
        let length = Micros::new(2.5e6).unwrap();
        assert_eq!(seen.kernels, Some(Kernels { count: 480, lost: 2, length }));

        // The failure is reported at once, without waiting for a trace.
        let (mut recording, now) = (Recording::default(), Instant::now());
        let cuda =
            Message::Hello(Hello { version: 1, pid: 7, stage: Stage::Cuda, python: None, torch: None, rank: None });
        let dropped = Window::Dropped { step: 0, reason: "nothing ran on a GPU".into(), number: None };
        for message in [cuda, opened, closed, Message::Window(dropped)] {
            recording.hear(7, message);
        }
        let folder = std::path::Path::new("/none");
        let progress = Progress {
            recording: &recording,
            folder,
            stopped: false,
            ending: None,
            cut: None,
            scan: &ProcessScan::default(),
            lasted: Duration::ZERO,
        };
        let seen = snapshot(progress, &options, CudaTimes::default(), now);
        assert_eq!(seen.state, State::Running);
        assert_eq!(seen.remedy.as_deref(), Some("nothing recorded: nothing ran on a GPU"));
    }

    fn hello(stage: Stage) -> Message {
        let torch = (stage == Stage::Torch).then(|| "2.15.0".to_owned());
        Message::Hello(Hello { version: 1, pid: 7, stage, python: Some("3.12.1".into()), torch, rank: None })
    }

    fn steps(times_us: Vec<f64>) -> Message {
        Message::Steps { first: 2, times_us, waits_us: vec![], workers: None, idle_us: vec![], parts: Box::default() }
    }

    #[test]
    fn every_stage_has_its_state() {
        assert_eq!(seen(&[]).state, State::Started);
        let mut said = vec![hello(Stage::Python)];
        assert_eq!(seen(&said).state, State::Python);
        said.push(hello(Stage::Torch));
        assert_eq!(seen(&said).state, State::Torch);
        said.push(steps(vec![10.0; 9]));
        assert_eq!((seen(&said).state, seen(&said).steps), (State::Steps, 10));
        said.push(Message::Window(Window::Opened { step: 10, cost_us: 5.0, note: None }));
        assert_eq!(seen(&said).state, State::Recording(11, 13));
        said.push(Message::Window(Window::Closed {
            step: 13,
            cost_us: 7.0,
            parameters: 1,
            optimizers: 1,
            rank: None,
            peak_memory_bytes: None,
            held: None,
        }));
        assert_eq!((seen(&said).state, seen(&said).cost.get()), (State::Writing, 12.0));
        said.push(Message::Window(Window::Written {
            number: 1,
            first: 11,
            last: 13,
            file: "trace-7-1.json".into(),
            bytes: 1,
            cost_us: 1.0,
            kernels: 0,
            lost: 0,
            seconds: None,
        }));
        let seen = seen(&said);
        assert_eq!((seen.state, seen.windows), (State::Steps, vec![(11, 13)]));
        assert_eq!(seen.times.unwrap().count, 5, "the first steps do not count");
    }

    #[test]
    fn the_same_reason_is_said_once_and_hopeless_cases_at_once() {
        let dropped = Message::Window(Window::Dropped { step: 9, reason: "users_profiler".into(), number: None });
        let steps = steps(vec![10.0; 9]);
        let twice = seen(&[steps.clone(), dropped.clone(), dropped.clone()]);
        assert_eq!(twice.notes, ["2 windows were dropped: the job's own profiler has priority"]);
        assert_eq!(twice.remedy, None);
        let mut all = vec![steps];
        all.extend(std::iter::repeat_n(dropped, PATIENCE));
        assert!(seen(&all).remedy.unwrap().contains("its own profiler"));
    }

    /// Outside, rank 1 waits less than rank 0; its window of a few steps would say the contrary.
    #[test]
    fn ranks_are_compared_by_values_of_one_source() {
        let exchange = |waiting: f64| Exchange { step: Micros::known(34e3), waiting: Micros::known(waiting) };
        let rank = |pid: u32, waiting: f64| live::Process {
            pid,
            is_rank: true,
            exchange: Some(exchange(waiting)),
            ..live::Process::default()
        };
        let outside = Snapshot { processes: vec![rank(1, 26e3), rank(2, 5e3)], ..Snapshot::default() };
        let of = |windows: &[(u32, Exchange)]| {
            let mut seen = outside.clone();
            with_exchanges(&mut seen, windows);
            seen.processes.iter().map(|process| process.exchange.unwrap().waiting.get()).collect::<Vec<f64>>()
        };
        assert_eq!(of(&[(1, exchange(7e3))]), [26e3, 5e3], "one rank was recorded");
        assert_eq!(of(&[(1, exchange(7e3)), (2, exchange(3e3)), (1, exchange(9e3))]), [9e3, 3e3]);
    }

    #[test]
    fn of_a_long_job_the_last_steps_are_summed_up() {
        let mut times = vec![900.0; 3000];
        times.extend(vec![10.0; SUMMED]);
        let seen = seen(&[steps(times)]);
        let summed = seen.times.unwrap();
        assert_eq!((summed.median.get(), summed.count, summed.only_last), (10.0, 1000, true));
        assert_eq!(seen.recent.len(), report::RECENT);
    }
}
