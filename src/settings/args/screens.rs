//! Arguments of the screens.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{GoalArgs, InputArgs};
use crate::settings::values;

/// Arguments of the screens.
#[derive(Debug, Clone, Default, Args)]
pub struct ScreensArgs {
    /// The recorded step.
    #[command(flatten)]
    pub input: InputArgs,
    /// The goal to plan for.
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Screen to open.
    #[arg(long, value_enum, default_value_t = ScreenArg::Overview, help_heading = "Screens")]
    pub screen: ScreenArg,
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
    /// How many colours.
    #[arg(long, value_enum, env = "HABITAT_TUI_COLOR", help_heading = "Screens")]
    pub color: Option<ColorArg>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "HABITAT_TUI_ASCII", help_heading = "Screens")]
    pub ascii: bool,
    /// Leave the mouse to the terminal.
    #[arg(long, help_heading = "Screens")]
    pub no_mouse: bool,
    /// Write a picture (SVG) of the screen to this file and exit.
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

/// `--screen`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ScreenArg {
    /// What was recorded, and the answer so far.
    #[default]
    Overview,
    /// Operation by operation.
    Profile,
    /// GPU by GPU.
    Predict,
    /// The plan.
    Plan,
}

/// `--color`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorArg {
    /// None.
    None,
    /// The 16 of every terminal.
    #[value(name = "16")]
    Sixteen,
    /// 256.
    #[value(name = "256")]
    Indexed,
    /// 24 bits.
    True,
    /// What the terminal says it can do.
    Auto,
}
