//! Jobs files that are accepted and refused.

use super::*;
use habitat_base::units::Usd;
use habitat_planning::deadline::Deadline;
use habitat_planning::plan::Confidence;
use serde_json::Value;

fn said(text: &str) -> String {
    JobsFile::parse(text).unwrap_err().to_string()
}

const JOB: &str = "[[job]]\nname = \"a\"\nprofile = \"a.json\"\nsteps = 10\n";

#[test]
fn the_example_of_the_header_reads() {
    let file = JobsFile::parse(&crate::settings::example(include_str!("../jobs.rs"))).unwrap();
    assert_eq!(file.top.deadline, Hours::new(72.0).ok().map(Deadline::Within));
    assert_eq!(file.top.budget, Usd::new(900.0).ok());
    assert_eq!(file.top.quota[0].to_string(), "16 at aws, until 12 h");
    assert_eq!(file.top.confidence, Some(Confidence::High));
    assert_eq!(file.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["translation", "images"]);
    assert_eq!((file.jobs[0].line, file.jobs[1].line), (11, 18));
    assert_eq!(file.jobs[0].wish.deadline, Hours::new(24.0).ok().map(Deadline::Within));
    assert_eq!(file.jobs[1].wish.gpus, ["a100", "h100"]);
}

/// Problems of a value by its schema, as far as the schema of jobs goes.
fn problems(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let none = Vec::new();
    let all = |key: &str| schema[key].as_array().unwrap_or(&none).iter().map(|one| problems(root, one, value, at));
    let mut found: Vec<String> = all("allOf").flatten().collect();
    if let Some(name) = schema["$ref"].as_str() {
        found.extend(problems(root, root.pointer(&name[1..]).unwrap(), value, at));
    }
    for (key, valid) in [("anyOf", 1..=usize::MAX), ("oneOf", 1..=1)] {
        let count = all(key).filter(Vec::is_empty).count();
        found.extend((schema[key].is_array() && !valid.contains(&count)).then(|| format!("{at}: {key}: {count}")));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        Value::Null => vec![],
        one => vec![one.clone()],
    };
    let is = |one: &Value| match one.as_str().unwrap() {
        "number" => value.is_number(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => other == "null" && value.is_null(),
    };
    let is_listed = ["const", "enum"].iter().all(|key| match &schema[key] {
        Value::Null => true,
        Value::Array(all) => all.contains(value),
        one => one == value,
    });
    found.extend((!is_listed || !(types.is_empty() || types.iter().any(is))).then(|| format!("{at}: {value}")));
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(problems(root, &schema["items"], item, &format!("{at}[{place}]")));
    }
    let fields = value.as_object().filter(|_| schema["properties"].is_object());
    for (key, field) in fields.into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(known) => found.extend(problems(root, known, field, &format!("{at}.{key}"))),
            None => found.extend((schema["additionalProperties"] == false).then(|| format!("{at}.{key}: unknown"))),
        }
    }
    let required = schema["required"].as_array().unwrap_or(&none).iter().filter(|_| value.is_object());
    found
        .extend(required.filter(|key| value.get(key.as_str().unwrap()).is_none()).map(|key| format!("{at}: no {key}")));
    found
}

#[test]
fn the_schema_accepts_jobs_files_and_no_other_keys() {
    let schema = JobsFile::json_schema();
    let check = |text: &str| {
        let value = toml::from_str::<toml::Value>(text).unwrap();
        problems(&schema, &schema, &serde_json::to_value(value).unwrap(), "")
    };
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(root.join("tests/fixtures/jobs")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "toml"));
    let mut texts: Vec<String> = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
    texts.push(crate::settings::example(include_str!("../jobs.rs")));
    for page in ["docs/guide.md", "docs/formats.md"] {
        let page = std::fs::read_to_string(root.join(page)).unwrap();
        let blocks = page.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned());
        texts.extend(blocks.filter(|block| block.contains("[[job]]") && block.contains("profile =")));
    }
    assert!(texts.len() > 5, "{}", texts.len());
    for text in &texts {
        assert_eq!(check(text), [""; 0], "{text}");
    }
    for (text, problem) in [
        (format!("budgett = 1\n{JOB}"), ".budgett: unknown"),
        (format!("{JOB}max_gpu = 3"), ".job[0].max_gpu: unknown"),
        (format!("{JOB}max_parts = 2"), ".job[0].max_parts: unknown"),
        (format!("{JOB}launch.commands = \"x\""), ".job[0].launch.commands: unknown"),
        (format!("{JOB}[[machine]]\ngpu = \"v100\"\nshared = true"), ".machine[0].shared: unknown"),
        (format!("{JOB}[[quota]]\nprovider = \"aws\"\ngpu = \"l4\""), ".quota[0]: no \"gpus\""),
        (format!("{JOB}gpus = \"l4\""), ".job[0].gpus: \"l4\""),
        (format!("{JOB}samples = 3"), ".job[0]: oneOf: 2"),
        ("[[job]]\nname = \"a\"\nsteps = 3".to_owned(), ".job[0]: no \"profile\""),
        (String::new(), ": no \"job\""),
    ] {
        assert!(JobsFile::parse(&text).is_err(), "{text}");
        assert_eq!(check(&text), [problem], "{text}");
    }
    // The parser knows each key of the schema.
    for key in schema.pointer("/definitions/JobTable/properties").unwrap().as_object().unwrap().keys() {
        let problem = JobsFile::parse(&format!("[[job]]\n{key} = {{}}\nname = \"b\"\nprofile = \"b\"")).err();
        let problem = problem.map_or_else(String::new, |problem| problem.to_string());
        assert!(!problem.contains("unknown field"), "{problem}");
    }
}

#[test]
fn what_is_wrong_is_named_with_its_line() {
    assert!(said("").contains("no [[job]]"));
    let yaml = said("name: train\nresources:\n  accelerators: \"H100:1\"\n");
    assert!(
        yaml.starts_with("line 1: ") && yaml.ends_with("; a jobs file is TOML with a [[job]] for each job"),
        "{yaml}"
    );
    assert!(!said(&format!("{JOB}steps 3")).contains("a jobs file is TOML"));
    assert!(said("[[job]]\nsteps = 1").starts_with("line 1: name: missing; set one"));
    let many = said(&"[[job]]\n".repeat(MOST_JOBS + 1));
    assert!(many.starts_with("line 1001: 1001 jobs, but at most 1000"), "{many}");
    assert!(said("[[job]]\nname = 7").starts_with("line 1: name: 7, not a string"));
    assert!(said("budgett = 1\n").contains("budgett"));
    assert_eq!(
        said(&format!("{JOB}\n{JOB}")),
        "line 6: job \"a\": line 1 has a job with this name; names must be unique"
    );
    assert!(said("[[job]]\nname = \"b\"\nsteps = 1").starts_with("line 1: job \"b\": no profile"));
    assert!(said("[[job]]\nname = \"b\"\nprofile = \"b\"").contains("no amount of work"));
    let wrong = said(&format!("{JOB}samples = 3"));
    assert_eq!(wrong, "line 1: job \"a\": work: only one of samples, steps, epochs and tokens can be set");
    let deadline = said(&format!("{JOB}deadline = \"soon\""));
    assert!(deadline.starts_with("line 5: job \"a\": deadline: \"soon\" is not a valid deadline"), "{deadline}");
    let unknown = said(&format!("{JOB}\nmax_gpu = 3"));
    assert!(unknown.starts_with("line 6: job \"a\": max_gpu: unknown field `max_gpu` (near: max_gpus"), "{unknown}");
    let types = [
        ("gpus = \"l4\"", "string \"l4\", expected a list, such as [\"a\", \"b\"]"),
        ("count = 2.0", "floating point `2.0`, expected a whole number"),
        ("priority = \"high\"", "string \"high\", expected a number"),
        ("priority = 1e300", "1e300; use a number from 1e-6 to 1e6, such as 10: jobs of higher priority end earlier"),
    ];
    for (line, problem) in types {
        let key = line.split(' ').next().unwrap();
        assert_eq!(said(&format!("{JOB}{line}")), format!("line 5: job \"a\": {key}: {problem}"));
    }
    assert!(
        said(&format!("{JOB}confidence = \"high\"")).starts_with("line 5: job \"a\": confidence belongs at the top")
    );
    assert!(said(&format!("{JOB}max_parts = 2")).contains("max_parts is always 1"));
    assert!(said(&format!("deadline = \"soon\"\n{JOB}")).starts_with("line 1: deadline: "));
}

#[test]
fn what_needs_jobs_that_wait_is_refused_without() {
    let late = said(&format!("{JOB}not_before_hours = 2"));
    assert_eq!(
        late,
        "line 1: job \"a\": not_before_hours: only works if jobs may wait: add wait = true at the top of the file"
    );
    let window = "[[quota]]\nprovider = \"aws\"\ngpus = 0\nuntil_hours = 12\n";
    assert!(said(&format!("{JOB}\n{window}")).starts_with("line 9: until_hours: only works if jobs may wait"));
    let file = JobsFile::parse(&format!("wait = true\n{JOB}not_before_hours = 2\n{window}")).unwrap();
    assert_eq!((file.jobs[0].time.not_before_hours, file.top.wait), (Hours::new(2.0).unwrap(), true));
    assert_eq!(file.top.quota[0].to_string(), "0 at aws, until 12 h");
    let never = said(&format!("wait = true\n{JOB}\n{window}from_hours = 12"));
    assert!(never.starts_with("line 10: until_hours: 12 is not after the quota's from_hours, 12"), "{never}");
    let own = said(&format!("{JOB}[[job.quota]]\nprovider = \"aws\"\ngpus = 0\nfrom_hours = 1"));
    assert!(own.contains("quota: from_hours and until_hours are only allowed in a [[quota]] at the top"), "{own}");
    let machine = said(&format!("wait = true\n{JOB}[[machine]]\ngpu = \"v100\""));
    assert!(machine.starts_with("line 1: wait: has no effect with [[machine]]"), "{machine}");
    assert!(said(&format!("wait = true\n{JOB}not_before_hours = -1")).contains("not_before_hours"));
}

#[test]
fn machines_and_rented_offers_rule_each_other_out() {
    let machine = "[[machine]]\ngpu = \"v100\"\n";
    let file = JobsFile::parse(&format!("{JOB}{machine}")).unwrap();
    assert_eq!((file.machines[0].gpus, file.machines[0].count, file.machines[0].line), (1, 1, 5));
    assert!(said(&format!("budget = 5\n{JOB}{machine}")).starts_with("line 1: budget: does not apply to [[machine]]"));
    assert!(
        said(&format!("{JOB}regions = [\"eu\"]\n{machine}"))
            .contains("job \"a\": regions: does not apply to [[machine]]")
    );
    assert!(
        said(&format!("{JOB}max_machines = 2\n{machine}"))
            .contains("job \"a\": max_machines: does not apply to [[machine]]")
    );
    let divided = said(&format!("{JOB}tensor_parallel = 0"));
    assert!(divided.contains("job \"a\": tensor_parallel: must be 1 to 1024"), "{divided}");
    let network = said(&format!("{JOB}network_gbit_per_second = 100\n{machine}"));
    assert!(network.contains("job \"a\": network_gbit_per_second: does not apply to [[machine]]"), "{network}");
    let both =
        JobsFile::parse(&format!("rent = true\nbudget = 5\n{JOB}regions = [\"eu\"]\n{machine}share = true")).unwrap();
    assert!(both.top.rent && both.machines[0].share);
    assert!(said(&format!("rent = true\n{JOB}")).starts_with("line 1: rent: without [[machine]]"));
    assert!(said(&format!("{JOB}{machine}count = 0")).contains("machine \"v100\": count: 0"));
    assert!(said(&format!("{JOB}{machine}{machine}")).starts_with("line 7: machine \"v100\": another machine"));
    assert!(said(&format!("{JOB}{machine}count = 201")).contains("at most 200"));
}

#[test]
fn copies_and_jobs_that_wait_for_them() {
    let sweep = JOB.replace("\"a\"", "\"sweep\"") + "count = 3\n";
    let last = JOB.replace("\"a\"", "\"last\"");
    let file =
        JobsFile::parse(&format!("wait = true\n{last}after = [\"sweep\", \"a\"]\narrives = \"2h\"\n{sweep}{JOB}"))
            .unwrap();
    let names: Vec<&str> = file.jobs.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["last", "sweep 1", "sweep 2", "sweep 3", "a"]);
    assert_eq!(file.jobs[0].after, [1, 2, 3, 4]);
    assert_eq!(file.jobs[0].time.arrives, Hours::new(2.0).ok().map(Deadline::Within));
    // On machines, jobs always follow one another.
    assert!(JobsFile::parse(&format!("{JOB}{last}after = [\"a\"]\n[[machine]]\ngpu = \"v100\"")).is_ok());
    for (text, expected) in [
        (format!("{JOB}count = 1000000"), "line 5: count: 1000000 makes 1000000 jobs, but at most 1000"),
        (format!("{JOB}count = 0"), "line 5: job \"a\": count: 0; omit the job"),
        (format!("{JOB}count = -1"), "line 5: job \"a\": count: "),
        (
            format!("{sweep}{}", JOB.replace("\"a\"", "\"sweep 2\"")),
            "line 6: job \"sweep 2\": line 1 has a job with this name",
        ),
        (format!("{JOB}after = [\"a\"]"), "line 5: job \"a\": after: \"a\" waits for itself"),
        (
            format!("{JOB}after = [\"last\"]\n{last}after = [\"a\"]"),
            "line 5: job \"a\": after: \"a\" after \"last\" after \"a\" wait for one another in a cycle",
        ),
        (format!("{JOB}{last}after = [\"aa\"]"), "line 9: job \"last\": after: no job is named \"aa\" (near: a"),
        (format!("{JOB}priority = 0"), "line 5: job \"a\": priority: 0; use a number from 1e-6 to 1e6"),
        (format!("{JOB}priority = 3"), "line 1: job \"a\": priority: only works if jobs may wait"),
        (format!("{JOB}arrives = 3"), "line 1: job \"a\": arrives: only works if jobs may wait"),
        (
            format!("{JOB}arrives = 3\nnot_before_hours = 2"),
            "line 5: job \"a\": arrives and not_before_hours mean the same",
        ),
        (format!("{JOB}arrives = \"soon\""), "line 5: job \"a\": arrives: \"soon\" is not a valid"),
    ] {
        let problem = said(&text);
        assert!(problem.starts_with(expected), "{problem}");
    }
}

#[test]
fn copies_that_stop_early_become_rungs() {
    let sweep =
        JOB.replace("\"a\"", "\"sweep\"").replace("10", "1000") + "count = 40\nsurvive = 0.1\ncheck = [0.1, 0.4]\n";
    let last = JOB.replace("\"a\"", "\"last\"") + "after = [\"sweep\"]\n";
    let file = JobsFile::parse(&format!("wait = true\n{sweep}{last}")).unwrap();
    let rungs: Vec<(&str, Option<u64>, &[usize])> =
        file.jobs.iter().map(|job| (job.name.as_str(), job.wish.steps, job.after.as_slice())).collect();
    let first: Vec<usize> = (0..40).collect();
    assert_eq!((rungs.len(), rungs[0]), (46, ("sweep 1", Some(100), &[][..])));
    assert_eq!(rungs[40], ("sweep rung 2 1", Some(300), &first[..]));
    assert_eq!(rungs[44], ("sweep rung 3 1", Some(600), &[40, 41, 42, 43][..]));
    assert_eq!(rungs[45], ("last", Some(10), &[44][..]));
    assert_eq!(file.jobs[43].time.launch.env["RUNG"], "2");
    for (more, expected) in [
        ("survive = 0.5\ncheck = 0.1", "line 5: job \"a\": survive: needs count"),
        ("count = 4\nsurvive = 1.5\ncheck = 0.1", "line 6: job \"a\": survive: 1.5; use a share above 0 and below 1"),
        ("count = 4\nsurvive = nan\ncheck = 0.1", "line 6: job \"a\": survive: NaN; use a share"),
        ("count = 4\nsurvive = 0.5", "line 6: job \"a\": survive: needs check"),
        ("count = 4\ncheck = 0.5", "line 6: job \"a\": check: needs survive"),
        (
            "count = 4\nsurvive = 0.5\ncheck = [0.4, 0.1]",
            "line 7: job \"a\": check: 0.1 after 0.4; use shares that grow",
        ),
        ("count = 4\nsurvive = 0.5\ncheck = [0.0]", "line 7: job \"a\": check: 0; use shares of the work"),
        ("count = 4\nsurvive = 0.5\ncheck = \"10%\"", "line 7: job \"a\": check: expected a share of the work"),
        ("count = 4\nsurvive = 0.5\ncheck = 0.1\nbudget = 3", "line 8: job \"a\": budget: does not apply to copies"),
        ("count = 900\nsurvive = 0.5\ncheck = 0.1", "line 5: count: 900 makes 1350 jobs, but at most 1000"),
    ] {
        let problem = said(&format!("{JOB}{more}\n[[machine]]\ngpu = \"v100\""));
        assert!(problem.starts_with(expected), "{problem}");
    }
    let problem = said(&format!("{JOB}count = 4\nsurvive = 0.5\ncheck = 0.1"));
    assert!(problem.starts_with("line 1: job \"a\": survive: only works if jobs may wait"), "{problem}");
}

#[test]
fn deadlines_that_may_be_missed_have_a_price() {
    let soft = "late_usd_per_hour = \"$3\"\n";
    let file = JobsFile::parse(&format!("deadline = 9\n{soft}hour_value = 2\n{JOB}deadline = 5\n{soft}")).unwrap();
    let price = UsdPerHour::new(3.0).ok();
    assert_eq!(
        (file.top.late_usd_per_hour, file.jobs[0].time.late_usd_per_hour, file.top.hour_value),
        (price, price, UsdPerHour::new(2.0).ok())
    );
    let problem = said(&format!("{soft}{JOB}"));
    assert!(problem.starts_with("line 1: late_usd_per_hour: needs deadline at the top"), "{problem}");
    let problem = said(&format!("deadline = 9\n{JOB}{soft}"));
    assert!(problem.starts_with("line 6: job \"a\": late_usd_per_hour: needs deadline in this job"), "{problem}");
    let problem = said(&format!("wait = true\nhour_value = true\n{JOB}"));
    assert!(problem.starts_with("line 2: hour_value: "), "{problem}");
    let problem = said(&format!("{JOB}hour_value = -1"));
    assert!(problem.starts_with("line 5: job \"a\": hour_value: "), "{problem}");
}
