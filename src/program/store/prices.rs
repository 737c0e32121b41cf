//! Price files: those that are shipped, the user's own, and those that `prices update` writes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::files::{self, Limit, StoreError};
use super::{Paths, bundled, save_atomically, today};
use habitat_planning::pricing::{Offer, PriceBook, Snapshot, Trust};

/// How a file begins that `prices update` wrote: it may be replaced by the next.
const MADE: &str = "# Made by `habitat-tui prices update`, which replaces it.";

/// A price file, and where it is; shipped ones have no path.
#[derive(Debug, Clone)]
pub struct PriceFile {
    /// Of the user.
    pub path: Option<PathBuf>,
    /// Whether `prices update` wrote it; of an offer in two files, that written by hand counts.
    pub is_made: bool,
    /// Its prices.
    pub snapshot: Snapshot,
}

/// The price files that count: the shipped ones, then those of `prices update`, then those that
/// the user wrote. A shipped file does not count where a file of the user's has all offers of its
/// provider.
///
/// # Errors
/// [`StoreError`] naming the user's file and key, or the GPU of a file written by hand that the catalog does not have.
pub fn files(paths: &Paths) -> Result<Vec<PriceFile>, StoreError> {
    let mut own = Vec::new();
    for (path, text) in files::read_folder(&paths.pricing(), "toml")? {
        let snapshot = Snapshot::parse(&text).map_err(|error| StoreError::content(&path, error))?;
        own.push(PriceFile { path: Some(path), is_made: text.starts_with(MADE), snapshot });
    }
    let by_hand = own.iter().filter(|file| !file.is_made).collect::<Vec<_>>();
    if !by_hand.is_empty() {
        let catalog = super::catalog(paths)?;
        for file in by_hand {
            let unknown = file.snapshot.offers().find_map(|offer| catalog.find(offer.gpu?.as_str()).err());
            if let (Some(unknown), Some(path)) = (unknown, &file.path) {
                return Err(StoreError::content(path, unknown));
            }
        }
    }
    Ok(with_shipped(own))
}

fn with_shipped(mut own: Vec<PriceFile>) -> Vec<PriceFile> {
    own.sort_by(|a, b| b.is_made.cmp(&a.is_made).then_with(|| a.path.cmp(&b.path)));
    let complete: BTreeSet<&str> =
        own.iter().filter(|file| file.snapshot.complete).map(|file| file.snapshot.provider.as_str()).collect();
    let mut all: Vec<PriceFile> = bundled::prices()
        .into_iter()
        .filter(|snapshot| !complete.contains(snapshot.provider.as_str()))
        .map(|snapshot| PriceFile { path: None, is_made: false, snapshot })
        .collect();
    all.extend(own);
    all
}

/// The files as they are once these prices are written to `path`.
pub fn with(files: &[PriceFile], path: &Path, snapshot: Snapshot) -> Vec<PriceFile> {
    let is_kept = |file: &&PriceFile| file.path.as_deref().is_some_and(|known| known != path);
    let new = PriceFile { path: Some(path.to_owned()), is_made: true, snapshot };
    with_shipped(files.iter().filter(is_kept).cloned().chain([new]).collect())
}

/// A book of these files.
pub fn book(files: &[PriceFile]) -> PriceBook {
    let offers = |file: &PriceFile| {
        let is_own = file.path.is_some() && !file.is_made;
        let own = move |offer: Offer| Offer { trust: Trust { is_own, ..offer.trust }, ..offer };
        file.snapshot.offers().map(own).collect::<Vec<_>>()
    };
    let book = PriceBook::new(files.iter().flat_map(offers)).on(today());
    let book = book.with_intensities(bundled::intensities());
    files.iter().fold(book, |book, file| book.with_terms(&file.snapshot.provider, file.snapshot.terms()))
}

/// The shipped prices overlaid by the user's `pricing/*.toml`.
///
/// # Errors
/// [`StoreError`] naming the user's file and key.
pub fn prices(paths: &Paths) -> Result<PriceBook, StoreError> {
    Ok(book(&files(paths)?))
}

/// Where the prices of a provider are written.
pub fn file_of(paths: &Paths, provider: &str) -> PathBuf {
    paths.pricing().join(format!("{provider}.toml"))
}

/// Refuses to replace a file that somebody wrote by hand.
///
/// # Errors
/// [`StoreError`] naming the file, and what to do.
pub fn check_replaceable(path: &Path, force: bool) -> Result<(), StoreError> {
    let old = files::there(files::read_text(path, Limit::CATALOG))?;
    if force || old.is_none_or(|text| text.starts_with(MADE)) {
        return Ok(());
    }
    let remedy = "give it another name, under which it adds to these prices, or --force to replace it";
    Err(StoreError::content(path, format!("was not made by `prices update`; {remedy}")))
}

/// Makes the folder of the user's prices, and says where no file can be made in it.
///
/// # Errors
/// [`StoreError::Write`] naming the folder.
pub fn check_folder(paths: &Paths) -> Result<(), StoreError> {
    let folder = paths.pricing();
    let made = std::fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
    made.map(drop).map_err(|source| StoreError::Write { path: folder, source })
}

/// Writes a price file: all of it, or the old one stays as it is.
///
/// # Errors
/// [`StoreError`] naming the file; where it could not be read back, too.
pub fn save(path: &Path, snapshot: &Snapshot) -> Result<(), StoreError> {
    let content = toml::to_string(snapshot).map_err(|error| StoreError::content(path, error))?;
    let text = format!("{MADE}\n# Your own prices belong in a file of another name.\n{content}");
    Snapshot::parse(&text).map_err(|error| StoreError::content(path, error))?;
    Limit::CATALOG.check(text.len() as u64).map_err(|error| StoreError::read(path, error))?;
    save_atomically(path, text.as_bytes(), true)
}
