//! Straight lines: y = intercept + slope · x.

use super::RegressError;
use super::quantile::median;

/// Point with its weight.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Position.
    pub x: f64,
    /// Observed value.
    pub y: f64,
    /// Weight of its squared error; 1 for ordinary least squares, 1/y² for relative errors.
    pub weight: f64,
}

impl Point {
    /// Point with weight 1.
    pub const fn new(x: f64, y: f64) -> Self {
        Self { x, y, weight: 1.0 }
    }

    /// Point weighted for relative errors: 1/y².
    pub fn relative(x: f64, y: f64) -> Self {
        Self { x, y, weight: 1.0 / (y * y) }
    }
}

/// Maximum number of reweighting rounds.
const MOST_ROUNDS: usize = 30;

/// Line y = intercept + slope · x.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Line {
    /// y at x = 0.
    pub intercept: f64,
    /// Change of y per unit of x.
    pub slope: f64,
}

impl Line {
    /// Value at x.
    pub fn at(&self, x: f64) -> f64 {
        self.slope.mul_add(x, self.intercept)
    }

    /// Fits weighted least squares.
    ///
    /// # Errors
    /// Fewer than two points, or all at one x.
    pub fn fit(points: &[Point]) -> Result<Self, RegressError> {
        check(points, 2)?;
        let centre = Centre::of(points);
        let spread = centre.spread(points);
        // Rounding of the mean alone leaves a residual of this size.
        let rounding = f64::EPSILON * points.iter().map(|point| point.weight * point.x * point.x).sum::<f64>();
        if spread <= 4.0 * rounding {
            return Err(RegressError::Degenerate(2));
        }
        let together: f64 = points.iter().map(|point| point.weight * (point.x - centre.x) * (point.y - centre.y)).sum();
        let slope = together / spread;
        Ok(Self { intercept: slope.mul_add(-centre.x, centre.y), slope })
    }

    /// Fits weighted least squares through the origin: y = slope · x.
    ///
    /// # Errors
    /// No points, or all at x = 0.
    pub fn through_origin(points: &[Point]) -> Result<Self, RegressError> {
        check(points, 1)?;
        let spread: f64 = points.iter().map(|point| point.weight * point.x * point.x).sum();
        if spread == 0.0 {
            return Err(RegressError::Degenerate(1));
        }
        let together: f64 = points.iter().map(|point| point.weight * point.x * point.y).sum();
        Ok(Self { intercept: 0.0, slope: together / spread })
    }

    /// Fits weighted least squares with intercept ≥ 0 and slope ≥ 0, because times and sizes are not negative. The
    /// result is the best valid one of the free line, the line through the origin, a constant, and y = 0.
    ///
    /// # Errors
    /// As [`fit`](Self::fit).
    pub fn non_negative(points: &[Point]) -> Result<Self, RegressError> {
        let free = Self::fit(points)?;
        if free.intercept >= 0.0 && free.slope >= 0.0 {
            return Ok(free);
        }
        // The problem is convex: if the free optimum is invalid, the constrained one lies on an edge.
        let steep = Self::through_origin(points)?;
        let steep = Self { intercept: 0.0, slope: steep.slope.max(0.0) };
        let level = Self { intercept: Centre::of(points).y.max(0.0), slope: 0.0 };
        Ok(if steep.squares(points) < level.squares(points) { steep } else { level })
    }

    /// [`non_negative`](Self::non_negative) that tolerates outliers. Errors (times the root of the point's weight) up
    /// to `turn` count squared, larger ones linearly (Huber 1964), by reweighted least squares (Holland and Welsch
    /// 1977). With [`Point::relative`], errors and `turn` are relative to y.
    ///
    /// # Errors
    /// As [`fit`](Self::fit); and [`RegressError::NotFinite`] if `turn` is not above 0.
    pub fn robust(points: &[Point], turn: f64) -> Result<Self, RegressError> {
        if !turn.is_finite() || turn <= 0.0 {
            return Err(RegressError::NotFinite(0));
        }
        let mut line = Self::non_negative(points)?;
        let mut reweighted = points.to_vec();
        for _ in 0..MOST_ROUNDS {
            for (point, new) in points.iter().zip(&mut reweighted) {
                let error = (point.y - line.at(point.x)).abs() * point.weight.sqrt();
                new.weight = point.weight / (error / turn).max(1.0);
            }
            let next = Self::non_negative(&reweighted)?;
            let settled = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
            let done = settled(next.slope, line.slope) && settled(next.intercept, line.intercept);
            line = next;
            if done {
                break;
            }
        }
        Ok(line)
    }

    /// Fits the median slope of all pairs of points, with the median intercept: up to 29 % of the points may be
    /// outliers (Theil 1950; Sen 1968). Ignores weights.
    ///
    /// # Errors
    /// Fewer than two points, or all at one x.
    pub fn theil_sen(points: &[Point]) -> Result<Self, RegressError> {
        check(points, 2)?;
        let mut slopes: Vec<f64> = Vec::with_capacity(points.len() * (points.len() - 1) / 2);
        for (index, a) in points.iter().enumerate() {
            slopes.extend(points[..index].iter().filter(|b| b.x != a.x).map(|b| (a.y - b.y) / (a.x - b.x)));
        }
        let slope = median(&mut slopes).ok_or(RegressError::Degenerate(2))?;
        let mut intercepts: Vec<f64> = points.iter().map(|point| slope.mul_add(-point.x, point.y)).collect();
        let intercept = median(&mut intercepts).ok_or(RegressError::Degenerate(2))?;
        Ok(Self { intercept, slope })
    }

    /// Weighted sum of squared errors.
    pub fn squares(&self, points: &[Point]) -> f64 {
        points.iter().map(|point| point.weight * (point.y - self.at(point.x)).powi(2)).sum()
    }

    /// Coefficient of determination R²: 1 if every point lies on the line, 0 if the line is as good as the mean,
    /// negative if it is worse. Points of one value have no variance: 1 if the line meets them, otherwise 0.
    pub fn r_squared(&self, points: &[Point]) -> f64 {
        let centre = Centre::of(points);
        let total: f64 = points.iter().map(|point| point.weight * (point.y - centre.y).powi(2)).sum();
        let left = self.squares(points);
        if total > 0.0 { 1.0 - left / total } else { f64::from(u8::from(left == 0.0)) }
    }
}

/// Weighted mean of points.
struct Centre {
    x: f64,
    y: f64,
}

impl Centre {
    fn of(points: &[Point]) -> Self {
        let weight: f64 = points.iter().map(|point| point.weight).sum();
        let mean = |of: fn(&Point) -> f64| points.iter().map(|point| point.weight * of(point)).sum::<f64>() / weight;
        Self { x: mean(|point| point.x), y: mean(|point| point.y) }
    }

    /// Weighted squared distance in x.
    fn spread(&self, points: &[Point]) -> f64 {
        points.iter().map(|point| point.weight * (point.x - self.x).powi(2)).sum()
    }
}

fn check(points: &[Point], needed: usize) -> Result<(), RegressError> {
    if points.len() < needed {
        return Err(RegressError::TooFew { found: points.len(), needed });
    }
    let sound =
        |point: &Point| point.x.is_finite() && point.y.is_finite() && point.weight.is_finite() && point.weight > 0.0;
    points.iter().position(|point| !sound(point)).map_or(Ok(()), |index| Err(RegressError::NotFinite(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(pairs: &[(f64, f64)]) -> Vec<Point> {
        pairs.iter().map(|&(x, y)| Point::new(x, y)).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    /// By hand: means 2 and 11/3, slope 5/2, intercept −4/3.
    #[test]
    fn a_line_worked_out_by_hand() {
        let of = points(&[(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)]);
        let line = Line::fit(&of).unwrap();
        assert!(close(line.slope, 2.5) && close(line.intercept, -4.0 / 3.0), "{line:?}");
        // 1 − (1/6) / (38/3).
        assert!(close(line.r_squared(&of), 1.0 - (1.0 / 6.0) / (38.0 / 3.0)));
    }

    #[test]
    fn a_weight_of_two_is_the_point_twice() {
        let mut once = points(&[(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)]);
        once[1].weight = 2.0;
        let twice = points(&[(1.0, 1.0), (2.0, 4.0), (2.0, 4.0), (3.0, 6.0)]);
        let (a, b) = (Line::fit(&once).unwrap(), Line::fit(&twice).unwrap());
        assert!(close(a.slope, b.slope) && close(a.intercept, b.intercept));
        let (a, b) = (Line::through_origin(&once).unwrap(), Line::through_origin(&twice).unwrap());
        assert!(close(a.slope, b.slope));
    }

    #[test]
    fn coefficients_that_would_be_negative_stop_at_zero() {
        let rising = points(&[(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)]);
        let line = Line::non_negative(&rising).unwrap();
        assert!(line.intercept == 0.0 && close(line.slope, 27.0 / 14.0), "{line:?}");
        let falling = points(&[(1.0, 6.0), (2.0, 4.0), (3.0, 2.0)]);
        assert_eq!(Line::non_negative(&falling).unwrap(), Line { intercept: 4.0, slope: 0.0 });
        let below = points(&[(1.0, -1.0), (2.0, -2.0)]);
        assert_eq!(Line::non_negative(&below).unwrap(), Line { intercept: 0.0, slope: 0.0 });
    }

    #[test]
    fn one_point_far_off_does_not_move_the_median_line() {
        let mut of: Vec<Point> = (0..9).map(|x| Point::new(f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        of[4].y = 1000.0;
        let line = Line::theil_sen(&of).unwrap();
        assert!(close(line.slope, 2.0) && close(line.intercept, 3.0), "{line:?}");
        assert!(!close(Line::fit(&of).unwrap().intercept, 3.0));
    }

    #[test]
    fn one_point_far_off_does_not_bend_the_robust_line() {
        let mut of: Vec<Point> = (1..20).map(|x| Point::relative(f64::from(x), 3.0 + 2.0 * f64::from(x))).collect();
        of[9] = Point::relative(10.0, 400.0);
        let line = Line::robust(&of, 0.02).unwrap();
        assert!((line.slope - 2.0).abs() < 0.02 && (line.intercept - 3.0).abs() < 0.05, "{line:?}");
        // Within `turn` it is the ordinary line.
        let near = points(&[(1.0, 1.0), (2.0, 4.0), (3.0, 6.0)]);
        assert_eq!(Line::robust(&near, 10.0).unwrap(), Line::non_negative(&near).unwrap());
        assert_eq!(Line::robust(&near, 0.0), Err(RegressError::NotFinite(0)));
    }

    #[test]
    fn what_cannot_be_fitted_is_refused() {
        assert_eq!(Line::fit(&points(&[(1.0, 1.0)])), Err(RegressError::TooFew { found: 1, needed: 2 }));
        let same = points(&[(0.1, 1.0), (0.1, 2.0), (0.1, 5.0)]);
        assert_eq!(Line::fit(&same), Err(RegressError::Degenerate(2)));
        assert_eq!(Line::theil_sen(&same), Err(RegressError::Degenerate(2)));
        assert_eq!(Line::fit(&points(&[(1.0, 1.0), (2.0, f64::NAN)])), Err(RegressError::NotFinite(1)));
        assert_eq!(Line::through_origin(&points(&[(0.0, 1.0)])), Err(RegressError::Degenerate(1)));
    }
}
