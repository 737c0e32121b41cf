//! `habitat-tui prices` on the command line, and its downloads from a local server.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::server::{Answer, Server};
use serde_json::Value;

const HEADER: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n";

fn catalog(price: f64) -> String {
    format!("{HEADER}gpu_1x_a10,A10,1,30,200,{price},us-east-1,,\ngpu_1x_h100_pcie,H100,1,26,200,2.49,us-east-1,,\n")
}

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), content).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_habitat-tui"));
        for name in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(name);
        }
        let command = command
            .args(args)
            .current_dir(self.0.path())
            .env("HABITAT_TUI_CONFIG_DIR", self.path("config"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("SOURCE_DATE_EPOCH", "1795219200"); // 2026-11-21
        command.output().unwrap()
    }

    fn update(&self, from: &str, more: &[&str]) -> Value {
        // The catalogs here have two offers.
        let output = self.run(&[&["prices", "update", "--json", "--accept-loss", "--from", from], more].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, from: &str, more: &[&str]) -> String {
        let output = self.run(&[&["prices", "update", "--from", from], more].concat());
        assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    fn prices(&self, provider: &str) -> String {
        std::fs::read_to_string(self.path(&format!("config/pricing/{provider}.toml"))).unwrap_or_default()
    }

    /// The interrupted download.
    fn part(&self) -> std::path::PathBuf {
        let folder = std::fs::read_dir(self.path("cache/habitat-tui/prices")).unwrap();
        let mut files = folder.map(|file| file.unwrap().path());
        files.find(|file| file.extension().is_some_and(|end| end == "part")).unwrap()
    }

    fn parts(&self) -> usize {
        std::fs::read_dir(self.path("cache/habitat-tui/prices")).map_or(0, Iterator::count)
    }
}

/// `README.md` and `pricing/README.md` have the number of offers, their age, and the number in doubt.
#[test]
fn the_numbers_of_the_readme_are_those_of_the_shipped_prices() {
    let bench = Bench::new();
    let output = bench.run(&["prices", "--json"]);
    let prices: Value = serde_json::from_slice(&output.stdout).unwrap();
    let all = |key: &str| prices["all"][key].as_u64().unwrap();
    let hundreds = (all("offers") - all("unusable")) / 100;
    let rows = prices["providers"].as_array().unwrap();
    let is_usable = |row: &&Value| row["offers"] != row["unusable"];
    let providers = rows.iter().filter(is_usable).count();
    let said = format!("more than {},{}00 usable offers of {providers} providers", hundreds / 10, hundreds % 10);
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    assert!(readme.contains(&said), "{said}");
    let text = String::from_utf8(bench.run(&["prices"]).stdout).unwrap();
    let counts = &text[text.find(" offers of ").and_then(|at| text[..at].rfind('\n')).unwrap() + 1..];
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/pricing/README.md")).unwrap();
    assert!(readme.contains(counts), "{counts}");
    for key in ["offers", "in_doubt", "unusable"] {
        assert_eq!(rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>(), all(key), "{key}");
    }
    let ages = prices["all"]["ages"].as_array().unwrap();
    assert_eq!(ages.iter().map(|age| age["offers"].as_u64().unwrap()).sum::<u64>(), all("offers"));
    // Doubt must mark exceptions.
    assert!(all("in_doubt") * 4 < all("offers") - all("unusable"), "{}", prices["all"]);
}

#[test]
fn a_file_becomes_prices_and_what_changed_is_said() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    let planned = bench.update(&file, &["--dry-run"]);
    assert_eq!((planned["providers"][0]["written"].as_bool(), bench.prices("lambda")), (Some(false), String::new()));
    let first = bench.update(&file, &["--as-of", "2026-11-20"]);
    assert_eq!(first["providers"][0]["as_of"], "2026-11-20");
    // The shipped offers of Lambda, under other names, are gone except for these two.
    assert_eq!(
        (&first["providers"][0]["changes"]["new"]["count"], &first["providers"][0]["offers"]),
        (&2.into(), &2.into())
    );
    let gone = first["providers"][0]["changes"]["gone"]["count"].as_u64().unwrap();
    assert!(gone > 10);
    // Without the file, the shipped offers are back: an update would lose most of them.
    std::fs::remove_file(bench.path("config/pricing/lambda.toml")).unwrap();
    let lost = format!("lambda.csv has 2 offers instead of {gone}, and none for");
    let update = ["prices", "update", "--from", file.as_str()];
    let said = |more: &[&str]| String::from_utf8(bench.run(&[&update[..], more].concat()).stdout).unwrap();
    let planned = said(&["--dry-run"]);
    assert!(planned.contains(&lost) && planned.contains("refused without --accept-loss"), "{planned}");
    let taken = said(&["--accept-loss"]);
    assert!(taken.contains(&lost) && !taken.contains("refused"), "{taken}");
    assert!(!said(&["--dry-run"]).contains("warning"));
    bench.write("lambda.csv", catalog(1.1));
    let second = bench.update(&file, &[]);
    let dearer = &second["providers"][0]["changes"]["dearer"];
    assert_eq!(dearer["count"], 1);
    assert_eq!(dearer["largest"][0]["offer"], "lambda/us-east-1/gpu_1x_a10/on-demand");
    assert_eq!(
        (&dearer["largest"][0]["before_usd_per_hour"], &dearer["largest"][0]["after_usd_per_hour"]),
        (&0.8.into(), &1.1.into())
    );
    let offers = bench.run(&["offers", "--gpu", "a10", "--json"]);
    let offers: Value = serde_json::from_slice(&offers.stdout).unwrap();
    let own: Vec<&Value> =
        offers["offers"].as_array().unwrap().iter().filter(|offer| offer["provider"] == "lambda").collect();
    assert_eq!((own.len(), &own[0]["price_usd_per_hour"]), (1, &1.1.into()));
    assert_eq!(own[0]["price_as_of"], Value::Null);
    assert_eq!(bench.run(&["check", "config/pricing/lambda.toml"]).status.code(), Some(0));
}

#[test]
fn the_list_says_where_prices_are_from_and_how_old_they_are() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    bench.update(&file, &["--as-of", "2026-11-20"]);
    for args in [&["prices", "--json"][..], &["prices", "list", "--json"]] {
        let list: Value = serde_json::from_slice(&bench.run(args).stdout).unwrap();
        let row = |name: &str| {
            list["providers"].as_array().unwrap().iter().find(|row| row["provider"] == name).unwrap().clone()
        };
        let lambda = row("lambda");
        assert!(lambda["files"][0].as_str().unwrap().ends_with("config/pricing/lambda.toml"));
        assert_eq!(
            (&lambda["offers"], &lambda["newest"], &lambda["undated"]),
            (&2.into(), &"2026-11-20".into(), &0.into())
        );
        assert_eq!(row("aws")["files"], serde_json::json!(["shipped"]));
        assert!(row("vast")["in_doubt"].as_u64() > Some(0));
    }
    let text = String::from_utf8(bench.run(&["prices"]).stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("lambda") && line.contains("2026-11-20")), "{text}");
}

#[test]
fn a_file_written_by_hand_is_not_replaced_unasked() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    let own = "schema = 1\nprovider = \"lambda\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\ngpu_count = 1\n\
        on_demand_usd_per_hour = 3.0\nscope = \"instance_total\"\nsource = \"contract\"\n";
    bench.write("config/pricing/lambda.toml", own);
    let said = bench.refused(&file, &[]);
    assert!(
        said.contains("config/pricing/lambda.toml: was not made by `prices update`") && said.contains("--force"),
        "{said}"
    );
    assert_eq!(bench.prices("lambda"), own);
    bench.update(&file, &["--force"]);
    assert!(bench.prices("lambda").starts_with("# Made by `habitat-tui prices update`"));
    bench.update(&file, &[]);
}

#[test]
fn of_an_offer_in_two_files_that_written_by_hand_counts() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    // Read before lambda.toml, by its name.
    bench.write(
        "config/pricing/contract.toml",
        "schema = 1\nprovider = \"lambda\"\n[[offer]]\nregion = \"us-east-1\"\ninstance_type = \"gpu_1x_a10\"\n\
         gpu = \"a10\"\ngpu_count = 1\non_demand_usd_per_hour = 0.5\nscope = \"instance_total\"\nsource = \"contract\"\n",
    );
    bench.update(&file, &[]);
    let offers = bench.run(&["offers", "gpu_1x_a10", "--json"]);
    let offers: Value = serde_json::from_slice(&offers.stdout).unwrap();
    assert_eq!((&offers["offers"][0]["price_usd_per_hour"], offers["offers"][1].is_null()), (&0.5.into(), true));
}

#[test]
fn one_provider_that_fails_leaves_its_prices_and_the_others_are_done() {
    let bench = Bench::new();
    bench.write("in/lambda.csv", catalog(0.8));
    bench.write("in/verda.csv", catalog(0.7));
    let folder = bench.path("in").to_str().unwrap().to_owned();
    bench.update(&folder, &[]);
    let before = bench.prices("lambda");
    bench.write("in/lambda.csv", catalog(-0.8));
    bench.write("in/verda.csv", catalog(0.6));
    let said = bench.refused(&folder, &[]);
    assert!(said.contains("lambda.csv: line 2, column Price: \"-0.8\"") && said.contains("1 of 2 providers"), "{said}");
    assert_eq!(bench.prices("lambda"), before);
    assert!(bench.prices("verda").contains("on_demand_usd_per_hour = 0.6"));
    assert!(!bench.prices("verda").contains("on_demand_usd_per_hour = 0.7"));
}

/// As in a copy of the catalog, and price files, which name their provider.
#[test]
fn folders_may_hold_folders_and_price_files() {
    let bench = Bench::new();
    bench.write("in/verda/vms.csv", catalog(0.7));
    bench.write("in/lambda_v8.csv", catalog(0.8));
    bench.write("in/notes.txt", "nothing");
    bench.write(
        "in/mine.toml",
        "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\ngpu_count = 1\n\
         on_demand_usd_per_hour = 3.0\nscope = \"instance_total\"\nsource = \"contract\"\n",
    );
    let folder = bench.path("in").to_str().unwrap().to_owned();
    let names = |got: &Value| {
        let rows = got["providers"].as_array().unwrap();
        rows.iter().map(|row| row["provider"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&bench.update(&folder, &["--dry-run"])), ["lambda", "verda", "lab"]);
    assert_eq!(names(&bench.update(&folder, &["--provider", "verda"])), ["verda"]);
    assert!(bench.refused(&folder, &["--provider", "aws"]).contains("in: has no prices of aws"));
    assert_eq!(bench.prices("lab"), "");
}

#[test]
fn places_without_prices_are_named() {
    let bench = Bench::new();
    let ftp = bench.refused("ftp://example.org/vms.csv", &[]);
    assert!(ftp.contains("--from ftp://…: only http and https are supported"), "{ftp}");
    std::fs::create_dir(bench.path("empty")).unwrap();
    for (from, said) in [
        (bench.path("empty").to_str().unwrap().to_owned(), "empty: has no prices: expected CSV"),
        (bench.path("nothing.csv").to_str().unwrap().to_owned(), "nothing.csv: no such file"),
        (bench.write("..x.csv", catalog(1.0)), "unknown provider of the catalog"),
        (bench.write("a b.csv", catalog(1.0)), "invalid name \"a b\""),
        (bench.write("lab.csv", "<html>"), "lab.csv: the file is a web page"),
        (bench.write("bin.csv", [0x7f, b'E', 0xff, 0xfe]), "bin.csv: line 1: not UTF-8 text"),
        (bench.write("cpu.csv", format!("{HEADER}m,,,1,1,0.1,r,,\n")), "cpu.csv: has no offer of a whole GPU"),
    ] {
        let refused = bench.refused(&from, &[]);
        assert!(refused.contains(said), "{refused}");
    }
    let file = bench.write("lambda.csv", catalog(0.8));
    assert!(bench.refused(&file, &["--max-size", "20"]).contains("has more than 20 bytes"));
    assert!(bench.refused(&file, &["--provider", "../up"]).contains("invalid name \"../up\""));
    assert!(
        bench.refused(&file, &["--provider", "a", "--provider", "b"]).contains("a file has the prices of one provider")
    );
    let table = bench.write(
        "here.toml",
        "schema = 1\nprovider = \"../up\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\n\
        gpu_count = 1\non_demand_usd_per_hour = 3.0\nscope = \"instance_total\"\nsource = \"s\"\n",
    );
    assert!(bench.refused(&table, &[]).contains("invalid name \"../up\""));
    assert!(
        !bench.path("config/pricing").exists()
            || std::fs::read_dir(bench.path("config/pricing")).unwrap().next().is_none()
    );
}

#[test]
fn a_configuration_folder_that_cannot_be_written_is_named() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    // A file instead of the folder, which fails whatever the permissions.
    bench.write("config/pricing", "");
    let said = bench.refused(&file, &[]);
    assert!(said.contains("config/pricing: "), "{said}");
}

#[test]
fn a_good_file_is_dated_by_the_server() {
    let bench = Bench::new();
    let server = Server::new(vec![
        ("/lambda.csv", Answer::ok(&catalog(0.8)).with("Last-Modified", "Wed, 18 Nov 2026 10:00:00 GMT")),
        ("/verda/vms.csv", Answer::ok(&catalog(0.7))),
        ("/moved/lambda.csv", Answer::status(302).with("Location", "/lambda.csv")),
        ("/circle.csv", Answer::status(302).with("Location", "/circle.csv")),
    ]);
    let got = bench.update(&server.url("/lambda.csv"), &[]);
    assert_eq!(
        (&got["providers"][0]["as_of"], &got["providers"][0]["provider"]),
        (&"2026-11-18".into(), &"lambda".into())
    );
    assert!(bench.prices("lambda").contains("date: last change according to the server\""));
    let got = bench.update(&server.url("/verda/vms.csv"), &[]);
    assert_eq!(
        (&got["providers"][0]["as_of"], &got["providers"][0]["provider"]),
        (&"2026-11-21".into(), &"verda".into())
    );
    assert_eq!(got["providers"][0]["dated_by"], "day of the download");
    let got = bench.update(&server.url("/moved/lambda.csv"), &["--as-of", "2026-11-01"]);
    assert_eq!(got["providers"][0]["as_of"], "2026-11-01");
    assert!(bench.refused(&server.url("/circle.csv"), &[]).contains("more than 5 redirects"));
    assert_eq!(bench.parts(), 0);
}

#[test]
fn every_provider_of_an_address_is_fetched_and_faults_are_told_apart() {
    let bench = Bench::new();
    let server = Server::new(vec![
        ("/a/vms.csv", Answer::ok(&catalog(0.8))),
        ("/b/vms.csv", Answer::status(404)),
        ("/c/vms.csv", Answer::status(500)),
        ("/d/vms.csv", Answer::ok("<html>Sign in</html>")),
        ("/e/vms.csv", Answer::ok(&"x".repeat(100_000))),
        ("/f/vms.csv", Answer::ok(&"x".repeat(100_000)).without_length()),
    ]);
    let from = server.url("/{provider}/vms.csv");
    let names: Vec<&str> = ["a", "b", "c", "d", "e", "f"].into_iter().flat_map(|name| ["--provider", name]).collect();
    let said = bench.refused(&from, &[&names[..], &["--max-size", "50000"]].concat());
    for expected in [
        "/b/vms.csv: the server answers 404: file not found",
        "/c/vms.csv: the server answers 500: server error",
        "/d/vms.csv: the file is a web page",
        "/e/vms.csv: has more than 50000 bytes",
        "/f/vms.csv: has more than 50000 bytes",
        "5 of 6 providers",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(bench.prices("a").contains("gpu_1x_a10"));
    assert_eq!(bench.parts(), 0);
}

/// A catalog that is truncated, or of another provider, does not replace existing prices.
#[test]
fn a_catalog_that_has_lost_most_offers_is_refused() {
    let bench = Bench::new();
    let rows = |zone: &str, machines: &[&str]| -> String {
        let row = |machine: &&str| format!("m_{zone}_{machine},{machine},1,8,64,2.0,{zone},,1.0\n");
        machines.iter().map(row).collect()
    };
    let all = ["A10", "L4", "T4", "L40S"];
    let whole = format!("{HEADER}{}{}{}", rows("a", &all), rows("b", &all), rows("c", &all));
    let file = bench.write("newcloud.csv", &whole);
    bench.update(&file, &[]);
    let kept = bench.prices("newcloud");
    for (catalog, said) in [
        // 24 offers, one on demand and one on spot for each machine.
        (rows("a", &all), "has 8 offers instead of 24, and none for 0 of the 8 kinds of machines"),
        (format!("{}{}", rows("a", &["T4"]), rows("b", &["A16", "A2", "A30"])), "has 8 offers instead of 24"),
        (
            format!(
                "{}{}",
                rows("a", &["T4", "A30", "A40"]),
                rows("b", &["A2", "A16", "M60", "K80", "P4", "P40", "T4"])
            ),
            "has 20 offers instead of 24, and none for 6 of the 8 kinds",
        ),
    ] {
        bench.write("newcloud.csv", format!("{HEADER}{catalog}"));
        let refused = bench.refused(&file, &[]);
        assert!(refused.contains(said) && refused.contains("newcloud.csv"), "{refused}");
        assert!(refused.contains("--accept-loss"), "{refused}");
        assert_eq!(bench.prices("newcloud"), kept, "{said}");
    }
    // Fewer offers, other names and other prices do not count as a loss of most.
    bench.write("newcloud.csv", format!("{HEADER}{}{}", rows("x", &all), rows("y", &all)));
    bench.run(&["prices", "update", "--from", file.as_str()]);
    assert!(bench.prices("newcloud").contains("m_y_L4"));
    // Shipped prices are treated the same; --force is for files written by hand.
    let lambda = bench.write("lambda.csv", catalog(0.8));
    assert!(bench.refused(&lambda, &["--force"]).contains("has 2 offers instead of 22"));
    bench.update(&lambda, &[]);
    assert!(bench.prices("lambda").contains("gpu_1x_a10"));
}

#[test]
fn dates_in_the_future_are_refused() {
    let bench = Bench::new();
    let file = bench.write("lambda.csv", catalog(0.8));
    let said = bench.refused(&file, &["--as-of", "2027-01-01", "--accept-loss"]);
    assert!(said.contains("--as-of 2027-01-01 is in the future; today is 2026-11-21"), "{said}");
    let offer = |day: &str| {
        format!(
            "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\ngpu_count = 1\n\
             on_demand_usd_per_hour = 1.0\nscope = \"instance_total\"\nas_of = \"{day}\"\nsource = \"s\"\n"
        )
    };
    let own = bench.write("lab.toml", offer("2062-11-21"));
    let said = bench.refused(&own, &[]);
    assert!(
        said.contains("lab.toml") && said.contains("offer 1 (m in r): as_of 2062-11-21 is in the future"),
        "{said}"
    );
    let later = Answer::ok(&catalog(0.8)).with("Last-Modified", "Fri, 18 Nov 2044 10:00:00 GMT");
    let server = Server::new(vec![("/lambda.csv", later)]);
    let said = bench.refused(&server.url("/lambda.csv"), &["--accept-loss"]);
    assert!(said.contains("2044-11-18") && said.contains("is in the future") && said.contains("--as-of"), "{said}");
    assert_eq!((bench.prices("lambda"), bench.prices("lab")), (String::new(), String::new()));
    bench.update(&server.url("/lambda.csv"), &["--as-of", "2026-11-20"]);
    // In other time zones it is already tomorrow.
    bench.write("lab.toml", offer("2026-11-22"));
    bench.update(&own, &[]);
}

/// A server that never falls silent but never ends, either.
#[test]
fn a_server_that_drips_is_given_up() {
    let bench = Bench::new();
    let long = format!("{}{}", catalog(0.8), "#".repeat(40_000));
    let drips = Answer::ok(&long).with("ETag", "\"one\"").slowly(Duration::from_millis(20));
    let server = Server::new(vec![("/lambda.csv", drips.clone()), ("/endless.csv", drips.without_length())]);
    for path in ["/lambda.csv", "/endless.csv"] {
        let said = bench.refused(&server.url(path), &["--timeout", "5", "--max-time", "0.5", "--accept-loss"]);
        assert!(said.contains("interrupted after") && said.contains("took more than 0.5 s (--max-time)"), "{said}");
    }
    assert_eq!(bench.prices("lambda"), "");
}

/// One line gives error, place and remedy, for any number of providers.
#[test]
fn without_a_network_there_is_one_error() {
    let bench = Bench::new();
    // A port without a listener.
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    for (address, why) in [
        (format!("http://127.0.0.1:{port}/{{provider}}/vms.csv"), "the server cannot be reached"),
        ("http://no-such-host.invalid/{provider}/vms.csv".to_owned(), "unknown host, or no network"),
    ] {
        let said = bench.refused(&address, &[]);
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        let first = address.replace("{provider}", "acecloud");
        assert!(said.starts_with(&format!("error: {first}: {why}")), "{said}");
        assert!(said.contains("prices are unchanged") && said.contains("--from FILE"), "{said}");
    }
    assert!(!bench.path("config/pricing/lambda.toml").exists());
}

#[test]
fn a_silent_server_is_given_up() {
    let bench = Bench::new();
    let server = Server::new(vec![
        ("/lambda.csv", Answer::ok(&catalog(0.8)).silent_after(60, Duration::from_secs(20))),
        ("/never.csv", Answer::ok("").silent_after(0, Duration::from_secs(20))),
    ]);
    let began = Instant::now();
    let said = bench.refused(&server.url("/lambda.csv"), &["--timeout", "0.5"]);
    assert!(said.contains("interrupted after 60 of") && said.contains("nothing arrived for 0.5 s"), "{said}");
    assert!(bench.refused(&server.url("/never.csv"), &["--timeout", "0.5s"]).contains("nothing arrived for 0.5 s"));
    assert!(began.elapsed() < Duration::from_secs(10));
    // Slow is not silent.
    let slow = Server::new(vec![("/lambda.csv", Answer::ok(&catalog(0.8)).slowly(Duration::from_millis(100)))]);
    bench.update(&slow.url("/lambda.csv"), &["--timeout", "2"]);
}

#[test]
fn a_download_that_was_cut_off_is_taken_up_again() {
    let bench = Bench::new();
    let old = bench.write("lambda.csv", catalog(0.8));
    bench.update(&old, &[]);
    let before = bench.prices("lambda");
    let new = catalog(1.2);
    let server = Server::new(vec![("/lambda.csv", Answer::ok(&new).with("ETag", "\"one\"").cut_off_once(100))]);
    let said = bench.refused(&server.url("/lambda.csv"), &[]);
    assert!(
        said.contains(&format!("interrupted after 100 of {} bytes", new.len())) && said.contains("resumes there"),
        "{said}"
    );
    assert_eq!((bench.prices("lambda"), bench.parts()), (before, 2));
    bench.update(&server.url("/lambda.csv"), &[]);
    assert!(bench.prices("lambda").contains("on_demand_usd_per_hour = 1.2"));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[1].contains("range: bytes=100-") && requests[1].contains("if-range: \"one\""), "{}", requests[1]);
    assert_eq!(bench.parts(), 0);
}

/// Two concurrent updates: the second downloads for itself and leaves the first one's part alone.
#[test]
fn a_part_that_another_update_writes_is_left_alone() {
    let bench = Bench::new();
    let new = catalog(1.2);
    let server = Server::new(vec![("/lambda.csv", Answer::ok(&new).with("ETag", "\"one\"").cut_off_once(100))]);
    bench.refused(&server.url("/lambda.csv"), &[]);
    let part = bench.part();
    let before = std::fs::read(&part).unwrap();
    let other = std::fs::OpenOptions::new().append(true).open(&part).unwrap();
    other.lock().unwrap();
    bench.update(&server.url("/lambda.csv"), &[]);
    assert!(bench.prices("lambda").contains("on_demand_usd_per_hour = 1.2"));
    assert_eq!((bench.parts(), std::fs::read(&part).unwrap()), (2, before));
}

#[test]
fn a_part_of_other_content_is_not_continued() {
    let bench = Bench::new();
    let cut = |tag: &str, text: &str| {
        Server::new(vec![("/lambda.csv", Answer::ok(text).with("ETag", tag).cut_off_once(100))])
    };
    let server = cut("\"one\"", &catalog(1.2));
    bench.refused(&server.url("/lambda.csv"), &[]);
    // The server has another file now, and sends all of it.
    server.replace("/lambda.csv", Answer::ok(&catalog(1.3)).with("ETag", "\"two\""));
    bench.update(&server.url("/lambda.csv"), &[]);
    assert!(bench.prices("lambda").contains("on_demand_usd_per_hour = 1.3"));
    // Without a tag the part cannot be validated, so it is not kept.
    let server = Server::new(vec![("/verda.csv", Answer::ok(&catalog(1.2)).cut_off_once(100))]);
    assert!(bench.refused(&server.url("/verda.csv"), &[]).contains("the next run starts over"));
    assert_eq!(bench.parts(), 0);
}

#[test]
fn passwords_in_addresses_are_not_shown() {
    let bench = Bench::new();
    let server = Server::new(vec![("/lambda.csv", Answer::ok(&catalog(0.8))), ("/x.csv", Answer::status(404))]);
    let with_password = |path: &str| server.url(path).replace("http://", "http://me:secret@");
    bench.update(&with_password("/lambda.csv"), &[]);
    assert!(!bench.prices("lambda").contains("secret"));
    assert!(!bench.refused(&with_password("/x.csv"), &[]).contains("secret"));
}
