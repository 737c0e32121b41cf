//! Recomputation of energy and emissions of parts and of a plan.

use super::part::recompute;
use super::{CheckError, compare, numbers};
use crate::plan::{Footprint, Part, Plan};

/// Energy in kWh, and kilograms of CO2e if known, low to high.
pub(in crate::plan) type Taken = Option<([f64; 3], Option<[f64; 3]>)>;

/// Energy and emissions of a part for its hours of running.
pub(super) fn taken(part: &Part, running: [f64; 3]) -> Taken {
    let draw = part.draw?;
    let energy = running.map(|hours| draw.machines.get() / 1000.0 * draw.pue * hours);
    Some((energy, draw.intensity.map(|of| energy.map(|kwh| kwh * of.kg_per_kwh))))
}

pub(in crate::plan) fn added(
    a: ([f64; 3], Option<[f64; 3]>),
    b: ([f64; 3], Option<[f64; 3]>),
) -> ([f64; 3], Option<[f64; 3]>) {
    let sum = |a: [f64; 3], b: [f64; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    (sum(a.0, b.0), a.1.zip(b.1).map(|(a, b)| sum(a, b)))
}

pub(in crate::plan) fn check_footprint(what: &str, stated: &Footprint, found: Taken) -> Result<(), CheckError> {
    let or_nan = |numbers: Option<[f64; 3]>| numbers.unwrap_or([f64::NAN; 3]);
    let kg = found.and_then(|found| found.1);
    for (unit, stated, found) in [
        ("kWh", stated.energy.as_ref().map(numbers), found.map(|found| found.0)),
        ("kg of CO2e", stated.emissions.as_ref().map(numbers), kg),
    ] {
        if stated.is_some() || found.is_some() {
            compare(&format!("{unit} of {what}"), &or_nan(stated), &or_nan(found))?;
        }
    }
    Ok(())
}

/// Energy and emissions of a plan that switches from spot to another machine, combined like the cost.
pub(super) fn switched_taken(plan: &Plan) -> Taken {
    let [spot, to] = &plan.parts[..] else { return None };
    let of = |part: &Part, first| taken(part, recompute(part, &plan.goal.assumptions, first, f64::INFINITY).running);
    let all = |part: &Part| of(&Part { work: plan.work, ..part.clone() }, true);
    let (spot_own, to_own, spot_all, to_all) = (of(spot, true)?, of(to, false)?, all(spot)?, all(to)?);
    let join = |spot_own: [f64; 3], to_own: [f64; 3], spot_all: [f64; 3], to_all: [f64; 3]| {
        [spot_all[0], spot_own[1] + to_own[1], spot_own[1] + to_all[2]]
    };
    let kg = spot_own.1.zip(to_own.1).zip(spot_all.1.zip(to_all.1));
    let kg = kg.map(|((spot_own, to_own), (spot_all, to_all))| join(spot_own, to_own, spot_all, to_all));
    Some((join(spot_own.0, to_own.0, spot_all.0, to_all.0), kg))
}
