//! Recording a training step of a running job, with no change to its code.
//!
//! [`start`] starts a command with a hook in its Python (`profiler/hook`), listens to what
//! the hook tells over a private socket, and keeps the traces of the recorded windows.
//! [`profile`](assemble::profile) makes a profile of them. Of other programs that use CUDA
//! a library (`profiler/cupti`) records the kernels, see [`cupti`].
//!
//! [`on_demand`] records a job that runs already, where it was started for that.
//! [`shapes`] traces a step that is not run at all. [`calibrate`] measures the GPU of this
//! machine itself, with no job.
//!
//! The job comes first: it has its own process group and its own exit code, it never
//! waits for us, and our end does not end it.

pub mod assemble;
pub mod calibrate;
pub mod cupti;
pub mod device;
mod error;
mod event;
mod folder;
mod hook;
mod job;
mod launch;
mod libraries;
pub mod log;
pub mod messages;
#[cfg(target_os = "linux")]
pub mod on_demand;
mod private;
pub mod recording;
mod scan;
pub mod shapes;
mod signals;
pub mod smi;
mod socket;

pub use error::CaptureError;
pub use event::{Asked, Control, Cut, Ended};
pub use folder::Folder;
pub use hook::Settings;
pub use job::{Finished, JobOptions, Progress, Running, Watch, start};
pub use launch::{interrupt_ourselves, signal_name};
pub use private::{Private, PrivateError};
pub use recording::{Process, Recording, RecordingStatus};
pub use scan::{Barrier, ProcessScan, WithoutHook};
