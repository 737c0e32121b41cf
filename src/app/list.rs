//! A list with a selection, a filter and an order.

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

    /// Filters anew, from the first row.
    pub fn set_filter(&mut self, filter: String) {
        (self.filter, self.selected) = (filter, 0);
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

#[cfg(test)]
mod tests {
    use super::*;

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
