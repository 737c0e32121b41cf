use super::*;
use crate::pricing::shipped;

#[test]
fn regions_have_one_name_each() {
    assert_eq!(name("aws", "us-east-1"), Some("US East (N. Virginia)"));
    // Lambda's region of this name is unrelated.
    assert_eq!(name("lambda", "us-east-1"), None);
    assert!(NAMES.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    assert!(COUNTRIES.is_sorted_by(|a, b| a.0 < b.0));
    for (_, region, _, place) in NAMES {
        assert!(COUNTRIES.iter().any(|(code, ..)| *code == country_of(place)), "{region}: {place}");
    }
}

#[test]
fn places_of_regions() {
    for (provider, region, expected) in [
        ("aws", "us-east-1", Some("us-va")),
        ("nebius", "us-central1", Some("us-mo")),
        ("vast", "North Carolina, US, NA", Some("us-nc")),
        ("vast", "West Virginia, US, NA", Some("us")),
        ("vast", ", US, NA", Some("us")),
        ("vast", "Sichuan, CN, AS", Some("cn")),
        ("fluidstack", "NORTH_DAKOTA_USA", Some("us-nd")),
        ("runpod", "US", Some("us")),
        ("lambda", "us-east-1", Some("us")),
        ("verda", "FIN-02", Some("fi")),
        ("jarvislabs", "IN1", Some("in")),
        ("hyperbolic", "default", None),
    ] {
        assert_eq!(place(provider, region), expected, "{provider} {region}");
    }
}

/// Regions of the shipped price book that a filter keeps, each as `provider region`.
fn kept(filter: &str) -> Vec<String> {
    let regions: BTreeSet<(String, String)> = shipped::prices()
        .into_iter()
        .flat_map(|file| file.offers.into_iter().map(move |row| (file.provider.clone(), row.region)))
        .collect();
    let kept = regions.into_iter().filter(|(provider, region)| is_named(provider, region, filter));
    kept.map(|(provider, region)| format!("{provider} {region}")).collect()
}

#[test]
fn what_filters_keep_of_the_shipped_regions() {
    let mut europe: Vec<&str> = EUROPE.lines().map(str::trim).collect();
    europe.sort_unstable();
    assert_eq!(kept("eu"), europe);
    assert_eq!(kept("Europe"), europe);
    let east = [
        "aws us-east-1",
        "azure eastus",
        "azure eastus2",
        "gcp us-east1",
        "gcp us-east4",
        "gcp us-east5",
        "lambda all regions",
        "oci us-ashburn-1",
        "paperspace East Coast (NY2)",
    ];
    assert_eq!(kept("us-east"), east);
    assert_eq!(
        kept("de"),
        [
            "azure germanywestcentral",
            "gcp europe-west3",
            "lium Frankfurt, DE",
            "oci eu-frankfurt-1",
            "vast Germany, DE"
        ]
    );
}

/// Shipped regions in Europe, and lists with a region there.
const EUROPE: &str = "azure francecentral
    azure germanywestcentral
    azure northeurope
    azure swedencentral
    azure uksouth
    azure westeurope
    coreweave US / EU
    crusoe us / eu (list)
    fluidstack FINLAND
    gcp europe-north1
    gcp europe-west1
    gcp europe-west2
    gcp europe-west3
    gcp europe-west4
    gcp europe-west6
    gcp europe-west8
    gcp europe-west9
    hyperstack NORWAY-1 / CANADA-1 / US-1
    lambda all regions
    latitude US / NL
    lium Amsterdam, NL
    lium Dnipro, UA
    lium Dublin, IE
    lium France, FR
    lium Frankfurt, DE
    lium Helsinki, FI
    lium Kryvyi Rih, UA
    lium Loule, PT
    lium Romania, RO
    nebius eu-north1 / us-central1 (list)
    oci eu-frankfurt-1
    oci uk-london-1
    ovh GRA / BHS (list)
    scaleway fr-par-2 (list)
    vast Estonia, EE
    vast Finland, FI
    vast Germany, DE
    vast Norway, NO
    vast Romania, RO
    vast The Netherlands, NL
    verda FIN / ICE";

/// A filter matches a list of regions by any of them; the country is known if all are in the same one.
#[test]
fn regions_that_share_a_price() {
    for (provider, region, place_of, single_of) in [
        ("hyperstack", "NORWAY-1 / CANADA-1 / US-1", None, None),
        ("do", "nyc2 / atl1 (list)", Some("us"), None),
        ("do", "nyc2 / tor1 / atl1 (list)", None, None),
        ("gcp", "us (Americas list)", Some("us"), None),
        ("scaleway", "fr-par-2 (list)", Some("fr"), None),
        ("akash", "all (\"starting at\")", None, None),
        ("shakti", "India (Navi Mumbai)", Some("in"), None),
        ("lambda", "all regions", None, None),
        ("runpod", "secure cloud", None, None),
        ("vultr", "list", None, None),
        ("runpod", "US", Some("us"), Some("US")),
        ("azure", "polandcentral", None, Some("polandcentral")),
        ("paperspace", "East Coast (NY2)", Some("us-ny"), Some("East Coast (NY2)")),
        ("vast", "Japan, JP, AS", Some("jp"), Some("Japan, JP, AS")),
    ] {
        assert_eq!((place(provider, region), single(provider, region)), (place_of, single_of), "{provider} {region}");
    }
    for (filter, is_kept) in [("us", true), ("eu", true), ("norway", true), ("US-1", true), ("norway us", false)] {
        let region = "NORWAY-1 / CANADA-1 / US-1";
        assert_eq!(is_named("hyperstack", region, filter), is_kept, "{filter}");
        assert!(is_named("hyperstack", region, region));
    }
}

#[test]
fn what_words_stand_for() {
    for (filter, expected) in [
        ("us-east-1", &["aws us-east-1", "lambda all regions"][..]),
        ("US-1", &["hyperstack NORWAY-1 / CANADA-1 / US-1"]),
        ("eastus", &["azure eastus", "azure eastus2"]),
        ("eastus2", &["azure eastus2"]),
        ("oregon", &["gcp us-west1"]),
        ("frank", &["azure germanywestcentral", "gcp europe-west3", "lium Frankfurt, DE", "oci eu-frankfurt-1"]),
        ("ice", &["verda FIN / ICE"]),
        ("jarvis", &[]),
        ("IN2", &["jarvislabs IN2", "jarvislabs IN2 (list)"]),
        ("Estonia, EE", &["vast Estonia, EE"]),
        ("ny2", &["paperspace East Coast (NY2)"]),
        // Two-letter words match whole words only, and an empty filter matches nothing.
        (
            "fr",
            &[
                "azure francecentral",
                "gcp europe-west9",
                "lium France, FR",
                "ovh GRA / BHS (list)",
                "scaleway fr-par-2 (list)",
            ],
        ),
        ("e", &[]),
        ("", &[]),
        ("-", &[]),
    ] {
        assert_eq!(kept(filter), expected, "{filter}");
    }
    assert!(is_named("aws", "sa-east-1", "sao paulo") && is_named("gcp", "europe-west2", "uk"));
    // `sa` is South America rather than Saudi Arabia, and `ca` Canada rather than California.
    assert!(is_named("aws", "sa-east-1", "sa") && !is_named("vast", "California, US, NA", "ca"));
}

/// Entries of price lists that are not regions.
const NOWHERE: [&str; 13] = [
    "Global (lowest)",
    "GPU clusters (list)",
    "all (\"starting at\")",
    "all (average)",
    "all (median)",
    "broker",
    "community cloud",
    "consumer hosts",
    "from price",
    "list",
    "market",
    "secure cloud",
    "via Shadeform",
];

/// The country of each shipped region; those without a country are listed here.
#[test]
fn the_country_of_every_shipped_region_is_known() {
    let continents = ["na", "eu", "as", "sa", "oc", "af"];
    let all: usize = continents.iter().map(|continent| kept(continent).len()).sum();
    let regions: BTreeSet<(String, String)> = shipped::prices()
        .into_iter()
        .flat_map(|file| file.offers.into_iter().map(move |row| (file.provider.clone(), row.region)))
        .collect();
    let unknown: Vec<_> = regions
        .iter()
        .filter(|(provider, region)| !continents.iter().any(|continent| is_named(provider, region, continent)))
        .collect();
    let named: Vec<_> = unknown.iter().filter(|(_, region)| !NOWHERE.contains(&region.as_str())).collect();
    assert_eq!(named, [&&("hyperbolic".to_owned(), "default".to_owned())]);
    let several = regions.iter().filter(|(_, region)| region.contains(" / ") || region == "all regions").count();
    assert!(all <= regions.len() - unknown.len() + 2 * several, "a region is in two continents");
}
