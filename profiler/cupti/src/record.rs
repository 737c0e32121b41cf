//! Parses the bytes of one activity record.
//!
//! Offsets are those of NVIDIA's `cupti_activity.h` through cudarc's bindings. CUPTI only adds fields at the end: the
//! fields read here have the same offsets in `CUpti_ActivityKernel3` to 13, `Memcpy4` to 7, `Memset3` to 5 (the graph
//! node from kernel version 5 on), so one reader serves CUPTI 11 to 13. Every read checks the length, so no input
//! causes a panic.

use std::mem::offset_of;

use cudarc::cupti::sys::{
    CUpti_ActivityAPI as Api, CUpti_ActivityFlag as Flag, CUpti_ActivityKernel9 as KernelRecord,
    CUpti_ActivityKind as Kind, CUpti_ActivityMarker2 as MarkerRecord, CUpti_ActivityMemcpy5 as CopyRecord,
    CUpti_ActivityMemset4 as SetRecord,
};

/// Kinds of records to enable.
pub const KINDS: [u32; 6] = [
    Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32,
    Kind::CUPTI_ACTIVITY_KIND_MEMCPY as u32,
    Kind::CUPTI_ACTIVITY_KIND_MEMSET as u32,
    Kind::CUPTI_ACTIVITY_KIND_RUNTIME as u32,
    Kind::CUPTI_ACTIVITY_KIND_DRIVER as u32,
    Kind::CUPTI_ACTIVITY_KIND_MARKER as u32,
];

const SERIAL_KERNEL: u32 = Kind::CUPTI_ACTIVITY_KIND_KERNEL as u32;
const KERNEL: u32 = Kind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL as u32;
const COPY: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMCPY as u32;
const SET: u32 = Kind::CUPTI_ACTIVITY_KIND_MEMSET as u32;
const RUNTIME: u32 = Kind::CUPTI_ACTIVITY_KIND_RUNTIME as u32;
const DRIVER: u32 = Kind::CUPTI_ACTIVITY_KIND_DRIVER as u32;
const MARKER: u32 = Kind::CUPTI_ACTIVITY_KIND_MARKER as u32;

/// Offsets of the process and the thread of a marker, in its object (`pt.processId`, `pt.threadId`).
const THREAD_OF_OBJECT: usize = 4;

/// Time and place of work on a device, and the call that launched it. Times are nanoseconds of CUPTI's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Begin.
    pub start: u64,
    /// End.
    pub end: u64,
    /// Number of the device within the process.
    pub device: u32,
    /// Number of the context.
    pub context: u32,
    /// Number of the stream.
    pub stream: u32,
    /// Correlation id that it shares with the launching call.
    pub correlation: u32,
    /// Node of the graph that launched it, 0 outside graphs.
    pub graph_node: u64,
}

/// A kernel's launch configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Launch {
    /// Thread blocks in x, y, z.
    pub grid: [i32; 3],
    /// Threads of a block in x, y, z.
    pub block: [i32; 3],
    /// Registers of a thread.
    pub registers: u16,
    /// Static shared memory of a block in bytes.
    pub static_shared: i32,
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared: i32,
}

/// A parsed record. Names are addresses of C strings that CUPTI owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A kernel.
    Kernel {
        /// Where and when.
        work: Work,
        /// Launch configuration.
        launch: Launch,
        /// Its mangled name.
        name: usize,
    },
    /// A copy.
    Copy {
        /// Where and when.
        work: Work,
        /// Direction, source and destination, as numbers of CUPTI's enumerations.
        kinds: [u8; 3],
        /// Bytes copied.
        bytes: u64,
    },
    /// A fill.
    Set {
        /// Where and when.
        work: Work,
        /// Bytes filled.
        bytes: u64,
    },
    /// A call of the runtime's or the driver's API.
    Call {
        /// Begin and end.
        times: [u64; 2],
        /// Process and thread.
        thread: [u32; 2],
        /// Correlation id that it shares with its work.
        correlation: u32,
        /// Number of the function.
        function: u32,
        /// Whether it is of the driver's API.
        driver: bool,
    },
    /// The begin of an NVTX range.
    Begin {
        /// When.
        time: u64,
        /// Number of the range.
        id: u32,
        /// Process and thread.
        thread: [u32; 2],
        /// Its name.
        name: usize,
    },
    /// The end of an NVTX range.
    End {
        /// When.
        time: u64,
        /// Number of the range.
        id: u32,
    },
}

/// Parses the record at the beginning of `bytes`; ignores the rest. `None` for other kinds, instantaneous markers, and
/// truncated records.
pub fn read(bytes: &[u8]) -> Option<Record> {
    match word(bytes, 0)? {
        KERNEL | SERIAL_KERNEL => kernel(bytes),
        COPY => Some(Record::Copy {
            work: Work {
                start: long(bytes, offset_of!(CopyRecord, start))?,
                end: long(bytes, offset_of!(CopyRecord, end))?,
                device: word(bytes, offset_of!(CopyRecord, deviceId))?,
                context: word(bytes, offset_of!(CopyRecord, contextId))?,
                stream: word(bytes, offset_of!(CopyRecord, streamId))?,
                correlation: word(bytes, offset_of!(CopyRecord, correlationId))?,
                graph_node: long(bytes, offset_of!(CopyRecord, graphNodeId))?,
            },
            kinds: array(bytes, offset_of!(CopyRecord, copyKind))?,
            bytes: long(bytes, offset_of!(CopyRecord, bytes))?,
        }),
        SET => Some(Record::Set {
            work: Work {
                start: long(bytes, offset_of!(SetRecord, start))?,
                end: long(bytes, offset_of!(SetRecord, end))?,
                device: word(bytes, offset_of!(SetRecord, deviceId))?,
                context: word(bytes, offset_of!(SetRecord, contextId))?,
                stream: word(bytes, offset_of!(SetRecord, streamId))?,
                correlation: word(bytes, offset_of!(SetRecord, correlationId))?,
                graph_node: long(bytes, offset_of!(SetRecord, graphNodeId))?,
            },
            bytes: long(bytes, offset_of!(SetRecord, bytes))?,
        }),
        kind @ (RUNTIME | DRIVER) => Some(Record::Call {
            times: [long(bytes, offset_of!(Api, start))?, long(bytes, offset_of!(Api, end))?],
            thread: [word(bytes, offset_of!(Api, processId))?, word(bytes, offset_of!(Api, threadId))?],
            correlation: word(bytes, offset_of!(Api, correlationId))?,
            function: word(bytes, offset_of!(Api, cbid))?,
            driver: kind == DRIVER,
        }),
        MARKER => marker(bytes),
        _ => None,
    }
}

fn kernel(bytes: &[u8]) -> Option<Record> {
    let extents = |at: usize| Some([int(bytes, at)?, int(bytes, at + 4)?, int(bytes, at + 8)?]);
    Some(Record::Kernel {
        work: Work {
            start: long(bytes, offset_of!(KernelRecord, start))?,
            end: long(bytes, offset_of!(KernelRecord, end))?,
            device: word(bytes, offset_of!(KernelRecord, deviceId))?,
            context: word(bytes, offset_of!(KernelRecord, contextId))?,
            stream: word(bytes, offset_of!(KernelRecord, streamId))?,
            correlation: word(bytes, offset_of!(KernelRecord, correlationId))?,
            graph_node: long(bytes, offset_of!(KernelRecord, graphNodeId))?,
        },
        launch: Launch {
            grid: extents(offset_of!(KernelRecord, gridX))?,
            block: extents(offset_of!(KernelRecord, blockX))?,
            registers: u16::from_ne_bytes(array(bytes, offset_of!(KernelRecord, registersPerThread))?),
            static_shared: int(bytes, offset_of!(KernelRecord, staticSharedMemory))?,
            dynamic_shared: int(bytes, offset_of!(KernelRecord, dynamicSharedMemory))?,
        },
        name: long(bytes, offset_of!(KernelRecord, name))? as usize,
    })
}

fn marker(bytes: &[u8]) -> Option<Record> {
    let flags = word(bytes, offset_of!(MarkerRecord, flags))?;
    let time = long(bytes, offset_of!(MarkerRecord, timestamp))?;
    let id = word(bytes, offset_of!(MarkerRecord, id))?;
    let object = offset_of!(MarkerRecord, objectId);
    let name = long(bytes, offset_of!(MarkerRecord, name))? as usize;
    // A time of 0 is missing.
    if time == 0 {
        None
    } else if flags & Flag::CUPTI_ACTIVITY_FLAG_MARKER_START as u32 != 0 {
        let thread = [word(bytes, object)?, word(bytes, object + THREAD_OF_OBJECT)?];
        Some(Record::Begin { time, id, thread, name })
    } else if flags & Flag::CUPTI_ACTIVITY_FLAG_MARKER_END as u32 != 0 {
        Some(Record::End { time, id })
    } else {
        None
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_ne_bytes)
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    array(bytes, at).map(i32::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_ne_bytes)
}

/// The direction of a copy, as Kineto's traces write it.
pub fn copy_name(kinds: [u8; 3]) -> String {
    let direction = match kinds[0] {
        1 => "HtoD",
        2 => "DtoH",
        3 => "HtoA",
        4 => "AtoH",
        5 => "AtoA",
        6 => "AtoD",
        7 => "DtoA",
        8 => "DtoD",
        9 => "HtoH",
        10 => "PtoP",
        _ => "Unknown",
    };
    let place = |kind: u8| match kind {
        1 => "Pageable",
        2 => "Pinned",
        3 => "Device",
        4 => "Array",
        5 => "Managed",
        6 => "Device Static",
        7 => "Managed Static",
        _ => "Unknown",
    };
    format!("Memcpy {direction} ({} -> {})", place(kinds[1]), place(kinds[2]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    /// A record with values at offsets.
    fn made(length: usize, values: &[(usize, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (at, value) in values {
            bytes[*at..at + value.len()].copy_from_slice(value);
        }
        bytes
    }

    /// The numbers come from `cupti_activity.h` of CUPTI 12.9 and 13.5, by `offsetof` in C: the test notices bindings
    /// that differ.
    #[test]
    fn offsets_are_those_of_the_headers() {
        macro_rules! at {
            ($record:ident: $($field:ident $offset:literal),*) => {
                $(assert_eq!(offset_of!($record, $field), $offset, stringify!($record.$field));)*
            };
        }
        at!(KernelRecord: registersPerThread 6, start 16, end 24, deviceId 40, contextId 44, streamId 48, gridX 52,
            blockX 64, staticSharedMemory 76, dynamicSharedMemory 80, correlationId 92, name 104, graphNodeId 144);
        at!(CopyRecord: copyKind 4, srcKind 5, dstKind 6, bytes 8, start 16, end 24, deviceId 32, contextId 36,
            streamId 40, correlationId 44, graphNodeId 64);
        at!(SetRecord: bytes 8, start 16, end 24, deviceId 32, contextId 36, streamId 40, correlationId 44,
            graphNodeId 64);
        at!(Api: cbid 4, start 8, end 16, processId 24, threadId 28, correlationId 32);
        at!(MarkerRecord: flags 4, timestamp 8, id 16, objectKind 20, objectId 24, name 40);
        assert_eq!(KINDS, [10, 1, 2, 5, 4, 12]);
    }

    #[test]
    fn a_kernel_is_read() {
        let bytes = made(
            208,
            &[
                (0, &10_u32.to_ne_bytes()),
                (6, &40_u16.to_ne_bytes()),
                (16, &1_000_u64.to_ne_bytes()),
                (24, &3_500_u64.to_ne_bytes()),
                (40, &1_u32.to_ne_bytes()),
                (44, &2_u32.to_ne_bytes()),
                (48, &7_u32.to_ne_bytes()),
                (52, &[8, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0]),
                (64, &[0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
                (76, &1024_i32.to_ne_bytes()),
                (80, &512_i32.to_ne_bytes()),
                (92, &99_u32.to_ne_bytes()),
                (104, &0xdead_u64.to_ne_bytes()),
                (144, &5_u64.to_ne_bytes()),
            ],
        );
        let Some(Record::Kernel { work, launch, name }) = read(&bytes) else { unreachable!() };
        assert_eq!(
            work,
            Work { start: 1000, end: 3500, device: 1, context: 2, stream: 7, correlation: 99, graph_node: 5 }
        );
        assert_eq!((launch.grid, launch.block), ([8, 4, 2], [256, 1, 1]));
        assert_eq!((launch.registers, launch.static_shared, launch.dynamic_shared, name), (40, 1024, 512, 0xdead));
        // The last field that is read ends here.
        assert!(read(&bytes[..152]).is_some() && read(&bytes[..151]).is_none());
    }

    #[test]
    fn copies_calls_and_ranges_are_read() {
        let copy = made(88, &[(0, &[1, 0, 0, 0, 1, 2, 3]), (8, &4096_u64.to_ne_bytes())]);
        let Some(Record::Copy { kinds, bytes, .. }) = read(&copy) else { unreachable!() };
        assert_eq!((copy_name(kinds).as_str(), bytes), ("Memcpy HtoD (Pinned -> Device)", 4096));
        assert_eq!(copy_name([99, 0, 255]), "Memcpy Unknown (Unknown -> Unknown)");
        let call = made(40, &[(0, &[4]), (4, &[50]), (32, &[7])]);
        assert!(matches!(read(&call), Some(Record::Call { driver: true, function: 50, correlation: 7, .. })));
        let begin = made(56, &[(0, &[12]), (4, &[2]), (8, &[9]), (16, &[3]), (24, &[1, 0, 0, 0, 2]), (40, &[5])]);
        assert_eq!(read(&begin), Some(Record::Begin { time: 9, id: 3, thread: [1, 2], name: 5 }));
        let end = made(56, &[(0, &[12]), (4, &[4]), (8, &[9]), (16, &[3])]);
        assert_eq!(read(&end), Some(Record::End { time: 9, id: 3 }));
        let moment = made(56, &[(0, &[12]), (4, &[1]), (8, &[9])]);
        assert_eq!(read(&moment), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(kind in 0_u32..14, rest in proptest::collection::vec(any::<u8>(), 0..260)) {
            let _ = read(&rest);
            let _ = read(&[&kind.to_ne_bytes()[..], &rest].concat());
        }
    }
}
