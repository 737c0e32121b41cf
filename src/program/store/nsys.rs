//! Nsight Systems exports: the tables of a recorded step.
//!
//! The tables of `nsys export --type sqlite` differ between versions. A table is missing if nothing of its kind was
//! recorded; columns vary; texts are in `StringIds` or in the row; kinds of events are numbers with names in `ENUM_…`
//! tables. Missing data are read as empty; only kernels with their times are required.
//!
//! Rows are passed on as they are read, so memory does not grow with the file.

mod database;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::ValueRef;

pub(super) use self::database::looks_like_sqlite;
use self::database::{Database, explain, named, unsigned, whole};
use super::decompress::Compression;
use super::files::{StoreError, compression};
use habitat_step::profile::DeviceInfo;
use habitat_traces::nsight::{CallRow, Facts, Gpu, Part, Process, RangeRow, Source, SourceError, WorkRow};
use habitat_traces::{CallKind, WorkKind};

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const COPIES: &str = "CUPTI_ACTIVITY_KIND_MEMCPY";
const FILLS: &str = "CUPTI_ACTIVITY_KIND_MEMSET";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
const RANGES: &str = "NVTX_EVENTS";

/// Maximum number of processes, and of GPUs over all processes, in a recording.
const PROCESSES: usize = 4096;
/// Maximum number of cached names of domains, and of calls by their numbers.
const NAMES: usize = 1 << 16;
/// Minimum time limit of reading a file, and the slowest rate in bytes per second for which it is extended.
const PATIENCE: Duration = Duration::from_secs(6);
const SLOWEST: u64 = 2 << 20;

/// Kind of and advice for a file of Nsight Systems other than its SQLite export; `None` for all other files.
pub(super) fn remedy(path: &Path) -> Option<(&'static str, String)> {
    let extension = path.extension()?.to_str()?.to_ascii_lowercase();
    matches!(extension.as_str(), "nsys-rep" | "qdrep" | "qdstrm").then(|| {
        let remedy = format!(
            "convert it with `nsys export --type sqlite -o report.sqlite {}`",
            habitat_base::text::shell_word(&path.display().to_string())
        );
        ("an Nsight Systems report, which only Nsight Systems can read", remedy)
    })
}

/// An open export.
#[derive(Debug)]
pub struct Export(Database);

/// Bits of a `globalTid` or `globalPid` below the process id.
const THREAD_BITS: u32 = 24;

/// Process of a row: 24 bits of process id, with the machine above.
fn process_of(global: i64) -> u64 {
    global.cast_unsigned() >> THREAD_BITS
}

impl Export {
    /// Opens an export for reading only.
    ///
    /// # Errors
    /// [`StoreError`] if it is not an SQLite file, is compressed, or has no table of kernels.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        if compression(path)? != Compression::None {
            let problem = "a compressed SQLite file; decompress it first (gunzip or unzstd)";
            return Err(StoreError::content(path, problem));
        }
        let there = std::fs::metadata(path).map_err(|error| StoreError::read(path, error))?;
        if !there.is_file() {
            return Err(StoreError::content(path, "an SQLite file through a pipe; save it to a file first"));
        }
        let problem = |error: rusqlite::Error| StoreError::content(path, explain(&error));
        let patience = PATIENCE + Duration::from_secs(there.len() / SLOWEST);
        let database = Database::open(path, patience).map_err(problem)?;
        if let Some(view) = database.view().map_err(problem)? {
            let problem =
                format!("its {view:?} is a view or a virtual table, not a table as in exports of Nsight Systems");
            return Err(StoreError::content(path, problem));
        }
        let export = Self(database.with_columns(&[KERNELS, COPIES, FILLS, GRAPHS, CALLS, RANGES]).map_err(problem)?);
        if !export.0.has(KERNELS, "start") {
            return Err(StoreError::content(path, export.without_kernels().map_err(problem)?));
        }
        Ok(export)
    }

    /// Reason why the table of kernels is missing.
    fn without_kernels(&self) -> rusqlite::Result<String> {
        let tables: u64 = self.0.connection.query_row(
            "SELECT count(*) FROM sqlite_master WHERE name IN ('StringIds', 'META_DATA_EXPORT', 'TARGET_INFO_SYSTEM_ENV', 'NVTX_EVENTS', 'CUPTI_ACTIVITY_KIND_RUNTIME')",
            [],
            |row| row.get(0),
        )?;
        Ok(if tables > 0 {
            "an Nsight Systems recording without GPU kernels; record it with `nsys profile --trace=cuda,nvtx`"
                .to_owned()
        } else {
            format!("an SQLite file, but not an export of Nsight Systems: table {KERNELS} is missing")
        })
    }

    /// Condition for the rows of one process, if the table has processes.
    fn of_process(&self, table: &str, column: &str, process: u64) -> String {
        if self.0.has(table, column) { format!("(\"{column}\" >> {THREAD_BITS}) = {process}") } else { "1".to_owned() }
    }

    fn processes(&self) -> Result<Vec<Process>, SourceError> {
        let (mut processes, mut devices) = (BTreeMap::<u64, Process>::new(), 0);
        let sql = format!(
            "SELECT {}, count(*), sum(\"end\" - start), min(start), max(\"end\") FROM {KERNELS} GROUP BY 1, 2",
            self.0.columns(KERNELS, &[&["globalPid"], &["deviceId"]])
        );
        self.0.each(&sql, &mut |row| {
            let key = whole(row, 0)?.map_or(0, process_of);
            let device = unsigned(row, 1)?.unwrap_or(0);
            let count = |at: usize| whole(row, at).map(|number| number.unwrap_or(0));
            let (low, high) = (count(4)?, count(5)?);
            devices += 1;
            if devices > PROCESSES {
                return Ok(());
            }
            let process = processes.entry(key).or_insert_with(|| Process {
                key,
                pid: key & 0xff_ffff,
                devices: Vec::new(),
                rows: 0,
                span: (low, high),
            });
            process.devices.push((device, count(2)?.cast_unsigned(), count(3)?.max(0).cast_unsigned()));
            process.span = (process.span.0.min(low), process.span.1.max(high));
            Ok(())
        })?;
        if devices > PROCESSES {
            return Err(format!("GPUs of more than {PROCESSES} processes, the limit; record fewer").into());
        }
        let lone = processes.len() == 1;
        for (table, column) in [
            (KERNELS, "globalPid"),
            (COPIES, "globalPid"),
            (FILLS, "globalPid"),
            (CALLS, "globalTid"),
            (RANGES, "globalTid"),
        ] {
            if !self.0.has(table, "start") {
                continue;
            }
            let key = if lone { "NULL".to_owned() } else { self.0.column(table, &[column]) };
            let sql = format!("SELECT {key} >> {THREAD_BITS}, count(*) FROM {table} GROUP BY 1");
            self.0.each(&sql, &mut |row| {
                let rows = whole(row, 1)?.unwrap_or(0).cast_unsigned();
                match whole(row, 0)? {
                    Some(key) => {
                        if let Some(process) = processes.get_mut(&key.cast_unsigned()) {
                            process.rows += rows;
                        }
                    }
                    None => processes.values_mut().for_each(|process| process.rows += rows),
                }
                Ok(())
            })?;
        }
        Ok(processes.into_values().collect())
    }

    /// GPUs with the device numbers that processes use for them.
    fn gpus(&self) -> Result<Vec<(Option<u64>, u32, Gpu)>, SourceError> {
        let mut gpus: BTreeMap<i64, (Option<i64>, Gpu)> = BTreeMap::new();
        for table in ["TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU"] {
            if !self.0.exists(table) || !gpus.is_empty() {
                continue;
            }
            let sql = format!("SELECT * FROM {table}");
            self.0.each(&sql, &mut |row| {
                let number = |name: &str| named(row, name);
                let small = |name: &str| number(name).and_then(|number| u32::try_from(number).ok());
                let memory = number("totalMemory").and_then(|bytes| u64::try_from(bytes).ok());
                let info = DeviceInfo {
                    name: row.get("name").unwrap_or_default(),
                    compute_capability: small("computeMajor").zip(small("computeMinor")),
                    multiprocessors: small("smCount").filter(|count| *count > 0),
                    memory_bytes: memory.filter(|bytes| *bytes > 0),
                };
                let positive = |name: &str| number(name).filter(|number| *number > 0).map(|number| number as f64);
                let gpu = Gpu { info, clock_hz: positive("clockRate"), bandwidth: positive("memoryBandwidth") };
                let id = number("id").unwrap_or(gpus.len() as i64);
                if gpus.len() >= PROCESSES {
                    return Ok(());
                }
                gpus.insert(id, (number("cuDevice"), gpu));
                Ok(())
            })?;
        }
        let mut found = Vec::new();
        // Device numbers of a process, which CUDA_VISIBLE_DEVICES may have changed.
        if self.0.exists("TARGET_INFO_CUDA_DEVICE") {
            let sql = "SELECT * FROM TARGET_INFO_CUDA_DEVICE";
            self.0.each(sql, &mut |row| {
                if found.len() < PROCESSES
                    && let Some(gpu) = named(row, "gpuId").and_then(|id| gpus.get(&id))
                    && let Some(device) = named(row, "cudaId")
                {
                    let pid = named(row, "pid").map(i64::cast_unsigned);
                    found.push((pid, u32::try_from(device).unwrap_or(0), gpu.1.clone()));
                }
                Ok(())
            })?;
        }
        for (id, (device, gpu)) in gpus {
            found.push((None, u32::try_from(device.unwrap_or(id)).unwrap_or(0), gpu));
        }
        Ok(found)
    }
}

impl Source for Export {
    fn facts(&mut self) -> Result<Facts, SourceError> {
        let processes = self.processes()?;
        let gpus = self
            .gpus()?
            .into_iter()
            .filter_map(|(pid, device, gpu)| match pid {
                None => Some((None, device, gpu)),
                Some(pid) => {
                    let owner = processes.iter().find(|process| process.pid == pid & 0xff_ffff)?;
                    Some((Some(owner.key), device, gpu))
                }
            })
            .collect();
        let mut missing = Vec::new();
        if !self.0.has(CALLS, "correlationId") {
            missing.push(
                "the recording has no CUDA calls, so kernels have no operators (record with --trace=cuda,nvtx)"
                    .to_owned(),
            );
        }
        if !self.0.has(KERNELS, "globalPid") && processes.len() == 1 {
            missing.push("the recording has no process for kernels: assuming a single process".to_owned());
        }
        let mut graphs = 0;
        if self.0.has(GRAPHS, "start") {
            self.0.each(&format!("SELECT count(*) FROM {GRAPHS}"), &mut |row| {
                graphs = whole(row, 0)?.unwrap_or(0).cast_unsigned();
                Ok(())
            })?;
        }
        let environment = "TARGET_INFO_SYSTEM_ENV";
        Ok(Facts {
            processes,
            gpus,
            driver: self.0.value(environment, "NvDriverVersion").map(|version| habitat_base::text::clean(&version, 40)),
            schema: self.0.value("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION"),
            graphs,
            missing,
        })
    }

    fn ranges(&mut self, part: Part, pass: &mut dyn FnMut(RangeRow<'_>)) -> Result<(), SourceError> {
        if !(self.0.has(RANGES, "start") && self.0.has(RANGES, "end")) {
            return Ok(());
        }
        let kinds = self.0.names("ENUM_NSYS_EVENT_TYPE");
        // Versions without names for these numbers all use the same ones.
        let of = |number: i64, name: &str| match kinds.get(&number) {
            Some(known) => known == name,
            None => matches!((number, name), (59, "NvtxPushPopRange") | (60, "NvtxStartEndRange")),
        };
        let domains = self.domains()?;
        let mut texts = self.0.texts();
        let within =
            part.window.map_or_else(String::new, |(from, to)| format!(" AND \"end\" > {from} AND start < {to}"));
        let sql = format!(
            "SELECT {} FROM {RANGES} WHERE \"end\" IS NOT NULL AND {}{within}",
            self.0.columns(
                RANGES,
                &[&["start"], &["end"], &["eventType"], &["text"], &["textId"], &["globalTid"], &["domainId"]]
            ),
            self.of_process(RANGES, "globalTid", part.process)
        );
        self.0.each(&sql, &mut |row| {
            let (Some(start), Some(end)) = (whole(row, 0)?, whole(row, 1)?) else { return Ok(()) };
            let kind = whole(row, 2)?.unwrap_or(59);
            let nests = of(kind, "NvtxPushPopRange") || of(kind, "NvtxtPushPopRange");
            if !nests && !of(kind, "NvtxStartEndRange") && !of(kind, "NvtxtStartEndRange") {
                return Ok(());
            }
            let thread = whole(row, 5)?.unwrap_or(0).cast_unsigned();
            let domain = whole(row, 6)?.filter(|id| *id != 0);
            // Keep a domain without a name.
            let key = (part.process, domain.unwrap_or(0));
            let domain = domain.map(|_| domains.get(&key).map_or("unnamed", String::as_str));
            let mut pass = |text: &str| pass(RangeRow { text, domain, start, end, thread, nests });
            match (row.get_ref(3)?, whole(row, 4)?) {
                (ValueRef::Text(text), _) => pass(&String::from_utf8_lossy(text)),
                (_, Some(id)) => pass(texts.get(id)?),
                _ => {}
            }
            Ok(())
        })
    }

    fn calls(&mut self, part: Part, pass: &mut dyn FnMut(CallRow)) -> Result<(), SourceError> {
        if !(self.0.has(CALLS, "start") && self.0.has(CALLS, "end") && self.0.has(CALLS, "correlationId")) {
            return Ok(());
        }
        let mut texts = self.0.texts();
        // Kind of work that a call with this name starts; `None` if it starts none.
        let mut kinds: HashMap<i64, Option<CallKind>> = HashMap::new();
        let within =
            part.window.map_or_else(String::new, |(from, to)| format!(" AND start >= {from} AND start < {to}"));
        let sql = format!(
            "SELECT {} FROM {CALLS} WHERE correlationId IS NOT NULL AND {}{within}",
            self.0.columns(CALLS, &[&["start"], &["end"], &["globalTid"], &["correlationId"], &["nameId"]]),
            self.of_process(CALLS, "globalTid", part.process)
        );
        self.0.each(&sql, &mut |row| {
            let (Some(start), Some(end), Some(correlation)) = (whole(row, 0)?, whole(row, 1)?, whole(row, 3)?) else {
                return Ok(());
            };
            let mut kind = CallKind::Other;
            if let Some(name) = whole(row, 4)? {
                let starts = if let Some(known) = kinds.get(&name) {
                    *known
                } else {
                    let text = texts.get(name)?;
                    let starts = launches(text).then(|| CallKind::new(text.as_bytes()));
                    if kinds.len() >= NAMES {
                        kinds.clear();
                    }
                    kinds.insert(name, starts);
                    starts
                };
                let Some(starts) = starts else { return Ok(()) };
                kind = starts;
            }
            let thread = whole(row, 2)?.unwrap_or(0).cast_unsigned();
            pass(CallRow { start, end, thread, correlation: correlation.cast_unsigned(), kind });
            Ok(())
        })
    }

    fn work(&mut self, part: Part, pass: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError> {
        self.kernels(part, pass)?;
        self.copies(part, pass)?;
        for (table, kind, name) in [(FILLS, WorkKind::Set, "Memset (Device)"), (GRAPHS, WorkKind::Kernel, "CUDA graph")]
        {
            self.work_rows(table, kind, part, &[], &mut |_, work| {
                pass(WorkRow { name, ..work });
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl Export {
    /// Passes the rows of work of a process in a window. The columns that all tables have make a row without a name;
    /// `more` columns start at index 5.
    fn work_rows(
        &self,
        table: &str,
        kind: WorkKind,
        part: Part,
        more: &[&[&str]],
        pass: &mut dyn FnMut(&Row<'_>, WorkRow<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), SourceError> {
        if !self.0.has(table, "start") {
            return Ok(());
        }
        let own: [&[&str]; 5] = [&["start"], &["end"], &["correlationId"], &["deviceId"], &["streamId"]];
        let columns = self.0.columns(table, &[&own, more].concat());
        let process = self.of_process(table, "globalPid", part.process);
        let within = part.window.map_or_else(String::new, |(from, _)| format!(" AND start >= {from}"));
        self.0.each(&format!("SELECT {columns} FROM {table} WHERE {process}{within}"), &mut |row| {
            let (Some(start), Some(end)) = (whole(row, 0)?, whole(row, 1)?) else { return Ok(()) };
            let correlation = whole(row, 2)?.unwrap_or(0).cast_unsigned();
            let device = unsigned(row, 3)?.unwrap_or(0);
            let stream = unsigned(row, 4)?.unwrap_or(0);
            pass(row, WorkRow { stream, ..WorkRow::new(kind, start, end, correlation, device) })
        })
    }

    fn kernels(&self, part: Part, pass: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError> {
        let mut texts = self.0.texts();
        let more: [&[&str]; 10] = [
            &["demangledName", "shortName", "mangledName"],
            &["gridX"],
            &["gridY"],
            &["gridZ"],
            &["blockX"],
            &["blockY"],
            &["blockZ"],
            &["registersPerThread"],
            &["staticSharedMemory"],
            &["dynamicSharedMemory"],
        ];
        self.work_rows(KERNELS, WorkKind::Kernel, part, &more, &mut |row, work| {
            let extent = |at: usize| -> rusqlite::Result<Option<[u32; 3]>> {
                let (x, y, z) = (unsigned(row, at)?, unsigned(row, at + 1)?, unsigned(row, at + 2)?);
                Ok(x.zip(y).zip(z).map(|((x, y), z)| [x, y, z]))
            };
            let work = WorkRow {
                grid: extent(6)?,
                block: extent(9)?,
                registers: unsigned(row, 12)?.filter(|count| *count > 0),
                static_memory: unsigned(row, 13)?,
                dynamic_memory: unsigned(row, 14)?,
                ..work
            };
            match row.get_ref(5)? {
                ValueRef::Text(name) => pass(WorkRow { name: &String::from_utf8_lossy(name), ..work }),
                ValueRef::Integer(id) => pass(WorkRow { name: texts.get(id)?, ..work }),
                _ => pass(work),
            }
            Ok(())
        })
    }

    /// Copies with names by direction, as in PyTorch's profiler.
    fn copies(&self, part: Part, pass: &mut dyn FnMut(WorkRow<'_>)) -> Result<(), SourceError> {
        let (kinds, memories) = (self.0.names("ENUM_CUDA_MEMCPY_OPER"), self.0.names("ENUM_CUDA_MEM_KIND"));
        let mut names: HashMap<[Option<i64>; 3], String> = HashMap::new();
        let more: [&[&str]; 3] = [&["copyKind"], &["srcKind"], &["dstKind"]];
        self.work_rows(COPIES, WorkKind::Copy, part, &more, &mut |row, work| {
            let key = [whole(row, 5)?, whole(row, 6)?, whole(row, 7)?];
            let name = names.entry(key).or_insert_with(|| copy_name(key, &kinds, &memories));
            pass(WorkRow { name, ..work });
            Ok(())
        })
    }

    /// Names of domains, by process and number.
    fn domains(&self) -> Result<HashMap<(u64, i64), String>, SourceError> {
        let mut names = HashMap::new();
        let kinds = self.0.names("ENUM_NSYS_EVENT_TYPE");
        let create = kinds.iter().find(|(_, name)| *name == "NvtxDomainCreate").map_or(75, |(id, _)| *id);
        if !(self.0.has(RANGES, "eventType") && self.0.has(RANGES, "domainId")) {
            return Ok(names);
        }
        let mut texts = self.0.texts();
        let sql = format!(
            "SELECT {} FROM {RANGES} WHERE eventType = {create}",
            self.0.columns(RANGES, &[&["globalTid"], &["domainId"], &["text"], &["textId"]])
        );
        self.0.each(&sql, &mut |row| {
            let (Some(thread), Some(domain)) = (whole(row, 0)?, whole(row, 1)?) else { return Ok(()) };
            let name = match (row.get_ref(2)?, whole(row, 3)?) {
                (ValueRef::Text(text), _) => String::from_utf8_lossy(text).into_owned(),
                (_, Some(id)) => texts.get(id)?.to_owned(),
                _ => return Ok(()),
            };
            if names.len() < NAMES {
                names.insert((process_of(thread), domain), habitat_base::text::clean(&name, 200));
            }
            Ok(())
        })?;
        Ok(names)
    }
}

fn copy_name(key: [Option<i64>; 3], kinds: &HashMap<i64, String>, memories: &HashMap<i64, String>) -> String {
    let of = |key: Option<i64>, names: &HashMap<i64, String>| {
        let name = names.get(&key?)?;
        Some(name.rsplit('_').next().unwrap_or(name).to_owned())
    };
    let direction = match of(key[0], kinds).or(key[0].map(|kind| kind.to_string())).as_deref() {
        Some("HTOD" | "1") => "HtoD".to_owned(),
        Some("DTOH" | "2") => "DtoH".to_owned(),
        Some("DTOD" | "8") => "DtoD".to_owned(),
        Some("PTOP" | "10") => "PtoP".to_owned(),
        Some(other) => other.to_owned(),
        None => return "Memcpy".to_owned(),
    };
    let place = |key: Option<i64>| {
        of(key, memories).map(|name| {
            let mut letters = name.chars();
            letters.next().map_or_else(String::new, |first| {
                first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect::<String>()
            })
        })
    };
    match (place(key[1]), place(key[2])) {
        (Some(from), Some(to)) => format!("Memcpy {direction} ({from} -> {to})"),
        _ => format!("Memcpy {direction}"),
    }
}

/// Whether a runtime or driver call can start work on the device.
fn launches(name: &str) -> bool {
    ["aunch", "emcpy", "emset", "emcp"].iter().any(|part| name.contains(part)) || name.is_empty()
}
