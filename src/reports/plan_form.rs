//! Output formats of a plan: for programs, for people, for tools that start jobs.

use std::io::Write;

use super::html::Report;
use super::launch::{self, LaunchError, Launcher};
use super::plan_toml::Request;
use super::{beside, goal, plan_toml, plans, predictions, words};
use habitat_base::text;
use habitat_planning::plan::Plan;
use habitat_prediction::Predictions;
use habitat_step::profile::Sample;

/// Output format of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanForm {
    /// The whole plan, in a form that can be priced again.
    Toml,
    /// The whole plan, for programs.
    Json,
    /// Parts and alternatives as a table.
    Csv,
    /// The same table, for people.
    Markdown,
    /// The report to share, with charts.
    Html,
    /// Input for a tool that starts jobs.
    Launch(Launcher),
}

/// Error: the plan cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum PlanFormError {
    /// The tool cannot start it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// TOML serialisation failed.
    #[error(transparent)]
    Toml(#[from] toml::ser::Error),
    /// JSON serialisation failed.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Writing failed.
    #[error(transparent)]
    Table(#[from] std::io::Error),
}

/// Contents of the output.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The predictions behind it.
    pub predictions: &'a Predictions,
    /// The recorded step and how it was predicted.
    pub request: &'a Request,
    /// Time of writing.
    pub created: jiff::Timestamp,
    /// Training command of the parts.
    pub start: &'a launch::Start,
    /// Whether TOML lists all rejected offers.
    pub all_rejected: bool,
    /// Contents of the HTML report; without it, HTML has no text.
    pub report: Option<&'a Report<'a>>,
}

impl PlanForm {
    /// All formats, in the order of the dialog.
    pub const ALL: [Self; 9] = [
        Self::Toml,
        Self::Json,
        Self::Csv,
        Self::Markdown,
        Self::Html,
        Self::Launch(Launcher::SkyPilot),
        Self::Launch(Launcher::Dstack),
        Self::Launch(Launcher::Slurm),
        Self::Launch(Launcher::Kubernetes),
    ];

    /// Name on screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Toml => "TOML",
            Self::Json => "JSON",
            Self::Csv => "CSV",
            Self::Markdown => "Markdown",
            Self::Html => "HTML",
            Self::Launch(launcher) => launcher.title(),
        }
    }

    /// Default file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Toml => "plan.toml",
            Self::Json => "plan.json",
            Self::Csv => "plan.csv",
            Self::Markdown => "plan.md",
            Self::Html => "plan.html",
            Self::Launch(Launcher::SkyPilot) => "plan.sky.yaml",
            Self::Launch(Launcher::Dstack) => "plan.dstack.yml",
            Self::Launch(Launcher::Slurm) => "plan.sbatch",
            Self::Launch(Launcher::Kubernetes) => "plan.k8s.yaml",
        }
    }

    /// Texts of the format: one, or one for each part of the plan if the tool takes separate files.
    ///
    /// # Errors
    /// [`PlanFormError`] if the tool cannot start the plan.
    pub fn texts(self, written: &Written<'_>) -> Result<Vec<String>, PlanFormError> {
        let (plan, workload) = (written.plan, &written.predictions.workload.name);
        Ok(match self {
            Self::Toml => {
                let Written { predictions, request, created, all_rejected, start, .. } = *written;
                vec![plan_toml::toml(plan, predictions, request, &start.launch, created, all_rejected)?]
            }
            Self::Json => {
                let json = serde_json::to_string_pretty(&plans::json(plan, workload))?;
                vec![format!("{}\n", text::json_escaped(&json))]
            }
            Self::Csv => vec![table(|out| plans::table(plan).write_csv(out))?],
            Self::Markdown => vec![table(|out| markdown(written, out))?],
            Self::Html => written.report.map(Report::html).into_iter().collect(),
            Self::Launch(launcher) => launch::texts(plan, workload, launcher, written.start)?,
        })
    }
}

/// The plan for people: title, summary, goal, table, offers to accept, and the command.
fn markdown(written: &Written<'_>, out: &mut Vec<u8>) -> std::io::Result<()> {
    let plan = written.plan;
    let line = |text: &str| super::table::markdown(text);
    writeln!(out, "# Training plan: {}\n", line(&text::clean(&written.predictions.workload.name, 80)))?;
    if let Some(summary) = beside::summary(plan) {
        writeln!(out, "**{}**\n", line(&summary))?;
    } else {
        let reasons = words::no_plan(&plan.reasons).join("; ");
        writeln!(out, "**{}** {}\n", line(&beside::no_plan(plan)), line(&reasons))?;
    }
    let step = ("Step".to_owned(), text::clean(written.request.file.as_deref().unwrap_or(Sample::WORDS), 300));
    for (name, value) in std::iter::once(step).chain(goal::facts(plan)) {
        writeln!(out, "- {name}: {}", line(&value))?;
    }
    writeln!(out)?;
    predictions::write_warnings(&plan.warnings, out)?;
    plans::table(plan).write_markdown(out)?;
    plans::write_batches(plan, out)?;
    if !plan.beside.is_empty() {
        writeln!(out, "\n{}:\n", beside::heading(plan))?;
    }
    for [gain, risk] in plan.beside.iter().map(beside::lines) {
        writeln!(out, "- {}; {}", line(&gain), line(&risk))?;
    }
    let command = text::clean(&written.request.command, 2000).replace('`', "'");
    writeln!(out, "\nMade on {} with `{command}`.", written.created.strftime("%Y-%m-%d %H:%M UTC"))
}

fn table(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> std::io::Result<String> {
    let mut text = Vec::new();
    write(&mut text)?;
    String::from_utf8(text).map_err(std::io::Error::other)
}

/// Paths for several files of one plan: `plan.yml` becomes `plan-1.yml`, `plan-2.yml`. A single file keeps its name.
pub fn paths(path: &str, files: usize) -> Vec<String> {
    if files == 1 {
        return vec![path.to_owned()];
    }
    let name = path.rfind(['/', '\\']).map_or(0, |at| at + 1);
    let dot = path[name..].find('.').filter(|at| *at > 0).map_or(path.len(), |at| name + at);
    (1..=files).map(|file| format!("{}-{file}{}", &path[..dot], &path[dot..])).collect()
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn several_files_are_numbered_before_the_ending() {
        assert_eq!(paths("plan.dstack.yml", 1), ["plan.dstack.yml"]);
        assert_eq!(paths("a.b/plan.dstack.yml", 2), ["a.b/plan-1.dstack.yml", "a.b/plan-2.dstack.yml"]);
        assert_eq!(paths("a/.plan", 2), ["a/.plan-1", "a/.plan-2"]);
    }
}
