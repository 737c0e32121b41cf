//! Arguments of commands that print built-in data.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// Formats of a table.
#[derive(Debug, Clone, Copy, Default, Args)]
#[group(multiple = false)]
pub struct TableForm {
    /// As JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// As CSV.
    #[arg(long, help_heading = "Output")]
    pub csv: bool,
    /// As a Markdown table.
    #[arg(long, help_heading = "Output")]
    pub markdown: bool,
}

impl TableForm {
    /// Whether no format is set, so the output is text for people.
    pub(crate) const fn is_text(self) -> bool {
        !(self.json || self.csv || self.markdown)
    }
}

/// Output file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct FileArgs {
    /// Write to this file instead of standard output.
    ///
    /// The format of a table follows from the extension (.json, .csv, .md) unless a flag sets it.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long, help_heading = "Output")]
    pub force: bool,
}

/// Whether long text is paged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct PagerArgs {
    /// Print at once, without a pager, what is longer than the terminal.
    ///
    /// The pager is that of `HABITAT_TUI_PAGER` or `PAGER`, else `less -FRX`. Nothing is paged that goes to a pipe or a
    /// file, nor JSON, CSV or Markdown.
    #[arg(long, help_heading = "Output")]
    pub no_pager: bool,
}

impl FileArgs {
    /// The file's extension in lower case, without that of a compression.
    pub fn ending(path: &Path) -> Option<String> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
        name.rsplit_once('.').map(|(_, ending)| ending.to_owned())
    }
}

impl TableForm {
    /// The format, from the file's extension if no flag sets one.
    #[must_use]
    pub(crate) fn for_file(self, path: &Path) -> Self {
        let ending = FileArgs::ending(path).filter(|_| self.is_text());
        match ending.as_deref() {
            Some("json") => Self { json: true, ..self },
            Some("csv") => Self { csv: true, ..self },
            Some("md" | "markdown") => Self { markdown: true, ..self },
            _ => self,
        }
    }
}

/// How a table is written.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// Output format.
    #[command(flatten)]
    pub form: TableForm,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `gpus`.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Only GPUs with this text in slug, name or architecture.
    pub filter: Option<String>,
    /// Print the catalog file of one GPU, as a template for your own.
    #[arg(long, value_name = "GPU", conflicts_with_all = ["filter", "json", "csv", "markdown"])]
    pub toml: Option<String>,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `offers`.
#[derive(Debug, Args)]
pub struct OffersArgs {
    /// Only offers with this text in provider, region (or its place), instance type or GPU.
    pub filter: Option<String>,
    /// Only this GPU.
    #[arg(long)]
    pub gpu: Option<String>,
    /// Exclude offers of hosts on peer-to-peer markets.
    #[arg(long)]
    pub no_marketplace: bool,
    /// Include offers that plans do not use, with the reason.
    #[arg(long)]
    pub all: bool,
    /// How the table is written.
    #[command(flatten)]
    pub table: TableArgs,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The format.
    #[arg(value_enum, default_value_t = SchemaArg::Profile)]
    pub of: SchemaArg,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Formats with a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaArg {
    /// `*.habitat.json`.
    Profile,
    /// Output of `predict --json`.
    Predictions,
    /// Output of `predict --all-methods --json`.
    Comparison,
    /// Output of `predict --difference --json`.
    Difference,
    /// Output of `diff --json`.
    Diff,
    /// Output of `plan --json`.
    Plan,
    /// The file of `plan-jobs`, in TOML.
    Jobs,
    /// Output of `plan-jobs --json`.
    PlanJobs,
    /// `*.blackbox.json`.
    BlackBox,
    /// A line of `run --json-lines`, `join --json-lines` and `jobs --json-lines`.
    JobLines,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Files to check: profiles (.json…); catalog and price files, calibrations, plans, jobs, themes, settings (.toml).
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell.
    pub shell: clap_complete::Shell,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the key bindings in the format of the settings file.
    #[arg(long)]
    pub keys: bool,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// A command, and a topic, a flag or any word of its flags.
    #[arg(value_name = "COMMAND [TOPIC]", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A command, for its own page.
    pub command: Option<String>,
    /// Output file.
    #[command(flatten)]
    pub file_args: FileArgs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_follows_from_the_ending() {
        let form = |name: &str| {
            let form = TableForm::default().for_file(Path::new(name));
            [form.json, form.csv, form.markdown]
        };
        for name in ["a.json", "A.JSON", "x/a.json.gz", "a.b.json.zst"] {
            assert_eq!(form(name), [true, false, false], "{name}");
        }
        assert_eq!((form("a.csv"), form("a.md")), ([false, true, false], [false, false, true]));
        for name in ["a", "a.txt", ".json.d/a", "/dev/stdout", "a.gz"] {
            assert_eq!(form(name), [false; 3], "{name}");
        }
        let csv = TableForm { csv: true, ..TableForm::default() };
        assert!(csv.for_file(Path::new("a.json")).csv && !csv.for_file(Path::new("a.json")).json);
    }
}
