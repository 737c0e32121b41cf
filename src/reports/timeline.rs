//! Bars over hours, for the parts of a plan and for several jobs. Screens and text use the same cells.

use super::format;
use habitat_base::units::{Hours, Range};
use habitat_planning::plan::Use;

/// Content of one cell of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Empty.
    Nothing,
    /// Machines are starting.
    Setup,
    /// Training, including checkpoints.
    Training,
    /// Expected time to repeat work after machines are lost.
    Repeated,
    /// Expected time to wait for a machine.
    Waiting,
    /// The earliest end.
    Earliest,
    /// The job may still be running.
    Late,
    /// The latest end.
    Latest,
    /// The deadline.
    Deadline,
}

impl Mark {
    /// Character of the mark.
    pub const fn character(self, ascii: bool) -> char {
        let [plain, drawn] = match self {
            Self::Nothing => [' ', ' '],
            Self::Setup => ['+', '▒'],
            Self::Training => ['#', '█'],
            Self::Repeated => ['x', '▓'],
            Self::Waiting => ['.', '░'],
            Self::Earliest => ['[', '├'],
            Self::Late => ['-', '─'],
            Self::Latest => [']', '┤'],
            Self::Deadline => [':', '┊'],
        };
        if ascii { plain } else { drawn }
    }
}

/// A bar, in hours from the start.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Lane {
    /// Start of the bar.
    pub from: f64,
    /// Expected ends of start-up, training, repeated work and waiting. The times of losses are unknown, so repeated
    /// work and waiting are at the end.
    pub ends: [f64; 4],
    /// Earliest and latest end; `None` to omit them.
    pub range: Option<[f64; 2]>,
    /// Deadline, if the axis includes it.
    pub deadline: Option<f64>,
    /// Hours of the whole width.
    pub axis: f64,
}

/// Cells of a bar in text with room for it.
pub(super) const WIDTH: u16 = 40;

/// Deadlines beyond this many times the latest end are not drawn.
const FAR: f64 = 3.0;

impl Lane {
    /// The bar in `width` cells, of which it fills at least one. Shares of less than half a cell may be invisible.
    pub fn cells(&self, width: u16) -> Vec<Mark> {
        let width = usize::from(width);
        let mut cells = vec![Mark::Nothing; width];
        if width == 0 || self.axis <= 0.0 {
            return cells;
        }
        let place = |hours: f64| ((hours / self.axis * width as f64).round() as usize).min(width);
        let begin = place(self.from).min(width - 1);
        let (mut at, mut before, mut longest) = (begin, self.from, (0.0, Mark::Nothing));
        for (end, mark) in self.ends.into_iter().zip([Mark::Setup, Mark::Training, Mark::Repeated, Mark::Waiting]) {
            let until = place(end).max(at);
            cells[at..until].fill(mark);
            if end - before > longest.0 {
                longest = (end - before, mark);
            }
            (at, before) = (until, end);
        }
        if at == begin && longest.0 > 0.0 {
            cells[at] = longest.1;
            at += 1;
        }
        if let Some([earliest, latest]) = self.range {
            let (first, last) = (place(earliest), place(latest));
            if last > at {
                cells[at..last].fill(Mark::Late);
                cells[last - 1] = Mark::Latest;
            }
            // Without room between begin and end, the figures show the earliest end.
            if first > 0 && first < at && cells[first - 1..=first] == [Mark::Training; 2] {
                cells[first] = Mark::Earliest;
            }
        }
        if let Some(deadline) = self.deadline.filter(|deadline| *deadline <= self.axis) {
            let cell = (deadline / self.axis * width as f64) as usize;
            cells[cell.min(width - 1)] = Mark::Deadline;
        }
        cells
    }

    /// The bar as text of this width.
    pub(crate) fn text(&self, width: u16) -> String {
        self.cells(width).into_iter().map(|mark| mark.character(false)).collect::<String>().trim_end().to_owned()
    }

    /// The bar of one of its uses, by index, without range and deadline.
    #[must_use]
    pub(crate) fn only(&self, which: usize) -> Self {
        let from = if which == 0 { self.from } else { self.ends[which - 1] };
        let ends = std::array::from_fn(|at| if at < which { from } else { self.ends[which] });
        Self { from, ends, range: None, deadline: None, axis: self.axis }
    }
}

/// Hours of the axis, which includes all ends and those deadlines that are not far behind them.
pub(crate) fn axis(ends: impl IntoIterator<Item = Hours>, deadlines: impl IntoIterator<Item = Hours>) -> f64 {
    let last = ends.into_iter().fold(Hours::ZERO, Hours::max);
    let near = deadlines.into_iter().filter(|deadline| deadline.get() <= last.get() * FAR);
    // Leave some room for a line next to a bar that ends there.
    near.fold(last, Hours::max).get() * 1.04
}

/// Range of the axis, as the heading of a column.
pub(crate) fn heading(axis: f64) -> String {
    let (low, high) = (Hours::ZERO, Hours::known(axis));
    format::hours_range(&Range { low, mid: low, high })
}

/// Legend of the marks in these bars. `all` includes the uses, for bars without a row for each use.
pub(crate) fn legend(lanes: &[Lane], ascii: bool, all: bool) -> String {
    let has = |mark| lanes.iter().any(|lane: &Lane| lane.cells(WIDTH).contains(&mark));
    let words = [(Mark::Earliest, "earliest end"), (Mark::Latest, "latest end"), (Mark::Deadline, "deadline")];
    let made_of = [
        (Mark::Setup, Use::Setup.words()),
        (Mark::Repeated, Use::Repeated.words()),
        (Mark::Waiting, Use::Waiting.words()),
    ];
    let made_of = made_of.into_iter().filter(|_| all);
    let shown = words.into_iter().chain(made_of).filter(|(mark, _)| has(*mark));
    shown.map(|(mark, words)| format!("{} {words}", mark.character(ascii))).collect::<Vec<_>>().join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ascii(lane: &Lane, width: u16) -> String {
        lane.cells(width).into_iter().map(|mark| mark.character(true)).collect()
    }

    #[test]
    fn a_bar_is_true_to_its_hours_and_has_a_cell_at_least() {
        let lane = Lane {
            from: 2.0,
            ends: [2.6, 10.0, 12.0, 13.0],
            range: Some([8.0, 17.0]),
            deadline: Some(19.0),
            axis: 20.0,
        };
        assert_eq!(ascii(&lane, 20), "  +#####[#xx.---]  :");
        assert_eq!(ascii(&lane.only(1), 20), "   #######          ");
        // Too short to show all marks, but visible.
        let short = Lane { ends: [2.02, 2.03, 2.03, 2.03], range: None, ..lane };
        assert_eq!(ascii(&short, 20), "  +                :");
        assert_eq!(ascii(&Lane { range: None, deadline: None, ..lane }, 5), " ##  ");
        assert_eq!(ascii(&lane, 0), "");
        // No use takes time.
        assert_eq!(ascii(&Lane::default(), 3), "   ");
    }

    #[test]
    fn an_axis_shows_the_deadlines_that_are_near() {
        let hours = |all: &[f64]| all.iter().map(|hours| Hours::known(*hours)).collect::<Vec<_>>();
        assert_eq!(axis(hours(&[10.0, 20.0]), hours(&[40.0, 61.0])), 40.0 * 1.04);
        assert_eq!(axis(hours(&[10.0, 20.0]), hours(&[61.0])), 20.0 * 1.04);
    }

    #[test]
    fn the_legend_names_what_is_there() {
        let lane = Lane { ends: [0.0, 10.0, 10.0, 10.0], range: Some([10.0, 10.0]), axis: 20.0, ..Lane::default() };
        assert_eq!(legend(&[lane], true, true), "");
        let lane = Lane { range: Some([5.0, 15.0]), deadline: Some(18.0), ..lane };
        assert_eq!(legend(&[lane], true, true), "[ earliest end · ] latest end · : deadline");
    }
}
