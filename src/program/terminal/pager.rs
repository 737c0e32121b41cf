//! Text that is longer than the terminal, through the user's pager.

use std::env;
use std::io::{self, Write};
use std::process::{Command, ExitStatus, Stdio};

use unicode_width::UnicodeWidthStr;

use habitat_reports::wrap::wrap_sentences;

use super::{Cleaned, say, size, stdout};

/// Variables that name the pager, the first that is set.
const VARIABLES: [&str; 2] = ["HABITAT_TUI_PAGER", "PAGER"];

/// Writes text for people to standard output. On a terminal, sentences wrap at words; the pager shows text with more
/// lines than the terminal, if `is_paged`.
///
/// The pager is the one of `HABITAT_TUI_PAGER` or `PAGER`, else `less -FRX`; empty and `cat` are none. If it is missing or
/// fails, the text is written as it is. A user who leaves it early has read enough.
///
/// # Errors
/// Those of standard output.
pub fn page(text: &[u8], is_paged: bool) -> io::Result<()> {
    let mut cleaned = Vec::new();
    Cleaned::new(&mut cleaned).write_all(text)?;
    if let Some([columns, rows]) = size() {
        cleaned = wrap_sentences(&String::from_utf8_lossy(&cleaned), columns.into()).into_bytes();
        let is_long = is_paged && lines(&cleaned, columns) >= usize::from(rows);
        if is_long && Pager::chosen().is_some_and(|pager| pager.shows(&cleaned)) {
            return Ok(());
        }
    }
    let mut out = stdout();
    out.write_all(&cleaned)?;
    out.flush()
}

/// Lines that the text takes on a terminal of `columns` columns.
fn lines(text: &[u8], columns: u16) -> usize {
    let columns = usize::from(columns.max(1));
    String::from_utf8_lossy(text).lines().map(|line| line.width().div_ceil(columns).max(1)).sum()
}

/// A program that shows text page by page.
#[derive(Debug, PartialEq, Eq)]
enum Pager {
    /// `less`, if it is there.
    Usual,
    /// A command line that the user names.
    Named(String),
}

impl Pager {
    /// The one to use; `None` for none.
    fn chosen() -> Option<Self> {
        let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb");
        let named = VARIABLES.into_iter().find_map(env::var_os).map(|named| named.to_string_lossy().into_owned());
        Self::of(named.as_deref()).filter(|_| !is_dumb)
    }

    fn of(named: Option<&str>) -> Option<Self> {
        match named.map(str::trim) {
            None => Some(Self::Usual),
            Some("" | "cat") => None,
            Some(named) => Some(Self::Named(named.to_owned())),
        }
    }

    fn command(&self) -> Command {
        let mut command = match self {
            Self::Usual => {
                let mut command = Command::new("less");
                command.arg("-FRX");
                command
            }
            Self::Named(line) => in_shell(line),
        };
        for (name, value) in [("LESS", "FRX"), ("LESSCHARSET", "utf-8")] {
            if env::var_os(name).is_none() {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::piped());
        command
    }

    /// Whether it has shown the text. If not, a message says why, except if `less` is not installed.
    fn shows(&self, text: &[u8]) -> bool {
        // Ctrl-C is for the pager, and must not end us before it.
        #[cfg(unix)]
        let _ = signal_hook::flag::register(signal_hook::consts::SIGINT, std::sync::Arc::default());
        let failed = match self.run(text) {
            Ok(status) if is_left(status) => return true,
            Ok(status) => status.to_string(),
            Err(error) if *self == Self::Usual && error.kind() == io::ErrorKind::NotFound => return false,
            Err(error) => error.to_string(),
        };
        let name = match self {
            Self::Usual => "less",
            Self::Named(line) => line,
        };
        say(format_args!("the pager `{name}` failed ({failed}): all of the output follows"));
        false
    }

    fn run(&self, text: &[u8]) -> io::Result<ExitStatus> {
        let mut child = self.command().spawn()?;
        if let Some(mut input) = child.stdin.take() {
            // One that is left early does not read to the end.
            let _ = input.write_all(text);
        }
        child.wait()
    }
}

/// A command line as the user's shell takes it.
fn in_shell(line: &str) -> Command {
    let (shell, flag) = if cfg!(windows) { ("cmd", "/C") } else { ("sh", "-c") };
    let mut command = Command::new(shell);
    command.args([flag, line]);
    command
}

/// Whether the pager ended well, or by a signal that a user or a closed terminal sends.
fn is_left(status: ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;

        use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};
        // A shell reports a signal as 128 plus its number.
        let signal = status.signal().or_else(|| status.code()?.checked_sub(128));
        status.success() || signal.is_some_and(|signal| [SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM].contains(&signal))
    }
    #[cfg(not(unix))]
    status.success()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_too_wide_take_several() {
        let text = "a\n\n12345678901\né日本日本\n";
        assert_eq!([10, 5, 1].map(|columns| lines(text.as_bytes(), columns)), [5, 7, 22]);
        assert_eq!(lines(b"", 80), 0);
    }

    #[test]
    fn no_pager_is_asked_for_by_name() {
        assert_eq!(Pager::of(None), Some(Pager::Usual));
        assert_eq!([Some(""), Some(" "), Some("cat")].map(Pager::of), [None, None, None]);
        assert_eq!(Pager::of(Some("less -R")), Some(Pager::Named("less -R".to_owned())));
    }
}
