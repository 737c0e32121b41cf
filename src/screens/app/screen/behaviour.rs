//! Interface between the app and its screens.

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::list::ListState;
use crate::app::msg::Effect;
use habitat_reports::Table;

/// Behaviour of a screen. Its state is in a field of [`App`], so that screens can show parts of one another.
pub trait Behaviour {
    /// Content of the screen in words, shown until there is a profile; `None` if it needs none.
    fn awaits(&self) -> Option<&'static str>;

    /// Whether it provides something that actions need.
    fn gives(&self, _app: &App, _needs: Needs) -> bool {
        false
    }

    /// Handles an action; `false` leaves it to the app.
    fn act(&self, _app: &mut App, _action: Action, _effects: &mut Vec<Effect>) -> bool {
        false
    }

    /// The table in focus, as shown and copied.
    fn table(&self, _app: &App) -> Option<Table> {
        None
    }

    /// Number of rows of the table in focus.
    fn rows(&self, app: &App) -> usize {
        self.table(app).map_or(0, |table| table.len())
    }

    /// Selection, filter and order of the list in focus.
    fn list<'a>(&self, _app: &'a App) -> Option<&'a ListState> {
        None
    }

    /// The same, mutable.
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

    /// Sort columns of the list, in key order.
    fn sorts(&self, _app: &App) -> &'static [&'static str] {
        &[]
    }

    /// Moves the focus to the list, as a click on a row does.
    fn focus_list(&self, _app: &mut App) {}

    /// Moves the focused element by a number of rows.
    fn step(&self, app: &mut App, by: isize) {
        self.move_selection(app, by);
    }

    /// Moves the selection of the list by a number of rows.
    fn move_selection(&self, app: &mut App, by: isize) {
        let rows = self.rows(app);
        if let Some(list) = self.list_mut(app) {
            list.step(by, rows);
        }
    }

    /// Scrolls by a number of rows.
    fn wheel(&self, app: &mut App, by: isize) {
        self.step(app, by);
    }

    /// Whether something is open that Esc closes before it clears a filter.
    fn is_open(&self, _app: &App) -> bool {
        false
    }

    /// Closes the innermost open element; `false` if there is none.
    fn close(&self, _app: &mut App) -> bool {
        false
    }
}
