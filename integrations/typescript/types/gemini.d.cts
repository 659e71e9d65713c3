// The types of the module for a CommonJS program.

import type * as agent from './gemini.js' with { 'resolution-mode': 'import' };

export const parse: typeof agent.parse;
export const loadSession: typeof agent.loadSession;
export const execute: typeof agent.execute;
export const detectCli: typeof agent.detectCli;
