//! The resources of the MCP server: the instructions for the tools, the session's journal, and blobs.

use base64::Engine as _;
use rmcp::ErrorData;
use rmcp::model::{ReadResourceResult, Resource, ResourceContents, ResourceTemplate};
use serde_json::{Value, json};

use super::server::McpServer;
use aos_tools::prompt;

const PROMPT: &str = "aos://prompt";
const JOURNAL: &str = "aos://journal";
const BLOB: &str = "aos://blob/";
/// The largest blob that is a resource. `read_file` reads a larger one in pages.
const BLOB_BYTES_MAX: u64 = 4 << 20;

pub(super) fn blob_uri(blob: &str) -> String {
    format!("{BLOB}{blob}")
}

pub(super) fn list() -> Vec<Resource> {
    vec![
        Resource::new(PROMPT, "How to use the tools").with_mime_type("text/markdown"),
        Resource::new(JOURNAL, "What was done in this session").with_mime_type("text/plain"),
    ]
}

pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = ResourceTemplate::new("aos://blob/{ref}", "Content by hash")
        .with_description("A blob from a result of this session, `sha256:…`");
    vec![template]
}

pub(super) fn read(server: &McpServer, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let session = server.default_session();
    let text = |text: String, kind: &str| {
        let contents = ResourceContents::text(text, uri).with_mime_type(kind);
        Ok(ReadResourceResult::new(vec![contents]))
    };
    match uri {
        PROMPT => {
            text(prompt(server.tool_set().profile, session.virtual_tree, &session.mounts), "text/markdown")
        }
        JOURNAL => match server.shared.backend.journal(&session.session) {
            Ok(journal) => text(journal, "text/plain"),
            Err(why) => Err(ErrorData::internal_error(why, None)),
        },
        _ => match uri.strip_prefix(BLOB) {
            Some(blob) => read_blob(server, uri, blob),
            None => Err(missing(uri, "there is no such resource; see resources/list")),
        },
    }
}

fn missing(uri: &str, why: &str) -> ErrorData {
    let shown = aos_model::text::escape(&uri.chars().take(200).collect::<String>());
    ErrorData::resource_not_found(format!("{shown}: {why}"), Some(json!({ "uri": shown })))
}

fn read_blob(server: &McpServer, uri: &str, blob: &str) -> Result<ReadResourceResult, ErrorData> {
    let mut bytes = Vec::new();
    let mut at = 0;
    loop {
        let params =
            json!({ "session_id": server.default_session().session, "blob_ref": blob, "offset_bytes": at });
        let range = server.query("blob.read", &params).map_err(|why| ErrorData::internal_error(why, None))?;
        if range["status"] != "ok" {
            return Err(missing(uri, range["error_message"].as_str().unwrap_or("it cannot be read")));
        }
        if range["size_bytes"].as_u64().unwrap_or(0) > BLOB_BYTES_MAX {
            let how = format!(
                "it is larger than {BLOB_BYTES_MAX} bytes; read it in pages: read_file with path blob:{blob}"
            );
            return Err(missing(uri, &how));
        }
        bytes.extend(payload_bytes(&range["content"]));
        match range["next_offset_bytes"].as_u64() {
            Some(next) if next > at => at = next,
            _ => break,
        }
    }
    let contents = match String::from_utf8(bytes) {
        Ok(text) => ResourceContents::text(text, uri),
        Err(binary) => {
            let blob = base64::engine::general_purpose::STANDARD.encode(binary.as_bytes());
            ResourceContents::blob(blob, uri).with_mime_type("application/octet-stream")
        }
    };
    Ok(ReadResourceResult::new(vec![contents]))
}

fn payload_bytes(payload: &Value) -> Vec<u8> {
    if let Some(text) = payload.pointer("/inline_text/text").and_then(Value::as_str) {
        return text.as_bytes().to_vec();
    }
    let bytes = payload.pointer("/inline_bytes/bytes").cloned().unwrap_or_default();
    serde_json::from_value::<aos_model::request::Base64>(bytes).map(|bytes| bytes.0).unwrap_or_default()
}
