//! Artifacts in a bucket of an S3-compatible store.

#[cfg(test)]
mod tests;

use crate::artifacts::{check_size, checked};
use crate::{
    ArtifactFuture, ArtifactVisitor, Artifacts, ConnectOptions, QueueError, artifact_name, check_name,
    check_part,
};
use futures_util::TryStreamExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path as Key;
use object_store::{Certificate, ClientOptions, ObjectStore as _, ObjectStoreExt as _, RetryConfig};
use std::net::IpAddr;
use std::time::Duration;

/// How often a request is repeated. Whoever made it may repeat it later.
const RETRIES: usize = 3;
/// How long a request is repeated.
const RETRY_TIME: Duration = Duration::from_secs(30);
/// How long one request may take, with its content.
const REQUEST_TIME: Duration = Duration::from_secs(120);

/// Artifacts in a bucket of an S3-compatible store. An artifact has the key `PREFIX/EXPERIMENT/NAME`.
#[derive(Debug)]
pub struct S3Artifacts {
    store: AmazonS3,
    prefix: String,
}

impl S3Artifacts {
    /// Uses the bucket at an address: `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`. The prefix and the parameters may be
    /// missing.
    ///
    /// Everything else, above all the credentials, comes from the environment: `AWS_ACCESS_KEY_ID` and
    /// `AWS_SECRET_ACCESS_KEY`, or what the machine or container has been given.
    ///
    /// # Errors
    /// Fails if the address or the environment is invalid, or if the connection would not be encrypted. Does not contact
    /// the store.
    pub fn new(address: &str, options: &ConnectOptions) -> Result<Self, QueueError> {
        Self::with_environment(AmazonS3Builder::from_env(), address, options)
    }

    fn with_environment(
        environment: AmazonS3Builder,
        address: &str,
        options: &ConnectOptions,
    ) -> Result<Self, QueueError> {
        // Parameters may contain what should not be shown.
        let shown = crate::without_password(address.split('?').next().unwrap_or_default());
        let invalid =
            |reason: &str| QueueError::InvalidAddress { address: shown.clone(), reason: reason.to_owned() };
        let location = Location::parse(address).map_err(invalid)?;
        let mut builder = environment.with_bucket_name(location.bucket);
        if let Some(endpoint) = location.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = location.region {
            builder = builder.with_region(region);
        }
        // The environment may name an endpoint too.
        let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint).unwrap_or_default();
        check_endpoint(&endpoint, options.allow_plaintext)?;
        // Fails if another part of the program has chosen a provider, which is then used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIME, ..RetryConfig::default() };
        let store = builder
            .with_client_options(client_options(&endpoint, options)?)
            .with_retry(retry)
            .with_disable_bulk_delete(true)
            .build();
        let store = store.map_err(|error| invalid(&error.to_string()))?;
        Ok(Self { store, prefix: location.prefix.to_owned() })
    }

    fn directory(&self, experiment: &str) -> Result<Key, QueueError> {
        check_part(experiment)?;
        Ok(Key::from(format!("{}/{experiment}", self.prefix)))
    }

    fn key(&self, experiment: &str, name: &str) -> Result<Key, QueueError> {
        check_name(name)?;
        Ok(self.directory(experiment)?.join(name))
    }
}

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
struct Location<'a> {
    bucket: &'a str,
    prefix: &'a str,
    endpoint: Option<&'a str>,
    region: Option<&'a str>,
}

impl<'a> Location<'a> {
    fn parse(address: &'a str) -> Result<Self, &'static str> {
        let rest = address.strip_prefix("s3://").ok_or("it does not begin with `s3://`")?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if address.contains('@') {
            return Err(
                "it must not contain credentials: set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`",
            );
        }
        if bucket.is_empty() {
            return Err("it has no bucket");
        }
        let mut location = Self { bucket, prefix: prefix.trim_matches('/'), endpoint: None, region: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("endpoint", url)) if url.starts_with("http://") || url.starts_with("https://") => {
                    location.endpoint = Some(url.trim_end_matches('/'));
                }
                Some(("endpoint", _)) => {
                    return Err("its endpoint begins with neither `http://` nor `https://`");
                }
                Some(("region", name)) => location.region = Some(name),
                _ => return Err("its parameters are not `endpoint=URL` or `region=NAME`"),
            }
        }
        Ok(location)
    }
}

/// Refuses an endpoint on another machine to which the connection would not be encrypted.
fn check_endpoint(endpoint: &str, allow_plaintext: bool) -> Result<(), QueueError> {
    let Some(rest) = endpoint.strip_prefix("http://") else { return Ok(()) };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next(),
        None => authority.split(':').next(),
    };
    let host = host.unwrap_or_default();
    let is_loopback =
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_loopback || allow_plaintext { Ok(()) } else { Err(QueueError::Plaintext(endpoint.to_owned())) }
}

fn client_options(endpoint: &str, options: &ConnectOptions) -> Result<ClientOptions, QueueError> {
    let mut client =
        ClientOptions::new().with_allow_http(endpoint.starts_with("http://")).with_timeout(REQUEST_TIME);
    let Some(path) = &options.ca else { return Ok(client) };
    let refuse =
        |error: &dyn std::fmt::Display| QueueError::Refused(format!("`{}`: {error}", path.display()));
    let pem = std::fs::read(path).map_err(|error| refuse(&error))?;
    for certificate in Certificate::from_pem_bundle(&pem).map_err(|error| refuse(&error))? {
        client = client.with_root_certificate(certificate);
    }
    Ok(client)
}

fn queue_error(error: object_store::Error) -> QueueError {
    use object_store::Error;
    match &error {
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
            QueueError::Unauthorized(error.to_string())
        }
        Error::Generic { .. } | Error::JoinError { .. } => QueueError::Unavailable(error.to_string()),
        // A bucket that does not exist, above all.
        _ => QueueError::Refused(error.to_string()),
    }
}

/// Returns `None` for something that is not there.
fn found<T>(result: object_store::Result<T>) -> Result<Option<T>, QueueError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(queue_error(error)),
    }
}

impl Artifacts for S3Artifacts {
    fn put<'a>(&'a self, experiment: &'a str, content: &'a [u8]) -> ArtifactFuture<'a, String> {
        Box::pin(async move {
            check_size(content)?;
            let name = artifact_name(content);
            let key = self.key(experiment, &name)?;
            self.store.put(&key, content.to_vec().into()).await.map_err(queue_error)?;
            Ok(name)
        })
    }

    fn get<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let Some(object) = found(self.store.get(&self.key(experiment, name)?).await)? else {
                return Ok(None);
            };
            // Another program may have stored anything under this key.
            if object.meta.size > crate::MAX_ARTIFACT as u64 {
                return Err(QueueError::Damaged(name.to_owned()));
            }
            let content = object.bytes().await.map_err(queue_error)?;
            checked(name, content.into()).map(Some)
        })
    }

    fn has<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, bool> {
        Box::pin(async move { Ok(found(self.store.head(&self.key(experiment, name)?).await)?.is_some()) })
    }

    fn for_each_name<'a>(
        &'a self,
        experiment: &'a str,
        visit: ArtifactVisitor<'a>,
    ) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            let mut objects = self.store.list(Some(&self.directory(experiment)?));
            while let Some(object) = objects.try_next().await.map_err(queue_error)? {
                object.location.filename().into_iter().for_each(&mut *visit);
            }
            Ok(())
        })
    }

    fn remove<'a>(&'a self, experiment: &'a str, name: &'a str) -> ArtifactFuture<'a, ()> {
        Box::pin(async move {
            found(self.store.delete(&self.key(experiment, name)?).await)?;
            Ok(())
        })
    }
}
