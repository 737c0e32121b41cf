//! HTML from text and tables. All text passes through [`escaped`], since names of operators, offers and files are
//! untrusted.

use std::fmt::Write;

use super::super::table::{Cell, Column, Graphic, Table};
use super::super::timeline::Lane;
use crate::theme::Role;
use habitat_base::text::clean;

/// Maximum length of a cell's text.
const LONGEST: usize = 600;
/// Number of characters above which a cell may wrap.
const WRAPS: usize = 34;

/// Columns that terminals may cut to fewer cells wrap.
const NARROW: u16 = 12;

/// Escapes text for use between tags and in quoted attributes; replaces unprintable characters.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in clean(text, 4000).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A paragraph, with a class unless `class` is empty.
pub(super) fn paragraph(class: &str, text: &str) -> String {
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<p{class}>{}</p>\n", escaped(text))
}

/// A list; empty without items.
pub(super) fn list(items: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let items = items.into_iter().fold(String::new(), |mut all, item| {
        let _ = writeln!(all, "<li>{}</li>", escaped(item.as_ref()));
        all
    });
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// A list of names with their values.
pub(super) fn facts(facts: &[(String, String)]) -> String {
    let one = |(name, value): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escaped(name), escaped(value));
    format!("<dl>\n{}</dl>\n", facts.iter().map(one).collect::<String>())
}

/// A section with a heading; empty without content.
pub(super) fn section(heading: &str, content: &str) -> String {
    if content.trim().is_empty() {
        return String::new();
    }
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escaped(heading))
}

/// A collapsed section.
pub(super) fn details(summary: &str, content: &str) -> String {
    format!("<details>\n<summary>{}</summary>\n{content}</details>\n", escaped(summary))
}

/// A table with its drawings as bars. Hides the columns that text hides.
pub(super) fn table(table: &Table) -> String {
    let has_drawing = |at: usize| table.rows.iter().any(|row| row[at].graphic.is_some());
    let shown: Vec<(usize, &Column)> = table
        .columns
        .iter()
        .enumerate()
        .filter(|(at, column)| !column.heading.is_empty() || has_drawing(*at))
        .collect();
    let mut html = String::from("<div class=\"scroll\"><table>\n<tr>");
    for (at, column) in &shown {
        let class = if has_drawing(*at) {
            "draw"
        } else if column.number {
            "number"
        } else {
            ""
        };
        let _ = write!(html, "<th class=\"{class}\">{}</th>", escaped(&column.heading));
    }
    html.push_str("</tr>\n");
    for row in &table.rows {
        let is_title = row.first().is_some_and(|cell| cell.role == Role::Title);
        html.push_str(if is_title { "<tr class=\"title\">" } else { "<tr>" });
        for (at, column) in &shown {
            html.push_str(&cell(&row[*at], column));
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table></div>\n");
    html
}

fn cell(cell: &Cell, column: &Column) -> String {
    let heading = escaped(&column.heading);
    if let Some(graphic) = &cell.graphic {
        return format!("<td class=\"draw\" data-of=\"{heading}\">{}</td>", drawing(graphic, cell.role));
    }
    let text = escaped(&clean(cell.text.trim(), LONGEST));
    let class = match () {
        () if column.number => "number",
        () if cell.text.chars().count() > WRAPS => "long",
        () if column.shrink_to.is_some_and(|least| least < NARROW) => "narrow",
        () if cell.text.starts_with("  ") => "indent",
        () => "",
    };
    let text = match class {
        "long" => text.replace('/', "/<wbr>"),
        // A number stays with its unit; its range may be on the next line.
        "number" => text.replace(' ', "&nbsp;").replace("&nbsp;(", " ("),
        _ => text,
    };
    // A phone shows the cells of a row below each other, each with its heading.
    format!("<td class=\"{class}\" data-of=\"{heading}\">{text}</td>")
}

/// The drawing of a cell as bars.
fn drawing(graphic: &Graphic, role: Role) -> String {
    let class = match role {
        Role::Warning => "worse",
        Role::Good => "better",
        Role::Muted => "other",
        _ => "busy",
    };
    let bars = match graphic {
        Graphic::Bar(end) => bar(class, 0.0, *end),
        Graphic::Between([a, b]) => bar(class, a.min(*b), a.max(*b)),
        Graphic::Range([low, mid, high]) => bar("late", *low, *high) + &bar(class, *mid, *mid),
        Graphic::Lane(lane) => of_lane(lane),
    };
    format!("<div class=\"track\">{bars}</div>")
}

/// A bar over time with its uses, range and deadline.
fn of_lane(lane: &Lane) -> String {
    if lane.axis <= 0.0 {
        return String::new();
    }
    let place = |hours: f64| hours / lane.axis;
    let mut bars = String::new();
    let mut from = lane.from;
    if let Some([earliest, latest]) = lane.range {
        bars.push_str(&bar("late", place(earliest), place(latest)));
    }
    for (end, class) in lane.ends.into_iter().zip(["setup", "training", "repeated", "waiting"]) {
        if end > from {
            bars.push_str(&bar(class, place(from), place(end)));
            from = end;
        }
    }
    if let Some(deadline) = lane.deadline.filter(|deadline| *deadline <= lane.axis) {
        bars.push_str(&bar("deadline", place(deadline), place(deadline)));
    }
    bars
}

/// A bar between two positions, as shares of the width.
pub(super) fn bar(class: &str, from: f64, to: f64) -> String {
    let percent = |share: f64| if share.is_finite() { share.clamp(0.0, 1.0) * 100.0 } else { 0.0 };
    let (from, to) = (percent(from), percent(to));
    format!("<i class=\"{class}\" style=\"left:{from:.2}%;width:{:.2}%\"></i>", (to - from).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_text() {
        let evil = "<script>alert(1)</script> & \"x\" 'y'\u{202e}\u{1b}[2J";
        let safe = escaped(evil);
        assert!(safe.starts_with("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;x&quot; &#39;y&#39;"), "{safe}");
        for html in [
            paragraph("a", evil),
            list([evil]),
            section(evil, "x"),
            details(evil, ""),
            facts(&[(evil.into(), evil.into())]),
        ] {
            assert!(!html.contains("<script") && !html.contains('\u{202e}') && !html.contains('\u{1b}'), "{html}");
        }
        let mut cells = Table::new(&[Column::text("<b>", ""), Column::number("n", "")]);
        cells.push(vec![Cell::text(evil), Cell::text("1 < 2")]);
        let html = table(&cells);
        assert!(html.contains("data-of=\"&lt;b&gt;\""), "{html}");
        assert!(html.contains("<th class=\"\">&lt;b&gt;</th>") && html.contains("1&nbsp;&lt;&nbsp;2"), "{html}");
        assert!(!html.contains("<script"), "{html}");
    }

    /// The heading of a drawing is its axis, which a phone shows too.
    #[test]
    fn drawings_have_their_axis_in_every_row() {
        let mut lanes = Table::new(&[Column::text("what", ""), Column::text("0–4.3 days", "")]);
        lanes.push(vec![Cell::text("training"), Cell::draw(Role::Text, Graphic::Bar(0.5))]);
        assert!(table(&lanes).contains("<td class=\"draw\" data-of=\"0–4.3 days\">"), "{}", table(&lanes));
    }

    #[test]
    fn drawings_are_bars() {
        let lane =
            Lane { from: 1.0, ends: [2.0, 6.0, 6.0, 7.0], range: Some([5.0, 9.0]), deadline: Some(8.0), axis: 10.0 };
        let html = drawing(&Graphic::Lane(lane), Role::Text);
        for part in [
            "setup\" style=\"left:10.00%;width:10.00%",
            "training\" style=\"left:20.00%;width:40.00%",
            "deadline\" style=\"left:80.00%",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(
            drawing(&Graphic::Between([0.9, 0.4]), Role::Good).contains("better\" style=\"left:40.00%;width:50.00%")
        );
        assert!(bar("x", f64::NAN, f64::INFINITY).contains("left:0.00%;width:0.00%"));
    }
}
