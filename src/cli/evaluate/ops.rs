//! Operators: the same configuration measured on several GPUs gives an origin and a
//! destination for every ordered pair.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::CliError;
use super::tally::{Evaluation, Groups, Predicted};
use crate::catalog::{Catalog, GpuSpec};
use crate::predict::roofline::{attained_bandwidth, roofline, sustained_rate};
use crate::predict::wave::{WaveForm, gamma, scale_kernel};
use crate::predict::work::{Arithmetic, Work, work};
use crate::predict::{Options, Prediction, predict};
use crate::profile::{DType, Kernel, Mode, Operation, Origin, Phase, Precision, Profile, Workload};
use crate::store::{self, StoreError};
use crate::units::{GpuSlug, Micros};

/// Below this an operator's measured time is mostly launch.
const SHORTEST_ORIGIN_MS: f64 = 0.2;

/// One configuration measured on one GPU.
struct Measured {
    milliseconds: f64,
    kernel: Kernel,
}

/// Every table of `dir`.
pub(super) fn evaluate(dir: &Path, catalog: &Catalog) -> Result<Evaluation, CliError> {
    let mut groups = Groups::default();
    let mut notes = Vec::new();
    for family in ["elementwise", "softmax", "layernorm", "linear", "bmm", "conv2d"] {
        let Some(path) = [".csv", ".csv.gz", ".csv.zst"]
            .iter()
            .map(|ending| dir.join(format!("{family}{ending}")))
            .find(|path| path.exists())
        else {
            notes.push(format!("{family}: no table in {}, skipped", dir.display()));
            continue;
        };
        let configurations = read_table(&path, family)?;
        for (operation, by_gpu) in configurations.values() {
            judge(family, operation, by_gpu, catalog, &mut groups)?;
        }
    }
    let protocol = format!(
        "absolute relative errors over every ordered pair of GPUs, rows over {SHORTEST_ORIGIN_MS} ms on the origin (for \"predicted, shapes alone\" every GPU once, rows over that there); memory-bound families together as \"memory-bound\""
    );
    Ok(groups.evaluation(protocol, notes))
}

fn judge(
    family: &str,
    operation: &Operation,
    by_gpu: &BTreeMap<GpuSlug, Measured>,
    catalog: &Catalog,
    groups: &mut Groups,
) -> Result<(), CliError> {
    let Some(work) = work(operation, None) else { return Ok(()) };
    let memory_bound = work.arithmetic == Arithmetic::Vector;
    let mut add = |method: &'static str, predicted: Predicted, measured: f64, label: &dyn Fn() -> String| {
        for group in [Some(family), memory_bound.then_some("memory-bound")].into_iter().flatten() {
            groups.add(group, method, predicted, measured, label);
        }
    };
    let shapes = || operation.inputs.iter().map(|shape| format!("{shape:?}")).collect::<Vec<_>>().join(" × ");
    let alone = profile(operation, None)?;
    for (gpu, predicted) in whole(&alone, by_gpu.keys(), Options::default(), catalog) {
        if let Some(there) = by_gpu.get(&gpu).filter(|there| there.milliseconds > SHORTEST_ORIGIN_MS) {
            let label = || format!("{} {} on {gpu}", operation.name, shapes());
            add("predicted, shapes alone", predicted, there.milliseconds, &label);
        }
    }
    for (origin, here) in by_gpu.iter().filter(|(_, here)| here.milliseconds > SHORTEST_ORIGIN_MS) {
        let origin = catalog.find(origin.as_str()).map_err(CliError::of)?;
        let recorded = profile(operation, Some((origin, here)))?;
        let others = || by_gpu.keys().filter(|slug| **slug != origin.slug);
        let label = |destination: &GpuSlug| format!("{} {}, {} → {destination}", operation.name, shapes(), origin.slug);
        for (destination, predicted) in whole(&recorded, others(), Options::default(), catalog) {
            if let Some(there) = by_gpu.get(&destination) {
                add("predicted, from the origin", predicted, there.milliseconds, &|| label(&destination));
            }
        }
        for destination in others() {
            let measured = by_gpu[destination].milliseconds;
            let spec = catalog.find(destination.as_str()).map_err(CliError::of)?;
            for (method, predicted) in by_every_method(&work, here, origin, spec) {
                add(method, Predicted { mid: predicted, range: None }, measured, &|| label(destination));
            }
        }
    }
    Ok(())
}

/// One operation as a step of its own, measured on a GPU or not.
fn profile(operation: &Operation, measured: Option<(&GpuSpec, &Measured)>) -> Result<Profile, CliError> {
    let mut operation = operation.clone();
    let workload = Workload {
        name: operation.name.clone(),
        mode: Mode::Inference,
        batch_size: None,
        sequence_length: None,
        precision: Some(Precision::Fp32),
        parameter_count: None,
    };
    let origin = measured.map(|(gpu, measured)| {
        operation.device_time = Some(measured.kernel.duration);
        operation.kernels = vec![measured.kernel.clone()];
        Origin { gpu: Some(gpu.slug.clone()), gpu_name: None, framework: None, cuda: None, driver: None }
    });
    Profile::new(workload, origin, None, vec![operation]).map_err(CliError::of)
}

/// What the program itself predicts for the one operation of a profile, in milliseconds.
fn whole<'a>(
    profile: &Profile,
    targets: impl Iterator<Item = &'a GpuSlug>,
    options: Options,
    catalog: &Catalog,
) -> Vec<(GpuSlug, Predicted)> {
    let options = Options { targets: targets.cloned().collect(), ..options };
    if options.targets.is_empty() {
        return Vec::new();
    }
    let Ok(answer) = predict(profile, catalog, &options) else { return Vec::new() };
    let milliseconds = |prediction: Prediction| {
        let time = prediction.operations.into_iter().next()?.time?;
        let predicted =
            Predicted { mid: time.mid.as_millis(), range: Some([time.low.as_millis(), time.high.as_millis()]) };
        Some((prediction.gpu.slug, predicted))
    };
    answer.predictions.into_iter().filter_map(milliseconds).collect()
}

/// Milliseconds on the destination by each method.
fn by_every_method(work: &Work, here: &Measured, origin: &GpuSpec, destination: &GpuSpec) -> Vec<(&'static str, f64)> {
    let float32 = Some(&DType::Float32);
    let rooflines = |gpu: &GpuSpec| roofline(gpu, work, float32, None).0;
    let (rate, _) = sustained_rate(destination, work.arithmetic, float32, None);
    let ridge = rate.get() / attained_bandwidth(destination).get();
    let gamma = work.intensity().map_or(1.0, |intensity| gamma(intensity, ridge));
    let mut predicted = vec![
        ("bandwidth, nominal", here.milliseconds * (origin.memory_bandwidth / destination.memory_bandwidth)),
        ("bandwidth, reached", here.milliseconds * (attained_bandwidth(origin) / attained_bandwidth(destination))),
        ("roofline ratio", here.milliseconds * (rooflines(destination) / rooflines(origin))),
        ("roofline, no origin", rooflines(destination).as_millis()),
    ];
    for (name, form) in
        [("wave scaling, equation 1", WaveForm::WholeWaves), ("wave scaling, equation 2", WaveForm::ManyWaves)]
    {
        predicted.extend(
            scale_kernel(&here.kernel, origin, destination, gamma, form).map(|scaled| (name, scaled.time.as_millis())),
        );
    }
    predicted
}

/// An operation, and what it took on each GPU.
type Configuration = (Operation, BTreeMap<GpuSlug, Measured>);

/// Rows of a table by configuration; the first row of a GPU counts.
fn read_table(path: &Path, family: &str) -> Result<BTreeMap<String, Configuration>, CliError> {
    let problem = |line: u64, what: String| CliError(format!("{}: line {line}: {what}", path.display()));
    let reader = store::open(path).map_err(|error| StoreError::read(path, error))?;
    let mut reader = csv::Reader::from_reader(reader);
    let headings = reader.headers().map_err(|error| CliError(format!("{}: {error}", path.display())))?.clone();
    let mut configurations = BTreeMap::new();
    for (index, record) in reader.records().enumerate() {
        let line = index as u64 + 2;
        let record = record.map_err(|error| problem(line, error.to_string()))?;
        let text = |key: &str| headings.iter().position(|heading| heading == key).and_then(|place| record.get(place));
        let number = |key: &str| -> Result<f64, CliError> {
            let value = text(key).ok_or_else(|| problem(line, format!("column {key} is missing")))?;
            value
                .parse::<f64>()
                .ok()
                .filter(|value| value.is_finite())
                .ok_or_else(|| problem(line, format!("{key}: {value:?} is no number")))
        };
        let size = |key: &str| number(key).map(|value| value as u64);
        let milliseconds = number("latency_ms")?;
        let gpu = GpuSlug::new(text("gpu").unwrap_or_default()).map_err(|error| problem(line, error.to_string()))?;
        let operation = operation(family, text("op").unwrap_or_default(), &size)?;
        let extent = |prefix: &str| -> Option<[u32; 3]> {
            let at = |axis: &str| {
                number(&format!("{prefix}_{axis}")).ok().map(|value| value as u32).filter(|&value| value > 0)
            };
            Some([at("x")?, at("y")?, at("z")?])
        };
        let kernel = Kernel {
            name: text("kernel").unwrap_or_default().to_owned(),
            count: 1,
            duration: Micros::from_millis(milliseconds).map_err(|error| problem(line, error.to_string()))?,
            grid: extent("grid").filter(|_| extent("block").is_some()),
            block: extent("block").filter(|_| extent("grid").is_some()),
            registers_per_thread: None,
            static_shared_memory_bytes: None,
            dynamic_shared_memory_bytes: None,
            flops: None,
            dram_bytes: None,
        };
        let key = format!("{} {:?} {:?}", operation.name, operation.inputs, operation.outputs);
        let (_, by_gpu) = configurations.entry(key).or_insert_with(|| (operation, BTreeMap::new()));
        by_gpu.entry(gpu).or_insert(Measured { milliseconds, kernel });
    }
    Ok(configurations)
}

/// The operation of a row, in FP32 as these tables are.
fn operation(family: &str, op: &str, size: &dyn Fn(&str) -> Result<u64, CliError>) -> Result<Operation, CliError> {
    let (name, inputs, outputs) = match family {
        "elementwise" => {
            let shape = vec![size("B")?, size("H")?];
            // A trailing u marks tensor and scalar; relu and the like have one input too.
            let one_input = op.ends_with('u') || op == "tanh";
            (
                format!("aten::{}", if op == "relu" || op == "gelu" { op } else { op.trim_end_matches('u') }),
                if one_input { vec![shape.clone()] } else { vec![shape.clone(), shape.clone()] },
                vec![shape],
            )
        }
        "softmax" => {
            ("aten::softmax".to_owned(), vec![vec![size("B")?, size("H")?]], vec![vec![size("B")?, size("H")?]])
        }
        "layernorm" => {
            ("aten::layer_norm".to_owned(), vec![vec![size("B")?, size("H")?]], vec![vec![size("B")?, size("H")?]])
        }
        "linear" => {
            ("aten::linear".to_owned(), vec![vec![size("M")?, size("N")?], vec![size("K")?, size("N")?]], Vec::new())
        }
        "bmm" => {
            let batch = size("B")?;
            (
                "aten::bmm".to_owned(),
                vec![vec![batch, size("M")?, size("N")?], vec![batch, size("N")?, size("K")?]],
                Vec::new(),
            )
        }
        _ => {
            let (batch, image, kernel) = (size("B")?, size("image_size")?, size("kernel_size")?);
            let out = (image + 2 * size("padding")?).saturating_sub(kernel) / size("stride")?.max(1) + 1;
            let channels = size("out_channels")?;
            let weight = vec![channels, size("in_channels")?, kernel, kernel];
            (
                "aten::conv2d".to_owned(),
                vec![vec![batch, size("in_channels")?, image, image], weight],
                vec![vec![batch, channels, out, out]],
            )
        }
    };
    Ok(Operation {
        name,
        module: None,
        phase: Phase::Forward,
        count: 1,
        inputs,
        outputs,
        dtype: Some(DType::Float32),
        attributes: BTreeMap::new(),
        device_time: None,
        kernels: Vec::new(),
    })
}
