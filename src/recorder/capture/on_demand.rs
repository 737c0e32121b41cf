//! Records a step of a job that is already running: the daemon's side of libkineto's on-demand protocol.
//!
//! A `PyTorch` process started with `KINETO_USE_DAEMON=1` polls a daemon every few seconds for requests. [`attach`]
//! acts as that daemon while it runs: it receives polls, chooses processes, sends a request to record some iterations,
//! and waits for the traces. Between attaches there is no listener, and the processes poll a socket that does not
//! exist.
//!
//! - [`wire`]: the messages as bytes; [`request`]: the content of a request.
//! - [`daemon`]: which process polled when, and the answers; a state machine.
//! - [`roles`]: which of the processes trains.
//! - [`align`]: windows of several ranks on the same steps.
//! - `session`: sockets, and the choice; `place` and `work`: the recording.
//! - `starting`: when it is not safe to listen.
//!
//! Linux only.

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
