//! What a GPU reaches: bandwidth, matrix products, launches, measured by its own clock.
//!
//! [`calibrate`] says what to run and how often and makes figures of the times; a [`Device`]
//! runs it. Every figure is the median of regions that are long against the clock's
//! resolution (half a microsecond), timed after the device has become steady; its spread is
//! that of the regions.
//!
//! - Bandwidth: kernels that copy, read or write buffers many times the size of the level-2
//!   cache, in units of 16 bytes a thread.
//! - Products: square ones under load for seconds, since boards that are short of power slow
//!   down after a while, on numbers that are not zero, since zeros draw less power.
//! - Launches: a chain of empty kernels by the device's clock; one and the wait for its end by
//!   the host's.

mod steady;

use habitat_base::units::{FlopsPerSecond, Micros};
use habitat_step::catalog::calibration::{
    CalibratedDevice, Calibration, FORMAT, MeasuredBandwidth, MeasuredLaunch, MeasuredProduct, Spread, UnderLoad,
    VERSION,
};
use habitat_step::catalog::{GpuSpec, PeakRates};

use steady::Regions;

/// Element types of products, in the order they are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductType {
    /// FP32 on the vector units.
    Fp32,
    /// FP32 numbers multiplied by tensor cores.
    Tf32,
    /// BF16, added up in FP32.
    Bf16,
    /// FP16, added up in FP32.
    Fp16,
    /// FP8 with 4 bits of exponent and 3 of mantissa, added up in FP32, results in BF16.
    Fp8,
}

impl ProductType {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Tf32, Self::Bf16, Self::Fp16, Self::Fp8];

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes of an element of each operand, and of the result.
    pub const fn bytes(self) -> [u64; 3] {
        match self {
            Self::Fp32 | Self::Tf32 => [4, 4, 4],
            Self::Bf16 | Self::Fp16 => [2, 2, 2],
            Self::Fp8 => [1, 1, 2],
        }
    }

    /// The compute capability that has matrix units for it: Ampere's for TF32 and BF16,
    /// Volta's for FP16, Ada's for FP8.
    pub const fn since(self) -> (u8, u8) {
        match self {
            Self::Fp32 => (0, 0),
            Self::Fp16 => (7, 0),
            Self::Tf32 | Self::Bf16 => (8, 0),
            Self::Fp8 => (8, 9),
        }
    }

    /// The data sheet's rate.
    pub const fn peak(self, rates: &PeakRates) -> Option<FlopsPerSecond> {
        match self {
            Self::Fp32 => Some(rates.fp32),
            Self::Tf32 => rates.tf32_tensor,
            Self::Bf16 => rates.bf16_tensor,
            Self::Fp16 => rates.fp16_tensor,
            Self::Fp8 => rates.fp8_tensor,
        }
    }
}

/// Something to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// An empty kernel.
    Empty,
    /// A copy of so many bytes from one buffer to another.
    Copy(u64),
    /// A pass over a buffer of so many bytes.
    Read(u64),
    /// The same, writing.
    Write(u64),
    /// A product of square matrices.
    Product {
        /// Their element type.
        dtype: ProductType,
        /// Rows and columns.
        size: u64,
    },
}

/// Why something was not measured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// This one cannot be had here; others can.
    #[error("{0}")]
    LeftOut(String),
    /// Nothing more can be had of the device.
    #[error("{0}")]
    Failed(String),
}

/// A GPU that can be measured.
pub trait Device {
    /// What its driver says of it.
    fn facts(&self) -> &CalibratedDevice;

    /// Compute capability.
    fn capability(&self) -> (u8, u8);

    /// Bytes of memory that are free.
    fn free_bytes(&self) -> u64;

    /// What computes products, with its version; why nothing does.
    ///
    /// # Errors
    /// A sentence that names the library and the remedy.
    fn products(&self) -> Result<String, String>;

    /// Gets ready to run `work`: what [`Device::time`] runs from now on.
    ///
    /// # Errors
    /// [`Problem`], as everything here.
    fn prepare(&mut self, work: Work) -> Result<(), Problem>;

    /// Runs what was prepared so many times in a row, and says how long all of it took by the
    /// device's clock. With `watch` what the board did meanwhile is asked, where it can be.
    ///
    /// # Errors
    /// [`Problem`].
    fn time(&mut self, runs: u64, watch: bool) -> Result<(Micros, Option<UnderLoad>), Problem>;

    /// Launches one empty kernel, waits for its end, and says how long that took by the host's
    /// clock.
    ///
    /// # Errors
    /// [`Problem`].
    fn launch_and_wait(&mut self) -> Result<Micros, Problem>;
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was measured.
    pub calibration: Calibration,
    /// Why it ended early, where it did: then the calibration is not complete.
    pub failed: Option<String>,
}

/// Largest buffer that bandwidth is measured with.
const LARGEST_BUFFER: u64 = 1 << 30;
/// Smallest one worth measuring with: several times any level-2 cache.
const SMALLEST_BUFFER: u64 = 256 << 20;
/// Largest product, and the smallest that still fills every GPU of the catalog.
const PRODUCT_SIZES: [u64; 3] = [8192, 4096, 2048];
/// Launches of one chain.
const CHAIN: u64 = 1000;
/// A figure above this multiple of the data sheet's is not believed (clocks above the nominal
/// one add up to a tenth).
const IMPLAUSIBLE: f64 = 1.15;
/// From this width of its 10th to 90th percentile on, over the median, a figure is called
/// unsteady.
const UNSTEADY: f64 = 0.1;

/// Measures everything. `gpu` is the catalog's entry; `date` (UTC) and `program` go into the
/// result; `progress` hears what is measured next.
pub fn calibrate(
    device: &mut dyn Device,
    gpu: &GpuSpec,
    date: &str,
    program: &str,
    progress: &mut dyn FnMut(&str),
) -> Outcome {
    let calibration = Calibration {
        format: FORMAT.to_owned(),
        version: VERSION,
        gpu: gpu.slug.clone(),
        date: date.to_owned(),
        program: program.to_owned(),
        left_out: Vec::new(),
        notes: Vec::new(),
        device: device.facts().clone(),
        bandwidth: None,
        launch: None,
        product: Vec::new(),
    };
    let mut session = Session { device, gpu, calibration, progress };
    let failed = session.all().err();
    Outcome { calibration: session.calibration, failed }
}

struct Session<'a> {
    device: &'a mut dyn Device,
    gpu: &'a GpuSpec,
    calibration: Calibration,
    progress: &'a mut dyn FnMut(&str),
}

impl Session<'_> {
    /// Only what ends everything is an error.
    fn all(&mut self) -> Result<(), String> {
        self.launches()?;
        self.bandwidths()?;
        self.products()
    }

    /// A figure, or a line about why there is none.
    fn keep<T>(&mut self, what: &str, figure: Result<T, Problem>) -> Result<Option<T>, String> {
        match figure {
            Ok(figure) => Ok(Some(figure)),
            Err(Problem::LeftOut(why)) => {
                self.calibration.left_out.push(format!("{what}: {why}"));
                Ok(None)
            }
            Err(Problem::Failed(why)) => Err(format!("{what}: {why}")),
        }
    }

    /// What makes a figure doubtful; an error where it cannot be.
    fn judge(&mut self, what: &str, figure: Spread, nominal: Option<f64>, unit: &str) -> Result<Spread, Problem> {
        if let Some(nominal) = nominal.filter(|nominal| figure.median > IMPLAUSIBLE * nominal) {
            return Err(Problem::LeftOut(format!(
                "{:.1} {unit} measured, more than {IMPLAUSIBLE} times the {nominal:.1} of the catalog for {}: not believed (is it another board? --gpu names it)",
                figure.median, self.gpu.slug
            )));
        }
        let width = (figure.high - figure.low) / figure.median;
        if width > UNSTEADY {
            self.calibration.notes.push(format!(
                "{what} varied by {:.0} % between regions: something else ran, or the clocks did not hold",
                width * 100.0
            ));
        }
        Ok(figure)
    }

    fn launches(&mut self) -> Result<(), String> {
        (self.progress)("launches");
        let chain = self.chain();
        let chain_us = self.keep("launches in a chain", chain)?;
        let wait = Regions::LAUNCHES.collect(|| self.device.launch_and_wait().map(|time| (time.get(), time.get())));
        let wait_us = self.keep("launch with wait", wait)?;
        self.calibration.launch = Some(MeasuredLaunch { chain_us, wait_us });
        Ok(())
    }

    fn chain(&mut self) -> Result<Spread, Problem> {
        self.device.prepare(Work::Empty)?;
        Regions::LAUNCHES.collect(|| {
            let (time, _) = self.device.time(CHAIN, false)?;
            Ok((time.get(), time.get() / CHAIN as f64))
        })
    }

    fn bandwidths(&mut self) -> Result<(), String> {
        // Two buffers, and room left for others.
        let fits = (self.device.free_bytes() / 4).min(LARGEST_BUFFER) & !0xff_ffff;
        if fits < SMALLEST_BUFFER {
            self.calibration.left_out.push(format!(
                "bandwidth: {} MiB of device memory are free; two buffers of {} MiB and as much again are needed",
                self.device.free_bytes() >> 20,
                SMALLEST_BUFFER >> 20
            ));
            return Ok(());
        }
        let mut found = MeasuredBandwidth { buffer_bytes: fits, ..MeasuredBandwidth::default() };
        for (name, work, bytes) in
            [("copy", Work::Copy(fits), 2 * fits), ("read", Work::Read(fits), fits), ("write", Work::Write(fits), fits)]
        {
            (self.progress)(&format!("bandwidth, {name}"));
            let what = format!("bandwidth, {name}");
            let figure = self.bandwidth(&what, work, bytes);
            let figure = self.keep(&what, figure)?;
            match work {
                Work::Copy(_) => found.copy_gbps = figure,
                Work::Read(_) => found.read_gbps = figure,
                _ => found.write_gbps = figure,
            }
        }
        self.calibration.bandwidth = Some(found);
        Ok(())
    }

    fn bandwidth(&mut self, what: &str, work: Work, bytes: u64) -> Result<Spread, Problem> {
        self.device.prepare(work)?;
        let figure = Regions::BANDWIDTH.rate(bytes as f64 * 1e-3, |runs| Ok(self.device.time(runs, false)?.0))?;
        self.judge(what, figure, Some(self.gpu.memory_bandwidth.get() / 1e9), "GB/s")
    }

    fn products(&mut self) -> Result<(), String> {
        let software = match self.device.products() {
            Ok(software) => software,
            Err(why) => {
                self.calibration.left_out.push(format!("matrix products: {why}"));
                return Ok(());
            }
        };
        for dtype in ProductType::ALL {
            (self.progress)(&format!("matrix products, {}", dtype.name()));
            let product = self.product(dtype, &software);
            let product = self.keep(dtype.name(), product)?;
            self.calibration.product.extend(product);
        }
        Ok(())
    }

    fn product(&mut self, dtype: ProductType, software: &str) -> Result<MeasuredProduct, Problem> {
        let ((major, minor), since) = (self.device.capability(), dtype.since());
        if (major, minor) < since {
            return Err(Problem::LeftOut(format!(
                "compute capability {major}.{minor} has no matrix units for it ({}.{} and later have)",
                since.0, since.1
            )));
        }
        let bytes = |size: u64| size * size * dtype.bytes().iter().sum::<u64>() + (64 << 20);
        let size = PRODUCT_SIZES.into_iter().find(|&size| 2 * bytes(size) < self.device.free_bytes());
        let size = size.ok_or_else(|| {
            Problem::LeftOut(format!("{} MiB of device memory are free, too few", self.device.free_bytes() >> 20))
        })?;
        self.device.prepare(Work::Product { dtype, size })?;
        let flops = 2.0 * (size as f64).powi(3);
        let mut load = None;
        let figure = Regions::PRODUCTS.rate_watched(flops * 1e-6, |runs, watch| {
            let (time, seen) = self.device.time(runs, watch)?;
            load = seen.or(load.take());
            Ok(time)
        })?;
        let nominal = dtype.peak(&self.gpu.peak).map(|rate| rate.get() / 1e12);
        let figure = self.judge(dtype.name(), figure, nominal, "TFLOP/s")?;
        Ok(MeasuredProduct {
            dtype: dtype.name().to_owned(),
            shape: format!("{size}x{size}x{size}"),
            software: software.to_owned(),
            tflops: figure,
            under_load: load,
        })
    }
}

#[cfg(test)]
mod tests;
