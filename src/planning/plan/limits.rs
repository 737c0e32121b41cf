//! Limits of a goal on single offers, and the reasons for rejections.

use super::goal::{Limits, Quota};
use crate::pricing::{Market, Offer, Tier};
use habitat_base::units::{GIB, GpuSlug};

/// Reason why a number of machines of an offer is not allowed, and the distance from the limit as a factor above 1;
/// `None` if it is allowed.
pub(super) fn refusal(offer: &Offer, machines: u32, gpu: &GpuSlug, limits: &Limits) -> Option<(String, Option<f64>)> {
    let count = offer.gpu_count.saturating_mul(machines);
    let named = named(offer, gpu, limits).map(|reason| (reason, None));
    named
        .or_else(|| size(offer, machines, limits))
        .or_else(|| host(offer, limits))
        .or_else(|| quota(offer, count, gpu, limits))
}

/// Whether an offer has only one machine, such as an own machine or a marketplace host.
pub(super) fn is_one_machine(offer: &Offer) -> bool {
    matches!(offer.tier, Tier::Owned | Tier::Reserved) || offer.trust.market == Market::PeerToPeer
}

/// Limits on tiers, GPUs, providers, regions and offers.
fn named(offer: &Offer, gpu: &GpuSlug, limits: &Limits) -> Option<String> {
    let is_provider = |name: &String| name.eq_ignore_ascii_case(&offer.provider);
    let is_region = |filter: &String| offer.is_in(filter);
    if !limits.offers.is_empty() && !limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Some("not among the requested offers".to_owned());
    }
    if !limits.tiers.contains(&offer.tier) {
        return Some(format!("{} offers are not allowed", offer.tier));
    }
    if !limits.gpus.is_empty() && !limits.gpus.contains(gpu) {
        return Some(format!("{gpu} is not among the allowed GPUs"));
    }
    if limits.exclude_gpus.contains(gpu) {
        return Some(format!("{gpu} is excluded"));
    }
    if !limits.providers.is_empty() && !limits.providers.iter().any(is_provider) {
        return Some(format!("{} is not among the allowed providers", offer.provider));
    }
    if limits.exclude_providers.iter().any(is_provider) {
        return Some(format!("{} is excluded", offer.provider));
    }
    if limits.no_marketplace && offer.trust.market == Market::PeerToPeer {
        return Some("hosts on peer-to-peer markets are excluded".to_owned());
    }
    if !limits.regions.is_empty() && !limits.regions.iter().any(is_region) {
        return Some(format!("region {} is not among the allowed ones", offer.region));
    }
    let excluded = limits.exclude_regions.iter().find(|filter| is_region(filter))?;
    Some(format!("region {} is excluded ({excluded})", offer.region))
}

/// Limits on GPUs and price of all machines.
fn size(offer: &Offer, machines: u32, limits: &Limits) -> Option<(String, Option<f64>)> {
    let count = offer.gpu_count.saturating_mul(machines);
    let price = offer.price * f64::from(machines);
    if count < limits.min_gpus {
        let miss = f64::from(limits.min_gpus) / f64::from(count);
        return Some((format!("{count} GPUs, fewer than the required {}", limits.min_gpus), Some(miss)));
    }
    if let Some(most) = limits.max_gpus.filter(|most| count > *most) {
        let miss = f64::from(count) / f64::from(most.max(1));
        return Some((format!("{count} GPUs, more than the allowed {most}"), Some(miss)));
    }
    let most = limits.max_price.filter(|most| price.get() > most.get())?;
    let miss = (most.get() > 0.0).then(|| price / most);
    Some((format!("${:.2}/h, more than the allowed ${:.2}/h", price.get(), most.get()), miss))
}

/// Limits on the host of the whole machine.
fn host(offer: &Offer, limits: &Limits) -> Option<(String, Option<f64>)> {
    let sizes = [
        ("vCPUs", limits.min_vcpus.map(f64::from), offer.vcpus),
        (
            "GB of host memory",
            limits.min_host_memory.map(|least| least.get() / GIB),
            offer.host_memory.map(|has| has.get() / GIB),
        ),
    ];
    sizes.into_iter().find_map(|(what, least, has)| match (least?, has) {
        (least, Some(has)) => {
            (has < least).then(|| (format!("{has} {what}, fewer than the required {least}"), Some(least / has)))
        }
        (_, None) if limits.allow_unknown_host => None,
        (_, None) => Some((format!("unknown {what} (allow it with --allow-unknown-host)"), None)),
    })
}

fn quota(offer: &Offer, count: u32, gpu: &GpuSlug, limits: &Limits) -> Option<(String, Option<f64>)> {
    let exceeded = |quota: &&Quota| quota.is_lasting() && quota.applies(offer, gpu) && count > quota.gpus;
    let quota = limits.quotas.iter().filter(exceeded).min_by_key(|quota| quota.gpus)?;
    let miss = (quota.gpus > 0).then(|| f64::from(count) / f64::from(quota.gpus));
    Some((format!("{count} GPUs, more than the quota of {quota}"), miss))
}

impl Quota {
    /// Whether the quota covers these machines.
    pub(super) fn applies(&self, offer: &Offer, gpu: &GpuSlug) -> bool {
        self.provider.eq_ignore_ascii_case(&offer.provider)
            && self.region.as_ref().is_none_or(|filter| offer.is_in(filter))
            && self.gpu.as_ref().is_none_or(|own| own == gpu)
            && self.tier.is_none_or(|own| own == offer.tier)
    }
}
