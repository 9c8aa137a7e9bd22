//! S19: MCP over HTTP, with clients that keep the server busy.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use aos_testkit::mcp::McpHttp;
use aos_testkit::{Findings, World, check, wait_for};
use serde_json::json;

use crate::Outcome;

fn connect(server: &McpHttp) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(&server.address).map_err(|why| why.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|why| why.to_string())?;
    Ok(stream)
}

/// The head of a request whose body has `length` bytes.
fn head(server: &McpHttp, method: &str, more: &str, length: usize) -> String {
    let (address, token) = (&server.address, &server.token);
    format!(
        "{method} /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{more}\r\n"
    )
}

fn hello() -> String {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }).to_string()
}

/// Sends a request on a connection of its own: the status of the answer, and the MCP session it names.
fn request(server: &McpHttp, method: &str, more: &str, body: &str) -> Result<(String, String), String> {
    let mut stream = connect(server)?;
    let text = head(server, method, &format!("{more}Connection: close\r\n"), body.len()) + body;
    stream.write_all(text.as_bytes()).map_err(|why| why.to_string())?;
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    let status = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
    let session =
        lines.find_map(|line| line.to_lowercase().strip_prefix("mcp-session-id: ").map(str::to_owned));
    Ok((status, session.unwrap_or_default()))
}

fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket can be switched");
    matches!((&mut &*stream).read(&mut [0; 1]), Err(why) if why.kind() == ErrorKind::WouldBlock)
}

/// Idle connections that never send the token do not delay a client, and end by themselves.
pub(super) fn strangers_do_not_keep_clients_out() -> Outcome {
    let world = World::new();
    let server = McpHttp::start(&world)?;
    // On a slow machine the idle connections may end before the client is answered: then this shows nothing.
    for _ in 0..3 {
        let idle = (0..400).map(|_| connect(&server)).collect::<Result<Vec<_>, _>>()?;
        let (status, _) = request(&server, "POST", "", &hello())?;
        check(status == "200", || format!("beside idle connections: {status}"))?;
        if is_open(&idle[idle.len() - 100]) {
            wait_for("all of them to be closed", || idle.iter().all(|stream| !is_open(stream)))?;
            return world.finish();
        }
    }
    Err("clients wait until idle connections have ended".into())
}

/// A connection ends after 10 s without a complete request that has the token, whatever it sends meanwhile.
pub(super) fn strangers_end() -> Outcome {
    let world = World::new();
    let server = McpHttp::start(&world)?;
    let wrong = head(&server, "POST", "", 2).replace(&server.token, &"0".repeat(64)) + "{}";
    let right = head(&server, "POST", "", 1 << 20);
    let mut findings = Findings::default();
    std::thread::scope(|scope| {
        let (server, wrong, right) = (&server, wrong.as_str(), right.as_str());
        let trickles = [
            ("nothing", "", ""),
            ("a head that grows", "POST /mcp HTTP/1.1\r\nX: ", "x"),
            ("requests without the token", "", wrong),
            ("a body that grows", right, "x"),
            ("empty lines", "", "\r\n"),
            ("not HTTP", "", "\u{16}\u{3}\u{1}"),
        ];
        let ends: Vec<_> = trickles
            .into_iter()
            .map(|(what, first, more)| (what, scope.spawn(move || outlives(server, first, more))))
            .collect();
        for (what, end) in ends {
            findings.add(end.join().expect("the sender ends").map_err(|why| format!("{what}: {why}")));
        }
    });
    findings.add(world.finish());
    findings.outcome()
}

/// Fails if the connection outlives its time by far, while `more` is sent again and again.
fn outlives(server: &McpHttp, first: &str, more: &str) -> Outcome {
    let mut stream = connect(server)?;
    let _ = stream.write_all(first.as_bytes());
    stream.set_nonblocking(true).map_err(|why| why.to_string())?;
    let began = Instant::now();
    loop {
        let closed = match stream.read(&mut [0; 4096]) {
            Ok(0) => true,
            Ok(_) => false,
            Err(why) => why.kind() != ErrorKind::WouldBlock,
        };
        if closed {
            return Ok(());
        }
        check(began.elapsed() < Duration::from_secs(25), || "it is still open after 25 s".into())?;
        let _ = stream.write_all(more.as_bytes());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A known connection is not closed by the time of a stranger.
pub(super) fn a_known_connection_stays() -> Outcome {
    let world = World::new();
    let server = McpHttp::start(&world)?;
    let mut known = connect(&server)?;
    let body = hello();
    let text = head(&server, "POST", "", body.len()) + &body;
    known.write_all(text.as_bytes()).map_err(|why| why.to_string())?;
    // A stranger that comes later is closed first.
    let stranger = connect(&server)?;
    wait_for("the stranger to be closed", || !is_open(&stranger))?;
    let mut answer = [0; 1 << 14];
    let read = known.read(&mut answer).map_err(|why| why.to_string())?;
    check(answer[..read].starts_with(b"HTTP/1.1 200"), || {
        String::from_utf8_lossy(&answer[..read]).into_owned()
    })?;
    known.write_all(text.as_bytes()).map_err(|why| why.to_string())?;
    wait_for("the second answer", || {
        let read = known.read(&mut answer).unwrap_or(0);
        String::from_utf8_lossy(&answer[..read]).contains("HTTP/1.1 200")
    })?;
    world.finish()
}

/// 64 MCP sessions, then 429; one that is ended makes room. Requests of open sessions are still answered.
pub(super) fn sessions_are_bounded() -> Outcome {
    let world = World::new();
    let server = McpHttp::start(&world)?;
    let mut sessions = Vec::new();
    for n in 0..64 {
        let (status, session) = request(&server, "POST", "", &hello())?;
        check(status == "200" && !session.is_empty(), || format!("session {n}: {status}"))?;
        sessions.push(session);
    }
    for _ in 0..3 {
        let (status, session) = request(&server, "POST", "", &hello())?;
        check(status == "429" && session.is_empty(), || format!("one too many: {status} {session}"))?;
    }
    let of = |session: &str| format!("Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n");
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    for session in &sessions {
        let (status, _) = request(&server, "POST", &of(session), &list)?;
        check(status == "200", || format!("an open session: {status}"))?;
    }
    request(&server, "DELETE", &of(&sessions[0]), "")?;
    wait_for("room for a session", || {
        request(&server, "POST", "", &hello()).is_ok_and(|(status, _)| status == "200")
    })?;
    world.finish()
}

/// Short tokens, tokens that no header can have, and addresses of other machines are refused before anything is opened.
pub(super) fn weak_settings() -> Outcome {
    let world = World::new();
    let local: &[&str] = &["127.0.0.1:0"];
    let mut findings = Findings::default();
    for (what, arguments, token, wanted) in [
        ("one character", local, "x", "at least 24"),
        ("23 characters", local, "abcdefghijklmnopqrstuvw", "at least 24"),
        ("a token with a blank", local, "abcdefghijkl mnopqrstuvwxyz", "AOS_MCP_TOKEN"),
        ("all addresses", &["0.0.0.0:0"], "abcdefghijklmnopqrstuvwxyz", "--allow-remote"),
        ("all addresses of IPv6", &["[::]:0"], "", "--allow-remote"),
        ("a short token for all", &["0.0.0.0:0", "--allow-remote"], "x", "at least 24"),
    ] {
        let mut command = McpHttp::command(&world, arguments);
        let child = command.env("AOS_MCP_TOKEN", token).spawn().map_err(|why| why.to_string())?;
        findings.add(refuses(child, wanted).map_err(|why| format!("{what}: {why}")));
    }
    let sessions = world.client().effect("host.session.list", json!({}));
    findings.add(check(sessions["sessions"].as_array().is_some_and(Vec::is_empty), || format!("{sessions}")));
    for (arguments, token) in
        [(local, "abcdefghijklmnopqrstuvwx"), (&["0.0.0.0:0", "--allow-remote"], "abcdefghijklmnopqrstuvwx")]
    {
        let mut command = McpHttp::command(&world, arguments);
        let mut child = command.env("AOS_MCP_TOKEN", token).spawn().map_err(|why| why.to_string())?;
        let mut line = String::new();
        let _ = BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line);
        findings.add(check(line.contains("MCP on http://") && !line.contains(token), || line.clone()));
        let _ = child.kill();
        let _ = child.wait();
    }
    findings.add(world.finish());
    findings.outcome()
}

/// The program ends with an error that contains `wanted`.
fn refuses(mut child: std::process::Child, wanted: &str) -> Outcome {
    let mut line = String::new();
    let _ = BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line);
    if line.contains("MCP on http://") {
        let _ = child.kill();
    }
    let code = child.wait().map_err(|why| why.to_string())?.code();
    check(code == Some(1) && line.contains(wanted), || format!("{code:?} {line}"))
}
