//! The toolchains that people install in a home folder, as a table: which folders of one a command sees.
//!
//! A row counts only when a folder of `bins` is on PATH, and shows what it lists, never the folder around it.

/// Paths are below the folder that `bins` was found in, usually a home. `*` stands for one name; in `shows` and `caches`
/// the first `*` is the name that matched in `bins`.
#[derive(Debug)]
pub(crate) struct Toolchain {
    pub bins: &'static [&'static str],
    pub shows: &'static [&'static str],
    /// What was downloaded. With a network these are the session's own.
    pub caches: &'static [&'static str],
    /// A file that must exist for the row to count.
    pub marker: Option<&'static str>,
}

const fn row(bins: &'static [&'static str], shows: &'static [&'static str]) -> Toolchain {
    Toolchain { bins, shows, caches: &[], marker: None }
}

const fn cached(
    bins: &'static [&'static str],
    shows: &'static [&'static str],
    caches: &'static [&'static str],
) -> Toolchain {
    Toolchain { bins, shows, caches, marker: None }
}

pub(crate) const TOOLCHAINS: &[Toolchain] = &[
    // Rust. rustup's programs are in `.cargo/bin`.
    cached(
        &[".cargo/bin"],
        &[".cargo/bin", ".cargo/env", ".cargo/config.toml", ".cargo/config"],
        &[".cargo/registry", ".cargo/git"],
    ),
    row(&[".cargo/bin", ".rustup/toolchains/*/bin"], &[".rustup/toolchains", ".rustup/settings.toml"]),
    // Node
    cached(&[".nvm/versions/node/*/bin"], &[".nvm/versions/node/*"], &[".npm/_cacache"]),
    cached(&[".config/nvm/versions/node/*/bin"], &[".config/nvm/versions/node/*"], &[".npm/_cacache"]),
    cached(
        &[".local/share/fnm/node-versions/*/installation/bin", ".local/share/fnm/aliases/*/bin"],
        &[".local/share/fnm/node-versions", ".local/share/fnm/aliases"],
        &[".npm/_cacache"],
    ),
    cached(
        &[".fnm/node-versions/*/installation/bin", ".fnm/aliases/*/bin"],
        &[".fnm/node-versions", ".fnm/aliases"],
        &[".npm/_cacache"],
    ),
    cached(&[".volta/bin"], &[".volta/bin", ".volta/tools"], &[".npm/_cacache"]),
    cached(
        &[".local/share/pnpm", ".local/share/pnpm/bin"],
        &[".local/share/pnpm/bin", ".local/share/pnpm/global", ".local/share/pnpm/nodejs"],
        &[".local/share/pnpm/store"],
    ),
    row(
        &[".nodenv/bin", ".nodenv/shims"],
        &[".nodenv/bin", ".nodenv/shims", ".nodenv/libexec", ".nodenv/versions"],
    ),
    row(&[".npm-global/bin"], &[".npm-global/bin", ".npm-global/lib"]),
    cached(&[".bun/bin"], &[".bun/bin", ".bun/install/global"], &[".bun/install/cache"]),
    cached(&[".deno/bin"], &[".deno/bin"], &[".cache/deno"]),
    // Python
    cached(
        &[
            ".pyenv/bin",
            ".pyenv/shims",
            ".pyenv/versions/*/bin",
            ".pyenv/plugins/*/bin",
            ".pyenv/plugins/*/shims",
        ],
        &[
            ".pyenv/bin",
            ".pyenv/libexec",
            ".pyenv/plugins",
            ".pyenv/pyenv.d",
            ".pyenv/shims",
            ".pyenv/version",
            ".pyenv/versions",
        ],
        &[".cache/pip"],
    ),
    cached(
        &[".local/bin"],
        &[
            ".local/lib",
            ".local/pipx/shared",
            ".local/pipx/venvs",
            ".local/share/pipx/shared",
            ".local/share/pipx/venvs",
            ".local/share/uv/python",
            ".local/share/uv/tools",
        ],
        &[".cache/pip", ".cache/uv"],
    ),
    row(&["miniconda3/bin", "miniconda3/condabin", "miniconda3/envs/*/bin"], &["miniconda3"]),
    row(&["anaconda3/bin", "anaconda3/condabin", "anaconda3/envs/*/bin"], &["anaconda3"]),
    row(&["miniforge3/bin", "miniforge3/condabin", "miniforge3/envs/*/bin"], &["miniforge3"]),
    row(&["mambaforge/bin", "mambaforge/condabin", "mambaforge/envs/*/bin"], &["mambaforge"]),
    row(&["micromamba/bin", "micromamba/envs/*/bin"], &["micromamba"]),
    row(&[".conda/envs/*/bin"], &[".conda/envs/*"]),
    // Go: `go` is a workspace, or what was unpacked from an archive.
    cached(&["go/bin"], &["go/bin"], &["go/pkg/mod"]),
    Toolchain { marker: Some("go/VERSION"), ..row(&["go/bin"], GO_ROOT) },
    row(&["sdk/*/bin"], &["sdk/*"]),
    row(
        &[".goenv/bin", ".goenv/shims"],
        &[".goenv/bin", ".goenv/shims", ".goenv/libexec", ".goenv/versions"],
    ),
    // Java
    cached(&[".jdks/*/bin"], &[".jdks/*"], &[".m2/repository"]),
    cached(&[".sdkman/candidates/*/*/bin"], &[".sdkman/candidates"], &[".m2/repository"]),
    // Several languages
    row(
        &[".asdf/bin", ".asdf/shims"],
        &[".asdf/bin", ".asdf/shims", ".asdf/installs", ".asdf/lib", ".asdf/libexec", ".asdf/plugins"],
    ),
    row(
        &[".local/share/mise/shims", ".local/share/mise/bin", ".local/share/mise/installs/*/*/bin"],
        &[".local/share/mise/bin", ".local/share/mise/installs", ".local/share/mise/shims"],
    ),
    row(
        &[".linuxbrew/bin", ".linuxbrew/sbin"],
        &[
            ".linuxbrew/Cellar",
            ".linuxbrew/Homebrew",
            ".linuxbrew/bin",
            ".linuxbrew/etc",
            ".linuxbrew/include",
            ".linuxbrew/lib",
            ".linuxbrew/libexec",
            ".linuxbrew/opt",
            ".linuxbrew/sbin",
            ".linuxbrew/share",
        ],
    ),
    // Others
    row(
        &[".rbenv/bin", ".rbenv/shims"],
        &[".rbenv/bin", ".rbenv/shims", ".rbenv/libexec", ".rbenv/versions"],
    ),
    row(&[".rbenv/versions/*/bin"], &[".rbenv/versions/*"]),
    cached(&[".ghcup/bin", ".cabal/bin"], &[".cabal/bin", ".ghcup/bin", ".ghcup/ghc"], &[".cabal/packages"]),
    row(&[".opam/*/bin"], &[".opam/*", ".opam/config", ".opam/opam-init"]),
    cached(&[".dotnet", ".dotnet/tools"], &[".dotnet"], &[".nuget/packages"]),
    row(&[".juliaup/bin"], &[".juliaup/bin", ".julia/juliaup"]),
];

const GO_ROOT: &[&str] = &["go/VERSION", "go/bin", "go/go.env", "go/lib", "go/pkg", "go/src"];

/// What a folder on PATH stands for: the folder around it, and the paths below that to show.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub base: Vec<u8>,
    pub shows: Vec<String>,
    pub caches: Vec<String>,
    pub marker: Option<&'static str>,
}

/// The rows that a folder on PATH matches.
pub(crate) fn matches(bin: &[u8]) -> Vec<Match> {
    let names: Vec<&str> = match std::str::from_utf8(bin) {
        Ok(text) => text.split('/').collect(),
        Err(_) => return Vec::new(),
    };
    let mut found = Vec::new();
    for toolchain in TOOLCHAINS {
        let matched = toolchain.bins.iter().find_map(|pattern| match_end(&names, pattern));
        let Some((base, star)) = matched else { continue };
        let fill = |paths: &[&str]| paths.iter().map(|path| path.replacen('*', star, 1)).collect();
        found.push(Match {
            base: base.join("/").into_bytes(),
            shows: fill(toolchain.shows),
            caches: fill(toolchain.caches),
            marker: toolchain.marker,
        });
    }
    found
}

/// Whether the last names of a path match the pattern: the names before them, and what its first `*` stands for.
fn match_end<'a, 'n>(names: &'a [&'n str], pattern: &str) -> Option<(&'a [&'n str], &'n str)> {
    let (mut base, mut star) = (names, "");
    // From the end, where most patterns differ already.
    for wanted in pattern.rsplit('/') {
        let (name, before) = base.split_last()?;
        match wanted {
            "*" => star = name,
            wanted if wanted == *name => {}
            _ => return None,
        }
        base = before;
    }
    (!base.is_empty()).then_some((base, star))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_by_its_own_bin_and_lists_what_it_shows() {
        let cargo = matches(b"/home/ada/.cargo/bin");
        assert_eq!(cargo.len(), 2, "cargo and rustup");
        assert!(cargo.iter().all(|row| row.base == b"/home/ada"));
        assert!(cargo[1].shows.contains(&".rustup/toolchains".to_owned()));
        let node = matches(b"/home/ada/.nvm/versions/node/v20.1.0/bin");
        assert_eq!(node[0].shows, [".nvm/versions/node/v20.1.0"]);
        assert_eq!(matches(b"/srv/tool/bin"), []);
        assert_eq!(matches(b"/home/ada/my.cargo/bin"), []);
    }

    #[test]
    fn every_row_lists_plain_paths() {
        for toolchain in TOOLCHAINS {
            for path in toolchain.bins.iter().chain(toolchain.shows).chain(toolchain.caches) {
                assert!(!path.starts_with('/') && !path.ends_with('/') && !path.contains(".."), "{path}");
            }
            let stars = |paths: &[&str]| paths.iter().any(|path| path.contains('*'));
            assert!(!stars(toolchain.shows) || toolchain.bins.iter().all(|bin| bin.contains('*')));
        }
    }
}
