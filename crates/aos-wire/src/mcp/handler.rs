//! The methods of the Model Context Protocol, mapped to the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, Resource, ServerCapabilities, ServerConfig, Tool as Described, ToolAnnotations,
};
use rmcp::service::{Peer, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::resources;
use super::server::McpServer;
use super::tool_set::ToolCall;
use crate::client::Client;
use aos_tools::{Outcome, Progress, Tool, prompt};

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
        let session = self.default_session();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("aos", env!("CARGO_PKG_VERSION")))
            .with_instructions(prompt(self.tool_set().profile, session.virtual_tree, &session.mounts))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tool_set().tools().iter().map(describe).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tool_set().tools().into_iter().find(|tool| tool.name == request.name) else {
            let name = aos_model::text::escape(&request.name.chars().take(100).collect::<String>());
            return Err(ErrorData::invalid_params(format!("unknown tool `{name}`; see tools/list"), None));
        };
        let call = match self.tool_set().call(tool, request.arguments.unwrap_or_default()) {
            Ok(call) => call,
            Err(outcome) => return Ok(self.result(outcome, &context).into()),
        };
        let outcome = match () {
            () if call.tool.runs_commands() => self.run_command(call, &context).await,
            // Usually answered in microseconds: a switch of threads would take longer.
            () if call.tool.is_quick() => match self.try_call(&call) {
                Ok(outcome) => outcome,
                Err(client) => self.call_on_thread(call, Some(client)).await,
            },
            () => self.call_on_thread(call, None).await,
        };
        Ok(self.result(outcome, &context).into())
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (server, uri) = (self.clone(), request.uri);
        let read = tokio::task::spawn_blocking(move || resources::read(&server, &uri)).await;
        read.map_err(|why| ErrorData::internal_error(why.to_string(), None))?.map(Into::into)
    }
}

impl McpServer {
    /// The outcome in the content types that the client's protocol version has.
    fn result(&self, outcome: Outcome, context: &RequestContext<RoleServer>) -> CallToolResult {
        let Outcome { text, failed, fields, blobs } = outcome;
        let mut content = vec![ContentBlock::text(text)];
        let version = context.peer.peer_info().map(|client| client.protocol_version.clone());
        // A client of 2026-07-28 sends no `initialize`, so nothing is known of it but that it is new enough.
        if version.is_none_or(|version| version >= ProtocolVersion::V_2025_06_18) {
            content.extend(blobs.iter().map(|blob| {
                let link = Resource::new(resources::blob_uri(blob), "the full output");
                ContentBlock::resource_link(link.with_mime_type("text/plain"))
            }));
        }
        let mut result =
            if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        result.structured_content = self.tool_set().structured.then_some(Value::Object(fields));
        result
    }

    /// Calls a tool on a blocking thread, or waits there for the answer that is pending on a connection.
    async fn call_on_thread(&self, call: ToolCall, pending: Option<Box<Client>>) -> Outcome {
        let server = self.clone();
        let work = tokio::task::spawn_blocking(move || match pending {
            Some(client) => server.call_on(*client, &call, &mut |_| {}),
            None => server.call(&call, &mut |_| {}),
        });
        work.await.unwrap_or_else(|why| broken(&why))
    }

    /// Runs a command on a blocking thread, sends progress, and ends the command when the call is cancelled.
    async fn run_command(&self, call: ToolCall, context: &RequestContext<RoleServer>) -> Outcome {
        let call = Arc::new(call);
        let finished = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::channel(PROGRESS_QUEUE_MAX);
        let (server, its_call, done) = (self.clone(), call.clone(), finished.clone());
        let mut work = tokio::task::spawn_blocking(move || {
            let outcome = server.call(&its_call, &mut |progress| {
                // A slow client gets less progress; the result has all output.
                let _ = sender.try_send(progress);
            });
            done.store(true, Ordering::Release);
            outcome
        });
        let token = context.meta.get_progress_token();
        let progress = tokio::spawn(send_progress(context.peer.clone(), token, receiver));
        let joined = tokio::select! {
            joined = &mut work => joined,
            () = context.ct.cancelled() => {
                let (server, call) = (self.clone(), call.clone());
                drop(tokio::task::spawn_blocking(move || server.cancel(&call.session, &call.id, &finished)));
                work.await
            }
        };
        // Progress must be sent before the answer.
        let _ = progress.await;
        joined.unwrap_or_else(|why| broken(&why))
    }
}

fn broken(why: &tokio::task::JoinError) -> Outcome {
    aos_tools::refused("internal", &format!("the call failed in the server: {why}"))
}

/// The shortest and the longest time between two progress notifications.
const PROGRESS_INTERVAL_MIN: Duration = Duration::from_millis(100);
const PROGRESS_INTERVAL_MAX: Duration = Duration::from_secs(5);
const PROGRESS_QUEUE_MAX: usize = 16;

/// Sends the last line of a command's output, or that it still runs. The progress value is in seconds.
async fn send_progress(
    peer: Peer<RoleServer>,
    token: Option<ProgressToken>,
    mut receiver: mpsc::Receiver<Progress>,
) {
    let Some(token) = token else {
        while receiver.recv().await.is_some() {}
        return;
    };
    let started = Instant::now();
    let mut last_sent: Option<Instant> = None;
    loop {
        let message = match tokio::time::timeout(PROGRESS_INTERVAL_MAX, receiver.recv()).await {
            Ok(None) => return,
            Ok(Some(progress)) => last_line(&progress.bytes.0),
            Err(_) => Some(format!("running for {} s", started.elapsed().as_secs())),
        };
        let is_due = last_sent.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL_MIN);
        let Some(message) = message.filter(|_| is_due) else { continue };
        last_sent = Some(Instant::now());
        let param = ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64());
        if peer.notify_progress(param.with_message(message)).await.is_err() {
            return;
        }
    }
}

fn last_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(aos_model::text::escape(&line.chars().take(200).collect::<String>()))
}

/// A tool as MCP describes it. Every tool has a session handle.
fn describe(tool: &Tool) -> Described {
    let mut schema = match tool.schema() {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    if let Some(properties) = schema.get_mut("properties") {
        properties["session"] = json!({
            "type": "string",
            "description": "Handle of one of this server's sessions. Default: the first.",
        });
    }
    let hints = tool.hints;
    let annotations = ToolAnnotations::with_title(tool.title)
        .read_only(hints.read_only)
        .destructive(hints.destructive)
        .idempotent(hints.idempotent)
        .open_world(hints.open_world);
    Described::new(tool.name, tool.description, schema).with_title(tool.title).with_annotations(annotations)
}
