//! Regression on few numbers: straight lines, several variables, order statistics, Gaussian processes.
//!
//! Shared by the regression methods of `prediction`. Numbers have no units here; callers handle them.

pub mod gaussian;
pub mod least_squares;
pub mod line;
pub mod non_negative;
pub mod quantile;
pub mod student;

/// Reason that a fit failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegressError {
    /// Fewer points than unknowns.
    #[error("{found} points, but at least {needed} are needed")]
    TooFew {
        /// Number of points.
        found: usize,
        /// Minimum number of points.
        needed: usize,
    },
    /// The points do not determine the unknowns (for example, all at one place).
    #[error("the points do not differ enough to determine {0} coefficients")]
    Degenerate(usize),
    /// A value is not finite, or a weight is not positive.
    #[error("point {0} has a value that is not finite, or a weight that is not positive")]
    NotFinite(usize),
}
