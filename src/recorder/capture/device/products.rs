//! Matrix products by cuBLASLt: the library, its functions, and a prepared product that can be run repeatedly.

#![expect(unsafe_code, reason = "calls of C libraries; every block says why it is sound")]

use std::ffi::{c_int, c_void};
use std::path::Path;

use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys as cuda;
use libloading::Library;
use lt::{
    cublasLtHandle_t as Handle, cublasLtMatmulAlgo_t as Algorithm, cublasLtMatmulDesc_t as Description,
    cublasLtMatmulPreference_t as Preference, cublasLtMatrixLayout_t as Layout,
};

use super::driver::{is_absent, reason};
use crate::capture::calibrate::{Problem, ProductType};
use crate::capture::libraries;

/// Workspace for products in bytes: NVIDIA's recommendation for Hopper.
pub(super) const WORKSPACE: usize = 32 << 20;
/// `CUBLAS_OP_T`.
const TRANSPOSED: c_int = 1;
/// A static, because its address is passed.
static WORKSPACE_BYTES: usize = WORKSPACE;

/// Functions of cuBLASLt, by their names in the library.
macro_rules! functions {
    ($($name:ident: $symbol:literal fn($($argument:ty),* $(,)?);)*) => {
        #[derive(Clone, Copy)]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// # Safety
            /// `library` is cuBLASLt and is never unloaded.
            unsafe fn of(library: &'static Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the headers of cuBLASLt 11 to 13, with statuses as numbers.
                unsafe { Ok(Self { $($name: *library.get(concat!($symbol, "\0").as_bytes())?,)* }) }
            }
        }
    };
}

functions! {
    create: "cublasLtCreate" fn(*mut Handle);
    destroy: "cublasLtDestroy" fn(Handle);
    desc_create: "cublasLtMatmulDescCreate" fn(*mut Description, lt::cublasComputeType_t, lt::cudaDataType_t);
    desc_set: "cublasLtMatmulDescSetAttribute"
        fn(Description, lt::cublasLtMatmulDescAttributes_t, *const c_void, usize);
    desc_destroy: "cublasLtMatmulDescDestroy" fn(Description);
    layout_create: "cublasLtMatrixLayoutCreate" fn(*mut Layout, lt::cudaDataType_t, u64, u64, i64);
    layout_destroy: "cublasLtMatrixLayoutDestroy" fn(Layout);
    preference_create: "cublasLtMatmulPreferenceCreate" fn(*mut Preference);
    preference_set: "cublasLtMatmulPreferenceSetAttribute"
        fn(Preference, lt::cublasLtMatmulPreferenceAttributes_t, *const c_void, usize);
    preference_destroy: "cublasLtMatmulPreferenceDestroy" fn(Preference);
    // Handle, description, layouts of A, B, C and D, preference, capacity for results, number of results.
    heuristic: "cublasLtMatmulAlgoGetHeuristic"
        fn(Handle, Description, Layout, Layout, Layout, Layout, Preference, c_int, *mut Heuristic, *mut c_int);
    // Handle, description, alpha, A, B, beta, C, D, algorithm, workspace, its size, stream.
    matmul: "cublasLtMatmul"
        fn(
            Handle, Description, *const c_void, *const c_void, Layout, *const c_void, Layout,
            *const c_void, *const c_void, Layout, *mut c_void, Layout,
            *const Algorithm, *mut c_void, usize, lt::cudaStream_t,
        );
}

/// `cublasLtMatmulHeuristicResult_t` with its status as a number.
#[repr(C)]
struct Heuristic {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Heuristic>() == size_of::<lt::cublasLtMatmulHeuristicResult_t>());

/// A loaded cuBLASLt.
pub(super) struct Products {
    functions: Functions,
    handle: Handle,
    version: usize,
}

/// Names of `CUBLAS_STATUS_…` codes.
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
    /// Loads the first cuBLASLt that works: from the packages of `python`, the system's search path, or the usual
    /// folders.
    pub(super) fn open(python: Option<&Path>) -> Result<Self, String> {
        let mut problems = Vec::new();
        for path in libraries::of_products(python) {
            // SAFETY: a library of that name is cuBLASLt, and a missing one is an error. It is leaked, so its functions
            // stay valid.
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
                // For example CUDA 13 on a driver for CUDA 12; try the next one.
                code => problems.push(format!("{}: {}", path.display(), status(code))),
            }
        }
        if problems.is_empty() {
            Err("cuBLASLt is not installed: `pip install nvidia-cublas-cu12`, or --python with a Python that has PyTorch, or its folder in LD_LIBRARY_PATH".to_owned())
        } else {
            Err(format!("no cuBLASLt works with this driver: {}", problems.join("; ")))
        }
    }

    pub(super) fn version(&self) -> String {
        // 120804 is 12.8.4.
        format!("cuBLASLt {}.{}.{}", self.version / 10_000, self.version / 100 % 100, self.version % 100)
    }

    /// Prepares a product of square matrices with `size` rows, using the algorithm that cuBLASLt recommends.
    pub(super) fn prepare(
        &self,
        dtype: ProductType,
        size: u64,
        matrices: [cuda::CUdeviceptr; 3],
        workspace: cuda::CUdeviceptr,
    ) -> Result<Prepared, Problem> {
        use lt::cublasComputeType_t::{CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
        use lt::cudaDataType_t::{CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
        // Compute type, operand type, result type.
        let (compute, kind, result) = match dtype {
            ProductType::Fp32 => (CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F),
            ProductType::Tf32 => (CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F),
            ProductType::Bf16 => (CUBLAS_COMPUTE_32F, CUDA_R_16BF, CUDA_R_16BF),
            ProductType::Fp16 => (CUBLAS_COMPUTE_32F, CUDA_R_16F, CUDA_R_16F),
            ProductType::Fp8 => (CUBLAS_COMPUTE_32F, CUDA_R_8F_E4M3, CUDA_R_16BF),
        };
        let check = |code: c_int| if code == 0 { Ok(()) } else { Err(Problem::LeftOut(status(code))) };
        let mut prepared = Prepared {
            functions: self.functions,
            handle: self.handle,
            description: std::ptr::null_mut(),
            operand: std::ptr::null_mut(),
            result: std::ptr::null_mut(),
            algorithm: Algorithm { data: [0; 8] },
            matrices,
            workspace,
        };
        let functions = &self.functions;
        // The first operand is transposed, as in a linear layer: C = AᵀB.
        let transposed = TRANSPOSED;
        let mut preference = std::ptr::null_mut();
        let mut found =
            Heuristic { algorithm: prepared.algorithm, workspace: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut count = 0;
        // SAFETY: `Prepared::drop` or the code below releases everything created here; attributes are passed with their
        // sizes, pointers to values that outlive the calls.
        unsafe {
            check((functions.desc_create)(&raw mut prepared.description, compute, CUDA_R_32F))?;
            check((functions.desc_set)(
                prepared.description,
                lt::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA,
                (&raw const transposed).cast(),
                size_of_val(&transposed),
            ))?;
            check((functions.layout_create)(&raw mut prepared.operand, kind, size, size, size as i64))?;
            check((functions.layout_create)(&raw mut prepared.result, result, size, size, size as i64))?;
            check((functions.preference_create)(&raw mut preference))?;
            let asked = check((functions.preference_set)(
                preference,
                lt::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const WORKSPACE_BYTES).cast(),
                size_of_val(&WORKSPACE_BYTES),
            ))
            .and_then(|()| {
                check((functions.heuristic)(
                    self.handle,
                    prepared.description,
                    prepared.operand,
                    prepared.operand,
                    prepared.result,
                    prepared.result,
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

impl Drop for Products {
    fn drop(&mut self) {
        // SAFETY: created by `open`, destroyed once.
        unsafe { (self.functions.destroy)(self.handle) };
    }
}

/// A product that can be run repeatedly.
pub(super) struct Prepared {
    functions: Functions,
    handle: Handle,
    description: Description,
    /// Layout of both operands, as matrices are square.
    operand: Layout,
    result: Layout,
    algorithm: Algorithm,
    matrices: [cuda::CUdeviceptr; 3],
    workspace: cuda::CUdeviceptr,
}

impl Prepared {
    /// Queues one run.
    pub(super) fn run(&self, stream: cuda::CUstream) -> Result<(), Problem> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        let [a, b, c] = self.matrices.map(|pointer| pointer as *mut c_void);
        // SAFETY: matrices and workspace have the sizes of the layouts and live until other work is prepared; the
        // scalars are read during the call.
        let code = unsafe {
            (self.functions.matmul)(
                self.handle,
                self.description,
                (&raw const one).cast(),
                a,
                self.operand,
                b,
                self.operand,
                (&raw const zero).cast(),
                c,
                self.result,
                c,
                self.result,
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
        // SAFETY: created by `prepare`, destroyed once; null if `prepare` failed earlier.
        unsafe {
            for layout in [self.operand, self.result].into_iter().filter(|layout| !layout.is_null()) {
                (self.functions.layout_destroy)(layout);
            }
            if !self.description.is_null() {
                (self.functions.desc_destroy)(self.description);
            }
        }
    }
}
