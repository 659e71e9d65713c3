//! No file, schema or answer outruns the timeout of a run.
