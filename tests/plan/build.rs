//! Builds predictions, prices and goals from plain numbers.

use habitat_tui::catalog::Vendor;
use habitat_tui::plan::{Assumptions, Confidence, Goal, Plan, RejectionKind, Work};
use habitat_tui::predict::memory::MemoryBasis;
use habitat_tui::predict::scale::Link;
use habitat_tui::predict::{
    Estimate, Fabric, Fits, GpuFacts, Host, MemoryFit, Method, Prediction, Predictions, StepTime,
};
use habitat_tui::pricing::{Offer, OfferId, PriceBook, Tier, Trust};
use habitat_tui::profile::{Mode, Workload};
use habitat_tui::report::words::{self, Words};
use habitat_tui::units::{Bytes, GIB, GpuSlug, Hours, Micros, Range, Samples, Usd, UsdPerHour};

pub(crate) fn gpu(name: &str) -> GpuFacts {
    GpuFacts {
        slug: GpuSlug::new(name).unwrap(),
        name: name.to_uppercase(),
        vendor: Vendor::Nvidia,
        architecture: "Test".into(),
        memory: Bytes::new(16.0 * GIB).unwrap(),
        link: Link::PciExpress,
        fabric: Fabric::typical(Link::PciExpress),
        power: None,
        doubtful: false,
    }
}

/// A measured GPU with this many samples per hour, one per step.
pub(crate) fn measured(name: &str, samples_per_hour: f64) -> Prediction {
    let median = Micros::new(3.6e9 / samples_per_hour).unwrap();
    prediction(name, StepTime::Measured { median, range: None })
}

/// The same, predicted with a symmetric band.
pub(crate) fn predicted(name: &str, samples_per_hour: f64, band: f64) -> Prediction {
    let mid = 3.6e9 / samples_per_hour;
    let micros = |value| Micros::new(value).unwrap();
    let range = Range { low: micros(mid * (1.0 - band)), mid: micros(mid), high: micros(mid * (1.0 + band)) };
    let estimate = Estimate { range, method: Method::Roofline };
    prediction(name, StepTime::Predicted(estimate))
}

fn prediction(name: &str, step: StepTime) -> Prediction {
    let gpu = gpu(name);
    Prediction {
        warnings: Vec::new(),
        step,
        throughput: None,
        host_idle: Micros::ZERO,
        device: Micros::ZERO,
        data: None,
        shares: Vec::new(),
        operations: Vec::new(),
        update_share: 0.0,
        left_out: 0.0,
        memory: MemoryFit {
            narrowest: None,
            fits: Fits::Yes,
            working: None,
            allocated: None,
            process: Bytes::known(1e9),
            needed: None,
            usable: gpu.memory * 0.92,
            basis: MemoryBasis::Unknown,
            largest_batch: None,
            at_most: None,
            states: None,
            activations: None,
        },
        notes: Vec::new(),
        precision_note: None,
        keeps_precision: false,
        at_batches: Vec::new(),
        transformer: None,
        gpu,
    }
}

pub(crate) fn predictions(all: impl IntoIterator<Item = Prediction>) -> Predictions {
    Predictions {
        workload: Workload {
            name: "test".into(),
            mode: Mode::Training,
            batch_size: Some(1),
            micro_batches: None,
            sequence_length: None,
            precision: None,
            parameter_count: None,
        },
        origin: None,
        host: Host::AsRecorded,
        communicates: false,
        predictions: all.into_iter().collect(),
        notes: Vec::new(),
    }
}

pub(crate) fn offer(gpu: &str, price: f64, tier: Tier) -> Offer {
    offer_in("us-1", gpu, price, tier)
}

pub(crate) fn offer_in(region: &str, gpu: &str, price: f64, tier: Tier) -> Offer {
    Offer {
        id: OfferId::new("cloud", region, gpu, tier),
        provider: "cloud".into(),
        region: region.into(),
        instance_type: gpu.into(),
        gpu_name: gpu.to_uppercase(),
        gpu: Some(GpuSlug::new(gpu).unwrap()),
        gpu_count: 1,
        machines: None,
        share_of: None,
        gpu_memory: None,
        vcpus: None,
        host_memory: None,
        network_gbit_per_second: None,
        tier,
        price: UsdPerHour::new(price).unwrap(),
        as_of: None,
        until: None,
        trust: Trust::default(),
        term_hours: None,
        held: None,
        source: "test".into(),
        unusable: None,
        note: None,
    }
}

/// On-demand configurations as (samples per hour, $ per hour), one GPU each.
pub(crate) fn configurations(rates_and_prices: &[(f64, f64)]) -> (Predictions, PriceBook) {
    let names: Vec<String> = (0..rates_and_prices.len()).map(|index| format!("gpu-{index}")).collect();
    let all = names.iter().zip(rates_and_prices).map(|(name, (rate, _))| measured(name, *rate));
    let offers = names.iter().zip(rates_and_prices).map(|(name, (_, price))| offer(name, *price, Tier::OnDemand));
    (predictions(all), PriceBook::new(offers))
}

/// A goal in samples without any assumed overhead.
pub(crate) fn goal(samples: f64, max_parts: u32) -> Goal {
    Goal {
        max_parts,
        assumptions: Assumptions { setup: Hours::ZERO, ..Assumptions::default() },
        confidence: Confidence::High,
        ..Goal::new(Work::Samples(Samples::new(samples).unwrap()))
    }
}

pub(crate) fn hours(value: f64) -> Hours {
    Hours::new(value).unwrap()
}

pub(crate) fn usd(value: f64) -> Usd {
    Usd::new(value).unwrap()
}

/// Equal to the cent.
#[track_caller]
pub(crate) fn assert_cents(found: Usd, expected: f64) {
    assert!((found.get() - expected).abs() < 0.005, "${} instead of ${expected}", found.get());
}

/// The texts of notes or reasons.
pub(crate) fn told<T: Words>(all: &[T]) -> Vec<String> {
    words::of_all(all).collect()
}

/// The rejected offers: kinds, and the texts of their reasons.
pub(crate) fn rejected(plan: &Plan) -> Vec<(RejectionKind, String)> {
    plan.rejected.iter().map(|one| (one.reason.kind(), one.reason.words())).collect()
}
