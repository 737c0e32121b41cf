//! Regions: their names in plain words, in the spelling of their providers, and the words by which a filter matches
//! them.
//!
//! A region has the words of its own name and of its plain name, of its country's code and name, and of its continent
//! (`eu`, `europe`). Names are split at dashes, commas, spaces and the like; a number belongs to the word before it
//! (`us-east-1` is `us`, `east-1`). A filter matches if each of its words is a word of the region. Words of at least
//! three letters also match as prefixes, and a word without a number matches any number.
//!
//! Some price lists have one price for several regions and name them all (`US / EU`, `eu-north1 / us-central1 (list)`).
//! A filter matches such a list if it matches one of the regions. The country is known if all regions are in the same
//! one.

use std::collections::BTreeSet;

/// Provider, region, name, and country code; in the United States with the state.
const NAMES: &[(&str, &str, &str, &str)] = &[
    ("aws", "af-south-1", "Africa (Cape Town)", "za"),
    ("aws", "ap-east-1", "Asia Pacific (Hong Kong)", "hk"),
    ("aws", "ap-northeast-1", "Asia Pacific (Tokyo)", "jp"),
    ("aws", "ap-northeast-2", "Asia Pacific (Seoul)", "kr"),
    ("aws", "ap-northeast-3", "Asia Pacific (Osaka)", "jp"),
    ("aws", "ap-south-1", "Asia Pacific (Mumbai)", "in"),
    ("aws", "ap-south-2", "Asia Pacific (Hyderabad)", "in"),
    ("aws", "ap-southeast-1", "Asia Pacific (Singapore)", "sg"),
    ("aws", "ap-southeast-2", "Asia Pacific (Sydney)", "au"),
    ("aws", "ap-southeast-3", "Asia Pacific (Jakarta)", "id"),
    ("aws", "ap-southeast-4", "Asia Pacific (Melbourne)", "au"),
    ("aws", "ca-central-1", "Canada (Central)", "ca"),
    ("aws", "ca-west-1", "Canada West (Calgary)", "ca"),
    ("aws", "eu-central-1", "Europe (Frankfurt)", "de"),
    ("aws", "eu-central-2", "Europe (Zurich)", "ch"),
    ("aws", "eu-north-1", "Europe (Stockholm)", "se"),
    ("aws", "eu-south-1", "Europe (Milan)", "it"),
    ("aws", "eu-south-2", "Europe (Spain)", "es"),
    ("aws", "eu-west-1", "Europe (Ireland)", "ie"),
    ("aws", "eu-west-2", "Europe (London)", "gb"),
    ("aws", "eu-west-3", "Europe (Paris)", "fr"),
    ("aws", "il-central-1", "Israel (Tel Aviv)", "il"),
    ("aws", "me-central-1", "Middle East (UAE)", "ae"),
    ("aws", "me-south-1", "Middle East (Bahrain)", "bh"),
    ("aws", "sa-east-1", "South America (São Paulo)", "br"),
    ("aws", "us-east-1", "US East (N. Virginia)", "us-va"),
    ("aws", "us-east-2", "US East (Ohio)", "us-oh"),
    ("aws", "us-west-1", "US West (N. California)", "us-ca"),
    ("aws", "us-west-2", "US West (Oregon)", "us-or"),
    ("azure", "australiaeast", "Australia East (New South Wales)", "au"),
    ("azure", "brazilsouth", "Brazil South (São Paulo State)", "br"),
    ("azure", "canadacentral", "Canada Central (Toronto)", "ca"),
    ("azure", "centralindia", "Central India (Pune)", "in"),
    ("azure", "centralus", "Central US (Iowa)", "us-ia"),
    ("azure", "eastasia", "East Asia (Hong Kong)", "hk"),
    ("azure", "eastus", "East US (Virginia)", "us-va"),
    ("azure", "eastus2", "East US 2 (Virginia)", "us-va"),
    ("azure", "francecentral", "France Central (Paris)", "fr"),
    ("azure", "germanywestcentral", "Germany West Central (Frankfurt)", "de"),
    ("azure", "japaneast", "Japan East (Tokyo, Saitama)", "jp"),
    ("azure", "koreacentral", "Korea Central (Seoul)", "kr"),
    ("azure", "koreasouth", "Korea South (Busan)", "kr"),
    ("azure", "northcentralus", "North Central US (Illinois)", "us-il"),
    ("azure", "northeurope", "North Europe (Ireland)", "ie"),
    ("azure", "southcentralus", "South Central US (Texas)", "us-tx"),
    ("azure", "southeastasia", "Southeast Asia (Singapore)", "sg"),
    ("azure", "swedencentral", "Sweden Central (Gävle)", "se"),
    ("azure", "uksouth", "UK South (London)", "gb"),
    ("azure", "westeurope", "West Europe (Netherlands)", "nl"),
    ("azure", "westus", "West US (California)", "us-ca"),
    ("azure", "westus2", "West US 2 (Washington)", "us-wa"),
    ("azure", "westus3", "West US 3 (Phoenix)", "us-az"),
    ("denvr", "houston", "Houston", "us-tx"),
    ("do", "atl1", "Atlanta", "us-ga"),
    ("do", "nyc2", "New York", "us-ny"),
    ("do", "tor1", "Toronto", "ca"),
    ("gcp", "asia-east1", "Taiwan", "tw"),
    ("gcp", "asia-northeast1", "Tokyo", "jp"),
    ("gcp", "asia-northeast3", "Seoul", "kr"),
    ("gcp", "asia-south1", "Mumbai", "in"),
    ("gcp", "asia-southeast1", "Singapore", "sg"),
    ("gcp", "australia-southeast1", "Sydney", "au"),
    ("gcp", "europe-north1", "Finland", "fi"),
    ("gcp", "europe-west1", "Belgium", "be"),
    ("gcp", "europe-west2", "London", "gb"),
    ("gcp", "europe-west3", "Frankfurt", "de"),
    ("gcp", "europe-west4", "Netherlands", "nl"),
    ("gcp", "europe-west6", "Zürich", "ch"),
    ("gcp", "europe-west8", "Milan", "it"),
    ("gcp", "europe-west9", "Paris", "fr"),
    ("gcp", "me-west1", "Tel Aviv", "il"),
    ("gcp", "northamerica-northeast1", "Montréal", "ca"),
    ("gcp", "southamerica-east1", "São Paulo", "br"),
    ("gcp", "us-central1", "Iowa", "us-ia"),
    ("gcp", "us-east1", "South Carolina", "us-sc"),
    ("gcp", "us-east4", "Northern Virginia", "us-va"),
    ("gcp", "us-east5", "Columbus", "us-oh"),
    ("gcp", "us-south1", "Dallas", "us-tx"),
    ("gcp", "us-west1", "Oregon", "us-or"),
    ("gcp", "us-west2", "Los Angeles", "us-ca"),
    ("gcp", "us-west3", "Salt Lake City", "us-ut"),
    ("gcp", "us-west4", "Las Vegas", "us-nv"),
    ("nebius", "eu-north1", "Finland", "fi"),
    ("nebius", "eu-west1", "Paris", "fr"),
    ("nebius", "us-central1", "Kansas City", "us-mo"),
    ("oci", "ap-tokyo-1", "Japan East (Tokyo)", "jp"),
    ("oci", "eu-frankfurt-1", "Germany Central (Frankfurt)", "de"),
    ("oci", "uk-london-1", "UK South (London)", "gb"),
    ("oci", "us-ashburn-1", "US East (Ashburn)", "us-va"),
    ("oci", "us-phoenix-1", "US West (Phoenix)", "us-az"),
    ("ovh", "BHS", "Beauharnois", "ca"),
    ("ovh", "GRA", "Gravelines", "fr"),
    ("paperspace", "East Coast (NY2)", "New York", "us-ny"),
    ("scaleway", "fr-par-2", "Paris", "fr"),
    ("verda", "ICE", "Iceland", "is"),
];

/// Countries with machines: code, continent, names.
const COUNTRIES: &[(&str, &str, &[&str])] = &[
    ("ae", "as", &["uae", "emirates"]),
    ("ar", "sa", &["argentina"]),
    ("at", "eu", &["austria"]),
    ("au", "oc", &["australia"]),
    ("be", "eu", &["belgium"]),
    ("bg", "eu", &["bulgaria"]),
    ("bh", "as", &["bahrain"]),
    ("br", "sa", &["brazil"]),
    ("ca", "na", &["canada"]),
    ("ch", "eu", &["switzerland"]),
    ("cl", "sa", &["chile"]),
    ("cn", "as", &["china"]),
    ("cz", "eu", &["czechia"]),
    ("de", "eu", &["germany"]),
    ("dk", "eu", &["denmark"]),
    ("ee", "eu", &["estonia"]),
    ("es", "eu", &["spain"]),
    ("fi", "eu", &["finland", "fin"]),
    ("fr", "eu", &["france"]),
    ("gb", "eu", &["uk", "britain", "england"]),
    ("gr", "eu", &["greece"]),
    ("hk", "as", &["hongkong"]),
    ("hu", "eu", &["hungary"]),
    ("id", "as", &["indonesia"]),
    ("ie", "eu", &["ireland"]),
    ("il", "as", &["israel"]),
    ("in", "as", &["india"]),
    ("is", "eu", &["iceland"]),
    ("it", "eu", &["italy"]),
    ("jp", "as", &["japan"]),
    ("kr", "as", &["korea"]),
    ("lt", "eu", &["lithuania"]),
    ("lv", "eu", &["latvia"]),
    ("mx", "na", &["mexico"]),
    ("my", "as", &["malaysia"]),
    ("nl", "eu", &["netherlands"]),
    ("no", "eu", &["norway"]),
    ("nz", "oc", &["zealand"]),
    ("pl", "eu", &["poland"]),
    ("pt", "eu", &["portugal"]),
    ("ro", "eu", &["romania"]),
    ("se", "eu", &["sweden"]),
    ("sg", "as", &["singapore"]),
    ("si", "eu", &["slovenia"]),
    ("sk", "eu", &["slovakia"]),
    ("th", "as", &["thailand"]),
    ("tr", "as", &["turkey"]),
    ("tw", "as", &["taiwan"]),
    ("ua", "eu", &["ukraine"]),
    ("us", "na", &["usa"]),
    ("vn", "as", &["vietnam"]),
    ("za", "af", &["africa"]),
];

/// States of the United States that occur in names of regions: code, name.
const STATES: &[(&str, &str)] = &[
    ("us-az", "arizona"),
    ("us-ca", "california"),
    ("us-fl", "florida"),
    ("us-ga", "georgia"),
    ("us-ia", "iowa"),
    ("us-il", "illinois"),
    ("us-mo", "missouri"),
    ("us-mt", "montana"),
    ("us-nc", "north carolina"),
    ("us-nd", "north dakota"),
    ("us-nj", "new jersey"),
    ("us-nv", "nevada"),
    ("us-ny", "new york"),
    ("us-oh", "ohio"),
    ("us-or", "oregon"),
    ("us-sc", "south carolina"),
    ("us-tx", "texas"),
    ("us-ut", "utah"),
    ("us-va", "virginia"),
    ("us-wa", "washington"),
];

/// Continents: code, name.
const CONTINENTS: &[(&str, &str)] = &[
    ("af", "africa"),
    ("as", "asia"),
    ("eu", "europe"),
    ("na", "northamerica"),
    ("oc", "oceania"),
    ("sa", "southamerica"),
];

/// Price lists with one price for unnamed regions: provider, name in the list, regions.
const ALL_REGIONS: &[(&str, &str, &[&str])] = &[(
    "lambda",
    "all regions",
    &["asia-northeast-1", "asia-south-1", "europe-central-1", "us-east-1", "us-midwest-1", "us-south-1", "us-west-1"],
)];

/// Words in parentheses that are not places: `us (Americas list)`, `all (median)`.
const REMARKS: [&str; 5] = ["average", "list", "lowest", "median", "starting at"];

/// Regions that a price applies to; usually one.
fn each<'a>(provider: &str, region: &'a str) -> Vec<&'a str> {
    if let Some((.., all)) = ALL_REGIONS.iter().find(|(of, name, _)| (*of, *name) == (provider, region)) {
        return all.to_vec();
    }
    let (named, remark) = region.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).unwrap_or((region, ""));
    let is_place = !REMARKS.iter().any(|word| remark.contains(word));
    if is_place { region } else { named }.split(" / ").map(str::trim).collect()
}

/// Entries of price lists that are not regions.
const NO_REGION: [&str; 4] = ["broker", "list", "market", "us"];

/// The region for tools that rent machines; `None` if the price list has several or none (`secure cloud`).
pub fn single<'a>(provider: &str, region: &'a str) -> Option<&'a str> {
    let name = region.trim();
    let is_words = name.contains(['/', '(']) || (name.contains(' ') && country_in(name).is_none());
    let is_name = known(provider, name).is_some() || !(is_words || NO_REGION.contains(&name));
    (is_name && each(provider, name) == [name]).then_some(name)
}

/// Location of a region in plain words; `None` if unknown or already in its own name.
pub(super) fn name(provider: &str, region: &str) -> Option<&'static str> {
    known(provider, region).map(|(.., name, _)| *name)
}

fn known(provider: &str, region: &str) -> Option<&'static (&'static str, &'static str, &'static str, &'static str)> {
    NAMES.iter().find(|(of, id, ..)| (*of, *id) == (provider, region))
}

/// Country code of a region, or in the United States that of the state if known (`us-va`); `None` if unknown.
pub(super) fn place(provider: &str, region: &str) -> Option<&'static str> {
    let mut places = each(provider, region).into_iter().map(|one| place_of_one(provider, one));
    let first = places.next()??;
    places.try_fold(first, |all, place| match place? {
        place if place == all => Some(all),
        place if country_of(place) == country_of(all) => Some(country_of(all)),
        _ => None,
    })
}

fn place_of_one(provider: &str, region: &str) -> Option<&'static str> {
    let country = known(provider, region).map(|(.., country)| *country).or_else(|| country_in(region))?;
    if country != "us" {
        return Some(country);
    }
    // The state precedes the country: `Arizona, US, NA`, `UTAH_USA`.
    let words = split(region);
    let state = words.iter().take_while(|word| !matches!(word.as_str(), "us" | "usa"));
    let state = state.map(String::as_str).collect::<Vec<_>>().join(" ");
    Some(STATES.iter().find(|(_, name)| *name == state).map_or(country, |(code, _)| *code))
}

/// Names that a filter takes for several regions: continents, then countries.
pub fn areas() -> impl Iterator<Item = &'static str> {
    let countries = COUNTRIES.iter().filter_map(|(.., names)| names.first().copied());
    CONTINENTS.iter().map(|(_, name)| *name).chain(countries.filter(|name| *name != "africa"))
}

/// Whether one of the [`areas`] is a continent.
pub fn is_continent(area: &str) -> bool {
    CONTINENTS.iter().any(|(_, name)| *name == area)
}

/// Whether a filter matches a region, as described at the top of this file.
pub fn is_named(provider: &str, region: &str, filter: &str) -> bool {
    Words::new(provider, region).is_named(filter)
}

/// The words of a region, for several filters.
#[derive(Debug)]
pub struct Words {
    name: Vec<String>,
    each: Vec<BTreeSet<String>>,
}

impl Words {
    /// Those of a provider's region.
    pub fn new(provider: &str, region: &str) -> Self {
        Self { name: split(region), each: each(provider, region).into_iter().map(|one| words(provider, one)).collect() }
    }

    /// Whether a filter matches the region.
    pub fn is_named(&self, filter: &str) -> bool {
        let wanted = split(filter);
        let fits = |words: &BTreeSet<String>| wanted.iter().all(|wanted| words.iter().any(|word| begins(word, wanted)));
        !wanted.is_empty() && (self.name == wanted || self.each.iter().any(fits))
    }
}

/// Whether a word of a filter matches a word of a region.
fn begins(word: &str, wanted: &str) -> bool {
    is_same(word, wanted) || (wanted.chars().count() >= 3 && letters(word).starts_with(wanted))
}

/// Whether it is the word, with or without its number.
fn is_same(word: &str, wanted: &str) -> bool {
    word == wanted || letters(word) == wanted
}

fn letters(word: &str) -> &str {
    word.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-')
}

fn words(provider: &str, region: &str) -> BTreeSet<String> {
    let known = known(provider, region);
    let mut words: BTreeSet<String> = split(region).into_iter().collect();
    let country = known.map(|(.., place)| country_of(place)).or_else(|| country_in(region));
    words.extend(known.into_iter().flat_map(|(.., name, _)| split(name)));
    if let Some((code, continent, names)) = COUNTRIES.iter().find(|(code, ..)| Some(*code) == country) {
        words.extend([*code, *continent].into_iter().chain(names.iter().copied()).map(str::to_owned));
    }
    let of_continent: Vec<String> = CONTINENTS
        .iter()
        .filter(|(code, name)| words.iter().any(|word| is_same(word, code) || is_same(word, name)))
        .flat_map(|(code, name)| [(*code).to_owned(), (*name).to_owned()])
        .collect();
    words.extend(of_continent);
    words
}

/// Country code of a place.
pub(super) fn country_of(place: &'static str) -> &'static str {
    place.split_once('-').map_or(place, |(country, _)| country)
}

/// Country in a region's own name, as a code or a name.
fn country_in(region: &str) -> Option<&'static str> {
    let words = split(region);
    let said = |is: fn(&(&str, &str, &[&str]), &str) -> bool| {
        words.iter().find_map(|word| COUNTRIES.iter().find(|country| is(country, word)))
    };
    let by_code = said(|(code, ..), word| is_same(word, code));
    by_code.or_else(|| said(|(_, _, names), word| names.iter().any(|name| is_same(word, name)))).map(|(code, ..)| *code)
}

/// Lower-case words without accents; a number belongs to the word before it.
fn split(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let word: String = word.chars().flat_map(char::to_lowercase).map(unaccented).collect();
        match words.last_mut() {
            Some(last) if word.chars().all(|c| c.is_ascii_digit()) => {
                last.push('-');
                last.push_str(&word);
            }
            _ => words.push(word),
        }
    }
    words
}

const fn unaccented(letter: char) -> char {
    match letter {
        'á' | 'à' | 'â' | 'ã' | 'ä' | 'å' => 'a',
        'é' | 'è' | 'ê' => 'e',
        'í' => 'i',
        'ó' | 'ô' | 'õ' | 'ö' | 'ø' => 'o',
        'ú' | 'ü' => 'u',
        'ç' => 'c',
        other => other,
    }
}

#[cfg(test)]
mod tests;
