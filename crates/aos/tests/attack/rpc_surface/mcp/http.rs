//! MCP over HTTP: the checks before a request reaches the protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use aos_testkit::mcp::McpHttp;
use aos_testkit::{Findings, World, check};
use serde_json::json;

use crate::Outcome;

/// One HTTP request by hand; returns the status code.
fn knock(address: &str, head: &str, body: &str) -> Result<String, String> {
    let mut stream = TcpStream::connect(address).map_err(|why| why.to_string())?;
    let request = format!(
        "POST /mcp HTTP/1.1\r\n{head}Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    // A server that refuses a body early may stop reading it.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    let _ = BufReader::new(stream).read_line(&mut answer);
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}

pub(super) fn the_gate() -> Outcome {
    let world = World::new();
    let server = McpHttp::start(&world)?;
    let (address, token) = (&server.address, &server.token);
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
    } })
    .to_string();
    let (host, right) = (format!("Host: {address}\r\n"), format!("Authorization: Bearer {token}\r\n"));
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(17 << 20));
    let mut findings = Findings::default();
    for (what, head, body, wanted) in [
        ("the right token", format!("{host}{right}"), &hello, "200"),
        ("no token", host.clone(), &hello, "401"),
        ("another token", format!("{host}Authorization: Bearer {}\r\n", "0".repeat(64)), &hello, "401"),
        ("a token cut short", format!("{host}Authorization: Bearer {}\r\n", &token[..63]), &hello, "401"),
        ("another scheme", format!("{host}Authorization: Basic {token}\r\n"), &hello, "401"),
        ("a foreign host", format!("Host: evil.example\r\n{right}"), &hello, "403"),
        ("a foreign origin", format!("{host}{right}Origin: http://evil.example\r\n"), &hello, "403"),
        ("a null origin", format!("{host}{right}Origin: null\r\n"), &hello, "403"),
        ("a body without end", format!("{host}{right}"), &large, "413"),
    ] {
        let status = knock(address, &head, body)?;
        findings.add(check(status == wanted, || format!("{what}: {status}, not {wanted}")));
    }
    drop(server);
    let (code, _, err) = world.aos(&["mcp", "--http", "0.0.0.0:0"]);
    findings.add(check(code == 1 && err.contains("--allow-remote"), || format!("open to all: {code} {err}")));
    findings.add(world.finish());
    findings.outcome()
}
