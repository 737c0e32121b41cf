//! Delays for the user: a picture, a key until its picture, the start until the first picture.
//!
//! At the end, the peak memory of the program on the embedded sample.

#[path = "../common/mod.rs"]
mod common;
#[cfg(unix)]
#[path = "../common/terminal.rs"]
mod terminal;

use std::sync::Arc;

use habitat_tui::action::Screen;
use habitat_tui::launch::engine;
use habitat_tui::predict::Options;
use habitat_tui::profile::{Operation, Profile};
use habitat_tui::report::plan_toml::Request;
use habitat_tui::store::bundled;
use habitat_tui::tui::{Launch, draw, render};

fn main() {
    divan::main();
    #[cfg(unix)]
    program::say_memory();
}

const SCREENS: [Screen; 4] = [Screen::Overview, Screen::Profile, Screen::Predict, Screen::Plan];

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form divan gives arguments in")]
#[divan::bench(args = SCREENS, consts = [120, 200])]
fn frame<const WIDTH: u16>(bencher: divan::Bencher<'_, '_>, screen: &Screen) {
    let mut launch = common::launch();
    launch.setup.screen = *screen;
    let size = (WIDTH, WIDTH * 3 / 10 + if WIDTH == 120 { 4 } else { 0 });
    let (app, _) = render(&launch, &[], size);
    bencher.bench(|| draw(&app, size));
}

/// Distinct operations.
const OPERATIONS: u64 = 100_000;
/// Target GPUs.
const GPUS: usize = 64;

/// A step of very many operations, on very many GPUs.
fn large(screen: Screen) -> Launch {
    let mut launch = common::launch();
    let small = &launch.setup.profile;
    let product = |number: u64| {
        let operation = &small.operations[0];
        Operation { inputs: vec![vec![number + 1, 128], vec![128, 128]], count: 1, ..operation.clone() }
    };
    let profile = Profile { operations: (0..OPERATIONS).map(product).collect(), ..(**small).clone() };
    let targets = bundled::gpus().into_iter().map(|gpu| gpu.slug).take(GPUS).collect();
    let options = Options { targets, ..Options::default() };
    launch.engine = engine(&launch.setup.catalog, (options, Vec::new()), Request::default());
    (launch.setup.profile, launch.setup.screen) = (Arc::new(profile), screen);
    launch
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form divan gives arguments in")]
#[divan::bench(args = SCREENS, sample_count = 50)]
fn frame_of_a_large_step(bencher: divan::Bencher<'_, '_>, screen: &Screen) {
    let (app, _) = render(&large(*screen), &[], (120, 40));
    bencher.bench(|| draw(&app, (120, 40)));
}

/// The program, in a pseudo-terminal.
#[cfg(unix)]
mod program {
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    use super::terminal::Terminal;

    const PROGRAM: &str = env!("CARGO_BIN_EXE_habitat-tui");

    /// Waits until the program has written more than before.
    fn drawn_after(terminal: &Terminal, before: usize) {
        while terminal.written.load(Ordering::SeqCst) == before {
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn opened(arguments: &[&str], seen: &str) -> Terminal {
        let terminal = Terminal::open(PROGRAM, arguments, &[]);
        terminal.sees(seen);
        std::thread::sleep(Duration::from_secs(1));
        terminal
    }

    #[divan::bench(sample_count = 20)]
    fn start_to_first_picture(bencher: divan::Bencher<'_, '_>) {
        bencher.bench_local(|| {
            let terminal = Terminal::open(PROGRAM, &[], &[]);
            while !terminal.text().contains("time by operator") {
                std::thread::sleep(Duration::from_micros(200));
            }
            terminal
        });
    }

    #[divan::bench(sample_count = 100)]
    fn key_to_picture(bencher: divan::Bencher<'_, '_>) {
        let mut terminal = opened(&["--screen", "profile"], "convolution");
        let mut keys = "jk".chars().cycle();
        bencher.bench_local(|| {
            let before = terminal.written.load(Ordering::SeqCst);
            terminal.press(&keys.next().expect("they never end").to_string());
            drawn_after(&terminal, before);
        });
    }

    /// Each key changes the amount of work, which triggers a new plan, and the next key comes meanwhile.
    #[divan::bench(sample_count = 100)]
    fn key_to_picture_while_planning(bencher: divan::Bencher<'_, '_>) {
        let mut terminal = opened(&["--screen", "plan"], "v: timeline");
        let mut keys = "lh".chars().cycle();
        bencher.bench_local(|| {
            let before = terminal.written.load(Ordering::SeqCst);
            terminal.press(&keys.next().expect("they never end").to_string());
            drawn_after(&terminal, before);
        });
    }

    pub(super) fn say_memory() {
        let mut terminal = opened(&[], "Recommended offer");
        for screen in ["2", "3", "4"] {
            terminal.press(screen);
            std::thread::sleep(Duration::from_millis(500));
        }
        let process = terminal.child.process_id().expect("it was started");
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" not known here");
        eprintln!("most memory, embedded sample, all screens seen:{}", most.replace('\t', " "));
    }
}
