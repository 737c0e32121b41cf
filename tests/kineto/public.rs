//! Public traces of real GPUs, in a folder beside the checkout; skipped without it.

use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use habitat_tui::profile::kineto::{Import, ImportOptions, KinetoError, import};

fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/traces");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} is not there", folder.display());
    None
}

fn read(path: &Path, options: &ImportOptions<'_>) -> Result<Import, KinetoError> {
    let mut open = || -> std::io::Result<Box<dyn Read>> {
        let file = std::fs::File::open(path)?;
        Ok(Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(file))))
    };
    import(&mut open, options, &mut |_| ControlFlow::Continue(()))
}

#[test]
fn table() {
    let Some(folder) = folder() else { return };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder.join("gpu"))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "gz"))
        .collect();
    paths.sort();
    for path in paths {
        let started = std::time::Instant::now();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match read(&path, &ImportOptions::default()) {
            Ok(Import { profile, summary }) => {
                let step = profile.step.unwrap();
                println!(
                    "{name}: {:?} {:?} {}/{} steps, {} ops, {:.1} kernels, joined {:.4}, step {:.3} ms, busy {:.3}, kernel time {:.3}, {:?} b{:?} s{:?} {:?} p{:?} mem {:?}, overlaps {} {:.0} MB/s",
                    profile.origin.as_ref().unwrap().gpu_name,
                    summary.marks,
                    summary.steps_used,
                    summary.steps_found,
                    profile.operations.len(),
                    summary.kernels_per_step,
                    summary.joined_share,
                    step.duration.unwrap().as_millis(),
                    step.device_busy.unwrap().as_millis(),
                    summary.kernel_time.as_millis(),
                    profile.workload.mode,
                    profile.workload.batch_size,
                    profile.workload.sequence_length,
                    profile.workload.precision,
                    profile.workload.parameter_count,
                    step.peak_memory_bytes,
                    summary.overlaps,
                    summary.bytes as f64 / 1e6 / started.elapsed().as_secs_f64()
                );
                for note in &profile.recording.unwrap().notes {
                    println!("    - {note}");
                }
                let mut times = std::collections::BTreeMap::<_, f64>::new();
                for op in &profile.operations {
                    *times.entry(op.phase).or_default() += op.total_device_time().unwrap().get();
                }
                println!("    {times:?}");
                let mut ops = profile.operations.clone();
                ops.sort_by(|a, b| b.total_device_time().unwrap().total_cmp(&a.total_device_time().unwrap()));
                for op in ops.iter().take(4) {
                    println!(
                        "      {} {:?} x{} {:?} -> {:?} {:?} {:?} {:.1} us m={:?} k={:?}",
                        op.name,
                        op.phase,
                        op.count,
                        &op.inputs.iter().take(4).collect::<Vec<_>>(),
                        op.outputs,
                        op.dtype,
                        op.attributes,
                        op.device_time.unwrap().get(),
                        op.module,
                        op.kernels
                            .iter()
                            .map(|k| (k.name.chars().take(40).collect::<String>(), k.count, k.grid))
                            .take(3)
                            .collect::<Vec<_>>()
                    );
                }
            }
            Err(error) => println!("{name}: ERROR {error}"),
        }
    }
}
