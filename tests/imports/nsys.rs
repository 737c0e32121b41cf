//! Nsight Systems exports, with only the tables that the reader needs.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::PathBuf;

use habitat_tui::profile::{DeviceInfo, Mode, Operation, Phase};
use habitat_tui::store::nsys::Export;
use habitat_tui::trace::import::{self, Import, ImportOptions};
use habitat_tui::trace::nsight::{CallRow, Facts, Part, Process, RangeRow, Source, SourceError, WorkRow};
use habitat_tui::trace::{CallKind, StepMarks, TraceError, WorkKind};
use habitat_tui::units::GpuSlug;
use proptest::prelude::*;
use rusqlite::{Connection, params};

use crate::program::Folder;

const MACHINE: i64 = 1 << 48;

fn pid(pid: i64) -> i64 {
    MACHINE | (pid << 24)
}

/// A file with the needed tables of schema version 3.
pub(crate) struct Made {
    folder: Folder,
    pub(crate) path: PathBuf,
    pub(crate) db: Connection,
    texts: i64,
}

impl Made {
    pub(crate) fn new() -> Self {
        let folder = Folder::new();
        let path = folder.0.path().join("report.sqlite");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(
            "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
             CREATE TABLE ENUM_NSYS_EVENT_TYPE (id INTEGER, name TEXT, label TEXT);
             INSERT INTO ENUM_NSYS_EVENT_TYPE VALUES (59, 'NvtxPushPopRange', ''), (60, 'NvtxStartEndRange', ''), (75, 'NvtxDomainCreate', '');
             CREATE TABLE ENUM_CUDA_MEMCPY_OPER (id INTEGER, name TEXT, label TEXT);
             INSERT INTO ENUM_CUDA_MEMCPY_OPER VALUES (1, 'CUDA_MEMCPY_KIND_HTOD', ''), (8, 'CUDA_MEMCPY_KIND_DTOD', '');
             CREATE TABLE ENUM_CUDA_MEM_KIND (id INTEGER, name TEXT, label TEXT);
             INSERT INTO ENUM_CUDA_MEM_KIND VALUES (1, 'CUDA_MEMOPR_MEMORY_KIND_PINNED', ''), (2, 'CUDA_MEMOPR_MEMORY_KIND_DEVICE', '');
             CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
             INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0');
             CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
             INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('NvDriverVersion', '580.95.05');
             CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, deviceId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, registersPerThread INTEGER, staticSharedMemory INTEGER, dynamicSharedMemory INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, \"end\" INTEGER, deviceId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, \"end\" INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
             CREATE TABLE NVTX_EVENTS (start INTEGER, \"end\" INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER, domainId INTEGER);",
        )
        .unwrap();
        Self { folder, path, db, texts: 0 }
    }

    fn text(&mut self, text: &str) -> i64 {
        self.texts += 1;
        self.db.execute("INSERT INTO StringIds VALUES (?1, ?2)", params![self.texts, text]).unwrap();
        self.texts
    }

    fn range(&self, process: i64, thread: i64, text: &str, start: i64, end: i64) {
        self.db
            .execute(
                "INSERT INTO NVTX_EVENTS VALUES (?1, ?2, 59, ?3, NULL, ?4, 0)",
                params![start, end, text, pid(process) | thread],
            )
            .unwrap();
    }

    #[expect(clippy::too_many_arguments, reason = "the facts of two rows")]
    /// A call at `at`, and the kernel that it launches, from `start` for `length`.
    fn kernel(&mut self, process: i64, thread: i64, id: i64, at: i64, name: &str, start: i64, length: i64) {
        self.call(process, thread, id, at, "cudaLaunchKernel_v7000");
        let name = self.text(name);
        self.db
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?1, ?2, 0, 7, ?3, ?4, ?5, 8, 2, 1, 128, 1, 1, 40, 1024, 2048)",
                params![start, start + length, id, pid(process), name],
            )
            .unwrap();
    }

    fn call(&mut self, process: i64, thread: i64, id: i64, at: i64, name: &str) {
        let name = self.text(name);
        self.db
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?1, ?2, ?3, ?4, ?5)",
                params![at, at + 500, pid(process) | thread, id, name],
            )
            .unwrap();
    }

    fn copy(&mut self, process: i64, thread: i64, id: i64, at: i64, start: i64, length: i64) {
        self.call(process, thread, id, at, "cudaMemcpyAsync_v3020");
        self.db
            .execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?1, ?2, 0, ?3, ?4, 4096, 1, 1, 2)",
                params![start, start + length, id, pid(process)],
            )
            .unwrap();
    }

    fn import(&self, options: &ImportOptions<'_>) -> Result<Import, TraceError> {
        import::nsight(&mut Export::open(&self.path).unwrap(), options)
    }

    fn take(&self) -> Import {
        let find = |device: &DeviceInfo| {
            let known = (device.name == "NVIDIA GeForce RTX 3080").then(|| GpuSlug::new("rtx-3080").unwrap());
            known.ok_or_else(|| format!("no GPU in the catalog matches {:?}", device.name))
        };
        self.import(&ImportOptions { resolve_gpu: Some(&find), ..ImportOptions::default() }).unwrap()
    }
}

/// Three steps of a layer under `emit_nvtx(record_shapes=True)`: forward, backward on the engine's thread, and the
/// optimizer; each step 100 µs, in process 7. Kernels take 10, 20 and 5 µs, a copy 2.
fn trained(made: &mut Made, process: i64) {
    for step in 0..3 {
        let t = 1_000_000 + step * 100_000;
        let id = process * 1000 + step * 10;
        made.copy(process, 1, id, t + 500, t + 2_000, 2_000);
        made.range(
            process,
            1,
            &format!("aten::addmm, seq = {}, op_id = {id}, sizes = [[10], [64, 128], [128, 10], [], []]", step + 5),
            t + 2_000,
            t + 9_000,
        );
        made.kernel(process, 1, id + 1, t + 3_000, "sgemm_nn", t + 10_000, 10_000);
        let node = format!("AddmmBackward0, seq = {}, op_id = {}, sizes = [[64, 10]]", step + 5, id + 1);
        made.range(process, 2, &format!("autograd::engine::evaluate_function: {node}"), t + 20_000, t + 39_000);
        made.range(process, 2, &node, t + 21_000, t + 38_000);
        made.range(process, 2, "aten::mm, op_id = 3, sizes = [[128, 64], [64, 10]]", t + 22_000, t + 30_000);
        made.kernel(process, 2, id + 2, t + 23_000, "sgemm_tn", t + 30_000, 20_000);
        made.range(process, 1, "Optimizer.step#SGD.step, op_id = 4", t + 50_000, t + 70_000);
        made.range(process, 1, "aten::_foreach_add_, op_id = 5, sizes = [[128, 10], [10]]", t + 51_000, t + 60_000);
        made.kernel(process, 1, id + 3, t + 52_000, "multi_tensor_apply", t + 60_000, 5_000);
    }
}

fn gpu(made: &Made, name: &str) {
    made.db
        .execute(
            "INSERT INTO TARGET_INFO_GPU VALUES (0, ?1, 10736893952, 760080000000, 1710000000, 68, 0, 8, 6)",
            params![name],
        )
        .unwrap();
}

fn find<'a>(import: &'a Import, name: &str) -> &'a Operation {
    import.profile.operations.iter().find(|operation| operation.name == name).unwrap_or_else(|| {
        panic!("no {name} among {:?}", import.profile.operations.iter().map(|it| &it.name).collect::<Vec<_>>())
    })
}

fn notes(import: &Import) -> String {
    import.profile.recording.as_ref().unwrap().notes.join("\n")
}

#[test]
fn operators_with_shapes_phases_and_launches() {
    let mut made = Made::new();
    trained(&mut made, 7);
    gpu(&made, "NVIDIA GeForce RTX 3080");
    let import = made.take();
    assert_eq!(import.summary.marks, StepMarks::OptimizerStep);
    assert_eq!((import.summary.steps_found, import.summary.joined_share), (2, 1.0));
    let addmm = find(&import, "aten::addmm");
    assert_eq!((addmm.phase, addmm.count), (Phase::Forward, 1));
    assert_eq!(addmm.inputs, [vec![10], vec![64, 128], vec![128, 10]]);
    assert_eq!(addmm.outputs, [vec![64, 10]]);
    let kernel = &addmm.kernels[0];
    assert_eq!(
        (kernel.grid, kernel.block, kernel.registers_per_thread),
        (Some([8, 2, 1]), Some([128, 1, 1]), Some(40))
    );
    assert_eq!((kernel.static_shared_memory_bytes, kernel.dynamic_shared_memory_bytes), (Some(1024), Some(2048)));
    assert!((addmm.device_time.unwrap().get() - 10.0).abs() < 1e-6);
    assert_eq!(find(&import, "aten::mm").phase, Phase::Backward);
    assert_eq!(find(&import, "aten::_foreach_add_").phase, Phase::Optimizer);
    assert_eq!(find(&import, "Memcpy HtoD (Pinned -> Device)").phase, Phase::Copy);
    let profile = &import.profile;
    assert_eq!(profile.workload.mode, Mode::Training);
    let origin = profile.origin.as_ref().unwrap();
    assert_eq!(origin.gpu.as_ref().unwrap().as_str(), "rtx-3080");
    assert_eq!((origin.driver.as_deref(), origin.framework.as_deref()), (Some("580.95.05"), Some("pytorch")));
    let step = profile.step.as_ref().unwrap();
    assert!((step.duration.unwrap().get() - 100.0).abs() < 1e-6);
    assert!((step.device_busy.unwrap().get() - 37.0).abs() < 1e-6);
    assert!((profile.total_device_time().get() - 37.0).abs() < 1e-6);
}

#[test]
fn kernels_without_a_call_belong_to_the_step_in_which_they_run() {
    for missing in ["correlationId % 10 = 2", "correlationId % 2 = 0"] {
        let mut made = Made::new();
        trained(&mut made, 7);
        made.db.execute(&format!("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE {missing}"), []).unwrap();
        let import = made.take();
        assert!((import.summary.kernel_time.get() - 35.0).abs() < 1e-6, "{missing}: {}", notes(&import));
        assert!(notes(&import).contains("3 kernels have no launch in the recording"), "{}", notes(&import));
    }
}

#[test]
fn a_gpu_that_nobody_knows_is_described() {
    let mut made = Made::new();
    trained(&mut made, 7);
    gpu(&made, "NVIDIA X");
    let notes = notes(&made.take());
    assert!(notes.contains("68 SMs, 1710 MHz, 760 GB/s, 10.7 GB"), "{notes}");
}

#[test]
fn without_operators_the_programs_own_ranges_group_the_kernels() {
    let mut made = Made::new();
    for step in 0..3 {
        let t = 1_000_000 + step * 100_000;
        made.range(7, 1, &format!("iteration {step}"), t, t + 99_000);
        made.range(7, 1, "forward", t + 1_000, t + 40_000);
        made.range(7, 1, "layer_2", t + 2_000, t + 30_000);
        made.kernel(7, 1, step * 10 + 1, t + 3_000, "my_kernel", t + 10_000, 10_000);
        made.range(7, 1, "backward", t + 40_000, t + 80_000);
        made.kernel(7, 1, step * 10 + 2, t + 43_000, "my_gradient", t + 50_000, 20_000);
    }
    let import = made.take();
    assert_eq!((import.summary.marks, import.summary.steps_used), (StepMarks::Annotation, 3));
    let kernel = find(&import, "my_kernel");
    assert_eq!((kernel.phase, kernel.module.as_deref()), (Phase::Forward, Some("layer")));
    assert_eq!(find(&import, "my_gradient").phase, Phase::Backward);
    assert!(notes(&import).contains("the operations are kernel names"), "{}", notes(&import));
    assert_eq!(import.profile.origin.as_ref().unwrap().framework, None);
}

#[test]
fn the_range_of_a_step_can_be_named() {
    let mut made = Made::new();
    for step in 0..4 {
        let t = 1_000_000 + step * 100_000;
        made.range(7, 1, &format!("work #{step}"), t, t + 99_000);
        made.range(7, 1, "part", t + 1_000, t + 40_000);
        made.kernel(7, 1, step + 1, t + 3_000, "k", t + 10_000, 10_000);
    }
    let whole = made.take();
    assert_eq!(whole.summary.marks, StepMarks::WholeTrace);
    assert!(notes(&whole).contains("--step-range"), "{}", notes(&whole));
    let named = |name: &str| ImportOptions { step_range: Some(name.to_owned()), ..ImportOptions::default() };
    let error = made.import(&named("epoch")).unwrap_err();
    assert!(error.to_string().contains("\"part\""), "{error}");
    let named = made.import(&named("work")).unwrap();
    assert_eq!((named.summary.marks, named.summary.steps_used), (StepMarks::Named, 4));
    assert!((named.profile.measured_step().unwrap().get() - 100.0).abs() < 1e-6);
}

#[test]
fn processes_are_ranks_and_one_can_be_chosen() {
    let mut made = Made::new();
    trained(&mut made, 7);
    trained(&mut made, 8);
    let import = made.take();
    assert_eq!(import.profile.recording.as_ref().unwrap().ranks, Some(2));
    // Correlation ids are per process: nothing counts twice.
    assert!((import.profile.total_device_time().get() - 37.0).abs() < 1e-6);
    let on = |device: u32| made.import(&ImportOptions { device: Some(device), ..ImportOptions::default() });
    let one = on(0).unwrap();
    assert_eq!(one.profile.recording.as_ref().unwrap().ranks, None);
    let none = on(3).unwrap_err();
    assert_eq!(
        none.to_string(),
        "Nsight Systems recording: no kernel ran on device 3; the recording has kernels of device 0"
    );
}

#[test]
fn a_recording_over_the_budget_is_read_in_part() {
    let mut made = Made::new();
    made.db.execute_batch("BEGIN").unwrap();
    for step in 0..200 {
        let t = 1_000_000 + step * 100_000;
        made.range(7, 1, &format!("ProfilerStep#{step}"), t, t + 99_000);
        for kernel in 0..5 {
            let id = step * 10 + kernel + 1;
            made.range(7, 1, &format!("aten::relu, op_id = {id}"), t + kernel * 10_000, t + kernel * 10_000 + 5_000);
            made.kernel(7, 1, id, t + kernel * 10_000 + 1_000, "relu", t + kernel * 10_000 + 2_000, 4_000);
        }
    }
    made.db.execute_batch("COMMIT").unwrap();
    let options = ImportOptions { max_records: Some(400), ..ImportOptions::default() };
    let import = made.import(&options).unwrap();
    assert_eq!(import.summary.steps_found, 200);
    assert!((10..=30).contains(&import.summary.steps_used), "{}", import.summary.steps_used);
    assert_eq!(import.summary.kernels_per_step, 5.0);
    assert!((import.profile.measured_step().unwrap().get() - 100.0).abs() < 1e-6);
    assert!(notes(&import).contains("whole steps from its middle"), "{}", notes(&import));
}

/// Old exports have fewer columns, and texts in the rows themselves.
#[test]
fn missing_columns_and_tables_are_read_as_nothing() {
    let folder = Folder::new();
    let path = folder.0.path().join("old.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, \"end\" INTEGER, shortName TEXT);
         INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 3000, 'a'), (4000, 5000, 'b');",
    )
    .unwrap();
    let import = import::nsight(&mut Export::open(&path).unwrap(), &ImportOptions::default()).unwrap();
    assert_eq!(import.profile.operations.len(), 2);
    assert!((import.profile.total_device_time().get() - 3.0).abs() < 1e-9);
    assert!(notes(&import).contains("no CUDA calls"), "{}", notes(&import));
}

#[test]
fn the_program_opens_an_export_and_says_what_it_cannot() {
    let mut made = Made::new();
    trained(&mut made, 7);
    gpu(&made, "NVIDIA GeForce RTX 3080");
    let said = made.folder.ok(&["import", "report.sqlite", "-o", "p.habitat.json"]);
    assert!(said.contains("(rtx-3080)") && said.contains("100.0 % of kernel time joined"), "{said}");
    let said = made.folder.ok(&["predict", "report.sqlite", "--to", "t4"]);
    assert!(said.contains("t4"), "{said}");

    let error = |args: &[&str]| {
        let output = made.folder.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    made.folder.write("a.nsys-rep", "whatever it has");
    assert!(error(&["predict", "a.nsys-rep"]).contains("nsys export --type sqlite"));
    Connection::open(made.folder.0.path().join("b.sqlite")).unwrap().execute_batch("CREATE TABLE x (y)").unwrap();
    assert!(error(&["predict", "b.sqlite"]).contains("not an export of Nsight Systems"));
    let whole = std::fs::read(&made.path).unwrap();
    std::fs::write(made.folder.0.path().join("cut.sqlite"), &whole[..whole.len() / 2]).unwrap();
    let cut = error(&["predict", "cut.sqlite"]);
    assert!(cut.contains("damaged") || cut.contains("no "), "{cut}");
    made.folder.write("t.json", "{\"traceEvents\": []}");
    assert!(error(&["import", "t.json", "-o", "q.habitat.json", "--device", "0"]).contains("--device"));
    assert!(
        error(&["import", "report.sqlite", "-o", "q.habitat.json", "--shapes-only"]).contains("is not a PyTorch trace")
    );
    assert!(error(&["import", "t.json", "report.sqlite", "-o", "q.habitat.json"]).contains("different formats"));
}

/// Synthetic rows.
struct Rows(Vec<(u8, i64, i64, u64, String)>);

impl Source for Rows {
    fn facts(&mut self) -> Result<Facts, SourceError> {
        let process = Process { key: 1, pid: 1, devices: vec![(0, 1, 1)], rows: self.0.len() as u64, span: (0, 1000) };
        Ok(Facts { processes: vec![process], ..Facts::default() })
    }

    fn ranges(&mut self, _: Part, row: &mut dyn FnMut(RangeRow<'_>)) -> Result<(), SourceError> {
        for (_, start, end, thread, text) in self.0.iter().filter(|row| row.0 == 0) {
            row(RangeRow { text, domain: None, start: *start, end: *end, thread: *thread, nests: true });
        }
        Ok(())
    }

    fn calls(&mut self, _: Part, row: &mut dyn FnMut(CallRow)) -> Result<(), SourceError> {
        for (_, start, end, thread, _) in self.0.iter().filter(|row| row.0 == 1) {
            let (thread, correlation) = (thread % 3, *thread);
            let kind = if correlation % 5 == 0 { CallKind::Graph } else { CallKind::Kernel };
            row(CallRow { start: *start, end: *end, thread, correlation, kind });
        }
        Ok(())
    }

    fn work(&mut self, _: Part, row: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError> {
        for (_, start, end, correlation, name) in self.0.iter().filter(|row| row.0 == 2) {
            row(WorkRow {
                name,
                kind: WorkKind::Kernel,
                start: *start,
                end: *end,
                correlation: *correlation,
                device: 0,
                stream: 0,
                grid: Some([1, 0, 3]),
                block: None,
                registers: None,
                static_memory: None,
                dynamic_memory: None,
            });
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn no_rows_make_it_panic(
        rows in proptest::collection::vec(
            (0_u8..3, prop_oneof![0_i64..2000, any::<i64>()], prop_oneof![0_i64..2000, any::<i64>()], 0_u64..8,
             "(step|forward|aten::mm, seq = 1, sizes = \\[\\[2\\]\\]|x)?"),
            0..40,
        ),
        budget in prop_oneof![Just(None), Just(Some(5_usize))],
    ) {
        let options = ImportOptions { max_records: budget, ..ImportOptions::default() };
        if let Ok(import) = import::nsight(&mut Rows(rows), &options) {
            prop_assert!(import.profile.to_json().is_ok());
        }
    }
}
