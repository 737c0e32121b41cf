//! Guesses what a user meant by arguments that are neither a command nor a file.

use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::hints::command_of;
use crate::settings::args::Cli;
use habitat_base::text;

/// A message instead of clap's for a mistyped command, a command after its file, or several files; `None` if clap's own
/// message is better.
pub fn meant(error: &clap::Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict) {
        return None;
    }
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<usize> = (0..typed.len()).filter(|at| !typed[*at].starts_with('-')).collect();
    let first = *words.first()?;
    if is_command(&typed[first]) {
        return None;
    }
    if !Path::new(&typed[first]).exists() {
        let command = near(&typed[first])?;
        let mut words: Vec<&str> = typed.iter().map(String::as_str).collect();
        words[first] = &command;
        return Some(format!("{}; did you mean this?\n  {}", neither(&typed[first]), command_of(&words)));
    }
    let second = *words.get(1)?;
    let (one, two) = (&typed[first], &typed[second]);
    if is_command(two) {
        return Some(format!(
            "put the command {two} before its file {}:\n  {}",
            text::clean(one, 200),
            command_of(&[two, one])
        ));
    }
    Path::new(two).exists().then(|| {
        format!(
            "the screens open one recording at a time. Did you mean one of these?\n  {}\n  {}\n  {}   (shows which operations take longer in the second)\n  {}   (the same on the profile screen)\n  {}   (the ranks of one job)\n  {}   (one step at several batch sizes)",
            command_of(&[one]),
            command_of(&[two]),
            command_of(&["diff", one, two]),
            command_of(&[two, "--against", one]),
            command_of(&["import", one, two, "-o", "step.habitat.json.zst"]),
            command_of(&["batches", one, two]),
        )
    })
}

/// Clap's message for an invalid value from an environment variable, which clap ascribes to the flag; `None` for other
/// errors.
pub fn of_variable(error: &clap::Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8) {
        return None;
    }
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.split([' ', '=']).next()?.trim_start_matches('-');
    let cli = Cli::command();
    let all = cli.get_arguments().chain(cli.get_subcommands().flat_map(clap::Command::get_arguments));
    let argument = all.filter(|argument| argument.get_long() == Some(name)).find_map(clap::Arg::get_env)?;
    if std::env::var_os(argument).is_none() || is_typed(&format!("--{name}")) {
        return None;
    }
    let variable = format!("the environment variable {}", argument.to_string_lossy());
    Some(error.render().to_string().replace(&format!("'{flag}'"), &variable).trim_end().to_owned())
}

/// Whether a flag is on the command line, which takes precedence over its environment variable.
pub(super) fn is_typed(flag: &str) -> bool {
    let mut typed = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    typed.any(|word| word.split('=').next() == Some(flag))
}

/// A message for a missing file whose name resembles a command.
pub(super) fn no_file(path: &Path) -> Option<String> {
    let name = path.to_str().filter(|_| !path.exists())?;
    near(name).map(|command| format!("{}; did you mean `habitat-tui {command}`?", neither(name)))
}

fn neither(word: &str) -> String {
    format!("{}: neither a file nor a command of habitat-tui", text::clean(word, 200))
}

fn is_command(word: &str) -> bool {
    Cli::command().get_subcommands().any(|command| command.get_name() == word)
}

/// The command that a word is a misspelling of.
fn near(word: &str) -> Option<String> {
    let cli = Cli::command();
    text::misspelt(word, cli.get_subcommands().map(clap::Command::get_name)).map(str::to_owned)
}
