//! Streamable HTTP transport. It checks the bearer token, Host and Origin, and bounds bodies, time, connections and sessions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::ServerHandler;
use rmcp::transport::streamable_http_server::session::SessionManager as _;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The path of the MCP endpoint.
const PATH: &str = "/mcp";
/// The header that names the MCP session of a request, and of the answer to `initialize`.
const SESSION_HEADER: &str = "mcp-session-id";
/// Connections that have sent the token.
const CONNECTIONS_MAX: usize = 128;
/// Connections that have not sent a complete request with the token; a further one takes the place of the oldest.
const STRANGERS_MAX: usize = 128;
/// How long a connection may be a stranger.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may then be idle, or take to send the head of a request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_BYTES_MAX: usize = aos_model::limits::FRAME_BYTES_MAX;
/// MCP sessions at one time. One that is idle for five minutes ends.
const SESSIONS_MAX: usize = 64;
/// The shortest token that is accepted.
pub const TOKEN_CHARACTERS_MIN: usize = 24;

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
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(handler()), sessions.clone(), config);
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let gate = Arc::new(Gate { access, sessions, permits, strangers: Mutex::default() });
    for number in 0_u64.. {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or the client has disconnected: open connections continue.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let connection = Arc::new(Connection { gate: gate.clone(), number, permit: Mutex::default() });
        let task = tokio::spawn(connection.serve(stream, service.clone()));
        gate.add_stranger(number, task.abort_handle());
    }
    Ok(())
}

/// What all connections share.
struct Gate {
    access: HttpAccess,
    sessions: Arc<LocalSessionManager>,
    permits: Arc<Semaphore>,
    /// By number, so the oldest is the first.
    strangers: Mutex<BTreeMap<u64, AbortHandle>>,
}

impl Gate {
    fn strangers(&self) -> MutexGuard<'_, BTreeMap<u64, AbortHandle>> {
        self.strangers.lock().expect("BUG: lock poisoned")
    }

    /// Clients that never send a request must not keep out others: the oldest stranger is closed for a new one.
    fn add_stranger(&self, number: u64, task: AbortHandle) {
        let mut strangers = self.strangers();
        strangers.insert(number, task);
        if strangers.len() > STRANGERS_MAX
            && let Some((_, oldest)) = strangers.pop_first()
        {
            oldest.abort();
        }
    }
}

struct Connection {
    gate: Arc<Gate>,
    number: u64,
    /// Its place among those that have sent the token.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
}

impl Connection {
    async fn serve<H: ServerHandler>(
        self: Arc<Connection>,
        stream: TcpStream,
        service: StreamableHttpService<H, LocalSessionManager>,
    ) {
        let _ = stream.set_nodelay(true);
        let answers = self.clone();
        let answer =
            hyper::service::service_fn(move |request| answers.clone().answer(service.clone(), request));
        let serve = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), answer);
        tokio::select! {
            _ = serve => {}
            () = self.is_stranger_for_too_long() => {}
        }
        self.gate.strangers().remove(&self.number);
    }

    /// Returns when the time is over, and never once the connection is known.
    async fn is_stranger_for_too_long(&self) {
        tokio::time::sleep(STRANGER_TIMEOUT).await;
        if self.is_known() {
            std::future::pending::<()>().await;
        }
    }

    fn is_known(&self) -> bool {
        self.permit.lock().expect("BUG: lock poisoned").is_some()
    }

    /// Counts the connection among those that have sent the token. False if there are too many.
    fn make_known(&self) -> bool {
        let mut permit = self.permit.lock().expect("BUG: lock poisoned");
        if permit.is_none() {
            *permit = self.gate.permits.clone().try_acquire_owned().ok();
            self.gate.strangers().remove(&self.number);
        }
        permit.is_some()
    }

    async fn answer<H: ServerHandler>(
        self: Arc<Connection>,
        service: StreamableHttpService<H, LocalSessionManager>,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        if !self.gate.access.has_token(&request) {
            let mut answer =
                plain(StatusCode::UNAUTHORIZED, "a bearer token is needed; `aos mcp --http` printed it");
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            return Ok(answer);
        }
        if request.uri().path() != PATH {
            return Ok(plain(StatusCode::NOT_FOUND, "the server is at /mcp"));
        }
        let (head, body) = request.into_parts();
        let body =
            match tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, BODY_BYTES_MAX).collect()).await {
                Ok(Ok(body)) => body.to_bytes(),
                Ok(Err(_)) => {
                    return Ok(plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or incomplete"));
                }
                Err(_) => return Ok(plain(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
            };
        if !self.make_known() {
            let why = "the server has as many connections as it takes; close some, or try again later";
            let mut answer = plain(StatusCode::SERVICE_UNAVAILABLE, why);
            answer.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            return Ok(answer);
        }
        let is_in_session = head.headers.contains_key(SESSION_HEADER);
        let answer = service.handle(Request::from_parts(head, Full::new(body))).await;
        if is_in_session { Ok(answer) } else { Ok(self.gate.bound_sessions(answer).await) }
    }
}

impl Gate {
    /// Closes the session that an answer has opened, if it is one too many. All sessions have the same token.
    async fn bound_sessions(&self, answer: Answer) -> Answer {
        let Some(id) = answer.headers().get(SESSION_HEADER).and_then(|id| id.to_str().ok()) else {
            return answer;
        };
        if self.sessions.sessions.read().await.len() <= SESSIONS_MAX {
            return answer;
        }
        let _ = self.sessions.close_session(&id.into()).await;
        plain(
            StatusCode::TOO_MANY_REQUESTS,
            "the server has 64 MCP sessions; end one with DELETE, or try again later",
        )
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
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
