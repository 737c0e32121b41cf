//! What the app asks of every screen.

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::list::ListState;
use crate::app::msg::Effect;
use crate::report::Table;

/// What the app asks of every screen. The state is in a field of [`App`], so that the screens
/// can show parts of one another.
pub trait Behaviour {
    /// What it shows, for the time before there is a profile; `None` where it needs none.
    fn awaits(&self) -> Option<&'static str>;

    /// Whether it has what some actions need.
    fn gives(&self, _app: &App, _needs: Needs) -> bool {
        false
    }

    /// Does an action in its own way; `false` leaves it to the app.
    fn act(&self, _app: &mut App, _action: Action, _effects: &mut Vec<Effect>) -> bool {
        false
    }

    /// The table in focus, as it is shown and copied.
    fn table(&self, _app: &App) -> Option<Table> {
        None
    }

    /// How many rows the table in focus has.
    fn rows(&self, app: &App) -> usize {
        self.table(app).map_or(0, |table| table.len())
    }

    /// Selection, filter and order of the list in focus.
    fn list<'a>(&self, _app: &'a App) -> Option<&'a ListState> {
        None
    }

    /// The same, to be changed.
    fn list_mut<'a>(&self, _app: &'a mut App) -> Option<&'a mut ListState> {
        None
    }

    /// A name for the selected row that does not depend on filter and order; `None` without a row, or if the list has
    /// no such names.
    fn selected_key(&self, _app: &App) -> Option<String> {
        None
    }

    /// The place of the row with this key among those shown.
    fn place_of(&self, _app: &App, _key: &str) -> Option<usize> {
        None
    }

    /// What the list can be sorted by, in the order of the key.
    fn sorts(&self, _app: &App) -> &'static [&'static str] {
        &[]
    }

    /// Gives the keys to the list, as a click on a row does.
    fn focus_list(&self, _app: &mut App) {}

    /// Moves what the keys are on by so many rows.
    fn step(&self, app: &mut App, by: isize) {
        self.move_selection(app, by);
    }

    /// Moves the selection of the list by so many rows.
    fn move_selection(&self, app: &mut App, by: isize) {
        let rows = self.rows(app);
        if let Some(list) = self.list_mut(app) {
            list.step(by, rows);
        }
    }

    /// Turns the wheel by so many rows.
    fn wheel(&self, app: &mut App, by: isize) {
        self.step(app, by);
    }

    /// Whether something is open that Esc closes before it clears a filter.
    fn is_open(&self, _app: &App) -> bool {
        false
    }

    /// Closes the innermost thing open; `false` if there is none.
    fn close(&self, _app: &mut App) -> bool {
        false
    }
}
