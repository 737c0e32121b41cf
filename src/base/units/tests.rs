use super::*;

#[test]
fn quantities_refuse_what_is_no_number() {
    for bad in [-1.0, -0.0, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(Micros::new(bad).is_err(), "{bad}");
        assert!(Usd::new(bad).is_err(), "{bad}");
    }
    assert_eq!(
        Micros::new(-1.0).unwrap_err().to_string(),
        "-1 is not a valid time: it must be a finite number of 0 or more, at most 3.2e13, in microseconds"
    );
}

#[test]
fn a_refused_number_is_shown_in_few_characters() {
    let said = Micros::new(1e300).unwrap_err().to_string();
    assert!(said.starts_with("1e300 is not a valid time") && said.contains("at most 3.2e13"), "{said}");
    assert!(Hours::new(-0.0).unwrap_err().to_string().starts_with("-0 is not"));
}

#[test]
fn deserialising_checks_too() {
    assert!(serde_json::from_str::<Micros>("-0.5").is_err());
    assert_eq!(serde_json::from_str::<Micros>("12.5").unwrap().get(), 12.5);
}

#[test]
fn a_difference_below_zero_is_none() {
    assert_eq!(Hours::known(1.0).checked_sub(Hours::known(2.0)), None);
    assert_eq!(Hours::known(2.0).checked_sub(Hours::known(0.5)), Some(Hours::known(1.5)));
}

/// Also in release builds.
#[test]
fn arithmetic_that_leaves_the_numbers_is_refused() {
    for bad in [f64::NAN, f64::INFINITY, -1e-300] {
        assert_eq!(Micros::checked(bad), None);
        assert!(std::panic::catch_unwind(|| Micros::known(bad)).is_err(), "{bad}");
    }
    assert!(Micros::checked(-0.0).unwrap().get().is_sign_positive());
    assert!(std::panic::catch_unwind(|| Bytes::known(1.0) / BytesPerSecond::ZERO).is_err());
    assert!(std::panic::catch_unwind(|| Usd::known(1.0) * -1.0).is_err());
    assert_eq!(Micros::known(1e300).get(), 1e300);
}

#[test]
fn money_is_price_times_time() {
    assert_eq!((UsdPerHour::known(2.0) * Hours::known(1.5)).get(), 3.0);
}

#[test]
fn slugs_are_plain() {
    assert!(GpuSlug::new("h100-sxm5-80gb").is_ok());
    for bad in ["", "H100", "a b", "a/b", "ü", &"a".repeat(65)] {
        assert!(GpuSlug::new(bad).is_err(), "{bad:?}");
    }
}
