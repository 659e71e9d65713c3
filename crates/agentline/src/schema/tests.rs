//! Tests of schemas: parsing, rejecting, wrapping for a tool, and validating values.

use super::*;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;

fn schema(document: Value) -> Schema {
    Schema::from_value(document).unwrap()
}

fn person() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1},
            "age": {"type": "integer", "minimum": 0},
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true},
        },
        "required": ["name", "age"],
        "additionalProperties": false,
    })
}

/// Returns the validation errors of a value as one text.
fn wrong(schema: &Schema, value: Value) -> String {
    schema.check(&value).unwrap_err().join("\n")
}

#[test]
fn every_error_states_location_expectation_and_value() {
    let person = schema(person());
    person.check(&json!({"name": "Ada", "age": 36, "tags": ["x"]})).unwrap();
    let all = wrong(&person, json!({"name": 5, "age": -1, "tags": ["x", 7], "more": true}));
    for sentence in [
        "at `/name`: expected string, found 5",
        "at `/age`: expected at least 0, found -1",
        "at `/tags/1`: expected string, found 7",
        "at the root: expected only properties of the schema, found `more`",
    ] {
        assert!(all.lines().any(|line| line == sentence), "{sentence} is not in\n{all}");
    }
    let table = [
        (json!({}), json!({"required": ["a", "b"]}), "at the root: `a`, `b` are missing, found {}"),
        (
            json!({"a": 1}),
            json!({"dependentRequired": {"a": ["b"]}}),
            "at the root: `b` is missing, which `a` requires",
        ),
        (json!(3), json!({"enum": ["a", 1, null]}), "at the root: expected one of \"a\", 1, null, found 3"),
        (json!(3), json!({"const": {"a": 1}}), "at the root: expected {\"a\":1}, found 3"),
        (json!(3), json!({"type": ["string", "null"]}), "at the root: expected null or string, found 3"),
        (
            json!("abc"),
            json!({"maxLength": 2}),
            "at the root: expected at most 2 characters, found 3: \"abc\"",
        ),
        (json!(""), json!({"minLength": 1}), "at the root: expected at least 1 characters, found 0: \"\""),
        (
            json!("abc"),
            json!({"pattern": "^x"}),
            "at the root: expected a string that matches `^x`, found \"abc\"",
        ),
        (json!([1]), json!({"minItems": 2}), "at the root: expected at least 2 items, found 1"),
        (json!([1, 2]), json!({"maxItems": 1}), "at the root: expected at most 1 items, found 2"),
        (
            json!([1, 2, 1]),
            json!({"uniqueItems": true}),
            "at the root: expected unique items, found the same at 0 and 2",
        ),
        (
            json!({"a": 1}),
            json!({"minProperties": 2}),
            "at the root: expected at least 2 properties, found {\"a\":1}",
        ),
        (
            json!({"a": 1}),
            json!({"maxProperties": 0}),
            "at the root: expected at most 0 properties, found {\"a\":1}",
        ),
        (json!(5), json!({"maximum": 4}), "at the root: expected at most 4, found 5"),
        (json!(5), json!({"exclusiveMinimum": 5}), "at the root: expected more than 5, found 5"),
        (json!(5), json!({"exclusiveMaximum": 5}), "at the root: expected less than 5, found 5"),
        (json!(5), json!({"multipleOf": 2}), "at the root: expected a multiple of 2, found 5"),
        (json!(5), json!({"not": {"type": "integer"}}), "at the root: found 5, which the schema excludes"),
        (json!({"a": 1}), json!({"properties": {"a": false}}), "at `/a`: expected nothing here, found 1"),
        (
            json!({"a/b": {"~": 1}}),
            json!({"properties": {"a/b": {"properties": {"~": {"type": "null"}}}}}),
            "at `/a~1b/~0`: expected null, found 1",
        ),
        (
            json!({"a": 3}),
            json!({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}),
            "at `/a`: expected one of 2 alternatives, found 3; (1) at `/a`: expected string, found 3; (2) at `/a`: expected null, found 3",
        ),
        (
            json!(3),
            json!({"oneOf": [{"type": "integer"}, {"minimum": 1}]}),
            "at the root: expected exactly one of the alternatives, found 3, which matches 1 and 2",
        ),
        (
            json!("x"),
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "format": "date"}),
            "at the root: expected a string of the format `date`",
        ),
    ];
    for (value, document, sentence) in table {
        let found = wrong(&schema(document.clone()), value);
        assert!(found.starts_with(sentence), "{document}: {found}");
    }
}

#[test]
fn error_text_is_bounded() {
    let numbers = schema(json!({"type": "array", "items": {"type": "number"}}));
    let texts: Vec<String> = (0..5000).map(|i| format!("{i}{}", "é".repeat(1000))).collect();
    let found = numbers.check(&json!(texts)).unwrap_err();
    assert_eq!(found.len(), 21);
    assert_eq!(found[20], "and 4980 more");
    assert!(found.iter().all(|sentence| sentence.chars().count() <= 601), "{found:?}");
    let alternatives: Vec<Value> = (0..200).map(|i| json!({"const": i})).collect();
    let found = schema(json!({"anyOf": alternatives})).check(&json!("x".repeat(10_000))).unwrap_err();
    assert!(found.len() == 1 && found[0].chars().count() <= 601, "{found:?}");
}

#[test]
fn invalid_schemas_are_problems_with_key_and_hint() {
    let table = [
        (json!([]), "expected an object"),
        (json!("x"), "expected an object"),
        (json!({"type": "strin"}), "at `/type`"),
        (
            json!({"properties": {"a": {"minLength": -1}}}),
            "at `/properties/a/minLength`: expected at least 0, found -1",
        ),
        (json!({"required": "a"}), "at `/required`: expected array, found \"a\""),
        (json!({"pattern": "("}), "pattern"),
        (json!({"$ref": "#/$defs/none"}), "refers to `#/$defs/none`, which does not exist"),
        (json!({"$ref": "other.json"}), "refers to `other.json`, but remote schemas are not fetched"),
        (json!({"$ref": "https://example.test/s.json#/a"}), "refers to `https://example.test/s.json`"),
        (json!({"$ref": "file:///etc/hostname"}), "refers to `file:///etc/hostname`"),
        (
            json!({"$schema": "https://example.test/draft", "type": "object"}),
            "unknown draft: `https://example.test/draft`",
        ),
        (json!({"$schema": "nonsense"}), "unknown draft"),
    ];
    for (document, text) in table {
        let problems = Schema::from_value(document.clone()).unwrap_err();
        let problem = &problems.0[0];
        assert_eq!((problems.0.len(), problem.key.as_str()), (1, "output_schema"), "{document}");
        assert!(problem.message.contains(text), "{document}: {}", problem.message);
        assert!(problem.hint.is_some() && !problem.message.contains("agentline:"), "{document}: {problem}");
    }
}

#[test]
fn invalid_schema_files_are_problems_that_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let good = file("good.json", b"\xef\xbb\xbf{\"type\": \"string\"}");
    Schema::from_file(&good).unwrap().check(&json!("x")).unwrap();
    let table = [
        (dir.path().join("none.json"), "cannot be read"),
        (dir.path().to_owned(), "is not a file"),
        (file("text.json", b"type: object"), "is not JSON"),
        (file("empty.json", b""), "is not JSON"),
        (file("bytes.json", b"\xff\xfe{}"), "is not valid UTF-8"),
        (file("long.json", &vec![b' '; 5 << 20]), "is larger than 4 MB"),
        (file("bad.json", b"{\"type\": 1}"), "at `/type`"),
    ];
    for (path, text) in table {
        let problem = Schema::from_file(&path).unwrap_err().0.remove(0);
        let message = problem.to_string();
        assert!(problem.key == "output_schema" && problem.hint.is_some(), "{message}");
        assert!(message.contains(text) && message.contains(&*path.to_string_lossy()), "{message}");
    }
}

#[test]
fn schema_drafts_are_respected() {
    let tuple = |draft: &str| json!({"$schema": draft, "items": [{"type": "string"}, {"type": "number"}]});
    for draft in [
        "http://json-schema.org/draft-04/schema#",
        "http://json-schema.org/draft-07/schema",
        "https://json-schema.org/draft/2019-09/schema",
    ] {
        assert!(schema(tuple(draft)).check(&json!(["a", "b"])).is_err(), "{draft}");
    }
    assert!(Schema::from_value(tuple("https://json-schema.org/draft/2020-12/schema")).is_err());
    let prefix = schema(json!({"prefixItems": [{"type": "string"}]}));
    assert!(prefix.check(&json!([1])).is_err(), "2020-12 is the default draft");
    let named = schema(
        json!({"$id": "https://example.test/p", "$ref": "#/$defs/n", "$defs": {"n": {"type": "null"}}}),
    );
    assert!(named.check(&json!(null)).is_ok() && named.check(&json!(1)).is_err());
    let of_schemas = schema(json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}));
    assert!(of_schemas.check(&json!({"type": "x"})).is_err(), "the meta-schemas are built in");
}

#[test]
fn tool_schema_wraps_the_value_in_an_object() {
    let input = schema(person()).tool_input();
    assert_eq!(input["type"], "object");
    assert_eq!(input["required"], json!(["data"]));
    assert_eq!(input["properties"]["data"], person());
    let list = schema(json!({"type": "array", "items": {"type": "integer"}}));
    assert_eq!(list.tool_input()["properties"]["items"]["items"]["type"], "integer");
    assert_eq!(schema(json!({"type": "integer"})).tool_input()["properties"]["data"]["type"], "integer");
    let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"});
    assert_eq!(schema(old).tool_input()["$schema"], "http://json-schema.org/draft-07/schema#");
}

#[test]
fn value_is_unwrapped_from_every_wrapping() {
    let (person, ada) = (schema(person()), json!({"name": "Ada", "age": 36}));
    let list = schema(json!({"type": "array", "items": {"type": "integer"}}));
    let number = schema(json!({"type": "integer"}));
    let table = [
        (&person, json!({"data": ada}), ada.clone()),
        (&person, ada.clone(), ada.clone()),
        (&person, json!({"data": ada.to_string()}), ada.clone()),
        (&list, json!({"items": [1]}), json!([1])),
        (&list, json!({"data": [1]}), json!([1])),
        (&list, json!({"data": {"items": [1]}}), json!([1])),
        (&list, json!([1]), json!([1])),
        (&number, json!({"data": 3}), json!(3)),
        (&number, json!(3), json!(3)),
    ];
    for (schema, input, value) in table {
        assert_eq!(schema.take(&input), Ok(value), "{input}");
    }
    assert_eq!(
        person.take(&json!({"data": {"name": "Ada"}})).unwrap_err(),
        ["at `/data`: `age` is missing, found {\"name\":\"Ada\"}"]
    );
    assert_eq!(
        person.take(&json!({"name": "Ada"})).unwrap_err(),
        ["the argument `data` is missing; it must contain the complete answer"]
    );
    assert_eq!(
        list.take(&json!({"items": ["x"]})).unwrap_err(),
        ["at `/items/0`: expected integer, found \"x\""]
    );
    // A property with the same name as the wrapping key causes no confusion.
    let own = schema(
        json!({"type": "object", "properties": {"data": {"type": "integer"}, "n": {"type": "integer"}}, "required": ["data", "n"]}),
    );
    for input in [json!({"data": 1, "n": 2}), json!({"data": {"data": 1, "n": 2}})] {
        assert_eq!(own.take(&input).unwrap(), json!({"data": 1, "n": 2}), "{input}");
    }
}

/// Returns schemas whose references must stay valid when the schema is nested in another one.
fn referring() -> Vec<Value> {
    let tree = json!({"value": {"type": "integer"}, "next": {"$ref": "#"}});
    vec![
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "required": ["a"], "$defs": {"n": {"type": "integer"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "properties": {"a": {"$ref": "#/definitions/n"}}, "definitions": {"n": {"type": "integer"}}}),
        json!({"type": "object", "properties": tree, "additionalProperties": false}),
        json!({"properties": {"a": {"type": "integer"}, "b": {"$ref": "#/properties/a"}}}),
        json!({"type": "array", "items": {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}, "b": {"$ref": "#"}}}, "$defs": {"n": {"$ref": "#/$defs/m"}, "m": {"type": "integer"}}}),
        json!({"$id": "https://example.test/p.json", "properties": {"a": {"$ref": "https://example.test/p.json#/$defs/n"}, "b": {"$ref": "https://example.test/p.json"}}, "additionalProperties": false, "$defs": {"n": {"type": "integer"}}}),
        json!({"properties": {"a": {"$ref": "#here"}}, "$defs": {"n": {"$anchor": "here", "type": "integer"}}}),
        json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"a": {"type": "integer"}, "b": {"$recursiveRef": "#"}}, "additionalProperties": false}),
        json!({"properties": {"a": {"$id": "https://example.test/inner", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}}, "$defs": {"n": {"type": "string"}}}),
        json!({"properties": {"$ref": {"type": "integer"}, "a": {"enum": [1, {"$ref": "#"}]}, "const": {"$ref": "#/properties/$ref"}}}),
        json!({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"a": {"$ref": "#/anyOf/0"}}}]}),
    ]
}

#[test]
fn references_stay_valid_inside_the_tool_schema() {
    let leaf = [json!(1), json!("x"), json!({"$ref": "#"})];
    let mut values: Vec<Value> = leaf.to_vec();
    for key in ["a", "b", "value", "next", "$ref", "const"] {
        for inner in &leaf {
            values.push(json!({ key: inner }));
            values.push(json!([{ key: inner }]));
            values.push(json!({"b": {"a": inner}, "next": { key: inner }}));
            values.push(json!([{ "b": [{ key: inner }] }]));
        }
    }
    for document in referring() {
        let plain = schema(document.clone());
        let tool = schema(plain.tool_input());
        let key = if document["type"] == "array" { "items" } else { "data" };
        let (mut fit, mut unfit) = (0, 0);
        for value in &values {
            let fits = plain.check(value).is_ok();
            *if fits { &mut fit } else { &mut unfit } += 1;
            assert_eq!(
                tool.check(&json!({ key: value })).is_ok(),
                fits,
                "{document}\n{value}\n{}",
                tool.document()
            );
        }
        assert!(fit > 0 && unfit > 0, "{document}: {fit} fit, {unfit} do not");
    }
}

#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct Tree {
    value: u8,
    leaves: Vec<Self>,
    name: Option<String>,
}

#[test]
fn rust_types_have_schemas() {
    let tree = Schema::from_type::<Tree>().unwrap();
    let good = json!({"value": 1, "leaves": [{"value": 2, "leaves": [], "name": "x"}]});
    assert_eq!(tree.take(&json!({"data": good})), Ok(good.clone()));
    assert!(schema(tree.tool_input()).check(&json!({"data": good})).is_ok());
    let bad = json!({"value": 1, "leaves": [{"value": 256}]});
    let message = wrong(&tree, bad);
    assert!(message.contains("at `/leaves/0/value`: expected at most 255, found 256"), "{message}");
    assert!(message.contains("at `/leaves/0`: `leaves` is missing"), "{message}");
    assert_eq!(Schema::from_type::<Vec<u8>>().unwrap().take(&json!({"items": [1]})), Ok(json!([1])));
    assert!(Schema::from_type::<String>().unwrap().check(&json!("x")).is_ok());
}

#[test]
fn long_schema_is_summarized() {
    assert_eq!(schema(json!({"type": "string"})).summary(), "{\"type\":\"string\"}");
    let mut long = person();
    long["description"] = "x".repeat(9000).into();
    let summary = schema(long).summary();
    assert_eq!(
        summary,
        "a JSON object with\n- `age`: integer, required\n- `name`: string, required\n- `tags`: array"
    );
    let many: serde_json::Map<String, Value> = (0..5000).map(|i| (format!("p{i}"), json!({}))).collect();
    assert!(schema(json!({"properties": many})).summary().chars().count() <= MAX_SUMMARY + 1);
}

#[test]
fn schemas_can_be_shared() {
    fn shared<T: Send + Sync + Clone + 'static>(_: &T) {}
    shared(&schema(person()));
    assert!(schema(person()).instruction(true).contains(STRUCTURED_OUTPUT));
    assert!(schema(person()).instruction(false).contains("\"minLength\":1"));
    assert!(format!("{:?}", schema(json!({"type": "null"}))).contains("null"));
}

proptest! {
    #[test]
    fn no_schema_causes_a_panic(text in "[{}\\[\\]:,\"$a-z#/0-9 ]{0,60}", keyword in "(type|properties|\\$ref|items|required|pattern|anyOf|\\$id|\\$schema|enum)") {
        let document = json!({ keyword: serde_json::from_str::<Value>(&text).unwrap_or(json!(text)) });
        if let Ok(schema) = Schema::from_value(document) {
            let _ = schema.check(&json!({"a": [1, "b", null]}));
            let _ = schema.take(&json!({"data": text}));
            prop_assert_eq!(&schema.tool_input()["type"], "object");
        }
    }
}
