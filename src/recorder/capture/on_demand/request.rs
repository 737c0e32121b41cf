//! Text of a request, in the keys of libkineto's `Config`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Content of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Trace to write; the process inserts its id before the extension.
    pub trace: PathBuf,
    /// Identifier that the trace will contain.
    pub id: String,
    /// Number of `Optimizer.step` calls to record.
    pub iterations: u32,
    /// Whether to record the shapes of the operators' inputs.
    pub shapes: bool,
    /// Whether to record Python stacks and modules.
    pub stacks: bool,
    /// Start at a multiple of this many iterations, so that ranks which receive the request at different times start at
    /// the same iteration; 1 starts as soon as possible.
    pub round_up: u32,
}

impl Request {
    /// Formats the request.
    ///
    /// A start iteration in the past means the next one (rounded up). Without `ACTIVITIES_DURATION_SECS=0`, a process
    /// that makes no steps would record half a second of arbitrary work. There is no warm-up: `PyTorch` before 2.12
    /// raises an error in the program if its own profiler starts during it. The first recorded iteration serves
    /// instead, because only the end of its step is used.
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
            // A line break in a value would start another key.
            let clean: String = value.chars().filter(|character| !character.is_control()).collect();
            let _ = writeln!(text, "{key}={clean}");
        }
        text
    }
}

/// The file that a process writes for [`Request::trace`], given the process's own id.
pub(crate) fn written_by(trace: &Path, pid: i32) -> PathBuf {
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
