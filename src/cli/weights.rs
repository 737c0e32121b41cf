//! The folder of weights, and what of it is not shipped.

use std::path::{Path, PathBuf};

use super::CliError;
use crate::predict::bundle::Bundle;
use crate::predict::habitat::{HabitatMlp, Kind, Trained};
use crate::settings::file::SettingsFile;
use crate::store::{self, Limit, Paths, StoreError};

/// The folder of trained networks: as given, else as the settings say, else the user's.
pub fn folder(given: Option<&Path>, settings: &SettingsFile, paths: &Paths) -> PathBuf {
    given.map(Path::to_owned).or_else(|| settings.models.clone()).unwrap_or_else(|| paths.models())
}

/// Habitat's networks in a folder.
pub(super) fn habitat(dir: &Path) -> Result<HabitatMlp, CliError> {
    let mut networks = Vec::new();
    for kind in Kind::ALL {
        let path = dir.join(kind.file());
        if !path.exists() {
            continue;
        }
        let bytes = store::read(&path, Limit::WEIGHTS)?;
        let trained = Bundle::from_bytes(&bytes)
            .and_then(|bundle| Trained::of(&bundle, kind))
            .map_err(|error| StoreError::content(&path, error))?;
        networks.push((kind, trained));
    }
    if networks.is_empty() {
        let files = Kind::ALL.map(Kind::file).join(", ");
        return Err(CliError(format!(
            "{}: no weights of Habitat's networks ({files}); they are not shipped: train them with `habitat-lab train --habitat --data DIR` (models/lab in the sources), or name their folder with --models DIR",
            dir.display()
        )));
    }
    Ok(HabitatMlp::new(networks))
}
