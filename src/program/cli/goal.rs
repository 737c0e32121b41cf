//! The goal of a plan: settings file first, then flags. Checks names against the catalog and the offers.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Zoned;
use jiff::tz::TimeZone;

use super::error::{At, CliError};
use super::{gpu, own};
use crate::settings::args::OwnArgs;
use crate::settings::goal_args::GoalArgs;
use crate::store::{self, Paths};
use habitat_base::text;
use habitat_base::units::Hours;
use habitat_planning::deadline::Deadline;
use habitat_planning::plan::{Goal, Quota, check_list};
use habitat_planning::pricing::{Offer, PriceBook};
use habitat_reports::format;
use habitat_step::catalog::Catalog;

/// Combines the goal's work with the wishes of the settings file and of the command line.
///
/// # Errors
/// [`CliError`] for an unknown GPU, provider, region or offer (a typing error would otherwise look like "no plan"), and
/// for limits that contradict each other.
pub(super) fn goal(
    mut goal: Goal,
    typed: &GoalArgs,
    settings: &GoalArgs,
    catalog: &Catalog,
    prices: &PriceBook,
) -> Result<Goal, CliError> {
    settings.apply(&mut goal);
    goal.limits.check_lists().at(Paths::find().settings().display())?;
    typed.apply(&mut goal);
    goal.deadline = hours(typed.deadline.as_ref())?.or(goal.deadline);
    goal.limits.check_lists()?;
    check_list("gpus", typed.gpus.iter().map(String::len))?;
    check_list("exclude_gpus", typed.exclude_gpus.iter().map(String::len))?;
    goal.limits.gpus = gpu::all(catalog, "--gpus", &typed.gpus)?;
    goal.limits.exclude_gpus = gpu::all(catalog, "--exclude-gpus", &typed.exclude_gpus)?;
    check_names(&goal, typed, catalog, prices)?;
    check_sense(&goal, prices)?;
    Ok(goal)
}

/// Current local time.
pub(super) fn now() -> Zoned {
    store::now().to_zoned(TimeZone::system())
}

/// Hours until a deadline.
///
/// # Errors
/// [`CliError`] with the date if it is in the past.
pub(super) fn hours(deadline: Option<&Deadline>) -> Result<Option<Hours>, CliError> {
    let hours = deadline.map(|deadline| deadline.hours(&now())).transpose();
    hours.map_err(|why| CliError::Refused(format!("deadline: {why}")))
}

/// Lines that show how the request was interpreted: the date of the deadline, and the assumptions behind the prices of
/// own machines.
pub(super) fn lines(wish: &GoalArgs, own: &OwnArgs, catalog: &Catalog) -> Result<Vec<String>, CliError> {
    let now = now();
    let deadline = wish.deadline.as_ref().and_then(|deadline| {
        let (meaning, hours) = (deadline.meaning(&now)?, deadline.hours(&now).ok()?);
        let later =
            if deadline.is_weekday_of_today(&now) { "; \"next\" before the day means a week later" } else { "" };
        Some(format!("Deadline: {meaning}, {} from now{later}", format::hours(hours)))
    });
    let mut lines = own::lines(own, wish.network.is_some(), catalog)?;
    lines.splice(..0, deadline);
    Ok(lines)
}

/// Refuses limits that contradict each other, naming their flags.
///
/// # Errors
/// [`CliError`] with the limits that no offer or plan can meet.
pub(super) fn check_sense(goal: &Goal, prices: &PriceBook) -> Result<(), CliError> {
    let limits = &goal.limits;
    let is_free = |offer: &Arc<Offer>| offer.price.get() == 0.0 && offer.unusable.is_none();
    let nothing_is_free = !prices.offers().iter().any(is_free);
    let all_excluded = |regions: &[String]| {
        let mut kept = prices.offers().iter().filter(|offer| regions.iter().any(|filter| offer.is_in(filter)));
        !regions.is_empty() && kept.all(|offer| limits.exclude_regions.iter().any(|filter| offer.is_in(filter)))
    };
    let same = |name: &&String| limits.exclude_providers.iter().any(|other| other.eq_ignore_ascii_case(name));
    let without_quota = |quota: &&Quota| {
        let is_all = quota.region.is_none() && quota.gpu.is_none() && quota.tier.is_none();
        quota.gpus == 0 && is_all && limits.providers.iter().any(|name| name.eq_ignore_ascii_case(&quota.provider))
    };
    let problem = if goal.deadline.is_some_and(|deadline| deadline.get() <= 0.0) {
        "--deadline 0: leaves no time for any work; pass a duration above 0, such as 24h".to_owned()
    } else if goal.budget.is_some_and(|budget| budget.get() <= 0.0) && nothing_is_free {
        "--budget 0: no offer is free; pass an amount in US dollars above 0".to_owned()
    } else if limits.max_price.is_some_and(|most| most.get() <= 0.0) && nothing_is_free {
        "--max-price 0: no offer is free; pass US dollars per hour above 0".to_owned()
    } else if limits.max_gpus == Some(0) {
        "--max-gpus 0: every offer has a GPU; pass 1 or more".to_owned()
    } else if let Some(most) = limits.max_gpus.filter(|most| limits.min_gpus > *most) {
        format!("--min-gpus {} and --max-gpus {most}: no offer meets both", limits.min_gpus)
    } else if let Some(name) = limits.providers.iter().find(same) {
        format!("--providers and --exclude-providers: both contain {}", text::clean(name, 40))
    } else if !limits.gpus.is_empty() && limits.gpus.iter().all(|gpu| limits.exclude_gpus.contains(gpu)) {
        "--gpus and --exclude-gpus: the second contains every GPU of the first".to_owned()
    } else if all_excluded(&limits.regions) {
        "--regions and --exclude-regions: the second contains every region of the first".to_owned()
    } else if let Some(quota) = limits.quotas.iter().find(without_quota) {
        format!("--providers and quota: {0} is listed, but its quota of GPUs is 0", quota.provider)
    } else {
        return Ok(());
    };
    Err(CliError::Refused(problem))
}

/// Starts of names that people use for providers, and the provider's name in the price book (a choice).
const COMPANIES: &str =
    "amazon=aws google=gcp gcloud=gcp microsoft=azure oracle=oci digitalocean=do linode=akamai datacrunch=verda";

/// A hint for the name of a company; `None` for others.
pub(super) fn of_company(name: &str) -> Option<String> {
    let mut pairs = COMPANIES.split(' ').filter_map(|pair| pair.split_once('='));
    let (_, provider) = pairs.find(|(company, _)| name.to_lowercase().starts_with(company))?;
    Some(format!(" (meant: {provider}?); `habitat-tui prices` lists all"))
}

/// Checks that names exist in the catalog or among the offers.
fn check_names(goal: &Goal, typed: &GoalArgs, catalog: &Catalog, prices: &PriceBook) -> Result<(), CliError> {
    let limits = &goal.limits;
    let offers = prices.offers();
    let in_settings = |is_typed: bool, problem: String| {
        let error = CliError::Refused(problem);
        if is_typed { error } else { error.at(Paths::find().settings().display()) }
    };
    let lists =
        |lists: [&Option<Vec<String>>; 2], name: &String| lists.into_iter().flatten().any(|list| list.contains(name));
    let data = goal.data.as_ref();
    let providers =
        limits.providers.iter().chain(&limits.exclude_providers).chain(data.and_then(|data| data.provider.as_ref()));
    for name in providers.chain(limits.quotas.iter().map(|quota| &quota.provider)) {
        if !offers.iter().any(|offer| offer.provider.eq_ignore_ascii_case(name)) {
            let known = offers.iter().map(|offer| offer.provider.as_str());
            let near = of_company(name).unwrap_or_else(|| near(name, known, "prices"));
            let problem = format!("unknown provider {:?}{near}", text::clean(name, 40));
            let is_typed = data.is_some_and(|data| data.provider.as_ref() == Some(name))
                || lists([&typed.providers, &typed.exclude_providers], name)
                || typed.quota.iter().any(|quota| quota.provider == *name);
            return Err(in_settings(is_typed, problem));
        }
    }
    let regions = limits.regions.iter().chain(&limits.exclude_regions).map(|filter| (filter, None));
    let of_quotas = limits.quotas.iter().filter_map(|quota| Some((quota.region.as_ref()?, Some(&quota.provider))));
    let of_data = data.and_then(|data| Some((data.region.as_ref()?, data.provider.as_ref())));
    for (filter, provider) in regions.chain(of_quotas).chain(of_data) {
        let is_of = |offer: &&Arc<Offer>| provider.is_none_or(|name| offer.provider.eq_ignore_ascii_case(name));
        let offers = || offers.iter().filter(is_of);
        if !offers().any(|offer| offer.is_in(filter)) {
            let known = offers().flat_map(|offer| [Some(offer.region.as_str()), offer.region_name()]).flatten();
            let near = near(filter, known, "offers");
            let of = provider.map(|name| format!(" of {name}")).unwrap_or_default();
            let problem = format!("unknown region{of}: {:?}{near}", text::clean(filter, 40));
            let is_typed = data.is_some_and(|data| data.region.as_ref() == Some(filter))
                || lists([&typed.regions, &typed.exclude_regions], filter)
                || typed.quota.iter().any(|quota| quota.region.as_ref() == Some(filter));
            return Err(in_settings(is_typed, problem));
        }
    }
    for quota in &limits.quotas {
        let Some(Err(unknown)) = quota.gpu.as_ref().map(|gpu| catalog.find(gpu.as_str())) else { continue };
        return Err(in_settings(typed.quota.contains(quota), format!("quota: {unknown}")));
    }
    for id in &limits.offers {
        if !offers.iter().any(|offer| offer.id.as_str() == id) {
            let near = near(id, offers.iter().map(|offer| offer.id.as_str()), "offers");
            return Err(CliError::Refused(format!("unknown offer {:?}{near}", text::clean(id, 120))));
        }
    }
    for name in &typed.gpus {
        // For a name that fits several GPUs, one GPU with an offer is enough.
        let meant = catalog.named(name);
        if !offers.iter().any(|offer| meant.iter().any(|gpu| offer.gpu.as_ref() == Some(&gpu.slug))) {
            let gpu = meant.first().map_or_else(|| text::clean(name, 40), |gpu| gpu.slug.to_string());
            return Err(CliError::Refused(format!(
                "no offer has a {gpu}; `habitat-tui offers` lists all offers, and the price overlay takes your own"
            )));
        }
    }
    Ok(())
}

/// A hint for an unknown name: the most similar names, and the command that lists all.
fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>, command: &str) -> String {
    let known: BTreeSet<&str> = known.collect();
    let near = text::nearest(name, known, 5);
    let near = if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(" | ")) };
    format!("{near}; `habitat-tui {command}` lists all")
}
