//! How often spot machines are lost: what was measured.
//!
//! From the traces of `skypilot-org/spot-traces` at 221da1a ("Can't Be Late", NSDI 2024):
//! `models/lab/steps/spot.py` prints how losses grow with the GPUs of a machine.

/// Losses per hour of a machine with one GPU: 0.31, 0.44, 0.57 and 0.74 of one V100 kept running in four
/// zones of AWS, April 2023, mean 0.51.
pub const PER_HOUR: f64 = 0.5;
/// Most GPUs of a machine that was measured. Larger ones are taken to be lost as often.
pub const MOST_GPUS: u32 = 8;
/// Losses grow as this power of the GPUs of a machine: with 8 they are 2.70 times those with 1, the
/// geometric mean of 1.5 to 3.6 times of K80 and V100 in two zones of AWS, October 2022. The waits
/// after them do not grow (0.93 times).
const BY_GPUS: f64 = 0.48;

/// Losses per hour of a spot machine with so many GPUs, where none was measured.
pub fn per_hour(gpus: u32) -> f64 {
    PER_HOUR * f64::from(gpus.clamp(1, MOST_GPUS)).powf(BY_GPUS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_grow_with_the_gpus_measured_and_no_further() {
        assert!((per_hour(1) - 0.5).abs() < 1e-12 && (per_hour(8) - 0.5 * 2.713).abs() < 1e-3, "{}", per_hour(8));
        assert!(per_hour(2) > per_hour(1) && per_hour(4) < per_hour(8));
        assert!([0, 16].map(per_hour) == [1, 8].map(per_hour));
    }
}
