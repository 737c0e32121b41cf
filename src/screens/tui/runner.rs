//! Main loop: handles input and results, and draws a frame after changes.

use std::io::{self, stdout};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use crossterm::event::EventStream;
use crossterm::execute;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use futures_util::StreamExt;
#[cfg(unix)]
use signal_hook::consts::{SIGABRT, SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::paint::Memory;
use super::pause::{Pause, Pauses};
use super::terminal::{self, Screen};
use super::{clipboard, input, view};
use crate::app::{Answer, App, Effect, Engine, Msg, Question};
use habitat_recorder::live;

/// Messages that follow each other faster than this are handled together before the next frame.
const PAUSE: Duration = Duration::from_millis(1);
/// Longest delay of a frame by such messages.
const BURST: Duration = Duration::from_millis(16);

/// Connection to a followed job.
pub struct Line {
    /// Updates from the job.
    pub updates: std::sync::mpsc::Receiver<live::Update>,
    /// Sends requests to the job.
    pub control: Arc<dyn Fn(live::JobRequest) + Send + Sync>,
}

struct Runner {
    app: App,
    engine: Engine,
    control: Option<Arc<dyn Fn(live::JobRequest) + Send + Sync>>,
    sender: UnboundedSender<Msg>,
    solving: Newest,
    changing: Newest,
    leave: bool,
    redraw: bool,
    suspend: bool,
    /// Whether to take over the terminal again after other programs used it.
    retake: bool,
    /// File to open in the user's editor.
    edit: Option<String>,
}

/// Runs until the user quits or a signal arrives, and returns the exit code.
pub(super) async fn run(app: App, engine: Engine, line: Option<Line>) -> io::Result<u8> {
    let mut screen = Screen::new(app.mouse)?;
    let (sender, mut results) = unbounded_channel();
    let mut memory = Memory::default();
    let control = line.map(|Line { updates, control }| {
        pass_on(updates, sender.clone());
        control
    });
    let mut runner = Runner {
        app,
        engine,
        control,
        sender,
        solving: Newest::default(),
        changing: Newest::default(),
        leave: false,
        redraw: false,
        suspend: false,
        retake: false,
        edit: None,
    };
    let size = screen.fit()?;
    runner.handle(Msg::Resize(size.width, size.height));
    runner.handle(Msg::Start);
    let mut pauses = Pauses::watch()?;
    let mut events = EventStream::new();
    let stop = watch_for_stop()?;
    let mut dirty = true;
    while !runner.leave {
        if std::mem::take(&mut runner.redraw) {
            super::panic_if_asked("screen");
            screen.anew()?;
            dirty = true;
        }
        if dirty {
            draw(&mut screen, &runner.app, &mut memory)?;
        }
        dirty = runner.wait(&mut events, &mut results, (&stop.asked, &mut pauses), &memory).await?;
        let (suspend, edit) = (std::mem::take(&mut runner.suspend), runner.edit.take());
        let retake = std::mem::take(&mut runner.retake);
        if suspend || retake || edit.is_some() {
            // The stream reads the terminal in the background, which must not happen while stopped or during the
            // editor.
            drop(events);
            #[cfg(unix)]
            if suspend {
                screen.suspend(runner.app.mouse)?;
                pauses.forget();
            }
            #[cfg(unix)]
            if retake && !suspend {
                screen.retake(runner.app.mouse)?;
            }
            let edited = edit.map(|path| screen.edit(Path::new(&path), runner.app.mouse)).transpose()?;
            events = EventStream::new();
            let size = screen.fit()?;
            runner.handle(Msg::Resize(size.width, size.height));
            if let Some(edited) = edited {
                runner.handle(Msg::Edited(edited));
            }
            dirty = true;
        }
    }
    Ok(stop.code.load(Ordering::SeqCst))
}

/// Forwards updates to the loop until either ends.
fn pass_on(updates: std::sync::mpsc::Receiver<live::Update>, sender: UnboundedSender<Msg>) {
    std::thread::spawn(move || {
        while let Ok(update) = updates.recv() {
            if sender.send(Msg::Live(update)).is_err() {
                return;
            }
        }
    });
}

fn draw(screen: &mut Screen, app: &App, memory: &mut Memory) -> io::Result<()> {
    screen.fit()?;
    execute!(stdout(), BeginSynchronizedUpdate)?;
    let drawn = screen.terminal.draw(|frame| {
        let area = frame.area();
        if let Some(cursor) = view::draw(app, area, frame.buffer_mut(), memory) {
            frame.set_cursor_position(cursor);
        }
    });
    // End the update even if drawing failed.
    execute!(stdout(), EndSynchronizedUpdate)?;
    drawn.map(|_| ())
}

/// Work requested by a slider: one at a time, and then only the newest waiting request.
#[derive(Default)]
struct Newest {
    is_busy: bool,
    waiting: Option<Effect>,
}

impl Newest {
    /// The work if nothing is running; otherwise queues it.
    fn or_wait(&mut self, effect: Effect) -> Option<Effect> {
        if std::mem::replace(&mut self.is_busy, true) {
            self.waiting = Some(effect);
            return None;
        }
        Some(effect)
    }

    /// Marks the work as done and returns the queued request.
    fn done(&mut self) -> Option<Effect> {
        self.is_busy = false;
        self.waiting.take()
    }
}

impl Runner {
    /// Waits for a message, handles it and those that follow without a pause, and returns whether to draw.
    async fn wait(
        &mut self,
        events: &mut EventStream,
        results: &mut UnboundedReceiver<Msg>,
        (stop, pauses): (&Notify, &mut Pauses),
        memory: &Memory,
    ) -> io::Result<bool> {
        let (mut dirty, mut end) = (false, None);
        while !self.leave && !self.suspend && !self.retake && self.edit.is_none() {
            let quiet = async {
                match end {
                    Some(end) => tokio::time::sleep_until((Instant::now() + PAUSE).min(end)).await,
                    None => std::future::pending().await,
                }
            };
            let msg = tokio::select! {
                event = events.next() => {
                    // The terminal is gone when events end.
                    self.leave = event.is_none();
                    event.transpose()?.and_then(|event| input::message(event, &memory.hits))
                }
                Some(msg) = results.recv() => Some(msg),
                () = stop.notified() => {
                    self.leave = true;
                    None
                }
                pause = pauses.requested() => {
                    match pause {
                        Pause::Stop => self.suspend = true,
                        Pause::Retake => self.retake = true,
                    }
                    None
                }
                () = quiet => break,
            };
            if let Some(msg) = msg {
                self.handle(msg);
                dirty = true;
            }
            end.get_or_insert_with(|| Instant::now() + BURST);
        }
        Ok(dirty)
    }

    fn handle(&mut self, msg: Msg) {
        let next = match msg {
            Msg::Answered { answer: Answer::Plan(_), .. } => self.solving.done(),
            Msg::Answered { answer: Answer::Change(_), .. } => self.changing.done(),
            _ => None,
        };
        if let Some(next) = next {
            self.execute(next);
        }
        for effect in self.app.update(msg) {
            self.execute(effect);
        }
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Ask { ref question, .. } => {
                let now = match question {
                    Question::Plan(..) => self.solving.or_wait(effect),
                    Question::Change(..) => self.changing.or_wait(effect),
                    _ => Some(effect),
                };
                if let Some(effect) = now {
                    self.work(effect);
                }
            }
            Effect::SaveJobs { .. } | Effect::Save { .. } => self.work(effect),
            Effect::Copy { text, what } => {
                let copied = clipboard::copy(&mut stdout(), &text);
                // The channel outlives the loop.
                let _ = self.sender.send(copied.map_or_else(Msg::NotCopied, |()| Msg::Copied(what)));
            }
            Effect::Mouse(on) => {
                if let Err(error) = Screen::mouse(on) {
                    let _ = self.sender.send(Msg::MouseRefused(error.to_string()));
                }
            }
            Effect::Job(wish) => {
                if let Some(control) = &self.control {
                    control(wish);
                }
            }
            Effect::Redraw => self.redraw = true,
            Effect::Suspend => self.suspend = cfg!(unix),
            Effect::Edit(path) => self.edit = Some(path),
            Effect::Quit => self.leave = true,
        }
    }

    /// Computes on a worker thread.
    fn work(&self, effect: Effect) {
        let (engine, sender) = (self.engine.clone(), self.sender.clone());
        tokio::task::spawn_blocking(move || {
            if let Some(answer) = engine.answer(&effect) {
                // After the end of the loop there is no receiver.
                let _ = sender.send(answer);
            }
        });
    }
}

/// Time for the loop to exit on its own after a signal.
const GRACE: Duration = Duration::from_millis(500);

/// Watches signals that end the program, until dropped.
struct StopWatch {
    asked: Arc<Notify>,
    /// 0 until a signal arrives.
    code: Arc<AtomicU8>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StopWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Watches in its own task: when the terminal is gone, crossterm 0.29 reads its end in an endless loop and never
/// returns to the main loop, which then cannot react. The task restores the terminal and exits the process. A followed
/// job keeps running, and another process goes on recording it.
fn watch_for_stop() -> io::Result<StopWatch> {
    let asked = Arc::new(Notify::new());
    let ask = asked.clone();
    let code = Arc::new(AtomicU8::new(0));
    let tell = code.clone();
    let mut stop = Stop::new()?;
    let task = tokio::spawn(async move {
        let code = stop.requested().await;
        tell.store(code, Ordering::SeqCst);
        ask.notify_one();
        tokio::time::sleep(GRACE).await;
        terminal::restore();
        std::process::exit(code.into());
    });
    Ok(StopWatch { asked, code, task })
}

/// Signals that end a program by default, except those raised by its own faults.
#[cfg(unix)]
const ENDING: [i32; 9] = [SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGXCPU];

/// Receives signals that end the program.
#[cfg(unix)]
struct Stop(Vec<(i32, tokio::signal::unix::Signal)>);

#[cfg(unix)]
impl Stop {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let watched = ENDING.into_iter().map(|number| Ok((number, signal(SignalKind::from_raw(number))?)));
        watched.collect::<io::Result<_>>().map(Self)
    }

    /// Waits for a signal and returns the exit code, 128 plus its number as in shells.
    async fn requested(&mut self) -> u8 {
        let each = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        let (number, ..) = futures_util::future::select_all(each).await;
        128 + number as u8
    }
}

#[cfg(not(unix))]
struct Stop;

#[cfg(not(unix))]
impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn requested(&mut self) -> u8 {
        // Ctrl-C arrives as a key; an error here means that no signal can arrive.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        130
    }
}
