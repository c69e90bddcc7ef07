//! A bucket by its URL.

use super::error::told;
use super::lenient::Lenient;
use super::{BadAddress, Bucket, Inner, Kind};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Name;
use object_store::signer::{Signer, Url};
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// A file of any size may be under way for as long as its bytes move.
const PATIENCE: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::ConnectTimeout, "5 seconds"),
    (ClientConfigKey::ReadTimeout, "60 seconds"),
    (ClientConfigKey::Timeout, "1 day"),
];

/// A request is repeated for about a minute; who cannot wait for so long says so.
fn repetitions() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(5), ..BackoffConfig::default() },
        max_retries: 40,
        retry_timeout: Duration::from_secs(60),
    }
}

/// The variables of this process count, and these before them.
pub(super) fn open(text: &str, more: Variables<'_>) -> Result<Bucket, BadAddress> {
    let url = Url::parse(text).ok().filter(|url| url.host_str().is_some() && url.query().is_none());
    // What is no URL of ours may hold a password.
    let url = url.filter(|url| url.username().is_empty() && url.password().is_none());
    let url = url.ok_or_else(|| BadAddress::NotAUrl(text.rsplit('@').next().unwrap_or_default().into()))?;
    match url.scheme() {
        "s3" => s3(&url, more),
        "gs" => gs(&url, more),
        "az" => az(&url, more),
        _ => Err(BadAddress::NotAUrl(text.into())),
    }
}

pub(super) type Variables<'a> = &'a [(&'a str, &'a str)];

/// Those that a store knows.
fn keys<K: std::str::FromStr>(more: Variables<'_>) -> impl Iterator<Item = (K, String)> {
    more.iter()
        .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, (*value).to_owned())))
}

fn s3(url: &Url, more: Variables<'_>) -> Result<Bucket, BadAddress> {
    let mut builder = AmazonS3Builder::from_env().with_url(url.as_str()).with_http_connector(Lenient);
    builder = builder.with_retry(repetitions());
    for (key, value) in PATIENCE {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    for (key, value) in keys(more) {
        builder = builder.with_config(key, value);
    }
    // Who names an endpoint without TLS means it.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    if endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    finish(url, Kind::Aws, endpoint, builder.build())
}

#[cfg(feature = "gcp")]
fn gs(url: &Url, more: Variables<'_>) -> Result<Bucket, BadAddress> {
    use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
    let mut builder =
        GoogleCloudStorageBuilder::from_env().with_url(url.as_str()).with_http_connector(Lenient);
    builder = builder.with_retry(repetitions());
    for (key, value) in PATIENCE {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    for (key, value) in keys(more) {
        builder = builder.with_config(key, value);
    }
    finish(url, Kind::Gcp, None, builder.build())
}

#[cfg(feature = "azure")]
fn az(url: &Url, more: Variables<'_>) -> Result<Bucket, BadAddress> {
    use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
    let mut builder = MicrosoftAzureBuilder::from_env().with_url(url.as_str()).with_http_connector(Lenient);
    builder = builder.with_retry(repetitions());
    for (key, value) in PATIENCE {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    for (key, value) in keys(more) {
        builder = builder.with_config(key, value);
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    if endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    finish(url, Kind::Azure, endpoint, builder.build())
}

#[cfg(not(feature = "gcp"))]
fn gs(_: &Url, _: Variables<'_>) -> Result<Bucket, BadAddress> {
    Err(BadAddress::NotBuilt("Google Cloud Storage"))
}

#[cfg(not(feature = "azure"))]
fn az(_: &Url, _: Variables<'_>) -> Result<Bucket, BadAddress> {
    Err(BadAddress::NotBuilt("Azure"))
}

fn finish<S>(
    url: &Url,
    kind: Kind,
    endpoint: Option<String>,
    built: object_store::Result<S>,
) -> Result<Bucket, BadAddress>
where
    S: ObjectStore + MultipartStore + Signer,
{
    let unusable = |why: String| BadAddress::Unusable { url: url.to_string(), why };
    let store = Arc::new(built.map_err(|error| unusable(told(&error)))?);
    let prefix = Name::from_url_path(url.path()).map_err(|error| unusable(error.to_string()))?;
    Ok(Bucket(Arc::new(Inner {
        multipart: store.clone(),
        signer: store.clone(),
        store,
        prefix,
        url: url.to_string(),
        endpoint: endpoint.and_then(|text| Url::parse(&text).ok()).map(|at| outbound::shown(&at)),
        kind,
    })))
}

/// For tests: it knows everything but how to sign.
#[cfg(test)]
pub(super) fn in_memory() -> Bucket {
    use object_store::memory::InMemory;
    outbound::choose_tls();
    let signer = AmazonS3Builder::new().with_bucket_name("none").build().expect("a bucket has a name");
    let store = Arc::new(InMemory::new());
    Bucket(Arc::new(Inner {
        multipart: store.clone(),
        signer: Arc::new(signer),
        store,
        prefix: Name::default(),
        url: "memory:".into(),
        endpoint: None,
        kind: Kind::Aws,
    }))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_names_no_storage_says_what_would() {
        for text in
            ["vodmill", "ftp://host/x", "s3:///prefix", "https://ann:secret@host", "s3://bucket/?key=secret"]
        {
            let said = open(text, &[]).unwrap_err().to_string();

            assert!(said.contains("s3://BUCKET/PREFIX"), "{said}");
            assert!(!said.contains("ann:secret"), "{said}");
        }
    }

    #[tokio::test]
    async fn of_two_who_create_an_object_one_is_refused() {
        let bucket = in_memory();
        let create = |text: &'static [u8]| bucket.create("uploads/a/0", text.into());

        let (one, other) = tokio::join!(create(b"one"), create(b"other"));

        let is_taken = |it: &super::super::Result<()>| matches!(it, Err(super::super::Error::Taken(_)));
        assert!(is_taken(&one) != is_taken(&other), "{one:?} {other:?}");
    }

    #[test]
    fn names_go_below_the_prefix() {
        let bucket = open("s3://bucket/some/prefix", &[]).unwrap();

        assert_eq!(bucket.place("parts/1-2.3/a.m4s").unwrap().as_ref(), "some/prefix/parts/1-2.3/a.m4s");
        assert!(bucket.place("a//b").is_err() && bucket.place("../b").is_err());
    }
}
