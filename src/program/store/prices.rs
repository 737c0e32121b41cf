//! Price files: shipped ones, the user's own, and those written by `prices update`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::decompress::Limit;
use super::files::{self, StoreError};
use super::{Paths, bundled, save_atomically, today};
use habitat_planning::pricing::{Offer, PriceBook, Snapshot, Trust};

/// First line of a file written by `prices update`, which the next update may replace.
const MADE: &str = "# Made by `habitat-tui prices update`, which replaces it.";

/// A price file with its path; shipped files have none.
#[derive(Debug, Clone)]
pub struct PriceFile {
    /// Path of a user's file.
    pub path: Option<PathBuf>,
    /// Whether `prices update` wrote it. If an offer is in two files, the one written by hand takes precedence.
    pub is_made: bool,
    /// Prices of the file.
    pub snapshot: Snapshot,
}

/// Price files in effect: shipped ones, then those of `prices update`, then those that the user wrote. A shipped file
/// is dropped if a user's file has all offers of its provider.
///
/// # Errors
/// [`StoreError`] with the user's file and key, or with the GPU in a file written by hand that is not in the catalog.
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

/// Files in effect after these prices are written to `path`.
pub fn with(files: &[PriceFile], path: &Path, snapshot: Snapshot) -> Vec<PriceFile> {
    let is_kept = |file: &&PriceFile| file.path.as_deref().is_some_and(|known| known != path);
    let new = PriceFile { path: Some(path.to_owned()), is_made: true, snapshot };
    with_shipped(files.iter().filter(is_kept).cloned().chain([new]).collect())
}

/// Builds a price book from these files.
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

/// Shipped prices, overridden by the user's `pricing/*.toml`.
///
/// # Errors
/// [`StoreError`] with the user's file and key.
pub fn prices(paths: &Paths) -> Result<PriceBook, StoreError> {
    Ok(book(&files(paths)?))
}

/// File for the prices of a provider.
pub fn file_of(paths: &Paths, provider: &str) -> PathBuf {
    paths.pricing().join(format!("{provider}.toml"))
}

/// Prevents replacing a file that was written by hand.
///
/// # Errors
/// [`StoreError`] with the file and a remedy.
pub(crate) fn check_replaceable(path: &Path, force: bool) -> Result<(), StoreError> {
    let old = files::there(files::read_text(path, Limit::CATALOG))?;
    if force || old.is_none_or(|text| text.starts_with(MADE)) {
        return Ok(());
    }
    let remedy = "rename it, so that it adds to these prices, or use --force to replace it";
    Err(StoreError::content(path, format!("was not made by `prices update`; {remedy}")))
}

/// Creates the folder of the user's prices, and checks that files can be created in it.
///
/// # Errors
/// [`StoreError::Write`] with the folder.
pub(crate) fn check_folder(paths: &Paths) -> Result<(), StoreError> {
    let folder = paths.pricing();
    let made = std::fs::create_dir_all(&folder).and_then(|()| tempfile::tempfile_in(&folder));
    made.map(drop).map_err(|source| StoreError::Write { path: folder, source })
}

/// Writes a price file atomically.
///
/// # Errors
/// [`StoreError`] with the file, also if it could not be read back.
pub fn save(path: &Path, snapshot: &Snapshot) -> Result<(), StoreError> {
    let content = toml::to_string(snapshot).map_err(|error| StoreError::content(path, error))?;
    let text = format!("{MADE}\n# Put your own prices in a file with another name.\n{content}");
    Snapshot::parse(&text).map_err(|error| StoreError::content(path, error))?;
    Limit::CATALOG.check(text.len() as u64).map_err(|error| StoreError::read(path, error))?;
    save_atomically(path, text.as_bytes(), true)
}
