//! State of the terminal: set up once, always restored.

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

/// Whether we own the screen. Shared by guard and panic hook, so that it is restored only once.
static ENTERED: AtomicBool = AtomicBool::new(false);
/// The thread that draws.
static UI_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Must run before raw mode. If the drawing thread panics, the hook restores the screen and then reports as usual. A
/// worker's panic becomes a failed job and must not write to the screen.
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

/// Restores the terminal; later calls have no effect.
pub(super) fn restore() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let mut out = stdout();
        // Ignore errors: the terminal may be gone.
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

/// Largest area to draw on, in columns and rows. A terminal may report any size, and each cell uses memory.
const LARGEST: Size = Size::new(1000, 400);

/// Size of the area to draw on.
pub(super) fn drawable(columns: u16, rows: u16) -> Size {
    Size::new(columns.min(LARGEST.width), rows.min(LARGEST.height))
}

/// The screen while we own it; dropping restores it.
pub(super) struct Screen {
    /// Backend to draw on.
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Its size when it was last set up or redrawn.
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
    /// Takes over the screen.
    pub(super) fn new(mouse: bool) -> io::Result<Self> {
        let entered = enter(mouse).and_then(|()| {
            let size = current_size()?;
            Ok(Self { terminal: drawn_on(size)?, size })
        });
        entered.inspect_err(|_| restore())
    }

    /// Size of the area to draw on. After a change, the next frame is drawn completely.
    pub(super) fn fit(&mut self) -> io::Result<Size> {
        if current_size()? != self.size {
            self.anew()?;
        }
        Ok(self.size)
    }

    /// Captures or releases the mouse.
    pub(super) fn mouse(on: bool) -> io::Result<()> {
        set_mouse(on)
    }

    /// Restores the screen, stops the process group until it is continued, and takes over the screen again.
    #[cfg(unix)]
    pub(super) fn suspend(&mut self, mouse: bool) -> io::Result<()> {
        restore();
        super::pause::stop_group()?;
        enter(mouse)?;
        self.anew()
    }

    /// Takes over the screen again after others stopped the process: another program may have changed any of the
    /// terminal's settings.
    #[cfg(unix)]
    pub(super) fn retake(&mut self, mouse: bool) -> io::Result<()> {
        restore();
        enter(mouse)?;
        self.anew()
    }

    /// Restores the screen for the user's editor on a file, and takes over again when it exits. The inner error is the
    /// editor's.
    pub(super) fn edit(&mut self, path: &Path, mouse: bool) -> io::Result<Result<(), String>> {
        let Some(mut editor) = editor(path) else {
            return Ok(Err("no editor: set VISUAL or EDITOR".to_owned()));
        };
        restore();
        let ended = editor.status();
        enter(mouse)?;
        self.anew()?;
        Ok(match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the editor exited with {status}; reading the file again")),
            Err(error) => Err(format!("cannot start the editor ({error}); check VISUAL or EDITOR")),
        })
    }

    /// Discards the known content of the screen, so that the next frame is drawn completely.
    ///
    /// Ratatui's own `clear` queries the cursor position, and the reply would go to the event stream.
    pub(super) fn anew(&mut self) -> io::Result<()> {
        execute!(stdout(), Clear(ClearType::All))?;
        self.size = current_size()?;
        self.terminal = drawn_on(self.size)?;
        self.terminal.hide_cursor()
    }
}

/// Command that opens a file in the editor of `VISUAL`, else `EDITOR`, with its arguments.
fn editor(path: &Path) -> Option<Command> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let named = set("VISUAL").or_else(|| set("EDITOR"))?;
    if cfg!(unix) {
        // The shell splits the arguments, as for git.
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
