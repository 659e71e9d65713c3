//! Sign-in with a credentials file: the server trusts an operator, who signed the account, which signed the user.

use agentline_queue::{ConnectOptions, QueueError, connect};
use agentline_tests::engines::nats::{NATS, NatsServer};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use nkeys::KeyPair;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// The keys of one operator and one account, in a directory.
struct Accounts {
    folder: TempDir,
    operator: KeyPair,
    account: KeyPair,
}

impl Accounts {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().expect("a directory"),
            operator: KeyPair::new_operator(),
            account: KeyPair::new_account(),
        }
    }

    /// Writes a configuration of a server that knows this account and the one of the server itself.
    fn server_config(&self) -> PathBuf {
        let operator =
            token(&self.operator, &self.operator.public_key(), &json!({"type": "operator", "version": 2}));
        let system = KeyPair::new_account().public_key();
        let storage = json!({"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1});
        let accounts =
            [self.account_token(&system, json!({})), self.account_token(&self.account.public_key(), storage)];
        let config = format!(
            "operator: {operator}\nsystem_account: {system}\njetstream: {{}}\nresolver: MEMORY\n\
             resolver_preload: {{\n{}\n}}\n",
            accounts.join("\n")
        );
        self.write("server.conf", &config)
    }

    /// Returns the line of the configuration about an account, which may use these kinds of storage.
    fn account_token(&self, account: &str, storage: Value) -> String {
        let mut limits = json!({
            "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1,
            "leaf": -1,
        });
        let storage = storage.as_object().expect("an object").clone();
        limits.as_object_mut().expect("an object").extend(storage);
        let claims = json!({"type": "account", "version": 2, "limits": limits});
        format!("{account}: {}", token(&self.operator, account, &claims))
    }

    /// Writes a credentials file of a new user, signed by this key of an account.
    fn credentials(&self, name: &str, account: &KeyPair) -> PathBuf {
        let user = KeyPair::new_user();
        let claims = json!({
            "type": "user", "version": 2, "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1,
        });
        let token = token(account, &user.public_key(), &claims);
        let seed = user.seed().expect("a seed");
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        self.write(name, &text)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }
}

/// Returns a signed statement of the issuer about the owner of a public key.
fn token(issuer: &KeyPair, subject: &str, claims: &Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = encode(&json!({"typ": "JWT", "alg": "ed25519-nkey"}));
    let body = encode(&json!({
        "jti": "TEST", "iat": 1_700_000_000, "iss": issuer.public_key(), "sub": subject, "name": "test", "nats": claims,
    }));
    let signed = format!("{header}.{body}");
    let signature = BASE64_URL_SAFE_NO_PAD.encode(issuer.sign(signed.as_bytes()).expect("a signature"));
    format!("{signed}.{signature}")
}

async fn sign_in(server: &NatsServer, credentials: Option<&Path>) -> Result<(), QueueError> {
    let mut options = ConnectOptions::default();
    options.credentials = credentials.map(Path::to_owned);
    let queue = connect(&server.url(), &options).await?;
    queue.write_record("a", b"value", 0).await?;
    assert!(queue.record("a").await?.is_some());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_file_signs_in() {
    let accounts = Accounts::new();
    let config = accounts.server_config();
    let Some(server) = NatsServer::start_with(NATS, &["--config", config.to_str().expect("UTF-8")]) else {
        return;
    };
    let valid = accounts.credentials("valid.creds", &accounts.account);
    sign_in(&server, Some(&valid)).await.expect("a queue");

    let foreign = accounts.credentials("foreign.creds", &KeyPair::new_account());
    for credentials in [None, Some(foreign.as_path())] {
        let error = sign_in(&server, credentials).await.expect_err("no queue");
        assert!(matches!(error, QueueError::Unauthorized(_)), "{error:?}");
    }
}
