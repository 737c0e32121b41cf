//! Operations of a step: name, phase, shapes, and measurements.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::StrDeserializer;
use serde::de::{self, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::kernel::{Kernel, is_one, one};
use habitat_base::units::{Micros, most};

/// An operator call of the framework, at the lowest level that has shapes.
///
/// `count` identical occurrences (same name, shapes, dtype, attributes, phase and module group) are one operation;
/// times and kernels are those of ONE occurrence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// The framework's operator name, such as `aten::mm`.
    pub name: String,
    /// The module it belongs to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// The part of the step it belongs to.
    pub phase: Phase,
    /// Occurrences in the step.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub count: u32,
    /// Tensor shapes in argument order; an empty shape is a scalar.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Shape>,
    /// Shapes of the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<Shape>,
    /// Element type of the (first floating-point) input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtype: Option<DType>,
    /// Non-tensor arguments by name, such as `stride` or `groups`. `memory_format`, `access`, `input_dtypes` and
    /// `output_dtypes` describe the memory layout of its tensors, and types that differ between tensors.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// Device time of one occurrence on the origin GPU, mean over occurrences and steps.
    #[serde(default, rename = "device_time_us", skip_serializing_if = "Option::is_none")]
    pub device_time: Option<Micros>,
    /// CPU time of one occurrence under the profiler, mean over occurrences and steps; only in recordings without a
    /// GPU. Comparisons of two such recordings use it, predictions do not.
    #[serde(default, rename = "cpu_time_us", skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<Micros>,
    /// Kernels that one occurrence launches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<Kernel>,
}

impl Operation {
    /// Device time of all occurrences; `None` if not measured.
    pub fn total_device_time(&self) -> Option<Micros> {
        self.device_time.map(|time| time * f64::from(self.count))
    }

    /// First field with a value beyond all limits, and the problem.
    pub fn beyond(&self) -> Option<(String, String)> {
        if self.count > most::OCCURRENCES {
            return Some(("count".to_owned(), format!("{}; the limit is {}", self.count, most::OCCURRENCES)));
        }
        for (field, shapes) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            let is_beyond = |shape: &&Shape| {
                shape.len() > most::DIMENSIONS
                    || shape.iter().map(|&extent| extent.max(1) as f64).product::<f64>() > most::ELEMENTS
            };
            if let Some(shape) = shapes.iter().find(is_beyond) {
                let shown = habitat_base::text::clean(&format!("{shape:?}"), 80);
                let problem = format!(
                    "{shown} is too large: the limits are {} dimensions and {:e} elements",
                    most::DIMENSIONS,
                    most::ELEMENTS
                );
                return Some((field.to_owned(), problem));
            }
        }
        let volume =
            |extents: Option<[u32; 3]>| extents.map_or(0.0, |it| it.into_iter().map(f64::from).product::<f64>());
        self.kernels.iter().enumerate().find_map(|(index, kernel)| {
            let at = |field: &str| format!("kernels[{index}].{field}");
            if kernel.count > most::OCCURRENCES {
                return Some((at("count"), format!("{}; the limit is {}", kernel.count, most::OCCURRENCES)));
            }
            let extents = [("grid", kernel.grid, most::BLOCKS), ("block", kernel.block, most::THREADS)];
            let (field, extents, most) = extents.into_iter().find(|(_, extents, most)| volume(*extents) > *most)?;
            Some((
                at(field),
                format!("{:?} is too large: the limit for the product is {most}", extents.unwrap_or_default()),
            ))
        })
    }
}

/// A tensor shape; empty for a scalar.
pub type Shape = Vec<u64>;

/// The part of the training step that an operation belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The forward pass, including the loss.
    Forward,
    /// The backward pass.
    Backward,
    /// Adding up gradients of micro-batches or of shared parameters.
    GradientAccumulation,
    /// The parameter update (and zeroing of gradients).
    Optimizer,
    /// Collectives between GPUs.
    Communication,
    /// Copies between host and device, or on the device, outside operators.
    Copy,
    /// Everything else.
    Other,
}

impl Phase {
    /// All phases, in the order of a step.
    pub const ALL: [Self; 7] = [
        Self::Forward,
        Self::Backward,
        Self::GradientAccumulation,
        Self::Optimizer,
        Self::Communication,
        Self::Copy,
        Self::Other,
    ];

    /// Name in files and on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::GradientAccumulation => "gradient_accumulation",
            Self::Optimizer => "optimizer",
            Self::Communication => "communication",
            Self::Copy => "copy",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A non-tensor argument.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Attribute {
    /// A Boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A text.
    Text(String),
    /// A list of attributes.
    List(Vec<Attribute>),
}

/// Deserializes without the copy that the derived implementation makes, and limits the length of lists.
impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyAttribute;

        impl<'de> Visitor<'de> for AnyAttribute {
            type Value = Attribute;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, a number, a text, or a list of them")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Attribute, E> {
                Ok(Attribute::Bool(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Attribute, E> {
                Ok(Attribute::Int(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Attribute, E> {
                Ok(i64::try_from(value).map_or(Attribute::Float(value as f64), Attribute::Int))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Attribute, E> {
                Ok(Attribute::Float(value))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Attribute, E> {
                Ok(Attribute::Text(value.to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Attribute, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    if list.len() >= most::VALUES {
                        let problem = format!("a list of more than {} values, the limit", most::VALUES);
                        return Err(de::Error::custom(problem));
                    }
                    list.push(item);
                }
                Ok(Attribute::List(list))
            }
        }

        deserializer.deserialize_any(AnyAttribute)
    }
}

impl Attribute {
    /// The integer, if the attribute is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The integers of a list of integers; a single integer is a list of one.
    pub fn as_ints(&self) -> Option<Vec<i64>> {
        match self {
            Self::Int(value) => Some(vec![*value]),
            Self::List(items) => items.iter().map(Self::as_int).collect(),
            _ => None,
        }
    }
}

/// Element type of a tensor.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// 64-bit floating point.
    Float64,
    /// 32-bit floating point.
    Float32,
    /// 16-bit IEEE floating point.
    Float16,
    /// 16-bit brain floating point.
    Bfloat16,
    /// 8-bit floating point, 4 exponent bits; `PyTorch` has several names, which differ in the treatment of infinities.
    #[serde(alias = "float8_e4m3fn", alias = "float8_e4m3fnuz")]
    Float8E4m3,
    /// 8-bit floating point, 5 exponent bits.
    #[serde(alias = "float8_e5m2fnuz")]
    Float8E5m2,
    /// Complex number of two 16-bit floating-point parts.
    Complex32,
    /// Complex number of two 32-bit floating-point parts.
    Complex64,
    /// Complex number of two 64-bit floating-point parts.
    Complex128,
    /// 64-bit integer.
    Int64,
    /// 32-bit integer.
    Int32,
    /// 16-bit integer.
    Int16,
    /// 8-bit integer.
    Int8,
    /// 8-bit unsigned integer.
    Uint8,
    /// Boolean.
    Bool,
    /// An unknown type, by its name in the file.
    #[serde(untagged)]
    Other(String),
}

/// Words for products for which [`DType::is_fp4`] holds.
pub const IN_FP4: &str = "in FP4, which is not modelled (as FP8 they are predicted too slow)";

impl DType {
    /// The type with this name, as written in files.
    pub fn named(name: &str) -> Self {
        let named: StrDeserializer<'_, serde::de::value::Error> = name.into_deserializer();
        Self::deserialize(named).unwrap_or_else(|_| Self::Other(name.to_owned()))
    }

    /// Bytes per element; `None` for an unknown type.
    pub const fn size_bytes(&self) -> Option<u64> {
        match self {
            Self::Complex128 => Some(16),
            Self::Float64 | Self::Int64 | Self::Complex64 => Some(8),
            Self::Float32 | Self::Int32 | Self::Complex32 => Some(4),
            Self::Float16 | Self::Bfloat16 | Self::Int16 => Some(2),
            Self::Float8E4m3 | Self::Float8E5m2 | Self::Int8 | Self::Uint8 | Self::Bool => Some(1),
            Self::Other(_) => None,
        }
    }

    /// Whether it is a floating-point type.
    pub const fn is_floating(&self) -> bool {
        matches!(
            self,
            Self::Float64 | Self::Float32 | Self::Float16 | Self::Bfloat16 | Self::Float8E4m3 | Self::Float8E5m2
        )
    }

    /// Whether it is a 4-bit floating-point type (`float4_e2m1fn_x2`, `f4e2m1fn`), which no prediction models.
    pub fn is_fp4(&self) -> bool {
        matches!(self, Self::Other(name) if name.to_ascii_lowercase().contains("e2m1"))
    }

    /// Whether its numbers have a real and an imaginary part.
    pub(crate) const fn is_complex(&self) -> bool {
        matches!(self, Self::Complex32 | Self::Complex64 | Self::Complex128)
    }

    /// Name in files and on screen.
    pub fn name(&self) -> &str {
        match self {
            Self::Complex32 => "complex32",
            Self::Complex64 => "complex64",
            Self::Complex128 => "complex128",
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::Bfloat16 => "bfloat16",
            Self::Float8E4m3 => "float8_e4m3",
            Self::Float8E5m2 => "float8_e5m2",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Bool => "bool",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
