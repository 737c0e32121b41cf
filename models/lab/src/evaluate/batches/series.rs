//! Step times of networks at several batch sizes, from PROFET's tables: medians over the repetitions of
//! `latencies.csv`, and the device's busy time if an anchor table has the workload.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use habitat_tui::regress::quantile::median;
use habitat_tui::store::StoreError;
use habitat_tui::store::profet::{read, read_latencies, tables};
use habitat_tui::units::{GpuSlug, Micros};

/// One network at one image size on one GPU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    /// The network.
    pub(super) network: Arc<str>,
    /// Side of the square images.
    pub(super) pixels: u32,
    /// The GPU.
    pub(super) gpu: GpuSlug,
    /// By batch size, ascending.
    pub(super) steps: Vec<SeriesStep>,
}

/// The step of a series at one batch size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SeriesStep {
    /// Samples in a step.
    pub(super) batch: u64,
    /// Time of the step, median over the repetitions.
    pub(super) time: Micros,
    /// Busy time of the device, if there is a profile; median over the repetitions.
    pub(super) busy: Option<Micros>,
}

/// Times by network, image size and GPU, then by batch size.
type Times = BTreeMap<(Arc<str>, u32, GpuSlug), BTreeMap<u64, Vec<f64>>>;

/// Every series of a folder.
///
/// # Errors
/// As [`read`], and if there is no `latencies.csv`.
pub(super) fn read_series(dir: &Path) -> Result<Vec<Series>, StoreError> {
    let (mut times, mut busy) = (Times::new(), Times::new());
    for row in read_latencies(dir)? {
        let key = (row.network, row.pixels, row.gpu);
        times.entry(key).or_default().entry(row.batch_size).or_default().push(row.step.get());
    }
    if !tables(dir)?.is_empty() {
        for row in read(dir)? {
            let totals = row.totals;
            let sum: Micros = totals.kinds.values().copied().sum();
            let key = (row.network, row.pixels, totals.gpu);
            busy.entry(key).or_default().entry(totals.batch_size).or_default().push(sum.get());
        }
    }
    let middle = |values: &mut Vec<f64>| median(values).and_then(|time| Micros::new(time).ok());
    let series = times.into_iter().map(|(key, by_batch)| {
        let mut profiled = busy.remove(&key).unwrap_or_default();
        let steps = by_batch.into_iter().filter_map(|(batch, mut values)| {
            let busy = profiled.get_mut(&batch).and_then(middle);
            Some(SeriesStep { batch, time: middle(&mut values)?, busy })
        });
        let steps = steps.collect();
        let (network, pixels, gpu) = key;
        Series { network, pixels, gpu, steps }
    });
    Ok(series.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCIES: &str = "exp_name,instance_name,model,dataset,batchsize,batch_latency
exp01,m60,A,32dataset,16,0.010
exp02,m60,A,32dataset,16,0.012
exp03,m60,A,32dataset,16,0.011
exp01,m60,A,32dataset,32,0.020
exp01,t4,A,32dataset,16,0.5
";
    const ANCHOR: &str =
        "exp_name,instance_name,model,dataset,batchsize,batch_latency,Device_Conv2D,Device_Mul,Device_IDLE,Host_x
exp01,m60,A,32dataset,16,0.01,12000,4000,9000,1
";

    #[test]
    fn medians_by_batch_with_the_busy_time_of_one_step() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("latencies.csv"), LATENCIES).unwrap();
        std::fs::write(folder.path().join("anchor_m.csv"), ANCHOR).unwrap();
        let series = read_series(folder.path()).unwrap();
        assert_eq!(series.len(), 2);
        let [first, second] = series[0].steps[..] else { panic!("{series:?}") };
        assert_eq!((first.batch, first.time.get().round()), (16, 11_000.0));
        assert_eq!(first.busy.map(Micros::get), Some(8000.0));
        assert_eq!((second.batch, second.busy), (32, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read_series(folder.path()).unwrap_err().to_string().contains("latencies.csv"));
        std::fs::write(folder.path().join("latencies.csv"), LATENCIES.replace("0.020", "fast")).unwrap();
        let error = read_series(folder.path()).unwrap_err().to_string();
        assert!(error.contains("line 5") && error.contains("\"fast\""), "{error}");
    }
}
