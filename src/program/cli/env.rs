//! `habitat-tui env`: environment variables that make a job ready for `attach`.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::error::CliError;
use super::output::print_json;
use crate::settings::args::{EnvArgs, ShellArg};
use crate::store::{self, Limit, Paths};
use habitat_recorder::capture::Private;
use habitat_recorder::capture::on_demand::{self, AttachError, DAEMON_VARIABLE, FOLDER_VARIABLE};

/// Variable with the path of libkineto's settings file.
const CONFIG_VARIABLE: &str = "KINETO_CONFIG";
/// Path of libkineto's settings file if the variable is not set.
const SYSTEM_CONFIG: &str = "/etc/libkineto.conf";
/// Setting that makes a job poll every second.
const FAST: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";

/// Folder of the socket: from the flag, the environment, or our default.
pub(super) fn folder(given: Option<&Path>) -> Result<PathBuf, AttachError> {
    let set = std::env::var_os(FOLDER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    on_demand::folder(given.or(set.as_deref()), || Private::find(Paths::cache()))
}

pub(super) fn run(args: &EnvArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let folder = folder(args.socket_dir.as_deref())?;
    let mut variables: Vec<(&str, String, &str)> = vec![
        (DAEMON_VARIABLE, "1".to_owned(), "make PyTorch poll for recording requests, every 5 s"),
        (FOLDER_VARIABLE, folder.display().to_string(), "through a socket in this folder; it is idle until you attach"),
        ("KINETO_LOG_LEVEL", "6".to_owned(), "without messages in the job's output"),
    ];
    if args.fast {
        let path = fast(&folder)?;
        variables[0].2 = "make PyTorch poll for recording requests";
        variables.push((CONFIG_VARIABLE, path.display().to_string(), "every second"));
    }
    if args.json {
        let values: Map<String, Value> =
            variables.iter().map(|(name, value, _)| ((*name).to_owned(), Value::from(value.as_str()))).collect();
        return print_json(&json!({"format": "habitat-env", "version": 1, "variables": values}), out);
    }
    if args.shell == ShellArg::Plain {
        for (name, value, _) in &variables {
            writeln!(out, "{name}={value}")?;
        }
        return Ok(0);
    }
    writeln!(out, "# Set these before the job starts; `habitat-tui attach` then records its step at any time.")?;
    for (name, value, meaning) in &variables {
        writeln!(out, "# {meaning}:")?;
        let value = quoted(value, args.shell);
        match args.shell {
            ShellArg::Fish => writeln!(out, "set -gx {name} {value}")?,
            _ => writeln!(out, "export {name}={value}")?,
        }
    }
    for note in [
        "Without KINETO_IPC_SOCKET_DIR and dynolog, the job's processes would wait up to 10 s before they exit.",
        "With PyTorch before 2.12, a program that starts its own torch.profiler may crash if that happens while our trace is written: use `habitat-tui run` for it.",
        "PyTorch 2.1 on a machine without a GPU cannot be attached to and prints a warning at every step.",
        "A program that calls os.fork() itself after importing PyTorch may hang in the child: use `habitat-tui run` for it.",
    ] {
        writeln!(out, "# {note}")?;
    }
    Ok(0)
}

/// Writes the settings file that makes a job poll every second.
fn fast(folder: &Path) -> Result<PathBuf, CliError> {
    let path = folder.join("kineto.conf");
    let set = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(own) = set.filter(|own| *own != path) {
        return Err(CliError::Refused(format!(
            "--fast: {CONFIG_VARIABLE} already points to {}; add the line {} to it and omit --fast",
            own.display(),
            FAST.trim_end()
        )));
    }
    // Keep the settings of the system-wide file.
    let mut text = store::read_text(SYSTEM_CONFIG.as_ref(), Limit::SETTINGS).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(FAST);
    store::save_atomically(&path, text.as_bytes(), true)?;
    Ok(path)
}

/// Quotes a value as one word of the shell.
fn quoted(value: &str, shell: ShellArg) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,@%".contains(c);
    if value.chars().all(is_plain) && !value.is_empty() {
        return value.to_owned();
    }
    match shell {
        ShellArg::Fish => format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'")),
        _ => format!("'{}'", value.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_one_word() {
        assert_eq!(quoted("/tmp/a-b_1.c", ShellArg::Sh), "/tmp/a-b_1.c");
        assert_eq!(quoted("/tmp/a b'c", ShellArg::Sh), r"'/tmp/a b'\''c'");
        assert_eq!(quoted("/tmp/a b'c", ShellArg::Fish), r"'/tmp/a b\'c'");
        assert_eq!(quoted("$HOME", ShellArg::Sh), "'$HOME'");
    }
}
