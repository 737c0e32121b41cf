//! Limits of a goal on single offers, the reasons for rejections, and the risks to accept.

use super::batch::Refusal;
use super::goal::{Limits, Quota};
use super::{Accept, Platform, Reason, Risk};
use crate::pricing::{Market, Offer, PriceIssue, Tier};
use habitat_base::units::GpuSlug;
use habitat_prediction::{GpuFacts, Predictions, Vendor};

/// Reason why a number of machines of an offer is not allowed, and the distance from the limit as a factor above 1;
/// `None` if it is allowed.
pub(super) fn refusal(offer: &Offer, machines: u32, gpu: &GpuSlug, limits: &Limits) -> Option<Refusal> {
    let count = offer.gpu_count.saturating_mul(machines);
    let named = named(offer, gpu, limits).map(|reason| (reason, None));
    named
        .or_else(|| size(offer, machines, limits))
        .or_else(|| host(offer, limits))
        .or_else(|| quota(offer, count, gpu, limits))
}

/// Limits on tiers, GPUs, providers, regions and offers.
fn named(offer: &Offer, gpu: &GpuSlug, limits: &Limits) -> Option<Reason> {
    let is_provider = |name: &String| name.eq_ignore_ascii_case(&offer.provider);
    let is_region = |filter: &String| offer.is_in(filter);
    if !limits.offers.is_empty() && !limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Some(Reason::OfferNotNamed);
    }
    if !limits.tiers.contains(&offer.tier) {
        return Some(Reason::TierNotAllowed { tier: offer.tier });
    }
    if !limits.gpus.is_empty() && !limits.gpus.contains(gpu) {
        return Some(Reason::GpuNotNamed { gpu: gpu.clone() });
    }
    if limits.exclude_gpus.contains(gpu) {
        return Some(Reason::GpuExcluded { gpu: gpu.clone() });
    }
    if !limits.providers.is_empty() && !limits.providers.iter().any(is_provider) {
        return Some(Reason::ProviderNotNamed { provider: offer.provider.clone() });
    }
    if limits.exclude_providers.iter().any(is_provider) {
        return Some(Reason::ProviderExcluded { provider: offer.provider.clone() });
    }
    if limits.no_marketplace && offer.trust.market == Market::PeerToPeer {
        return Some(Reason::MarketplaceExcluded);
    }
    if !limits.regions.is_empty() && !limits.regions.iter().any(is_region) {
        return Some(Reason::RegionNotNamed { region: offer.region.clone() });
    }
    let filter = limits.exclude_regions.iter().find(|filter| is_region(filter))?.clone();
    Some(Reason::RegionExcluded { region: offer.region.clone(), filter })
}

/// Limits on GPUs and price of all machines.
fn size(offer: &Offer, machines: u32, limits: &Limits) -> Option<Refusal> {
    let gpus = offer.gpu_count.saturating_mul(machines);
    let usd_per_hour = offer.price * f64::from(machines);
    if gpus < limits.min_gpus {
        let miss = f64::from(limits.min_gpus) / f64::from(gpus);
        return Some((Reason::TooFewGpus { gpus, least: limits.min_gpus }, Some(miss)));
    }
    if let Some(most) = limits.max_gpus.filter(|most| gpus > *most) {
        let miss = f64::from(gpus) / f64::from(most.max(1));
        return Some((Reason::TooManyGpus { gpus, most }, Some(miss)));
    }
    let most = limits.max_price.filter(|most| usd_per_hour.get() > most.get())?;
    let miss = (most.get() > 0.0).then(|| usd_per_hour / most);
    Some((Reason::TooDearPerHour { usd_per_hour, most }, miss))
}

/// Limits on the host of the whole machine.
fn host(offer: &Offer, limits: &Limits) -> Option<Refusal> {
    let vcpus = limits.min_vcpus.and_then(|least| match offer.vcpus {
        Some(vcpus) if vcpus >= f64::from(least) => None,
        Some(vcpus) => Some((Reason::TooFewVcpus { vcpus, least }, Some(f64::from(least) / vcpus))),
        None => (!limits.allow_unknown_host).then_some((Reason::VcpusUnknown, None)),
    });
    let memory = limits.min_host_memory.and_then(|least| match offer.host_memory {
        Some(bytes) if bytes.get() >= least.get() => None,
        Some(bytes) => Some((Reason::TooLittleHostMemory { bytes, least }, Some(least / bytes))),
        None => (!limits.allow_unknown_host).then_some((Reason::HostMemoryUnknown, None)),
    });
    vcpus.or(memory)
}

fn quota(offer: &Offer, gpus: u32, gpu: &GpuSlug, limits: &Limits) -> Option<Refusal> {
    let exceeded = |quota: &&Quota| quota.is_lasting() && quota.applies(offer, gpu) && gpus > quota.gpus;
    let quota = limits.quotas.iter().filter(exceeded).min_by_key(|quota| quota.gpus)?;
    let miss = (quota.gpus > 0).then(|| f64::from(gpus) / f64::from(quota.gpus));
    Some((Reason::OverQuota { gpus, quota: Box::new(quota.clone()) }, miss))
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
}

/// Platform of a machine if it differs from that of the recording; `None` for the same platform.
pub fn other_platform(predictions: &Predictions, gpu: &GpuFacts, instance_type: &str) -> Option<Platform> {
    Some(Platform::of(gpu, instance_type)).filter(|platform| *platform != Platform::recorded(predictions))
}

/// Kinds that the user has to accept for an offer. A limit that names the offer accepts all of them.
pub(super) fn needs(offer: &Offer, gpu: &GpuFacts, recorded: Platform, limits: &Limits) -> Vec<Accept> {
    if limits.offers.iter().any(|id| id == offer.id.as_str()) {
        return Vec::new();
    }
    let is_spot = offer.tier == Tier::Spot;
    // To accept spot is to accept that old spot prices may have changed. A marketplace host is a kind of its own.
    let is_moved = |doubt: &PriceIssue| is_spot && matches!(doubt, PriceIssue::Old { .. });
    let is_doubt = |doubt: &PriceIssue| !(is_moved(doubt) || *doubt == PriceIssue::PeerToPeer);
    let port = Platform::of(gpu, &offer.instance_type) != recorded;
    [
        is_spot.then_some(Accept::Spot),
        (offer.trust.market == Market::PeerToPeer).then_some(Accept::Marketplace),
        offer.trust.counted().any(is_doubt).then_some(Accept::Doubted),
        port.then_some(Accept::Platform),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Risks of an offer by the kinds to accept; `batch` is its global batch.
pub(super) fn risks(offer: &Offer, gpu: &GpuFacts, needs: &[Accept], batch: Option<u64>) -> Vec<Risk> {
    let risk = |need: &Accept| match need {
        Accept::Spot => Risk::Spot,
        Accept::Marketplace => Risk::Marketplace,
        Accept::Doubted => {
            let doubts = offer.trust.counted().copied();
            Risk::Doubted(doubts.filter(|doubt| *doubt != PriceIssue::PeerToPeer).collect())
        }
        Accept::Platform => Risk::Platform(Platform::of(gpu, &offer.instance_type)),
        Accept::Batch => Risk::Batch(batch),
    };
    needs.iter().map(risk).collect()
}
