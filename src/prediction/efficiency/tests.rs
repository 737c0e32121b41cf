mod convolutions;

use super::table::{Arithmetic, ProductKind};
use super::*;
use habitat_step::catalog::Layer;
use habitat_step::profile::{Mode, Operation};

fn spec(slug: &str) -> GpuSpec {
    let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
    GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
}

fn operation(name: &str, phase: &str, inputs: &str, rest: &str) -> Operation {
    let json =
        format!(r#"{{"name": "aten::{name}", "phase": "{phase}", "inputs": {inputs}, "dtype": "float16"{rest}}}"#);
    serde_json::from_str(&json).unwrap()
}

fn demands_of(name: &str, phase: &str, inputs: &str, rest: &str) -> Vec<Demand> {
    let operation = operation(name, phase, inputs, rest);
    demands(&Decoded::new(0, &operation, Some(Precision::AmpFp16)), Some(Precision::AmpFp16))
}

fn model(compute: &[(&str, f64)], memory: &[(&str, f64)]) -> Efficiency {
    Efficiency {
        format: FORMAT.to_owned(),
        version: VERSION,
        compute: factors(compute),
        memory: factors(memory),
        ..Efficiency::default()
    }
}

fn factors(terms: &[(&str, f64)]) -> Factors {
    terms.iter().map(|(name, value)| (Id::named(name).unwrap(), *value)).collect()
}

fn names(amounts: &[Amount]) -> Vec<&'static str> {
    amounts.iter().map(|(term, _)| term.name()).collect()
}

fn time(model: &Efficiency, operation: &Operation, gpu: &GpuSpec) -> LearnedTime {
    let decoded = [Decoded::new(0, operation, Some(Precision::AmpFp16))];
    model.columns(&decoded).on(&Rates::new(gpu))[0].unwrap()
}

/// 4096 × 4096 × 4096 in FP16 on a V100: 137.4 GFLOP at 80 % of 125 TFLOP/s, 100.7 MB.
#[test]
fn a_product_by_hand() {
    let (v100, product) = (spec("v100-sxm2-16gb"), operation("mm", "forward", "[[4096, 4096], [4096, 4096]]", ""));
    let rates = Rates::new(&v100);
    let compute = 2.0 * 4096_f64.powi(3) / 100e12 * 1e6;
    let memory = 3.0 * 4096.0 * 4096.0 * 2.0 / rates.streaming.value.get() * 1e6;
    let plain = time(&Efficiency::default(), &product, &v100);
    let expected = STEP_LAUNCH_US + compute.hypot(memory);
    assert!((plain.time.get() / expected - 1.0).abs() < 1e-9, "{plain:?} {expected}");
    // An operator kind without measured steps is far from the training data.
    assert!(plain.is_far);
    let learned = model(&[("product", 2_f64.ln())], &[("product", 0.0)]);
    let slower = time(&learned, &product, &v100);
    assert!((slower.time.get() - STEP_LAUNCH_US - (2.0 * compute).hypot(memory)).abs() < 1e-6);
    assert!(!slower.is_far);
    // Whole steps share less of their deviation than operators do.
    let mut steps = learned.clone();
    steps.steps.shared_deviation = 0.1;
    assert_eq!(time(&steps, &product, &v100).shared_deviation, 0.8);
    // No steps were measured on AMD GPUs.
    assert!(time(&learned, &product, &spec("mi300x")).is_far);
}

/// A small group norm takes the latency of its kernels, a large one longer in proportion; products of recurrent layers
/// have their own term.
#[test]
fn what_is_small_takes_its_launches() {
    let v100 = spec("v100-sxm2-16gb");
    let norm = |channels: u64| operation("native_group_norm", "forward", &format!("[[2, {channels}, 4, 4]]"), "");
    let learned = Efficiency { latency: factors(&[("group norm", 4_f64.ln())]), ..model(&[], &[]) };
    let [small, large] = [32, 1 << 20].map(|channels| {
        let plain = time(&model(&[], &[]), &norm(channels), &v100).time.get();
        (plain, time(&learned, &norm(channels), &v100).time.get() - plain)
    });
    assert!(small.0 < 1.1 * STEP_LAUNCH_US && large.0 > 50.0 * STEP_LAUNCH_US, "{small:?} {large:?}");
    for (_, more) in [small, large] {
        assert!((more - 3.0 * STEP_LAUNCH_US).abs() < 1e-9, "{more}");
    }
    let inputs = "[[12, 8, 64], [256, 64], [256, 64], [256], [256]]";
    let has = |name: &str, inputs: &str| demands_of(name, "forward", inputs, "").iter().any(is_recurrent);
    assert!(has("_cudnn_rnn", inputs) && !has("mm", "[[64, 64], [64, 64]]"));
}

fn is_recurrent(demand: &Demand) -> bool {
    names(&demand.memory).contains(&"product, recurrent")
}

/// A quarter of the roofline, from shapes alone; none of it in training or on a GPU with many measured steps.
#[test]
fn the_roofline_has_its_share() {
    let (v100, product) = (spec("v100-sxm2-16gb"), operation("mm", "forward", "[[4096, 4096], [4096, 4096]]", ""));
    let plain = model(&[("product", 2_f64.ln())], &[("product", 0.0)]);
    assert_eq!(time(&plain, &product, &v100).mean, None);
    let found = time(&Efficiency { roofline: 0.25, ..plain.clone() }, &product, &v100);
    assert_eq!(found.time, time(&plain, &product, &v100).time);
    let compute = 2.0 * 4096_f64.powi(3) / 100e12 * 1e6;
    let mean = found.time.get().powf(0.75) * compute.powf(0.25);
    assert!((found.mean.unwrap().get() / mean - 1.0).abs() < 1e-9, "{found:?} {mean}");
    let backward = operation("mm", "backward", "[[4096, 4096], [4096, 4096]]", "");
    assert_eq!(time(&Efficiency { roofline: 0.25, ..plain.clone() }, &backward, &v100).mean, None);
    let spread = Spread { low: 0.9, high: 1.1, cases: 100 };
    let boards = [(v100.slug.to_string(), spread)].into();
    let many = StepRanges { mode: Mode::Training, precision: Precision::AmpFp16, boards, unseen: spread };
    assert_eq!(time(&Efficiency { ranges: vec![many], roofline: 0.25, ..plain }, &product, &v100).mean, None);
}

/// Terms of a GPU with steps are relative to the rule-based bandwidth; other GPUs use a calibration.
#[test]
fn a_calibrated_bandwidth_serves_gpus_without_steps() {
    let (v100, relu) = (spec("v100-sxm2-16gb"), operation("relu", "forward", "[[4096, 40960]]", ""));
    let mut rates = Rates::new(&v100);
    rates.streaming.value = rates.trained_streaming.value * 0.5;
    let decoded = [Decoded::new(0, &relu, Some(Precision::AmpFp16))];
    let time = |model: &Efficiency| model.columns(&decoded).on(&rates)[0].unwrap().time.get() - STEP_LAUNCH_US;
    let unseen = model(&[], &[("elementwise", 0.0)]);
    let mut seen = unseen.clone();
    seen.steps.boards.insert(v100.slug.to_string(), 1.0);
    assert!((time(&unseen) / time(&seen) - 2.0).abs() < 1e-9);
}

/// A weight gradient of 256 × 256 over 16,384 rows: four tiles, each in four parts.
#[test]
fn long_sums_are_split_among_blocks() {
    let tiles = |reduction: u64| {
        let inputs = format!("[[256, {reduction}], [{reduction}, 256]]");
        demands_of("mm", "backward", &inputs, "")[0].limits.tiles
    };
    assert_eq!([1024, 4096, 16_384].map(tiles), [4.0, 4.0, 16.0]);
}

/// A batch norm takes cycles per element, more of them in channels-first layout if it has fewer channels than
/// multiprocessors. One that computes no statistics, or an addition, takes none.
#[test]
fn some_work_takes_cycles_for_each_element() {
    let asked_of = |name: &str, phase: &str, rest: &str| {
        let [part] = &demands_of(name, phase, "[[8, 33, 56, 56], [33]]", rest)[..] else { panic!("one part") };
        (part.units == Units::Cycles).then_some((part.flops, part.limits, names(&part.compute)))
    };
    let elements = 8.0 * 33.0 * 3136.0;
    let trained = r#", "attributes": {"training": true}"#;
    let (cycles, limits, names) = asked_of("native_batch_norm", "forward", trained).unwrap();
    assert_eq!((cycles, &names[..]), (elements, &["batch norm, elements"][..]));
    let [.., few, _, _, _] = limits.on(&spec("h100-sxm5-80gb"), 1.0);
    assert_eq!(few, 2.0, "a quarter of 132");
    let last = r#", "attributes": {"training": true, "memory_format": "channels_last"}"#;
    let (_, limits, names) = asked_of("native_batch_norm", "forward", last).unwrap();
    assert_eq!((limits.channels, *names.last().unwrap()), (0.0, "batch norm, elements, channels last"));
    assert_eq!(asked_of("native_batch_norm", "forward", r#", "attributes": {"training": false}"#), None);
    assert_eq!(
        asked_of("gelu_backward", "backward", "").unwrap().2,
        ["powers of e, elements", "powers of e, elements, backward"]
    );
    // A pooling takes cycles per result; backward, per input element, by the windows it lies in.
    let pooled = r#", "outputs": [[8, 33, 28, 28]], "attributes": {"kernel_size": [3, 3], "stride": [2, 2]}"#;
    assert_eq!(asked_of("avg_pool2d", "forward", pooled).unwrap().0, elements / 4.0);
    let global = r#", "outputs": [[8, 33, 1, 1]]"#;
    assert_eq!(asked_of("avg_pool2d", "forward", global).unwrap().0, elements / 9.0);
    let [backward] =
        &demands_of("max_pool2d_with_indices_backward", "backward", "[[8, 33, 28, 28], [8, 33, 56, 56]]", pooled)[..]
    else {
        panic!("one part")
    };
    assert_eq!(backward.flops, elements);
    let overlap = backward.compute.iter().find(|(term, _)| term.name() == "pooling, elements, overlap").unwrap();
    assert_eq!(overlap.1, 2.25_f64.log2());
    // Without a stride, windows lie side by side.
    let beside = r#", "attributes": {"kernel_size": [3, 3], "stride": []}"#;
    let [backward] = &demands_of("avg_pool2d_backward", "backward", "[[8, 33, 18, 18], [8, 33, 56, 56]]", beside)[..]
    else {
        panic!("one part")
    };
    assert!(backward.compute.iter().all(|(term, _)| !term.name().ends_with("overlap")));
    assert_eq!(asked_of("relu", "forward", ""), None);
}

/// Addresses are computed per element for broadcasts, strided tensors and look-ups.
#[test]
fn places_of_elements_are_worked_out() {
    let index = |name: &str, inputs: &str, rest: &str| {
        let [part] = &demands_of(name, "forward", inputs, rest)[..] else { panic!("one part") };
        (part.units, part.flops, part.compute.first().map(|(term, _)| term.name().to_owned()))
    };
    let of = |name: &str, elements: f64| (Units::Cycles, elements, Some(format!("index, {name}")));
    let rows = r#", "outputs": [[64, 128]]"#;
    assert_eq!(index("mul", "[[64, 128], [64, 1]]", rows), of("broadcast", 8192.0));
    assert_eq!(index("mul", "[[64, 128], [64, 128]]", rows).0, Units::Matrix);
    assert_eq!(index("mul", "[[64, 128], []]", rows).0, Units::Matrix);
    let [parts, turned] = ["strided", "transposed"]
        .map(|access| format!(r#", "outputs": [[64, 128]], "attributes": {{"access": "{access}"}}"#));
    assert_eq!(index("silu", "[[64, 128]]", &parts), of("strided", 8192.0));
    assert_eq!(index("clone", "[[64, 128]]", &turned), of("transposed", 8192.0));
    let memory =
        |name: &str, rest: &str| demands_of(name, "forward", "[[64, 128]]", rest)[0].memory.last().unwrap().0.name();
    assert_eq!(memory("clone", &turned), "rearrangement, transposed");
    assert_eq!(memory("clone", &parts), "rearrangement");
    // As in traces: a cast only if the types differ.
    assert_eq!(memory("copy_", &turned), "rearrangement, transposed");
    assert_eq!(memory("copy_", ""), "cast");
    let cast =
        r#", "outputs": [[64, 128]], "attributes": {"access": "transposed", "input_dtypes": ["float16", "float32"]}"#;
    assert_eq!(memory("copy_", cast), "cast");
    // Row kernels get contiguous copies, made like any other copy.
    for name in ["_softmax", "native_layer_norm", "native_layer_norm_backward", "native_group_norm"] {
        for how in [&parts, &turned] {
            let [copy, own] = &demands_of(name, "forward", "[[64, 128]]", how)[..] else { panic!("a copy and it") };
            let [as_lies] = &demands_of(name, "forward", "[[64, 128]]", rows)[..] else { panic!("one part") };
            let [clone] = &demands_of("clone", "forward", "[[64, 128]]", how)[..] else { panic!("one part") };
            assert_eq!((copy, own), (clone, as_lies), "{name} {how}");
        }
    }
    assert_eq!(index("embedding", "[[50000, 128], [64]]", rows), of("look-up", 8192.0));
    let both = r#", "outputs": [[64, 256]]"#;
    // Traces lack the result.
    for rest in [both, ""] {
        assert_eq!(index("cat", "[[64, 128], [64, 128]]", rest), of("concatenated", 16384.0), "{rest}");
    }
    let parts_alone = r#", "attributes": {"access": "strided"}"#;
    assert_eq!(index("cat", "[[64, 128], [64, 128]]", parts_alone), of("strided", 16384.0));
    // Casts to 32 bits, in op lists and in traces; casts to 16 bits are vectorised.
    let types = |own: &str, told: &str| {
        let mut cast = operation("copy_", "forward", "[[64, 128], [64, 128]]", &format!("{rows}, {told}"));
        cast.dtype = Some(DType::named(own));
        demands(&Decoded::new(0, &cast, None), None)[0].compute.first().map(|(term, _)| term.name())
    };
    let widened = Some("index, widened");
    assert_eq!(types("float16", r#""attributes": {"output_dtypes": ["float32"]}"#), widened);
    assert_eq!(types("float32", r#""attributes": {"input_dtypes": ["float32", "bfloat16"]}"#), widened);
    assert_eq!(types("float32", r#""attributes": {"output_dtypes": ["float16"]}"#), None);
    assert_eq!(types("float16", r#""attributes": {"output_dtypes": ["int32"]}"#), None);
    assert_eq!(types("bfloat16", r#""attributes": {"input_dtypes": ["bfloat16", "float32"]}"#), None);
    // Arithmetic on both types, but not if only an index type differs.
    let met = |told: &str| {
        let rest = format!(r#"{rows}, "attributes": {{"input_dtypes": [{told}]}}"#);
        demands_of("add", "forward", "[[64, 128], [64, 128]]", &rest)[0].compute.first().map(|(term, _)| term.name())
    };
    assert_eq!(met(r#""bfloat16", "float32""#), widened);
    assert_eq!(met(r#""bfloat16", "int64""#), None);
    // One element per cycle of each multiprocessor.
    let v100 = spec("v100-sxm2-16gb");
    let spread = operation("mul", "forward", "[[4096, 4096], [4096, 1]]", r#", "outputs": [[4096, 4096]]"#);
    let known = model(&[("index, broadcast", 0.0)], &[("elementwise", -20.0)]);
    let us = 4096.0 * 4096.0 / (f64::from(v100.sm_count) * v100.boost_clock.get());
    let found = time(&known, &spread, &v100).time.get() - STEP_LAUNCH_US;
    assert!((found / us - 1.0).abs() < 1e-6, "{found} {us}");
}

/// Norms move 7 bytes per cycle: forward twice and backward five times each 2-byte element. The shortfall of a row
/// below 512 elements is a separate amount. Softmax takes a cycle per element of rows over 1,024; log-softmax does not.
#[test]
fn rows_take_cycles() {
    let cycles = |name: &str, width: u64| {
        let (inputs, rest) = (format!("[[1024, {width}]]"), format!(r#", "outputs": [[1024, {width}]]"#));
        let [part] = &demands_of(name, "forward", &inputs, &rest)[..] else { panic!("one part") };
        (part.units == Units::Cycles).then(|| (part.flops / 1024.0 * 7.0).round())
    };
    assert_eq!([64, 512, 4096].map(|width| cycles("native_layer_norm", width)), [256.0, 2048.0, 16384.0].map(Some));
    let [short] = &demands_of("native_layer_norm", "forward", "[[1024, 64]]", "")[..] else { panic!("one part") };
    assert!(short.compute.contains(&(Term::NormShortRows, 3.0)), "{:?}", short.compute);
    assert_eq!(cycles("native_layer_norm_backward", 4096), Some(40960.0));
    assert_eq!([1024, 4096].map(|width| cycles("_softmax", width)), [None, Some(28672.0)]);
    for other in ["_log_softmax", "_softmax_backward_data"] {
        assert_eq!(cycles(other, 4096), None, "{other}");
    }
}

/// Odd row lengths are unaligned. On an H100 that is 15 times slower than the peak; FP16 on a P100 is not affected.
/// 32-bit and 8-bit types and even lengths have no such term.
#[test]
fn unaligned_products_are_slow_on_fast_tensor_cores() {
    let of = |name: &str, phase: &str, inputs: &str| {
        let [product] = &demands_of(name, phase, inputs, "")[..] else { panic!("one part") };
        product.clone()
    };
    let on = |slug: &str, inputs: &str, peak: f64| {
        let product = of("bmm", "forward", inputs);
        let [.., unaligned, _, _, _, _] = product.limits.on(&spec(slug), product.flops / peak);
        unaligned
    };
    let odd = "[[16, 5185, 64], [16, 64, 5185]]";
    let expected: f64 = 989e6 / (256.0 * 132.0 * 1980.0);
    assert!((on("h100-sxm5-80gb", odd, 989e6) - expected.ln()).abs() < 1e-9);
    assert!(on("h100-sxm5-80gb", "[[16, 64, 5185], [16, 5185, 64]]", 989e6) > 2.0, "terms of its sums");
    assert_eq!(on("h100-sxm5-80gb", "[[16, 5185, 64], [16, 64, 5184]]", 989e6), 0.0);
    assert_eq!(on("p100-pcie-16gb", odd, 18e6), 0.0);
    for dtype in [DType::Float32, DType::Int8] {
        let other = Operation { dtype: Some(dtype), ..operation("bmm", "forward", odd, "") };
        assert_eq!(demands(&Decoded::new(0, &other, None), None)[0].limits.unaligned, 0.0, "{:?}", other.dtype);
    }
    // Both gradients of a layer with a vocabulary of 50,257, and those of an even-sized layer for 3 × 1,025 samples.
    let is_slow = |inputs: &str| of("mm", "backward", inputs).limits.unaligned > 0.0;
    assert!(is_slow("[[12288, 50257], [50257, 768]]") && is_slow("[[50257, 12288], [12288, 768]]"));
    assert!(!is_slow("[[3075, 1536], [1536, 768]]") && !is_slow("[[1536, 3075], [3075, 768]]"));
    assert!(is_slow("[[12288, 768], [768, 513]]"), "columns are a length of a row in both");
    assert_eq!(of("mm", "forward", "[[3075, 768], [768, 1536]]").limits.unaligned, 0.0);
}

#[test]
fn what_passes_over_memory_has_its_own_names() {
    let name = |name: &str, phase: &str, rest: &str| {
        demands_of(name, phase, "[[8, 64, 56, 56], [64], [64]]", rest)[0].memory.last().unwrap().0.name()
    };
    assert_eq!(name("native_batch_norm", "forward", ""), "batch norm");
    let evaluated = r#", "attributes": {"training": false}"#;
    assert_eq!(name("native_batch_norm", "forward", evaluated), "batch norm, evaluation");
    assert_eq!(name("native_batch_norm_backward", "backward", ""), "batch norm, backward");
    assert_eq!(name("relu", "forward", ""), "elementwise");
    assert_eq!(name("threshold_backward", "backward", ""), "elementwise, backward");
    assert_eq!(name("_to_copy", "forward", ""), "cast");
}

#[test]
fn kernels_of_attention_are_told_apart() {
    let terms = |kernel: &str| {
        let inputs = "[[2, 16, 1024, 64], [2, 16, 1024, 64], [2, 16, 1024, 64]]";
        let parts = demands_of(&format!("_scaled_dot_product_{kernel}_attention"), "forward", inputs, "");
        names(&parts[0].compute)
    };
    assert_eq!(terms("flash"), ["attention"]);
    assert_eq!(terms("cudnn"), ["attention"]);
    assert_eq!(terms("efficient"), ["attention", "attention, efficient"]);
}

/// Heads of 80 run as heads of 96, and a causal mask leaves blocks half empty.
#[test]
fn heads_and_masks_of_attention_have_terms() {
    let amounts = |size: u32, rest: &str| {
        let tensor = format!("[2, 16, 1024, {size}]");
        let inputs = format!("[{tensor}, {tensor}, {tensor}]");
        demands_of("_scaled_dot_product_flash_attention", "forward", &inputs, rest)[0].compute[1..].to_vec()
    };
    assert_eq!(amounts(64, ""), []);
    assert_eq!(amounts(80, ""), [(Term::AttentionPadded, 1.2_f64.log2())]);
    assert_eq!(amounts(64, r#", "attributes": {"is_causal": true}"#), [(Term::AttentionCausal, 1.0)]);
}

/// A pair of positions takes 512 operations with heads of 128, and one exponential. An H100 computes 16 · 132 · 1980
/// MHz = 4.18e12 exponentials per second. Blackwell Ultra has twice as many units as Blackwell.
#[test]
fn exponentials_and_tiles_take_time_beside_the_products() {
    let inputs = "[[8, 16, 8192, 128], [8, 16, 8192, 128], [8, 16, 8192, 128]]";
    let demands = demands_of("_scaled_dot_product_cudnn_attention", "forward", inputs, "");
    let pairs = 8.0 * 16.0 * 8192.0_f64.powi(2);
    let on = |slug: &str, peak: f64| demands[0].limits.on(&spec(slug), 512.0 * pairs / peak);
    let [few, exponentials, tiles, for_ampere, unaligned, ..] = on("h100-sxm5-80gb", 989e6);
    let beside: f64 = 989e12 / 512.0 / (16.0 * 132.0 * 1980e6);
    assert!((exponentials - beside.hypot(1.0).ln()).abs() < 1e-9, "{exponentials}");
    let waves = 8.0 * 16.0 * 64.0 / 132.0;
    assert!((tiles - (3.0 * waves / (512.0 * pairs / 989e6)).ln_1p()).abs() < 1e-9, "{tiles}");
    assert_eq!([few, for_ampere, unaligned], [0.0; 3]);
    let [blackwell, ultra] = ["b200", "b300"].map(|slug| on(slug, 2250e6)[1]);
    assert!(blackwell > 2.0 * ultra, "{blackwell} {ultra}");
}

#[test]
fn products_in_8_bits_have_a_term() {
    let mut product = operation("_scaled_mm", "forward", "[[512, 512], [512, 512]]", "");
    product.dtype = Some(DType::Float8E4m3);
    let found = demands(&Decoded::new(0, &product, Some(Precision::Fp8)), Some(Precision::Fp8));
    assert!(found[0].compute.contains(&(Term::ProductArithmetic(Arithmetic::Fp8), 1.0)), "{:?}", found[0].compute);
}

/// PyTorch's flash attention takes e^0.7 times as long on an H100 or a B200 as its products, cuDNN's does not. On an
/// A100 and on consumer cards no kernel is slower.
#[test]
fn kernels_for_ampere_are_behind_on_hopper() {
    let model = model(&[("attention", 0.1), ("attention, for Ampere", 0.7)], &[]);
    let times = |slug: &str| {
        let gpu = spec(slug);
        let rates = Rates::new(&gpu);
        ["_scaled_dot_product_flash", "_scaled_dot_product_cudnn"].map(|kernel| {
            let inputs = "[[8, 16, 8192, 128], [8, 16, 8192, 128], [8, 16, 8192, 128]]";
            let demands = demands_of(&format!("{kernel}_attention"), "forward", inputs, "");
            model.board(&rates).time(&model.parts(&demands, None, None), Some(&DType::Float16)).unwrap().get()
        })
    };
    for slug in ["h100-sxm5-80gb", "b200"] {
        let [flash, cudnn] = times(slug);
        assert!((flash / cudnn - 0.7_f64.exp()).abs() < 0.01, "{slug}: {}", flash / cudnn);
    }
    for slug in ["a100-sxm4-80gb", "rtx-4090", "rtx-5090"] {
        let [flash, cudnn] = times(slug);
        assert_eq!(flash, cudnn, "{slug}");
    }
}

/// Many such steps on the GPU, on others, and too few; none on AMD GPUs.
#[test]
fn ranges_are_those_of_the_mode_and_precision() {
    let spread = |low: f64| Spread { low, high: 1.0 / low, cases: 100 };
    let (v100, t4) = (spec("v100-sxm2-16gb"), spec("t4"));
    let mut model = model(&[], &[]);
    (model.steps.seen, model.steps.unseen) = (Some(spread(0.6)), Some(spread(0.5)));
    model.steps.boards.insert(v100.slug.to_string(), 1.0);
    let boards = [(v100.slug.to_string(), spread(0.9))].into();
    let (mode, precision) = (Mode::Inference, Precision::AmpFp16);
    model.ranges.push(StepRanges { mode, precision, boards, unseen: spread(0.8) });
    let low = |gpu: &GpuSpec, mode: Mode, precision: Precision| {
        let json = format!(r#"{{"name": "w", "mode": "{}", "precision": "{}"}}"#, mode.name(), precision.name());
        let workload: Workload = serde_json::from_str(&json).unwrap();
        model.range(gpu, &workload).unwrap().low
    };
    assert_eq!(low(&v100, mode, precision), 0.9);
    assert_eq!(low(&t4, mode, precision), 0.8);
    assert_eq!([&v100, &t4].map(|gpu| low(gpu, Mode::Training, precision)), [0.6, 0.5]);
    assert_eq!([&v100, &t4].map(|gpu| low(gpu, mode, Precision::Tf32)), [0.6, 0.5]);
    assert_eq!(low(&spec("mi300x"), mode, precision), 0.5);
}

#[test]
fn damaged_files_are_refused() {
    let steps = serde_json::to_string(&model(&[("product", 0.5)], &[])).unwrap();
    assert_eq!(
        Efficiency::from_json(steps.as_bytes()).unwrap().compute.get(Term::Product(ProductKind::Plain)),
        Some(0.5)
    );
    let error = |text: &str| Efficiency::from_json(text.as_bytes()).unwrap_err().to_string();
    assert!(error(&steps.replace("\"typical\":1.0", "\"typical\":0.0")).contains("a figure of steps"));
    assert!(error(&steps.replace("0.5", "99.0")).contains("\"product\""));
    let other = |name: &str| error(&steps.replace("\"product\"", &format!("\"{name}\"")));
    for name in ["products", "softmax", "product, odder", "compute capability 8"] {
        assert!(other(name).contains(&format!("unknown term {name:?}")), "{}", other(name));
    }
    assert!(error(&steps.replace("\"roofline\":0.0", "\"roofline\":1.5")).contains("1.5, not from 0 to 1"));
    assert!(error(&steps.replace(FORMAT, "other")).contains("format \"other\""));
    let ranges = |low: &str| {
        let spread = format!(r#"{{"low":{low},"high":1.2,"cases":100}}"#);
        let one = format!(r#"{{"mode":"training","precision":"amp-fp16","boards":{{}},"unseen":{spread}}}"#);
        steps.replace(r#""ranges":[]"#, &format!(r#""ranges":[{one}]"#))
    };
    assert_eq!(Efficiency::from_json(ranges("0.9").as_bytes()).unwrap().ranges.len(), 1);
    assert!(error(&ranges("0.0")).contains("a figure of steps"));
    assert!(error(&ranges("0.9").replace("training\",\"prec", "idle\",\"prec")).contains("idle"));
    assert!(error("{").contains("EOF"));
    // A file of an earlier format is rejected by its version, whatever it lacks.
    let earlier = steps.replace(&format!("\"version\":{VERSION}"), "\"version\":2").replace("\"latency\":{},", "");
    assert!(!earlier.contains("latency") && error(&earlier).contains("version 2 is not"), "{}", error(&earlier));
}

/// Names and ids are one to one, and a file is written as it was read.
#[test]
fn terms_have_one_name_each() {
    assert_eq!(Term::all().count(), Term::COUNT);
    for (place, term) in Term::all().enumerate() {
        assert_eq!((term.index(), Term::named(term.name())), (place, Some(term)), "{}", term.name());
        assert!(Side::ALL.into_iter().any(|side| term.prior(side).is_some()), "{}", term.name());
    }
    let shipped = include_bytes!("../../../models/efficiency.json");
    let mut written = serde_json::to_vec_pretty(&Efficiency::from_json(shipped).unwrap()).unwrap();
    written.push(b'\n');
    assert!(written == shipped);
}

/// With the shipped terms, no operation is faster if its tensors have another layout.
#[test]
fn another_order_is_never_faster() {
    let shipped = Efficiency::from_json(include_bytes!("../../../models/efficiency.json")).unwrap();
    for dtype in ["float16", "float32"] {
        for (name, phase) in [
            ("add", "forward"),
            ("mul", "backward"),
            ("copy_", "forward"),
            ("clone", "forward"),
            ("_softmax", "forward"),
            ("native_layer_norm", "forward"),
            ("native_layer_norm_backward", "backward"),
            ("native_batch_norm_backward", "backward"),
            ("add_", "optimizer"),
        ] {
            let us = |access: &str| {
                let rest = format!(r#", "outputs": [[4096, 4096]]{access}"#);
                let mut operation = operation(name, phase, "[[4096, 4096], [4096, 4096]]", &rest);
                operation.dtype = Some(DType::named(dtype));
                time(&shipped, &operation, &spec("a100-sxm4-80gb")).time.get()
            };
            let as_lies = us("");
            for access in ["strided", "transposed"] {
                let found = us(&format!(r#", "attributes": {{"access": "{access}"}}"#));
                assert!(found >= as_lies, "{name} {dtype} {access}: {found} and {as_lies} us");
            }
        }
    }
}
