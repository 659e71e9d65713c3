//! The TypeScript compiler and the types of Node.js, at fixed versions, which check our package for Node.js.

use crate::{npm::Package, real::are_disabled};
use agentline::{Agentline, install::find_node};
use std::path::{Path, PathBuf};

const TYPESCRIPT: Package =
    Package { id: "typescript", name: "typescript", version: "5.9.3", extras: &["@types/node@=20.19.43"] };

/// Node.js, and the directory of the compiler and the types.
#[derive(Debug)]
pub struct TypeScript {
    node: PathBuf,
    modules: PathBuf,
}

impl TypeScript {
    /// Returns both, and installs them if necessary, or `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if they cannot be installed or there is no Node.js.
    #[must_use]
    pub fn find() -> Option<Self> {
        if are_disabled() {
            return None;
        }
        let modules = TYPESCRIPT
            .modules()
            .unwrap_or_else(|error| panic!("{error}\nAGENTLINE_REAL_AGENTS=off disables these tests"));
        let agentline = Agentline::from_env().expect("the tests have a home");
        let node = find_node(agentline.host_env()).expect("Node.js was needed to install it").path;
        Some(Self { node, modules })
    }

    /// Returns the path of Node.js.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Returns the directory `node_modules`.
    #[must_use]
    pub fn modules(&self) -> &Path {
        &self.modules
    }
}
