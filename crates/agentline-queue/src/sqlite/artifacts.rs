//! Artifacts in the database.

use super::requests::RequestSender;
use crate::artifacts::{check_size, checked_if_small};
use crate::{
    ArtifactFuture, ArtifactVisitor, Artifacts, MAX_ARTIFACT, QueueError, artifact_name, check_name,
    check_part,
};
use rusqlite::{OptionalExtension, params};

const PAGE: &str = "SELECT name FROM artifacts WHERE experiment = ? AND name > ? ORDER BY name LIMIT 1000";

/// Artifacts in a SQLite database.
#[derive(Clone, Debug)]
pub(super) struct SqliteArtifacts {
    database: RequestSender,
}

impl SqliteArtifacts {
    /// Uses a database.
    pub(super) fn new(database: RequestSender) -> Self {
        Self { database }
    }
}

fn names(experiment: &str, name: &str) -> Result<(String, String), QueueError> {
    check_part(experiment)?;
    check_name(name)?;
    Ok((experiment.to_owned(), name.to_owned()))
}

impl Artifacts for SqliteArtifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(async move {
            check_size(content)?;
            let name = artifact_name(content);
            if self.has(experiment, &name).await? {
                return Ok(name);
            }
            let ((experiment, stored), content) = (names(experiment, &name)?, content.to_vec());
            let size = content.len();
            let put = move |db: &rusqlite::Connection| {
                let sql = "INSERT OR IGNORE INTO artifacts (experiment, name, content) VALUES (?, ?, ?)";
                db.prepare_cached(sql)?.execute(params![experiment, stored, content])?;
                Ok(())
            };
            self.database.write_values(size, put).await?;
            Ok(name)
        })
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let key = names(experiment, name)?;
            let get = |db: &rusqlite::Connection| {
                let sql = "SELECT CASE WHEN length(content) <= ?3 THEN content END
                    FROM artifacts WHERE experiment = ?1 AND name = ?2";
                let key = (key.0, key.1, MAX_ARTIFACT as i64);
                let content: Option<Option<Vec<u8>>> =
                    db.prepare_cached(sql)?.query_row(key, |row| row.get(0)).optional()?;
                Ok(content)
            };
            self.database.read(get).await?.map(|content| checked_if_small(name, content)).transpose()
        })
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(async move {
            let key = names(experiment, name)?;
            let has = |db: &rusqlite::Connection| {
                let sql = "SELECT 1 FROM artifacts WHERE experiment = ? AND name = ?";
                Ok(db.prepare_cached(sql)?.exists(key)?)
            };
            self.database.read(has).await
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
                let key = (experiment.to_owned(), last);
                let page = move |db: &rusqlite::Connection| {
                    let mut select = db.prepare_cached(PAGE)?;
                    Ok(select.query_map(key, |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?)
                };
                let names = self.database.read(page).await?;
                names.iter().for_each(|name| visit(name));
                let Some(name) = names.into_iter().next_back() else { return Ok(()) };
                last = name;
            }
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            let key = names(experiment, name)?;
            let remove = |db: &rusqlite::Connection| {
                db.prepare_cached("DELETE FROM artifacts WHERE experiment = ? AND name = ?")?.execute(key)?;
                Ok(())
            };
            self.database.write(remove).await
        })
    }
}
