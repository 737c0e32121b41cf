//! Output of `attach`: progress, report and JSON.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};

use crate::cli::hints;
use crate::terminal;
use habitat_base::text;
use habitat_recorder::capture::assemble::Assembled;
use habitat_recorder::capture::on_demand::align::Span;
use habitat_recorder::capture::on_demand::roles::Role;
use habitat_recorder::capture::on_demand::{AttachError, AttachEvent, AttachOptions, Attached, Listed};
use habitat_reports::summary;
use habitat_reports::table::{Cell, Column, Table};

/// Prints a progress event.
pub(super) fn progress(what: &AttachEvent, options: &AttachOptions) {
    let text = match what {
        AttachEvent::OtherDaemon => {
            "another daemon (dynolog?) owns dynolog's socket; jobs started without KINETO_IPC_SOCKET_DIR contact that one"
                .to_owned()
        }
        AttachEvent::Starting(pid) => format!("process {pid} is just starting; listening as soon as that is safe"),
        AttachEvent::Chosen(pids) => format!("recording {}", numbers(pids)),
        AttachEvent::Asked(pid) => format!("process {pid}: requested {} steps", options.iterations - 1),
        AttachEvent::AskedAgain(pid) => {
            format!("process {pid}: requested again; it has not finished a step yet, or its own profiler interfered")
        }
        AttachEvent::CutOff(pid) => format!(
            "process {pid}: its trace was cut off: its own profiler started meanwhile and has priority; requested \
             again"
        ),
        AttachEvent::Fewer(there, of) => {
            format!("only {there} of the {of} ranks on this machine can be recorded; continuing with those")
        }
        AttachEvent::OwnProfiler(pid) => {
            format!("process {pid}: its own profiler is running and has priority; waiting until it stops")
        }
        AttachEvent::Began(pid) => format!("process {pid}: recording"),
        AttachEvent::Written(pid) => format!("process {pid}: trace complete"),
        AttachEvent::NotAligned(round_up) => {
            format!("the ranks recorded different steps; requesting again, starting at a multiple of {round_up}")
        }
        AttachEvent::Gone(pid) => format!("process {pid}: exited before its trace was complete; continuing without it"),
    };
    terminal::say(format_args!("habitat-tui: {text}"));
}

fn numbers(pids: &[u32]) -> String {
    let list: Vec<String> = pids.iter().map(u32::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, list.join(", "))
}

/// Lists the processes to choose from, below an error about the choice.
pub(super) fn choices(error: &AttachError, out: &mut dyn Write) {
    let (AttachError::Several { listed, .. }
    | AttachError::Unclear { listed }
    | AttachError::Launching { listed, .. }
    | AttachError::NotThere { listed, .. }) = error
    else {
        return;
    };
    if !listed.is_empty() {
        let _ = table(listed, out);
    }
}

fn role(role: Role) -> String {
    match role {
        Role::Trains => "trains".to_owned(),
        Role::Launches => "launches".to_owned(),
        Role::Helps { of } => format!("helper of {of}"),
        Role::Unclear => "unclear".to_owned(),
    }
}

/// Writes a table of the processes that can be recorded and those that belong to them.
pub(super) fn table(all: &[Listed], out: &mut dyn Write) -> io::Result<()> {
    let mut table = Table::new(&[
        Column::number("process", "pid"),
        Column::text("role", "role"),
        Column::number("rank", "rank"),
        Column::number("job", "job"),
        Column::text("GPU", "gpu"),
        Column::number("polls every", "interval_s"),
        Column::text("command", "command"),
    ]);
    for one in all {
        let gpus = one.facts.gpus.as_deref().filter(|gpus| !gpus.is_empty());
        let mut command = text::clean(&shown(&one.facts.command), 60);
        if one.facts.is_contained {
            command = format!("{command} (in a container, as {})", one.own_pid);
        }
        if one.is_foreign {
            command = format!("{command} (user {})", one.facts.uid);
        }
        if one.is_busy {
            command = format!("{command} (its own profiler is on)");
        }
        table.push(vec![
            Cell::text(one.pid),
            Cell::text(role(one.role)),
            Cell::maybe(one.facts.rank, Cell::text),
            Cell::maybe(Some(one.job).filter(|job| *job != 0), Cell::text),
            Cell::maybe(one.gpu.map(|gpu| gpu.to_string()).or_else(|| gpus.map(list)), Cell::text),
            Cell::maybe(one.interval, |interval| {
                Cell::new(format!("{:.0} s", interval.as_secs_f64()), interval.as_secs_f64())
            }),
            Cell::text(command),
        ]);
    }
    table.write_text(out)
}

fn list(gpus: &[u32]) -> String {
    gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// JSON in the format `habitat-attach-list`, version 1.
pub(super) fn list_json(all: &[Listed]) -> Value {
    let processes: Vec<Value> = all
        .iter()
        .map(|one| {
            json!({
                "pid": one.pid,
                "own_pid": one.own_pid,
                "role": match one.role {
                    Role::Trains => "trains",
                    Role::Launches => "launches",
                    Role::Helps { .. } => "helps",
                    Role::Unclear => "unclear",
                },
                "helps": if let Role::Helps { of } = one.role { Some(of) } else { None },
                "rank": one.facts.rank,
                "rendezvous": one.facts.rendezvous,
                "job": Some(one.job).filter(|job| *job != 0),
                "device": one.gpu,
                "open_gpus": one.facts.gpus,
                "uid": one.facts.uid,
                "is_contained": one.facts.is_contained,
                "is_busy": one.is_busy,
                "interval_s": one.interval.map(|interval| interval.as_secs_f64()),
                "command": one.facts.command,
            })
        })
        .collect();
    json!({"format": "habitat-attach-list", "version": 1, "processes": processes})
}

/// Notes for the profile on how it was recorded.
pub(super) fn notes(attached: &Attached) -> Vec<String> {
    let mut notes = vec![format!(
        "attached to {} while running; iterations recorded: {}",
        numbers(&attached.traces.iter().map(|trace| trace.pid).collect::<Vec<_>>()),
        attached.iterations
    )];
    match attached.aligned {
        Some(true) => notes.push("the ranks recorded the same steps".to_owned()),
        Some(false) => notes.push("the ranks recorded different steps".to_owned()),
        None if attached.traces.len() > 1 => {
            notes.push("unknown whether the ranks recorded the same steps".to_owned());
        }
        None => {}
    }
    if !attached.gone.is_empty() {
        notes.push(format!("without {}, which exited meanwhile", numbers(&attached.gone)));
    }
    notes
}

/// Phases of the attach, in seconds. Phases that the trace does not separate are one.
fn split(attached: &Attached, import: f64) -> Vec<(&'static str, &'static str, f64)> {
    let times = attached.times;
    let since = |later: f64, earlier: f64| (later - earlier).max(0.0);
    let mut parts = vec![
        ("found the job", "registration_s", times.heard),
        ("until the request", "request_s", since(times.asked, times.heard)),
    ];
    match (times.began, times.ended) {
        (Some(began), Some(ended)) => {
            parts.push(("wait for a step", "step_wait_s", since(began, times.asked)));
            parts.push(("recording", "recording_s", since(ended, began)));
            parts.push(("writing", "writing_s", since(times.written, ended)));
        }
        _ => parts.push(("recording and writing", "recording_s", since(times.written, times.asked))),
    }
    parts.push(("import", "import_s", import));
    parts
}

/// Writes the report.
pub(super) fn report(
    attached: &Attached,
    assembled: &Assembled,
    output: &Path,
    import: f64,
    out: &mut dyn Write,
) -> io::Result<()> {
    summary::write_profile(&assembled.profile, &output.display().to_string(), out)?;
    let found = &assembled.summary;
    writeln!(out, "  steps by {}: {} found, {} used", found.marks.name(), found.steps_found, found.steps_used)?;
    let parts: Vec<String> =
        split(attached, import).iter().map(|(name, _, seconds)| format!("{name} {seconds:.1} s")).collect();
    writeln!(out, "  {:.1} s in all: {}", attached.times.written + import, parts.join(", "))?;
    if attached.ignored > 0 {
        writeln!(out, "  note: ignored {} malformed messages", attached.ignored)?;
    }
    writeln!(out, "\nthe job keeps running; {}", hints::lines(output, &assembled.profile))
}

/// JSON in the format `habitat-attach`, version 1.
pub(super) fn json(attached: &Attached, assembled: &Assembled, output: &Path, import: f64) -> Value {
    let traces: Vec<Value> = attached
        .traces
        .iter()
        .map(|trace| {
            json!({
                "pid": trace.pid,
                "rank": trace.rank,
                "device": trace.gpu,
                "command": trace.command,
                "trace_bytes": trace.bytes,
                "asked": trace.asked,
                "interval_s": trace.interval.map(|interval| interval.as_secs_f64()),
                "window_start_us": trace.span.map(|span| span.start_us),
                "window_us": trace.span.map(Span::duration_us),
            })
        })
        .collect();
    let times: serde_json::Map<String, Value> =
        split(attached, import).iter().map(|(_, key, seconds)| ((*key).to_owned(), Value::from(*seconds))).collect();
    json!({
        "format": "habitat-attach",
        "version": 1,
        "profile": output.display().to_string(),
        "operations": assembled.profile.operations.len(),
        "iterations": attached.iterations,
        "steps_used": assembled.summary.steps_used,
        "traces": traces,
        "aligned": attached.aligned,
        "rounds": attached.rounds,
        "gone": attached.gone,
        "seconds": times,
        "total_s": attached.times.written + import,
        "messages_ignored": attached.ignored,
        "messages_late": attached.stale,
        "notes": assembled.profile.recording.as_ref().map(|recording| &recording.notes),
    })
}

/// A command for a narrow column: the program without its folder, then its arguments.
fn shown(command: &[String]) -> String {
    let program = command.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    let words: Vec<&str> = program.into_iter().chain(command.iter().skip(1).map(String::as_str)).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_words() {
        assert_eq!((numbers(&[7]), numbers(&[7, 8])), ("process 7".to_owned(), "processes 7, 8".to_owned()));
    }
}
