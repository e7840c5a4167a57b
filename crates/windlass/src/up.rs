//! Being written.

pub(crate) async fn up(_: &crate::cli::Global, _: crate::cli::Up) -> anyhow::Result<()> {
    Ok(())
}
pub(crate) async fn controller(
    _: &crate::cli::Global,
    _: crate::cli::Controller,
) -> anyhow::Result<()> {
    Ok(())
}
