//! Measures what a GPU achieves: bandwidth, matrix products and launches, on its own clock.
//!
//! [`calibrate`] decides what to run and how often, and derives the figures from the times; a [`Device`] runs it. Every
//! figure is the median over regions that are long compared with the clock's resolution (half a microsecond), timed
//! after the device has become steady. Its spread is that of the regions.
//!
//! - Bandwidth: kernels that copy, read or write buffers many times the size of the L2 cache, 16 bytes per thread.
//! - Products: square ones under load for seconds, because boards at their power limit slow down after a while; on
//!   non-zero numbers, because zeros draw less power.
//! - Launches: a chain of empty kernels on the device's clock; one kernel with the wait for its end on the host's
//!   clock.

mod steady;

use habitat_base::units::{FlopsPerSecond, Micros};
use habitat_step::catalog::calibration::{
    CalibratedDevice, Calibration, FORMAT, MeasuredBandwidth, MeasuredLaunch, MeasuredProduct, Spread, UnderLoad,
    VERSION,
};
use habitat_step::catalog::{GpuSpec, PeakRates};

use steady::Regions;

/// Element types of products, in order of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductType {
    /// FP32 on the vector units.
    Fp32,
    /// FP32 operands multiplied by tensor cores.
    Tf32,
    /// BF16 with FP32 accumulation.
    Bf16,
    /// FP16 with FP32 accumulation.
    Fp16,
    /// FP8 with 4 exponent and 3 mantissa bits, FP32 accumulation, results in BF16.
    Fp8,
}

impl ProductType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Tf32, Self::Bf16, Self::Fp16, Self::Fp8];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }

    /// Bytes per element of each operand and of the result.
    pub const fn bytes(self) -> [u64; 3] {
        match self {
            Self::Fp32 | Self::Tf32 => [4, 4, 4],
            Self::Bf16 | Self::Fp16 => [2, 2, 2],
            Self::Fp8 => [1, 1, 2],
        }
    }

    /// First compute capability with tensor cores for it: Ampere for TF32 and BF16, Volta for FP16, Ada for FP8.
    pub const fn since(self) -> (u8, u8) {
        match self {
            Self::Fp32 => (0, 0),
            Self::Fp16 => (7, 0),
            Self::Tf32 | Self::Bf16 => (8, 0),
            Self::Fp8 => (8, 9),
        }
    }

    /// Peak rate of the data sheet.
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

/// Work to run on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// An empty kernel.
    Empty,
    /// Copies this many bytes from one buffer to another.
    Copy(u64),
    /// Reads a buffer of this many bytes.
    Read(u64),
    /// Writes a buffer of this many bytes.
    Write(u64),
    /// A product of square matrices.
    Product {
        /// Element type.
        dtype: ProductType,
        /// Rows and columns of each matrix.
        size: u64,
    },
}

/// Reason for a missing measurement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Only this measurement is impossible.
    #[error("{0}")]
    LeftOut(String),
    /// The device is unusable from now on.
    #[error("{0}")]
    Failed(String),
}

/// A GPU to measure.
pub trait Device {
    /// Description from its driver.
    fn facts(&self) -> &CalibratedDevice;

    /// Compute capability.
    fn capability(&self) -> (u8, u8);

    /// Free memory in bytes.
    fn free_bytes(&self) -> u64;

    /// Library that computes products, with its version.
    ///
    /// # Errors
    /// A message that names the missing library and the remedy.
    fn products(&self) -> Result<String, String>;

    /// Prepares `work`, which [`Device::time`] runs from now on.
    ///
    /// # Errors
    /// [`Problem`], as for all methods here.
    fn prepare(&mut self, work: Work) -> Result<(), Problem>;

    /// Runs the prepared work `runs` times in a row; returns the total time on the device's clock. With `watch`, also
    /// queries the state of the board meanwhile, if possible.
    ///
    /// # Errors
    /// [`Problem`].
    fn time(&mut self, runs: u64, watch: bool) -> Result<(Micros, Option<UnderLoad>), Problem>;

    /// Launches one empty kernel and waits for its end; returns the time on the host's clock.
    ///
    /// # Errors
    /// [`Problem`].
    fn launch_and_wait(&mut self) -> Result<Micros, Problem>;
}

/// Result of a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The measurements.
    pub calibration: Calibration,
    /// Reason for an early end, if any; the calibration is then incomplete.
    pub failed: Option<String>,
}

/// Largest buffer for measuring bandwidth, in bytes.
const LARGEST_BUFFER: u64 = 1 << 30;
/// Smallest useful buffer in bytes: several times any L2 cache.
const SMALLEST_BUFFER: u64 = 256 << 20;
/// Sizes of products, from the largest to the smallest that still fills every GPU of the catalog.
const PRODUCT_SIZES: [u64; 3] = [8192, 4096, 2048];
/// Launches per chain.
const CHAIN: u64 = 1000;
/// Multiple of the data sheet's figure above which a measurement is rejected (clocks above the nominal one add up to a
/// tenth).
const IMPLAUSIBLE: f64 = 1.15;
/// Width of the 10th to 90th percentile, relative to the median, above which a figure counts as unsteady.
const UNSTEADY: f64 = 0.1;

/// Measures everything. `gpu` is the catalog entry; `date` (UTC) and `program` go into the result; `progress` receives
/// the name of each measurement before it starts.
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
    /// Only failures that end the calibration are errors.
    fn all(&mut self) -> Result<(), String> {
        self.launches()?;
        self.bandwidths()?;
        self.products()
    }

    /// Returns a figure, or records the reason why it is missing.
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

    /// Adds a note if a figure is unsteady; rejects an implausible one.
    fn judge(&mut self, what: &str, figure: Spread, nominal: Option<f64>, unit: &str) -> Result<Spread, Problem> {
        if let Some(nominal) = nominal.filter(|nominal| figure.median > IMPLAUSIBLE * nominal) {
            return Err(Problem::LeftOut(format!(
                "measured {:.1} {unit}, more than {IMPLAUSIBLE} times the catalog's {nominal:.1} for {}: rejected (another board? --gpu names it)",
                figure.median, self.gpu.slug
            )));
        }
        let width = (figure.high - figure.low) / figure.median;
        if width > UNSTEADY {
            self.calibration.notes.push(format!(
                "{what} varied by {:.0} % between regions: other work ran, or the clocks changed",
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
        // Two buffers, with room left for other programs.
        let fits = (self.device.free_bytes() / 4).min(LARGEST_BUFFER) & !0xff_ffff;
        if fits < SMALLEST_BUFFER {
            self.calibration.left_out.push(format!(
                "bandwidth: only {} MiB of device memory are free, but it needs four times {} MiB",
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
                "compute capability {major}.{minor} has no tensor cores for it ({}.{} and later have)",
                since.0, since.1
            )));
        }
        let bytes = |size: u64| size * size * dtype.bytes().iter().sum::<u64>() + (64 << 20);
        let size = PRODUCT_SIZES.into_iter().find(|&size| 2 * bytes(size) < self.device.free_bytes());
        let size = size.ok_or_else(|| {
            Problem::LeftOut(format!("only {} MiB of device memory are free", self.device.free_bytes() >> 20))
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
