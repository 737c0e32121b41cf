//! Converts the single output of a network to a time.

/// Meaning of a network's output.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Head {
    /// Utilisation of the hardware: time = floor + bound / u with u = `upper` · σ(output) · exp(offset), σ the logistic
    /// function. `bound` is the time at full use (a roofline), `floor` the cost of a launch, `offset` specific to a
    /// group of rows (a GPU). The bound keeps predictions plausible on unseen GPUs.
    Bounded {
        /// Largest utilisation; 1 if `bound` is a strict minimum.
        upper: f32,
    },
    /// Time in milliseconds; it may be negative.
    Direct,
}

/// Outputs beyond this change u by less than f32 can represent.
const LARGEST_OUTPUT: f64 = 30.0;

impl Head {
    /// Time in microseconds, and its derivative with respect to `output`.
    pub fn time(self, output: f32, floor_us: f32, bound_us: f32, offset: f32) -> (f64, f64) {
        match self {
            Self::Direct => (f64::from(output) * 1e3, 1e3),
            Self::Bounded { .. } => {
                let (above_floor, falling) = self.above_floor(output, bound_us, offset);
                (f64::from(floor_us) + above_floor, -above_floor * falling)
            }
        }
    }

    /// Time above the floor, bound / u, and σ(−output). The derivative of that time with respect to the
    /// output is −σ(−output) times the time, and with respect to the offset it is minus the time.
    fn above_floor(self, output: f32, bound_us: f32, offset: f32) -> (f64, f64) {
        let upper = if let Self::Bounded { upper } = self { f64::from(upper) } else { 1.0 };
        let unused = (-f64::from(output).clamp(-LARGEST_OUTPUT, LARGEST_OUTPUT)).exp();
        let time = f64::from(bound_us) * (1.0 + unused) / (upper * f64::from(offset).exp());
        (time, unused / (1.0 + unused))
    }

    /// Derivative of the time with respect to the offset, in microseconds.
    pub fn by_offset(self, output: f32, bound_us: f32, offset: f32) -> f64 {
        match self {
            Self::Direct => 0.0,
            Self::Bounded { .. } => -self.above_floor(output, bound_us, offset).0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_derivatives() {
        let head = Head::Bounded { upper: 0.9 };
        let time = |output: f32, offset: f32| head.time(output, 5.0, 100.0, offset).0;
        // σ(0) = ½: 5 + 100 / 0.45.
        assert!((time(0.0, 0.0) - (5.0 + 100.0 / 0.45)).abs() < 1e-4);
        assert!((time(90.0, 0.0) - (5.0 + 100.0 / 0.9)).abs() < 1e-4);
        assert!(time(-1e30, 0.0).is_finite());
        let h = 1e-2_f32;
        for output in [-2.0, 0.0, 1.5] {
            let slope = (time(output + h, 0.3) - time(output - h, 0.3)) / f64::from(2.0 * h);
            assert!((head.time(output, 5.0, 100.0, 0.3).1 / slope - 1.0).abs() < 1e-3);
            let slope = (time(output, 0.3 + h) - time(output, 0.3 - h)) / f64::from(2.0 * h);
            assert!((head.by_offset(output, 100.0, 0.3) / slope - 1.0).abs() < 1e-3);
        }
        assert_eq!(Head::Direct.time(0.25, 5.0, 100.0, 1.0), (250.0, 1e3));
    }
}
