//! An NVIDIA GPU, through its driver and cuBLASLt. Only this file and its folder use cudarc.
//!
//! Each library is searched for before any of its functions is called, and a missing one is reported with its remedy.
//! The driver is loaded through cudarc. cuBLASLt is loaded by path, with cudarc's types: cudarc itself only knows the
//! names of CUDA 12, while `PyTorch` may bring another version. The functions and structures used here are the same in
//! cuBLASLt 11 to 13.
//!
//! `driver` finds and starts the driver, and `products` has the matrix products. This file has the GPU itself, its
//! memory, the kernels of `profiler/gpu/kernels.ptx` (compiled by the driver) for bandwidth and launches, and the
//! clock.

#![expect(unsafe_code, reason = "calls of C libraries; every block says why it is sound")]

mod driver;
mod products;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self as cuda, CUdevice_attribute as Attribute};

use super::calibrate::{Device, Problem, ProductType, Work};
use super::smi::Smi;
pub use driver::{NoGpu, presence};
use habitat_base::units::Micros;
use habitat_step::catalog::calibration::{CalibratedDevice, UnderLoad};
use products::{Prepared, Products, WORKSPACE};

/// Threads per block of our kernels, and blocks per multiprocessor.
const THREADS: u32 = 256;
const BLOCKS_PER_SM: u32 = 32;
/// Time under load before the state of the board is queried.
const BEFORE_ASKING: Duration = Duration::from_millis(200);

/// A GPU, its memory and its stream.
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

/// Prepared work.
enum Ready {
    Nothing,
    Kernel { function: cuda::CUfunction, blocks: u32, arguments: Vec<u64> },
    Product(Box<Prepared>),
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
    /// Opens a GPU by its CUDA device number. `python` is an interpreter whose packages are searched for cuBLASLt, in
    /// addition to the usual places.
    ///
    /// # Errors
    /// [`NoGpu`] with what was searched for and the remedy.
    pub fn open(number: u32, python: Option<&Path>) -> Result<Self, NoGpu> {
        let speaks = driver::start()?;
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
            name: habitat_base::text::clean(&result::device::get_name(device).map_err(opening)?, 80),
            compute_capability: format!("{major}.{minor}"),
            sm_count: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs(),
            // SAFETY: as above.
            memory_bytes: unsafe { result::device::total_mem(device) }.map_err(opening)? as u64,
            cuda: Some(speaks),
            ..CalibratedDevice::default()
        };
        let smi = Smi::new(address(device).map_err(opening)?);
        smi.describe(&mut facts);
        // SAFETY: the context is made current for this thread, which is the only one that uses the objects created in
        // it; `drop` releases all of them before the context.
        let (stream, start, end, module) = unsafe {
            let context = result::primary_ctx::retain(device).map_err(opening)?;
            result::ctx::set_current(context).map_err(opening)?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking).map_err(opening)?;
            let event = || result::event::create(cuda::CUevent_flags::CU_EVENT_DEFAULT);
            let source = CString::new(habitat_profiler::KERNELS)
                .map_err(|_| NoGpu("the kernels have a NUL in them".to_owned()))?;
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

    /// The board, for querying its use.
    pub const fn smi(&self) -> &Smi {
        &self.smi
    }

    fn free_buffers(&mut self) {
        self.ready = Ready::Nothing;
        for (pointer, _) in self.buffers.drain(..) {
            // SAFETY: allocated by `allocate` and freed once; nothing is running, because every timing waits for its
            // end.
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

    /// Fills a buffer with non-zero numbers: products of zeros run faster.
    fn fill(&mut self, pointer: cuda::CUdeviceptr, bytes: u64, dtype: ProductType, seed: u64) -> Result<(), Problem> {
        let kind = match dtype {
            ProductType::Fp32 | ProductType::Tf32 => 0,
            ProductType::Fp16 => 1,
            ProductType::Bf16 => 2,
            ProductType::Fp8 => 3,
        };
        self.ready = self.kernel(c"habitat_fill", &[pointer, bytes / 4, seed, kind])?;
        self.time(1, false).map(drop)
    }

    fn run(&mut self) -> Result<(), Problem> {
        match &mut self.ready {
            Ready::Nothing => Err(Problem::Failed("no work was prepared".to_owned())),
            Ready::Kernel { function, blocks, arguments } => {
                // A 32-bit argument is the low half of its 64-bit slot (little-endian, as on every host of these GPUs).
                let mut places: Vec<*mut c_void> =
                    arguments.iter_mut().map(|argument| std::ptr::from_mut(argument).cast()).collect();
                // SAFETY: the function belongs to the loaded module, the arguments match its definition and are copied
                // by the call, and the buffers live until other work is prepared.
                unsafe {
                    result::launch_kernel(*function, (*blocks, 1, 1), (THREADS, 1, 1), 0, self.stream, &mut places)
                }
                .map_err(failed)
            }
            Ready::Product(prepared) => prepared.run(self.stream),
        }
    }

    fn product(&mut self, dtype: ProductType, size: u64) -> Result<(), Problem> {
        let mut matrices = [0; 3];
        for (seed, (matrix, each)) in (77..).zip(matrices.iter_mut().zip(dtype.bytes())) {
            *matrix = self.allocate(size * size * each)?;
            self.fill(*matrix, size * size * each, dtype, seed)?;
        }
        let workspace = self.allocate(WORKSPACE as u64)?;
        let products = self.products.as_ref().map_err(|why| Problem::LeftOut(why.clone()))?;
        let prepared = products.prepare(dtype, size, matrices, workspace)?;
        self.ready = Ready::Product(Box::new(prepared));
        Ok(())
    }
}

/// PCI address, which identifies the board for nvidia-smi regardless of numbering.
fn address(device: cuda::CUdevice) -> Result<String, DriverError> {
    let mut text = [0 as c_char; 32];
    // SAFETY: the driver writes at most the given number of characters, including a NUL.
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
            // The stream may be full before the last run is queued, so query from another thread.
            thread::spawn(move || {
                thread::sleep(BEFORE_ASKING);
                (smi.state(), Instant::now())
            })
        });
        // SAFETY: events and stream were created in `open` and live until `drop`.
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
        // A state queried after the end is not under load.
        let state =
            watcher.and_then(|watcher| watcher.join().ok()).and_then(|(state, asked)| state.filter(|_| asked <= ended));
        Ok((time, state))
    }

    fn launch_and_wait(&mut self) -> Result<Micros, Problem> {
        let began = Instant::now();
        self.run()?;
        // SAFETY: the stream was created in `open`.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed)?;
        Micros::new(began.elapsed().as_secs_f64() * 1e6)
            .map_err(|error| Problem::Failed(format!("the host's clock: {error}")))
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        self.free_buffers();
        // SAFETY: all of them were created in `open` and are released once; the handle of the products is released
        // before the context it lives in.
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
