//! Signals that ask us to end, for code that must clean up first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Records these signals instead of ending at once.
#[derive(Debug)]
pub(super) struct Signals(Vec<(i32, Arc<AtomicBool>)>);

impl Signals {
    /// Starts watching.
    pub(super) fn watch() -> io::Result<Self> {
        let watched = |signal| {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, flag.clone()).map(|_| (signal, flag))
        };
        [SIGINT, SIGTERM, SIGHUP].into_iter().map(watched).collect::<io::Result<_>>().map(Self)
    }

    /// A received signal, if any.
    pub(super) fn came(&self) -> Option<i32> {
        self.0.iter().find(|(_, came)| came.load(Ordering::Relaxed)).map(|(signal, _)| *signal)
    }
}
