//! Limits the recursion depth of a schema check and provides a large enough stack for it.
//!
//! The validator recurses for each reference and alternative, and for each level of the value. A chain of references in
//! a small file could overflow the stack, which aborts the whole program.

use serde_json::Value;
use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The maximum number of consecutive references and alternatives that apply to the same part of a value.
pub(super) const DEEPEST: u32 = 200;
/// The stack size of a thread that compiles or checks. Only the used part takes memory.
pub(super) const STACK: usize = 128 << 20;

/// Keywords that apply schemas to the same value.
const LIST_KEYWORDS: &[&str] = &["allOf", "anyOf", "oneOf"];
const SINGLE_KEYWORDS: &[&str] = &["not", "if", "then", "else"];
const TABLES: &[&str] = &["dependentSchemas", "dependencies"];

thread_local!(static HAS_STACK: Cell<bool> = const { Cell::new(false) });

/// Runs `work` on a thread with a large stack. Blocks.
pub(super) fn with_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if HAS_STACK.get() {
        return work();
    }
    let (work, result) = (Mutex::new(Some(work)), Mutex::new(None));
    let run = || {
        let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
        let done = work.map(|work| work());
        *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
    };
    let on_thread = || {
        HAS_STACK.set(true);
        run();
    };
    let thread = std::thread::Builder::new().name("agentline-schema".into()).stack_size(STACK);
    let joined =
        std::thread::scope(|scope| thread.spawn_scoped(scope, on_thread).map(|thread| thread.join()));
    match joined {
        Ok(Ok(())) => {}
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        // If no thread can be started, the caller's stack is used.
        Err(_) => run(),
    }
    let done = result.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.unwrap_or_else(|| unreachable!("the work was done on one thread or the other"))
}

/// Marks this thread as one that was started with [`STACK`].
pub(super) fn mark_stack() {
    HAS_STACK.set(true);
}

/// Returns whether no chain of references and alternatives in a schema is longer than [`DEEPEST`].
pub(super) fn is_bounded(document: &Value) -> bool {
    let mut chains = Chains { document, known: HashMap::new() };
    chains.all(document)
}

struct Chains<'a> {
    document: &'a Value,
    /// The length of the chain that begins at a schema; `None` while it is being computed.
    known: HashMap<*const Value, Option<u32>>,
}

impl<'a> Chains<'a> {
    /// Returns whether all schemas in a value are bounded.
    fn all(&mut self, value: &'a Value) -> bool {
        match value {
            Value::Object(object) => {
                self.length(value, DEEPEST).is_some() && object.values().all(|inner| self.all(inner))
            }
            Value::Array(list) => list.iter().all(|inner| self.all(inner)),
            _ => true,
        }
    }

    /// Returns the length of the longest chain from a schema, or `None` if it is longer than `left`.
    fn length(&mut self, schema: &'a Value, left: u32) -> Option<u32> {
        match self.known.get(&std::ptr::from_ref(schema)) {
            Some(Some(length)) => return (*length <= left).then_some(*length),
            // The validator detects cycles.
            Some(None) => return Some(0),
            None => {}
        }
        self.known.insert(schema, None);
        let mut longest = 0;
        for next in self.same_value(schema) {
            longest = longest.max(1 + self.length(next, left.checked_sub(1)?)?);
        }
        self.known.insert(schema, Some(longest));
        Some(longest)
    }

    /// Returns the schemas that a schema applies to the same value.
    fn same_value(&self, schema: &'a Value) -> Vec<&'a Value> {
        let Some(object) = schema.as_object() else { return Vec::new() };
        let lists = LIST_KEYWORDS.iter().filter_map(|key| object.get(*key)?.as_array()).flatten();
        let single = SINGLE_KEYWORDS.iter().filter_map(|key| object.get(*key));
        let tables =
            TABLES.iter().filter_map(|key| object.get(*key)?.as_object()).flat_map(|table| table.values());
        let referred = object.get("$ref").and_then(Value::as_str).and_then(|to| self.referred(to));
        lists.chain(single).chain(tables).chain(referred).collect()
    }

    fn referred(&self, to: &str) -> Option<&'a Value> {
        let pointer = to.strip_prefix('#')?;
        self.document.pointer(&pointer.replace("%25", "%"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn chain(length: u32) -> Value {
        let mut defs = serde_json::Map::new();
        for n in 0..length {
            defs.insert(format!("l{n}"), json!({"$ref": format!("#/$defs/l{}", n + 1)}));
        }
        defs.insert(format!("l{length}"), json!({"type": "string"}));
        json!({"$ref": "#/$defs/l0", "$defs": defs})
    }

    #[test]
    fn only_long_reference_chains_are_too_deep() {
        assert!(is_bounded(&chain(DEEPEST - 1)));
        assert!(!is_bounded(&chain(DEEPEST + 1)));
        assert!(!is_bounded(&chain(100_000)), "detected without deep recursion");
        let tree =
            json!({"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}});
        assert!(is_bounded(&tree));
        assert!(is_bounded(&json!({"$ref": "#"})), "a cycle counts as bounded");
    }

    #[test]
    fn deep_schemas_work_on_a_thread_with_a_small_stack() {
        let checked = || {
            let schema = super::super::Schema::from_value(chain(DEEPEST - 1)).unwrap();
            let mut deep = json!({"type": "string"});
            for _ in 0..100 {
                deep = json!({"anyOf": [deep]});
            }
            let deep = super::super::Schema::from_value(deep).unwrap();
            (schema.check(&json!("text")).is_ok(), deep.check(&json!(1)).is_err())
        };
        let small = std::thread::Builder::new().stack_size(256 << 10).spawn(checked).unwrap();
        assert_eq!(small.join().unwrap(), (true, true));
    }
}
