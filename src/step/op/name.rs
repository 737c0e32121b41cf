//! Operator names. No other module interprets them.

mod arguments;
mod calls;
mod communication;
mod lists;
mod nodes;
mod product_kernels;
mod renamed;
mod results;
mod tables;
mod traits;

pub use arguments::positions;
pub use calls::{
    accumulates_gradients, calls_a_convolution, checks_gradients, helps, is_convolution, is_copy, is_detach,
    is_first_layer, is_foreach, is_in_place, is_loss, is_product, is_whole, only_looks, tensors, weight,
};
pub use communication::{
    is_collective_call, is_collective_kernel, is_copy_between_gpus, is_host_collective, split_collective,
};
pub use lists::{UpdateStep, each, fused_lists, has_lists, is_each, takes_lists, update_step};
pub use nodes::{is_autograd_node, is_loss_node};
pub use product_kernels::{Factors, factors_of_kernel, is_product_kernel};
pub use renamed::{carried_out_for, gradients_since, with_lists};
pub use results::{ResultForm, result};
pub use traits::{
    has_powers, is_ampere_attention, is_average_pooling, is_averaged, is_cast, is_efficient_attention, is_kept_wide,
    is_log_softmax, reads_back,
};

use std::cell::RefCell;
use std::collections::HashMap;

use super::Family;
use tables::{
    ATTENTION, ATTENTION_PACKAGES, CELLS, COMPARISONS, ELEMENTWISE, FILLS, GEMM_PARTS, GEMMS, LOOKUPS, NORMALISATIONS,
    REARRANGEMENTS, RECURRENT, REDUCTION_PARTS, REDUCTIONS, VIEWS,
};
use traits::is_generated;

/// A decoded operator name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Name {
    /// Function of the operator.
    pub form: Form,
    /// Direction.
    pub pass: Pass,
    /// Whether it computes a loss or its gradient.
    pub loss: bool,
}

/// Direction of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// From inputs to results.
    Forward,
    /// Backward, gradient of the data only.
    DataGradient,
    /// Backward, gradient of the weights only.
    WeightGradient,
    /// Backward, both gradients.
    Backward,
}

impl Pass {
    /// Whether it computes gradients.
    pub fn is_backward(self) -> bool {
        self != Self::Forward
    }
}

/// Function of an operator, as far as its name identifies it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// A matrix product.
    Product(ProductForm),
    /// A convolution.
    Convolution {
        /// Whether it is transposed, that is, computes like the data gradient of an ordinary convolution.
        transposed: bool,
        /// Whether it is depthwise: each channel has its own filter.
        depthwise: bool,
    },
    /// A recurrent layer or cell.
    Recurrent {
        /// Whether it is a cell, which computes one position of a sequence.
        cell: bool,
    },
    /// Fused attention.
    Attention(AttentionForm),
    /// Softmax and its logarithm.
    Softmax,
    /// Normalisation.
    Normalisation(NormalisationForm),
    /// Pooling.
    Pooling,
    /// A table look-up.
    Lookup(LookupForm),
    /// A sum, mean, norm or loss.
    Reduction(ReductionForm),
    /// Element-wise work.
    Stream(StreamForm),
    /// A view: only the description of the memory changes.
    View,
    /// A collective between GPUs.
    Communication,
    /// An unknown operator.
    Unknown,
}

/// Argument layout of a matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductForm {
    /// Two factors.
    Plain,
    /// A summand, then two factors.
    BiasFirst,
    /// The second factor is stored as `[columns, reduction]`.
    Linear,
    /// Input, gradient and weight of a linear layer.
    LinearBackward,
    /// An equation gives the indices of both factors and of the result.
    Einsum,
    /// Each group of rows has its own matrix.
    Grouped,
    /// The second factor is quantized to integers of 4 or 8 bits, columns first.
    Packed {
        /// Columns per word of the first extent.
        word: u64,
    },
    /// Bilinear form: an input, one matrix per result, another input.
    Trilinear,
    /// One factor has 2:4 sparsity: two of four numbers are kept.
    Sparse {
        /// Whether the sparse factor is the weight of a linear layer; otherwise it is the first factor.
        linear: bool,
    },
}

/// Argument layout of fused attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttentionForm {
    /// Tensors are `[batch, heads, length, head size]`.
    HeadsFirst,
    /// Tensors are `[batch, length, heads, head size]`.
    LengthFirst,
    /// Like [`AttentionForm::HeadsFirst`], with the gradient of the result after the tensors.
    Flex,
}

/// Set of elements over which a normalisation computes mean and variance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormalisationForm {
    /// A channel, over the batch or one image.
    Channel,
    /// None: uses running statistics.
    ChannelWithStatistics,
    /// A group of channels.
    Group,
    /// A row: layer and RMS normalisation.
    Row,
}

/// Access pattern of a look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupForm {
    /// Reads rows of a table by index; the table is the first input.
    Embedding,
    /// Reads one element per index.
    Gather,
    /// Writes values to elements of a tensor.
    Scatter {
        /// Whether it changes the tensor itself instead of a copy.
        in_place: bool,
    },
    /// Writes values to rows of a tensor.
    Put {
        /// Whether it changes the tensor itself instead of a copy.
        in_place: bool,
    },
    /// Reads slices of a tensor by index.
    Index,
}

/// Kinds of reductions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReductionForm {
    /// A sum, mean, norm or sort.
    Sum,
    /// The negative log likelihood, which reads one element of each row.
    Likelihood,
    /// Another loss.
    Loss,
    /// Distance of every row of a matrix to every row of another.
    Distances,
    /// A result as large as the input: cumulative sums, sorting.
    Scan,
}

/// Kinds of element-wise operators.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StreamForm {
    /// Arithmetic.
    Plain,
    /// A fused parameter update that writes all its lists except the gradients: possible numbers of lists, the usual
    /// one first.
    Update(&'static [usize]),
    /// One operator on all tensors of lists; the result is as large as the first list.
    Foreach {
        /// Possible numbers of lists, the usual one first.
        lists: &'static [usize],
        /// Number of lists that are overwritten without being read.
        unread: f64,
    },
    /// Arithmetic with Boolean results of one byte each.
    Comparison,
    /// Arithmetic with a mask of one byte per element; the value is the mask's input position.
    Masked(usize),
    /// Dropout, which also writes a mask of one byte per element.
    Dropout,
    /// The gradient of a slice: zeros outside the slice.
    SliceGradient,
    /// Fills a tensor without reading it.
    Fill,
    /// Copies into a tensor.
    Copy,
    /// Concatenates tensors.
    Concatenation,
    /// Reorders elements.
    Rearrangement,
}

impl Name {
    /// Decodes `name`, which may be a kernel's if no operator was recorded. The names of a step repeat, so each thread
    /// keeps those it has decoded.
    pub fn of(name: &str) -> Self {
        /// Most names to keep; a step has a few hundred.
        const MOST: usize = 4096;
        thread_local! {
            static KNOWN: RefCell<HashMap<String, Name>> = RefCell::default();
        }
        KNOWN.with_borrow_mut(|known| {
            if let Some(found) = known.get(name) {
                return *found;
            }
            if known.len() >= MOST {
                known.clear();
            }
            let found = Self::decoded(name);
            known.insert(name.to_owned(), found);
            found
        })
    }

    fn decoded(name: &str) -> Self {
        let full = name.to_ascii_lowercase().replace("(anonymous namespace)::", "");
        // Template parameters and arguments of kernels would match other operators.
        let whole = full.split(['<', '(']).next().unwrap_or(&full).trim();
        let bare = whole.rsplit("::").next().unwrap_or(whole).trim_start_matches("void ").trim_start_matches('_');
        let form = form(&full, bare);
        let pass = if is_generated(bare) {
            // A generated kernel lists the operators fused into it, including backward ones, but runs as one pass over
            // its tensors.
            Pass::Forward
        } else if full.contains("backward_input") {
            Pass::DataGradient
        } else if full.contains("backward_weight") {
            Pass::WeightGradient
        } else if full.contains("backward") || matches!(form, Form::Attention(_)) && bare.contains("bwd") {
            Pass::Backward
        } else {
            Pass::Forward
        };
        Self { form, pass, loss: full.contains("loss") || full.contains("entropy") }
    }

    /// Kind of operator.
    pub fn family(self) -> Family {
        match self.form {
            Form::Product(_) => Family::Gemm,
            Form::Convolution { .. } => Family::Convolution,
            Form::Recurrent { .. } => Family::Recurrent,
            Form::Attention { .. } => Family::Attention,
            Form::Softmax => Family::Softmax,
            Form::Normalisation(_) => Family::Normalisation,
            Form::Pooling => Family::Pooling,
            Form::Lookup(_) => Family::Embedding,
            Form::Reduction(_) => Family::Reduction,
            Form::Stream(_) => Family::Elementwise,
            Form::View => Family::View,
            Form::Communication => Family::Communication,
            Form::Unknown => Family::Unknown,
        }
    }
}

/// Name without namespace and library; equivalent operators get the same one.
pub fn label(name: &str) -> String {
    /// Prefixes of equivalent operators and their replacements.
    const SAME: [(&str, &str); 4] =
        [("cudnn_", ""), ("miopen_", ""), ("native_", ""), ("max_pool2d_with_indices", "max_pool2d")];
    let bare = name.rsplit("::").next().unwrap_or(name).trim_matches('_');
    let mut bare = bare.split(['<', '(']).next().unwrap_or(bare).to_owned();
    for (name, as_name) in SAME {
        if let Some(rest) = bare.strip_prefix(name) {
            bare = format!("{as_name}{rest}");
        }
    }
    bare
}

/// Name without the namespace `aten`, which nearly all share.
pub fn short(name: &str) -> &str {
    name.strip_prefix("aten::").unwrap_or(name)
}

/// Whether it is one of `PyTorch`'s own operators, not a compiled kernel or an extension's.
pub fn is_own(name: &str) -> bool {
    short(name) != name
}

/// Decodes a name in lower case: `full`, and `bare` without namespace and leading underscores.
fn form(full: &str, bare: &str) -> Form {
    let has = |parts: &[&str]| parts.iter().any(|part| bare.contains(part));
    let stem = bare.trim_end_matches('_').trim_end_matches("_backward");
    let stems = |known: &[&str]| {
        known.iter().any(|known| {
            // The stem of `slice_backward` is a view.
            let is_known = |name: &str| {
                name.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', '.', ' ']))
            };
            is_known(stem) || is_known(bare)
        })
    };
    if is_generated(bare) {
        if bare.starts_with("triton_poi") {
            Form::Stream(StreamForm::Plain)
        } else {
            Form::Reduction(ReductionForm::Sum)
        }
    } else if communication::is_communication(full, bare) {
        Form::Communication
    } else if has(ATTENTION) || ATTENTION_PACKAGES.iter().any(|package| full.starts_with(package)) {
        Form::Attention(if bare.contains("flex_attention") {
            AttentionForm::Flex
        } else if full.contains("scaled_dot_product") {
            AttentionForm::HeadsFirst
        } else {
            AttentionForm::LengthFirst
        })
    } else if has(CELLS) {
        Form::Stream(StreamForm::Plain)
    } else if has(RECURRENT) || bare == "gru" {
        Form::Recurrent { cell: bare.contains("_cell") }
    } else if has(&["conv"]) && !has(&["convert"]) {
        Form::Convolution { transposed: full.contains("transpose"), depthwise: full.contains("depthwise") }
    } else if GEMMS.contains(&bare) || has(GEMM_PARTS) {
        Form::Product(product(bare))
    } else if has(&["softmax"]) {
        Form::Softmax
    } else if has(NORMALISATIONS) {
        Form::Normalisation(if full.contains("no_training") || full.contains("norm_no_update") {
            NormalisationForm::ChannelWithStatistics
        } else if ["batch_norm", "batchnorm", "instance_norm"].iter().any(|part| full.contains(part)) {
            NormalisationForm::Channel
        } else if full.contains("group_norm") {
            NormalisationForm::Group
        } else {
            NormalisationForm::Row
        })
    } else if has(&["pool"]) {
        Form::Pooling
    } else if has(LOOKUPS) && !has(&["rotary"]) || bare == "index" {
        Form::Lookup(lookup(bare))
    } else if VIEWS.contains(&bare) {
        Form::View
    } else if REDUCTIONS.contains(&stem) || has(REDUCTION_PARTS) {
        Form::Reduction(if bare.starts_with("nll_loss") {
            ReductionForm::Likelihood
        } else if stem.starts_with("cdist") {
            ReductionForm::Distances
        } else if full.contains("loss") {
            ReductionForm::Loss
        } else if ["cumsum", "cumprod", "sort"].contains(&stem) {
            ReductionForm::Scan
        } else {
            ReductionForm::Sum
        })
    } else if stems(ELEMENTWISE) {
        Form::Stream(stream(bare))
    } else {
        Form::Unknown
    }
}

fn product(bare: &str) -> ProductForm {
    match bare {
        "einsum" => ProductForm::Einsum,
        "linear_backward" => ProductForm::LinearBackward,
        "linear" | "mkldnn_linear" | "euclidean_dist" | "cdist" => ProductForm::Linear,
        "trilinear" => ProductForm::Trilinear,
        "weight_int4pack_mm" => ProductForm::Packed { word: 8 },
        "weight_int8pack_mm" | "weight_int4pack_mm_for_cpu" => ProductForm::Packed { word: 1 },
        _ if bare.starts_with("sparse_semi_structured") => ProductForm::Sparse { linear: bare.ends_with("linear") },
        _ if bare.contains("grouped_mm") => ProductForm::Grouped,
        _ if ["addm", "addbmm", "baddbmm", "sparse_addmm"].iter().any(|start| bare.starts_with(start)) => {
            ProductForm::BiasFirst
        }
        _ => ProductForm::Plain,
    }
}

fn lookup(bare: &str) -> LookupForm {
    let in_place = bare.ends_with('_');
    if bare.contains("scatter") {
        LookupForm::Scatter { in_place }
    } else if ["index_put", "index_add", "index_copy"].iter().any(|part| bare.contains(part)) {
        LookupForm::Put { in_place }
    } else if bare.contains("gather") || bare.contains("take_along") {
        LookupForm::Gather
    } else if bare.starts_with("embedding") {
        LookupForm::Embedding
    } else {
        LookupForm::Index
    }
}

fn stream(bare: &str) -> StreamForm {
    let stem = bare.trim_end_matches('_');
    // Parameter, gradient and optimizer state: two moments for Adam, plus the largest second moment with AMSGrad; a sum
    // of squares for Adagrad; the momentum for SGD, if any.
    if stem.starts_with("fused_adagrad") {
        StreamForm::Update(&[3])
    } else if stem.starts_with("fused_sgd") {
        StreamForm::Update(&[3, 2])
    } else if stem.starts_with("fused_adam") {
        StreamForm::Update(&[4, 5])
    } else if let Some(each) = stem.strip_prefix("foreach_") {
        let (lists, unread): (&[usize], f64) = match each {
            "addcmul" | "addcdiv" => (&[3], 0.0),
            "lerp" => (&[2, 3], 0.0),
            "add" | "sub" | "maximum" | "minimum" => (&[2, 1], 0.0),
            "copy" => (&[2], 1.0),
            "zero" => (&[1], 1.0),
            _ => (&[1], 0.0),
        };
        StreamForm::Foreach { lists, unread }
    } else if FILLS.contains(&bare) {
        StreamForm::Fill
    } else if REARRANGEMENTS.contains(&stem) {
        StreamForm::Rearrangement
    } else if COMPARISONS.contains(&bare) {
        StreamForm::Comparison
    } else {
        match stem {
            "copy" => StreamForm::Copy,
            "cat" | "stack" => StreamForm::Concatenation,
            "native_dropout" | "fused_dropout" => StreamForm::Dropout,
            "where" => StreamForm::Masked(0),
            "masked_fill" | "masked_scale" | "native_dropout_backward" => StreamForm::Masked(1),
            "slice_backward" | "select_backward" | "diagonal_backward" | "unfold_backward" => StreamForm::SliceGradient,
            _ => StreamForm::Plain,
        }
    }
}

#[cfg(test)]
mod tests;
