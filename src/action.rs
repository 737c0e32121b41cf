//! Every action of the user, once: its stable name, its words, its group and where it
//! works. Keys, footer, help and palette are all made from this table.

/// Something the user can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// One level back; quits at the top.
    Back,
    /// Closes a dialog or clears a filter.
    Close,
    /// Leaves the program from anywhere.
    Quit,
    /// Stops the program until the shell continues it.
    Suspend,
    /// Draws everything anew.
    Redraw,
    /// The list of keys.
    Help,
    /// The list of actions, to search and run.
    Palette,
    /// Next theme.
    Theme,
    /// Mouse on or off.
    Mouse,
    /// First screen.
    Overview,
    /// Second screen.
    Profile,
    /// Third screen.
    Predict,
    /// Fourth screen.
    Plan,
    /// Fifth screen, where a job was started.
    Job,
    /// Up one row.
    Up,
    /// Down one row.
    Down,
    /// Left, or one step less.
    Left,
    /// Right, or one step more.
    Right,
    /// A large step less.
    FarLeft,
    /// A large step more.
    FarRight,
    /// First row.
    Top,
    /// Last row.
    Bottom,
    /// Up one page.
    PageUp,
    /// Down one page.
    PageDown,
    /// Next pane.
    NextPane,
    /// Previous pane.
    PreviousPane,
    /// Opens the selected row.
    Open,
    /// Types a filter.
    Filter,
    /// Sorts by the next column.
    Sort,
    /// Reverses the order.
    Reverse,
    /// Shows the next phase only.
    Phase,
    /// Groups the rows by the next thing.
    Group,
    /// What every method says of the selected GPU.
    Methods,
    /// The step at other batch sizes on the selected GPU.
    Batches,
    /// Which GPU the step was recorded on.
    Origin,
    /// One step more.
    Increase,
    /// One step less.
    Decrease,
    /// Removes the limit.
    NoLimit,
    /// Types a value.
    SetValue,
    /// Next objective.
    Objective,
    /// On-demand offers on or off.
    OnDemand,
    /// Spot offers on or off.
    Spot,
    /// Which end of the range meets the deadline.
    Confidence,
    /// How many parts a plan may have.
    Parts,
    /// Next lower pane of the plan.
    Lower,
    /// Runs the screen's job again.
    Rerun,
    /// Cancels what is being computed, else asks whether to stop the training that runs.
    Cancel,
    /// Copies the selected row.
    CopyRow,
    /// Copies the table.
    CopyTable,
    /// Writes the plan to a file.
    Export,
}

/// A heading of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Works everywhere.
    Always,
    /// Going to a screen.
    Screens,
    /// Moving about.
    Move,
    /// Tables.
    Lists,
    /// The profile screen.
    Profile,
    /// The predict screen.
    Predict,
    /// The plan screen.
    Plan,
    /// Jobs and results.
    Work,
}

impl Group {
    /// All of them, in the order of the help.
    pub const ALL: [Self; 8] =
        [Self::Always, Self::Screens, Self::Move, Self::Lists, Self::Profile, Self::Predict, Self::Plan, Self::Work];

    /// The heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::Screens => "Screens",
            Self::Move => "Move",
            Self::Lists => "Lists",
            Self::Profile => "Profile screen",
            Self::Predict => "Predict screen",
            Self::Plan => "Plan screen",
            Self::Work => "Results",
        }
    }
}

/// What must be true for an action to do something; the front end evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// A table in focus.
    Table,
    /// A table that can be filtered and sorted.
    SortableTable,
    /// A row that opens.
    Detail,
    /// A screen of several panes.
    Panes,
    /// The profile screen.
    ProfileScreen,
    /// The predict screen, with a prediction.
    Prediction,
    /// The plan screen.
    PlanScreen,
    /// A slider of the plan screen in focus.
    Slider,
    /// A limit (not the amount of work) in focus.
    Limit,
    /// A finished plan.
    Plan,
    /// A job of the screen that runs.
    RunningJob,
    /// Something to close or clear.
    Closable,
    /// A training job that was started with the screens.
    Job,
    /// A recording of which it is not known on which of several GPUs it was made.
    UnknownOrigin,
}

/// One row of the action table.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The action.
    pub action: Action,
    /// Stable name, as used in the `[keys]` table of the configuration.
    pub name: &'static str,
    /// What it does, for help and palette.
    pub text: &'static str,
    /// One word for the footer; empty = not shown there.
    pub short: &'static str,
    /// Heading.
    pub group: Group,
    /// What it needs.
    pub needs: Needs,
    /// Default keys, in the notation of [`crate::settings::keymap`].
    pub keys: &'static [&'static str],
}

const fn spec(
    action: Action,
    name: &'static str,
    keys: &'static [&'static str],
    short: &'static str,
    group: Group,
    needs: Needs,
    text: &'static str,
) -> Spec {
    Spec { action, name, text, short, group, needs, keys }
}

/// Every action, in the order of the help. In the footer, the more particular come first.
#[rustfmt::skip]
pub const ACTIONS: &[Spec] = &[
    spec(Action::Help, "app.help", &["?", "f1"], "help", Group::Always, Needs::Nothing, "Show the keys"),
    spec(Action::Palette, "app.palette", &[":", "ctrl-p"], "actions", Group::Always, Needs::Nothing, "Search all actions and run one"),
    spec(Action::Back, "app.back", &["q"], "back/quit", Group::Always, Needs::Nothing, "Go back one level; quit from the top"),
    spec(Action::Close, "app.close", &["esc"], "clear", Group::Always, Needs::Closable, "Close what is open or clear the filter"),
    spec(Action::Quit, "app.quit", &["ctrl-c"], "", Group::Always, Needs::Nothing, "Quit from anywhere; twice stops the job that runs"),
    spec(Action::Suspend, "app.suspend", &["ctrl-z"], "", Group::Always, Needs::Nothing, "Suspend; `fg` in the shell continues"),
    spec(Action::Redraw, "app.redraw", &["ctrl-l"], "", Group::Always, Needs::Nothing, "Draw the whole screen anew"),
    spec(Action::Theme, "app.theme", &["t"], "", Group::Always, Needs::Nothing, "Next theme"),
    spec(Action::Mouse, "app.mouse", &["M"], "", Group::Always, Needs::Nothing, "Mouse on or off (off: the terminal selects text)"),
    spec(Action::Overview, "screen.overview", &["1"], "", Group::Screens, Needs::Nothing, "Overview: what was recorded and the recommendation"),
    spec(Action::Profile, "screen.profile", &["2"], "", Group::Screens, Needs::Nothing, "Profile: where the time of the step goes"),
    spec(Action::Predict, "screen.predict", &["3"], "", Group::Screens, Needs::Nothing, "Predict: the step on every GPU"),
    spec(Action::Plan, "screen.plan", &["4"], "", Group::Screens, Needs::Nothing, "Plan: which offer, for how long, at what cost"),
    spec(Action::Job, "screen.job", &["5"], "", Group::Screens, Needs::Job, "Job: the training that runs, its steps and its output"),
    spec(Action::Up, "move.up", &["k", "up"], "", Group::Move, Needs::Nothing, "Up"),
    spec(Action::Down, "move.down", &["j", "down"], "", Group::Move, Needs::Nothing, "Down"),
    spec(Action::Left, "move.left", &["h", "left"], "less", Group::Move, Needs::Slider, "Slider: one step less"),
    spec(Action::Right, "move.right", &["l", "right"], "more", Group::Move, Needs::Slider, "Slider: one step more"),
    spec(Action::FarLeft, "move.far-left", &["H", "shift-left"], "", Group::Move, Needs::Slider, "Slider: a large step less"),
    spec(Action::FarRight, "move.far-right", &["L", "shift-right"], "", Group::Move, Needs::Slider, "Slider: a large step more"),
    spec(Action::Top, "move.top", &["g", "home"], "", Group::Move, Needs::Table, "First row"),
    spec(Action::Bottom, "move.bottom", &["G", "end"], "", Group::Move, Needs::Table, "Last row"),
    spec(Action::PageUp, "move.page-up", &["ctrl-u", "pageup"], "", Group::Move, Needs::Table, "Up one page"),
    spec(Action::PageDown, "move.page-down", &["ctrl-d", "pagedown"], "", Group::Move, Needs::Table, "Down one page"),
    spec(Action::NextPane, "move.next-pane", &["tab"], "pane", Group::Move, Needs::Panes, "Next pane"),
    spec(Action::PreviousPane, "move.previous-pane", &["shift-tab"], "", Group::Move, Needs::Panes, "Previous pane"),
    spec(Action::Open, "list.open", &["enter"], "open", Group::Lists, Needs::Detail, "Open the selected row"),
    spec(Action::Filter, "list.filter", &["/"], "filter", Group::Lists, Needs::SortableTable, "Filter the rows (a leading ! inverts)"),
    spec(Action::Sort, "list.sort", &["s"], "sort", Group::Lists, Needs::SortableTable, "Sort by the next column"),
    spec(Action::Reverse, "list.reverse", &["S"], "", Group::Lists, Needs::SortableTable, "Reverse the order"),
    spec(Action::Phase, "profile.phase", &["p"], "phase", Group::Profile, Needs::ProfileScreen, "Show the next phase of the step only"),
    spec(Action::Group, "profile.group", &["b"], "group", Group::Profile, Needs::ProfileScreen, "Group by operation, name, family or kernel"),
    spec(Action::Methods, "predict.methods", &["w"], "methods", Group::Predict, Needs::Prediction, "What every method says of this GPU, and which to use"),
    spec(Action::Batches, "predict.batches", &["B"], "batches", Group::Predict, Needs::Prediction, "The step and its memory at other batch sizes on this GPU"),
    spec(Action::Origin, "predict.origin", &["O"], "which GPU", Group::Predict, Needs::UnknownOrigin, "Say which GPU the step was recorded on"),
    spec(Action::Increase, "plan.increase", &["+"], "", Group::Plan, Needs::Slider, "One step more"),
    spec(Action::Decrease, "plan.decrease", &["-"], "", Group::Plan, Needs::Slider, "One step less"),
    spec(Action::SetValue, "plan.set-value", &["="], "type", Group::Plan, Needs::Slider, "Type a value for the slider"),
    spec(Action::NoLimit, "plan.no-limit", &["0", "backspace"], "no limit", Group::Plan, Needs::Limit, "Remove the limit"),
    spec(Action::Objective, "plan.objective", &["o"], "objective", Group::Plan, Needs::PlanScreen, "Cheapest or fastest first"),
    spec(Action::OnDemand, "plan.on-demand", &["d"], "on-demand", Group::Plan, Needs::PlanScreen, "On-demand offers on or off"),
    spec(Action::Spot, "plan.spot", &["i"], "spot", Group::Plan, Needs::PlanScreen, "Spot (interruptible) offers on or off"),
    spec(Action::Confidence, "plan.confidence", &["c"], "confidence", Group::Plan, Needs::PlanScreen, "Meet the deadline at the expected or the high end"),
    spec(Action::Parts, "plan.parts", &["m"], "parts", Group::Plan, Needs::PlanScreen, "How many parts may follow one another"),
    spec(Action::Lower, "plan.lower", &["v"], "view", Group::Plan, Needs::PlanScreen, "Alternatives, rejected offers, cost against time, notes"),
    spec(Action::Rerun, "job.rerun", &["r"], "", Group::Work, Needs::Nothing, "Run the prediction or the plan again"),
    spec(Action::Cancel, "job.cancel", &["x"], "cancel", Group::Work, Needs::RunningJob, "Cancel what is being computed, else ask whether to stop the job"),
    spec(Action::CopyRow, "copy.row", &["y"], "", Group::Work, Needs::Table, "Copy the selected row"),
    spec(Action::CopyTable, "copy.table", &["Y"], "", Group::Work, Needs::Table, "Copy the table as tab-separated text"),
    spec(Action::Export, "plan.export", &["e"], "export", Group::Work, Needs::Plan, "Write the plan to a TOML file"),
];

impl Action {
    /// Its row in the table.
    ///
    /// # Panics
    /// Never: a test checks that every action has its row.
    pub fn spec(self) -> &'static Spec {
        ACTIONS.iter().find(|spec| spec.action == self).expect("a test checks that every action has its row")
    }

    /// Its stable name.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The action of that stable name.
    pub fn by_name(name: &str) -> Option<Self> {
        ACTIONS.iter().find(|spec| spec.name == name).map(|spec| spec.action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_actions_are_unique() {
        for (index, spec) in ACTIONS.iter().enumerate() {
            for other in &ACTIONS[index + 1..] {
                assert_ne!(spec.name, other.name);
                assert_ne!(spec.action, other.action);
            }
            assert_eq!(Action::by_name(spec.name), Some(spec.action));
        }
        // `Export` is the last variant: every variant has a row.
        assert_eq!(ACTIONS.len(), Action::Export as usize + 1);
    }
}
