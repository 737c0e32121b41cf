use super::*;

fn table() -> Table {
    let mut table =
        Table::new(&[Column::text("GPU", "gpu"), Column::number("step", "step_us"), Column::text("", "note")]);
    table.push(vec![Cell::text("t4"), Cell::new("12.3 ms", 12345.678), Cell::text("a|b")]);
    table.push(vec![Cell::text("h100-sxm5"), Cell::unknown(), Cell::text("x,\"y\"")]);
    table
}

fn text(write: impl Fn(&Table, &mut dyn Write) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&table(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn one_table_in_three_forms() {
    assert_eq!(text(Table::write_text), "GPU           step\nt4         12.3 ms\nh100-sxm5        –\n");
    assert_eq!(text(Table::write_markdown), "| GPU | step |\n| --- | ---: |\n| t4 | 12.3 ms |\n| h100-sxm5 | – |\n");
    assert_eq!(text(Table::write_csv), "gpu,step_us,note\nt4,12345.678,a|b\nh100-sxm5,,\"x,\"\"y\"\"\"\n");
}

/// A table with a drawing.
fn drawn() -> Table {
    let mut table = Table::new(&[
        Column::words("name", 6, 0),
        Column::figures("time, ms", 0),
        Column::graphic("", 5, 2),
        Column::figures("share", 1),
    ]);
    let bar = Cell::draw(Role::Busy, Graphic::Bar(0.5));
    table.push(vec![Cell::text("a long name"), Cell::text("1234.5"), bar, Cell::text("12.3 %")]);
    table
}

#[test]
fn columns_drop_by_priority_and_numbers_are_never_cut() {
    let table = drawn();
    assert_eq!(table.widths(60, 2), [11, 8, 29, 6]);
    assert_eq!(table.widths(36, 2), [11, 8, 5, 6]);
    assert_eq!(table.widths(31, 2), [6, 8, 5, 6]);
    assert_eq!(table.widths(30, 2), [11, 8, 0, 6]);
    assert_eq!(table.widths(20, 2), [10, 8, 0, 0]);
    assert_eq!(table.widths(10, 2), [6, 8, 0, 0]);
}

#[test]
fn text_fits_the_terminal() {
    let mut table = Table::new(&[
        Column::text("GPU", ""),
        Column::number("step", ""),
        Column::text("", "hidden"),
        Column::text("offer", "").dropped(1).cut_to(6),
        Column::text("method", "").dropped(2),
    ]);
    table.push(["h100", "130 ms", "x", "lambda/us-east-1/h100", "measured"].map(Cell::text).to_vec());
    let fitted = |width| {
        let mut out = Vec::new();
        let dropped = table.write_fitted(width, &mut out).unwrap().join(",");
        (String::from_utf8(out).unwrap(), dropped)
    };
    assert_eq!(fitted(None).0, text_of(&table));
    assert_eq!(fitted(Some(200)), (text_of(&table), String::new()));
    let (text, dropped) = fitted(Some(34));
    assert_eq!(
        (text.as_str(), dropped.as_str()),
        ("GPU     step  offer       method\nh100  130 ms  lambda/us…  measured\n", "")
    );
    assert_eq!(fitted(Some(20)), ("GPU     step  offer\nh100  130 ms  lambd…\n".to_owned(), "method".to_owned()));
    assert!((12..80).all(|width| fitted(Some(width)).0.lines().all(|line| line.width() <= usize::from(width))));
}

#[test]
fn bars_are_drawn_in_the_width_there_is() {
    let mut table = Table::new(&[Column::text("time", "").cut_to(6), Column::number("cost", "")]);
    let lane = Lane { ends: [0.0, 10.0, 10.0, 10.0], deadline: Some(15.0), axis: 20.0, ..Lane::default() };
    table.push(vec![Cell::lane(lane), Cell::text("$12.00")]);
    let bar = |width| {
        let mut out = Vec::new();
        table.write_fitted(Some(width), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().last().unwrap().matches('█').count()
    };
    // Ten of twenty hours, with the deadline behind them.
    assert_eq!([bar(80), bar(28)], [20, 10]);
}

#[test]
fn ids_that_do_not_fit_stay_whole_on_lines_of_their_own() {
    let mut table = Table::new(&[Column::text("offer", "").or_below(), Column::number("cost", "").dropped(1)]);
    for (id, cost) in [("lambda/us-east-1/8x H100 SXM/on-demand", "$12.00"), ("aws/a/b/spot", "$3.00")] {
        table.push([id, cost].map(Cell::text).to_vec());
    }
    let fitted = |width| {
        let mut out = Vec::new();
        table.write_fitted(Some(width), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(fitted(46), text_of(&table));
    let below = "  cost\n  offer\n$12.00\n  lambda/us-east-1/8x H100 SXM/on-demand\n $3.00\n  aws/a/b/spot\n";
    assert_eq!(fitted(45), below);
    // Words of an id that is longer than the line continue on the next.
    assert!(fitted(30).contains("  lambda/us-east-1/8x H100\n  SXM/on-demand\n"));
}

fn text_of(table: &Table) -> String {
    let mut out = Vec::new();
    table.write_text(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn copies_leave_drawings_out() {
    let table = drawn();
    assert_eq!(table.to_tsv(), "name\ttime, ms\tshare\na long name\t1234.5\t12.3 %\n");
    assert_eq!(table.row_tsv().as_deref(), Some("a long name\t1234.5\t12.3 %"));
}

#[test]
fn no_cell_is_a_formula_a_link_or_html() {
    for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"] {
        assert_eq!(for_spreadsheets(text), format!("'{text}"));
    }
    for plain in ["-1.5", "+3e4", "aten::mm", "", "5-3"] {
        assert_eq!(for_spreadsheets(plain), plain);
    }
    assert_eq!(
        markdown("a|b<img src=x> [x](https://e.org) www.e.org `c` *d* e&f\n"),
        r"a\|b&lt;img src=x&gt; \[x\](https:\//e.org) www\.e.org \`c\` \*d\* e&amp;f "
    );
}
