//! `aosd`, the daemon.

fn main() -> std::process::ExitCode {
    aos::daemon::main()
}
