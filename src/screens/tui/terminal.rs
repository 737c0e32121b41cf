//! The terminal's state: entered once, always left in order.

use std::io::{self, Stdout, Write, stdout};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ThreadId;

use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Rect, Size};
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Whether the screen is ours: shared by guard and panic hook, so that it is given back once.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// The thread that draws.
static UI_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Before raw mode: a panic of the drawing thread gives the screen back, then reports as
/// before. A panic of a worker becomes a failed job and must not write over the screen.
pub(super) fn install_panic_hook() {
    if UI_THREAD.set(std::thread::current().id()).is_err() {
        return;
    }
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if UI_THREAD.get() == Some(&std::thread::current().id()) {
            restore();
            before(info);
        } else if !ENTERED.load(Ordering::SeqCst) {
            before(info);
        }
    }));
}

/// Gives everything back that was taken; does nothing the second time.
pub(super) fn restore() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut out = stdout();
        // Nothing can be done about a terminal that is gone.
        let _ = execute!(out, DisableMouseCapture, DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = out.flush();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(stdout(), EnterAlternateScreen, EnableBracketedPaste)?;
    set_mouse(mouse)
}

fn set_mouse(mouse: bool) -> io::Result<()> {
    if mouse { execute!(stdout(), EnableMouseCapture) } else { execute!(stdout(), DisableMouseCapture) }
}

/// Largest part of a terminal that is drawn on, columns and rows. A terminal may report any size,
/// and each cell takes memory.
const LARGEST: Size = Size::new(1000, 400);

/// A terminal's size, as far as it is drawn on.
pub(super) fn drawable(columns: u16, rows: u16) -> Size {
    Size::new(columns.min(LARGEST.width), rows.min(LARGEST.height))
}

/// The screen while it is ours; dropped, it is given back.
pub(super) struct Screen {
    /// To draw on.
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Its size when it was taken or redrawn.
    size: Size,
}

fn drawn_on(size: Size) -> io::Result<Terminal<CrosstermBackend<Stdout>>> {
    let viewport = Viewport::Fixed(Rect::new(0, 0, size.width, size.height));
    Terminal::with_options(CrosstermBackend::new(stdout()), TerminalOptions { viewport })
}

fn current_size() -> io::Result<Size> {
    let (columns, rows) = crossterm::terminal::size()?;
    Ok(drawable(columns, rows))
}

impl Screen {
    /// Takes the screen.
    pub(super) fn new(mouse: bool) -> io::Result<Self> {
        let entered = enter(mouse).and_then(|()| {
            let size = current_size()?;
            Ok(Self { terminal: drawn_on(size)?, size })
        });
        entered.inspect_err(|_| restore())
    }

    /// The size that is drawn on; where it has changed, the next picture is drawn whole.
    pub(super) fn fit(&mut self) -> io::Result<Size> {
        if current_size()? != self.size {
            self.anew()?;
        }
        Ok(self.size)
    }

    /// Takes or leaves the mouse.
    pub(super) fn mouse(on: bool) -> io::Result<()> {
        set_mouse(on)
    }

    /// Gives the screen back, stops the process group until it is continued, and takes the
    /// screen again.
    #[cfg(unix)]
    pub(super) fn suspend(&mut self, mouse: bool) -> io::Result<()> {
        restore();
        super::pause::stop_group()?;
        enter(mouse)?;
        self.anew()
    }

    /// Takes the screen again after the process was stopped by others: whoever had the terminal
    /// meanwhile may have changed everything about it.
    #[cfg(unix)]
    pub(super) fn retake(&mut self, mouse: bool) -> io::Result<()> {
        restore();
        enter(mouse)?;
        self.anew()
    }

    /// Gives the screen to the user's editor on a file, and takes it again when that ends; inside, why
    /// the editor could not be started or how it failed.
    pub(super) fn edit(&mut self, path: &Path, mouse: bool) -> io::Result<Result<(), String>> {
        let Some(mut editor) = editor(path) else {
            return Ok(Err("no editor is set: export VISUAL or EDITOR".to_owned()));
        };
        restore();
        let ended = editor.status();
        enter(mouse)?;
        self.anew()?;
        Ok(match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the editor ended with {status}; the file is read again")),
            Err(error) => Err(format!("the editor cannot be started ({error}); VISUAL or EDITOR names it")),
        })
    }

    /// Forgets what is on the screen, so that the next picture is drawn whole.
    ///
    /// Ratatui's own `clear` asks the terminal where the cursor is, and the answer would go
    /// to the event stream.
    pub(super) fn anew(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.size = current_size()?;
        self.terminal = drawn_on(self.size)?;
        self.terminal.hide_cursor()
    }
}

/// What opens a file in the editor that `VISUAL`, else `EDITOR`, names with its arguments.
fn editor(path: &Path) -> Option<Command> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let named = set("VISUAL").or_else(|| set("EDITOR"))?;
    if cfg!(unix) {
        // The shell divides the arguments, as it does for git.
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{named} \"$1\""), "sh"]).arg(path);
        return Some(shell);
    }
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next()?);
    command.args(words).arg(path);
    Some(command)
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}
