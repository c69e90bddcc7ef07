//! Stores that answer as they should, almost.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};
use object_store::signer::{HeaderName, Method};

/// An answer that says which part of an object it is, is taken for that part whatever its status: rclone's server says 200.
///
/// To the client an answer is one as soon as it begins, and what is cut off later is not asked for again. So a listing, and
/// the word that begins an object in parts, count only once all of it is here: of a long listing one page is repeated.
#[derive(Debug)]
pub(super) struct Lenient;

impl HttpConnector for Lenient {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        outbound::choose_tls();
        Ok(HttpClient::new(Service(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Service(HttpClient);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        const PARTIAL: u16 = 206;
        let is_read_whole = is_read_whole(&request);
        let mut response = self.0.execute(request).await?;
        let is_part = response.headers().contains_key(HeaderName::from_static("content-range"));
        if let (true, 200, Ok(status)) = (is_part, response.status().as_u16(), PARTIAL.try_into()) {
            *response.status_mut() = status;
        }
        if is_read_whole { whole(response).await } else { Ok(response) }
    }
}

/// For a listing S3 and Google say `list-type`, and Azure `comp`; an object is read without either.
fn is_read_whole(request: &HttpRequest) -> bool {
    let mut asked = request.uri().query().unwrap_or_default().split('&');
    match *request.method() {
        Method::GET => asked.any(|pair| matches!(pair, "list-type=2" | "comp=list")),
        Method::POST => asked.any(|pair| matches!(pair, "uploads" | "uploads=")),
        _ => false,
    }
}

async fn whole(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (head, body) = response.into_parts();
    let body = body.bytes().await.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error))?;
    Ok(HttpResponse::from_parts(head, body.into()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use futures_util::TryStreamExt;
    use object_store::ObjectStore;
    use object_store::aws::{AmazonS3, AmazonS3Builder};
    use object_store::multipart::MultipartStore;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::JoinHandle;

    const MORE: &str = "continuation-token=more";

    /// Two pages of one object each, and the beginning of one in parts.
    fn told(request: &str) -> String {
        if request.starts_with("POST ") {
            return "<InitiateMultipartUploadResult><UploadId>one</UploadId></InitiateMultipartUploadResult>"
                .into();
        }
        let (name, more) = match request.contains(MORE) {
            true => ("b", ""),
            false => ("a", "<NextContinuationToken>more</NextContinuationToken>"),
        };
        format!(
            "<ListBucketResult>{more}<Contents><Key>{name}</Key><Size>1</Size>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
        )
    }

    async fn answer(mut near: TcpStream, is_cut: bool) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(near.read_u8().await.unwrap());
        }
        let request = String::from_utf8(request).unwrap();
        let told = told(&request);
        let shown = if is_cut { &told[..told.len() / 2] } else { &told };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", told.len());
        near.write_all(format!("{head}{shown}").as_bytes()).await.unwrap();
        request
    }

    /// A store of whose first four answers every second is cut, and in the end what it was asked.
    async fn cutting() -> (AmazonS3, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let store =
            AmazonS3Builder::new().with_endpoint(url).with_bucket_name("bucket").with_allow_http(true);
        let store = store.with_skip_signature(true).with_http_connector(Lenient).build().unwrap();
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for is_cut in [true, false, true, false] {
                let (near, _) = listener.accept().await.unwrap();
                asked.push(answer(near, is_cut).await);
            }
            asked
        });
        (store, asked)
    }

    #[tokio::test]
    async fn of_a_listing_that_is_cut_only_the_page_is_asked_for_again() {
        let (store, asked) = cutting().await;

        let listed =
            store.list(None).map_ok(|found| found.location.to_string()).try_collect::<Vec<_>>().await;

        assert_eq!(listed.unwrap(), ["a", "b"]);
        let is_last: Vec<_> = asked.await.unwrap().iter().map(|request| request.contains(MORE)).collect();
        assert_eq!(is_last, [false, false, true, true]);
    }

    #[tokio::test]
    async fn an_object_is_begun_in_parts_though_the_answer_is_cut() {
        let (store, _asked) = cutting().await;

        let begun = MultipartStore::create_multipart(&store, &"a".into()).await;

        assert_eq!(begun.unwrap(), "one");
    }
}
