//! What CUDA and NVTX call when they load this library.
//!
//! The driver loads what `CUDA_INJECTION64_PATH` names when a process first uses CUDA, and
//! calls `InitializeInjection`; NVTX loads what `NVTX_INJECTION64_PATH` names at its first
//! call. Neither is made to wait: everything else happens on a thread.
#![expect(unsafe_code, reason = "names that C looks for are exported")]

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

use crate::settings::Settings;
use crate::{conductor, library, system};

/// Called by the CUDA driver within `cuInit`; 1 is success.
// SAFETY: no other library that is loaded into a CUDA program for its calls has a use for
// this name than to be called like this one.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        // Of this library's own copy of the standard library: a fault of ours prints nothing.
        std::panic::set_hook(Box::new(|_| {}));
        if let Some(settings) = Settings::read(|name| std::env::var_os(name)) {
            system::settle();
            conductor::start(settings);
        }
    });
    1
}

/// Called by NVTX of version 3 at its first use: its ranges go to CUPTI. 0 turns NVTX off,
/// as it is without any tool.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(table: *const c_void) -> c_int {
    nvtx(3, table)
}

/// The same for NVTX of version 2.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx(table: *const c_void) -> c_int {
    nvtx(2, table)
}

fn nvtx(version: usize, table: *const c_void) -> c_int {
    catch_unwind(|| {
        std::panic::set_hook(Box::new(|_| {}));
        Settings::read(|name| std::env::var_os(name))?;
        // SAFETY: this is NVTX's own argument to a tool.
        Some(unsafe { library::cupti().ok()?.nvtx(version, table) })
    })
    .ok()
    .flatten()
    .unwrap_or(0)
}
