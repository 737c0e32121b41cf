//! Removes secrets from command lines, for files and screens.
//!
//! A value is replaced if its name looks like that of a secret: `--api-key VALUE`, `--token=VALUE`,
//! `WANDB_API_KEY=VALUE`, `"password": VALUE`, `Authorization: Bearer VALUE`, `?token=VALUE` in a URL. Also replaced
//! are `user:password@` in URLs, and tokens with the prefix of a well-known service. Quoted text (`sh -c "…"`) is
//! searched as well. So are what follows `Bearer`, text of two words that begins with `Basic` or `Token`, and what
//! follows `-p` (a password to many programs) unless it is a number. False positives are possible: `--sort-key name`
//! and `mkdir -p out` lose their values. A secret without a name, or after another single-letter flag, is not
//! recognised.

/// Replacement for a secret.
pub const MASK: &str = "***";

/// Replaces the secrets in the words of a command by [`MASK`].
pub fn without_secrets<S: AsRef<str>>(words: &[S]) -> Vec<String> {
    let mut masker = Masker::default();
    words.iter().map(|word| masker.argument(word.as_ref())).collect()
}

#[derive(Default)]
struct Masker {
    /// Whether the next word is a secret's value.
    expects: bool,
    /// Whether that is so unless it is a number.
    may_be_number: bool,
}

/// Name parts of secrets, matched anywhere in a name.
const WITHIN: [&str; 9] =
    ["password", "passwd", "passphrase", "passcode", "secret", "credential", "apikey", "accesskey", "authorization"];
/// Name parts of secrets, matched as whole words of a name.
const WORDS: [&str; 11] = ["pass", "pwd", "pw", "auth", "bearer", "cookie", "sig", "signature", "dsn", "jwt", "sas"];
/// Prefixes of well-known tokens: Hugging Face, `GitHub`, `GitLab`, `OpenAI`, AWS, Slack, Google, JWT.
const PREFIXES: [&str; 12] =
    ["hf_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "AKIA", "ASIA", "xoxb-", "AIza", "eyJ"];
/// Minimum length of these tokens, in bytes.
const SHORTEST_TOKEN: usize = 16;
/// Authorisation schemes that precede the secret. No command has the first as another word.
const SCHEMES: [&str; 3] = ["bearer", "basic", "token"];
/// Flag that many programs take a password from.
const PASSWORD_FLAG: &str = "-p";

fn is_scheme(word: &str) -> bool {
    SCHEMES.iter().any(|scheme| word.trim().eq_ignore_ascii_case(scheme))
}

/// Whether it is a number, or ports as in `8080:80`.
fn is_number(value: &str) -> bool {
    value.parse::<f64>().is_ok() || value.chars().all(|c| c.is_ascii_digit() || c == ':')
}

impl Masker {
    /// Masks one argument, which may itself be a command.
    fn argument(&mut self, argument: &str) -> String {
        if self.is_value(argument) {
            // Either a scheme before the secret, or both in one argument.
            self.expects = is_scheme(argument);
            return MASK.to_owned();
        }
        self.expects = false;
        if argument.starts_with('-')
            && let Some(masked) = self.assignment(argument)
        {
            return masked;
        }
        let mut masked = String::with_capacity(argument.len());
        let words = shell_words(argument);
        let is_authorisation = words.len() == 2 && is_scheme(words[0].0);
        for (word, space) in words {
            masked.push_str(&self.word(word));
            masked.push_str(space);
            self.expects |= is_authorisation;
        }
        self.expects &= !is_authorisation;
        masked
    }

    /// Whether a word is the value that is expected.
    fn is_value(&self, word: &str) -> bool {
        let is_other = word.is_empty() || word.starts_with('-') || self.may_be_number && is_number(word);
        self.expects && !is_other
    }

    fn word(&mut self, word: &str) -> String {
        let bare = word.trim_matches(['"', '\'']);
        if self.is_value(bare) {
            self.expects = is_scheme(bare);
            return MASK.to_owned();
        }
        if bare.len() < word.len() && bare.contains(char::is_whitespace) {
            // Quoted text of several words is parsed as a command.
            let start = word.find(bare).unwrap_or_default();
            return format!("{}{}{}", &word[..start], self.argument(bare), &word[start + bare.len()..]);
        }
        self.may_be_number = bare == PASSWORD_FLAG;
        let is_flag = bare.starts_with('-') && !bare.contains(['=', ':']) && is_secret(bare);
        self.expects = is_flag || self.may_be_number || bare.eq_ignore_ascii_case(SCHEMES[0]);
        if let Some(masked) = self.assignment(word) {
            return masked;
        }
        let word = without_user(word);
        let mut masked = String::with_capacity(word.len());
        for piece in word.split_inclusive(is_delimiter) {
            let end = piece.trim_end_matches(is_delimiter);
            masked.push_str(&self.assignment(end).unwrap_or_else(|| token(end)));
            masked.push_str(&piece[end.len()..]);
        }
        masked
    }

    /// Masks `name=value` or `name:value` of a secret; `None` for other text.
    fn assignment(&mut self, word: &str) -> Option<String> {
        let at = word.find(['=', ':'])?;
        let (name, value) = (&word[..at], &word[at + 1..]);
        if name.contains(is_delimiter) || value.starts_with("//") || !is_secret(name) {
            return None;
        }
        let value = value.trim_start();
        let bare = value.trim_matches(['"', '\'']);
        let mask = if bare.is_empty() { value } else { MASK };
        (self.expects, self.may_be_number) = (bare.is_empty() || is_scheme(bare), false);
        Some(format!("{}{mask}", &word[..=at]))
    }
}

/// Separators of assignments within a word: JSON, lists, URL queries.
fn is_delimiter(c: char) -> bool {
    matches!(c, ',' | ';' | '&' | '?' | '{' | '}' | '[' | ']' | '(' | ')' | '|')
}

/// Splits a text into words, with the white space after each; quotes keep a word together.
pub fn shell_words(text: &str) -> Vec<(&str, &str)> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut quote = None;
        let end = rest.find(|c: char| {
            match quote {
                Some(open) if c == open => quote = None,
                None if matches!(c, '"' | '\'') => quote = Some(c),
                _ => {}
            }
            quote.is_none() && c.is_whitespace()
        });
        let (word, after) = rest.split_at(end.unwrap_or(rest.len()));
        let next = after.find(|c: char| !c.is_whitespace()).unwrap_or(after.len());
        words.push((word, &after[..next]));
        rest = &after[next..];
    }
    words
}

/// Whether a name is that of a secret.
fn is_secret(name: &str) -> bool {
    let parts = parts(name);
    let joined: String = parts.concat();
    let is_key = |(place, part): (usize, &String)| {
        let before = place.checked_sub(1).map(|before| parts[before].as_str());
        let qualified = matches!(before, Some("api" | "access" | "secret" | "private" | "auth" | "account"));
        matches!(part.as_str(), "key" | "keys") && (qualified || place + 1 == parts.len())
    };
    WITHIN.iter().any(|within| joined.contains(within))
        || parts.iter().any(|part| WORDS.contains(&part.as_str()) || part.ends_with("token"))
        || parts.iter().enumerate().any(is_key)
}

/// Splits a name into lower-case words: `--apiKey`, `WANDB_API_KEY`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_small = false;
    for c in name.chars() {
        if !c.is_alphanumeric() || (was_small && c.is_uppercase()) {
            parts.push(String::new());
        }
        was_small = c.is_lowercase();
        if c.is_alphanumeric()
            && let Some(last) = parts.last_mut()
        {
            last.extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Removes user and password from a URL.
fn without_user(word: &str) -> String {
    let mut masked = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(at) = rest.find("://") {
        let (scheme, after) = rest.split_at(at + 3);
        masked.push_str(scheme);
        let end = after.find(['/', '?', '#', '"', '\'']).unwrap_or(after.len());
        match after[..end].rfind('@') {
            Some(user) => {
                masked.push_str(MASK);
                rest = &after[user..];
            }
            None => rest = after,
        }
    }
    masked + rest
}

/// Masks a word with the prefix of a well-known token, or with one after `=` or `:`.
fn token(word: &str) -> String {
    let start = word.rfind(['=', ':', '"', '\'']).map_or(0, |at| at + 1);
    let bare = word[start..].trim_end_matches(['"', '\'']);
    let quoted = word.trim_matches(['"', '\'']);
    let is_token = |text: &str| text.len() >= SHORTEST_TOKEN && PREFIXES.iter().any(|prefix| text.starts_with(prefix));
    if is_token(bare) {
        return format!("{}{MASK}", &word[..start]);
    }
    if is_token(quoted) { MASK.to_owned() } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(line: &[&str]) -> String {
        without_secrets(line).join(" | ")
    }

    #[test]
    fn values_of_secrets_are_replaced_however_they_are_given() {
        for (words, expected) in [
            (&["t.py", "--api-key", "S3", "--lr", "1"][..], "t.py | --api-key | *** | --lr | 1"),
            (&["--api_key=S3", "--apiKey=S3", "--token", "S3"], "--api_key=*** | --apiKey=*** | --token | ***"),
            (&["--password=a,b;c&d e", "--hf-token=S3"], "--password=*** | --hf-token=***"),
            (&["--secret", "-S3", "x"], "--secret | -S3 | x"),
            (&["--password", "two words", "x"], "--password | *** | x"),
            (
                &["env", "WANDB_API_KEY=S3", "A=1", "AWS_ACCESS_KEY_ID=S3"],
                "env | WANDB_API_KEY=*** | A=1 | AWS_ACCESS_KEY_ID=***",
            ),
            (&["docker", "-e", "HF_TOKEN=S3"], "docker | -e | HF_TOKEN=***"),
            (&["++wandb.api_key=S3", "model.dim=3"], "++wandb.api_key=*** | model.dim=3"),
            (&["postgres://u:S3@h/db", "https://S3@h"], "postgres://***@h/db | https://***@h"),
            (&["--db=mysql://u:S3@h/x?a=1&token=S3&b=2"], "--db=mysql://***@h/x?a=1&token=***&b=2"),
            (&["-H", "Authorization: Bearer S3"], "-H | Authorization: *** ***"),
            (&["-H", "X-Api-Key:S3"], "-H | X-Api-Key:***"),
            (&["--config", r#"{"lr": 1, "api_key": "S3"}"#], r#"--config | {"lr": 1, "api_key": ***"#),
            (&["--config", r#"{"lr":1,"api_key":"S3","x":2}"#], r#"--config | {"lr":1,"api_key":***,"x":2}"#),
            (
                &["sh", "-c", "TOKEN=S3 python t.py --password 'S3 S3' -n 2"],
                "sh | -c | TOKEN=*** python t.py --password *** -n 2",
            ),
            (&["sh", "-c", "sh -c 'python t.py --token S3' && x"], "sh | -c | sh -c 'python t.py --token ***' && x"),
            (&["-H", "Authorization:Bearer S3"], "-H | Authorization:*** ***"),
            (&["--header", "Authorization:Bearer", "S3", "x"], "--header | Authorization:*** | *** | x"),
            (&["t.py", "Bearer S3", "Bearer", "S3", "x"], "t.py | Bearer *** | Bearer | *** | x"),
            (&["t.py", "Basic S3", "Token S3", "Basic", "x"], "t.py | Basic *** | Token *** | Basic | x"),
            (&["sh", "-c", "curl -H 'Bearer S3' x"], "sh | -c | curl -H 'Bearer ***' x"),
            (&["login", "-p", "S3", "x"], "login | -p | *** | x"),
            (&["sh", "-c", "sshpass -p 'S3 S3' x -p 0.5 y"], "sh | -c | sshpass -p *** x -p 0.5 y"),
            (&["login", "hf_abcdefghijklmnopqrst", "--x=ghp_abcdefghijklmnopqrst"], "login | *** | --x=***"),
        ] {
            let found = masked(words);
            assert_eq!(found, expected, "{words:?}");
        }
    }

    #[test]
    fn other_arguments_stay() {
        let line = [
            "torchrun",
            "--nproc-per-node=8",
            "train.py",
            "--tokenizer",
            "gpt2",
            "--max-tokens",
            "4096",
            "--lr=1e-3",
            "--num-key-value-heads",
            "8",
            "https://example.org/a@b",
            "a=b",
            "C:\\x",
            "-p",
            "8080:80",
            "-p",
            "0.5",
            "y",
            "--passes",
            "3",
            "",
            "data.path=/x:y",
            "\"q\"",
            "é",
            "lr=1 x=2",
        ];
        assert_eq!(without_secrets(&line), line);
    }

    proptest::proptest! {
        #[test]
        fn any_words_are_searched_without_panic(words in proptest::collection::vec(".{0,40}", 0..6)) {
            assert_eq!(without_secrets(&words).len(), words.len());
        }
    }
}
