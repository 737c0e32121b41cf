//! Operators: names, sizes and work.
//!
//! An [`Op`] is decoded from the name, shapes and arguments of an operation. Everything derived from it lives here,
//! once: FLOPs and memory traffic ([`Work`]), the parts that learned models predict ([`Primitive`]) and the [`Family`].
//! Each kind of operator has its own file; only [`name`] and [`tensorflow`] read operator names.

mod attention;
mod convolution;
mod family;
mod kind;
mod lookup;
mod moved;
pub mod name;
mod optimizer;
mod parameters;
mod primitive;
pub mod product;
mod recurrent;
mod reduction;
mod results;
mod rows;
mod stream;
pub mod tensorflow;
mod total;
mod work;

pub use attention::Attention;
pub use convolution::Convolution;
pub use family::Family;
pub use kind::OperatorKind;
pub use name::{Form, Name, Pass};
pub use optimizer::Optimizer;
pub use parameters::{BatchAxis, batch_axes, parameters};
pub use primitive::{Part, Primitive, RowsKind};
pub use product::Product;
pub use recurrent::Recurrent;
pub use results::{Geometry, convolution_geometry, results};
pub use rows::Rows;
pub use stream::Stream;
pub use total::StepWork;
pub use work::{Arithmetic, Work};

use crate::profile::{Attribute, DType, Operation, Phase, Precision, Shape};

/// An operator: its decoded name, and its sizes if the shapes determine them.
#[derive(Debug, Clone, PartialEq)]
pub struct Op {
    /// The decoded name.
    pub name: Name,
    /// The sizes; `None` if the shapes do not determine them, and for operators without device work.
    pub sizes: Option<Sizes>,
    /// Whether its numbers are complex: one complex product costs four real ones.
    is_complex: bool,
}

/// Real products per complex product.
const COMPLEX_PRODUCTS: f64 = 4.0;

/// Sizes of an operator, by kind.
#[derive(Debug, Clone, PartialEq)]
pub enum Sizes {
    /// A matrix product.
    Product(Product),
    /// A convolution.
    Convolution(Convolution),
    /// Fused attention.
    Attention(Attention),
    /// A recurrent layer or cell.
    Recurrent(Recurrent),
    /// Softmax or a normalisation.
    Rows(Rows),
    /// Pooling, look-ups, reductions, element-wise and unknown operators.
    Stream(Stream),
}

impl Op {
    /// Decodes the operator of an operation.
    pub fn of(operation: &Operation) -> Self {
        let name = Name::of(&operation.name);
        let name = match operation.phase {
            Phase::Communication => Name { form: Form::Communication, ..name },
            _ => name,
        };
        let pass = name.pass;
        let sizes = match name.form {
            Form::View | Form::Communication => None,
            Form::Product(form) => Product::of(operation, form).map(Sizes::Product),
            Form::Convolution { transposed, .. } => {
                Convolution::of(operation, pass, transposed).map(Sizes::Convolution)
            }
            Form::Attention(form) => Attention::of(operation, pass, form).map(Sizes::Attention),
            Form::Recurrent { cell } => Recurrent::of(operation, pass, cell).map(Sizes::Recurrent),
            Form::Softmax => Rows::softmax(operation, pass).map(Sizes::Rows),
            Form::Normalisation(form) => Rows::normalisation(operation, pass, form).map(Sizes::Rows),
            Form::Lookup(form) => lookup::moved(operation, pass, form).map(Sizes::Stream),
            Form::Reduction(form) => reduction::moved(operation, pass, form).map(Sizes::Stream),
            Form::Stream(form) => Stream::of(operation, form).map(Sizes::Stream),
            Form::Pooling | Form::Unknown => Stream::of(operation, name::StreamForm::Plain).map(Sizes::Stream),
        };
        Self { name, sizes, is_complex: operation.dtype.as_ref().is_some_and(DType::is_complex) }
    }

    /// Whether the name implies multiplication (product, convolution, attention, recurrent layer) but the shapes do not
    /// match it, so that the FLOPs are unknown.
    pub fn is_uncounted(&self) -> bool {
        self.sizes.is_none() && self.family().varies_kernels()
    }

    /// Factor, 1 or more, by which the FLOPs may be above or below the count: for attention over packed sequences they
    /// depend on the length of each sequence.
    pub fn doubt(&self) -> f64 {
        match &self.sizes {
            Some(Sizes::Attention(attention)) => attention.doubt,
            _ => 1.0,
        }
    }

    /// Kind of operator.
    pub fn family(&self) -> Family {
        self.name.family()
    }

    /// Whether it is a depthwise convolution.
    pub(crate) fn is_depthwise(&self) -> bool {
        match (self.name.form, &self.sizes) {
            (Form::Convolution { depthwise: true, .. }, _) => true,
            (_, Some(Sizes::Convolution(convolution))) => {
                convolution.groups > 1.0 && convolution.groups == convolution.in_channels
            }
            _ => false,
        }
    }

    /// Work of one call, with elements of `element` bytes.
    ///
    /// Unknown operators with shapes count as memory-bound.
    pub fn work(&self, element: f64) -> Option<Work> {
        let work = match self.sizes.as_ref()? {
            Sizes::Product(product) => product.work(element),
            Sizes::Convolution(convolution) => Some(convolution.work(element)),
            Sizes::Attention(attention) => attention.work(element),
            Sizes::Recurrent(recurrent) => recurrent.work(element),
            Sizes::Rows(rows) => Some(rows.stream.work(element)),
            Sizes::Stream(stream) => Some(stream.work(element)),
        };
        let multiplies = self.is_complex && self.family().varies_kernels();
        work.map(|work| if multiplies { Work { flops: work.flops * COMPLEX_PRODUCTS, ..work } } else { work })
    }

    /// Parts of one call for the learned models, with elements of `element_bytes` bytes; empty if the models do not
    /// cover the operator or the shapes do not determine its sizes.
    pub fn parts(&self, element_bytes: f64) -> Vec<Part> {
        let found = match &self.sizes {
            Some(_) if self.name.form == Form::Unknown => Vec::new(),
            None => Vec::new(),
            Some(Sizes::Product(product)) => product.primitives(),
            Some(Sizes::Convolution(convolution)) => convolution.primitives(),
            Some(Sizes::Attention(attention)) => vec![(attention.primitive(), 1.0)],
            Some(Sizes::Recurrent(recurrent)) => recurrent.primitives(),
            Some(Sizes::Rows(rows)) => vec![(rows.primitive(), 1.0)],
            Some(Sizes::Stream(stream)) => vec![(Primitive::Stream { moved: stream.elements(element_bytes) }, 1.0)],
        };
        // Four real products with elements of half the size.
        let multiplies = self.is_complex && self.family().varies_kernels();
        let (products, element_bytes) =
            if multiplies { (COMPLEX_PRODUCTS, element_bytes / 2.0) } else { (1.0, element_bytes) };
        let sound = found.into_iter().filter(|(primitive, times)| *times > 0.0 && primitive.is_sound());
        sound.map(|(primitive, times)| Part { primitive, times: times * products, element_bytes }).collect()
    }
}

/// Kind of operator of an operation.
pub fn family(operation: &Operation) -> Family {
    match operation.phase {
        Phase::Communication => Family::Communication,
        _ => Name::of(&operation.name).family(),
    }
}

/// Work of one call; `None` if the shapes do not determine it.
pub fn work(operation: &Operation, precision: Option<Precision>) -> Option<Work> {
    Op::of(operation).work(element_bytes(operation, precision))
}

/// Parts of one call; see [`Op::parts`].
pub fn parts(operation: &Operation, precision: Option<Precision>) -> Vec<Part> {
    Op::of(operation).parts(element_bytes(operation, precision))
}

/// Element type that an operation runs in: the recorded one, otherwise the one that the workload's precision implies.
pub fn element_type(operation: &Operation, precision: Option<Precision>) -> Option<DType> {
    operation.dtype.clone().or_else(|| {
        Some(match precision? {
            precision if precision.is_32_bits() => DType::Float32,
            Precision::AmpFp16 | Precision::Fp16 => DType::Float16,
            // FP8 applies to products only; everything else runs in BF16.
            Precision::Fp8 if family(operation) == Family::Gemm => DType::Float8E4m3,
            _ => DType::Bfloat16,
        })
    })
}

/// Attribute of a convolution that holds PyTorch's flag `torch.backends.cudnn.allow_tf32`.
pub const ALLOW_TF32: &str = "allow_tf32";

/// Arithmetic of one operation of a workload: [`Precision::Tf32`] or [`Precision::Fp32Strict`] for 32-bit tensors,
/// otherwise the workload's precision.
///
/// If the workload's precision is unknown or does not define the use of TF32, PyTorch's defaults apply. A convolution
/// recorded with TF32 disabled stays in FP32 unless the whole workload is in TF32.
///
/// This covers only PyTorch's settings; [`GpuSpec::runs_tf32`](crate::catalog::GpuSpec::runs_tf32) covers the hardware.
pub fn arithmetic(operation: &Operation, family: Family, precision: Option<Precision>) -> Option<Precision> {
    if !matches!(element_type(operation, precision), None | Some(DType::Float32)) {
        return precision;
    }
    let workload = precision.unwrap_or(Precision::Fp32);
    let is_refused = operation.attributes.get(ALLOW_TF32) == Some(&Attribute::Bool(false));
    let is_allowed = match family {
        Family::Convolution if is_refused => workload == Precision::Tf32,
        Family::Convolution | Family::Recurrent => workload.allows_tf32_convolutions(),
        _ => workload.allows_tf32_products(),
    };
    Some(if is_allowed { Precision::Tf32 } else { Precision::Fp32Strict })
}

fn element_bytes(operation: &Operation, precision: Option<Precision>) -> f64 {
    element_type(operation, precision).and_then(|dtype| dtype.size_bytes()).unwrap_or(4) as f64
}

/// Number of elements of a tensor.
pub fn volume(shape: &Shape) -> f64 {
    elements(shape)
}

/// Number of elements of a block with these extents.
fn elements(extents: &[u64]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}

/// Total number of elements of several tensors.
fn total(shapes: &[Shape]) -> f64 {
    shapes.iter().map(volume).sum()
}

/// Number of elements of the largest of several tensors.
fn largest(shapes: &[Shape]) -> f64 {
    shapes.iter().map(volume).fold(0.0, f64::max)
}
