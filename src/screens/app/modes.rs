//! Assumptions of the current predictions beyond the recording, in a few words for the header of every screen.

use super::App;
use super::screen::predict::{self, what_if};
use habitat_prediction::{Host, MethodChoice};
use habitat_reports::format;

/// Method, precision, host, batch size and what-if GPU, if they differ from the recording.
pub(crate) fn modes(app: &App) -> Vec<String> {
    let method = app.chosen.method.filter(|method| *method != MethodChoice::Auto);
    let host = app.chosen.host.or_else(|| app.predictions.value().map(|all| all.host));
    let batch = app.chosen.batch.flatten();
    [
        predict::precision(app).map(|precision| format!("as {precision}")),
        host.filter(|host| *host == Host::KeepsUp).map(|_| "no CPU wait".to_owned()),
        batch.map(|batch| format!("also batch {}", format::grouped(batch as f64))),
        what_if::is_changed(app).then(|| "what-if GPU".to_owned()),
        method.map(|method| format!("by {}", method.name())),
    ]
    .into_iter()
    .flatten()
    .collect()
}
