//! What the shown predictions assume beyond the recording, in a few words: the header of every screen names it.

use super::App;
use super::screen::predict::{self, what_if};
use habitat_prediction::{Host, MethodChoice};
use habitat_reports::format;

/// Method, precision, host, batch and changed GPU, as far as they are not as recorded.
pub fn modes(app: &App) -> Vec<String> {
    let method = app.chosen.method.filter(|method| *method != MethodChoice::Auto);
    let host = app.chosen.host.or_else(|| app.predictions.value().map(|all| all.host));
    let batch = app.chosen.batch.flatten();
    [
        predict::precision(app).map(|precision| format!("as {precision}")),
        host.filter(|host| *host == Host::KeepsUp).map(|_| "no CPU wait".to_owned()),
        batch.map(|batch| format!("batch {} too", format::grouped(batch as f64))),
        what_if::is_changed(app).then(|| "what-if GPU".to_owned()),
        method.map(|method| format!("by {}", method.name())),
    ]
    .into_iter()
    .flatten()
    .collect()
}
