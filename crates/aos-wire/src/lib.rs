//! The front ends: JSON-RPC over a Unix socket, and MCP. They translate requests; all effects are the host's.

mod client;
mod frame;
pub mod mcp;
mod methods;
mod peer;
mod polled;
pub mod rpc;
mod server;
mod socket;
mod writer;

pub use client::{Client, ClientError, new_tool_call_id};
pub use rpc::ErrorCode;
pub use server::{Control, Server};
pub use socket::{bind, connect, unlink};
