//! Being written.

pub(crate) async fn sandbox(_: &crate::cli::Global, _: crate::cli::Sandbox) -> anyhow::Result<()> {
    Ok(())
}
