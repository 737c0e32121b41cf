//! Precision of recordings whose products have no shapes, or other types than the first operator.

use habitat_tui::profile::{Precision, Profile};

use crate::trace::{MAIN, Trace};

const COPY: &str = r#""Input Dims": [[32], [32], []], "Input type": ["float", "float", "Scalar"]"#;

/// Two steps of a small copy in float32 and kernels without operators, as in a CUDA graph.
fn replayed(kernels: &[(&str, f64)], operator: (&str, &str)) -> Profile {
    let mut trace = Trace::default();
    for step in 0..2 {
        let t = 1000.0 + 1000.0 * f64::from(step);
        trace.mark(&format!("ProfilerStep#{step}"), t, 990.0);
        trace.operator(MAIN, operator.0, t + 1.0, 10.0, operator.1);
        trace.kernel(MAIN, t + 2.0, "void at::native::vectorized_elementwise_kernel<4, float>(int)", t + 5.0, 3.0);
        let mut start = t + 20.0;
        for (name, duration) in kernels {
            trace.kernel(MAIN, t + 15.0, name, start, *duration);
            start += duration;
        }
    }
    trace.import().expect("the trace is sound").profile
}

fn note(profile: &Profile) -> String {
    let notes = &profile.recording.as_ref().expect("it was recorded").notes;
    notes.iter().find(|note| note.starts_with("precision")).cloned().unwrap_or_default()
}

#[test]
fn replayed_graphs_have_the_precision_that_their_kernels_name() {
    for (kernel, expected) in [
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", Precision::Bf16),
        ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", Precision::Fp16),
        ("nvjet_qqtst_128x128_128x4_2x1_v_bz_TNT", Precision::Fp8),
        ("volta_sgemm_128x64_tn", Precision::Fp32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_stage3", Precision::Tf32),
    ] {
        let profile = replayed(&[(kernel, 400.0), ("void own::norm<1>(int)", 40.0)], ("aten::copy_", COPY));
        assert_eq!(profile.workload.precision, Some(expected), "{kernel}");
        assert!(note(&profile).contains("from the names of the kernels"), "{}", note(&profile));
    }
}

#[test]
fn a_small_operator_decides_nothing_for_kernels_of_unknown_types() {
    let product = r#""Input Dims": [[32, 1], [1, 32]], "Input type": ["float", "float"]"#;
    for operator in [("aten::copy_", COPY), ("aten::mm", product)] {
        let profile = replayed(&[("void own::everything<8>(int)", 800.0)], operator);
        assert_eq!(profile.workload.precision, None, "{}", operator.0);
        assert!(note(&profile).starts_with("precision unknown: 100 % of the GPU's time"), "{}", note(&profile));
    }
}

#[test]
fn float64_is_no_fp32() {
    let double = r#""Input Dims": [[64, 64], [64, 64]], "Input type": ["double", "double"]"#;
    let profile = replayed(&[], ("aten::mm", double));
    assert_eq!(profile.workload.precision, None);
    assert!(note(&profile).contains("the products are in float64"), "{}", note(&profile));
    let profile = replayed(&[("ampere_dgemm_64x64_tn", 400.0)], ("aten::copy_", COPY));
    assert_eq!(profile.workload.precision, None);
}
