//! `aos mcp` on pipes: the MCP client of all tests.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::client::{notification_line, request_line};
use crate::world::World;

const PROTOCOL: &str = "2025-11-25";

/// A running `aos mcp`. Dropping this value kills it.
#[derive(Debug)]
pub struct McpClient {
    pub child: Child,
    pub to: Option<ChildStdin>,
    pub from: BufReader<ChildStdout>,
    next: u64,
    /// Every line read from standard output.
    pub lines: Vec<String>,
}

impl McpClient {
    /// Starts `aos mcp` in the root of a world.
    pub fn open(world: &World, arguments: &[&str]) -> McpClient {
        let mut command = Command::new(&world.programs.aos);
        command.arg("mcp").args(arguments).env("AOS_HOME", &world.home).current_dir(&world.root);
        McpClient::spawn(command).expect("aos mcp starts")
    }

    pub fn spawn(mut command: Command) -> Result<McpClient, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|why| format!("aos mcp: {why}"))?;
        let (to, from) = (child.stdin.take(), child.stdout.take().expect("BUG: stdout is piped"));
        Ok(McpClient { child, to, from: BufReader::new(from), next: 0, lines: Vec::new() })
    }

    /// An initialized connection; `capabilities` are those of the client.
    pub fn greeted(world: &World, arguments: &[&str], capabilities: Value) -> McpClient {
        let mut client = McpClient::open(world, arguments);
        client.initialize(capabilities).unwrap_or_else(|why| panic!("{why}"));
        client
    }

    pub fn initialize(&mut self, capabilities: Value) -> Result<(), String> {
        let params = json!({
            "protocolVersion": PROTOCOL, "capabilities": capabilities,
            "clientInfo": { "name": "aos-testkit", "version": "1" },
        });
        let answer = self.try_request("initialize", &params)?;
        if answer["result"]["protocolVersion"] != PROTOCOL {
            return Err(format!("initialize: {answer}"));
        }
        self.write(&notification_line("notifications/initialized", None))
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        let to = self.to.as_mut().expect("BUG: the connection was closed");
        to.write_all(text.as_bytes()).map_err(|why| format!("aos mcp does not read: {why}"))
    }

    /// Sends one line unchanged.
    pub fn send(&mut self, line: &str) {
        self.write(line).and_then(|()| self.write("\n")).unwrap_or_else(|why| panic!("{why}"));
    }

    /// Sends a request without waiting for the answer. Returns its id.
    pub fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        self.write(&request_line(self.next, method, &params)).unwrap_or_else(|why| panic!("{why}"));
        self.next
    }

    /// The next message, whatever it is.
    pub fn hear(&mut self) -> Value {
        self.try_hear().unwrap_or_else(|why| panic!("{why}"))
    }

    fn try_hear(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        if self.from.read_line(&mut line).map_err(|why| why.to_string())? == 0 {
            return Err("aos mcp ended".into());
        }
        self.lines.push(line);
        let line = &self.lines[self.lines.len() - 1];
        serde_json::from_str(line).map_err(|why| format!("not a frame: {why}: {line}"))
    }

    pub fn answer(&mut self, id: u64) -> Value {
        self.try_answer(id).unwrap_or_else(|why| panic!("{why}"))
    }

    fn try_answer(&mut self, id: u64) -> Result<Value, String> {
        loop {
            let message = self.try_hear()?;
            if message["id"] == id && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    /// The whole answer of a method.
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.try_request(method, &params).unwrap_or_else(|why| panic!("{why}"))
    }

    pub fn try_request(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.next += 1;
        let id = self.next;
        self.write(&request_line(id, method, params))?;
        self.try_answer(id)
    }

    /// The result of a tool.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.request("tools/call", json!({ "name": tool, "arguments": arguments }))["result"].take()
    }

    /// Closes the connection. Adds all answers to those that the world searches for the canary at its end.
    pub fn close(mut self, world: &World) {
        drop(self.to.take());
        let mut rest = String::new();
        let _ = self.from.read_to_string(&mut rest);
        let _ = self.child.wait();
        self.lines.push(rest);
        self.lines.drain(..).for_each(|line| world.heard(line));
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running `aos mcp --http`. Dropping this value kills it.
#[derive(Debug)]
pub struct McpHttp {
    child: Child,
    /// Host and port.
    pub address: String,
    pub token: String,
}

impl McpHttp {
    /// Starts it in the root of a world, on a free port of the loopback address, with a token of its own.
    pub fn start(world: &World) -> Result<McpHttp, String> {
        let child = McpHttp::command(world, &["127.0.0.1:0"]).spawn();
        let mut child = child.map_err(|why| format!("aos mcp: {why}"))?;
        let mut line = String::new();
        let mut told = BufReader::new(child.stderr.take().expect("BUG: stderr is piped"));
        told.read_line(&mut line).map_err(|why| why.to_string())?;
        let address = line.split("http://").nth(1).and_then(|rest| rest.split("/mcp").next());
        let address = address.ok_or_else(|| format!("aos mcp --http says {line}"))?.to_owned();
        let token = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        Ok(McpHttp { child, address, token })
    }

    /// `aos mcp --http` with these further arguments.
    pub fn command(world: &World, arguments: &[&str]) -> Command {
        let mut command = Command::new(&world.programs.aos);
        command
            .args(["mcp", "--http"])
            .args(arguments)
            .env("AOS_HOME", &world.home)
            .env_remove("AOS_MCP_TOKEN")
            .current_dir(&world.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command
    }
}

impl Drop for McpHttp {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text of a tool's result.
pub fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}
