//! `aos`, the client.

fn main() -> std::process::ExitCode {
    aos::cli::main()
}
