//! The engines of queues, started for a test: SQLite, NATS and PostgreSQL.
