//! Fifth screen: the running job, the progress of its recording, and its output.

use crate::action::{Action, Needs};
use crate::app::App;
use crate::app::live::Live;
use crate::app::screen::behaviour::Behaviour;
use habitat_base::text::clean;
use habitat_base::units::Micros;
use habitat_recorder::live::{Board, Job, RecordingWindows, Snapshot, State, StopSignal};
use habitat_reports::run::planned;
use habitat_reports::theme::Role;
use habitat_reports::{format, history, ranks, run, summary, verdict};
use habitat_step::profile::Profile;

/// The screen; its state is [`Live`].
pub struct JobScreen;

impl Behaviour for JobScreen {
    fn awaits(&self) -> Option<&'static str> {
        None
    }

    fn gives(&self, _app: &App, needs: Needs) -> bool {
        needs == Needs::Rows
    }

    fn step(&self, app: &mut App, by: isize) {
        if let Some(live) = &mut app.live {
            live.above = live.above.saturating_add_signed(-by).min(live.output.len().saturating_sub(1));
        }
    }
}

/// State of the job in words.
pub fn state(live: &Live) -> (String, Role) {
    let Live { job, seen, .. } = live;
    let step = || format!("step {}", format::grouped(seen.steps as f64));
    let (windows, after, window) = match job.wanted {
        RecordingWindows::Steps { windows, after, window, .. } => (windows as usize, after, u64::from(window)),
        RecordingWindows::Kernels { .. } => (1, 0, 0),
    };
    let counts_steps = matches!(job.wanted, RecordingWindows::Steps { .. });
    let words = match &seen.state {
        State::Started if !counts_steps => "started; waiting for it to start CUDA".to_owned(),
        State::Cuda(0) => "CUDA started; recording begins".to_owned(),
        State::Cuda(seconds) => format!("CUDA started; recording begins in {seconds} s"),
        State::Kernels(0) => "recording kernels".to_owned(),
        State::Kernels(seconds) => format!("recording kernels, {seconds} s left"),
        State::Writing if !counts_steps => "writing the trace".to_owned(),
        State::Running if seen.kernels.is_some() => "running; recorded".to_owned(),
        State::Running => "running; recording is over".to_owned(),
        State::Started => "started; waiting for its Python".to_owned(),
        State::Python => "Python started; waiting for PyTorch to be imported".to_owned(),
        State::Torch => "PyTorch imported; waiting for the first optimizer step".to_owned(),
        State::Steps if seen.windows.len() >= windows => format!("{}; recorded", step()),
        State::Steps if !seen.windows.is_empty() => {
            format!("{}; the next window opens at least ten steps after the last", step())
        }
        State::Steps if seen.steps <= after && seen.notes.is_empty() => {
            let (first, last) = (after + 1, after + window);
            format!("{}; steps {first}–{last} will be recorded", step())
        }
        State::Steps => format!("{}; no open window", step()),
        State::Recording(first, last) if first == last => format!("recording step {first}"),
        State::Recording(first, last) => format!("recording steps {first}–{last}"),
        State::Writing => format!("{}; writing the trace", step()),
        State::Stopping(sent) => stopping(*sent),
        State::Stopped => format!(
            "stopped by a signal, for example because it needs a terminal (use --no-tui for that); continue it with `kill -CONT {}`",
            job.pid
        ),
        State::Ended { words, .. } if seen.steps > 0 => {
            let later = if seen.steps_at_least { " or later" } else { "" };
            format!("{words}, at {}{later}", step())
        }
        State::Ended { words, .. } => words.clone(),
        State::Left if seen.steps == 0 => "continues unwatched: the process that recorded it was killed".to_owned(),
        State::Left => format!("continues unwatched since {}: the process that recorded it was killed", step()),
    };
    let role = match &seen.state {
        State::Ended { well: true, .. } => Role::Good,
        State::Ended { .. } => Role::Error,
        State::Stopped | State::Stopping(_) => Role::Warning,
        _ => Role::Text,
    };
    match seen.silent {
        Some(seconds) => (format!("{words}; no message for {}", span(seconds)), Role::Warning),
        None => (words, role),
    }
}

fn span(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

/// The signal that was sent to stop a job, and the next one if it does not end.
fn stopping(sent: StopSignal) -> String {
    match sent.stronger() {
        Some(stronger) => format!(
            "sent {}; {} follows if it still runs after {} s",
            sent.name(),
            stronger.name(),
            sent.grace().as_secs()
        ),
        None => format!("sent {}; waiting for it to end", sent.name()),
    }
}

/// The signals that will be sent to stop a job after `sent`.
pub(crate) fn stop_signals(sent: Option<StopSignal>) -> String {
    let mut signal = sent.map_or(StopSignal::Interrupt, |sent| sent.stronger().unwrap_or(sent));
    let mut words = match signal {
        StopSignal::Interrupt => format!("{}, as Ctrl-C does", signal.name()),
        _ => signal.name().to_owned(),
    };
    while let Some(stronger) = signal.stronger() {
        words = format!("{words}; {} s later {}", signal.grace().as_secs(), stronger.name());
        signal = stronger;
    }
    words
}

/// Processes, ranks and versions.
pub fn processes(live: &Live) -> String {
    let Live { job, seen, .. } = live;
    if matches!(job.wanted, RecordingWindows::Kernels { .. }) {
        let others: Vec<_> = seen.processes.iter().map(|process| process.pid).filter(|pid| *pid != job.pid).collect();
        return match others.len() {
            0 => job.pid.to_string(),
            1..=4 => format!(
                "{}, CUDA in {}",
                job.pid,
                seen.processes.iter().map(|process| process.pid.to_string()).collect::<Vec<_>>().join(", ")
            ),
            _ => format!("{}, CUDA in {} processes", job.pid, seen.processes.len()),
        };
    }
    let training: Vec<_> = seen.processes.iter().filter(|process| process.steps > 0).collect();
    let Some(first) = training.first().copied().or_else(|| seen.processes.first()) else {
        return job.pid.to_string();
    };
    let mut parts = Vec::new();
    let named: Vec<String> = training
        .iter()
        .map(|process| match process.rank {
            Some(rank) => format!("{} (rank {rank})", process.pid),
            None => process.pid.to_string(),
        })
        .collect();
    let alone = named.len() == 1 && training[0].pid == job.pid && training[0].rank.is_none();
    parts.push(match named.len() {
        0 => job.pid.to_string(),
        _ if alone => named[0].clone(),
        1..=4 => format!("{}, trains in {}", job.pid, named.join(", ")),
        count => format!("{}, trains in {count} processes", job.pid),
    });
    parts.extend(first.python.as_ref().map(|version| format!("Python {}", clean(version, 20))));
    parts.extend(first.torch.as_ref().map(|version| format!("PyTorch {}", clean(version, 30))));
    parts.join(" · ")
}

/// Step times in figures: the last one, and statistics of the others with the throughput.
pub fn times(app: &App, seen: &Snapshot) -> Option<(String, String)> {
    let times = seen.times?;
    let last = format!("last {}", format::time(times.now));
    if times.count < 2 {
        return Some((last, "the only step timed so far".to_owned()));
    }
    let which = if times.only_last { "the last " } else { "" };
    let count = format::grouped(f64::from(times.count));
    let [low, high] = times.range;
    let mut rest =
        format!("median {} ({}) of {which}{count}", format::time(times.median), format::time_range(low, high));
    if times.mean.get() > 0.0 {
        let rate = 1e6 / times.mean.get();
        rest = format!("{rest} · {} steps/s", format::number(rate));
        if let Some(batch) = recorded(app).and_then(|profile| profile.workload.batch_size) {
            rest = format!("{rest} · {} samples/s", format::number(rate * batch as f64));
        }
    }
    Some((last, rest))
}

/// Time that the last steps waited for data. For several ranks see `ranks()`.
pub fn data(seen: &Snapshot) -> Option<(String, Role)> {
    if ranks::waits_most(seen).is_some() {
        return None;
    }
    if let Some(waiting) = seen.waiting {
        let workers = waiting.workers.map(|workers| format!(" (num_workers={workers})")).unwrap_or_default();
        return Some((format!("waited for {}{workers}", verdict::waited(waiting)), Role::Text));
    }
    let timed = seen.times.is_some_and(|times| times.count > 5);
    timed.then(|| {
        let outside = seen.split.filter(|split| split.step.get() > 0.0).map(|split| split.rest() / split.step);
        let outside = outside.map(|share| format!("; {} of a step is outside the passes", format::percent(share)));
        (format!("no DataLoader of PyTorch{}", outside.unwrap_or_default()), Role::Muted)
    })
}

/// For a training with several processes: the slowest, and the one that waits most, compared with the median.
pub fn ranks(live: &Live) -> Option<(String, Role)> {
    Some((ranks::words(&live.seen, &live.history)?, Role::Text))
}

/// Number of separate trainings, and the one shown.
pub fn trainings(seen: &Snapshot) -> Option<(String, Role)> {
    Some((ranks::trainings(seen)?, Role::Text))
}

/// GPUs of the machine: the busiest one, and any that is throttled.
pub fn boards(seen: &Snapshot) -> Vec<(String, Role)> {
    let busy = |board: &&Board| board.busy.unwrap_or(0.0);
    let busiest = seen.boards.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)).then(b.index.cmp(&a.index)));
    let Some(busiest) = busiest else { return Vec::new() };
    let mut parts = Vec::new();
    parts.extend(busiest.busy.map(|busy| format!("{:.0} % busy", busy * 100.0)));
    parts.extend(busiest.used.zip(busiest.memory).map(|(used, all)| format!("{used} of {all}")));
    parts.extend(busiest.clock.map(|clock| format!("{} MHz", format::grouped(clock.get()))));
    parts.extend(busiest.power.map(|power| format!("{:.0} W", power.get())));
    parts.extend(busiest.celsius.map(|celsius| format!("{celsius:.0} °C")));
    if seen.boards.len() > 1 && !parts.is_empty() {
        parts.push(format!("GPU {}, the busiest of {}", busiest.index, seen.boards.len()));
    }
    let slowed = seen.boards.iter().filter_map(|board| {
        let ([now, best], true) = ([board.clock?, board.best_clock?], board.busy? >= LOADED) else { return None };
        let why =
            if board.limited_by.is_empty() { "reason not reported".to_owned() } else { board.limited_by.join(", ") };
        let [shown, highest] = [now, best].map(|clock| format::grouped(clock.get()));
        let words = format!("GPU {} throttled to {shown} of {highest} MHz: {why}", board.index);
        (now.get() < best.get() * SLOWED).then_some((words, Role::Warning))
    });
    let facts = (!parts.is_empty()).then(|| (parts.join(" · "), Role::Text));
    facts.into_iter().chain(slowed).collect()
}

/// Utilisation at which a GPU counts as loaded.
const LOADED: f64 = 0.5;
/// Share of the highest clock below which a loaded GPU counts as throttled.
const SLOWED: f64 = 0.95;

/// The bottleneck of the job, the evidence, and the remedy.
pub fn held_back(app: &App, live: &Live) -> Option<(String, Role)> {
    live.seen.times?;
    let profile = recorded(app);
    let memory = run::memory(&live.seen, profile, &app.setup.catalog);
    let found = verdict::verdict(&live.seen, profile, memory, &live.history);
    Some(match found {
        Ok(verdict) => (verdict.to_string(), Role::Title),
        Err(why) => (why, Role::Muted),
    })
}

/// The recorded step, once there is one.
fn recorded(app: &App) -> Option<&Profile> {
    (!app.is_awaiting()).then_some(&*app.setup.profile)
}

/// Time left, cost, and the same run on other GPUs, with their labels.
pub(crate) fn economy(app: &App, live: &Live) -> Vec<(&'static str, (String, Role))> {
    let Live { job: Job { aim, wanted: RecordingWindows::Steps { .. }, .. }, seen, .. } = live else {
        return Vec::new();
    };
    let price = run::price(aim, recorded(app), &app.setup.prices);
    if aim.steps.is_none() && price.is_none() {
        let how = "pass --total-steps and --price to see cost and time left";
        return vec![("cost", (how.to_owned(), Role::Muted))];
    }
    let mut lines = Vec::new();
    let planned = planned::lines(aim, seen, price.as_ref(), recorded(app));
    let is_missed = planned.iter().any(|(.., bad)| *bad) && !seen.is_over() && recorded(app).is_some();
    let mut planned: Vec<_> = planned
        .into_iter()
        .map(|(label, words, bad)| (label, (words, if bad { Role::Warning } else { Role::Text })))
        .collect();
    if is_missed {
        let key = app.setup.keymap.hint(Action::Rest);
        planned.push(("", (format!("{key} plans the rest anew, with the time and money left"), Role::Key)));
    }
    lines.extend(run::left_words(aim, seen).map(|words| ("left", words)));
    lines.push(("cost", run::cost_words(aim, price.as_ref(), seen)));
    if let Some(predictions) = app.predictions.value().filter(|_| recorded(app).is_some()) {
        let others = run::elsewhere_words(aim, seen, price.as_ref(), predictions, &app.setup.prices);
        let words = |(which, words)| ("", format!("{which}: {words}"));
        lines.extend(others.into_iter().map(words));
    }
    let role = |text: &str| {
        if text.starts_with("unknown") { Role::Muted } else { Role::Text }
    };
    planned.into_iter().chain(lines.into_iter().map(|(label, text)| (label, (text.clone(), role(&text))))).collect()
}

/// Step times as bars in eighths of a cell, and the label of a full bar: the longest time, but at most twice the
/// median, so that one delayed step does not flatten the others.
pub fn bars(seen: &Snapshot) -> Option<(Vec<u64>, String)> {
    let most = seen.recent.iter().copied().max_by(Micros::total_cmp)?;
    let twice = seen.times.map(|times| times.median * 2.0).filter(|twice| twice.get() > 0.0);
    let (top, words) = match twice.filter(|twice| twice.get() < most.get()) {
        Some(twice) => (twice, format!("bars from 0 to {} or more", format::time(twice))),
        None => (most, format!("bars from 0 to {}", format::time(most))),
    };
    Some((seen.recent.iter().map(|time| eighths(time.get(), top.get())).collect(), words))
}

/// Eighths of a cell, at least one.
fn eighths(value: f64, top: f64) -> u64 {
    let part = if top > 0.0 { (value / top).clamp(0.0, 1.0) } else { 0.0 };
    ((part * 8.0).ceil() as u64).max(1)
}

/// Mean step times since the start of the job in eighths of a cell, with a legend.
pub fn over_time(live: &Live) -> Option<(Vec<u64>, String)> {
    let (heights, top) = history::heights(&live.history).filter(|(heights, _)| heights.len() > 1)?;
    let top = Micros::new(f64::from(top)).map(format::time).unwrap_or_default();
    Some((heights, format!("mean step over {}, to {top}", history::covered(&live.history)?)))
}

/// Findings in the history of the job but the bottleneck, and what ran beside its training.
pub fn history(app: &App, live: &Live) -> Vec<(String, Role)> {
    let digest = &live.history;
    let beside = history::aside(digest);
    let bottleneck = held_back(app, live).map(|(words, _)| words);
    let others = history::stands_out(digest).into_iter().filter(|words| bottleneck.as_ref() != Some(words));
    others.take(2).chain(beside).map(|words| (words, Role::Text)).collect()
}

/// Recorded windows and their overhead.
pub fn windows(live: &Live) -> String {
    let Live { job, seen, .. } = live;
    let windows = match (job.wanted, seen.kernels) {
        (RecordingWindows::Steps { every: Some(every), .. }, _) if !seen.windows.is_empty() => {
            let mut parts = vec![format!("recorded every {} steps", format::grouped(every as f64))];
            parts.extend(seen.windows.last().map(|(first, last)| format!("last steps {first}–{last}")));
            parts.push(format!("recording cost {}", format::time(seen.cost)));
            return parts.join(" · ");
        }
        (RecordingWindows::Steps { windows, .. }, _) => windows,
        (RecordingWindows::Kernels { .. }, Some(kernels)) => {
            let lost = if kernels.lost > 0 {
                format!(" · {} records lost", format::grouped(kernels.lost as f64))
            } else {
                String::new()
            };
            let count = format::grouped(kernels.count as f64);
            return format!("{count} kernels in {}{lost}", format::time(kernels.length));
        }
        (RecordingWindows::Kernels { after, length }, None) => {
            return format!("{} s of kernels, {} s after CUDA's start", length.as_secs_f64(), after.as_secs_f64());
        }
    };
    let mut parts = vec![format!("{} of {windows} recorded", seen.windows.len())];
    if !seen.windows.is_empty() {
        let steps: Vec<String> = seen
            .windows
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}–{last}") })
            .collect();
        parts.push(format!("steps {}", steps.join(", ")));
    }
    if seen.cost.get() > 0.0 {
        parts.push(format!("recording cost {}", format::time(seen.cost)));
    }
    parts.join(" · ")
}

/// Dropped windows and faults, without those that the remedy covers.
pub fn notes(seen: &Snapshot) -> Vec<&str> {
    let said = |note: &&str| {
        let why = note.split_once(": ").map_or(*note, |(_, why)| why);
        seen.remedy.as_ref().is_some_and(|remedy| remedy.contains(why))
    };
    seen.notes.iter().map(String::as_str).filter(|note| !said(note)).collect()
}

/// The job's device, if the recording shows it; `None` if it never will.
pub fn device(app: &App) -> Option<(String, Role)> {
    let is_over = app.live.as_ref().is_some_and(|live| live.seen.is_over());
    Some(match &app.setup.profile.origin {
        _ if app.is_awaiting() && is_over => return None,
        _ if app.is_awaiting() => ("known after recording".to_owned(), Role::Muted),
        Some(origin) => (summary::recorded_on(origin), Role::Text),
        None => ("CPU: no GPU kernels in the window, so predictions use shapes".to_owned(), Role::Text),
    })
}

/// The profile, or why there is none.
pub fn profile(app: &App, live: &Live) -> (String, Role) {
    match &live.problem {
        Some(problem) => (format!("not written: {}", clean(problem, 400)), Role::Error),
        None if app.is_awaiting() && live.seen.is_over() => ("none".to_owned(), Role::Muted),
        None if app.is_awaiting() => (format!("{}, once a window is recorded", live.job.output), Role::Muted),
        None => (live.job.output.clone(), Role::Text),
    }
}

/// Next steps.
pub fn next(app: &App, live: &Live) -> (String, Role) {
    if let Some(remedy) = &live.seen.remedy {
        return (remedy.clone(), Role::Warning);
    }
    let quit = app.setup.keymap.hint(Action::Back);
    let how = if live.seen.is_over() {
        format!("{quit} quits")
    } else if live.leaving {
        format!("the screens close once the job has ended; {quit} for other choices")
    } else {
        format!("{quit} quits; the job can keep running")
    };
    let text = match (app.is_awaiting(), live.seen.is_over() || live.leaving) {
        (true, true) => how,
        (true, false) => format!("screens 1 to 4 fill after the recording · {how}"),
        (false, _) if live.leaving && !live.seen.is_over() => how,
        (false, _) => format!("2 operations · 3 every GPU · 4 offers · {how}"),
    };
    (text, Role::Muted)
}

/// Content of a screen without a profile: the reason, and what the screen will show.
pub(crate) fn awaited(app: &App) -> Vec<(String, Role)> {
    let Some(live) = &app.live else { return Vec::new() };
    let will = app.screen.behaviour().awaits().unwrap_or_default();
    let (state, role) = state(live);
    let mut lines = Vec::new();
    if live.seen.is_over() {
        let remedy = live.seen.remedy.clone();
        lines.push((remedy.unwrap_or_else(|| "Nothing recorded.".to_owned()), Role::Warning));
    } else {
        lines.push((format!("After a window is recorded, this screen shows {will}."), Role::Text));
    }
    lines.push((format!("The job: {state}."), role));
    let problem = live.problem.as_ref().map(|problem| format!("No profile: {}", clean(problem, 400)));
    lines.extend(problem.map(|problem| (problem, Role::Error)));
    let hopeless = live.seen.remedy.clone().filter(|_| !live.seen.is_over());
    lines.extend(hopeless.map(|remedy| (remedy, Role::Warning)));
    let key = app.setup.keymap.hint(Action::Job);
    lines.push((format!("{key} shows the job and its output."), Role::Muted));
    lines
}

/// The job in one line, for other screens.
pub fn line(live: &Live) -> String {
    let (state, _) = state(live);
    let last = live.seen.times.map(|times| format!(" · last step {}", format::time(times.now)));
    let last = last.filter(|_| !live.seen.is_over()).unwrap_or_default();
    format!("job: {state}{last}")
}

#[cfg(test)]
mod tests {
    use super::eighths;

    #[test]
    fn bars_are_as_high_as_their_values() {
        let heights = [0.0, 2.5, 2.6, 5.0, 10.0, 99.0].map(|value| eighths(value, 10.0));
        assert_eq!(heights, [1, 2, 3, 4, 8, 8]);
        assert_eq!(eighths(0.0, 0.0), 1);
    }
}
