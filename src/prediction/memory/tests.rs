use super::*;
use crate::Sharding;
use crate::finding::LineBasis;
use crate::memory::Share;
use crate::scale::{Layout, ModelParallel};
use habitat_base::units::GIB;
use habitat_step::catalog::Layer;
use habitat_step::profile::{Memory, Precision, Step, Workload};

fn spec(slug: &str) -> GpuSpec {
    let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
    GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
}

fn profile(peak_gib: Option<f64>, parameters: Option<u64>) -> Profile {
    let json = r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"},
        "operations": [{"name": "aten::relu", "phase": "forward", "inputs": [[268435456]], "outputs": [[268435456]], "dtype": "float32"}]}"#;
    let mut profile = Profile::from_json(json.as_bytes()).unwrap().0;
    profile.workload = Workload { parameter_count: parameters, ..profile.workload };
    profile.step = Some(Step { peak_memory_bytes: peak_gib.map(|gib| Bytes::known(gib * GIB)), ..Step::default() });
    profile
}

fn fits(profile: &Profile, origin: Option<&str>, gpu: &str) -> Fits {
    MemoryNeed::of(profile, origin.map(spec).as_ref()).fit(&(&spec(gpu)).into()).fits
}

#[test]
fn a_recorded_peak_decides() {
    let eighteen = profile(Some(18.0), None);
    assert_eq!(fits(&eighteen, None, "t4"), Fits::No);
    assert_eq!(fits(&eighteen, None, "a10"), Fits::Yes);
    // 92 % of 24 GB is 22.08 GB; 21 GB and 1.3 GB of the process do not fit, 19.5 GB only without a reserve of 10 %.
    assert_eq!(fits(&profile(Some(21.0), None), None, "a10"), Fits::No);
    assert_eq!(fits(&profile(Some(19.5), None), None, "a10"), Fits::Unknown);
}

/// Source of the peak of a verdict.
fn source(fit: &MemoryFit) -> Option<PeakSource> {
    match fit.basis {
        MemoryBasis::Peak { source, .. } => Some(source),
        _ => None,
    }
}

/// 10 GiB of tensors and a tenth of reserve, 1.4 GB of the process; 1.1 GB more with `ROCm`.
#[test]
fn the_driver_shows_more_than_the_tensors() {
    let need = MemoryNeed::of(&profile(Some(10.0), None), None);
    for (gpu, process) in [("a100-sxm4-80gb", 1.4e9), ("mi300x", 2.5e9)] {
        let fit = need.fit(&Rates::new(&spec(gpu)));
        let [needed, allocated] = [fit.needed, fit.allocated].map(|bytes| bytes.unwrap().get());
        assert!((needed - 11.0 * GIB - process).abs() < 1.0 && (allocated - 10.0 * GIB).abs() < 1.0, "{fit:?}");
        let MemoryBasis::Peak { needed: shown, source, .. } = fit.basis else { panic!("{fit:?}") };
        assert_eq!((Some(shown), source), (fit.needed, PeakSource::Step(MemorySource::Recorded)));
    }
}

#[test]
fn what_ran_on_the_origin_runs_where_there_is_as_much_memory() {
    let unknown = profile(None, None);
    assert_eq!(fits(&unknown, Some("v100-sxm2-32gb"), "a100-sxm4-40gb"), Fits::Yes);
    assert_eq!(fits(&unknown, Some("v100-sxm2-32gb"), "t4"), Fits::Unknown);
}

#[test]
fn parameters_and_shapes_bound_the_need() {
    // One forward tensor of 1 GiB, twice the largest operation, 1 GB and the states.
    assert_eq!(fits(&profile(None, Some(1_000_000)), None, "t4"), Fits::Yes);
    assert_eq!(fits(&profile(None, Some(1_000_000_000)), None, "t4"), Fits::Unknown);
    assert_eq!(fits(&profile(None, Some(70_000_000_000)), None, "h200-sxm-141gb"), Fits::No);
    assert_eq!(fits(&profile(None, None), None, "t4"), Fits::Unknown);
}

/// 774 million parameters (GPT-2 Large), updated by these operators.
fn large(optimizer: &[(&str, &str)]) -> Profile {
    let mut profile = profile(None, Some(774_000_000));
    let update = |(name, dtype): &(&str, &str)| {
        let json = format!(r#"{{"name": "{name}", "phase": "optimizer", "count": 2, "dtype": "{dtype}"}}"#);
        serde_json::from_str::<Operation>(&json).unwrap()
    };
    profile.operations = optimizer.iter().map(update).collect();
    profile
}

#[test]
fn what_the_optimizer_keeps_may_not_fit_whatever_the_batch() {
    let adam = large(&[("aten::_fused_adamw_", "float32")]);
    let need = MemoryNeed::of(&adam, None);
    let rtx = spec("rtx-3060");
    let fit = need.fit(&(&rtx).into());
    // 16 bytes per parameter are 11.5 GB, the process takes 1.3; 11.0 of 12 GB are usable.
    assert_eq!(fit.fits, Fits::No);
    let MemoryBasis::State { kept: StateKept::TwoStates, needed, .. } = fit.basis else { panic!("{fit:?}") };
    assert_eq!(format!("{:.1}", needed.get() / GIB), "12.8");
    assert_eq!(fits(&adam, None, "t4"), Fits::Unknown);
    // 12 bytes with momentum, 8 without, and 4 for plain 16-bit weights.
    let least = |profile: &Profile| MemoryNeed::of(profile, None).least.unwrap().get();
    let each = |profile: &Profile| (least(profile) / 774e6).round();
    assert_eq!(each(&adam), 16.0);
    assert_eq!(each(&large(&[("aten::mul_", "float32"), ("aten::add_", "float32"), ("aten::add_", "float32")])), 12.0);
    assert_eq!(each(&large(&[("aten::add_", "float32")])), 8.0);
    assert_eq!(each(&large(&[("aten::_fused_adam_", "bfloat16")])), 8.0);
    assert_eq!(each(&large(&[])), 4.0);
    let mut inference = profile(None, Some(774_000_000));
    inference.workload.mode = Mode::Inference;
    assert_eq!(each(&inference), 4.0);
    inference.workload.precision = Some(Precision::Bf16);
    assert_eq!(each(&inference), 2.0);
    // Half as large in 16 bits, which may fit.
    assert_eq!(need.resized(Resized { states: [0.5, 1.0], ..TO_FP8 }).fit(&(&rtx).into()).fits, Fits::Unknown);
}

/// Adam in mixed precision with a 32-bit copy: 2, 2 and 12 bytes (`ZeRO` paper, section 3.1).
#[test]
fn what_can_be_divided_is_known_by_kind() {
    let each = |profile: &Profile| {
        let states = MemoryNeed::of(profile, None).states.unwrap();
        let bytes = [states.parameters, states.gradients, states.optimizer].map(|b| (b.get() / 774e6).round());
        (bytes, states.is_assumed)
    };
    let mut adam = large(&[("aten::_fused_adamw_", "float32")]);
    assert_eq!(each(&adam), ([4.0, 4.0, 8.0], false));
    adam.workload.precision = Some(Precision::AmpBf16);
    assert_eq!(each(&adam), ([4.0, 4.0, 8.0], false));
    adam.workload.precision = Some(Precision::Bf16);
    assert_eq!(each(&adam), ([2.0, 2.0, 12.0], false));
    assert_eq!(each(&large(&[("aten::_fused_adam_", "bfloat16")])), ([2.0, 2.0, 4.0], false));
    assert_eq!(each(&large(&[("aten::add_", "float32")])), ([4.0, 4.0, 0.0], false));
    assert_eq!(each(&large(&[])), ([2.0, 2.0, 12.0], true));
    // 12.5 GB on 12 GB: divided among 4 GPUs it may fit, but the need of the batch is unknown.
    let fit = MemoryNeed::of(&large(&[("aten::_fused_adamw_", "float32")]), None).fit(&(&spec("rtx-3060")).into());
    assert_eq!((fit.fits, fit.sharded(Sharding::Zero1, 4).fits), (Fits::No, Fits::Unknown));
    assert_eq!(fit.sharded(Sharding::Zero1, 1), fit);
    // States larger than the whole peak cannot be right.
    assert_eq!(MemoryNeed::of(&profile(Some(1.0), Some(774_000_000)), None).states, None);
    let mut inference = large(&[]);
    inference.workload.mode = Mode::Inference;
    assert_eq!(MemoryNeed::of(&inference, None).states, None);
}

/// The fixed part of the line is divided, at any batch.
#[test]
fn a_line_knows_what_can_be_divided() {
    let of = line(&[(16, 20.0)], Some(774_000_000)).unwrap();
    let fit = of.need(64).fit(&(&spec("a10")).into());
    let saved = fit.needed.unwrap().get() - fit.sharded(Sharding::Zero3, 4).needed.unwrap().get();
    assert!((saved - 0.75 * 16.0 * 774e6 * RESERVED).abs() < 1.0, "{fit:?}");
}

fn line(peaks: &[(u64, f64)], parameters: Option<u64>) -> Option<MemoryLine> {
    let profiles: Vec<(u64, Profile)> =
        peaks.iter().map(|&(batch, gib)| (batch, profile(Some(gib), parameters))).collect();
    let borrowed: Vec<(u64, &Profile)> = profiles.iter().map(|(batch, profile)| (*batch, profile)).collect();
    MemoryLine::of_profiles(&borrowed)
}

#[test]
fn a_line_through_recorded_peaks() {
    let of = line(&[(16, 4.0), (32, 6.0), (64, 10.0)], None).unwrap();
    assert!((of.peak(128).get() / GIB - 18.0).abs() < 1e-9 && !of.is_upper_bound());
    // 14.72 GB of the T4's 16 GB, less the process (1.30), over the reserve of 1.1; less 2 GB fixed, at 1/8 GB per sample.
    let gpu = spec("t4");
    let t4 = Rates::new(&gpu);
    assert_eq!(of.largest(&t4), Some(81));
    assert_eq!((of.need(81).fit(&t4).fits, of.need(82).fit(&t4).fits), (Fits::Yes, Fits::Unknown));
    assert_eq!(source(&of.need(82).fit(&t4)), Some(PeakSource::Interpolated(MemorySource::Recorded)));
    // Falling peaks give no growth per sample, and so no largest batch.
    assert_eq!(line(&[(16, 6.0), (32, 4.0)], None).unwrap().largest(&t4), None);
}

#[test]
fn a_step_that_does_not_fit_says_with_how_many_samples_it_would() {
    let gpu = spec("t4");
    let t4 = Rates::new(&gpu);
    let of = |gib: f64, parameters| {
        let mut profile = profile(Some(gib), parameters);
        profile.workload.batch_size = Some(32);
        MemoryNeed::of(&profile, None).fit(&t4).largest_batch
    };
    // 14.72 GB are usable, of which 1.30 are the process; over the reserve of 1.1 they are 12.2, of which 4 are the
    // parameters. Half a GB per sample leaves room for 16.
    assert_eq!(of(20.0, Some(1 << 28)), Some(16));
    assert_eq!((of(12.0, Some(1 << 28)), of(20.0, None)), (None, None));
    // Not even one sample.
    assert_eq!(of(600.0, Some(1 << 28)), Some(0));
    let line = line(&[(16, 10.0), (32, 18.0)], None).unwrap();
    assert_eq!(line.need(32).fit(&t4).largest_batch, line.largest(&t4));
}

#[test]
fn one_peak_is_split_by_the_parameters() {
    // 16 bytes for each of 2^28 parameters are 4 GiB; the other 2 are for 16 samples.
    let known = line(&[(16, 6.0)], Some(1 << 28)).unwrap();
    assert!((known.peak(32).get() / GIB - 8.0).abs() < 1e-9);
    let unknown = line(&[(16, 6.0)], None).unwrap();
    assert!((unknown.peak(32).get() / GIB - 12.0).abs() < 1e-9);
    assert_eq!(line(&[], None), None);
}

#[test]
fn computed_peaks_are_told_from_recorded_ones() {
    let computed = |gib: f64| {
        let mut profile = profile(Some(gib), None);
        let quarter = Bytes::known(gib * GIB / 4.0);
        profile.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: quarter,
            gradients: Bytes::ZERO,
            optimizer_state: quarter,
            activations: quarter,
            temporary: quarter,
            working: None,
        });
        profile
    };
    let (small, large, gpu) = (computed(4.0), computed(6.0), spec("t4"));
    let t4 = Rates::new(&gpu);
    let need = MemoryNeed::of(&small, None);
    assert_eq!(source(&need.fit(&t4)), Some(PeakSource::Step(MemorySource::Computed)));
    let MemoryBasis::OtherPrecision { least, most, source: MemorySource::Computed, from_narrower: true, .. } =
        need.resized(TWICE).fit(&t4).basis
    else {
        panic!("{need:?}")
    };
    assert_eq!([least, most].map(|bytes| format!("{:.1}", bytes.get() / GIB)), ["5.7", "10.1"]);
    let line = MemoryLine::of_profiles(&[(16, &small), (32, &large)]).unwrap();
    assert_eq!((line.source, line.peaks), (LineBasis::Peaks(2), MemorySource::Computed));
    assert_eq!(source(&line.need(64).fit(&t4)), Some(PeakSource::Interpolated(MemorySource::Computed)));
    // In other numbers, too, they are computed.
    let MemoryBasis::OtherPrecision { source: MemorySource::Computed, .. } =
        line.need(64).resized(TWICE).fit(&t4).basis
    else {
        panic!("{line:?}")
    };
    // From one alone: recorded parameters and states do not grow.
    let one = MemoryLine::of_profiles(&[(16, &small)]).unwrap();
    assert!((one.peak(32).get() / GIB - 6.0).abs() < 1e-9, "{one:?}");
    assert_eq!((one.source, one.peaks), (LineBasis::Parameters, MemorySource::Computed));
    // With a recorded peak beside it, the line still counts as computed.
    let mixed = MemoryLine::of_profiles(&[(16, &profile(Some(4.0), None)), (32, &large)]).unwrap();
    assert!(mixed.is_computed());
}

#[test]
fn a_peak_in_the_update_tells_only_the_most_of_the_activations() {
    let told = |activations: f64, temporary: f64| {
        let mut profile = profile(Some(10.0), None);
        let of = |gib: f64| Bytes::known(gib * GIB);
        profile.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: of(1.0),
            gradients: of(1.0),
            optimizer_state: of(2.0),
            activations: of(activations),
            temporary: of(temporary),
            working: None,
        });
        let fit = MemoryNeed::of(&profile, None).fit(&Rates::new(&spec("t4")));
        fit.activations.map(|kept| [kept.least, kept.most].map(|bytes| bytes.get() / GIB))
    };
    assert_eq!(told(5.0, 1.0), Some([5.0, 5.0]));
    // Before gradients exist, there is room for 6 + 1, or for the results of the forward pass.
    let [least, most] = told(0.0, 6.0).unwrap();
    assert!(least == 0.0 && most <= 7.0, "{most}");
    assert_eq!(MemoryNeed::of(&profile(Some(10.0), None), None).activations, None);
}

#[test]
fn an_upper_bound_says_yes_or_nothing() {
    let of = |gib: f64| Bytes::known(gib * GIB / RESERVED);
    let line = MemoryLine::at_most([(16, of(4.0)), (32, of(6.0))]).unwrap();
    let gpu = spec("t4");
    let t4 = Rates::new(&gpu);
    assert_eq!(line.largest(&t4), Some(91));
    assert_eq!((line.need(91).fit(&t4).fits, line.need(92).fit(&t4).fits), (Fits::Yes, Fits::Unknown));
    assert_eq!(MemoryNeed::unseen(None, None).fit(&t4).fits, Fits::Unknown);
}

/// 41 GB at the update, of which 40 are state and gradients. When most activations exist: 2 of the 20 GB of gradients,
/// and 12 GB for 4 samples.
fn with_another_moment() -> Profile {
    let mut profile = profile(Some(41.0), Some(1 << 30));
    let of = |gib: f64| Bytes::known(gib * GIB);
    profile.workload.batch_size = Some(4);
    profile.step.as_mut().unwrap().memory = Some(Memory {
        source: MemorySource::Computed,
        parameters: of(5.0),
        gradients: of(20.0),
        optimizer_state: of(15.0),
        activations: Bytes::ZERO,
        temporary: of(1.0),
        working: Some(Working { gradients: of(2.0), activations: of(10.0), temporary: of(2.0) }),
    });
    profile
}

#[test]
fn the_peak_moves_from_the_update_to_the_activations() {
    let profile = with_another_moment();
    let line = MemoryLine::of_profiles(&[(4, &profile)]).unwrap();
    let gib = |bytes: Bytes| (bytes.get() / GIB * 100.0).round() / 100.0;
    // 5 + 15 + 2, and 3 per sample; at least 41.
    assert_eq!([4, 6, 8].map(|batch| gib(line.peak(batch))), [41.0, 41.0, 46.0]);
    let parts = [line.fixed, line.per_sample, line.other.unwrap()[0]];
    assert_eq!(parts.map(|part| (part.get() / GIB).round()), [22.0, 3.0, 41.0], "{line:?}");
    let gpu = spec("a100-sxm4-80gb");
    let rates = Rates::new(&gpu);
    let largest = line.largest(&rates).unwrap();
    assert_eq!([0, 1].map(|more| line.need(largest + more).fit(&rates).fits), [Fits::Yes, Fits::Unknown]);
}

#[test]
fn what_is_divided_leaves_the_activations() {
    let fit = MemoryNeed::of(&with_another_moment(), None).fit(&Rates::new(&spec("a100-sxm4-80gb")));
    let needed = |gpus| (fit.sharded(Sharding::Zero3, gpus).needed.unwrap().get() - CONTEXT_BYTES) / GIB / RESERVED;
    // Each of two GPUs has 1 and half of 40 at the update, and (5 + 2 + 15) / 2 + 12 before.
    assert!((needed(2) - 23.0).abs() < 1e-9 && (needed(22) - 13.0).abs() < 1e-9, "{} {}", needed(2), needed(22));
    // At other batch sizes too: (5 + 2 + 15) / 22, and 3 per sample.
    let line = MemoryLine::of_profiles(&[(4, &with_another_moment())]).unwrap();
    let at_8 = line.need(8).fit(&Rates::new(&spec("a100-sxm4-80gb"))).sharded(Sharding::Zero3, 22);
    assert!((at_8.needed.unwrap().get() - CONTEXT_BYTES - 25.0 * GIB * RESERVED).abs() < 1.0, "{at_8:?}");
    assert_eq!(fit.activations.map(|kept| kept.least.get() / GIB), Some(10.0));
}

/// Products in 8 bits and the rest in 16: as much state, and between half and all of the rest.
const TO_FP8: Resized = Resized { states: [1.0, 1.0], rest: [0.5, 1.0], temporary: [0.5, 1.0], copies: Bytes::ZERO };
/// From 16 bits to 32: up to twice as much.
const TWICE: Resized = Resized { states: [1.0, 2.0], rest: [1.0, 2.0], temporary: [1.0, 2.0], copies: Bytes::ZERO };

#[test]
fn a_peak_of_wider_numbers_is_the_most() {
    let of = |gib: f64| MemoryNeed::of(&profile(Some(gib), None), None).resized(TO_FP8).fit(&Rates::new(&spec("t4")));
    assert_eq!([12.0, 20.0, 30.0].map(|gib| of(gib).fits), [Fits::Yes, Fits::Unknown, Fits::No]);
    let MemoryBasis::OtherPrecision { fits: Fits::Unknown, least, most, from_narrower: false, .. } = of(20.0).basis
    else {
        panic!("{:?}", of(20.0))
    };
    assert_eq!([least, most].map(|bytes| format!("{:.1}", bytes.get() / GIB)), ["12.3", "23.3"]);
}

/// With the batch that is found, a step in other numbers fits, and with one sample more it is not sure to.
/// Copies of the weights in another precision have the allocator's reserve, whether the peak is known or estimated.
#[test]
fn copies_of_the_weights_have_the_reserve_too() {
    for peak in [Some(4.0), None] {
        let need = MemoryNeed::of(&profile(peak, Some(1 << 28)), None);
        let gpu = spec("a100-sxm4-80gb");
        let at_most = |copies: f64| {
            let resized = need.resized(Resized { copies: Bytes::known(copies), ..TWICE });
            resized.fit(&Rates::new(&gpu)).at_most.unwrap().get()
        };
        assert!((at_most(GIB) - at_most(0.0) - GIB * RESERVED).abs() < 1.0, "{peak:?}");
    }
}

#[test]
fn the_largest_batch_is_one_that_fits_in_the_numbers_of_the_prediction() {
    let mut recorded = profile(Some(26.0), Some(1 << 28));
    recorded.workload.batch_size = Some(32);
    let gpu = spec("t4");
    let rates = Rates::new(&gpu);
    let line = MemoryLine::of_profiles(&[(32, &recorded)]).unwrap();
    let copies = Bytes::known(GIB / 2.0);
    let half = Resized { states: [0.5, 1.0], ..TO_FP8 };
    for by in [TO_FP8, half, Resized { copies, ..TO_FP8 }, TWICE, Resized { states: [1.0, 1.0], ..TWICE }] {
        let fit = |batch: u64| line.need(batch).resized(by).fit(&rates);
        let largest = fit(128).largest_batch.unwrap();
        assert!(largest < 32, "{largest}");
        assert_eq!(fit(largest).fits, Fits::Yes, "{:?}", fit(largest));
        assert_ne!(fit(largest + 1).fits, Fits::Yes, "{:?}", fit(largest + 1));
    }
}

/// A step of 40 GB state and 50 GB of activations, in 16 bits and in FP8, on one GPU and shared by 2 to 64:
/// in FP8 it needs no more than in 16 bits, and no less than its state and half of the rest.
#[test]
fn fp8_needs_between_its_state_and_what_16_bits_need() {
    let mut recorded = profile(Some(90.0), Some(5 << 29));
    let of = |gib: f64| Bytes::known(gib * GIB);
    recorded.step.as_mut().unwrap().memory = Some(Memory {
        source: MemorySource::Computed,
        parameters: of(10.0),
        gradients: of(10.0),
        optimizer_state: of(20.0),
        activations: of(40.0),
        temporary: of(10.0),
        working: Some(Working { gradients: of(10.0), activations: of(40.0), temporary: of(10.0) }),
    });
    let gpu = spec("h100-sxm5-80gb");
    let need = MemoryNeed::of(&recorded, None);
    let [wide, narrow] = [need.clone(), need.resized(TO_FP8)].map(|need| need.fit(&Rates::new(&gpu)));
    let bytes = |bytes: Option<Bytes>| bytes.unwrap().get();
    let check = |wide: &MemoryFit, narrow: &MemoryFit, states: f64, what: &str| {
        let (needed, most) = (bytes(narrow.needed), bytes(narrow.at_most));
        let states = states * RESERVED;
        let rest = bytes(wide.needed) - states * GIB - CONTEXT_BYTES;
        assert!((needed - (states * GIB + rest / 2.0 + CONTEXT_BYTES)).abs() < 1e6, "{what}: {narrow:?}");
        assert!((most - bytes(wide.at_most)).abs() < 1e6, "{what}: {narrow:?}");
    };
    check(&wide, &narrow, 40.0, "one GPU");
    assert_eq!((wide.fits, narrow.fits), (Fits::No, Fits::Unknown));
    for gpus in [2, 8, 64] {
        let [wide, narrow] = [&wide, &narrow].map(|fit| fit.sharded(Sharding::Zero3, gpus));
        check(&wide, &narrow, 40.0 / f64::from(gpus), &format!("{narrow:?}"));
    }
    for (tensor, pipeline, replicas) in [(2, 1, 1), (8, 1, 1), (1, 4, 2), (4, 4, 2)] {
        let parallel = ModelParallel { tensor, pipeline, ..ModelParallel::NONE };
        let layout = Layout { parallel, ..Layout::one_machine(tensor * pipeline * replicas) };
        let share = Share::new(&layout, [1, 8], None, None);
        let [wide, narrow] = [&wide, &narrow].map(|fit| fit.on_replica(Sharding::Zero1, &share));
        let states = (20.0 + 20.0 / f64::from(replicas)) / f64::from(tensor * pipeline);
        check(&wide, &narrow, states, &format!("{narrow:?}"));
        assert_eq!(narrow.fits, Fits::Yes, "{narrow:?}");
    }
}

/// An H100 has 73.6 usable GiB: 65 with a reserve of 6.5 and 1.3 of the process fit, 72.4 alone do not.
#[test]
fn a_step_within_the_reserve_may_fit() {
    let gpu = spec("h100-sxm5-80gb");
    let usable = Rates::new(&gpu).usable_memory.value.get() / GIB;
    let process = CONTEXT_BYTES / GIB;
    let fit = |peak: f64| MemoryNeed::of(&profile(Some(peak), Some(1 << 28)), None).fit(&Rates::new(&gpu));
    let [most, alone] = [(usable - process) / RESERVED, usable - process];
    for (peak, fits) in
        [(most - 0.1, Fits::Yes), (most + 0.1, Fits::Unknown), (alone - 0.1, Fits::Unknown), (alone + 0.1, Fits::No)]
    {
        let found = fit(peak);
        assert_eq!(found.fits, fits, "{peak}: {found:?}");
        // The same with a share of it.
        assert_eq!(found.sharded(Sharding::Zero1, 1).fits, fits);
    }
}

/// Two tensor parallel GPUs have the gathered input of a product and its gradient, half of which is not theirs, and 4 bytes
/// a logit more at `PyTorch`'s loss, shared; a loss with fewer copies has none of these.
#[test]
fn tensor_parallel_gpus_gather_inputs_and_divide_the_loss() {
    let of = |gib: f64| Bytes::known(gib * GIB);
    let need = |temporary: f64, whole: [Bytes; 2]| {
        let mut recorded = profile(Some(40.0 + temporary), Some(5 << 28));
        let activations = of(20.0);
        let (gradients, temporary) = (of(5.0), of(temporary));
        recorded.step.as_mut().unwrap().memory = Some(Memory {
            source: MemorySource::Computed,
            parameters: of(5.0),
            gradients,
            optimizer_state: of(10.0),
            activations,
            temporary,
            working: Some(Working { gradients, activations, temporary }),
        });
        let parallel = ModelParallel { tensor: 2, ..ModelParallel::NONE };
        let layout = Layout { parallel, ..Layout::one_machine(2) };
        let share = Share { whole, ..Share::new(&layout, [1, 1], None, None) };
        let gpu = spec("h100-sxm5-80gb");
        let fit = MemoryNeed::of(&recorded, None).fit(&Rates::new(&gpu)).on_replica(Sharding::None, &share);
        fit.needed.unwrap().get() / GIB
    };
    let none = [Bytes::ZERO; 2];
    for (temporary, further) in [(10.0, 3.0 + 2.0), (4.0, 3.0)] {
        let found = need(temporary, [of(3.0), of(2.0)]) - need(temporary, none);
        assert!((found - RESERVED * further).abs() < 1e-6, "{temporary}: {found}");
    }
}
