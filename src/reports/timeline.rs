//! What happens when, as a bar over hours: of the parts of a plan, and of several jobs. The same
//! cells are drawn on the screens and written as text.

use super::format;
use habitat_base::units::{Hours, Range};
use habitat_planning::plan::Use;

/// What a cell of a bar shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Nothing happens.
    Nothing,
    /// Machines start.
    Setup,
    /// Training, with its checkpoints.
    Training,
    /// Work is repeated after losses of machines, as long as is expected.
    Repeated,
    /// A machine is waited for, as long as is expected.
    Waiting,
    /// The earliest end.
    Earliest,
    /// It may still run.
    Late,
    /// The latest end.
    Latest,
    /// The deadline.
    Deadline,
}

impl Mark {
    /// Its character.
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
    /// Where it begins.
    pub from: f64,
    /// Where start-up, training, repeated work and waiting are expected to end; when machines are
    /// lost is not known, so that what losses take stands at the end.
    pub ends: [f64; 4],
    /// The earliest and the latest end; `None` where they are not drawn.
    pub range: Option<[f64; 2]>,
    /// The deadline, where it is on the axis.
    pub deadline: Option<f64>,
    /// The hours of the whole width.
    pub axis: f64,
}

/// Cells of a bar in text.
const WIDTH: u16 = 40;

/// Deadlines further away than so many times the latest end are not drawn.
const FAR: f64 = 3.0;

impl Lane {
    /// The bar in so many cells: a cell at least, though what takes less than half of one is not seen in it.
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
            // Where the bar has no room between its begin and its end, the numbers say it.
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

    /// The bar as text.
    pub fn text(&self) -> String {
        self.cells(WIDTH).into_iter().map(|mark| mark.character(false)).collect::<String>().trim_end().to_owned()
    }

    /// The same without its range and deadline: one thing that it is made of, by its position.
    #[must_use]
    pub fn only(&self, which: usize) -> Self {
        let from = if which == 0 { self.from } else { self.ends[which - 1] };
        let ends = std::array::from_fn(|at| if at < which { from } else { self.ends[which] });
        Self { from, ends, range: None, deadline: None, axis: self.axis }
    }
}

/// The hours that an axis shows: all of these ends, and the deadlines that are not far behind them.
pub fn axis(ends: impl IntoIterator<Item = Hours>, deadlines: impl IntoIterator<Item = Hours>) -> f64 {
    let last = ends.into_iter().fold(Hours::ZERO, Hours::max);
    let near = deadlines.into_iter().filter(|deadline| deadline.get() <= last.get() * FAR);
    // A little more, so that a line at the end is seen beside a bar that ends there.
    near.fold(last, Hours::max).get() * 1.04
}

/// What the axis shows, as the heading of a column.
pub fn heading(axis: f64) -> String {
    let (low, high) = (Hours::ZERO, Hours::known(axis));
    format::hours_range(&Range { low, mid: low, high })
}

/// What the signs of these bars mean; `all`: those of what they are made of too, which no rows say.
pub fn legend(lanes: &[Lane], ascii: bool, all: bool) -> String {
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
        // Too short for the signs of all of it, but there.
        let short = Lane { ends: [2.02, 2.03, 2.03, 2.03], range: None, ..lane };
        assert_eq!(ascii(&short, 20), "  +                :");
        assert_eq!(ascii(&Lane { range: None, deadline: None, ..lane }, 5), " ##  ");
        assert_eq!(ascii(&lane, 0), "");
        // Nothing of it takes time.
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
