//! Warns of products, convolutions, attention and recurrent layers whose FLOPs are unknown or only estimated, and
//! widens their ranges. They never count as 0 FLOPs without a warning.

use std::collections::BTreeMap;

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::method::Method;
use super::warning::{Warning, WarningKind};
use habitat_base::units::Range;
use habitat_step::profile::DType;

/// Maximum number of operators named in a warning.
const NAMED: usize = 3;

/// Warnings that apply to every GPU.
pub(super) fn warnings(decoded: &[Decoded<'_>]) -> Vec<Warning> {
    let has_shapes = |one: &&Decoded<'_>| !one.operation.inputs.is_empty();
    let uncounted = names(decoded.iter().filter(has_shapes).filter(|one| one.op.is_uncounted()));
    let doubted = names(decoded.iter().filter(|one| one.op.doubt() > 1.0));
    let uncounted = uncounted.map(|names| {
        format!(
            "unknown FLOPs of {names}, because their shapes are not understood: measured times are scaled within a wide range, and without a measured time the operator is missing from the step"
        )
    });
    let doubted = doubted.map(|names| {
        format!(
            "estimated FLOPs of {names}: the lengths of packed sequences are unknown, and the range covers equal to most unequal lengths"
        )
    });
    let is_wide = |one: &&Decoded<'_>| matches!(one.dtype, Some(DType::Float64 | DType::Complex128));
    let wide = names(decoded.iter().filter(|one| one.family.varies_kernels()).filter(is_wide)).map(|names| {
        format!(
            "products in float64 ({names}) are predicted at FP32 rates, because the catalog has no FP64 rates: data-centre GPUs take about twice as long, others up to 64 times"
        )
    });
    let warning = |text| Warning { kind: WarningKind::Uncounted, text };
    uncounted.into_iter().chain(doubted).chain(wide).map(warning).collect()
}

/// Widens a time by the uncertainty factor of its arithmetic, both ways.
pub(super) fn doubted(time: Estimate, doubt: f64) -> Estimate {
    let Range { low, mid, high } = time.range;
    Estimate { range: Range { low: low * (1.0 / doubt), mid, high: high * doubt }, method: Method::BetweenRates }
}

/// Names of operators with their calls per step; `None` without operators.
fn names<'a>(decoded: impl Iterator<Item = &'a Decoded<'a>>) -> Option<String> {
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for one in decoded {
        *calls.entry(&one.operation.name).or_default() += u64::from(one.operation.count);
    }
    let more = match calls.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let named = |(name, calls): (&&str, &u64)| format!("{} (×{calls})", habitat_base::text::clean(name, 60));
    let listed: Vec<String> = calls.iter().take(NAMED).map(named).collect();
    (!listed.is_empty()).then(|| listed.join(", ") + &more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use habitat_step::profile::Profile;

    #[test]
    fn operators_without_a_count_are_named() {
        let of = |operations: &str| {
            let json = format!(
                r#"{{"format": "habitat-profile", "version": 1, "workload": {{"name": "w", "mode": "inference"}}, "operations": [{operations}]}}"#
            );
            let profile = Profile::from_json(json.as_bytes()).unwrap().0;
            warnings(&Decoded::all(&profile)).into_iter().map(|warning| warning.text).collect::<Vec<_>>()
        };
        let found = of(
            r#"{"name": "vllm::unified_attention", "phase": "forward", "count": 32, "inputs": [[128, 8, 64], [128, 8, 64], [128, 8, 64]]},
               {"name": "_C::cutlass_scaled_mm", "phase": "forward", "inputs": [[64, 48], [64, 32], [32, 48]]},
               {"name": "aten::mm", "phase": "forward", "inputs": [[8, 0], [0, 8]]}, {"name": "aten::relu", "phase": "forward"}"#,
        );
        assert!(
            found[0].starts_with("unknown FLOPs of _C::cutlass_scaled_mm (×1), vllm::unified_attention (×32),"),
            "{found:?}"
        );
        assert_eq!(found.len(), 1);
        let attributes = r#""attributes": {"max_q": 100, "max_k": 100}"#;
        let inputs = r#""inputs": [[128, 8, 64], [128, 8, 64], [128, 8, 64], [4], [4]]"#;
        let found =
            of(&format!(r#"{{"name": "torch_attn::_varlen_attn", "phase": "forward", {inputs}, {attributes}}}"#));
        assert!(
            matches!(&found[..], [one] if one.starts_with("estimated FLOPs of torch_attn::_varlen_attn (×1)")),
            "{found:?}"
        );
        assert!(of(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8, 4], [4, 8]]}"#).is_empty());
        let found = of(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8, 4], [4, 8]], "dtype": "float64"}"#);
        assert!(matches!(&found[..], [one] if one.starts_with("products in float64 (aten::mm (×1))")), "{found:?}");
    }
}
