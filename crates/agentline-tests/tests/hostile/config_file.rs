//! A workspace's agentline.toml widens nothing until the user trusts the folder.
