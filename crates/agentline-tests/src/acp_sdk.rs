//! The public TypeScript SDK for ACP at a fixed version, whose client drives `agentline acp`.

use crate::{npm::Package, real::are_disabled};
use agentline::{Agentline, install::find_node};
use std::path::{Path, PathBuf};

const SDK: Package =
    Package { id: "acp-sdk", name: "@agentclientprotocol/sdk", version: "2.4.0", extras: &["zod@=4.6.7"] };

/// Node.js, and the directory of the SDK.
#[derive(Debug)]
pub struct AcpSdk {
    node: PathBuf,
    modules: PathBuf,
}

impl AcpSdk {
    /// Returns both, and installs the SDK if necessary, or `None` if real agents are disabled.
    ///
    /// # Panics
    /// Panics if it cannot be installed or there is no Node.js.
    #[must_use]
    pub fn find() -> Option<Self> {
        if are_disabled() {
            return None;
        }
        let modules = SDK
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
