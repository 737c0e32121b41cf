//! The themes that come with the program, as TOML.

/// Content of each theme file, in the order of the menu.
pub const SHIPPED: [&str; 4] = [
    include_str!("dark.toml"),
    include_str!("light.toml"),
    include_str!("high-contrast.toml"),
    include_str!("none.toml"),
];
