//! The planner against known answers, brute force, and its own promises.

#![allow(clippy::float_cmp, reason = "where numbers are compared exactly, they are exact")]
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "plan/accept.rs"]
mod accept;
#[path = "plan/batch.rs"]
mod batch;
#[path = "plan/billing.rs"]
mod billing;
#[path = "plan/build.rs"]
mod build;
#[path = "plan/emissions.rs"]
mod emissions;
#[path = "plan/integers.rs"]
mod integers;
#[path = "plan/jobs.rs"]
mod jobs;
#[path = "plan/jobs_brute.rs"]
mod jobs_brute;
#[path = "plan/jobs_large.rs"]
mod jobs_large;
#[path = "plan/known.rs"]
mod known;
#[path = "plan/machines.rs"]
mod machines;
#[path = "plan/model_parallel.rs"]
mod model_parallel;
#[path = "plan/properties.rs"]
mod properties;
#[path = "plan/rejected.rs"]
mod rejected;
#[path = "plan/requests.rs"]
mod requests;
#[path = "plan/spot.rs"]
mod spot;
#[path = "plan/uses.rs"]
mod uses;
