//! Guesses what a user meant by arguments that are neither a command nor a file.

use std::path::Path;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::hints::command_of;
use crate::settings::args::Cli;
use crate::store::{self, Kind};
use habitat_base::text;

/// A message instead of clap's for a mistyped command, a command after its file, or several files; `None` if clap's own
/// message is better.
pub fn suggestion(error: &clap::Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::ArgumentConflict) {
        return None;
    }
    let typed: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let words: Vec<usize> = (0..typed.len()).filter(|at| !typed[*at].starts_with('-')).collect();
    let first = *words.first()?;
    if is_command(&typed[first]) {
        let meant = || of_flag(error, &typed, first).or_else(|| of_file(error, &typed[first]));
        return (error.kind() == ErrorKind::UnknownArgument).then(meant).flatten();
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

/// A message for a flag that this command lacks: near flags of the same command come before other commands with that
/// flag.
fn of_flag(error: &clap::Error, typed: &[String], at: usize) -> Option<String> {
    let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg) else { return None };
    let name = flag.split([' ', '=']).next()?.strip_prefix("--")?;
    let cli = Cli::command();
    let command = cli.find_subcommand(&typed[at]);
    // A command of a command, such as `prices update`: no other one is meant.
    let nested = typed.get(at + 1).and_then(|word| command?.find_subcommand(word));
    let own = nested.or(command).and_then(|command| near_flag(name, command));
    let place = typed.iter().position(|word| word.split('=').next().is_some_and(|word| word == format!("--{name}")));
    let own = own.zip(place).map(|(own, place)| {
        let mut words = typed.to_vec();
        words[place] = words[place].replacen(name, &own, 1);
        format!("\n  {}", command_of(&words))
    });
    let has = |command: &&clap::Command| command.get_arguments().any(|argument| argument.get_long() == Some(name));
    let all = cli.get_subcommands().filter(|command| nested.is_none() && !command.is_hide_set() && has(command));
    let all = all.map(clap::Command::get_name);
    let with = |other: &str| {
        let words = typed.iter().enumerate().map(|(place, word)| if place == at { other } else { word.as_str() });
        format!("\n  {}", command_of(&words.collect::<Vec<_>>()))
    };
    let others: Vec<String> = all.take(4).map(with).collect();
    match (own, others.concat()) {
        (None, others) if others.is_empty() => None,
        (None, others) => Some(format!("{} has no --{name}. Did you mean this?{others}", typed[at])),
        (Some(own), others) if others.is_empty() => {
            Some(format!("{} has no --{name}. Did you mean this?{own}", typed[at]))
        }
        (Some(own), others) => Some(format!(
            "{} has no --{name}. Did you mean this?{own}\nOther commands have --{name}:{others}",
            typed[at]
        )),
    }
}

/// The flag of a command that a name is meant for: one with the same words and others (`machines`, `max-machines`), the
/// shortest first, else the nearest spelling.
fn near_flag(name: &str, command: &clap::Command) -> Option<String> {
    let flags = || command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(clap::Arg::get_long);
    let within = |few: &str, many: &str| few.split('-').all(|word| many.split('-').any(|other| other == word));
    let by_words = flags().filter(|flag| within(name, flag) || within(flag, name));
    let near = by_words.min_by_key(|flag| flag.len()).or_else(|| text::misspelt(name, flags()));
    near.map(str::to_owned)
}

/// A message for a file that this command does not take, but another one does.
fn of_file(error: &clap::Error, command: &str) -> Option<String> {
    let Some(ContextValue::String(file)) = error.get(ContextKind::InvalidArg) else { return None };
    let path = Path::new(file);
    let kind = if path.is_file() { store::kind(path).ok()? } else { return None };
    let remedy = kind.remedy(path).filter(|_| matches!(kind, Kind::Other(_)))?;
    Some(format!("{command}: unexpected {}, which looks like {}; {remedy}", text::clean(file, 200), kind.what()))
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
