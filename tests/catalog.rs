//! The catalog as a whole: names that drivers give, names that users type.

#![allow(clippy::unwrap_used, missing_docs)]

use habitat_tui::catalog::{Catalog, DeviceIdentity};
use habitat_tui::store::bundled;

fn identify(name: &str, capability: (u8, u8), sms: u32, gib: f64) -> Option<String> {
    let catalog = Catalog::new(bundled::gpus());
    let identity = DeviceIdentity {
        name: name.to_owned(),
        compute_capability: Some(capability),
        sm_count: Some(sms),
        memory_bytes: Some((gib * 1_073_741_824.0) as u64),
    };
    catalog.identify(&identity).map(|gpu| gpu.slug.to_string())
}

/// Name, capability, multiprocessors and memory as `deviceProperties` of traces and
/// `nvidia-smi` give them.
#[test]
fn names_that_drivers_give() {
    for (name, capability, sms, gib, slug) in [
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, 79.1, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", (9, 0), 114, 79.1, "h100-pcie-80gb"),
        ("NVIDIA H200", (9, 0), 132, 139.8, "h200-sxm-141gb"),
        ("NVIDIA B200", (10, 0), 148, 178.4, "b200"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 79.2, "a100-sxm4-80gb"),
        ("NVIDIA A100-SXM4-40GB", (8, 0), 108, 39.4, "a100-sxm4-40gb"),
        ("NVIDIA A100 80GB PCIe", (8, 0), 108, 79.2, "a100-pcie-80gb"),
        ("NVIDIA A100-PCIE-40GB", (8, 0), 108, 39.4, "a100-pcie-40gb"),
        ("NVIDIA A10G", (8, 6), 80, 22.1, "a10g"),
        ("NVIDIA A10", (8, 6), 72, 22.1, "a10"),
        ("NVIDIA L4", (8, 9), 58, 22.0, "l4"),
        ("NVIDIA L40S", (8, 9), 142, 44.4, "l40s"),
        ("Tesla T4", (7, 5), 40, 14.6, "t4"),
        ("Tesla V100-SXM2-16GB", (7, 0), 80, 15.8, "v100-sxm2-16gb"),
        ("Tesla V100-SXM2-32GB", (7, 0), 80, 31.7, "v100-sxm2-32gb"),
        ("Tesla V100-DGXS-32GB", (7, 0), 80, 31.7, "v100-sxm2-32gb"),
        ("Tesla V100-PCIE-16GB", (7, 0), 80, 15.8, "v100-pcie-16gb"),
        ("Tesla P100-PCIE-16GB", (6, 0), 56, 15.9, "p100-pcie-16gb"),
        ("Tesla K80", (3, 7), 13, 11.2, "k80"),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 10.8, "rtx-2080-ti"),
        ("NVIDIA GeForce RTX 3090", (8, 6), 82, 23.7, "rtx-3090"),
        ("NVIDIA GeForce RTX 4090", (8, 9), 128, 23.6, "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", (12, 0), 170, 31.4, "rtx-5090"),
        ("NVIDIA RTX A6000", (8, 6), 84, 47.5, "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 47.5, "rtx-6000-ada"),
        ("Quadro RTX 6000", (7, 5), 72, 23.6, "quadro-rtx-6000"),
    ] {
        assert_eq!(identify(name, capability, sms, gib).as_deref(), Some(slug), "{name}");
    }
    let amd = DeviceIdentity { name: "AMD Instinct MI300X VF".to_owned(), ..DeviceIdentity::default() };
    assert_eq!(Catalog::new(bundled::gpus()).identify(&amd).map(|gpu| gpu.slug.to_string()).as_deref(), Some("mi300x"));
}

/// Where the name leaves two boards, none is guessed.
#[test]
fn what_is_not_certain_is_left_open() {
    assert_eq!(identify("NVIDIA A100-PG509-200", (8, 0), 108, 39.4), None);
    assert_eq!(identify("NVIDIA X999", (9, 9), 1, 1.0), None);
    assert_eq!(identify("AMD Radeon Graphics", (9, 0), 104, 63.9), None);
    // A name alone, without a board variant, fits several.
    let bare = DeviceIdentity { name: "NVIDIA A100".to_owned(), ..DeviceIdentity::default() };
    assert_eq!(Catalog::new(bundled::gpus()).identify(&bare), None);
}

#[test]
fn names_that_users_type() {
    let catalog = Catalog::new(bundled::gpus());
    assert_eq!(catalog.find("T4").unwrap().slug.as_str(), "t4");
    assert_eq!(catalog.find("tesla t4").unwrap().slug.as_str(), "t4");
    let unknown = catalog.find("h100").unwrap_err();
    assert!(unknown.near.iter().any(|slug| slug == "h100-sxm5-80gb"), "{unknown}");
    assert!(catalog.find("").is_err());
}
