//! Element types of products from kernel names, for recordings without operators or shapes.
//!
//! Libraries encode the type of the factors in their kernel names: cuBLAS (`ampere_sgemm`, `s16816gemm_bf16`,
//! `nvjet_tst`), CUTLASS (`cutlass_80_tensorop_f16_s16816gemm`, `cutlass::bfloat16_t`), cuDNN (`xmma`,
//! `implicit_convolve_sgemm<float …>`), `FlashAttention`, rocBLAS and hipBLASLt (`Cijk_Ailk_Bljk_BBS`, Tensile's
//! `ProblemType`), Composable Kernel and `MIOpen` (`igemm_fwd_gtcx3_nhwc_bf16`), `DeepGEMM`, TensorRT-LLM and Triton.

/// Element type of the factors of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Factors {
    /// 64-bit floating point.
    Float64,
    /// 32-bit floating point.
    Float32,
    /// 32-bit floating point, multiplied as TF32.
    Tf32,
    /// 16-bit IEEE floating point.
    Float16,
    /// 16-bit brain floating point.
    Bfloat16,
    /// 8-bit floating point.
    Float8,
    /// 4-bit floating point in at least one factor, which no prediction models.
    Float4,
}

/// Parts of the names of kernels of products, convolutions and attention.
#[rustfmt::skip]
const PRODUCTS: &[&str] = &[
    "gemm", "gemv", "xmma", "tensorop", "cutlass", "conv", "winograd", "fprop", "dgrad", "wgrad",
    "scudnn", "hcudnn", "884cudnn", "1688cudnn", "16816cudnn", "flash_fwd", "flash_bwd", "flashattn", "flash_attn",
    "fmha", "sdpa", "attention", "attn_fwd", "attn_bwd", "pagedkv", "matmul", "marlin", "machete", "bmm_", "wvsplitk",
    "triton_tem", "_mla_",
];

/// Parts of names that match a product's but belong to other kernels.
#[rustfmt::skip]
const OTHERS: &[&str] = &[
    "convert", "splitkreduce", "splitk_reduce", "layer_norm", "layernorm", "rms_norm", "rmsnorm", "batch_norm",
    "softmax", "elementwise_kernel", "reduce_kernel", "quantize", "cache_kernel", "rotary", "multi_tensor_apply",
];

/// Whether a kernel computes a product, a convolution or attention.
pub fn is_product_kernel(name: &str) -> bool {
    is_product(&name.to_ascii_lowercase())
}

fn is_product(lower: &str) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    has(&["cijk_", "nvjet_"]) || has(PRODUCTS) && !has(OTHERS)
}

/// Element type of the factors of a product kernel; `None` for other kernels and for names without a type.
pub fn factors_of_kernel(name: &str) -> Option<Factors> {
    let lower = name.to_ascii_lowercase();
    if !is_product(&lower) {
        return None;
    }
    if let Some(letters) = letters_of_nvjet(&lower) {
        return match letters.as_bytes().first()? {
            b't' => Some(Factors::Bfloat16),
            b'h' => Some(Factors::Float16),
            b's' => Some(Factors::Tf32),
            b'd' => Some(Factors::Float64),
            b'q' | b'r' => Some(Factors::Float8),
            _ => None,
        };
    }
    if let Some(letters) = letters_of_tensile(&lower) {
        return of_tensile(&lower, letters);
    }
    by_words(&lower)
}

/// Type letters in a kernel name of cuBLAS's nvjet, `nvjet_tst_…` or `nvjet_sm100_tst_…`; factors come first.
fn letters_of_nvjet(lower: &str) -> Option<&str> {
    let (_, rest) = lower.split_once("nvjet_")?;
    rest.split('_').find(|part| !part.starts_with("sm"))
}

/// Type letters in a kernel name of Tensile, after the indices: `Cijk_Ailk_Bljk_BBS_…`.
fn letters_of_tensile(lower: &str) -> Option<&str> {
    let (_, rest) = lower.split_once("cijk_")?;
    rest.split('_').nth(2)
}

fn of_tensile(lower: &str, letters: &str) -> Option<Factors> {
    let single = || {
        let is_tf32 = ["_mx_", "_sx_", "xfloat32", "xf32"].iter().any(|part| lower.contains(part));
        if is_tf32 { Factors::Tf32 } else { Factors::Float32 }
    };
    Some(match letters {
        _ if letters.starts_with("f8") || letters.starts_with("b8") => Factors::Float8,
        _ if letters.starts_with("f4") => Factors::Float4,
        _ if letters.starts_with('d') || letters.starts_with('z') => Factors::Float64,
        _ if letters.starts_with('h') => Factors::Float16,
        _ if letters.starts_with('b') => Factors::Bfloat16,
        _ if letters.starts_with('s') || letters.starts_with('c') => single(),
        _ => return None,
    })
}

/// Element type from the words of a name. The narrowest type in it is that of the factors, because accumulators are
/// wider.
fn by_words(lower: &str) -> Option<Factors> {
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let words = || lower.split(|c: char| !c.is_ascii_alphanumeric());
    let is_word = |known: &[&str]| words().any(|word| known.contains(&word));
    // Scales in unsigned E4M3 are those of NVFP4. Two elements share a byte, `f4x2`.
    if has(&["e2m1", "ue4m3", "fp4", "mxf4", "nvf4", "f4gemm", "f4x2"]) || is_word(&["f4"]) {
        return Some(Factors::Float4);
    }
    if has(&["e4m3", "e5m2", "fp8", "float8", "f8gemm"]) || is_word(&["f8", "bf8"]) {
        return Some(Factors::Float8);
    }
    if has(&["tf32", "tfloat32"]) {
        return Some(Factors::Tf32);
    }
    if let Some(narrow) = words().find_map(of_word) {
        return Some(narrow);
    }
    if has(&["h884", "h1688", "h16816", "hgemm", "hcudnn", "s884"]) {
        return Some(Factors::Float16);
    }
    // Turing uses these kernels for float16, which their names contain; from Ampere on, the others are TF32.
    if has(&["s1688"]) {
        return Some(Factors::Tf32);
    }
    if has(&["dgemm", "dgemv", "zgemm", "d884", "f64"]) || is_word(&["double", "fp64", "float64"]) {
        return Some(Factors::Float64);
    }
    let is_single = has(&["sgemm", "scudnn", "cgemm", "f32"]) || is_word(&["float", "fp32", "float32", "simt"]);
    is_single.then_some(Factors::Float32)
}

/// The 16-bit type in a word such as `bfloat16_t`, `16816gemm_bf16` or `bf16bf16`.
fn of_word(word: &str) -> Option<Factors> {
    if ["bf16", "bfloat16", "bhalf"].iter().any(|part| word.contains(part)) {
        Some(Factors::Bfloat16)
    } else if ["fp16", "f16", "float16"].iter().any(|part| word.contains(part)) || word == "half" {
        Some(Factors::Float16)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_by_the_names_of_kernels() {
        use Factors::{Bfloat16, Float4, Float8, Float16, Float32, Float64, Tf32};
        for (name, expected) in [
            ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", Some(Bfloat16)),
            ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", Some(Float16)),
            ("nvjet_sm100_qqtst_128x64_128x6_2x2_h_bz_TNT", Some(Float8)),
            ("nvjet_tss_128x128_64x4_2x1_v_bz_TNN", Some(Bfloat16)),
            ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN", Some(Bfloat16)),
            ("Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128", Some(Bfloat16)),
            ("Cijk_Alik_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN", Some(Float16)),
            ("Cijk_Ailk_Bjlk_HB_MT32x32x16", Some(Float16)),
            ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", Some(Float32)),
            ("Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128", Some(Float32)),
            ("Cijk_Ailk_Bljk_S_MX_B_Bias_HA_S_SAV_UserArgs_MT128x128x16", Some(Tf32)),
            ("Cijk_Alik_Bljk_F8B8BS_BH_Bias_HA_S_SAB_SAV_UserArgs_MT256x256x128", Some(Float8)),
            ("Cijk_Ailk_Bljk_DB_MT64x64x16", Some(Float64)),
            ("Custom_Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64", Some(Bfloat16)),
            ("volta_sgemm_128x64_tn", Some(Float32)),
            (
                "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>(cutlass_80_simt_sgemm::Params)",
                Some(Float32),
            ),
            ("ampere_dgemm_64x64_tn", Some(Float64)),
            ("ampere_gcgemm_64x64_nt", Some(Float32)),
            ("volta_h884gemm_64x128_ldg8_nn", Some(Float16)),
            ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn", Some(Float16)),
            ("turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_nn", Some(Float16)),
            ("ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn", Some(Bfloat16)),
            ("ampere_fp16_s16816gemm_fp16_64x64_sliced1x2_ldg8_f2f_stages_64x5_nn", Some(Float16)),
            ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nt_align4>(int)", Some(Tf32)),
            ("void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_f16_64x64_32x6_tn_align8>(int)", Some(Float16)),
            (
                "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(int)",
                Some(Bfloat16),
            ),
            ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_stage3", Some(Tf32)),
            ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3", Some(Float32)),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", Some(Bfloat16)),
            ("sm89_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x64", Some(Float8)),
            ("sm80_xmma_dgrad_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc", Some(Float16)),
            ("void implicit_convolve_sgemm<__half, __half, 128, 5, 5, 3, 3, 3, 1, false>(int)", Some(Float16)),
            ("void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false>(int)", Some(Float32)),
            ("volta_scudnn_128x64_relu_interior_nn_v1", Some(Float32)),
            ("void cudnn::detail::dgrad_engine<float, 128, 6, 7, 3, 3, 5, true>(int)", Some(Float32)),
            ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_wt32x32x8", Some(Bfloat16)),
            ("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_stride1", Some(Float16)),
            ("void flash::flash_fwd_splitkv_kernel<bf16>", Some(Bfloat16)),
            (
                "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t> >(int)",
                Some(Float16),
            ),
            ("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(int)", Some(Bfloat16)),
            ("fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausal", Some(Float8)),
            ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_f16_knob_7_64x64x64_4x1x1_kernel0_0", Some(Float16)),
            ("bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2", Some(Float4)),
            ("bmm_Bfloat16_E2m1E2m1_Fp32_t128x16x256u2", Some(Float4)),
            ("cutlass3x_sm100_bstensorop_s256x128x64gemm_mxf4nvf4_bf16", Some(Float4)),
            ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::float_e2m1_t", Some(Float4)),
            ("_gemm_afp4wfp4_kernel", Some(Float4)),
            ("Cijk_Alik_Bljk_F4F4SS_BH_UserArgs_MT256x256x128", Some(Float4)),
            ("void gemv_kernel<float4, float>(int)", Some(Float32)),
            ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<7168, 2048>(float*)", Some(Float8)),
            ("void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128, 16>(int)", Some(Bfloat16)),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __half, __half, __half, float>(int)",
                Some(Float16),
            ),
            ("_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weight", None),
            ("attn_fwd", None),
            ("cutlass3x_sm100_bstensorop_s256x128x64gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_bf16", Some(Float4)),
            ("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)", None),
            ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>(int)", None),
            ("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)", None),
        ] {
            assert_eq!(factors_of_kernel(name), expected, "{name}");
        }
        assert!(is_product_kernel("attn_fwd") && !is_product_kernel("void softmax_warp_forward<float>(float*)"));
    }
}
