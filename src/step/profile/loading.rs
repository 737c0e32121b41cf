//! Loading of a step's data, as it was recorded.

use super::Profile;
use super::timeline::LaneKind;
use habitat_base::units::Micros;

/// Loading of the data of a recorded step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loading {
    /// Time that the data of one step take: in the training process, or between two deliveries of the workers.
    pub time: Micros,
    /// Part of the step in which the GPU waits for them; without times of a GPU, the wait of the training process.
    pub wait: Micros,
    /// Process that loads.
    pub loader: Loader,
    /// CPU cores that the recorded process could use, if known.
    pub cpus: Option<u32>,
}

/// Process that loads the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loader {
    /// The training process, between its steps (`num_workers=0`).
    Training,
    /// Worker processes beside the training, if known this number of them.
    Workers(Option<u32>),
    /// One of both.
    Unknown,
}

/// Share of a step from which a wait for workers shows that these limit the training, and within which the time between
/// their deliveries is the step (a choice). Their queue is full otherwise.
const LIMITED: f64 = 0.1;

impl Profile {
    /// Loading of a step's data: of worker processes, from the time that they take for a batch; in the training process,
    /// from the timeline; in a recording without a GPU, from its wait. `None` if unknown, or if the GPU never waits for
    /// it.
    pub fn loading(&self) -> Option<Loading> {
        let step = self.step.as_ref()?;
        let (workers, cpus) = (step.loader_workers, step.cpus);
        let seen = step.duration.and_then(|duration| self.loading_in_timeline(duration));
        let Some(duration) = step.duration else {
            let loader = match workers {
                Some(0) => Loader::Training,
                Some(_) => Loader::Workers(workers),
                None => Loader::Unknown,
            };
            let wait = step.data_wait.unwrap_or_default();
            return match step.loader_period {
                Some(time) => Some(Loading { time, wait, loader: Loader::Workers(workers), cpus }),
                None => step.data_wait.map(|time| Loading { time, wait, loader, cpus }),
            };
        };
        let idle = step.device_busy.and_then(|busy| duration.checked_sub(busy)).unwrap_or_default();
        let wait = seen.map_or(Micros::ZERO, |seen| seen.wait.min(idle));
        let is_limited = wait.get() >= LIMITED * duration.get();
        let by_workers = |time, wait| Loading { time, wait, loader: Loader::Workers(workers), cpus };
        match (step.loader_period, seen) {
            // The step waits for workers that deliver once a step. If they deliver sooner, the GPU waits for something else.
            (Some(period), _) if wait.get() > 0.0 && period / duration >= 1.0 - LIMITED => {
                Some(by_workers(duration, wait))
            }
            (Some(period), _) => Some(by_workers(period.min(duration), Micros::ZERO)),
            (None, Some(seen)) if seen.in_process => {
                Some(Loading { time: seen.time, wait, loader: Loader::Training, cpus })
            }
            (None, Some(_)) if is_limited => Some(by_workers(duration, wait)),
            _ => None,
        }
    }

    /// Loading in the timeline, for a step of `duration`; `None` without any.
    pub fn loading_in_timeline(&self, duration: Micros) -> Option<LoaderTime> {
        let timeline = self.timeline.as_ref().filter(|timeline| timeline.duration.get() > 0.0)?;
        let name = |part: usize| timeline.name(&timeline.parts[part], self);
        let loads: Vec<_> = (timeline.lanes.iter().filter(|lane| lane.kind == LaneKind::Host))
            .flat_map(super::timeline::Lane::intervals)
            .filter(|interval| name(interval.part).contains("DataLoader"))
            .collect();
        let first = loads.first()?;
        let in_process = name(first.part).contains("SingleProcess");
        let scale = duration / timeline.duration;
        let time: f64 = loads.iter().map(|interval| interval.end - interval.start).sum();
        let idle = timeline.idle();
        let within = |from: f64, to: f64| -> f64 {
            idle.iter().map(|[start, end]| (end.min(to) - start.max(from)).max(0.0)).sum()
        };
        let wait: f64 = loads.iter().map(|interval| within(interval.start, interval.end)).sum();
        Some(LoaderTime { time: Micros::known(time * scale), wait: Micros::known(wait.min(time) * scale), in_process })
    }
}

/// Loading in the timeline of a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoaderTime {
    /// Time in the data loader.
    pub time: Micros,
    /// The part of it in which the GPU is idle.
    pub wait: Micros,
    /// Whether the loader ran in the training process (`num_workers=0`).
    pub in_process: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(step: &str, loader: &str) -> Profile {
        let json = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}},
            "operations": [{{"name": "aten::mm", "phase": "forward", "device_time_us": 100}}], "step": {step},
            "timeline": {{"duration_us": 200, "parts": [{{"operation": 0}}, {{"name": "{loader}"}}],
            "lanes": [{{"kind": "host", "start_us": [0, 90], "duration_us": [80, 10], "part": [1, 0]}},
            {{"kind": "compute", "start_us": [0, 100], "duration_us": [20, 100], "part": [0, 0]}}]}}}}"#
        );
        Profile::from_json(json.as_bytes()).unwrap().0
    }

    /// The process loads for 80 µs, 20 of them beside the GPU's work.
    #[test]
    fn the_training_process_loads_while_the_gpu_works_or_waits() {
        let step = r#"{"duration_us": 400, "device_busy_us": 240}"#;
        let own = profile(step, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__").loading().unwrap();
        assert_eq!((own.time.get(), own.wait.get(), own.loader), (160.0, 120.0, Loader::Training));
        assert_eq!(profile(step, "aten::copy_").loading(), None);
    }

    /// Steps that wait for workers come as fast as these deliver.
    #[test]
    fn workers_that_are_waited_for_take_as_long_as_a_step() {
        let step = r#"{"duration_us": 200, "device_busy_us": 120, "loader_workers": 4, "cpus": 8}"#;
        let workers = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__";
        let found = profile(step, workers).loading().unwrap();
        assert_eq!((found.time.get(), found.loader, found.cpus), (200.0, Loader::Workers(Some(4)), Some(8)));
        // A GPU that is hardly idle does not wait for them; the rate of the workers is unknown.
        assert_eq!(profile(r#"{"duration_us": 200, "device_busy_us": 195}"#, workers).loading(), None);
        let timed = r#"{"duration_us": 200, "device_busy_us": 195, "loader_period_us": 50}"#;
        assert_eq!(profile(timed, workers).loading().unwrap().time.get(), 50.0);
        // The GPU is idle beside the loader, which delivers once a step, or four times: then it waits for the host.
        let of = |period: u32| {
            let step = format!(r#"{{"duration_us": 200, "device_busy_us": 120, "loader_period_us": {period}}}"#);
            let found = profile(&step, workers).loading().unwrap();
            (found.time.get(), found.wait.get())
        };
        assert_eq!((of(185), of(50)), ((200.0, 60.0), (50.0, 0.0)));
    }
}
