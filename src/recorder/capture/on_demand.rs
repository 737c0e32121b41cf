//! Recording a step of a job that runs already: the daemon's side of libkineto's
//! on-demand protocol.
//!
//! A `PyTorch` process that was started with `KINETO_USE_DAEMON=1` asks a daemon every few
//! seconds whether there is anything to do. [`attach`] is that daemon for
//! as long as it takes: it hears who polls, chooses, hands out a request to record some
//! iterations, and waits for the traces. Between attaches nothing listens, and the
//! processes poll a socket that is not there.
//!
//! - [`wire`]: the messages as bytes; [`request`]: what is asked for.
//! - [`daemon`]: who polled when, and what to answer; a state machine.
//! - [`roles`]: which of the processes trains.
//! - [`align`]: windows of several ranks on the same steps.
//! - `session`: sockets, and the choice; `place` and `work`: the recording.
//! - `starting`: when nobody may listen.
//!
//! Only Linux has it.

pub mod align;
mod attached;
pub mod client;
pub mod daemon;
mod endpoint;
mod error;
mod folder;
mod options;
pub(super) mod process;
pub mod request;
pub mod roles;
mod session;
mod starting;
mod trace_folder;
pub mod wire;
mod work;

pub use attached::{Attached, Times, Traced};
pub use endpoint::LONGEST_FOLDER;
pub use error::{AttachError, Listed, ProcessInfo};
pub use folder::folder;
pub use options::{AttachEvent, AttachOptions};
pub use process::{DAEMON_VARIABLE, FOLDER_VARIABLE};
pub use session::list;
pub use work::attach;
