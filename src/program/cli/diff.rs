//! `habitat-tui diff`: compares two recordings of a step.

use std::io::Write;

use super::error::CliError;
use super::hints::{self, command_of};
use super::input::{Loaded, load_file};
use super::output::{check_new, print_json, save_html};
use crate::settings::args::{DiffArgs, TableForm};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_reports::gate::Gate;
use habitat_reports::html;
use habitat_reports::recordings::{self, Recordings};
use habitat_step::profile::breakdown::GroupBy;

/// Exit code if the second step is longer by more than `--fail-over`.
const LONGER: u8 = 3;

pub(super) fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    for path in args.html.iter().chain(&args.junit) {
        check_new(path, args.file_args.force)?;
    }
    let catalog = store::catalog(&Paths::find())?;
    let [mut first, mut second] = [load_file(&args.first, &catalog)?, load_file(&args.second, &catalog)?];
    // Times of two CPUs compare; those of a CPU and of a GPU do not.
    if let (Some(one), Some(other)) = (first.profile.on_cpu(), second.profile.on_cpu()) {
        (first.profile, second.profile) = (one, other);
    }
    first.warn();
    second.warn();
    let compared = compared([&first, &second], args.by)?;
    if !args.form.is_text() && !args.form.markdown {
        let [warning, _] = recordings::warnings(compared.difference.steps);
        if let Some(warning) = warning {
            terminal::say(format_args!("warning: {warning}"));
        }
    }
    let most = if args.all { usize::MAX } else { recordings::TOP };
    let gate = Gate { compared: &compared, most: args.fail_over };
    match args.form {
        TableForm { json: true, .. } => _ = print_json(&recordings::json(&compared), out)?,
        TableForm { csv: true, .. } => recordings::csv_table(&compared).write_csv(out)?,
        TableForm { markdown: true, .. } => {
            if let Some(verdict) = gate.markdown() {
                writeln!(out, "{verdict}\n")?;
            }
            recordings::write_markdown(&compared, most, out)?;
        }
        TableForm { .. } => recordings::write_text(&compared, most, terminal::width(), out)?,
    }
    out.flush()?;
    if let Some(path) = &args.html {
        let report = html::of_recordings(&compared, &hints::typed().to_string(), store::now());
        save_html(&report, path, args.file_args.force)?;
    }
    if let Some(path) = &args.junit {
        store::save_atomically(path, gate.junit().as_bytes(), args.file_args.force)?;
    }
    let Some(failure) = gate.failure() else { return Ok(0) };
    terminal::say(failure);
    Ok(LONGER)
}

/// Compares the second recording with the first. If one has no times, the error says how to get them.
pub(super) fn compared(recorded: [&Loaded; 2], by: GroupBy) -> Result<Recordings<'_>, CliError> {
    let labels = recorded.map(|loaded| loaded.label.as_str());
    let compared = Recordings::new(recorded.map(|loaded| &loaded.profile), labels, by);
    compared.map_err(|(place, lacks)| {
        let predict = |label| command_of(&["predict", label, "--to", "h100-sxm5-80gb"]);
        CliError::Refused(format!(
            "{lacks}, so times cannot be compared. Record the step on a GPU (`habitat-tui run`, `attach`, or a trace of torch.profiler with ProfilerActivity.CUDA), both on CPUs (for `habitat-tui diff`), or compare predictions for both:\n  {}\n  {}",
            predict(labels[0]),
            predict(labels[1])
        ))
        .at(labels[place])
    })
}
