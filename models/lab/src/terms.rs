//! `habitat-lab terms`: the table of the efficiency model's terms.

use std::io::Write;

use habitat_tui::cli::CliError;
use habitat_tui::predict::efficiency::{Efficiency, Id, Side, Term};
use habitat_tui::store::bundled;

/// Prints each term with its prior and its shipped value, under the reason for its prior.
pub(crate) fn run(out: &mut dyn Write) -> Result<u8, CliError> {
    let model = bundled::efficiency();
    writeln!(out, "Natural logarithms of time factors: mean ± standard deviation before any step → shipped value.")?;
    writeln!(out, "* never below 0. GPUs have a term for their compute capability and one of their own.\n")?;
    writeln!(out, "{}", line("", &|side| side.name().to_owned()))?;
    let mut reason = "";
    for term in Term::all() {
        if term.reason() != reason {
            reason = term.reason();
            writeln!(out, "\n{reason}")?;
        }
        writeln!(out, "{}", of(&Id::Term(term), &model))?;
    }
    writeln!(out)?;
    let mut gpus: Vec<Id> = model.compute.iter().map(|(id, _)| id).filter(|id| !matches!(id, Id::Term(_))).collect();
    gpus.sort();
    for id in gpus {
        writeln!(out, "{}", of(&id, &model))?;
    }
    Ok(0)
}

fn of(id: &Id, model: &Efficiency) -> String {
    let name = format!("  {}{}", id.name(), if id.only_slows() { " *" } else { "" });
    line(&name, &|side| {
        let value = model.factors(side).of(id).map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        id.prior(side).map_or_else(String::new, |prior| format!("{:.2} ± {:.2} → {value}", prior.mean, prior.width))
    })
}

fn line(name: &str, column: &dyn Fn(Side) -> String) -> String {
    let columns = Side::ALL.map(|side| format!("{:22}", column(side))).concat();
    format!("{name:46}{columns}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_term_has_its_reason_and_shipped_value() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (reason, term) = text.split_once("\n  attention, for Ampere *").unwrap();
        assert!(reason.ends_with("(Shah et al. 2024, section 1)."), "{reason}");
        assert!(term.trim_start().starts_with("0.75 ± 0.30 → 0."), "{term}");
        assert!(text.contains("\n  compute capability 9.0 ") && text.contains("\n  h200-sxm-141gb "));
    }
}
