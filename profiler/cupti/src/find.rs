//! Chooses a CUPTI among several.
//!
//! A process may have only one, and it must not be newer than the driver. In order: the one that is already loaded; the
//! one of the CUDA runtime that is loaded; the one that the loader finds for the driver's version and older ones; that
//! of an installed toolkit.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::settings::LIBRARY;

/// Newest CUPTI version to look for.
const NEWEST: u32 = 13;
/// Oldest version whose records have all fields that we read.
const OLDEST: u32 = 11;

/// Paths and names to load, in order. `maps` is the text of `/proc/self/maps`, `driver` the driver's CUDA version
/// (12040 for 12.4).
pub fn candidates(maps: &str, driver: u32, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let given = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = given(LIBRARY) {
        return vec![path];
    }
    if let Some(path) = mapped(maps, "libcupti.so").next() {
        return vec![path.to_owned()];
    }
    let mut found = Vec::new();
    let newest = (driver / 1000).clamp(OLDEST, NEWEST);
    let file = |major: u32| {
        // CUDA 11 uses the full version in the name; its unversioned link is only for builds.
        if major == 11 { "libcupti.so".to_owned() } else { format!("libcupti.so.{major}") }
    };
    let mut majors: Vec<u32> = (OLDEST..=newest).rev().collect();
    for runtime in mapped(maps, "libcudart.so.") {
        let name = runtime.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let major = name.trim_start_matches("libcudart.so.").split('.').next().and_then(|major| major.parse().ok());
        let (Some(major), Some(folder)) = (major, runtime.parent()) else { continue };
        // Toolkit and PyPI packages for CUDA 13, older PyPI packages, Debian-like layouts.
        for folder in [
            folder.to_owned(),
            folder.join("../../cuda_cupti/lib"),
            folder.join("../extras/CUPTI/lib64"),
            folder.join("../../../extras/CUPTI/lib64"),
        ] {
            found.push(folder.join(file(major)));
        }
        majors.sort_by_key(|other| *other != major);
    }
    found.extend(majors.iter().map(|major| PathBuf::from(file(*major))));
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(given);
    let installed = majors.iter().map(|major| PathBuf::from(format!("/usr/local/cuda-{major}")));
    for toolkit in toolkits.chain([PathBuf::from("/usr/local/cuda")]).chain(installed) {
        for folder in ["extras/CUPTI/lib64", "lib64", "targets/x86_64-linux/lib"] {
            found.extend(majors.iter().map(|major| toolkit.join(folder).join(file(*major))));
        }
    }
    found
}

/// Mapped files whose names have this prefix.
fn mapped<'a>(maps: &'a str, prefix: &'a str) -> impl Iterator<Item = &'a Path> + 'a {
    maps.lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .map(Path::new)
        .filter(move |path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(maps: &str, driver: u32, variables: &[(&str, &str)]) -> Vec<String> {
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value));
        candidates(maps, driver, variable).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn what_is_loaded_or_given_is_taken_alone() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /opt/x/libcupti.so.12\n7f02-7f03 rw-p 0 0 0 [heap]\n";
        assert_eq!(found(maps, 13000, &[]), ["/opt/x/libcupti.so.12"]);
        assert_eq!(found(maps, 13000, &[(LIBRARY, "/my/libcupti.so")]), ["/my/libcupti.so"]);
    }

    #[test]
    fn the_runtimes_own_comes_before_the_drivers() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /v/nvidia/cuda_runtime/lib/libcudart.so.12\n";
        let paths = found(maps, 13020, &[("CUDA_HOME", "/cuda")]);
        assert_eq!(paths[0], "/v/nvidia/cuda_runtime/lib/libcupti.so.12");
        assert_eq!(paths[1], "/v/nvidia/cuda_runtime/lib/../../cuda_cupti/lib/libcupti.so.12");
        let names: Vec<_> = paths.iter().filter(|path| !path.contains('/')).collect();
        assert_eq!(names, ["libcupti.so.12", "libcupti.so.13", "libcupti.so"]);
        assert!(paths.contains(&"/cuda/extras/CUPTI/lib64/libcupti.so.12".to_owned()));
    }

    #[test]
    fn none_is_newer_than_the_driver() {
        for path in found("", 12040, &[]) {
            assert!(!path.contains("so.13"), "{path}");
        }
        assert_eq!(found("", 99000, &[])[0], "libcupti.so.13");
        assert_eq!(found("", 0, &[])[0], "libcupti.so");
    }
}
