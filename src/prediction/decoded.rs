//! Operations of a step, decoded once for all GPUs and methods.

use std::sync::OnceLock;

use super::layer::Layers;
use super::parallel;
use habitat_base::units::Flops;
use habitat_step::op::{Arithmetic, Family, Op, Part, Work, arithmetic, element_type};
use habitat_step::profile::{DType, Operation, Precision, Profile, is_host_transfer};

/// Operation with its GPU-independent properties computed once.
#[derive(Debug)]
pub struct Decoded<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// Its position in the profile.
    pub index: usize,
    /// Decoded operator.
    pub op: Op,
    /// Operator family.
    pub family: Family,
    /// Element type: as recorded, otherwise from the workload's precision.
    pub dtype: Option<DType>,
    /// Arithmetic and traffic of one occurrence; `None` without usable shapes.
    pub work: Option<Work>,
    /// Primitives of one occurrence, for the learned models.
    pub parts: Vec<Part>,
    /// Whether it copies between host and device: over PCI Express, not through device memory.
    pub is_host_copy: bool,
    /// Precision of its arithmetic on a GPU with TF32; others have [`Self::without_tf32`].
    pub arithmetic: Option<Precision>,
    precision: Option<Precision>,
    layers: OnceLock<Layers>,
}

impl<'a> Decoded<'a> {
    /// Decodes one operation of a workload in `precision`.
    pub fn new(index: usize, operation: &'a Operation, precision: Option<Precision>) -> Self {
        let op = Op::of(operation);
        let dtype = element_type(operation, precision);
        let element_bytes = dtype.as_ref().and_then(DType::size_bytes).unwrap_or(4) as f64;
        let kernels = &operation.kernels;
        let by_kernels = !kernels.is_empty() && kernels.iter().all(|kernel| is_host_transfer(&kernel.name));
        let family = op.family();
        Self {
            operation,
            index,
            arithmetic: arithmetic(operation, family, precision),
            family,
            work: op.work(element_bytes),
            parts: op.parts(element_bytes),
            is_host_copy: is_host_transfer(&operation.name) || by_kernels,
            op,
            dtype,
            precision,
            layers: OnceLock::new(),
        }
    }

    /// Precision of its arithmetic on a GPU without TF32.
    pub fn without_tf32(&self) -> Option<Precision> {
        self.arithmetic.map(|own| if own == Precision::Tf32 { Precision::Fp32Strict } else { own })
    }

    /// Decodes a variant of the operation in the same workload.
    pub(crate) fn of<'b>(&self, operation: &'b Operation) -> Decoded<'b> {
        Decoded::new(self.index, operation, self.precision)
    }

    /// Decodes all operations of a profile.
    pub fn all(profile: &'a Profile) -> Vec<Self> {
        let precision = profile.workload.precision;
        let numbered: Vec<(usize, &Operation)> = profile.operations.iter().enumerate().collect();
        parallel::items(&numbered, |&(index, operation)| Self::new(index, operation, precision))
    }

    /// Whether it runs in TF32 on a GPU that has it, at a different rate than on others.
    pub(crate) fn is_in_tf32(&self) -> bool {
        let multiplies = self.work.is_some_and(|work| work.arithmetic != Arithmetic::Vector) || !self.parts.is_empty();
        self.arithmetic == Some(Precision::Tf32) && self.family.varies_kernels() && multiplies
    }

    /// Inputs of the linear models, computed on first use.
    pub(crate) fn layers(&self) -> &Layers {
        self.layers.get_or_init(|| Layers::new(self.operation, self.precision, self.family, self.work, &self.parts))
    }
}

/// Floating-point operations of a step.
pub(crate) fn step_operations(decoded: &[Decoded<'_>]) -> Flops {
    let of = |one: &Decoded<'_>| one.work.map_or(0.0, |work| work.flops.get() * f64::from(one.operation.count));
    Flops::known(decoded.iter().map(of).sum())
}
