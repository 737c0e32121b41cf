//! Dialogs on top of a screen.

use crate::action::{ACTIONS, Group, Spec};
use crate::app::input::Input;
use crate::app::slider::Knob;
use crate::app::{App, Tone};
use habitat_base::text::clean;
use habitat_base::units::GpuSlug;
use habitat_planning::plan::Limits;
use habitat_planning::pricing::OfferId;
use habitat_reports::jobs::JobsForm;
use habitat_reports::launch::{Launch, Launcher};
use habitat_reports::plan_form::PlanForm;
use habitat_step::catalog::Candidates;

/// Providers or regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// Providers, as `--providers` takes them.
    Providers,
    /// Continents, countries and regions, as `--regions` takes them.
    Regions,
}

impl Places {
    /// The word on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Providers => "providers",
            Self::Regions => "regions",
        }
    }

    /// The ones that a goal names; empty if it allows all.
    pub fn allowed(self, limits: &Limits) -> &[String] {
        match self {
            Self::Providers => &limits.providers,
            Self::Regions => &limits.regions,
        }
    }

    /// Those that a goal allows, in a few words.
    pub fn words(self, limits: &Limits) -> String {
        match self.allowed(limits) {
            [] => "all".to_owned(),
            few if few.len() <= 2 => few.join(", "),
            many => many.len().to_string(),
        }
    }
}

/// An entry of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Its name, which limits take; empty for all of them.
    pub name: String,
    /// Offers there that can be used.
    pub offers: usize,
    /// Whether it is listed only if a search finds it: a single region.
    pub is_small: bool,
}

/// An open dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modal {
    /// Searchable list of the keys.
    Help {
        /// Search text.
        input: Input,
        /// First visible row.
        scroll: usize,
    },
    /// Search over actions, GPUs, operations and offers.
    Palette {
        /// Search text.
        input: Input,
        /// Index among the results.
        selected: usize,
    },
    /// Filter of the list; applied while typing.
    Filter {
        /// The text.
        input: Input,
        /// The previous filter, restored by Esc.
        before: String,
        /// The row selected before, restored with it (`Behaviour::selected_key`).
        selected: Option<String>,
    },
    /// Value of a slider.
    Value {
        /// The slider.
        knob: Knob,
        /// The text.
        input: Input,
        /// Why the value is invalid.
        error: Option<String>,
    },
    /// The user's own machines.
    Own {
        /// The text.
        input: Input,
        /// Why it is invalid.
        error: Option<String>,
    },
    /// All methods on one GPU, to choose one.
    Methods {
        /// The GPU.
        gpu: GpuSlug,
        /// Index among the methods.
        selected: usize,
    },
    /// Message history.
    Messages {
        /// First visible line.
        scroll: usize,
    },
    /// Details of an offer.
    Offer {
        /// The offer.
        offer: OfferId,
        /// First visible line.
        scroll: usize,
    },
    /// Choice of the recording GPU.
    Origin {
        /// The candidates.
        candidates: Candidates,
        /// Index among them.
        selected: usize,
    },
    /// Choices for the running job.
    Leave {
        /// Index in [`Leaving::ALL`](crate::app::live::Leaving::ALL).
        selected: usize,
    },
    /// Details of one job in a plan of several.
    PlannedJob {
        /// Its index in the plan.
        job: usize,
        /// First visible line.
        scroll: usize,
    },
    /// Providers or regions that the plan may use.
    Places {
        /// Which of the two.
        places: Places,
        /// The choices.
        choices: Vec<Choice>,
        /// Words of the search.
        input: Input,
        /// Position among what is found.
        selected: usize,
    },
    /// The path of an export, and what a tool needs to start the plan.
    Export {
        /// The form.
        form: ExportForm,
        /// The path.
        input: Input,
        /// Values that the tool needs, in display order.
        needs: Vec<(LaunchKey, Input)>,
        /// The line with the cursor: 0 is the path, the others are the needs.
        at: usize,
        /// Whether to ask before overwriting the file.
        exists: bool,
        /// Why saving failed.
        error: Option<String>,
        /// Whether it is being written.
        saving: bool,
    },
}

/// A value of [`Launch`] in the export dialog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchKey {
    /// The training command.
    Command,
    /// Folder of checkpoints.
    CheckpointDir,
    /// Storage, one entry.
    Mount,
    /// Container image.
    Image,
    /// Slurm partition.
    Partition,
    /// Kueue queue.
    Queue,
}

impl LaunchKey {
    /// Label on screen, as the flag is named.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::CheckpointDir => "checkpoint-dir",
            Self::Mount => "mount",
            Self::Image => "image",
            Self::Partition => "partition",
            Self::Queue => "queue",
        }
    }

    /// Values that a tool needs.
    const fn of(launcher: Launcher) -> &'static [Self] {
        match launcher {
            Launcher::SkyPilot | Launcher::Dstack => &[Self::Command, Self::CheckpointDir, Self::Mount],
            Launcher::Slurm => &[Self::Command, Self::Partition, Self::CheckpointDir],
            Launcher::Kubernetes => &[Self::Command, Self::Image, Self::Queue, Self::CheckpointDir, Self::Mount],
        }
    }

    /// The value as typed.
    fn text(self, launch: &Launch) -> String {
        let value = match self {
            Self::Command => &launch.command,
            Self::CheckpointDir => &launch.checkpoint_dir,
            Self::Image => &launch.image,
            Self::Partition => &launch.partition,
            Self::Queue => &launch.queue,
            Self::Mount => {
                let first = launch.mounts.iter().next();
                return first.map_or_else(String::new, |(path, source)| format!("{path}={source}"));
            }
        };
        value.clone().unwrap_or_default()
    }

    /// Sets the value; empty text removes it.
    pub(crate) fn set(self, launch: &mut Launch, text: &str) {
        let text = text.trim();
        let value = Some(text.to_owned()).filter(|text| !text.is_empty());
        match self {
            Self::Command => launch.command = value,
            Self::CheckpointDir => launch.checkpoint_dir = value,
            Self::Image => launch.image = value,
            Self::Partition => launch.partition = value,
            Self::Queue => launch.queue = value,
            Self::Mount => {
                launch.mounts.pop_first();
                let (path, source) = text.split_once('=').unwrap_or((text, ""));
                if value.is_some() {
                    launch.mounts.insert(path.to_owned(), source.to_owned());
                }
            }
        }
    }
}

/// Format of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportForm {
    /// A format of the plan.
    Plan(PlanForm),
    /// A format of the plan of several jobs.
    Jobs(JobsForm),
}

impl ExportForm {
    /// All formats for the same plan, in display order.
    pub fn all(self) -> Vec<Self> {
        match self {
            Self::Plan(_) => PlanForm::ALL.map(Self::Plan).to_vec(),
            Self::Jobs(_) => JobsForm::ALL.map(Self::Jobs).to_vec(),
        }
    }

    /// Name on screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Plan(form) => form.title(),
            Self::Jobs(form) => form.title(),
        }
    }

    /// Lines for what its tool needs, with what is known of it.
    pub fn needs(self, launch: &Launch) -> Vec<(LaunchKey, Input)> {
        let Self::Plan(PlanForm::Launch(launcher)) = self else { return Vec::new() };
        LaunchKey::of(launcher).iter().map(|key| (*key, Input::new(&key.text(launch)))).collect()
    }

    /// Default file name.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Plan(form) => form.file_name(),
            Self::Jobs(form) => form.file_name(),
        }
    }
}

impl Modal {
    /// Opens the help.
    pub fn help() -> Self {
        Self::Help { input: Input::default(), scroll: 0 }
    }

    /// Opens the export of a plan, or of a plan of several jobs, with the first format selected.
    pub fn export(jobs: bool) -> Self {
        let form = if jobs { ExportForm::Jobs(JobsForm::ALL[0]) } else { ExportForm::Plan(PlanForm::ALL[0]) };
        let (input, needs) = (Input::new(form.file_name()), Vec::new());
        Self::Export { form, input, needs, at: 0, exists: false, error: None, saving: false }
    }

    /// Keys of the dialog, for the footer.
    pub const fn keys(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Help { .. } | Self::Messages { .. } | Self::Offer { .. } | Self::PlannedJob { .. } => {
                &[("↑↓", "scroll"), ("esc", "close")]
            }
            Self::Palette { .. } => &[("enter", "run"), ("↑↓", "choose"), ("esc", "close")],
            Self::Filter { .. } => &[("enter", "keep"), ("esc", "restore")],
            Self::Value { .. } | Self::Own { .. } => &[("enter", "set"), ("esc", "close")],
            Self::Methods { .. } => &[("enter", "use everywhere"), ("↑↓", "choose"), ("esc", "close")],
            Self::Origin { .. } => &[("enter", "choose it"), ("↑↓", "move"), ("esc", "close")],
            Self::Places { .. } => &[("enter", "toggle"), ("↑↓", "choose"), ("esc", "close")],
            Self::Leave { .. } => {
                &[("enter", "confirm"), ("↑↓", "choose"), ("l", "leave running"), ("s", "stop"), ("esc", "stay")]
            }
            Self::Export { .. } => &[("enter", "write"), ("↑↓", "format"), ("tab", "next line"), ("esc", "close")],
        }
    }

    /// The selected row of its list, which a click sets.
    pub(crate) const fn selected_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Palette { selected, .. }
            | Self::Places { selected, .. }
            | Self::Methods { selected, .. }
            | Self::Origin { selected, .. }
            | Self::Leave { selected } => Some(selected),
            Self::Help { .. }
            | Self::Filter { .. }
            | Self::Value { .. }
            | Self::Own { .. }
            | Self::Offer { .. }
            | Self::Messages { .. }
            | Self::PlannedJob { .. }
            | Self::Export { .. } => None,
        }
    }

    /// The text input, if there is one.
    pub fn input_mut(&mut self) -> Option<&mut Input> {
        match self {
            Self::Methods { .. }
            | Self::Offer { .. }
            | Self::Messages { .. }
            | Self::PlannedJob { .. }
            | Self::Origin { .. }
            | Self::Leave { .. } => None,
            Self::Help { input, .. }
            | Self::Palette { input, .. }
            | Self::Places { input, .. }
            | Self::Filter { input, .. }
            | Self::Own { input, .. }
            | Self::Value { input, .. } => Some(input),
            Self::Export { input, needs, at, .. } => match at.checked_sub(1).and_then(|at| needs.get_mut(at)) {
                Some((_, need)) => Some(need),
                None => Some(input),
            },
        }
    }
}

/// Message history as lines: the kind and the text.
pub fn messages(app: &App) -> Vec<(String, String)> {
    let kind = |tone: Tone| match tone {
        Tone::Good => "done",
        Tone::Hint => "hint",
        Tone::Bad => "failed",
    };
    if app.said.is_empty() {
        return vec![(String::new(), "No messages yet.".to_owned())];
    }
    app.said.iter().map(|(tone, text)| (kind(*tone).to_owned(), clean(text, 600))).collect()
}

/// Actions whose name, description or keys contain all words of `query`.
pub(crate) fn matching(app: &App, query: &str) -> Vec<&'static Spec> {
    let query = query.to_lowercase();
    ACTIONS
        .iter()
        .filter(|spec| {
            let keys: Vec<String> =
                app.setup.keymap.keys(spec.action).iter().map(|key| key.to_string().to_lowercase()).collect();
            let text = format!("{} {} {} {}", spec.name, spec.text, spec.group.title(), keys.join(" ")).to_lowercase();
            query.split_whitespace().all(|word| text.contains(word))
        })
        .collect()
}

/// A line of the help.
#[derive(Debug, Clone, Copy)]
pub enum HelpLine {
    /// A heading.
    Heading(Group),
    /// An action.
    Entry(&'static Spec),
    /// Blank line between groups.
    Space,
}

/// Lines of the help that match the search.
pub(crate) fn help_lines(app: &App, query: &str) -> Vec<HelpLine> {
    let found = matching(app, query);
    let mut lines = Vec::new();
    for &group in Group::ALL {
        let mut entries = found.iter().filter(|spec| spec.group == group).peekable();
        if entries.peek().is_some() {
            if !lines.is_empty() {
                lines.push(HelpLine::Space);
            }
            lines.push(HelpLine::Heading(group));
            lines.extend(entries.map(|spec| HelpLine::Entry(spec)));
        }
    }
    lines
}
