//! Wave scaling (Habitat, USENIX ATC '21, section 3.3).
//!
//! A kernel of B thread blocks runs in ⌈B/W⌉ waves, with W the blocks that the GPU runs at a time. From origin `o` to
//! destination `d`, with D the bandwidth reached and C the clock:
//!
//! - equation 1: `T_d = ⌈B/W_d⌉ · (D_o/D_d · W_d/W_o)^γ · (C_o/C_d)^(1−γ) · ⌈B/W_o⌉⁻¹ · T_o`
//! - equation 2, many waves: `T_d = (D_o/D_d)^γ · (W_o/W_d)^(1−γ) · (C_o/C_d)^(1−γ) · T_o`
//! - equation 3, with x the arithmetic intensity and R = P/D the destination's ridge: `γ = 1 − 0.5·x/R` for x < R,
//!   `γ = 0.5·R/x` above; 1 if x is unknown.

use serde::{Deserialize, Serialize};

use habitat_base::units::Micros;
use habitat_step::catalog::occupancy::{BlockNeeds, blocks_per_sm};
use habitat_step::profile::Kernel;

use super::rate::Rates;

/// Equation that scales a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum WaveForm {
    /// Equation 1: whole waves on both GPUs.
    #[serde(rename = "whole")]
    WholeWaves,
    /// Equation 2: the limit of many waves. The default, as in Habitat: on the operator tables of
    /// `habitat-lab evaluate ops` it is as good as equation 1 for memory-bound operations and far better for matrix
    /// products.
    #[default]
    #[serde(rename = "many")]
    ManyWaves,
}

/// Source of γ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GammaSource {
    /// Equation 3 on hardware counters.
    Counters,
    /// Equation 3 on an intensity estimated from the operator and its shapes.
    Shapes,
    /// Unknown: 1, memory-bound.
    Unknown,
}

/// Kernel scaled to another GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaled {
    /// Time of one launch on the destination.
    pub time: Micros,
    /// Whether the launch cannot run unchanged there and was assumed to have one block per multiprocessor.
    pub refitted: bool,
}

/// γ of equation 3 from an arithmetic intensity (operations per byte) and the destination's ridge in the same unit.
pub fn gamma(intensity: f64, ridge: f64) -> f64 {
    if !(intensity.is_finite() && ridge.is_finite() && ridge > 0.0) {
        return 1.0;
    }
    if intensity < ridge { 1.0 - 0.5 * intensity / ridge } else { 0.5 * ridge / intensity }
}

/// γ of a kernel: from its counters if recorded, otherwise from the operation's estimated intensity, otherwise 1.
pub(crate) fn choose_gamma(kernel: &Kernel, estimated_intensity: Option<f64>, ridge: f64) -> (f64, GammaSource) {
    if let (Some(flops), Some(bytes)) = (kernel.flops, kernel.dram_bytes)
        && bytes.get() > 0.0
    {
        return (gamma(flops.get() / bytes.get(), ridge), GammaSource::Counters);
    }
    match estimated_intensity {
        Some(intensity) => (gamma(intensity, ridge), GammaSource::Shapes),
        None => (1.0, GammaSource::Unknown),
    }
}

/// Scales one launch from `origin` to `destination`; `None` if the launch or the limits of a GPU are unknown.
pub fn scale_kernel(
    kernel: &Kernel,
    origin: &Rates<'_>,
    destination: &Rates<'_>,
    gamma: f64,
    form: WaveForm,
) -> Option<Scaled> {
    let bandwidths = origin.bandwidth.value / destination.bandwidth.value;
    let (origin, destination) = (origin.gpu, destination.gpu);
    let needs = BlockNeeds {
        threads: kernel.threads_per_block()?,
        registers_per_thread: kernel.registers_per_thread.map_or(0, u64::from),
        shared_memory_bytes: kernel.shared_memory_bytes().unwrap_or(0),
    };
    let blocks = kernel.blocks().filter(|blocks| *blocks > 0)? as f64;
    let (origin_blocks, destination_blocks) = (blocks_per_sm(origin, needs)?, blocks_per_sm(destination, needs)?);
    // A kernel that ran on the origin had at least one block per multiprocessor, whatever the limits.
    let wave = |gpu: &habitat_step::catalog::GpuSpec, per_sm: u64| f64::from(gpu.sm_count) * per_sm.max(1) as f64;
    let (wave_o, wave_d) = (wave(origin, origin_blocks), wave(destination, destination_blocks));
    let clocks = origin.boost_clock / destination.boost_clock;
    let factor = match form {
        WaveForm::WholeWaves => {
            (blocks / wave_d).ceil() * (bandwidths * wave_d / wave_o).powf(gamma) * clocks.powf(1.0 - gamma)
                / (blocks / wave_o).ceil()
        }
        WaveForm::ManyWaves => bandwidths.powf(gamma) * (wave_o / wave_d).powf(1.0 - gamma) * clocks.powf(1.0 - gamma),
    };
    Some(Scaled { time: kernel.duration * factor, refitted: destination_blocks == 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::catalog::{GpuSpec, Layer};

    fn spec(slug: &str) -> GpuSpec {
        let path = format!("{}/../../catalog/{slug}.toml", env!("CARGO_MANIFEST_DIR"));
        GpuSpec::parse(&std::fs::read_to_string(path).unwrap(), Layer::Shipped).unwrap()
    }

    fn kernel(blocks: u32) -> Kernel {
        Kernel {
            name: "k".into(),
            count: 1,
            duration: Micros::new(100.0).unwrap(),
            grid: Some([blocks, 1, 1]),
            block: Some([256, 1, 1]),
            registers_per_thread: Some(32),
            static_shared_memory_bytes: None,
            dynamic_shared_memory_bytes: None,
            flops: None,
            dram_bytes: None,
        }
    }

    fn scaled(kernel: &Kernel, origin: &GpuSpec, destination: &GpuSpec, gamma: f64, form: WaveForm) -> Option<Scaled> {
        scale_kernel(kernel, &Rates::new(origin), &Rates::new(destination), gamma, form)
    }

    #[test]
    fn gamma_by_equation_3() {
        assert_eq!(gamma(0.0, 20.0), 1.0);
        assert_eq!(gamma(10.0, 20.0), 0.75);
        assert_eq!(gamma(20.0, 20.0), 0.5);
        assert_eq!(gamma(40.0, 20.0), 0.25);
        assert_eq!(gamma(f64::INFINITY, 20.0), 1.0);
    }

    /// V100 → T4, 256 threads of 32 registers: 8 blocks on each of 80, 4 on each of 40 multiprocessors; W = 640 and
    /// 160; D = 739 and 239 GB/s; C = 1530 and 1590 MHz.
    #[test]
    fn equations_1_and_2_by_hand() {
        let (v100, t4) = (spec("v100-sxm2-16gb"), spec("t4"));
        let scale = |blocks, gamma, form| scaled(&kernel(blocks), &v100, &t4, gamma, form).unwrap().time.get();
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * b, "{a} {b}");
        let (d, c): (f64, f64) = (739.0 / 239.0, 1530.0 / 1590.0);
        close(scale(1000, 1.0, WaveForm::ManyWaves), 100.0 * d);
        close(scale(1000, 0.0, WaveForm::ManyWaves), 100.0 * 4.0 * c);
        close(scale(1000, 0.5, WaveForm::ManyWaves), 100.0 * (d * 4.0 * c).sqrt());
        // 1000 blocks: 2 waves on the V100, 7 on the T4.
        close(scale(1000, 0.0, WaveForm::WholeWaves), 100.0 * 7.0 * c / 2.0);
        close(scale(1000, 1.0, WaveForm::WholeWaves), 100.0 * 7.0 * (d / 4.0) / 2.0);
    }

    #[test]
    fn a_gpu_onto_itself_changes_nothing() {
        let t4 = spec("t4");
        for form in [WaveForm::WholeWaves, WaveForm::ManyWaves] {
            assert!((scaled(&kernel(123), &t4, &t4, 0.7, form).unwrap().time.get() - 100.0).abs() < 1e-9);
        }
    }

    #[test]
    fn launches_that_do_not_fit_are_marked() {
        let mut hopper = kernel(100);
        hopper.dynamic_shared_memory_bytes = Some(200 * 1024);
        assert!(scaled(&hopper, &spec("h100-sxm5-80gb"), &spec("t4"), 1.0, WaveForm::ManyWaves).unwrap().refitted);
    }

    #[test]
    fn without_launch_or_limits_there_is_no_wave_scaling() {
        let mut bare = kernel(1);
        bare.grid = None;
        bare.block = None;
        assert_eq!(scaled(&bare, &spec("t4"), &spec("a10"), 1.0, WaveForm::ManyWaves), None);
        assert_eq!(scaled(&kernel(1), &spec("t4"), &spec("mi300x"), 1.0, WaveForm::ManyWaves), None);
    }
}
