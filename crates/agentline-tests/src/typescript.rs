//! The TypeScript compiler and the types of Node.js, at fixed versions, which check our package for Node.js.

use crate::{npm::Package, real::are_disabled};
use agentline::{Agentline, install::find_node};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const TYPESCRIPT: Package =
    Package { id: "typescript", name: "typescript", version: "5.9.3", extras: &["@types/node@=20.19.43"] };

/// Generates types from an OpenAPI document.
const OPENAPI: Package = Package {
    id: "openapi-typescript",
    name: "openapi-typescript",
    version: "7.13.0",
    extras: &["typescript@=5.9.3"],
};

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

    /// Generates types from an OpenAPI document, in another file.
    ///
    /// # Panics
    /// Panics if the generator cannot be installed or refuses the document.
    pub fn generate(&self, document: &Path, types: &Path) {
        let modules = OPENAPI.modules().unwrap_or_else(|error| panic!("{error}"));
        let mut generator = Command::new(&self.node);
        generator.arg(modules.join("openapi-typescript/bin/cli.js")).arg(document).arg("-o").arg(types);
        let done = generator.output().expect("Node.js starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Compiles a file strictly, without output.
    ///
    /// # Panics
    /// Panics with the messages of the compiler if the file has an error.
    pub fn compile(&self, file: &Path) {
        let mut compiler = Command::new(&self.node);
        compiler
            .arg(self.modules.join("typescript/bin/tsc"))
            .args(["--strict", "--noEmit", "--target", "es2022"]);
        compiler
            .args(["--module", "nodenext", "--moduleResolution", "nodenext", "--lib", "es2022,dom"])
            .arg(file);
        let done = compiler.output().expect("Node.js starts");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
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
