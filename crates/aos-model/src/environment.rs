//! Names of environment variables by which a program loads code, or starts another program, that its caller chooses.
//!
//! Where a capability lists the programs that may run, a command must not set them: `LD_PRELOAD` turns every program into
//! any other. The lists are of what is documented for the loader, shells, interpreters, build tools, pagers and editors; they
//! cannot be complete for every program, and an interpreter that is allowed runs anything without them.

/// Whole names.
const NAMES: &[&str] = &[
    // where programs and their settings are found
    "PATH",
    "HOME",
    "SHELL",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    // the C library
    "GCONV_PATH",
    "GETCONF_DIR",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "MALLOC_TRACE",
    "NLSPATH",
    // shells
    "BASHOPTS",
    "BASH_ENV",
    "ENV",
    "FPATH",
    "IFS",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
    // pagers, editors, and programs that start others
    "BROWSER",
    "CVS_RSH",
    "EDITOR",
    "EXINIT",
    "FCEDIT",
    "HGEDITOR",
    "HGRCPATH",
    "INPUTRC",
    "MANPAGER",
    "MORE",
    "MYVIMRC",
    "PAGER",
    "RIPGREP_CONFIG_PATH",
    "RSYNC_RSH",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "SVN_SSH",
    "TAR_OPTIONS",
    "VIM",
    "VIMINIT",
    "VIMRUNTIME",
    "VISUAL",
    // interpreters
    "AWKLIBPATH",
    "AWKPATH",
    "CLASSPATH",
    "EMACSLOADPATH",
    "GEM_HOME",
    "GEM_PATH",
    "JAVA_HOME",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "OCAMLPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "R_HOME",
    "TCLLIBPATH",
    "TCL_LIBRARY",
    "VIRTUAL_ENV",
    "_JAVA_OPTIONS",
    "__PYVENV_LAUNCHER__",
    // libraries with plugins
    "GIO_EXTRA_MODULES",
    "GIO_MODULE_DIR",
    "GTK_MODULES",
    "GTK_PATH",
    "KRB5_CONFIG",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "QT_PLUGIN_PATH",
    // build tools
    "AR",
    "AS",
    "CC",
    "CONFIG_SITE",
    "CPP",
    "CXX",
    "GNUMAKEFLAGS",
    "LD",
    "M4PATH",
    "MAKEFILES",
    "MAKEFLAGS",
    "MFLAGS",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOC",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
];

/// Beginnings of names. `npm` reads its names in any letter case.
const PREFIXES: &[&str] = &[
    "ANT_",
    "BASH_FUNC_",
    "BUN_",
    "BUNDLE_",
    "CAML_",
    "CARGO",
    "CGO_",
    "CMAKE",
    "COMPLUS_",
    "CONDA_",
    "CORECLR_",
    "DENO_",
    "DOTNET_",
    "DYLD_",
    "ERL_",
    "GHC",
    "GIT_",
    "GO",
    "GRADLE_",
    "GST_PLUGIN",
    "GUILE_",
    "JULIA_",
    "LD_",
    "LESS",
    "LUA_",
    "M2_",
    "MAVEN_",
    "MIX_",
    "NPM_",
    "OCAML",
    "PERL",
    "PIP_",
    "PKG_CONFIG",
    "POETRY_",
    "PYTHON",
    "RUBY",
    "RUSTUP_",
    "R_ENVIRON",
    "R_LIBS",
    "R_PROFILE",
    "SBT_",
    "SYSTEMD_",
    "TS_NODE_",
    "UV_",
    "YARN_",
];

/// Whether a program may load or start what the value of this variable names. Letter case does not matter: a few programs
/// ignore it, and no ordinary name is lost.
pub fn loads_code(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(&name))
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_load_code_are_known() {
        for name in [
            "LD_PRELOAD",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "GCONV_PATH",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls%%",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "NODE_OPTIONS",
            "PERL5LIB",
            "PERL5OPT",
            "RUBYOPT",
            "GIT_SSH_COMMAND",
            "GIT_EXTERNAL_DIFF",
            "JAVA_TOOL_OPTIONS",
            "PATH",
            "LESSOPEN",
            "PAGER",
            "npm_config_script_shell",
            "_JAVA_OPTIONS",
            "RUSTC_WRAPPER",
            "GOFLAGS",
            "HOME",
        ] {
            assert!(loads_code(name), "{name}");
        }
        for name in [
            "LANG", "LC_ALL", "TERM", "TZ", "CI", "NODE_ENV", "A", "FOO_PATH", "DEBUG", "COLUMNS", "MODE",
            "USER",
        ] {
            assert!(!loads_code(name), "{name}");
        }
    }

    #[test]
    fn the_lists_are_in_upper_case() {
        for name in NAMES.iter().chain(PREFIXES) {
            assert_eq!(*name, name.to_ascii_uppercase());
        }
    }
}
