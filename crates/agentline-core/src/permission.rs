//! Parses permission rules: the name of a tool and an optional pattern for its uses.

use crate::Problem;

/// A permission rule as written: `Write(src/**)`, `Bash(git *)`, `WebFetch`, `mcp__server__tool`.
///
/// ```
/// use agentline_core::Rule;
/// let rule = Rule::parse("allow", "Bash(git *)").unwrap();
/// assert_eq!((rule.tool.as_str(), rule.pattern.as_deref()), ("Bash", Some("git *")));
/// assert!(Rule::parse("allow", "Bash(git").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// The tool as written: a canonical name or the agent's own name for it.
    pub tool: String,
    /// The pattern in the parentheses. `None` matches every use of the tool.
    pub pattern: Option<String>,
}

impl Rule {
    /// Parses a rule. `key` is the configuration key that the error message names, such as `allow`.
    ///
    /// # Errors
    ///
    /// Returns a [`Problem`] if the text is not a valid rule.
    pub fn parse(key: &str, text: &str) -> Result<Self, Problem> {
        let wrong = |what: &str| {
            Err(Problem::new(key, format!("`{text}` is not a valid rule: {what}"))
                .hint("write a tool, or a tool and a pattern: `WebFetch`, `Write(src/**)`, `Bash(git *)`"))
        };
        let text = text.trim();
        if text.is_empty() {
            return wrong("it is empty");
        }
        let (tool, pattern) = match text.split_once('(') {
            None => (text, None),
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
        Ok(Self { tool: tool.to_owned(), pattern: pattern.map(str::to_owned) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed_with_and_without_patterns() {
        let read = |text| {
            let rule = Rule::parse("allow", text).unwrap();
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
            let problem = Rule::parse("deny", text).unwrap_err();
            assert_eq!(problem.key, "deny", "{text}");
            assert!(problem.hint.unwrap().contains("Bash(git *)"));
        }
    }
}
