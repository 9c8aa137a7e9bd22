//! The programs under test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The paths of `aos` and `aosd`.
#[derive(Debug, Clone)]
pub struct Programs {
    pub aos: PathBuf,
    pub aosd: PathBuf,
}

impl Programs {
    pub fn in_folder(folder: &Path) -> Programs {
        Programs { aos: folder.join("aos"), aosd: folder.join("aosd") }
    }

    /// The programs that cargo built along with the running test.
    ///
    /// `CARGO_BIN_EXE_aos` exists only while a test of the package `aos` is compiled. Cargo puts a test program into
    /// `target/<profile>/deps` and the binaries of the packages into the folder above.
    pub fn built() -> &'static Programs {
        static BUILT: OnceLock<Programs> = OnceLock::new();
        BUILT.get_or_init(|| Programs::in_folder(&profile_folder()))
    }

    /// Where `cargo xtask test` keeps the tools of the tests: beside the build.
    pub fn tools() -> PathBuf {
        profile_folder().parent().expect("the build folder has a parent").join("tools")
    }
}

/// `target/<profile>`, from the path of the running program.
fn profile_folder() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this program is known");
    let folder = own.parent().expect("a program is in a folder");
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    folder.to_owned()
}
