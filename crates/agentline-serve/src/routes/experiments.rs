//! Experiments in the served directories: list, status, report.

use super::{blocking, scan};
use crate::{
    app::App,
    extract::Params,
    http_error::ApiError,
    messages::{
        ClassCounts, ExperimentInfo, ExperimentList, ExperimentProgress, ExperimentQuery, ReportType,
    },
    roots::Roots,
};
use agentline_batch::{Experiment, ExperimentReport, StoreError};
use axum::{
    Json,
    extract::State,
    http::header,
    response::{Html, IntoResponse as _, Response},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// How deep experiments are searched for below a root.
const DEPTH: usize = 4;
/// How many directories are looked at.
const DIRECTORIES: usize = 20_000;
const DATABASE: &str = "experiment.sqlite";
/// The report is one file with its own styles and no scripts.
const REPORT_CSP: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; \
                          base-uri 'none'; frame-ancestors 'none'";

pub(crate) async fn list(State(app): State<Arc<App>>) -> Result<Json<ExperimentList>, ApiError> {
    let roots = app.roots.clone();
    let found = scan(&app, blocking(move || Ok(find(&roots)))).await?;
    Ok(Json(ExperimentList { experiments: found }))
}

pub(crate) async fn status(
    State(app): State<Arc<App>>,
    Params(query): Params<ExperimentQuery>,
) -> Result<Json<ExperimentProgress>, ApiError> {
    let roots = app.roots.clone();
    let reading = blocking(move || progress(&experiment_in(&roots, &query.dir)?));
    Ok(Json(scan(&app, reading).await?))
}

pub(crate) async fn report(
    State(app): State<Arc<App>>,
    Params(query): Params<ExperimentQuery>,
) -> Result<Response, ApiError> {
    let roots = app.roots.clone();
    let reading = blocking(move || {
        let dir = experiment_in(&roots, &query.dir)?;
        let report = ExperimentReport::read(&dir).map_err(store_error)?;
        Ok(match query.format {
            ReportType::Json => Json(report.json()).into_response(),
            ReportType::Html => {
                ([(header::CONTENT_SECURITY_POLICY, REPORT_CSP)], Html(report.html(&dir))).into_response()
            }
        })
    });
    scan(&app, reading).await
}

/// Returns the directory of an experiment with its links resolved. Its database must not be a link, which could lead out of
/// the roots.
fn experiment_in(roots: &Roots, dir: &str) -> Result<PathBuf, ApiError> {
    let dir = roots.resolve("dir", dir)?;
    if has_database(&dir) { Ok(dir) } else { Err(ApiError::not_found("the experiment")) }
}

fn has_database(dir: &Path) -> bool {
    dir.join(DATABASE).symlink_metadata().is_ok_and(|found| found.is_file())
}

fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Missing(_) => ApiError::not_found("the experiment"),
        error => ApiError::internal(agentline_core::error_chain(&error)),
    }
}

fn progress(dir: &Path) -> Result<ExperimentProgress, ApiError> {
    let report = ExperimentReport::read(dir).map_err(store_error)?;
    let experiment = Experiment::read(dir).map_err(store_error)?;
    let meta = |key: &str| experiment.meta(key).ok().flatten().unwrap_or_default();
    let count = |key: &str| serde_json::from_str::<Vec<String>>(&meta(key)).map_or(0, |list| list.len());
    let (cases, variants) = (count("cases"), count("variants"));
    let repeat = meta("repeat").parse().unwrap_or(1);
    let mut classes = ClassCounts::default();
    for variant in &report.variants {
        classes.passed += variant.passed;
        classes.failed += variant.failed;
        classes.infrastructure += variant.infrastructure;
    }
    let finished = (classes.passed + classes.failed + classes.infrastructure) as usize;
    Ok(ExperimentProgress {
        dir: dir.to_string_lossy().into_owned(),
        name: report.name,
        cases,
        variants,
        repeat,
        planned: (cases * variants * repeat).max(finished),
        finished,
        classes,
        cost_usd: report.variants.iter().filter_map(|variant| variant.total_cost_usd).sum(),
    })
}

/// Finds experiments below the roots, newest first. Links are not followed.
fn find(roots: &Roots) -> Vec<ExperimentInfo> {
    let mut found = Vec::new();
    let mut left = DIRECTORIES;
    let mut open: Vec<(PathBuf, usize)> = roots.all().iter().map(|root| (root.clone(), 0)).collect();
    while let Some((dir, depth)) = open.pop() {
        if has_database(&dir) {
            found.extend(describe(&dir));
            continue;
        }
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if is_dir && !is_hidden && entry.file_name() != "node_modules" && depth < DEPTH && left > 0 {
                left -= 1;
                open.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(one.modified_at_ms));
    found
}

fn describe(dir: &Path) -> Option<ExperimentInfo> {
    let name = Experiment::read(dir).ok()?.meta("name").ok()?.unwrap_or_default();
    let write_ahead = dir.join(format!("{DATABASE}-wal"));
    let times = [dir.join(DATABASE), write_ahead]
        .into_iter()
        .filter_map(|file| file.metadata().ok()?.modified().ok());
    let modified = times.max().unwrap_or(SystemTime::UNIX_EPOCH).duration_since(UNIX_EPOCH).ok()?;
    let modified_at_ms = u64::try_from(modified.as_millis()).ok()?;
    Some(ExperimentInfo { dir: dir.to_string_lossy().into_owned(), name, modified_at_ms })
}
