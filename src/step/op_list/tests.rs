use super::*;

const LIST: &str = r#"{"info": {"case": "net", "torch": "2.15.0", "batch": 64, "params": 9408, "amp": null,
    "memory": {"param_bytes": 37632, "peak": {"cpu": {"Parameter": 1, "Total": 1000000}}}},
  "ops": [
    {"phase": "forward", "op": "aten.convolution.default", "inputs": [{"shape": [64, 3, 224, 224], "dtype": "float32"},
      {"shape": [64, 3, 7, 7], "dtype": "float32"}, null, [2, 2], [3, 3], [1, 1], false, [0, 0], 1], "kwargs": null,
      "outputs": [{"shape": [64, 64, 112, 112], "dtype": "float32"}], "count": 1, "flops": 15105785856, "view": false},
    {"phase": "forward", "op": "aten.view.default", "inputs": [{"shape": [4], "dtype": "float32"}], "outputs": [], "count": 3, "view": true},
    {"phase": "backward", "op": "aten.ones_like.default", "inputs": [{"shape": [], "dtype": "float32"}], "kwargs": {"pin_memory": false},
      "outputs": [{"shape": [], "dtype": "float32"}], "count": 1, "access": "strided"},
    {"phase": "optimizer", "op": "aten._foreach_add_.List", "inputs": [[{"shape": [64, 3, 7, 7], "dtype": "float32"}, {"shape": [64], "dtype": "float32"}],
      [{"shape": [64, 3, 7, 7], "dtype": "float32"}, {"shape": [64], "dtype": "float32"}]], "kwargs": {"alpha": -0.1}, "outputs": [], "count": 2, "access": "transposed"}]}"#;

#[test]
fn the_largest_products_decide_the_precision() {
    let product = |size: u64, dtype: &str| {
        let factor = format!(r#"{{"shape": [{size}, {size}], "dtype": "{dtype}"}}"#);
        format!(
            r#"{{"phase": "forward", "op": "aten.mm.default", "inputs": [{factor}, {factor}], "kwargs": null, "outputs": [{factor}], "count": 1}}"#
        )
    };
    let precision = |rows: &[String]| {
        let json = format!(
            r#"{{"format": "habitat-op-list", "version": 1, "info": {{"case": "x", "mode": "inference"}}, "ops": [{}]}}"#,
            rows.join(", ")
        );
        from_op_list(json.as_bytes(), "x").unwrap().workload.precision
    };
    // In a BF16 model, products for positions in FP32 come first.
    assert_eq!(precision(&[product(8, "float32"), product(64, "bfloat16")]), Some(Precision::Bf16));
    assert_eq!(precision(&[product(8, "float32")]), Some(Precision::Fp32));
    assert_eq!(precision(&[product(64, "float64"), product(8, "float32")]), None);
}

#[test]
fn an_op_list_becomes_a_profile_without_origin() {
    let profile = from_op_list(LIST.as_bytes(), "file").unwrap();
    let workload = &profile.workload;
    assert_eq!((workload.name.as_str(), workload.mode, workload.batch_size), ("net", Mode::Training, Some(64)));
    assert_eq!((workload.precision, workload.parameter_count), (Some(Precision::Fp32), Some(9408)));
    assert_eq!((&profile.origin, profile.measured_step()), (&None, None));
    assert_eq!(profile.step.as_ref().unwrap().peak_memory_bytes, Some(Bytes::known(1e6)));
    let names: Vec<&str> = profile.operations.iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names, ["aten::convolution", "aten::ones_like", "aten::_foreach_add_"]);
    let convolution = &profile.operations[0];
    assert_eq!(convolution.attributes["stride"].as_ints(), Some(vec![2, 2]));
    assert_eq!(convolution.attributes["transposed"], Attribute::Bool(false));
    assert_eq!(profile.operations.iter().map(Access::of).collect::<Vec<_>>(), [None, Some(Access::Strided), None]);
    let update = &profile.operations[2];
    assert_eq!((update.phase, update.count, update.inputs.len()), (Phase::Optimizer, 2, 4));
    assert_eq!(update.outputs, [vec![64, 3, 7, 7], vec![64]]);
}

/// `PyTorch` has its own names for 8-bit element types.
#[test]
fn products_in_8_bits_are_known_as_such() {
    let text = r#"{"ops": [
        {"op": "aten.mm.default", "inputs": [{"shape": [8, 8], "dtype": "bfloat16"}, {"shape": [8, 8], "dtype": "bfloat16"}], "count": 1},
        {"op": "aten._scaled_mm.default", "inputs": [{"shape": [8, 8], "dtype": "float8_e4m3fn"}, {"shape": [8, 8], "dtype": "float8_e5m2"}],
         "outputs": [{"shape": [8, 8], "dtype": "bfloat16"}], "count": 1}]}"#;
    let profile = from_op_list(text.as_bytes(), "f").unwrap();
    assert_eq!(profile.workload.precision, Some(Precision::Fp8));
    assert_eq!(profile.operations[1].dtype, Some(DType::Float8E4m3));
    assert_eq!(DType::named("float8_e5m2fnuz"), DType::Float8E5m2);
    assert_eq!(DType::named("float128"), DType::Other("float128".to_owned()));
}

#[test]
fn memory_by_kind_is_told_by_either_form() {
    let memory = |listed: &str| {
        let text = LIST.replacen(r#""peak": {"cpu": {"Parameter": 1, "Total": 1000000}}"#, listed, 1);
        from_op_list(text.as_bytes(), "f").unwrap()
    };
    let ours = memory(
        r#""kinds": {"parameters": 1, "gradients": 2, "optimizer_state": 4, "activations": 8, "temporary": 16},
           "peak_phase": "backward""#,
    );
    let step = ours.step.as_ref().unwrap();
    let kinds = step.memory.as_ref().unwrap();
    assert_eq!((kinds.source, kinds.total().get()), (MemorySource::Computed, 31.0));
    assert_eq!(kinds.kinds().map(|(_, bytes)| bytes.get()), [1.0, 2.0, 4.0, 8.0, 16.0]);
    assert_eq!(step.peak_memory_bytes, Some(Bytes::known(31.0)));
    assert!(ours.recording.unwrap().notes[1].contains("largest in backward"));
    let tracked = memory(r#""peak": {"cpu": {"Parameter": 3, "Buffer": 1, "Temp": 5, "Other": 2, "Total": 11}}"#);
    let step = tracked.step.unwrap();
    assert_eq!(step.memory.unwrap().kinds().map(|(_, bytes)| bytes.get()), [4.0, 0.0, 0.0, 0.0, 7.0]);
    assert_eq!(step.peak_memory_bytes, Some(Bytes::known(11.0)));
    assert_eq!(memory(r#""peak": {}"#).step, None);
}

#[test]
fn a_list_that_says_its_form_is_held_to_it() {
    let said = |form: &str| from_op_list(LIST.replacen('{', &format!("{{{form}, "), 1).as_bytes(), "f");
    assert!(said(r#""format": "habitat-op-list", "version": 1"#).is_ok());
    let error = |form: &str| said(form).expect_err("must be refused").to_string();
    assert!(error(r#""format": "habitat-op-list", "version": 2"#).contains("version: 2; this program reads"));
    assert!(error(r#""format": "habitat-op-list""#).contains("version: none"));
    assert!(error(r#""format": "other", "version": 1"#).contains("\"other\" is not"));
}

#[test]
fn errors_name_the_field_and_the_place() {
    let error = |text: &str| from_op_list(text.as_bytes(), "f").expect_err("must be refused").to_string();
    assert!(error("").contains("empty"));
    assert!(error("{\"info\": {}}").contains("missing field `ops`"));
    assert!(error("{\"ops\": []}").starts_with("ops: only views"));
    let count = error(&LIST.replacen("\"count\": 1", "\"count\": -1", 1));
    assert!(count.starts_with("ops[0].count: invalid value"), "{count}");
    let zero = error(&LIST.replacen("\"count\": 1,", "\"count\": 0,", 1));
    assert!(zero.contains("aten::convolution") && zero.contains("count: 0"), "{zero}");
}

#[test]
fn numbers_that_json_does_not_have_are_passed_over() {
    let text = r#"{"ops": [{"op": "aten.full.default", "inputs": [[2], -Infinity, NaN, "-Infinity"], "count": 1}]}"#;
    let json = without_bare_words(text.as_bytes());
    let value: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(value["ops"][0]["inputs"], serde_json::json!([[2], [], [], "-Infinity"]));
    assert_eq!(json.len(), text.len());
}

#[test]
fn op_lists_are_told_from_other_files() {
    assert!(looks_like_op_list(LIST.as_bytes()));
    assert!(!looks_like_op_list(br#"{"format": "habitat-profile", "ops": [{"op": 1, "inputs": 2}]}"#));
    assert!(!looks_like_op_list(br#"{"traceEvents": []}"#));
}
