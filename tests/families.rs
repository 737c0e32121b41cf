//! Every operator that matters has a family and, if it has shapes, work: on the op lists and traces beside a checkout
//! (`../shared/data`). Without them each test reports what it skipped.

#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use habitat_tui::op::{Family, family, work};
use habitat_tui::profile::Profile;
use habitat_tui::store;
use habitat_tui::trace::import::ImportOptions;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "shared", "data", "traces", folder].iter().collect();
    let Ok(entries) = std::fs::read_dir(&folder) else {
        eprintln!("skipped: {} is not there", folder.display());
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "gz"));
    files.sort();
    files
}

fn trace(path: &Path) -> Option<Profile> {
    let options = ImportOptions { workload: "w".to_owned(), ..ImportOptions::default() };
    store::traces::import(&[path.to_owned()], &options, &mut |_| ControlFlow::Continue(())).ok().map(|it| it.profile)
}

/// Device time without a family, and with shapes but without work.
#[test]
fn the_device_time_of_recorded_steps_is_known_by_family() {
    for path in files("gpu") {
        let Some(profile) = trace(&path) else {
            eprintln!("{}: no profile", path.display());
            continue;
        };
        let mut gaps: BTreeMap<String, f64> = BTreeMap::new();
        let mut total = 0.0;
        for operation in &profile.operations {
            let time = operation.total_device_time().map_or(0.0, habitat_tui::units::Micros::get);
            let family = family(operation);
            total += time;
            if family == Family::Unknown {
                *gaps.entry(format!("no family: {}", operation.name)).or_default() += time;
            } else if !matches!(family, Family::View | Family::Communication)
                && !operation.inputs.is_empty()
                && work(operation, None).is_none()
            {
                *gaps.entry(format!("no work: {} {:?}", operation.name, operation.inputs)).or_default() += time;
            }
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let unknown = gaps.values().sum::<f64>() / total;
        // The contents of compiled regions, fused experts and look-ups of other libraries are unknown.
        let opaque = ["a100-80gb_recsys", "b200_gptoss", "v100_dlrm"].iter().any(|start| name.starts_with(start));
        assert!(unknown < if opaque { 0.6 } else { 0.01 }, "{name}: {unknown} {gaps:?}");
    }
}

/// Every operation of a step traced without running has a family and work.
#[test]
fn op_lists_are_known_in_full() {
    for path in files("fake") {
        let mut json = Vec::new();
        std::io::Read::read_to_end(&mut store::open(&path, store::Limit::PROFILE).unwrap(), &mut json).unwrap();
        let profile = habitat_tui::op_list::from_op_list(&json, "w").unwrap();
        for operation in &profile.operations {
            let family = family(operation);
            assert_ne!(family, Family::Unknown, "{}", operation.name);
            assert!(
                family == Family::View || work(operation, None).is_some(),
                "{} {:?}",
                operation.name,
                operation.inputs
            );
        }
        // FLOPs of products from PyTorch's own counter.
        let json = String::from_utf8(json).unwrap().replace("-Infinity", "null");
        let list: serde_json::Value = serde_json::from_str(&json).unwrap();
        let counted = list["info"]["flops"].as_f64().unwrap();
        let ours: f64 = profile
            .operations
            .iter()
            .filter(|operation| family(operation).varies_kernels())
            .map(|operation| work(operation, None).unwrap().flops.get() * f64::from(operation.count))
            .sum();
        assert!((ours / counted - 1.0).abs() < 0.01, "{}: {ours:e} {counted:e}", path.display());
    }
}
