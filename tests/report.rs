//! Reports to share: one HTML file, and Markdown with title, goal and summary.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use crate::program::Folder;

fn place() -> Folder {
    Folder::at("1795806000")
}

/// The checked report of a command.
fn report(place: &Folder, args: &[&str]) -> String {
    let output = place.run(&[args, &["--html", "report.html", "--force"]].concat());
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    let html = std::fs::read_to_string(place.path("report.html")).unwrap();
    check(&html);
    html
}

/// Needs neither network nor scripts, closes its tags, and has the command and the date.
fn check(html: &str) {
    for foreign in ["<script", "http://", "https://", "src=", "url(", "@import", "<link", "NaN"] {
        // A policy, and sources of assumptions: none of them is fetched.
        assert!(!html.contains(foreign), "{foreign}");
    }
    for tag in ["section", "table", "div", "details", "svg", "p", "ul", "li", "tr", "td", "dl", "main", "html"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    assert!(html.contains("Made on Friday 27 November 2026, 19:00 UTC"), "{html}");
    assert!(html.contains("<code>habitat-tui p"), "{html}");
}

#[test]
fn a_plan_has_everything_that_is_to_be_shared() {
    let html = report(
        &place(),
        &[
            "plan",
            "--sample",
            "resnet50-v100",
            "--epochs",
            "90",
            "--dataset",
            "1.28M",
            "--deadline",
            "Friday 18:00",
            "--budget",
            "$400",
        ],
    );
    for part in [
        "<h1>Training plan: resnet50</h1>",
        "Take 2",
        "the GPU is idle",
        "Friday 4 December 2026, 18:00 UTC",
        "90 epochs of 1,280,000 samples",
        "<h2>Cost against time</h2>",
        "class=\"chosen\"",
        ">deadline</text>",
        "<h2>The plan over time</h2>",
        "<h2>Time of the recorded step</h2>",
        "class=\"idle\"",
        "<h2>Assumptions</h2>",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn predictions_have_points_with_names_and_two_gpus_their_difference() {
    let place = place();
    let html = report(&place, &["predict", "--sample", "resnet50-v100"]);
    assert!(html.contains("Fastest GPU: ") && html.contains("\">h200"), "{html}");
    assert!(html.contains("more GPUs</summary>"), "{html}");
    let html =
        report(&place, &["predict", "--sample", "resnet50-v100", "--to", "v100-sxm2-32gb,h100-sxm", "--difference"]);
    assert!(html.contains("<h2>A against B</h2>") && html.contains("class=\"better\""), "{html}");
    assert!(html.contains("v100-sxm2-32gb against h100-sxm5-80gb"), "{html}");
    // A GPU that needs micro-batches is a point too, with their size.
    let html = report(&place, &["predict", "--to", "h100-sxm,4090", "--difference"]);
    assert!(html.contains("rtx-4090 ≤ 16</text>") && html.contains("class=\"split\""), "{html}");
}

#[test]
fn two_recordings_have_a_report_too() {
    let place = place();
    let sample = |name: &str| format!("{}/profiler/samples/{name}.habitat.json.zst", env!("CARGO_MANIFEST_DIR"));
    let [first, second] = [sample("resnet50-v100-b32"), sample("resnet50-h200-b256")];
    let output = place.run(&["diff", &first, &second, "--html", "diff.html"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let html = std::fs::read_to_string(place.path("diff.html")).unwrap();
    for part in ["<p>The step takes ", "<h2>Difference by part</h2>", "<h2>Second recording</h2>", "habitat-tui diff"] {
        assert!(html.contains(part), "{part}");
    }
    assert!(place.error(&["diff", &first, &second, "--html", "diff.html"]).contains("--force"));
}

#[test]
fn no_plan_has_its_reasons() {
    let html = report(&place(), &["plan", "--steps", "1M", "--budget", "1"]);
    assert!(html.contains("<p>No firm plan for 32,000,000 samples within these limits:</p>\n<p>spend "), "{html}");
    assert!(!html.contains("<h2>The plan over time</h2>"), "{html}");
}

/// Names come from files.
#[test]
fn foreign_names_are_text() {
    let place = place();
    let evil = "<script>alert(1)</script><img src=x onerror=alert(1)>";
    let profile = format!(
        r#"{{"format": "habitat-profile", "version": 1,
            "workload": {{"name": "{evil}", "mode": "training", "batch_size": 8, "parameter_count": 1000}},
            "origin": {{"gpu": "t4", "gpu_name": "{evil}"}},
            "step": {{"duration_us": 1000, "device_busy_us": 600}},
            "operations": [{{"name": "aten::{evil}", "phase": "forward", "inputs": [[64, 64], [64, 64]], "dtype": "float32", "device_time_us": 500}}]}}"#
    );
    std::fs::write(place.path("evil.habitat.json"), profile).unwrap();
    for args in [&["plan", "evil.habitat.json", "--steps", "1k"][..], &["predict", "evil.habitat.json"]] {
        let output = place.run(&[args, &["--html", "evil.html", "--force"]].concat());
        let html = std::fs::read_to_string(place.path("evil.html"))
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
        assert!(!html.contains("<script") && !html.contains("<img") && html.contains("&lt;script&gt;"), "{html}");
    }
}

#[test]
fn a_file_that_is_there_is_kept() {
    let place = place();
    std::fs::write(place.path("r.html"), "mine").unwrap();
    for args in
        [&["plan", "--steps", "1k", "-o", "x.html"][..], &["predict", "-o", "x.html"], &["gpus", "-o", "x.HTML"]]
    {
        let output = place.run(args);
        assert!(String::from_utf8_lossy(&output.stderr).contains("--html FILE"), "{args:?}: {output:?}");
        assert!(!place.path(args[args.len() - 1]).exists(), "{args:?}");
    }
    let refused = place.run(&["plan", "--steps", "1k", "--html", "r.html"]);
    assert_eq!(
        (refused.status.code(), std::fs::read_to_string(place.path("r.html")).unwrap()),
        (Some(2), "mine".to_owned())
    );
}

#[test]
fn markdown_of_a_plan_has_title_goal_and_summary() {
    let place = place();
    let output = place.run(&["plan", "--sample", "resnet50-v100", "--steps", "10k", "--budget", "$50", "--markdown"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("# Training plan: resnet50\n\n**Take "), "{text}");
    for part in [
        "- Step: embedded sample, not your program",
        "- Budget: $50",
        "- Work: 10,000 steps",
        "| part | offer |",
        "Made on 2026-11-27 19:00 UTC with `habitat-tui plan",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

/// In any form, the embedded sample is named: in the text, or on standard error beside machine-readable output.
#[test]
fn every_output_names_the_embedded_sample() {
    let place = place();
    let plan = ["plan", "--steps", "1k"];
    for (args, is_in_text) in [
        (&["predict"][..], true),
        (&["predict", "--markdown"], true),
        (&["predict", "--json"], false),
        (&["predict", "--csv"], false),
        (&["predict", "--all-methods", "--markdown"], false),
        (&["batches", "--to", "l4"], true),
        (&plan, true),
        (&[plan[0], plan[1], plan[2], "--markdown"], true),
        (&[plan[0], plan[1], plan[2], "--json"], false),
        (&[plan[0], plan[1], plan[2], "--frontier"], false),
    ] {
        let output = place.run(args);
        let [text, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let is_named = |text: &str| text.contains("embedded sample, not your program");
        assert_eq!((is_named(&text), is_named(&said)), (is_in_text, !is_in_text), "{args:?}: {said}");
    }
}

/// The page has the content of the text: its uncertainty, the meaning of `≤ N`, and the advice on memory.
#[test]
fn predictions_on_a_page_are_explained() {
    let html = report(&place(), &["predict", "--to", "rtx-4090,h100-sxm5-80gb"]);
    for part in [
        "How sure: ",
        "micro-batches of N do",
        "Does not fit on rtx-4090",
        "share of device time",
        "firm on-demand price",
    ] {
        assert!(html.contains(part), "{part}");
    }
}
