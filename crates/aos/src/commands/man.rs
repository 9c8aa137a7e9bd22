//! `aos man`: generates the manual pages from the definitions of `--help`.

use std::path::Path;

use anyhow::Context as _;

use crate::Exit;

pub(crate) fn run(dir: &Path, command: clap::Command) -> anyhow::Result<Exit> {
    clap_mangen::generate_to(command, dir)
        .with_context(|| format!("cannot write manual pages into {}", dir.display()))?;
    Ok(Exit::Success)
}
