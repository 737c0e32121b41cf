//! Instructions of a program, as in the file.
//!
//! Field numbers are those of `hlo.proto` and `xla_data.proto` in the XLA project.

use crate::Fault;
use crate::xplane::wire::{Message, Room, Value};

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Shape {
    /// A `PrimitiveType` number; 13 for a tuple.
    pub(super) element: u64,
    pub(super) extents: Vec<u64>,
    pub(super) parts: Vec<Shape>,
}

#[derive(Debug, Default)]
pub(super) struct Instruction {
    pub(super) name: String,
    pub(super) opcode: String,
    pub(super) shape: Shape,
    pub(super) id: u64,
    pub(super) operands: Vec<u64>,
    pub(super) called: Vec<u64>,
    /// Name in the framework, such as `jit(step)/jvp(dense)/dot_general`.
    pub(super) op_name: String,
    pub(super) source_file: String,
    pub(super) target: String,
    pub(super) config: String,
    pub(super) dot: Option<Dot>,
    pub(super) window: Vec<Dimension>,
    pub(super) layout: Option<Layout>,
    pub(super) groups: u64,
    pub(super) batch_groups: u64,
}

/// Contracted and batch dimensions of a product.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Dot {
    pub(super) left_contracted: Vec<u64>,
    pub(super) right_contracted: Vec<u64>,
    pub(super) left_batch: Vec<u64>,
    pub(super) right_batch: Vec<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Dimension {
    pub(super) stride: u64,
    pub(super) padding: [i64; 2],
    pub(super) window_dilation: u64,
    pub(super) base_dilation: u64,
}

/// Positions of the dimensions of a convolution.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub(super) input: [u64; 2],
    pub(super) input_space: Vec<u64>,
    pub(super) kernel: [u64; 2],
    pub(super) kernel_space: Vec<u64>,
    pub(super) output: [u64; 2],
    pub(super) output_space: Vec<u64>,
}

impl Instruction {
    pub(super) fn read(message: Message<'_>, room: &mut Room) -> Result<Self, Fault> {
        room.take(16)?;
        let mut read = Self::default();
        for field in message.fields() {
            let (number, value) = field?;
            match number {
                1 => read.name = value.text(),
                2 => read.opcode = value.text(),
                3 => read.shape = Shape::read(value.message(), 0, room)?,
                7 => {
                    for field in value.message().fields() {
                        match field? {
                            (2, value) => read.op_name = value.text(),
                            (3, value) => read.source_file = value.text(),
                            _ => {}
                        }
                    }
                }
                15 => {
                    for field in value.message().fields() {
                        if let (1, value) = field? {
                            room.take(4)?;
                            read.window.push(Dimension::read(value.message())?);
                        }
                    }
                }
                16 => read.layout = Some(Layout::read(value.message())?),
                28 => read.target = value.text(),
                30 => read.dot = Some(Dot::read(value.message())?),
                35 => read.id = value.number(),
                36 => value.numbers(&mut read.operands)?,
                38 => value.numbers(&mut read.called)?,
                43 => read.config = value.text(),
                50 => read.groups = value.number(),
                58 => read.batch_groups = value.number(),
                _ => {}
            }
        }
        let dot = read.dot.iter().flat_map(Dot::lists);
        let layout = read.layout.iter().flat_map(Layout::lists);
        let lists = dot.chain(layout).chain([&read.operands, &read.called]);
        room.take(lists.map(Vec::len).sum())?;
        Ok(read)
    }
}

impl Shape {
    fn read(message: Message<'_>, depth: u32, room: &mut Room) -> Result<Self, Fault> {
        room.take(4)?;
        let mut shape = Self::default();
        for field in message.fields() {
            match field? {
                (2, value) => shape.element = value.number(),
                (3, value) => value.numbers(&mut shape.extents)?,
                (4, value) if depth < 4 => shape.parts.push(Self::read(value.message(), depth + 1, room)?),
                _ => {}
            }
        }
        room.take(shape.extents.len())?;
        Ok(shape)
    }
}

impl Dot {
    fn lists(&self) -> [&Vec<u64>; 4] {
        [&self.left_contracted, &self.right_contracted, &self.left_batch, &self.right_batch]
    }

    fn read(message: Message<'_>) -> Result<Self, Fault> {
        let mut dot = Self::default();
        for field in message.fields() {
            match field? {
                (1, value) => value.numbers(&mut dot.left_contracted)?,
                (2, value) => value.numbers(&mut dot.right_contracted)?,
                (3, value) => value.numbers(&mut dot.left_batch)?,
                (4, value) => value.numbers(&mut dot.right_batch)?,
                _ => {}
            }
        }
        Ok(dot)
    }
}

impl Dimension {
    fn read(message: Message<'_>) -> Result<Self, Fault> {
        let mut dimension = Self::default();
        for field in message.fields() {
            match field? {
                (2, value) => dimension.stride = value.number(),
                (3, value) => dimension.padding[0] = value.signed(),
                (4, value) => dimension.padding[1] = value.signed(),
                (5, value) => dimension.window_dilation = value.number(),
                (6, value) => dimension.base_dilation = value.number(),
                _ => {}
            }
        }
        Ok(dimension)
    }
}

impl Layout {
    fn lists(&self) -> [&Vec<u64>; 3] {
        [&self.input_space, &self.kernel_space, &self.output_space]
    }

    fn read(message: Message<'_>) -> Result<Self, Fault> {
        let mut layout = Self::default();
        for field in message.fields() {
            let (number, value): (u32, Value<'_>) = field?;
            match number {
                3 => layout.kernel[1] = value.number(),
                4 => layout.kernel[0] = value.number(),
                6 => value.numbers(&mut layout.kernel_space)?,
                7 => layout.input[0] = value.number(),
                8 => layout.input[1] = value.number(),
                9 => layout.output[0] = value.number(),
                10 => layout.output[1] = value.number(),
                11 => value.numbers(&mut layout.input_space)?,
                12 => value.numbers(&mut layout.output_space)?,
                _ => {}
            }
        }
        Ok(layout)
    }
}
