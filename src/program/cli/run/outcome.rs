//! How a job ended: normally, or by its user, by us as requested, or by something else.

use std::time::Duration;

use habitat_recorder::capture::{Finished, JobExit, JobOptions, StopReason, signal_name};

/// How the job ended and who ended it; the text follows "job" or "state".
pub(super) fn words(finished: &Finished, options: &JobOptions) -> String {
    match (finished.ended, who(finished)) {
        (JobExit::Unknown, _) => "ended, exit code unknown".to_owned(),
        (JobExit::Code(code), Some(who)) => format!("{} (exit code {code})", who.words(options)),
        (JobExit::Signal(_), Some(who)) => who.words(options),
        (JobExit::Code(code), None) => format!("ended with exit code {code}{}", inside(code)),
        (JobExit::Signal(signal), None) => format!("crashed with {}", signal_name(signal)),
    }
}

/// Who ended the job, if the job did not end on its own.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// The user, on the screens or by Ctrl-C.
    User,
    /// `--timeout`.
    Timeout,
    /// `--stop-after-recording`.
    Recorded,
    /// A signal that was sent to us.
    Passed(i32),
    /// A signal from elsewhere.
    Outside(i32),
}

impl Who {
    fn words(self, options: &JobOptions) -> String {
        match self {
            Self::User => "stopped by you".to_owned(),
            Self::Timeout => match options.timeout {
                Some(timeout) => format!("stopped by --timeout after {}", lasting(timeout)),
                None => "stopped by --timeout".to_owned(),
            },
            Self::Recorded => "stopped after recording".to_owned(),
            Self::Passed(signal) => format!("ended by {}, sent to habitat-tui and passed on", signal_name(signal)),
            Self::Outside(9) => {
                "killed by SIGKILL, not by habitat-tui (out of memory? check `dmesg` or the container's log)".to_owned()
            }
            Self::Outside(signal) => match &*signal_name(signal) {
                name @ "SIGXFSZ" => {
                    format!("ended by {name}: it exceeded the file size limit (`ulimit -f`)")
                }
                name @ "SIGXCPU" => {
                    format!("ended by {name}: it exceeded the CPU time limit (`ulimit -t`)")
                }
                name => format!("ended by {name}, not by habitat-tui"),
            },
        }
    }
}

fn who(finished: &Finished) -> Option<Who> {
    match (finished.stop_reason, finished.passed, finished.ended) {
        (_, _, JobExit::Unknown) => None,
        (Some(StopReason::User), ..) => Some(Who::User),
        (Some(StopReason::Timeout), ..) => Some(Who::Timeout),
        (Some(StopReason::Recorded), ..) => Some(Who::Recorded),
        _ if finished.interrupted => Some(Who::User),
        (None, Some(signal), JobExit::Signal(by)) if by == signal => Some(Who::Passed(signal)),
        (None, _, JobExit::Signal(signal)) if !is_fault(signal) => Some(Who::Outside(signal)),
        _ => None,
    }
}

/// Signals that a program's own fault raises.
fn is_fault(signal: i32) -> bool {
    matches!(&*signal_name(signal), "SIGSEGV" | "SIGBUS" | "SIGILL" | "SIGFPE" | "SIGABRT" | "SIGSYS" | "SIGTRAP")
}

/// A hint on exit codes that a shell derives from a signal.
fn inside(code: i32) -> String {
    match code {
        137 => " (usually a process killed by SIGKILL; out of memory?)".to_owned(),
        129..=159 => format!(" (usually a process ended by {})", signal_name(code - 128)),
        _ => String::new(),
    }
}

/// Formats a duration in seconds, minutes or hours.
pub(super) fn lasting(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s => (s / 3600.0, "h"),
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// The way the job ended if that may explain why nothing was recorded; precedes the rest of the message.
pub(super) fn cause(finished: &Finished, options: &JobOptions) -> String {
    match (who(finished), finished.ended) {
        (Some(_), _) => format!("the job was {}; ", words(finished, options)),
        (None, JobExit::Code(code)) if code != 0 => {
            let place = options.log.as_ref().map_or_else(|| "above".to_owned(), |log| format!("in {}", log.display()));
            format!("the job failed with exit code {code}{}, see its error {place}; ", inside(code))
        }
        (None, JobExit::Signal(_)) => format!("the job {}; ", words(finished, options)),
        _ => String::new(),
    }
}

/// How the job ended, as far as it matters for the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Still running.
    NotYet,
    /// Normally, on its own.
    Well,
    /// By a fault of its own.
    Failed,
    /// Stopped early; there is nothing to fix.
    Stopped,
    /// By `--timeout`.
    Timeout,
}

impl End {
    pub(super) fn new(finished: &Finished) -> Self {
        match (who(finished), finished.ended) {
            (Some(Who::Timeout), _) => Self::Timeout,
            (Some(_), _) => Self::Stopped,
            (None, JobExit::Code(0) | JobExit::Unknown) => Self::Well,
            (None, _) => Self::Failed,
        }
    }

    /// Whether the job was cut short.
    pub(super) const fn is_early(self) -> bool {
        matches!(self, Self::Stopped | Self::Timeout)
    }
}

/// Whether the user ended it.
pub(super) fn by_user(finished: &Finished) -> bool {
    who(finished) == Some(Who::User)
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_recorder::capture::{Folder, ProcessScan, Recording, Settings};

    fn finished(ended: JobExit, stop_reason: Option<StopReason>, passed: Option<i32>) -> Finished {
        let folder = Folder::new(&std::env::temp_dir()).unwrap();
        let (cut, lasted, recording) = (None, Duration::ZERO, Recording::default());
        let scan = ProcessScan::default();
        Finished { ended, stop_reason, passed, interrupted: false, folder, cut, lasted, recording, scan }
    }

    fn options() -> JobOptions {
        JobOptions {
            command: Vec::new(),
            settings: Settings::new(10, 3),
            cupti: None,
            log: None,
            apart: false,
            stop_after: false,
            timeout: Some(Duration::from_secs(30)),
        }
    }

    #[test]
    fn who_ended_a_job_is_said() {
        let said = |ended, stop_reason, passed| {
            let finished = finished(ended, stop_reason, passed);
            (words(&finished, &options()), End::new(&finished))
        };
        let of_signal = |signal, stop_reason, passed| said(JobExit::Signal(signal), stop_reason, passed);
        for (stop_reason, passed, text, end) in [
            (Some(StopReason::User), None, "stopped by you", End::Stopped),
            (Some(StopReason::Timeout), None, "stopped by --timeout after 30 s", End::Timeout),
            (Some(StopReason::Recorded), None, "stopped after recording", End::Stopped),
            (None, Some(15), "ended by SIGTERM, sent to habitat-tui and passed on", End::Stopped),
            (None, Some(1), "ended by SIGTERM, not by habitat-tui", End::Stopped),
            (None, None, "ended by SIGTERM, not by habitat-tui", End::Stopped),
        ] {
            assert_eq!(of_signal(15, stop_reason, passed), (text.to_owned(), end));
        }
        assert!(of_signal(9, None, None).0.contains("out of memory?"));
        for (signal, limit) in [(25, "ulimit -f"), (24, "ulimit -t")] {
            let said = of_signal(signal, None, None).0;
            assert!(said.contains(limit) && !said.contains("not by"), "{said}");
        }
        assert_eq!(of_signal(11, None, None), ("crashed with SIGSEGV".to_owned(), End::Failed));
        assert_eq!(said(JobExit::Code(0), None, None), ("ended with exit code 0".to_owned(), End::Well));
        assert_eq!(said(JobExit::Code(3), None, None).1, End::Failed);
        assert!(said(JobExit::Code(137), None, None).0.contains("SIGKILL"));
        let saved = said(JobExit::Code(0), Some(StopReason::User), None);
        assert_eq!(saved, ("stopped by you (exit code 0)".to_owned(), End::Stopped));
        let interrupted = Finished { interrupted: true, ..finished(JobExit::Signal(2), None, None) };
        assert_eq!(words(&interrupted, &options()), "stopped by you");
    }

    #[test]
    fn the_cause_comes_first_where_it_explains_something() {
        let said = |ended, stop_reason| cause(&finished(ended, stop_reason, None), &options());
        assert_eq!(said(JobExit::Code(0), None), "");
        assert_eq!(said(JobExit::Code(3), None), "the job failed with exit code 3, see its error above; ");
        let logged = JobOptions { log: Some("train.log".into()), ..options() };
        let said_with_log = cause(&finished(JobExit::Code(3), None, None), &logged);
        assert_eq!(said_with_log, "the job failed with exit code 3, see its error in train.log; ");
        assert_eq!(said(JobExit::Signal(11), None), "the job crashed with SIGSEGV; ");
        assert_eq!(said(JobExit::Signal(2), Some(StopReason::User)), "the job was stopped by you; ");
    }

    #[test]
    fn times_are_told_in_their_unit() {
        let told = |seconds| lasting(Duration::from_secs_f64(seconds));
        assert_eq!([told(30.0), told(0.5), told(600.0), told(9000.0)], ["30 s", "0.5 s", "10 min", "2.5 h"]);
    }
}
