//! The MCP server: offers the tools to clients of the Model Context Protocol, on standard streams or over HTTP.
//!
//! It is a client of the daemon and acts only in the sessions that its operator gave it. It is the only asynchronous
//! code: one thread runs the protocol, and slow calls move to a blocking thread.

mod handler;
mod http;
mod resources;
mod server;
mod tool_set;

use std::io;

pub use http::{HttpAccess, TOKEN_CHARACTERS_MIN, serve_http};
pub use server::{Backend, McpOptions, McpServer, ServedSession};

/// A runtime of one thread: messages are small, and most calls are answered faster than a thread wakes up.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()
}

/// Serves one client on the standard streams until it disconnects.
pub fn serve_stdio(server: &McpServer) -> io::Result<()> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let service = rmcp::serve_server(server.clone(), stdio()).await;
        match service {
            Ok(service) => service.waiting().await.map(|_| ()).map_err(io::Error::other),
            // A client that disconnects before `initialize` is not an error.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(why) => Err(io::Error::other(why)),
        }
    });
    server.end_commands();
    runtime.shutdown_background();
    outcome
}

/// A longer message is never answered: rmcp drops it, and its id with it. So the limit is far above what the daemon takes,
/// and a call that is too long for the daemon gets an answer that says so.
const LINE_BYTES_MAX: usize = 256 << 20;

fn stdio() -> impl rmcp::transport::Transport<rmcp::RoleServer> + 'static {
    let (input, output) = rmcp::transport::io::stdio_pipes();
    rmcp::transport::async_rw::AsyncRwTransport::new(input, output).with_max_line_length(LINE_BYTES_MAX)
}
