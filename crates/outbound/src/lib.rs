//! Requests to addresses that people name: they go to the internet, and not into the network that this program stands
//! in, unless somebody allows that.

mod address;

use address::Public;
use reqwest::{Client, ClientBuilder, Url, redirect};
use std::sync::Arc;

/// Chooses who does the cryptography of TLS, for this process and all libraries in it. Before the first connection.
pub fn choose_tls() {
    // Refused if somebody has chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// How far requests may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// To the internet alone.
    Public,
    /// Also to this machine and to private networks.
    Anywhere,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("`{0}` is no address: {1}")]
    NotAnAddress(String, String),
    #[error("{0} is an address of this machine or of a private network, which is not allowed")]
    Private(String),
}

/// An address after so many others leads nowhere.
const MOST_REDIRECTS: usize = 5;

impl Reach {
    pub fn private(is_allowed: bool) -> Self {
        if is_allowed { Reach::Anywhere } else { Reach::Public }
    }

    /// An address that may be asked for.
    pub fn parse(self, text: &str) -> Result<Url, Error> {
        let url: Url = text.parse().map_err(|error| not_one(text, format!("{error}")))?;
        if !["http", "https"].contains(&url.scheme()) {
            return Err(not_one(text, "it begins with neither http:// nor https://".into()));
        }
        self.check(&url)?;
        Ok(url)
    }

    /// Follows no redirect: that is another address, which nobody has checked.
    pub fn client(self) -> ClientBuilder {
        choose_tls();
        let builder = Client::builder()
            .user_agent(concat!("vodmill/", env!("CARGO_PKG_VERSION")))
            .redirect(redirect::Policy::none())
            .no_proxy();
        match self {
            Reach::Anywhere => builder,
            Reach::Public => builder.dns_resolver(Arc::new(Public)),
        }
    }

    /// Follows some redirects, each checked.
    pub fn redirects(self) -> redirect::Policy {
        redirect::Policy::custom(move |attempt| {
            if attempt.previous().len() > MOST_REDIRECTS {
                return attempt.error("it leads from address to address without end");
            }
            match self.check(attempt.url()) {
                Ok(()) => attempt.follow(),
                Err(refused) => attempt.error(refused),
            }
        })
    }

    fn check(self, url: &Url) -> Result<(), Error> {
        match self {
            Reach::Anywhere => Ok(()),
            // What is not a name is never resolved.
            Reach::Public => address::check(url),
        }
    }
}

fn not_one(text: &str, why: String) -> Error {
    Error::NotAnAddress(text.chars().take(200).collect(), why)
}

/// For people: without what may be secret.
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}

/// An error with all that is behind it, without the address it is about.
pub fn told(error: reqwest::Error) -> String {
    with_sources(&error.without_url())
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_an_address_is_no_secret() {
        let url = "https://ann:pass@example.org/a/talk.mov?signature=abc#x".parse().unwrap();

        assert_eq!(shown(&url), "https://example.org/a/talk.mov");
    }

    #[test]
    fn only_http_is_asked_and_only_the_internet() {
        for refused in ["", "talk.mov", "file:///etc/passwd", "ftp://example.org/x", "http://127.0.0.1/x"] {
            assert!(Reach::Public.parse(refused).is_err(), "{refused}");
        }
        assert!(Reach::Public.parse("https://example.org/x").is_ok());
        assert!(Reach::Anywhere.parse("http://127.0.0.1/x").is_ok());
        assert!(Reach::Anywhere.parse("file:///etc/passwd").is_err());
    }
}
