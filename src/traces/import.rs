//! Imports recordings: a reader in [`crate`] fills a trace per rank, and the builder makes one profile of them.

use crate::builder;
pub use crate::builder::{Exchange, Import, ImportOptions, LoaderBatch, ModelInput, ResolveGpu, Summary, combine};
use crate::kineto::Recorded;
use crate::nsight::{self, Source};
use crate::{EachRank, Fault, Format, ReadOptions, TraceError, xplane};
use habitat_step::profile::DeviceInfo;

/// Imports one PyTorch trace.
///
/// # Errors
/// [`TraceError`] with a remedy.
pub fn kineto(recorded: Recorded, options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    let knows = knows(options);
    let trace = recorded.trace(&reading(options, &knows))?;
    builder::build(trace, options)
}

/// Imports the PyTorch traces of several ranks of one job into one profile: the operations of the rank with the median
/// step, each with the median device time over the ranks.
///
/// # Errors
/// [`TraceError`] of the first trace that fails, with its rank; [`Fault::NoSources`] for an empty list.
pub fn kineto_ranks(
    ranks: impl IntoIterator<Item = Result<Recorded, TraceError>>,
    options: &ImportOptions<'_>,
) -> Result<Import, TraceError> {
    let imports = (0..).zip(ranks).map(|(rank, recorded)| {
        let import = recorded.and_then(|recorded| kineto(recorded, options));
        import.map_err(|error| TraceError { rank: Some(rank), ..error })
    });
    combine(imports.collect::<Result<_, _>>()?).ok_or_else(|| Format::Kineto.error(Fault::NoSources))
}

/// Imports an Nsight Systems recording; its processes are the ranks.
///
/// # Errors
/// [`TraceError`] with a remedy.
pub fn nsight(source: &mut dyn Source, options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    ranks(Format::Nsight, options, &mut |options, each| nsight::read(source, options, each))
}

/// Imports an XPlane recording; its GPUs are the ranks.
///
/// # Errors
/// [`TraceError`] with a remedy.
pub fn xplane(bytes: &[u8], options: &ImportOptions<'_>) -> Result<Import, TraceError> {
    ranks(Format::Xplane, options, &mut |options, each| xplane::read(bytes, options, each))
}

type Read<'a> = dyn FnMut(&ReadOptions<'_>, &mut EachRank<'_>) -> Result<Option<String>, TraceError> + 'a;

/// Imports a recording with several ranks.
fn ranks(format: Format, options: &ImportOptions<'_>, read: &mut Read<'_>) -> Result<Import, TraceError> {
    let knows = knows(options);
    let mut imports = Vec::new();
    let note = read(&reading(options, &knows), &mut |trace| {
        imports.push(builder::build(trace, options)?);
        Ok(())
    })?;
    let mut import = combine(imports).ok_or_else(|| format.error(Fault::NoSources))?;
    if let Some(recording) = &mut import.profile.recording {
        recording.notes.extend(note);
    }
    Ok(import)
}

fn knows<'a>(options: &'a ImportOptions<'_>) -> impl Fn(&DeviceInfo) -> bool + 'a {
    |gpu| options.resolve_gpu.is_some_and(|resolve| resolve(gpu).is_ok())
}

/// The options that concern the reader.
fn reading<'a>(options: &'a ImportOptions<'_>, knows: &'a dyn Fn(&DeviceInfo) -> bool) -> ReadOptions<'a> {
    ReadOptions {
        max_steps: options.max_steps,
        max_records: options.max_records,
        step_range: options.step_range.as_deref(),
        shapes_only: options.shapes_only,
        device: options.device,
        is_gpu_given: options.origin.is_some(),
        knows_gpu: Some(knows),
    }
}
