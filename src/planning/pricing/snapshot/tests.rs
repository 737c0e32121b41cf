use super::*;
use crate::pricing::Ownership;

const ONE: &str = r#"
schema = 1
provider = "aws"
[[offer]]
region = "us-east-1"
instance_type = "g5.xlarge"
gpu_name = "A10G"
gpu = "a10g"
gpu_count = 1
on_demand_usd_per_hour = 1.006
spot_usd_per_hour = 0.5089
scope = "instance_total"
as_of = "2026-07-20"
source = "s"
"#;

#[test]
fn one_row_is_an_offer_a_tier() {
    let offers: Vec<_> = Snapshot::parse(ONE).unwrap().offers().collect();
    assert_eq!(offers.len(), 2);
    assert_eq!(offers[0].id.as_str(), "aws/us-east-1/g5.xlarge/on-demand");
    assert_eq!(offers[1].price.get(), 0.5089);
    assert_eq!(offers[0].as_of.unwrap().to_string(), "2026-07-20");
    assert_eq!((&offers[0].unusable, offers[0].network_gbit_per_second), (&None, None));
    let known = ONE.replace("gpu_count = 1", "gpu_count = 1\nnetwork_gbit_per_second = 100");
    assert_eq!(Snapshot::parse(&known).unwrap().offers().next().unwrap().network_gbit_per_second, Some(100.0));
    let none = Snapshot::parse(&known.replace("= 100", "= 0")).unwrap_err();
    assert!(none.0.contains("network_gbit_per_second: 0.0; use a number above 0"), "{none}");
}

#[test]
fn a_list_or_an_offer_may_have_an_end() {
    let until = |text: &str| {
        Snapshot::parse(text).unwrap().offers().map(|offer| offer.until.map(|day| day.to_string())).collect::<Vec<_>>()
    };
    let end = |day: &str| vec![Some(day.to_owned()); 2];
    let list = ONE.replace("provider =", "until = \"2026-11-15\"\nprovider =");
    assert_eq!((until(ONE), until(&list)), (vec![None; 2], end("2026-11-15")));
    // An offer's own end counts, and one that is dated after the list has a price of the next.
    let row = |text: &str| text.replace("source =", "until = \"2026-12-31\"\nsource =");
    assert_eq!((until(&row(ONE)), until(&row(&list))), (end("2026-12-31"), end("2026-12-31")));
    assert_eq!(until(&list.replace("2026-07-20", "2026-11-16")), vec![None; 2]);
    let early = Snapshot::parse(&row(ONE).replace("2026-07-20", "2027-01-01")).unwrap_err().to_string();
    assert!(
        early.contains("offer 1 (g5.xlarge in us-east-1): until: 2026-12-31 is before as_of, 2027-01-01"),
        "{early}"
    );
    let wrong = Snapshot::parse(&list.replace("2026-11-15", "2026-11-31")).unwrap_err().to_string();
    assert!(wrong.contains("until"), "{wrong}");
    let snapshot = Snapshot::parse(&row(&list)).unwrap();
    assert_eq!(Snapshot::parse(&toml::to_string(&snapshot).unwrap()).unwrap(), snapshot);
}

#[test]
fn what_is_not_a_whole_machine_is_kept_but_marked() {
    let text = ONE.replace("instance_total", "gpu_only");
    assert!(Snapshot::parse(&text).unwrap().offers().all(|offer| offer.unusable.is_some()));
    let text = ONE.replace("source = \"s\"", "source = \"s\"\nsuspect = \"below list\"");
    assert!(
        Snapshot::parse(&text)
            .unwrap()
            .offers()
            .all(|offer| offer.unusable == Some(Unusable::Suspect { why: "below list".to_owned() }))
    );
}

#[test]
fn a_spot_price_that_repeats_the_on_demand_price_is_no_spot_price() {
    let offers: Vec<_> = Snapshot::parse(&ONE.replace("0.5089", "1.006")).unwrap().offers().collect();
    assert_eq!(offers[0].unusable, None);
    assert_eq!(offers[1].unusable, Some(Unusable::NoDiscount));
}

const OWN: &str = r#"
schema = 1
provider = "lab"
[[offer]]
region = "office"
instance_type = "workstation"
gpu = "rtx-4090"
gpu_count = 2
tier = "owned"
kw = 0.9
usd_per_kwh = 0.3
pue = 1.2
wear_usd_per_hour = 0.05
scope = "instance_total"
source = "meter"
[[offer]]
region = "office"
instance_type = "contract"
gpu = "h100-sxm5-80gb"
gpu_count = 8
tier = "reserved"
paid_usd_per_hour = 12.5
scope = "instance_total"
source = "contract 17"
"#;

#[test]
fn own_machines_cost_their_power_and_paid_contracts_nothing() {
    let offers: Vec<_> = Snapshot::parse(OWN).unwrap().offers().collect();
    assert_eq!(offers[0].id.as_str(), "lab/office/workstation/owned");
    assert!((offers[0].price.get() - (0.9 * 1.2 * 0.3 + 0.05)).abs() < 1e-12, "{}", offers[0].price.get());
    let wear = UsdPerHour::known(0.05);
    assert_eq!(offers[0].held, Some(Ownership::Owned { kw: 0.9, pue: 1.2, usd_per_kwh: 0.3, wear }));
    assert_eq!((offers[1].id.as_str(), offers[1].price.get()), ("lab/office/contract/reserved", 0.0));
    assert_eq!(offers[1].held.unwrap().paid().unwrap().get(), 12.5);
    // The prices of others do not cast doubt on them.
    let book = crate::pricing::PriceBook::new(offers);
    assert!(book.offers().iter().all(|offer| offer.trust.is_firm()));
    // The parsed snapshot can be written and parsed again.
    let snapshot = Snapshot::parse(OWN).unwrap();
    assert_eq!(Snapshot::parse(&toml::to_string(&snapshot).unwrap()).unwrap(), snapshot);
}

#[test]
fn contracts_to_be_bought_have_a_term() {
    let text = OWN.replace("paid_usd_per_hour = 12.5", "usd_per_hour = 12.5\nterm_hours = 720");
    let snapshot = Snapshot::parse(&text).unwrap();
    let offer = snapshot.offers().nth(1).unwrap();
    assert_eq!((offer.id.as_str(), offer.price.get()), ("lab/office/contract/reserved-720h", 12.5));
    assert_eq!((offer.held, offer.term_hours), (None, Some(720)));
    assert_eq!(Snapshot::parse(&toml::to_string(&snapshot).unwrap()).unwrap(), snapshot);
    // Billed by its terms, regardless of the provider's billing.
    let hourly = Terms { billing: Billing::Hour, ..Terms::default() };
    let book = crate::pricing::PriceBook::new([offer.clone()]).with_terms("lab", hourly);
    assert_eq!(book.terms(&offer).billing, Billing::Term(720));
    let error = |from: &str, to: &str| Snapshot::parse(&text.replace(from, to)).unwrap_err().to_string();
    for (from, to, said) in [
        ("term_hours = 720", "", "term_hours: missing"),
        ("usd_per_hour = 12.5\n", "", "usd_per_hour: missing; set the price"),
        ("usd_per_hour = 12.5", "usd_per_hour = 0", "usd_per_hour: 0 is not a valid price"),
        ("usd_per_hour = 12.5", "usd_per_hour = nan", "usd_per_hour"),
        ("usd_per_hour = 12.5", "usd_per_hour = -1", "usd_per_hour"),
        ("term_hours = 720", "term_hours = 0", "term_hours: 0; use whole hours, 1 to 87600"),
        ("term_hours = 720", "term_hours = -1", "term_hours"),
        ("term_hours = 720", "term_hours = 0.5", "term_hours"),
        ("term_hours = 720", "term_hours = 720\npaid_usd_per_hour = 3", "paid_usd_per_hour is for a contract"),
        ("tier = \"reserved\"", "on_demand_usd_per_hour = 2", "usd_per_hour: only allowed with tier = \"reserved\""),
        ("kw = 0.9", "kw = 0.9\nterm_hours = 9", "term_hours: only allowed with tier = \"reserved\""),
    ] {
        let error = error(from, to);
        assert!(error.contains(said), "{from} → {to}: {error}");
    }
    assert!(Snapshot::parse(&ONE.replace("scope", "term_hours = 720\nscope")).is_err());
    assert!(Snapshot::parse("schema = 1\nprovider = \"a\"\nbilling = \"term\"").is_err());
}

#[test]
fn keys_of_own_machines_are_checked() {
    let error = |from: &str, to: &str| Snapshot::parse(&OWN.replace(from, to)).unwrap_err().to_string();
    for (from, to, said) in [
        ("kw = 0.9\n", "", "kw: missing"),
        ("kw = 0.9", "kw = 0", "kw: 0.0; use a number above 0"),
        ("usd_per_kwh = 0.3\n", "", "usd_per_kwh: missing"),
        ("pue = 1.2", "pue = 0.5", "pue: 0.5; use a number from 1"),
        ("usd_per_kwh = 0.3", "usd_per_kwh = nan", "usd_per_kwh: NaN"),
        ("tier = \"owned\"\n", "", "kw: only allowed with tier = \"owned\""),
        ("tier = \"owned\"", "tier = \"spot\"", "\"spot\" is not a value of this key; set spot_usd_per_hour"),
        ("tier = \"owned\"", "tier = \"reserved\"", "kw: only allowed with tier = \"owned\""),
        ("kw = 0.9", "kw = 0.9\nspot_usd_per_hour = 1", "tier: \"owned\" excludes"),
        ("paid_usd_per_hour = 12.5\n", "", "paid_usd_per_hour: missing"),
    ] {
        let error = error(from, to);
        assert!(error.contains(said), "{from} → {to}: {error}");
    }
}

#[test]
fn what_a_provider_draws_and_emits_is_checked() {
    let with = |keys: &str| Snapshot::parse(&format!("schema = 1\nprovider = \"aws\"\n{keys}\n"));
    let terms = with("pue = 1.15\nkg_co2_per_kwh = 0.3").unwrap().terms();
    assert_eq!((terms.pue, terms.kg_co2_per_kwh), (Some(1.15), Some(0.3)));
    for (keys, said) in [
        ("pue = 0.9", "pue: 0.9; use a number from 1"),
        ("pue = nan", "pue: NaN"),
        ("kg_co2_per_kwh = -0.1", "kg_co2_per_kwh: -0.1; use a number from 0 to 10"),
        ("kg_co2_per_kwh = nan", "kg_co2_per_kwh: NaN"),
    ] {
        let error = with(keys).unwrap_err().to_string();
        assert!(error.contains(said), "{keys}: {error}");
    }
}

#[test]
fn errors_name_key_and_value() {
    let error = |from: &str, to: &str| Snapshot::parse(&ONE.replace(from, to)).unwrap_err().to_string();
    assert!(error("1.006", "-1.006").contains("on_demand_usd_per_hour"), "{}", error("1.006", "-1.006"));
    assert!(error("1.006", "\"cheap\"").contains("on_demand_usd_per_hour"));
    assert!(error("1.006", "nan").contains("not a valid price"), "{}", error("1.006", "nan"));
    assert!(error("1.006", "0").contains("0 is not a valid price"));
    assert!(error("gpu_count = 1\n", "").contains("gpu_count"));
    assert!(error("\"us-east-1\"", "\"us\\u001b[31m\"").contains("region: has control"));
    assert!(error("\"aws\"", "\"a\\u0007\"").contains("provider: has control"));
    assert!(error("schema = 1", "schema = 7").contains("schema: found 7"));
    assert!(Snapshot::parse("").unwrap_err().to_string().contains("empty"));
}
