//! `aos`, the command-line client.

fn main() -> std::process::ExitCode {
    aos::main()
}
