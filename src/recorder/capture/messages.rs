//! Messages of the hook: frames with a length prefix, one JSON object each.
//!
//! `profiler/hook/README.md` describes the protocol for readers of the Python side.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

/// Protocol version; a hook of another version is refused.
pub const VERSION: u32 = 1;

/// Maximum bytes per message, and for all unsent messages of the hook.
pub const LONGEST: u32 = 1 << 20;

/// A message of the hook. Unknown kinds are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Message {
    /// The first message of every connection.
    Hello(Hello),
    /// Times of consecutive steps outside windows.
    Steps {
        /// Number of the first of these steps, from 1.
        first: u64,
        /// Time of each step in microseconds, from the end of the previous step to its own.
        times_us: Vec<f64>,
        /// Time in microseconds that each step waited for a `DataLoader`, in the same order; absent if no `DataLoader`
        /// was used or the hook does not measure it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        waits_us: Vec<f64>,
        /// Worker processes (`num_workers`) of the last loader used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workers: Option<u32>,
        /// Time in microseconds that each step spent in `backward()` without computing, waiting for other ranks.
        /// Measured if several processes train together on CPUs.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        idle_us: Vec<f64>,
        /// Parts of these steps, and other facts on them.
        #[serde(flatten)]
        parts: Box<Parts>,
    },
    /// The processes that train together, known at the first step.
    World(World),
    /// A framework other than PyTorch was imported.
    Framework {
        /// Module name, such as `jax`.
        name: String,
    },
    /// The wait for data cannot be measured.
    NoWaits {
        /// What failed, and where.
        reason: String,
    },
    /// Processors available to the training process.
    Cores {
        /// Number; if several ranks share a machine, the share of one.
        cores: u32,
    },
    /// A worker of a `DataLoader` produced batches.
    Loading {
        /// The training process.
        parent: u32,
        /// Mean time per batch in microseconds.
        batch_us: f64,
    },
    /// Number of autograd nodes that steps create, as a measure of their computation.
    Work {
        /// Number of steps.
        steps: u64,
        /// Number of their nodes.
        nodes: u64,
        /// Which steps.
        of: Counted,
    },
    /// Inputs of the model in the step before the window.
    Model(Model),
    /// A window was opened, closed or dropped, or its trace was written.
    Window(Window),
    /// This process cannot be recorded.
    Refused {
        /// Reason: `torch_too_old`, or a sentence.
        reason: String,
    },
    /// An error in the hook itself.
    Fault {
        /// The error and its place.
        reason: String,
    },
    /// A validation or a save after the last step, before the process exits.
    After {
        /// Number of that step.
        step: u64,
        /// Time from its end to the last batch or save, in microseconds.
        time_us: f64,
        /// Batches and saves since, under the number of that step.
        #[serde(flatten)]
        parts: Box<Parts>,
    },
    /// The process exits normally.
    Exit {
        /// Number of steps it made.
        steps: u64,
        /// Backward passes before the first step.
        #[serde(default)]
        backward_passes: u64,
    },
    /// Any other message.
    #[serde(other)]
    Unknown,
}

/// Share of a step from which a save in it is what it was for.
const SAVED: f64 = 0.2;

/// Parts of the time of steps, and what happened in them beside the training.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parts {
    /// Each of the following lists has every n-th step, from the first; 0 without lists.
    #[serde(default)]
    pub every: u64,
    /// Time in microseconds up to the backward pass, from the end of the previous step or the arrival of the batch;
    /// negative if unknown.
    #[serde(default)]
    pub forward_us: Vec<f64>,
    /// Time in microseconds in backward passes.
    #[serde(default)]
    pub backward_us: Vec<f64>,
    /// Time in microseconds from the last backward pass to the end of the optimizer's step.
    #[serde(default)]
    pub optimizer_us: Vec<f64>,
    /// Number of batches that a `DataLoader` gave in most steps.
    #[serde(default)]
    pub batches: Option<u64>,
    /// Steps with another number of batches, and that number.
    #[serde(default)]
    pub other_batches: Vec<(u64, u64)>,
    /// Steps in which `torch.save` wrote, and its time in microseconds.
    #[serde(default)]
    pub saved_us: Vec<(u64, f64)>,
    /// Resident bytes of the process, and peak bytes of tensors on its GPU (0 without one).
    #[serde(default)]
    pub memory: Option<(u64, u64)>,
}

impl Parts {
    /// Whether a step of this time did more than train: a validation, or a save that took much of it.
    pub fn is_aside(&self, step: u64, time_us: f64) -> bool {
        let is_save = |(other, saved): &(u64, f64)| *other == step && *saved >= SAVED * time_us;
        // A `DataLoader` gave more batches than in most steps.
        let usual = self.batches.unwrap_or(u64::MAX);
        let has_more = |(other, count): &(u64, u64)| *other == step && *count > usual;
        self.other_batches.iter().any(has_more) || self.saved_us.iter().any(is_save)
    }
}

/// Steps whose autograd nodes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// The step before a window, in which the model is looked at.
    Looked,
    /// Those of a window.
    Recorded,
    /// Others.
    Later,
}

/// Identity of the sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Protocol version.
    pub version: u32,
    /// Process id.
    pub pid: u32,
    /// Progress of the process.
    pub stage: Stage,
    /// Python version.
    #[serde(default)]
    pub python: Option<String>,
    /// PyTorch version.
    #[serde(default)]
    pub torch: Option<String>,
    /// Rank on this machine (or in the job), if there are several.
    #[serde(default)]
    pub rank: Option<u32>,
}

/// The group of processes that train together with one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// Rank on this machine, otherwise in the job.
    #[serde(default)]
    pub rank: Option<u32>,
    /// Number of processes on all machines; 1 for a process that trains alone.
    pub size: u32,
    /// Identifier shared by the group and different from that of other trainings.
    pub group: String,
}

/// Progress of a process at its first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Python started.
    Python,
    /// PyTorch was imported.
    Torch,
    /// CUDA was started; the sender is the recorder for CUDA programs, not the hook.
    Cuda,
}

/// The model and its inputs: the first module in training mode that owns parameters trained by the optimizer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Step number.
    #[serde(default)]
    pub step: u64,
    /// Number of calls of the module in the step.
    pub calls: u64,
    /// Class of the module.
    pub module: Option<String>,
    /// Tensors passed to its first call.
    #[serde(default)]
    pub inputs: Vec<Input>,
    /// Distinct first extents of the first tensor over all calls.
    #[serde(default)]
    pub leads: Vec<u64>,
    /// Whether a list of tensors is among the inputs.
    #[serde(default)]
    pub lists: bool,
    /// Class of an input that could not be inspected.
    #[serde(default)]
    pub opaque: Option<String>,
    /// Whether a layer of the model takes the sequence first.
    #[serde(default)]
    pub sequence_first: bool,
    /// Whether several calls may process the same samples.
    #[serde(default)]
    pub again: bool,
    /// The first batches that a `DataLoader` supplied in the step.
    #[serde(default)]
    pub batches: Vec<Batch>,
    /// Element type of autocast if it was on in any module.
    pub autocast: Option<String>,
    /// Whether TF32 was allowed for matrix products, and for cuDNN's convolutions and recurrent layers.
    #[serde(default)]
    pub tf32: Option<[bool; 2]>,
}

/// A tensor passed to a module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Shape.
    pub shape: Vec<u64>,
    /// Element type, such as `float32`.
    pub dtype: String,
}

/// A batch from a `DataLoader`.
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
    /// The profiler was started.
    Opened {
        /// Last step before the window.
        step: u64,
        /// Time in microseconds that the training was paused.
        cost_us: f64,
        /// Reason if it has fewer steps than requested.
        #[serde(default)]
        note: Option<String>,
    },
    /// The profiler was stopped.
    Closed {
        /// Last step in the window.
        step: u64,
        /// Time in microseconds that the training was paused.
        cost_us: f64,
        /// Number of elements of everything that the optimizers train.
        #[serde(default)]
        parameters: u64,
        /// Number of optimizers whose steps were counted, each after the end of the previous one.
        #[serde(default)]
        optimizers: u32,
        /// The rank.
        #[serde(default)]
        rank: Option<u32>,
        /// Peak memory of tensors on the GPU since the process started.
        #[serde(default)]
        peak_memory_bytes: Option<u64>,
        /// Memory that stays allocated between steps.
        #[serde(default)]
        held: Option<TensorMemory>,
    },
    /// The trace was written to disk.
    Written {
        /// Number of the window, from 1.
        number: u32,
        /// First step in the window.
        first: u64,
        /// Last step in the window.
        last: u64,
        /// File name in the recording's folder.
        file: String,
        /// File size.
        bytes: u64,
        /// Time in microseconds for writing, concurrently with the training.
        cost_us: f64,
        /// Number of kernels, if the recorder for CUDA programs wrote it.
        #[serde(default)]
        kernels: u64,
        /// Number of lost records.
        #[serde(default)]
        lost: u64,
        /// Length in seconds, for a time window.
        #[serde(default)]
        seconds: Option<f64>,
    },
    /// The window was lost.
    Dropped {
        /// Step number.
        step: u64,
        /// Reason: `users_profiler`, or a sentence.
        reason: String,
        /// Window number, if it was closed and only its trace could not be written.
        #[serde(default)]
        number: Option<u32>,
    },
}

/// Memory that stays allocated between steps, in bytes of tensors right after the optimizer's step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorMemory {
    /// Device of the parameters, `cuda` or `cpu`; only tensors there are counted.
    pub device: String,
    /// Parameters, and the model's buffers if `whole_model`.
    pub parameters_bytes: u64,
    /// Gradients of parameters.
    pub gradients_bytes: u64,
    /// Optimizer state.
    pub optimizer_state_bytes: u64,
    /// Whether untrained parameters and buffers are counted too.
    #[serde(default)]
    pub whole_model: bool,
}

/// Reads the text of one message; `None` at the end of the stream.
///
/// # Errors
/// If the stream ends within a frame, or a frame is too long.
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

/// Parses a message.
///
/// # Errors
/// If the text is not a message.
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
        let older = Message::Steps {
            first: 2,
            times_us: vec![10.5, 11.0],
            waits_us: vec![],
            workers: None,
            idle_us: vec![],
            parts: Box::default(),
        };
        assert_eq!(read(&mut stream).unwrap(), Some(older));
        let newer = Message::Steps {
            first: 4,
            times_us: vec![10.5],
            waits_us: vec![2.5],
            workers: Some(4),
            idle_us: vec![1.5],
            parts: Box::default(),
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
