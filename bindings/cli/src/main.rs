//! The command `cuddy`.

fn main() -> std::process::ExitCode {
    cuddy_cli::cli::main()
}
