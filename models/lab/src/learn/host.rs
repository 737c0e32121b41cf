//! Host time in the steps that efficiency models are fitted to.
//!
//! Subtracts only the time of a fast host, which most GPUs hide: that of a slow one, on an unknown machine, would
//! explain times that the GPU needs.

/// Host time of an operation, in microseconds, below that of every measured machine.
pub const LAUNCH_US: f64 = 6.0;
/// Sharpness of the transition: if both times are equal, the step takes 1.19 times either. Smooth, so that the fit has
/// derivatives.
const TURN: f64 = 4.0;

/// Step for given device and host times in microseconds, and its derivative by the device time.
pub fn with_host(device_us: f64, host_us: f64) -> (f64, f64) {
    let step = (device_us.powf(TURN) + host_us.powf(TURN)).powf(1.0 / TURN);
    (step, if step > 0.0 { (device_us / step).powf(TURN - 1.0) } else { 1.0 })
}
