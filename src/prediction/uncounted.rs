//! Warns of products, convolutions, attention and recurrent layers whose FLOPs are unknown or only estimated, and
//! widens their ranges. They never count as 0 FLOPs without a warning.

use std::collections::BTreeMap;

use super::decoded::Decoded;
use super::estimate::Estimate;
use super::finding::{Calls, Finding};
use super::method::Method;
use habitat_base::text;
use habitat_base::units::Range;
use habitat_step::op::Family;
use habitat_step::op::name::{Factors, factors_of_kernel};
use habitat_step::profile::DType;

/// Maximum number of operators named in a warning.
const NAMED: usize = 3;

/// Warnings that apply to every GPU.
pub(super) fn warnings(decoded: &[Decoded<'_>]) -> Vec<Finding> {
    let has_shapes = |one: &&Decoded<'_>| !one.operation.inputs.is_empty();
    let is_wide = |one: &&Decoded<'_>| matches!(one.dtype, Some(DType::Float64 | DType::Complex128));
    let uncounted = named(decoded.iter().filter(has_shapes).filter(|one| one.op.is_uncounted()));
    let doubted = named(decoded.iter().filter(|one| one.op.doubt() > 1.0));
    let wide = named(decoded.iter().filter(|one| one.family.varies_kernels()).filter(is_wide));
    let in_fp4 = named(decoded.iter().filter(|one| is_in_fp4(one)));
    [
        uncounted.map(|(operators, more)| Finding::UnknownFlops { operators, more }),
        doubted.map(|(operators, more)| Finding::EstimatedFlops { operators, more }),
        wide.map(|(operators, more)| Finding::Float64Products { operators, more }),
        in_fp4.map(|(operators, more)| Finding::Fp4Products { operators, more }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a factor of a product is in FP4, by its type or by the name of its kernel.
fn is_in_fp4(one: &Decoded<'_>) -> bool {
    let multiplies = one.family.varies_kernels() || one.family == Family::Unknown;
    let mut kernels = one.operation.kernels.iter();
    multiplies
        && (one.dtype.as_ref().is_some_and(DType::is_fp4)
            || kernels.any(|kernel| factors_of_kernel(&kernel.name) == Some(Factors::Float4)))
}

/// Widens a time by the uncertainty factor of its arithmetic, both ways.
pub(super) fn doubted(time: Estimate, doubt: f64) -> Estimate {
    let Range { low, mid, high } = time.range;
    Estimate { range: Range { low: low * (1.0 / doubt), mid, high: high * doubt }, method: Method::BetweenRates }
}

/// Operators with their calls per step, and the number of those not named; `None` without operators.
fn named<'a>(decoded: impl Iterator<Item = &'a Decoded<'a>>) -> Option<(Vec<Calls>, usize)> {
    let mut calls: BTreeMap<&str, u64> = BTreeMap::new();
    for one in decoded {
        *calls.entry(&one.operation.name).or_default() += u64::from(one.operation.count);
    }
    let operators = calls.iter().take(NAMED).map(|(name, &calls)| Calls { name: text::clean(name, 60), calls });
    (!calls.is_empty()).then(|| (operators.collect(), calls.len().saturating_sub(NAMED)))
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
            warnings(&Decoded::all(&profile))
        };
        let found = of(
            r#"{"name": "vllm::unified_attention", "phase": "forward", "count": 32, "inputs": [[128, 8, 64], [128, 8, 64], [128, 8, 64]]},
               {"name": "_C::cutlass_scaled_mm", "phase": "forward", "inputs": [[64, 48], [64, 32], [32, 48]]},
               {"name": "aten::mm", "phase": "forward", "inputs": [[8, 0], [0, 8]]}, {"name": "aten::relu", "phase": "forward"}"#,
        );
        let called = |name: &str, calls| Calls { name: name.to_owned(), calls };
        let operators = vec![called("_C::cutlass_scaled_mm", 1), called("vllm::unified_attention", 32)];
        assert_eq!(found, [Finding::UnknownFlops { operators, more: 0 }]);
        let attributes = r#""attributes": {"max_q": 100, "max_k": 100}"#;
        let inputs = r#""inputs": [[128, 8, 64], [128, 8, 64], [128, 8, 64], [4], [4]]"#;
        let found =
            of(&format!(r#"{{"name": "torch_attn::_varlen_attn", "phase": "forward", {inputs}, {attributes}}}"#));
        let operators = vec![called("torch_attn::_varlen_attn", 1)];
        assert_eq!(found, [Finding::EstimatedFlops { operators, more: 0 }]);
        assert!(of(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8, 4], [4, 8]]}"#).is_empty());
        let found = of(r#"{"name": "aten::mm", "phase": "forward", "inputs": [[8, 4], [4, 8]], "dtype": "float64"}"#);
        assert_eq!(found, [Finding::Float64Products { operators: vec![called("aten::mm", 1)], more: 0 }]);
        let product = r#""name": "aten::mm", "phase": "forward", "inputs": [[8, 4], [4, 8]]"#;
        for four in [
            r#""dtype": "float4_e2m1fn_x2""#,
            r#""dtype": "bfloat16", "kernels": [{"name": "bmm_Bfloat16_E2m1E2m1", "duration_us": 1}]"#,
        ] {
            let found = of(&format!("{{{product}, {four}}}"));
            assert_eq!(found, [Finding::Fp4Products { operators: vec![called("aten::mm", 1)], more: 0 }]);
        }
    }
}
