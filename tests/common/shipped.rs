//! Catalog and samples of this repository, for the unit tests of crates below `store`.

use std::path::{Path, PathBuf};

use habitat_step::catalog::{Catalog, GpuSpec, Layer};
use habitat_step::profile::Profile;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All shipped GPUs.
pub(crate) fn catalog() -> Catalog {
    let files = std::fs::read_dir(root().join("catalog")).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    let parsed = |path: PathBuf| GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap();
    Catalog::new(files.map(parsed).collect::<Vec<_>>())
}

/// A sample of `profiler/samples`, by its file name without extension.
pub(crate) fn sample(name: &str) -> Profile {
    let path = root().join(format!("profiler/samples/{name}.habitat.json.zst"));
    let json = zstd::decode_all(std::fs::File::open(path).unwrap()).unwrap();
    Profile::from_json(&json).unwrap().0
}
