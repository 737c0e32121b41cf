//! Sentences for the findings of predictions.

use std::fmt::Display;

use super::Words;
use habitat_base::text::grouped;
use habitat_base::units::Micros;
use habitat_prediction::finding::{Calls, Finding, LineBasis, Shared, WaitCounts, Waits};
use habitat_step::profile::MemorySource;

/// Maximum number of GPUs named in a note.
const GPUS_NAMED: usize = 6;

/// Beginning of the warnings about the data loader.
const WAITS_FOR_DATA: &str = "waits for data: ";

impl Words for Finding {
    fn words(&self) -> String {
        of_step(self)
            .or_else(|| of_host(self))
            .or_else(|| of_precision(self))
            .or_else(|| of_models(self))
            .or_else(|| of_lines(self))
            .or_else(|| of_black_box(self))
            .or_else(|| of_sizes(self))
            .unwrap_or_default()
    }

    fn brief(&self) -> String {
        match self {
            Self::Sharded { .. } => "model split over GPUs: one may not run it",
            Self::OneRank { .. } | Self::Communicates => "one rank of several: no communication",
            Self::WorkOutside { .. } => "GPU time outside the recorded operations",
            Self::NoMatrixCores { .. } => "precision without tensor cores: FP32 speed",
            Self::UnknownFlops { .. } | Self::EstimatedFlops { .. } | Self::Float64Products { .. } => {
                "unknown FLOPs of some operators"
            }
            Self::Fp4Products { .. } => "products in FP4 are not modelled",
            Self::NoShapes { .. } => "no shapes recorded: wide ranges",
            // Whether it waits for the CPU or for data is the verdict's to say.
            Self::HostBound { idle_us, data_us, step_us, .. } => {
                return format!(
                    "GPU idle {:.0} % of the step: a faster GPU will not help much",
                    (*idle_us + *data_us) / *step_us * 100.0
                );
            }
            Self::LaunchBound { launch_us: [least, most], expected, .. } => {
                let waits = if *expected { "waits for the CPU" } else { "may wait for a slow CPU" };
                return format!("{waits} ({least:.0}–{most:.0} µs a launch)");
            }
            Self::SlowLoader { .. } | Self::LoadsItself { .. } | Self::LateData { .. } => "waits for its data loader",
            Self::HostKeepsUp => "assuming the CPU keeps up",
            note => return note.words(),
        }
        .to_owned()
    }
}

impl Words for Shared {
    fn words(&self) -> String {
        let (on, text) = (on(self), self.finding.words());
        match (&self.waits, text.strip_prefix(WAITS_FOR_DATA)) {
            (Some(waits), Some(rest)) => format!("{WAITS_FOR_DATA}{}{on}; {rest}", span(waits)),
            _ if on.is_empty() => text,
            _ => format!("{}: {text}", on.trim_start()),
        }
    }

    fn brief(&self) -> String {
        let brief = self.finding.brief();
        if self.gpus < self.of_gpus { format!("{brief} ({} of {} GPUs)", self.gpus, self.of_gpus) } else { brief }
    }
}

/// The GPUs that a warning concerns: " on 35 of 108 GPUs", empty for all.
fn on(shared: &Shared) -> String {
    let Shared { gpus, of_gpus, .. } = shared;
    if gpus < of_gpus { format!(" on {gpus} of {of_gpus} GPUs") } else { String::new() }
}

/// Time and share that GPUs wait for data: "6.84 ms per step, 74 to 88 % of the step".
fn span(waits: &Waits) -> String {
    let span = |[low, high]: [f64; 2], digits: usize| {
        let [low, high] = [low, high].map(|end| format!("{end:.digits$}"));
        if low == high { low } else { format!("{low} to {high}") }
    };
    let (time, share) = (waits.idle_us.map(Micros::as_millis), waits.idle_share.map(|share| share * 100.0));
    format!("{} ms per step, {} % of the step", span(time, 2), span(share, 0))
}

/// Milliseconds with two digits.
fn ms(time: Micros) -> String {
    format!("{:.2} ms", time.as_millis())
}

/// Share without decimals.
fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The first of a list, and the number of the others: "a, b and 3 more".
fn some(named: impl Iterator<Item = impl Display>, more: usize) -> String {
    let named = named.map(|one| one.to_string()).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

fn calls(operators: &[Calls], more: usize) -> String {
    some(operators.iter().map(|Calls { name, calls }| format!("{name} (×{calls})")), more)
}

/// Findings about the part of the step that the recorded operations cover.
fn of_step(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::Sharded { evidence } => format!(
            "the recording has {}, so the model seems split over several GPUs (FSDP, ZeRO, tensor, expert or pipeline parallelism): times cover one rank's share of the step, and a single GPU may not be able to hold the model",
            evidence.join(", ")
        ),
        Finding::OneRank { communication_us, exposed_us } => format!(
            "recorded as one of several GPUs ({} of communication per step, {} not hidden behind other work): times here are for one GPU without communication, also on the recording GPU (derived, not measured). Ranges cover none to all of it being hidden; a plan adds the communication of its own GPUs",
            ms(*communication_us),
            ms(*exposed_us)
        ),
        Finding::Communicates => "the step communicates with other GPUs: times here are for one GPU without communication; a plan adds that of its own GPUs".to_owned(),
        Finding::WorkOutside { busy_us, outside_us } => format!(
            "the GPU was busy {} of the step, {} of it outside the recorded operations: predictions cover the operations only, and the high end of each range adds the rest. Record the step again",
            ms(*busy_us),
            ms(*outside_us)
        ),
        Finding::UnknownFlops { operators, more } => format!(
            "unknown FLOPs of {}, because their shapes are not understood: measured times are scaled within a wide range, and without a measured time the operator is missing from the step",
            calls(operators, *more)
        ),
        Finding::EstimatedFlops { operators, more } => format!(
            "estimated FLOPs of {}: the lengths of packed sequences are unknown, and the range covers equal to most unequal lengths",
            calls(operators, *more)
        ),
        Finding::Float64Products { operators, more } => format!(
            "products in float64 ({}) are predicted at FP32 rates, because the catalog has no FP64 rates: data-centre GPUs take about twice as long, others up to 64 times",
            calls(operators, *more)
        ),
        Finding::Fp4Products { operators, more } => format!(
            "products in FP4 ({}) are not modelled and are predicted at the rates of other types: too fast on GPUs without FP4; from shapes alone, too slow on those with it",
            calls(operators, *more)
        ),
        Finding::NoShapes { all, share } => format!(
            "{}: {} of the device time is in products, convolutions and kernels that may be compute- or memory-bound. On other GPUs the range covers both cases, and the memory need is unknown. Record with record_shapes=True",
            if *all { "no shapes were recorded" } else { "shapes are missing" },
            percent(*share)
        ),
        Finding::UnmeasuredOperations { operations, of } => format!(
            "{operations} of {of} operations were not measured on the recording GPU: estimated from shapes (roofline)"
        ),
        Finding::OverlappingOperations { share } => format!(
            "operations overlapped on the recording GPU: {} of their sum counts, on every GPU",
            percent(*share)
        ),
        Finding::LeftOut { operations, of } => {
            format!("{operations} of {of} operations have neither time nor shapes and are left out")
        }
        Finding::ScaledToRecorded { predicted_us, recorded_us, factor } => format!(
            "the models predict {} for the recorded step of {}: all times scaled by {factor:.3}",
            ms(*predicted_us),
            ms(*recorded_us)
        ),
        Finding::Uncorrected { predicted_us, recorded_us } => format!(
            "the models predict {} for the recorded step of {}; no correction, because the recording GPU is power-limited",
            ms(*predicted_us),
            ms(*recorded_us)
        ),
        _ => return None,
    })
}

/// Waits of the GPU for its CPU and its data.
fn of_host(finding: &Finding) -> Option<String> {
    let of_data = "ranges reach down to the step without this wait; --host keeps-up leaves it out";
    Some(match finding {
        Finding::HostBound { idle_us, data_us, step_us, launch_us } => {
            let reach =
                launch_us.map_or_else(|| "the recorded step".to_owned(), |each| format!("{each:.0} µs per launch"));
            let (idle, data, step) = ((*idle_us + *data_us).as_millis(), data_us.as_millis(), step_us.as_millis());
            let digits = if step < 99.95 { 2 } else { 1 };
            let data = if data > 0.0 { format!(", {data:.digits$} of it waiting for data") } else { String::new() };
            format!(
                "the GPU is idle {idle:.digits$} of the {step:.digits$} ms of the recorded step{data}: a faster GPU will not help much. Low end of each range: no waiting; high end: at least {reach}"
            )
        }
        Finding::LaunchBound { launches, launch_us: [least, most], host_us: [low, high], expected } => {
            let waits = if *expected { "waits for the host" } else { "may wait for a slow host" };
            format!(
                "{waits}: {} launches × {least:.0}–{most:.0} µs of CPU time are {:.1} to {:.1} ms (estimated; the CPU is unknown), {}. Remedies: a larger batch, torch.compile, CUDA graphs (mode=\"reduce-overhead\"), a faster CPU. `run` records the real wait; --host keeps-up shows the GPU alone",
                grouped(*launches as f64),
                low.as_millis(),
                high.as_millis(),
                if *expected { "most likely more than the GPU needs" } else { "at worst more than the GPU needs" }
            )
        }
        Finding::SlowLoader { period_us } => format!(
            "{WAITS_FOR_DATA}the DataLoader's workers deliver the data of a step every {} as recorded, later for a larger batch, and shorter steps wait for them; {of_data}",
            ms(*period_us)
        ),
        Finding::LoadsItself { load_us } => {
            format!("{WAITS_FOR_DATA}num_workers=0 loads for {} a step (--host keeps-up)", ms(*load_us))
        }
        Finding::LateData { wait_us } => format!(
            "{WAITS_FOR_DATA}the DataLoader delayed each recorded step by {}, which is added on every GPU; {of_data}",
            ms(*wait_us)
        ),
        Finding::HostKeepsUp => {
            "assuming the CPU keeps up, as with CUDA graphs or a data loader that is never late: GPU time only"
                .to_owned()
        }
        Finding::UnknownWait => {
            "the wait for the CPU was not recorded, so it cannot be removed from the step".to_owned()
        }
        Finding::CpuWait { wait_us, share, counts } => {
            let fate = match counts {
                WaitCounts::Kept => "kept unchanged on every GPU",
                WaitCounts::Profiled => {
                    "kept unchanged on every GPU, but the profiler slowed the CPU (8 to 110 µs per launch in 18 public traces): the real wait is shorter, and ranges reach down to GPU time alone"
                }
                WaitCounts::LeftOut => "left out on every GPU",
            };
            format!("GPU idle, waiting for the CPU: {} of each step ({}); {fate}", ms(*wait_us), percent(*share))
        }
        Finding::NoLaunches { execution } => {
            format!("runs as {}, which takes less host time than eager PyTorch", execution.words())
        }
        Finding::BusyTime => "derived, not measured: GPU busy time of the step recorded here".to_owned(),
        _ => return None,
    })
}

/// Precision of a step and its change.
fn of_precision(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::NoMatrixCores { dtype } => {
            let runs = if *dtype == "fp8" { "; PyTorch does not run them on such GPUs" } else { "" };
            format!("no {dtype} tensor cores for the step's {dtype} products, so these are predicted at FP32 speed{runs}")
        }
        Finding::ConvertedPrecision { from, to } => format!("predicted in {to}, recorded in {from}"),
        Finding::PrecisionKept { gpu, dtype, from, to } => {
            format!("{gpu} has no {dtype} tensor cores: its step stays in {from}, not in {to}")
        }
        Finding::PrecisionChanged { from, recorded, to, mean_error } => format!(
            "precision changed from {from} ({}) to {to} by each GPU's rates and element sizes (Daydream's rule; mean error {:.1} % in Habitat), ranges widened",
            if *recorded { "as recorded" } else { "inferred from element types" },
            mean_error * 100.0
        ),
        Finding::PrecisionKeptOn { from, to, gpus } => {
            let shown = some(gpus.iter().take(GPUS_NAMED), gpus.len().saturating_sub(GPUS_NAMED));
            format!("no {to} tensor cores, so the step stays in {from}: {shown}")
        }
        Finding::PossibleCasts { copies, to } => {
            format!("{copies} recorded copies may be casts that {to} does not need; they still count")
        }
        Finding::CastsDropped { casts, to } => format!("{casts} recorded casts are left out: {to} does not need them"),
        Finding::CastsAdded { bytes, to } => format!(
            "casts that {to} adds are estimated by the rules of PyTorch's autocast: {bytes}, counted with the operations that need them"
        ),
        Finding::OperandsCast { bytes } => format!(
            "in fp8 the products of linear layers run, except that with the vocabulary; casts of their operands are counted: {bytes}"
        ),
        Finding::SlowerInFp8 { factor, from } => format!(
            "fp8 is slower than {from} here, by {}: the casts of operands cost more than the products gain",
            percent(*factor - 1.0)
        ),
        Finding::CastsMissing { to } => format!("casts that {to} would add are not recorded and not counted"),
        Finding::ShapelessOperators { share, from } => {
            format!("{} of the device time is in operators without shapes: kept as in {from}", percent(*share))
        }
        Finding::AsTf32 => {
            "predicted as in TF32: the FP32 models predict a shorter time, but TF32 is never slower than FP32".to_owned()
        }
        Finding::Tf32Assumed => "assuming PyTorch's defaults: FP32 convolutions and recurrent layers run in TF32 on GPUs that have it, matrix products in FP32. --precision fp32-strict predicts without TF32, tf32 with TF32 throughout".to_owned(),
        _ => return None,
    })
}

/// Figures of the GPU, and how the learned models know it.
fn of_models(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::UnverifiedSpecifications { specifications } => {
            format!("unverified specifications: {}", specifications.join("; "))
        }
        Finding::Calibrated { day } => format!("bandwidth and product rates calibrated on {day}"),
        Finding::BandwidthByRule { rule } => format!("bandwidth assumed: {rule}"),
        Finding::StepFactor { factor, iterations, measured } => format!(
            "learned models: {} take {factor:.2} times the sum of their operators{}",
            if *iterations { "whole training iterations" } else { "steps" },
            if *measured { ", as measured on this GPU" } else { "" }
        ),
        Finding::MeasuredOperators { used, unused } => {
            let more = if *unused > 0 { format!(" ({unused} more unused)") } else { String::new() };
            format!("corrected by {used} operators measured on this GPU{more}")
        }
        Finding::UnseenGpu => "no measurements of this GPU: the range is the error on unseen GPUs".to_owned(),
        Finding::PowerLimited { sustained_flops_per_s, burst_flops_per_s } => format!(
            "power-limited to {:.1} of {:.1} TFLOP/s (FP32)",
            sustained_flops_per_s.get() / 1e12,
            burst_flops_per_s.get() / 1e12
        ),
        Finding::OutsideTraining { share } => {
            format!("{} of the device time is outside the training data: range widened", percent(*share))
        }
        _ => return None,
    })
}

/// Linear models and hypothetical GPUs.
fn of_lines(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::LinesFactor { factor } => {
            format!("linear models: steps take {factor:.2} times the sum of their layers")
        }
        Finding::LinesExtrapolated { gpus } => {
            format!("not among the {gpus} GPUs of the linear models: rates extrapolated from those")
        }
        Finding::LayersWithoutLine { share } => {
            format!("{} of the device time in layers without a linear model: roofline", percent(*share))
        }
        Finding::LinesPreferred { error, steps, on, default_error } => {
            let percent = |error: f64| format!("{:.1} %", error * 100.0);
            let behind = default_error.map_or_else(|| "unknown error".to_owned(), percent);
            format!("linear models: {} error on {steps} {on}, against {behind} of the default", percent(*error))
        }
        Finding::HypotheticalStep => {
            "hypothetical GPU: the step on the real one, scaled by the predicted effect of the change".to_owned()
        }
        Finding::HypotheticalGpu { gpu, name } => format!("{gpu}: {name}, which does not exist"),
        _ => return None,
    })
}

/// Steps from totals.
fn of_black_box(finding: &Finding) -> Option<String> {
    Some(match finding {
        Finding::BlackBox { trained_on } => format!("black box: fitted on {trained_on}"),
        Finding::TreatedAs { gpu, known } => {
            format!("{gpu} is treated as {known}, which differs only in memory size")
        }
        Finding::UnusualMix => "operator mix unlike the black-box model's training data: range widened".to_owned(),
        Finding::Unexplained => "the fitted factors do not explain this step: unreliable".to_owned(),
        Finding::ScaledTotals { factor } => format!(
            "operator times scaled by {factor:.2} to fill the step: {}",
            if *factor > 1.0 { "the profiler lost events" } else { "the profiler slowed kernels down" }
        ),
        Finding::UnseenKind { kind, share } => format!(
            "{kind} takes {} of the GPU time but is absent from the black-box model's training data: scaled between the ratios of arithmetic and of bandwidth",
            percent(*share)
        ),
        Finding::UnknownMemory => {
            "memory need unknown without shapes, except that it fit on the recording GPU; pass --peak-memory".to_owned()
        }
        Finding::Interpolated { pixels, sizes: [small, large] } => {
            let what = if *pixels { "image sizes" } else { "batch sizes" };
            format!("interpolated between the {what} {small} and {large}")
        }
        _ => return None,
    })
}

/// Steps and memory at other batch sizes.
fn of_sizes(finding: &Finding) -> Option<String> {
    let times = |batch: u64, largest: u64| batch as f64 / largest as f64;
    Some(match finding {
        Finding::NoShares { error } => {
            format!("per-GPU batches that keep the global batch on several GPUs cannot be predicted: {error}")
        }
        Finding::OneBatch { batch } => format!(
            "one batch size recorded ({batch}): shapes scaled to the others. Record a second batch size to measure how the step grows"
        ),
        Finding::FarBatch { batch, largest } => format!(
            "batch {} is {} times the largest recorded: time and memory there are extrapolated",
            grouped(*batch as f64),
            grouped(times(*batch, *largest))
        ),
        Finding::UnlikeOperators { operators, batches: [one, other] } => format!(
            "{operators} operators have different call counts at batch {one} and {other}: if the networks differ, the line is meaningless"
        ),
        Finding::Bend { faster, distance } => {
            let (how, line) = if *faster {
                ("faster than linearly", "the line follows the largest batches")
            } else {
                ("more slowly than linearly", "the line may be too high")
            };
            format!("the step grows {how} with the batch (points up to {} off a line): {line}", percent(*distance))
        }
        Finding::FlatStep { share, batch } => format!(
            "the step does not grow with the recorded batches (perhaps CPU-bound): assuming that {} of it at batch {batch} grows with the batch",
            percent(*share)
        ),
        Finding::MostlyFixed { share, batch } => format!(
            "only {} of the step at batch {batch} grows with the batch: unknown when it becomes GPU-bound, so ranges are wide",
            percent(*share)
        ),
        Finding::BeyondTested { batch, largest } => format!(
            "batch {batch} is {:.1} times the largest recorded one; errors were measured up to 4 times",
            times(*batch, *largest)
        ),
        Finding::BusyExtrapolated => "beyond the recorded batches, GPU busy time is extrapolated separately".to_owned(),
        Finding::LineOfPredictions => "the line goes through predicted steps; its range includes theirs".to_owned(),
        Finding::NoBatchDimension { operations, of, share } => {
            let of_time = share.map(|share| format!(", {} of the measured device time", percent(share)));
            format!(
                "{operations} of {of} operations have no batch dimension{}: kept constant",
                of_time.unwrap_or_default()
            )
        }
        Finding::MemoryByBatch { .. } => of_memory(finding)?,
        _ => return None,
    })
}

/// Memory as a function of the batch size.
fn of_memory(finding: &Finding) -> Option<String> {
    let Finding::MemoryByBatch { fixed_bytes, per_sample_bytes, least_bytes, basis, peaks, converted } = finding else {
        return None;
    };
    let least = match least_bytes {
        Some([least, per_sample]) if per_sample.get() <= 0.0 => format!(", at least {least}"),
        Some([fixed, per_sample]) => format!(", at least {fixed} + {per_sample} a sample"),
        None => String::new(),
    };
    let line = format!("{fixed_bytes} + {per_sample_bytes} a sample{least}");
    let word = match peaks {
        MemorySource::Recorded => "recorded",
        MemorySource::Computed => "computed",
    };
    let words = match (basis, peaks) {
        (LineBasis::Peaks(count), MemorySource::Recorded) => {
            format!("{line}, interpolated between the peak memory recorded at {count} batch sizes")
        }
        (LineBasis::Peaks(count), MemorySource::Computed) => {
            format!(
                "{line}, interpolated between the peak memory computed from shapes at {count} batch sizes, not checked on a GPU"
            )
        }
        (LineBasis::Parameters, _) => format!(
            "{line}, from one {word} peak: all but parameters, gradients and optimizer state is assumed to grow with the batch"
        ),
        (LineBasis::Proportional, _) => {
            format!("{line}, from one {word} peak, assumed to grow in proportion to the batch")
        }
        (LineBasis::AtMost, _) => format!("at most {line}, estimated from shapes; no recorded peak"),
    };
    Some(format!("memory: {words}{}", if *converted { "; in the recorded precision" } else { "" }))
}

#[cfg(test)]
mod tests;
