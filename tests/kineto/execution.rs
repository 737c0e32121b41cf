//! Compiled steps, steps replayed as CUDA graphs, and the profiler's effect on the host.

use habitat_tui::predict::{Options, predict};
use habitat_tui::profile::{Execution, Profile};
use habitat_tui::report::words::joined;
use habitat_tui::store::bundled;

use crate::trace::{AUTOGRAD, MAIN, Trace, two_steps};

/// Two steps of four kernels: `graphs` of them in a graph, `generated` by Triton, the others from operators, inside a
/// compiled region or not.
fn steps(graphs: u32, generated: u32, region: Option<&str>) -> Profile {
    let mut trace = Trace::default();
    for step in 0..2_u32 {
        let start = 1000.0 + 1000.0 * f64::from(step);
        trace.mark(&format!("ProfilerStep#{step}"), start, 900.0);
        if let Some(region) = region {
            trace.range("cpu_op", MAIN, region, start + 1.0, 100.0, "");
        }
        for kernel in 0..4_u32 {
            let call = if kernel < graphs { "cudaGraphLaunch" } else { "cudaLaunchKernel" };
            let name = if kernel < generated { "triton_poi_fused_add_0" } else { "gemm" };
            let at = start + 10.0 + 10.0 * f64::from(kernel);
            trace.operator(
                MAIN,
                "aten::mm",
                at,
                5.0,
                r#""Input Dims": [[3, 2], [2, 4]], "Input type": ["float", "float"]"#,
            );
            trace.work("kernel", call, MAIN, at + 1.0, name, at + 200.0, 8.0, 7);
        }
    }
    trace.import().expect("a whole trace").profile
}

fn execution(profile: &Profile) -> Option<Execution> {
    profile.step.as_ref().expect("a measured step").execution
}

fn notes(profile: &Profile) -> String {
    profile.recording.as_ref().expect("an import").notes.join("\n")
}

#[test]
fn a_step_of_graphs_or_of_compiled_code_is_recognised() {
    let eager = steps(0, 0, None);
    assert_eq!(execution(&eager), None);
    assert!(!notes(&eager).contains("kernels of a step"), "{}", notes(&eager));
    let graphs = steps(3, 0, None);
    assert_eq!(execution(&graphs), Some(Execution::CudaGraphs));
    assert!(notes(&graphs).contains("3 of 4 kernels of a step are replayed in CUDA graphs"), "{}", notes(&graphs));
    let generated = steps(0, 2, None);
    assert_eq!(execution(&generated), Some(Execution::Compiled));
    assert!(notes(&generated).contains("2 of 4 kernels of a step are launched by torch.compile's code"));
    for region in ["Torch-Compiled Region: 0/0", "## Call CompiledFxGraph abc ##"] {
        assert_eq!(execution(&steps(0, 0, Some(region))), Some(Execution::Compiled), "{region}");
    }
    // A function of AOTAutograd may launch its operators one by one.
    assert_eq!(execution(&steps(0, 0, Some("CompiledFunction"))), None);
    // A graph of compiled code, and a partly compiled step.
    assert_eq!(execution(&steps(4, 4, Some("Torch-Compiled Region: 0/0"))), Some(Execution::CudaGraphs));
    let part = steps(0, 1, None);
    assert_eq!(execution(&part), None);
    assert!(notes(&part).contains("1 of 4 kernels of a step are launched by torch.compile's code"));
}

/// The region is on the thread of the forward pass, the kernels on that of autograd.
#[test]
fn other_threads_are_not_in_a_compiled_region() {
    let mut trace = two_steps();
    trace.range("cpu_op", AUTOGRAD + 1, "Torch-Compiled Region: 0/0", 900.0, 500.0, "");
    assert_eq!(execution(&trace.import().unwrap().profile), None);
}

/// 2 x 4 numbers take a GPU less time than a launch.
#[test]
fn what_is_not_launched_one_by_one_has_no_floor_by_launches() {
    let step = |profile: &Profile| {
        let options = Options { ignore_origin: true, ..Options::default() };
        let answers = predict(profile, &habitat_tui::catalog::Catalog::new(bundled::gpus()), &options).unwrap();
        let t4 = answers.predictions.iter().find(|prediction| prediction.gpu.slug.as_str() == "t4").unwrap();
        (t4.step.mid().get(), joined(&answers.notes, "; "))
    };
    let (eager, said) = step(&steps(0, 0, None));
    assert!(eager >= 20.0 && !said.contains("less host time"), "{eager} {said}");
    let (graphs, said) = step(&steps(4, 0, None));
    assert!(graphs < 20.0, "{graphs}");
    assert!(said.contains("runs as CUDA graphs, which takes less host time"), "{said}");
}

/// The profiler recorded every step of a trace; the profile stores that.
#[test]
fn waiting_for_the_host_in_a_profiled_step_is_said_to_be_at_most_that() {
    let profile = steps(0, 0, None);
    assert!(profile.step.as_ref().unwrap().profiled);
    let again = Profile::from_json(&profile.to_json().unwrap()).unwrap();
    assert_eq!((&again.0, again.1.len()), (&profile, 0));
    let mut recorded = again.0;
    let said = |profile: &Profile| {
        let origin = habitat_tui::units::GpuSlug::new("v100-sxm2-16gb").ok();
        let options = Options { origin, ..Options::default() };
        let catalog = habitat_tui::catalog::Catalog::new(bundled::gpus());
        joined(&predict(profile, &catalog, &options).unwrap().notes, "; ")
    };
    assert!(said(&recorded).contains("the profiler slowed the CPU"), "{}", said(&recorded));
    recorded.step.as_mut().unwrap().profiled = false;
    assert!(said(&recorded).contains("kept unchanged on every GPU"));
    assert!(!said(&recorded).contains("the profiler slowed the CPU"));
}
