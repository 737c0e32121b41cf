//! Conversion of rows of a collection to operations.

use crate::store::operator_tables;
use habitat_step::op::Name;
use habitat_step::profile::tensors::note_channels_last;
use habitat_step::profile::{Attribute, Operation, Phase};

/// Maximum number of tensors in an optimizer's update.
const MOST_TENSORS: u64 = 64;

/// Configuration in the form `key=value;key=value`.
pub(super) struct Config<'a>(pub(super) &'a str);

impl Config<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.0.split(';').find_map(|pair| pair.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value))
    }

    /// A size of at least 1.
    fn size(&self, key: &str) -> Result<u64, String> {
        let value = self.text(key).ok_or_else(|| format!("config: {key} is missing in {:?}", self.0))?;
        let number = value.parse().ok().filter(|&number: &u64| number > 0 && number < 1 << 40);
        number.ok_or_else(|| format!("config: {key}={value}: expected a whole number above 0"))
    }

    fn is_channels_last(&self) -> bool {
        self.text("layout").is_some_and(|layout| layout != "nchw")
    }

    /// Shape of images; square ones have no width.
    fn image(&self) -> Result<Vec<u64>, String> {
        let height = self.size("h")?;
        let width = if self.text("w").is_some() { self.size("w")? } else { height };
        Ok(vec![self.size("n")?, self.size("c")?, height, width])
    }

    /// A number that may be 0; a missing one is 0.
    fn count(&self, key: &str) -> Result<u64, String> {
        match self.text(key) {
            None | Some("0" | "None") => Ok(0),
            Some(_) => self.size(key),
        }
    }
}

/// Operation of a row and its table; `None` if no model covers it.
pub(super) fn operation(
    op: &str,
    pass: &str,
    config: &Config<'_>,
) -> Result<Option<(&'static str, Operation)>, String> {
    let size = |key: &str| config.size(key);
    let forward = pass == "fwd";
    Ok(Some(match op {
        "linear" => {
            let (b, k, n) = (size("b")?, size("k")?, size("n")?);
            let operation = match pass {
                "fwd" => of("aten::linear", vec![vec![b, k], vec![n, k]], Vec::new()),
                "dgrad" => of("aten::mm", vec![vec![b, n], vec![n, k]], vec![vec![b, k]]),
                "wgrad" => of("aten::mm", vec![vec![n, b], vec![b, k]], vec![vec![n, k]]),
                _ => return Ok(None),
            };
            ("linear", operation)
        }
        "bmm" if forward => {
            let (b, m, k, n) = (size("b")?, size("m")?, size("k")?, size("n")?);
            ("bmm", of("aten::bmm", vec![vec![b, m, k], vec![b, k, n]], vec![vec![b, m, n]]))
        }
        // Other layouts use other kernels.
        "conv2d" | "conv2d_depthwise" if !config.is_channels_last() => match convolution(pass, config)? {
            Some(operation) => ("conv2d", operation),
            None => return Ok(None),
        },
        "softmax" | "layer_norm" => {
            let shape = vec![size("rows")?, size("cols")?];
            let (table, name, backward) = if op == "softmax" {
                ("softmax", "aten::softmax", "aten::_softmax_backward_data")
            } else {
                ("layernorm", "aten::layer_norm", "aten::native_layer_norm_backward")
            };
            match pass {
                "fwd" => (table, of(name, vec![shape.clone()], vec![shape])),
                "bwd" => (table, of(backward, vec![shape.clone(), shape.clone()], vec![shape])),
                _ => return Ok(None),
            }
        }
        "batch_norm" | "group_norm" if !config.is_channels_last() => {
            let shape = config.image()?;
            let name = format!("aten::{op}{}", if forward { "" } else { "_backward" });
            let inputs = if forward { vec![shape.clone()] } else { vec![shape.clone(), shape.clone()] };
            ("elementwise", of(&name, inputs, vec![shape]))
        }
        "elementwise" => {
            let shape = vec![size("n")?];
            let function = config.text("fn").unwrap_or_default();
            if !["add", "mul", "relu", "gelu", "tanh", "silu"].contains(&function) {
                return Ok(None);
            }
            let two = matches!(function, "add" | "mul") || !forward;
            let inputs = if two { vec![shape.clone(), shape.clone()] } else { vec![shape.clone()] };
            let name = format!("aten::{function}{}", if forward { "" } else { "_backward" });
            ("elementwise", of(&name, inputs, vec![shape]))
        }
        _ => return Ok(None),
    }))
}

/// Operation of a row without an operator model; `None` if it consists of several operators or is measured by other
/// programs.
pub(super) fn other(op: &str, pass: &str, config: &Config<'_>) -> Result<Option<Operation>, String> {
    let size = |key: &str| config.size(key);
    let (forward, backward) = (pass == "fwd", pass == "bwd");
    Ok(match op {
        "conv2d" | "conv2d_depthwise" => convolution(pass, config)?.map(|mut operation| {
            note_channels_last(&mut operation.attributes);
            operation
        }),
        "batch_norm" if forward || backward => {
            let shape = config.image()?;
            let (name, inputs) = match pass {
                "fwd" => ("aten::native_batch_norm", vec![shape.clone()]),
                _ => ("aten::native_batch_norm_backward", vec![shape.clone(), shape.clone()]),
            };
            let mut operation = with(of(name, inputs, vec![shape]), &[("training", Attribute::Bool(true))]);
            note_channels_last(&mut operation.attributes);
            Some(operation)
        }
        "sdpa" if forward || backward => {
            let Some(kernel @ ("flash" | "efficient" | "cudnn")) = config.text("kernel") else { return Ok(None) };
            let (batch, heads, depth) = (size("b")?, size("heads")?, size("d")?);
            let [query, key] = [size("sq")?, size("skv")?].map(|length| vec![batch, heads, length, depth]);
            let name = format!("aten::_scaled_dot_product_{kernel}_attention");
            let operation = if forward {
                of(&name, vec![query.clone(), key.clone(), key], vec![query])
            } else {
                let inputs = vec![query.clone(), query.clone(), key.clone(), key, query.clone()];
                of(&format!("{name}_backward"), inputs, vec![query])
            };
            let is_causal = Attribute::Bool(config.count("causal")? != 0);
            Some(with(operation, &[("dropout_p", Attribute::Float(0.0)), ("is_causal", is_causal)]))
        }
        "lstm" if forward || backward => Some(lstm(forward, config)?),
        "log_softmax" if forward || backward => {
            let shape = vec![size("rows")?, size("cols")?];
            let (name, inputs) = match pass {
                "fwd" => ("aten::_log_softmax", vec![shape.clone()]),
                _ => ("aten::_log_softmax_backward_data", vec![shape.clone(), shape.clone()]),
            };
            Some(of(name, inputs, vec![shape]))
        }
        "nll_loss" if forward => {
            let (rows, classes) = (size("rows")?, size("cols")?);
            Some(of("aten::nll_loss_forward", vec![vec![rows, classes], vec![rows]], Vec::new()))
        }
        "embedding" if forward || backward => {
            let (rows, columns, tokens) = (size("rows")?, size("cols")?, size("tokens")?);
            let (table, found, tokens) = (vec![rows, columns], vec![tokens, columns], vec![tokens]);
            Some(if forward {
                of("aten::embedding", vec![table, tokens], vec![found])
            } else {
                let operation = of("aten::embedding_dense_backward", vec![found, tokens], vec![table]);
                with(operation, &[("num_weights", Attribute::Int(rows as i64))])
            })
        }
        "optimizer" if config.text("impl") == Some("fused") => {
            let (name, lists) = match config.text("fn") {
                Some("sgd") => ("aten::_fused_sgd_", 3),
                Some("adam") => ("aten::_fused_adam_", 4),
                Some("adamw") => ("aten::_fused_adamw_", 4),
                _ => return Ok(None),
            };
            let (tensors, elements) = (size("tensors")?, size("n")?);
            Some(of(name, vec![vec![elements]; lists * tensors.min(MOST_TENSORS) as usize], Vec::new()))
        }
        _ => None,
    })
}

/// A layer of an LSTM in one direction, by cuDNN.
fn lstm(forward: bool, config: &Config<'_>) -> Result<Operation, String> {
    let (batch, input, hidden, length) =
        (config.size("b")?, config.size("input")?, config.size("hidden")?, config.size("seq")?);
    let gates = 4 * hidden;
    let (state, output) = (vec![1, batch, hidden], vec![length, batch, hidden]);
    let weights = gates * (input + hidden + 2);
    let mut inputs = vec![vec![length, batch, input], vec![gates, input], vec![gates, hidden], vec![gates]];
    inputs.extend([vec![gates], vec![weights], state.clone(), state]);
    let name = if forward { "aten::_cudnn_rnn" } else { "aten::_cudnn_rnn_backward" };
    if !forward {
        inputs.extend([output.clone(), output.clone()]);
    }
    let attributes = [
        ("mode", Attribute::Int(2)),
        ("num_layers", Attribute::Int(1)),
        ("hidden_size", Attribute::Int(hidden as i64)),
        ("bidirectional", Attribute::Bool(false)),
        ("training", Attribute::Bool(true)),
    ];
    Ok(with(of(name, inputs, vec![output]), &attributes))
}

fn with(mut operation: Operation, attributes: &[(&str, Attribute)]) -> Operation {
    operation.attributes.extend(attributes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    operation
}

fn convolution(pass: &str, config: &Config<'_>) -> Result<Option<Operation>, String> {
    // Transposed convolutions are different operations.
    if config.count("transposed")? != 0 {
        return Ok(None);
    }
    let size = |key: &str| config.size(key);
    let (batch, inside, outside) = (size("b")?, size("cin")?, size("cout")?);
    let (image, kernel, stride, padding) = (size("h")?, size("kernel")?, size("stride")?, config.count("pad")?);
    let groups = config.count("groups")?.max(1);
    if inside % groups != 0 || image + 2 * padding < kernel {
        return Err(format!("config: {}: impossible convolution", habitat_base::text::clean(config.0, 100)));
    }
    let places = (image + 2 * padding - kernel) / stride + 1;
    let (input, weight) = (vec![batch, inside, image, image], vec![outside, inside / groups, kernel, kernel]);
    let output = vec![batch, outside, places, places];
    let mut operation = match pass {
        "fwd" => of("aten::conv2d", vec![input, weight], vec![output]),
        "dgrad" => of("aten::convolution_backward", vec![output, input.clone(), weight], vec![input]),
        "wgrad" => of("aten::convolution_backward", vec![output, input, weight.clone()], vec![weight]),
        _ => return Ok(None),
    };
    for (key, value) in [("stride", stride), ("padding", padding)] {
        operation.attributes.insert(key.to_owned(), Attribute::List(vec![Attribute::Int(value as i64); 2]));
    }
    if groups > 1 {
        operation.attributes.insert("groups".to_owned(), Attribute::Int(groups as i64));
    }
    if pass != "fwd" {
        let mask = [pass == "dgrad", pass == "wgrad", false].map(Attribute::Bool).to_vec();
        operation.attributes.insert("output_mask".to_owned(), Attribute::List(mask));
    }
    Ok(Some(operation))
}

fn of(name: &str, inputs: Vec<Vec<u64>>, outputs: Vec<Vec<u64>>) -> Operation {
    let phase = if Name::of(name).pass.is_backward() { Phase::Backward } else { Phase::Forward };
    Operation { phase, outputs, ..operator_tables::forward(name, inputs, Vec::new()) }
}
