//! One picture: what a key press costs besides its own work.

#[path = "../common/mod.rs"]
mod common;

use habitat_tui::action::Screen;
use habitat_tui::tui::{draw, render};

fn main() {
    divan::main();
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the form divan gives arguments in")]
#[divan::bench(args = [Screen::Overview, Screen::Profile, Screen::Predict, Screen::Plan], consts = [120, 200])]
fn frame<const WIDTH: u16>(bencher: divan::Bencher<'_, '_>, screen: &Screen) {
    let mut launch = common::launch();
    launch.setup.screen = *screen;
    let size = (WIDTH, WIDTH * 3 / 10 + if WIDTH == 120 { 4 } else { 0 });
    let (app, _) = render(&launch, &[], size);
    bencher.bench(|| draw(&app, size));
}
