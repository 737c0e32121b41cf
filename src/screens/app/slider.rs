//! Sliders for limits and amounts, with ladders of round numbers.

/// The sliders of the plan screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Knob {
    /// Amount of work.
    #[default]
    Work,
    /// Deadline.
    Deadline,
    /// Budget.
    Budget,
    /// Maximum number of GPUs.
    Gpus,
}

impl Knob {
    /// All sliders, from top to bottom.
    pub const ALL: [Self; 4] = [Self::Work, Self::Deadline, Self::Budget, Self::Gpus];

    /// The word on screen.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Deadline => "deadline",
            Self::Budget => "budget",
            Self::Gpus => "GPUs",
        }
    }
}

/// Values for a deadline, hours.
const HOURS: &[f64] = &[
    0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 30.0, 36.0, 42.0, 48.0, 60.0, 72.0,
    84.0, 96.0, 120.0, 144.0, 168.0, 192.0, 240.0, 288.0, 336.0, 420.0, 504.0, 600.0, 720.0, 1000.0, 1440.0, 2160.0,
];

/// Round numbers within a power of ten.
const ROUND: [f64; 9] = [1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0];

/// Values of a slider.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ladder {
    /// Hours of a deadline.
    Hours,
    /// Numbers of GPUs, each twice the one before.
    Gpus,
    /// Round numbers between two powers of ten.
    Powers {
        /// Exponent of the smallest value.
        from: i32,
        /// Exponent of the largest value.
        to: i32,
    },
}

/// Rungs of a large step.
const FAR: usize = 5;

impl Ladder {
    /// Its values, ascending.
    pub(crate) fn rungs(self) -> Vec<f64> {
        match self {
            Self::Hours => HOURS.to_vec(),
            Self::Gpus => (0..=10).map(|doublings| f64::from(1 << doublings)).collect(),
            Self::Powers { from, to } => {
                let mut rungs: Vec<f64> = (from..to)
                    .flat_map(|exponent| ROUND.iter().map(move |round| round * 10f64.powi(exponent)))
                    .collect();
                rungs.push(10f64.powi(to));
                rungs
            }
        }
    }

    /// The next value up or down from `value`; `None` above the top.
    pub fn step(self, value: f64, up: bool, far: bool) -> Option<f64> {
        let rungs = self.rungs();
        let steps = if far { FAR } else { 1 };
        if up {
            let above = rungs.iter().position(|rung| *rung > value * (1.0 + 1e-9))?;
            rungs.get(above + steps - 1).copied().or_else(|| rungs.last().copied().filter(|_| far))
        } else {
            let below = rungs.iter().rposition(|rung| *rung < value * (1.0 - 1e-9)).unwrap_or(0);
            rungs.get(below.saturating_sub(steps - 1)).copied()
        }
    }

    /// The smallest rung at or above `value`; the top if there is none.
    pub(crate) fn at_or_above(self, value: f64) -> f64 {
        let rungs = self.rungs();
        rungs.iter().find(|rung| **rung >= value).or(rungs.last()).copied().unwrap_or(value)
    }

    /// Position of `value` from 0 to 1, on a logarithmic scale.
    pub fn position(self, value: f64) -> f64 {
        let rungs = self.rungs();
        let (low, high) = (rungs[0].ln(), rungs[rungs.len() - 1].ln());
        ((value.max(f64::MIN_POSITIVE).ln() - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The rung closest to a position from 0 to 1.
    pub(crate) fn at_position(self, position: f64) -> f64 {
        let rungs = self.rungs();
        let near = |rung: &f64| (self.position(*rung) - position).abs();
        rungs.iter().copied().min_by(|a, b| near(a).total_cmp(&near(b))).unwrap_or(1.0)
    }
}

/// Parses a typed number: `48`, `2.5k`, `1,000,000`; with `hours`, also `3d` and `90m`.
pub fn parse(text: &str, hours: bool) -> Option<f64> {
    let text = text.trim().trim_start_matches('$').replace([',', '_', ' '], "").to_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match (&text[digits.len()..], hours) {
        ("", _) | ("h" | "hours", true) | ("usd", false) => 1.0,
        ("d" | "days", true) => 24.0,
        ("w" | "weeks", true) => 168.0,
        ("m" | "min", true) => 1.0 / 60.0,
        ("k", _) => 1e3,
        ("m", false) => 1e6,
        ("g" | "b", false) => 1e9,
        ("t", false) => 1e12,
        _ => return None,
    };
    let value = digits.parse::<f64>().ok()? * factor;
    (value.is_finite() && value > 0.0).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_land_on_round_numbers() {
        let money = Ladder::Powers { from: 0, to: 6 };
        assert_eq!(money.step(100.0, true, false), Some(120.0));
        assert_eq!(money.step(100.0, false, false), Some(70.0));
        assert_eq!(money.step(37.0, true, false), Some(40.0));
        assert_eq!(money.step(37.0, false, false), Some(30.0));
        assert_eq!(money.step(1e6, true, false), None);
        assert_eq!(money.step(7e5, true, true), Some(1e6));
        assert_eq!(money.step(1.0, false, true), Some(1.0));
        assert_eq!(Ladder::Hours.step(48.0, true, false), Some(60.0));
    }

    #[test]
    fn positions_run_from_end_to_end() {
        let ladder = Ladder::Hours;
        assert_eq!(ladder.position(0.25), 0.0);
        assert_eq!(ladder.position(2160.0), 1.0);
        for rung in ladder.rungs() {
            assert_eq!(ladder.at_position(ladder.position(rung)), rung);
        }
    }

    #[test]
    fn typed_values() {
        assert_eq!(parse("2d", true), Some(48.0));
        assert_eq!(parse("$1,500", false), Some(1500.0));
        assert_eq!(parse("2.5k", false), Some(2500.0));
        for bad in ["", "abc", "-3", "0", "1e999", "2d3"] {
            assert_eq!(parse(bad, true), None, "{bad}");
        }
    }
}
