//! Functions that CUDA and NVTX call when they load this library.
//!
//! When a process first uses CUDA, the driver loads the library in `CUDA_INJECTION64_PATH` and calls
//! `InitializeInjection`; NVTX loads the one in `NVTX_INJECTION64_PATH` at its first call. Neither waits: all other
//! work runs on a thread.
#![expect(unsafe_code, reason = "names that C looks for are exported")]

use std::ffi::{c_int, c_void};
use std::panic::catch_unwind;

use crate::settings::Settings;
use crate::{conductor, library, system};

/// Called by the CUDA driver within `cuInit`; 1 is success.
// SAFETY: other libraries in a CUDA program use this name only for the same purpose.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    let _ = catch_unwind(|| {
        // Applies to this library's own copy of the standard library: our panics print nothing.
        std::panic::set_hook(Box::new(|_| {}));
        if let Some(settings) = Settings::read(|name| std::env::var_os(name)) {
            system::settle();
            conductor::start(settings);
        }
    });
    1
}

/// Called by NVTX version 3 at its first use: passes its ranges to CUPTI. 0 turns NVTX off, as without a tool.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx2(table: *const c_void) -> c_int {
    nvtx(3, table)
}

/// The same for NVTX version 2.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjectionNvtx(table: *const c_void) -> c_int {
    nvtx(2, table)
}

fn nvtx(version: usize, table: *const c_void) -> c_int {
    catch_unwind(|| {
        std::panic::set_hook(Box::new(|_| {}));
        Settings::read(|name| std::env::var_os(name))?;
        // SAFETY: this is the argument that NVTX passes to a tool.
        Some(unsafe { library::cupti().ok()?.nvtx(version, table) })
    })
    .ok()
    .flatten()
    .unwrap_or(0)
}
