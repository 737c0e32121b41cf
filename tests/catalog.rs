//! The whole catalog: names from drivers, names from users.

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

/// Name, capability, multiprocessors and memory as in `deviceProperties` of traces and in `nvidia-smi`.
#[test]
fn names_that_drivers_give() {
    for (name, capability, sms, gib, slug) in [
        ("NVIDIA H100 80GB HBM3", (9, 0), 132, 79.1, "h100-sxm5-80gb"),
        ("NVIDIA H100 PCIe", (9, 0), 114, 79.1, "h100-pcie-80gb"),
        ("NVIDIA H200", (9, 0), 132, 139.8, "h200-sxm-141gb"),
        ("NVIDIA H200 NVL", (9, 0), 132, 139.8, "h200-nvl-141gb"),
        ("NVIDIA H20", (9, 0), 78, 95.6, "h20"),
        ("NVIDIA B200", (10, 0), 148, 178.4, "b200"),
        ("NVIDIA B300 SXM6 AC", (10, 3), 148, 268.6, "b300"),
        ("NVIDIA GB200", (10, 0), 152, 184.0, "gb200"),
        ("NVIDIA GB300", (10, 3), 152, 277.5, "gb300"),
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
        ("Tesla V100-SXM3-32GB", (7, 0), 80, 31.7, "v100-sxm3-32gb"),
        ("Tesla V100-SXM3-32GB-H", (7, 0), 80, 31.7, "v100-sxm3-32gb-450w"),
        ("Tesla V100-PCIE-16GB", (7, 0), 80, 15.8, "v100-pcie-16gb"),
        ("Tesla P100-PCIE-16GB", (6, 0), 56, 15.9, "p100-pcie-16gb"),
        ("Tesla K80", (3, 7), 13, 11.2, "k80"),
        ("NVIDIA GeForce RTX 2080 Ti", (7, 5), 68, 10.8, "rtx-2080-ti"),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", (7, 5), 36, 7.8, "rtx-2070-max-q"),
        ("NVIDIA GeForce RTX 2080 SUPER", (7, 5), 48, 7.8, "rtx-2080-super"),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", (7, 5), 48, 7.8, "rtx-2080-super-max-q"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", (8, 6), 48, 15.7, "rtx-3080-laptop"),
        ("NVIDIA GeForce RTX 3080 Ti", (8, 6), 80, 11.8, "rtx-3080-ti"),
        ("NVIDIA GeForce RTX 4060", (8, 9), 24, 7.6, "rtx-4060"),
        ("NVIDIA GeForce RTX 4060 Ti", (8, 9), 34, 7.6, "rtx-4060-ti-8gb"),
        ("NVIDIA GeForce RTX 4060 Ti", (8, 9), 34, 15.6, "rtx-4060-ti-16gb"),
        ("NVIDIA GeForce RTX 4070 SUPER", (8, 9), 56, 11.6, "rtx-4070-super"),
        ("NVIDIA GeForce RTX 5070 Ti", (12, 0), 70, 15.5, "rtx-5070-ti"),
        ("NVIDIA RTX PRO 4500 Blackwell", (12, 0), 82, 31.3, "rtx-pro-4500-blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", (12, 0), 188, 94.9, "rtx-pro-6000-blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", (12, 0), 188, 94.9, "rtx-pro-6000-blackwell-max-q"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", (12, 0), 188, 94.9, "rtx-pro-6000-blackwell-server"),
        ("NVIDIA RTX 5000 Ada Generation", (8, 9), 100, 31.5, "rtx-5000-ada"),
        ("NVIDIA GeForce RTX 3090", (8, 6), 82, 23.7, "rtx-3090"),
        ("NVIDIA GeForce RTX 4090", (8, 9), 128, 23.6, "rtx-4090"),
        ("NVIDIA GeForce RTX 5090", (12, 0), 170, 31.4, "rtx-5090"),
        ("NVIDIA RTX A6000", (8, 6), 84, 47.5, "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", (8, 9), 142, 47.5, "rtx-6000-ada"),
        ("Quadro RTX 5000", (7, 5), 48, 15.7, "quadro-rtx-5000"),
        ("Quadro RTX 6000", (7, 5), 72, 23.6, "quadro-rtx-6000"),
    ] {
        assert_eq!(identify(name, capability, sms, gib).as_deref(), Some(slug), "{name}");
    }
    let amd = DeviceIdentity { name: "AMD Instinct MI300X VF".to_owned(), ..DeviceIdentity::default() };
    assert_eq!(Catalog::new(bundled::gpus()).identify(&amd).map(|gpu| gpu.slug.to_string()).as_deref(), Some("mi300x"));
}

fn recognised(name: &str, figures: Option<((u8, u8), u32, f64)>) -> Result<String, String> {
    let identity = DeviceIdentity {
        name: name.to_owned(),
        compute_capability: figures.map(|(capability, ..)| capability),
        sm_count: figures.map(|(_, sms, _)| sms),
        memory_bytes: figures.map(|(.., gib)| (gib * f64::from(1 << 30)) as u64),
    };
    let catalog = Catalog::new(bundled::gpus());
    catalog.recognise(&identity).map(|gpu| gpu.slug.to_string()).map_err(|reason| reason.to_string())
}

#[test]
fn names_without_a_number_and_names_of_two_boards() {
    for (name, figures, slug) in [
        ("NVIDIA TITAN RTX", ((7, 5), 72, 23.6), "titan-rtx"),
        ("TITAN RTX", ((7, 5), 72, 23.6), "titan-rtx"),
        ("NVIDIA TITAN V", ((7, 0), 80, 11.8), "titan-v"),
        ("NVIDIA TITAN Xp", ((6, 1), 30, 11.9), "titan-xp"),
        ("NVIDIA TITAN Xp COLLECTORS EDITION", ((6, 1), 30, 11.9), "titan-xp"),
        ("AMD Instinct MI250X / MI250", ((9, 0), 104, 64.0), "mi250-gcd"),
    ] {
        assert_eq!(recognised(name, Some(figures)).as_deref(), Ok(slug), "{name}");
    }
    assert_eq!(recognised("NVIDIA TITAN V", None).as_deref(), Ok("titan-v"));
    for (name, figures) in [
        ("NVIDIA TITAN X (Pascal)", ((6, 1), 28, 11.9)),
        ("NVIDIA GeForce GTX TITAN X", ((5, 2), 24, 11.9)),
        ("NVIDIA GeForce GTX TITAN Black", ((3, 5), 15, 6.0)),
    ] {
        let reason = recognised(name, Some(figures)).unwrap_err();
        assert_eq!(reason, format!("no GPU in the catalog matches {name:?}"));
    }
}

#[test]
fn gpus_without_a_name_are_recognised_by_their_figures() {
    for (figures, slug) in [
        (((9, 4), 304, 192.0), "mi300x"),
        (((9, 4), 304, 256.0), "mi325x"),
        (((9, 5), 256, 288.0), "mi355x"),
        (((9, 0), 120, 32.0), "mi100"),
        (((9, 0), 132, 79.1), "h100-sxm5-80gb"),
        (((7, 5), 40, 14.6), "t4"),
    ] {
        for name in ["", "NVIDIA Graphics Device", "AMD Radeon Graphics"] {
            assert_eq!(recognised(name, Some(figures)).as_deref(), Ok(slug), "{name:?} {figures:?}");
        }
    }
    // Figures that fit two boards, and none.
    let reason = recognised("", Some(((9, 0), 104, 64.0))).unwrap_err();
    assert!(reason.contains("mi210 or mi250-gcd"), "{reason}");
    let reason = recognised("", Some(((9, 9), 7, 3.0))).unwrap_err();
    assert_eq!(reason, "no GPU in the catalog matches \"7 multiprocessors, 3.0 GiB\"");
    assert!(recognised("", None).is_err());
}

#[test]
fn a_slice_of_a_gpu_is_not_the_whole_one() {
    for (name, figures) in [
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", Some(((8, 0), 14, 9.8))),
        ("NVIDIA A100-SXM4-80GB", Some(((8, 0), 14, 9.8))),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", Some(((9, 0), 132, 79.1))),
        ("NVIDIA H100 80GB HBM3", Some(((9, 0), 60, 39.3))),
    ] {
        let reason = recognised(name, figures).unwrap_err();
        let whole = if name.contains("A100") { "a100-sxm4-80gb" } else { "h100-sxm5-80gb" };
        assert!(reason.contains(&format!("is a MIG slice of {whole} (")), "{name}: {reason}");
    }
    let reason = recognised("NVIDIA GeForce RTX 3080", Some(((8, 6), 70, 11.8))).unwrap_err();
    assert!(reason.contains("another variant"), "{reason}");
}

/// If the name fits two boards, there is no guess.
#[test]
fn what_is_not_certain_is_left_open() {
    assert_eq!(identify("NVIDIA A100-PG509-200", (8, 0), 108, 39.4), None);
    assert_eq!(identify("NVIDIA X999", (9, 9), 1, 1.0), None);
    assert_eq!(identify("AMD Radeon Graphics", (9, 0), 104, 63.9), None);
    // Another board of the same chip and memory.
    assert_eq!(identify("NVIDIA GeForce RTX 4060 Laptop GPU", (8, 9), 24, 7.6), None);
    assert_eq!(identify("NVIDIA RTX 4000 SFF Ada Generation", (8, 9), 48, 19.5), None);
    // A name without a board variant fits several.
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
