//! Limits of a goal on single offers, the reasons for rejections, and the risks to accept.

use super::accept::Accept;
use super::goal::{Limits, Quota};
use crate::pricing::{Doubt, Market, Offer, Tier};
use habitat_base::text::grouped;
use habitat_base::units::{GIB, GpuSlug};
use habitat_prediction::{GpuFacts, Predictions, Vendor};

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

/// Software platform of a step: vendor of the GPU, and whether the host has ARM CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Platform {
    vendor: Vendor,
    arm: bool,
}

impl Platform {
    /// Platform of the recording; CUDA on x86 if its GPU is not in the catalog.
    pub(super) fn recorded(predictions: &Predictions) -> Self {
        let slug = predictions.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
        let own = predictions.predictions.iter().find(|one| Some(&one.gpu.slug) == slug);
        own.map_or(Self { vendor: Vendor::Nvidia, arm: false }, |own| Self::of(&own.gpu, ""))
    }

    /// Platform of a machine. Boards whose names start with GH or GB have NVIDIA Grace CPUs (ARM); `g5g` are AWS
    /// machines with Graviton CPUs.
    fn of(gpu: &GpuFacts, instance_type: &str) -> Self {
        let slug = gpu.slug.as_str();
        let arm = slug.starts_with("gh") || slug.starts_with("gb") || instance_type.starts_with("g5g.");
        Self { vendor: gpu.vendor, arm }
    }

    fn words(self) -> &'static str {
        match (self.vendor, self.arm) {
            (Vendor::Amd, _) => "ROCm, an AMD GPU",
            (Vendor::Nvidia, true) => "a host with ARM CPUs",
            (Vendor::Nvidia, false) => "CUDA on x86",
        }
    }
}

/// Words for the platform of a machine if it differs from that of the recording; `None` for the same platform.
pub fn other_platform(predictions: &Predictions, gpu: &GpuFacts, instance_type: &str) -> Option<&'static str> {
    let platform = Platform::of(gpu, instance_type);
    (platform != Platform::recorded(predictions)).then(|| platform.words())
}

/// Kinds that the user has to accept for an offer. A limit that names the offer, its provider or its GPU accepts some
/// of them.
pub(super) fn needs(offer: &Offer, gpu: &GpuFacts, recorded: Platform, limits: &Limits) -> Vec<Accept> {
    if limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Vec::new();
    }
    let is_named = limits.providers.iter().any(|name| name.eq_ignore_ascii_case(&offer.provider));
    let of_host = offer.trust.market == Market::PeerToPeer;
    let is_spot = offer.tier == Tier::Spot;
    // Hosts set their own prices, and the user accepts that old spot prices may have changed.
    let is_own = offer.trust.is_own;
    let is_moved = |doubt: &Doubt| is_spot && matches!(doubt, Doubt::Old { .. });
    let is_doubt = |doubt: &Doubt| !(of_host || is_own || is_moved(doubt));
    let port = Platform::of(gpu, &offer.instance_type) != recorded && !limits.gpus.contains(&gpu.slug);
    [
        is_spot.then_some(Accept::Spot),
        (of_host && !is_named).then_some(Accept::Marketplace),
        offer.trust.doubts.iter().any(is_doubt).then_some(Accept::Doubted),
        port.then_some(Accept::Platform),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Words for the risks of an offer.
pub(super) fn what(offer: &Offer, gpu: &GpuFacts, needs: &[Accept], batch: Option<u64>) -> String {
    let words = |need: &Accept| match need {
        Accept::Spot | Accept::Marketplace => need.words().to_owned(),
        Accept::Doubted => format!("a price in doubt ({})", offer.trust.marks()),
        Accept::Platform => Platform::of(gpu, &offer.instance_type).words().to_owned(),
        Accept::Batch => match batch {
            Some(batch) => format!("a global batch of {}", grouped(batch as f64)),
            None => need.words().to_owned(),
        },
    };
    needs.iter().map(words).collect::<Vec<_>>().join(", ")
}
