//! What a plan may use, as it is typed, set and written in files of prices.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

#[path = "common/program.rs"]
mod program;

use program::Folder;
use serde_json::Value;

/// A step of a product measured on a V100.
const PROFILE: &str = r#"{"format": "habitat-profile", "version": 1,
  "workload": {"name": "tiny", "mode": "training", "batch_size": 64, "precision": "fp32", "parameter_count": 1000000},
  "origin": {"gpu": "v100-sxm2-16gb"},
  "step": {"duration_us": 1000.0, "device_busy_us": 900.0, "peak_memory_bytes": 4000000000},
  "operations": [
    {"name": "aten::mm", "phase": "forward", "inputs": [[4096, 1024], [1024, 1024]], "outputs": [[4096, 1024]], "dtype": "float32", "device_time_us": 900.0}]}"#;

const OWN: &str = r#"schema = 1
provider = "lab"
[[offer]]
region = "office"
instance_type = "box"
gpu = "v100-sxm2-16gb"
gpu_count = 1
tier = "owned"
kw = 0.35
usd_per_kwh = 0.20
scope = "instance_total"
source = "meter"
[[offer]]
region = "office"
instance_type = "contract"
gpu = "v100-sxm2-16gb"
gpu_count = 1
tier = "reserved"
paid_usd_per_hour = 1.5
scope = "instance_total"
source = "contract 17"
"#;

const PLAN: [&str; 4] = ["plan", "p.habitat.json", "--samples", "1e9"];

fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("p.habitat.json", PROFILE);
    folder.write("config/pricing/own.toml", OWN);
    folder
}

fn plan(folder: &Folder, more: &[&str]) -> Value {
    folder.json(&[&PLAN[..], more].concat())
}

fn refused(folder: &Folder, more: &[&str]) -> String {
    folder.error(&[&PLAN[..], more].concat())
}

#[test]
fn own_machines_are_checked_listed_and_planned_with() {
    let folder = folder();
    assert!(folder.ok(&["check", "config/pricing/own.toml"]).contains("price file of lab, 2 offers"));
    folder.write("wrong.toml", &OWN.replace("kw = 0.35\n", ""));
    assert!(folder.error(&["check", "wrong.toml"]).contains("offer 1 (box in office): kw: missing"));

    let listed = folder.ok(&["offers", "lab"]);
    assert!(listed.contains("lab/office/box/owned") && listed.contains("0.35 kW × PUE 1 × $0.2/kWh"), "{listed}");
    assert!(!folder.ok(&["offers", "aws", "--gpu", "t4"]).contains("price made of"));
    let offers = folder.json(&["offers", "lab"]);
    assert_eq!(offers["offers"][0]["paid_usd_per_hour"], 1.5);
    assert_eq!(offers["offers"][0]["price_usd_per_hour"], 0.0);

    let own = plan(&folder, &["--tiers", "owned"]);
    let part = &own["parts"][0];
    assert_eq!((part["offer"].as_str(), part["tier"].as_str()), (Some("lab/office/box/owned"), Some("owned")));
    let (hours, cost) = (&part["hours"]["mid"], &part["cost_usd"]["mid"]);
    assert!((cost.as_f64().unwrap() - hours.as_f64().unwrap() * 0.07).abs() < 1e-9, "{part}");
    // A contract that is paid costs nothing more, and what it has cost is said.
    let paid = plan(&folder, &["--tiers", "reserved,owned"]);
    assert_eq!(paid["parts"][0]["offer"], "lab/office/contract/reserved");
    assert_eq!(paid["parts"][0]["cost_usd"]["mid"], 0.0);
    assert!(paid["parts"][0]["notes"].to_string().contains("$1.5/h already paid, not in the cost"), "{paid}");
}
