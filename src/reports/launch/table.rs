//! How jobs start, as the user types it: `[launch]` of the settings file, of a plan's file and of a file of jobs, and the
//! flags of the same names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::LaunchError;
use habitat_base::text;

/// A framework that takes its layout from flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Framework {
    /// Megatron-LM (`pretrain_gpt.py`, Megatron Core 0.12 or later; 0.13 for unequal stages).
    Megatron,
    /// torchtitan (`torchtitan.train`, 0.2; in 0.3 recomputation is not a flag but part of a configuration).
    Torchtitan,
}

/// How the parts of a plan start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Launch {
    /// The training command, as typed on one GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Framework whose flags for the layout follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framework: Option<Framework>,
    /// Command that prepares a machine (`pip install -r requirements.txt`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_command: Option<String>,
    /// Folder with the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Folder of checkpoints that outlives a machine; the command finds it in `CHECKPOINT_DIR`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_dir: Option<String>,
    /// Container image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// CPUs of one machine, instead of the offer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Host memory of one machine in GB, instead of the offer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<u32>,
    /// Disk of one machine in GB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gb: Option<u32>,
    /// Partition of a Slurm cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Kueue queue of a Kubernetes cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Environment variables; those without a value come from the environment of whoever starts the job.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Storage by the path at which the job finds it: a bucket's URL, a volume or a claim.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mounts: BTreeMap<String, String>,
}

/// Whether a character ends a line, or is none of text, in a shell or in YAML.
pub(super) fn is_broken(c: char) -> bool {
    c.is_control() || ['\u{2028}', '\u{2029}', '\u{feff}'].contains(&c)
}

/// Whether a text is one line of a shell with closed quotes.
pub(super) fn is_line(text: &str) -> bool {
    !text.trim().is_empty() && !text.chars().any(is_broken) && shell_words::split(text).is_ok()
}

/// Whether a text is a path that a shell reads as one word; variables (`$SCRATCH/run`) are allowed.
fn is_path(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && text.chars().all(|c| c.is_alphanumeric() || "/._-+=:@~${}".contains(c))
}

fn is_variable(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A key, its value, whether a value is valid, and what is expected.
type Rule<'a> = (&'static str, &'a Option<String>, &'a dyn Fn(&str) -> bool, &'static str);

impl Launch {
    /// Fills in what is missing from `other`. Of variables and mounts, both are kept.
    #[must_use]
    pub fn or(self, other: &Self) -> Self {
        let both =
            |own: BTreeMap<_, _>, other: &BTreeMap<String, String>| other.clone().into_iter().chain(own).collect();
        // Flags of a framework belong to its command.
        let framework = self.framework.or_else(|| other.framework.filter(|_| self.command.is_none()));
        Self {
            framework,
            command: self.command.or_else(|| other.command.clone()),
            setup_command: self.setup_command.or_else(|| other.setup_command.clone()),
            workdir: self.workdir.or_else(|| other.workdir.clone()),
            checkpoint_dir: self.checkpoint_dir.or_else(|| other.checkpoint_dir.clone()),
            image: self.image.or_else(|| other.image.clone()),
            cpus: self.cpus.or(other.cpus),
            memory_gb: self.memory_gb.or(other.memory_gb),
            disk_gb: self.disk_gb.or(other.disk_gb),
            partition: self.partition.or_else(|| other.partition.clone()),
            queue: self.queue.or_else(|| other.queue.clone()),
            env: both(self.env, &other.env),
            mounts: both(self.mounts, &other.mounts),
        }
    }

    /// Checks every value by the rules of shells and of all tools.
    ///
    /// # Errors
    /// [`LaunchError::Invalid`] with the key, the value and what is expected.
    pub fn check(&self) -> Result<(), LaunchError> {
        let word =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-,".contains(c));
        let plain = |text: &str| is_path(text) && !text.contains(['$', '{', '}', '~']);
        let texts: [Rule<'_>; 7] = [
            ("command", &self.command, &is_line, "one line of text with closed quotes, such as 'python train.py'"),
            (
                "setup-command",
                &self.setup_command,
                &is_line,
                "one line of text with closed quotes, such as 'pip install -r requirements.txt'",
            ),
            ("workdir", &self.workdir, &plain, "a folder without spaces, such as . or /home/me/project"),
            (
                "checkpoint-dir",
                &self.checkpoint_dir,
                &is_path,
                "a folder without spaces, such as /checkpoints or $SCRATCH/run",
            ),
            ("image", &self.image, &plain, "the name of an image, such as pytorch/pytorch:latest"),
            ("partition", &self.partition, &word, "letters, digits and . _ - ,"),
            ("queue", &self.queue, &word, "letters, digits and . _ -"),
        ];
        for (key, value, is_valid, expected) in texts {
            if let Some(value) = value.as_ref().filter(|value| !is_valid(value)) {
                return Err(LaunchError::invalid(key, value, expected));
            }
        }
        let numbers = [("cpus", self.cpus), ("memory-gb", self.memory_gb), ("disk-gb", self.disk_gb)];
        if let Some((key, _)) = numbers.into_iter().find(|(_, value)| *value == Some(0)) {
            return Err(LaunchError::invalid(key, "0", "a number above 0"));
        }
        for (name, value) in &self.env {
            if !is_variable(name) || value.chars().any(is_broken) {
                return Err(LaunchError::invalid(
                    "env",
                    &format!("{name}={value}"),
                    "KEY=VALUE, such as LR=0.1, or KEY alone",
                ));
            }
            let typed = format!("{name}={value}");
            let masked = text::without_secrets(&[&typed]);
            if !value.is_empty() && masked.first() != Some(&typed) {
                let expected = "KEY alone for a secret, which the plan's file would keep as text";
                return Err(LaunchError::invalid("env", masked.first().map_or("", String::as_str), expected));
            }
        }
        for (path, source) in &self.mounts {
            if !path.starts_with('/') || !plain(path) || !plain(source) {
                let expected = "PATH=SOURCE, such as /data=s3://bucket/data";
                return Err(LaunchError::invalid("mount", &format!("{path}={source}"), expected));
            }
        }
        Ok(())
    }

    /// Storage that holds the checkpoints: its path and its source.
    pub(super) fn checkpoint_mount(&self) -> Option<(&String, &String)> {
        let folder = self.checkpoint_dir.as_ref()?;
        let holds = |path: &str| folder.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        self.mounts.iter().filter(|(path, _)| holds(path.trim_end_matches('/'))).max_by_key(|(path, _)| path.len())
    }
}

impl LaunchError {
    /// Error for a value of `[launch]`.
    pub(super) fn invalid(key: &'static str, value: &str, expected: &'static str) -> Self {
        Self::Invalid { key, value: text::clean(value, 80), expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_settings_and_keep_their_variables() {
        let of = |text: &str| toml::from_str::<Launch>(text).unwrap();
        let typed = of("command = \"python a.py\"\nenv = { LR = \"1\" }");
        let usual =
            of("command = \"x\"\nframework = \"megatron\"\npartition = \"gpu\"\nenv = { LR = \"2\", SEED = \"3\" }");
        let both = typed.or(&usual);
        assert_eq!(both, of("command = \"python a.py\"\npartition = \"gpu\"\nenv = { LR = \"1\", SEED = \"3\" }"));
        assert_eq!(Launch::default().or(&usual).framework, Some(Framework::Megatron));
        let secret = of("env = { HF_TOKEN = \"hf_abcdefghijklmnop\" }").check().unwrap_err().to_string();
        assert!(secret.contains("KEY alone") && !secret.contains("hf_abc"), "{secret}");
        assert!(toml::from_str::<Launch>("program = \"x\"").is_err());
    }

    #[test]
    fn values_that_would_leave_their_place_are_refused() {
        let why = |text: &str| toml::from_str::<Launch>(text).unwrap().check().unwrap_err().to_string();
        for (text, key) in [
            ("command = \"a\\nrm\"", "--command"),
            ("setup_command = \"echo 'x\"", "--setup-command"),
            ("workdir = \"a b\"", "--workdir"),
            ("checkpoint_dir = \"/c;rm\"", "--checkpoint-dir"),
            ("partition = \"gpu\\n#SBATCH --x\"", "--partition"),
            ("queue = \"\"", "--queue"),
            ("image = \"$(x)\"", "--image"),
            ("cpus = 0", "--cpus"),
            ("[env]\n\"A B\" = \"1\"", "--env"),
            ("[mounts]\ndata = \"x\"", "--mount"),
        ] {
            assert!(why(text).starts_with(&format!("invalid {key} ")), "{}", why(text));
        }
        let held =
            toml::from_str::<Launch>("checkpoint_dir = \"/c/run\"\n[mounts]\n\"/c\" = \"s3://b\"\n\"/cr\" = \"x\"");
        assert_eq!(held.unwrap().checkpoint_mount(), Some((&"/c".to_owned(), &"s3://b".to_owned())));
    }
}
