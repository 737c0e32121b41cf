//! Own machines on the command line.

use std::fmt;

use clap::Args;

use habitat_base::text;
use habitat_base::units::most;
use habitat_planning::values;

/// Own machines for plans, without a price file.
#[derive(Debug, Clone, Default, PartialEq, Args)]
pub struct OwnArgs {
    /// Your own machines by their GPUs (2x3090, rtx-4090, or 4x8xh100: 4 machines with 8 GPUs each).
    ///
    /// Their cost is electricity. For other costs, use a price file.
    #[arg(long, value_name = "[[M×]N×]GPU", value_delimiter = ',', value_parser = own_machine, help_heading = "Offers")]
    pub own: Vec<OwnMachine>,
    /// Electricity price of own machines in US dollars per kWh (default: 0.16).
    #[arg(long, value_name = "USD", value_parser = values::usd_per_kwh, allow_hyphen_values = true, requires = "own", help_heading = "Offers")]
    pub usd_per_kwh: Option<f64>,
}

/// An own machine as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnMachine {
    /// Number of machines.
    pub machines: u32,
    /// Number of GPUs of one machine.
    pub count: u32,
    /// Name of the GPU.
    pub gpu: String,
}

impl fmt::Display for OwnMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machines, count, gpu } = self;
        if *machines > 1 {
            write!(f, "{machines}x")?;
        }
        write!(f, "{count}x{gpu}")
    }
}

impl OwnArgs {
    /// The machines as typed.
    pub fn names(&self) -> Vec<String> {
        self.own.iter().map(ToString::to_string).collect()
    }

    /// Parses typed machines, such as those in a plan's file.
    ///
    /// # Errors
    /// The invalid machine or price.
    pub fn new(names: &[String], usd_per_kwh: Option<f64>) -> Result<Self, String> {
        let own = names.iter().map(|name| own_machine(name)).collect::<Result<_, _>>()?;
        let usd_per_kwh = usd_per_kwh.map(|price| values::usd_per_kwh(&price.to_string())).transpose()?;
        Ok(Self { own, usd_per_kwh })
    }
}

/// Parses `2x3090`, `2 x RTX 3090`, `3090x2`, `rtx-4090`, or `a100:8` as in `SkyPilot` and Slurm.
///
/// `4x8xh100` is four machines.
fn own_machine(typed: &str) -> Result<OwnMachine, String> {
    let times = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0)?;
        let rest = text[digits..].trim_start().strip_prefix(['x', 'X', '×', '*'])?.trim_start();
        Some((text[..digits].to_owned(), rest.to_owned()))
    };
    let problem = || {
        let typed = text::clean(typed, 60);
        format!("{typed:?} is not a valid machine; expected its GPUs, such as 2x3090, rtx-4090 or 4x8xh100")
    };
    if let Some((machines, one)) = times(typed.trim()).filter(|(_, one)| times(one).is_some()) {
        if times(&one).is_some_and(|(_, gpu)| times(&gpu).is_some()) {
            return Err(problem());
        }
        let machines = values::within(1, most::GPUS.into())(&machines)?;
        return Ok(OwnMachine { machines, ..own_machine(&one)? });
    }
    let trimmed = typed.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    let behind = trimmed[digits..].trim_start().strip_prefix(['x', 'X', '×', '*']);
    // `3090x2`: no GPU name ends like this.
    let is_count = |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let at_end = trimmed.rsplit_once(['x', 'X', '×', '*']).map(|(gpu, count)| (gpu, count.trim()));
    let at_end = at_end.filter(|(gpu, count)| is_count(count) && gpu.trim().len() > 2);
    let (count, gpu) = match (at_end, behind, trimmed.rsplit_once(':')) {
        (Some((gpu, count)), ..) => (count, gpu),
        (_, Some(gpu), _) if digits > 0 => (&trimmed[..digits], gpu),
        (.., Some((gpu, count))) => (count, gpu),
        _ => ("1", trimmed),
    };
    let (count, gpu) = (count.trim(), gpu.trim());
    if gpu.is_empty() {
        return Err(problem());
    }
    let count = values::within(1, most::GPUS.into())(count).map_err(|why| format!("{}: {why}", problem()))?;
    Ok(OwnMachine { machines: 1, count, gpu: gpu.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_as_people_write_them() {
        for (text, count, gpu) in [
            ("2x3090", 2, "3090"),
            ("2x rtx-3090", 2, "rtx-3090"),
            ("2 x RTX 3090", 2, "RTX 3090"),
            ("8×h100", 8, "h100"),
            ("8*a100", 8, "a100"),
            ("A100-80GB:8", 8, "A100-80GB"),
            ("rtx-4090", 1, "rtx-4090"),
            ("4090", 1, "4090"),
            ("mi300x", 1, "mi300x"),
            ("3090x2", 2, "3090"),
            ("a100 x 8", 8, "a100"),
            ("rtx3090", 1, "rtx3090"),
            ("4xrtx3090", 4, "rtx3090"),
            ("8xmi300x", 8, "mi300x"),
        ] {
            assert_eq!(own_machine(text), Ok(OwnMachine { machines: 1, count, gpu: gpu.to_owned() }), "{text}");
        }
        for (text, shown) in [("4x8xh100", "4x8xh100"), ("2 × 2 × RTX 3090", "2x2xRTX 3090"), ("1x2x4090", "2x4090")]
        {
            assert_eq!(own_machine(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "2x",
            "0x3090",
            "x:",
            "3090:0",
            "3090:two",
            "9999999x3090",
            ":2",
            "0x8xh100",
            "2x0xh100",
            "2x8x",
            "2x8x4xh100",
        ] {
            assert!(own_machine(wrong).is_err(), "{wrong}");
        }
    }
}
