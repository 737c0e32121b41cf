//! Dialogs on top of a screen.

use crate::action::{ACTIONS, Group, Spec};
use crate::app::App;
use crate::app::input::Input;
use crate::app::slider::Knob;
use crate::predict::origin::Candidates;
use crate::pricing::OfferId;
use crate::report::plan_form::PlanForm;
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
    /// The step at other batch sizes.
    Batches {
        /// The GPU.
        gpu: GpuSlug,
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
    /// The path of an export.
    Export {
        /// The form.
        form: PlanForm,
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

impl Modal {
    /// The help.
    pub fn help() -> Self {
        Self::Help { input: Input::default(), scroll: 0 }
    }

    /// The export of a plan, as TOML to begin with.
    pub fn export() -> Self {
        let form = PlanForm::Toml;
        Self::Export { form, input: Input::new(form.file_name()), exists: false, error: None, saving: false }
    }

    /// The keys that work in it, for the footer.
    pub const fn keys(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Help { .. } | Self::Offer { .. } => &[("↑↓", "scroll"), ("esc", "close")],
            Self::Palette { .. } => &[("enter", "run"), ("↑↓", "choose"), ("esc", "close")],
            Self::Filter { .. } => &[("enter", "keep"), ("esc", "restore")],
            Self::Value { .. } => &[("enter", "set"), ("esc", "close")],
            Self::Methods { .. } => &[("enter", "use everywhere"), ("↑↓", "choose"), ("esc", "close")],
            Self::Batches { .. } => &[("esc", "close")],
            Self::Origin { .. } => &[("enter", "choose it"), ("↑↓", "move"), ("esc", "close")],
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
            | Self::Methods { selected, .. }
            | Self::Origin { selected, .. }
            | Self::Leave { selected } => Some(selected),
            Self::Help { .. }
            | Self::Filter { .. }
            | Self::Value { .. }
            | Self::Batches { .. }
            | Self::Offer { .. }
            | Self::Export { .. } => None,
        }
    }

    /// The line being typed, where there is one.
    pub const fn input_mut(&mut self) -> Option<&mut Input> {
        match self {
            Self::Methods { .. }
            | Self::Batches { .. }
            | Self::Offer { .. }
            | Self::Origin { .. }
            | Self::Leave { .. } => None,
            Self::Help { input, .. }
            | Self::Palette { input, .. }
            | Self::Filter { input, .. }
            | Self::Value { input, .. }
            | Self::Export { input, .. } => Some(input),
        }
    }
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
