//! The small records that events become.

use std::collections::HashMap;

use super::intern::NONE;
use crate::profile::Phase;

/// What a host record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostKind {
    /// An operator of the framework.
    Operator,
    /// A named range: profiler steps, optimizer steps, `record_function`.
    Annotation,
    /// A call of an `nn.Module`.
    Module,
    /// A part of the program, by a range of its own (NVTX): groups kernels as a module does,
    /// parts of one name and other numbers together.
    Part,
}

/// A range on a host thread.
#[derive(Debug, Clone)]
pub(super) struct Host {
    pub(super) start: f64,
    pub(super) end: f64,
    /// Autograd's sequence number, -1 where there is none.
    pub(super) sequence: i64,
    pub(super) thread: u32,
    pub(super) name: u32,
    /// `Input Dims`, `Input type` and `Concrete Inputs`, as texts.
    pub(super) dims: u32,
    pub(super) types: u32,
    pub(super) values: u32,
    pub(super) kind: HostKind,
    /// Runs for a forward operator of another thread (`Fwd thread id` is not 0).
    pub(super) of_forward: bool,
    /// The phase of everything in it, where the recorder itself says so.
    pub(super) phase: Option<Phase>,
}

/// A call that starts work on a device.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) correlation: u64,
    pub(super) thread: u32,
    /// Grid and block, where the call has them (AMD) and the kernel does not.
    pub(super) shape: u32,
    /// The grid of the kernel is in threads, not in blocks.
    pub(super) grid_in_threads: bool,
}

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeviceKind {
    Kernel,
    Copy,
    Set,
}

/// A kernel, copy or fill on a device.
#[derive(Debug, Clone)]
pub(super) struct Device {
    pub(super) start: f64,
    pub(super) end: f64,
    pub(super) correlation: u64,
    pub(super) name: u32,
    pub(super) shape: u32,
    /// Its number.
    pub(super) on: u32,
    pub(super) kind: DeviceKind,
}

/// A kernel's launch configuration; number 0 is the empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct LaunchShape {
    pub(super) grid: Option<[u32; 3]>,
    pub(super) block: Option<[u32; 3]>,
    pub(super) registers: Option<u32>,
    /// Static, or static and dynamic together where only that is known.
    pub(super) shared_memory: Option<u64>,
    pub(super) dynamic_memory: Option<u64>,
    /// Of collectives: name, elements and ranks, as texts.
    pub(super) collective: u32,
    pub(super) elements: Option<u64>,
    pub(super) group_size: Option<u64>,
}

/// A device as `deviceProperties` describes it.
#[derive(Debug, Clone, Default)]
pub(super) struct Properties {
    pub(super) id: Option<u64>,
    pub(super) name: String,
    pub(super) major: Option<u32>,
    pub(super) minor: Option<u32>,
    pub(super) multiprocessors: Option<u32>,
    pub(super) memory_bytes: Option<u64>,
}

impl Properties {
    /// From one entry of `deviceProperties`.
    pub(super) fn of(value: &serde_json::Value) -> Self {
        let number = |key: &str| value.get(key).and_then(serde_json::Value::as_u64);
        let small = |key: &str| number(key).and_then(|number| u32::try_from(number).ok());
        Self {
            id: number("id"),
            name: crate::text::clean(value.get("name").and_then(serde_json::Value::as_str).unwrap_or(""), 120),
            major: small("computeMajor"),
            minor: small("computeMinor"),
            multiprocessors: small("numSms"),
            memory_bytes: number("totalGlobalMem"),
        }
    }
}

/// Launch configurations, stored once.
#[derive(Debug)]
pub(super) struct Shapes {
    numbers: HashMap<LaunchShape, u32>,
    list: Vec<LaunchShape>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { numbers: HashMap::from([(LaunchShape::default(), NONE)]), list: vec![LaunchShape::default()] }
    }
}

impl Shapes {
    /// The configuration of a number that this table gave.
    pub(super) fn get(&self, number: u32) -> &LaunchShape {
        &self.list[number as usize]
    }

    /// The number of a configuration.
    pub(super) fn number(&mut self, mut shape: LaunchShape) -> u32 {
        // The profile has both or neither, and no extent of zero.
        let whole = |extent: Option<[u32; 3]>| extent.is_some_and(|extent| !extent.contains(&0));
        if !(whole(shape.grid) && whole(shape.block)) {
            (shape.grid, shape.block) = (None, None);
        }
        if let Some(&number) = self.numbers.get(&shape) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(shape.clone());
        self.numbers.insert(shape, number);
        number
    }
}
