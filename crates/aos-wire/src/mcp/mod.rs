//! The MCP server: the tools for models, to any client of the Model Context Protocol, on standard streams or over HTTP.
//!
//! It is a client of the daemon like any other and acts only inside the sessions that its operator gave it. All that
//! is asynchronous in this house happens here, on one thread; what waits for a command waits on a thread beside it.

mod consent;
mod handler;
mod http;
mod resources;
mod server;
mod tool_set;

use std::io;

pub use http::{Gate, serve_http};
pub use server::{Backend, McpServer, ServedSession};

/// A runtime of one thread: messages are small, and most calls are answered before another thread would have woken.
pub fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()
}

/// Serves one client on the standard streams until it goes away.
pub fn serve_stdio(server: &McpServer) -> io::Result<()> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let service = rmcp::serve_server(server.clone(), rmcp::transport::io::stdio_pipes()).await;
        match service {
            Ok(service) => service.waiting().await.map(|_| ()).map_err(io::Error::other),
            // A client that goes away before it says hello is no failure.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(why) => Err(io::Error::other(why)),
        }
    });
    server.end_commands();
    runtime.shutdown_background();
    ended
}
