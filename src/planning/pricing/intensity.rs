//! Carbon intensity of electricity by place, from `pricing/grid/intensity.toml`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::region;
use super::snapshot::SnapshotError;
use habitat_base::units::most;

/// Schema number of the file.
const SCHEMA: u32 = 1;

/// Emissions per kWh.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Intensity {
    /// Kilograms of CO2e.
    pub kg_per_kwh: f64,
    /// Place and year of the average; `None` if the number is from a price file.
    pub average: Option<(&'static str, u16)>,
}

/// Emissions per kWh, by place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Intensities(BTreeMap<String, (f64, u16)>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(rename = "table")]
    tables: Vec<Table>,
}

/// Figures of one source for one year.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    year: u16,
    source: String,
    kg_co2_per_kwh: BTreeMap<String, f64>,
}

impl Intensities {
    /// Parses the file.
    ///
    /// # Errors
    /// [`SnapshotError`] with the line, or the place and the value.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        let wrong = |problem: String| Err(SnapshotError(problem));
        let file: File =
            toml::from_str(text).map_err(|error| SnapshotError(error.to_string().trim_end().to_owned()))?;
        if file.schema != SCHEMA {
            return wrong(format!("schema: found {}, this program reads {SCHEMA}", file.schema));
        }
        let mut all = BTreeMap::new();
        for table in file.tables {
            if table.source.trim().is_empty() {
                return wrong(format!("source: missing for the table of {}", table.year));
            }
            for (place, kg) in table.kg_co2_per_kwh {
                if !(0.0..=most::KG_CO2_PER_KWH).contains(&kg) {
                    return wrong(format!("{place}: {kg:?}; use a number from 0 to {}", most::KG_CO2_PER_KWH));
                }
                if all.insert(place.clone(), (kg, table.year)).is_some() {
                    return wrong(format!("{place}: twice; remove one of them"));
                }
            }
        }
        Ok(Self(all))
    }

    /// Intensity of a region: of its state if known, otherwise of its country; `None` if both are unknown.
    pub(super) fn of(&self, provider: &str, region: &str) -> Option<Intensity> {
        let place = region::place(provider, region)?;
        let known = |place: &'static str| {
            let (kg_per_kwh, year) = *self.0.get(place)?;
            Some(Intensity { kg_per_kwh, average: Some((place, year)) })
        };
        known(place).or_else(|| known(region::country_of(place)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pricing::shipped;

    #[test]
    fn shipped_offers_have_an_intensity_where_their_place_is_known() {
        let all = shipped::intensities();
        let unknown: std::collections::BTreeSet<_> = shipped::prices()
            .iter()
            .flat_map(|file| file.offers().collect::<Vec<_>>())
            .filter(|offer| all.of(&offer.provider, &offer.region).is_none())
            .map(|offer| (offer.provider, offer.region))
            .collect();
        // The other price lists name several countries or none.
        let one_place: Vec<_> =
            unknown.iter().filter(|(provider, region)| region::place(provider, region).is_some()).collect();
        assert_eq!(one_place, [] as [&(String, String); 0]);
        // 539.599 lb/MWh.
        let virginia = all.of("aws", "us-east-1").unwrap();
        assert_eq!((virginia.kg_per_kwh, virginia.average), (0.2448, Some(("us-va", 2023))));
        // A state without an entry has the average of the country.
        assert_eq!(all.of("vast", "West Virginia, US, NA").unwrap().average, Some(("us", 2023)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = "schema = 1\n[[table]]\nyear = 2023\nsource = \"s\"\n[table.kg_co2_per_kwh]\nfr = 0.056\n";
        assert_eq!(Intensities::parse(text).unwrap().of("aws", "eu-west-3").unwrap().kg_per_kwh, 0.056);
        for (from, to, said) in [
            ("0.056", "-1.0", "fr: -1.0; use a number from 0"),
            ("0.056", "nan", "fr: NaN"),
            ("0.056", "56.0", "from 0 to 10"),
            ("schema = 1", "schema = 2", "schema: found 2"),
            ("\"s\"", "\"\"", "source: missing"),
            ("year = 2023\n", "", "year"),
        ] {
            let error = Intensities::parse(&text.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(said), "{to}: {error}");
        }
        let twice = format!("{text}{}", text.replace("schema = 1", ""));
        assert!(Intensities::parse(&twice).unwrap_err().to_string().contains("fr: twice"));
    }
}
