//! Templates: text with `{{variable}}`, filled in from the variables of a case.

use serde_json::{Map, Value};

/// Fills in a template. `\{{` stands for `{{` itself.
///
/// # Errors
/// Returns what is wrong: the name of an unknown variable, or an unclosed `{{`.
pub(crate) fn render(template: &str, variables: &Map<String, Value>) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        if rest[..at].ends_with('\\') {
            text += &rest[..at - 1];
            text += "{{";
            rest = &rest[at + 2..];
            continue;
        }
        text += &rest[..at];
        let end = rest[at..].find("}}").ok_or(TemplateError::Unclosed)? + at;
        let name = rest[at + 2..end].trim();
        let value = look_up(variables, name).ok_or_else(|| TemplateError::Unknown(name.to_owned()))?;
        match value {
            Value::String(value) => text += value,
            value => text += &value.to_string(),
        }
        rest = &rest[end + 2..];
    }
    text += rest;
    Ok(text)
}

/// Fills in every text of a value.
pub(crate) fn render_value(value: &Value, variables: &Map<String, Value>) -> Result<Value, TemplateError> {
    Ok(match value {
        Value::String(text) => render(text, variables)?.into(),
        Value::Array(list) => {
            Value::Array(list.iter().map(|value| render_value(value, variables)).collect::<Result<_, _>>()?)
        }
        Value::Object(table) => {
            let fields = table.iter().map(|(key, value)| Ok((key.clone(), render_value(value, variables)?)));
            Value::Object(fields.collect::<Result<_, _>>()?)
        }
        value => value.clone(),
    })
}

/// Finds `a.b` as a name of its own, or else in the table `a`.
fn look_up<'a>(variables: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    variables.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        look_up(variables.get(first)?.as_object()?, rest)
    })
}

/// Why a template cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateError {
    /// The case has no variable with this name.
    Unknown(String),
    /// A `{{` without a `}}`.
    Unclosed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_are_filled_in() {
        let variables = json!({"n": 2, "name": "x", "at": {"line": [1, 2]}, "a.b": "dotted"});
        let variables = variables.as_object().expect("a table");
        for (template, text) in [
            ("no variable", Ok("no variable".to_owned())),
            ("{{n}} and {{ name }}", Ok("2 and x".to_owned())),
            ("{{at.line}} {{a.b}}", Ok("[1,2] dotted".to_owned())),
            (r"\{{n}} } }} {", Ok("{{n}} } }} {".to_owned())),
            ("{{missing}}", Err(TemplateError::Unknown("missing".into()))),
            ("{{at.row}}", Err(TemplateError::Unknown("at.row".into()))),
            ("{{n", Err(TemplateError::Unclosed)),
        ] {
            assert_eq!(render(template, variables), text, "{template}");
        }
        let value = json!({"equals": "{{n}}", "list": ["{{name}}", 3]});
        assert_eq!(render_value(&value, variables), Ok(json!({"equals": "2", "list": ["x", 3]})));
    }
}
