//! Artifacts in the database.

use super::pool::SessionPool;
use crate::artifacts::{check_size, checked_if_small};
use crate::{
    ArtifactFuture, ArtifactVisitor, Artifacts, MAX_ARTIFACT, artifact_name, check_name, check_part,
};
use std::sync::Arc;

const PUT: &str = "
INSERT INTO agentline.artifacts (experiment, name, content) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
/// Another program may have stored a larger value, which is not read.
const GET: &str = "
SELECT CASE WHEN octet_length(content) <= $3 THEN content END
FROM agentline.artifacts WHERE experiment = $1 AND name = $2";
const HAS: &str = "SELECT 1 FROM agentline.artifacts WHERE experiment = $1 AND name = $2";
const PAGE: &str = "
SELECT name FROM agentline.artifacts WHERE experiment = $1 AND name > $2 ORDER BY name LIMIT 1000";
const REMOVE: &str = "DELETE FROM agentline.artifacts WHERE experiment = $1 AND name = $2";

/// Artifacts in a PostgreSQL database.
#[derive(Debug)]
pub(super) struct PostgresArtifacts {
    pool: Arc<SessionPool>,
}

impl PostgresArtifacts {
    /// Uses connections.
    pub(super) fn new(pool: Arc<SessionPool>) -> Self {
        Self { pool }
    }
}

impl Artifacts for PostgresArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(async move {
            check_size(content)?;
            let name = artifact_name(content);
            if !self.has(experiment, &name).await? {
                self.pool.query_bulk(PUT, &[&experiment, &name, &content]).await?;
            }
            Ok(name)
        })
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            check_part(experiment)?;
            check_name(name)?;
            let most = i32::try_from(MAX_ARTIFACT).unwrap_or(i32::MAX);
            let rows = self.pool.query_bulk(GET, &[&experiment, &name, &most]).await?;
            rows.first().map(|row| checked_if_small(name, row.get(0))).transpose()
        })
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(async move {
            check_part(experiment)?;
            check_name(name)?;
            Ok(!self.pool.query_bulk(HAS, &[&experiment, &name]).await?.is_empty())
        })
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            check_part(experiment)?;
            let mut last = String::new();
            loop {
                let rows = self.pool.query_bulk(PAGE, &[&experiment, &last]).await?;
                rows.iter().for_each(|row| visit(row.get(0)));
                let Some(row) = rows.last() else { return Ok(()) };
                last = row.get(0);
            }
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            check_part(experiment)?;
            check_name(name)?;
            self.pool.query_bulk(REMOVE, &[&experiment, &name]).await?;
            Ok(())
        })
    }
}
