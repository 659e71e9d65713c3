// Schemas of libraries such as Zod, which describe themselves as JSON Schema.

import { RunError } from './errors.js';
import { usageError } from './option-names.js';

/** The interface that such schemas have in common: https://standardschema.dev. @param {any} schema */
const standardOf = (schema) => schema?.['~standard'];

/**
 * Returns a schema as JSON Schema. JSON Schemas and paths are returned as they are.
 * @param {any} schema
 * @param {string} key the option that the schema was given in
 */
export function jsonSchema(schema, key) {
  const standard = standardOf(schema);
  if (standard === undefined) return schema;
  try {
    if (typeof standard.jsonSchema?.input === 'function') return standard.jsonSchema.input({ target: 'draft-2020-12' });
    if (typeof schema.toJSONSchema === 'function') return schema.toJSONSchema({ io: 'input' });
  } catch (cause) {
    const hint = 'use types that JSON has, or pass a JSON Schema';
    throw usageError(key, `cannot be converted to JSON Schema: ${cause instanceof Error ? cause.message : cause}`, { hint, cause });
  }
  const hint = 'use Zod 4.2 or newer, or pass the JSON Schema itself, such as `z.toJSONSchema(schema)`';
  throw usageError(key, `cannot be converted to JSON Schema by this version of ${standard.vendor ?? 'the library'}`, { hint });
}

/**
 * Returns a value as the schema of a library parses it, with its defaults and transformations.
 * @param {any} schema
 * @param {unknown} value
 * @param {import('../types/index.js').Outcome<any> | null} [outcome] the outcome that contains the value
 * @returns {Promise<any>}
 */
export async function parsed(schema, value, outcome = null) {
  const standard = standardOf(schema);
  if (typeof standard?.validate !== 'function') return value;
  const result = await standard.validate(value);
  if (!result.issues) return result.value;
  const issues = result.issues.map((/** @type {{ message: string }} */ issue) => issue.message).join('; ');
  throw new RunError(`the value does not match its schema: ${issues}`, { outcome });
}
