//! Report of two recordings of a step.

use super::super::recordings::{self, Recordings, TOP};
use super::super::table::Table;
use super::markup::{details, escaped, paragraph, section, table};
use super::{footer, page, step_of};
use habitat_base::text::{capitalised, clean};

/// The whole file: the difference of the steps, its largest parts, and both steps with their idle time.
pub fn of_recordings(compared: &Recordings<'_>, command: &str, created: jiff::Timestamp) -> String {
    let [first, second] = compared.difference.steps;
    let title = format!("{}: two recordings", clean(&second.workload.name, 80));
    // The sentence that comes last in text leads here.
    let mut lines = recordings::lines(compared);
    lines.rotate_right(1);
    let lines: String = lines.iter().map(|line| paragraph("", &capitalised(line.trim()))).collect();
    let mut all = recordings::table(compared, usize::MAX);
    // Counts and shapes show the match too, and the drawing needs the room.
    for column in all.columns.iter_mut().filter(|column| column.heading == "matched") {
        column.heading = "".into();
    }
    let rows = |rows: &[_]| Table { rows: rows.to_vec(), ..all.clone() };
    let (most, rest) = all.rows.split_at(all.rows.len().min(TOP));
    let folded = if rest.is_empty() {
        String::new()
    } else {
        details(&format!("{} more parts", rest.len()), &table(&rows(rest)))
    };
    let body = [
        format!("<h1>{}</h1>\n", escaped(&title)),
        format!("<div class=\"verdict\">\n{lines}</div>\n"),
        section("Difference by part", &(table(&rows(most)) + &folded)),
        section("First recording", &(paragraph("muted", compared.labels[0]) + &step_of(first))),
        section("Second recording", &(paragraph("muted", compared.labels[1]) + &step_of(second))),
        footer(command, created),
    ];
    page(&title, &body.concat())
}
