//! Price files: one TOML file per provider, with a date and a source for each price.
//!
//! ```toml
//! schema = 1
//! provider = "aws"
//! billing = "hour"                # each started hour is billed; omit if the time used is billed
//! egress_usd_per_gb = 0.09        # for data that leave the provider; omit if unknown
//! egress_other_region_usd_per_gb = 0.02 # for data that go to another region of the provider; likewise
//! storage_usd_per_gb_month = 0.08 # for stored data, per month of 730 hours; likewise
//! recalled = ["egress"]           # those of billing, egress and storage that were entered without a source
//! pue = 1.15                      # power of its data centres relative to that of the machines; likewise
//! kg_co2_per_kwh = 0.3            # of its electricity; omit to use that of the region
//! until = "2026-12-31"             # last day of this list's prices, if a newer one is announced; omit if unknown
//! complete = true                 # in a user's file: removes all shipped offers of this provider
//!
//! [[offer]]
//! region = "us-east-1"
//! instance_type = "g5.xlarge"
//! gpu_name = "A10G"
//! gpu = "a10g"                    # slug in the catalog; omit if the board is unknown
//! gpu_count = 1
//! machines = 2                    # how many of an own machine one job can have (default 1)
//! gpu_memory_gib = 24
//! vcpus = 4
//! host_memory_gib = 16
//! network_gbit_per_second = 10    # line rate to other machines; omit if unknown
//! on_demand_usd_per_hour = 1.006  # for the whole offer; at least one of the two prices
//! spot_usd_per_hour = 0.5089
//! scope = "instance_total"        # or composed, gpu_only, host_only; plans do not use the last two
//! market = "peer-to-peer"         # for a marketplace host; omit if the provider itself rents it out
//! tier = "owned"                  # or reserved, instead of the two prices; see `held` for their keys
//! suspect = "..."                 # reason to doubt the price; plans do not use such an offer
//! note = "..."
//! as_of = "2026-07-20"            # omit if the source has no date
//! until = "2026-12-31"            # last day of this price; omit to use that of the list
//! source = "repository:path@commit"
//! ```

mod held;

use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use super::offer::{Offer, OfferId, Unusable};
use super::terms::{Billing, Terms};
use super::tier::Tier;
use super::trust::{Market, Trust};
use habitat_base::text;
use habitat_base::units::{Bytes, GIB, GpuSlug, UsdPerHour, most};
use held::Tiered;

/// Maximum memory in GiB, and number of processors, of a machine.
const MOST_SIZE: f64 = 1e7;

/// Schema number of price files.
const SCHEMA: u32 = 1;

/// Error in a price file, with key and place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SnapshotError(pub String);

/// Prices of one provider, as in its file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Version of the format, 1.
    pub schema: u32,
    /// Provider, such as `aws`.
    pub provider: String,
    /// Whether these are all offers of the provider, so that shipped offers of it are removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub complete: bool,
    /// Unit of billed time for all offers.
    #[serde(default, skip_serializing_if = "is_exact")]
    pub billing: Billing,
    /// US dollars per GB of data that leaves the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_usd_per_gb: Option<f64>,
    /// US dollars per GB of data that goes to another region of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_other_region_usd_per_gb: Option<f64>,
    /// US dollars per GB of stored data per month of 730 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_usd_per_gb_month: Option<f64>,
    /// Those of the keys above that were entered without a source.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recalled: Vec<Recalled>,
    /// Power of its data centres relative to that of the machines (PUE), 1 or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pue: Option<f64>,
    /// Kilograms of CO2e per kWh of its electricity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kg_co2_per_kwh: Option<f64>,
    /// Last day of these prices, if a newer list follows. An offer that is dated later has a price of the newer list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Date>,
    /// Offers; empty if the file has terms only.
    #[serde(default, rename = "offer")]
    pub offers: Vec<Row>,
}

/// A term that is known from public statements, without a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recalled {
    /// Unit of billed time.
    Billing,
    /// Price of egress.
    Egress,
    /// Price of storage.
    Storage,
}

/// One machine in one region, with its on-demand and spot prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Region in the provider's spelling.
    pub region: String,
    /// Instance type in the provider's spelling.
    pub instance_type: String,
    /// Name of the GPU in the provider's spelling; absent for hosts without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_name: Option<String>,
    /// Slug of the GPU in the catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuSlug>,
    /// GPUs of the whole offer.
    pub gpu_count: u32,
    /// Number of such machines that one job can have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machines: Option<u32>,
    /// Memory of one GPU, nominal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_memory_gib: Option<f64>,
    /// Virtual CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<f64>,
    /// Memory of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_memory_gib: Option<f64>,
    /// Line rate of the network to other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_gbit_per_second: Option<f64>,
    /// On-demand price.
    #[serde(default, rename = "on_demand_usd_per_hour", skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<UsdPerHour>,
    /// Spot price.
    #[serde(default, rename = "spot_usd_per_hour", skip_serializing_if = "Option::is_none")]
    pub spot: Option<UsdPerHour>,
    /// Owned or reserved, instead of the two prices; reserved is already paid or to be bought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// Owned: power of the whole machine under load, in kW.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kw: Option<f64>,
    /// Owned: PUE of the building; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pue: Option<f64>,
    /// Owned: price of electricity, in US dollars per kWh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_kwh: Option<f64>,
    /// Owned: wear, or other cost per hour of use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wear_usd_per_hour: Option<UsdPerHour>,
    /// Reserved, already paid: amount paid per hour, used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid_usd_per_hour: Option<UsdPerHour>,
    /// Reserved, to be bought: price per hour of the term, used or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_hour: Option<UsdPerHour>,
    /// Reserved, to be bought: hours per term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term_hours: Option<u32>,
    /// Scope of the price.
    pub scope: Scope,
    /// Seller of the machine time.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub market: Market,
    /// Reason to doubt the price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspect: Option<String>,
    /// Remarks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Date of the snapshot, as `2026-07-20`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Date>,
    /// Last day on which the price applies; absent to use that of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Date>,
    /// Source of the price.
    pub source: String,
}

/// Scope of a price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The whole machine.
    InstanceTotal,
    /// The whole machine, as a sum of a GPU price and a host price.
    Composed,
    /// The GPUs without a host.
    GpuOnly,
    /// A host without GPUs.
    HostOnly,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_exact(billing: &Billing) -> bool {
    *billing == Billing::Exact
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's form")]
fn is_usual(market: &Market) -> bool {
    *market == Market::Provider
}

impl Snapshot {
    /// Parses a price file.
    ///
    /// # Errors
    /// [`SnapshotError`] with the line or the offer, the key and the value.
    pub fn parse(text: &str) -> Result<Self, SnapshotError> {
        if text.trim().is_empty() {
            return Err(SnapshotError("the file is empty; it needs schema, provider and [[offer]] tables".to_owned()));
        }
        let snapshot: Self =
            toml::from_str(text).map_err(|error| SnapshotError(error.to_string().trim_end().to_owned()))?;
        if snapshot.schema != SCHEMA {
            return Err(SnapshotError(format!("schema: found {}, this program reads {SCHEMA}", snapshot.schema)));
        }
        if text::is_unsafe(&snapshot.provider) {
            return Err(SnapshotError("provider: has control or invisible characters; write plain text".to_owned()));
        }
        for (key, value, least, most) in [
            ("egress_usd_per_gb", snapshot.egress_usd_per_gb, 0.0, 1e3),
            ("egress_other_region_usd_per_gb", snapshot.egress_other_region_usd_per_gb, 0.0, 1e3),
            ("storage_usd_per_gb_month", snapshot.storage_usd_per_gb_month, 0.0, 1e3),
            ("pue", snapshot.pue, 1.0, 100.0),
            ("kg_co2_per_kwh", snapshot.kg_co2_per_kwh, 0.0, most::KG_CO2_PER_KWH),
        ] {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(SnapshotError(format!("{key}: {value:?}; use a number from {least} to {most}")));
            }
        }
        if snapshot.offers.is_empty() && snapshot.terms() == Terms::default() {
            return Err(SnapshotError("offer: missing; the file has no [[offer]] table".to_owned()));
        }
        for (index, row) in snapshot.offers.iter().enumerate() {
            row.check().map_err(|problem| {
                let (what, place) = (text::clean(&row.instance_type, 60), text::clean(&row.region, 60));
                SnapshotError(format!("offer {} ({what} in {place}): {problem}", index + 1))
            })?;
        }
        Ok(snapshot)
    }

    /// Terms for all offers of the provider.
    pub fn terms(&self) -> Terms {
        Terms {
            billing: self.billing,
            egress_usd_per_gb: self.egress_usd_per_gb,
            egress_other_region_usd_per_gb: self.egress_other_region_usd_per_gb,
            egress_is_recalled: self.recalled.contains(&Recalled::Egress),
            storage_usd_per_gb_month: self.storage_usd_per_gb_month,
            storage_is_recalled: self.recalled.contains(&Recalled::Storage),
            pue: self.pue,
            kg_co2_per_kwh: self.kg_co2_per_kwh,
        }
    }

    /// Offers, one for each tier.
    pub fn offers(&self) -> impl Iterator<Item = Offer> + '_ {
        self.offers.iter().flat_map(|row| {
            let tiered = held::read(row).ok().flatten();
            let rented = [(Tier::OnDemand, row.on_demand), (Tier::Spot, row.spot)];
            let rented = rented
                .into_iter()
                .filter_map(|(tier, price)| Some(Tiered { tier, price: price?, held: None, term_hours: None }));
            let of_list = self.until.filter(|until| row.as_of.is_none_or(|as_of| as_of <= *until));
            let offers = rented.chain(tiered).map(|tiered| row.offer(&self.provider, tiered));
            offers.map(move |offer| Offer { until: offer.until.or(of_list), ..offer })
        })
    }
}

impl Row {
    fn check(&self) -> Result<(), String> {
        let texts = [
            ("region", Some(&self.region)),
            ("instance_type", Some(&self.instance_type)),
            ("gpu_name", self.gpu_name.as_ref()),
            ("suspect", self.suspect.as_ref()),
            ("note", self.note.as_ref()),
            ("source", Some(&self.source)),
        ];
        if let Some((key, _)) = texts.into_iter().find(|(_, text)| text.is_some_and(|text| text::is_unsafe(text))) {
            return Err(format!("{key}: has control or invisible characters; write plain text"));
        }
        for (key, price) in [("on_demand_usd_per_hour", self.on_demand), ("spot_usd_per_hour", self.spot)] {
            if price.is_some_and(|price| price.get() == 0.0) && self.scope != Scope::HostOnly {
                return Err(format!("{key}: 0 is not a valid price; remove the key if it is not offered"));
            }
        }
        if let Some((until, as_of)) = self.until.zip(self.as_of).filter(|(until, as_of)| until < as_of) {
            return Err(format!(
                "until: {until} is before as_of, {as_of}; set the last day on which the price applies"
            ));
        }
        let has_tier = held::read(self)?.is_some();
        if self.on_demand.is_none() && self.spot.is_none() && !has_tier {
            return Err("on_demand_usd_per_hour and spot_usd_per_hour: both missing; set at least one".to_owned());
        }
        if self.gpu_count == 0 && self.scope != Scope::HostOnly {
            return Err("gpu_count: 0; an offer has at least one GPU (or scope = \"host_only\")".to_owned());
        }
        if self.gpu_count > most::GPUS {
            return Err(format!("gpu_count: {}; at most {} is allowed", self.gpu_count, most::GPUS));
        }
        if let Some(machines) = self.machines.filter(|machines| !(1..=most::GPUS).contains(machines)) {
            return Err(format!(
                "machines: {machines}; use a number from 1 to {} (remove the key if unlimited)",
                most::GPUS
            ));
        }
        for (key, size, most) in [
            ("gpu_memory_gib", self.gpu_memory_gib, MOST_SIZE),
            ("host_memory_gib", self.host_memory_gib, MOST_SIZE),
            ("vcpus", self.vcpus, MOST_SIZE),
            ("network_gbit_per_second", self.network_gbit_per_second, most::NETWORK_GBIT),
        ] {
            if let Some(size) = size
                && !(size > 0.0 && size <= most)
            {
                return Err(format!(
                    "{key}: {size:?}; use a number above 0 and at most {most:e} (remove the key if unknown)"
                ));
            }
        }
        Ok(())
    }

    fn offer(&self, provider: &str, Tiered { tier, price, held, term_hours }: Tiered) -> Offer {
        let unusable = match self.scope {
            Scope::GpuOnly => Some(Unusable::GpusOnly),
            Scope::HostOnly => Some(Unusable::HostOnly),
            Scope::InstanceTotal | Scope::Composed => match &self.suspect {
                Some(why) => Some(Unusable::Suspect { why: why.clone() }),
                // Some catalogs repeat the on-demand price if no spot price is published.
                None if tier == Tier::Spot
                    && self.on_demand.is_some_and(|on_demand| price.get() >= on_demand.get()) =>
                {
                    Some(Unusable::NoDiscount)
                }
                None => None,
            },
        };
        let gib = |size: Option<f64>| size.map(|gib| Bytes::known(gib * GIB));
        let id = OfferId::new(provider, &self.region, &self.instance_type, tier);
        Offer {
            id: term_hours.map_or(id.clone(), |hours| id.with_term(hours)),
            provider: provider.to_owned(),
            region: self.region.clone(),
            instance_type: self.instance_type.clone(),
            gpu_name: self.gpu_name.clone().unwrap_or_else(|| "no GPU".to_owned()),
            gpu: self.gpu.clone(),
            gpu_count: self.gpu_count,
            machines: self.machines,
            share_of: None,
            gpu_memory: gib(self.gpu_memory_gib),
            vcpus: self.vcpus,
            host_memory: gib(self.host_memory_gib),
            network_gbit_per_second: self.network_gbit_per_second,
            tier,
            price,
            as_of: self.as_of,
            until: self.until,
            trust: Trust::new(self.market),
            held,
            term_hours,
            source: self.source.clone(),
            unusable,
            note: self.note.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
