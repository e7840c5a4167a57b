//! Being written.

pub(crate) async fn run(
    _: &crate::cli::Global,
    _: crate::cli::Runner,
) -> anyhow::Result<std::process::ExitCode> {
    Ok(std::process::ExitCode::SUCCESS)
}
