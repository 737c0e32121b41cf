//! Habitat's predictor for operators whose kernels vary by GPU: one network per operator predicts the time from the
//! operator's dimensions and four figures of the GPU.
//!
//! Geoffrey et al., "Habitat: A Runtime-Based Computational Performance Predictor for Deep Neural Network Training",
//! USENIX ATC 2021, section 3.4: 8 layers of 1024 units, `ReLU`, normalised inputs. Inputs here:
//!
//! - linear: rows, inputs, outputs; bmm: batch, rows, reduction, columns; conv2d: batch, channels in and out, kernel,
//!   image, stride, padding (only square ones);
//! - the GPU: memory (GiB), bandwidth (GB/s, nominal), multiprocessors, FP32 peak (TFLOP/s).
//!
//! The output is the forward time in milliseconds. Products of a backward pass are products of other shapes; a gradient
//! of a convolution is assumed to take as long as its forward pass. The training data is FP32, so other precisions are
//! not predicted. The networks do not extrapolate, so inputs outside their training range are reported.

use std::collections::{BTreeMap, BTreeSet};

use super::bundle::Bundle;
use super::decoded::Decoded;
use super::mlp::{Mlp, ModelError};
use super::rate::SHORTEST_KERNEL_US;
use habitat_base::units::{GIB, GpuSlug, Micros};
use habitat_step::catalog::GpuSpec;
use habitat_step::op::name::ProductForm;
use habitat_step::op::product::factors;
use habitat_step::op::{Convolution, Form, Op, Product, Sizes, volume};
use habitat_step::profile::{Attribute, DType, Operation};

/// Operators with a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A matrix product.
    Linear,
    /// A batched matrix product.
    Bmm,
    /// A two-dimensional convolution.
    Conv2d,
}

/// Names of the four GPU figures.
const GPU_INPUTS: [&str; 4] = ["memory", "bandwidth", "multiprocessors", "FP32 peak"];

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Linear, Self::Bmm, Self::Conv2d];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Bmm => "bmm",
            Self::Conv2d => "conv2d",
        }
    }

    /// Names of the inputs, in order.
    pub fn inputs(self) -> Vec<&'static str> {
        let own: &[&str] = match self {
            Self::Linear => &["rows", "inputs", "outputs"],
            Self::Bmm => &["batch", "rows", "reduction", "columns"],
            Self::Conv2d => &["batch", "channels in", "channels out", "kernel", "image", "stride", "padding"],
        };
        [own, &GPU_INPUTS].concat()
    }

    /// Name of the weight file in a folder of models.
    pub fn file(self) -> String {
        format!("habitat-mlp-{}.safetensors", self.name())
    }
}

/// Operation as input of a network.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// Kind of network.
    pub kind: Kind,
    /// Dimensions among its inputs.
    pub dimensions: Vec<f32>,
    /// Multiple of the network's output (gradients of a convolution).
    pub times: f64,
}

/// Converts an operation to network inputs; `None` if no network fits.
pub fn describe(operation: &Operation) -> Option<Described> {
    describe_op(operation, &Op::of(operation))
}

fn describe_op(operation: &Operation, op: &Op) -> Option<Described> {
    match (op.name.form, op.sizes.as_ref()?) {
        (Form::Product(ProductForm::Einsum), Sizes::Product(product)) => {
            let Product { batch, rows, reduction, columns, .. } = *product;
            if batch == 1.0 {
                described(Kind::Linear, &[rows, reduction, columns], 1.0)
            } else {
                described(Kind::Bmm, &[batch, rows, reduction, columns], 1.0)
            }
        }
        (Form::Product(form), Sizes::Product(_)) => product(operation, form),
        (_, Sizes::Convolution(layer)) => convolution(operation, layer),
        _ => None,
    }
}

/// Inputs of a network: dimensions, then the GPU's figures.
pub fn inputs(dimensions: &[f32], gpu: &GpuSpec) -> impl Iterator<Item = f32> {
    let figures =
        [gpu.memory.get() / GIB, gpu.memory_bandwidth.get() / 1e9, f64::from(gpu.sm_count), gpu.peak.fp32.get() / 1e12];
    dimensions.iter().copied().chain(figures.map(|figure| figure as f32))
}

fn product(operation: &Operation, form: ProductForm) -> Option<Described> {
    let [left, right] = factors(operation, form)?;
    let reduction = *left.last()?;
    let columns = match (form, right.as_slice()) {
        (ProductForm::Linear, &[columns, n]) if n == reduction => columns,
        (ProductForm::Plain | ProductForm::BiasFirst, &[.., n, columns]) if n == reduction => columns,
        _ => return None,
    };
    let (kind, sizes) = if right.len() == 2 {
        (Kind::Linear, vec![volume(left) / reduction as f64, reduction as f64, columns as f64])
    } else {
        let (batch, rest) = left.split_at(left.len().checked_sub(2)?);
        if batch.is_empty() || *batch != right[..right.len() - 2] {
            return None;
        }
        (Kind::Bmm, vec![volume(&batch.to_vec()), rest[0] as f64, reduction as f64, columns as f64])
    };
    described(kind, &sizes, 1.0)
}

fn convolution(operation: &Operation, layer: &Convolution) -> Option<Described> {
    // Single value if both directions agree.
    let square = |values: &[i64]| -> Option<i64> {
        let first = *values.first()?;
        (first >= 0 && values.iter().all(|&value| value == first)).then_some(first)
    };
    let (stride, padding) = (square(&layer.stride)?, square(&layer.padding)?);
    let groups = operation.attributes.get("groups").map_or(Some(1), Attribute::as_int)?;
    let ([height, width], [down, across]) = (&layer.image[..], &layer.filter[..]) else { return None };
    let plain = square(&layer.dilation)? == 1 && groups == 1 && layer.groups == 1.0 && !layer.transposed;
    if !plain || height != width || down != across {
        return None;
    }
    let sizes = [layer.images, layer.in_channels, layer.out_channels, *down as f64, *height as f64];
    described(Kind::Conv2d, &[&sizes[..], &[stride as f64, padding as f64]].concat(), layer.passes())
}

fn described(kind: Kind, sizes: &[f64], times: f64) -> Option<Described> {
    let dimensions: Vec<f32> = sizes.iter().map(|&size| size as f32).collect();
    // Rejects empty tensors and infinite sizes.
    let padded = kind == Kind::Conv2d;
    let last = dimensions.len() - usize::from(padded);
    (dimensions.iter().all(|size| size.is_finite()) && dimensions[..last].iter().all(|&size| size > 0.0))
        .then_some(Described { kind, dimensions, times })
}

/// Weights for one operator, and the range of its training data.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The network.
    pub network: Mlp,
    /// Smallest value of each input in training.
    pub lowest: Vec<f32>,
    /// Largest value of each input in training.
    pub highest: Vec<f32>,
}

impl Trained {
    /// Reads the weights of `kind` from a file's content.
    ///
    /// # Errors
    /// [`ModelError`] naming the tensor that is missing or has the wrong shape.
    pub fn of(bundle: &Bundle, kind: Kind) -> Result<Self, ModelError> {
        let (network, width) = (bundle.network(kind.name())?.clone(), kind.inputs().len());
        let sizes = &network.architecture().sizes;
        if (sizes.first(), sizes.last()) != (Some(&width), Some(&1)) {
            return Err(ModelError::Sizes(format!(
                "layer sizes {sizes:?}: {} has {width} inputs and 1 output",
                kind.name()
            )));
        }
        let range = |name: &str| bundle.tensor(name, &[width]).map(<[f32]>::to_vec);
        Ok(Self { lowest: range("lowest")?, highest: range("highest")?, network })
    }

    /// Names of the inputs outside the training range.
    fn outside(&self, kind: Kind, inputs: &[f32]) -> Vec<&'static str> {
        let ranges = self.lowest.iter().zip(&self.highest);
        let beyond = |(value, (low, high)): (&f32, (&f32, &f32))| value < low || value > high;
        kind.inputs()
            .into_iter()
            .zip(inputs.iter().zip(ranges))
            .filter(|(_, at)| beyond(*at))
            .map(|(name, _)| name)
            .collect()
    }
}

/// Available networks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HabitatMlp {
    networks: BTreeMap<Kind, Trained>,
}

impl HabitatMlp {
    /// Collects networks by operator.
    pub fn new(networks: impl IntoIterator<Item = (Kind, Trained)>) -> Self {
        Self { networks: networks.into_iter().collect() }
    }
}

/// Predictions of the networks for the operations of one profile on several GPUs.
#[derive(Debug, Default)]
pub(super) struct HabitatTimes {
    /// By GPU and operation index: the time with its explanation, or the reason that there is none.
    answers: BTreeMap<(GpuSlug, usize), Result<(Micros, String), String>>,
}

impl HabitatTimes {
    /// Computes all predictions, with one call of each network.
    pub(super) fn new(
        networks: &HabitatMlp,
        operations: &[Decoded<'_>],
        gpus: &[&GpuSpec],
    ) -> Result<Self, ModelError> {
        let is_fp32 = |one: &&Decoded<'_>| one.dtype.as_ref().is_none_or(|dtype| *dtype == DType::Float32);
        // The networks were trained in FP32.
        let in_tf32: BTreeSet<usize> = operations.iter().filter(|one| one.is_in_tf32()).map(|one| one.index).collect();
        let described: Vec<(usize, Described)> = operations
            .iter()
            .filter(is_fp32)
            .filter_map(|one| Some((one.index, describe_op(one.operation, &one.op)?)))
            .collect();
        let mut answers = BTreeMap::new();
        for (&kind, trained) in &networks.networks {
            let (mut places, mut rows) = (Vec::new(), Vec::new());
            for gpu in gpus {
                let of_kind = described.iter().filter(|(_, described)| described.kind == kind);
                for (index, described) in of_kind.filter(|(index, _)| !gpu.runs_tf32() || !in_tf32.contains(index)) {
                    places.push((gpu.slug.clone(), *index, described.times));
                    rows.extend(inputs(&described.dimensions, gpu));
                }
            }
            let outputs = trained.network.forward(&rows)?;
            let width = kind.inputs().len();
            for ((slug, index, times), (output, row)) in places.into_iter().zip(outputs.iter().zip(rows.chunks(width)))
            {
                answers.insert((slug, index), answer(kind, trained, f64::from(*output), times, row));
            }
        }
        Ok(Self { answers })
    }

    /// Prediction for the operation at `index` of the profile; `None` if no network fits.
    pub(super) fn of(&self, index: usize, gpu: &GpuSlug) -> Option<&Result<(Micros, String), String>> {
        self.answers.get(&(gpu.clone(), index))
    }
}

fn answer(kind: Kind, trained: &Trained, output: f64, times: f64, row: &[f32]) -> Result<(Micros, String), String> {
    let microseconds = output * 1e3 * times;
    if times == 0.0 {
        return Ok((Micros::ZERO, "no gradient requested".to_owned()));
    }
    if !microseconds.is_finite() || microseconds < SHORTEST_KERNEL_US {
        return Err(format!(
            "Habitat's network for {} predicts {microseconds:.1} µs, too short for a kernel",
            kind.name()
        ));
    }
    let mut why = format!("Habitat's network for {}", kind.name());
    if times > 1.0 {
        why.push_str("; assuming a gradient takes as long as a forward pass");
    }
    let outside = trained.outside(kind, row);
    if !outside.is_empty() {
        why.push_str("; outside its training data: ");
        why.push_str(&outside.join(", "));
    }
    Ok((Micros::known(microseconds), why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::profile::Phase;

    fn operation(name: &str, inputs: &[&[u64]]) -> Operation {
        Operation {
            name: name.to_owned(),
            module: None,
            phase: Phase::Forward,
            count: 1,
            inputs: inputs.iter().map(|shape| shape.to_vec()).collect(),
            outputs: Vec::new(),
            dtype: Some(DType::Float32),
            attributes: BTreeMap::new(),
            device_time: None,
            cpu_time: None,
            kernels: Vec::new(),
        }
    }

    #[test]
    fn products_and_their_gradients() {
        let sizes = |name: &str, inputs: &[&[u64]]| {
            describe(&operation(name, inputs)).map(|found| (found.kind, found.dimensions))
        };
        let linear = Some((Kind::Linear, vec![4096.0, 1024.0, 512.0]));
        assert_eq!(sizes("aten::linear", &[&[8, 512, 1024], &[512, 1024], &[512]]), linear);
        assert_eq!(sizes("aten::mm", &[&[4096, 1024], &[1024, 512]]), linear);
        assert_eq!(sizes("aten::addmm", &[&[512], &[4096, 1024], &[1024, 512]]), linear);
        assert_eq!(sizes("aten::matmul", &[&[8, 512, 1024], &[1024, 512]]), linear);
        let bmm = Some((Kind::Bmm, vec![16.0, 512.0, 64.0, 256.0]));
        assert_eq!(sizes("aten::bmm", &[&[16, 512, 64], &[16, 64, 256]]), bmm);
        assert_eq!(sizes("aten::matmul", &[&[4, 4, 512, 64], &[4, 4, 64, 256]]), bmm);
        assert_eq!(sizes("aten::mm", &[&[4096, 1024], &[512, 512]]), None);
        assert_eq!(sizes("aten::mm", &[&[0, 1024], &[1024, 512]]), None);
        assert_eq!(sizes("aten::mv", &[&[4096, 1024], &[1024]]), None);
        assert_eq!(sizes("aten::relu", &[&[4096, 1024]]), None);
    }

    #[test]
    fn plain_convolutions_only() {
        let mut first = operation("aten::cudnn_convolution", &[&[32, 3, 224, 224], &[64, 3, 7, 7]]);
        let two = |value| Attribute::List(vec![Attribute::Int(value); 2]);
        first.attributes.insert("stride".into(), two(2));
        first.attributes.insert("padding".into(), two(3));
        let found = describe(&first).unwrap();
        assert_eq!(found.dimensions, [32.0, 3.0, 64.0, 7.0, 224.0, 2.0, 3.0]);
        assert_eq!(found.dimensions.len() + GPU_INPUTS.len(), Kind::Conv2d.inputs().len());
        let shapes: [&[u64]; 3] = [&[32, 64, 112, 112], &[32, 3, 224, 224], &[64, 3, 7, 7]];
        let mut backward = operation("aten::convolution_backward", &shapes);
        assert_eq!(describe(&backward).unwrap().times, 2.0);
        backward
            .attributes
            .insert("output_mask".into(), Attribute::List([false, true, true].map(Attribute::Bool).to_vec()));
        assert_eq!(describe(&backward).unwrap().times, 1.0);
        first.attributes.insert("stride".into(), Attribute::List(vec![Attribute::Int(1), Attribute::Int(2)]));
        assert_eq!(describe(&first), None);
        assert_eq!(describe(&operation("aten::conv2d", &[&[8, 64, 28, 28], &[64, 1, 3, 3]])), None);
        assert_eq!(describe(&operation("aten::conv2d", &[&[8, 64, 28, 14], &[64, 64, 3, 3]])), None);
    }
}
