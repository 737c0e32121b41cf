//! Search of the palette: actions, and GPUs, operations and offers to go to.

use std::collections::HashSet;

use super::App;
use super::list::ListState;
use super::modal::{Modal, matching};
use super::msg::Effect;
use super::screen::predict::PredictState;
use crate::action::{Action, Screen, Spec};
use habitat_base::text::clean;
use habitat_base::units::GpuSlug;
use habitat_planning::pricing::OfferId;
use habitat_step::op;

/// Maximum number of results of each kind.
const MOST: usize = 12;

/// A search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchResult {
    /// An action to run.
    Action(Action),
    /// A GPU on the predict screen.
    Gpu(GpuSlug),
    /// An operation on the profile screen, by its short name.
    Operation(String),
    /// An offer, with its details.
    Offer(OfferId),
}

/// Searches for the words of `query`: actions, and unless it is empty, GPUs by any common name, operations, and offers
/// ordered by price per GPU.
pub fn search(app: &App, query: &str) -> Vec<SearchResult> {
    let action = |spec: &Spec| SearchResult::Action(spec.action);
    let mut all: Vec<SearchResult> = matching(app, query).into_iter().map(action).collect();
    if query.trim().is_empty() {
        return all;
    }
    let query = query.to_lowercase();
    let has = |text: &str| {
        let text = text.to_lowercase();
        query.split_whitespace().all(|word| text.contains(word))
    };
    let meant = app.setup.catalog.named(&query);
    let rows = app.predict.rows.iter();
    let gpus =
        rows.filter(|row| has(&format!("{} {}", row.name, row.slug)) || meant.iter().any(|gpu| gpu.slug == row.slug));
    all.extend(gpus.take(MOST).map(|row| SearchResult::Gpu(row.slug.clone())));
    // Many operations share a name.
    let mut seen = HashSet::new();
    let names = app.setup.profile.operations.iter().map(|operation| op::name::short(&operation.name));
    let names = names.filter(|name| seen.insert(*name)).filter(|name| has(name));
    all.extend(names.take(MOST).map(|name| SearchResult::Operation(name.to_owned())));
    let per_gpu = |offer: &habitat_planning::pricing::Offer| offer.price.get() / f64::from(offer.gpu_count.max(1));
    let offers = app.setup.prices.offers().iter();
    let mut offers: Vec<_> = offers.filter(|offer| offer.unusable.is_none() && has(offer.id.as_str())).collect();
    offers.sort_by(|a, b| per_gpu(a).total_cmp(&per_gpu(b)).then_with(|| a.id.cmp(&b.id)));
    all.extend(offers.into_iter().take(MOST).map(|offer| SearchResult::Offer(offer.id.clone())));
    all
}

impl App {
    /// Runs an action, or goes to a search result.
    pub(super) fn go_to(&mut self, found: SearchResult, effects: &mut Vec<Effect>) {
        match found {
            SearchResult::Action(action) => {
                self.screen = self.elsewhere(action).unwrap_or(self.screen);
                self.act(action, effects);
            }
            SearchResult::Gpu(slug) => {
                self.screen = Screen::Predict;
                let PredictState { rows, marked, .. } = std::mem::take(&mut self.predict);
                self.predict = PredictState { rows, marked, ..PredictState::default() };
                let place = super::screen::predict::rows(self).iter().position(|row| row.slug == slug);
                self.predict.list.selected = place.unwrap_or(0);
            }
            SearchResult::Operation(name) => {
                self.screen = Screen::Profile;
                self.profile.in_detail = false;
                self.profile.zoomed = false;
                self.profile.list = ListState { filter: name, ..ListState::default() };
            }
            SearchResult::Offer(offer) => {
                self.screen = Screen::Plan;
                self.modal = Some(Modal::Offer { offer, scroll: 0 });
            }
        }
    }
}

/// A result in words, its location, and why it is not available.
pub fn words(app: &App, found: &SearchResult) -> (String, String, Option<&'static str>) {
    match found {
        SearchResult::Action(action) => {
            let text = action.spec().text;
            let key = app.setup.keymap.hint(*action);
            match app.elsewhere(*action) {
                Some(screen) => (format!("{text} ({} screen)", screen.name()), key, None),
                None => (text.to_owned(), key, app.unavailable(*action)),
            }
        }
        SearchResult::Gpu(slug) => {
            let row = app.predict.rows.iter().find(|row| row.slug == *slug);
            let name = row.map_or_else(|| slug.to_string(), |row| row.name.clone());
            (format!("GPU {name}"), "predict".to_owned(), None)
        }
        SearchResult::Operation(name) => (format!("operation {}", clean(name, 80)), "profile".to_owned(), None),
        SearchResult::Offer(id) => (format!("offer {}", clean(id.as_str(), 120)), "plan".to_owned(), None),
    }
}
