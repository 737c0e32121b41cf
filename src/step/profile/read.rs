//! Parses and validates profile files.

use std::fmt;

use super::{FORMAT, Profile, VERSION};
use habitat_base::units::most;

/// Error for an invalid profile. The message names the field and its position.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The file is empty.
    #[error("the file is empty; a profile is one JSON object with \"format\": \"{FORMAT}\"")]
    Empty,
    /// Not JSON, or a field of the wrong type or value.
    #[error("{}{problem} (line {line}, column {column})", at(.path))]
    Json {
        /// Field, such as `operations[3].kernels[0].duration_us`; empty at the top level.
        path: String,
        /// Line of the text, from 1.
        line: usize,
        /// Column of the line, from 1.
        column: usize,
        /// The problem.
        problem: String,
    },
    /// JSON of another kind.
    #[error(
        "format: found {found:?}, expected \"{FORMAT}\"; `habitat-tui import TRACE -o FILE` converts a PyTorch trace, and `predict --black-box FILE` reads a black box"
    )]
    Format {
        /// Value of the field.
        found: String,
    },
    /// An unsupported version.
    #[error("version: found {found}, but this program reads version {VERSION}; a newer habitat-tui may read it")]
    Version {
        /// Value of the field.
        found: u64,
    },
    /// A value that violates the format.
    #[error("{path}: {problem}")]
    Value {
        /// The field.
        path: String,
        /// The problem and the expected value.
        problem: String,
    },
}

fn at(path: &str) -> String {
    if path.is_empty() || path == "." { String::new() } else { format!("{path}: ") }
}

/// An anomaly in a profile that does not prevent its use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The field.
    pub path: String,
    /// The problem.
    pub problem: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.problem)
    }
}

/// Maximum number of unknown fields to report individually; further ones are only counted.
const UNKNOWN_FIELDS_LISTED: usize = 8;

pub(super) fn from_json(json: &[u8]) -> Result<(Profile, Vec<Warning>), ProfileError> {
    if json.iter().all(u8::is_ascii_whitespace) {
        return Err(ProfileError::Empty);
    }
    check_head(json)?;
    let (mut unknown, mut unknown_count) = (Vec::new(), 0);
    let mut track = serde_path_to_error::Track::new();
    let mut text = serde_json::Deserializer::from_slice(json);
    let parsed: Result<Profile, serde_json::Error> = {
        let tracked = serde_path_to_error::Deserializer::new(&mut text, &mut track);
        serde_ignored::deserialize(tracked, |path| {
            unknown_count += 1;
            if unknown.len() < UNKNOWN_FIELDS_LISTED {
                unknown.push(habitat_base::text::clean(&path.to_string(), 120));
            }
        })
    };
    let profile = parsed
        .and_then(|profile| text.end().map(|()| profile))
        .map_err(|error| json_error(&error, &track.path().to_string()))?;
    profile.validate()?;
    Ok((profile, unknown_field_warnings(unknown, unknown_count)))
}

/// Checks `format` and `version` first: the error for a file of another kind should say so instead of reporting a
/// missing field.
fn check_head(json: &[u8]) -> Result<(), ProfileError> {
    #[derive(serde::Deserialize)]
    struct Head {
        format: Option<serde_json::Value>,
        version: Option<serde_json::Value>,
    }
    let head: Head = serde_json::from_slice(json).map_err(|error| json_error(&error, ""))?;
    match head.format {
        Some(serde_json::Value::String(format)) if format == FORMAT => {}
        found => {
            return Err(ProfileError::Format {
                found: found.map_or_else(|| "no such field".to_owned(), |value| text_of(&value)),
            });
        }
    }
    match head.version.as_ref().and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(VERSION) => Ok(()),
        Some(found) => Err(ProfileError::Version { found }),
        None => Err(ProfileError::Value {
            path: "version".to_owned(),
            problem: format!("missing or not a whole number; expected {VERSION}"),
        }),
    }
}

fn text_of(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn json_error(error: &serde_json::Error, path: &str) -> ProfileError {
    let message = error.to_string();
    // serde_json appends the position; it is a separate field here.
    let problem = if error.is_eof() {
        "the file is truncated; copy or export it again".to_owned()
    } else {
        message.split(" at line ").next().unwrap_or(&message).to_owned()
    };
    ProfileError::Json { path: path.to_owned(), line: error.line(), column: error.column(), problem }
}

fn unknown_field_warnings(unknown: Vec<String>, total: usize) -> Vec<Warning> {
    let mut warnings: Vec<Warning> =
        unknown.into_iter().map(|path| Warning { path, problem: "unknown field, ignored".to_owned() }).collect();
    if total > UNKNOWN_FIELDS_LISTED {
        let more = total - UNKNOWN_FIELDS_LISTED;
        warnings.push(Warning { path: "…".to_owned(), problem: format!("{more} more unknown fields, ignored") });
    }
    warnings
}

impl Profile {
    /// Checks constraints that the types alone cannot express.
    pub(super) fn validate(&self) -> Result<(), ProfileError> {
        let fail = |path: String, problem: &str| Err(ProfileError::Value { path, problem: problem.to_owned() });
        if self.operations.is_empty() {
            return fail("operations".to_owned(), "empty; a step has at least one operation");
        }
        if self.operations.len() > most::OPERATIONS {
            let problem = format!(
                "{} different ones; the limit is {}: import or record fewer steps (`import --max-steps 1`)",
                self.operations.len(),
                most::OPERATIONS
            );
            return Err(ProfileError::Value { path: "operations".to_owned(), problem });
        }
        let counts = [
            ("workload.batch_size", self.workload.batch_size, most::BATCH),
            ("workload.sequence_length", self.workload.sequence_length, most::SEQUENCE),
            ("workload.parameter_count", self.workload.parameter_count, most::PARAMETERS),
        ];
        if let Some((field, Some(count), most)) =
            counts.into_iter().find(|(_, count, most)| count.is_some_and(|it| it > *most))
        {
            return Err(ProfileError::Value {
                path: field.to_owned(),
                problem: format!("{count}; the limit is {most}"),
            });
        }
        if self.workload.batch_size == Some(0) {
            return fail(
                "workload.batch_size".to_owned(),
                "0; a step processes at least one sample (leave the field out if unknown)",
            );
        }
        if let Some([shortest, longest]) = self.step.as_ref().and_then(|step| step.duration_range)
            && shortest.get() > longest.get()
        {
            return fail(
                "step.duration_range_us".to_owned(),
                "the first number is the shortest step and cannot be above the second",
            );
        }
        if let Some(timeline) = &self.timeline {
            timeline.validate(self.operations.len())?;
        }
        for (index, operation) in self.operations.iter().enumerate() {
            let place = |field: &str| {
                format!("operations[{index}] ({}).{field}", habitat_base::text::clean(&operation.name, 60))
            };
            if operation.name.trim().is_empty() {
                return fail(format!("operations[{index}].name"), "empty; an operation needs the name of its operator");
            }
            if operation.count == 0 {
                return fail(place("count"), "0; an operation occurs at least once");
            }
            if let Some((field, problem)) = operation.beyond() {
                return Err(ProfileError::Value { path: place(&field), problem });
            }
            for (kernel_index, kernel) in operation.kernels.iter().enumerate() {
                let kernel_place = |field: &str| place(&format!("kernels[{kernel_index}].{field}"));
                if kernel.count == 0 {
                    return fail(kernel_place("count"), "0; a kernel is launched at least once");
                }
                match (kernel.blocks(), kernel.threads_per_block()) {
                    (Some(0), _) => return fail(kernel_place("grid"), "has no blocks; every extent is at least 1"),
                    (_, Some(0)) => return fail(kernel_place("block"), "has no threads; every extent is at least 1"),
                    (Some(_), None) => return fail(kernel_place("block"), "missing although grid is given"),
                    (None, Some(_)) => return fail(kernel_place("grid"), "missing although block is given"),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"format": "habitat-profile", "version": 1,
        "workload": {"name": "w", "mode": "training"},
        "operations": [{"name": "aten::mm", "phase": "forward", "inputs": [[4, 2], [2, 3]], "dtype": "float32",
            "device_time_us": 10, "kernels": [{"name": "k", "duration_us": 9.5, "grid": [1,1,1], "block": [32,1,1]}]}]}"#;

    fn error(json: &str) -> String {
        from_json(json.as_bytes()).expect_err("must be refused").to_string()
    }

    #[test]
    fn a_minimal_profile_reads_and_round_trips() {
        let (profile, warnings) = from_json(MINIMAL.as_bytes()).unwrap();
        assert_eq!(warnings, []);
        assert_eq!(profile.operations[0].count, 1);
        let (again, _) = Profile::from_json(&profile.to_json().unwrap()).unwrap();
        assert_eq!(profile, again);
    }

    /// Exact to the last digit: a plan identifies its step by the profile's hash.
    #[test]
    fn times_are_read_as_they_were_written() {
        let (mut profile, _) = from_json(MINIMAL.as_bytes()).unwrap();
        for time in [20.000_042_666_666_666, 0.095_238_095_238_095_25, 1.0 / 3.0] {
            profile.operations[0].device_time = habitat_base::units::Micros::new(time).ok();
            let (again, _) = Profile::from_json(&profile.to_json().unwrap()).unwrap();
            assert_eq!(profile, again);
            assert_eq!(profile.sha256().unwrap(), again.sha256().unwrap());
        }
    }

    #[test]
    fn a_list_without_end_is_refused_where_it_is_too_long() {
        let with =
            |list: &str| MINIMAL.replacen("\"dtype\"", &format!("\"attributes\": {{\"a\": {list}}}, \"dtype\""), 1);
        let list = |count: usize| with(&format!("[{}1]", "1,".repeat(count - 1)));
        assert!(from_json(list(most::VALUES).as_bytes()).is_ok());
        let said = error(&list(most::VALUES + 1));
        assert!(said.starts_with("operations[0].attributes.a") && said.contains("more than 65536 values"), "{said}");
        let said = error(&with("{}"));
        assert!(said.contains("expected true, false, a number, a text, or a list of them"), "{said}");
        let (profile, _) = from_json(with("[1, -1, 18446744073709551615, 0.5, true, \"x\", []]").as_bytes()).unwrap();
        assert_eq!(
            profile.to_json().unwrap(),
            Profile::from_json(&profile.to_json().unwrap()).unwrap().0.to_json().unwrap()
        );
    }

    #[test]
    fn unknown_fields_are_warned_about() {
        let json = MINIMAL.replacen("\"name\": \"w\"", "\"name\": \"w\", \"colour\": \"red\"", 1);
        let (_, warnings) = from_json(json.as_bytes()).unwrap();
        assert_eq!(warnings.len(), 1);
        assert_eq!(warnings[0].to_string(), "workload.colour: unknown field, ignored");
    }

    #[test]
    fn errors_name_the_field_and_the_place() {
        assert!(error("").contains("empty"));
        assert!(error("{").contains("line 1"));
        assert!(error("[1]").contains("line 1"));
        assert!(error("{\"format\": \"x\"}").starts_with("format: found \"x\""));
        assert!(error("{\"traceEvents\": []}").contains("habitat-tui import"));
        let version = error(&MINIMAL.replacen("\"version\": 1", "\"version\": 9", 1));
        assert!(version.starts_with("version: found 9"), "{version}");
        let negative = error(&MINIMAL.replacen("9.5", "-9.5", 1));
        assert!(negative.starts_with("operations[0].kernels[0].duration_us: -9.5 is not a valid time"), "{negative}");
        let kind = error(&MINIMAL.replacen("\"device_time_us\": 10", "\"device_time_us\": \"ten\"", 1));
        assert!(kind.starts_with("operations[0].device_time_us: invalid type"), "{kind}");
        let huge = error(&MINIMAL.replacen("9.5", "1e999", 1));
        assert!(huge.contains("number out of range"), "{huge}");
        let none = error(
            r#"{"format": "habitat-profile", "version": 1, "workload": {"name": "w", "mode": "training"}, "operations": []}"#,
        );
        assert!(none.starts_with("operations: empty"), "{none}");
        let grid = error(&MINIMAL.replacen("[1,1,1]", "[0,1,1]", 1));
        assert!(grid.starts_with("operations[0] (aten::mm).kernels[0].grid: has no blocks"), "{grid}");
    }

    #[test]
    fn a_timeline_may_be_there_and_is_checked() {
        let with = |lane: &str| {
            let timeline = format!(
                r#""timeline": {{"duration_us": 9, "parts": [{{"operation": 0}}], "lanes": [{lane}]}}, "operations""#
            );
            MINIMAL.replacen("\"operations\"", &timeline, 1)
        };
        let lane = r#"{"kind": "compute", "start_us": [1, 5], "duration_us": [2, 3], "part": [0, 0]}"#;
        let (profile, warnings) = from_json(with(lane).as_bytes()).unwrap();
        assert_eq!((profile.timeline.as_ref().map(|timeline| timeline.lanes.len()), warnings), (Some(1), vec![]));
        let (again, _) = Profile::from_json(&profile.to_json().unwrap()).unwrap();
        assert_eq!(profile, again);
        for (from, to, said) in [
            ("[1, 5]", "[5, 1]", "timeline.lanes[0].start_us[1]: 1 is before"),
            ("[1, 5]", "[1, 1e999]", "timeline.lanes[0].start_us[1]: number out of range"),
            ("[1, 5]", "[-1, 5]", "timeline.lanes[0].start_us[0]: -1 is not a valid time"),
            ("[2, 3]", "[2]", "timeline.lanes[0].duration_us: has 1 values"),
            ("[2, 3]", "[2, 1e13]", "timeline.lanes[0].duration_us[1]: the interval ends at"),
            ("[0, 0]", "[0, 1]", "timeline.lanes[0].part[1]: 1; there are 1 parts"),
            ("compute", "weather", "timeline.lanes[0].kind: unknown variant"),
        ] {
            let found = error(&with(&lane.replacen(from, to, 1)));
            assert!(found.starts_with(said), "{found}");
        }
    }

    #[test]
    fn what_no_step_has_is_refused_with_place_and_value() {
        for (from, to, said) in [
            ("9.5", "1e300", "operations[0].kernels[0].duration_us: 1e300 is not a valid time"),
            ("9.5", "-0.0", "operations[0].kernels[0].duration_us: -0 is not a valid time"),
            ("[4, 2]", "[4, 18446744073709551615]", "operations[0] (aten::mm).inputs: [4, 18446744073709551615]"),
            ("[1,1,1]", "[4294967295,4294967295,4294967295]", "operations[0] (aten::mm).kernels[0].grid: [4294967295"),
            (
                "[32,1,1]",
                "[4294967295,4294967295,4294967295]",
                "operations[0] (aten::mm).kernels[0].block: [4294967295",
            ),
            (
                "\"device_time_us\"",
                "\"count\": 4294967295, \"device_time_us\"",
                "operations[0] (aten::mm).count: 4294967295",
            ),
            (
                "\"mode\"",
                "\"batch_size\": 10000000000000000000, \"mode\"",
                "workload.batch_size: 10000000000000000000;",
            ),
        ] {
            let found = error(&MINIMAL.replacen(from, to, 1));
            assert!(found.starts_with(said), "{found}");
        }
    }
}
