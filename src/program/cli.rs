//! The commands: everything that the screens show, without a terminal.
//!
//! `run` returns an exit code, or asks the binary to open the screens.

mod answer;
#[cfg(target_os = "linux")]
mod attach;
mod batches;
#[cfg(unix)]
mod calibrate;
mod check;
mod collect;
mod compare;
mod diff;
#[cfg(target_os = "linux")]
mod env;
mod error;
mod export;
mod fit;
mod goal;
mod gpu;
mod hints;
mod import;
mod input;
mod jobs;
#[cfg(unix)]
mod kept;
mod mcp;
#[cfg(unix)]
mod named;
mod options;
mod output;
mod own;
mod plan;
mod prices;
mod print;
mod progress;
#[cfg(unix)]
mod run;
mod scaling;
mod screens;
mod speed;
mod suggest;
#[cfg(unix)]
mod trace_shapes;
mod typed;
#[cfg(not(target_os = "linux"))]
mod unavailable;

use std::io::{self, Write};

use crate::settings::args::{self, Cli, Command, FileArgs, ModelsCommand};
use crate::store::{self, Paths};
use crate::terminal;

#[cfg(not(target_os = "linux"))]
use unavailable::{attach, env};
#[cfg(not(unix))]
use unavailable::{calibrate, kept, run, trace_shapes};

pub use error::CliError;
pub use input::{Loaded, load};
pub use jobs::Jobs;
pub use options::settings;
pub use output::print_json;
pub use own::typed as own_machines;
pub use screens::{Outcome, Screens};
pub use typed::{of_variable, suggestion};
// Used by the workshop (`models/lab`), which reads, names and reports as the commands do.
pub use fit::black_box::write as fit_black_box;
pub use fit::kernelwise::add_tables;
pub use gpu::all as all_gpus;
pub use input::{resolve, workload_name};
pub use options::weights_folder;
pub use progress::{Progress, span};

/// Runs a command line.
///
/// # Errors
/// [`CliError`] with the file, the place, the value and the remedy.
pub fn run(mut cli: Cli) -> Result<Outcome, CliError> {
    if !matches!(cli.command, Some(Command::Completions(_) | Command::Man(_) | Command::Schema(_))) {
        check_folders()?;
    }
    let is_paged = cli.command.as_mut().and_then(Command::text);
    match cli.command.as_mut().and_then(Command::document) {
        Some(FileArgs { output: Some(path), force }) => {
            output::check_form(&path)?;
            output::check_new(&path, force)?;
            let mut text = Vec::new();
            let outcome = command(cli, &mut text)?;
            store::save_atomically(&path, &text, force)?;
            Ok(outcome)
        }
        _ => match is_paged.filter(|_| terminal::size().is_some()) {
            Some(is_paged) => {
                let mut text = Vec::new();
                let outcome = command(cli, &mut text);
                terminal::page(&text, is_paged && outcome.is_ok())?;
                outcome
            }
            None => command(cli, &mut terminal::stdout()),
        },
    }
}

/// Prints the help that the command line requests, through the pager if it is long.
///
/// # Errors
/// [`CliError`] with the topics of the command, for a word that none of its flags has.
pub fn help() -> Result<u8, CliError> {
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let columns = terminal::width().map_or(100, |width| width.clamp(40, 100));
    let text = args::help(&typed, columns.into()).map_err(CliError::Refused)?;
    terminal::page(text.as_bytes(), true)?;
    Ok(0)
}

/// Runs a command line. Documents and text for people are written to `out`.
fn command(cli: Cli, out: &mut dyn Write) -> Result<Outcome, CliError> {
    let code = match cli.command {
        None => return screens::run(cli.screens, out),
        Some(Command::Run(args)) => return run::run(args, cli.screens),
        Some(Command::Join(args)) => return kept::join(&args, cli.screens),
        Some(Command::History(args)) => kept::history(&args, out)?,
        Some(Command::Jobs(args)) => kept::jobs(&args, out)?,
        Some(Command::Attach(args)) => attach::run(&args, out)?,
        Some(Command::Env(args)) => env::run(&args, out)?,
        Some(Command::TraceShapes(args)) => trace_shapes::run(&args, out)?,
        Some(Command::Import(args)) => import::run(&args, out)?,
        Some(Command::Predict(args)) => answer::predict(&args, out)?,
        Some(Command::Export(args)) => export::run(&args, out)?,
        Some(Command::Plan(args)) => plan::run(&args, out)?,
        Some(Command::PlanJobs(args)) => jobs::run(&args, out)?,
        Some(Command::Compare(args)) => compare::run(&args, out)?,
        Some(Command::CompareSpeed(args)) => speed::run(&args, out)?,
        Some(Command::Diff(args)) => diff::run(&args, out)?,
        Some(Command::Batches(args)) => batches::run(&args, out)?,
        Some(Command::Gpus(args)) => print::gpus(&args, out)?,
        Some(Command::Offers(args)) => print::offers(&args, out)?,
        Some(Command::Prices(args)) => prices::run(&args, out)?,
        Some(Command::Schema(args)) => print::schema(args.of, out)?,
        Some(Command::Check(args)) => check::run(&args, out)?,
        Some(Command::Models(args)) => match &args.command {
            ModelsCommand::Suggest(args) => suggest::run(args, out)?,
        },
        Some(Command::Calibrate(args)) => calibrate::run(&args, out)?,
        Some(Command::CalibrateScaling(args)) => scaling::run(&args, out)?,
        Some(Command::Collect(args)) => collect::run(&args)?,
        Some(Command::Fit(args)) => fit::run(&args, out)?,
        Some(Command::Completions(args)) => print::completions(args.shell, out)?,
        Some(Command::Man(args)) => print::man(args.command.as_deref(), out)?,
        Some(Command::Mcp) => mcp::run()?,
        Some(Command::Config(args)) => print::config(&args, out)?,
        Some(Command::Help(_)) => help()?,
        #[cfg(unix)]
        Some(Command::JobLog) => {
            habitat_recorder::capture::log::write()?;
            0
        }
        #[cfg(not(unix))]
        Some(Command::JobLog) => 2,
    };
    out.flush()?;
    Ok(Outcome::Exit(code))
}

/// Checks that the user's folders can be entered. A service that runs under another user's name may not see root's.
fn check_folders() -> Result<(), CliError> {
    let paths = Paths::find();
    let Some((folder, why)) = paths.closed() else { return Ok(()) };
    let problem = format!("{}: not accessible ({why})", folder.display());
    let variable = store::paths::CONFIG_DIR_VARIABLE;
    if Paths::is_given() {
        return Err(CliError::Refused(format!("{problem}; {variable} points to it")));
    }
    if why.kind() != io::ErrorKind::NotADirectory {
        terminal::say(format_args!(
            "warning: {problem}; your own settings, GPUs and prices are ignored (set {variable} to use another folder)"
        ));
    }
    Ok(())
}
