//! The user's actions: stable name, keys, texts, group and needs of each. Keys, footer, help and palette are all
//! generated from this table.

/// Preconditions of an action. The front end checks them; the text explains what is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Rows or lines to move over.
    Rows,
    /// A table to copy from.
    Table,
    /// A table that can be filtered and sorted.
    SortableTable,
    /// A row that opens.
    Detail,
    /// A screen of several panes.
    Panes,
    /// The profile screen.
    Profile,
    /// The profile screen, with a step measured on a GPU of the catalog.
    Roof,
    /// The predict screen, with a prediction.
    Prediction,
    /// The same, and another to compare it with; or the profile screen of two recordings.
    Comparable,
    /// The plan screen.
    PlanScreen,
    /// A slider in focus.
    Slider,
    /// A slider that takes a typed value.
    Value,
    /// A limit (not the amount of work), or a changed specification, in focus.
    Limit,
    /// A goal that was changed on the plan screen.
    Changed,
    /// A finished plan.
    Plan,
    /// A running computation or job.
    Running,
    /// Something to close or clear.
    Closable,
    /// A training job that was started along with the screens.
    Job,
    /// A training job that follows a plan, with a recorded step.
    Planned,
    /// A file of jobs to plan together.
    Jobs,
    /// An editable file behind the screen.
    File,
    /// A recording that may be from one of several GPUs.
    UnknownOrigin,
}

impl Needs {
    /// Why an action is not available without this.
    pub const fn missing(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Rows | Self::Table => "no table on this screen",
            Self::SortableTable => "no table to filter or sort on this screen",
            Self::Detail => "nothing to open here",
            Self::Panes => "this screen has one pane",
            Self::Profile => "works on the profile screen",
            Self::Roof => "works on the profile screen, for a step measured on a known GPU",
            Self::Prediction => "works on the predict screen",
            Self::Comparable => "works on the predict screen, and on the profile screen with --against FILE",
            Self::PlanScreen => "works on the plan screen",
            Self::Slider => {
                "works on the sliders of the plan screen, of F and B on the predict screen, and on the timeline of the profile screen"
            }
            Self::Value => "works on the sliders of the plan screen",
            Self::Limit => "works on limits of the plan screen and on changed specifications",
            Self::Changed => "no changes to undo",
            Self::Plan => "no plan yet",
            Self::Running => "no computation is running",
            Self::Closable => "nothing to close or clear",
            Self::Job => "no job; start one with `habitat-tui run -- python train.py`",
            Self::Planned => {
                "no plan to follow, or no step recorded yet; start one with `habitat-tui run --plan plan.toml -- python train.py`"
            }
            Self::Jobs => "no jobs file; open one with `habitat-tui --jobs jobs.toml`",
            Self::File => "works on the jobs screen",
            Self::UnknownOrigin => "the GPU is already known, or the recording gives no hint",
        }
    }
}

impl Needs {
    /// The screen that has this, if it is one only.
    pub(crate) const fn screen(self) -> Option<Screen> {
        match self {
            Self::Profile | Self::Roof => Some(Screen::Profile),
            Self::Prediction | Self::Comparable => Some(Screen::Predict),
            Self::PlanScreen | Self::Slider | Self::Value | Self::Limit => Some(Screen::Plan),
            _ => None,
        }
    }
}

/// One row of the action table.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The action.
    pub action: Action,
    /// Stable name, as used in the `[keys]` table of the configuration.
    pub name: &'static str,
    /// Default keys, in the notation of [`crate::keymap`].
    pub keys: &'static [&'static str],
    /// One word for the footer; empty = not shown there.
    pub short: &'static str,
    /// Heading.
    pub group: Group,
    /// Its preconditions.
    pub needs: Needs,
    /// Description for help and palette.
    pub text: &'static str,
}

/// Defines groups with headings and actions: name, keys, footer word, needs, text.
macro_rules! actions {
    ($($group:ident $title:literal {
        $($action:ident $name:literal [$($key:literal),*] $short:literal $needs:ident $text:literal;)*
    })*) => {
        /// An action of the user.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action {
            $($(#[doc = $text] $action,)*)*
        }

        /// A heading of the help.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Group {
            $(#[doc = $title] $group,)*
        }

        impl Group {
            /// All groups, in the order of the help.
            pub const ALL: &[Self] = &[$(Self::$group,)*];

            /// The heading.
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$group => $title,)*
                }
            }
        }

        /// All actions, in the order of the help. The footer shows the most specific ones first.
        pub const ACTIONS: &[Spec] = &[$($(Spec {
            action: Action::$action,
            name: $name,
            keys: &[$($key),*],
            short: $short,
            group: Group::$group,
            needs: Needs::$needs,
            text: $text,
        },)*)*];
    };
}

#[rustfmt::skip]
actions! {
    Always "Always" {
        Help "app.help" ["?", "f1"] "help" Nothing "Show the keys";
        Palette "app.palette" [":", "ctrl-p"] "actions" Nothing "Search actions, GPUs, operations and offers, and go there";
        Back "app.back" ["q"] "back/quit" Nothing "Go back one level; quit from the top";
        Close "app.close" ["esc"] "clear" Closable "Close what is open or clear the filter";
        Quit "app.quit" ["ctrl-c"] "" Nothing "Quit from anywhere; twice stops a running job";
        Suspend "app.suspend" ["ctrl-z"] "" Nothing "Suspend; `fg` in the shell continues";
        Redraw "app.redraw" ["ctrl-l"] "" Nothing "Redraw the screen";
        Messages "app.messages" ["!"] "" Nothing "Message history and errors";
        Theme "app.theme" ["t"] "" Nothing "Next theme";
        Mouse "app.mouse" ["M"] "" Nothing "Mouse on or off (off: the terminal selects text)";
    }
    Screens "Screens" {
        Overview "screen.overview" ["1"] "" Nothing "Overview: the recording and the recommendation";
        Profile "screen.profile" ["2"] "" Nothing "Profile: where the time of the step goes";
        Predict "screen.predict" ["3"] "" Nothing "Predict: the step on every GPU";
        Plan "screen.plan" ["4"] "" Nothing "Plan: which offer, for how long, at what cost";
        Job "screen.job" ["5"] "" Job "Job: the running training, its steps and output";
        Jobs "screen.jobs" ["6"] "" Jobs "Jobs: several jobs planned together, over time";
    }
    Move "Move" {
        Up "move.up" ["k", "up"] "" Nothing "Up";
        Down "move.down" ["j", "down"] "" Nothing "Down";
        Left "move.left" ["h", "left"] "less" Slider "Slider: one step less";
        Right "move.right" ["l", "right"] "more" Slider "Slider: one step more";
        FarLeft "move.far-left" ["H", "shift-left"] "" Slider "Slider: a large step less";
        FarRight "move.far-right" ["L", "shift-right"] "" Slider "Slider: a large step more";
        Top "move.top" ["g", "home"] "" Rows "First row";
        Bottom "move.bottom" ["G", "end"] "" Rows "Last row";
        PageUp "move.page-up" ["ctrl-u", "pageup"] "" Rows "Up one page";
        PageDown "move.page-down" ["ctrl-d", "pagedown"] "" Rows "Down one page";
        NextPane "move.next-pane" ["tab"] "pane" Panes "Next pane";
        PreviousPane "move.previous-pane" ["shift-tab"] "" Panes "Previous pane";
    }
    Lists "Lists" {
        Open "list.open" ["enter"] "open" Detail "Open the selected row";
        Filter "list.filter" ["/"] "filter" SortableTable "Filter the rows (a leading ! inverts)";
        Sort "list.sort" ["s"] "sort" SortableTable "Sort by the next column";
        Reverse "list.reverse" ["S"] "" SortableTable "Reverse the order";
    }
    Profile "Profile screen" {
        Phase "profile.phase" ["p"] "phase" Profile "Show only the next phase of the step";
        Roofline "profile.roofline" ["R"] "roofline" Roof "Roofline plot";
        Timeline "profile.timeline" ["T"] "timeline" Profile "Timeline of one step, on host and GPU";
        Group "profile.group" ["b"] "group" Profile "Group by operation, name, family, kernel or module";
    }
    Predict "Predict screen" {
        Methods "predict.methods" ["w"] "methods" Prediction "Compare the methods on this GPU and choose one";
        Host "predict.host" ["W"] "host" Prediction "Toggle CPU wait (off: as with CUDA graphs)";
        Mark "predict.mark" ["space"] "mark" Prediction "Mark this GPU for comparison with others";
        Difference "predict.difference" ["D"] "difference" Comparable "Explain the difference to the marked or recording GPU; on the profile screen, to the other recording";
        WhatIf "predict.what-if" ["F"] "what if" Prediction "Change specifications of this GPU: bandwidth, SMs, clock, tensor cores, memory";
        Precision "predict.precision" ["P"] "precision" Prediction "Next precision: as recorded, FP32 (PyTorch's default), TF32, FP16 or BF16 autocast, FP8, FP32 without TF32";
        Batches "predict.batches" ["B"] "batches" Prediction "Other batch sizes on this GPU: step time and memory; Enter there lets plans use one";
        Origin "predict.origin" ["O"] "which GPU" UnknownOrigin "Choose the recording GPU";
    }
    Plan "Plan screen" {
        Increase "plan.increase" ["+"] "" Slider "One step more";
        Decrease "plan.decrease" ["-"] "" Slider "One step less";
        SetValue "plan.set-value" ["="] "type" Value "Type a value for the slider";
        NoLimit "plan.no-limit" ["0", "backspace"] "reset" Limit "Remove the limit; reset a changed specification or batch size";
        Objective "plan.objective" ["o"] "objective" PlanScreen "Cheapest or fastest first";
        OnDemand "plan.on-demand" ["d"] "on-demand" PlanScreen "On-demand offers on or off";
        Spot "plan.spot" ["i"] "spot" PlanScreen "Accept spot (interruptible) machines, or not";
        Marketplace "plan.marketplace" ["a"] "" PlanScreen "Accept marketplace hosts, or not";
        Doubted "plan.doubted" ["U"] "" PlanScreen "Accept doubtful prices, or not";
        Platform "plan.platform" ["V"] "" PlanScreen "Accept GPUs of other vendors and ARM hosts, or not";
        GlobalBatch "plan.batch" ["N"] "" PlanScreen "Accept another global batch than the recorded one, or not";
        Providers "plan.providers" ["f"] "" PlanScreen "Choose the providers that the plan may use";
        Regions "plan.regions" ["A"] "" PlanScreen "Choose the regions, countries or continents that the plan may use";
        Own "plan.own" ["I"] "" PlanScreen "Enter your own machines, such as 2x3090";
        Confidence "plan.confidence" ["c"] "confidence" PlanScreen "Meet the deadline at the expected or the high end";
        Parts "plan.parts" ["m"] "parts" PlanScreen "Most parts of a plan (spot, then on-demand)";
        Undo "plan.undo" ["u"] "undo" Changed "Undo the last change of the goal";
        Layouts "plan.layouts" ["z"] "" PlanScreen "Layouts of the plan's machines and why the others lost; Enter plans with the selected one";
        Lower "plan.lower" ["v"] "view" PlanScreen "Next view of the lower pane: alternatives, plan over time, cost against time, layouts, rejected offers, notes";
    }
    Work "Results" {
        Rerun "job.rerun" ["r"] "" Nothing "Run the prediction or the plan again";
        Edit "file.edit" ["E"] "edit" File "Edit the jobs file ($VISUAL, $EDITOR), then plan again";
        Cancel "job.cancel" ["x"] "cancel" Running "Cancel the computation; if none is running, ask whether to stop the job";
        CopyRow "copy.row" ["y"] "" Table "Copy the selected row";
        CopyTable "copy.table" ["Y"] "" Table "Copy the table as tab-separated text";
        CopyCommand "copy.command" ["C"] "" Nothing "Copy the command that opens this view";
        Rest "plan.rest" ["n"] "plan the rest" Planned "Plan the rest of the running job anew, with the time and money left";
        Export "plan.export" ["e"] "export" Plan "Export the plan to a file";
    }
}

impl Action {
    /// Its row in the table.
    pub const fn spec(self) -> &'static Spec {
        &ACTIONS[self as usize]
    }

    /// Its stable name.
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// Steps of a slider, if the action moves one; a large step is `far` of them, and none resets it.
    pub(crate) const fn steps(self, far: isize) -> Option<isize> {
        Some(match self {
            Self::Left | Self::Decrease => -1,
            Self::Right | Self::Increase => 1,
            Self::FarLeft => -far,
            Self::FarRight => far,
            Self::NoLimit => 0,
            _ => return None,
        })
    }

    /// The action with this stable name.
    pub fn by_name(name: &str) -> Option<Self> {
        ACTIONS.iter().find(|spec| spec.name == name).map(|spec| spec.action)
    }
}

/// The screens, by number. For their behaviour see `app/screen.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Screen {
    /// The recording and the recommendation.
    #[default]
    Overview,
    /// The profile, with the time by operation.
    Profile,
    /// Every GPU.
    Predict,
    /// Which offer.
    Plan,
    /// The running job, if one was started.
    Job,
    /// Several jobs, if a jobs file was given.
    Jobs,
}

impl Screen {
    /// All screens, by number.
    pub const ALL: [Self; 6] = [Self::Overview, Self::Profile, Self::Predict, Self::Plan, Self::Job, Self::Jobs];

    /// The action that opens it.
    pub const fn action(self) -> Action {
        match self {
            Self::Overview => Action::Overview,
            Self::Profile => Action::Profile,
            Self::Predict => Action::Predict,
            Self::Plan => Action::Plan,
            Self::Job => Action::Job,
            Self::Jobs => Action::Jobs,
        }
    }

    /// Its name on screen and on the command line.
    pub fn name(self) -> &'static str {
        let name = self.action().name();
        name.rsplit_once('.').map_or(name, |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_its_row_and_a_name_of_its_own() {
        for (index, spec) in ACTIONS.iter().enumerate() {
            assert_eq!(spec.action as usize, index);
            assert_eq!(Action::by_name(spec.name), Some(spec.action), "{} is there twice", spec.name);
        }
    }

    /// A screen missing here could not be reached by any key.
    #[test]
    fn every_action_that_goes_to_a_screen_has_its_screen() {
        let there: Vec<Action> =
            ACTIONS.iter().filter(|spec| spec.name.starts_with("screen.")).map(|spec| spec.action).collect();
        assert_eq!(there, Screen::ALL.map(Screen::action));
    }
}
