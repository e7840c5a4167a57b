//! Being written.

pub(crate) async fn logs(_: &crate::cli::Global, _: &crate::cli::Logs) -> anyhow::Result<()> {
    Ok(())
}
