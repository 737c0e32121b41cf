//! Files of this folder that the program embeds: the code that runs inside a job, and the samples.
//!
//! A separate package, so that the crate that records jobs and the program can both embed them.

/// The Python that `run` loads into the job: path and content of each file.
pub const HOOK: [(&str, &[u8]); 18] = [
    ("sitecustomize.py", include_bytes!("hook/sitecustomize.py")),
    ("habitat_hook/__init__.py", include_bytes!("hook/habitat_hook/__init__.py")),
    ("habitat_hook/backward.py", include_bytes!("hook/habitat_hook/backward.py")),
    ("habitat_hook/data.py", include_bytes!("hook/habitat_hook/data.py")),
    ("habitat_hook/extent.py", include_bytes!("hook/habitat_hook/extent.py")),
    ("habitat_hook/growth.py", include_bytes!("hook/habitat_hook/growth.py")),
    ("habitat_hook/guard.py", include_bytes!("hook/habitat_hook/guard.py")),
    ("habitat_hook/hook.py", include_bytes!("hook/habitat_hook/hook.py")),
    ("habitat_hook/inputs.py", include_bytes!("hook/habitat_hook/inputs.py")),
    ("habitat_hook/limits.py", include_bytes!("hook/habitat_hook/limits.py")),
    ("habitat_hook/link.py", include_bytes!("hook/habitat_hook/link.py")),
    ("habitat_hook/memory.py", include_bytes!("hook/habitat_hook/memory.py")),
    ("habitat_hook/optimizers.py", include_bytes!("hook/habitat_hook/optimizers.py")),
    ("habitat_hook/process.py", include_bytes!("hook/habitat_hook/process.py")),
    ("habitat_hook/pytorch.py", include_bytes!("hook/habitat_hook/pytorch.py")),
    ("habitat_hook/signals.py", include_bytes!("hook/habitat_hook/signals.py")),
    ("habitat_hook/times.py", include_bytes!("hook/habitat_hook/times.py")),
    ("habitat_hook/window.py", include_bytes!("hook/habitat_hook/window.py")),
];

/// The Python of `trace-shapes`: path and content of each file.
pub const SHAPES: [(&str, &[u8]); 15] = [
    ("start.py", include_bytes!("shapes/start.py")),
    ("habitat_shapes/__init__.py", include_bytes!("shapes/habitat_shapes/__init__.py")),
    ("habitat_shapes/as_on_gpu.py", include_bytes!("shapes/habitat_shapes/as_on_gpu.py")),
    ("habitat_shapes/drive.py", include_bytes!("shapes/habitat_shapes/drive.py")),
    ("habitat_shapes/failure.py", include_bytes!("shapes/habitat_shapes/failure.py")),
    ("habitat_shapes/flex.py", include_bytes!("shapes/habitat_shapes/flex.py")),
    ("habitat_shapes/jagged.py", include_bytes!("shapes/habitat_shapes/jagged.py")),
    ("habitat_shapes/losses.py", include_bytes!("shapes/habitat_shapes/losses.py")),
    ("habitat_shapes/memory.py", include_bytes!("shapes/habitat_shapes/memory.py")),
    ("habitat_shapes/compiled.py", include_bytes!("shapes/habitat_shapes/compiled.py")),
    // The file of the hook: it imports nothing else of it.
    ("habitat_shapes/pytorch.py", include_bytes!("hook/habitat_hook/pytorch.py")),
    ("habitat_shapes/recorder.py", include_bytes!("shapes/habitat_shapes/recorder.py")),
    ("habitat_shapes/norms.py", include_bytes!("shapes/habitat_shapes/norms.py")),
    ("habitat_shapes/recurrent.py", include_bytes!("shapes/habitat_shapes/recurrent.py")),
    ("habitat_shapes/values.py", include_bytes!("shapes/habitat_shapes/values.py")),
];

/// The Python of `collect`.
pub const COLLECT: &str = include_str!("collect/habitat_collect.py");

/// The kernels that `calibrate` times, as PTX (source: `gpu/kernels.cu`).
pub const KERNELS: &str = include_str!("gpu/kernels.ptx");

/// A recorded step of BERT-large in BF16 on an H100, batch 32: a profile, packed by zstd.
pub const BERT_LARGE_H100: &[u8] = include_bytes!("samples/bert-large-h100-b32.habitat.json.zst");

/// A recorded step of ResNet-50 on an H200, batch 256: a profile, packed by zstd.
pub const RESNET50_H200: &[u8] = include_bytes!("samples/resnet50-h200-b256.habitat.json.zst");

/// A recorded step of ResNet-50 in FP32 on a V100, batch 32: a profile, packed by zstd.
pub const RESNET50_V100: &[u8] = include_bytes!("samples/resnet50-v100-b32.habitat.json.zst");

/// The recorder for CUDA programs (`cupti`), in release builds on Linux (`build.rs`).
#[cfg(has_recorder)]
pub const RECORDER: Option<&[u8]> = Some(include_bytes!(concat!(env!("OUT_DIR"), "/libhabitat_cupti.so")));
/// The recorder for CUDA programs: not in this build.
#[cfg(not(has_recorder))]
pub const RECORDER: Option<&[u8]> = None;

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn every_python_file_is_embedded() {
        let shared = "habitat_shapes/pytorch.py".to_owned();
        for (folder, within, files, of_the_hook) in [
            ("hook", "habitat_hook/", super::HOOK.iter(), None),
            ("shapes", "habitat_shapes/", super::SHAPES.iter(), Some(shared)),
        ] {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            let is_python = |name: &str| Path::new(name).extension().is_some_and(|extension| extension == "py");
            let is_file = |name: &String| is_python(name) && name != "bench.py";
            let names = |within: &str| {
                let entries = std::fs::read_dir(root.join(within)).unwrap();
                entries.map(|entry| format!("{within}{}", entry.unwrap().file_name().display())).collect::<Vec<_>>()
            };
            let mut found: Vec<String> = [names(""), names(within)].concat().into_iter().filter(is_file).collect();
            found.extend(of_the_hook);
            found.sort();
            let mut embedded: Vec<&str> = files.map(|(name, _)| *name).collect();
            embedded.sort_unstable();
            assert_eq!(found, embedded);
        }
    }
}
