//! What a check needs: found on PATH, or installed beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use aos_testkit::{reaches, rust_toolchain};

use super::place::Place;
use crate::cargo::target_dir;

/// One thing that a check needs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need {
    /// A program on PATH that works with these words.
    Program(&'static str, &'static [&'static str]),
    /// The Rust toolchain that builds this project.
    Rust,
    /// Debian packages, unpacked into a folder of their own and not installed.
    Debian(&'static Unpacked),
}

/// Debian packages, and where their programs are below the folder that they are unpacked into.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub name: &'static str,
    pub packages: &'static [&'static str],
    pub bin: &'static str,
    /// A variable that names a folder of theirs, for programs that expect to be where Debian puts them.
    pub variable: Option<(&'static str, &'static str)>,
}

impl Need {
    /// Adds it to the place. The error says why it cannot be had.
    pub(super) fn meet(self, place: &mut Place) -> Result<(), String> {
        match self {
            Need::Program(program, words) => has_program(place, program, words),
            Need::Rust => {
                let has_cargo = place.path.iter().any(|dir| dir.join("cargo").exists());
                if has_cargo {
                    return Ok(());
                }
                let folder = rust_toolchain().ok_or("rustc does not name its toolchain")?;
                place.add_tools(&folder, "bin").map(|_| ())
            }
            Need::Debian(unpacked) => {
                let folder = unpacked.folder()?;
                let shown = place.add_tools(&folder, unpacked.bin)?;
                if let Some((name, below)) = unpacked.variable {
                    place.env.insert(name.into(), shown.join(below).display().to_string());
                }
                Ok(())
            }
        }
    }
}

fn has_program(place: &Place, program: &str, words: &[&str]) -> Result<(), String> {
    let uid = place.user.uid;
    let found = place.path.iter().map(|dir| dir.join(program)).find(|file| reaches(file, uid));
    let found = found.ok_or_else(|| format!("there is no `{program}` that this user reaches"))?;
    let works = Command::new(found).args(words).output().is_ok_and(|output| output.status.success());
    if works { Ok(()) } else { Err(format!("`{program} {}` does not work here", words.join(" "))) }
}

impl Unpacked {
    /// The folder, filled at the first use.
    fn folder(&self) -> Result<PathBuf, String> {
        let tools = target_dir().map_err(|why| why.to_string())?.join("tools/clients");
        let folder = tools.join(self.name);
        let ready = folder.join(".ready");
        if ready.exists() {
            return Ok(folder);
        }
        println!("  unpack {} with apt-get and dpkg-deb into {}", self.packages.join(", "), folder.display());
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).map_err(|why| format!("{}: {why}", folder.display()))?;
        let unpack = "set -e; apt-get -q download \"$@\"; for file in *.deb; do dpkg-deb -x \"$file\" .; done; rm *.deb";
        quietly(Command::new("sh").args(["-c", unpack, "sh"]).args(self.packages).current_dir(&folder))?;
        std::fs::write(&ready, "").map_err(|why| format!("{}: {why}", ready.display()))?;
        Ok(folder)
    }
}

/// Runs a program. The error is the last line that it printed.
fn quietly(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|why| format!("{program}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(format!("{program} failed: {last}"))
}
