// The functions of agent-cli-sdk's module for OpenCode.

import type { AgentModule } from './agent-cli.js';

export const parse: AgentModule['parse'];
export const loadSession: AgentModule['loadSession'];
export const execute: AgentModule['execute'];
export const detectCli: AgentModule['detectCli'];
