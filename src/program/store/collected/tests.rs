use super::*;
use crate::store::bundled;
use habitat_prediction::decoded::Decoded;
use habitat_prediction::efficiency::demands;
use habitat_prediction::features::OperatorModel::{
    self, BatchedProduct, Convolution, Normalisation, Product, Softmax, Stream,
};
use habitat_step::op::{Primitive, parts, work};
use habitat_step::profile::Operation;

const COLUMNS: &str =
    "number,op,pass,dtype,config,status,device,latency_us,low_us,high_us,regions,calls,sets,l2,queued,note";
const T4: &str = r#"# habitat-operator-measurements 1 {"device": "cuda", "name": "Tesla T4", "compute_capability": "7.5", "sm_count": 40, "memory_bytes": 15828320256, "seed": 0, "tiny": false, "torch": "2.11.0"}"#;

fn written(head: &str, lines: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operators.csv");
    std::fs::write(&path, format!("{head}\n{COLUMNS}\n{}\n", lines.join("\n"))).unwrap();
    (folder, path)
}

fn catalog() -> Catalog {
    Catalog::new(bundled::gpus())
}

fn message(head: &str, lines: &[&str]) -> String {
    let (_folder, path) = written(head, lines);
    let text = read(&path, &catalog()).unwrap_err().to_string();
    text.split_once("operators.csv: ").unwrap().1.to_owned()
}

fn line(op: &str, pass: &str, dtype: &str, config: &str) -> String {
    format!("7,{op},{pass},{dtype},{config},ok,cuda,120.5,119,123,9,30,4,rotated,1,")
}

#[test]
fn every_operator_is_what_it_was() {
    let lines = [
        line("linear", "fwd", "tf32", "b=64;k=1024;n=4096"),
        line("linear", "dgrad", "fp32", "b=64;k=1024;n=4096"),
        line("linear", "wgrad", "fp32", "b=64;k=1024;n=4096"),
        line("bmm", "fwd", "bf16", "b=16;m=128;k=64;n=256"),
        line("conv2d", "fwd", "fp16", "b=2;cin=3;h=224;cout=64;kernel=7;stride=2;pad=3"),
        line("conv2d", "dgrad", "fp32", "b=2;cin=64;h=56;cout=128;kernel=3;stride=1;pad=1"),
        line("conv2d", "wgrad", "fp32", "b=2;cin=64;h=56;cout=128;kernel=3;stride=1;pad=1"),
        line("softmax", "bwd", "fp32", "rows=128;cols=512"),
        line("layer_norm", "fwd", "fp32", "rows=128;cols=512"),
        line("batch_norm", "bwd", "fp32", "n=8;c=64;h=56"),
        line("group_norm", "fwd", "fp32", "n=8;c=64;h=56;groups=8"),
        line("elementwise", "fwd", "fp32", "fn=add;n=4096"),
        line("elementwise", "bwd", "fp32", "fn=gelu;n=4096"),
        line("sdpa", "fwd", "bf16", "b=1;heads=8;sq=128;skv=128;d=64;causal=0"),
        "8,lstm,fwd,fp32,b=1;input=8;hidden=8;seq=4,out_of_memory,cuda,,,,,,4,,,".to_owned(),
        "9,linear,fwd,fp32,b=1;k=8;n=8,ok,cuda,3.5,3,4,9,30,4,rotated,0,".to_owned(),
    ];
    let (_folder, path) = written(T4, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(is_one(&path).unwrap());
    let found = read(&path, &catalog()).unwrap();
    assert_eq!((found.gpu.as_str(), found.rows.len()), ("t4", 13));
    let over: Vec<(&str, usize)> = found.passed_over.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    assert_eq!(
        over,
        [("bound by kernel launches of the host", 1), ("no model for sdpa fwd", 1), ("not timed: out of memory", 1)]
    );
    // Each row is one primitive of one model.
    let models: Vec<OperatorModel> = found
        .rows
        .iter()
        .map(|(_, row)| match &parts(&row.operation, row.precision)[..] {
            [part] if part.times == 1.0 => OperatorModel::of(&part.primitive).unwrap(),
            other => panic!("{}: {other:?}", row.operation.name),
        })
        .collect();
    assert_eq!(models[..7], [Product, Product, Product, BatchedProduct, Convolution, Convolution, Convolution]);
    assert_eq!(models[7..], [Softmax, Normalisation, Stream, Stream, Stream, Stream]);
    let (first, sizes) = (&found.rows[0].1, |row: usize| parts(&found.rows[row].1.operation, None)[0].primitive);
    assert_eq!((first.precision, first.time.get(), first.queued), (Some(Precision::Tf32), 120.5, true));
    // Products (b, n)·(n, k) and (n, b)·(b, k).
    let product = |rows, columns, reduction| Primitive::Product { batch: 1.0, rows, columns, reduction };
    assert_eq!((sizes(1), sizes(2)), (product(64.0, 1024.0, 4096.0), product(4096.0, 1024.0, 64.0)));
    assert_eq!(found.rows[4].1.operation.outputs, [[2, 64, 112, 112]]);
    assert_eq!(sizes(5).flops(), sizes(6).flops());
}

/// Operators without a model still have the names and sizes of those in traces.
#[test]
fn others_are_what_they_were() {
    let lines = [
        line("conv2d", "fwd", "bf16", "b=2;cin=64;h=56;cout=64;kernel=3;stride=2;pad=1;groups=64;layout=nhwc"),
        line("batch_norm", "bwd", "bf16", "n=8;c=64;h=56;layout=nhwc"),
        line("sdpa", "fwd", "bf16", "b=1;heads=8;sq=128;skv=256;d=64;causal=1;kernel=cudnn"),
        line("sdpa", "bwd", "fp32", "b=1;heads=8;sq=128;skv=256;d=64;causal=0;kernel=efficient"),
        line("lstm", "bwd", "fp16", "b=4;input=32;hidden=64;seq=16"),
        line("log_softmax", "bwd", "fp32", "rows=128;cols=50257"),
        line("nll_loss", "fwd", "fp32", "rows=128;cols=50257"),
        line("embedding", "bwd", "fp32", "rows=50257;cols=1024;tokens=4096"),
        line("optimizer", "step", "fp32", "fn=adamw;impl=fused;tensors=16;n=4096"),
        // Rows that consist of several operators.
        line("sdpa", "fwd", "bf16", "b=1;heads=8;sq=128;skv=128;d=64;causal=0;kernel=math"),
        line("optimizer", "step", "fp32", "fn=adamw;impl=foreach;tensors=16;n=4096"),
    ];
    let (_folder, path) = written(T4, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    let found = read(&path, &catalog()).unwrap();
    assert!(found.rows.is_empty());
    assert_eq!(found.passed_over.values().sum::<usize>(), lines.len());
    let operations: Vec<&Operation> = found.others.iter().map(|row| &row.operation).collect();
    let names: Vec<&str> = operations.iter().map(|operation| operation.name.strip_prefix("aten::").unwrap()).collect();
    assert_eq!(
        names,
        [
            "conv2d",
            "native_batch_norm_backward",
            "_scaled_dot_product_cudnn_attention",
            "_scaled_dot_product_efficient_attention_backward",
            "_cudnn_rnn_backward",
            "_log_softmax_backward_data",
            "nll_loss_forward",
            "embedding_dense_backward",
            "_fused_adamw_",
        ]
    );
    let flops = work(operations[0], None).unwrap().flops.get();
    assert!((flops / (2.0 * 2.0 * 28.0 * 28.0 * 64.0 * 9.0) - 1.0).abs() < 0.01, "{flops}");
    for operation in &operations {
        assert!(!demands(&Decoded::new(0, operation, None), None).is_empty(), "{}", operation.name);
    }
    assert_eq!(operations[0].attributes["memory_format"], operations[1].attributes["memory_format"]);
    assert_eq!(operations[8].inputs.len(), 4 * 16);
    assert_eq!(operations[1].phase, Phase::Backward);
}

#[test]
fn what_is_wrong_is_named_by_line_with_a_remedy() {
    let good = line("linear", "fwd", "fp32", "b=64;k=1024;n=4096");
    let cpu = T4.replace("\"cuda\"", "\"cpu\"");
    assert!(message(&cpu, &[&good]).starts_with("line 1: measured on \"cpu\": such rows only test the program"));
    assert!(message(&T4.replace("false", "true"), &[&good]).starts_with("line 1: made with --tiny"));
    assert!(message(&T4.replace("ments 1", "ments 2"), &[&good]).ends_with("2: this program reads version 1"));
    assert!(message("gpu,op", &[&good]).contains("is not a collection of `habitat-tui collect`"));
    assert!(
        message(&T4.replace("Tesla T4", "GeForce 256"), &[&good])
            .contains("no entry for \"GeForce 256\" (40 SMs); add one")
    );
    let changed = |from: &str, to: &str| message(T4, &[&good, &good.replace(from, to)]);
    for time in ["-1", "nan", "inf", "0", ""] {
        let text = changed("120.5", time);
        assert!(
            text.starts_with(&format!("line 4: latency_us: {time:?}")) && text.contains("delete the line"),
            "{text}"
        );
    }
    assert!(changed(",cuda,", ",cpu,").starts_with("line 4: device: \"cpu\"; delete rows"));
    assert!(changed("fp32", "fp4").starts_with("line 4: dtype: \"fp4\" is not fp32"));
    assert!(changed("k=1024;", "").starts_with("line 4: config: k is missing in"));
    assert!(changed("k=1024", "k=-3").starts_with("line 4: config: k=-3: expected a whole number"));
    assert!(changed("rotated,1,", "rot").starts_with("line 4: 14 cells instead of 16: truncated?"));
    let torn = line("conv2d", "fwd", "fp32", "b=1;cin=3;h=2;cout=8;kernel=7;stride=1;pad=0");
    assert!(message(T4, &[&torn]).contains("impossible convolution"));
}

#[test]
fn a_table_of_record_gpu_is_read_with_the_device_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ops.csv");
    let head = "row,op,pass,dtype,source,config,status,flops,bytes,latency_us,iqr_us,first_call_like_us,host_us,k,repeats,queued,sets,set_bytes,l2,backend,sm_mhz,mem_mhz,power_w,temp_c,throttle,note";
    let row = "1,linear,fwd,bf16,model,b=4096;k=1024;n=1024;bias=1,ok,8.6e9,1e7,21.5,0.2,30,8,90,9,1,8,1e7,rotated,,1980,2619,400,40,0,";
    let nhwc = "2,conv2d,fwd,bf16,random,b=8;cin=64;h=56;cout=64;kernel=3;stride=1;groups=1;layout=nhwc;pad=1;transposed=0,ok,1,1,9.5,0.2,30,8,90,9,1,8,1e7,rotated,,,,,,,";
    std::fs::write(&path, format!("{head}\n{row}\n{nhwc}\n{}\n", nhwc.replace("nhwc", "nchw"))).unwrap();
    assert!(is_one(&path).unwrap());
    assert!(read(&path, &catalog()).unwrap_err().to_string().contains("device.json: no such file"));
    let device = r#"{"properties": {"name": "NVIDIA H100 80GB HBM3", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 84929347584, "warp_size": 32}}"#;
    std::fs::write(folder.path().join("device.json"), device).unwrap();
    let found = read(&path, &catalog()).unwrap();
    assert_eq!((found.gpu.as_str(), found.rows.len()), ("h100-sxm5-80gb", 2));
    assert_eq!(found.rows[0].1.operation.dtype, Some(DType::Bfloat16));
    assert_eq!(found.passed_over.keys().next().unwrap(), "no model for conv2d fwd");
}
