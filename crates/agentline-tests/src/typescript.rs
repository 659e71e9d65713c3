//! The TypeScript compiler and the types of Node.js, at fixed versions, which check our package for Node.js.

use crate::{npm::Package, real::left_out};
use agentline::{Agentline, install::find_node};
use std::path::{Path, PathBuf};

const TYPESCRIPT: Package =
    Package { id: "typescript", name: "typescript", version: "5.9.3", beside: &["@types/node@=20.19.43"] };

/// Node.js, and the folder in which the compiler and the types are.
#[derive(Debug)]
pub struct TypeScript {
    node: PathBuf,
    modules: PathBuf,
}

impl TypeScript {
    /// Both, after they were installed if they were not there, or `None` where real agents are left out.
    ///
    /// # Panics
    /// They cannot be installed, or there is no Node.js.
    #[must_use]
    pub fn find() -> Option<Self> {
        if left_out() {
            return None;
        }
        let modules = TYPESCRIPT
            .modules()
            .unwrap_or_else(|why| panic!("{why}\nAGENTLINE_REAL_AGENTS=off leaves these tests out"));
        let agentline = Agentline::from_env().expect("the tests have a home");
        let node = find_node(agentline.here()).expect("Node.js installed it").path;
        Some(Self { node, modules })
    }

    /// Node.js.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// The folder `node_modules`.
    #[must_use]
    pub fn modules(&self) -> &Path {
        &self.modules
    }
}
