//! A home for one test, and `aos` in it. The daemon that the test started is stopped with it.
#![allow(clippy::disallowed_methods, reason = "tests look at files and start programs")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) struct OwnHome {
    dir: tempfile::TempDir,
}

/// The result of a program, as text.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl OwnHome {
    pub(crate) fn new() -> OwnHome {
        OwnHome { dir: tempfile::Builder::new().prefix("aos-home-").tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A folder beside the home.
    pub(crate) fn workdir(&self) -> PathBuf {
        let workdir = self.dir.path().join("ws");
        std::fs::create_dir_all(&workdir).unwrap();
        workdir
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("log/aosd.log")).unwrap_or_default()
    }

    /// A program that uses this home, without the environment variables that change the log.
    pub(crate) fn command(&self, program: impl AsRef<Path>, variables: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program.as_ref());
        for name in ["AOS_LOG", "AOS_LOG_FORMAT", "AOS_DURABILITY", "AOS_TEST_PANIC"] {
            command.env_remove(name);
        }
        command.env("AOS_HOME", self.path()).envs(variables.iter().copied());
        command
    }

    pub(crate) fn aos(&self, arguments: &[&str]) -> Ended {
        self.aos_with(&[], arguments)
    }

    pub(crate) fn aos_with(&self, variables: &[(&str, &str)], arguments: &[&str]) -> Ended {
        let mut command = self.command(env!("CARGO_BIN_EXE_aos"), variables);
        command.args(arguments).output().unwrap().into()
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Drop for OwnHome {
    fn drop(&mut self) {
        let _ = self.command(env!("CARGO_BIN_EXE_aos"), &[]).args(["daemon", "stop"]).output();
    }
}
