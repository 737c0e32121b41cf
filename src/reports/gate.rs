//! The verdict of `diff --fail-over` on two recordings: a sentence, and a `JUnit` report for CI.

use std::fmt::Write as _;

use super::recordings::{Recordings, lines};
use super::{format, html};
use habitat_step::profile::difference::Spread;

/// Two recordings, and the limit on the second step.
#[derive(Debug, Clone, Copy)]
pub struct Gate<'a> {
    /// The recordings.
    pub compared: &'a Recordings<'a>,
    /// Largest share by which the second step may be longer; `None` without a limit.
    pub most: Option<f64>,
}

impl Gate<'_> {
    /// Sentence on a step that is too long.
    pub fn failure(&self) -> Option<String> {
        let (share, most) = self.compared.difference.share().zip(self.most).filter(|(share, most)| share > most)?;
        let chance = match self.compared.difference.spread() {
            Spread::Beyond => "",
            Spread::Within => "; this may be noise: the recorded step times overlap",
            Spread::Unknown => "; it could be noise: a recording has a single step",
        };
        Some(format!(
            "the second step is {} longer than the first, more than the {} of --fail-over{chance}",
            format::percent(share),
            format::percent(most)
        ))
    }

    /// First line of a summary in Markdown; `None` without a limit.
    pub fn markdown(&self) -> Option<String> {
        let most = self.most?;
        Some(match self.failure() {
            Some(failure) => format!("**Failed**: {failure}."),
            None => format!("**Passed**: the second step is not more than {} longer.", format::percent(most)),
        })
    }

    /// Report in the form that CI systems read: a test whose time is that of the second step.
    pub fn junit(&self) -> String {
        let difference = &self.compared.difference;
        let failure = self.failure();
        let name = difference.steps[1].workload.name.as_str();
        let count = u8::from(failure.is_some());
        let seconds = difference.totals[1].get() / 1e6;
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        let facts = lines(self.compared).join("\n");
        // Writing to a string does not fail.
        _ = write!(
            xml,
            "<testsuites name=\"habitat-tui diff\" tests=\"1\" failures=\"{count}\">\n  \
             <testsuite name=\"habitat-tui diff\" tests=\"1\" failures=\"{count}\" errors=\"0\" skipped=\"0\" time=\"{seconds:.6}\">\n    \
             <testcase classname=\"{}\" name=\"step time\" time=\"{seconds:.6}\">\n",
            escaped(name)
        );
        if let Some(failure) = failure {
            _ = writeln!(
                xml,
                "      <failure type=\"longer\" message=\"{}\">{}</failure>",
                escaped(&failure),
                escaped(&facts)
            );
        }
        _ = write!(
            xml,
            "      <system-out>{}</system-out>\n    </testcase>\n  </testsuite>\n</testsuites>\n",
            escaped(&facts)
        );
        xml
    }
}

/// Text of an attribute or an element. Line ends stay.
fn escaped(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(html::escaped).collect();
    // Not characters of XML, even as references.
    lines.join("\n").replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}")
}
