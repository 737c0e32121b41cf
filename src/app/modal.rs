//! Dialogs on top of a screen.

use crate::action::{ACTIONS, Group, Spec};
use crate::app::input::Input;
use crate::app::screen::plan::{Choice, Places};
use crate::app::slider::Knob;
use crate::app::{App, Tone};
use crate::predict::origin::Candidates;
use crate::pricing::OfferId;
use crate::report::jobs::JobsForm;
use crate::report::plan_form::PlanForm;
use crate::text::clean;
use crate::units::GpuSlug;

/// A dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Modal {
    /// The keys, searchable.
    Help {
        /// Words searched for.
        input: Input,
        /// First row shown.
        scroll: usize,
    },
    /// Actions, GPUs, operations and offers to search and go to.
    Palette {
        /// Words searched for.
        input: Input,
        /// Position among what is shown.
        selected: usize,
    },
    /// The filter of the list, being typed; the list follows at once.
    Filter {
        /// The text.
        input: Input,
        /// The filter before, restored by Esc.
        before: String,
        /// The row selected before, restored with it ([`Behaviour::selected_key`](super::screen::behaviour::Behaviour)).
        selected: Option<String>,
    },
    /// The value of a slider.
    Value {
        /// Which.
        knob: Knob,
        /// The text.
        input: Input,
        /// Why it cannot be used.
        error: Option<String>,
    },
    /// What every method says of a GPU, one of them to choose.
    Methods {
        /// The GPU.
        gpu: GpuSlug,
        /// Position among the methods.
        selected: usize,
    },
    /// What was said before.
    Messages {
        /// First line shown.
        scroll: usize,
    },
    /// All that is known of an offer.
    Offer {
        /// The offer.
        offer: OfferId,
        /// First line shown.
        scroll: usize,
    },
    /// Which of these GPUs the step was recorded on.
    Origin {
        /// What there is to choose from.
        candidates: Candidates,
        /// Position among them.
        selected: usize,
    },
    /// What becomes of the job that still runs.
    Leave {
        /// Position among [`Leaving::ALL`](crate::app::live::Leaving::ALL).
        selected: usize,
    },
    /// All that is known of a job of a plan of several.
    PlannedJob {
        /// Its place in the plan.
        job: usize,
        /// First line shown.
        scroll: usize,
    },
    /// Providers or regions that the plan may use.
    Places {
        /// Which of the two.
        places: Places,
        /// What there is to choose.
        choices: Vec<Choice>,
        /// Words searched for.
        input: Input,
        /// Position among what is found.
        selected: usize,
    },
    /// The path of an export.
    Export {
        /// The form.
        form: ExportForm,
        /// The path.
        input: Input,
        /// Whether to ask before replacing the file.
        exists: bool,
        /// Why it was not written.
        error: Option<String>,
        /// While it is being written.
        saving: bool,
    },
}

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportForm {
    /// Of the plan.
    Plan(PlanForm),
    /// Of the plan of several jobs.
    Jobs(JobsForm),
}

impl ExportForm {
    /// The forms of the same plan, in the order in which they are listed.
    pub fn all(self) -> Vec<Self> {
        match self {
            Self::Plan(_) => PlanForm::ALL.map(Self::Plan).to_vec(),
            Self::Jobs(_) => JobsForm::ALL.map(Self::Jobs).to_vec(),
        }
    }

    /// The name on screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Plan(form) => form.title(),
            Self::Jobs(form) => form.title(),
        }
    }

    /// A name for the file.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Plan(form) => form.file_name(),
            Self::Jobs(form) => form.file_name(),
        }
    }
}

impl Modal {
    /// The help.
    pub fn help() -> Self {
        Self::Help { input: Input::default(), scroll: 0 }
    }

    /// The export of a plan, or of that of several jobs, in the first form to begin with.
    pub fn export(jobs: bool) -> Self {
        let form = if jobs { ExportForm::Jobs(JobsForm::ALL[0]) } else { ExportForm::Plan(PlanForm::ALL[0]) };
        Self::Export { form, input: Input::new(form.file_name()), exists: false, error: None, saving: false }
    }

    /// The keys that work in it, for the footer.
    pub const fn keys(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Help { .. } | Self::Messages { .. } | Self::Offer { .. } | Self::PlannedJob { .. } => {
                &[("↑↓", "scroll"), ("esc", "close")]
            }
            Self::Palette { .. } => &[("enter", "run"), ("↑↓", "choose"), ("esc", "close")],
            Self::Filter { .. } => &[("enter", "keep"), ("esc", "restore")],
            Self::Value { .. } => &[("enter", "set"), ("esc", "close")],
            Self::Methods { .. } => &[("enter", "use everywhere"), ("↑↓", "choose"), ("esc", "close")],
            Self::Origin { .. } => &[("enter", "choose it"), ("↑↓", "move"), ("esc", "close")],
            Self::Places { .. } => &[("enter", "allow or not"), ("↑↓", "choose"), ("esc", "close")],
            Self::Leave { .. } => {
                &[("enter", "do it"), ("↑↓", "choose"), ("l", "leave running"), ("s", "stop"), ("esc", "stay")]
            }
            Self::Export { .. } => &[("enter", "write"), ("↑↓", "form"), ("esc", "close")],
        }
    }

    /// The row selected in its list, where a click chooses one.
    pub const fn selected_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Palette { selected, .. }
            | Self::Places { selected, .. }
            | Self::Methods { selected, .. }
            | Self::Origin { selected, .. }
            | Self::Leave { selected } => Some(selected),
            Self::Help { .. }
            | Self::Filter { .. }
            | Self::Value { .. }
            | Self::Offer { .. }
            | Self::Messages { .. }
            | Self::PlannedJob { .. }
            | Self::Export { .. } => None,
        }
    }

    /// The line being typed, where there is one.
    pub const fn input_mut(&mut self) -> Option<&mut Input> {
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
            | Self::Value { input, .. }
            | Self::Export { input, .. } => Some(input),
        }
    }
}

/// The messages as lines: what kind, and the words.
pub fn messages(app: &App) -> Vec<(String, String)> {
    let kind = |tone: Tone| match tone {
        Tone::Good => "done",
        Tone::Hint => "hint",
        Tone::Bad => "failed",
    };
    if app.said.is_empty() {
        return vec![(String::new(), "Nothing was said yet.".to_owned())];
    }
    app.said.iter().map(|(tone, text)| (kind(*tone).to_owned(), clean(text, 600))).collect()
}

/// The actions whose name, words or keys contain all words of `query`.
pub fn matching(app: &App, query: &str) -> Vec<&'static Spec> {
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
    /// Space between groups.
    Space,
}

/// The lines of the help for the words searched for.
pub fn help_lines(app: &App, query: &str) -> Vec<HelpLine> {
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
