//! A background job and its last successful result.

use std::sync::Arc;

/// State of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum JobState {
    /// Not running; the result, if any, is up to date.
    #[default]
    Idle,
    /// Running for the newest generation of its inputs.
    Running,
    /// Failed, with the reason and the remedy.
    Failed(String),
    /// Cancelled by the user.
    Cancelled,
}

/// A job whose results carry the generation of their inputs.
#[derive(Debug, Clone)]
pub struct Job<T> {
    generation: u64,
    state: JobState,
    value: Option<Arc<T>>,
    fresh: bool,
}

impl<T> Default for Job<T> {
    fn default() -> Self {
        Self { generation: 0, state: JobState::Idle, value: None, fresh: false }
    }
}

impl<T> Job<T> {
    /// Starts a new generation: results of earlier ones will be dropped, and the current value is stale until the new
    /// one arrives.
    pub fn start(&mut self) -> u64 {
        self.generation += 1;
        self.state = JobState::Running;
        self.fresh = false;
        self.generation
    }

    /// Stores a result; `false` if it belongs to an earlier generation and was dropped.
    pub fn finish(&mut self, generation: u64, result: Result<Arc<T>, String>) -> bool {
        if generation != self.generation || self.state != JobState::Running {
            return false;
        }
        match result {
            Ok(value) => {
                self.value = Some(value);
                self.fresh = true;
                self.state = JobState::Idle;
            }
            Err(reason) => self.state = JobState::Failed(reason),
        }
        true
    }

    /// Cancels the current generation; the last successful value stays, but is stale.
    pub fn cancel(&mut self) {
        if self.is_running() {
            self.generation += 1;
            self.state = JobState::Cancelled;
        }
    }

    /// Whether it is running.
    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    /// Its state.
    pub const fn state(&self) -> &JobState {
        &self.state
    }

    /// The last successful result.
    pub fn value(&self) -> Option<&T> {
        self.value.as_deref()
    }

    /// The last successful result, shared.
    pub fn shared(&self) -> Option<Arc<T>> {
        self.value.clone()
    }

    /// Words to add to the title of a value of earlier inputs; empty if it is up to date.
    pub(crate) fn stale_words(&self, inputs: &str) -> String {
        let words = if self.is_running() { "still computing with the new" } else { "of the earlier" };
        if self.is_stale() { format!(" – {words} {inputs}") } else { String::new() }
    }

    /// Whether the value belongs to earlier inputs.
    pub const fn is_stale(&self) -> bool {
        self.value.is_some() && !self.fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_results_are_dropped() {
        let mut job = Job::default();
        let first = job.start();
        let second = job.start();
        assert!(!job.finish(first, Ok(Arc::new(1))));
        assert!(job.value().is_none());
        assert!(job.finish(second, Ok(Arc::new(2))));
        assert_eq!((job.value(), job.is_stale()), (Some(&2), false));
        job.start();
        assert!(job.is_stale());
        job.cancel();
        assert_eq!((job.value(), job.state()), (Some(&2), &JobState::Cancelled));
    }
}
