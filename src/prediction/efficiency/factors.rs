//! Values of the terms on one side, by id.

use std::borrow::Cow;
use std::collections::BTreeMap;

use habitat_base::units::GpuSlug;
use habitat_step::catalog::{GpuSpec, Vendor};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::prior::{Prior, Side};
use super::table::Term;

/// Id of a value: a term of the work, or of the GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Id {
    /// A term of the work.
    Term(Term),
    /// NVIDIA GPUs of a compute capability.
    Generation(u8, u8),
    /// AMD GPUs of an architecture: 1 to 4 for CDNA 1 to 4.
    Cdna(u8),
    /// One GPU of the catalog.
    Board(GpuSlug),
}

/// Begins the names of generations.
const GENERATION: &str = "compute capability ";
/// Begins the names of AMD's architectures.
const CDNA: &str = "CDNA ";

impl Id {
    /// Ids of a GPU.
    pub fn of_gpu(gpu: &GpuSpec) -> impl Iterator<Item = Self> {
        let cdna = || Some(Self::Cdna(gpu.architecture.strip_prefix(CDNA)?.parse().ok()?));
        let generation = match gpu.compute_capability.filter(|_| gpu.vendor == Vendor::Nvidia) {
            Some((major, minor)) => Some(Self::Generation(major, minor)),
            None => cdna(),
        };
        generation.into_iter().chain([Self::Board(gpu.slug.clone())])
    }

    /// The id with this name in the weights. A name that is not in the table can only be a GPU.
    pub fn named(name: &str) -> Option<Self> {
        let generation = || {
            let (major, minor) = name.strip_prefix(GENERATION)?.split_once('.')?;
            Some(Self::Generation(major.parse().ok()?, minor.parse().ok()?))
        };
        let cdna = || Some(Self::Cdna(name.strip_prefix(CDNA)?.parse().ok()?));
        let board = || GpuSlug::new(name).ok().map(Self::Board);
        Term::named(name).map(Self::Term).or_else(generation).or_else(cdna).or_else(board)
    }

    /// Name in the weights.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::Term(term) => term.name().into(),
            Self::Generation(major, minor) => format!("{GENERATION}{major}.{minor}").into(),
            Self::Cdna(number) => format!("{CDNA}{number}").into(),
            Self::Board(slug) => slug.as_str().into(),
        }
    }

    /// Prior of this side's factor; `None` if there is none. Many steps come from a few GPUs, whose terms would absorb
    /// what all GPUs have in common: with 0.06 and 0.05, the errors on a left-out GPU are 1.15 times as large (inference,
    /// `habitat-lab evaluate published` with either). Of AMD's architectures one or two GPUs were measured: wider.
    pub fn prior(&self, side: Side) -> Option<Prior> {
        let of_gpu = |width: f64| (side != Side::Latency).then_some(Prior { mean: 0.0, width });
        match self {
            Self::Term(term) => term.prior(side),
            Self::Generation(..) => of_gpu(0.03),
            Self::Cdna(_) => of_gpu(if side == Side::Memory { 0.3 } else { 0.15 }),
            Self::Board(_) => of_gpu(0.02),
        }
    }

    /// Whether it can only make a part slower.
    pub fn only_slows(&self) -> bool {
        matches!(self, Self::Term(term) if term.only_slows())
    }
}

/// Natural logarithms of time factors on one side, by [`Id`].
#[derive(Debug, Clone, PartialEq)]
pub struct Factors {
    terms: Box<[Option<f64>]>,
    gpus: BTreeMap<Id, f64>,
}

impl Default for Factors {
    fn default() -> Self {
        Self { terms: vec![None; Term::COUNT].into(), gpus: BTreeMap::new() }
    }
}

impl Factors {
    /// Value of a term; `None` if no measured step had it.
    pub fn get(&self, term: Term) -> Option<f64> {
        self.terms[term.index()]
    }

    /// Value of an id.
    pub fn of(&self, id: &Id) -> Option<f64> {
        match id {
            Id::Term(term) => self.get(*term),
            of_gpu => self.gpus.get(of_gpu).copied(),
        }
    }

    /// Sum of a GPU's values. An architecture of AMD's without a value has the mean of the others.
    pub(super) fn of_gpu(&self, gpu: &GpuSpec) -> f64 {
        Id::of_gpu(gpu).map(|id| self.of(&id).or_else(|| self.like(&id)).unwrap_or(0.0)).sum()
    }

    fn like(&self, id: &Id) -> Option<f64> {
        let known = || self.gpus.iter().filter(|(other, _)| matches!((id, other), (Id::Cdna(_), Id::Cdna(_))));
        let count = known().count();
        (count > 0).then(|| known().map(|(_, value)| value).sum::<f64>() / count as f64)
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = (Id, f64)> {
        let terms = Term::all().filter_map(|term| Some((Id::Term(term), self.get(term)?)));
        terms.chain(self.gpus.iter().map(|(id, value)| (id.clone(), *value)))
    }
}

impl FromIterator<(Id, f64)> for Factors {
    fn from_iter<T: IntoIterator<Item = (Id, f64)>>(values: T) -> Self {
        let mut factors = Self::default();
        for (id, value) in values {
            match id {
                Id::Term(term) => factors.terms[term.index()] = Some(value),
                of_gpu => drop(factors.gpus.insert(of_gpu, value)),
            }
        }
        factors
    }
}

/// Writes the names in alphabetical order.
impl Serialize for Factors {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named: BTreeMap<String, f64> = self.iter().map(|(id, value)| (id.name().into_owned(), value)).collect();
        named.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Factors {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let named: BTreeMap<String, f64> = BTreeMap::deserialize(deserializer)?;
        let id = |name: &str| Id::named(name).ok_or_else(|| D::Error::custom(format!("unknown term {name:?}")));
        named.iter().map(|(name, value)| Ok((id(name)?, *value))).collect()
    }
}
