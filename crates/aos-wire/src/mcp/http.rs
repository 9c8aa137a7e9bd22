//! Streamable HTTP: a small gate before the protocol. A token, a known Host, no foreign Origin, bounded bodies and time.

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

/// The one place where the protocol is response.
const PATH: &str = "/mcp";
const CONNECTIONS_MAX: usize = 128;
const HEADERS_PATIENCE: Duration = Duration::from_secs(10);
const BODY_PATIENCE: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: usize = aos_model::limits::FRAME_BYTES_MAX;

/// Who may come in.
#[derive(Debug, Clone)]
pub struct Gate {
    /// What a client must bring as `Authorization: Bearer …`; `None` only where a test needs no gate.
    pub token: Option<String>,
    /// Host names, without ports, under which the server may be called.
    pub hosts: Vec<String>,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Serves until the process ends.
pub async fn serve_http<H>(
    listener: TcpListener,
    gate: Gate,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> io::Result<()>
where
    H: ServerHandler,
{
    let port = listener.local_addr()?.port();
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(gate.hosts.iter().cloned())
        // A page that a browser got from this very server would have this origin; there is none, so all others are foreign.
        .with_allowed_origins(gate.hosts.iter().map(|host| format!("http://{}:{port}", bracketed(host))))
        .enforce_origin_validation()
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    let service =
        StreamableHttpService::new(move || Ok(handler()), Arc::new(LocalSessionManager::default()), config);
    let (gate, room) = (Arc::new(gate), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
    loop {
        let Ok(seat) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or a client that left at once: those that are there go on.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let (gate, service) = (gate.clone(), service.clone());
        let answer = move |request| admit(gate.clone(), service.clone(), request);
        tokio::spawn(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_PATIENCE)
                .serve_connection(TokioIo::new(stream), hyper::service::service_fn(answer))
                .await;
            drop(seat);
        });
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

async fn admit<H: ServerHandler>(
    gate: Arc<Gate>,
    service: StreamableHttpService<H, LocalSessionManager>,
    request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    if !gate.knows(&request) {
        let mut answer =
            plain(StatusCode::UNAUTHORIZED, "a bearer token is needed; `aos mcp --http` printed it");
        answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        return Ok(answer);
    }
    if request.uri().path() != PATH {
        return Ok(plain(StatusCode::NOT_FOUND, "the server is at /mcp"));
    }
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES_MAX).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or broke off")),
        Err(_) => return Ok(plain(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    };
    Ok(service.handle(Request::from_parts(head, Full::new(body))).await)
}

impl Gate {
    /// For an address: the names by which a client on this machine reaches it.
    pub fn for_address(address: SocketAddr, token: String) -> Gate {
        let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        if !address.ip().is_loopback() {
            hosts.push(address.ip().to_string());
        }
        Gate { token: Some(token), hosts }
    }

    fn knows(&self, request: &Request<Incoming>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = request.headers().get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
        given
            .and_then(|given| given.strip_prefix(b"Bearer "))
            .is_some_and(|given| same(given, token.as_bytes()))
    }
}

/// Takes as long for a nearly right token as for a error one.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}
