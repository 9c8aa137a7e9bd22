//! `aos mcp`: serves the tools over the Model Context Protocol.

use std::net::SocketAddr;

use anyhow::{Context as _, bail};
use aos_wire::Client;
use aos_wire::mcp::{
    Backend, HttpAccess, McpOptions, McpServer, ServedSession, TOKEN_CHARACTERS_MIN, runtime, serve_http,
    serve_stdio,
};
use serde_json::{Value, json};

use super::{daemon, effect, log, policy_argument, read_text, refusal_text, session};
use crate::Exit;
use crate::cli::Mcp;
use crate::connect;

/// How long a session stays open, so that its changes can be undone after the agent has exited.
const SESSION_TTL_NS: u64 = 7 * 24 * 3600 * 1_000_000_000;

pub(crate) fn run(mcp: &Mcp) -> anyhow::Result<Exit> {
    if let Some(address) = mcp.http {
        check_address(address, mcp.allow_remote)?;
        chosen_token()?;
    }
    let mut sessions = Vec::new();
    if mcp.session.is_empty() || mcp.opens_session() {
        sessions.push(open(mcp)?);
    }
    sessions.extend(existing(&mcp.session)?);
    let options = McpOptions { profile: mcp.profile.into(), structured: mcp.structured };
    let server = McpServer::new(Box::new(CliBackend), sessions, options);
    exit_on_signal(server.clone())?;
    match mcp.http {
        None => serve_stdio(&server).context("the connection to the MCP client failed")?,
        Some(address) => serve_over_http(&server, address)?,
    }
    Ok(Exit::Success)
}

/// Ends the server's commands when a signal ends the server: their results could not be delivered.
fn exit_on_signal(server: McpServer) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let mut signals =
        signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).context("cannot listen for signals")?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            server.end_commands();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

impl Mcp {
    fn opens_session(&self) -> bool {
        self.root.is_some() || self.vfs || self.staged
    }
}

/// Connects the MCP server to the daemon and to the journal.
struct CliBackend;

impl Backend for CliBackend {
    fn connect(&self) -> Result<Client, String> {
        connect::client().map_err(|why| format!("{why:#}"))
    }

    fn journal(&self, session: &str) -> Result<String, String> {
        log::of_session(session).map_err(|why| format!("{why:#}"))
    }
}

fn open(mcp: &Mcp) -> anyhow::Result<ServedSession> {
    let mut params = json!({
        "target": target(mcp)?,
        "labels": { "server": "mcp" },
        "session_ttl_ns": SESSION_TTL_NS,
    });
    if let Some(file) = &mcp.capability {
        params["capability"] = serde_json::from_str(&read_text(file)?)
            .with_context(|| format!("{} is not JSON", file.display()))?;
    }
    crate::git_identity::add_to(&mut params["target"]);
    // One protected file must not lose everything else that a command did.
    let capability = &params["capability"];
    if (capability.is_null() || capability.is_object()) && capability["protected_paths"].is_null() {
        params["capability"]["protected_paths"] = json!("withhold");
    }
    if let Some(policy) = &mcp.policy {
        params["policy"] = policy_argument(policy)?;
    }
    let receipt = effect(&mut daemon()?, "host.session.open", &params)?;
    let Some(session) = receipt["session_id"].as_str() else { bail!("{}", refusal_text(&receipt)) };
    // Only a virtual tree has mounts; the session's record lists them.
    match mcp.vfs {
        true => Ok(existing(&[session.to_owned()])?.remove(0)),
        false => {
            Ok(ServedSession { session: session.to_owned(), staged: mcp.staged, ..ServedSession::default() })
        }
    }
}

fn target(mcp: &Mcp) -> anyhow::Result<Value> {
    let root = mcp.root.clone().unwrap_or_else(|| ".".into());
    let root = std::path::absolute(root).context("cannot make the folder absolute")?;
    let root = root.to_str().context("the folder's name is not UTF-8; use `aos call` with `\\xNN`")?;
    Ok(match (mcp.vfs, mcp.staged) {
        (true, _) if mcp.root.is_some() => {
            json!({ "vfs": { "allowed_roots": [root], "mounts": [{ "host_path": root }] } })
        }
        (true, _) => json!({ "vfs": {} }),
        (false, true) => json!({ "staged": { "workdir": root } }),
        (false, false) => json!({ "local": { "workdir": root } }),
    })
}

/// Sessions that are already open.
fn existing(sessions: &[String]) -> anyhow::Result<Vec<ServedSession>> {
    if sessions.is_empty() {
        return Ok(Vec::new());
    }
    let all = session::sessions()?;
    let served = |id: &String| {
        let record =
            all.iter().find(|record| record["session_id"] == id.as_str() && record["state"] == "open");
        let record = record.with_context(|| format!("there is no open session `{id}`"))?;
        let mounts: Vec<aos_tools::Mount> = record
            .get("mounts")
            .map(|mounts| serde_json::from_value(mounts.clone()))
            .transpose()?
            .unwrap_or_default();
        Ok(ServedSession {
            session: id.clone(),
            staged: record["target"].get("staged").is_some(),
            virtual_tree: record["target"].get("vfs").is_some(),
            mounts,
        })
    };
    sessions.iter().map(served).collect()
}

/// The environment variable with the bearer token; without it, a random token is printed.
const TOKEN_VARIABLE: &str = "AOS_MCP_TOKEN";

fn check_address(address: SocketAddr, allow_remote: bool) -> anyhow::Result<()> {
    if !address.ip().is_loopback() && !allow_remote {
        bail!(
            "{address} can be reached from other machines, and whoever has the token can run commands here; use \
             127.0.0.1, or add --allow-remote (the token is {TOKEN_VARIABLE}, or is made and printed)"
        );
    }
    Ok(())
}

/// The token that the operator chose.
fn chosen_token() -> anyhow::Result<Option<String>> {
    let Some(token) = std::env::var_os(TOKEN_VARIABLE).filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    let token = token.into_string().ok().filter(|token| token.bytes().all(|byte| byte.is_ascii_graphic()));
    let token =
        token.with_context(|| format!("{TOKEN_VARIABLE} has characters that no HTTP header can have"))?;
    if token.len() < TOKEN_CHARACTERS_MIN {
        bail!(
            "{TOKEN_VARIABLE} has {} characters and can be guessed; use at least {TOKEN_CHARACTERS_MIN} random ones, or \
             unset it: then a token is made and printed",
            token.len()
        );
    }
    Ok(Some(token))
}

fn serve_over_http(server: &McpServer, address: SocketAddr) -> anyhow::Result<()> {
    let chosen = chosen_token()?;
    let token = chosen.clone().map_or_else(new_token, Ok)?;
    let access = HttpAccess::for_address(address, token.clone());
    let handlers = server.clone();
    let outcome: anyhow::Result<()> = runtime()?.block_on(async move {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let shown = match chosen {
            Some(_) => format!("the token is in {TOKEN_VARIABLE}"),
            None => format!("Authorization: Bearer {token}"),
        };
        eprintln!("aos: MCP on http://{}/mcp; {shown}", listener.local_addr()?);
        Ok(serve_http(listener, access, move || handlers.clone()).await?)
    });
    server.end_commands();
    outcome
}

fn new_token() -> anyhow::Result<String> {
    let mut random = [0; 32];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .context("cannot get random bytes")?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
