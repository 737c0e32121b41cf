//! What the hook tells: one JSON object a frame, each frame led by its length.
//!
//! `profiler/hook/README.md` describes the protocol for readers of the Python side.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// Version of the protocol; a hook of another version is refused.
pub const VERSION: u32 = 1;

/// Bytes of one message at most; the hook keeps no more unsent.
pub const LONGEST: u32 = 1 << 20;

/// One message of the hook. Kinds that this program does not know are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The first message of every connection.
    Hello(Hello),
    /// Times of consecutive steps outside windows.
    Steps {
        /// Number of the first of them, from 1.
        first: u64,
        /// Microseconds from the end of the step before to the end of each.
        times_us: Vec<f64>,
        /// Microseconds of each that the training waited for a `DataLoader`, in the same order;
        /// absent while it asked none, and of hooks that do not measure it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits_us: Vec<f64>,
        /// Worker processes (`num_workers`) of the loader that it asked last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workers: Option<u32>,
        /// Microseconds of each in which `backward()` did not compute: it waits for other ranks there.
        /// Measured where several processes train together on CPUs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        idle_us: Vec<f64>,
    },
    /// Which processes train together, known at the first step.
    World(World),
    /// Another framework than PyTorch was imported.
    Framework {
        /// The name of its module, as `jax`.
        name: String,
    },
    /// What is waited for data cannot be measured.
    NoWaits {
        /// What failed, and where.
        reason: String,
    },
    /// Processors that the training process may use.
    Cores {
        /// How many; of several ranks on a machine the share of one.
        cores: u32,
    },
    /// A worker of a `DataLoader` made batches.
    Loading {
        /// The process that trains.
        parent: u32,
        /// Mean microseconds of a batch.
        batch_us: f64,
    },
    /// Autograd nodes that steps made: how much they compute.
    Work {
        /// Steps.
        steps: u64,
        /// Their nodes.
        nodes: u64,
        /// Whether it is the step before a window, which stands for the recorded ones.
        recorded: bool,
    },
    /// What the model was given in the step before the window.
    Model(Model),
    /// A window was opened, closed, dropped, or its trace written.
    Window(Window),
    /// This process cannot be recorded.
    Refused {
        /// Why: `torch_too_old`, or a sentence.
        reason: String,
    },
    /// A fault of the hook itself.
    Fault {
        /// What and where.
        reason: String,
    },
    /// The process ends by itself.
    Exit {
        /// Steps it made.
        steps: u64,
        /// Backward passes before the first step.
        #[serde(default)]
        backward_passes: u64,
    },
    /// Anything else.
    #[serde(other)]
    Unknown,
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the protocol.
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// How far it is.
    pub stage: Stage,
    /// Version of Python.
    #[serde(default)]
    pub python: Option<String>,
    /// Version of PyTorch.
    #[serde(default)]
    pub torch: Option<String>,
    /// The rank on this machine (or in the job), where there are several.
    #[serde(default)]
    pub rank: Option<u32>,
}

/// The processes that train together with one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// The rank on this machine, else in the job.
    #[serde(default)]
    pub rank: Option<u32>,
    /// How many there are, on all machines; 1 for a process that trains alone.
    pub size: u32,
    /// What they have in common, and those of another training have not.
    pub group: String,
}

/// How far a process is when it speaks first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Python started.
    Python,
    /// PyTorch was imported.
    Torch,
    /// CUDA was started; the recorder for CUDA programs speaks, not the hook.
    Cuda,
}

/// The model, and what it was given: the first module in training that owns parameters
/// which the optimizer trains.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// The step.
    #[serde(default)]
    pub step: u64,
    /// Times the module was called in the step.
    pub calls: u64,
    /// Its class.
    pub module: Option<String>,
    /// The tensors that its first call was given.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// The different first extents of the first tensor, over all calls.
    #[serde(default)]
    pub leads: Vec<u64>,
    /// A list of tensors is among the inputs.
    #[serde(default)]
    pub lists: bool,
    /// Class of an input that cannot be looked into.
    #[serde(default)]
    pub opaque: Option<String>,
    /// A layer of the model takes the sequence first.
    #[serde(default)]
    pub sequence_first: bool,
    /// Its calls may be of the same samples.
    #[serde(default)]
    pub again: bool,
    /// Batches that a `DataLoader` gave the training in the step, the first ones.
    #[serde(default)]
    pub batches: Vec<Batch>,
    /// Element type of autocast where it was on in any module.
    pub autocast: Option<String>,
    /// Whether TF32 was allowed for matrix products, and for cuDNN's convolutions and recurrent layers.
    #[serde(default)]
    pub tf32: Option<[bool; 2]>,
}

/// A tensor that a module was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type, as `float32`.
    pub dtype: String,
}

/// A batch that a `DataLoader` gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Number of the loader in the step, from 0.
    pub loader: u32,
    /// Its `batch_size`; `None` without a fixed one.
    pub size: Option<u64>,
    /// First extent of the batch's tensors; `None` if they differ.
    pub rows: Option<u64>,
}

/// A window of recorded steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Window {
    /// The profiler runs from here on.
    Opened {
        /// Last step before it.
        step: u64,
        /// Microseconds that the training stood still.
        cost_us: f64,
        /// Why it has fewer steps than were asked for, where it has.
        #[serde(default)]
        note: Option<String>,
    },
    /// The profiler stopped.
    Closed {
        /// Last step in it.
        step: u64,
        /// Microseconds that the training stood still.
        cost_us: f64,
        /// Elements of everything the optimizers train.
        #[serde(default)]
        parameters: u64,
        /// Optimizers whose steps are counted, one after the other's end.
        #[serde(default)]
        optimizers: u32,
        /// The rank.
        #[serde(default)]
        rank: Option<u32>,
        /// Largest memory of tensors on the GPU since the process started.
        #[serde(default)]
        peak_memory_bytes: Option<u64>,
        /// What stays in memory from step to step.
        #[serde(default)]
        held: Option<Held>,
    },
    /// The trace is on disk.
    Written {
        /// Number of the window, from 1.
        number: u32,
        /// First step in it.
        first: u64,
        /// Last step in it.
        last: u64,
        /// File name in the recording's folder.
        file: String,
        /// Its size.
        bytes: u64,
        /// Microseconds of writing, beside the training.
        cost_us: f64,
        /// Kernels in it, where the recorder for CUDA programs wrote it.
        #[serde(default)]
        kernels: u64,
        /// Records that it could not keep.
        #[serde(default)]
        lost: u64,
        /// Length of the window, where it is one of time.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// Nothing came of it.
    Dropped {
        /// The step.
        step: u64,
        /// Why: `users_profiler`, or a sentence.
        reason: String,
        /// The window, where it was closed and only its trace could not be written.
        #[serde(default)]
        number: Option<u32>,
    },
}

/// What stays in memory from step to step, in bytes of tensors right after the
/// optimizer's step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// `cuda` or `cpu`: where the parameters are; only tensors there are counted.
    pub device: String,
    /// Parameters, and the model's buffers where `whole_model`.
    pub parameters_bytes: u64,
    /// Gradients of parameters.
    pub gradients_bytes: u64,
    /// What the optimizers keep.
    pub optimizer_state_bytes: u64,
    /// Parameters that are not trained, and buffers, are counted too.
    #[serde(default)]
    pub whole_model: bool,
}

/// Reads the text of one message; `None` at the end of the stream.
///
/// # Errors
/// Where the stream ends within a frame, or a frame is too long.
pub fn frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read(&mut length[..1])? {
        0 => return Ok(None),
        _ => stream.read_exact(&mut length[1..])?,
    }
    let length = u32::from_le_bytes(length);
    if length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a message of {length} bytes")));
    }
    let mut text = vec![0; length as usize];
    stream.read_exact(&mut text)?;
    Ok(Some(text))
}

/// The message that a text is.
///
/// # Errors
/// Where it is none.
pub fn parse(text: &[u8]) -> io::Result<Message> {
    serde_json::from_slice(text).map_err(io::Error::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn framed(text: &str) -> Vec<u8> {
        [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    fn read(stream: &mut impl Read) -> io::Result<Option<Message>> {
        frame(stream)?.map(|text| parse(&text)).transpose()
    }

    #[test]
    fn messages_are_read_one_after_another() {
        let stream = [
            framed(r#"{"type":"hello","version":1,"pid":7,"stage":"python","python":"3.11.2"}"#),
            framed(r#"{"type":"steps","first":2,"times_us":[10.5,11]}"#),
            framed(r#"{"type":"steps","first":4,"times_us":[10.5],"waits_us":[2.5],"workers":4,"idle_us":[1.5]}"#),
            framed(
                r#"{"type":"window","state":"written","number":1,"first":3,"last":5,"file":"t","bytes":9,"cost_us":1}"#,
            ),
            framed(r#"{"type":"of tomorrow","x":1}"#),
        ]
        .concat();
        let mut stream = &stream[..];
        let Some(Message::Hello(hello)) = read(&mut stream).unwrap() else { panic!() };
        assert_eq!((hello.pid, hello.stage, hello.torch), (7, Stage::Python, None));
        let older =
            Message::Steps { first: 2, times_us: vec![10.5, 11.0], waits_us: vec![], workers: None, idle_us: vec![] };
        assert_eq!(read(&mut stream).unwrap(), Some(older));
        let newer = Message::Steps {
            first: 4,
            times_us: vec![10.5],
            waits_us: vec![2.5],
            workers: Some(4),
            idle_us: vec![1.5],
        };
        assert_eq!(read(&mut stream).unwrap(), Some(newer));
        assert!(matches!(read(&mut stream).unwrap(), Some(Message::Window(Window::Written { last: 5, .. }))));
        assert_eq!(read(&mut stream).unwrap(), Some(Message::Unknown));
        assert_eq!(read(&mut stream).unwrap(), None);
    }

    #[test]
    fn what_is_cut_off_or_too_long_is_an_error() {
        let whole = framed(r#"{"type":"exit","steps":3}"#);
        for end in 1..whole.len() {
            assert!(read(&mut &whole[..end]).is_err(), "{end}");
        }
        assert!(read(&mut &[0xff, 0xff, 0xff, 0xff, 0][..]).unwrap_err().to_string().contains("4294967295 bytes"));
        assert!(read(&mut &framed("nonsense")[..]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_hang(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut stream = &bytes[..];
            while let Ok(Some(_)) = read(&mut stream) {}
        }
    }
}
