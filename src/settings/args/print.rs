//! Arguments of the commands that print what the program knows.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

/// Forms of a table.
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
    /// Whether it is none of them: text for people.
    pub const fn is_text(self) -> bool {
        !(self.json || self.csv || self.markdown)
    }
}

/// A file instead of standard output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct FileArgs {
    /// Write to this file instead of standard output.
    ///
    /// The form of a table follows from its ending (.json, .csv, .md) unless a flag names one.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
    /// Replace the file if it is there.
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
    /// What the name of the file ends with, without that of a compression, in small letters.
    pub fn ending(path: &Path) -> Option<String> {
        let name = path.file_name()?.to_string_lossy().to_lowercase();
        let name = [".gz", ".zst"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name);
        name.rsplit_once('.').map(|(_, ending)| ending.to_owned())
    }
}

impl TableForm {
    /// The form, by the ending of the file if no flag names one.
    #[must_use]
    pub fn for_file(self, path: &Path) -> Self {
        let ending = FileArgs::ending(path).filter(|_| self.is_text());
        match ending.as_deref() {
            Some("json") => Self { json: true, ..self },
            Some("csv") => Self { csv: true, ..self },
            Some("md" | "markdown") => Self { markdown: true, ..self },
            _ => self,
        }
    }
}

/// Arguments of `gpus`.
#[derive(Debug, Args)]
pub struct GpusArgs {
    /// Only GPUs with this in slug, name or architecture.
    pub filter: Option<String>,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Print the catalog file of one GPU, to start your own from.
    #[arg(long, value_name = "GPU", conflicts_with_all = ["filter", "json", "csv", "markdown"])]
    pub toml: Option<String>,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `offers`.
#[derive(Debug, Args)]
pub struct OffersArgs {
    /// Only offers with this in provider, region (or where it is), instance type or GPU.
    pub filter: Option<String>,
    /// Only this GPU.
    #[arg(long)]
    pub gpu: Option<String>,
    /// No offers of hosts on peer-to-peer markets.
    #[arg(long)]
    pub no_marketplace: bool,
    /// Offers that plans do not use as well, with the reason.
    #[arg(long)]
    pub all: bool,
    /// Output form.
    #[command(flatten)]
    pub form: TableForm,
    /// Whether long text is paged.
    #[command(flatten)]
    pub pager: PagerArgs,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Which form.
    #[arg(value_enum, default_value_t = SchemaArg::Profile)]
    pub of: SchemaArg,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Forms that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaArg {
    /// `*.habitat.json`.
    Profile,
    /// What `predict --json` prints.
    Predictions,
    /// What `predict --all-methods --json` prints.
    Comparison,
    /// What `predict --difference --json` prints.
    Difference,
    /// What `diff --json` prints.
    Diff,
    /// What `plan --json` prints.
    Plan,
    /// What `plan-jobs --json` prints.
    PlanJobs,
    /// `*.blackbox.json`.
    BlackBox,
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
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print the key bindings in the form of the settings file.
    #[arg(long)]
    pub keys: bool,
    /// A file instead of standard output.
    #[command(flatten)]
    pub file_args: FileArgs,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// A file instead of standard output.
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
