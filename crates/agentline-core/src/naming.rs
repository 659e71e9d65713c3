//! Names of settings and variables: normalizes spellings, and recognizes names of secrets.

use std::borrow::Cow;

/// Parts of a name that mark its value as a secret.
const SECRET_PARTS: &[&str] = &[
    "apikey",
    "auth",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "jwt",
    "key",
    "keys",
    "pass",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "private",
    "pwd",
    "secret",
    "secrets",
    "signature",
    "token",
    "tokens",
];

/// Endings of parts written as one word, as in `GITHUBTOKEN`.
const SECRET_ENDINGS: &[&str] =
    &["token", "secret", "password", "passwd", "apikey", "accesskey", "secretkey", "privatekey"];

/// Names that contain such a part but have a harmless value, such as a location.
const HARMLESS: &[&str] = &["pwd", "oldpwd", "ssh_auth_sock", "xauthority", "google_application_credentials"];

/// Returns whether a variable, header or flag of this name contains a secret.
///
/// ```
/// use agentline_core::looks_secret;
/// assert!(looks_secret("GEMINI_API_KEY") && looks_secret("githubToken") && looks_secret("X-Api-Key"));
/// assert!(!looks_secret("PATH") && !looks_secret("MONKEY") && !looks_secret("SSH_AUTH_SOCK"));
/// ```
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = snake_case(name);
    let is_secret =
        |part: &str| SECRET_PARTS.contains(&part) || SECRET_ENDINGS.iter().any(|end| part.ends_with(end));
    !HARMLESS.contains(&&*name) && name.split('_').any(is_secret)
}

/// Converts a name to snake case: `useVertexAI`, `use-vertex-ai` and `USE_VERTEX_AI` become `use_vertex_ai`.
pub(crate) fn snake_case(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_') {
        return name.into();
    }
    // Most names with capitals are variables.
    if name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_') {
        return name.to_ascii_lowercase().into();
    }
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::with_capacity(name.len() + 4);
    for (i, &c) in letters.iter().enumerate() {
        let after_small = i > 0 && (letters[i - 1].is_lowercase() || letters[i - 1].is_ascii_digit());
        let before_small = i > 0
            && letters[i - 1].is_uppercase()
            && letters.get(i + 1).is_some_and(|next| next.is_lowercase());
        if c.is_uppercase() && (after_small || before_small) {
            snake.push('_');
        }
        snake.extend(if c == '-' || c == '.' || c == ' ' { '_' } else { c }.to_lowercase());
    }
    snake.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_names_written_as_one_word_are_recognized() {
        for name in ["GITHUBTOKEN", "AWSSECRETKEY", "npm_config__authToken", "MYSQL_PWD", "SESSION_COOKIE"] {
            assert!(looks_secret(name), "{name}");
        }
        for name in ["HOME", "AUTHOR", "COMPASS_DIR", "KEYMAP", "KEYBOARD_LAYOUT", "OLDPWD"] {
            assert!(!looks_secret(name), "{name}");
        }
    }

    #[test]
    fn every_spelling_normalizes_to_the_same_name() {
        for (name, snake) in [
            ("apiKey", "api_key"),
            ("useVertexAI", "use_vertex_ai"),
            ("use_vertex_ai", "use_vertex_ai"),
            ("USE_VERTEX_AI", "use_vertex_ai"),
            ("APIKey", "api_key"),
            ("idle-timeout", "idle_timeout"),
            ("timeoutMs", "timeout_ms"),
        ] {
            assert_eq!(snake_case(name), snake, "{name}");
        }
    }
}
