//! The programs `aos` and `aosd`: what people type, and the daemon that serves it.

pub mod cli;
mod commands;
mod connect;
pub mod daemon;
mod demo;
mod detach;
mod exit;
mod home;
mod logging;
mod panics;
mod render;

pub use exit::Exit;
