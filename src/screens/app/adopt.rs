//! A newly recorded profile on the screens.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::app::msg::Effect;
use crate::app::screen::overview::OverviewState;
use crate::app::screen::profile::Row;
use crate::app::{App, Source, Tone};
use habitat_step::profile::Profile;
use habitat_step::profile::breakdown::GroupBy;

impl App {
    /// Fills the screens from a profile and keeps the user's choices.
    pub(super) fn adopt(&mut self, profile: Profile, effects: &mut Vec<Effect>) {
        let output = self.live.as_ref().map(|live| live.job.output.clone()).unwrap_or_default();
        if self.is_awaiting() {
            self.tell(Tone::Good, format!("recorded; profile written to {output}"));
        }
        self.overview = OverviewState::new(&profile, &self.setup.catalog);
        let (selected, scroll) = (self.profile.list.selected, self.profile.scroll);
        let before = std::mem::take(&mut self.profile.entries);
        self.profile.regroup(&profile);
        // A tree keeps the order of its modules.
        if !self.is_awaiting() && self.profile.by != GroupBy::Module {
            keep_order(&mut self.profile.entries, &profile, &before, &self.setup.profile);
        }
        self.profile.list.selected = selected.min(self.profile.entries.len().saturating_sub(1));
        self.profile.scroll = scroll;
        self.setup.profile = Arc::new(profile);
        self.setup.source = Source::Given(output);
        self.start_predict(effects);
    }
}

/// Keeps rows in their earlier order, matched by name, phase and shapes; new rows come last. Rows that match equally
/// keep their relative order.
fn keep_order(rows: &mut [Row], profile: &Profile, before: &[Row], profile_before: &Profile) {
    let numbered = |rows: &[Row], profile: &Profile| {
        let name = |row: &Row| {
            let operation = row.entry.operations.first().and_then(|index| profile.operations.get(*index));
            (row.entry.label.clone(), row.entry.phase, operation.map(|operation| operation.inputs.clone()))
        };
        let mut seen: BTreeMap<_, usize> = BTreeMap::new();
        let number = |row: &Row| {
            let count = seen.entry(name(row)).or_default();
            *count += 1;
            (name(row), *count)
        };
        rows.iter().map(number).collect::<Vec<_>>()
    };
    let places: BTreeMap<_, usize> =
        numbered(before, profile_before).into_iter().enumerate().map(|(at, name)| (name, at)).collect();
    let mut order: Vec<(usize, usize)> = numbered(rows, profile)
        .iter()
        .enumerate()
        .map(|(at, name)| (places.get(name).copied().unwrap_or(usize::MAX), at))
        .collect();
    order.sort_unstable();
    let sorted: Vec<Row> = order.into_iter().map(|(_, at)| rows[at].clone()).collect();
    rows.clone_from_slice(&sorted);
}
