//! `habitat-tui calibrate`: what the GPU of this machine reaches, as a calibration of its
//! catalog entry.

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

/// From this share of busy moments on, others are taken to be using the GPU.
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
        found.notes.push("NVIDIA_TF32_OVERRIDE is set: fp32 and tf32 products ran as it says".to_owned());
    }
    if args.json {
        print_json(&calibration::json(&found, entry), out)?;
    } else {
        calibration::write_text(&found, entry, out)?;
    }
    out.flush()?;
    if let Some(why) = failed {
        return Err(CliError::Refused(format!("calibrate: ended early, and nothing was written: {why}")));
    }
    if args.dry_run {
        return Ok(0);
    }
    if found.bandwidth().is_none() && found.product.is_empty() {
        return Err(CliError::Refused(
            "calibrate: neither bandwidth nor products were measured, so nothing was written".to_owned(),
        ));
    }
    write(args, &paths, &found, entry)?;
    Ok(0)
}

/// Launches, three of bandwidth, five of products.
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
    let replaced = before.map_or_else(String::new, |before| format!(", in place of that of {}", before.day()));
    let used = if args.output.is_none() {
        "predictions use it from now on".to_owned()
    } else {
        format!("copy it to {} and predictions use it", folder.display())
    };
    terminal::say(format_args!("habitat-tui: calibration written to {}{replaced}; {used}", path.display()));
    Ok(())
}

/// The catalog's entry of a GPU, or why none is known.
fn identify<'a>(gpu: &Gpu, catalog: &'a Catalog) -> Result<&'a GpuSpec, CliError> {
    let facts = gpu.facts();
    if facts.mig == Some(true) {
        return Err(CliError::Refused(format!(
            "calibrate: {} is divided (MIG is on): a part of it does not reach what the whole GPU does. --gpu names an entry of your own catalog that stands for the part",
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
            "calibrate: the catalog has no entry for {} (compute capability {}, {} SMs, {:.1} GiB); --gpu names one (near: {}), or add a file for it to {} (`habitat-tui gpus --toml {}` prints one to start from)",
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

/// Refuses a GPU that others use; gives what is to be said of it.
fn unused(gpu: &Gpu, in_use: bool) -> Result<Option<String>, CliError> {
    let Some(use_) = gpu.smi().in_use() else {
        return Ok(Some("nvidia-smi does not answer: whether other programs used the GPU, its clocks and what held them down are not known".to_owned()));
    };
    let busy = use_.utilisation.filter(|&share| share > BUSY);
    let others = match use_.programs {
        0 => String::new(),
        1 => ", one program computes on it".to_owned(),
        programs => format!(", {programs} programs compute on it"),
    };
    match busy {
        Some(share) if !in_use => Err(CliError::Refused(format!(
            "calibrate: the GPU is in use ({share} % busy{others}): figures would be too low, and the others slowed down. Wait until it is free, or measure all the same with --in-use"
        ))),
        Some(share) => Ok(Some(format!("measured while others used the GPU ({share} % busy{others})"))),
        None => Ok(None),
    }
}
