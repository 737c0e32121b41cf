//! The goal of a plan: what the settings file wishes, then what was typed, and the names in both
//! compared with the catalog and the offers.

use std::collections::BTreeSet;

use super::error::CliError;
use super::gpu;
use crate::catalog::Catalog;
use crate::plan::{Goal, Work};
use crate::pricing::PriceBook;
use crate::settings::wish::Wish;
use crate::store::Paths;
use crate::text;

/// The goal for so much work.
///
/// # Errors
/// [`CliError`] for a GPU, provider or region that no offer has: a typing error would otherwise
/// look like "no plan".
pub(super) fn goal(
    work: Work,
    typed: &Wish,
    settings: &Wish,
    catalog: &Catalog,
    prices: &PriceBook,
) -> Result<Goal, CliError> {
    let mut goal = Goal::new(work);
    settings.apply(&mut goal);
    typed.apply(&mut goal);
    goal.limits.gpus = gpu::all(catalog, "--gpus", &typed.gpus)?;
    check_names(&goal, typed, catalog, prices)?;
    Ok(goal)
}

fn check_names(goal: &Goal, typed: &Wish, catalog: &Catalog, prices: &PriceBook) -> Result<(), CliError> {
    let limits = &goal.limits;
    let offers = prices.offers();
    let refuse = |problem: String, name: &String, lists: [&Option<Vec<String>>; 2]| {
        let is_typed = lists.into_iter().flatten().any(|list| list.contains(name));
        let error = CliError::Refused(problem);
        Err(if is_typed { error } else { error.at(Paths::find().settings().display()) })
    };
    for name in limits.providers.iter().chain(&limits.exclude_providers) {
        if !offers.iter().any(|offer| offer.provider.eq_ignore_ascii_case(name)) {
            let known: BTreeSet<&str> = offers.iter().map(|offer| offer.provider.as_str()).collect();
            let known: Vec<&str> = known.into_iter().collect();
            let problem = format!("no provider {:?}; there are {}", text::clean(name, 40), known.join(", "));
            return refuse(problem, name, [&typed.providers, &typed.exclude_providers]);
        }
    }
    for start in &limits.regions {
        if !offers.iter().any(|offer| offer.region.starts_with(start.as_str())) {
            let shown = text::clean(start, 40);
            let problem = format!("no region begins with {shown:?}; `habitat-tui offers` lists all");
            return refuse(problem, start, [&typed.regions, &None]);
        }
    }
    for name in &typed.gpus {
        // Of a name of several GPUs, one with an offer is enough.
        let meant = catalog.named(name);
        if !offers.iter().any(|offer| meant.iter().any(|gpu| offer.gpu.as_ref() == Some(&gpu.slug))) {
            let gpu = meant.first().map_or_else(|| text::clean(name, 40), |gpu| gpu.slug.to_string());
            return Err(CliError::Refused(format!(
                "no offer has a {gpu}; `habitat-tui offers` lists all, your own go into the price overlay"
            )));
        }
    }
    Ok(())
}
