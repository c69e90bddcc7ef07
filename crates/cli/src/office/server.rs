//! Speaks to one server as its admin.

use super::fault::{self, Fault};
use anyhow::Context;
use reqwest::header::{DATE, HeaderMap, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::http::header::ADMIN_SECRET;
use worker::remote::Address;

/// For a connection, and for the answer to a question.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(60);

/// A listing of ten thousand steps with the ends of their output is some megabytes.
const LONGEST_ANSWER: usize = 256 << 20;

pub struct Server {
    http: reqwest::Client,
    address: Address,
    /// By how much the server's clock is ahead of this one, in milliseconds; its last answer said so.
    ahead: AtomicI64,
}

impl Server {
    pub fn new(address: Address, secret: &str) -> anyhow::Result<Self> {
        let mut value = HeaderValue::from_str(secret.trim()).map_err(|_| {
            crate::settings::Usage("the admin secret cannot be sent; was something else pasted?".into())
        })?;
        value.set_sensitive(true);
        let mut headers = HeaderMap::new();
        headers.insert(ADMIN_SECRET, value);
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("vodmill/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT)
            // The secret is for this server and no other.
            .redirect(redirect::Policy::none())
            .referer(false)
            .http1_only();
        if address.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().context("cannot speak HTTP")?;
        Ok(Server { http, address, ahead: AtomicI64::new(0) })
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A place people and players may be sent to.
    pub fn place<'a>(&self, parts: impl IntoIterator<Item = &'a str>) -> Url {
        self.address.below(parts)
    }

    /// By the server's clock.
    pub fn now(&self) -> i64 {
        millis(SystemTime::now()) + self.ahead.load(Ordering::Relaxed)
    }

    pub fn request<'a>(&self, method: Method, parts: impl IntoIterator<Item = &'a str>) -> RequestBuilder {
        self.http.request(method, self.place(["api"].into_iter().chain(parts)))
    }

    pub async fn get<'a, T: DeserializeOwned>(
        &self,
        parts: impl IntoIterator<Item = &'a str>,
        query: &[(&str, Option<String>)],
    ) -> Result<T, Fault> {
        self.ask(self.asked(parts, query)).await
    }

    /// What happens, as it happens, to one job or all; a stream without end.
    pub async fn listen(&self, job: Option<String>) -> Result<Response, Fault> {
        self.send(self.asked(["events"], &[("job", job)])).await
    }

    fn asked<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a str>,
        query: &[(&str, Option<String>)],
    ) -> RequestBuilder {
        let mut url = self.place(["api"].into_iter().chain(parts));
        for (name, value) in query.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
            url.query_pairs_mut().append_pair(name, value);
        }
        self.http.get(url)
    }

    pub async fn post<'a, T: DeserializeOwned>(
        &self,
        parts: impl IntoIterator<Item = &'a str>,
        body: &impl Serialize,
    ) -> Result<T, Fault> {
        self.ask(with_json(self.request(Method::POST, parts), body)?).await
    }

    /// Sends a request and reads the answer.
    pub async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Fault> {
        let response = self.send(request.timeout(ANSWER)).await?;
        let what = fault::describe(&response);
        let body = fault::read(&self.address(), response, LONGEST_ANSWER).await?;
        serde_json::from_slice(&body).map_err(|_| Fault::Stranger {
            address: self.address(),
            what,
            is_busy: false,
        })
    }

    /// Sends a request whose answer says all in its head.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, Fault> {
        let response = request.send().await.map_err(|error| Fault::of(self.address(), error))?;
        self.set_clock(&response);
        fault::judge(self.address(), response).await
    }

    /// As [`Server::send`] for a HEAD request.
    pub async fn send_head(&self, request: RequestBuilder) -> Result<Response, Fault> {
        let sent = request.timeout(ANSWER).send().await;
        fault::judge_head(self.address(), sent.map_err(|error| Fault::of(self.address(), error))?)
    }

    fn set_clock(&self, response: &Response) {
        let date = response.headers().get(DATE).and_then(|date| date.to_str().ok());
        if let Some(theirs) = date.and_then(|date| httpdate::parse_http_date(date).ok()) {
            let ahead = millis(theirs) - millis(SystemTime::now());
            // It counts whole seconds: within one, the clocks agree.
            let ahead = if ahead.abs() <= 1000 { 0 } else { ahead };
            self.ahead.store(ahead, Ordering::Relaxed);
        }
    }
}

pub fn with_json(request: RequestBuilder, body: &impl Serialize) -> Result<RequestBuilder, Fault> {
    let body = serde_json::to_vec(body).map_err(|error| Fault::Http(error.to_string()))?;
    Ok(request.header("content-type", "application/json").body(body))
}

fn millis(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
