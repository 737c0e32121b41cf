//! The first screen and the first lines of print: what bounds the step, which GPU, at what price, how sure.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::sync::Arc;

use crate::common::{keys, launch, text};
use crate::program::Folder;
use habitat_tui::launch::engine;
use habitat_tui::predict::{Options, Predictions, predict};
use habitat_tui::pricing::{Offer, PriceBook};
use habitat_tui::report::answer::{self, Picks};
use habitat_tui::report::plan_toml::Request;
use habitat_tui::tui::{Launch, render};
use habitat_tui::units::{Bytes, GpuSlug};
use unicode_width::UnicodeWidthStr;

fn picture(launch: &Launch, pressed: &str, size: (u16, u16)) -> String {
    text(&render(launch, &keys(pressed), size).1)
}

/// The verdict is the first sentence at every size, and says what to do if there is room.
#[test]
fn the_verdict_comes_first_and_idle_time_is_in_the_breakdown() {
    for size in [(50, 15), (80, 24), (120, 40), (200, 60)] {
        let shown = picture(&launch(), "1", size);
        let at = |words: &str| shown.find(words).unwrap_or_else(|| panic!("{words}: {shown}"));
        assert!(at("GPU-bound: busy 80 %") < at("bert-tiny · training"), "{shown}");
        assert!(at("GPU-bound: busy 80 %") < at("Recommended offer"), "{shown}");
        if size.0 >= 80 {
            assert!(shown.contains("idle 20 %") && shown.contains("bf16 (or TF32) shortens them"), "{shown}");
        }
    }
}

#[test]
fn the_header_of_every_screen_names_what_predictions_assume() {
    for size in [(80, 24), (120, 40)] {
        for screen in ["1", "2", "3", "4"] {
            let header = |pressed: &str| picture(&launch(), pressed, size).lines().next().unwrap().to_owned();
            assert!(header(screen).ends_with("bert-tiny"), "{}", header(screen));
            assert!(header(&format!("3 P {screen}")).contains("as tf32"), "{}", header(&format!("3 P {screen}")));
            let both = header(&format!("3 P W {screen}"));
            assert!(both.contains("as tf32 · no CPU wait"), "{both}");
        }
    }
}

#[test]
fn another_precision_shows_what_it_brings() {
    let before = picture(&launch(), "3", (120, 40));
    assert!(!before.contains("× fp32") && !before.contains("times as fast as in fp32"), "{before}");
    let tf32 = picture(&launch(), "3 P", (120, 40));
    assert!(tf32.contains("× fp32") && tf32.contains("tf32: "), "{tf32}");
    assert!(tf32.contains("times as fast as in fp32"), "{tf32}");
    // With another host as well, in any order of the keys; back in the recorded precision there is nothing to show.
    for pressed in ["3 P W", "3 W P"] {
        assert!(picture(&launch(), pressed, (120, 40)).contains("× fp32"), "{pressed}");
    }
    assert!(!picture(&launch(), "3 P P P P P P", (120, 40)).contains("× fp32"));
    // A V100 has no BF16: its step stays the recorded one, and is not called measured in BF16.
    let bf16 = picture(&launch(), "3 P P P", (120, 40));
    let row = bf16.lines().find(|line| line.starts_with('│') && line.contains("V100")).unwrap();
    assert!(row.contains("unchanged") && !row.contains("measured"), "{bf16}");
}

#[test]
fn batch_sizes_say_whether_a_larger_one_pays() {
    let shown = picture(&launch(), "3 B", (80, 24));
    assert!(
        shown.contains("a larger batch pays off: ") || shown.contains("a larger batch hardly pays off: "),
        "{shown}"
    );
    let folder = Folder::new();
    let on = |gpu: &str| folder.ok(&["batches", "--sample", "bert-large-h100", "--to", gpu]);
    let first: Vec<String> = on("h100-sxm5-80gb").lines().take(3).map(str::to_owned).collect();
    assert!(first[2].starts_with("h100-sxm5-80gb: a larger batch pays off: 1.13 times"), "{first:?}");
    // A step that waits for its data waits longer for more of them.
    let waits = ["batches", "--sample", "resnet50-v100", "--to", "h100-sxm5-80gb"];
    let limited = folder.ok(&waits);
    assert!(limited.contains("Data limits it: batch ") && limited.contains(" while the training process"), "{limited}");
    let alone = folder.ok(&[&waits[..], &["--host", "keeps-up"]].concat());
    assert!(alone.contains("times the samples/s"), "{alone}");
    let small = "l4: the recorded batch of 32 does not fit; the largest that fits is 22";
    assert!(on("l4").contains(small), "{}", on("l4"));
}

/// GPUs that the user names are answered for, fitting or not, in the first lines.
#[test]
fn named_gpus_have_a_line_each() {
    let folder = Folder::new();
    let first = |args: &[&str]| folder.ok(args).lines().take(6).map(str::to_owned).collect::<Vec<_>>().join("\n");
    let one = first(&["predict", "--to", "rtx-4090"]);
    for words in ["GeForce RTX 4090, 487", "/h", "samples/$", "does not fit, micro-batches of 16 do"] {
        assert!(one.contains(words), "{one}");
    }
    let two = first(&["predict", "--to", "rtx-4090,h100-sxm5-80gb"]);
    assert!(two.contains("On: GeForce RTX 4090") && two.contains("On: H100 SXM5 80GB"), "{two}");
    assert!(two.contains("Compared with GeForce RTX 4090: H100 SXM5 80GB 3.74 × as fast"), "{two}");
    // A name of several GPUs is compared as well, whichever order they are named in.
    let several = folder.ok(&["predict", "--to", "h100,4090"]);
    let compared = several.lines().find(|line| line.starts_with("Compared with GeForce RTX 4090: H100 SXM5")).unwrap();
    for words in ["H100 PCIe 80GB 2.20 × as fast", "; H100 96GB HBM2e 500W 2.77 × as fast;"] {
        assert!(compared.contains(words), "{compared}");
    }
    // Work per dollar is that of the machine a user of one GPU can rent, as in a plan, and of GPUs that hold the step.
    let worth = several.lines().find(|line| line.starts_with("Work per dollar (firm prices, ")).unwrap();
    let best = worth.split("): ").nth(1).unwrap();
    assert!(best.starts_with("H100 SXM5 80GB ") && !best.contains("8 at a time"), "{worth}");
    assert!(worth.contains("; GeForce RTX 4090 fits only in micro-batches of 16, "), "{worth}");
    let planned = folder.json(&["plan", "--gpus", "h100,4090", "--epochs", "1", "--dataset", "1M"]);
    let taken = planned["parts"][0]["offer"].as_str().unwrap().to_owned();
    let predicted = folder.ok(&["predict", "--to", "h100,4090"]);
    let of_best = predicted.lines().find(|line| line.starts_with("On: H100 SXM5 80GB")).unwrap();
    assert_eq!(planned["parts"][0]["gpu"], "h100-sxm5-80gb");
    assert!(of_best.contains(taken.split('/').next().unwrap()), "{of_best} {taken}");
    // The best value is that of a plan, which may need micro-batches; the best without them follows. Prices have an age.
    let all = first(&["predict"]);
    let best = all.lines().find(|line| line.starts_with("Best value: RTX A4000, ")).unwrap_or_else(|| panic!("{all}"));
    assert!(best.contains("(micro-batches of 8 · ") && best.contains("; RTX A6000, whole batch: "), "{best}");
    assert!(best.contains("hyperstack $0.150/h, ") && best.contains(" days old"), "{best}");
}

#[test]
fn another_precision_is_compared_with_the_recorded_one() {
    let folder = Folder::new();
    let predict = |more: &[&str]| folder.ok(&[&["predict", "--sample", "resnet50-v100"], more].concat());
    let few = predict(&["--to", "h100-sxm5-80gb,p100-pcie-16gb", "--precision", "amp-fp16"]);
    let words = "In amp-fp16 instead of the recorded fp32: h100-sxm5-80gb 1.05 times as fast; p100-pcie-16gb unchanged";
    assert!(few.contains(words), "{few}");
    assert!(predict(&["--precision", "amp-bf16"]).contains("In amp-bf16 instead of the recorded fp32: "));
    assert!(!predict(&[]).contains("instead of the recorded"));
}

fn predictions() -> Predictions {
    let launch = launch();
    let targets = ["v100-pcie-32gb", "h100-sxm5-80gb", "l4", "rtx-2060"];
    let targets = targets.map(|slug| GpuSlug::new(slug).unwrap()).to_vec();
    let options = Options { targets, ..Options::default() };
    predict(&launch.setup.profile, &launch.setup.catalog, &options).unwrap()
}

/// The offers of the test, changed.
fn picks(change: impl Fn(&mut Offer) -> bool) -> (Picks, Predictions) {
    let mut offers = launch().setup.prices.offers().to_vec();
    offers.retain_mut(|offer| change(Arc::make_mut(offer)));
    let predictions = predictions();
    (Picks::new(&predictions, &PriceBook::new(offers)), predictions)
}

#[test]
fn no_gpu_without_an_offer_is_the_fastest_unless_that_is_said() {
    let (all, known) = picks(|_| true);
    let name = |pick: &answer::Pick| known.predictions[pick.index].gpu.slug.to_string();
    assert_eq!(all.fastest.as_ref().map(name).as_deref(), Some("h100-sxm5-80gb"));
    assert_eq!(all.unoffered, None);
    let (without, _) = picks(|offer| offer.provider != "alpha");
    assert_eq!(without.fastest.as_ref().map(name).as_deref(), Some("v100-pcie-32gb"));
    let said = answer::fastest(&known, &without).unwrap().detail.join("; ");
    assert!(said.contains("H100 SXM5 80GB is faster, 5.0 ms: no offer known"), "{said}");
    let (none, _) = picks(|_| false);
    assert_eq!(none.fastest.as_ref().map(name).as_deref(), Some("h100-sxm5-80gb"));
    let said = answer::fastest(&known, &none).unwrap().detail.join("; ");
    assert!(said.ends_with("no offer known"), "{said}");
    assert_eq!(answer::best_value(&known, &none), None);
    // As fast as one with an offer, as it is shown: neither is faster.
    let mut tied = predictions();
    let v100 = tied.predictions.iter().position(|it| it.gpu.slug.as_str() == "v100-pcie-32gb").unwrap();
    let h100 = tied.predictions.iter().position(|it| it.gpu.slug.as_str() == "h100-sxm5-80gb").unwrap();
    tied.predictions[v100].step = tied.predictions[h100].step.clone();
    let mut offers = launch().setup.prices.offers().to_vec();
    offers.retain(|offer| offer.gpu.as_ref().unwrap().as_str() == "v100-pcie-32gb");
    for order in [[v100, h100], [h100, v100]] {
        tied.predictions.swap(order[0], order[1]);
        let picks = Picks::new(&tied, &PriceBook::new(offers.clone()));
        assert_eq!((picks.fastest.is_some(), picks.unoffered), (true, None));
    }
}

#[test]
fn the_best_value_is_at_a_firm_price_and_a_better_one_in_doubt_is_named() {
    // Without a date a price is not firm.
    let (picks, known) = picks(|offer| {
        if offer.provider == "beta" {
            offer.as_of = None;
            offer.trust.doubts = vec![habitat_tui::pricing::PriceIssue::NoDate];
        }
        true
    });
    let best = answer::best_value(&known, &picks).unwrap();
    assert!(best.answer.starts_with("H100 SXM5 80GB  "), "{best:?}");
    assert!(best.detail.last().unwrap().starts_with("L4: "), "{best:?}");
    assert!(best.detail.last().unwrap().contains("in doubt: no date"), "{best:?}");
}

/// An offer whose GPU holds the step in micro-batches only is recommended with that beside it.
#[test]
fn a_gpu_that_needs_micro_batches_is_named_with_them() {
    let mut launch = launch();
    let mut profile = (*launch.setup.profile).clone();
    profile.step.as_mut().unwrap().peak_memory_bytes = Bytes::new(30e9).ok();
    let of_l4 = launch.setup.prices.offers().iter().filter(|offer| offer.gpu.as_ref().unwrap().as_str() == "l4");
    let prices = Arc::new(PriceBook::new(of_l4.cloned().collect::<Vec<_>>()));
    let options = Options { targets: vec![GpuSlug::new("l4").unwrap()], ..Options::default() };
    launch.engine = engine(&launch.setup.catalog, (options, Vec::new()), Request::default());
    (launch.setup.profile, launch.setup.prices) = (Arc::new(profile), prices);
    // If any global batch is accepted, the recorded one of 16 may stay, and is cheaper than updates of 8.
    for (global_batch, fits) in [
        (None, "l4 beta · eu-1 on-demand · fits only in 2 micro-batches of 8"),
        (Some(8), "l4 beta · eu-1 on-demand · fits only with a batch of 8"),
        (Some(16), "fits only in 2 micro-batches of 8"),
    ] {
        launch.setup.goal.global_batch = global_batch;
        let shown = picture(&launch, "1", (80, 24));
        let is_between = |c: char| c.is_whitespace() || c == '│';
        let words: Vec<&str> = shown.split(is_between).filter(|word| !word.is_empty()).collect();
        assert!(words.join(" ").contains(fits), "{shown}");
    }
    let shown = picture(&launch, "1", (200, 60));
    assert!(shown.contains("the step fits on no GPU (needs 32.0 GB), but micro-batches of up to 8 do"), "{shown}");
}

/// The sentence on prices counts as many prices that are not firm as the table marks, and the table shows the
/// micro-batch that fits.
#[test]
fn the_table_agrees_with_what_is_said_of_it() {
    let folder = Folder::new();
    let printed = folder.ok(&["predict"]);
    let rows: Vec<Vec<&str>> = printed
        .lines()
        .skip_while(|line| !line.starts_with("GPU "))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let marked = rows.iter().filter(|row| row[5].ends_with('?')).count();
    assert!(marked > 0, "{printed}");
    let priced = rows.iter().filter(|row| row[5] != "–").count();
    let said = format!("for {} of {priced} GPUs with an offer; the others are marked ?", priced - marked);
    assert!(printed.contains(&said), "{said}: {printed}");
    let fits = |gpu: &str| rows.iter().find(|row| row[0] == gpu).unwrap()[7];
    assert_eq!([fits("a100-sxm4-80gb"), fits("rtx-a4000"), fits("rtx-3060")], ["yes", "≤ 8", "≤ 4"]);
    assert!(printed.contains("note: fits ≤ N: the batch of 32 does not fit; micro-batches of N do"), "{printed}");
    let found = folder.json(&["predict", "--to", "rtx-a4000"]);
    assert_eq!(found["predictions"][0]["fits_in_memory"], "no");
}

/// Every key of a screen is named in the footer, or counted there.
#[test]
fn footers_are_complete_or_say_how_many_keys_are_left_out() {
    for pressed in ["1", "2", "3", "3 enter", "3 B", "3 F", "4", "2 T", "2 R"] {
        for size in [(50, 15), (80, 24), (120, 40)] {
            let (app, buffer) = render(&launch(), &keys(pressed), size);
            let shown = text(&buffer);
            let lines: Vec<&str> = shown.lines().collect();
            let bottom = lines[lines.len() - 2..].join(" ");
            let words: Vec<&str> = bottom.split_whitespace().collect();
            let hints = app.footer();
            let named = hints.iter().filter(|hint| bottom.contains(&format!("{} {}", hint.key, hint.word))).count();
            let counted = words.windows(2).filter(|pair| pair[1] == "more");
            let left = counted.filter_map(|pair| pair[0].parse::<usize>().ok()).sum::<usize>();
            assert_eq!(named + left, hints.len(), "{pressed} {size:?}: {shown}");
            assert!(size.0 < 120 || left == 0, "{pressed} {size:?}: {shown}");
        }
    }
}

/// A GPU on which the step does not fit is named as one at every width.
#[test]
fn whether_a_step_fits_is_in_every_table() {
    for size in [(80, 24), (120, 40)] {
        for pressed in ["3", "3 P"] {
            let shown = picture(&launch(), pressed, size);
            let row = shown.lines().find(|line| line.contains("RTX 2060")).unwrap_or_else(|| panic!("{shown}"));
            assert!(row.contains("6 GB  no"), "{shown}");
        }
    }
}

/// The answer is in the first five lines, six with modules; the recorded step is in the two after them.
#[test]
fn predict_answers_in_five_lines() {
    let folder = Folder::new();
    for sample in ["bert-large-h100", "resnet50-h200", "resnet50-v100"] {
        let printed = folder.ok(&["predict", "--sample", sample]);
        let mut lines: Vec<&str> = printed.lines().collect();
        let layers = "Slowest layers: bert.encoder.layer.*.intermediate.dense 18.6 ms (14.7 %), bert.";
        if sample == "bert-large-h100" {
            assert!(lines.remove(1).starts_with(layers), "{printed}");
        }
        assert!(lines[0].contains("-bound: ") || lines[0].starts_with("Waiting for data: "), "{printed}");
        for (line, heading) in lines[1..].iter().zip(["Fastest GPU: ", "Best value: ", "Recorded on: ", "How sure: "]) {
            assert!(line.starts_with(heading), "{printed}");
        }
        let answered = lines[1].split(';').next().unwrap();
        assert!(!answered.contains("no offer known"), "{printed}");
        assert_eq!(lines[5], "");
        assert!(
            lines[6].contains("embedded sample, not your program: ") && lines[7].starts_with("  step "),
            "{printed}"
        );
        assert!(lines[7].contains("GPU idle ") && lines[8].is_empty(), "{printed}");
        assert!(!printed.contains("note: recorded by") && !printed.contains("by module:"), "{printed}");
    }
    let verbose = folder.ok(&["predict", "--verbose"]);
    assert!(verbose.contains("by module:") && verbose.contains("aten::addmm"), "{verbose}");
    let named = folder.ok(&["predict", "--to", "mi300x,gh200-96gb,l4"]);
    assert!(named.contains("ROCm, an AMD GPU"), "{named}");
    let on_arm = folder.ok(&["predict", "--to", "gh200-96gb"]);
    assert!(on_arm.contains("a host with ARM CPUs"), "{on_arm}");
    // Into a file or a pipe the table has all columns, however wide.
    let table = named.lines().find(|line| line.starts_with("GPU ")).unwrap();
    assert!(table.contains("on-demand offer") && table.width() > 120, "{table}");
}
