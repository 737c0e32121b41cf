//! `habitat-tui calibrate-scaling`: compares the measured overhead of several GPUs with the expected one.

mod runs;

use std::io::Write;

use serde::Serialize;

use super::error::{At, CliError};
use super::gpu;
use super::input::load;
use super::output::print_json;
use crate::settings::args::{CalibrateScalingArgs, InputArgs};
use crate::store::{self, Paths};
use habitat_base::units::Micros;
use habitat_prediction::GpuFacts;
use habitat_prediction::rate::Rates;
use habitat_prediction::scale::{extra_time, scaling_factor};
use habitat_step::profile::Loader;

#[derive(Serialize)]
struct ScalingJson<'a> {
    format: &'static str,
    version: u32,
    gpu: &'a str,
    gpus: u32,
    one_gpu_ms: f64,
    measured_ms: f64,
    expected_extra_ms: f64,
    measured_extra_ms: f64,
    scaling_factor: f64,
}

pub(super) fn run(args: &CalibrateScalingArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let catalog = store::catalog(&Paths::find())?;
    let refused = |why: &str| CliError::Refused(why.to_owned());
    let input = InputArgs { file: Some(args.file.clone()), recorded: args.recorded.clone(), ..InputArgs::default() };
    let loaded = load(&input, &catalog)?;
    loaded.warn();
    if let Some(table) = &args.runs {
        return runs::run(args, table, &loaded, &catalog, out);
    }
    let (Some(gpus), Some(step_ms)) = (args.gpus, args.step_ms) else {
        return Err(refused("pass --gpus and --step-ms, or --runs"));
    };
    let named = args.recorded.origin.as_ref().map(|name| gpu::one(&catalog, "--origin", name)).transpose()?;
    let recorded = loaded.profile.origin.as_ref().and_then(|origin| origin.gpu.as_ref());
    let gpu = named.or_else(|| recorded.and_then(|slug| catalog.get(slug)));
    let gpu = gpu.ok_or_else(|| refused("the recording GPU is unknown; pass it with --origin"));
    let gpu = gpu.at(&loaded.label)?;
    let on_one = loaded.profile.measured_step();
    let on_one = on_one.ok_or_else(|| refused("it has no measured step to compare with; record a step on one GPU"));
    let on_one = on_one.at(&loaded.label)?;
    let on_several = Micros::from_millis(step_ms).map_err(CliError::other)?;
    let (facts, workload) = (GpuFacts::new(&Rates::from(gpu)), &loaded.profile.workload);
    // Plans add the wait for data to the corrected step.
    let loading = loaded.profile.loading().filter(|loading| loading.wait.get() > 0.0);
    if loading.is_some_and(|loading| matches!(loading.loader, Loader::Workers(_))) {
        return Err(refused(
            "it waits for the workers of its DataLoader, which hides what several GPUs add; record it with more workers",
        ))
        .at(&loaded.label);
    }
    let wait = loading.map_or(Micros::ZERO, |loading| loading.wait);
    let alone = [on_one, on_several].map(|step| step.checked_sub(wait).unwrap_or_default());
    let expected = extra_time(alone[0], &facts, gpus, workload).map_err(CliError::other).at(&loaded.label)?;
    let factor = scaling_factor(alone, &facts, gpus, workload);
    let factor = factor.map_err(CliError::other).at(&loaded.label)?;
    let told = ScalingJson {
        format: "habitat-scaling",
        version: 1,
        gpu: gpu.slug.as_str(),
        gpus,
        one_gpu_ms: on_one.as_millis(),
        measured_ms: on_several.as_millis(),
        expected_extra_ms: expected.as_millis(),
        measured_extra_ms: on_several.checked_sub(on_one).unwrap_or_default().as_millis(),
        scaling_factor: factor,
    };
    if args.json {
        return print_json(&told, out);
    }
    let waits = match wait.as_millis() {
        0.0 => String::new(),
        wait => format!(" Both wait {wait:.1} ms for data."),
    };
    writeln!(
        out,
        "{gpus} × {}: {:.1} ms per step, {:.1} on one GPU.{waits}\nOverhead: {:.1} ms, {:.1} expected, a factor of {factor:.2}.\n\nFor plans: --scaling-factor {factor:.2}, or scaling_factor = {factor:.2} under [plan] in the settings.",
        gpu.slug, told.measured_ms, told.one_gpu_ms, told.measured_extra_ms, told.expected_extra_ms,
    )?;
    Ok(0)
}
