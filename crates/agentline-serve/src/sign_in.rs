//! Signs browsers in: links that work once, and the sessions that they begin.
//!
//! Both are in memory, so a restart of the server signs all browsers out. The cookie of a browser has the random value of
//! its session, never a token. Streams of events and ACP connections end with the session that opened them.

use crate::random::random;
use agentline_fs::digest::digest;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

/// How long a link is valid.
const LINK_TIME: Duration = Duration::from_secs(10 * 60);
/// How long a session is valid.
pub(crate) const SESSION_TIME: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How many links and how many sessions are known. The oldest ones are forgotten first.
const MOST: usize = 256;

/// The links that were not used yet, and the sessions of browsers.
#[derive(Debug)]
pub(crate) struct BrowserSessions {
    links: ExpiringSecrets,
    sessions: ExpiringSecrets,
}

impl Default for BrowserSessions {
    fn default() -> Self {
        Self { links: ExpiringSecrets::new(LINK_TIME), sessions: ExpiringSecrets::new(SESSION_TIME) }
    }
}

impl BrowserSessions {
    /// Creates the code of a link.
    pub(crate) fn new_link(&self) -> String {
        self.links.create(Instant::now())
    }

    /// Uses the code of a link and begins a session. Returns the value of its cookie; `None` if the code is not valid.
    pub(crate) fn begin(&self, code: &str) -> Option<String> {
        let now = Instant::now();
        self.links.remove(code, now).then(|| self.sessions.create(now))
    }

    /// Returns the end of the session whose value a cookie has; `None` if there is no such session.
    pub(crate) fn find(&self, cookie: &str) -> Option<CancellationToken> {
        self.sessions.find(cookie, Instant::now())
    }

    /// Returns whether a cookie has the value of a session.
    pub(crate) fn is_signed_in(&self, cookie: &str) -> bool {
        self.find(cookie).is_some()
    }

    /// Ends the session of a cookie. Returns whether there was one.
    pub(crate) fn end(&self, cookie: &str) -> bool {
        self.sessions.remove(cookie, Instant::now())
    }
}

/// Random texts that are valid for some time. Only their digests are kept.
#[derive(Debug)]
struct ExpiringSecrets {
    time: Duration,
    known: Mutex<Vec<ExpiringSecret>>,
}

#[derive(Debug)]
struct ExpiringSecret {
    digest: [u8; 32],
    expires: Instant,
    /// Is cancelled when the secret is not valid any more.
    end: CancellationToken,
}

impl Drop for ExpiringSecret {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl ExpiringSecrets {
    fn new(time: Duration) -> Self {
        Self { time, known: Mutex::default() }
    }

    fn create(&self, now: Instant) -> String {
        let secret = random();
        let digest = digest(secret.as_bytes());
        self.change(now, |known| {
            if known.len() >= MOST {
                known.remove(0);
            }
            known.push(ExpiringSecret { digest, expires: now + self.time, end: CancellationToken::new() });
        });
        secret
    }

    /// Returns the end of a secret that is valid.
    fn find(&self, secret: &str, now: Instant) -> Option<CancellationToken> {
        let secret = digest(secret.as_bytes());
        self.change(now, |known| {
            // Every digest is compared, whether or not an earlier one matches.
            known.iter().fold(None, |found, one| {
                if bool::from(secret.ct_eq(&one.digest)) { Some(one.end.clone()) } else { found }
            })
        })
    }

    /// Removes a secret. Returns whether it was valid.
    fn remove(&self, secret: &str, now: Instant) -> bool {
        let secret = digest(secret.as_bytes());
        self.change(now, |known| {
            let before = known.len();
            known.retain(|one| !bool::from(secret.ct_eq(&one.digest)));
            known.len() < before
        })
    }

    /// Works with the secrets that have not expired.
    fn change<T>(&self, now: Instant, change: impl FnOnce(&mut Vec<ExpiringSecret>) -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|one| one.expires > now);
        change(&mut known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_begins_one_session_which_ends_with_the_sign_out() {
        let sign_in = BrowserSessions::default();
        let code = sign_in.new_link();
        assert!(sign_in.begin("guess").is_none());
        let cookie = sign_in.begin(&code).unwrap();
        assert!(sign_in.begin(&code).is_none(), "a link works once");
        assert!(sign_in.is_signed_in(&cookie));
        assert!(!sign_in.is_signed_in(&code) && !sign_in.is_signed_in(""));
        let other = sign_in.begin(&sign_in.new_link()).unwrap();
        let ends = [&cookie, &other].map(|cookie| sign_in.find(cookie).unwrap());
        assert!(sign_in.end(&cookie) && !sign_in.end(&cookie));
        assert!(!sign_in.is_signed_in(&cookie) && sign_in.is_signed_in(&other));
        assert!(ends[0].is_cancelled() && !ends[1].is_cancelled());
    }

    #[test]
    fn secrets_expire_and_their_number_is_limited() {
        let secrets = ExpiringSecrets::new(Duration::from_secs(60));
        let now = Instant::now();
        let is_known = |secret: &str, now| secrets.find(secret, now).is_some();
        let first = secrets.create(now);
        assert!(is_known(&first, now + Duration::from_secs(59)));
        assert!(!is_known(&first, now + Duration::from_secs(60)));
        let first = secrets.create(now);
        let later: Vec<String> = (0..MOST).map(|_| secrets.create(now)).collect();
        assert!(!is_known(&first, now));
        assert!(later.iter().all(|secret| is_known(secret, now)));
    }
}
