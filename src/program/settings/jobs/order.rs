//! Jobs that start after others: their places in the file, and cycles.

use std::collections::HashMap;
use std::ops::Range;

use super::{JobTable, JobsFileError, line_of};
use habitat_base::text;

/// A table of the file.
pub(super) struct Table {
    pub(super) job: JobTable,
    pub(super) span: Range<usize>,
    /// Copies on each rung; one rung without early stopping.
    pub(super) copies: Vec<usize>,
}

/// Sets the places of the jobs that have to end before each job starts, which are all copies of those that it names.
///
/// # Errors
/// [`JobsFileError`] for a name that no job has, and for jobs that wait for one another in a cycle.
pub(super) fn set(jobs: &mut [JobTable], tables: &[Table], file: &str) -> Result<(), JobsFileError> {
    let numbers: HashMap<&str, usize> =
        (0..).zip(tables).map(|(number, table)| (table.job.name.as_str(), number)).collect();
    let refused = |number: usize, problem: String| {
        let Table { job, span, .. } = &tables[number];
        let problem = format!("job {:?}: after: {problem}", job.name);
        Err(JobsFileError { line: line_of(file, span, Some("after")), problem })
    };
    for (number, Table { job, span, .. }) in tables.iter().enumerate() {
        if numbers.get(job.name.as_str()) != Some(&number) && tables.iter().any(|of| !of.job.time.after.is_empty()) {
            let problem = format!("job {:?}: two tables have this name; after needs one of them renamed", job.name);
            return Err(JobsFileError { line: line_of(file, span, Some("name")), problem });
        }
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); tables.len()];
    for (number, Table { job, .. }) in tables.iter().enumerate() {
        for name in &job.time.after {
            let Some(other) = numbers.get(text::clean(name, 60).as_str()) else {
                let near = text::nearest(name, numbers.keys().copied(), 3);
                let near = if near.is_empty() { String::new() } else { format!(" (near: {})", near.join(" | ")) };
                return refused(number, format!("no job is named {:?}{near}", text::clean(name, 60)));
            };
            before[number].push(*other);
        }
    }
    if let Some(cycle) = cycle(&before) {
        let names: Vec<String> = cycle.iter().map(|number| format!("{:?}", tables[*number].job.name)).collect();
        let problem = match &names[..] {
            [name, _] => format!("{name} waits for itself; remove it"),
            _ => format!("{} wait for one another in a cycle; remove one of these", names.join(" after ")),
        };
        return refused(cycle[0], problem);
    }
    // Rungs and copies follow one another in the file.
    let mut first = Vec::with_capacity(tables.len());
    let mut place = 0;
    for table in tables {
        first.push(place);
        place += table.copies.iter().sum::<usize>();
    }
    for (number, table) in tables.iter().enumerate() {
        let last = |number: &usize| {
            let copies = &tables[*number].copies;
            let end = first[*number] + copies.iter().sum::<usize>();
            end - copies.last().copied().unwrap_or_default()..end
        };
        let mut after: Vec<usize> = before[number].iter().flat_map(last).collect();
        after.sort_unstable();
        after.dedup();
        let mut place = first[number];
        for copies in &table.copies {
            for job in &mut jobs[place..place + copies] {
                job.after.clone_from(&after);
            }
            after = (place..place + copies).collect();
            place += copies;
        }
    }
    Ok(())
}

/// A cycle, with its first job once more at its end.
fn cycle(before: &[Vec<usize>]) -> Option<Vec<usize>> {
    // 0: not visited; 1: on the path; 2: done.
    let mut state = vec![0; before.len()];
    for start in 0..before.len() {
        let mut path = vec![(start, 0)];
        while let Some((job, next)) = path.last_mut() {
            let own = *job;
            match before[own].get(*next) {
                _ if state[own] == 2 => {
                    path.pop();
                }
                Some(other) => {
                    state[own] = 1;
                    *next += 1;
                    if state[*other] == 1 {
                        let from = path.iter().position(|(job, _)| job == other)?;
                        return Some(path[from..].iter().map(|(job, _)| *job).chain([*other]).collect());
                    }
                    path.push((*other, 0));
                }
                None => {
                    state[own] = 2;
                    path.pop();
                }
            }
        }
    }
    None
}
