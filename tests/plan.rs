//! The planner against known answers, brute force, and its own promises.

#[path = "plan/build.rs"]
mod build;
#[path = "plan/integers.rs"]
mod integers;
#[path = "plan/known.rs"]
mod known;
#[path = "plan/properties.rs"]
mod properties;
#[path = "plan/rejected.rs"]
mod rejected;
#[path = "plan/spot.rs"]
mod spot;
