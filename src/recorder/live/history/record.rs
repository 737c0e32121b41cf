//! Records as bytes, little-endian, with a check sum at the end.

use super::{Kind, Parts, Step, Stretch};

/// Bytes of a [`Step`].
pub const STEP_BYTES: usize = 40;
/// Bytes of a [`Stretch`].
pub const STRETCH_BYTES: usize = 96;
/// A rank of a process that trains alone.
const ALONE: u16 = u16::MAX;

/// One of the lists of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Steps.
    Steps,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Level {
    /// All lists.
    pub const ALL: [Self; 3] = [Self::Steps, Self::Minutes, Self::Hours];

    /// Name of its files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Steps => "steps",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }

    /// Bytes of a record.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Steps => STEP_BYTES,
            Self::Minutes | Self::Hours => STRETCH_BYTES,
        }
    }
}

/// CRC-16 with polynomial 0x1021 and start 0xffff (CCITT-FALSE): that of zeros is not 0.
fn check(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0xffff, |sum, byte| {
        (0..8)
            .fold(sum ^ (u16::from(*byte) << 8), |sum: u16, _| (sum << 1) ^ if sum & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

/// Bytes of a record under construction.
struct Record(Vec<u8>);

impl Record {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.0.extend_from_slice(&bytes);
    }

    fn floats(&mut self, values: &[f32]) {
        for value in values {
            self.put(value.to_le_bytes());
        }
    }

    /// Fills it up and adds the check sum.
    fn sealed(mut self, length: usize) -> Vec<u8> {
        self.0.resize(length - 2, 0);
        let sum = check(&self.0);
        self.put(sum.to_le_bytes());
        self.0
    }
}

/// Reads a record from its start.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// `None` if the check sum does not fit.
    fn open(bytes: &'a [u8], length: usize) -> Option<Self> {
        let (content, sum) = bytes.get(..length)?.split_last_chunk::<2>()?;
        (check(content) == u16::from_le_bytes(*sum)).then_some(Self(content))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn long(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn word(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn short(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn float(&mut self) -> Option<f32> {
        self.take().map(f32::from_le_bytes)
    }

    fn floats<const N: usize>(&mut self) -> Option<[f32; N]> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.float()?;
        }
        Some(values)
    }
}

impl Step {
    /// The record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut record = Record(Vec::with_capacity(STEP_BYTES));
        record.put(self.step.to_le_bytes());
        record.put(self.at.to_le_bytes());
        record.floats(&[self.total]);
        record.floats(&self.parts.all());
        record.put((self.kind as u16).to_le_bytes());
        record.sealed(STEP_BYTES)
    }

    /// Reads a record; `None` if it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::open(bytes, STEP_BYTES)?;
        let (step, at, total) = (fields.long()?, fields.word()?, fields.float()?);
        let parts = Parts::of(fields.floats()?);
        let number = fields.short()?;
        let kinds = [Kind::Training, Kind::Validation, Kind::Checkpoint, Kind::Other];
        let kind = kinds.into_iter().find(|kind| *kind as u16 == number)?;
        Some(Self { step, at, kind, total, parts })
    }
}

impl Stretch {
    /// The record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut record = Record(Vec::with_capacity(STRETCH_BYTES));
        record.put(self.first.to_le_bytes());
        record.put(self.from.to_le_bytes());
        record.put(self.to.to_le_bytes());
        record.put(self.steps.to_le_bytes());
        record.floats(&self.total);
        record.floats(&self.parts.all());
        for (count, seconds) in self.aside {
            record.put(count.to_le_bytes());
            record.floats(&[seconds]);
        }
        record.floats(&[self.resident, self.peak, self.busy]);
        record.put(self.rank.unwrap_or(ALONE).to_le_bytes());
        record.put(u32::try_from(self.last.saturating_sub(self.first)).unwrap_or(u32::MAX).to_le_bytes());
        record.sealed(STRETCH_BYTES)
    }

    /// Reads a record; `None` if it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields::open(bytes, STRETCH_BYTES)?;
        let (first, from, to, steps) = (fields.long()?, fields.word()?, fields.word()?, fields.word()?);
        let (total, parts) = (fields.floats()?, Parts::of(fields.floats()?));
        let mut aside = [(0, 0.0); 3];
        for one in &mut aside {
            *one = (fields.word()?, fields.float()?);
        }
        let [resident, peak, busy] = fields.floats()?;
        let rank = Some(fields.short()?).filter(|rank| *rank != ALONE);
        let last = first.saturating_add(u64::from(fields.word()?));
        Some(Self { from, to, first, last, steps, rank, total, parts, aside, resident, peak, busy })
    }
}
