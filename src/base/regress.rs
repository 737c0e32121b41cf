//! Regression on few numbers: straight lines, several variables, order statistics.
//!
//! What the regression families of [`predict`](habitat_prediction) have in common. Numbers in,
//! numbers out: a quantity's unit is its caller's business.

pub mod least_squares;
pub mod line;
pub mod non_negative;
pub mod quantile;
pub mod student;

/// Why nothing can be fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RegressError {
    /// Fewer points than unknowns.
    #[error("{found} points, but at least {needed} are needed")]
    TooFew {
        /// Points there are.
        found: usize,
        /// Points there have to be.
        needed: usize,
    },
    /// Points that do not tell the unknowns apart (all at one place, say).
    #[error("the points do not differ enough to tell {0} coefficients apart")]
    Degenerate(usize),
    /// A number that is none, or a weight that is not positive.
    #[error("point {0} has a value that is not finite, or a weight that is not positive")]
    NotFinite(usize),
}
