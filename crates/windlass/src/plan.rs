//! Being written.

pub(crate) async fn plan(_: &crate::cli::Global, _: crate::cli::Plan) -> anyhow::Result<()> {
    Ok(())
}
