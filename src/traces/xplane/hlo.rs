//! Converts the instructions of a compiled program to operators with shapes.
//!
//! A dot becomes `aten::mm` or `aten::bmm`, a convolution `aten::convolution` (or its backward form), whether alone, in
//! a fusion, or as a call of cuBLAS or cuDNN. Every other instruction keeps its name without its number.

mod instruction;

use std::cell::Cell;
use std::collections::HashMap;

use self::instruction::{Dimension, Dot, Instruction, Shape};
use super::wire::{Message, Room};
use crate::{Fault, Scalars, Tensors};
use habitat_step::profile::{Attribute, DType, Phase};

/// Maximum number of instructions of a program; the rest are ignored.
const INSTRUCTIONS: usize = 1 << 20;

/// Maximum number of nested instructions visited per program: for the largest program, each a dozen times.
const LOOKED: usize = 12 * INSTRUCTIONS;

/// An instruction as an operator.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Operator {
    pub(super) name: String,
    pub(super) tensors: Tensors,
    pub(super) scalars: Scalars,
    pub(super) phase: Phase,
}

impl Operator {
    /// An operator of unknown phase.
    pub(super) fn new(name: &str, tensors: Tensors) -> Self {
        Self { name: name.to_owned(), tensors, scalars: Scalars::new(), phase: Phase::Other }
    }
}

/// Operators of a program, by instruction name.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) operators: HashMap<String, Operator>,
    /// Whether it computes gradients anywhere.
    pub(super) trains: bool,
}

struct Module {
    instructions: HashMap<u64, Instruction>,
    /// Instructions of a computation, by its number.
    computations: HashMap<u64, Vec<u64>>,
    /// Number of nested instructions visited.
    looked: Cell<usize>,
}

/// Parses an `HloProto`.
pub(super) fn program(proto: Message<'_>, room: &mut Room) -> Result<Program, Fault> {
    let Some(module) = proto.first(1)? else { return Ok(Program::default()) };
    let module = Module::read(module.message(), room)?;
    let trains = module.instructions.values().any(|instruction| is_backward(&instruction.op_name));
    let differentiates = module.instructions.values().any(|instruction| instruction.op_name.contains("jvp("));
    let mut operators = HashMap::with_capacity(module.instructions.len());
    for instruction in module.instructions.values() {
        let mut operator = module.operator(instruction);
        operator.phase = module.phase(instruction, trains, differentiates);
        room.take(operator.tensors.shapes.iter().map(|shape| shape.len() + 4).sum())?;
        operators.insert(instruction.name.clone(), operator);
    }
    Ok(Program { operators, trains })
}

/// JAX transposes the differentiated function to get the backward pass.
fn is_backward(op_name: &str) -> bool {
    op_name.contains("transpose(jvp")
}

impl Module {
    fn read(message: Message<'_>, room: &mut Room) -> Result<Self, Fault> {
        let mut module = Self { instructions: HashMap::new(), computations: HashMap::new(), looked: Cell::new(0) };
        for field in message.fields() {
            let (3, computation) = field? else { continue };
            let (mut id, mut own) = (0, Vec::new());
            for field in computation.message().fields() {
                match field? {
                    (2, value) if module.instructions.len() < INSTRUCTIONS => {
                        let instruction = Instruction::read(value.message(), room)?;
                        own.push(instruction.id);
                        module.instructions.insert(instruction.id, instruction);
                    }
                    (5, value) => id = value.number(),
                    _ => {}
                }
            }
            module.computations.insert(id, own);
        }
        Ok(module)
    }

    fn operands<'a>(&'a self, instruction: &'a Instruction) -> impl Iterator<Item = &'a Shape> {
        instruction.operands.iter().filter_map(|id| self.instructions.get(id)).map(|operand| &operand.shape)
    }

    /// Instructions of the computations that an instruction calls, at any depth.
    fn inside<'a>(&'a self, instruction: &'a Instruction) -> Vec<&'a Instruction> {
        let mut found = Vec::new();
        let mut open: Vec<(&Instruction, u32)> = vec![(instruction, 0)];
        while let Some((next, depth)) = open.pop() {
            // Fusions nest a few levels; deeper nesting does not occur in valid programs.
            if depth > 8 || found.len() > 4096 {
                break;
            }
            let own = next.called.iter().filter_map(|id| self.computations.get(id)).flatten();
            for inner in own.filter_map(|id| self.instructions.get(id)) {
                if found.len() > 4096 || self.looked.get() > LOOKED {
                    return found;
                }
                self.looked.set(self.looked.get() + 1);
                found.push(inner);
                if !inner.called.is_empty() {
                    open.push((inner, depth + 1));
                }
            }
        }
        found
    }

    /// Whether the computations that it calls are one piece of work: only for a fusion and a plain call.
    fn is_fusion(instruction: &Instruction) -> bool {
        matches!(instruction.opcode.as_str(), "fusion" | "call")
    }

    fn operator(&self, instruction: &Instruction) -> Operator {
        self.product(instruction)
            .or_else(|| {
                let inside = if Self::is_fusion(instruction) { self.inside(instruction) } else { Vec::new() };
                let mut products = inside.into_iter().filter(|inner| is_product(inner));
                match (products.next(), products.next()) {
                    (Some(only), None) => self.product(only),
                    _ => None,
                }
            })
            .unwrap_or_else(|| self.plain(instruction))
    }

    /// The operator of a dot, a convolution or an equivalent library call.
    fn product(&self, instruction: &Instruction) -> Option<Operator> {
        let shapes: Vec<&Shape> = self.operands(instruction).collect();
        let result = instruction.shape.parts.first().unwrap_or(&instruction.shape);
        match (instruction.opcode.as_str(), instruction.target.as_str()) {
            ("dot", _) => product(shapes.first()?, shapes.get(1)?, instruction.dot.as_ref()?),
            ("custom-call", target) if target.starts_with("__cublas$") => {
                product(shapes.first()?, shapes.get(1)?, &configured(&instruction.config)?)
            }
            ("convolution", _) | ("custom-call", "__cudnn$convForward" | "__cudnn$convBiasActivationForward") => {
                convolution(shapes.first()?, shapes.get(1)?, result, instruction, [false; 3])
            }
            ("custom-call", "__cudnn$convBackwardInput") => {
                // (gradient of the result, weight) → gradient of the input
                convolution(result, shapes.get(1)?, shapes.first()?, instruction, [true, false, false])
            }
            ("custom-call", "__cudnn$convBackwardFilter") => {
                // (input, gradient of the result) → gradient of the weight
                convolution(shapes.first()?, result, shapes.get(1)?, instruction, [false, true, false])
            }
            _ => None,
        }
    }

    /// The operator of any other instruction: its name and its input shapes.
    fn plain(&self, instruction: &Instruction) -> Operator {
        let name = if instruction.opcode == "custom-call" && !instruction.target.is_empty() {
            &instruction.target
        } else {
            without_number(&instruction.name)
        };
        let shapes = self.operands(instruction).filter(|shape| shape.parts.is_empty()).take(64);
        let tensors = shapes.map(|shape| (shape.extents.clone(), element(shape.element)));
        // A scalar of a type that PyTorch lacks is not a tensor there.
        let is_tensor = |(shape, dtype): &(Vec<u64>, Option<DType>)| {
            !shape.is_empty() || dtype.as_ref().is_some_and(|dtype| !matches!(dtype, DType::Other(_)))
        };
        Operator::new(name, Tensors::new(tensors.filter(is_tensor)))
    }

    fn phase(&self, instruction: &Instruction, trains: bool, differentiates: bool) -> Phase {
        let inside = || self.inside(instruction);
        let named = if instruction.op_name.is_empty() {
            inside().into_iter().find(|inner| !inner.op_name.is_empty())
        } else {
            Some(instruction)
        };
        let op_name = named.map_or("", |named| named.op_name.as_str());
        let from_optax = || named.is_some_and(|named| named.source_file.contains("optax"));
        if is_backward(op_name) {
            Phase::Backward
        } else if op_name.contains("jvp(") || !(trains || differentiates) {
            Phase::Forward
        } else if op_name.to_ascii_lowercase().contains("optimizer") || from_optax() {
            Phase::Optimizer
        } else {
            Phase::Other
        }
    }
}

fn is_product(instruction: &Instruction) -> bool {
    matches!(instruction.opcode.as_str(), "dot" | "convolution")
}

/// `loop_fusion.12` → `loop_fusion`
fn without_number(name: &str) -> &str {
    let mut name = name;
    while let Some((stem, number)) = name.rsplit_once('.')
        && !stem.is_empty()
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        name = stem;
    }
    name
}

/// Element type of a `PrimitiveType` number.
fn element(number: u64) -> Option<DType> {
    Some(match number {
        1 => DType::Bool,
        2 => DType::Int8,
        3 => DType::Int16,
        4 => DType::Int32,
        5 => DType::Int64,
        6 => DType::Uint8,
        8 => DType::Other("unsigned int".to_owned()),
        9 => DType::Other("unsigned long".to_owned()),
        10 => DType::Float16,
        11 => DType::Float32,
        12 => DType::Float64,
        16 => DType::Bfloat16,
        19 | 24 => DType::Float8E5m2,
        20 | 25 => DType::Float8E4m3,
        32 => DType::Other("f4e2m1fn".to_owned()),
        _ => return None,
    })
}

/// Shapes `[[M, N], [N, K]]`, or with the batch in front.
fn product(left: &Shape, right: &Shape, dot: &Dot) -> Option<Operator> {
    let at = |shape: &Shape, dimensions: &[u64]| -> Option<u64> {
        dimensions.iter().try_fold(1_u64, |product, dimension| {
            product.checked_mul(*shape.extents.get(usize::try_from(*dimension).ok()?)?)
        })
    };
    let all = |shape: &Shape| shape.extents.iter().try_fold(1_u64, |product, extent| product.checked_mul(*extent));
    let batch = at(left, &dot.left_batch)?;
    let inner = at(left, &dot.left_contracted)?;
    if batch == 0 || inner == 0 || at(right, &dot.right_contracted)? != inner || at(right, &dot.right_batch)? != batch {
        return None;
    }
    let shared = batch.checked_mul(inner)?;
    let (rows, columns) = (all(left)? / shared, all(right)? / shared);
    let dtype = element(left.element)?;
    let (name, shapes) = if dot.left_batch.is_empty() {
        ("aten::mm", [vec![rows, inner], vec![inner, columns]])
    } else {
        ("aten::bmm", [vec![batch, rows, inner], vec![batch, inner, columns]])
    };
    Some(Operator::new(name, Tensors::new(shapes.map(|shape| (shape, Some(dtype.clone()))))))
}

/// Dimension numbers in the configuration of a cuBLAS call.
fn configured(config: &str) -> Option<Dot> {
    let config: serde_json::Value = serde_json::from_str(config).ok()?;
    let gemm = config.get("gemm_backend_config").unwrap_or(&config);
    let dot = gemm.get("dot_dimension_numbers")?;
    // In the JSON form of protocol buffers, 64-bit integers are strings.
    let list = |name: &str| -> Option<Vec<u64>> {
        let Some(list) = dot.get(name) else { return Some(Vec::new()) };
        list.as_array()?
            .iter()
            .map(|item| item.as_u64().or_else(|| item.as_str().and_then(|text| text.parse().ok())))
            .collect()
    };
    Some(Dot {
        left_contracted: list("lhs_contracting_dimensions")?,
        right_contracted: list("rhs_contracting_dimensions")?,
        left_batch: list("lhs_batch_dimensions")?,
        right_batch: list("rhs_batch_dimensions")?,
    })
}

/// A convolution in PyTorch's order: batch, channels, space. `gradients` selects the gradients that a backward one
/// computes, of input, weight and bias; all false for a forward one.
fn convolution(
    input: &Shape,
    weight: &Shape,
    output: &Shape,
    instruction: &Instruction,
    gradients: [bool; 3],
) -> Option<Operator> {
    let layout = instruction.layout.as_ref()?;
    let ordered = |shape: &Shape, [first, second]: [u64; 2], space: &[u64]| -> Option<Vec<u64>> {
        let at = |dimension: u64| shape.extents.get(usize::try_from(dimension).ok()?).copied();
        [first, second].iter().chain(space).map(|dimension| at(*dimension)).collect()
    };
    let input_dims = ordered(input, layout.input, &layout.input_space)?;
    let weight_dims = ordered(weight, layout.kernel, &layout.kernel_space)?;
    let output_dims = ordered(output, layout.output, &layout.output_space)?;
    let window = &instruction.window;
    // A window with base dilation is a gradient written as a convolution, and PyTorch has no uneven padding; neither is
    // converted.
    let plain =
        window.iter().all(|dim| dim.base_dilation <= 1 && dim.padding[0] == dim.padding[1] && dim.padding[0] >= 0);
    if !plain || instruction.batch_groups > 1 || window.is_empty() || window.len() != layout.input_space.len() {
        return None;
    }
    let ints = |value: fn(&Dimension) -> u64| {
        Some(Attribute::List(window.iter().map(|dim| Attribute::Int(value(dim).cast_signed())).collect()))
    };
    let stride = ints(|dim| dim.stride.max(1));
    let padding = ints(|dim| dim.padding[0].unsigned_abs());
    let dilation = ints(|dim| dim.window_dilation.max(1));
    let transposed = Some(Attribute::Bool(false));
    let groups = Some(Attribute::Int(instruction.groups.max(1).cast_signed()));
    let described = [stride, padding, dilation, transposed, ints(|_| 0), groups];
    let dtype = element(input.element)?;
    let tensors = |shapes: Vec<Vec<u64>>| Tensors::new(shapes.into_iter().map(|shape| (shape, Some(dtype.clone()))));
    Some(if gradients.contains(&true) {
        let mask = Some(Attribute::List(gradients.map(Attribute::Bool).to_vec()));
        let scalars = [None, None, None, None].into_iter().chain(described).chain([mask]).collect();
        let tensors = tensors(vec![output_dims, input_dims, weight_dims]);
        Operator { scalars, ..Operator::new("aten::convolution_backward", tensors) }
    } else {
        let scalars = [None, None, None].into_iter().chain(described).collect();
        Operator { scalars, ..Operator::new("aten::convolution", tensors(vec![input_dims, weight_dims])) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(element: u64, extents: &[u64]) -> Shape {
        Shape { element, extents: extents.to_vec(), parts: Vec::new() }
    }

    #[test]
    fn a_product_has_rows_reduction_and_columns() {
        let dot = Dot { left_contracted: vec![1], right_contracted: vec![0], ..Dot::default() };
        let found = product(&shape(16, &[64, 128]), &shape(16, &[128, 10]), &dot).unwrap();
        assert_eq!((found.name.as_str(), &found.tensors.shapes[..]), ("aten::mm", &[vec![64, 128], vec![128, 10]][..]));
        assert_eq!(found.tensors.dtype, Some(DType::Bfloat16));
        // "bsd,de->bse": two extents of the left factor are rows.
        let dot = Dot { left_contracted: vec![2], right_contracted: vec![0], ..Dot::default() };
        let found = product(&shape(11, &[2, 50, 128]), &shape(11, &[128, 10]), &dot).unwrap();
        assert_eq!(found.tensors.shapes, [[100, 128], [128, 10]]);
        let dot =
            Dot { left_contracted: vec![2], right_contracted: vec![1], left_batch: vec![1], right_batch: vec![0] };
        let found = product(&shape(16, &[4096, 2, 1024]), &shape(16, &[2, 1024, 6144]), &dot).unwrap();
        assert_eq!(found.name, "aten::bmm");
        assert_eq!(found.tensors.shapes, [[2, 4096, 1024], [2, 1024, 6144]]);
        // Mismatched extents are not a product.
        assert_eq!(product(&shape(16, &[4, 5]), &shape(16, &[4, 5]), &dot), None);
    }

    #[test]
    fn a_call_of_cublas_says_its_extents() {
        let config = r#"{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["1"],"lhs_batch_dimensions":[]}}}"#;
        let dot = configured(config).unwrap();
        assert_eq!((dot.left_contracted, dot.right_contracted), (vec![1], vec![1]));
        assert_eq!(configured("nonsense"), None);
    }

    #[test]
    fn names_lose_their_numbers() {
        assert_eq!(without_number("loop_fusion.12"), "loop_fusion");
        assert_eq!(without_number("add.1.0"), "add");
        assert_eq!(without_number("fusion"), "fusion");
        assert_eq!(without_number(".5"), ".5");
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = program(Message { bytes: &bytes, offset: 0 }, &mut Room::new("parts", 1 << 20));
        }
    }
}
