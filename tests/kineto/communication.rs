//! Communication by libraries other than NCCL, and ranks of jobs.

use habitat_tui::op::{Family, family};
use habitat_tui::profile::{Phase, Profile};
use habitat_tui::trace::import::ImportOptions;

use crate::trace::{MAIN, Trace, read};

/// Two steps of a product and another kernel without an operator.
fn with_kernel(name: &str) -> Trace {
    let mut trace = Trace::default();
    for step in 0..2 {
        let t = 1000.0 + 100.0 * f64::from(step);
        trace.mark(&format!("ProfilerStep#{step}"), t, 90.0);
        let shapes = r#""Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]"#;
        trace.operator(MAIN, "aten::mm", t + 5.0, 10.0, shapes);
        trace.kernel(MAIN, t + 6.0, "ampere_sgemm_32x32_nn", t + 10.0, 40.0);
        trace.kernel(MAIN, t + 20.0, name, t + 50.0, 30.0);
    }
    trace
}

fn profile(trace: &Trace, info: &str) -> Profile {
    let json = trace.json().replacen('{', &format!(r#"{{"distributedInfo": {info}, "#), 1);
    read(json.as_bytes(), &ImportOptions::default()).expect("the trace is sound").profile
}

fn notes_of_ranks(profile: &Profile) -> Vec<String> {
    let notes = profile.recording.as_ref().expect("it was recorded").notes.clone();
    notes.into_iter().filter(|note| note.contains("distributedInfo")).collect()
}

#[test]
fn communication_by_other_libraries_than_nccl() {
    for name in [
        "void deep_ep::internode::dispatch<false, 8, false>(int4*, float*, long*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
        "nvshmemi_proxy_quiet_entrypoint(int)",
        "Memcpy PtoP (Device -> Device)",
    ] {
        let mut trace = with_kernel(name);
        if name.starts_with("Memcpy") {
            let is_copy = |event: &&mut String| event.contains("PtoP");
            trace.events.iter_mut().filter(is_copy).for_each(|event| {
                *event = event.replace(r#""cat": "kernel""#, r#""cat": "gpu_memcpy""#);
            });
        }
        let profile = profile(&trace, r#"{"backend": "nccl", "rank": 0, "world_size": 64}"#);
        let lone = profile.operations.iter().find(|operation| operation.name == name).unwrap();
        assert_eq!((lone.phase, family(lone)), (Phase::Communication, Family::Communication), "{name}");
        assert_eq!(notes_of_ranks(&profile), [""; 0], "{name}");
    }
}

#[test]
fn a_rank_of_a_job_without_communication_is_noted() {
    for info in [
        r#"{"backend": "nccl", "rank": 0, "world_size": 64}"#,
        r#"{"rank": 3, "world_size": "64"}"#,
        r#"{"rank": 3, "pg_config": [{"pg_name": "0", "pg_size": 64}, {"pg_name": "1", "pg_size": 2}]}"#,
    ] {
        let notes = notes_of_ranks(&profile(&with_kernel("void own::exchange<8>(int)"), info));
        assert!(matches!(&notes[..], [note] if note.contains("one of 64 GPUs")), "{info}: {notes:?}");
    }
    for info in [r#"{"backend": "nccl", "rank": 0, "world_size": 1}"#, r#"{"rank": 0}"#, "[]", "null"] {
        assert_eq!(notes_of_ranks(&profile(&with_kernel("void own::exchange<8>(int)"), info)), [""; 0], "{info}");
    }
}
