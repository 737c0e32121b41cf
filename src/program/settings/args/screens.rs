//! Arguments of the screens.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::Args;

use super::{InputArgs, OwnArgs};
use crate::settings::wish::Wish;
use habitat_planning::values::{self, BatchSizes};
use habitat_reports::theme::{ColourChoice, ColourLevel};
use habitat_screens::action::Screen;

/// Arguments of the screens.
#[derive(Debug, Clone, Default, Args)]
pub struct ScreensArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// The goal to plan for.
    #[command(flatten)]
    pub wish: Wish,
    /// Own machines.
    #[command(flatten)]
    pub own: OwnArgs,
    /// Batches a GPU that the plan may use beside the recorded one: sizes, or auto (halved down
    /// to 1, doubled twice).
    #[arg(long, value_name = "N,…", value_parser = values::batch_sizes, help_heading = "Work")]
    pub batch_sizes: Option<BatchSizes>,
    /// A second recording that the profile screen compares this one with, such as that of last week.
    #[arg(long, value_name = "FILE", help_heading = "Screens")]
    pub against: Option<PathBuf>,
    /// Several jobs (TOML, as of `plan-jobs`) to plan together on a screen of their own; without a
    /// recorded step the other screens show that of the first job.
    #[arg(long, value_name = "FILE", help_heading = "Screens")]
    pub jobs: Option<PathBuf>,
    /// Screen to open.
    #[arg(long, value_parser = choice::<Screen>(), default_value = "overview", help_heading = "Screens")]
    pub screen: Screen,
    /// GPU to select.
    #[arg(long, help_heading = "Screens")]
    pub gpu: Option<String>,
    /// Filter to start with.
    #[arg(long, help_heading = "Screens")]
    pub filter: Option<String>,
    /// Colours: dark, light, high-contrast, none, or one of your own (its name, of those in
    /// themes/ beside the settings, or its file).
    #[arg(long, env = "HABITAT_TUI_THEME", help_heading = "Screens")]
    pub theme: Option<String>,
    /// How many colours: none, 16, 256, true (24 bits), or auto (what the terminal can show).
    #[arg(long, value_parser = ColourLevel::parse, env = "HABITAT_TUI_COLOR", help_heading = "Screens")]
    pub color: Option<ColourChoice>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "HABITAT_TUI_ASCII", help_heading = "Screens")]
    pub ascii: bool,
    /// Leave the mouse to the terminal.
    #[arg(long, help_heading = "Screens")]
    pub no_mouse: bool,
    /// Write a picture of the screen to this file (.svg, or .png where rsvg-convert is installed) and exit.
    #[arg(long, value_name = "FILE", help_heading = "Picture")]
    pub screenshot: Option<PathBuf>,
    /// Columns x rows of the picture.
    #[arg(long, value_name = "WxH", value_parser = values::size, default_value = "120x40", help_heading = "Picture")]
    pub size: (u16, u16),
    /// Keys to press before the picture is taken, as "j j enter".
    #[arg(long, value_name = "KEYS", default_value = "", help_heading = "Picture")]
    pub keys: String,
    /// Replace the file if it is there.
    #[arg(long, help_heading = "Picture")]
    pub force: bool,
}
