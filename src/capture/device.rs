//! An NVIDIA GPU through its driver and cuBLASLt: the one file that names cudarc.
//!
//! Libraries are looked for before anything of them is called, each by itself, and what is
//! missing is said with its remedy. The driver comes through cudarc. cuBLASLt is opened by
//! its path, with cudarc's types: cudarc itself looks for the names of CUDA 12 only, and
//! what `PyTorch` brings may be of another version. The functions and structures used here
//! are the same in cuBLASLt 11 to 13.
//!
//! Kernels are in `profiler/gpu/kernels.ptx`, which the driver translates.

#![expect(unsafe_code, reason = "calls of C libraries; every block says why it is sound")]

use std::error::Error as _;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::cublaslt::sys as lt;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self as cuda, CUdevice_attribute as Attribute};
use libloading::Library;

use super::calibrate::{Device, Problem, ProductType, Work};
use super::libraries;
use super::smi::Smi;
use crate::catalog::calibration::{CalibratedDevice, UnderLoad};
use crate::units::Micros;

const KERNELS: &str = include_str!("../../profiler/gpu/kernels.ptx");
/// The driver's library.
const DRIVER: &str = "libcuda.so.1";
/// Threads of a block of our kernels, and blocks a multiprocessor.
const THREADS: u32 = 256;
const BLOCKS_PER_SM: u32 = 32;
/// What products may use besides their matrices: what NVIDIA recommends for Hopper.
const WORKSPACE: usize = 32 << 20;
/// How long a board is at work before it is asked what it does.
const BEFORE_ASKING: Duration = Duration::from_millis(200);
/// A driver older than CUDA 11.4 lacks functions that are used here.
const OLDEST_DRIVER: i32 = 11_040;

/// Why no GPU can be measured here: what was looked for, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoGpu(pub String);

/// A GPU, its memory and its queue.
pub struct Gpu {
    facts: CalibratedDevice,
    capability: (u8, u8),
    smi: Smi,
    device: cuda::CUdevice,
    stream: cuda::CUstream,
    start: cuda::CUevent,
    end: cuda::CUevent,
    module: cuda::CUmodule,
    buffers: Vec<(cuda::CUdeviceptr, u64)>,
    products: Result<Products, String>,
    ready: Ready,
}

/// What runs next.
enum Ready {
    Nothing,
    Kernel { function: cuda::CUfunction, blocks: u32, arguments: Vec<u64> },
    Product(Box<Prepared>),
}

/// Whether NVIDIA's driver is here.
///
/// # Errors
/// [`NoGpu`] with what was looked for, what there is, and what to do.
pub fn presence() -> Result<(), NoGpu> {
    // SAFETY: loading the driver's library runs its initialisers, as every CUDA program does.
    let driver = unsafe { Library::new(DRIVER) }.map(drop);
    let Err(error) = driver else { return Ok(()) };
    let nodes: Vec<String> = std::fs::read_dir("/dev")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.strip_prefix("nvidia").is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit())))
        .map(|name| format!("/dev/{name}"))
        .collect();
    let library = if is_absent(&error, Path::new(DRIVER)) {
        "not found".to_owned()
    } else {
        format!("cannot be loaded ({})", reason(&error))
    };
    let mut text = format!(
        "no NVIDIA GPU can be measured here\n  {DRIVER} (the driver's library): {library}\n  /dev/nvidia0, 1, …: {}\n  nvidia-smi: {}",
        if nodes.is_empty() { "none".to_owned() } else { nodes.join(", ") },
        if Smi::is_there() { "there" } else { "not found" },
    );
    if Path::new("/dev/kfd").exists() {
        text += "\n  /dev/kfd: an AMD GPU's driver; AMD's GPUs cannot be measured by this command";
    }
    text += if nodes.is_empty() {
        "\nWithout one neither bandwidth, nor matrix products, nor launches can be measured; predictions go on with the catalog's own figures (`habitat-tui gpus`). Run this where the GPU is: NVIDIA's driver is all it needs, and cuBLASLt for the matrix products."
    } else {
        "\nThe GPU is there, its driver's library is not: in a container, start it with the NVIDIA runtime (docker run --gpus all); else install the driver. Until then predictions go on with the catalog's own figures."
    };
    Err(NoGpu(text))
}

/// What the system says of it.
fn reason(error: &libloading::Error) -> String {
    crate::text::clean(&error.source().map_or_else(|| error.to_string(), ToString::to_string), 160)
}

/// Whether it is the library itself that is not there, rather than one that it needs.
fn is_absent(error: &libloading::Error, library: &Path) -> bool {
    let said = reason(error);
    said.contains("No such file") && said.starts_with(&*library.to_string_lossy())
}

/// What the driver's answer to its first call means.
fn sentence(code: i32) -> String {
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    let masked = visible.map_or_else(String::new, |value| {
        format!("; CUDA_VISIBLE_DEVICES is {:?}: unset it, or name one that is there", crate::text::clean(&value, 40))
    });
    match code {
        100 => format!("the driver finds no GPU{masked}"),
        101 => format!("the driver refuses the GPU named{masked}"),
        34 => "the library found is a stub for building programs, not a driver: take its folder out of LD_LIBRARY_PATH".to_owned(),
        46 => "the GPU is taken by another program alone (exclusive mode)".to_owned(),
        3 => "the driver is not running: is its kernel module loaded (lsmod | grep nvidia)?".to_owned(),
        802 => "the driver is not ready: on machines with NVSwitch nvidia-fabricmanager must run".to_owned(),
        803 => "the driver's library and its kernel module are of different versions: restart the machine after the update, or the container with the host's libraries".to_owned(),
        804 => "a library of CUDA's forward compatibility does not work with this GPU: take cuda-compat out of LD_LIBRARY_PATH".to_owned(),
        999 => "the driver does not work (unknown error): after a suspend, reload the module nvidia_uvm or restart; in a container, check that /dev/nvidia-uvm is passed in".to_owned(),
        _ => "the driver does not start".to_owned(),
    }
}

/// Starts the driver. Its codes are taken as numbers: a newer driver may have new ones.
fn start_driver() -> Result<String, NoGpu> {
    presence()?;
    let failed = |error: libloading::Error| NoGpu(format!("{DRIVER}: {}", reason(&error)));
    // SAFETY: as above; both functions have these types in every version of the driver, and
    // the library stays loaded, since it is leaked.
    let (started, version) = unsafe {
        let library: &'static Library = Box::leak(Box::new(Library::new(DRIVER).map_err(failed)?));
        let init = library.get::<unsafe extern "C" fn(u32) -> c_int>(b"cuInit\0").map_err(failed)?;
        let get = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cuDriverGetVersion\0").map_err(failed)?;
        let mut version = 0;
        let started = init(0);
        (started, (get(&raw mut version) == 0).then_some(version))
    };
    if started != 0 {
        return Err(NoGpu(format!(
            "no GPU can be measured here: {} (cuInit: {started}). Predictions go on with the catalog's own figures.",
            sentence(started)
        )));
    }
    let version = version.unwrap_or(0);
    let shown = format!("{}.{}", version / 1000, version % 1000 / 10);
    if version < OLDEST_DRIVER {
        return Err(NoGpu(format!(
            "the driver is too old: it speaks CUDA {shown}, and 11.4 (driver 470) is the oldest that can be measured with; update it"
        )));
    }
    // SAFETY: looks whether the library can be loaded; cudarc ends the program where it is not.
    if !unsafe { cuda::is_culib_present() } {
        return Err(NoGpu(format!("{DRIVER} was found a moment ago, and is not any more")));
    }
    Ok(shown)
}

fn failed(error: DriverError) -> Problem {
    let text = || error.error_string().ok().map(|text| text.to_string_lossy().into_owned());
    let text = text().unwrap_or_else(|| "unknown error".to_owned());
    match error.0 {
        cuda::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Problem::LeftOut(format!("{text} of the GPU")),
        code => Problem::Failed(format!("{text} (CUDA error {})", code as u32)),
    }
}

fn opening(error: DriverError) -> NoGpu {
    NoGpu(format!("the GPU cannot be used: {}", failed(error)))
}

impl Gpu {
    /// Opens the GPU of that number, as CUDA counts them. `python` says where to look for
    /// cuBLASLt besides the usual places.
    ///
    /// # Errors
    /// [`NoGpu`] with what was looked for and what to do.
    pub fn open(number: u32, python: Option<&Path>) -> Result<Self, NoGpu> {
        let speaks = start_driver()?;
        let count = result::device::get_count().map_err(opening)?;
        let ordinal = i32::try_from(number).ok().filter(|&number| number < count).ok_or_else(|| {
            NoGpu(format!(
                "--device {number}: there {}; they are counted from 0",
                match count {
                    1 => "is one GPU".to_owned(),
                    count => format!("are {count} GPUs"),
                }
            ))
        })?;
        let device = result::device::get(ordinal).map_err(opening)?;
        let attribute = |attribute: Attribute| {
            // SAFETY: the device comes from the driver.
            unsafe { result::device::get_attribute(device, attribute) }.map_err(opening)
        };
        let (major, minor) = (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        );
        let mut facts = CalibratedDevice {
            name: crate::text::clean(&result::device::get_name(device).map_err(opening)?, 80),
            compute_capability: format!("{major}.{minor}"),
            sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
            // SAFETY: as above.
            memory_bytes: unsafe { result::device::total_mem(device) }.map_err(opening)? as u64,
            cuda: Some(speaks),
            ..CalibratedDevice::default()
        };
        let smi = Smi::new(address(device).map_err(opening)?);
        smi.describe(&mut facts);
        // SAFETY: the context is made current for this thread, which is the only one that
        // uses what is made in it; everything made here is released in `drop`, before it.
        let (stream, start, end, module) = unsafe {
            let context = result::primary_ctx::retain(device).map_err(opening)?;
            result::ctx::set_current(context).map_err(opening)?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(opening)?;
            let event = || result::event::create(cuda::CUevent_flags::CU_EVENT_DEFAULT);
            let source = CString::new(KERNELS).map_err(|_| NoGpu("the kernels have a NUL in them".to_owned()))?;
            let module = result::module::load_data(source.as_ptr().cast()).map_err(opening)?;
            (stream, event().map_err(opening)?, event().map_err(opening)?, module)
        };
        let products = Products::open(python);
        Ok(Self {
            facts,
            capability: (major.unsigned_abs() as u8, minor.unsigned_abs() as u8),
            smi,
            device,
            stream,
            start,
            end,
            module,
            buffers: Vec::new(),
            products,
            ready: Ready::Nothing,
        })
    }

    /// The board, to be asked who uses it.
    pub const fn smi(&self) -> &Smi {
        &self.smi
    }

    fn free_buffers(&mut self) {
        self.ready = Ready::Nothing;
        for (pointer, _) in self.buffers.drain(..) {
            // SAFETY: allocated by `allocate`, freed once; nothing runs, since every timing
            // waits for its end.
            let _ = unsafe { result::free_sync(pointer) };
        }
    }

    fn allocate(&mut self, bytes: u64) -> Result<cuda::CUdeviceptr, Problem> {
        let size = usize::try_from(bytes).map_err(|_| Problem::LeftOut(format!("{bytes} bytes are too many")))?;
        // SAFETY: freed in `free_buffers`.
        let pointer = unsafe { result::malloc_sync(size) }.map_err(failed)?;
        self.buffers.push((pointer, bytes));
        Ok(pointer)
    }

    fn kernel(&self, name: &CStr, arguments: &[u64]) -> Result<Ready, Problem> {
        // SAFETY: the module is loaded until `drop`.
        let function = unsafe { result::module::get_function(self.module, name.to_owned()) }.map_err(failed)?;
        let blocks = self.facts.sm_count.max(1) * BLOCKS_PER_SM;
        Ok(Ready::Kernel { function, blocks, arguments: arguments.to_vec() })
    }

    /// Puts numbers into a buffer: products of zeros would run faster than those of numbers.
    fn fill(&mut self, pointer: cuda::CUdeviceptr, bytes: u64, dtype: ProductType, seed: u64) -> Result<(), Problem> {
        let kind = match dtype {
            ProductType::Fp32 | ProductType::Tf32 => 0,
            ProductType::Fp16 => 1,
            ProductType::Bf16 => 2,
        };
        self.ready = self.kernel(c"habitat_fill", &[pointer, bytes / 4, seed, kind])?;
        self.time(1, false).map(drop)
    }

    fn run(&mut self) -> Result<(), Problem> {
        match &mut self.ready {
            Ready::Nothing => Err(Problem::Failed("nothing was prepared".to_owned())),
            Ready::Kernel { function, blocks, arguments } => {
                // A 32-bit argument is the low half of its 64-bit place (little-endian, as
                // every host of these GPUs is).
                let mut places: Vec<*mut c_void> =
                    arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
                // SAFETY: the function is of the loaded module, the arguments are those of its
                // definition and are copied by the call, the buffers live until another work
                // is prepared.
                unsafe {
                    result::launch_kernel(*function, (*blocks, 1, 1), (THREADS, 1, 1), 0, self.stream, &mut places)
                }
                .map_err(failed)
            }
            Ready::Product(prepared) => prepared.run(self.stream),
        }
    }

    fn product(&mut self, dtype: ProductType, size: u64) -> Result<(), Problem> {
        let bytes = size * size * dtype.bytes();
        let mut matrices = [0; 3];
        for (seed, matrix) in matrices.iter_mut().enumerate() {
            *matrix = self.allocate(bytes)?;
            self.fill(*matrix, bytes, dtype, 77 + seed as u64)?;
        }
        let workspace = self.allocate(WORKSPACE as u64)?;
        let products = self.products.as_ref().map_err(|why| Problem::LeftOut(why.clone()))?;
        let prepared = products.prepare(dtype, size, matrices, workspace)?;
        self.ready = Ready::Product(Box::new(prepared));
        Ok(())
    }
}

/// The PCI address, by which nvidia-smi knows the board whatever the numbers are.
fn address(device: cuda::CUdevice) -> Result<String, DriverError> {
    let mut text = [0 as c_char; 32];
    // SAFETY: the driver writes at most as many characters as it is told, with a NUL.
    unsafe {
        cuda::cuDeviceGetPCIBusId(text.as_mut_ptr(), text.len() as c_int, device).result()?;
        Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
    }
}

impl Device for Gpu {
    fn facts(&self) -> &CalibratedDevice {
        &self.facts
    }

    fn capability(&self) -> (u8, u8) {
        self.capability
    }

    fn free_bytes(&self) -> u64 {
        let own: u64 = self.buffers.iter().map(|(_, bytes)| bytes).sum();
        result::mem_get_info().map_or(0, |(free, _)| free as u64) + own
    }

    fn products(&self) -> Result<String, String> {
        self.products.as_ref().map(Products::version).map_err(Clone::clone)
    }

    fn prepare(&mut self, work: Work) -> Result<(), Problem> {
        self.free_buffers();
        self.ready = match work {
            Work::Empty => self.kernel(c"habitat_empty", &[])?,
            Work::Copy(bytes) => {
                let (out, from) = (self.allocate(bytes)?, self.allocate(bytes)?);
                self.fill(from, bytes, ProductType::Fp32, 1)?;
                self.kernel(c"habitat_copy", &[out, from, bytes / 16])?
            }
            Work::Read(bytes) => {
                let (sink, from) = (self.allocate(256)?, self.allocate(bytes)?);
                self.fill(from, bytes, ProductType::Fp32, 1)?;
                self.kernel(c"habitat_read", &[sink, from, bytes / 16])?
            }
            Work::Write(bytes) => {
                let out = self.allocate(bytes)?;
                self.kernel(c"habitat_write", &[out, bytes / 16, 1])?
            }
            Work::Product { dtype, size } => return self.product(dtype, size),
        };
        Ok(())
    }

    fn time(&mut self, runs: u64, watch: bool) -> Result<(Micros, Option<UnderLoad>), Problem> {
        let watcher = watch.then(|| {
            let smi = self.smi.clone();
            // The queue may be full before the last run is in it: asked from another thread.
            thread::spawn(move || {
                thread::sleep(BEFORE_ASKING);
                (smi.state(), Instant::now())
            })
        });
        // SAFETY: events and stream were made in `open` and live until `drop`.
        unsafe { result::event::record(self.start, self.stream) }.map_err(failed)?;
        for _ in 0..runs {
            self.run()?;
        }
        // SAFETY: as above.
        unsafe { result::event::record(self.end, self.stream) }.map_err(failed)?;
        // SAFETY: as above; both events are on one stream.
        let millis = unsafe {
            result::event::synchronize(self.end).map_err(failed)?;
            result::event::elapsed(self.start, self.end).map_err(failed)?
        };
        let time = Micros::from_millis(f64::from(millis))
            .map_err(|error| Problem::Failed(format!("the device's clock: {error}")))?;
        let ended = Instant::now();
        // What was said after the end is not of the load.
        let state =
            watcher.and_then(|watcher| watcher.join().ok()).and_then(|(state, asked)| state.filter(|_| asked <= ended));
        Ok((time, state))
    }

    fn launch_and_wait(&mut self) -> Result<Micros, Problem> {
        let began = Instant::now();
        self.run()?;
        // SAFETY: the stream was made in `open`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed)?;
        Micros::new(began.elapsed().as_secs_f64() * 1e6)
            .map_err(|error| Problem::Failed(format!("the host's clock: {error}")))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.free_buffers();
        // SAFETY: all of them were made in `open` and are released once; the products' handle
        // goes before the context it lives in.
        unsafe {
            self.products = Err(String::new());
            let _ = result::module::unload(self.module);
            let _ = result::event::destroy(self.start);
            let _ = result::event::destroy(self.end);
            let _ = result::stream::destroy(self.stream);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}

/// cuBLASLt's functions, by their names in the library.
macro_rules! functions {
    ($($name:ident: $symbol:literal fn($($argument:ty),* $(,)?);)*) => {
        #[derive(Clone, Copy)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is cuBLASLt, and is never unloaded.
            unsafe fn of(library: &'static Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the headers of cuBLASLt 11 to 13, statuses
                // taken as numbers.
                unsafe { Ok(Self { $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    create: "cublasLtCreate" fn(*mut lt::cublasLtHandle_t);
    destroy: "cublasLtDestroy" fn(lt::cublasLtHandle_t);
    desc_create: "cublasLtMatmulDescCreate" fn(*mut lt::cublasLtMatmulDesc_t, lt::cublasComputeType_t, lt::cudaDataType_t);
    desc_set: "cublasLtMatmulDescSetAttribute"
        fn(lt::cublasLtMatmulDesc_t, lt::cublasLtMatmulDescAttributes_t, *const c_void, usize);
    desc_destroy: "cublasLtMatmulDescDestroy" fn(lt::cublasLtMatmulDesc_t);
    layout_create: "cublasLtMatrixLayoutCreate" fn(*mut lt::cublasLtMatrixLayout_t, lt::cudaDataType_t, u64, u64, i64);
    layout_destroy: "cublasLtMatrixLayoutDestroy" fn(lt::cublasLtMatrixLayout_t);
    preference_create: "cublasLtMatmulPreferenceCreate" fn(*mut lt::cublasLtMatmulPreference_t);
    preference_set: "cublasLtMatmulPreferenceSetAttribute"
        fn(lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceAttributes_t, *const c_void, usize);
    preference_destroy: "cublasLtMatmulPreferenceDestroy" fn(lt::cublasLtMatmulPreference_t);
    heuristic: "cublasLtMatmulAlgoGetHeuristic"
        fn(
            lt::cublasLtHandle_t,
            lt::cublasLtMatmulDesc_t,
            lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatmulPreference_t,
            c_int,
            *mut Heuristic,
            *mut c_int,
        );
    matmul: "cublasLtMatmul"
        fn(
            lt::cublasLtHandle_t,
            lt::cublasLtMatmulDesc_t,
            *const c_void,
            *const c_void,
            lt::cublasLtMatrixLayout_t,
            *const c_void,
            lt::cublasLtMatrixLayout_t,
            *const c_void,
            *const c_void,
            lt::cublasLtMatrixLayout_t,
            *mut c_void,
            lt::cublasLtMatrixLayout_t,
            *const lt::cublasLtMatmulAlgo_t,
            *mut c_void,
            usize,
            lt::cudaStream_t,
        );
}

/// `cublasLtMatmulHeuristicResult_t`, its status as a number.
#[repr(C)]
struct Heuristic {
    algorithm: lt::cublasLtMatmulAlgo_t,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Heuristic>() == size_of::<lt::cublasLtMatmulHeuristicResult_t>());

/// cuBLASLt, opened.
struct Products {
    functions: Functions,
    handle: lt::cublasLtHandle_t,
    version: usize,
}

/// `CUBLAS_STATUS_…` by their numbers.
fn status(code: c_int) -> String {
    let name = match code {
        1 => "not initialized",
        3 => "out of memory",
        7 => "invalid value",
        8 => "no support on this GPU",
        11 => "a GPU error",
        13 => "the computation failed",
        14 => "internal error",
        15 => "not supported",
        _ => "an error",
    };
    format!("cuBLASLt: {name} (status {code})")
}

impl Products {
    /// The first cuBLASLt that works: that of `python`, that of the system, those in the
    /// usual folders.
    fn open(python: Option<&Path>) -> Result<Self, String> {
        let mut problems = Vec::new();
        for path in libraries::of_products(python) {
            // SAFETY: a library of that name is cuBLASLt; a missing one is an error. It is
            // leaked, so what it gives stays valid.
            let opened = unsafe {
                Library::new(&path).map_err(|error| (is_absent(&error, &path), reason(&error))).and_then(|library| {
                    let library: &'static Library = Box::leak(Box::new(library));
                    let functions = Functions::of(library).map_err(|error| (false, reason(&error)))?;
                    let version = library.get::<unsafe extern "C" fn() -> usize>(b"cublasLtGetVersion\0");
                    Ok((functions, version.map_or(0, |get| get())))
                })
            };
            let (functions, version) = match opened {
                Ok(opened) => opened,
                Err((true, _)) => continue,
                Err((false, why)) => {
                    problems.push(why);
                    continue;
                }
            };
            let mut handle = std::ptr::null_mut();
            // SAFETY: the driver runs and a context is current.
            match unsafe { (functions.create)(&raw mut handle) } {
                0 => return Ok(Self { functions, handle, version }),
                // Of CUDA 13 on a driver of CUDA 12, for one: another may do.
                code => problems.push(format!("{}: {}", path.display(), status(code))),
            }
        }
        if problems.is_empty() {
            Err("cuBLASLt is not installed: `pip install nvidia-cublas-cu12`, or --python with a Python that has PyTorch, or its folder in LD_LIBRARY_PATH".to_owned())
        } else {
            Err(format!("no cuBLASLt works with this driver: {}", problems.join("; ")))
        }
    }

    fn version(&self) -> String {
        // 120804 is 12.8.4.
        format!("cuBLASLt {}.{}.{}", self.version / 10_000, self.version / 100 % 100, self.version % 100)
    }

    fn prepare(
        &self,
        dtype: ProductType,
        size: u64,
        matrices: [cuda::CUdeviceptr; 3],
        workspace: cuda::CUdeviceptr,
    ) -> Result<Prepared, Problem> {
        use lt::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
        use lt::cudaDataType_t::{CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
        let (compute, kind) = match dtype {
            ProductType::Fp32 => (CUBLAS_COMPUTE_32F, CUDA_R_32F),
            ProductType::Tf32 => (CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F),
            ProductType::Bf16 => (CUBLAS_COMPUTE_32F, CUDA_R_16BF),
            ProductType::Fp16 => (CUBLAS_COMPUTE_32F, CUDA_R_16F),
        };
        let check = |code: c_int| if code == 0 { Ok(()) } else { Err(Problem::LeftOut(status(code))) };
        let mut prepared = Prepared {
            functions: self.functions,
            handle: self.handle,
            description: std::ptr::null_mut(),
            layout: std::ptr::null_mut(),
            algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
            matrices,
            workspace,
        };
        let functions = &self.functions;
        // The first operand transposed, as in a linear layer: C = AᵀB.
        let transposed = TRANSPOSED;
        let mut preference = std::ptr::null_mut();
        let mut found =
            Heuristic { algorithm: prepared.algorithm, workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        // SAFETY: what is made is given back by `Prepared::drop` or below; attributes are
        // passed with their sizes, pointers to values that outlive the calls.
        unsafe {
            check((functions.desc_create)(&raw mut prepared.description, compute, CUDA_R_32F))?;
            check((functions.desc_set)(
                prepared.description,
                lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                (&raw const transposed).cast(),
                size_of_val(&transposed),
            ))?;
            check((functions.layout_create)(&raw mut prepared.layout, kind, size, size, size as i64))?;
            check((functions.preference_create)(&raw mut preference))?;
            let asked = check((functions.preference_set)(
                preference,
                lt::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const WORKSPACE_BYTES).cast(),
                size_of_val(&WORKSPACE_BYTES),
            ))
            .and_then(|()| {
                let layout = prepared.layout;
                check((functions.heuristic)(
                    self.handle,
                    prepared.description,
                    layout,
                    layout,
                    layout,
                    layout,
                    preference,
                    1,
                    &raw mut found,
                    &raw mut count,
                ))
            });
            (functions.preference_destroy)(preference);
            asked?;
        }
        if count < 1 {
            return Err(Problem::LeftOut("cuBLASLt has no algorithm for it on this GPU".to_owned()));
        }
        check(found.state)?;
        prepared.algorithm = found.algorithm;
        Ok(prepared)
    }
}

/// `CUBLAS_OP_T`.
const TRANSPOSED: c_int = 1;
/// In memory, for its address.
static WORKSPACE_BYTES: usize = WORKSPACE;

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: made by `open`, given back once.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

/// A product that can be run again and again.
struct Prepared {
    functions: Functions,
    handle: lt::cublasLtHandle_t,
    description: lt::cublasLtMatmulDesc_t,
    /// Of all matrices: they are square and of one type.
    layout: lt::cublasLtMatrixLayout_t,
    algorithm: lt::cublasLtMatmulAlgo_t,
    matrices: [cuda::CUdeviceptr; 3],
    workspace: cuda::CUdeviceptr,
}

impl Prepared {
    fn run(&self, stream: cuda::CUstream) -> Result<(), Problem> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [a, b, c] = self.matrices.map(|pointer| pointer as *mut c_void);
        // SAFETY: matrices and workspace are allocated in the sizes of the layout and live
        // until another work is prepared; the factors are read during the call.
        let code = unsafe {
            (self.functions.matmul)(
                self.handle,
                self.description,
                (&raw const one).cast(),
                a,
                self.layout,
                b,
                self.layout,
                (&raw const zero).cast(),
                c,
                self.layout,
                c,
                self.layout,
                &raw const self.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream.cast(),
            )
        };
        if code == 0 { Ok(()) } else { Err(Problem::LeftOut(status(code))) }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // SAFETY: made by `prepare`, given back once; null where it did not come so far.
        unsafe {
            if !self.layout.is_null() {
                (self.functions.layout_destroy)(self.layout);
            }
            if !self.description.is_null() {
                (self.functions.desc_destroy)(self.description);
            }
        }
    }
}
