//! `habitat-tui calibrate`: measures what the GPU of this machine reaches and writes it as a calibration of its catalog
//! entry.

use std::io::Write;
use std::path::PathBuf;

use super::error::{At, CliError};
use super::gpu;
use super::output::{check_new, make_folder, print_json};
use super::progress::Progress;
use crate::settings::args::CalibrateArgs;
use crate::store::{self, Paths};
use crate::terminal;
use habitat_recorder::capture::calibrate::{Device, Outcome, calibrate};
use habitat_recorder::capture::device::Gpu;
use habitat_reports::calibration;
use habitat_step::catalog::{Calibration, Catalog, DeviceIdentity, GpuSpec};

/// Utilisation in percent above which the GPU counts as in use by others.
const BUSY: u32 = 10;

pub(super) fn run(args: &CalibrateArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    if let Some(path) = &args.output {
        check_new(path, args.force)?;
    }
    let named = args.gpu.as_ref().map(|name| gpu::one(&catalog, "--gpu", name)).transpose()?;
    let mut gpu = Gpu::open(args.device, args.python.as_deref()).at("calibrate")?;
    let entry = match named {
        Some(entry) => entry,
        None => identify(&gpu, &catalog)?,
    };
    let unused = unused(&gpu, args.in_use)?;
    let date = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let program = format!("habitat-tui {}", env!("CARGO_PKG_VERSION"));
    let mut progress = Progress::new("measuring");
    let mut done = 0;
    let outcome = calibrate(&mut gpu, entry, &date, &program, &mut |what| {
        progress.show(done, STEPS, what);
        done += 1;
    });
    progress.end();
    let Outcome { calibration: mut found, failed } = outcome;
    found.notes.extend(unused);
    if std::env::var_os("NVIDIA_TF32_OVERRIDE").is_some() {
        found.notes.push("NVIDIA_TF32_OVERRIDE is set: it determined how fp32 and tf32 products ran".to_owned());
    }
    if args.json {
        print_json(&calibration::json(&found, entry), out)?;
    } else {
        calibration::write_text(&found, entry, out)?;
    }
    out.flush()?;
    if let Some(why) = failed {
        return Err(CliError::Refused(format!("calibrate: stopped early, nothing written: {why}")));
    }
    if args.dry_run {
        return Ok(0);
    }
    if found.bandwidth().is_none() && found.product.is_empty() {
        return Err(CliError::Refused(
            "calibrate: neither bandwidth nor products were measured; nothing written".to_owned(),
        ));
    }
    write(args, &paths, &found, entry)?;
    Ok(0)
}

/// Progress steps: one for launches, three for bandwidth, five for products.
const STEPS: u32 = 9;

fn write(args: &CalibrateArgs, paths: &Paths, found: &Calibration, entry: &GpuSpec) -> Result<(), CliError> {
    let text = found.to_toml()?;
    let folder = paths.catalog();
    let path = args.output.clone().unwrap_or_else(|| folder.join(format!("{}.calibration.toml", entry.slug)));
    if args.output.is_none() {
        make_folder(&folder)?;
    }
    let before = entry.calibration.as_ref().filter(|_| args.output.is_none() && path.exists());
    store::save_atomically(&path, text.as_bytes(), args.force || args.output.is_none())?;
    let replaced = before.map_or_else(String::new, |before| format!(", replacing the one of {}", before.day()));
    let used = if args.output.is_none() {
        "predictions now use it".to_owned()
    } else {
        format!("to use it in predictions, copy it to {}", folder.display())
    };
    terminal::say(format_args!("habitat-tui: calibration written to {}{replaced}; {used}", path.display()));
    Ok(())
}

/// Finds the GPU's catalog entry, or explains why there is none.
fn identify<'a>(gpu: &Gpu, catalog: &'a Catalog) -> Result<&'a GpuSpec, CliError> {
    let facts = gpu.facts();
    if facts.mig == Some(true) {
        return Err(CliError::Refused(format!(
            "calibrate: MIG is enabled on {}, and an instance is slower than the whole GPU. Add an entry for the instance to your catalog and pass it with --gpu",
            facts.name
        )));
    }
    let identity = DeviceIdentity {
        name: facts.name.clone(),
        compute_capability: Some(gpu.capability()),
        sm_count: Some(facts.sm_count),
        memory_bytes: Some(facts.memory_bytes),
    };
    catalog.identify(&identity).ok_or_else(|| {
        let near = habitat_base::text::nearest(&facts.name, catalog.iter().map(|gpu| gpu.slug.as_str()), 3);
        let folder: PathBuf = Paths::find().catalog();
        CliError::Refused(format!(
            "calibrate: the catalog has no entry for {} (compute capability {}, {} SMs, {:.1} GiB); pass --gpu with one of its entries (near: {}), or add a file for it to {} (`habitat-tui gpus --toml {}` prints a template)",
            facts.name,
            facts.compute_capability,
            facts.sm_count,
            facts.memory_bytes as f64 / f64::from(1 << 30),
            near.join(", "),
            folder.display(),
            near.first().unwrap_or(&"a100-sxm4-40gb")
        ))
    })
}

/// Refuses a GPU that other programs use; with `in_use`, returns a note on it instead.
fn unused(gpu: &Gpu, in_use: bool) -> Result<Option<String>, CliError> {
    let Some(use_) = gpu.smi().in_use() else {
        return Ok(Some(
            "nvidia-smi does not respond: GPU clocks, throttling and use by other programs are unknown".to_owned(),
        ));
    };
    let busy = use_.utilisation.filter(|&share| share > BUSY);
    let others = match use_.programs {
        0 => String::new(),
        1 => ", one program running on it".to_owned(),
        programs => format!(", {programs} programs running on it"),
    };
    match busy {
        Some(share) if !in_use => Err(CliError::Refused(format!(
            "calibrate: the GPU is in use ({share} % busy{others}): results would be too low and other programs would slow down. Wait until it is free, or pass --in-use to measure anyway"
        ))),
        Some(share) => Ok(Some(format!("measured while other programs used the GPU ({share} % busy{others})"))),
        None => Ok(None),
    }
}
