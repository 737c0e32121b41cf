//! Properties of each reader for any bytes: it accepts them or refuses them with an error, without a panic; and what
//! the program writes of accepted input reads back as the same.
//!
//! The fuzz targets (`targets/`, run by `run`) and `cargo test` (`../fuzz.rs`, over `corpus/`) call the same functions.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failure here is a defect of the program"
)]

use std::io::Cursor;
use std::path::Path;
use std::sync::LazyLock;

use habitat_tui::capture::messages;
use habitat_tui::capture::on_demand::wire;
use habitat_tui::catalog::{Calibration, Catalog, GpuSpec, Layer};
use habitat_tui::cli::resolve;
use habitat_tui::keymap::Keymap;
use habitat_tui::live::Tail;
use habitat_tui::op_list;
use habitat_tui::predict::blackbox::{BlackBoxModel, OperatorTotals};
use habitat_tui::predict::bundle::Bundle;
use habitat_tui::predict::efficiency::Efficiency;
use habitat_tui::predict::kernelwise::KernelWise;
use habitat_tui::predict::learned::Models;
use habitat_tui::predict::{self, MethodChoice, Options};
use habitat_tui::pricing::{Snapshot, import as catalogs};
use habitat_tui::profile::{DeviceInfo, Profile};
use habitat_tui::report::outcome::Run;
use habitat_tui::report::plan_toml;
use habitat_tui::report::theme::{ColourLevel, Theme};
use habitat_tui::settings::file::SettingsFile;
use habitat_tui::settings::jobs::JobsFile;
use habitat_tui::store::{Limit, bundled, collected, files, kind, nsys, operator_tables, run_logs};
use habitat_tui::trace::TraceError;
use habitat_tui::trace::import::{self, Import, ImportOptions};
use habitat_tui::trace::kineto::{self as traces, Packer, Recorded, Spill};
use habitat_tui::units::{GpuSlug, Micros};

type Reader = fn(&[u8]);

/// Every kind of input, under the name of its target and of its folder in `corpus/`.
pub const READERS: [(&str, Reader); 25] = [
    ("kineto", kineto),
    ("nsight", nsight),
    ("xplane", xplane),
    ("op_list", list_of_operators),
    ("profile", profile),
    ("predictions", predictions),
    ("black_box", black_box),
    ("containers", containers),
    ("kinds", kinds),
    ("gpu", gpu),
    ("calibration", calibration),
    ("prices", prices),
    ("skypilot", skypilot),
    ("gpuhunt", skypilot),
    ("plan", plan),
    ("jobs", jobs),
    ("outcome", outcome),
    ("settings", settings),
    ("theme", theme),
    ("run_log", run_log),
    ("measured", measured),
    ("weights", weights),
    ("models", models),
    ("messages", told_messages),
    ("datagrams", datagrams),
];

/// Passes the bytes to the reader of this name.
pub fn run(name: &str, bytes: &[u8]) {
    let reader = READERS.iter().find(|(known, _)| *known == name);
    reader.unwrap_or_else(|| panic!("no reader is called {name:?}")).1(bytes);
}

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::new(bundled::gpus()));

/// The path of a file with these bytes, which exists during the call.
fn in_a_file<T>(name: &str, bytes: &[u8], read: impl FnOnce(&Path) -> T) -> T {
    thread_local!(static FOLDER: tempfile::TempDir = tempfile::tempdir().unwrap());
    FOLDER.with(|folder| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    })
}

fn resolved(device: &DeviceInfo) -> Result<GpuSlug, String> {
    resolve(device, &CATALOG)
}

/// An import writes a file that reads back as the same profile.
fn imported(import: Result<Import, TraceError>) {
    match import {
        Ok(import) => written_again(&import.profile),
        Err(error) => drop(error.to_string()),
    }
}

fn written_again(profile: &Profile) {
    let json = profile.to_json().unwrap();
    let (again, warnings) = Profile::from_json(&json).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(again == *profile, "{}", String::from_utf8(again.to_json().unwrap()).unwrap());
    assert_eq!(again.sha256().unwrap(), profile.sha256().unwrap());
}

/// Read whole, with few records, and for its shapes alone. Cut into pieces anywhere, in memory or on disk, the result
/// is the same.
fn kineto(bytes: &[u8]) {
    for (max_records, shapes_only) in [(None, false), (Some(20), false), (None, true)] {
        let options =
            ImportOptions { max_records, shapes_only, resolve_gpu: Some(&resolved), ..ImportOptions::default() };
        let import = |recorded: Result<Recorded, TraceError>| recorded.and_then(|it| import::kineto(it, &options));
        let whole = import(Recorded::read(bytes, None, &mut |_| std::ops::ControlFlow::Continue(())));
        for length in [7, 61, 1000] {
            let pieces = import(in_pieces(bytes, length));
            match (&whole, pieces) {
                (Ok(whole), Ok(pieces)) => assert!(whole.profile == pieces.profile, "pieces of {length}"),
                (Err(_), Err(_)) => {}
                (whole, pieces) => panic!("{:?}, in pieces of {length} {:?}", whole.as_ref().err(), pieces.err()),
            }
        }
        imported(whole);
    }
}

fn in_pieces(bytes: &[u8], length: usize) -> Result<Recorded, TraceError> {
    let spill = Spill { memory: 50, open: || Ok(Box::new(Cursor::new(Vec::new()))) };
    let mut reader = traces::Reader::new(Some(spill));
    let mut packer = Packer::default();
    for piece in bytes.chunks(length) {
        if reader.is_over() {
            break;
        }
        reader.take(piece, Some(packer.read(piece)))?;
    }
    reader.finish()
}

fn nsight(bytes: &[u8]) {
    in_a_file("report.sqlite", bytes, |path| match nsys::Export::open(path) {
        Ok(mut export) => {
            let options = ImportOptions { resolve_gpu: Some(&resolved), ..ImportOptions::default() };
            imported(import::nsight(&mut export, &options));
        }
        Err(error) => drop(error.to_string()),
    });
}

fn xplane(bytes: &[u8]) {
    let options = ImportOptions { resolve_gpu: Some(&resolved), ..ImportOptions::default() };
    imported(import::xplane(bytes, &options));
}

fn list_of_operators(bytes: &[u8]) {
    match op_list::from_op_list(bytes, "list") {
        Ok(profile) => written_again(&profile),
        Err(error) => drop(error.to_string()),
    }
}

fn profile(bytes: &[u8]) {
    match Profile::from_json(bytes) {
        Ok((profile, _)) => written_again(&profile),
        Err(error) => drop(error.to_string()),
    }
}

/// A profile that reads can be predicted, or the error gives the reason.
fn predictions(bytes: &[u8]) {
    static TWO: LazyLock<Catalog> = LazyLock::new(|| {
        let two = CATALOG.iter().filter(|gpu| ["t4", "h100-sxm5-80gb"].contains(&gpu.slug.as_str()));
        Catalog::new(two.cloned())
    });
    let Ok((profile, _)) = Profile::from_json(bytes) else { return };
    for (method, ignore_origin) in [(MethodChoice::Auto, false), (MethodChoice::Auto, true)] {
        let options = Options { method, ignore_origin, ..Options::default() };
        match predict::predict(&profile, &TWO, &options) {
            Ok(predictions) => {
                for prediction in &predictions.predictions {
                    let range = prediction.step.as_estimate().range.map(Micros::get);
                    assert!(range.low <= range.mid && range.mid <= range.high, "{range:?}");
                }
            }
            Err(error) => drop(error.to_string()),
        }
    }
    if let Ok(totals) = OperatorTotals::of_profile(&profile, None) {
        assert_eq!(OperatorTotals::from_json(&totals.to_json().unwrap()).unwrap(), totals);
    }
}

fn black_box(bytes: &[u8]) {
    match OperatorTotals::from_json(bytes) {
        Ok(totals) => {
            assert_eq!(OperatorTotals::from_json(&totals.to_json().unwrap()).unwrap(), totals);
        }
        Err(error) => drop(error.to_string()),
    }
}

/// gzip, Zstandard or plain: the same in memory and as a file.
fn containers(bytes: &[u8]) {
    let unpacked = files::decompress(bytes);
    let from_file = in_a_file("packed", bytes, |path| {
        let limit = Limit::WEIGHTS;
        (files::read(path, limit), files::beginning(path, 100), kind::kind(path))
    });
    match (unpacked, from_file) {
        (Ok(unpacked), (read, beginning, _)) => {
            assert!(unpacked == read.unwrap() && unpacked.starts_with(&beginning.unwrap()));
        }
        (Err(error), (read, ..)) => drop((error.to_string(), read.unwrap_err().to_string())),
    }
}

/// The kind of a file, and the advice for it.
fn kinds(bytes: &[u8]) {
    for name in ["step", "step.json", "a b.csv", "t.toml", "train.py", "r.nsys-rep"] {
        let said = in_a_file(name, bytes, |path| kind::kind(path).map(|kind| kind.refused(path, kind::STEPS)));
        drop(said.map(|said| said.to_string()));
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn gpu(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match GpuSpec::parse(text, Layer::User("gpu.toml".to_owned())) {
        Ok(gpu) => drop(serde_json::to_string(&habitat_tui::report::gpus::json(&gpu)).unwrap()),
        Err(error) => drop(error.to_string()),
    }
}

fn calibration(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Calibration::parse(text) {
        Ok(calibration) => {
            assert_eq!(Calibration::parse(&calibration.to_toml().unwrap()).unwrap(), calibration);
        }
        Err(error) => drop(error.to_string()),
    }
}

fn prices(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Snapshot::parse(text) {
        Ok(snapshot) => {
            assert_eq!(Snapshot::parse(&toml::to_string(&snapshot).unwrap()).unwrap(), snapshot);
            assert!(snapshot.offers().all(|offer| offer.price.get().is_finite()));
        }
        Err(error) => drop(error.to_string()),
    }
}

/// A catalog in any of its forms; the output of `prices update` for it is a price file.
fn skypilot(bytes: &[u8]) {
    for provider in [Some("gcp"), Some("lab"), None] {
        let origin = catalogs::Origin { provider, source: "fuzz", as_of: None, dated_by: None };
        match catalogs::read(bytes, origin) {
            Ok(all) => {
                for imported in all.iter().filter(|imported| imported.check().is_ok()) {
                    let text = toml::to_string(&imported.snapshot).unwrap();
                    assert_eq!(Snapshot::parse(&text).unwrap(), imported.snapshot);
                }
            }
            Err(error) => drop(error.to_string()),
        }
    }
}

fn plan(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match plan_toml::parse(text) {
        Ok(plan) => drop(plan),
        Err(error) => drop(error.to_string()),
    }
}

fn jobs(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    if let Err(error) = JobsFile::parse(text) {
        // Truncated input has its error at the end, behind the last line.
        assert!((1..=text.lines().count() + 1).contains(&error.line), "{error}");
    }
}

fn outcome(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    drop(Run::parse(text).map_err(|error| error.to_string()));
}

/// The settings, and their keys.
fn settings(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match SettingsFile::parse(text) {
        Ok(settings) => match Keymap::patched(&settings.keys) {
            Ok(keys) => {
                let again = SettingsFile::parse(&keys.to_toml()).unwrap();
                assert_eq!(Keymap::patched(&again.keys).unwrap(), keys);
            }
            Err(error) => drop(error.to_string()),
        },
        Err(error) => drop(error.to_string()),
    }
}

fn theme(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    match Theme::all(&[("mine.toml".to_owned(), text.to_owned())]) {
        Ok(themes) => {
            let levels = [ColourLevel::None, ColourLevel::Ansi16, ColourLevel::Ansi256, ColourLevel::True];
            drop(levels.map(|level| themes.last().unwrap().styles(level)));
        }
        Err(error) => drop(error.to_string()),
    }
}

fn run_log(bytes: &[u8]) {
    let read = in_a_file("runs.csv", bytes, |path| run_logs::read(path, &run_logs::LogColumns::default()));
    drop(read.map_err(|error| error.to_string()));
}

/// A table of measured operators in each of its forms.
fn measured(bytes: &[u8]) {
    in_a_file("linear.csv", bytes, |path| {
        if collected::is_one(path).is_ok_and(|is_one| is_one) {
            drop(collected::read(path, &CATALOG).map_err(|error| error.to_string()));
        }
        for table in operator_tables::TABLES {
            let rows = operator_tables::read(path, table).map_err(|error| error.to_string());
            for row in rows.into_iter().flatten() {
                drop(operator_tables::line(&row.operation, row.precision, &row.gpu).map(|line| line.text()));
            }
        }
    });
}

fn weights(bytes: &[u8]) {
    match Bundle::from_bytes(bytes) {
        Ok(bundle) => assert_eq!(Bundle::from_bytes(&bundle.to_bytes().unwrap()).unwrap(), bundle),
        Err(error) => drop(error.to_string()),
    }
    drop(Models::from_bytes(bytes).map_err(|error| error.to_string()));
}

/// Other model files: linear models, efficiency, black boxes.
fn models(bytes: &[u8]) {
    match KernelWise::from_json(bytes) {
        Ok(lines) => {
            // Numbers have six digits in the file.
            let short = lines.to_json();
            assert_eq!(KernelWise::from_json(short.as_bytes()).unwrap().to_json(), short);
        }
        Err(error) => drop(error.to_string()),
    }
    match BlackBoxModel::from_json(bytes) {
        Ok(model) => {
            let written = model.to_json().unwrap();
            assert_eq!(BlackBoxModel::from_json(&written).unwrap().to_json().unwrap(), written);
        }
        Err(error) => drop(error.to_string()),
    }
    drop(Efficiency::from_json(bytes).map_err(|error| error.to_string()));
}

/// Messages from the socket of a job, and the job's output.
fn told_messages(bytes: &[u8]) {
    let mut stream = bytes;
    while let Ok(Some(text)) = messages::frame(&mut stream) {
        if let Ok(message) = messages::parse(&text)
            && message != messages::Message::Unknown
        {
            let json = serde_json::to_vec(&message).unwrap();
            assert_eq!(messages::parse(&json).unwrap(), message);
        }
    }
    let (first, second) = bytes.split_at(bytes.len() / 3);
    let (mut whole, mut parts) = (Tail::default(), Tail::default());
    whole.feed(bytes);
    parts.feed(first);
    parts.feed(second);
    assert_eq!(whole.lines(), parts.lines());
    assert!(!whole.lines().iter().any(|line| habitat_tui::text::is_unsafe(line)));
}

fn datagrams(bytes: &[u8]) {
    match wire::read(bytes) {
        Ok(message) => assert_eq!(wire::read(&message.to_bytes()).unwrap(), message),
        Err(error) => drop(error.to_string()),
    }
    if let Ok(request) = wire::read_poll_reply(bytes) {
        assert_eq!(wire::read_poll_reply(&wire::poll_reply(&request)).unwrap(), request);
    }
}
