//! The training loop: deterministic to the bit.
//!
//! One epoch is a pass over the rows in random order, with a step of Adam (Kingma and Ba 2015, β 0.9 and 0.999, ε 1e-8)
//! per batch. Gradients are explicit: of the loss with respect to the output by [`Head`], through a layer h′ = f(h·W +
//! b) as ∂W = hᵀ·∂z, ∂b = Σ rows of ∂z, ∂h = ∂z·Wᵀ with ∂z = ∂h′ ∘ f′(z).

use std::ops::ControlFlow;

use candle_core::{Device, Tensor};
use habitat_tui::predict::bundle::{Bundle, Plain};
use habitat_tui::predict::head::Head;
use habitat_tui::predict::mlp::{
    Activation, Architecture, Layer, Mlp, ModelError, batch, in_place, normalise, through,
};
use habitat_tui::random::Random;

use super::options::value_and_slope;
pub use super::options::{Decay, FitError, FitOptions, Fitted, Loss, Rows, Schedule};

const BETA: (f32, f32) = (0.9, 0.999);
const EPSILON: f32 = 1e-8;
/// Offsets below this have a quadratic penalty, larger ones a linear penalty.
const SMALL_OFFSET: f64 = 0.01;
/// Learning-rate factor of offsets: they are few and may move faster than weights.
const OFFSET_PACE: f32 = 3.0;

/// State of a training after an epoch.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Epochs done.
    pub epoch: u32,
    /// Epochs in all.
    pub epochs: u32,
    /// Mean loss during the epoch.
    pub loss: f64,
    /// Learning rate of the epoch.
    pub rate: f32,
    training: &'a Training<'a>,
}

impl Progress<'_> {
    /// The current network.
    ///
    /// # Errors
    /// [`ModelError::NotFinite`] if the training has diverged.
    pub fn network(&self) -> Result<Mlp, ModelError> {
        self.training.network()
    }

    /// The current offsets of the groups.
    pub fn offsets(&self) -> &[f32] {
        &self.training.offsets
    }

    /// State from which [`fit`] continues to the same bits.
    ///
    /// # Errors
    /// As [`Progress::network`].
    pub fn checkpoint(&self) -> Result<Vec<u8>, ModelError> {
        self.training.checkpoint()
    }
}

/// Trains a network on `rows`. Continues from `checkpoint` if given; calls `on_epoch` after every epoch, which may stop
/// the training.
///
/// The same rows and options give the same bits, with or without interruptions; the order of an epoch depends only on
/// the seed and the epoch's number.
///
/// # Errors
/// [`FitError`] if rows or options are unusable, the checkpoint is of another training, or the loss is not finite.
pub fn fit(
    rows: &Rows,
    head: Head,
    options: &FitOptions,
    checkpoint: Option<&[u8]>,
    on_epoch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Fitted, FitError> {
    check(rows, head, options)?;
    let mut training = Training::new(rows, head, options)?;
    if let Some(bytes) = checkpoint {
        training.restore(bytes)?;
    }
    while training.epoch < options.epochs {
        training.one_epoch()?;
        if !training.loss.is_finite() {
            return Err(FitError::Diverged(training.epoch));
        }
        let progress = Progress {
            epoch: training.epoch,
            epochs: options.epochs,
            loss: training.loss,
            rate: options.schedule.rate(training.epoch - 1, options.epochs),
            training: &training,
        };
        if on_epoch(&progress).is_break() {
            break;
        }
    }
    Ok(Fitted {
        network: training.network().map_err(|_| FitError::Diverged(training.epoch))?,
        offsets: training.offsets.clone(),
        epochs: training.epoch,
        loss: training.loss,
        finished: training.epoch >= options.epochs,
    })
}

fn check(rows: &Rows, head: Head, options: &FitOptions) -> Result<(), FitError> {
    let wrong = |what: &str| Err(FitError::Options(what.to_owned()));
    rows.check(matches!(head, Head::Bounded { .. }))?;
    if options.batch == 0 || options.epochs == 0 {
        return wrong("batch and epochs must be at least 1");
    }
    match (head, options.loss) {
        (Head::Bounded { .. }, Loss::MapeAndRmse) => wrong("the loss with a root mean square is for a direct head"),
        (Head::Direct, Loss::SymmetricRelative { .. }) => {
            wrong("the symmetric relative loss needs times above 0, which a direct head does not promise")
        }
        (_, Loss::SymmetricRelative { delta }) if !(delta > 0.0 && delta.is_finite()) => wrong("delta must be above 0"),
        (Head::Bounded { upper }, _) if !(upper > 0.0 && upper.is_finite()) => wrong("the upper share must be above 0"),
        _ => Ok(()),
    }
}

/// Adam's two running means of a set of numbers.
#[derive(Debug, Clone)]
struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

impl Moments {
    fn zero(count: usize) -> Self {
        Self { first: vec![0.0; count], second: vec![0.0; count] }
    }

    /// One step of Adam on `values`.
    fn step(&mut self, values: &mut [f32], gradient: &[f32], pace: Pace) {
        let Pace { rate, corrections, shrink, penalty } = pace;
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((value, &gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient + penalty * *value;
            *first = BETA.0 * *first + (1.0 - BETA.0) * gradient;
            *second = BETA.1 * *second + (1.0 - BETA.1) * gradient * gradient;
            let step = (*first * corrections.0) / ((*second * corrections.1).sqrt() + EPSILON);
            *value = *value * shrink - rate * step;
        }
    }
}

/// Size of a step, the same for all numbers of a kind.
#[derive(Debug, Clone, Copy)]
struct Pace {
    rate: f32,
    /// 1 / (1 − βᵗ) of both moments.
    corrections: (f32, f32),
    shrink: f32,
    penalty: f32,
}

impl Pace {
    fn new(rate: f32, steps: u64) -> Self {
        let correction = |beta: f32| (1.0 / (1.0 - f64::from(beta).powf(steps as f64))) as f32;
        Self { rate, corrections: (correction(BETA.0), correction(BETA.1)), shrink: 1.0, penalty: 0.0 }
    }

    fn with(self, decay: Decay, bias: bool) -> Self {
        match decay {
            Decay::Decoupled(_) if bias => self,
            Decay::Decoupled(decay) => Self { shrink: 1.0 - self.rate * decay, ..self },
            Decay::Penalty(penalty) => Self { penalty, ..self },
        }
    }
}

#[derive(Debug)]
struct Training<'a> {
    rows: &'a Rows,
    head: Head,
    options: &'a FitOptions,
    architecture: Architecture,
    mean: Vec<f32>,
    scale: Vec<f32>,
    /// Normalised features: rows × width.
    inputs: Tensor,
    layers: Vec<Layer>,
    /// Moments of every layer's weights and biases.
    moments: Vec<[Moments; 2]>,
    offsets: Vec<f32>,
    offset_moments: Moments,
    steps: u64,
    epoch: u32,
    loss: f64,
}

impl<'a> Training<'a> {
    fn new(rows: &'a Rows, head: Head, options: &'a FitOptions) -> Result<Self, FitError> {
        let width = rows.width();
        let (mean, scale) = if options.standardise {
            normalisation(&rows.features, width)
        } else {
            (vec![0.0; width], vec![1.0; width])
        };
        let sizes = std::iter::once(width).chain(options.hidden.iter().copied()).chain([1]).collect();
        let architecture = Architecture { sizes, activation: options.activation };
        let start = Mlp::new(architecture.clone(), options.seed)?;
        let moments =
            architecture.layers().map(|(inputs, outputs)| [Moments::zero(inputs * outputs), Moments::zero(outputs)]);
        let groups = if matches!(head, Head::Bounded { .. }) { rows.groups() } else { 0 };
        Ok(Self {
            rows,
            head,
            options,
            inputs: batch(normalise(&rows.features, &mean, &scale), width).map_err(ModelError::from)?,
            layers: start.layers().iter().map(own).collect::<Result<_, _>>().map_err(ModelError::from)?,
            moments: moments.collect(),
            offsets: vec![0.0; groups],
            offset_moments: Moments::zero(groups),
            architecture,
            mean,
            scale,
            steps: 0,
            epoch: 0,
            loss: f64::INFINITY,
        })
    }

    fn network(&self) -> Result<Mlp, ModelError> {
        let mut parameters = Vec::with_capacity(self.architecture.parameter_count());
        for Layer { weight, bias } in &self.layers {
            parameters.extend(weight.flatten_all()?.to_vec1::<f32>()?);
            parameters.extend(bias.to_vec1::<f32>()?);
        }
        Mlp::from_parameters(self.architecture.clone(), self.mean.clone(), self.scale.clone(), &parameters)
    }

    fn one_epoch(&mut self) -> Result<(), ModelError> {
        let count = self.rows.len();
        let mut order: Vec<u32> = (0..count as u32).collect();
        Random::of(self.options.seed, u64::from(self.epoch) + 1).shuffle(&mut order);
        // One copy in the new order, so that every batch is a slice of it.
        let inputs = self.inputs.index_select(&Tensor::from_slice(&order, count, &Device::Cpu)?, 0)?;
        let rate = self.options.schedule.rate(self.epoch, self.options.epochs);
        let (mut loss, mut weight) = (0.0, 0.0);
        for (index, chosen) in order.chunks(self.options.batch).enumerate() {
            let batch = inputs.narrow(0, index * self.options.batch, chosen.len())?;
            let (batch_loss, batch_weight) = self.one_step(&batch, chosen, rate)?;
            loss += batch_loss;
            weight += batch_weight;
        }
        self.loss = if weight > 0.0 { loss / weight } else { 0.0 };
        self.epoch += 1;
        Ok(())
    }

    /// A step on the rows `chosen`; returns their summed loss and weight.
    fn one_step(&mut self, inputs: &Tensor, chosen: &[u32], rate: f32) -> candle_core::Result<(f64, f64)> {
        let activation = self.architecture.activation;
        let last = self.layers.len() - 1;
        // Inputs of each layer, and for a smooth activation its arguments.
        let mut hidden = vec![inputs.clone()];
        let mut arguments = Vec::with_capacity(last);
        for (index, layer) in self.layers.iter().enumerate() {
            let result = if index == last {
                through(&hidden[index], layer, None)?
            } else if activation == Activation::Relu {
                through(&hidden[index], layer, Some(activation))?
            } else {
                let argument = through(&hidden[index], layer, None)?;
                let result = argument.copy()?;
                in_place(&result, &argument, |result, argument| {
                    result.iter_mut().zip(argument).for_each(|(h, &z)| *h = activation.of(z));
                })?;
                arguments.push(argument);
                result
            };
            hidden.push(result);
        }
        let outputs = hidden[last + 1].flatten_all()?.to_vec1::<f32>()?;
        let evaluated = self.loss_and_slope(&outputs, chosen);
        let mut gradient = batch(evaluated.gradient, 1)?;
        self.steps += 1;
        let pace = Pace::new(rate, self.steps);
        for index in (0..=last).rev() {
            let layer = &self.layers[index];
            let by_weight = hidden[index].t()?.matmul(&gradient)?;
            let by_bias = Tensor::zeros(layer.bias.dims1()?, candle_core::DType::F32, &Device::Cpu)?;
            in_place(&by_bias, &gradient, |sums, rows| {
                for row in rows.chunks_exact(sums.len()) {
                    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
            })?;
            if index > 0 {
                gradient = gradient.matmul(&layer.weight.t()?)?;
                // The sign of a rectified number is that of its argument.
                let argument = if activation == Activation::Relu { &hidden[index] } else { &arguments[index - 1] };
                in_place(&gradient, argument, |gradient, argument| match activation {
                    Activation::Relu => {
                        gradient.iter_mut().zip(argument).for_each(|(g, &h)| *g = if h > 0.0 { *g } else { 0.0 });
                    }
                    Activation::Silu => {
                        gradient.iter_mut().zip(argument).for_each(|(g, &z)| *g *= activation.derivative(z));
                    }
                })?;
            }
            let [of_weight, of_bias] = &mut self.moments[index];
            let decay = self.options.decay;
            in_place(&layer.weight, &by_weight, |w, g| of_weight.step(w, g, pace.with(decay, false)))?;
            in_place(&layer.bias, &by_bias, |b, g| of_bias.step(b, g, pace.with(decay, true)))?;
        }
        self.offset_moments.step(
            &mut self.offsets,
            &evaluated.by_offset,
            Pace { rate: pace.rate * OFFSET_PACE, ..pace },
        );
        Ok((evaluated.loss, evaluated.weight))
    }

    /// Loss of a batch and its gradients with respect to each output and each offset.
    fn loss_and_slope(&self, outputs: &[f32], chosen: &[u32]) -> Evaluated {
        let rows = self.rows;
        let weight: f64 = chosen.iter().map(|&row| rows.weight(row as usize)).sum();
        let mut by_offset = vec![0.0_f64; self.offsets.len()];
        let (mut loss, mut gradient) = (0.0, Vec::with_capacity(outputs.len()));
        let rmse_us = self.rmse(outputs, chosen, weight);
        for (&output, &row) in outputs.iter().zip(chosen) {
            let row = row as usize;
            let group = rows.group.get(row).map(|&group| group as usize).filter(|_| !by_offset.is_empty());
            let offset = group.map_or(0.0, |group| self.offsets[group]);
            let at = |column: &[f32]| column.get(row).copied().unwrap_or(0.0);
            let (floor, bound) = (at(&rows.floor_us), at(&rows.bound_us));
            let (time, by_output) = self.head.time(output, floor, bound, offset);
            let (value, by_time) = value_and_slope(self.options.loss, time, f64::from(rows.measured_us[row]), rmse_us);
            let counts = rows.weight(row);
            loss += counts * value;
            let share = if weight > 0.0 { counts / weight } else { 0.0 };
            gradient.push((share * by_time * by_output) as f32);
            if let Some(group) = group {
                by_offset[group] += share * by_time * self.head.by_offset(output, bound, offset);
            }
        }
        // √(o² + ε²): like |o|, so that one outlier group does not shift all others.
        let penalty = |offset: f32| {
            let offset = f64::from(offset);
            f64::from(self.options.offset_penalty) * offset / offset.hypot(SMALL_OFFSET)
        };
        let by_offset = by_offset.iter().zip(&self.offsets).map(|(slope, &offset)| (slope + penalty(offset)) as f32);
        Evaluated { loss, weight, gradient, by_offset: by_offset.collect() }
    }

    /// Root mean square error of a batch, in microseconds; 0 for losses that do not need it.
    fn rmse(&self, outputs: &[f32], chosen: &[u32], weight: f64) -> f64 {
        if self.options.loss != Loss::MapeAndRmse || weight <= 0.0 {
            return 0.0;
        }
        let squares = outputs.iter().zip(chosen).map(|(&output, &row)| {
            let row = row as usize;
            let at = |column: &[f32]| column.get(row).copied().unwrap_or(0.0);
            let (time, _) = self.head.time(output, at(&self.rows.floor_us), at(&self.rows.bound_us), 0.0);
            self.rows.weight(row) * (time - f64::from(self.rows.measured_us[row])).powi(2)
        });
        (squares.sum::<f64>() / weight).sqrt()
    }

    /// A hash that identifies this training.
    fn fingerprint(&self) -> String {
        // FNV-1a, 64 bits.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |bytes: &[u8]| {
            for &byte in bytes {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        add(format!("{:?} {:?}", self.head, self.options).as_bytes());
        let rows = self.rows;
        for column in [&rows.features, &rows.floor_us, &rows.bound_us, &rows.measured_us, &rows.weight] {
            add(&column.len().to_le_bytes());
            for value in column {
                add(&value.to_le_bytes());
            }
        }
        for group in &rows.group {
            add(&group.to_le_bytes());
        }
        format!("{hash:016x}")
    }

    fn checkpoint(&self) -> Result<Vec<u8>, ModelError> {
        let all = || self.moments.iter().flatten().chain([&self.offset_moments]);
        let first: Vec<f32> = all().flat_map(|moments| &moments.first).copied().collect();
        let second: Vec<f32> = all().flat_map(|moments| &moments.second).copied().collect();
        let mut bundle = Bundle::default();
        bundle.networks.insert("network".to_owned(), self.network()?);
        for (name, values) in [("first", first), ("second", second), ("offsets", self.offsets.clone())] {
            bundle.tensors.insert(name.to_owned(), Plain { shape: vec![values.len()], values });
        }
        for (name, value) in [
            ("fingerprint", self.fingerprint()),
            ("epoch", self.epoch.to_string()),
            ("steps", self.steps.to_string()),
            ("loss", self.loss.to_string()),
        ] {
            bundle.metadata.insert(name.to_owned(), value);
        }
        bundle.to_bytes()
    }

    fn restore(&mut self, bytes: &[u8]) -> Result<(), FitError> {
        let bundle = Bundle::from_bytes(bytes)?;
        let said = |key: &str| bundle.metadata.get(key).map_or("", String::as_str);
        if said("fingerprint") != self.fingerprint() {
            return Err(FitError::OtherTraining);
        }
        let (Ok(epoch), Ok(steps), Ok(loss)) = (said("epoch").parse(), said("steps").parse(), said("loss").parse())
        else {
            return Err(ModelError::Form("a checkpoint without epoch, steps and loss".to_owned()).into());
        };
        let network = bundle.network("network")?;
        if *network.architecture() != self.architecture {
            return Err(FitError::OtherTraining);
        }
        self.layers = network.layers().iter().map(own).collect::<Result<_, _>>().map_err(ModelError::from)?;
        let count = self.architecture.parameter_count() + self.offsets.len();
        let (mut first, mut second) = (bundle.tensor("first", &[count])?, bundle.tensor("second", &[count])?);
        self.offsets = bundle.tensor("offsets", &[self.offsets.len()])?.to_vec();
        for moments in self.moments.iter_mut().flatten().chain([&mut self.offset_moments]) {
            for (place, rest) in [(&mut moments.first, &mut first), (&mut moments.second, &mut second)] {
                let (own, after) = rest.split_at(place.len());
                place.copy_from_slice(own);
                *rest = after;
            }
        }
        (self.epoch, self.steps, self.loss) = (epoch, steps, loss);
        Ok(())
    }
}

#[derive(Debug)]
struct Evaluated {
    loss: f64,
    weight: f64,
    gradient: Vec<f32>,
    by_offset: Vec<f32>,
}

/// Tensors without other owners, so that they may be changed in place.
fn own(layer: &Layer) -> candle_core::Result<Layer> {
    Ok(Layer { weight: layer.weight.copy()?, bias: layer.bias.copy()? })
}

/// Mean and standard deviation of every column; 1 for a column that does not vary.
fn normalisation(features: &[f32], width: usize) -> (Vec<f32>, Vec<f32>) {
    let rows = (features.len() / width) as f64;
    let column = |index: usize| features.iter().skip(index).step_by(width).map(|&x| f64::from(x));
    let mean: Vec<f64> = (0..width).map(|index| column(index).sum::<f64>() / rows).collect();
    let deviation = |index: usize| {
        let deviation = (column(index).map(|x| (x - mean[index]).powi(2)).sum::<f64>() / rows).sqrt();
        if deviation > 1e-6 * mean[index].abs().max(1e-6) { deviation as f32 } else { 1.0 }
    };
    (mean.iter().map(|&mean| mean as f32).collect(), (0..width).map(deviation).collect())
}
