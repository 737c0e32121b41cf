//! Records a training step of a running job without changing its code.
//!
//! [`start`] starts a command with a hook in its Python (`profiler/hook`), receives the hook's messages over a private
//! socket, and keeps the traces of the recorded windows. [`profile`](assemble::profile) makes a profile of them. For
//! other programs that use CUDA, a library (`profiler/cupti`) records the kernels, see [`cupti`].
//!
//! [`on_demand`] records a job that is already running, if it was started with support for it. [`shapes`] traces a step
//! without running it. [`calibrate`] measures the GPU of this machine, without a job.
//!
//! The job has priority: it has its own process group and its own exit code, it never waits for us, and it survives our
//! end.

pub mod assemble;
pub mod calibrate;
pub mod cupti;
pub mod device;
mod error;
mod event;
mod folder;
pub mod history;
mod hook;
mod identity;
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
pub use event::{Control, JobExit, LostOutput, StopReason};
pub use folder::Folder;
pub use hook::Settings;
pub use identity::{Identity, Presence};
pub use job::{Finished, JobOptions, Progress, Running, Watch, start};
pub use launch::{interrupt_ourselves, leave_terminal, signal_name, stop_signals};
pub use private::{Private, PrivateError};
pub use recording::{Process, Recording, RecordingStatus};
pub use scan::{Barrier, ProcessScan, WithoutHook};
