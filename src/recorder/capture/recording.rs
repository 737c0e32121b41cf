//! State of a recorded job, accumulated from the messages of all its processes.

use std::collections::BTreeMap;

mod process;
mod trainings;
mod work;

pub use process::{CudaWindow, Process, Recorded, StepTimes, Timed};

use self::process::{WARM_UP, keep, short};
use super::messages::{Message, World};

/// State of a recorded job.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// Processes by id.
    pub processes: BTreeMap<u32, Process>,
    /// Errors of malformed conversations, the first ones.
    pub garbled: Vec<String>,
    /// Number of connections refused because there were too many.
    pub refused: u64,
    /// Number of messages received, to order processes in time.
    messages: u64,
}

/// Maximum number of processes to keep: any process may send anything to the socket.
const MOST_PROCESSES: usize = 1000;

/// Outcome of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordingStatus {
    /// At least one window was recorded.
    Recorded,
    /// No Python loaded the hook.
    NoPython,
    /// Python ran but did not import `torch.optim`.
    NoTorch,
    /// PyTorch is too old.
    TooOld(String),
    /// PyTorch was imported, but no optimizer made a step.
    NoSteps,
    /// There were steps, but the window was not reached or not completed.
    TooFew {
        /// Steps seen.
        steps: u64,
        /// Whether the job ended within a window.
        in_window: bool,
        /// Whether the process reported the number at its end; otherwise it may have made more.
        is_all: bool,
    },
    /// There were steps, but only in processes that do not record.
    OtherRanks,
    /// All windows were dropped, with reasons.
    Dropped(Vec<String>),
    /// CUDA programs could not be recorded or ended within the window, with reasons.
    NoKernels(Vec<String>),
}

impl Recording {
    /// Handles a message.
    pub fn hear(&mut self, pid: u32, message: Message) {
        if !self.processes.contains_key(&pid) && self.processes.len() >= MOST_PROCESSES {
            let is_nothing = |process: &Process| !process.has_torch && !process.has_cuda && process.steps == 0;
            let Some(first) = self.processes.iter().find(|(_, it)| is_nothing(it)).map(|(pid, _)| *pid) else { return };
            self.processes.remove(&first);
        }
        self.messages += 1;
        let process = self.processes.entry(pid).or_default();
        process.hear_at(pid, self.messages);
        match message {
            Message::Hello(hello) => process.greet(&hello),
            Message::Steps { first, times_us, waits_us, workers, idle_us, parts } => {
                process.add_steps(first, &times_us, [&waits_us, &idle_us], &parts);
                process.add_parts(first, &times_us, &waits_us, &parts);
                process.workers = workers.or(process.workers);
            }
            Message::Work { steps, nodes, of } => process.work.add(steps, nodes, of),
            Message::Cores { cores } => process.cores = Some(cores),
            Message::Loading { parent, batch_us } => {
                if let Some(parent) = self.processes.get_mut(&parent) {
                    parent.loading(pid, batch_us);
                }
            }
            Message::NoWaits { reason } => process.no_waits = Some(short(&reason)),
            Message::Model(model) => {
                process.steps = process.steps.max(model.step);
                process.model = Some(model.bounded());
            }
            Message::Window(window) => process.window(window),
            Message::Refused { reason } => process.refused = Some(short(&reason)),
            Message::Fault { reason } => keep(&mut process.faults, short(&reason)),
            Message::World(world) => {
                process.rank = world.rank.or(process.rank);
                process.world = Some(World { group: short(&world.group), ..world });
            }
            Message::Framework { name } => keep(&mut process.frameworks, short(&name)),
            Message::Exit { steps, backward_passes } => {
                process.steps = process.steps.max(steps);
                process.backward_passes = backward_passes;
                process.exited = true;
                process.in_window = false;
            }
            Message::After { .. } | Message::Unknown => {}
        }
    }

    /// Records a malformed conversation.
    pub(super) fn garble(&mut self, problem: String) {
        keep(&mut self.garbled, problem);
    }

    /// Processes that made steps.
    pub fn training(&self) -> impl Iterator<Item = (&u32, &Process)> {
        self.processes.iter().filter(|(_, process)| process.steps > 0)
    }

    /// Whether the requested recording is complete: the windows of every recording process, and `steps` steps outside
    /// of them.
    pub fn is_complete(&self, windows: u32, steps: usize) -> bool {
        let is_one =
            |process: &&Process| process.in_window || !process.windows.is_empty() || process.parameters.is_some();
        let mut recording = self.processes.values().filter(is_one).peekable();
        recording.peek().is_some()
            && recording.all(|process| {
                process.windows.len() >= windows as usize
                    && !process.in_window
                    && (process.has_cuda || process.times.iter().filter(|timed| timed.step > WARM_UP).count() >= steps)
            })
    }

    /// Outcome so far.
    pub fn status(&self) -> RecordingStatus {
        if self.processes.values().any(|process| !process.windows.is_empty()) {
            return RecordingStatus::Recorded;
        }
        if self.processes.is_empty() {
            return RecordingStatus::NoPython;
        }
        let cuda = || self.processes.values().filter(|process| process.has_cuda);
        if cuda().next().is_some() {
            let open = cuda().filter(|it| it.in_window).map(|_| "the program was ended within the window".to_owned());
            let reasons =
                cuda().flat_map(|process| process.refused.iter().chain(&process.dropped).chain(&process.faults));
            return RecordingStatus::NoKernels(reasons.cloned().chain(open).collect());
        }
        if let Some((_, process)) = self.training().max_by_key(|(_, process)| process.steps) {
            let dropped: Vec<String> = self.training().flat_map(|(_, process)| process.dropped.clone()).collect();
            let in_window = self.training().any(|(_, process)| process.in_window);
            if self.training().all(|(_, process)| process.is_later_rank()) {
                return RecordingStatus::OtherRanks;
            }
            if dropped.is_empty() || in_window {
                return RecordingStatus::TooFew { steps: process.steps, in_window, is_all: process.exited };
            }
            return RecordingStatus::Dropped(dropped);
        }
        let torch: Vec<&Process> = self.processes.values().filter(|process| process.has_torch).collect();
        if torch.is_empty() {
            return RecordingStatus::NoTorch;
        }
        if let Some(old) = torch.iter().find(|process| process.refused.is_some()) {
            return RecordingStatus::TooOld(old.torch.clone().unwrap_or_else(|| "of unknown version".to_owned()));
        }
        RecordingStatus::NoSteps
    }
}

#[cfg(test)]
mod tests {
    use super::process::{LONGEST, MOST_NOTES, MOST_TIMES};
    use super::*;
    use crate::capture::messages::{Hello, Parts, Stage, Window};
    use habitat_base::units::Micros;

    fn hello(stage: Stage) -> Message {
        Message::Hello(Hello { version: 1, pid: 1, stage, python: None, torch: Some("2.15.0".into()), rank: None })
    }

    fn steps(first: u64, count: usize) -> Message {
        Message::Steps {
            first,
            times_us: vec![1.0; count],
            waits_us: vec![],
            workers: None,
            idle_us: vec![],
            parts: Box::default(),
        }
    }

    fn timed((step, time_us): (u64, f64)) -> Timed {
        Timed { step, time_us, wait_us: None, idle_us: None }
    }

    fn written(number: u32) -> Message {
        Message::Window(Window::Written {
            number,
            first: 11,
            last: 13,
            file: format!("trace-1-{number}.json"),
            bytes: 1,
            cost_us: 1.0,
            kernels: 0,
            lost: 0,
            seconds: None,
        })
    }

    fn closed() -> Message {
        Message::Window(Window::Closed {
            step: 13,
            cost_us: 5.0,
            parameters: 10,
            optimizers: 1,
            rank: None,
            peak_memory_bytes: None,
            held: None,
        })
    }

    #[test]
    fn what_was_seen_is_told_apart() {
        let mut recording = Recording::default();
        assert_eq!(recording.status(), RecordingStatus::NoPython);
        recording.hear(1, hello(Stage::Python));
        assert_eq!(recording.status(), RecordingStatus::NoTorch);
        recording.hear(1, hello(Stage::Torch));
        assert_eq!(recording.status(), RecordingStatus::NoSteps);
        let mut old = recording.clone();
        old.hear(1, Message::Refused { reason: "torch_too_old".into() });
        assert_eq!(old.status(), RecordingStatus::TooOld("2.15.0".into()));
        recording.hear(1, steps(2, 6));
        assert_eq!(recording.status(), RecordingStatus::TooFew { steps: 7, in_window: false, is_all: false });
        recording.hear(1, Message::Window(Window::Opened { step: 10, cost_us: 5.0, note: None }));
        assert_eq!(recording.status(), RecordingStatus::TooFew { steps: 10, in_window: true, is_all: false });
        let mut dropped = recording.clone();
        dropped.hear(1, Message::Window(Window::Dropped { step: 11, reason: "users_profiler".into(), number: None }));
        assert_eq!(dropped.status(), RecordingStatus::Dropped(vec!["users_profiler".into()]));
        // The trace may arrive before the window is reported as closed.
        recording.hear(1, written(1));
        recording.hear(1, closed());
        assert_eq!(recording.status(), RecordingStatus::Recorded);
    }

    #[test]
    fn it_is_complete_with_all_windows_and_enough_steps() {
        let mut recording = Recording::default();
        recording.hear(1, hello(Stage::Torch));
        assert!(!recording.is_complete(1, 2));
        recording.hear(1, closed());
        assert!(!recording.is_complete(1, 0), "the trace is not written yet");
        recording.hear(1, written(1));
        assert!(recording.is_complete(1, 0) && !recording.is_complete(2, 0) && !recording.is_complete(1, 2));
        recording.hear(1, steps(15, 2));
        assert!(recording.is_complete(1, 2));
        // A worker without steps does not matter; another rank in its window does.
        recording.hear(2, hello(Stage::Torch));
        assert!(recording.is_complete(1, 2));
        recording.hear(3, Message::Window(Window::Opened { step: 10, cost_us: 1.0, note: None }));
        assert!(!recording.is_complete(1, 2));
    }

    #[test]
    fn a_trace_is_being_written_until_it_is_there_or_lost() {
        let mut recording = Recording::default();
        recording.hear(1, closed());
        assert!(recording.processes[&1].is_writing());
        recording.hear(1, written(1));
        assert!(!recording.processes[&1].is_writing());
        recording.hear(1, closed());
        let lost = Window::Dropped { step: 13, reason: "the disk is full".into(), number: Some(2) };
        recording.hear(1, Message::Window(lost));
        assert!(!recording.processes[&1].is_writing());
        // The trace may arrive before the window is reported as closed.
        recording.hear(1, written(3));
        assert!(!recording.processes[&1].is_writing());
    }

    #[test]
    fn the_first_steps_do_not_count_where_others_do() {
        let mut process = Process::default();
        assert_eq!(process.step_times(), None);
        process.times = [(2, 900.0), (3, 10.0)].map(timed).to_vec();
        assert_eq!(process.step_times().unwrap().count, 2);
        process.times.extend([(6, 11.0), (7, 13.0), (8, 12.0)].map(timed));
        let times = process.step_times().unwrap();
        assert_eq!((times.median.get(), times.count), (12.0, 3));
        assert_eq!(times.range.map(Micros::get), [11.0, 13.0]);
    }

    #[test]
    fn the_pace_is_that_of_tenths_of_the_steps() {
        let pace = |times: &[f64]| {
            let times = (6..).zip(times.iter().copied()).map(timed).collect();
            let process = Process { times, ..Process::default() };
            process.pace().map(|pace| [pace.low, pace.mid, pace.high].map(Micros::get))
        };
        assert_eq!(pace(&[]), None);
        assert_eq!(pace(&[2.0, 1.0, 6.0]), Some([1.0, 3.0, 6.0]), "of few steps the shortest and the longest");
        // A checkpoint in every tenth step occurs in every part.
        let even: Vec<f64> = (0..100).map(|step| if step % 10 == 0 { 11.0 } else { 1.0 }).collect();
        assert_eq!(pace(&even), Some([2.0, 2.0, 2.0]));
        let slower: Vec<f64> = (0..100).map(|step| if step < 90 { 1.0 } else { 2.0 }).collect();
        assert_eq!(pace(&slower), Some([1.0, 1.1, 2.0]));
    }

    #[test]
    fn the_last_steps_tell_what_is_waited_for_data() {
        let waiting = |messages: &[(u64, Vec<f64>, Vec<f64>)]| {
            let mut recording = Recording::default();
            for (first, times_us, waits_us) in messages.iter().cloned() {
                recording.hear(
                    1,
                    Message::Steps {
                        first,
                        times_us,
                        waits_us,
                        workers: Some(2),
                        idle_us: vec![],
                        parts: Box::default(),
                    },
                );
            }
            recording.processes[&1].waiting().map(|it| ((it.share * 1e3).round() / 1e3, it.steps, it.workers))
        };
        assert_eq!(waiting(&[(2, vec![10.0; 9], vec![])]), None, "an older hook, or no loader");
        assert_eq!(waiting(&[(2, vec![10.0; 9], vec![1.0])]), None, "not one of these steps");
        assert_eq!(waiting(&[(2, vec![10.0; 9], vec![2.5; 9])]), Some((0.25, 5, Some(2))), "without the first ones");
        // The loader was first used late; and no step can wait longer than it takes.
        let late = [(6, vec![10.0; 4], vec![]), (10, vec![10.0; 2], vec![2.0, 99.0])];
        assert_eq!(waiting(&late), Some((0.6, 2, Some(2))));
        let long = [(6, vec![1e6; 500], vec![9e5; 500]), (506, vec![1e6; 50], vec![0.0; 50])];
        assert_eq!(waiting(&long), Some((0.0, 50, Some(2))), "the last 50");
        let short = [(6, vec![1e4; 2000], vec![4e3; 2000]), (2006, vec![1e4; 500], vec![0.0; 500])];
        assert_eq!(waiting(&short), Some((0.2, 1000, Some(2))), "those of the last ten seconds");
        assert_eq!(waiting(&[(6, vec![10.0; 4], vec![f64::NAN, -1.0, 5.0, 5.0])]), Some((0.5, 2, Some(2))));
    }

    #[test]
    fn a_validation_is_not_waiting_for_training_data() {
        let mut recording = Recording::default();
        let times_us = vec![10.0, 10.0, 500.0, 10.0];
        let part = vec![1.0; 4];
        let parts = Parts {
            batches: Some(1),
            // 20 batches of a validation, then the last of an epoch.
            other_batches: vec![(8, 21), (9, 0)],
            every: 1,
            forward_us: part.clone(),
            backward_us: part.clone(),
            optimizer_us: part,
            ..Parts::default()
        };
        let (waits_us, parts) = (vec![2.0, 2.0, 400.0, 2.0], Box::new(parts));
        recording.hear(1, Message::Steps { first: 6, times_us, waits_us, workers: None, idle_us: vec![], parts });
        let process = &recording.processes[&1];
        let waiting = process.waiting().unwrap();
        assert_eq!((waiting.steps, (waiting.share * 10.0).round()), (3, 2.0));
        assert_eq!(process.split().map(|split| split.input.get()), Some(2.0));
    }

    /// As a rollout before the forward pass, of which the recorder knows no period yet.
    #[test]
    fn a_pause_is_not_a_part_of_the_steps() {
        let mut recording = Recording::default();
        let at = |long: f64, usual: f64| vec![usual, usual, long, usual];
        let parts = Parts {
            every: 1,
            forward_us: at(905.0, 5.0),
            backward_us: at(2.0, 2.0),
            optimizer_us: at(1.0, 1.0),
            ..Parts::default()
        };
        let (times_us, parts) = (at(910.0, 10.0), Box::new(parts));
        recording
            .hear(1, Message::Steps { first: 6, times_us, waits_us: vec![], workers: None, idle_us: vec![], parts });
        let split = recording.processes[&1].split().unwrap();
        assert_eq!((split.step.get(), split.forward.get(), split.rest().get()), (10.0, 5.0, 2.0));
    }

    #[test]
    fn whatever_is_said_and_how_often_what_is_kept_is_bounded() {
        let mut recording = Recording::default();
        recording.hear(1, steps(2, 6));
        let long = || "x".repeat(1 << 20);
        for number in 0..5000 {
            recording.hear(number + 2, hello(Stage::Python));
            recording.hear(1, Message::Fault { reason: long() });
            let dropped = Window::Dropped { step: 1, reason: long(), number: Some(1) };
            recording.hear(1, Message::Window(dropped));
            recording.hear(1, Message::Window(Window::Opened { step: 1, cost_us: 1.0, note: Some(long()) }));
            recording.hear(1, written(number));
            recording.garble(long());
            recording.hear(1, steps(u64::from(number), 1000));
        }
        assert!(recording.processes.len() <= MOST_PROCESSES && recording.processes.contains_key(&1));
        let process = &recording.processes[&1];
        for length in [process.faults.len(), process.dropped.len(), process.costs.len(), process.windows.len()] {
            assert!(length <= MOST_NOTES);
        }
        assert_eq!(process.costs.iter().sum::<f64>(), 5000.0, "the cost of all of them");
        assert_eq!(process.windows.last().unwrap().number, 4999, "the last windows are kept");
        assert!(recording.garbled.len() <= MOST_NOTES && process.faults[0].chars().count() <= LONGEST);
        assert!(process.times.len() <= MOST_TIMES && process.times.len() >= MOST_TIMES / 2);
        assert_eq!(process.times.last().unwrap().step, 5998, "the last ones are kept");
        assert!(process.shortened.as_ref().unwrap().chars().count() <= LONGEST);
        // The same for one large message, and no memory for the rest of it.
        recording.hear(1, steps(1, 500_000));
        let process = &recording.processes[&1];
        assert!(process.times.capacity() <= MOST_TIMES);
        assert_eq!(process.times.last().unwrap().step, 500_000);
    }

    #[test]
    fn a_file_outside_the_folder_is_not_taken() {
        let mut recording = Recording::default();
        for file in ["../x", "/etc/passwd", "", "."] {
            let window = Window::Written {
                number: 1,
                first: 1,
                last: 2,
                file: file.into(),
                bytes: 1,
                cost_us: 1.0,
                kernels: 0,
                lost: 0,
                seconds: None,
            };
            recording.hear(1, Message::Window(window));
        }
        assert_eq!(recording.recorded().len(), 0);
    }

    #[test]
    fn all_ranks_of_one_job_or_the_longest_of_several_jobs() {
        let mut recording = Recording::default();
        recording.hear(5, hello(Stage::Torch));
        for (pid, rank) in [(6, Some(0)), (5, Some(1))] {
            recording.hear(pid, hello(Stage::Torch));
            recording.hear(pid, written(1));
            recording.processes.get_mut(&pid).unwrap().rank = rank;
        }
        let ranks: Vec<_> = recording.recorded().iter().map(|process| process.rank).collect();
        assert_eq!(ranks, [Some(0), Some(1)]);
        for process in recording.processes.values_mut() {
            process.rank = None;
        }
        recording.hear(6, Message::Exit { steps: 90, backward_passes: 0 });
        assert_eq!(recording.recorded().iter().map(|process| process.steps).collect::<Vec<_>>(), [90]);
    }

    #[test]
    fn a_cuda_program_needs_a_window_and_no_steps() {
        let mut recording = Recording::default();
        let hello = Hello { version: 1, pid: 1, stage: Stage::Cuda, python: None, torch: None, rank: None };
        recording.hear(1, Message::Hello(hello.clone()));
        assert_eq!(recording.status(), RecordingStatus::NoKernels(vec![]));
        recording.hear(1, Message::Refused { reason: "no CUPTI".into() });
        assert_eq!(recording.status(), RecordingStatus::NoKernels(vec!["no CUPTI".into()]));
        recording.hear(2, Message::Hello(Hello { pid: 2, ..hello }));
        recording.hear(2, Message::Window(Window::Opened { step: 0, cost_us: 5.0, note: None }));
        assert!(matches!(recording.status(), RecordingStatus::NoKernels(reasons) if reasons.len() == 2));
        assert!(!recording.is_complete(1, 20));
        recording.hear(2, closed());
        for (pid, kernels) in [(1, 3), (2, 500)] {
            let Message::Window(Window::Written { number, first, last, file, bytes, cost_us, .. }) = written(1) else {
                panic!()
            };
            let window =
                Window::Written { number, first, last, file, bytes, cost_us, kernels, lost: 0, seconds: Some(5.0) };
            recording.hear(pid, Message::Window(window));
        }
        assert_eq!(recording.status(), RecordingStatus::Recorded);
        assert!(recording.is_complete(1, 20));
        let recorded = recording.recorded();
        assert_eq!(recorded.len(), 1);
        assert_eq!(recorded[0].windows[0].cuda.map(|cuda| cuda.kernels), Some(500));
    }
}
