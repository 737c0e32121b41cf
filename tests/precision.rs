//! Op lists and other precisions on the command line.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;

const OP_LIST: &str = r#"{"info": {"case": "net", "torch": "2.15.0", "batch": 64, "params": 1000000, "amp": null}, "ops": [
    {"phase": "forward", "op": "aten.mm.default", "inputs": [{"shape": [4096, 1024], "dtype": "float32"}, {"shape": [1024, 4096], "dtype": "float32"}],
     "kwargs": null, "outputs": [{"shape": [4096, 4096], "dtype": "float32"}], "count": 2, "flops": 34359738368, "view": false},
    {"phase": "backward", "op": "aten.threshold_backward.default", "inputs": [{"shape": [4096, 4096], "dtype": "float32"}, {"shape": [4096, 4096], "dtype": "float32"}, 0],
     "kwargs": null, "outputs": [{"shape": [4096, 4096], "dtype": "float32"}], "count": 1, "flops": null, "view": false}]}"#;

#[test]
fn an_op_list_is_imported_and_opened_directly() {
    let folder = Folder::new();
    folder.write("list.json", OP_LIST);
    let direct = folder.json(&["predict", "list.json", "--to", "t4"]);
    assert_eq!((direct["predictions"][0]["method"].as_str(), direct.get("origin")), (Some("learned"), None));
    let imported =
        folder.json(&["import", "list.json", "-o", "net.habitat.json.gz", "--name", "mine", "--batch-size", "32"]);
    assert_eq!((imported["operations"].as_u64(), imported["gpu"].as_str()), (Some(2), None));
    let again = folder.json(&["predict", "net.habitat.json.gz", "--to", "t4"]);
    assert_eq!(again["predictions"][0]["step_time_us"], direct["predictions"][0]["step_time_us"]);
    assert_eq!(
        (again["workload"]["name"].as_str(), again["workload"]["batch_size"].as_u64()),
        (Some("mine"), Some(32))
    );
    assert!(folder.ok(&["check", "list.json"]).contains("op list of net, 2 operations"));
    assert!(folder.error(&["import", "list.json", "-o", "net.habitat.json.gz"]).contains("already exists"));
    let origin = folder.error(&["import", "list.json", "-o", "x.habitat.json", "--origin", "t4"]);
    assert!(origin.contains("list.json") && origin.contains("--origin"), "{origin}");
    folder.write("bad.json", &OP_LIST.replace("\"count\": 2", "\"count\": \"two\""));
    for command in
        [&["predict", "bad.json"][..], &["check", "bad.json"], &["import", "bad.json", "-o", "y.habitat.json"]]
    {
        let error = folder.error(command);
        assert!(error.contains("bad.json: ops[0].count: invalid type"), "{error}");
    }
}

#[test]
fn another_precision_is_asked_for_by_a_flag() {
    let folder = Folder::new();
    folder.write("list.json", OP_LIST);
    let time = |flags: &[&str]| {
        let found = folder.json(&[&["predict", "list.json", "--to", "a100-sxm4-40gb,t4"], flags].concat());
        let time = |index: usize| found["predictions"][index]["step_time_us"]["mid"].as_f64().unwrap();
        (time(0), time(1), found)
    };
    let (a100, t4, _) = time(&[]);
    let (same, _, unchanged) = time(&["--precision", "fp32"]);
    assert_eq!((same, unchanged["notes"].as_array().unwrap().len()), (a100, 0));
    let (faster, kept, found) = time(&["--precision", "amp-bf16"]);
    assert!(a100 / faster > 4.0, "{a100} {faster}");
    assert_eq!((kept, found["workload"]["precision"].as_str()), (t4, Some("amp-bf16")));
    assert!(found["notes"][0]["text"].as_str().unwrap().contains("changed from fp32"));
    assert!(found["predictions"][1]["notes"][0]["text"].as_str().unwrap().contains("t4 has no bf16 tensor cores"));
    // The text output has it, too.
    let text = folder.ok(&["predict", "list.json", "--precision", "tf32"]);
    assert!(text.contains("no tf32 tensor cores, so the step stays in fp32: ") && text.contains(" more"), "{text}");
    assert!(folder.error(&["predict", "list.json", "--precision", "int3"]).contains("amp-bf16"));
    let plan = folder.json(&["plan", "list.json", "--steps", "1000000", "--precision", "amp-fp16"]);
    assert!(plan["parts"][0].to_string().contains("predicted in amp-fp16, recorded in fp32"), "{plan}");
}

/// An update in 16 bits stays so whatever the products' precision.
#[test]
fn products_in_8_bits_leave_the_update_as_it_is() {
    let folder = Folder::new();
    let update = r#", {"phase": "optimizer", "op": "aten._foreach_mul_.Scalar", "inputs": [[{"shape": [40000000], "dtype": "bfloat16"}], 0.9],
        "kwargs": null, "outputs": [], "count": 1, "view": false}]}"#;
    let list = OP_LIST.replace("float32", "bfloat16");
    folder.write("list.json", &(list.trim_end().trim_end_matches("]}").to_owned() + update));
    let update = |flags: &[&str]| {
        let found = folder.json(&[&["predict", "list.json", "--to", "h100-sxm5-80gb", "--operations"], flags].concat());
        let operations = found["predictions"][0]["operations"].as_array().unwrap().clone();
        operations.iter().find(|one| one["phase"] == "optimizer").unwrap()["device_time_us"]["mid"].as_f64().unwrap()
    };
    assert_eq!(update(&["--precision", "fp8"]), update(&[]));
}
