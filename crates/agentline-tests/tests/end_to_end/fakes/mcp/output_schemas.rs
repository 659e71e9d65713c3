//! Checks results of tools against the schemas that the server lists.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use std::collections::HashMap;

/// The schemas of the results, by tool.
pub(super) struct OutputSchemas {
    schemas: Schemas,
    by_tool: HashMap<String, SchemaIndex>,
}

impl OutputSchemas {
    /// Compiles the schemas of a list of tools.
    pub(super) fn of(tools: &Value) -> Self {
        let (mut schemas, mut compiler, mut by_tool) = (Schemas::new(), Compiler::new(), HashMap::new());
        for tool in tools.as_array().unwrap() {
            let name = tool["name"].as_str().unwrap();
            let place = format!("file:///{name}.json");
            compiler.add_resource(&place, tool["outputSchema"].clone()).unwrap();
            by_tool.insert(name.to_owned(), compiler.compile(&place, &mut schemas).unwrap());
        }
        Self { schemas, by_tool }
    }

    /// Checks the object of a result. Only errors may have none.
    pub(super) fn check(&self, tool: &str, result: &Value) {
        let Some(object) = result.get("structuredContent") else {
            assert_eq!(result["isError"], true, "{tool}: {result}");
            return;
        };
        let checked = self.schemas.validate(object, self.by_tool[tool]);
        checked.unwrap_or_else(|error| panic!("{tool}: {error}: {object}"));
    }
}
