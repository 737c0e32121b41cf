//! Offers of the lower pane, filtered and sorted.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Lower, confidence, gpus_words};
use crate::app::App;
use crate::app::list::ListState;
use habitat_planning::plan::{Part, Plan, Rejection};
use habitat_planning::pricing::OfferId;
use habitat_reports::words::{Words, price::marks};

/// Sort orders of the alternatives.
pub(super) const ALTERNATIVES_BY: [&str; 5] = ["best first", "cost", "time", "$/h", "GPUs"];
/// Sort orders of the rejected offers.
pub(super) const REJECTED_BY: [&str; 3] = ["closest first", "offer", "reason"];

/// The list state if the lower pane shows `lower`; else one without filter and order.
fn list_of(app: &App, lower: Lower) -> ListState {
    let list = &app.planner.list;
    if app.planner.lower == lower { list.clone() } else { ListState::default() }
}

/// The plan's own parts and the alternatives that pass the filter, sorted.
pub fn candidates(app: &App) -> Vec<(&Part, bool)> {
    let Some(plan) = app.plan.value() else { return Vec::new() };
    let list = list_of(app, Lower::Alternatives);
    let own = plan.parts.iter().map(|part| (part, true));
    let all = own.chain(plan.alternatives.iter().map(|part| (part, false)));
    let mut all: Vec<(&Part, bool)> = all.filter(|(part, _)| passes(&list, part)).collect();
    let end = |part: &Part| confidence(app).end(&part.hours).get();
    match list.sort {
        1 => all.sort_by(|a, b| a.0.cost.mid.total_cmp(&b.0.cost.mid)),
        2 => all.sort_by(|a, b| end(a.0).total_cmp(&end(b.0))),
        3 => all.sort_by(|a, b| a.0.price().total_cmp(&b.0.price())),
        4 => all.sort_by(|a, b| a.0.gpu.cmp(&b.0.gpu).then(a.0.all_gpus().cmp(&b.0.all_gpus()))),
        _ => {}
    }
    if list.reversed {
        all.reverse();
    }
    all
}

/// The offers of the lower pane, if it shows a list that can be filtered.
pub(super) fn offers(app: &App) -> Vec<&OfferId> {
    match app.planner.lower {
        Lower::Alternatives => candidates(app).into_iter().map(|(part, _)| &part.offer.id).collect(),
        Lower::Rejected => rejected(app).into_iter().map(|one| &one.offer).collect(),
        Lower::Beside | Lower::Timeline | Lower::Chart | Lower::Layouts | Lower::Notes => Vec::new(),
    }
}

/// The next view of the lower pane; layouts only if there are some.
pub(crate) fn next_lower(app: &App) -> Lower {
    let place = Lower::ALL.iter().position(|lower| *lower == app.planner.lower).unwrap_or(0);
    let no_layouts = app.plan.value().is_none_or(|plan| plan.layouts.is_empty());
    let mut next = Lower::ALL.into_iter().cycle().skip(place + 1);
    next.find(|lower| *lower != Lower::Layouts || !no_layouts).unwrap_or_default()
}

/// Whether an offer passes a filter of words and figures: `lambda`, `4090 cost<100`.
fn passes(list: &ListState, part: &Part) -> bool {
    let market = part.offer.trust.market.name();
    let words = format!("{} {} {market} {}", gpus_words(part), part.offer.id, marks(&part.offer.trust.doubts));
    list.passes_with(&words, |name| match name {
        "cost" => Some(Some(part.cost.mid.get())),
        "hours" | "time" => Some(Some(part.hours.mid.get())),
        "$/h" | "price" => Some(Some(part.price().get())),
        "gpus" => Some(Some(f64::from(part.all_gpus()))),
        _ => None,
    })
}

/// Whether a rejected offer, or its reason, passes a filter.
pub(super) fn passes_rejected(list: &ListState, one: &Rejection) -> bool {
    !list.is_filtered() || list.passes(&format!("{} {}", one.offer, one.reason.words()))
}

/// Rejected offers that pass the filter, sorted; by default, those closest to acceptance come first.
pub fn rejected(app: &App) -> Vec<&Rejection> {
    let Some((plan, shared)) = app.plan.value().zip(app.plan.shared()) else { return Vec::new() };
    arranged(app, shared).places.iter().map(|place| &plan.rejected[*place]).collect()
}

/// Places of the rejected offers that pass the filter, cached between frames: reasons are worded to filter and sort.
#[derive(Debug, Clone)]
pub(in crate::app) struct Arranged {
    plan: Arc<Plan>,
    /// Filter and order.
    list: ListState,
    places: Vec<usize>,
}

/// Filters and sorts the rejected offers again after a change, if they are shown.
pub fn arrange(app: &mut App) {
    if app.planner.lower == Lower::Rejected
        && let Some(plan) = app.plan.shared()
        && let Cow::Owned(changed) = arranged(app, plan)
    {
        app.planner.arranged = Some(changed);
    }
}

/// The places from the cache, or recomputed if the plan, the filter or the order has changed.
fn arranged(app: &App, plan: Arc<Plan>) -> Cow<'_, Arranged> {
    let list = ListState { selected: 0, ..list_of(app, Lower::Rejected) };
    let is_as_kept = |kept: &&Arranged| Arc::ptr_eq(&kept.plan, &plan) && kept.list == list;
    if let Some(kept) = app.planner.arranged.as_ref().filter(is_as_kept) {
        return Cow::Borrowed(kept);
    }
    let one = |place: &usize| &plan.rejected[*place];
    let mut places = plan.closest_rejected();
    places.retain(|place| passes_rejected(&list, one(place)));
    match list.sort {
        1 => places.sort_by(|a, b| one(a).offer.cmp(&one(b).offer)),
        2 => places.sort_by_cached_key(|place| one(place).reason.words()),
        _ => {}
    }
    if list.reversed {
        places.reverse();
    }
    Cow::Owned(Arranged { plan, list, places })
}
