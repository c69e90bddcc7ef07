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
/// A listing that is cut off is a request that failed, and so the client repeats it. It would not: to the client an answer
/// is one as soon as it begins, and of many pages all would be asked for anew.
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
        let is_listing = is_listing(&request);
        let mut response = self.0.execute(request).await?;
        let is_part = response.headers().contains_key(HeaderName::from_static("content-range"));
        if let (true, 200, Ok(status)) = (is_part, response.status().as_u16(), PARTIAL.try_into()) {
            *response.status_mut() = status;
        }
        if is_listing { whole(response).await } else { Ok(response) }
    }
}

/// S3 and Google say `list-type`, Azure `comp`; an object is read without either.
fn is_listing(request: &HttpRequest) -> bool {
    let mut asked = request.uri().query().unwrap_or_default().split('&');
    request.method() == Method::GET && asked.any(|pair| matches!(pair, "list-type=2" | "comp=list"))
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
    use object_store::aws::AmazonS3Builder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    /// Two pages of one object each.
    fn page(is_last: bool) -> String {
        let (name, more) = match is_last {
            true => ("b", ""),
            false => ("a", "<NextContinuationToken>more</NextContinuationToken>"),
        };
        format!(
            "<ListBucketResult>{more}<Contents><Key>{name}</Key><Size>1</Size>\
             <LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents></ListBucketResult>"
        )
    }

    /// Whether the last page was asked for.
    async fn answer(mut near: TcpStream, is_cut: bool) -> bool {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(near.read_u8().await.unwrap());
        }
        let is_last = String::from_utf8(request).unwrap().contains("continuation-token=more");
        let page = page(is_last);
        let shown = if is_cut { &page[..page.len() / 2] } else { &page };
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", page.len());
        near.write_all(format!("{head}{shown}").as_bytes()).await.unwrap();
        is_last
    }

    #[tokio::test]
    async fn of_a_listing_that_is_cut_only_the_page_is_asked_for_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let store =
            AmazonS3Builder::new().with_endpoint(url).with_bucket_name("bucket").with_allow_http(true);
        let store = store.with_skip_signature(true).with_http_connector(Lenient).build().unwrap();

        let asked = tokio::spawn(async move {
            let mut is_last = Vec::new();
            for is_cut in [true, false, true, false] {
                let (near, _) = listener.accept().await.unwrap();
                is_last.push(answer(near, is_cut).await);
            }
            is_last
        });
        let listed =
            store.list(None).map_ok(|found| found.location.to_string()).try_collect::<Vec<_>>().await;

        assert_eq!(listed.unwrap(), ["a", "b"]);
        assert_eq!(asked.await.unwrap(), [false, false, true, true]);
    }
}
