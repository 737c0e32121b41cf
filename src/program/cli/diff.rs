//! `habitat-tui diff`: compares two recordings of a step.

use std::io::Write;

use super::error::CliError;
use super::hints::{self, command_of};
use super::input::{Loaded, load_file};
use super::output::{check_new, print_json, save_html};
use crate::settings::args::{DiffArgs, TableForm};
use crate::store::{self, Paths};
use crate::terminal;
use habitat_reports::recordings::{self, Recordings};
use habitat_reports::{format, html};
use habitat_step::profile::breakdown::GroupBy;
use habitat_step::profile::difference::Spread;

/// Exit code if the second step is longer by more than `--fail-over`.
const LONGER: u8 = 3;

pub(super) fn run(args: &DiffArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    args.html.as_deref().map_or(Ok(()), |path| check_new(path, args.file_args.force))?;
    let catalog = store::catalog(&Paths::find())?;
    let [first, second] = [load_file(&args.first, &catalog)?, load_file(&args.second, &catalog)?];
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
    match args.form {
        TableForm { json: true, .. } => _ = print_json(&recordings::json(&compared), out)?,
        TableForm { csv: true, .. } => recordings::csv_table(&compared).write_csv(out)?,
        TableForm { markdown: true, .. } => recordings::write_markdown(&compared, most, out)?,
        TableForm { .. } => recordings::write_text(&compared, most, terminal::width(), out)?,
    }
    out.flush()?;
    if let Some(path) = &args.html {
        let report = html::of_recordings(&compared, &hints::typed().to_string(), store::now());
        save_html(&report, path, args.file_args.force)?;
    }
    let Some(longer) = compared.difference.share().zip(args.fail_over).filter(|(share, most)| share > most) else {
        return Ok(0);
    };
    let (share, most) = longer;
    let chance = match compared.difference.spread() {
        Spread::Beyond => "",
        Spread::Within => "; this may be noise: the recorded step times overlap",
        Spread::Unknown => "; it could be noise: a recording has a single step",
    };
    terminal::say(format_args!(
        "the second step is {} longer than the first, more than the {} of --fail-over{chance}",
        format::percent(share),
        format::percent(most)
    ));
    Ok(LONGER)
}

/// Compares the second recording with the first. If one has no times, the error says how to get them.
pub(super) fn compared(recorded: [&Loaded; 2], by: GroupBy) -> Result<Recordings<'_>, CliError> {
    let labels = recorded.map(|loaded| loaded.label.as_str());
    let compared = Recordings::new(recorded.map(|loaded| &loaded.profile), labels, by);
    compared.map_err(|(place, lacks)| {
        let predict = |label| command_of(&["predict", label, "--to", "h100-sxm5-80gb"]);
        CliError::Refused(format!(
            "{lacks}, so times cannot be compared. Record the step on a GPU (`habitat-tui run`, `attach`, or a trace of torch.profiler with ProfilerActivity.CUDA), or compare predictions for both:\n  {}\n  {}",
            predict(labels[0]),
            predict(labels[1])
        ))
        .at(labels[place])
    })
}
