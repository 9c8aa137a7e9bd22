//! The server that the conformance suite requires: its fixture tools, resources and prompts, behind the product's own
//! HTTP checks. None of this is in the product.
#![allow(
    deprecated,
    reason = "the suite of 2025-11-25 asks for logging and sampling, which later versions leave"
)]

use std::time::Duration;

use aos_wire::mcp::{HttpAccess, runtime, serve_http};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ElicitRequestParams, GetPromptRequestParams, GetPromptResponse, GetPromptResult, JsonObject,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, UnsubscribeRequestParams,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// Serves on a free port, prints the address on standard output and ends with the process that started it.
pub(crate) fn main() -> ! {
    let served: std::io::Result<()> = runtime().and_then(|runtime| {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            println!("http://{}/mcp", listener.local_addr()?);
            let hosts = ["localhost", "127.0.0.1"].map(str::to_owned).to_vec();
            serve_http(listener, HttpAccess { token: None, hosts }, || Fixture).await
        })
    });
    panic!("the fixture server ended: {served:?}");
}

struct Fixture;

/// The suite's messages are JSON, and so are the answers here.
fn from<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|why| ErrorData::internal_error(why.to_string(), None))
}

fn text(text: impl Into<String>) -> Value {
    json!({ "content": [{ "type": "text", "text": text.into() }] })
}

impl ServerHandler for Fixture {
    fn get_info(&self) -> ServerConfig {
        let config = json!({
            "protocolVersion": "2025-11-25",
            "serverInfo": { "name": "aos conformance fixture", "version": "0" },
            "capabilities": {
                "tools": {}, "prompts": {}, "logging": {}, "completions": {}, "resources": { "subscribe": true },
            },
        });
        serde_json::from_value(config).expect("BUG: a configuration")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        const NAMES: [&str; 11] = [
            "test_simple_text",
            "test_image_content",
            "test_audio_content",
            "test_embedded_resource",
            "test_multiple_content_types",
            "test_tool_with_logging",
            "test_error_handling",
            "test_tool_with_progress",
            "test_elicitation_sep1034_defaults",
            "test_elicitation_sep1330_enums",
            "test_reconnection",
        ];
        let mut tools: Vec<Value> = NAMES
            .iter()
            .map(|name| json!({ "name": name, "description": name, "inputSchema": { "type": "object" } }))
            .collect();
        for (name, argument) in [("test_sampling", "prompt"), ("test_elicitation", "message")] {
            tools.push(json!({ "name": name, "description": name, "inputSchema": {
                "type": "object", "properties": { argument: { "type": "string" } }, "required": [argument],
            } }));
        }
        tools.push(json!({ "name": "json_schema_2020_12_tool", "description": "Tool with JSON Schema 2020-12 features",
            "inputSchema": {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                "type": "object",
                "$defs": { "address": { "type": "object", "properties": {
                    "street": { "type": "string" }, "city": { "type": "string" },
                } } },
                "properties": { "name": { "type": "string" }, "address": { "$ref": "#/$defs/address" } },
                "additionalProperties": false,
            } }));
        from(json!({ "tools": tools }))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let argument = |name: &str| text_of(request.arguments.as_ref(), name);
        let answer = match &*request.name {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => json!({ "content": [image()] }),
            "test_audio_content" => {
                json!({ "content": [{ "type": "audio", "data": WAV, "mimeType": "audio/wav" }] })
            }
            "test_embedded_resource" => json!({ "content": [{ "type": "resource", "resource": {
                "uri": "test://embedded-resource", "mimeType": "text/plain", "text": "This is an embedded resource content.",
            } }] }),
            "test_multiple_content_types" => json!({ "content": [
                { "type": "text", "text": "Multiple content types test:" },
                image(),
                { "type": "resource", "resource": {
                    "uri": "test://mixed-content-resource", "mimeType": "application/json", "text": "{\"test\":\"data\",\"value\":123}",
                } },
            ] }),
            "test_error_handling" => {
                let mut answer = text("This tool intentionally returns an error for testing");
                answer["isError"] = json!(true);
                answer
            }
            "test_tool_with_logging" => logging(&context).await,
            "test_tool_with_progress" => progress(&context).await,
            "test_sampling" => sampling(&context, argument("prompt")).await?,
            "test_elicitation" => elicitation(&context, argument("message"), user_schema()).await?,
            "test_elicitation_sep1034_defaults" => {
                elicitation(&context, "Look at these", defaults_schema()).await?
            }
            "test_elicitation_sep1330_enums" => elicitation(&context, "Choose", enums_schema()).await?,
            "test_reconnection" => text("Reconnection is not needed."),
            name => return Err(ErrorData::invalid_params(format!("unknown tool {name}"), None)),
        };
        Ok(from::<CallToolResult>(answer)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource =
            |uri: &str, kind: &str| json!({ "uri": uri, "name": uri, "description": uri, "mimeType": kind });
        from(json!({ "resources": [
            resource("test://static-text", "text/plain"),
            resource("test://static-binary", "image/png"),
            resource("test://watched-resource", "text/plain"),
        ] }))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        from(json!({ "resourceTemplates": [{
            "uriTemplate": "test://template/{id}/data", "name": "by id", "description": "by id", "mimeType": "application/json",
        }] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let content = match uri {
            "test://static-text" => {
                json!({ "uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource." })
            }
            "test://static-binary" => json!({ "uri": uri, "mimeType": "image/png", "blob": PNG }),
            _ => {
                let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
                let id = id.ok_or_else(|| ErrorData::resource_not_found("no such resource", None))?;
                let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                json!({ "uri": uri, "mimeType": "application/json", "text": data.to_string() })
            }
        };
        Ok(from::<ReadResourceResult>(json!({ "contents": [content] }))?.into())
    }

    async fn subscribe(
        &self,
        _: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(
        &self,
        _: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn complete(
        &self,
        _: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        from(json!({ "completion": { "values": ["paris", "park"], "total": 2, "hasMore": false } }))
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
        let prompt = |name: &str, arguments: &[&str]| {
            let arguments: Vec<Value> = arguments.iter().map(|name| argument(name)).collect();
            json!({ "name": name, "description": name, "arguments": arguments })
        };
        from(json!({ "prompts": [
            prompt("test_simple_prompt", &[]),
            prompt("test_prompt_with_arguments", &["arg1", "arg2"]),
            prompt("test_prompt_with_embedded_resource", &["resourceUri"]),
            prompt("test_prompt_with_image", &[]),
        ] }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let argument = |name: &str| text_of(request.arguments.as_ref(), name);
        let says = |text: String| json!({ "role": "user", "content": { "type": "text", "text": text } });
        let messages = match &*request.name {
            "test_simple_prompt" => json!([says("This is a simple prompt for testing.".into())]),
            "test_prompt_with_arguments" => json!([says(format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                argument("arg1"),
                argument("arg2")
            ))]),
            "test_prompt_with_embedded_resource" => json!([
                { "role": "user", "content": { "type": "resource", "resource": {
                    "uri": argument("resourceUri"), "mimeType": "text/plain", "text": "Embedded resource content for testing.",
                } } },
                says("Please process the embedded resource above.".into()),
            ]),
            "test_prompt_with_image" => {
                json!([{ "role": "user", "content": image() }, says("Please analyze the image above.".into())])
            }
            name => return Err(ErrorData::invalid_params(format!("no prompt {name}"), None)),
        };
        Ok(from::<GetPromptResult>(json!({ "messages": messages }))?.into())
    }
}

fn image() -> Value {
    json!({ "type": "image", "data": PNG, "mimeType": "image/png" })
}

async fn logging(context: &RequestContext<RoleServer>) -> Value {
    for words in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let param = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(words));
        let _ = context.peer.notify_logging_message(param).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    text("Tool with logging executed")
}

async fn progress(context: &RequestContext<RoleServer>) -> Value {
    for done in [0.0, 50.0, 100.0] {
        if let Some(token) = context.meta.get_progress_token() {
            let param = ProgressNotificationParam::new(token, done).with_total(100.0);
            let _ = context.peer.notify_progress(param).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    text("Tool with progress executed")
}

async fn sampling(context: &RequestContext<RoleServer>, prompt: &str) -> Result<Value, ErrorData> {
    let params = from(json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": prompt } }], "maxTokens": 100,
    }))?;
    let answer = context.peer.create_message(params).await;
    let answer = answer.map_err(|why| ErrorData::internal_error(why.to_string(), None))?;
    Ok(text(format!("LLM response: {}", json!(answer)["content"]["text"])))
}

async fn elicitation(
    context: &RequestContext<RoleServer>,
    message: &str,
    schema: Value,
) -> Result<Value, ErrorData> {
    let params: ElicitRequestParams =
        from(json!({ "mode": "form", "message": message, "requestedSchema": schema }))?;
    let answer = context.peer.create_elicitation(params).await;
    let answer = answer.map_err(|why| ErrorData::internal_error(why.to_string(), None))?;
    Ok(text(format!("Elicitation completed: action={:?}, content={:?}", answer.action, answer.content)))
}

fn user_schema() -> Value {
    json!({ "type": "object", "required": ["username", "email"], "properties": {
        "username": { "type": "string", "description": "User's response" },
        "email": { "type": "string", "description": "User's email address" },
    } })
}

fn defaults_schema() -> Value {
    json!({ "type": "object", "properties": {
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    } })
}

fn enums_schema() -> Value {
    let titled = |one: &str, two: &str, three: &str| {
        json!([
            { "const": "value1", "title": one }, { "const": "value2", "title": two }, { "const": "value3", "title": three },
        ])
    };
    json!({ "type": "object", "properties": {
        "untitledSingle": { "type": "string", "enum": ["option1", "option2", "option3"] },
        "titledSingle": { "type": "string", "oneOf": titled("First Option", "Second Option", "Third Option") },
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": ["option1", "option2", "option3"] } },
        "titledMulti": {
            "type": "array", "items": { "anyOf": titled("First Choice", "Second Choice", "Third Choice") },
        },
    } })
}

/// The text of an argument; empty where there is none.
fn text_of<'a>(arguments: Option<&'a JsonObject>, name: &str) -> &'a str {
    arguments.and_then(|given| given.get(name)?.as_str()).unwrap_or("")
}
