//! Published training and inference steps with their operators (written by `models/lab/steps/trace.py`), and steps
//! recorded operation by operation (`models/lab/steps/recorded.py`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::DirEntry;
use std::path::{Path, PathBuf};

use habitat_tui::catalog::hypothetical::{Changes, Figure};
use habitat_tui::catalog::{Catalog, Vendor};
use habitat_tui::cli::CliError;
use habitat_tui::op::{Family, Op, Sizes, name};
use habitat_tui::op_list;
use habitat_tui::predict::efficiency::{GROUP_CHANNELS, MOST_TAPS};
use habitat_tui::predict::rate::{CUT_MATRIX_SHARE, TYPICAL_MATRIX_SHARE};
use habitat_tui::profile::tensors::{is_channels_last, note_channels_last};
use habitat_tui::profile::{DType, Mode, Operation, Precision, Profile, ProfileError, Workload};
use habitat_tui::store::collected::{self, Collected};
use habitat_tui::store::operator_tables::{self, Row};
use habitat_tui::store::{self, Limit, StoreError};
use habitat_tui::units::{Bytes, GpuSlug, Micros};
use serde::Deserialize;

/// Name of the compiler for an operator that was measured alone.
const ONE_OPERATOR: &str = "one operator";
/// Prefixes of the names of frameworks other than `PyTorch`.
const OTHER_FRAMEWORKS: [&str; 2] = ["TensorFlow", "MxNet"];
/// Factor on rates at a locked clock: data-centre GPUs are assumed to sustain a smaller share of their peak in
/// products, because the power limit lowers their clock. The share at a locked clock was not measured; for all
/// arithmetic this uses that of boards whose matrix rate is halved.
const UNLOCKED: f64 = CUT_MATRIX_SHARE / TYPICAL_MATRIX_SHARE;
/// Software whose libraries lack kernels for channels-last order that today's have: with it, steps of `RegNetX` on an
/// RTX 3090 take 3.5 times as long in that order as in the other, those of `ConvMixer` 2.4 times; with PyTorch 2.11 on
/// an H100 they take 1.0 and 0.4 times as long.
const BEFORE_KERNELS: &str = "pt1.12";
/// Fewest groups for which they have kernels: on that RTX 3090 all eight networks with fewer groups of 8, 16 or 32
/// channels take 0.9 to 2.4 times as long in that order as in the other, those with 32 to 50 groups 0.7 to 1.0 times.
const LEAST_GROUPS: f64 = 32.0;
/// Separates a framework's release from that of a driver.
const DRIVER: &str = " driver ";
/// Source of recorded steps.
const RECORDED: &str = "recorded";
/// Source of operators that `habitat-tui collect` timed, and their file in a GPU's folder.
const COLLECTED: &str = "collected";
const COLLECTION: &str = "operators";
/// Share of a recorded step with a busy GPU from which on the step shows the GPU's speed.
const DEVICE_BOUND: f64 = 0.9;
/// Least share of a recorded step for operations of a kind to count.
const LEAST_PART: f64 = 0.01;
/// Prefixes of the names of language models.
const LANGUAGE: [&str; 3] = ["bert", "gpt", "llama"];
/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;
/// The name of the file in a folder of data.
pub const FILE: &str = "steps.jsonl.zst";
/// Names of the files with steps and operators on AMD GPUs.
pub const ON_AMD: [&str; 2] = ["milabench.jsonl.zst", "amd.jsonl.zst"];

/// The measured unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A step.
    Step,
    /// A step by another framework than `PyTorch`, predicted from `PyTorch`'s operators: different ones ran.
    Elsewhere,
    /// All operations of a kind in a recorded step: their kernels alone.
    Part,
    /// One operator, or some of a step's, measured alone and published.
    Operator,
    /// An operator of a random size, by `habitat-tui collect`.
    Collected,
}

/// A measured and published step.
#[derive(Debug, Clone)]
pub struct PublishedStep {
    /// The network.
    pub network: String,
    /// Networks of one design.
    pub family: String,
    /// Its publication.
    pub source: String,
    /// The GPU that it ran on.
    pub gpu: GpuSlug,
    /// Locked clock, as a share of the boost clock.
    pub locked: Option<f64>,
    /// The framework and its release, if known; all recorded steps ran with the same.
    pub software: String,
    /// Whether operators were compiled or fused beyond PyTorch's own.
    pub is_compiled: bool,
    /// The measured unit.
    pub extent: Extent,
    /// Whether figures are exact (A), or work outside the GPU may count (B).
    pub is_exact: bool,
    /// Measured time.
    pub time: Micros,
    /// Memory that the driver reported.
    pub memory: Option<Bytes>,
    /// Its operations, without times.
    pub profile: Profile,
}

/// Name of an operation, with its pass and its memory order.
fn what(operation: &Operation) -> String {
    let order = if is_channels_last(&operation.attributes) { ", channels last" } else { "" };
    format!("{} {}{order}", name::label(&operation.name), operation.phase.name())
}

impl PublishedStep {
    /// Name of its first operation.
    pub fn what(&self) -> String {
        self.profile.operations.first().map_or_else(String::new, what)
    }

    /// Whether it is a whole step, by any framework.
    pub const fn is_step(&self) -> bool {
        matches!(self.extent, Extent::Step | Extent::Elsewhere)
    }

    /// Whether it ran with the same framework release as another step. Steps differ more between releases than between
    /// some GPUs.
    pub fn ran_alike(&self, other: &Self) -> bool {
        self.software == other.software && self.is_compiled == other.is_compiled
    }

    /// The catalog, with the GPU's clock as in the step.
    pub fn catalog<'a>(&self, catalog: &'a Catalog) -> Cow<'a, Catalog> {
        let Some((gpu, times)) = catalog.get(&self.gpu).zip(self.locked) else { return Cow::Borrowed(catalog) };
        let locked = gpu.hypothetical(gpu.slug.clone(), &Changes::of(Figure::Clock, (times * UNLOCKED).min(1.0)));
        Cow::Owned(Catalog::new(catalog.iter().cloned().chain([locked])))
    }
}

#[derive(Deserialize)]
struct Line {
    case: String,
    network: String,
    family: String,
    mode: Mode,
    measured: Vec<Measured>,
    operators: serde_json::Value,
}

#[derive(Deserialize)]
struct Measured {
    gpu: String,
    clock_mhz: Option<String>,
    precision: String,
    layout: String,
    step_ms: String,
    source: String,
    #[serde(default)]
    software: String,
    compiled: String,
    quality: String,
    memory_mib: Option<String>,
}

/// The steps of a file on GPUs of the catalog.
///
/// # Errors
/// If the file cannot be read, with the case.
pub fn read(path: &Path, catalog: &Catalog) -> Result<Vec<PublishedStep>, CliError> {
    let text = store::read_text(path, Limit::WEIGHTS)?;
    let mut steps = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |problem: &dyn std::fmt::Display| {
            CliError::from(StoreError::content(path, format!("line {}: {problem}", number + 1)))
        };
        let line: Line = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let operators = line.operators.to_string();
        let mut profile = op_list::from_op_list(operators.as_bytes(), &line.case).map_err(|error| wrong(&error))?;
        profile.workload.mode = line.mode;
        for measured in &line.measured {
            let Ok(gpu) = catalog.find(&measured.gpu) else { continue };
            let Some(precision) = precision(&measured.precision) else { continue };
            let milliseconds: f64 = measured.step_ms.parse().map_err(|error| wrong(&error))?;
            let clock: Option<f64> =
                measured.clock_mhz.as_ref().map(|clock| clock.parse()).transpose().map_err(|error| wrong(&error))?;
            let mut profile = profile.clone();
            profile.workload.precision = Some(precision);
            if measured.layout == "nhwc" {
                if measured.software == BEFORE_KERNELS && lacks_kernels(&profile) {
                    continue;
                }
                channels_last(&mut profile);
            }
            steps.push(PublishedStep {
                network: line.network.clone(),
                family: line.family.clone(),
                source: measured.source.clone(),
                gpu: gpu.slug.clone(),
                locked: clock.map(|mhz| mhz / gpu.boost_clock.get()),
                software: measured.software.split(DRIVER).next().unwrap_or_default().to_owned(),
                is_compiled: !measured.compiled.is_empty(),
                extent: match () {
                    () if measured.compiled == ONE_OPERATOR => Extent::Operator,
                    () if OTHER_FRAMEWORKS.iter().any(|other| measured.software.starts_with(other)) => {
                        Extent::Elsewhere
                    }
                    () => Extent::Step,
                },
                is_exact: measured.quality == "A",
                time: Micros::new(milliseconds * 1e3).map_err(|error| wrong(&error))?,
                memory: measured.memory_mib.as_ref().and_then(|mib| Bytes::checked(mib.parse::<f64>().ok()? * MIB)),
                profile,
            });
        }
    }
    Ok(steps)
}

/// The steps and operators of files that ran on AMD GPUs.
///
/// # Errors
/// If a file cannot be read, with its name.
pub fn read_on_amd(files: &[PathBuf], catalog: &Catalog) -> Result<Vec<PublishedStep>, CliError> {
    let mut steps = Vec::new();
    for file in files {
        steps.extend(read(file, catalog)?);
    }
    steps.retain(|step| catalog.get(&step.gpu).is_some_and(|gpu| gpu.vendor == Vendor::Amd));
    Ok(steps)
}

/// The steps of a file, and those of a folder of recordings.
///
/// # Errors
/// If one cannot be read, with its name.
pub fn read_all(file: &Path, recorded: Option<&Path>, catalog: &Catalog) -> Result<Vec<PublishedStep>, CliError> {
    let mut steps = read(file, catalog)?;
    if let Some(folder) = recorded {
        let families: BTreeMap<String, String> =
            steps.iter().map(|step| (step.network.clone(), step.family.clone())).collect();
        for path in store::profiles(folder)? {
            let (mut profile, _) = store::read_profile(&path)?;
            let network = profile.workload.name.clone();
            profile.workload.name = without_precision(&path);
            steps.extend(
                of_recording(&profile, &network, &families).map_err(|problem| StoreError::content(&path, problem))?,
            );
        }
        let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut gpus: Vec<PathBuf> =
            entries.map_err(|error| StoreError::read(folder, error))?.iter().map(DirEntry::path).collect();
        gpus.sort();
        for path in gpus.iter().filter_map(|gpu| operator_tables::find(gpu, COLLECTION)) {
            steps.extend(of_collection(collected::read(&path, catalog)?).map_err(CliError::other)?);
        }
    }
    Ok(steps)
}

/// Collected operators; those of a kind count as a network.
fn of_collection(collected: Collected) -> Result<Vec<PublishedStep>, ProfileError> {
    let rows = collected.rows.into_iter().map(|(_, row)| row).chain(collected.others);
    let step = |row: Row| {
        let Row { operation, precision, gpu, time, .. } = row;
        let network = what(&operation);
        let workload = Workload {
            name: format!("{network} {:?}", operation.inputs),
            mode: Mode::Training,
            batch_size: None,
            micro_batches: None,
            sequence_length: None,
            precision: precision.or(match &operation.dtype {
                Some(DType::Bfloat16) => Some(Precision::Bf16),
                Some(DType::Float16) => Some(Precision::Fp16),
                // collect turns TF32 off.
                _ => Some(Precision::Fp32Strict),
            }),
            parameter_count: None,
        };
        let operation = Operation { kernels: Vec::new(), ..operation };
        Ok(PublishedStep {
            family: format!("operator-{network}"),
            network,
            source: COLLECTED.to_owned(),
            gpu,
            locked: None,
            software: String::new(),
            is_compiled: true,
            extent: Extent::Collected,
            is_exact: true,
            time,
            memory: None,
            profile: Profile::new(workload, None, None, vec![operation])?,
        })
    };
    rows.map(step).collect()
}

/// The name of a recorded case, `NETWORK-PRECISION-LAYOUT-bBATCH`, without the precision: equal for the same step in
/// another precision or on another GPU.
fn without_precision(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let parts: Vec<&str> = name.split('.').next().unwrap_or_default().split('-').collect();
    parts.iter().enumerate().filter(|(at, _)| *at != 1).map(|(_, part)| *part).collect::<Vec<_>>().join("-")
}

/// Family of a recorded network: that of the published network of this name or prefix; else the first letters of the
/// name.
fn family(network: &str, families: &BTreeMap<String, String>) -> String {
    let alike = || families.values().filter(|family| network.starts_with(*family)).max_by_key(|family| family.len());
    if let Some(known) = families.get(network).or_else(alike) {
        return known.clone();
    }
    let is_language = LANGUAGE.iter().any(|name| network.starts_with(name));
    let own = || network.split(|c: char| !c.is_alphabetic()).next().unwrap_or(network);
    if is_language { "transformer" } else { own() }.to_owned()
}

/// A recorded step as a whole, if the GPU did not wait, and its operations by kind.
fn of_recording(
    profile: &Profile,
    network: &str,
    families: &BTreeMap<String, String>,
) -> Result<Vec<PublishedStep>, String> {
    let step = profile.step.as_ref().ok_or("no step was measured")?;
    let gpu = profile.origin.as_ref().and_then(|origin| origin.gpu.clone()).ok_or("not recorded on a known GPU")?;
    let family = family(network, families);
    let is_compiled = step.execution.is_some();
    let of = |time: Micros, operations: Vec<Operation>, extent: Extent| PublishedStep {
        network: network.to_owned(),
        family: family.clone(),
        source: RECORDED.to_owned(),
        gpu: gpu.clone(),
        locked: None,
        software: String::new(),
        is_compiled: extent == Extent::Part || is_compiled,
        extent,
        is_exact: true,
        time,
        memory: None,
        profile: Profile { origin: None, step: None, recording: None, timeline: None, operations, ..profile.clone() },
    };
    let bare = |operation: &Operation| Operation { kernels: Vec::new(), device_time: None, ..operation.clone() };
    let mut kinds: BTreeMap<_, (f64, Vec<Operation>)> = BTreeMap::new();
    for operation in &profile.operations {
        let time: f64 = operation.kernels.iter().map(|kernel| f64::from(kernel.count) * kernel.duration.get()).sum();
        let kind = kinds.entry(what(operation)).or_default();
        kind.0 += time * f64::from(operation.count);
        kind.1.push(bare(operation));
    }
    let all: f64 = kinds.values().map(|(time, _)| time).sum();
    let is_recurrent = |operations: &[Operation]| {
        operations.iter().any(|operation| Op::of(operation).name.family() == Family::Recurrent)
    };
    let mut found = Vec::new();
    if let (Some(duration), Some(busy)) = (step.duration, step.device_busy)
        && busy.get() > DEVICE_BOUND * duration.get()
    {
        found.push(of(duration, profile.operations.iter().map(bare).collect(), Extent::Step));
    }
    // Kernels of recurrent layers run concurrently, and the sizes of compiled kernels are unknown.
    let parts = kinds
        .into_values()
        .filter(|(time, operations)| *time > LEAST_PART * all && !is_compiled && !is_recurrent(operations));
    found.extend(parts.filter_map(|(time, operations)| Some(of(Micros::new(time).ok()?, operations, Extent::Part))));
    Ok(found)
}

/// Parses a precision of the tables. No step in FP32 ran on a GPU with TF32; those in TF32 use it throughout: NVIDIA's
/// containers enable it for matrix products as well, as PyTorch did before 1.12.
fn precision(name: &str) -> Option<Precision> {
    Some(match name {
        "fp32" => Precision::Fp32,
        "tf32" => Precision::Tf32,
        "amp-fp16" => Precision::AmpFp16,
        "fp16-pure" => Precision::Fp16,
        "bf16" => Precision::AmpBf16,
        "bf16-pure" => Precision::Bf16,
        "fp8" => Precision::Fp8,
        _ => return None,
    })
}

/// Whether it has convolutions that software before cuDNN 9 had no channels-last kernels for: with few groups, groups
/// of unusual width, or large depthwise filters.
fn lacks_kernels(profile: &Profile) -> bool {
    profile.operations.iter().any(|operation| match Op::of(operation).sizes {
        Some(Sizes::Convolution(of)) if of.groups > 1.0 => {
            let (width, taps) = (of.in_channels / of.groups, of.filter.iter().product::<u64>() as f64);
            let has_kernel = GROUP_CHANNELS.contains(&width) && of.groups >= LEAST_GROUPS;
            if width == 1.0 { taps > MOST_TAPS } else { !has_kernel }
        }
        _ => false,
    })
}

/// The same step with its images in channels-last order, which changes no shape.
fn channels_last(profile: &mut Profile) {
    for operation in &mut profile.operations {
        let op = Op::of(operation);
        let is_image = matches!(op.sizes, Some(Sizes::Convolution(_)))
            || matches!(op.name.family(), Family::Normalisation | Family::Pooling)
                && operation.inputs.first().is_some_and(|shape| shape.len() == 4);
        if is_image {
            note_channels_last(&mut operation.attributes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_tui::store::bundled;

    /// A step of a relu of 30 µs and two products of 35 in 100 or 200 µs: counts as a whole only if the GPU did not
    /// wait, and by kind without launches of the host.
    #[test]
    fn a_recording_is_a_step_and_its_parts() {
        let of = |step_us: f64| {
            let json = format!(
                r#"{{"format": "habitat-profile", "version": 1,
                    "workload": {{"name": "bert_tiny", "mode": "training", "precision": "amp-bf16"}},
                    "origin": {{"gpu": "h200-sxm-141gb"}},
                    "step": {{"duration_us": {step_us}, "device_busy_us": 100}},
                    "operations": [
                      {{"name": "aten::relu", "phase": "forward", "inputs": [[64, 64]], "dtype": "bfloat16",
                        "kernels": [{{"name": "a", "duration_us": 15, "count": 2}}]}},
                      {{"name": "aten::mm", "phase": "forward", "count": 2, "inputs": [[64, 64], [64, 64]], "dtype": "bfloat16",
                        "kernels": [{{"name": "b", "duration_us": 35}}]}}]}}"#
            );
            let profile = Profile::from_json(json.as_bytes()).unwrap().0;
            of_recording(&profile, "bert_tiny", &BTreeMap::new()).unwrap()
        };
        let found = of(105.0);
        let told: Vec<_> = found.iter().map(|step| (step.time.get(), step.extent, step.is_compiled)).collect();
        let (step, part) = (Extent::Step, Extent::Part);
        assert_eq!(told, [(105.0, step, false), (70.0, part, true), (30.0, part, true)]);
        assert!(found.iter().all(|step| step.family == "transformer" && step.gpu.as_str() == "h200-sxm-141gb"));
        let is_bare =
            |step: &PublishedStep| step.profile.operations.iter().all(|operation| operation.kernels.is_empty());
        assert!(found.iter().all(is_bare) && found[0].profile.operations.len() == 2);
        assert_eq!(of(200.0).iter().map(|step| step.extent).collect::<Vec<_>>(), [part, part]);
        assert_eq!(without_precision(Path::new("x/bert-bf16-nchw-b4.habitat.json.zst")), "bert-nchw-b4");
    }

    /// A network is left out together with other networks of its design, recorded or published.
    #[test]
    fn a_design_is_told_by_names() {
        let known = [
            ("convnext_tiny", "convnext"),
            ("vit_base_patch16_224", "vit"),
            ("deit3_base", "deit3"),
            ("deit_s", "deit"),
        ];
        let known: BTreeMap<String, String> =
            known.into_iter().map(|(network, family)| (network.to_owned(), family.to_owned())).collect();
        let found =
            ["convnext_tiny", "convnextv2_nano", "vit_b_16", "deit3_large", "inception_v3", "bert_large", "moe"]
                .map(|network| family(network, &known));
        assert_eq!(found, ["convnext", "convnext", "vit", "deit3", "inception", "transformer", "moe"]);
    }

    /// Steps of a relu on an H200, with additional notes.
    fn published<const N: usize>(noted: [&str; N], catalog: &Catalog) -> Vec<PublishedStep> {
        let measured = noted.map(|noted| {
            format!(
                r#"{{{noted}"gpu": "h200-sxm-141gb", "precision": "bf16-pure", "layout": "nchw", "step_ms": "1",
                    "source": "s", "compiled": "", "quality": "A"}}"#
            )
        });
        let line = format!(
            r#"{{"case": "w", "network": "w", "family": "w", "mode": "training", "measured": [{}],
                "operators": {{"format": "habitat-op-list", "version": 1, "info": {{"batch": 1}}, "ops": [
                    {{"op": "aten.relu.default", "phase": "forward", "count": 1,
                      "inputs": [{{"shape": [64, 64], "dtype": "bfloat16"}}],
                      "outputs": [{{"shape": [64, 64], "dtype": "bfloat16"}}]}}]}}}}"#,
            measured.join(",")
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        std::fs::write(&path, line.replace('\n', " ")).unwrap();
        read(&path, catalog).unwrap()
    }

    /// Compares releases of a framework, but not of a driver.
    #[test]
    fn steps_that_ran_alike_are_told() {
        let noted = [
            r#""software": "PyTorch, torch 1.13.0a0 driver 515.65.01", "#,
            r#""software": "PyTorch, torch 1.13.0a0 driver 525.78.01", "#,
            r#""software": "PyTorch, torch 1.10.0a0 driver 515.65.01", "#,
        ];
        let [old, same, older] = &published(noted, &Catalog::new(bundled::gpus()))[..] else { panic!("three steps") };
        assert!(old.ran_alike(same) && !old.ran_alike(older));
        assert!(!old.ran_alike(&PublishedStep { is_compiled: true, ..old.clone() }));
    }

    /// Steps of other frameworks ran other operators than the traced ones.
    #[test]
    fn steps_of_other_frameworks_are_told() {
        let noted = ["PyTorch, container 22.11", "TensorFlow2, container 22.11", "MxNet, container 22.10", "pt2.4"];
        let noted = noted.map(|software| format!(r#""software": "{software}", "#));
        let found = published(noted.each_ref().map(String::as_str), &Catalog::new(bundled::gpus()));
        let extents: Vec<Extent> = found.iter().map(|step| step.extent).collect();
        assert_eq!(extents, [Extent::Step, Extent::Elsewhere, Extent::Elsewhere, Extent::Step]);
        assert!(found.iter().all(PublishedStep::is_step));
    }

    /// Before cuDNN 9 there were kernels for 32 groups or more of 4, 8, 16 or 32 channels.
    #[test]
    fn convolutions_without_kernels_are_told() {
        let lacks = |groups: u64, width: u64, size: u64| {
            let json = format!(
                r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "training"}},
                    "operations": [{{"name": "aten::convolution", "phase": "forward", "dtype": "float16",
                        "inputs": [[8, {0}, 14, 14], [{0}, {width}, {size}, {size}]],
                        "attributes": {{"groups": {groups}}}}}]}}"#,
                groups * width
            );
            lacks_kernels(&Profile::from_json(json.as_bytes()).unwrap().0)
        };
        assert_eq!([(32, 4), (50, 8), (40, 32)].map(|(groups, width)| lacks(groups, width, 3)), [false; 3]);
        assert_eq!([(18, 16), (32, 24), (7, 8)].map(|(groups, width)| lacks(groups, width, 3)), [true; 3]);
        // One group is not a grouped convolution; depthwise filters of up to 7 have kernels.
        assert_eq!(
            [(1, 64, 3), (16, 1, 7), (16, 1, 9)].map(|(groups, width, size)| lacks(groups, width, size)),
            [false, false, true]
        );
    }

    /// A locked clock scales arithmetic; bandwidth and other steps do not change.
    #[test]
    fn a_locked_clock_is_that_of_the_step() {
        let catalog = Catalog::new(bundled::gpus());
        let [locked, free] = &published([r#""clock_mhz": "990", "#, ""], &catalog)[..] else { panic!("two steps") };
        let real = catalog.get(&locked.gpu).unwrap();
        let ran_on = locked.catalog(&catalog);
        let ran_on = ran_on.get(&locked.gpu).unwrap();
        // A locked clock keeps 92 % of the peak; without a lock we assume 80 %.
        let times = real.boost_clock.get() / 990.0 / 1.15;
        let rate = |gpu: &habitat_tui::catalog::GpuSpec| gpu.fastest_published("bf16").unwrap();
        assert!((rate(real) / rate(ran_on) - times).abs() < 1e-9, "{}", rate(real) / rate(ran_on));
        assert_eq!(ran_on.memory_bandwidth, real.memory_bandwidth);
        // Never more than at the boost.
        let near = PublishedStep { locked: Some(0.95), ..locked.clone() };
        assert_eq!(rate(near.catalog(&catalog).get(&near.gpu).unwrap()), rate(real));
        assert_eq!(free.catalog(&catalog).get(&free.gpu), Some(real));
    }
}
