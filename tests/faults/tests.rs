use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::needs::{Need, root};

trials! {
    always () => [
        every_row_of_the_table_names_a_test,
        what_was_killed_while_it_wrote_leaves_the_old_file,
        what_is_left_over_goes_and_what_is_being_written_stays,
        a_file_that_is_there_is_replaced_only_when_asked,
        several_at_once_leave_one_whole_file,
        a_folder_that_is_gone_is_named,
        special_files_are_refused_or_read_and_never_replaced,
    ],
    when (root()) => [without_rights_nothing_is_changed, another_user_reaches_neither_socket_nor_folder],
    when (mounts()) => [
        a_full_disk_leaves_the_old_file_and_nothing_else,
        a_file_system_that_cannot_be_written_is_named,
        #[cfg(target_os = "linux")]
        kills_in_the_middle_of_writing_leave_nothing_for_long,
    ],
}

/// Permission to mount file systems.
fn mounts() -> Need<()> {
    let mount = ["-Urm", "mount", "-t", "tmpfs", "-o", "size=64k", "none", "/mnt"];
    let is_done = Command::new("unshare").args(mount).output().is_ok_and(|output| output.status.success());
    if is_done { Ok(()) } else { Err("no file system can be mounted here".to_owned()) }
}

/// Operators of a step: a profile of megabytes, which takes a while to write.
const OPERATIONS: usize = 20_000;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        let operation = |n: usize| {
            format!(
                r#"{{"op": "aten.mm.default", "module": "layer.{n}", "inputs": [{{"shape": [{n}, 64], "dtype": "float32"}}, {{"shape": [64, {n}], "dtype": "float32"}}], "outputs": [{{"shape": [{n}, {n}], "dtype": "float32"}}], "count": 1}}"#
            )
        };
        let operations = |count: usize| (1..count).map(operation).collect::<Vec<_>>().join(",\n");
        place.file("ops.json", &format!("{{\"ops\": [{}]}}", operations(OPERATIONS)));
        place.file("few.json", &format!("{{\"ops\": [{}]}}", operations(400)));
        std::fs::create_dir(place.path("out")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.0.path()).env("HABITAT_TUI_CONFIG_DIR", self.path("config"));
        command.env_remove("HABITAT_TUI_MODELS").env_remove("HABITAT_TUI_THEME").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(env!("CARGO_BIN_EXE_habitat-tui")).args(args).spawn().unwrap()
    }

    fn run(&self, args: &[&str]) -> Output {
        self.start(args).wait_with_output().unwrap()
    }

    /// Error of a refused run.
    fn refused(&self, args: &[&str]) -> String {
        refusal(&self.run(args))
    }

    /// Runs `script` in its own file system, with the program as `$0`.
    fn shell(&self, script: &str) -> Output {
        let mut command = self.command("unshare");
        command.args(["-Urm", "sh", "-ec", script, env!("CARGO_BIN_EXE_habitat-tui")]);
        command.output().unwrap()
    }

    /// Files in the folder `out`, hidden ones too.
    fn out(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("out")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Number of operations of a profile, which must be complete.
    fn operations(&self, name: &str) -> usize {
        let profile: serde_json::Value = serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap();
        profile["operations"].as_array().unwrap().len()
    }
}

fn refusal(output: &Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

const OUT: &str = "out/p.habitat.json";
const IMPORT: [&str; 5] = ["import", "ops.json", "-o", OUT, "--force"];

/// The last column of each row names a test, as `tests/faults::name` or in the file of a module.
fn every_row_of_the_table_names_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = std::fs::read_to_string(root.join("docs/faults.md")).unwrap();
    let lines: Vec<&str> = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")).collect();
    let mut found = 0;
    for row in lines.into_iter().filter(|row| !row.starts_with("| what was done")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 4, "{row}");
        for named in cells[3].split(", ") {
            let (file, test) = named.trim().trim_matches('`').split_once("::").unwrap_or_else(|| panic!("{row}"));
            let places = ["", ".rs", "/tests.rs"].map(|end| root.join(format!("{file}{end}")));
            let source = places.iter().find_map(|path| std::fs::read_to_string(path).ok());
            let source = source.unwrap_or_else(|| panic!("{named}: no such file"));
            assert!(source.contains(&format!("fn {test}(")), "{named}: no such test");
            found += 1;
        }
    }
    assert!(found > 20, "{found} rows");
}

/// At any moment of a whole run, mostly outside the writing.
fn what_was_killed_while_it_wrote_leaves_the_old_file() {
    let place = Place::new();
    let began = std::time::Instant::now();
    assert_eq!(place.run(&IMPORT).status.code(), Some(0));
    let whole = began.elapsed();
    let is_killed = (0..20_u32).filter(|round| {
        let mut child = place.start(&IMPORT);
        std::thread::sleep(whole * (5 + round) / 25);
        let is_running = child.try_wait().unwrap().is_none();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(place.operations(OUT), OPERATIONS - 1, "round {round}");
        is_running
    });
    assert!(is_killed.count() > 0);
    assert_eq!(place.run(&IMPORT).status.code(), Some(0));
    assert_eq!(place.out(), ["p.habitat.json"]);
}

/// Without /proc a file has its temporary name from the beginning: every kill is in the middle of writing. The next
/// writer removes the rest.
#[cfg(target_os = "linux")]
fn kills_in_the_middle_of_writing_leave_nothing_for_long() {
    let place = Place::new();
    assert_eq!(place.run(&["import", "few.json", "-o", OUT]).status.code(), Some(0));
    let mut littered = 0;
    for _ in 0..12 {
        let before = place.out();
        let mut command = place.command("unshare");
        // The program replaces the shell, so that the kill hits it.
        let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
        command.args(["-Urm", "sh", "-c", script, env!("CARGO_BIN_EXE_habitat-tui")]).args(IMPORT);
        let mut child = command.spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            if place.out().iter().any(|name| name.starts_with('.') && !before.contains(name)) {
                child.kill().unwrap();
                break;
            }
        }
        child.wait().unwrap();
        let left = place.out();
        littered += usize::from(left.len() > 1);
        assert!(left.len() <= 2, "more than the last kill left: {left:?}");
        let there = place.operations(OUT);
        assert!([399, OPERATIONS - 1].contains(&there), "{there}");
    }
    assert!(littered > 0, "no kill came in the middle of writing");
    assert_eq!(place.run(&["import", "few.json", "-o", "out/other.habitat.json"]).status.code(), Some(0));
    assert_eq!(place.out(), ["other.habitat.json", "p.habitat.json"]);
}

/// Files without a writer are leftovers; files of others, and special files, stay.
fn what_is_left_over_goes_and_what_is_being_written_stays() {
    let place = Place::new();
    for name in
        [".habitat-tui-dead01", ".habitat-tui-alive1", ".habitat-tui-longer12", ".habitat-tui-", "habitat-tui-dead01"]
    {
        place.file(&format!("out/{name}"), "x");
    }
    std::fs::create_dir(place.path("out/.habitat-tui-folder")).unwrap();
    symlink("habitat-tui-dead01", place.path("out/.habitat-tui-linked")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("out/.habitat-tui-fifo01")).status().unwrap().success());
    let writer = std::fs::File::open(place.path("out/.habitat-tui-alive1")).unwrap();
    writer.lock().unwrap();
    let few = ["import", "few.json", "-o", OUT, "--force"];
    assert_eq!(place.run(&few).status.code(), Some(0));
    let stay =
        [".habitat-tui-", ".habitat-tui-fifo01", ".habitat-tui-folder", ".habitat-tui-linked", ".habitat-tui-longer12"];
    let rest = ["habitat-tui-dead01", "p.habitat.json"];
    let mut expected = [&stay[..], &[".habitat-tui-alive1"], &rest].concat();
    expected.sort_unstable();
    assert_eq!(place.out(), expected);
    drop(writer);
    assert_eq!(place.run(&few).status.code(), Some(0));
    assert_eq!(place.out(), [&stay[..], &rest].concat());
}

fn a_file_that_is_there_is_replaced_only_when_asked() {
    let place = Place::new();
    place.file(OUT, "mine");
    let said = place.refused(&["import", "few.json", "-o", OUT]);
    assert!(said.contains("out/p.habitat.json: already exists") && said.contains("--force"), "{said}");
    assert_eq!(std::fs::read_to_string(place.path(OUT)).unwrap(), "mine");
    assert_eq!(place.run(&["import", "few.json", "-o", OUT, "--force"]).status.code(), Some(0));
    assert_eq!((place.operations(OUT), place.out().len()), (399, 1));
}

/// If all may replace, all succeed; else one does.
fn several_at_once_leave_one_whole_file() {
    let place = Place::new();
    for (force, wins) in [(true, 6), (false, 1)] {
        let _ = std::fs::remove_file(place.path(OUT));
        let args = &["import", "few.json", "-o", OUT, "--force"][..if force { 5 } else { 4 }];
        let all: Vec<Child> = (0..6).map(|_| place.start(args)).collect();
        let ended: Vec<Output> = all.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
        let (well, badly): (Vec<_>, Vec<_>) = ended.iter().partition(|output| output.status.success());
        assert_eq!(well.len(), wins, "{:?}", badly.first());
        for output in badly {
            assert!(refusal(output).contains("already exists"));
        }
        assert_eq!((place.operations(OUT), place.out()), (399, vec!["p.habitat.json".to_owned()]));
    }
}

fn a_full_disk_leaves_the_old_file_and_nothing_else() {
    let place = Place::new();
    let said = place.shell(
        "mount -t tmpfs -o size=64k none out; echo old >out/p.habitat.json
         code=0; \"$0\" import ops.json -o out/p.habitat.json --force || code=$?
         ls -A out; cat out/p.habitat.json; exit $code",
    );
    assert_eq!(String::from_utf8_lossy(&said.stdout), "p.habitat.json\nold\n");
    let error = refusal(&said);
    assert!(error.contains("out/p.habitat.json: cannot be written: No space left on device"), "{error}");
    assert!(error.contains("nothing was changed"), "{error}");
}

fn a_file_system_that_cannot_be_written_is_named() {
    let place = Place::new();
    let said = place.shell(
        "mount -t tmpfs none out; echo old >out/p.habitat.json; mount -o remount,ro out
         code=0; \"$0\" import few.json -o out/p.habitat.json --force || code=$?
         cat out/p.habitat.json; exit $code",
    );
    assert_eq!(String::from_utf8_lossy(&said.stdout), "old\n");
    let error = refusal(&said);
    assert!(error.contains("out/p.habitat.json: cannot be written: Read-only file system"), "{error}");
}

/// As another user: a folder of root's, a file of root's in a public folder, and an unreadable file.
fn without_rights_nothing_is_changed() {
    let place = Place::new();
    let mode = |name: &str, mode| std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(mode)).unwrap();
    std::fs::create_dir(place.path("bin")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_habitat-tui"), place.path("bin/habitat-tui")).unwrap();
    mode("", 0o755);
    place.file(OUT, "old");
    let as_nobody = |args: &[&str]| {
        let mut command = place.command(place.path("bin/habitat-tui"));
        refusal(&command.args(args).uid(65534).gid(65534).output().unwrap())
    };
    let import = ["import", "few.json", "-o", OUT, "--force"];
    let said = as_nobody(&import);
    assert!(said.contains("out/p.habitat.json: cannot be written: Permission denied"), "{said}");
    // In a folder with the sticky bit a user may create a file, but not replace another's.
    mode("out", 0o1777);
    let said = as_nobody(&import);
    assert!(said.contains("out/p.habitat.json: cannot be written"), "{said}");
    assert_eq!((std::fs::read_to_string(place.path(OUT)).unwrap(), place.out().len()), ("old".to_owned(), 1));
    mode("few.json", 0o600);
    let said = as_nobody(&["predict", "few.json"]);
    assert!(said.contains("few.json: Permission denied"), "{said}");
    mode("out", 0o700);
    let said = as_nobody(&["predict", OUT]);
    assert!(said.contains("out/p.habitat.json: Permission denied"), "{said}");
}

/// Socket to which this program, started again as another user, connects.
pub(crate) const CONNECT: &str = "HABITAT_TUI_TEST_CONNECT";

/// Prints whether it may connect to the socket.
pub(crate) fn connect(socket: &std::ffi::OsStr) {
    match std::os::unix::net::UnixStream::connect(socket) {
        Ok(_) => println!("connected"),
        Err(error) => println!("{}", error.kind()),
    }
}

/// The socket of a job that is being recorded, and the files of its folder.
fn another_user_reaches_neither_socket_nor_folder() {
    let place = Place::new();
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::create_dir(place.path("bin")).unwrap();
    std::fs::copy(std::env::current_exe().unwrap(), place.path("bin/connect")).unwrap();
    let mut command = place.command(env!("CARGO_BIN_EXE_habitat-tui"));
    command.args(["run", "-o", "p.habitat.json", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]);
    let mut job = command.env("XDG_CACHE_HOME", place.path("cache")).spawn().unwrap();
    let socket = loop {
        let folders = std::fs::read_dir(place.path("cache/habitat-tui")).into_iter().flatten().flatten();
        match folders.map(|folder| folder.path().join("socket")).find(|path| path.exists()) {
            Some(socket) => break socket,
            None => assert!(job.try_wait().unwrap().is_none(), "the job ended"),
        }
    };
    let connect = |user: u32| {
        let mut command = place.command(place.path("bin/connect"));
        let output = command.env(CONNECT, &socket).uid(user).gid(user).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(connect(0), "connected\n");
    assert_eq!(connect(65534), "permission denied\n");
    let mut listing = place.command("ls");
    let output = listing.arg(socket.parent().unwrap()).uid(65534).gid(65534).output().unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
    place.file("go", "");
    assert_eq!(job.wait().unwrap().code(), Some(0));
}

/// The output folder disappears during the input, and so does the current folder.
fn a_folder_that_is_gone_is_named() {
    let place = Place::new();
    let mut command = place.command(env!("CARGO_BIN_EXE_habitat-tui"));
    command.args(["import", "-", "-o", OUT]).stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let (first, rest) = ("{\"ops\": [", std::fs::read_to_string(place.path("few.json")).unwrap());
    input.write_all(first.as_bytes()).unwrap();
    std::fs::remove_dir(place.path("out")).unwrap();
    input.write_all(rest.trim_start_matches(first).as_bytes()).unwrap();
    drop(input);
    let said = refusal(&child.wait_with_output().unwrap());
    assert!(said.contains("out/p.habitat.json") && said.contains("No such file"), "{said}");
    assert!(!place.path("out").exists());

    std::fs::create_dir(place.path("gone")).unwrap();
    let script = "cd gone; rmdir ../gone; \"$0\" import \"$1/few.json\" -o p.habitat.json";
    let mut command = place.command("sh");
    let said =
        refusal(&command.args(["-c", script, env!("CARGO_BIN_EXE_habitat-tui")]).arg(place.0.path()).output().unwrap());
    assert!(said.contains("p.habitat.json") && said.contains("No such file"), "{said}");
}

/// As input and as output: a socket, a pipe, devices, a folder, links to them.
fn special_files_are_refused_or_read_and_never_replaced() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.path("out/socket")).unwrap();
    symlink("socket", place.path("out/to-socket")).unwrap();
    symlink("/dev/null", place.path("out/to-null")).unwrap();
    let before = place.out();
    for name in ["out/socket", "out/to-socket"] {
        let said = place.refused(&["predict", name]);
        assert!(said.contains(&format!("{name}: is a socket, not a file")), "{said}");
        let said = place.refused(&["import", "few.json", "-o", name, "--force"]);
        assert!(said.contains(&format!("{name}: cannot be written")), "{said}");
    }
    let said = place.refused(&["predict", "/dev/null"]);
    assert!(said.contains("/dev/null: is a device, not a file"), "{said}");
    let said = place.refused(&["predict", "out"]);
    assert!(said.contains("out: is a folder, not a file"), "{said}");
    let said = place.refused(&["import", "few.json", "-o", "out", "--force"]);
    assert!(said.contains("out: cannot be written"), "{said}");
    if Path::new("/dev/full").exists() {
        let said = place.refused(&["import", "few.json", "-o", "/dev/full"]);
        assert!(said.contains("/dev/full: cannot be written: No space left"), "{said}");
    }
    assert_eq!(place.run(&["import", "few.json", "-o", "out/to-null", "--force"]).status.code(), Some(0));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    assert_eq!(place.out(), before);

    let fifo = place.path("out/pipe");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let child = place.start(&["import", "few.json", "-o", "out/pipe"]);
    let profile: serde_json::Value = serde_json::from_slice(&std::fs::read(&fifo).unwrap()).unwrap();
    assert_eq!(profile["operations"].as_array().unwrap().len(), 399);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let child = place.start(&["import", "out/pipe", "-o", OUT]);
    std::fs::write(&fifo, std::fs::read(place.path("few.json")).unwrap()).unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(place.operations(OUT), 399);
}
