//! Being written.

pub(crate) async fn steps(_: &crate::cli::Global, _: &crate::cli::Steps) -> anyhow::Result<()> {
    Ok(())
}
