//! Shipped data against its source tables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use habitat_tui::pricing::import::{self, Origin};
use habitat_tui::pricing::{Row as PriceRow, Scope, Tier};
use habitat_tui::store::bundled;

use crate::needs::shared;

trials! {
    with (shared("gpus/gpus.csv")) => [every_gpu_of_the_table_is_in_the_catalog_with_its_figures_and_doubts],
    with (shared("prices-2026-11/offers.csv")) => [every_offer_is_in_a_table_and_every_machine_of_the_newer_is_shipped],
    with (shared("prices/raw")) => [every_published_catalog_is_imported_as_it_is_shipped],
}

type Row = BTreeMap<String, String>;

fn table(path: &Path) -> Vec<Row> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

fn number(row: &Row, key: &str) -> Option<f64> {
    row[key].parse().ok()
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs(),
        _ => false,
    }
}

fn every_gpu_of_the_table_is_in_the_catalog_with_its_figures_and_doubts(path: &Path) {
    let rows = table(path);
    let gpus: BTreeMap<String, _> = bundled::gpus().into_iter().map(|gpu| (gpu.slug.to_string(), gpu)).collect();
    assert!(rows.len() <= gpus.len());
    for row in rows {
        let gpu = &gpus[&row["slug"]];
        let check = |key: &str, ours: Option<f64>| {
            assert!(close(ours, number(&row, key)), "{} {key}: {ours:?} {}", row["slug"], row[key]);
        };
        // The table has one row for boards that are several entries now.
        let is_split = row["slug"] == "rtx-pro-6000-blackwell";
        assert!(gpu.name == row["name"] || is_split, "{}", gpu.name);
        assert_eq!(gpu.architecture, row["architecture"]);
        assert_eq!(
            gpu.compute_capability.map_or(String::new(), |(major, minor)| format!("{major}.{minor}")),
            row["compute_capability"]
        );
        check("sm_count", Some(f64::from(gpu.sm_count)));
        check("fp32_cores_per_sm", Some(f64::from(gpu.fp32_cores_per_sm)));
        check("boost_clock_mhz", Some(gpu.boost_clock.get()));
        check("memory_gb", Some(gpu.memory_gib()));
        check("memory_bandwidth_gbps", Some(gpu.memory_bandwidth.get() / 1e9));
        check("measured_bandwidth_gbps", gpu.measured_bandwidth.map(|rate| rate.get() / 1e9));
        check("l2_cache_mb", gpu.l2_cache.map(|size| size.get() / 1_048_576.0));
        check("fp32_tflops", Some(gpu.peak.fp32.get() / 1e12));
        check("tf32_tensor_tflops_dense", gpu.peak.tf32_tensor.map(|rate| rate.get() / 1e12));
        check("fp16_tensor_tflops_dense", gpu.peak.fp16_tensor.map(|rate| rate.get() / 1e12));
        check("bf16_tensor_tflops_dense", gpu.peak.bf16_tensor.map(|rate| rate.get() / 1e12));
        check("fp8_tensor_tflops_dense", gpu.peak.fp8_tensor.map(|rate| rate.get() / 1e12));
        check("max_threads_per_sm", gpu.limits.map(|limits| f64::from(limits.threads)));
        check("max_blocks_per_sm", gpu.limits.map(|limits| f64::from(limits.blocks)));
        check("max_warps_per_sm", gpu.limits.map(|limits| f64::from(limits.warps)));
        check("registers_per_sm", gpu.limits.map(|limits| f64::from(limits.registers)));
        check("shared_memory_per_sm_kb", gpu.limits.map(|limits| limits.shared_memory_bytes as f64 / 1024.0));
        check("nvlink_gbps_bidirectional", gpu.nvlink.map(|rate| rate.get() / 1e9));
        check("tdp_w", gpu.power.map(habitat_tui::units::Watts::get));
        for doubt in row["source"]
            .split_once("unconfirmed:")
            .map_or("", |(_, doubts)| doubts)
            .split(';')
            .map(str::trim)
            .filter(|doubt| !doubt.is_empty())
        {
            assert!(gpu.unconfirmed.iter().any(|kept| kept == doubt), "{}: {doubt:?} is lost", row["slug"]);
        }
    }
}

/// An offer of a table: its id, price, date, and number of GPUs.
type Known = (String, u64, String, String);

fn cents(price: f64) -> u64 {
    (price * 1e6).round() as u64
}

/// The offers of a table. `8x H100 SXM (spot)` of the newer one is shipped as a spot price of `8x H100 SXM`; the date
/// of some spot prices is in a remark.
fn known(rows: &[Row]) -> BTreeMap<Known, &Row> {
    let mut all = BTreeMap::new();
    for row in rows {
        let named = &row["instance_type"];
        let machine = [" (spot)", " (preemptible)"].iter().find_map(|end| named.strip_suffix(end)).unwrap_or(named);
        let remark = row.get("doubt").map_or("", String::as_str);
        let spot_date = remark.split_once("spot is of ").map(|(_, rest)| rest[..10].to_owned());
        for (tier, key) in [("on-demand", "on_demand_usd_per_hour"), ("spot", "spot_usd_per_hour")] {
            let Some(price) = number(row, key) else { continue };
            let id = format!("{}/{}/{machine}/{tier}", row["provider"], row["region"]);
            let date = spot_date.clone().filter(|_| tier == "spot").unwrap_or_else(|| row["as_of"].clone());
            all.insert((id, cents(price), date, row["gpu_count"].clone()), row);
        }
    }
    all
}

fn every_offer_is_in_a_table_and_every_machine_of_the_newer_is_shipped(path: &Path) {
    let (newer, older) = (table(path), table(&path.with_file_name("../prices/offers.csv")));
    let (new, old) = (known(&newer), known(&older));
    let (mut from_new, mut from_old, mut multiples) = (0, 0, 0);
    let mut shipped = BTreeSet::new();
    for offer in bundled::offers() {
        let date = offer.as_of.map_or(String::new(), |date| date.to_string());
        let key = (offer.id.to_string(), cents(offer.price.get()), date.clone(), offer.gpu_count.to_string());
        shipped.insert((offer.provider.clone(), offer.instance_type.clone(), offer.tier));
        assert!(!offer.source.is_empty());
        if let Some(row) = new.get(&key) {
            from_new += 1;
            assert_eq!(offer.trust.market.name() == "peer-to-peer", row["marketplace"] == "true", "{}", offer.id);
            assert_eq!(offer.gpu_name, row["gpu"], "{}", offer.id);
            let is_doubted = row["price_scope"] == "gpu_only" || row["doubt"].contains("OUTLIER");
            assert!(!is_doubted || offer.unusable.is_some(), "{} must not be used: {}", offer.id, row["doubt"]);
        } else if let Some(row) = old.get(&key) {
            from_old += 1;
            let is_whole = matches!(row["price_scope"].as_str(), "instance_total" | "composed")
                && !row["price_note"].contains("SUSPECT");
            assert!(is_whole || offer.unusable.is_some(), "{} must not be used: {}", offer.id, row["price_note"]);
        } else {
            // A multiple of the rate of one GPU.
            multiples += 1;
            assert!(
                offer.note.as_ref().is_some_and(|note| note.contains("the size is of an earlier list")),
                "{}",
                offer.id
            );
            let one = offer.id.to_string().replacen(&format!("{}x ", offer.gpu_count), "1x ", 1);
            let price = cents(offer.price.get() / f64::from(offer.gpu_count));
            assert!(new.contains_key(&(one, price, date, "1".to_owned())), "{}", offer.id);
        }
    }
    println!("{from_new} offers are of the newer table, {from_old} of the older one, {multiples} multiples of a rate");
    // Not all regions are shipped, but all machines; a spot price may be missing if the newer table has it for the same
    // machine.
    for row in &newer {
        let named = &row["instance_type"];
        let machine = [" (spot)", " (preemptible)"].iter().find_map(|end| named.strip_suffix(end)).unwrap_or(named);
        for (tier, key) in [(Tier::OnDemand, "on_demand_usd_per_hour"), (Tier::Spot, "spot_usd_per_hour")] {
            let machine = (row["provider"].clone(), machine.to_owned(), tier);
            assert!(number(row, key).is_none() || shipped.contains(&machine), "{machine:?} is not shipped");
        }
    }
}

/// The published catalogs, and the source that the shipped prices name for them.
const CATALOGS: [(&str, &str, &str); 16] = [
    ("aws", "aws_excerpt.csv", "skypilot-org/"),
    ("azure", "azure_gpu_rows.csv", "anycloud-sh/"),
    ("do", "do.csv", "skypilot-org/"),
    ("fluidstack", "fluidstack.csv", "skypilot-org/"),
    ("gcp", "gcp_us_gpu_rows.csv", "anycloud-sh/"),
    ("hyperbolic", "hyperbolic.csv", "skypilot-org/"),
    ("hyperstack", "hyperstack.csv", "skypilot-org/"),
    ("jarvislabs", "jarvislabs.csv", "skypilot-org/"),
    ("lambda", "lambda.csv", "anycloud-sh/"),
    ("nebius", "nebius.csv", "skypilot-org/"),
    ("paperspace", "paperspace.csv", "skypilot-org/"),
    ("runpod", "runpod_v5.csv", "/v5/"),
    ("runpod", "runpod_v6.csv", "/v6/"),
    ("runpod", "runpod_v8_head.csv", "/v8/"),
    ("vast", "vast.csv", "anycloud-sh/"),
    ("verda", "verda.csv", "skypilot-org/"),
];

fn every_published_catalog_is_imported_as_it_is_shipped(folder: &Path) {
    let shipped: BTreeMap<String, _> =
        bundled::prices().into_iter().map(|file| (file.provider.clone(), file.offers)).collect();
    let mut compared = 0;
    for (provider, file, made_of) in CATALOGS {
        let bytes = std::fs::read(folder.join(file)).unwrap();
        let origin = Origin { provider: Some(provider), source: file, as_of: None, dated_by: None };
        let imported = import::read(&bytes, origin).unwrap().remove(0);
        imported.check().unwrap();
        let key = |row: &PriceRow| (row.region.clone(), row.instance_type.clone());
        let ours: BTreeMap<_, &PriceRow> = imported.snapshot.offers.iter().map(|row| (key(row), row)).collect();
        let is_whole = |row: &&PriceRow| matches!(row.scope, Scope::InstanceTotal | Scope::Composed);
        let from_here = shipped[provider]
            .iter()
            .filter(|row| row.source.contains(made_of) && row.source.contains(provider))
            .filter(is_whole);
        for row in from_here {
            let (region, machine) = key(row);
            let Some(own) = ours.get(&key(row)) else { panic!("{provider}/{region}/{machine} is not imported") };
            let place = format!("{provider}/{region}/{machine}");
            assert_eq!((own.gpu_count, &own.gpu, own.scope), (row.gpu_count, &row.gpu, row.scope), "{place}");
            assert_eq!((own.suspect.is_some(), own.market), (row.suspect.is_some(), row.market), "{place}");
            let price = |price: Option<habitat_tui::units::UsdPerHour>| price.map(habitat_tui::units::UsdPerHour::get);
            let (on_demand, spot) = (price(row.on_demand), price(row.spot));
            let near = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(a == b, |(a, b)| (a - b).abs() < 1e-5);
            // Some machines are shipped only with a spot price: a newer list has the other.
            if on_demand.is_some() {
                assert!(near(price(own.on_demand), on_demand), "{place}: {:?}, not {on_demand:?}", own.on_demand);
            }
            // A spot price equal to the on-demand price is not imported.
            let spot = spot.filter(|spot| on_demand.is_none_or(|on_demand| *spot < on_demand));
            if spot.is_some() {
                assert!(near(price(own.spot), spot), "{place}: spot {:?}, not {spot:?}", own.spot);
            }
            compared += 1;
        }
    }
    assert!(compared >= 80, "only {compared} rows were compared");
}
