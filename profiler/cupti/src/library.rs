//! NVIDIA's libraries in the process, and their functions.
//!
//! Results are plain numbers, not cudarc's enumerations: a newer CUPTI may return a number that those lack, which would
//! be undefined behaviour.
#![expect(unsafe_code, reason = "calls of NVIDIA's libraries; every block says why it is sound")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cudarc::cupti::sys::{CUpti_CallbackDomain as Domain, CUptiResult as Known};
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

use crate::record::KINDS;
use crate::system::Library;
use crate::trace::Device;
use crate::{find, system};

/// Requests an empty buffer: its address, its size, and the most records it may hold.
pub type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Returns a filled buffer: context, stream, buffer, its size, bytes filled.
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

type Callback = extern "C" fn(*mut c_void, u32, u32, *const c_void);
type Subscribe = unsafe extern "C" fn(*mut *mut c_void, Callback, *mut c_void) -> u32;
type Unsubscribe = unsafe extern "C" fn(*mut c_void) -> u32;
type Register = unsafe extern "C" fn(Requested, Completed) -> u32;
type OfNumber = unsafe extern "C" fn(u32) -> u32;
type Next = unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32;
type Dropped = unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32;
type CallbackName = unsafe extern "C" fn(u32, u32, *mut *const c_char) -> u32;
type ResultString = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
type Nvtx = unsafe extern "C" fn(*const c_void) -> c_int;

/// Functions of CUPTI.
pub struct Cupti {
    subscribe: Subscribe,
    unsubscribe: Unsubscribe,
    register: Register,
    enable: OfNumber,
    disable: OfNumber,
    flush: OfNumber,
    next: Next,
    dropped: Dropped,
    callback_name: CallbackName,
    result_string: ResultString,
    nvtx: [Option<Nvtx>; 2],
}

/// A subscription: the right to record.
#[derive(Debug, Clone, Copy)]
pub struct Subscription(usize);

/// CUPTI, loaded at the first call.
///
/// # Errors
/// The missing part, in words for the user.
pub fn cupti() -> Result<&'static Cupti, String> {
    static CUPTI: OnceLock<Result<Cupti, String>> = OnceLock::new();
    CUPTI.get_or_init(find_cupti).as_ref().map_err(Clone::clone)
}

/// The CUDA version of the driver, as 12040 for 12.4.
///
/// # Errors
/// If there is no driver, or it does not answer.
pub fn driver_version() -> Result<u32, String> {
    let driver = driver().ok_or("there is no libcuda.so.1, the NVIDIA driver's library")?;
    let Some(get) = driver.symbol(c"cuDriverGetVersion") else {
        return Err("libcuda.so.1 has no cuDriverGetVersion".to_owned());
    };
    // SAFETY: the signature is that of cuda.h, unchanged since CUDA 2.2.
    let get: unsafe extern "C" fn(*mut c_int) -> u32 = unsafe { std::mem::transmute(get) };
    let mut version = 0;
    // SAFETY: the function writes one int; it needs no initialised driver.
    let result = unsafe { get(&raw mut version) };
    match u32::try_from(version) {
        Ok(version) if result == 0 && version > 0 => Ok(version),
        _ => Err(format!("the NVIDIA driver does not answer (cuDriverGetVersion gives {result})")),
    }
}

/// The driver's library.
fn driver() -> Option<Library> {
    static DRIVER: OnceLock<Option<Library>> = OnceLock::new();
    *DRIVER.get_or_init(|| Library::load(c"libcuda.so.1"))
}

fn find_cupti() -> Result<Cupti, String> {
    // Check before any call of CUPTI: version 13 crashes without a driver.
    let driver = driver_version()?;
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let candidates = find::candidates(&maps, driver, |name| std::env::var_os(name));
    let Some((path, library)) = candidates.iter().find_map(|path| Some((path, load(path)?))) else {
        return Err(missing(&candidates));
    };
    functions(library).ok_or_else(|| format!("{}: not all of CUPTI's functions are in it", path.display()))
}

fn load(path: &Path) -> Option<Library> {
    // The loader finds plain names; of the paths try only those that exist.
    if path.components().count() > 1 && !path.exists() {
        return None;
    }
    Library::load(&CString::new(path.as_os_str().as_bytes()).ok()?)
}

fn missing(candidates: &[PathBuf]) -> String {
    let tried = match candidates {
        [only] => only.display().to_string(),
        _ => {
            "libcupti.so (beside the CUDA runtime, where the loader looks, in CUDA_HOME and /usr/local/cuda)".to_owned()
        }
    };
    format!(
        "no CUPTI could be loaded: {tried}; it comes with the CUDA toolkit and with `pip install nvidia-cuda-cupti`; \
         HABITAT_TUI_CUPTI_LIBRARY gives its path"
    )
}

fn functions(library: Library) -> Option<Cupti> {
    let find = |name: &CStr| library.symbol(name);
    // SAFETY: the signatures are those of cupti_activity.h, cupti_callbacks.h and
    // cupti_result.h, the same from CUDA 11 to 13; enumerations are 32-bit numbers in C.
    unsafe {
        Some(Cupti {
            subscribe: std::mem::transmute::<*mut c_void, Subscribe>(find(c"cuptiSubscribe")?),
            unsubscribe: std::mem::transmute::<*mut c_void, Unsubscribe>(find(c"cuptiUnsubscribe")?),
            register: std::mem::transmute::<*mut c_void, Register>(find(c"cuptiActivityRegisterCallbacks")?),
            enable: std::mem::transmute::<*mut c_void, OfNumber>(find(c"cuptiActivityEnable")?),
            disable: std::mem::transmute::<*mut c_void, OfNumber>(find(c"cuptiActivityDisable")?),
            flush: std::mem::transmute::<*mut c_void, OfNumber>(find(c"cuptiActivityFlushAll")?),
            next: std::mem::transmute::<*mut c_void, Next>(find(c"cuptiActivityGetNextRecord")?),
            dropped: std::mem::transmute::<*mut c_void, Dropped>(find(c"cuptiActivityGetNumDroppedRecords")?),
            callback_name: std::mem::transmute::<*mut c_void, CallbackName>(find(c"cuptiGetCallbackName")?),
            result_string: std::mem::transmute::<*mut c_void, ResultString>(find(c"cuptiGetResultString")?),
            nvtx: [c"InitializeInjectionNvtx", c"InitializeInjectionNvtx2"]
                .map(|name| find(name).map(|found| std::mem::transmute::<*mut c_void, Nvtx>(found))),
        })
    }
}

/// Callback of the subscription; it subscribes to nothing.
extern "C" fn called_back(_: *mut c_void, _domain: u32, _function: u32, _data: *const c_void) {}

impl Cupti {
    /// Starts recording into the buffers from `requested`.
    ///
    /// # Errors
    /// The reason why CUPTI refuses, in words for the user; all recording is off again.
    pub fn start(&self, requested: Requested, completed: Completed) -> Result<Subscription, String> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: CUPTI writes the handle; it never calls the callback, because no callback is enabled.
        self.check("cuptiSubscribe", unsafe { (self.subscribe)(&raw mut handle, called_back, std::ptr::null_mut()) })?;
        let subscription = Subscription(handle as usize);
        // SAFETY: both functions live as long as the process, because this library stays loaded.
        let registered = unsafe { (self.register)(requested, completed) };
        if let Err(problem) = self.check("cuptiActivityRegisterCallbacks", registered) {
            self.unsubscribe(subscription);
            return Err(problem);
        }
        for kind in KINDS {
            // SAFETY: takes a number.
            if let Err(problem) = self.check("cuptiActivityEnable", unsafe { (self.enable)(kind) }) {
                self.stop_kinds();
                self.unsubscribe(subscription);
                return Err(problem);
            }
        }
        Ok(subscription)
    }

    /// Stops recording; complete records still arrive until [`Self::flush`].
    pub fn stop_kinds(&self) {
        for kind in KINDS {
            // SAFETY: takes a number; a kind that is not enabled returns a harmless error.
            unsafe { (self.disable)(kind) };
        }
    }

    /// Makes CUPTI deliver complete records without waiting for full buffers.
    pub fn deliver(&self) {
        // SAFETY: takes a number; not within a callback.
        unsafe { (self.flush)(0) };
    }

    /// Makes CUPTI deliver all records; returns the number that it dropped.
    pub fn flush(&self) -> u64 {
        let mut dropped = 0_usize;
        // SAFETY: takes a number (forced: incomplete records too); not within a callback.
        unsafe { (self.flush)(1) };
        // SAFETY: CUPTI writes one number; without a context it counts all.
        let result = unsafe { (self.dropped)(std::ptr::null_mut(), 0, &raw mut dropped) };
        if result == 0 { dropped as u64 } else { 0 }
    }

    /// Makes room for other profilers.
    pub fn unsubscribe(&self, subscription: Subscription) {
        // SAFETY: the handle belongs to this CUPTI and is not used again.
        unsafe { (self.unsubscribe)(subscription.0 as *mut c_void) };
    }

    /// Calls `each` with the bytes from each record of a buffer to the end of the filled part.
    ///
    /// # Safety
    /// CUPTI has just returned `buffer` with `filled` bytes in it, and nothing else uses it.
    pub unsafe fn records(&self, buffer: *mut u8, filled: usize, each: &mut dyn FnMut(&[u8])) {
        let mut record: *mut u8 = std::ptr::null_mut();
        let mut before = 0;
        loop {
            // SAFETY: the caller's promise; CUPTI sets `record` to the next one within it.
            let result = unsafe { (self.next)(buffer, filled, &raw mut record) };
            let at = (record as usize).wrapping_sub(buffer as usize);
            if result != 0 || record.is_null() || at >= filled || (at <= before && before > 0) {
                return;
            }
            // SAFETY: `at` is within the `filled` bytes of the buffer.
            each(unsafe { std::slice::from_raw_parts(record, filled - at) });
            before = at.max(1);
        }
    }

    /// The name of a function of the runtime's or the driver's API, without the version that CUPTI adds; empty if it
    /// has none.
    pub fn function(&self, of_driver: bool, number: u32) -> String {
        let domain = if of_driver {
            Domain::CUPTI_CB_DOMAIN_DRIVER_API as u32
        } else {
            Domain::CUPTI_CB_DOMAIN_RUNTIME_API as u32
        };
        let mut name = std::ptr::null();
        // SAFETY: CUPTI writes the address of a constant string.
        let result = unsafe { (self.callback_name)(domain, number, &raw mut name) };
        // SAFETY: the address is that of a constant, or still 0.
        let text = if result == 0 { unsafe { system::text(name as usize, 200) } } else { None };
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        match text.rsplit_once("_v") {
            Some((stem, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => stem.to_owned(),
            _ => text,
        }
    }

    /// Passes its functions to NVTX version 2 or 3.
    ///
    /// # Safety
    /// `table` is the argument that NVTX of that version passes to a tool.
    pub unsafe fn nvtx(&self, version: usize, table: *const c_void) -> c_int {
        // SAFETY: the caller's promise; the argument is passed on unchanged.
        self.nvtx.get(version.wrapping_sub(2)).copied().flatten().map_or(0, |start| unsafe { start(table) })
    }

    fn check(&self, function: &str, result: u32) -> Result<(), String> {
        if result == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: CUPTI writes the address of a constant string.
        let known = unsafe { (self.result_string)(result, &raw mut text) } == 0;
        // SAFETY: the address is that of a constant, or still 0.
        let text = if known { unsafe { system::text(text as usize, 200) } } else { None };
        let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
        let remedy = [
            (
                Known::CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED,
                "; another profiler is at work in the program (torch.profiler, Nsight)",
            ),
            (Known::CUPTI_ERROR_INSUFFICIENT_PRIVILEGES, "; this user or container may not profile"),
            (Known::CUPTI_ERROR_NOT_INITIALIZED, "; the driver may be missing or older than this CUPTI"),
        ];
        let remedy = remedy.iter().find(|(known, _)| *known as u32 == result).map_or("", |(_, remedy)| remedy);
        Err(format!("{function} answers {result} {text}{remedy}"))
    }
}

/// GPUs of the process that the driver reports.
pub fn devices() -> Vec<Device> {
    let Some(driver) = driver() else { return Vec::new() };
    let find = |name: &CStr| driver.symbol(name);
    let (Some(count), Some(name), Some(memory), Some(attribute)) = (
        find(c"cuDeviceGetCount"),
        find(c"cuDeviceGetName"),
        find(c"cuDeviceTotalMem_v2"),
        find(c"cuDeviceGetAttribute"),
    ) else {
        return Vec::new();
    };
    // SAFETY: the signatures are those of cuda.h since CUDA 3.2. A device's handle is its
    // number (CUdevice is an int, and cuDeviceGet gives the ordinal).
    unsafe {
        let count: unsafe extern "C" fn(*mut c_int) -> u32 = std::mem::transmute(count);
        let name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> u32 = std::mem::transmute(name);
        let memory: unsafe extern "C" fn(*mut usize, c_int) -> u32 = std::mem::transmute(memory);
        let attribute: unsafe extern "C" fn(*mut c_int, u32, c_int) -> u32 = std::mem::transmute(attribute);
        let mut devices = 0;
        if count(&raw mut devices) != 0 {
            return Vec::new();
        }
        (0..devices.clamp(0, 64))
            .map(|id| {
                let mut text = [0_u8; 256];
                let mut bytes = 0_usize;
                let named = name(text.as_mut_ptr().cast(), 255, id) == 0;
                let sized = memory(&raw mut bytes, id) == 0;
                let read = |wanted: Attribute| {
                    let mut value = 0;
                    let result = attribute(&raw mut value, wanted as u32, id);
                    if result == 0 { u32::try_from(value).unwrap_or(0) } else { 0 }
                };
                let length = text.iter().position(|byte| *byte == 0).filter(|_| named).unwrap_or(0);
                Device {
                    id: id.unsigned_abs(),
                    name: String::from_utf8_lossy(&text[..length]).into_owned(),
                    memory: if sized { bytes as u64 } else { 0 },
                    capability: [
                        read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                        read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                    ],
                    multiprocessors: read(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
                }
            })
            .collect()
    }
}
