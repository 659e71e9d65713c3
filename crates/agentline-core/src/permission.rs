//! Parses permission rules: the name of a tool and an optional pattern for its uses.

use crate::Problem;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{convert::Infallible, error, fmt, str::FromStr};

/// The limits of a rule: its length in bytes and its number of `*`. They bound the time for matching.
const MAX_LENGTH: usize = 4096;
const MAX_STARS: usize = 64;
/// The maximum number of characters of a rule that a message shows.
const MAX_SHOWN: usize = 200;

/// A permission rule: `Write(src/**)`, `Bash(git *)`, `WebFetch`, `mcp__server__tool`.
///
/// It is displayed and serialized as it was written.
///
/// ```
/// use agentline_core::Rule;
/// let rule: Rule = "Bash(git *)".parse().unwrap();
/// assert_eq!((rule.tool(), rule.pattern()), ("Bash", Some("git *")));
/// assert_eq!(rule.to_string(), "Bash(git *)");
/// assert!("Bash(git".parse::<Rule>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    text: String,
    tool: String,
    pattern: Option<String>,
}

impl Rule {
    /// Parses a rule.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a valid rule.
    pub fn parse(text: &str) -> Result<Self, RuleError> {
        if text.len() > MAX_LENGTH || text.matches('*').count() > MAX_STARS {
            return Err(RuleError {
                message: format!(
                    "{} cannot be enforced: a rule can have at most {MAX_LENGTH} bytes and {MAX_STARS} `*`",
                    shown(text)
                ),
                hint: "write a shorter pattern, or several rules".into(),
            });
        }
        let hint = "write a tool, or a tool and a pattern: `WebFetch`, `Write(src/**)`, `Bash(git *)`";
        let wrong = |message: &str| {
            Err(RuleError {
                message: format!("{} is not a valid rule: {message}", shown(text.trim())),
                hint: hint.into(),
            })
        };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(RuleError { message: "the rule is empty".into(), hint: hint.into() });
        }
        let (tool, pattern) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(pattern) => (tool, Some(pattern.trim())),
                None => return wrong("the parenthesis is not closed"),
            },
        };
        let tool = tool.trim();
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | ' ');
        if tool.is_empty() || !tool.chars().all(is_name) {
            return wrong("it does not start with the name of a tool");
        }
        if pattern.is_some_and(|p| p.contains('\0')) {
            return wrong("the pattern contains a NUL byte");
        }
        // `Bash()`, `Bash(*)` and `Write(**)` are equivalent to the bare tool name.
        let pattern = pattern.filter(|p| !matches!(*p, "" | "*" | "**"));
        Ok(Self { text: text.to_owned(), tool: tool.to_owned(), pattern: pattern.map(str::to_owned) })
    }

    /// Returns the rule as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the tool as written: a canonical name or the agent's own name for it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the pattern in the parentheses. `None` matches every use of the tool.
    #[must_use]
    pub fn pattern(&self) -> Option<&str> {
        self.pattern.as_deref()
    }
}

/// Quotes a rule for a message, shortened if it is long.
pub(crate) fn shown(text: &str) -> String {
    let start: String = text.chars().take(MAX_SHOWN).collect();
    let more = if start.len() < text.len() { "…" } else { "" };
    format!("`{start}{more}`")
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::parse(text)
    }
}

impl TryFrom<&str> for Rule {
    type Error = RuleError;

    fn try_from(text: &str) -> Result<Self, RuleError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        Self::parse(&text)
    }
}

impl PartialEq<str> for Rule {
    fn eq(&self, text: &str) -> bool {
        self.text == text
    }
}

impl PartialEq<&str> for Rule {
    fn eq(&self, text: &&str) -> bool {
        self.text == *text
    }
}

impl Serialize for Rule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// The error for a text that is not a valid rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleError {
    message: String,
    hint: String,
}

impl RuleError {
    /// Returns what to write instead.
    #[must_use]
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// Returns the problem of a request or configuration. `key` is the list with the rule, such as `allow`.
    #[must_use]
    pub fn problem(&self, key: &str) -> Problem {
        Problem::new(key, self.message.clone()).hint(self.hint.clone())
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for RuleError {}

/// A [`Rule`] is already valid.
impl From<Infallible> for RuleError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_with_and_without_patterns() {
        let read = |text| {
            let rule = Rule::parse(text).unwrap();
            assert_eq!(rule.as_str(), text);
            (rule.tool, rule.pattern)
        };
        let some = |t: &str| Some(t.to_owned());
        assert_eq!(read(" Write( src/** ) "), ("Write".into(), some("src/**")));
        assert_eq!(read("Bash(echo (a))"), ("Bash".into(), some("echo (a)")));
        assert_eq!(read("mcp__my-srv__get"), ("mcp__my-srv__get".into(), None));
        for all in ["Bash", "Bash()", "Bash(*)", "Bash(**)"] {
            assert_eq!(read(all), ("Bash".into(), None), "{all}");
        }
    }

    #[test]
    fn invalid_rules_are_refused_with_a_hint() {
        for text in ["", "  ", "(x)", "Bash(git", "a/b", "Write(\0)"] {
            let problem = Rule::parse(text).unwrap_err().problem("deny");
            assert_eq!(problem.key, "deny", "{text}");
            let named = if text.trim().is_empty() { "empty".into() } else { format!("`{}`", text.trim()) };
            assert!(problem.message.contains(&named), "{problem}");
            assert!(problem.hint.unwrap().contains("Bash(git *)"));
        }
    }

    #[test]
    fn rules_are_strings_in_json() {
        let rule: Rule = serde_json::from_str("\" Bash(git *)\"").unwrap();
        assert_eq!(serde_json::to_string(&rule).unwrap(), "\" Bash(git *)\"");
        let error = serde_json::from_str::<Rule>("\"Bash(git\"").unwrap_err().to_string();
        assert!(error.contains("the parenthesis is not closed"), "{error}");
    }
}
