//! The public TypeScript SDK for ACP at a fixed version, whose clients drive `agentline acp` and `agentline serve`.

use crate::{npm::Package, real::are_disabled};
use agentline::{Agentline, install::find_node};
use std::path::{Path, PathBuf};

const SDK: Package =
    Package { id: "acp-sdk", name: "@agentclientprotocol/sdk", version: "2.4.0", extras: &["zod@=4.6.7"] };

/// WebSockets for Node.js. The SDK's client on a WebSocket needs a constructor, which Node.js 20 does not have.
const WEB_SOCKET: Package = Package::new("ws", "ws", "8.23.0");

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
        let modules = installed(SDK);
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

    /// Returns the directory `node_modules` of the package `ws`, and installs it if necessary.
    ///
    /// # Panics
    /// Panics if it cannot be installed.
    #[must_use]
    pub fn web_socket(&self) -> PathBuf {
        installed(WEB_SOCKET)
    }
}

fn installed(package: Package) -> PathBuf {
    package
        .modules()
        .unwrap_or_else(|error| panic!("{error}\nAGENTLINE_REAL_AGENTS=off disables these tests"))
}
