//! Small fully connected networks: hₖ₊₁ = f(hₖ·Wₖ + bₖ), with no f after the last layer.
//!
//! Inputs are first normalised, (x − mean) / scale, with mean and scale stored in the network. Everything is f32.
//! Weights are `inputs × outputs`, row-major, so that a batch of rows is multiplied from the left. Initial weights are
//! uniform in ±√(6 / inputs) (He et al., 2015), those of the last layer in ±1/√inputs; biases are 0.

use std::cell::RefCell;
use std::sync::Once;

use candle_core::{CpuStorage, Device, InplaceOp2, Layout, Tensor};

use habitat_base::random::Random;

/// Rows of every product. The rounding of a product depends on its size, so a fixed size makes the result of a row
/// independent of the rows computed with it.
const ROWS_AT_A_TIME: usize = 256;
/// Maximum layer width; beyond it a file counts as damaged.
const MOST_UNITS: usize = 1 << 16;
/// Maximum number of layers; beyond it a file counts as damaged.
const MOST_LAYERS: usize = 64;

/// Reason that a network cannot be made, read or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Not a weight file.
    #[error("invalid network file (safetensors): {0}")]
    Form(String),
    /// A tensor is missing.
    #[error("tensor {0:?} is missing")]
    Missing(String),
    /// A tensor has the wrong shape.
    #[error("tensor {name:?} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the tensor.
        name: String,
        /// Shape required by the description.
        expected: Vec<usize>,
        /// Shape found.
        found: Vec<usize>,
    },
    /// A number is not finite, or a scale is not above 0.
    #[error("{0:?} has a number that is not finite (or a scale not above 0)")]
    NotFinite(String),
    /// Invalid layer sizes.
    #[error("{0}")]
    Sizes(String),
    /// Rows do not have the network's width.
    #[error("{found} numbers are not a multiple of {width} inputs")]
    Inputs {
        /// Inputs of the network.
        width: usize,
        /// Numbers given.
        found: usize,
    },
    /// The arithmetic failed.
    #[error("computing: {0}")]
    Compute(String),
}

impl From<candle_core::Error> for ModelError {
    fn from(error: candle_core::Error) -> Self {
        Self::Compute(error.to_string())
    }
}

/// Activation after every layer but the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// max(0, z).
    Relu,
    /// z · σ(z).
    Silu,
}

impl Activation {
    /// Name in files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Silu => "silu",
        }
    }

    /// Activation of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Relu, Self::Silu].into_iter().find(|activation| activation.name() == name)
    }

    /// f(z).
    pub fn of(self, z: f32) -> f32 {
        match self {
            Self::Relu => z.max(0.0),
            Self::Silu => z / (1.0 + exp(-z)),
        }
    }

    /// f′(z).
    pub fn derivative(self, z: f32) -> f32 {
        match self {
            Self::Relu => f32::from(u8::from(z > 0.0)),
            Self::Silu => {
                let sigmoid = 1.0 / (1.0 + exp(-z));
                sigmoid * (1.0 + z * (1.0 - sigmoid))
            }
        }
    }
}

/// Computes eˣ within 2 units in the last place, clamped to the range of f32: 2ⁿ·eʳ with integer n and |r| ≤ ln 2 / 2,
/// eʳ by its Taylor series. Without branches and calls the compiler can vectorise it, and unlike the system's function
/// it is equal on every machine.
fn exp(x: f32) -> f32 {
    /// Adding this rounds to an integer in the last bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; n times the first is exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-87.3, 88.3);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2[0] - n * LN_2[1];
    let series = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0 + r / 720.0)))));
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    series * power
}

/// Layer sizes and activation of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Architecture {
    /// Widths of inputs, hidden layers and outputs: at least two numbers.
    pub sizes: Vec<usize>,
    /// Activation after every layer but the last.
    pub activation: Activation,
}

impl Architecture {
    /// Architecture with `layers` hidden layers of `width` units.
    pub fn uniform(inputs: usize, layers: usize, width: usize, outputs: usize, activation: Activation) -> Self {
        let hidden = std::iter::repeat_n(width, layers);
        Self { sizes: std::iter::once(inputs).chain(hidden).chain([outputs]).collect(), activation }
    }

    /// Inputs and outputs of each layer.
    pub fn layers(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + '_ {
        self.sizes.windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// Number of weights and biases.
    pub fn parameter_count(&self) -> usize {
        self.layers().map(|(inputs, outputs)| (inputs + 1) * outputs).sum()
    }

    /// Width of a row of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.sizes.first().copied().unwrap_or(0)
    }

    /// Width of a row of outputs.
    pub(crate) fn outputs(&self) -> usize {
        self.sizes.last().copied().unwrap_or(0)
    }

    /// Rejects invalid or implausibly large networks.
    ///
    /// # Errors
    /// [`ModelError::Sizes`] with the sizes.
    pub fn check(&self) -> Result<(), ModelError> {
        let layers = 2..=MOST_LAYERS + 1;
        if layers.contains(&self.sizes.len()) && self.sizes.iter().all(|size| (1..=MOST_UNITS).contains(size)) {
            return Ok(());
        }
        Err(ModelError::Sizes(format!(
            "layer sizes {:?}: a network has 1 to {MOST_LAYERS} layers of 1 to {MOST_UNITS} units",
            self.sizes
        )))
    }
}

/// Layer as tensors.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Weights, `inputs × outputs`.
    pub weight: Tensor,
    /// Bias of each output.
    pub bias: Tensor,
}

/// Fully connected network. Copies share the immutable weights.
#[derive(Debug, Clone)]
pub struct Mlp {
    architecture: Architecture,
    mean: Vec<f32>,
    scale: Vec<f32>,
    layers: Vec<Layer>,
}

/// Networks are equal if architecture and numbers are.
impl PartialEq for Mlp {
    fn eq(&self, other: &Self) -> bool {
        (&self.architecture, &self.mean, &self.scale) == (&other.architecture, &other.mean, &other.scale)
            && self.parameters().ok() == other.parameters().ok()
    }
}

impl Mlp {
    /// Makes random initial weights from `seed`, without normalisation of the inputs.
    ///
    /// # Errors
    /// [`ModelError::Sizes`] if `architecture` is invalid.
    pub fn new(architecture: Architecture, seed: u64) -> Result<Self, ModelError> {
        architecture.check()?;
        let mut random = Random::new(seed);
        let last = architecture.sizes.len() - 2;
        let mut parameters = Vec::with_capacity(architecture.parameter_count());
        for (index, (inputs, outputs)) in architecture.layers().enumerate() {
            let bound = (if index == last { 1.0 } else { 6.0 } / inputs as f64).sqrt();
            parameters.extend((0..inputs * outputs).map(|_| ((random.unit() * 2.0 - 1.0) * bound) as f32));
            parameters.extend(std::iter::repeat_n(0.0, outputs));
        }
        let inputs = architecture.inputs();
        Self::from_parameters(architecture, vec![0.0; inputs], vec![1.0; inputs], &parameters)
    }

    /// Builds a network from numbers: for each layer the weights (`inputs × outputs`, row-major), then the biases.
    /// `mean` and `scale` have one number per input.
    ///
    /// # Errors
    /// [`ModelError`] if a length does not match or a number is not finite.
    pub fn from_parameters(
        architecture: Architecture,
        mean: Vec<f32>,
        scale: Vec<f32>,
        parameters: &[f32],
    ) -> Result<Self, ModelError> {
        architecture.check()?;
        let fits = |name: &str, expected: usize, found: usize| {
            let name = name.to_owned();
            if expected == found {
                return Ok(());
            }
            Err(ModelError::Shape { name, expected: vec![expected], found: vec![found] })
        };
        fits("mean", architecture.inputs(), mean.len())?;
        fits("scale", architecture.inputs(), scale.len())?;
        fits("parameters", architecture.parameter_count(), parameters.len())?;
        for (name, numbers) in [("mean", &mean[..]), ("scale", &scale), ("parameters", parameters)] {
            if !numbers.iter().all(|number| number.is_finite() && (name != "scale" || *number > 0.0)) {
                return Err(ModelError::NotFinite(name.to_owned()));
            }
        }
        let mut rest = parameters;
        let mut layers = Vec::new();
        for (inputs, outputs) in architecture.layers() {
            let (weight, after) = rest.split_at(inputs * outputs);
            let (bias, after) = after.split_at(outputs);
            rest = after;
            layers.push(Layer {
                weight: Tensor::from_slice(weight, (inputs, outputs), &Device::Cpu)?,
                bias: Tensor::from_slice(bias, outputs, &Device::Cpu)?,
            });
        }
        Ok(Self { architecture, mean, scale, layers })
    }

    /// Layer sizes and activation.
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// Mean and scale of the input normalisation.
    pub(crate) fn normalisation(&self) -> (&[f32], &[f32]) {
        (&self.mean, &self.scale)
    }

    /// All weights and biases, in the order of [`Mlp::from_parameters`].
    ///
    /// # Errors
    /// [`ModelError::Compute`], which cannot happen on a CPU.
    pub(crate) fn parameters(&self) -> Result<Vec<f32>, ModelError> {
        let mut all = Vec::with_capacity(self.architecture.parameter_count());
        for Layer { weight, bias } in &self.layers {
            all.extend(weight.flatten_all()?.to_vec1::<f32>()?);
            all.extend(bias.to_vec1::<f32>()?);
        }
        Ok(all)
    }

    /// Computes the outputs (`rows × outputs`, row-major) for `rows` of inputs (`rows × inputs`). One call with
    /// thousands of rows is far cheaper than thousands of calls.
    ///
    /// # Errors
    /// [`ModelError::Inputs`] if `rows` is not a multiple of the inputs.
    pub fn forward(&self, rows: &[f32]) -> Result<Vec<f32>, ModelError> {
        let width = self.architecture.inputs();
        if !rows.len().is_multiple_of(width) {
            return Err(ModelError::Inputs { width, found: rows.len() });
        }
        let mut outputs = Vec::new();
        for part in rows.chunks(ROWS_AT_A_TIME * width) {
            let mut values = normalise(part, &self.mean, &self.scale);
            values.resize(ROWS_AT_A_TIME * width, 0.0);
            let mut hidden = batch(values, width)?;
            for (index, layer) in self.layers.iter().enumerate() {
                let activation = (index + 1 < self.layers.len()).then_some(self.architecture.activation);
                hidden = through(&hidden, layer, activation)?;
            }
            outputs.extend(hidden.flatten_all()?.to_vec1::<f32>()?);
        }
        outputs.truncate(rows.len() / width * self.architecture.outputs());
        Ok(outputs)
    }

    /// Tensors of the layers, for training to copy.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }
}

/// Computes (x − mean) / scale, row by row.
pub fn normalise(rows: &[f32], mean: &[f32], scale: &[f32]) -> Vec<f32> {
    let columns = mean.iter().zip(scale).cycle();
    rows.iter().zip(columns).map(|(x, (mean, scale))| (x - mean) / scale).collect()
}

/// Converts rows to a matrix.
///
/// # Errors
/// Fails if `rows` is not a multiple of `width`.
pub fn batch(rows: Vec<f32>, width: usize) -> candle_core::Result<Tensor> {
    let count = rows.len() / width;
    Tensor::from_vec(rows, (count, width), &Device::Cpu)
}

/// Applies one layer: `rows × inputs` to `rows × outputs`.
///
/// # Errors
/// Fails if `rows` does not match the layer's inputs.
pub fn through(rows: &Tensor, layer: &Layer, activation: Option<Activation>) -> candle_core::Result<Tensor> {
    threads();
    let out = rows.matmul(&layer.weight)?;
    in_place(&out, &layer.bias, |out, bias| {
        for row in out.chunks_exact_mut(bias.len()) {
            match activation {
                // Separate loops, so that the compiler can vectorise each.
                Some(Activation::Relu) => row.iter_mut().zip(bias).for_each(|(z, b)| *z = (*z + b).max(0.0)),
                Some(other) => row.iter_mut().zip(bias).for_each(|(z, b)| *z = other.of(*z + b)),
                None => row.iter_mut().zip(bias).for_each(|(z, b)| *z += b),
            }
        }
    })?;
    Ok(out)
}

/// Sizes the global thread pool to the threads that this process may start. Rayon aborts the program if it cannot start
/// its own; if no thread can be started, everything runs in the calling thread.
pub(super) fn threads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads);
        // The global pool can be built only once, so a temporary pool of that size is tried first.
        let mut threads = candle_core::utils::get_num_threads();
        if pool(threads).build().is_ok() {
            return;
        }
        while threads > 1 && pool(threads).build().is_err() {
            threads /= 2;
        }
        let _ = if threads > 1 { pool(threads).build_global() } else { pool(1).use_current_thread().build_global() };
    });
}

/// Changes the numbers of `target` in place, given those of `other`. Both must be contiguous f32 tensors, and no one
/// else may rely on the old numbers of `target`.
///
/// # Errors
/// Fails if one of them is not contiguous or not f32.
pub fn in_place(target: &Tensor, other: &Tensor, change: impl FnMut(&mut [f32], &[f32])) -> candle_core::Result<()> {
    target.inplace_op2(other, &InPlace(RefCell::new(change)))
}

struct InPlace<F>(RefCell<F>);

impl<F: FnMut(&mut [f32], &[f32])> InplaceOp2 for InPlace<F> {
    fn name(&self) -> &'static str {
        "in-place"
    }

    fn cpu_fwd(
        &self,
        target: &mut CpuStorage,
        target_layout: &Layout,
        other: &CpuStorage,
        other_layout: &Layout,
    ) -> candle_core::Result<()> {
        let places = target_layout.contiguous_offsets().zip(other_layout.contiguous_offsets());
        let (CpuStorage::F32(target), CpuStorage::F32(other), Some(((start, end), (from, to)))) =
            (target, other, places)
        else {
            return Err(candle_core::Error::Msg("in-place work needs contiguous f32 tensors".to_owned()));
        };
        (self.0.borrow_mut())(&mut target[start..end], &other[from..to]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn architecture(sizes: &[usize]) -> Architecture {
        Architecture { sizes: sizes.to_vec(), activation: Activation::Relu }
    }

    /// By hand: x = [2, 3] normalised to [1, 1]; hidden relu([1 + 2 + 0, −1 − 1 + 1]) = [3, 0]; output 3·2 + 0·5 − 1.
    #[test]
    fn the_formula() {
        let numbers = [1.0, -1.0, 2.0, -1.0, 0.0, 1.0, 2.0, 5.0, -1.0];
        let network = Mlp::from_parameters(architecture(&[2, 2, 1]), vec![1.0, 1.0], vec![1.0, 2.0], &numbers).unwrap();
        assert_eq!(network.forward(&[2.0, 3.0]).unwrap(), [5.0]);
        assert_eq!(network.forward(&[]).unwrap(), Vec::<f32>::new());
        assert_eq!(network.parameters().unwrap(), numbers);
        let silu = Architecture { activation: Activation::Silu, ..architecture(&[1, 1, 1]) };
        let network = Mlp::from_parameters(silu, vec![0.0], vec![1.0], &[1.0, 0.0, 1.0, 0.0]).unwrap();
        assert!((network.forward(&[1.0]).unwrap()[0] - 0.731_058_6).abs() < 1e-6);
    }

    #[test]
    fn one_call_or_many_give_the_same() {
        let network = Mlp::new(architecture(&[7, 33, 33, 2]), 5).unwrap();
        let mut random = Random::new(9);
        let rows: Vec<f32> = (0..7 * 5000).map(|_| random.unit() as f32).collect();
        let together = network.forward(&rows).unwrap();
        assert_eq!(together.len(), 2 * 5000);
        for row in [0, 255, 256, 4999] {
            let alone = network.forward(&rows[row * 7..row * 7 + 7]).unwrap();
            assert_eq!(alone, together[row * 2..row * 2 + 2]);
        }
    }

    #[test]
    fn a_seed_makes_one_network() {
        let new = |seed| Mlp::new(architecture(&[15, 64, 64, 1]), seed).unwrap();
        assert_eq!(new(1), new(1));
        assert_ne!(new(1), new(2));
        assert_eq!(new(1).parameters().unwrap().len(), 16 * 64 + 65 * 64 + 65);
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(matches!(Mlp::new(architecture(&[3]), 1), Err(ModelError::Sizes(_))));
        assert!(matches!(Mlp::new(architecture(&[3, 0, 1]), 1), Err(ModelError::Sizes(_))));
        let network = Mlp::new(architecture(&[3, 4, 1]), 1).unwrap();
        assert_eq!(network.forward(&[1.0; 4]), Err(ModelError::Inputs { width: 3, found: 4 }));
        let from = |mean: f32, scale: f32, count: usize, value: f32| {
            Mlp::from_parameters(architecture(&[1, 1]), vec![mean], vec![scale], &vec![value; count])
        };
        assert!(from(0.0, 1.0, 2, 1.0).is_ok());
        assert!(from(0.0, 1.0, 3, 1.0).unwrap_err().to_string().contains("parameters"));
        assert_eq!(from(0.0, 0.0, 2, 1.0), Err(ModelError::NotFinite("scale".to_owned())));
        assert_eq!(from(f32::NAN, 1.0, 2, 1.0), Err(ModelError::NotFinite("mean".to_owned())));
        assert_eq!(from(0.0, 1.0, 2, f32::INFINITY), Err(ModelError::NotFinite("parameters".to_owned())));
    }

    /// Compared with the system's function in 64 bits.
    #[test]
    fn the_exponential_is_near_enough() {
        for step in -87_000..=88_000 {
            let x = step as f32 * 1e-3;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) / exact - 1.0).abs() < 3e-7, "{x}");
        }
        assert!(exp(-1e9) > 0.0 && exp(1e9).is_finite() && exp(0.0) == 1.0);
    }

    #[test]
    fn derivatives_of_activations() {
        for activation in [Activation::Relu, Activation::Silu] {
            for z in [-3.0_f32, -0.4, 0.7, 5.0] {
                let slope = (activation.of(z + 1e-2) - activation.of(z - 1e-2)) / 2e-2;
                assert!((slope - activation.derivative(z)).abs() < 1e-3, "{activation:?} {z}");
            }
        }
    }
}
