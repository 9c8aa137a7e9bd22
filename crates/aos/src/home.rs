//! The path of AOS_HOME: `$AOS_HOME`, else `$XDG_STATE_HOME/aos`, else `~/.local/state/aos`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = match (given("AOS_HOME"), given("XDG_STATE_HOME"), given("HOME")) {
        (Some(home), ..) => home,
        (None, Some(state), _) if state.is_absolute() => state.join("aos"),
        (None, _, Some(home)) => home.join(".local/state/aos"),
        (None, _, None) => bail!("cannot find AOS_HOME: neither AOS_HOME nor HOME is set"),
    };
    std::path::absolute(home).context("cannot make AOS_HOME absolute")
}
