//! The doors: what programs say to `aos` and what it says back. They translate; they never act by themselves.

mod client;
pub mod mcp;
mod methods;
mod out;
mod peer;
pub mod rpc;
mod server;
mod socket;

pub use client::{Client, ClientError, new_tool_call_id};
pub use rpc::ErrorCode;
pub use server::{Control, Server};
pub use socket::{bind, connect};
