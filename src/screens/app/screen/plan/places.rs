//! The providers and regions that a plan may use, to choose from a list.

use std::collections::{BTreeMap, BTreeSet};

use crate::app::App;
use crate::app::modal::{Choice, Places};
use habitat_planning::pricing::region;
use habitat_reports::words::price::region as shown_region;

/// All choices. The first has an empty name and means all offers.
pub(super) fn choices(app: &App, places: Places) -> Vec<Choice> {
    let mut regions: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for offer in app.setup.prices.offers().iter().filter(|offer| offer.unusable.is_none()) {
        *regions.entry((&offer.provider, &offer.region)).or_default() += 1;
    }
    let of_provider =
        |name: &str| regions.iter().filter(|((provider, _), _)| *provider == name).map(|(_, offers)| offers).sum();
    let choice = |name: &str, offers, is_small| Choice { name: name.to_owned(), offers, is_small };
    let mut all = vec![choice("", regions.values().sum(), false)];
    match places {
        Places::Providers => {
            let mut names: Vec<&str> = regions.keys().map(|(provider, _)| *provider).collect();
            names.dedup();
            all.extend(names.into_iter().map(|name| choice(name, of_provider(name), false)));
        }
        Places::Regions => {
            let words: Vec<(region::Words, usize)> = regions
                .iter()
                .map(|((provider, region), offers)| (region::Words::new(provider, region), *offers))
                .collect();
            let of =
                |name: &str| words.iter().filter(|(words, _)| words.is_named(name)).map(|(_, offers)| offers).sum();
            let (continents, mut countries): (Vec<&str>, Vec<&str>) =
                region::areas().partition(|area| region::is_continent(area));
            countries.sort_unstable();
            all.extend(continents.into_iter().chain(countries).map(|area| choice(area, of(area), false)));
            // The command line separates regions by commas, so the names have none. Filters ignore them.
            let names: BTreeSet<String> =
                regions.keys().map(|(_, region)| shown_region(region).replace(',', "")).collect();
            all.extend(names.iter().map(|name| choice(name, of(name), true)));
        }
    }
    all.retain(|choice| choice.offers > 0);
    // The goal may name something without an offer, which the user can take back.
    for name in places.allowed(&app.goal().limits) {
        if !all.iter().any(|choice| choice.name.eq_ignore_ascii_case(name)) {
            all.push(choice(name, 0, false));
        }
    }
    all
}

/// Finds the choices whose names have all words of `query`. An empty query hides single regions, except allowed ones.
pub fn search<'c>(app: &App, places: Places, choices: &'c [Choice], query: &str) -> Vec<&'c Choice> {
    let query = query.to_lowercase();
    let has = |choice: &&Choice| {
        let name = choice.name.to_lowercase();
        let is_meant = query.split_whitespace().all(|word| name.contains(word));
        is_meant && (!choice.is_small || !query.trim().is_empty() || is_allowed(app, places, choice))
    };
    choices.iter().filter(has).collect()
}

/// Whether the goal names a choice. For the choice of all offers: whether the goal names none.
pub fn is_allowed(app: &App, places: Places, choice: &Choice) -> bool {
    let allowed = places.allowed(&app.goal().limits);
    if choice.name.is_empty() {
        return allowed.is_empty();
    }
    allowed.iter().any(|name| name.eq_ignore_ascii_case(&choice.name))
}

/// Adds a choice to those that the goal names, or removes it. The choice of all offers removes the limit.
pub(in crate::app) fn toggle(app: &mut App, places: Places, choice: &Choice) {
    let was_allowed = is_allowed(app, places, choice);
    let limits = &mut app.setup.goal.limits;
    let (allowed, excluded) = match places {
        Places::Providers => (&mut limits.providers, &mut limits.exclude_providers),
        Places::Regions => (&mut limits.regions, &mut limits.exclude_regions),
    };
    let is_other = |name: &String| !name.eq_ignore_ascii_case(&choice.name);
    if choice.name.is_empty() {
        allowed.clear();
    } else if was_allowed {
        allowed.retain(is_other);
    } else {
        allowed.push(choice.name.clone());
        excluded.retain(is_other);
    }
}
