//! Selects the ranks of a job among the parts of a recording.

use std::collections::BTreeSet;

use super::Fault;

/// Minimum share of the busiest part's kernel time for a rank.
const SHARE: f64 = 0.5;

/// Ranks among the parts of a recording.
#[derive(Debug)]
pub(super) struct Ranks {
    /// Indices of the ranks; empty without kernels.
    pub(super) chosen: Vec<usize>,
    /// Note on omitted parts.
    pub(super) note: Option<String>,
}

/// Chooses ranks among the parts of a recording (`what` is their plural noun, such as `processes`), given the kernel
/// time of each part by device, in any unit. With a requested device, only the busiest part on it (with
/// `CUDA_VISIBLE_DEVICES` every rank calls its GPU 0); otherwise all that are about as busy as the busiest.
///
/// # Errors
/// [`Fault::NoSuchDevice`] if no kernel ran on the requested device.
pub(super) fn choose(parts: &[Vec<(u32, f64)>], device: Option<u32>, what: &str) -> Result<Ranks, Fault> {
    let time = |part: &Vec<(u32, f64)>| {
        let times = part.iter().filter(|(number, _)| device.is_none_or(|device| device == *number));
        times.map(|(_, time)| *time).fold(0.0, f64::max)
    };
    let mut found: Vec<(usize, f64)> = parts.iter().map(time).enumerate().filter(|(_, time)| *time > 0.0).collect();
    let Some(most) = found.iter().map(|(_, time)| *time).max_by(f64::total_cmp) else {
        let known: BTreeSet<u32> =
            parts.iter().flatten().filter(|(_, time)| *time > 0.0).map(|(number, _)| *number).collect();
        return match device {
            Some(device) if !known.is_empty() => {
                Err(Fault::NoSuchDevice { device, known: known.into_iter().collect() })
            }
            _ => Ok(Ranks { chosen: Vec::new(), note: None }),
        };
    };
    found.retain(|(_, time)| *time >= SHARE * most);
    if device.is_some() {
        found.sort_by(|a, b| b.1.total_cmp(&a.1));
        found.truncate(1);
    }
    let left_out = parts.iter().filter(|part| !part.is_empty()).count() - found.len();
    let note = (left_out > 0).then(|| match device {
        Some(device) => {
            format!("{left_out} other {what} of the recording ignored: device {device} was requested")
        }
        None => format!("{left_out} {what} ignored: far less busy than the others"),
    });
    Ok(Ranks { chosen: found.into_iter().map(|(part, _)| part).collect(), note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_about_as_busy_as_the_busiest() {
        let parts = [vec![(0, 100.0)], vec![(1, 90.0), (0, 1.0)], vec![(0, 3.0)], Vec::new()];
        let all = choose(&parts, None, "processes").unwrap();
        assert_eq!(all.chosen, [0, 1]);
        assert!(all.note.unwrap().starts_with("1 processes ignored: far less busy"));
        assert_eq!(choose(&parts, Some(1), "processes").unwrap().chosen, [1]);
        assert_eq!(choose(&parts, Some(0), "processes").unwrap().chosen, [0]);
        let Err(Fault::NoSuchDevice { device: 7, known }) = choose(&parts, Some(7), "GPUs") else { panic!("chosen") };
        assert_eq!(known, [0, 1]);
        assert!(choose(&[], Some(7), "GPUs").unwrap().chosen.is_empty());
    }
}
