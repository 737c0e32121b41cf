//! Communication between GPUs: the only table that identifies communicating operators and kernels of all libraries by
//! name.
//!
//! Sources of the kernels' names: NCCL, RCCL, MSCCL and MSCCL++, oneCCL; `csrc/custom_all_reduce.cuh` of vLLM (also in
//! `SGLang` and aiter), quick reduce; `csrc/kernels` of `DeepEP` (also in UCCL and in `DeepSeek`'s own traces);
//! NVSHMEM, rocSHMEM, MORI, pplx-kernels; `userbuffers.cu` of Transformer Engine; the all-reduce and all-to-all of
//! TensorRT-LLM and `FlashInfer`; `CUDASymmetricMemoryOps.cu` of `PyTorch`.

/// Parts of names of operators and kernels, in lower case.
#[rustfmt::skip]
const COLLECTIVES: &[&str] = &[
    "nccl", "rccl", "msccl", "oneccl", "all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter",
    "reducescatter", "all_to_all", "alltoall", "broadcast_coalesced", "record_param_comms",
];

/// Parts of the names of kernels or of their namespaces.
#[rustfmt::skip]
const KERNELS: &[&str] = &[
    // One-shot and two-shot all-reduce of vLLM and SGLang, and AMD's quick reduce.
    "cross_device_reduce", "cross_device_store", "quickreduce", "quick_reduce",
    "nvshmem", "rocshmem", "on_stream_kernel",
    "userbuffers",
    // Symmetric memory.
    "multimem_", "symmetric_memory", "symm_mem", "put_signal", "wait_signal",
    // Token exchange between experts.
    "notify_dispatch", "notify_combine", "cached_notify", "low_latency_dispatch", "low_latency_combine",
    "epdispatch", "epcombine", "moe_a2a", "moea2a", "a2a_dispatch", "a2a_combine", "sendrecv", "send_recv",
];

/// Prefixes of kernel names: oneCCL's, and those of token exchange between experts.
const STARTS: [&str; 3] = ["ccl_", "ep_dispatch", "ep_combine"];

/// Namespaces in which every kernel communicates.
const NAMESPACES: [&str; 5] = ["c10d", "mscclpp", "mori", "ccl", "pplx"];

/// Namespaces of token exchange between experts; they also hold kernels that only prepare it.
const EXPERT_NAMESPACES: [&str; 8] =
    ["deep_ep", "ep", "internode", "intranode", "internode_ll", "intranode_ll", "uccl", "hybrid_ep"];

/// Parts of the names of those functions in them that communicate.
const EXPERT_FUNCTIONS: [&str; 4] = ["dispatch", "combine", "notify", "barrier"];

/// Collectives used by models that are split over GPUs: part of the name without underscores, and the label.
const SPLIT: [(&str, &str); 7] = [
    ("allgather", "all-gather"),
    ("reducescatter", "reduce-scatter"),
    ("alltoall", "all-to-all"),
    ("a2a", "all-to-all"),
    ("sendrecv", "send and receive"),
    ("c10dfunctional", "collectives of DTensor"),
    ("dtensor", "collectives of DTensor"),
];

/// Whether an operator or kernel communicates, from its full name in lower case and its name without namespaces.
pub(super) fn is_communication(full: &str, bare: &str) -> bool {
    if bare.contains("gemm") {
        return false;
    }
    // PyTorch's own operators have other names.
    has(bare, COLLECTIVES) || full.contains("c10d") || !full.starts_with("aten::") && is_path_of_kernel(&path(full))
}

/// Whether a call, or the range around it, passes tensors to a collective.
pub fn is_collective_call(name: &str) -> bool {
    ["c10d::", "nccl:", "rccl:"].iter().any(|start| name.starts_with(start)) || name == "record_param_comms"
}

/// Whether a range is a collective that the host executes itself, from call to completion.
pub fn is_host_collective(name: &str) -> bool {
    ["gloo:", "mpi:", "ucc:"].iter().any(|start| name.starts_with(start))
}

/// Whether a kernel communicates with other GPUs.
pub fn is_collective_kernel(name: &str) -> bool {
    let path = path(&name.to_ascii_lowercase());
    // A fused kernel that also multiplies counts as a product.
    !path.starts_with("triton_") && !path.contains("gemm") && is_path_of_kernel(&path)
}

/// Whether a copy on a device is a copy between two GPUs, in CUDA's naming.
pub fn is_copy_between_gpus(name: &str) -> bool {
    name.starts_with("Memcpy PtoP")
}

/// Label of a collective used by a model that is split over GPUs.
pub fn split_collective(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let plain = lower.replace('_', "");
    let known = SPLIT.iter().find(|(part, _)| plain.contains(part)).map(|(_, word)| *word);
    known.or_else(|| has(&path(&lower), &["dispatch", "combine"]).then_some("exchange of tokens between experts"))
}

fn is_path_of_kernel(path: &str) -> bool {
    let function = path.rsplit("::").next().unwrap_or(path);
    let is_in = |known: &[&str]| path.split("::").any(|part| part != function && known.contains(&part));
    has(path, COLLECTIVES)
        || has(path, KERNELS)
        || is_in(&NAMESPACES)
        || STARTS.iter().any(|start| function.starts_with(start))
        || is_in(&EXPERT_NAMESPACES) && !is_in(&["layout"]) && has(function, &EXPERT_FUNCTIONS)
}

fn has(name: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| name.contains(part))
}

/// Function of a kernel's name with its namespaces, without return type, templates and arguments:
/// `vllm::cross_device_reduce_1stage` for `void vllm::cross_device_reduce_1stage<half, 8>(…)`.
fn path(full: &str) -> String {
    let mut depth = 0_u32;
    let outer = |c: &char| match c {
        '<' | '(' | '[' | '{' => {
            depth += 1;
            false
        }
        '>' | ')' | ']' | '}' => {
            depth = depth.saturating_sub(1);
            false
        }
        _ => depth == 0,
    };
    let plain: String = full.chars().filter(outer).collect();
    let plain = plain.replace("::::", "::");
    plain.split_whitespace().last().unwrap_or_default().trim_start_matches("::").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Family;
    use crate::op::name::Name;

    #[test]
    fn communication_kernels_of_every_library() {
        for name in [
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)",
            "mscclKernel_Sum_half_LL(ncclDevComm*)",
            "void mscclpp::allreduce7<__half>(__half*, __half*)",
            "void mscclpp::executionKernel<__half, mscclpp::LL16Packet, false>(int, __half*)",
            "void oneccl_allreduce_small<float>(float*)",
            "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
            "void sglang::cross_device_reduce_2stage<__half, 4>(sglang::RankData*)",
            "void aiter::cross_device_reduce_2stage_naive<__hip_bfloat16, 8>(aiter::RankData*) [clone .kd]",
            "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>>(__half const*)",
            "void deep_ep::internode::dispatch<false, 8, false>(int4*, float*, long*)",
            "void deep_ep::intranode::combine<__nv_bfloat16, 8, 768>(__nv_bfloat16*)",
            "void deep_ep::internode::notify_dispatch<false, 4>(int const*)",
            "void deep_ep::intranode::cached_notify_combine<8>(void**)",
            "void deep_ep::internode_ll::dispatch<true, false, 7168>(void*)",
            "void dpsk::ep::internode::combine<false, 8, __nv_bfloat16>(int4*)",
            "void uccl::internode_ll::combine<false, 7168, 9>(void*)",
            "void my::own::intranode::dispatch<8>(int4*)",
            "void nvshmemi_transfer_rma<1>(int)",
            "void barrier_on_stream_kernel_threadgroup<(threadgroup_t)2>(int)",
            "void c10d::nvshmem_extension::allToAllV(void*, void*)",
            "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int)",
            "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
            "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16>(float**)",
            "void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)",
            "kuserbuffers_pushrecv(int, int, int*)",
            "mori::moe::EpDispatchIntraNodeKernel(mori::moe::EpDispatchCombineArgs<__hip_bfloat16>)",
            "void EpCombineInterNodeV1Kernel<__hip_bfloat16>(int)",
            "void tensorrt_llm::kernels::twoShotAllReduceKernel<__nv_bfloat16, 8, false>(int)",
            "std::enable_if<(8 > 1), void>::type flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, 2>(int)",
            "void tensorrt_llm::kernels::moe_comm::moeAllToAllKernel(int)",
            "void tensorrt_llm::kernels::mnnvl_throughput::moeA2ADispatchKernel<8>(int)",
            "void rocshmem::rocshmem_put_kernel(int)",
        ] {
            assert!(is_collective_kernel(name), "{name}");
            assert_eq!(Name::of(name).family(), Family::Communication, "{name}");
        }
    }

    #[test]
    fn kernels_that_only_sound_like_it() {
        for name in [
            "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
            "void at::native::scatter_reduce_kernel<float>(float*)",
            "void at::native::vectorized_gather_kernel<16, long>(char*)",
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(at::native::ReduceOp<float>)",
            "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel<true>(char**)",
            "void deep_ep::layout::get_dispatch_layout<256, 32, 4>(long const*)",
            "triton_poi_fused_add_all_gather_into_tensor_3",
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64>(int)",
            "void moe::dev::routing::routingIndicesDispatchKernel<int>(int)",
            "void tensorrt_llm::kernels::cutlass_kernels::gemm_allreduce_kernel<float>(float)",
        ] {
            assert!(!is_collective_kernel(name), "{name}");
        }
        assert_eq!(Name::of("aten::scatter_reduce").family(), Family::Embedding);
        // TorchRec's function around an exchange packs tensors; a separate kernel exchanges them.
        assert_ne!(Name::of("All2All_Pooled_Req").family(), Family::Communication);
    }

    #[test]
    fn what_a_split_model_exchanges() {
        let word = |name| split_collective(name).unwrap_or_default();
        assert_eq!(word("void deep_ep::internode::dispatch<false>(int4*)"), "exchange of tokens between experts");
        assert_eq!(word("ncclDevKernel_AllGather_RING_LL(int)"), "all-gather");
        assert_eq!(word("void vllm::cross_device_reduce_1stage<half, 8>(int)"), "");
    }
}
