// The functions of agent-cli-sdk's module for this agent.

import { agentModule } from './agent-cli.js';

export const { parse, loadSession, execute, detectCli } = agentModule('claude');
