//! Output of `habitat-tui collect`.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;

pub const HEADINGS: &str =
    "number,op,pass,dtype,config,status,device,latency_us,low_us,high_us,regions,calls,sets,l2,queued,note";

pub fn head(name: &str, sms: u32, memory: u64) -> String {
    format!(
        r#"# habitat-operator-measurements 1 {{"compute_capability": "7.5", "device": "cuda", "memory_bytes": {memory}, "name": "{name}", "seed": 0, "sm_count": {sms}, "tiny": false, "torch": "2.11.0"}}"#
    )
}

/// Linear layers of a T4 that sustains only 2 TFLOP/s, with queued calls: 2 µs and the arithmetic.
pub fn collected(rows: usize) -> String {
    let mut table = format!("{}\n{HEADINGS}\n", head("Tesla T4", 40, 15_828_320_256));
    for number in 0..rows {
        let size = |step: usize| 256 + 32 * (number * step % 121);
        let (b, k, n) = (size(7), size(11), size(17));
        let micros = 2.0 + 2.0 * (b * k * n) as f64 / 2e6;
        writeln!(table, "{number},linear,fwd,fp32,b={b};k={k};n={n},ok,cuda,{micros},1,1,9,30,4,rotated,1,").unwrap();
    }
    table + "9999,lstm,fwd,fp32,b=1;input=8;hidden=8;seq=4,out_of_memory,cuda,,,,,,4,,,\n"
}
