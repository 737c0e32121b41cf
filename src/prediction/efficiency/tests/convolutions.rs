//! Tests of the device work of convolutions.

use super::super::table::{DepthwiseKernel, Gradient};
use super::*;

#[test]
fn terms_name_kind_direction_and_layout() {
    let inputs = "[[8, 64, 56, 56], [64, 64, 3, 3]]";
    let [first, copies] = &demands_of("convolution", "forward", inputs, r#", "attributes": {"padding": [1, 1]}"#)[..]
    else {
        panic!("the convolution, and what it copies into the order that it works in and back")
    };
    assert_eq!(names(&first.memory), ["dense", "convolution"]);
    assert_eq!(names(&copies.memory), ["dense, channels first"]);
    let elements = 2.0 * 8.0 * 64.0 * 3136.0;
    assert_eq!((copies.units, copies.flops, copies.bytes), (Units::Cycles, elements, 2.0 * 2.0 * elements));
    assert_eq!(first.limits.tiles, (8.0_f64 * 3136.0 / 128.0).ceil());
    let last = r#", "attributes": {"padding": [1, 1], "memory_format": "channels_last"}"#;
    let [last_only] = &demands_of("convolution", "forward", inputs, last)[..] else { panic!("one part") };
    assert_eq!(names(&last_only.memory), ["dense", "convolution"]);
    let pointwise = demands_of("convolution", "forward", "[[8, 64, 56, 56], [64, 64, 1, 1]]", "");
    assert_eq!(names(&pointwise[0].memory), ["pointwise", "convolution", "pointwise, channels first"]);
    assert_eq!(pointwise.len(), 1);
    // Depthwise and thin ones are not copied; backward, input and output of each gradient are.
    for (groups, channels, inside) in [(64, 64, 1), (1, 3, 3)] {
        let inputs = format!("[[8, {channels}, 56, 56], [64, {inside}, 3, 3]]");
        let rest = format!(r#", "attributes": {{"padding": [1, 1], "groups": {groups}}}"#);
        assert_eq!(demands_of("convolution", "forward", &inputs, &rest).len(), 1, "{inputs}");
    }
    let dense = "[[8, 64, 56, 56], [8, 64, 56, 56], [64, 64, 3, 3]]";
    let gradients = demands_of("convolution_backward", "backward", dense, r#", "attributes": {"padding": [1, 1]}"#);
    let bytes: Vec<f64> = gradients.iter().filter(|part| part.units == Units::Cycles).map(|part| part.bytes).collect();
    assert_eq!((gradients.len(), bytes), (4, vec![copies.bytes; 2]));
    let backward = "[[8, 64, 56, 56], [8, 64, 56, 56], [64, 1, 3, 3]]";
    let [data, weight] = &demands_of("convolution_backward", "backward", backward, last)[..] else {
        panic!("two parts")
    };
    assert_eq!((data.units, data.flops), (Units::Cycles, weight.flops));
    assert_eq!(names(&data.memory)[1], "depthwise, data");
    assert_eq!(names(&weight.memory)[1], "depthwise, weight");
}

/// In channels-last layout, groups of 4, 8, 16 and 32 channels have kernels, and other widths are copied. In
/// channels-first layout all are copied, and so are layers with an odd number of channels.
#[test]
fn what_has_no_kernel_in_its_order_is_copied() {
    let between = |channels: u64, outside: u64, groups: u64, size: u64, layout: &str| {
        let inside = channels / groups;
        let inputs = format!("[[8, {channels}, 14, 14], [{outside}, {inside}, {size}, {size}]]");
        let padding = size / 2;
        let rest = format!(r#", "attributes": {{"padding": [{padding}, {padding}], "groups": {groups}{layout}}}"#);
        let parts = demands_of("convolution", "forward", &inputs, &rest);
        parts.get(1).map(|copies| (copies.flops / (8.0 * 196.0), copies.compute[0].0.name()))
    };
    let copied = |channels: u64, groups: u64, size: u64, layout: &str| {
        between(channels, channels, groups, size, layout).map(|(of_both, name)| {
            assert_eq!(of_both, 2.0 * channels as f64);
            name
        })
    };
    let last = r#", "memory_format": "channels_last""#;
    for groups in [2, 32, 50] {
        assert_eq!([4, 8, 16, 32].map(|width| copied(groups * width, groups, 3, last)), [None; 4], "{groups}");
        let others = [3, 24, 48].map(|width| copied(groups * width, groups, 3, last));
        assert_eq!(others, [Some("grouped, copied, elements"); 3], "{groups}");
    }
    assert_eq!(copied(512, 32, 3, ""), Some("grouped, channels first, elements"));
    assert_eq!(copied(60, 1, 3, last), Some("dense, copied, elements"));
    assert_eq!(copied(64, 1, 3, last), None);
    // Only the tensor with the odd number of channels; in the other layout both.
    assert_eq!(between(64, 60, 1, 3, last), Some((60.0, "dense, copied, elements")));
    assert_eq!(between(64, 60, 1, 3, "").unwrap().0, 124.0);
    // A single-tap layer is a product and only slower: with odd rows, it uses kernels for any alignment.
    assert_eq!(copied(60, 1, 1, last), None);
    for (channels, is_unaligned) in [(64, false), (60, false), (61, true)] {
        let inputs = format!("[[8, {channels}, 14, 14], [64, {channels}, 1, 1]]");
        let rest = r#", "attributes": {"memory_format": "channels_last"}"#;
        let [own] = &demands_of("convolution", "forward", &inputs, rest)[..] else { panic!("one part") };
        assert_eq!(own.limits.unaligned, if is_unaligned { own.flops } else { 0.0 }, "{channels}");
        assert_eq!(names(&own.compute).contains(&"convolution, odd"), channels == 60);
    }
    assert_eq!(copied(64, 64, 9, last), None, "depthwise");
}

/// A depthwise convolution takes cycles per result, its gradient per input element. Layout, type, stride and filter
/// decide which kernels run.
#[test]
fn depthwise_kernels_are_told_apart() {
    let asked_of = |dtype: &str, size: u64, stride: u64, order: &str| {
        let padding = size / 2;
        let json = format!(
            r#"{{"name": "aten::convolution_backward", "phase": "backward", "dtype": "{dtype}",
                "inputs": [[8, 64, {0}, {0}], [8, 64, 56, 56], [64, 1, {size}, {size}]],
                "attributes": {{"padding": [{padding}, {padding}], "stride": [{stride}, {stride}], "groups": 64,
                    "output_mask": [true, true, false]{order}}}}}"#,
            56 / stride
        );
        let operation: Operation = serde_json::from_str(&json).unwrap();
        let [data, weight] = <[Demand; 2]>::try_from(demands(&Decoded::new(0, &operation, None), None)).unwrap();
        let places = |demand: &Demand| demand.flops / (8.0 * 64.0);
        assert_eq!([places(&data), places(&weight)], [3136.0, 3136.0 / (stride * stride) as f64]);
        let has = |demand: &Demand, kernel| demand.compute.contains(&(Term::DepthwiseKernel(kernel), 1.0));
        let [native, first] =
            [DepthwiseKernel::Native, DepthwiseKernel::ChannelsFirst].map(|kernel| has(&data, kernel));
        let [data, weight] = [data, weight].map(|demand| has(&demand, DepthwiseKernel::NoKernel));
        [native, first, data, weight]
    };
    let last = r#", "memory_format": "channels_last""#;
    assert_eq!(asked_of("float16", 3, 1, ""), [false, true, false, false]);
    for (dtype, stride) in [("float16", 2), ("bfloat16", 1), ("float32", 1)] {
        assert_eq!(asked_of(dtype, 3, stride, ""), [true, false, false, false], "{dtype}");
    }
    assert_eq!(asked_of("bfloat16", 7, 1, last), [false; 4]);
    assert_eq!(asked_of("float32", 7, 1, last), [false, false, false, true]);
    assert_eq!(asked_of("bfloat16", 9, 1, last), [false, false, true, true]);
}

/// From Hopper on, an FP32 convolution and either gradient have their own terms; with matrix units they have none.
#[test]
fn convolutions_in_fp32_differ_from_hopper_on() {
    let backward = r#"{"name": "aten::convolution_backward", "phase": "backward", "dtype": "float32",
        "inputs": [[8, 64, 56, 56], [8, 64, 56, 56], [64, 64, 3, 3]],
        "attributes": {"padding": [1, 1], "output_mask": [true, true, false]}}"#;
    let forward = r#"{"name": "aten::convolution", "phase": "forward", "dtype": "float32",
        "inputs": [[8, 64, 56, 56], [64, 64, 3, 3]], "attributes": {"padding": [1, 1]}}"#;
    let named = |json: &str, precision: Precision, slug: &str| {
        let operation: Operation = serde_json::from_str(json).unwrap();
        let asked = demands(&Decoded::new(0, &operation, Some(precision)), Some(precision));
        let on_gpu = |part: &Demand| {
            let amounts = part.limits.on(&spec(slug), 1.0);
            let terms = ON_GPU
                .into_iter()
                .zip(amounts)
                .filter(|(term, amount)| *amount > 0.0 && term.name().contains("Hopper"));
            terms.map(|(term, _)| term).collect::<Vec<_>>()
        };
        asked.iter().map(on_gpu).filter(|names| !names.is_empty()).collect::<Vec<_>>()
    };
    let all = Term::FromHopper;
    let [data, weight] = [Gradient::Data, Gradient::Weight].map(Term::GradientFromHopper);
    assert_eq!(named(forward, Precision::Fp32, "h100-sxm5-80gb"), [[all]]);
    assert_eq!(named(backward, Precision::Fp32, "rtx-5090"), [[all, data], [all, weight]]);
    for (precision, slug) in
        [(Precision::Tf32, "h100-sxm5-80gb"), (Precision::Fp32, "a100-sxm4-80gb"), (Precision::Fp32, "mi300x")]
    {
        assert!(named(backward, precision, slug).is_empty(), "{slug}");
    }
}
