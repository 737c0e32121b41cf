//! A list with a selection, a filter and an order.

use std::ops::Range;

/// Selection, filter and order of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListState {
    /// Index of the selected row among the rows shown.
    pub selected: usize,
    /// Filter: every word must occur in the row, or is a comparison with one of its figures (`memory>=40`). `|` and
    /// commas separate alternatives (`4090|h100`, `RTX 4090, H100 SXM`); a leading `!` inverts.
    pub filter: String,
    /// Index of the sort column among the sortable columns.
    pub sort: usize,
    /// Whether the order is the reverse of the column's default.
    pub reversed: bool,
}

/// Minimum number of rows to build at a time, so that column widths stay the same within a block.
const BLOCK: usize = 100;

impl ListState {
    /// Rows around the selected one; a screen of `height` lines shows some of them.
    pub fn near(&self, height: u16) -> Range<usize> {
        let block = BLOCK.max(height.into());
        let at = self.selected / block;
        at.saturating_sub(1) * block..(at + 2) * block
    }

    /// Whether there is a filter.
    pub(crate) fn is_filtered(&self) -> bool {
        !self.filter.trim().is_empty()
    }

    /// Moves the selection within `len` rows.
    pub fn step(&mut self, by: isize, len: usize) {
        self.selected = self.selected.saturating_add_signed(by).min(len.saturating_sub(1));
    }

    /// Sets the filter and selects the first row.
    pub(crate) fn set_filter(&mut self, filter: String) {
        (self.filter, self.selected) = (filter, 0);
    }

    /// Whether a row with this text passes the filter.
    pub fn passes(&self, text: &str) -> bool {
        self.passes_with(text, |_| None)
    }

    /// The same for a row with figures, looked up by lower-case name. If the row lacks a figure (`Some(None)`), every
    /// comparison with it is false.
    pub(crate) fn passes_with(&self, text: &str, figure: impl Fn(&str) -> Option<Option<f64>>) -> bool {
        let filter = self.filter.trim().to_lowercase();
        let (inverted, words) = filter.strip_prefix('!').map_or((false, filter.as_str()), |rest| (true, rest));
        if words.trim().is_empty() {
            return true;
        }
        let text = text.to_lowercase();
        let passes = |word: &str| {
            let known = compared(word).and_then(|(name, holds, bound)| Some((figure(name)?, holds, bound)));
            known.map_or_else(
                || text.contains(word),
                |(value, holds, bound)| value.is_some_and(|value| holds(value, bound)),
            )
        };
        let any = |word: &str| alternatives(word).any(passes);
        let one = |words: &str| words.split_whitespace().all(any);
        (text.contains(words.trim()) || lists(words).any(one)) != inverted
    }
}

/// Alternatives of a filter that spaces set apart: `RTX 4090, H100 SXM` and `rtx 4090 | h100`. For those within a word
/// see [`alternatives`].
pub fn lists(filter: &str) -> impl Iterator<Item = &str> {
    let mut from = 0;
    let mut parts = Vec::new();
    for (at, sign) in filter.match_indices(['|', ',']) {
        let is_apart = |before: Option<char>| before.is_none_or(char::is_whitespace);
        let apart = is_apart(filter[at + 1..].chars().next()) || sign == "|" && is_apart(filter[..at].chars().last());
        if apart {
            parts.push(&filter[from..at]);
            from = at + 1;
        }
    }
    parts.push(&filter[from..]);
    parts.into_iter().filter(|part| !part.trim().is_empty())
}

/// Alternatives within a word: `4090|h100`, `4090,h100`. Commas in a comparison belong to its number.
pub fn alternatives(word: &str) -> impl Iterator<Item = &str> {
    let compares = word.contains(['<', '>', '=']);
    word.split(move |c| c == '|' || c == ',' && !compares).filter(|part| !part.is_empty())
}

type Holds = fn(f64, f64) -> bool;

/// Parses a word such as `memory>=40` or `$<2`: a name, a comparison and a number, optionally with a unit.
fn compared(word: &str) -> Option<(&str, Holds, f64)> {
    let (name, rest) = word.split_at(word.find(['<', '>', '='])?);
    let signs: [(&str, Holds); 5] = [
        ("<=", |value, bound| value <= bound),
        (">=", |value, bound| value >= bound),
        ("<", |value, bound| value < bound),
        (">", |value, bound| value > bound),
        // Compares as displayed, in whole units.
        ("=", |value, bound| (value - bound).abs() < 0.5),
    ];
    let (sign, holds) = signs.into_iter().find(|(sign, _)| rest.starts_with(sign))?;
    let number =
        rest[sign.len()..].trim_start_matches('$').trim_end_matches(|c: char| c.is_alphabetic() || "/$".contains(c));
    Some((name, holds, number.replace(',', "").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_screen_shows_is_near_the_selected_row() {
        for height in [24, 60, 400] {
            for selected in [0, 1, 249, 250, 399, 400, 1_000, 99_999] {
                let near = ListState { selected, ..ListState::default() }.near(height);
                let seen = selected.saturating_sub(height.into())..selected + usize::from(height);
                assert!(near.start <= seen.start && near.end >= seen.end, "{selected} {height}: {near:?}");
            }
        }
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

    #[test]
    fn filters_take_alternatives() {
        let passing = |filter: &str| -> Vec<&str> {
            let list = ListState { filter: filter.to_owned(), ..ListState::default() };
            let memory = |text: &str| if text.contains("4090") { 24.0 } else { 80.0 };
            let rows = ["geforce rtx 4090", "h100 sxm5 80gb", "h100 pcie", "a100 80gb"];
            let passes = |text: &&str| list.passes_with(text, |name| (name == "memory").then(|| Some(memory(text))));
            rows.into_iter().filter(passes).collect()
        };
        let three = ["geforce rtx 4090", "h100 sxm5 80gb", "h100 pcie"];
        for filter in
            ["4090|h100", "4090,h100", "4090, h100", "4090 | h100", "RTX 4090, H100", "4090|h100|", ",4090,h100"]
        {
            assert_eq!(passing(filter), three, "{filter}");
        }
        assert_eq!(passing("!4090|h100"), ["a100 80gb"]);
        // Within a word, alternatives apply to that word only; set apart, they end the alternative before.
        assert_eq!(passing("80gb h100|a100"), ["h100 sxm5 80gb", "a100 80gb"]);
        assert_eq!(passing("80gb h100 | a100"), ["h100 sxm5 80gb", "a100 80gb"]);
        assert_eq!(passing("pcie | memory<40"), ["geforce rtx 4090", "h100 pcie"]);
        assert_eq!(passing("memory>1,000"), Vec::<&str>::new());
        assert_eq!(passing("memory<=1,000").len(), 4);
        // Text that the row contains literally is found, with or without commas.
        let list = ListState { filter: "kernel<128, 4".to_owned(), ..ListState::default() };
        assert!(list.passes("some_kernel<128, 4>"));
    }

    #[test]
    fn filters_compare_figures() {
        let passes = |filter: &str| {
            let list = ListState { filter: filter.to_owned(), ..ListState::default() };
            list.passes_with("l4 nvidia", |name| match name {
                "memory" => Some(Some(24.0)),
                "$" => Some(None),
                _ => None,
            })
        };
        assert!(passes("memory>=24") && passes("memory<=24GB nvidia") && passes("MEMORY=24") && passes("memory>1,0"));
        assert!(!passes("memory>24") && !passes("memory<24") && !passes("memory=25") && !passes("amd memory>1"));
        assert!(passes("!memory>24"));
        // Without a price, no comparison with it holds. Unknown names are plain words.
        assert!(!passes("$<2") && !passes("$>=2") && !passes("speed>1") && !passes("memory>much"));
    }
}
