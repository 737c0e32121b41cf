//! Step times on GPUs of the catalog, from one recorded step or from shapes alone.
//!
//! Step = device time of the operations on the destination, less what overlaps as it did
//! on the origin, plus the time in which the device waits for the host, which is taken
//! over unchanged. Operations of a multi-GPU recording that communicate are left out: a
//! prediction is of one GPU, [`scale`] adds the others.

pub mod bundle;
pub mod estimate;
pub mod family;
pub mod habitat;
pub mod head;
pub mod memory;
pub mod mlp;
pub mod random;
pub mod roofline;
mod route;
pub mod scale;
pub mod wave;
pub mod work;

pub use estimate::{
    Estimate, Fits, GpuFacts, MemoryFit, Method, MethodShare, OperationPrediction, Prediction, Predictions, StepTime,
};
pub use route::MethodChoice;
pub use wave::WaveForm;

/// The workload of a profile, for rooms that know predictions but not profiles.
pub use crate::profile::{Mode, Precision, Workload};

use std::sync::Arc;

use crate::catalog::{BandwidthKind, Catalog, GpuSpec};
use crate::profile::Profile;
use crate::text;
use crate::units::{GpuSlug, Micros, SamplesPerSecond};
use family::Family;
use habitat::{HabitatMlp, HabitatTimes};
use memory::MemoryNeed;
use route::{Route, Routed};

/// What to predict and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Options {
    /// GPUs to predict for; empty = all of the catalog.
    pub targets: Vec<GpuSlug>,
    /// Drop what was measured and predict from shapes alone.
    pub ignore_origin: bool,
    /// The GPU the profile was recorded on, in place of what it says.
    pub origin: Option<GpuSlug>,
    /// Which methods may be used.
    pub method: MethodChoice,
    /// Which equation wave scaling uses.
    pub wave_form: WaveForm,
    /// Habitat's networks, for [`MethodChoice::HabitatMlp`].
    pub habitat: Option<Arc<HabitatMlp>>,
}

/// Why nothing can be predicted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PredictError {
    /// Measured times without a GPU that the catalog knows.
    #[error("{}; say which it is with --origin{}, or drop what was measured with --ignore-origin", named(.name.as_deref()), near_names(.near))]
    UnknownOrigin {
        /// What the profile calls the GPU, if anything.
        name: Option<String>,
        /// Nearest slugs.
        near: Vec<String>,
    },
    /// A GPU asked for that the catalog does not have.
    #[error(transparent)]
    UnknownGpu(#[from] crate::catalog::UnknownGpu),
    /// No operation has a time or shapes.
    #[error(
        "no operation of {workload:?} has a measured time or shapes, so there is nothing to predict from; record it with shapes (record_shapes=True)"
    )]
    NothingKnown {
        /// The workload.
        workload: String,
    },
    /// Habitat's networks asked for, but none given.
    #[error("no weights of Habitat's networks were given; train them with `habitat-tui models train --habitat`")]
    NoWeights,
    /// A network that does not compute.
    #[error("Habitat's networks: {0}")]
    Network(#[from] mlp::ModelError),
}

fn named(name: Option<&str>) -> String {
    name.map_or_else(
        || "the profile does not say which GPU it was recorded on".to_owned(),
        |name| format!("the profile was recorded on {name:?}, which the catalog does not have"),
    )
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(", ")) }
}

/// The step of `profile` on every GPU asked for.
///
/// A GPU that is the origin of a profile with a measured step gets the measurement.
///
/// # Errors
/// [`PredictError`] where the origin or a target is not in the catalog, or nothing is
/// known of any operation.
pub fn predict(profile: &Profile, catalog: &Catalog, options: &Options) -> Result<Predictions, PredictError> {
    let stripped;
    let profile = if options.ignore_origin {
        stripped = profile.without_origin();
        &stripped
    } else {
        profile
    };
    let origin = find_origin(profile, catalog, options)?;
    let routed: Vec<Routed<'_>> = profile
        .operations
        .iter()
        .enumerate()
        .map(|(index, operation)| Routed::new(index, operation, profile.workload.precision))
        .collect();
    let need = MemoryNeed::of(profile, origin);
    let targets: Vec<&GpuSpec> = if options.targets.is_empty() {
        catalog.iter().collect()
    } else {
        options.targets.iter().map(|slug| catalog.find(slug.as_str())).collect::<Result<_, _>>()?
    };
    let networks = match (options.method, &options.habitat) {
        (MethodChoice::HabitatMlp, Some(networks)) => {
            let gpus = &targets.iter().copied().chain(origin);
            Some(HabitatTimes::new(networks, &profile.operations, profile.workload.precision, gpus)?)
        }
        (MethodChoice::HabitatMlp, None) => return Err(PredictError::NoWeights),
        _ => None,
    };
    let route = |destination| Route {
        origin,
        destination,
        precision: profile.workload.precision,
        choice: options.method,
        form: options.wave_form,
        habitat: networks.as_ref(),
    };
    let base = origin.map(|origin| Base::of(profile, &route(origin), &routed));
    let predictions: Vec<Prediction> =
        targets.into_iter().map(|gpu| predict_one(profile, &route(gpu), base.as_ref(), &routed, &need)).collect();
    if predictions.iter().all(|prediction| prediction.step.mid() == Micros::ZERO) {
        return Err(PredictError::NothingKnown { workload: text::clean(&profile.workload.name, 60) });
    }
    let mut origin_facts = profile.origin.clone();
    if let (Some(facts), Some(gpu)) = (&mut origin_facts, origin) {
        facts.gpu = Some(gpu.slug.clone());
    }
    let notes = base.map(|base| base.notes).unwrap_or_default();
    Ok(Predictions { workload: profile.workload.clone(), origin: origin_facts, predictions, notes })
}

fn find_origin<'a>(
    profile: &Profile,
    catalog: &'a Catalog,
    options: &Options,
) -> Result<Option<&'a GpuSpec>, PredictError> {
    if options.ignore_origin {
        return Ok(None);
    }
    if let Some(slug) = &options.origin {
        return Ok(Some(catalog.find(slug.as_str())?));
    }
    let Some(origin) = &profile.origin else { return Ok(None) };
    if let Some(gpu) = origin.gpu.as_ref().and_then(|slug| catalog.get(slug)) {
        return Ok(Some(gpu));
    }
    let name = origin
        .gpu_name
        .clone()
        .or_else(|| origin.gpu.as_ref().map(ToString::to_string))
        .map(|name| text::clean(&name, 80));
    let near = name.as_deref().map_or_else(Vec::new, |name| match catalog.find(name) {
        Ok(gpu) => vec![gpu.slug.to_string()],
        Err(unknown) => unknown.near,
    });
    Err(PredictError::UnknownOrigin { name, near })
}

/// What the origin tells of the step as a whole.
struct Base {
    /// Device busy time over the sum of the times of operations that compute: below 1 where streams overlap.
    overlap: f64,
    /// The device waits for the host.
    host_idle: Micros,
    /// Communication that was not hidden behind other operations.
    exposed: Micros,
    /// Whether the recording has communication at all.
    communicates: bool,
    notes: Vec<String>,
}

impl Base {
    fn of(profile: &Profile, route: &Route<'_>, routed: &[Routed<'_>]) -> Self {
        // Operations that were not measured are put in from their shapes, here as on every
        // destination, so that they do not turn into idle time.
        let mut sum = Micros::ZERO;
        let (mut unmeasured, mut communication) = (0_usize, Micros::ZERO);
        for routed in routed {
            let count = f64::from(routed.operation.count);
            if routed.family == Family::Communication {
                communication += routed.operation.device_time.unwrap_or(Micros::ZERO) * count;
            } else if let Some(time) = routed.operation.device_time {
                sum += time * count;
            } else if let Some(estimate) = route.predict(routed).time {
                sum += estimate.mid * count;
                unmeasured += usize::from(estimate.mid.get() > 0.0);
            }
        }
        let mut notes = Vec::new();
        if unmeasured > 0 {
            notes.push(format!(
                "{unmeasured} of {} operations were not measured on the origin: roofline on shapes",
                routed.len()
            ));
        }
        if communication.get() > 0.0 {
            notes.push(format!(
                "communication of the recording ({:.2} ms) left out: a prediction is of one GPU",
                communication.as_millis()
            ));
        }
        // Where the operations sum to more than the device was busy (or than the step took),
        // they overlapped; that share is carried over. What communication adds to the busy
        // time beyond the operations was not hidden behind them.
        let busy = profile.step.as_ref().and_then(|step| step.device_busy).unwrap_or(sum + communication);
        let busy = profile.measured_step().map_or(busy, |step| busy.min(step));
        let overlap = if sum.get() > 0.0 { (busy / sum).min(1.0) } else { 1.0 };
        let host_idle = profile.measured_step().map_or(Micros::ZERO, |step| step - busy);
        let exposed = if communication.get() > 0.0 { busy - sum * overlap } else { Micros::ZERO };
        if overlap < 0.98 {
            notes
                .push(format!("operations overlap on the origin: their sum counts {:.0} %, as there", overlap * 100.0));
        }
        if host_idle.get() > 0.0
            && let Some(step) = profile.measured_step()
        {
            notes.push(format!(
                "the device waits for the host {:.2} ms of each step ({:.0} %); taken over unchanged on every GPU",
                host_idle.as_millis(),
                host_idle / step * 100.0
            ));
        }
        Self { overlap, host_idle, exposed, communicates: communication.get() > 0.0, notes }
    }
}

fn predict_one(
    profile: &Profile,
    route: &Route<'_>,
    base: Option<&Base>,
    routed: &[Routed<'_>],
    need: &MemoryNeed,
) -> Prediction {
    let gpu = route.destination;
    let is_origin = route.origin.is_some_and(|origin| origin.slug == gpu.slug);
    let mut operations: Vec<OperationPrediction> = routed.iter().map(|routed| route.predict(routed)).collect();
    let measured = profile.measured_step().filter(|_| is_origin && route.choice != MethodChoice::Roofline);
    if measured.is_some() {
        for operation in &mut operations {
            if let Some(time) = operation.origin_time {
                operation.time = Some(Estimate::with_band(time, 0.0, Method::Measured));
                "measured on this GPU".clone_into(&mut operation.why);
            }
        }
    }
    let shares = shares(&operations);
    let host_idle = base.map_or(Micros::ZERO, |base| base.host_idle);
    let step = match measured {
        Some(median) => {
            StepTime::Measured { median, range: profile.step.as_ref().and_then(|step| step.duration_range) }
        }
        None => StepTime::Predicted(step_estimate(&shares, base)),
    };
    let throughput =
        profile.workload.batch_size.filter(|_| step.mid().get() > 0.0).map(|batch| {
            step.as_estimate().map_decreasing(|time| SamplesPerSecond::known(batch as f64 / time.as_secs()))
        });
    let mut notes = notes(gpu, &operations, profile);
    let without_communication = match (measured, base) {
        (Some(median), Some(base)) if base.communicates => {
            let alone = median - base.exposed;
            notes.insert(
                0,
                format!(
                    "recorded with other GPUs: {:.2} ms of the step is communication; plans count {:.2} ms for one GPU and add their own",
                    base.exposed.as_millis(),
                    alone.as_millis()
                ),
            );
            Some(alone)
        }
        _ => None,
    };
    Prediction {
        gpu: facts(gpu),
        notes,
        step,
        without_communication,
        throughput,
        host_idle,
        shares,
        operations,
        memory: need.fit(gpu),
    }
}

/// Device time of one step by method, largest first.
fn shares(operations: &[OperationPrediction]) -> Vec<MethodShare> {
    let mut by_method: Vec<MethodShare> = Vec::new();
    for operation in operations {
        let Some(time) = &operation.time else { continue };
        let total = time.mid * f64::from(operation.count);
        match by_method.iter_mut().find(|share| share.method == time.method) {
            Some(share) => share.device_time += total,
            None => by_method.push(MethodShare { method: time.method, device_time: total, share: 0.0 }),
        }
    }
    let all: Micros = by_method.iter().map(|share| share.device_time).sum();
    if all.get() > 0.0 {
        by_method.retain(|share| share.device_time.get() > 0.0);
        for share in &mut by_method {
            share.share = share.device_time / all;
        }
    }
    by_method.sort_by(|a, b| b.share.total_cmp(&a.share));
    by_method
}

/// The step's range: the published step errors of the methods, weighted by their shares,
/// around the whole step. They are errors of whole iterations, in which the host's part
/// changes too.
fn step_estimate(shares: &[MethodShare], base: Option<&Base>) -> Estimate<Micros> {
    let device: Micros = shares.iter().map(|share| share.device_time).sum();
    let (overlap, idle) = base.map_or((1.0, Micros::ZERO), |base| (base.overlap, base.host_idle));
    let band: f64 = shares.iter().map(|share| share.share * share.method.step_band()).sum();
    let method = match shares {
        [only] => only.method,
        _ => Method::Mixed,
    };
    Estimate::with_band(device * overlap + idle, band, method)
}

fn facts(gpu: &GpuSpec) -> GpuFacts {
    GpuFacts {
        slug: gpu.slug.clone(),
        name: gpu.name.clone(),
        vendor: gpu.vendor,
        architecture: gpu.architecture.clone(),
        memory: gpu.memory,
        nvlink: gpu.nvlink,
        pcie_generation: gpu.pcie_generation,
        power: gpu.power,
        doubtful: gpu.is_doubtful(),
    }
}

fn notes(gpu: &GpuSpec, operations: &[OperationPrediction], profile: &Profile) -> Vec<String> {
    let mut notes = Vec::new();
    if gpu.is_doubtful() {
        notes.push(format!("catalog figures not confirmed: {}", gpu.unconfirmed.join("; ")));
    }
    if gpu.bandwidth().1 == BandwidthKind::Nominal {
        notes.push(format!(
            "no measured bandwidth: {:.0} % of nominal taken",
            roofline::TYPICAL_BANDWIDTH_SHARE * 100.0
        ));
    }
    let silent = operations
        .iter()
        .zip(&profile.operations)
        .filter(|(prediction, operation)| {
            prediction.time.is_none() && operation.phase != crate::profile::Phase::Communication
        })
        .count();
    if silent > 0 {
        notes
            .push(format!("{silent} of {} operations have neither time nor shapes and are left out", operations.len()));
    }
    notes
}
