//! Broken traces and other files give an error, never a crash.

use std::io::{self, Read};
use std::ops::ControlFlow;

use habitat_tui::trace::import::{ImportOptions, kineto_ranks};
use habitat_tui::trace::kineto::Recorded;
use habitat_tui::trace::{Fault, Foreign, Format, TraceError};
use proptest::prelude::*;

use crate::trace::{MAIN, Trace, read, recorded, two_steps};

fn fault(text: &str) -> Fault {
    let error: TraceError = read(text.as_bytes(), &ImportOptions::default()).expect_err("must be refused");
    assert_eq!((error.format, error.rank), (Format::Kineto, None));
    assert!(error.to_string().starts_with("PyTorch trace: "), "{error}");
    error.fault
}

#[test]
fn files_that_are_no_traces() {
    assert!(matches!(fault(""), Fault::Empty));
    assert!(matches!(fault("  \n"), Fault::Empty));
    assert!(fault("PK\u{3}\u{4}").to_string().starts_with("byte 0 is"));
    assert!(fault("{\"a\": 1}").to_string().contains("no \"traceEvents\" (its keys are a)"));
    assert!(fault("{\"format\": \"habitat-profile\"}").to_string().contains("open it directly"));
    assert!(matches!(fault("{\"traceEvents\": []}"), Fault::NotOfPyTorch { events: 0, kind: Foreign::Nothing }));
}

#[test]
fn a_trace_cut_off_says_how_far_it_went() {
    let whole = two_steps();
    let json = whole.json();
    let cut = &json[..json.len() - 40];
    let Fault::Truncated { events, bytes } = fault(cut) else { panic!("not reported as truncated") };
    assert_eq!((events, bytes), (whole.events.len() as u64 - 1, cut.len() as u64));
}

/// Reads a part of a large trace, which may be one step larger than the limit.
#[test]
fn a_step_that_is_too_large_is_refused_with_the_limit() {
    let text = two_steps().json();
    let error = |max_records| {
        let options = ImportOptions { max_records: Some(max_records), ..ImportOptions::default() };
        read(text.as_bytes(), &options).map(drop).map_err(|error| error.to_string())
    };
    let said = error(1).unwrap_err();
    assert!(said.starts_with("PyTorch trace: a step has more than 8 operators, launches and kernels"), "{said}");
    assert_eq!(error(4), Ok(()));
}

#[test]
fn the_rank_that_fails_is_named() {
    let ranks = [recorded(two_steps().json().as_bytes()), recorded(b"")];
    let error = kineto_ranks(ranks, &ImportOptions::default()).unwrap_err();
    assert_eq!(error.rank, Some(1));
    assert!(error.to_string().starts_with("PyTorch trace of rank 1: the file is empty"), "{error}");
}

#[test]
fn a_reader_that_fails_is_passed_on() {
    struct Cut(io::Cursor<Vec<u8>>);
    impl Read for Cut {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            match self.0.read(out)? {
                0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "corrupt gzip stream")),
                count => Ok(count),
            }
        }
    }
    let text = two_steps().json();
    let half = Cut(io::Cursor::new(text.as_bytes()[..text.len() / 2].to_vec()));
    let error = Recorded::read(half, None, &mut |_| ControlFlow::Continue(())).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("corrupt gzip stream") && message.contains("cut off"), "{message}");
}

#[test]
fn a_trace_of_the_cpu_offers_its_shapes() {
    let mut trace = Trace::default();
    trace.operator(MAIN, "aten::mm", 1.0, 5.0, r#""Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]"#);
    let error = trace.import().unwrap_err();
    assert!(matches!(error.fault, Fault::NoKernels { operators: 1, launches: 0, with_shapes: true }));
    assert!(error.to_string().contains("--shapes-only"), "{error}");
    // Reports if there are none.
    let mut bare = Trace::default();
    bare.operator(MAIN, "aten::mm", 1.0, 5.0, "");
    let options = ImportOptions { shapes_only: true, ..ImportOptions::default() };
    assert!(matches!(read(bare.json().as_bytes(), &options).unwrap_err().fault, Fault::NoShapes));
}

#[test]
fn unusable_times_name_the_event() {
    for (bad, field, value) in
        [("-5.0", "dur", "-5.0"), ("NaN", "dur", "NaN"), ("1e999", "dur", "1e999"), ("\"x\"", "dur", "\"x\"")]
    {
        let json = two_steps().json().replacen("\"dur\": 90", &format!("\"dur\": {bad}"), 1);
        let Fault::BadTimes { count: 1, index: 0, name, field: found, value: shown, .. } = fault(&json) else {
            panic!("{bad} accepted")
        };
        assert_eq!((name.as_str(), found, shown.as_str()), ("ProfilerStep#1", field, value));
    }
    let json = two_steps().json().replacen("\"ts\": 1000", "\"ts\": \"soon\"", 1);
    assert!(fault(&json).to_string().contains("event 0 (\"ProfilerStep#1\"): ts is \"soon\""));
}

#[test]
fn one_bad_event_in_many_is_left_out_and_noted() {
    let mut trace = two_steps();
    for n in 0..500 {
        trace.operator(MAIN, "aten::view", 2000.0 + f64::from(n), 0.5, "");
    }
    trace.operator(MAIN, "aten::odd", 2600.0, -1.0, "");
    trace.events.push(r#"{"ph": "X", "name": }"#.to_owned());
    let notes = trace.import().unwrap().profile.recording.unwrap().notes.join("\n");
    assert!(
        notes.contains("1 events with unusable times were left out") && notes.contains("\"aten::odd\", dur = -1"),
        "{notes}"
    );
    assert!(notes.contains("1 malformed events were left out"), "{notes}");
}

#[test]
fn an_import_can_be_stopped() {
    let text = two_steps().json();
    let error = Recorded::read(text.as_bytes(), None, &mut |_| ControlFlow::Break(())).unwrap_err();
    assert!(matches!(error.fault, Fault::Cancelled));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read(&bytes, &ImportOptions::default());
    }

    #[test]
    fn any_json_like_text_is_survived(text in r#"[\[\]{},:"\\ a-e0-9.\-]{0,200}"#) {
        let _ = read(text.as_bytes(), &ImportOptions::default());
        let _ = read(format!("{{\"traceEvents\": [{text}").as_bytes(), &ImportOptions::default());
    }

    #[test]
    fn mutated_traces_never_panic(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        shapes_only: bool,
        max_records in proptest::option::of(1_usize..80),
    ) {
        let mut bytes = two_steps().json().into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let options = ImportOptions { shapes_only, max_records, ..ImportOptions::default() };
        if let Ok(import) = read(&bytes, &options) {
            // An accepted file gives a profile that reads back.
            let json = import.profile.to_json().expect("finite numbers");
            prop_assert!(habitat_tui::profile::Profile::from_json(&json).is_ok());
        }
    }

    #[test]
    fn numbers_may_be_anything(
        values in proptest::collection::vec(prop_oneof![Just("1e308"), Just("-1"), Just("NaN"), Just("0"), Just("1e15"), Just("\"inf\""), Just("null"), Just("[1]")], 4),
        at in 0_usize..4,
    ) {
        let mut json = two_steps().json();
        for (value, field) in values.iter().zip(["\"ts\": 1010", "\"dur\": 20", "\"correlation\": 3", "\"grid\": [8, 2, 1]"]).skip(at) {
            json = json.replacen(field, &format!("{}: {value}", field.split(':').next().unwrap_or_default()), 1);
        }
        let _ = read(json.as_bytes(), &ImportOptions::default());
    }
}
