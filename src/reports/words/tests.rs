//! Each reason and note has a sentence: a new variant fails here until it has one.

use super::*;
use habitat_base::units::{Bytes, GIB, GpuSlug, Hours, KilogramsCo2e, Micros, Usd, UsdPerHour, Watts};
use habitat_planning::Coded;
use habitat_planning::plan::{
    Accept, Amount, Confidence, Draw, Lift, Machines, NoPlan, Objective, PlanNote, Quota, Reason, RejectionKind,
    Remedies, Risk, SharedLimit,
};
use habitat_planning::pricing::spot::SpotSource;
use habitat_planning::pricing::{OfferId, Ownership, PriceIssue, Tier, Unusable};
use habitat_prediction::memory::{Division, GpuMemory, MemoryBasis, PeakSource, Stage, StateKept};
use habitat_prediction::scale::{
    BoardLink, Layout, LayoutFactors, Link, ModelParallel, Network, OnReplicas, ScaleError, Scaling, ScalingBasis,
    WaitForData,
};
use habitat_prediction::{Finding, Fits, Sharding, Vendor};
use habitat_step::profile::MemorySource;
use std::collections::BTreeSet;

fn hours() -> Hours {
    Hours::known(2.0)
}

fn usd() -> Usd {
    Usd::known(30.0)
}

fn price() -> UsdPerHour {
    UsdPerHour::known(1.5)
}

fn kg() -> KilogramsCo2e {
    KilogramsCo2e::known(4.0)
}

fn gpu() -> GpuSlug {
    GpuSlug::new("t4").unwrap()
}

fn offer() -> OfferId {
    OfferId::new("aws", "us-east-1", "g4dn.xlarge", Tier::OnDemand)
}

fn text() -> String {
    "own words".to_owned()
}

fn quota() -> Quota {
    Quota { provider: "aws".to_owned(), region: None, gpu: None, tier: None, gpus: 8, from: None, until: None }
}

fn machines() -> Machines {
    let (provider, region) = ("aws".to_owned(), "us-east-1".to_owned());
    Machines { offer: offer(), provider, region, tier: Tier::OnDemand, gpu: gpu(), all_gpus: 1, machines: 1 }
}

fn reasons() -> Vec<Reason> {
    use Reason as R;
    let (hours, cost_usd, confidence, bytes) = (hours(), usd(), Confidence::Expected, Bytes::known(1e9));
    let provider = || "aws".to_owned();
    vec![
        R::UnusablePrice { why: Unusable::GpusOnly },
        R::InvalidPrice { usd_per_hour: price() },
        R::NoGpu,
        R::UnknownGpu { name: text() },
        R::OfferNotNamed,
        R::TierNotAllowed { tier: Tier::Spot },
        R::GpuNotNamed { gpu: gpu() },
        R::GpuExcluded { gpu: gpu() },
        R::ProviderNotNamed { provider: provider() },
        R::ProviderExcluded { provider: provider() },
        R::MarketplaceExcluded,
        R::RegionNotNamed { region: text() },
        R::RegionExcluded { region: text(), filter: text() },
        R::TooFewGpus { gpus: 1, least: 2 },
        R::TooManyGpus { gpus: 4, most: 2 },
        R::TooDearPerHour { usd_per_hour: price(), most: price() },
        R::TooFewVcpus { vcpus: 4.0, least: 8 },
        R::TooLittleHostMemory { bytes, least: bytes },
        R::VcpusUnknown,
        R::HostMemoryUnknown,
        R::OverQuota { gpus: 16, quota: Box::new(quota()) },
        R::NoPrediction { gpu: gpu() },
        R::NoDuration { gpu: gpu() },
        R::NotScalable { gpus: 2, error: ScaleError::NoExperts },
        R::PowerUnknown { gpu: gpu() },
        R::CarbonUnknown,
        R::Layout { error: ScaleError::NoExperts },
        R::BatchesDoNotDivide {
            count: 8,
            are_replicas: true,
            batch_size: 32,
            global_batch_size: 1000,
            smaller_batch_size: None,
            accumulation: None,
            multiples: vec![768],
        },
        R::UpdateTooLong { batches: 9 },
        R::LostTooOften { per_hour: 9.0, machines: 2 },
        R::OutOfMemory {
            needed_bytes: bytes,
            usable_bytes: bytes,
            gpu_bytes: bytes,
            sharding: Sharding::None,
            replicas: 1,
            model_parallel: Box::default(),
            remedies: Remedies::default(),
        },
        R::DoesNotFit { memory: Box::new(MemoryBasis::Unknown) },
        R::MemoryUnknown { memory: Box::new(MemoryBasis::Unknown), remedies: Remedies::default() },
        R::TooSlow { hours, confidence, late_hours: hours },
        R::TooLong { hours, confidence, cost_usd: usd() },
        R::TooDear { cost_usd, over_usd: cost_usd },
        R::TooMuchCo2 { co2_kg: kg(), over_kg: kg() },
        R::Possible { cost_usd, hours },
        R::CostsMore { cost_usd, hours, more_usd: cost_usd },
        R::TakesLonger { hours, confidence, cost_usd, more_hours: hours, plan_hours: hours },
        R::CostsMoreWithTime { cost_usd, hours, confidence, more_usd: cost_usd },
        R::EmitsMore { co2_kg: kg(), more_kg: kg(), cost_usd, hours },
        R::NotAccepted {
            risks: vec![Risk::Spot],
            accept: vec![Accept::Spot],
            cost_usd,
            hours,
            late_hours: None,
            over_usd: None,
        },
    ]
}

fn no_plans() -> Vec<NoPlan> {
    use NoPlan as N;
    let (hours, cost_usd, with) = (hours(), usd(), || vec![machines()]);
    vec![
        N::NoOffer,
        N::NoFirmOffer,
        N::MoreTime { hours, with: with(), cost_usd },
        N::TimeDoesNotHelp { cost_usd: None, with: with() },
        N::MoreMoney { usd: cost_usd, with: with(), hours },
        N::MoneyDoesNotHelp { hours: None, confidence: Confidence::High, with: with() },
        N::MoreTimeAndMoney { hours, usd: cost_usd, with: with() },
        N::SetupTooLong { has_deadline: true, has_budget: false },
        N::LessWork { fewer: Amount::Steps(9.0), share: 0.1 },
        N::AtExpectedTime { with: with(), hours, cost_usd },
        N::HostWaits { idle_us: Micros::known(74_500.0), step_us: Micros::known(175_200.0) },
        N::OtherLimit { change: Lift::Gpus, with: with(), hours, cost_usd },
        N::LimitsDoNotHelp,
        N::Rejected {
            kind: RejectionKind::Budget,
            offers: 2,
            such_as: offer(),
            reason: Box::new(Reason::NoGpu),
            miss: None,
        },
        N::JobAlone { job: text(), reason: Box::new(N::NoOffer) },
        N::JobTooLate { job: text(), earliest_hours: Some(hours) },
        N::JobLater { job: text(), more_hours: hours },
        N::Overload { jobs: 2, until_hours: Some(hours), limits: vec![SharedLimit::DeadlineHours(hours)], times: 2.0 },
        N::JobsMayWait { cost_usd, hours },
        N::AnyChange,
        N::NoSingleChange,
        N::AllChanges,
        N::SharedLimit { limit: SharedLimit::BudgetUsd(cost_usd), more: 3.0, machines: 0 },
        N::SharedLimitUnknown { limit: SharedLimit::DeadlineHours(hours), why: text() },
        N::NotFound { why: text() },
    ]
}

fn notes() -> Vec<PlanNote> {
    use PlanNote as P;
    let (gb, hours, cost_usd, is_recalled, sharding) = (10.0, hours(), usd(), true, Sharding::Zero1);
    vec![
        P::Scaling { scaling: Box::new(ScalingBasis::OneGpu.into()) },
        P::ReplicaMemory { memory: MemoryBasis::Unknown },
        P::ShardingOfOneGpu { sharding },
        P::Sharding { sharding, gpus: 8, memory: MemoryBasis::Unknown },
        P::OtherBatch { why: text() },
        P::Precision { finding: Finding::AsTf32 },
        P::OwnMachine { held: Ownership::Contract { paid: price() } },
        P::PriceList { remark: text() },
        P::BilledByHour,
        P::Terms { term_hours: 720, paid_hours: 720.0, used_hours: hours },
        P::SpotLosses {
            per_hour: 0.1,
            wait_hours: hours,
            source: SpotSource::default(),
            elapsed: 1.1,
            billed: 1.1,
            allowed: 2.0,
        },
        P::Failures { gpus: 64, hours_between: hours, checkpoint_hours: hours, elapsed: 1.01 },
        P::Setup { hours },
        P::DataCopied { gb, hours },
        P::DataMoved { gb, cost_usd, is_recalled },
        P::DataCostUnknown { gb },
        P::DataStored { gb, hours, cost_usd, is_recalled },
        P::StorageUnknown { gb },
        P::DataCopiedTwice,
        P::StorageNotIncluded { gb },
        P::Power { draw: Draw { machines: Watts::known(400.0), pue: 1.2, intensity: None } },
        P::PowerUnknown { gpu: gpu() },
        P::MemoryUnknown,
        P::NoRoom { needed_bytes: Bytes::known(178e9), usable_bytes: Bytes::known(179e9) },
        P::CountedInSteps,
        P::BatchOfOne { sequence_length: Some(8192) },
        P::OtherUpdates { updates: 5.0, steps: 10.0 },
        P::OtherGlobalBatch { global_batch_sizes: vec![64], recorded: 32, updates: 5.0, recorded_updates: 10.0 },
        P::PriceInDoubt { offer: offer(), doubts: vec![PriceIssue::NoDate] },
        P::Switch { to: offer(), latest_hours: hours },
        P::SpotAssumed,
        P::TwoParts { spot: machines(), to: machines(), latest_hours: hours, cost_usd },
        P::MorePartsNotTried,
        P::TightDeadline { saved_usd: cost_usd },
        P::BudgetAtHighEnd { budget_usd: cost_usd, high_usd: cost_usd },
        P::NextBest { offer: offer(), usd_per_hour: price(), now_usd_per_hour: price(), shorter: None },
        P::TermPaysOff { offer: offer(), hours, against: machines() },
        P::TermNeverPaysOff { offer: offer(), against: machines() },
        P::OtherTier { with: machines(), cost_usd, hours, objective: Objective::Cost },
        P::LongPlan { hours },
        P::WorseParts { solver: "HiGHS" },
        P::SolverMissedOffer,
        P::PartsNotSearched { why: text() },
        P::PartsFailedCheck { why: text() },
        P::NothingBetter { solver: "HiGHS" },
        P::SolverMissedGreedy,
        P::Greedy { why: text() },
        P::SharedLimitsCost { more_usd: cost_usd },
    ]
}

/// All codes in the order of the variants, each with words other than its code.
fn every_one_has_a_sentence<T: Words + Coded + Serialize + std::fmt::Debug>(all: &[T])
where
    for<'a> &'a T: Into<&'static str>,
{
    let codes: Vec<&str> = all.iter().map(Coded::code).collect();
    assert_eq!(codes, T::CODES);
    for one in all {
        let words = one.words();
        assert!(words.split(' ').count() > 1 && !words.ends_with(one.code()), "{one:?}: {words}");
        assert_eq!(serde_json::to_value(one).unwrap()["code"], one.code());
    }
}

#[test]
fn one_of_each() {
    every_one_has_a_sentence(&reasons());
    every_one_has_a_sentence(&no_plans());
    every_one_has_a_sentence(&notes());
}

/// `Reason::kind` ends with all others: each of them is a limit.
#[test]
fn reasons_have_their_kind() {
    let all = reasons();
    let kinds: BTreeSet<&str> = all.iter().map(|reason| plan::kind(reason.kind())).collect();
    assert_eq!(kinds.len(), 15);
    let too_often = all.iter().filter(|reason| reason.kind() == RejectionKind::LostTooOften);
    assert!(too_often.eq(all.iter().filter(|reason| matches!(reason, Reason::LostTooOften { .. }))));
    let limits = all.iter().filter(|reason| reason.kind() == RejectionKind::Limits);
    let first = all.iter().position(|reason| *reason == Reason::OfferNotNamed).unwrap();
    let last = all.iter().position(|reason| matches!(reason, Reason::OverQuota { .. })).unwrap();
    assert!(limits.eq(&all[first..=last]));
}

/// Each basis of a verdict on memory.
#[test]
fn memory_has_its_words() {
    let gb = |gb: f64| Bytes::known(gb * GIB);
    let of = GpuMemory { usable: gb(22.0), nominal: gb(24.0) };
    let (fits, needed, recorded) = (Fits::No, gb(23.4), PeakSource::Step(MemorySource::Recorded));
    let peak = |source, vendor| MemoryBasis::Peak { fits, needed, allocated: gb(20.0), source, vendor, of };
    let parallel = ModelParallel { tensor: 8, pipeline: 2, ..ModelParallel::NONE };
    let sharded = Division::Sharded { sharding: Sharding::Zero1, gpus: 8 };
    let replica = Division::Replica {
        parallel,
        stage: Some(Stage::Last),
        sharded: Some((Sharding::Zero1, 4)),
        without_sequences: Some(gb(30.0)),
    };
    let share = |fits, is_least, division, assumes_adam| MemoryBasis::Share {
        fits,
        needed: gb(12.3),
        is_least,
        division,
        usable: of.usable,
        assumes_adam,
    };
    let words = [
        (
            peak(recorded, Vendor::Nvidia),
            "does not fit: needs 23.4 GB in nvidia-smi (20.0 GB allocated, recorded peak); 22.0 of 24.0 GB usable",
        ),
        (
            peak(PeakSource::Interpolated(MemorySource::Computed), Vendor::Amd),
            "does not fit: needs 23.4 GB in rocm-smi (20.0 GB allocated, interpolated between peaks computed from shapes, not checked on a GPU); 22.0 of 24.0 GB usable",
        ),
        (
            MemoryBasis::OtherPrecision {
                fits: Fits::Unknown,
                least: gb(12.0),
                most: gb(23.0),
                source: MemorySource::Recorded,
                from_narrower: true,
                of,
            },
            "may fit: needs 12.0 to 23.0 GB, recorded in a narrower precision; 22.0 of 24.0 GB usable",
        ),
        (
            MemoryBasis::RanOn { gpu: "A10".to_owned(), memory: gb(24.0) },
            "at least as much memory as the recording GPU (A10, 24.0 GB)",
        ),
        (
            MemoryBasis::State { kept: StateKept::TwoStates, needed: gb(25.0), of },
            "does not fit: parameters, gradients and Adam's two moments alone need 25.0 GB; 22.0 of 24.0 GB usable",
        ),
        (
            MemoryBasis::Shapes { is_enough: true, most: gb(9.0), of },
            "at most 9.0 GB, estimated from shapes; 22.0 of 24.0 GB usable",
        ),
        (
            MemoryBasis::Shapes { is_enough: false, most: gb(29.0), of },
            "no recorded peak; up to 29.0 GB estimated from shapes; 22.0 of 24.0 GB usable",
        ),
        (share(Fits::Yes, true, sharded, false), "needs 12.3 GB with zero1 on 8 GPUs, 22.0 GB usable"),
        (
            share(Fits::Unknown, true, replica, true),
            "may fit: needs at least 12.3 GB with 8-way tensor parallel × 2 pipeline stages on the last stage, zero1 over 4 GPUs, 30.0 without sequence parallelism, 22.0 GB usable (no optimizer found: assuming Adam)",
        ),
        (
            MemoryBasis::Between { least: gb(15.0), widest: Box::new(share(Fits::No, false, sharded, false)) },
            "may fit: at least 15.0 GB in the narrowest precision; in the widest, does not fit: needs 12.3 GB with zero1 on 8 GPUs, 22.0 GB usable",
        ),
        (
            MemoryBasis::UnknownState { gpus: 4, whole: Box::new(MemoryBasis::Unknown) },
            "unknown state size, so the share of one of 4 GPUs is unknown: no recorded peak, and too few shapes or parameters to estimate one",
        ),
        (
            MemoryBasis::OneRank {
                fits: true,
                on: Box::new(MemoryBasis::RanOn { gpu: "A10".to_owned(), memory: gb(24.0) }),
            },
            "one rank's share of the model: at least as much memory as the recording GPU (A10, 24.0 GB); the whole was not recorded",
        ),
        (
            MemoryBasis::OneRank { fits: false, on: Box::new(peak(recorded, Vendor::Nvidia)) },
            "one rank's share was recorded; the whole model does not fit: needs 23.4 GB in nvidia-smi (20.0 GB allocated, recorded peak); 22.0 of 24.0 GB usable",
        ),
    ];
    for (basis, expected) in words {
        assert_eq!(basis.words(), expected);
    }
}

/// Each way for GPUs to work together.
#[test]
fn steps_on_several_gpus_have_their_words() {
    let link = BoardLink { link: Link::Switched, vendor: Vendor::Nvidia };
    let on = |machines| Layout { machines, network: Network::Rate(100.0), ..Layout::one_machine(8) };
    let all_reduce = |machines, factor, vendor| ScalingBasis::AllReduce {
        layout: on(machines),
        link: BoardLink { link: Link::Modules, vendor },
        gradients: Bytes::known(4e8),
        extra: Micros::known(12_340.0),
        factor,
        spread: [0.1, 3.0],
    };
    let parallel = ModelParallel { tensor: 8, pipeline: 2, context: 1, chunks: 1, expert: 1, recompute: true };
    let replicas = OnReplicas {
        layout: Layout { parallel, ..on(4) },
        micro_batches: 16.0,
        bubble: Some(0.25),
        collectives: Some(Micros::known(40_000.0)),
        tokens: None,
        ring: None,
        handed: Some(Micros::known(2_000.0)),
        exposed: Some(Micros::known(3_000.0)),
        link,
        rack: Some(72),
        uses_network: true,
        measured: Some(LayoutFactors { compute: 1.1, exchange: 0.9 }),
    };
    let plain = OnReplicas {
        layout: Layout { sharding: Sharding::Zero3, ..Layout::one_machine(8) },
        micro_batches: 1.0,
        bubble: None,
        collectives: None,
        handed: None,
        rack: None,
        uses_network: false,
        measured: None,
        ..replicas.clone()
    };
    let accumulated = Scaling {
        batches: Some(4),
        data: Some(WaitForData { wait: Micros::known(80_000.0), cpus: Some(2.0) }),
        ..ScalingBasis::OneGpu.into()
    };
    let words: [(Scaling, &str); 7] = [
        (ScalingBasis::OneGpu.into(), "one GPU, no communication"),
        (ScalingBasis::Independent { gpus: 8 }.into(), "8 independent GPUs: inference exchanges no gradients"),
        (
            all_reduce(1, None, Vendor::Nvidia).into(),
            "8 GPUs: adds 12.3 ms per step, estimated (all-reduce of 381 MB over modules with NVLink); range 0.1 to 3.0 times that",
        ),
        (
            all_reduce(2, Some(2.0), Vendor::Amd).into(),
            "2 machines with 8 GPUs each: adds 12.3 ms per step, 2.00 times the estimate within a machine, as measured (all-reduce of 381 MB over Infinity Fabric, then 6.2 GB/s between machines (4.4 to 10.0, 35 to 80 % of a 100 Gbit/s network)); range 0.1 to 3.0 times that, plus that of the network",
        ),
        (
            ScalingBasis::Replicas(Box::new(replicas)).into(),
            "2 replicas of 8-way tensor parallel × 2 pipeline stages, with recomputed layers, 16 micro-batches: 25 % bubble (a larger --global-batch shrinks it), 40 ms in collectives, 2 ms from stage to stage, 3 ms exposed all-reduce; over NVLink with switches in racks of 72 GPUs and 6.2 GB/s between machines (4.4 to 10.0, 35 to 80 % of a 100 Gbit/s network); as measured: 1.10 times the operations, 0.90 times the exchange",
        ),
        (
            ScalingBasis::Replicas(Box::new(plain)).into(),
            "8 GPUs, 1 micro-batch: 3 ms exposed gathers and scatters; over NVLink with switches",
        ),
        (
            accumulated,
            "4 batches per GPU and update, gradients exchanged once; one GPU, no communication; 80.0 ms for data on 2 CPUs",
        ),
    ];
    for (scaling, expected) in words {
        assert_eq!(scaling.words(), expected);
    }
}

/// 122 and 488 sequences of 8,192 tokens are 1 and 4 million tokens.
#[test]
fn a_batch_that_nobody_chose_has_a_proposal() {
    let words = |sequence_length| PlanNote::BatchOfOne { sequence_length }.words();
    assert!(words(Some(8192)).ends_with("1 to 4 million tokens (--global-batch 128 to 512)"), "{}", words(Some(8192)));
    assert!(words(Some(1 << 24)).ends_with("(--global-batch 1 to 1)") && words(None).ends_with("--global-batch"));
}
