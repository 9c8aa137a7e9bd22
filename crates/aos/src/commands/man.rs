//! `aos man`: generates the manual pages from the definitions of `--help`.

use std::path::Path;

use anyhow::Context as _;

use crate::Exit;
use crate::own_file::Folder;

pub(crate) fn run(dir: &Path, command: clap::Command) -> anyhow::Result<Exit> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_pages(&command, &Folder::open(dir)?)?;
    Ok(Exit::Success)
}

fn write_pages(command: &clap::Command, folder: &Folder) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, folder)?;
    }
    let page = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    page.render(&mut text).context("cannot make a manual page")?;
    let name = page.get_filename();
    let before = folder.read(&name)?;
    folder.replace(&name, before.as_ref(), &text, 0o644)
}
