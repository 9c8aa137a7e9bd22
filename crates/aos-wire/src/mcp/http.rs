//! Streamable HTTP transport. It checks the bearer token, Host and Origin, and bounds bodies, time and connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// The path of the MCP endpoint.
const PATH: &str = "/mcp";
const CONNECTIONS_MAX: usize = 128;
const HEADERS_TIMEOUT: Duration = Duration::from_secs(10);
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: usize = aos_model::limits::FRAME_BYTES_MAX;

/// Which requests are accepted.
#[derive(Debug, Clone)]
pub struct HttpAccess {
    /// The token in `Authorization: Bearer …`; `None` accepts every client and is for tests only.
    pub token: Option<String>,
    /// Accepted names in the Host header, without ports.
    pub hosts: Vec<String>,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until the process ends.
pub async fn serve_http<H>(
    listener: TcpListener,
    access: HttpAccess,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> io::Result<()>
where
    H: ServerHandler,
{
    let port = listener.local_addr()?.port();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(access.hosts.iter().cloned())
        // Only pages from this server itself would have these origins, and it serves no pages.
        .with_allowed_origins(access.hosts.iter().map(|host| format!("http://{}:{port}", bracketed(host))))
        .enforce_origin_validation()
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    let service =
        StreamableHttpService::new(move || Ok(handler()), Arc::new(LocalSessionManager::default()), config);
    let (access, permits) = (Arc::new(access), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or the client has disconnected: open connections continue.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (access, service) = (access.clone(), service.clone());
        let answer = move |request| handle(access.clone(), service.clone(), request);
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIMEOUT)
                .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer))
                .await;
            drop(permit);
        });
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

async fn handle<H: ServerHandler>(
    access: Arc<HttpAccess>,
    service: StreamableHttpService<H, LocalSessionManager>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    if !access.has_token(&request) {
        let mut answer =
            plain(StatusCode::UNAUTHORIZED, "a bearer token is needed; `aos mcp --http` printed it");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return Ok(answer);
    }
    if request.uri().path() != PATH {
        return Ok(plain(StatusCode::NOT_FOUND, "the server is at /mcp"));
    }
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or incomplete")),
        Err(_) => return Ok(plain(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    };
    Ok(service.handle(Request::from_parts(head, Full::new(body))).await)
}

impl HttpAccess {
    /// Accepts the host names by which clients reach `address`.
    pub fn for_address(address: SocketAddr, token: String) -> HttpAccess {
        let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        if !address.ip().is_loopback() {
            hosts.push(address.ip().to_string());
        }
        HttpAccess { token: Some(token), hosts }
    }

    fn has_token(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
        given
            .and_then(|given| given.strip_prefix(b"Bearer "))
            .is_some_and(|given| constant_time_eq(given, token.as_bytes()))
    }
}

/// Compares in a time that does not depend on how many bytes match.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
