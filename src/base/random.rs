//! Seeded random numbers that are equal on every machine and in every release.
//!
//! Implemented here because shipped weights depend on the numbers and no crate guarantees them across releases.
//! `SplitMix64` (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014) is sufficient for
//! initial weights, shuffling and sampling.

/// Pseudorandom number generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates the generator of a seed for one of several uses, such as an epoch.
    pub fn of(seed: u64, stream: u64) -> Self {
        let mut first = Self(seed);
        Self(first.bits() ^ Self(stream.wrapping_add(1)).bits())
    }

    /// Returns 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns an integer below `end`, which must not be 0.
    pub fn below(&mut self, end: usize) -> usize {
        // Upper half of the product: no division, and uniform enough for any count here.
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
    }

    /// Shuffles `items` (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First outputs of the reference implementation, <https://prng.di.unimi.it/splitmix64.c>, seed 1234567.
    #[test]
    fn agrees_with_the_reference() {
        let mut random = Random::new(1_234_567);
        assert_eq!([random.bits(), random.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
    }

    #[test]
    fn shuffling_keeps_every_item() {
        let mut items: Vec<usize> = (0..1000).collect();
        Random::of(7, 3).shuffle(&mut items);
        assert_ne!(items[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        items.sort_unstable();
        assert!(items.iter().enumerate().all(|(index, &item)| index == item));
        let mut random = Random::new(1);
        let mean = (0..10_000).map(|_| random.unit()).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }
}
