//! Suggests operators of a step that are worth measuring on a GPU.
//!
//! Greedily chooses the operator that reduces the variance of the step's summed operators most, given earlier
//! measurements and choices: with weights w (device times in the step) and the covariance C of the logarithms, (Σᵢ wᵢ
//! Cᵢⱼ)² / (Cⱼⱼ + noise). Operators of one model have the GPU's offset in common and, if their sizes are similar, more.

use std::collections::BTreeMap;

use habitat_base::units::Micros;
use habitat_step::catalog::GpuSpec;
use habitat_step::profile::{Attribute, DType, Operation, Phase, Precision, Profile};

use super::features::{Load, OperatorModel};
use super::learned::{ModelGpu, Models, Query, arithmetic, coordinates, is_host_bound, prior};
use super::mlp::ModelError;
use super::rate::Rates;
use habitat_base::regress::gaussian::Process;
use habitat_step::op::{self, Part, Primitive, RowsKind, element_type, parts};

/// Maximum number of operators of one model to compare; those with most device time.
const MOST: usize = 400;
/// Columns of an elementwise operator that represents any stream of its size.
const STREAM_COLUMNS: u64 = 1024;

/// Operator worth measuring.
#[derive(Debug, Clone, PartialEq)]
pub struct Suggestion {
    /// Forward operator that does the same work.
    pub operation: Operation,
    /// TF32, if the element type does not show it.
    pub precision: Option<Precision>,
    /// Names of the step's operations that contain it.
    pub within: Vec<String>,
    /// Predicted time if measured separately.
    pub time: Micros,
    /// Share of the step's device time.
    pub share: f64,
    /// Current standard deviation of its logarithm.
    pub deviation: f64,
    /// Share of the variance of the step's device time that its measurement removes.
    pub removed: f64,
}

/// Suggests measurements on `gpu`, most useful first.
///
/// # Errors
/// [`ModelError`] if a network fails.
pub fn suggest(profile: &Profile, gpu: &GpuSpec, models: &Models, count: usize) -> Result<Vec<Suggestion>, ModelError> {
    let rates = Rates::new(gpu);
    let (mut groups, total) = groups(profile, models.on(&rates), models)?;
    let before: f64 = groups.iter().map(Group::variance).sum();
    let mut found: Vec<Suggestion> = Vec::new();
    while found.len() < count {
        let best = groups
            .iter()
            .enumerate()
            .flat_map(|(group, of)| of.gains().map(move |(member, gain)| (group, member, gain)))
            .max_by(|a, b| a.2.total_cmp(&b.2));
        // Gains below a millionth of the variance are not worth a measurement.
        let Some((group, member, gain)) = best.filter(|best| best.2 > 1e-6 * before) else { break };
        let Some(group) = groups.get_mut(group) else { break };
        found.extend(group.take(member).map(|suggestion| Suggestion {
            share: suggestion.share / total,
            removed: gain / before,
            ..suggestion
        }));
    }
    Ok(found)
}

/// Work of one size in the step.
struct Member {
    /// `None` if it cannot be measured separately, or a measurement gives no information.
    suggestion: Option<Suggestion>,
    /// Device time in the step, in microseconds.
    weight: f64,
    part: Part,
}

/// Operators of one model in one kind of arithmetic, with the covariances of their logarithms.
struct Group {
    members: Vec<Member>,
    covariance: Vec<Vec<f64>>,
    noise: f64,
}

impl Group {
    fn new(mut members: Vec<Member>, process: &Process) -> Self {
        members.sort_by(|a, b| b.weight.total_cmp(&a.weight));
        members.truncate(MOST);
        let points: Vec<Vec<f64>> = members.iter().map(|member| coordinates(&member.part)).collect();
        let covariance = points.iter().map(|a| points.iter().map(|b| process.covariance(a, b)).collect()).collect();
        Self { members, covariance, noise: process.prior().noise }
    }

    /// Computes Σᵢ wᵢ Cᵢⱼ.
    fn with_step(&self, member: usize) -> f64 {
        self.members.iter().zip(&self.covariance[member]).map(|(other, shared)| other.weight * shared).sum()
    }

    /// Variance of the summed device time, including noise.
    fn variance(&self) -> f64 {
        let own =
            |(index, member): (usize, &Member)| member.weight * (self.with_step(index) + member.weight * self.noise);
        self.members.iter().enumerate().map(own).sum()
    }

    /// Variance that a measurement of each member removes.
    fn gains(&self) -> impl Iterator<Item = (usize, f64)> {
        self.members.iter().enumerate().filter(|(_, member)| member.suggestion.is_some()).map(|(index, _)| {
            let shared = self.with_step(index);
            (index, shared * shared / (self.covariance[index][index] + self.noise))
        })
    }

    /// Marks a member as measured.
    fn take(&mut self, index: usize) -> Option<Suggestion> {
        let known = self.covariance[index].clone();
        let own = known[index] + self.noise;
        for (row, a) in self.covariance.iter_mut().zip(&known) {
            for (value, b) in row.iter_mut().zip(&known) {
                *value -= a * b / own;
            }
        }
        let member = self.members.get_mut(index)?;
        let deviation = own.sqrt();
        member.suggestion.take().map(|suggestion| Suggestion { share: member.weight, deviation, ..suggestion })
    }
}

/// Work of one model by size, with one of its queries.
struct Gathered<'a> {
    members: BTreeMap<([u64; 7], u64), Member>,
    query: Query<'a>,
}

/// Work of the step by model, and its device time in microseconds.
fn groups(profile: &Profile, gpu: ModelGpu<'_>, models: &Models) -> Result<(Vec<Group>, f64), ModelError> {
    let precision = profile.workload.precision;
    let (mut queries, mut owners) = (Vec::new(), Vec::new());
    for operation in &profile.operations {
        let dtype = element_type(operation, precision);
        let own = op::arithmetic(operation, op::family(operation), precision).filter(|_| gpu.rates.gpu.runs_tf32());
        let rate = gpu.rate(dtype.as_ref(), own);
        for part in parts(operation, precision) {
            queries.push(Query { part, gpu, rate, load: Load::Step });
            owners.push((operation, dtype.clone(), own));
        }
    }
    let in_step = models.times(&queries)?;
    let alone: Vec<Query<'_>> = queries.iter().map(|query| Query { load: Load::Alone, ..*query }).collect();
    let alone = models.times(&alone)?;
    let mut total = 0.0;
    let mut by_model: BTreeMap<(OperatorModel, [u64; 2]), Gathered<'_>> = BTreeMap::new();
    for (((query, (operation, dtype, own)), time), alone) in queries.iter().zip(owners).zip(in_step).zip(alone) {
        let (Some(time), Some(alone)) = (time, alone) else { continue };
        let weight = time.time.get() * query.part.times * f64::from(operation.count);
        total += weight;
        let Some(model) = OperatorModel::of(&query.part.primitive) else { continue };
        let Some(ensemble) = models.ensembles().get(&model) else { continue };
        let key = (query.part.primitive.sizes().map(f64::to_bits), query.part.element_bytes.to_bits());
        let gathered = by_model
            .entry((model, arithmetic(query)))
            .or_insert_with(|| Gathered { members: BTreeMap::new(), query: *query });
        let member = gathered.members.entry(key).or_insert_with(|| {
            let tf32 = own.filter(|&one| one == Precision::Tf32 && dtype == Some(DType::Float32));
            let suggestion =
                forward(&query.part, dtype).filter(|_| !is_host_bound(alone.time, &ensemble.facts)).map(|operation| {
                    Suggestion {
                        operation,
                        precision: tf32,
                        within: Vec::new(),
                        time: alone.time,
                        share: 0.0,
                        deviation: 0.0,
                        removed: 0.0,
                    }
                });
            Member { suggestion, weight: 0.0, part: query.part }
        });
        member.weight += weight;
        if let Some(suggestion) = &mut member.suggestion
            && !suggestion.within.contains(&operation.name)
        {
            suggestion.within.push(operation.name.clone());
        }
    }
    let groups = by_model
        .into_iter()
        .filter_map(|((model, _), Gathered { members, query })| {
            let members: Vec<Member> = members.into_values().collect();
            if let Some(process) = models.corrections().process(model, &query) {
                return Some(Group::new(members, process));
            }
            let prior = prior(&models.ensembles().get(&model)?.facts, gpu.rates.gpu);
            Some(Group::new(members, &Process::new(prior, Vec::new(), &[])))
        })
        .collect();
    Ok((groups, total))
}

/// Forward operation that consists of this part alone, as in tables of operators; `None` if there is none (groups,
/// images that are not square).
fn forward(part: &Part, dtype: Option<DType>) -> Option<Operation> {
    let whole = |value: f64| (value.fract() == 0.0 && value >= 1.0).then_some(value as u64);
    let root = |value: f64| whole(value.sqrt());
    let mut attributes = BTreeMap::new();
    let (name, inputs, outputs) = match part.primitive {
        Primitive::Product { batch, rows, columns, reduction } => {
            let (batch, rows, columns, reduction) = (whole(batch)?, whole(rows)?, whole(columns)?, whole(reduction)?);
            if batch == 1 {
                ("aten::linear", vec![vec![rows, reduction], vec![columns, reduction]], Vec::new())
            } else {
                ("aten::bmm", vec![vec![batch, rows, reduction], vec![batch, reduction, columns]], Vec::new())
            }
        }
        Primitive::Convolution { batch, groups, in_channels, out_channels, taps, in_places, out_places } => {
            let (batch, inside, outside) = (whole(batch)?, whole(in_channels)?, whole(out_channels)?);
            let (image, kernel, out) = (root(in_places)?, root(taps)?, root(out_places)?);
            if groups != 1.0 {
                return None;
            }
            let stride = (image as f64 / out as f64).round().max(1.0) as u64;
            let padding = ((out - 1) * stride + kernel).saturating_sub(image).div_ceil(2);
            if (image + 2 * padding).checked_sub(kernel)? / stride + 1 != out {
                return None;
            }
            for (key, value) in [("stride", stride), ("padding", padding)] {
                let value = Attribute::Int(i64::try_from(value).ok()?);
                attributes.insert(key.to_owned(), Attribute::List(vec![value; 2]));
            }
            let input = vec![batch, inside, image, image];
            ("aten::conv2d", vec![input, vec![outside, inside, kernel, kernel]], vec![vec![batch, outside, out, out]])
        }
        Primitive::Rows { kind, rows, width, .. } => {
            let name = match kind {
                RowsKind::Softmax => "aten::softmax",
                RowsKind::Normalisation => "aten::layer_norm",
            };
            (name, vec![vec![whole(rows)?, whole(width)?]], vec![vec![whole(rows)?, whole(width)?]])
        }
        // Two tensors read and one written.
        Primitive::Stream { moved } => {
            let rows = (moved / 3.0 / STREAM_COLUMNS as f64).round().max(1.0) as u64;
            let shape = vec![rows, STREAM_COLUMNS];
            ("aten::add", vec![shape.clone(), shape.clone()], vec![shape])
        }
        Primitive::Fused { .. } => return None,
    };
    Some(Operation {
        name: name.to_owned(),
        module: None,
        phase: Phase::Forward,
        count: 1,
        inputs,
        outputs,
        dtype,
        attributes,
        device_time: None,
        cpu_time: None,
        kernels: Vec::new(),
    })
}
