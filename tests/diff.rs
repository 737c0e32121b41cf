//! Two recordings compared on the command line.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;
use serde_json::Value;

/// A step of a product, an activation and a view; the second time the activation is another one, and
/// the product slower.
fn folder() -> Folder {
    let folder = Folder::new();
    let profile = |activation: &str, product: f64, step: f64| {
        format!(
            r#"{{"format": "habitat-profile", "version": 1,
  "workload": {{"name": "tiny", "mode": "training", "batch_size": 64, "precision": "fp32"}},
  "origin": {{"gpu": "v100-sxm2-16gb", "gpu_name": "Tesla V100", "framework": "pytorch 2.6.0"}},
  "step": {{"duration_us": {step}, "duration_range_us": [{low}, {high}], "samples": 20}},
  "operations": [
    {{"name": "aten::mm", "phase": "forward", "count": 2, "inputs": [[64, 8], [8, 8]], "dtype": "float32", "device_time_us": {product},
      "kernels": [{{"name": "gemm", "duration_us": {product}}}]}},
    {{"name": "aten::{activation}", "phase": "forward", "inputs": [[64, 8]], "dtype": "float32", "device_time_us": 100,
      "kernels": [{{"name": "elementwise", "duration_us": 100}}]}},
    {{"name": "aten::view", "phase": "forward", "inputs": [[64, 8]], "dtype": "float32"}}]}}"#,
            low = step - 10.0,
            high = step + 10.0
        )
    };
    folder.write("old.habitat.json", &profile("relu", 300.0, 1000.0));
    folder.write("new.habitat.json", &profile("gelu", 350.0, 1120.0));
    folder
}

/// A recording without a GPU, whose product takes this many microseconds of the CPU.
fn on_cpu(folder: &Folder, name: &str, product: f64) {
    let step = product + 200.0;
    let profile = format!(
        r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "tiny", "mode": "training", "batch_size": 8}},
  "step": {{"cpu": {{"duration_us": {step}, "duration_range_us": [{step}, {high}], "samples": 20}}}},
  "operations": [
    {{"name": "aten::mm", "phase": "forward", "inputs": [[64, 8], [8, 8]], "dtype": "float32", "cpu_time_us": {product}}},
    {{"name": "aten::relu", "phase": "forward", "inputs": [[64, 8]], "dtype": "float32", "cpu_time_us": 100}}]}}"#,
        high = step + 10.0
    );
    folder.write(name, &profile);
}

/// Two CPUs compare with each other, and the words say so; a CPU and a GPU do not.
#[test]
fn two_recordings_of_cpus_compare_by_operation() {
    let folder = folder();
    on_cpu(&folder, "cpu-old.habitat.json", 300.0);
    on_cpu(&folder, "cpu-new.habitat.json", 400.0);
    let text = folder.ok(&["diff", "cpu-old.habitat.json", "cpu-new.habitat.json"]);
    assert!(text.contains("both were recorded on CPUs") && text.contains("on a CPU"), "{text}");
    assert!(text.contains("500.0 µs, then 600.0 µs") && !text.contains("unnamed GPU"), "{text}");
    let found = folder.json(&["diff", "cpu-old.habitat.json", "cpu-new.habitat.json"]);
    assert_eq!((found["measured_on"].as_str(), number(&found["change_us"])), (Some("cpu"), 100.0));
    assert_eq!(found["parts"][0]["name"], "aten::mm");
    assert_eq!(folder.json(&TWO)["measured_on"], "gpu");
    for pair in [["cpu-old.habitat.json", "new.habitat.json"], ["new.habitat.json", "cpu-old.habitat.json"]] {
        let error = folder.error(&["diff", pair[0], pair[1]]);
        assert!(error.contains("cpu-old.habitat.json") && error.contains("both on CPUs"), "{error}");
    }
    // No prediction uses a time of a CPU.
    let [old, new] = ["cpu-old", "cpu-new"]
        .map(|name| folder.json(&["predict", &format!("{name}.habitat.json"), "--to", "l4"])["predictions"].clone());
    assert_eq!(old, new);
}

const TWO: [&str; 3] = ["diff", "old.habitat.json", "new.habitat.json"];

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn two_recordings_add_up() {
    let folder = folder();
    let found = folder.json(&TWO);
    assert_eq!((found["format"].as_str(), found["version"].as_u64()), (Some("habitat-diff"), Some(1)));
    let parts = found["parts"].as_array().unwrap();
    let of = |key: &str| parts.iter().map(|part| part[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("name"), ["aten::gelu", "aten::mm", "aten::relu", "aten::view"]);
    assert_eq!(of("matched"), ["only-second", "same", "only-first", "same"]);
    assert_eq!(parts[1]["counts"], serde_json::json!([2, 2]));
    assert_eq!(parts[1]["first_inputs"], serde_json::json!([[64, 8], [8, 8]]));
    let sums = [0, 1].map(|step: usize| {
        parts.iter().map(|part| number(&part["device_time_us"][step])).sum::<f64>() + number(&found["rest_us"][step])
    });
    assert_eq!(sums, [1000.0, 1120.0]);
    assert_eq!((number(&found["change_us"]), found["spread"].as_str()), (120.0, Some("beyond")));
    assert!((number(&found["change_share"]) - 0.12).abs() < 1e-12);
    assert_eq!(found["differs"], serde_json::json!([]));
    // Other groupings.
    let of = |by: &str| folder.json(&[&TWO[..], &["--by", by]].concat())["parts"].clone();
    let kernels = of("kernel");
    assert_eq!(
        (kernels[0]["name"].as_str(), &kernels[0]["device_time_us"]),
        (Some("gemm"), &serde_json::json!([600.0, 700.0]))
    );
    assert_eq!(of("family").as_array().unwrap().len(), 3);
}

#[test]
fn it_is_printed_in_every_form() {
    let folder = folder();
    let text = folder.ok(&TWO);
    for words in [
        "first:  tiny (old.habitat.json): 1.0 ms measured, median of 20 steps; training · batch 64 · fp32 on Tesla V100",
        "The step takes 1.0 ms, then 1.1 ms: 120.0 µs (12.0 %) longer; more than the spread of the recorded steps",
        "only in second",
        "waiting, overlap",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // The answer comes before everything else about the two steps.
    assert!(text.lines().nth(2).unwrap().starts_with("The step takes "), "{text}");
    assert!(!text.contains("warning") && !text.contains("time between operations"), "{text}");
    // The step longer by 400 µs, 300 of which no operation takes.
    let longer = std::fs::read_to_string(folder.0.path().join("new.habitat.json")).unwrap();
    folder.write("idle.habitat.json", &longer.replace("1120", "1400").replace("[1110, 1130]", "[1390, 1410]"));
    let idle = folder.ok(&["diff", "old.habitat.json", "idle.habitat.json"]);
    assert!(idle.contains("The time between operations (waiting, overlap) accounts for 300.0 µs of it."), "{idle}");
    // The other way round the operations of one recording take 700 µs more, and waiting 1,050 less.
    folder.write(
        "quick.habitat.json",
        &longer.replace("1120", "1050").replace("[1110, 1130]", "[1040, 1060]").replace("350", "700"),
    );
    let more = folder.ok(&["diff", "idle.habitat.json", "quick.habitat.json"]);
    assert!(more.contains("(waiting, overlap) is 1.1 ms shorter, that of operations 700.0 µs longer."), "{more}");
    // A batch that one of them does not know.
    folder.write("unknown.habitat.json", &longer.replace(r#", "batch_size": 64"#, ""));
    let unknown = folder.ok(&["diff", "old.habitat.json", "unknown.habitat.json"]);
    assert!(unknown.contains("not comparable: batch size 64, then unknown"), "{unknown}");
    let csv = folder.ok(&[&TWO[..], &["--csv"]].concat());
    let head = "name,phase,matched,first_inputs,second_inputs,first_count,second_count,first_us,second_us,difference_us,\
         first_us_per_sample,second_us_per_sample";
    assert_eq!((csv.lines().next(), csv.lines().count()), (Some(head), 8), "{csv}");
    assert!(csv.contains("aten::mm,forward,same,[64×8] [8×8],[64×8] [8×8],2,2,600,700,100,9.375,10.9375"), "{csv}");
    let markdown = folder.ok(&[&TWO[..], &["--markdown"]].concat());
    assert!(markdown.contains("- The step takes 1.0 ms") && markdown.contains("| operation | phase |"), "{markdown}");
}

/// Steps with different batches are compared by the time of a sample.
#[test]
fn unlike_batches_are_compared_by_the_sample() {
    let folder = folder();
    let second = std::fs::read_to_string(folder.0.path().join("new.habitat.json")).unwrap();
    folder.write("large.habitat.json", &second.replace(r#""batch_size": 64"#, r#""batch_size": 128"#));
    let args = ["diff", "old.habitat.json", "large.habitat.json"];
    let text = folder.ok(&args);
    for words in ["batch size 64, then 128", "A sample takes", "a sample, µs"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // 1,000 µs of 64 samples, 1,120 of 128; the product takes 600 and 700.
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(row("first step").contains(" 15.6"), "{text}");
    assert!(row("second step").contains(" 8.75"), "{text}");
    assert!(row("mm").contains("9.38 → 5.47"), "{text}");
    let markdown = folder.ok(&[&args[..], &["--markdown"]].concat());
    assert!(markdown.contains("| a sample, µs |") && markdown.contains("9.38 → 5.47"), "{markdown}");
    let steps = &folder.json(&args)["steps"];
    assert_eq!((steps[1]["batch_size"].as_u64(), number(&steps[0]["sample_time_us"])), (Some(128), 15.625));
    let csv = folder.ok(&[&args[..], &["--csv"]].concat());
    assert!(csv.lines().any(|line| line.starts_with("aten::mm") && line.ends_with(",9.375,5.46875")), "{csv}");
    // The column is left out for equal batches and for unknown ones.
    assert!(!folder.ok(&TWO).contains("a sample"));
    folder.write("unknown.habitat.json", &second.replace(r#", "batch_size": 64"#, ""));
    let unknown = ["diff", "old.habitat.json", "unknown.habitat.json"];
    assert!(!folder.ok(&unknown).contains("a sample, µs"));
    assert!(folder.json(&unknown)["steps"][1]["sample_time_us"].is_null());
}

/// Text lists what makes most of the difference, and the others together; --all lists them all.
#[test]
fn what_is_not_listed_stands_together() {
    let folder = folder();
    for (name, us) in [("old.habitat.json", 10.0), ("new.habitat.json", 11.0)] {
        let operation = |at: usize| {
            format!(
                r#"{{"name": "aten::mm", "phase": "forward", "inputs": [[{at}, 8]], "device_time_us": {}}}"#,
                us + at as f64
            )
        };
        let operations: Vec<String> = (0..30).map(operation).collect();
        let profile = format!(
            r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}},
                "step": {{"duration_us": 2000}}, "operations": [{}]}}"#,
            operations.join(",")
        );
        folder.write(name, &profile);
    }
    let text = folder.ok(&TWO);
    let others = text.lines().find(|line| line.contains("10 others")).unwrap_or_else(|| panic!("{text}"));
    assert!(others.trim_end().ends_with("+0.010"), "{others}");
    assert_eq!(folder.ok(&[&TWO[..], &["--all"]].concat()).matches("forward").count(), 30);
}

#[test]
fn what_is_not_like_with_like_is_said_first() {
    let folder = folder();
    let path = folder.0.path().join("new.habitat.json");
    let other = std::fs::read_to_string(&path).unwrap();
    let other = other.replace(r#""batch_size": 64"#, r#""batch_size": 128"#).replace("pytorch 2.6.0", "pytorch 2.7.0");
    std::fs::write(&path, other.replace("v100-sxm2-16gb", "a100-sxm4-40gb")).unwrap();
    let text = folder.ok(&TWO);
    assert!(
        text.contains("warning: not comparable: batch size 64, then 128; GPU v100-sxm2-16gb, then a100-sxm4-40gb\n"),
        "{text}"
    );
    assert!(text.contains("also changed: framework pytorch 2.6.0, then pytorch 2.7.0\n"), "{text}");
    assert!(text.contains("A sample takes 15.6 µs, then 8.8 µs (-44.0 %)."), "{text}");
    // In other forms too.
    let output = folder.run(&[&TWO[..], &["--csv"]].concat());
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: not comparable: batch size"));
    assert_eq!(folder.json(&TWO)["differs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_longer_step_ends_with_a_code_of_its_own() {
    let folder = folder();
    let code = |most: &str| folder.run(&[&TWO[..], &["--fail-over", most]].concat()).status.code();
    assert_eq!([code("5%"), code("11.9 %"), code("12.1%"), code("0%")], [Some(3), Some(3), Some(0), Some(3)]);
    let shorter = folder.run(&["diff", "new.habitat.json", "old.habitat.json", "--fail-over", "0%"]);
    assert_eq!(shorter.status.code(), Some(0));
    let same = folder.run(&["diff", "new.habitat.json", "new.habitat.json", "--fail-over", "0%"]);
    assert_eq!(same.status.code(), Some(0));
    // The table is printed all the same.
    let output = folder.run(&[&TWO[..], &["--fail-over", "5%"]].concat());
    assert!(String::from_utf8(output.stdout).unwrap().contains("second step"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("12.0 % longer than the first, more than the 5.0 % of --fail-over"), "{said}");
    // Few steps that overlap are reported, and count all the same.
    let path = folder.0.path().join("new.habitat.json");
    let wide = std::fs::read_to_string(&path)
        .unwrap()
        .replace(r#"[1110, 1130], "samples": 20"#, r#"[1005, 1130], "samples": 8"#);
    std::fs::write(&path, wide).unwrap();
    let output = folder.run(&[&TWO[..], &["--fail-over", "5%"]].concat());
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("this may be noise: the recorded step times overlap"), "{said}");
    for unclear in ["5", "0.05", "-1%", "nan%", "%"] {
        let error = folder.error(&[&TWO[..], &["--fail-over", unclear]].concat());
        assert!(error.contains("is not a percentage; expected a number with %, such as 5%"), "{error}");
    }
}

/// CI shows the verdict: as a test of `JUnit`, and on top of a summary.
#[test]
fn ci_shows_the_verdict() {
    let folder = folder();
    let path = folder.path("new.habitat.json");
    let named = std::fs::read_to_string(&path).unwrap().replace("tiny", r#"tiny \"<&>\u0007"#);
    std::fs::write(&path, named).unwrap();
    let run = |most: &str, more: &[&str]| {
        let output = folder.run(&[&TWO[..], &["--fail-over", most, "--junit", "gate.xml"], more].concat());
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text, _) = run("5%", &["--markdown"]);
    assert_eq!(code, Some(3));
    let failed = "**Failed**: the second step is 12.0 % longer than the first, more than the 5.0 %";
    assert!(text.starts_with(failed), "{text}");
    let xml = std::fs::read_to_string(folder.path("gate.xml")).unwrap();
    assert!(xml.contains(r#"<testsuites name="habitat-tui diff" tests="1" failures="1">"#), "{xml}");
    let case = "<testcase classname=\"tiny &quot;&lt;&amp;&gt;\u{fffd}\" name=\"step time\" time=\"0.001120\">";
    assert!(xml.contains(case), "{xml}");
    assert!(xml.contains(r#"<failure type="longer" message="the second step is 12.0 % longer"#), "{xml}");
    let (code, _, why) = run("20%", &[]);
    assert!(code == Some(2) && why.contains("gate.xml"), "{why}");
    let (code, text, _) = run("20%", &["--force", "--markdown"]);
    assert_eq!(code, Some(0));
    assert!(text.starts_with("**Passed**: the second step is not more than 20.0 % longer."), "{text}");
    let xml = std::fs::read_to_string(folder.path("gate.xml")).unwrap();
    assert!(xml.contains(r#"failures="0""#) && !xml.contains("<failure"), "{xml}");
    assert!(folder.error(&[&TWO[..], &["--junit", "x.xml"]].concat()).contains("--fail-over"));
}

#[test]
fn a_recording_without_times_says_what_to_do() {
    let folder = folder();
    folder.write(
        "shapes.json",
        r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "s", "mode": "training"},
            "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[8, 8], [8, 8]]}]}"#,
    );
    let error = folder.error(&["diff", "old.habitat.json", "shapes.json"]);
    assert!(error.contains("shapes.json: no step time was measured on a GPU"), "{error}");
    assert!(error.contains("habitat-tui predict old.habitat.json --to"), "{error}");
}

#[test]
fn modules_are_compared_and_reported_as_a_tree() {
    let folder = folder();
    for name in ["old.habitat.json", "new.habitat.json"] {
        let path = folder.0.path().join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, text.replace(r#""name": "aten::mm","#, r#""name": "aten::mm", "module": "Net.Linear","#))
            .unwrap();
    }
    let parts = folder.json(&[&TWO[..], &["--by", "module"]].concat())["parts"].clone();
    assert_eq!([&parts[0]["name"], &parts[1]["name"]], ["Net.Linear", "outside modules"]);
    assert_eq!(parts[0]["device_time_us"], serde_json::json!([600.0, 700.0]));
    let report = folder.ok(&["old.habitat.json"]);
    let tree: Vec<&str> = report.lines().skip_while(|line| !line.contains("by module:")).skip(1).take(3).collect();
    let words: Vec<Vec<&str>> = tree.iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["Net", "600.0", "µs", "85.7", "%"]);
    assert_eq!(words[1], ["Linear", "600.0", "µs", "85.7", "%"]);
    assert!(tree[1].starts_with("      Linear") && words[2][0] == "outside", "{report}");
}

/// The screens open on one of them; without a terminal the report has what they show.
#[test]
fn a_second_recording_is_opened_with_the_screens() {
    let folder = folder();
    let report = folder.ok(&["new.habitat.json", "--against", "old.habitat.json"]);
    for words in
        ["tiny (new.habitat.json)\n", "first:  tiny (old.habitat.json)", "120.0 µs (12.0 %) longer", "only in second"]
    {
        assert!(report.contains(words), "{words}: {report}");
    }
    let line = "of the step: forward matrix product 62.5 % · forward elementwise 8.9 % · idle 28.6 %\n";
    assert!(report.contains(line), "{report}");
    let drawn = |keys: &str| {
        let picture = ["--screenshot", "p.svg", "--force", "--keys", keys];
        folder.ok(&[&["new.habitat.json", "--against", "old.habitat.json"][..], &picture].concat());
        std::fs::read_to_string(folder.0.path().join("p.svg")).unwrap()
    };
    assert!(drawn("2").contains("against, ms") && drawn("2 D").contains("first step"));
    folder.write(
        "shapes.json",
        r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "s", "mode": "training"},
            "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[8, 8], [8, 8]]}]}"#,
    );
    for args in [["new.habitat.json", "--against", "shapes.json"], ["shapes.json", "--against", "new.habitat.json"]] {
        let error = folder.error(&args);
        assert!(error.contains("shapes.json: no step time was measured on a GPU"), "{error}");
    }
    assert!(folder.error(&["new.habitat.json", "--against", "none.json"]).contains("none.json"));
}

#[test]
fn the_json_follows_its_schema() {
    let folder = folder();
    let schema: Value = serde_json::from_str(&folder.ok(&["schema", "diff"])).unwrap();
    let found = folder.json(&TWO);
    let check = |schema: &Value, value: &Value| {
        for key in value.as_object().unwrap().keys() {
            assert!(schema["properties"][key].is_object(), "{key}");
        }
        for key in schema["required"].as_array().unwrap() {
            assert!(value.get(key.as_str().unwrap()).is_some(), "{key}");
        }
    };
    check(&schema, &found);
    check(&schema["$defs"]["PartJson"], &found["parts"][0]);
    check(&schema["$defs"]["RecordedJson"], &found["steps"][0]);
}
