//! Scales the shapes of a recorded step to another batch size.
//!
//! A profile does not mark which extents are the batch. They are found from the meaning of operators (the second tensor
//! of a convolution is its weight), from the shapes of parameters, and by divisibility: an extent that grows with the
//! batch is a multiple of it. Extents that also occur in parameters are used only if nothing else fits. A test scales
//! the operations of GNMT and DCGAN traced at one batch size and compares them with traces at another.
//!
//! Measured times of operations whose shapes change are dropped, because they belong to the old shapes.

use std::collections::BTreeSet;

use habitat_step::op::name::ProductForm;
use habitat_step::op::{self, BatchAxis, Form, Name};
use habitat_step::profile::{Operation, Phase, Profile, Shape};

/// Reason that a profile cannot be scaled to another batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RebatchError {
    /// The recorded batch size is unknown.
    #[error("unknown batch size; pass --batch-size")]
    Unknown,
    /// Recorded at batch 1, and every extent is a multiple of 1.
    #[error(
        "recorded at batch size 1: the batch dimension cannot be found in the shapes. Record at 2 or more, or trace \
         several sizes (`habitat-tui trace-shapes … --batch-sizes 1,2,4`) and pass their files: `habitat-tui batches \
         FILE FILE`"
    )]
    One,
    /// Batch size 0.
    #[error("batch size 0; a step has at least one sample")]
    Zero,
    /// No shape contains the batch size.
    #[error("none of the {0} operations has a dimension that is a multiple of batch size {1}; check the batch size")]
    NotFound(usize, u64),
}

/// A profile at another batch size.
#[derive(Debug, Clone, PartialEq)]
pub struct Rebatched {
    /// The scaled profile, without step time and memory, which were measured at the old size.
    pub profile: Profile,
    /// For each operation, whether its shapes changed.
    pub scaled: Vec<bool>,
}

/// Scales the shapes of `profile` to batch size `batch`.
///
/// # Errors
/// [`RebatchError`] if the recorded batch size is unknown or absent from the shapes.
pub fn rebatch(profile: &Profile, batch: u64) -> Result<Rebatched, RebatchError> {
    let recorded = profile.workload.batch_size.ok_or(RebatchError::Unknown)?;
    if batch == 0 || recorded == 0 {
        return Err(RebatchError::Zero);
    }
    // Recorded extents are those of one micro-batch, and the number of micro-batches stays.
    let parts =
        profile.workload.micro_batches.filter(|parts| *parts > 0 && recorded.is_multiple_of(*parts)).unwrap_or(1);
    let (each, scaled_each) = (recorded / parts, ((batch as f64 / parts as f64).round() as u64).max(1));
    if each == 1 && batch != recorded {
        return Err(RebatchError::One);
    }
    let rules = Rules::of(profile, each);
    let mut scaled_profile = profile.clone();
    scaled_profile.workload.batch_size = Some(batch);
    let mut scaled = Vec::with_capacity(profile.operations.len());
    for (operation, before) in scaled_profile.operations.iter_mut().zip(&profile.operations) {
        for place in rules.places(operation) {
            let tensors = if place.output { &mut operation.outputs } else { &mut operation.inputs };
            if let Some(extent) = tensors.get_mut(place.tensor).and_then(|shape| shape.get_mut(place.dimension)) {
                *extent = (*extent / each).saturating_mul(scaled_each);
            }
        }
        let changed = (&before.inputs, &before.outputs) != (&operation.inputs, &operation.outputs);
        if changed {
            (operation.device_time, operation.cpu_time) = (None, None);
            operation.kernels.clear();
        }
        scaled.push(changed);
    }
    if batch != recorded {
        scaled_profile.step = None;
        if !scaled.contains(&true) && scaled_each != each {
            return Err(RebatchError::NotFound(profile.operations.len(), each));
        }
    }
    Ok(Rebatched { profile: scaled_profile, scaled })
}

/// An extent of a tensor of an operation.
#[derive(Debug, Clone, Copy)]
struct ExtentPlace {
    output: bool,
    tensor: usize,
    dimension: usize,
}

/// Criteria that distinguish the batch from other extents.
struct Rules {
    batch: u64,
    sequence: Option<u64>,
    /// Extents of parameters.
    of_parameters: BTreeSet<u64>,
    /// Shapes of parameters.
    parameters: BTreeSet<Shape>,
}

impl Rules {
    fn of(profile: &Profile, batch: u64) -> Self {
        let mut parameters: BTreeSet<Shape> = BTreeSet::new();
        for operation in &profile.operations {
            let is_update = operation.phase == Phase::Optimizer && !operation.inputs.is_empty();
            if is_update {
                parameters.extend(operation.inputs.iter().filter(|shape| !shape.is_empty()).cloned());
            }
            parameters.extend(
                op::parameters(operation)
                    .into_iter()
                    .filter_map(|index| operation.inputs.get(index))
                    .filter(|shape| !shape.is_empty())
                    .cloned(),
            );
        }
        // The first two extents of a kernel are its channels; height and width are not layer sizes.
        let mut of_parameters: BTreeSet<u64> =
            parameters.iter().flat_map(|shape| shape.iter().take(2).copied()).collect();
        of_parameters.extend(parameters.iter().map(|shape| shape.iter().product::<u64>()));
        Self { batch, sequence: profile.workload.sequence_length, of_parameters, parameters }
    }

    /// Locates the extents of an operation that grow with the batch.
    fn places(&self, operation: &Operation) -> Vec<ExtentPlace> {
        if matches!(operation.phase, Phase::Optimizer | Phase::Communication | Phase::GradientAccumulation) {
            // Without inputs, an optimizer operation may allocate an activation.
            if !operation.inputs.is_empty() || operation.phase != Phase::Optimizer {
                return Vec::new();
            }
        }
        if let Form::Product(form) = Name::of(&operation.name).form
            && let Some(places) = self.product(operation, form)
        {
            return places;
        }
        let [inputs, outputs] = op::batch_axes(operation);
        let mut places = Vec::new();
        for (output, tensors, axes) in [(false, &operation.inputs, inputs), (true, &operation.outputs, outputs)] {
            for (tensor, (shape, axis)) in tensors.iter().zip(axes).enumerate() {
                let dimension = match axis {
                    BatchAxis::None => None,
                    BatchAxis::First => self.leading(shape),
                    BatchAxis::Any => self.dimension(operation, shape),
                };
                places.extend(dimension.map(|dimension| ExtentPlace { output, tensor, dimension }));
            }
        }
        places
    }

    fn is_multiple(&self, extent: u64) -> bool {
        extent > 0 && extent.is_multiple_of(self.batch)
    }

    /// Whether the extent is a multiple of the batch and has no other explanation.
    fn is_plain(&self, extent: u64) -> bool {
        self.is_multiple(extent) && !self.of_parameters.contains(&extent) && self.sequence != Some(extent)
    }

    /// Whether the extent is batch × sequence length, even if parameters have it too.
    fn is_tokens(&self, extent: u64) -> bool {
        self.sequence.is_some_and(|length| length.checked_mul(self.batch) == Some(extent))
    }

    fn leading(&self, shape: &Shape) -> Option<usize> {
        shape.first().filter(|extent| self.is_multiple(**extent)).map(|_| 0)
    }

    /// Dimension of an activation that contains the batch.
    fn dimension(&self, operation: &Operation, shape: &Shape) -> Option<usize> {
        let find = |keep: &dyn Fn(u64) -> bool| shape.iter().position(|&extent| keep(extent));
        if shape[..] == [self.batch] {
            // Either one number per sample or a parameter as long as the batch; in a loss, the former.
            let of_loss = Name::of(&operation.name).loss;
            let plain = !self.of_parameters.contains(&self.batch);
            return (plain || of_loss || operation.phase == Phase::Forward).then_some(0);
        }
        let own = self.parameters.contains(shape);
        if own && operation.phase != Phase::Forward && !shape.first().is_some_and(|&extent| self.is_tokens(extent)) {
            return None;
        }
        let sure = find(&|extent| extent == self.batch && self.is_plain(extent))
            .or_else(|| (shape.len() > 1 && shape.first() == Some(&self.batch)).then_some(0))
            .or_else(|| find(&|extent| self.is_plain(extent)))
            .or_else(|| find(&|extent| self.is_tokens(extent)));
        // The remaining multiples could be channels, so only the leading dimension counts as the batch.
        let first = || {
            if shape.len() > 1 { self.leading(shape).filter(|_| self.sequence != shape.first().copied()) } else { None }
        };
        sure.or_else(first)
    }

    /// Places in a matrix product: rows, columns or the contracted extent grows with the batch, in all tensors that
    /// have it. `None` if the shapes are not those of a product.
    fn product(&self, operation: &Operation, form: ProductForm) -> Option<Vec<ExtentPlace>> {
        let at = |output, tensor, dimension| ExtentPlace { output, tensor, dimension };
        if operation.inputs.iter().any(|shape| shape.len() > 2) {
            let mut places = Vec::new();
            for (output, tensors) in [(false, &operation.inputs), (true, &operation.outputs)] {
                for (tensor, shape) in tensors.iter().enumerate() {
                    if shape.len() > 2 {
                        places.extend(self.dimension(operation, shape).map(|dimension| at(output, tensor, dimension)));
                    }
                }
            }
            return Some(places);
        }
        let matrices: Vec<usize> =
            (0..operation.inputs.len()).filter(|&index| operation.inputs[index].len() == 2).collect();
        // addmm may have a bias matrix before the two factors.
        let ([left, right] | [_, left, right]) = matrices[..] else { return None };
        // linear has its weight transposed.
        let transposed = matches!(form, ProductForm::Linear | ProductForm::LinearBackward);
        let (rows, inner) = (operation.inputs[left][0], operation.inputs[left][1]);
        let columns = operation.inputs[right][usize::from(!transposed)];
        if operation.inputs[right][usize::from(transposed)] != inner {
            return None;
        }
        let outputs = 0..operation.outputs.len();
        let of_rows: Vec<ExtentPlace> =
            std::iter::once(at(false, left, 0)).chain(outputs.clone().map(|tensor| at(true, tensor, 0))).collect();
        let of_inner = vec![at(false, left, 1), at(false, right, usize::from(transposed))];
        let of_columns: Vec<ExtentPlace> = std::iter::once(at(false, right, usize::from(!transposed)))
            .chain(outputs.map(|tensor| at(true, tensor, 1)))
            .collect();
        let forward = operation.phase == Phase::Forward;
        let tests: [&dyn Fn(u64) -> bool; 4] = [
            &|extent| self.is_plain(extent),
            &|extent| extent == self.batch,
            &|extent| self.is_tokens(extent),
            &|extent| self.is_multiple(extent),
        ];
        for test in tests {
            if test(rows) {
                return Some(of_rows);
            }
            if !forward && test(inner) {
                return Some(of_inner);
            }
            if !forward && test(columns) {
                return Some(of_columns);
            }
        }
        Some(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped::sample;

    /// Operations of `from` scaled to the batch size of `to` that differ from those recorded there.
    fn differing(from: &Profile, to: &Profile) -> Vec<String> {
        let scaled = rebatch(from, to.workload.batch_size.unwrap()).unwrap().profile;
        assert_eq!(scaled.operations.len(), to.operations.len());
        scaled
            .operations
            .iter()
            .zip(&to.operations)
            .zip(&from.operations)
            .filter(|((a, b), _)| (&a.inputs, &a.outputs) != (&b.inputs, &b.outputs))
            .map(|((a, b), was)| {
                format!(
                    "{} {}: {:?} {:?} became {:?} {:?} for {:?} {:?}",
                    was.name, was.phase, was.inputs, was.outputs, a.inputs, a.outputs, b.inputs, b.outputs
                )
            })
            .collect()
    }

    #[test]
    fn steps_traced_at_one_batch_size_become_those_traced_at_another() {
        for (from, to) in [
            ("gnmt-b16", "gnmt-b32"),
            ("gnmt-b16", "gnmt-b48"),
            ("gnmt-b48", "gnmt-b16"),
            ("dcgan-b64", "dcgan-b96"),
            ("dcgan-b64", "dcgan-b128"),
            ("dcgan-b128", "dcgan-b64"),
        ] {
            let wrong = differing(&sample(from), &sample(to));
            assert!(wrong.is_empty(), "{from} → {to}: {} wrong\n{}", wrong.len(), wrong.join("\n"));
        }
    }

    /// Four micro-batches of 16 make 64 samples; at 128, each has 32.
    #[test]
    fn extents_are_those_of_a_micro_batch() {
        let mut profile = sample("gnmt-b16");
        profile.workload.batch_size = Some(64);
        profile.workload.micro_batches = Some(4);
        let mut twice = sample("gnmt-b32");
        twice.workload.batch_size = Some(128);
        let wrong = differing(&profile, &twice);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn the_recorded_batch_size_changes_nothing() {
        let profile = sample("gnmt-b16");
        let same = rebatch(&profile, 16).unwrap();
        assert_eq!(same.profile, profile);
        assert!(!same.scaled.contains(&true));
    }

    #[test]
    fn times_of_the_old_shapes_are_dropped_and_of_the_rest_kept() {
        let profile = sample("resnet50-v100-b32");
        let twice = rebatch(&profile, 64).unwrap();
        assert_eq!(twice.profile.step, None);
        for ((before, after), scaled) in profile.operations.iter().zip(&twice.profile.operations).zip(&twice.scaled) {
            assert_eq!(after.device_time, before.device_time.filter(|_| !scaled));
        }
        let conv =
            |profile: &Profile| profile.operations.iter().find(|it| it.name.contains("convolution")).unwrap().clone();
        assert_eq!((conv(&profile).inputs[0][0], conv(&twice.profile).inputs[0][0]), (32, 64));
        assert_eq!(conv(&profile).inputs[1], conv(&twice.profile).inputs[1]);
    }

    #[test]
    fn what_cannot_be_scaled_is_refused() {
        let mut profile = sample("gnmt-b16");
        assert_eq!(rebatch(&profile, 0), Err(RebatchError::Zero));
        profile.workload.batch_size = Some(7919);
        assert!(matches!(rebatch(&profile, 8), Err(RebatchError::NotFound(_, 7919))));
        profile.workload.batch_size = Some(1);
        assert_eq!(rebatch(&profile, 8), Err(RebatchError::One));
        assert!(RebatchError::One.to_string().contains("trace-shapes … --batch-sizes 1,2,4"));
        profile.workload.batch_size = None;
        assert_eq!(rebatch(&profile, 8), Err(RebatchError::Unknown));
    }
}
