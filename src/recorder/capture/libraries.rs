//! Places to search for cuBLASLt: a Python's packages, the system's search path, the usual folders.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Candidate names and paths of cuBLASLt, in the order to try them.
pub(super) fn of_products(python: Option<&Path>) -> Vec<PathBuf> {
    const NAMES: [&str; 4] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so"];
    let mut folders: Vec<PathBuf> = python.map(packages).unwrap_or_default();
    let given = folders.len();
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        let Some(root) = std::env::var_os(variable) else { continue };
        let lib = Path::new(&root).join("lib");
        folders.extend(sub_folders(&lib, "python3").into_iter().map(|python| python.join("site-packages")));
        folders.push(lib);
    }
    folders.extend(sub_folders(Path::new("/usr/local"), "cuda").into_iter().map(|cuda| cuda.join("lib64")));
    let within = |folder: &PathBuf| -> Vec<PathBuf> {
        // NVIDIA's packages use nvidia/cublas (up to CUDA 12) and nvidia/cu13.
        ["nvidia/cu13/lib", "nvidia/cublas/lib", "lib", ""].iter().map(|place| folder.join(place)).collect()
    };
    let (first, rest) = folders.split_at(given);
    let in_folders = |folders: &[PathBuf]| -> Vec<PathBuf> {
        let places = folders.iter().flat_map(within);
        places.flat_map(|place| NAMES.map(|name| place.join(name))).filter(|path| path.is_file()).collect()
    };
    // A name without a folder is searched by the system: LD_LIBRARY_PATH and so on.
    [in_folders(first), NAMES.map(PathBuf::from).to_vec(), in_folders(rest)].concat()
}

/// Subfolders whose names have this prefix, last name first.
fn sub_folders(folder: &Path, start: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start)))
        .collect();
    found.sort();
    found.reverse();
    found
}

/// Package folders of a Python; empty if it cannot be run.
fn packages(python: &Path) -> Vec<PathBuf> {
    let script = "import sysconfig, site; print('\\n'.join([sysconfig.get_path('platlib')] + site.getsitepackages()))";
    let asked = Command::new(python).args(["-c", script]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = asked.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let mut found: Vec<PathBuf> = text.lines().filter(|line| !line.is_empty()).map(PathBuf::from).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_packages_of_the_python_named_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let site = folder.path().join("site");
        for (place, name) in [("nvidia/cublas/lib", "libcublasLt.so.12"), ("nvidia/cu13/lib", "libcublasLt.so.13")] {
            std::fs::create_dir_all(site.join(place)).unwrap();
            std::fs::write(site.join(place).join(name), "").unwrap();
        }
        let python = folder.path().join("python");
        std::fs::write(&python, format!("#!/bin/sh\necho {0}\necho {0}\n", site.display())).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let found = of_products(Some(&python));
        assert_eq!(found[0], site.join("nvidia/cu13/lib/libcublasLt.so.13"));
        assert_eq!(found[1], site.join("nvidia/cublas/lib/libcublasLt.so.12"));
        assert_eq!(found.iter().filter(|path| path.starts_with(&site)).count(), 2);
        // Then the system's search path; a missing Python has no packages.
        assert_eq!(found[2], Path::new("libcublasLt.so.13"));
        assert_eq!(of_products(Some(Path::new("/nowhere/python")))[0], Path::new("libcublasLt.so.13"));
    }
}
