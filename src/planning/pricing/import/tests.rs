use jiff::civil::date;

use super::*;
use crate::pricing::Tier;

const DAY: Date = date(2026, 11, 20);

fn origin(provider: &str) -> Origin<'_> {
    Origin { provider: Some(provider), source: "s", as_of: Some(DAY), dated_by: Some("dated by hand") }
}

fn one(provider: &str, text: &str) -> Imported {
    let mut all = read(text.as_bytes(), origin(provider)).unwrap();
    assert_eq!(all.len(), 1);
    let imported = all.remove(0);
    // The output can be parsed again.
    let written = toml::to_string(&imported.snapshot).unwrap();
    assert_eq!(Snapshot::parse(&written).unwrap(), imported.snapshot, "{written}");
    imported
}

fn wrong(provider: &str, text: &str) -> String {
    read(text.as_bytes(), origin(provider)).unwrap_err().to_string()
}

/// Machine, GPUs, slug, on-demand and spot price.
type Brief<'a> = (&'a str, u32, &'a str, Option<f64>, Option<f64>);

fn brief(imported: &Imported) -> Vec<Brief<'_>> {
    fn one(row: &Row) -> Brief<'_> {
        let slug = row.gpu.as_ref().map_or("", |gpu| gpu.as_str());
        let [on_demand, spot] = [row.on_demand, row.spot].map(|price| price.map(UsdPerHour::get));
        (&row.instance_type, row.gpu_count, slug, on_demand, spot)
    }
    imported.snapshot.offers.iter().map(one).collect()
}

#[test]
fn zones_of_amazon_become_a_region_with_the_lowest_spot_price() {
    let text = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch\n\
        mac.metal,,,12,32,,,,r1,z1,arm64\n\
        p3.x,V100,1.0,8.0,61.0,\"{'Gpus': [{'Name': 'V100', 'MemoryInfo': {'SizeInMiB': 16384}}]}\",3.06,3.06,r1,z1,x86_64\n\
        p3.x,V100,1.0,8.0,61.0,\"{'Gpus': [{'Name': 'V100', 'MemoryInfo': {'SizeInMiB': 16384}}]}\",3.06,1.2,r1,z2,x86_64\n\
        p3.x,V100,1.0,8.0,61.0,\"{'Gpus': [{'Name': 'V100', 'MemoryInfo': {'SizeInMiB': 16384}}]}\",3.06,,r1,z3,x86_64\n\
        p3.x,V100,1.0,8.0,61.0,\"{'Gpus': [{'Name': 'V100', 'MemoryInfo': {'SizeInMiB': 16384}}]}\",4.0,4.0,r2,z4,x86_64\n";
    let imported = one("aws", text);
    assert_eq!(
        brief(&imported),
        [("p3.x", 1, "v100-sxm2-16gb", Some(3.06), Some(1.2)), ("p3.x", 1, "v100-sxm2-16gb", Some(4.0), None)]
    );
    assert_eq!(imported.counts.without_gpu, 1);
    let row = &imported.snapshot.offers[0];
    assert_eq!(
        (row.as_of, row.note.as_deref(), row.gpu_memory_gib),
        (Some(DAY), Some("date: dated by hand"), Some(16.0))
    );
    assert_eq!((row.vcpus, row.host_memory_gib, row.source.as_str()), (Some(8.0), Some(61.0), "s"));
}

#[test]
fn rows_of_azure_may_have_a_field_more_and_parts_of_gpus_are_counted() {
    let text = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Generation\n\
        Standard_NC6s_v3,V100,1,6,112,V100,3.06,0.5,eastus,V1,V2\n\
        Standard_NV6ads_A10_v5,A10,0.167,6,55,A10,0.45,0.1,eastus,V2\n\
        Standard_ND96is_MI300X_v5,,,96,1850,,48,48,eastus,V2\n\
        Standard_NV4as_v4,MI25,1,4,14,MI25,0.9,,eastus,V2\n";
    let imported = one("azure", text);
    assert_eq!(
        brief(&imported),
        [
            ("Standard_NC6s_v3", 1, "v100-pcie-16gb", Some(3.06), Some(0.5)),
            ("Standard_ND96is_MI300X_v5", 8, "mi300x", Some(48.0), None),
            ("Standard_NV4as_v4", 1, "", Some(0.9), None),
        ]
    );
    assert_eq!((imported.counts.part_of_gpu, imported.counts.without_gpu), (1, 0));
    assert_eq!(imported.counts.unknown, BTreeMap::from([("MI25".to_owned(), 1)]));
}

#[test]
fn a_machine_of_google_is_the_sum_of_gpus_and_host_in_one_zone() {
    let header = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n";
    let gib = "\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 16384}}]}\"";
    let text = format!(
        "{header}n1-highmem-4,4.0,26.0,,,,r,r-a,0.25,0.08\nn1-highmem-4,4.0,26.0,,,,r,r-b,0.25,0.06\n\
         n1-standard-4,4.0,15.0,,,,r,r-b,0.19,0.05\n\
         ,,,T4,1.0,{gib},r,r-a,0.35,0.16\n,,,T4,1.0,{gib},r,r-b,0.35,0.17\n,,,T4,2.0,{gib},r,r-b,0.7,0.34\n"
    );
    let imported = one("gcp", &text);
    assert_eq!(
        brief(&imported),
        [("n1-highmem-4+T4x1", 1, "t4", Some(0.6), Some(0.23)), ("(gpu only) T4x2", 2, "t4", Some(0.7), Some(0.34))]
    );
    let scopes: Vec<_> = imported.snapshot.offers.iter().map(|row| row.scope).collect();
    assert_eq!(scopes, [Scope::Composed, Scope::GpuOnly]);
    assert_eq!((imported.counts.without_gpu, imported.snapshot.complete), (1, false));
}

#[test]
fn discounted_figures_of_google_are_suspect() {
    let header = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n";
    let text = format!(
        "{header},,,A100-80GB,1.0,,r,r-a,1.8,1.9\n,,,H100,1.0,,r,r-a,4.2,4.0\n,,,H100,1.0,,s,s-a,9.8,3.0\n\
         ,,,B200,8.0,,r,r-a,90.216,34.2\n,,,B200,8.0,,s,s-a,64.44,32.6\n,,,L4,1.0,,r,r-a,0.56,0.2\n,,,L4,1.0,,s,s-a,0.5,0.2\n"
    );
    let suspect: Vec<_> = one("gcp", &text).snapshot.offers.iter().map(|row| row.suspect.is_some()).collect();
    assert_eq!(suspect, [true, true, false, true, true, false, false]);
}

#[test]
fn marketplaces_are_marked_and_their_sizes_are_of_all_gpus() {
    let text = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region\r\n\
        2x-A100_PCIE-32-65536,A100,2,32,64.0,\"{'Gpus': [{'Name': 'A100', 'Count': 2, 'MemoryInfo': {'SizeInMiB': 81920}}]}\",1.5,0.00,\", CA, NA\"\r\n\
        2x-A100_PCIE-32-65536,A100,2,32,64.0,\"{'Gpus': [{'Name': 'A100', 'Count': 2, 'MemoryInfo': {'SizeInMiB': 81920}}]}\",1.4,0.00,\", CA, NA\"\r\n";
    let imported = one("vast", text);
    assert_eq!(brief(&imported), [("2x-A100_PCIE-32-65536", 2, "a100-pcie-40gb", Some(1.4), None)]);
    assert_eq!(imported.snapshot.offers[0].market, Market::PeerToPeer);
    let runpod = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice\n\
        1x_RTXA6000_COMMUNITY,4.0,48.0,RTXA6000,1.0,RTX_A6000,US,0.69,0.34\n\
        1x_RTXA6000_SECURE,4.0,48.0,RTXA6000,1.0,RTX_A6000,US,0.79,0.79\n\
        1x_A100-80GB_SECURE,8.0,117.0,A100-80GB,1.0,\"{'Gpus': [{'Name': 'A100 PCIe', 'MemoryInfo': {'SizeInMiB': 80}}]}\",US,1.39,1.39\n";
    let imported = one("runpod", runpod);
    let markets: Vec<_> = imported.snapshot.offers.iter().map(|row| (row.market, row.host_memory_gib)).collect();
    assert_eq!(markets, [(Market::PeerToPeer, None), (Market::Provider, None), (Market::Provider, Some(117.0))]);
    assert_eq!(imported.snapshot.offers[1].spot, None);
    assert_eq!(imported.snapshot.offers[2].gpu.as_ref().unwrap().as_str(), "a100-pcie-80gb");
}

#[test]
fn columns_may_stand_in_any_order_and_only_a_spot_price_be_given() {
    let text = "InstanceType,UpstreamCloudId,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,Price,SpotPrice\r\n\
        2B200.60V,2B200.60V,60.0,368.0,B200,2.0,\"{\"\"Gpus\"\": [{\"\"Name\"\": \"\"B200\"\", \"\"MemoryInfo\"\": {\"\"SizeInMiB\"\": 184320}}]}\",FIN-03,,3.423\r\n\
        1B200.30V,1B200.30V,30.0,184.0,B200,1.0,,FIN-03,,\r\n\
        CPU.4V,CPU.4V,4,16,,0,,FIN-03,0.1,\r\n";
    let imported = one("verda", text);
    assert_eq!(brief(&imported), [("2B200.60V", 2, "b200", None, Some(3.423))]);
    assert_eq!((imported.counts.without_price, imported.counts.without_gpu), (1, 1));
}

#[test]
fn rows_of_gpuhunt_are_brought_together_from_csv_and_json() {
    let csv = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size\n\
        g5.xlarge,us-east-1,1.006,4,16.0,1,A10G,24.0,False,\ng5.xlarge,us-east-1,0.5,4,16.0,1,A10G,24.0,True,\nm5.large,us-east-1,0.1,2,8.0,0,,,False,\n";
    let imported = one("aws", csv);
    assert_eq!(brief(&imported), [("g5.xlarge", 1, "a10g", Some(1.006), Some(0.5))]);
    assert_eq!(imported.counts.without_gpu, 1);
    let json = r#"{"provider": "aws", "instance_name": "g5.xlarge", "location": "r", "price": 1.0, "gpu_count": 1, "gpu_name": "A10G", "gpu_memory": 24, "spot": false}
        {"provider": "lambda", "instance_name": "gpu_1x_gh200", "location": "r", "price": 1.5, "gpu_count": 1, "gpu_name": "GH200", "gpu_memory": 96, "spot": false}"#;
    let all = read(json.as_bytes(), Origin { provider: None, ..origin("x") }).unwrap();
    let providers: Vec<_> = all.iter().map(|one| (one.snapshot.provider.as_str(), one.snapshot.offers.len())).collect();
    assert_eq!(providers, [("aws", 1), ("lambda", 1)]);
    assert_eq!(read(json.as_bytes(), origin("lambda")).unwrap().len(), 1);
    assert!(wrong("aws", &format!("{json}\n{{\"price\"")).starts_with("line 3: not JSON"));
    assert!(
        wrong("aws", r#"{"instance_name": "a", "location": "b", "price": "x"}"#)
            .contains("price: \"x\" is not a number")
    );
}

#[test]
fn price_files_are_taken_as_they_are_but_for_a_missing_date() {
    let file = "schema = 1\nprovider = \"lab\"\n[[offer]]\nregion = \"r\"\ninstance_type = \"m\"\ngpu_count = 1\n\
        on_demand_usd_per_hour = 3.0\nscope = \"instance_total\"\nsource = \"contract\"\n";
    let imported = read(file.as_bytes(), Origin { provider: None, ..origin("x") }).unwrap().remove(0);
    let row = &imported.snapshot.offers[0];
    assert_eq!(
        (row.as_of, row.source.as_str(), row.note.as_deref()),
        (Some(DAY), "contract", Some("date: dated by hand"))
    );
    assert!(wrong("aws", file).contains("is \"lab\", not \"aws\""));
    assert!(wrong("lab", &file.replace("\"lab\"", "\"../lab\"")).contains("../lab"));
}

#[test]
fn what_is_wrong_is_said_with_line_column_and_value() {
    let header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n";
    let good = "m,L4,1,4,16,0.8,r,,\n";
    let row = |row: &str| wrong("lab", &format!("{header}{good}{row}"));
    for (line, said) in [
        ("m,L4,1,4,16,-1,r,,\n", "line 3, column Price: \"-1\": -1 is not a valid price"),
        ("m,L4,1,4,16,NaN,r,,\n", "line 3, column Price: \"NaN\""),
        ("m,L4,1,4,16,inf,r,,\n", "line 3, column Price: \"inf\""),
        ("m,L4,1,4,16,free,r,,\n", "line 3, column Price: \"free\": not a number"),
        ("m,L4,1,4,16,1,r,,1e99\n", "line 3, column SpotPrice: \"1e99\""),
        ("m,L4,-2,4,16,1,r,,\n", "line 3, column AcceleratorCount: \"-2\": use a number from 0 to"),
        ("m,L4,1,4\n", "line 3: has 4 of 9 columns; the file is truncated"),
        ("m,L4,1,4,16,\u{1b}[2J,r,,\n", "\"\u{fffd}[2J\": not a number"),
    ] {
        assert!(row(line).contains(said) && !row(line).contains('\u{1b}'), "{}", row(line));
        // Lines that end like those of SkyPilot's catalogs.
        let text = format!("{header}{good}{line}").replace('\n', "\r\n");
        assert!(wrong("lab", &text).contains(said), "{}", wrong("lab", &text));
    }
    let broken = format!("{header}m,L4,1,4,16,0.8,\"r\n\ns\",,\n\n\n{good}m,L4,1,4\n");
    for text in [broken.replace('\n', "\r\n"), broken] {
        assert!(wrong("lab", &text).starts_with("line 8: has 4 of 9 columns"), "{}", wrong("lab", &text));
    }
    assert!(
        wrong("lab", "<!DOCTYPE html>\n<html>").contains("a web page, not a catalog (line 1: \"<!DOCTYPE html>\")")
    );
    assert!(wrong("lab", "").contains("the file is empty"));
    assert!(wrong("lab", good).contains("not the header of a catalog"));
    let none = read(header.as_bytes(), origin("lab")).unwrap().remove(0);
    assert!(none.check().unwrap_err().to_string().contains("no offer of a whole GPU"));
    let said = read(b"a\n\xff\xfe\x00", origin("lab")).unwrap_err().to_string();
    assert!(said.starts_with("line 2: not UTF-8 text"), "{said}");
    for name in ["../x", "a/b", "", "-x", "A", "\u{202e}"] {
        assert!(wrong(name, &format!("{header}{good}")).contains("invalid name"), "{name}");
    }
    let none = read(format!("{header}{good}").as_bytes(), Origin { provider: None, ..origin("x") });
    assert!(none.unwrap_err().to_string().contains("--provider NAME"));
}

#[test]
fn texts_of_strangers_are_made_fit_to_show() {
    let text = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice\n\
        m\u{1b}[31m,L4\u{202e},1,4,16,0.8,r\u{7},,\n";
    let imported = one("lab", text);
    let row = &imported.snapshot.offers[0];
    assert_eq!((row.instance_type.as_str(), row.region.as_str()), ("m\u{fffd}[31m", "r\u{fffd}"));
    assert_eq!(row.gpu_name.as_deref(), Some("L4\u{fffd}"));
}

#[test]
fn changes_are_sorted_by_size() {
    let offer =
        |name: &str, price: f64| (OfferId::new("p", "r", name, Tier::OnDemand), UsdPerHour::new(price).unwrap());
    let before = [offer("a", 1.0), offer("b", 2.0), offer("c", 3.00001), offer("d", 4.0)];
    let after = [offer("a", 1.5), offer("b", 4.0), offer("c", 3.0), offer("e", 9.0)];
    let changes = Changes::between(&before, &after);
    let names = |list: &[Change]| list.iter().map(|change| change.id.as_str().to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&changes.dearer), ["p/r/b/on-demand", "p/r/a/on-demand"]);
    assert_eq!(
        (names(&changes.new), names(&changes.gone)),
        (vec!["p/r/e/on-demand".to_owned()], vec!["p/r/d/on-demand".to_owned()])
    );
    assert_eq!((changes.same, changes.cheaper.len(), changes.dearer[0].size()), (1, 0, 2.0));
}
