//! Where a check runs: a world with the daemon of one user, and the programs that its sessions see.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use aos_testkit::{Outcome, Start, World, check, is_root, reaches};
use serde_json::{Value, json};

/// A user whose daemon it is, and whose folder.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    pub name: &'static str,
    /// `None` is the caller.
    pub uid: Option<u32>,
}

/// Root and an ordinary user, or the caller alone if it is not root.
pub(super) fn users() -> Vec<User> {
    let ordinary = |uid| User { name: "an ordinary user", uid };
    if is_root() {
        vec![User { name: "root", uid: None }, ordinary(Some(65_534))]
    } else {
        vec![ordinary(None)]
    }
}

/// What leads package clients to their registry. Sessions with a network get those of the caller.
const NETWORK_VARIABLES: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "PIP_INDEX_URL",
    "PIP_DEFAULT_TIMEOUT",
    "UV_DEFAULT_INDEX",
    "CARGO_HTTP_CAINFO",
];

/// The caller's settings of npm for its registry, as variables: npm looks for its files elsewhere when it has another
/// home or prefix.
fn npm_settings() -> &'static BTreeMap<String, String> {
    static SETTINGS: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let get = ["config", "get", "registry", "cafile", "proxy", "https-proxy"];
        let output = Command::new("npm").args(get).output();
        let text =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        let set = text.lines().filter_map(|line| line.split_once('=')).filter(|(_, value)| *value != "null");
        set.map(|(name, value)| (format!("npm_config_{}", name.replace('-', "_")), value.to_owned()))
            .collect()
    })
}

pub(super) struct Place {
    pub user: User,
    pub world: World,
    /// The folders of PATH.
    pub path: Vec<PathBuf>,
    /// Folders that sessions see, read-only.
    tools: Vec<PathBuf>,
    pub env: BTreeMap<String, String>,
}

impl Place {
    /// PATH is the caller's, as far as this user reaches it.
    pub(super) fn new(user: User) -> Place {
        let world = World::with(Start { uid: user.uid, env: home_of(user), ..Start::default() });
        let path = std::env::var("PATH").unwrap_or_default();
        let path =
            path.split(':').map(PathBuf::from).filter(|dir| dir.is_absolute() && reaches(dir, user.uid));
        Place { path: path.collect(), user, world, tools: Vec::new(), env: BTreeMap::new() }
    }

    /// Puts a folder of programs first on PATH. Returns where this user and its sessions see it.
    pub(super) fn add_tools(&mut self, folder: &Path, bin: &str) -> Result<PathBuf, String> {
        let shown = self.world.reachable(folder, self.user.uid)?;
        self.path.insert(0, shown.join(bin));
        self.tools.push(shown.clone());
        Ok(shown)
    }

    fn environment(&self, with_network: bool) -> BTreeMap<String, String> {
        let mut env = self.env.clone();
        let path: Vec<String> = self.path.iter().map(|dir| dir.display().to_string()).collect();
        env.insert("PATH".into(), path.join(":"));
        if with_network {
            let set = NETWORK_VARIABLES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
            env.extend(set);
            env.extend(npm_settings().clone());
        }
        env
    }

    /// Puts a file into the folder of the world, for this user.
    pub(super) fn write(&self, path: &str, content: &str) -> Outcome {
        let file = self.world.write(path, content);
        for made in file.ancestors().take_while(|above| *above != self.world.root) {
            std::os::unix::fs::lchown(made, self.user.uid, self.user.uid).map_err(|why| why.to_string())?;
        }
        Ok(())
    }

    /// The params of a session on the folder of the world.
    pub(super) fn session(&self, with_network: bool, protected_paths: &str) -> Value {
        let mounts: Vec<Value> =
            self.tools.iter().map(|folder| json!({ "host_path": folder, "mode": "ro" })).collect();
        let network_mode = if with_network { "full" } else { "none" };
        let local = json!({
            "workdir": self.world.root,
            "mounts": mounts,
            "env": self.environment(with_network),
            "network_mode": network_mode,
        });
        json!({
            "target": { "local": local },
            "policy": { "preset": "permissive" },
            "capability": { "protected_paths": protected_paths },
        })
    }

    /// Runs what the user does outside of a session, in a home of its own.
    pub(super) fn outside(&self, script: &str) -> Outcome {
        let home = self.world.parent.join("person");
        std::fs::create_dir_all(&home).map_err(|why| why.to_string())?;
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir(&self.world.root).env_clear().env("HOME", &home);
        command.envs(self.environment(true));
        if let Some(uid) = self.user.uid {
            std::os::unix::fs::chown(&home, Some(uid), Some(uid)).map_err(|why| why.to_string())?;
            command.uid(uid).gid(uid);
        }
        let output = command.output().map_err(|why| why.to_string())?;
        check(output.status.success(), || {
            format!("outside: {script}: {}", String::from_utf8_lossy(&output.stderr))
        })
    }

    pub(super) fn finish(self) -> Outcome {
        self.world.finish()
    }
}

/// Toolchains are looked for in the home of the daemon's user.
fn home_of(user: User) -> Vec<(String, String)> {
    let home = std::env::var("HOME").ok().filter(|_| user.uid.is_none());
    home.map(|home| ("HOME".to_owned(), home)).into_iter().collect()
}
