//! `habitat-lab train`: the operator models, Habitat's networks or the black-box model.
//!
//! Each writes weights and a card with their training data and errors.

mod amd;
mod black_box;
mod efficiency;
mod habitat;
mod operators;

use std::io::Write;

use habitat_tui::cli::{self, CliError};
use habitat_tui::store::{self, Paths, StoreError};

use crate::args::TrainArgs;

pub(crate) fn run(args: &TrainArgs, out: &mut dyn Write) -> Result<u8, CliError> {
    let paths = Paths::find();
    let catalog = store::catalog(&paths)?;
    let dir = cli::weights_folder(args.out.as_deref(), &cli::settings(&paths)?, &paths);
    std::fs::create_dir_all(&dir).map_err(|source| StoreError::Write { path: dir.clone(), source })?;
    if let Some(tables) = &args.black_box {
        return black_box::run((tables, args.tables.as_deref()), &dir, args.force, &catalog, out);
    }
    if let Some(steps) = &args.efficiency {
        let files = (steps.as_path(), args.recorded.as_deref(), args.tables.as_deref());
        return efficiency::run(files, &dir, args.force, &catalog, out);
    }
    if !args.amd.is_empty() {
        return amd::run(&args.amd, &dir, &catalog, out);
    }
    let Some(data) = &args.data else {
        return Err(CliError::Refused("missing data: give --data DIR or --black-box DIR".to_owned()));
    };
    if !args.habitat {
        let weights = dir.join(store::WEIGHTS);
        if weights.exists() && !args.force {
            return Err(StoreError::Exists { path: weights }.into());
        }
        return operators::run((data, &args.collected, args.tables.as_deref()), &dir, args.seed, &catalog, out);
    }
    habitat::run(args, data, &dir, &catalog, out)
}
