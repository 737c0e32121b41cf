//! A list with a selection, a filter and an order, and the tables lists are shown as.

use unicode_width::UnicodeWidthStr;

use crate::settings::theme::Role;

/// Selection, filter and order of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListState {
    /// Position of the selected row among the rows shown.
    pub selected: usize,
    /// Words every row shown contains; a leading `!` inverts.
    pub filter: String,
    /// Column it is sorted by, an index into the sortable columns of the list.
    pub sort: usize,
    /// Whether the order is the reverse of the column's usual one.
    pub reversed: bool,
}

impl ListState {
    /// Moves the selection within `len` rows.
    pub fn step(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Whether a row of this text passes the filter.
    pub fn passes(&self, text: &str) -> bool {
        let filter = self.filter.trim().to_lowercase();
        let (inverted, words) = filter.strip_prefix('!').map_or((false, filter.as_str()), |rest| (true, rest));
        if words.trim().is_empty() {
            return true;
        }
        let text = text.to_lowercase();
        words.split_whitespace().all(|word| text.contains(word)) != inverted
    }
}

/// Which side of its column a text stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading, with the unit of its numbers.
    pub title: String,
    /// Side.
    pub align: Align,
    /// 0 = never dropped; the highest goes first when there is no room.
    pub priority: u8,
    /// Narrowest width where the text may be cut; `None` = never cut.
    pub shrink_to: Option<u16>,
    /// Width of a drawing; `None` = text.
    pub graphic: Option<u16>,
    /// The sortable column a click on the heading means.
    pub sort: Option<usize>,
}

impl Column {
    /// Words that may be cut to `shrink_to` cells.
    pub fn words(title: impl Into<String>, shrink_to: u16, priority: u8) -> Self {
        Self {
            title: title.into(),
            align: Align::Left,
            priority,
            shrink_to: Some(shrink_to),
            graphic: None,
            sort: None,
        }
    }

    /// Numbers, never cut.
    pub fn number(title: impl Into<String>, priority: u8) -> Self {
        Self { title: title.into(), align: Align::Right, priority, shrink_to: None, graphic: None, sort: None }
    }

    /// A drawing of `width` cells or more.
    pub fn graphic(title: impl Into<String>, width: u16, priority: u8) -> Self {
        Self { title: title.into(), align: Align::Left, priority, shrink_to: None, graphic: Some(width), sort: None }
    }

    /// Sorted by the `index`-th sortable column.
    #[must_use]
    pub fn sorts(mut self, index: usize) -> Self {
        self.sort = Some(index);
        self
    }
}

/// A drawing in a cell; positions are fractions of the cell's width.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Graphic {
    /// A bar from the left.
    Bar(f64),
    /// A range with its middle.
    Range {
        /// Lower end.
        low: f64,
        /// Best single value.
        mid: f64,
        /// Upper end.
        high: f64,
    },
}

/// One cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Its text, which is also what is copied.
    pub text: String,
    /// Its meaning.
    pub role: Role,
    /// What is drawn in place of the text.
    pub graphic: Option<Graphic>,
}

impl Cell {
    /// Ordinary text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), role: Role::Text, graphic: None }
    }

    /// Text with a meaning.
    pub fn of(role: Role, text: impl Into<String>) -> Self {
        Self { text: text.into(), role, graphic: None }
    }

    /// A drawing; nothing of it is copied.
    pub fn draw(role: Role, graphic: Graphic) -> Self {
        Self { text: String::new(), role, graphic: Some(graphic) }
    }
}

/// A table, ready to be laid out in any width.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, a cell a column.
    pub rows: Vec<Vec<Cell>>,
    /// The selected row.
    pub selected: usize,
    /// The sortable column in use and whether the largest come first.
    pub sorted: Option<(usize, bool)>,
    /// What to say when there are no rows, and what to do about it.
    pub empty: String,
}

impl Table {
    /// The table as tab-separated text, drawings left out.
    pub fn to_tsv(&self) -> String {
        let mut text = self.tsv_line(self.columns.iter().map(|column| column.title.as_str()));
        for row in &self.rows {
            text.push_str(&self.tsv_line(row.iter().map(|cell| cell.text.as_str())));
        }
        text
    }

    /// The selected row as tab-separated text.
    pub fn row_tsv(&self) -> Option<String> {
        let row = self.rows.get(self.selected)?;
        Some(self.tsv_line(row.iter().map(|cell| cell.text.as_str())).trim_end().to_owned())
    }

    fn tsv_line<'a>(&self, texts: impl Iterator<Item = &'a str>) -> String {
        let kept: Vec<&str> = texts
            .zip(&self.columns)
            .filter(|(_, column)| column.graphic.is_none())
            .map(|(text, _)| text.trim())
            .collect();
        kept.join("\t") + "\n"
    }

    /// Width of each column in `width` cells with `gap` between; 0 = dropped. Columns are
    /// dropped by priority and only words are ever cut.
    pub fn widths(&self, width: u16, gap: u16) -> Vec<u16> {
        let natural: Vec<u16> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, column)| {
                if let Some(least) = column.graphic {
                    return least.max(column.title.width() as u16);
                }
                let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width());
                // The sign of the order stands beside the heading.
                let mark = usize::from(column.sort.is_some());
                cells.max().unwrap_or(0).max(column.title.width() + mark) as u16
            })
            .collect();
        let least =
            |index: usize| self.columns[index].shrink_to.map_or(natural[index], |least| least.min(natural[index]));
        let mut kept: Vec<bool> = vec![true; self.columns.len()];
        let total = |kept: &[bool], size: &dyn Fn(usize) -> u16| -> u16 {
            let count = kept.iter().filter(|kept| **kept).count() as u16;
            let cells: u16 = (0..kept.len()).filter(|index| kept[*index]).map(size).fold(0, u16::saturating_add);
            cells.saturating_add(gap * count.saturating_sub(1))
        };
        while total(&kept, &least) > width {
            let Some(worst) = (0..kept.len())
                .filter(|index| kept[*index] && self.columns[*index].priority > 0)
                .max_by_key(|index| (self.columns[*index].priority, *index))
            else {
                break;
            };
            kept[worst] = false;
        }
        let mut widths: Vec<u16> = (0..kept.len()).map(|index| if kept[index] { least(index) } else { 0 }).collect();
        let mut spare = width.saturating_sub(total(&kept, &least));
        // Words first, the most important first; then the drawings share what is left.
        let mut order: Vec<usize> = (0..kept.len()).filter(|index| kept[*index]).collect();
        order.sort_by_key(|index| self.columns[*index].priority);
        for index in order.iter().copied().filter(|index| self.columns[*index].graphic.is_none()) {
            let more = natural[index].saturating_sub(widths[index]).min(spare);
            widths[index] += more;
            spare -= more;
        }
        let drawings: Vec<usize> = order.into_iter().filter(|index| self.columns[*index].graphic.is_some()).collect();
        for (done, index) in drawings.iter().enumerate() {
            let more = (spare / (drawings.len() - done) as u16).min(MOST_GRAPHIC.saturating_sub(widths[*index]));
            widths[*index] += more;
            spare -= more;
        }
        widths
    }
}

/// Drawings do not grow wider than this: longer bars say no more.
const MOST_GRAPHIC: u16 = 36;

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            columns: vec![
                Column::words("name", 6, 0),
                Column::number("time, ms", 0),
                Column::graphic("", 5, 2),
                Column::number("share", 1),
            ],
            rows: vec![vec![
                Cell::text("a long name"),
                Cell::text("1234.5"),
                Cell::draw(Role::Busy, Graphic::Bar(0.5)),
                Cell::text("12.3 %"),
            ]],
            ..Table::default()
        }
    }

    #[test]
    fn columns_drop_by_priority_and_numbers_are_never_cut() {
        assert_eq!(table().widths(60, 2), [11, 8, 29, 6]);
        assert_eq!(table().widths(36, 2), [11, 8, 5, 6]);
        assert_eq!(table().widths(31, 2), [6, 8, 5, 6]);
        assert_eq!(table().widths(30, 2), [11, 8, 0, 6]);
        assert_eq!(table().widths(20, 2), [10, 8, 0, 0]);
        assert_eq!(table().widths(10, 2), [6, 8, 0, 0]);
    }

    #[test]
    fn copies_leave_drawings_out() {
        assert_eq!(table().to_tsv(), "name\ttime, ms\tshare\na long name\t1234.5\t12.3 %\n");
    }

    #[test]
    fn filters_take_words_and_inversion() {
        let list = |filter: &str| ListState { filter: filter.to_owned(), ..ListState::default() };
        assert!(list("MM for").passes("aten::mm forward"));
        assert!(!list("mm back").passes("aten::mm forward"));
        assert!(list("!conv").passes("aten::mm"));
        assert!(!list("!mm").passes("aten::mm"));
        assert!(list(" ").passes("x") && list("!").passes("x"));
    }
}
