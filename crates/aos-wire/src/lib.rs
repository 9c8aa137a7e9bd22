//! The doors: what programs say to `aos` and what it says back. They translate; they never act by themselves.

mod client;
mod out;
mod peer;
mod questions;
mod rpc;
mod server;
mod socket;

pub use client::{Client, ClientError, Progress, effect_call};
pub use rpc::ErrorCode;
pub use server::{Control, Server};
pub use socket::{bind, connect};
