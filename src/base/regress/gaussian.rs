//! Gaussian process regression from few points: a constant and a smooth part.
//!
//! Implemented here because it is a page of code, and crates for it depend on a linear algebra library. Rasmussen and
//! Williams, "Gaussian Processes for Machine Learning", 2006, algorithm 2.1. The covariance of two points at distance d
//! is board + local · exp(−d²/2); every value has independent noise. The prior mean is 0.

/// Prior variances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prior {
    /// Variance of the part common to all points.
    pub board: f64,
    /// Variance of the part common to nearby points.
    pub local: f64,
    /// Independent variance of each value.
    pub noise: f64,
}

impl Prior {
    /// Total prior variance of a value.
    pub const fn total(&self) -> f64 {
        self.board + self.local + self.noise
    }

    /// Prior covariance of two points, without noise.
    fn covariance(&self, a: &[f64], b: &[f64]) -> f64 {
        let squared: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
        self.board + self.local * (-0.5 * squared).exp()
    }
}

/// Gaussian process with its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    prior: Prior,
    points: Vec<Vec<f64>>,
    /// L of K + noise · I = L Lᵀ, row by row.
    factor: Vec<Vec<f64>>,
    /// (K + noise · I)⁻¹ y.
    weights: Vec<f64>,
}

impl Process {
    /// Fits values at points. The second number of a value is its shift, in standard deviations of the value, under a
    /// disturbance common to all values. Coordinates are in units of the correlation length of the smooth part.
    pub fn new(prior: Prior, points: Vec<Vec<f64>>, values: &[(f64, f64)]) -> Self {
        let mut process = Self { prior, points: Vec::new(), factor: Vec::new(), weights: Vec::new() };
        for (point, (_, common)) in points.into_iter().zip(values) {
            let mut shared = process.covariances(&point);
            shared.iter_mut().zip(values).for_each(|(shared, (_, other))| *shared += common * other);
            let mut row = process.solve_lower(&shared);
            let left = prior.covariance(&point, &point) + prior.noise + common * common
                - row.iter().map(|x| x * x).sum::<f64>();
            // At least a millionth of the prior variance: points may coincide and the noise may be small.
            row.push(left.max(1e-6 * prior.total()).max(f64::MIN_POSITIVE).sqrt());
            process.factor.push(row);
            process.points.push(point);
        }
        process.weights =
            process.solve_upper(process.solve_lower(&values.iter().map(|(value, _)| *value).collect::<Vec<_>>()));
        process
    }

    /// Computes (K + noise · I)⁻¹ of other values at the same points, for [`Self::at_with`].
    pub fn weights_of(&self, values: &[f64]) -> Vec<f64> {
        self.solve_upper(self.solve_lower(values))
    }

    /// Posterior means at a point for several sets of values (from [`Self::weights_of`]), and their common noise-free
    /// variance.
    pub fn at_with(&self, point: &[f64], weights: &[Vec<f64>]) -> (Vec<f64>, f64) {
        let shared = self.covariances(point);
        let means = weights.iter().map(|weights| shared.iter().zip(weights).map(|(a, b)| a * b).sum()).collect();
        (means, self.variance(point, &shared))
    }

    /// Prior variances.
    pub const fn prior(&self) -> Prior {
        self.prior
    }

    /// Posterior mean and noise-free variance.
    pub fn at(&self, point: &[f64]) -> (f64, f64) {
        let shared = self.covariances(point);
        let mean = shared.iter().zip(&self.weights).map(|(a, b)| a * b).sum();
        (mean, self.variance(point, &shared))
    }

    /// Posterior variance at a point, without noise, from its prior covariances with the data.
    fn variance(&self, point: &[f64], shared: &[f64]) -> f64 {
        let known: f64 = self.solve_lower(shared).iter().map(|x| x * x).sum();
        (self.prior.covariance(point, point) - known).max(0.0)
    }

    /// Posterior covariance of two points, without noise.
    pub fn covariance(&self, a: &[f64], b: &[f64]) -> f64 {
        let [left, right] = [a, b].map(|point| self.solve_lower(&self.covariances(point)));
        let known: f64 = left.iter().zip(&right).map(|(a, b)| a * b).sum();
        let rest = self.prior.covariance(a, b) - known;
        if a == b { rest.max(0.0) } else { rest }
    }

    fn covariances(&self, point: &[f64]) -> Vec<f64> {
        self.points.iter().map(|known| self.prior.covariance(known, point)).collect()
    }

    /// Solves L x = `right`.
    fn solve_lower(&self, right: &[f64]) -> Vec<f64> {
        let mut found: Vec<f64> = Vec::with_capacity(right.len());
        for (row, right) in self.factor.iter().zip(right) {
            let Some((diagonal, before)) = row.split_last() else { continue };
            let known: f64 = before.iter().zip(&found).map(|(a, b)| a * b).sum();
            found.push((right - known) / diagonal);
        }
        found
    }

    /// Solves Lᵀ x = `right`.
    fn solve_upper(&self, mut right: Vec<f64>) -> Vec<f64> {
        for index in (0..right.len()).rev() {
            let Some((diagonal, before)) = self.factor.get(index).and_then(|row| row.split_last()) else { continue };
            let value = right[index] / diagonal;
            right[index] = value;
            for (rest, factor) in right.iter_mut().zip(before) {
                *rest -= factor * value;
            }
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIOR: Prior = Prior { board: 3.0, local: 1.0, noise: 1.0 };

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// At its own point a value counts by its share of the variance, 4 of 5; far from it 3 of 5.
    #[test]
    fn one_point_is_drawn_to_the_prior() {
        let process = Process::new(PRIOR, vec![vec![0.0]], &[(1.0, 0.0)]);
        let (mean, variance) = process.at(&[0.0]);
        assert!(near(mean, 0.8) && near(variance, 4.0 - 16.0 / 5.0));
        let (mean, variance) = process.at(&[50.0]);
        assert!(near(mean, 0.6) && near(variance, 4.0 - 9.0 / 5.0));
    }

    /// n equal values at one point: 4 n / (4 n + 1).
    #[test]
    fn equal_points_count_as_their_mean() {
        for count in [2, 5] {
            let process = Process::new(PRIOR, vec![vec![1.0, 2.0]; count], &vec![(0.5, 0.0); count]);
            let n = count as f64;
            let (mean, variance) = process.at(&[1.0, 2.0]);
            assert!(near(mean, 0.5 * 4.0 * n / (4.0 * n + 1.0)), "{mean}");
            assert!(near(variance, 4.0 / (4.0 * n + 1.0)), "{variance}");
        }
    }

    #[test]
    fn without_points_or_without_a_common_part_it_is_the_prior() {
        let none = Process::new(PRIOR, Vec::new(), &[]);
        assert_eq!((none.at(&[7.0]), none.points.len()), ((0.0, 4.0), 0));
        let local = Process::new(Prior { board: 0.0, ..PRIOR }, vec![vec![0.0]], &[(1.0, 0.0)]);
        let (mean, variance) = local.at(&[40.0]);
        assert!(near(mean, 0.0) && near(variance, 1.0));
    }

    /// Compared with Cramer's rule: K + noise = [[5, k], [k, 5]].
    #[test]
    fn two_points_by_hand() {
        let k = 3.0 + (-0.5_f64).exp();
        let process = Process::new(PRIOR, vec![vec![0.0], vec![1.0]], &[(1.0, 0.0), (-1.0, 0.0)]);
        let weights = [5.0 + k, -k - 5.0].map(|x| x / (25.0 - k * k));
        assert!(near(process.at(&[0.0]).0, 4.0 * weights[0] + k * weights[1]));
    }

    #[test]
    fn other_values_at_the_same_points() {
        let points = vec![vec![0.0], vec![1.0]];
        let process = Process::new(PRIOR, points.clone(), &[(1.0, 0.0), (-1.0, 0.0)]);
        let fresh = Process::new(PRIOR, points, &[(0.3, 0.0), (2.0, 0.0)]);
        let weights = [process.weights_of(&[1.0, -1.0]), process.weights_of(&[0.3, 2.0])];
        let (means, variance) = process.at_with(&[0.4], &weights);
        assert_eq!((means[0], variance), process.at(&[0.4]));
        assert_eq!((means[1], variance), fresh.at(&[0.4]));
    }

    #[test]
    fn repeated_points_without_noise_do_no_harm() {
        let process = Process::new(Prior { noise: 0.0, ..PRIOR }, vec![vec![0.0]; 3], &[(1.0, 0.0); 3]);
        let (mean, variance) = process.at(&[0.0]);
        assert!((mean - 1.0).abs() < 1e-3 && variance < 1e-3);
    }
}
