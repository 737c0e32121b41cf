//! Arguments of the screens.

use crate::settings::choices::choice;
use std::path::PathBuf;

use clap::Args;

use super::{InputArgs, OwnArgs};
use crate::settings::goal_args::GoalArgs;
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
    pub wish: GoalArgs,
    /// Own machines.
    #[command(flatten)]
    pub own: OwnArgs,
    /// Batch sizes per GPU that plans may use in addition to the recorded one: a list, or auto (halved down to 1,
    /// doubled twice).
    #[arg(long, value_name = "N,…", value_parser = values::batch_sizes, help_heading = "Work")]
    pub batch_sizes: Option<BatchSizes>,
    /// A second recording to compare with on the profile screen, such as last week's.
    #[arg(long, value_name = "FILE", help_heading = "Screens")]
    pub against: Option<PathBuf>,
    /// Several jobs (TOML, as for `plan-jobs`) to plan together on their own screen; without a recorded step, the other
    /// screens show the first job's.
    #[arg(long, value_name = "FILE", help_heading = "Screens")]
    pub jobs: Option<PathBuf>,
    /// Screen to open.
    #[arg(long, value_parser = choice::<Screen>(), default_value = "overview", help_heading = "Screens")]
    pub screen: Screen,
    /// GPU to select.
    #[arg(long, help_heading = "Screens")]
    pub gpu: Option<String>,
    /// Initial filter.
    #[arg(long, help_heading = "Screens")]
    pub filter: Option<String>,
    /// Theme: dark, light, high-contrast, none, or your own (a name in themes/ next to the settings, or a file).
    #[arg(long, env = "HABITAT_TUI_THEME", help_heading = "Screens")]
    pub theme: Option<String>,
    /// Number of colours: none, 16, 256, true (24 bits), or auto (detected from the terminal).
    #[arg(long, value_parser = ColourLevel::parse, env = "HABITAT_TUI_COLOR", help_heading = "Screens")]
    pub color: Option<ColourChoice>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "HABITAT_TUI_ASCII", help_heading = "Screens")]
    pub ascii: bool,
    /// Do not capture the mouse.
    #[arg(long, help_heading = "Screens")]
    pub no_mouse: bool,
    /// Write an image of the screen to this file (.svg, or .png if rsvg-convert is installed) and exit.
    #[arg(long, value_name = "FILE", help_heading = "Picture")]
    pub screenshot: Option<PathBuf>,
    /// Columns x rows of the image.
    #[arg(long, value_name = "WxH", value_parser = values::size, default_value = "120x40", help_heading = "Picture")]
    pub size: (u16, u16),
    /// Keys to press before the image is taken, such as "j j enter".
    #[arg(long, value_name = "KEYS", default_value = "", help_heading = "Picture")]
    pub keys: String,
    /// Overwrite an existing file.
    #[arg(long, help_heading = "Picture")]
    pub force: bool,
}
