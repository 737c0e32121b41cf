//! The text of a request, in the keys of libkineto's `Config`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// What a process is asked to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The trace to write; the process puts its number before the ending.
    pub trace: PathBuf,
    /// A mark that the trace will bear.
    pub id: String,
    /// Calls of `Optimizer.step` to record.
    pub iterations: u32,
    /// Record the shapes of the operators' inputs.
    pub shapes: bool,
    /// Record Python stacks and modules.
    pub stacks: bool,
    /// Begin at a multiple of so many iterations, so that ranks which hear of it at
    /// different times begin at the same; 1 begins as soon as possible.
    pub round_up: u32,
}

impl Request {
    /// The text.
    ///
    /// An iteration to start at that is in the past starts at the next one (rounded up).
    /// Without `ACTIVITIES_DURATION_SECS=0` a process that makes no steps would record half
    /// a second of whatever it does. No warm-up: `PyTorch` before 2.12 raises an error in the
    /// program where its own profiler starts during that; the first iteration that is
    /// recorded serves for it, since it only tells where a step ends.
    pub fn text(&self) -> String {
        let on = |is_on: bool| if is_on { "true" } else { "false" };
        let mut text = String::new();
        for (key, value) in [
            ("ACTIVITIES_LOG_FILE", self.trace.display().to_string()),
            ("REQUEST_TRACE_ID", self.id.clone()),
            ("PROFILE_START_ITERATION", "0".to_owned()),
            ("PROFILE_START_ITERATION_ROUNDUP", self.round_up.max(1).to_string()),
            ("ACTIVITIES_WARMUP_ITERATIONS", "0".to_owned()),
            ("ACTIVITIES_ITERATIONS", self.iterations.max(1).to_string()),
            ("ACTIVITIES_DURATION_SECS", "0".to_owned()),
            ("PROFILE_REPORT_INPUT_SHAPES", on(self.shapes).to_owned()),
            ("PROFILE_WITH_STACK", on(self.stacks).to_owned()),
            ("PROFILE_WITH_MODULES", on(self.stacks).to_owned()),
        ] {
            // A line break in a value would be another key.
            let clean: String = value.chars().filter(|character| !character.is_control()).collect();
            let _ = writeln!(text, "{key}={clean}");
        }
        text
    }
}

/// The file that a process writes for [`Request::trace`], by the process's own number.
pub fn written_by(trace: &Path, pid: i32) -> PathBuf {
    let name = trace.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let stem = name.strip_suffix(".json").unwrap_or(&name);
    trace.with_file_name(format!("{stem}_{pid}.json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_every_key_once() {
        let request = Request {
            trace: "/tmp/a\nACTIVITIES_ITERATIONS=9/x.json".into(),
            id: "me".into(),
            iterations: 4,
            shapes: true,
            stacks: false,
            round_up: 16,
        };
        let text = request.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 10, "{text}");
        assert!(lines.contains(&"ACTIVITIES_ITERATIONS=4") && lines.contains(&"PROFILE_START_ITERATION_ROUNDUP=16"));
        assert!(lines.contains(&"PROFILE_REPORT_INPUT_SHAPES=true") && lines.contains(&"PROFILE_WITH_STACK=false"));
        assert!(lines.iter().all(|line| line.matches('=').count() >= 1));
        assert_eq!(written_by(Path::new("/tmp/d/x.json"), 12), Path::new("/tmp/d/x_12.json"));
    }
}
