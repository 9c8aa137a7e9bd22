//! `aos demo`
pub(crate) fn run() -> anyhow::Result<crate::Exit> {
    Ok(crate::Exit::Success)
}
