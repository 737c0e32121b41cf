//! Finds and starts NVIDIA's driver.

#![expect(unsafe_code, reason = "calls of C libraries; every block says why it is sound")]

use std::error::Error as _;
use std::ffi::c_int;
use std::path::Path;

use cudarc::driver::sys as cuda;
use libloading::Library;

use crate::capture::smi::Smi;

/// File name of the driver's library.
const DRIVER: &str = "libcuda.so.1";
/// Oldest supported driver, CUDA 11.4; older ones lack functions used here.
const OLDEST_DRIVER: i32 = 11_040;

/// Reason why no GPU can be measured: what was searched for and what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGpu(pub String);

/// Checks that NVIDIA's driver is installed.
///
/// # Errors
/// [`NoGpu`] with what was searched for, what was found and the remedy.
pub fn presence() -> Result<(), NoGpu> {
    library().map(drop)
}

/// Loads the driver's library.
fn library() -> Result<Library, NoGpu> {
    // SAFETY: loading the driver's library runs its initialisers, as every CUDA program does.
    unsafe { Library::new(DRIVER) }.map_err(|error| absent(&error))
}

/// Error that lists what was searched for, what was found and the remedy.
fn absent(error: &libloading::Error) -> NoGpu {
    let nodes: Vec<String> = std::fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.strip_prefix("nvidia").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit())))
        .map(|name| format!("/dev/{name}"))
        .collect();
    let library = if is_absent(error, Path::new(DRIVER)) {
        "not found".to_owned()
    } else {
        format!("cannot be loaded ({})", reason(error))
    };
    let mut text = format!(
        "no NVIDIA GPU can be measured here\n  {DRIVER} (the driver's library): {library}\n  /dev/nvidia0, 1, …: {}\n  nvidia-smi: {}",
        if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") },
        if Smi::is_there() { "found" } else { "not found" },
    );
    if Path::new("/dev/kfd").exists() {
        text += "\n  /dev/kfd: an AMD GPU's driver; AMD's GPUs cannot be measured by this command";
    }
    text += if nodes.is_empty() {
        "\nPredictions keep using the catalog's own figures (`habitat-tui gpus`). Run this on the machine with the GPU: it needs only NVIDIA's driver, and cuBLASLt for matrix products."
    } else {
        "\nThere is a GPU, but no driver library: start a container with the NVIDIA runtime (docker run --gpus all), or install the driver. Until then predictions use the catalog's own figures."
    };
    NoGpu(text)
}

/// The system's error message.
pub(super) fn reason(error: &libloading::Error) -> String {
    habitat_base::text::clean(&error.source().map_or_else(|| error.to_string(), ToString::to_string), 160)
}

/// Whether the library itself is missing, rather than one of its dependencies.
pub(super) fn is_absent(error: &libloading::Error, library: &Path) -> bool {
    let said = reason(error);
    said.contains("No such file") && said.starts_with(&*library.to_string_lossy())
}

/// Meaning of the result of the driver's first call.
fn sentence(code: i32) -> String {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let masked = visible.map_or_else(String::new, |value| {
        format!(
            "; CUDA_VISIBLE_DEVICES is {:?}: unset it, or name an existing GPU",
            habitat_base::text::clean(&value, 40)
        )
    });
    match code {
        100 => format!("the driver finds no GPU{masked}"),
        101 => format!("the driver rejects the selected GPU{masked}"),
        34 => "the library found is a stub for building programs, not a driver: remove its folder from LD_LIBRARY_PATH".to_owned(),
        46 => "another program uses the GPU in exclusive mode".to_owned(),
        3 => "the driver is not running: is its kernel module loaded (lsmod | grep nvidia)?".to_owned(),
        802 => "the driver is not ready: on machines with NVSwitch nvidia-fabricmanager must run".to_owned(),
        803 => "the driver's library and its kernel module are of different versions: restart the machine after the update, or the container with the host's libraries".to_owned(),
        804 => "a library of CUDA's forward compatibility does not work with this GPU: remove cuda-compat from LD_LIBRARY_PATH".to_owned(),
        999 => "the driver does not work (unknown error): after a suspend, reload the module nvidia_uvm or restart; in a container, check that /dev/nvidia-uvm is passed in".to_owned(),
        _ => "the driver does not start".to_owned(),
    }
}

/// Starts the driver; returns its CUDA version. Treats result codes as plain numbers, because a newer driver may have
/// new ones.
pub(super) fn start() -> Result<String, NoGpu> {
    let library: &'static Library = Box::leak(Box::new(library()?));
    let failed = |error: libloading::Error| NoGpu(format!("{DRIVER}: {}", reason(&error)));
    // SAFETY: both functions have these types in every driver version, and the library stays loaded because it is
    // leaked.
    let (started, version) = unsafe {
        let init = library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit\0").map_err(failed)?;
        let get = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0").map_err(failed)?;
        let mut version = 0;
        let started = init(0);
        (started, (get(&raw mut version) == 0).then_some(version))
    };
    if started != 0 {
        return Err(NoGpu(format!(
            "no GPU can be measured here: {} (cuInit: {started}). Predictions use the catalog's own figures.",
            sentence(started)
        )));
    }
    let version = version.unwrap_or(0);
    let shown = format!("{}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST_DRIVER {
        return Err(NoGpu(format!(
            "the driver is too old: it supports CUDA {shown}, but measuring needs 11.4 (driver 470); update it"
        )));
    }
    // SAFETY: checks that the library can be loaded; otherwise cudarc would end the program.
    if !unsafe { cuda::is_culib_present() } {
        return Err(NoGpu(format!("{DRIVER} was found a moment ago but has disappeared")));
    }
    Ok(shown)
}
