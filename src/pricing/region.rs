//! Regions of the large providers in plain words, as their own pages name them.

/// Provider, region, name.
const NAMES: &[(&str, &str, &str)] = &[
    ("aws", "af-south-1", "Africa (Cape Town)"),
    ("aws", "ap-east-1", "Asia Pacific (Hong Kong)"),
    ("aws", "ap-northeast-1", "Asia Pacific (Tokyo)"),
    ("aws", "ap-northeast-2", "Asia Pacific (Seoul)"),
    ("aws", "ap-northeast-3", "Asia Pacific (Osaka)"),
    ("aws", "ap-south-1", "Asia Pacific (Mumbai)"),
    ("aws", "ap-south-2", "Asia Pacific (Hyderabad)"),
    ("aws", "ap-southeast-1", "Asia Pacific (Singapore)"),
    ("aws", "ap-southeast-2", "Asia Pacific (Sydney)"),
    ("aws", "ap-southeast-3", "Asia Pacific (Jakarta)"),
    ("aws", "ap-southeast-4", "Asia Pacific (Melbourne)"),
    ("aws", "ca-central-1", "Canada (Central)"),
    ("aws", "ca-west-1", "Canada West (Calgary)"),
    ("aws", "eu-central-1", "Europe (Frankfurt)"),
    ("aws", "eu-central-2", "Europe (Zurich)"),
    ("aws", "eu-north-1", "Europe (Stockholm)"),
    ("aws", "eu-south-1", "Europe (Milan)"),
    ("aws", "eu-south-2", "Europe (Spain)"),
    ("aws", "eu-west-1", "Europe (Ireland)"),
    ("aws", "eu-west-2", "Europe (London)"),
    ("aws", "eu-west-3", "Europe (Paris)"),
    ("aws", "il-central-1", "Israel (Tel Aviv)"),
    ("aws", "me-central-1", "Middle East (UAE)"),
    ("aws", "me-south-1", "Middle East (Bahrain)"),
    ("aws", "sa-east-1", "South America (São Paulo)"),
    ("aws", "us-east-1", "US East (N. Virginia)"),
    ("aws", "us-east-2", "US East (Ohio)"),
    ("aws", "us-west-1", "US West (N. California)"),
    ("aws", "us-west-2", "US West (Oregon)"),
    ("azure", "australiaeast", "Australia East (New South Wales)"),
    ("azure", "brazilsouth", "Brazil South (São Paulo State)"),
    ("azure", "canadacentral", "Canada Central (Toronto)"),
    ("azure", "centralindia", "Central India (Pune)"),
    ("azure", "centralus", "Central US (Iowa)"),
    ("azure", "eastasia", "East Asia (Hong Kong)"),
    ("azure", "eastus", "East US (Virginia)"),
    ("azure", "eastus2", "East US 2 (Virginia)"),
    ("azure", "francecentral", "France Central (Paris)"),
    ("azure", "germanywestcentral", "Germany West Central (Frankfurt)"),
    ("azure", "japaneast", "Japan East (Tokyo, Saitama)"),
    ("azure", "koreacentral", "Korea Central (Seoul)"),
    ("azure", "northcentralus", "North Central US (Illinois)"),
    ("azure", "northeurope", "North Europe (Ireland)"),
    ("azure", "southcentralus", "South Central US (Texas)"),
    ("azure", "southeastasia", "Southeast Asia (Singapore)"),
    ("azure", "swedencentral", "Sweden Central (Gävle)"),
    ("azure", "uksouth", "UK South (London)"),
    ("azure", "westeurope", "West Europe (Netherlands)"),
    ("azure", "westus", "West US (California)"),
    ("azure", "westus2", "West US 2 (Washington)"),
    ("azure", "westus3", "West US 3 (Phoenix)"),
    ("gcp", "asia-east1", "Taiwan"),
    ("gcp", "asia-northeast1", "Tokyo"),
    ("gcp", "asia-northeast3", "Seoul"),
    ("gcp", "asia-south1", "Mumbai"),
    ("gcp", "asia-southeast1", "Singapore"),
    ("gcp", "australia-southeast1", "Sydney"),
    ("gcp", "europe-west1", "Belgium"),
    ("gcp", "europe-west2", "London"),
    ("gcp", "europe-west3", "Frankfurt"),
    ("gcp", "europe-west4", "Netherlands"),
    ("gcp", "me-west1", "Tel Aviv"),
    ("gcp", "northamerica-northeast1", "Montréal"),
    ("gcp", "southamerica-east1", "São Paulo"),
    ("gcp", "us-central1", "Iowa"),
    ("gcp", "us-east1", "South Carolina"),
    ("gcp", "us-east4", "Northern Virginia"),
    ("gcp", "us-east5", "Columbus"),
    ("gcp", "us-south1", "Dallas"),
    ("gcp", "us-west1", "Oregon"),
    ("gcp", "us-west2", "Los Angeles"),
    ("gcp", "us-west3", "Salt Lake City"),
    ("gcp", "us-west4", "Las Vegas"),
];

/// Where a region is; `None` where it is not known, or its own name says it.
pub(super) fn name(provider: &str, region: &str) -> Option<&'static str> {
    NAMES.iter().find(|(of, id, _)| (*of, *id) == (provider, region)).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_have_one_name_each() {
        assert_eq!(name("aws", "us-east-1"), Some("US East (N. Virginia)"));
        // Lambda's region of that name is its own.
        assert_eq!(name("lambda", "us-east-1"), None);
        assert!(NAMES.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1)));
    }
}
