//! What a session gives its commands, computed when it is opened and again after a restart.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use aos_model::limits::MOUNTS_MAX;
use aos_model::path::RequestPath;
use aos_model::records::SessionRecord;
use aos_model::refusal::{Code, Refusal};
use aos_model::request::{
    GitIdentity, Home, Isolation, LocalTarget, Mount, MountMode, NetworkMode, check_environment,
};
use aos_model::strict::UniqueMap;
use aos_sandbox::{BindMount, HomeMount, RunningSet, SYSTEM_DIRS, User, View};
use aos_store::SessionDirs;
use rustix::io::Errno;

use super::environment::{self, Surroundings};
use super::mask_cache::MaskCache;
use crate::disk::{self, Meta};
use crate::jail::Root;
use crate::leftovers::log_leftover;
use aos_model::path::is_below;

#[derive(Debug)]
pub(crate) struct ExecConfig {
    pub(crate) isolation: Isolation,
    pub(crate) allow_reduced: bool,
    pub(crate) network: Option<NetworkMode>,
    pub(crate) env: UniqueMap<String>,
    pub(crate) user: Option<User>,
    pub(crate) running: RunningSet,
    pub(crate) mask_cache: MaskCache,
    home: Home,
    git_identity: GitIdentity,
    mounts: Vec<Pin>,
    session_id: String,
    command_dirs: Arc<SessionDirs>,
    making_dirs: Mutex<()>,
    /// What the private folders held when it was last counted.
    scratch_used: AtomicU64,
}

/// A mount of the session, held open so that it stays what it was.
#[derive(Debug)]
struct Pin {
    _fd: OwnedFd,
    bind: BindMount,
}

impl ExecConfig {
    pub(crate) fn new(
        record: &SessionRecord,
        target: &LocalTarget,
        workdir: &Root,
        hidden: &[Vec<u8>],
        command_dirs: &Arc<SessionDirs>,
    ) -> Result<ExecConfig, Refusal> {
        let env = target.env.clone().unwrap_or_default();
        check_environment(
            "target.local.env",
            env.0.iter().map(|(name, value)| (name.as_str(), value.as_str())),
        )?;
        let mounts = target.mounts.as_deref().unwrap_or_default();
        if mounts.len() > MOUNTS_MAX {
            return Err(Refusal::new(Code::InvalidMount, format!("at most {MOUNTS_MAX} mounts")));
        }
        Ok(ExecConfig {
            isolation: record.isolation,
            allow_reduced: record.allow_reduced,
            network: target.network_mode,
            env,
            user: environment::user_for(&workdir.meta),
            running: RunningSet::default(),
            mask_cache: MaskCache::default(),
            home: target.home.unwrap_or(Home::Private),
            git_identity: git_identity(target)?,
            mounts: mounts.iter().map(|mount| pin(mount, hidden)).collect::<Result<_, _>>()?,
            session_id: record.session_id.clone(),
            command_dirs: command_dirs.clone(),
            making_dirs: Mutex::new(()),
            scratch_used: AtomicU64::new(0),
        })
    }

    /// Of a session in which no command runs.
    pub(crate) fn unused(record: &SessionRecord, command_dirs: &Arc<SessionDirs>) -> ExecConfig {
        ExecConfig {
            isolation: record.isolation,
            allow_reduced: record.allow_reduced,
            network: None,
            env: UniqueMap::default(),
            user: None,
            running: RunningSet::default(),
            mask_cache: MaskCache::default(),
            home: Home::Private,
            git_identity: GitIdentity::default(),
            mounts: Vec::new(),
            session_id: record.session_id.clone(),
            command_dirs: command_dirs.clone(),
            making_dirs: Mutex::new(()),
            scratch_used: AtomicU64::new(0),
        }
    }

    /// The name and the home of the user that commands run as. Without mounts, a private home has its real path.
    pub(crate) fn user_and_home(&self, here: &Surroundings, state: &[u8], mounted: bool) -> (String, String) {
        let own = rustix::process::geteuid().as_raw();
        let uid = self.user.map_or(own, |user| user.uid);
        let account = environment::account(uid);
        let name = account.as_ref().map_or_else(|| uid.to_string(), |account| account.name.clone());
        let home = match (self.home, account) {
            (Home::Private, _) if !mounted => aos_model::path::show(&self.private_path(state, "home")),
            // The toolchains on PATH are found from here, for every user.
            (Home::Private, _) | (_, None) => here.home.clone(),
            (Home::ReadOnly | Home::Host, Some(_)) if uid == own => here.home.clone(),
            (Home::ReadOnly | Home::Host, Some(account)) => account.home,
        };
        (name, home)
    }

    /// The homes of the daemon's user and of the user that commands run as.
    pub(crate) fn user_homes(&self) -> Vec<Vec<u8>> {
        let own = rustix::process::geteuid().as_raw();
        let uids = [Some(own), self.user.map(|user| user.uid).filter(|uid| *uid != own)];
        let homes = uids.into_iter().flatten().filter_map(environment::account);
        homes.map(|account| account.home.into_bytes()).filter(|home| home.starts_with(b"/")).collect()
    }

    pub(crate) fn uid_is_root(&self) -> bool {
        self.user.map_or_else(|| rustix::process::geteuid().is_root(), |user| user.uid == 0)
    }

    /// The session's mounts; none may be written where the capability forbids writing.
    pub(crate) fn mounts(&self, may_write: bool) -> Vec<BindMount> {
        let narrowed = |pin: &Pin| BindMount { writable: pin.bind.writable && may_write, ..pin.bind.clone() };
        self.mounts.iter().map(narrowed).collect()
    }

    /// How HOME is shown, and the private `/tmp`. The folders are made when the first command needs them.
    pub(crate) fn private_dirs(&self, home: &str, state: &[u8]) -> Result<(HomeMount, BindMount), Refusal> {
        let _guard = self.making_dirs.lock().expect("BUG: lock poisoned");
        let own = self.command_dirs.session(&self.session_id)?;
        let make = |name: &str, mode: u32| -> Result<Meta, Errno> {
            match disk::make_dir(&own, name.as_bytes()) {
                Ok(()) => {
                    let dir = disk::open_dir(&own, name.as_bytes())?;
                    if let Some(User { uid, gid }) = self.user {
                        disk::set_owner_at(&own, name.as_bytes(), uid, gid)?;
                    }
                    disk::set_mode(&dir, mode)?;
                }
                Err(Errno::EXIST) => {}
                Err(why) => return Err(why),
            }
            Meta::at(&own, name.as_bytes())?.ok_or(Errno::NOENT)
        };
        let bind = |at: &[u8], name: &str, meta: Meta| BindMount {
            at: at.to_vec(),
            from: self.private_path(state, name),
            pin: Some((meta.dev, meta.ino)),
            writable: true,
            submounts: false,
            required: true,
            overlay: None,
        };
        let fail = |why| crate::fault::refusal("cannot make the private folders of the session", why);
        let tmp = bind(b"/tmp", "tmp", make("tmp", 0o1777).map_err(fail)?);
        let shown = match self.home {
            Home::Private => {
                let is_new = Meta::at(&own, b"home").map_err(fail)?.is_none();
                let meta = make("home", 0o700).map_err(fail)?;
                if is_new {
                    self.write_gitconfig(&own).map_err(fail)?;
                }
                HomeMount::Private(bind(home.as_bytes(), "home", meta))
            }
            Home::ReadOnly => HomeMount::Real { writable: false },
            Home::Host => HomeMount::Real { writable: true },
        };
        Ok((shown, tmp))
    }

    /// Commands commit as their caller. Written once: the file is theirs to change.
    fn write_gitconfig(&self, own: &OwnedFd) -> Result<(), Errno> {
        let text = self.git_identity.gitconfig();
        if text.is_empty() {
            return Ok(());
        }
        let home = disk::open_dir(own, b"home")?;
        let file = disk::create_new(&home, b".gitconfig")?;
        disk::write_all(&file, text.as_bytes())?;
        match self.user {
            Some(User { uid, gid }) => disk::set_owner_at(&home, b".gitconfig", uid, gid),
            None => Ok(()),
        }
    }

    /// The private home and `/tmp`, opened; those that exist.
    pub(crate) fn open_private_dirs(&self) -> Vec<Arc<OwnedFd>> {
        let Ok(own) = self.command_dirs.session(&self.session_id) else { return Vec::new() };
        ["tmp", "home"]
            .iter()
            .filter_map(|name| disk::open_dir(&own, name.as_bytes()).ok())
            .map(Arc::new)
            .collect()
    }

    pub(crate) fn scratch_used(&self) -> u64 {
        self.scratch_used.load(Ordering::Relaxed)
    }

    pub(crate) fn note_scratch_used(&self, bytes: u64) {
        self.scratch_used.store(bytes, Ordering::Relaxed);
    }

    /// The real path of the private `/tmp`, used where nothing can be mounted but Landlock restricts files.
    pub(crate) fn tmp_path(&self, state: &[u8]) -> String {
        aos_model::path::show(&self.private_path(state, "tmp"))
    }

    /// The real path of a private folder.
    fn private_path(&self, state: &[u8], name: &str) -> Vec<u8> {
        [state, b"/state/rooms/", self.session_id.as_bytes(), b"/", name.as_bytes()].concat()
    }

    /// Where nothing can be mounted, a private home gets links to the toolchains of the real one.
    pub(crate) fn link_toolchains(&self, view: &View, home: &str, state: &[u8]) {
        if self.home != Home::Private {
            return;
        }
        let private = self.private_path(state, "home");
        for bind in view.binds.iter().filter(|bind| !bind.required) {
            let name = bind.at.strip_prefix(home.as_bytes()).and_then(|rest| rest.strip_prefix(b"/"));
            if let Some(name) = name {
                self.link_toolchain(&private, name, &bind.from);
            }
        }
    }

    /// Makes a link in the private home, and the folders above it. A command may have put anything in their places.
    fn link_toolchain(&self, home: &[u8], name: &[u8], target: &[u8]) {
        let link = || -> Result<(), Errno> {
            let mut folder = disk::open_dir_at_path(home)?;
            let mut names: Vec<&[u8]> = name.split(|b| *b == b'/').collect();
            let last = names.pop().unwrap_or_default();
            for name in names {
                match disk::make_dir(&folder, name) {
                    Ok(()) => {
                        if let Some(User { uid, gid }) = self.user {
                            disk::set_owner_at(&folder, name, uid, gid)?;
                        }
                    }
                    Err(Errno::EXIST) => {}
                    Err(why) => return Err(why),
                }
                folder = disk::open_dir(&folder, name)?;
            }
            disk::make_link(target, &folder, last)
        };
        if let Err(error) = link()
            && error != Errno::EXIST
        {
            tracing::debug!(%error, "cannot link a toolchain into a private home");
        }
    }

    /// Removes the private folders.
    pub(crate) fn remove_private_dirs(&self) {
        log_leftover("private folders", &self.session_id, self.command_dirs.drop_session(&self.session_id));
    }
}

/// Folders that are made for the command and cannot be mounted over.
const MADE: [&str; 2] = ["/proc", "/dev"];

fn pin(mount: &Mount, hidden: &[Vec<u8>]) -> Result<Pin, Refusal> {
    let bad = |why: &str| {
        Refusal::new(
            Code::InvalidMount,
            format!("mount {}: {why}", aos_model::text::escape(&mount.host_path)),
        )
    };
    let absolute = |text: &str, what: &str| -> Result<Vec<u8>, Refusal> {
        let spelled = RequestPath::parse(text).map_err(|fault| bad(&fault.to_string()))?;
        if !spelled.is_absolute() || spelled.names().any(|name| name == b"..") {
            return Err(bad(&format!("{what} must be absolute and without `..`")));
        }
        Ok(spelled.names().flat_map(|name| [b"/", name].concat()).collect())
    };
    let from = absolute(&mount.host_path, "a host path")?;
    let at = absolute(mount.mount_path.as_deref().unwrap_or(&mount.host_path), "a mount path")?;
    let in_system = |path: &[u8]| SYSTEM_DIRS.iter().any(|own| is_below(path, own.as_bytes()));
    let at = if in_system(&at) { crate::jail::follow_text(&at).unwrap_or(at) } else { at };
    if in_system(&at) && !disk::exists(&at) {
        return Err(bad("its mount path is in a system folder and does not exist there; choose another"));
    }
    if at.is_empty() || MADE.iter().any(|made| is_below(&at, made.as_bytes())) {
        return Err(bad("a mount path must not be `/` nor below /proc or /dev"));
    }
    let path = if from.is_empty() { b"/" } else { from.as_slice() };
    let fd = disk::hold_path(path).map_err(|why| bad(&why.to_string()))?;
    let meta = Meta::of(&fd).map_err(|why| bad(&why.to_string()))?;
    let real = crate::jail::follow_text(&from).ok_or_else(|| bad("it cannot be followed"))?;
    if hidden.iter().any(|hidden| is_below(&real, hidden)) {
        return Err(bad("the daemon's own state cannot be mounted"));
    }
    let bind = BindMount {
        at,
        from: real,
        pin: Some((meta.dev, meta.ino)),
        writable: mount.mode == MountMode::Rw,
        submounts: true,
        required: true,
        overlay: None,
    };
    Ok(Pin { _fd: fd, bind })
}

fn git_identity(target: &LocalTarget) -> Result<GitIdentity, Refusal> {
    let identity = target.git_identity.as_deref().cloned().unwrap_or_default();
    for (name, value) in identity.values() {
        if value.is_some_and(|value| !GitIdentity::takes(value)) {
            return Err(Refusal::new(
                Code::InvalidParams,
                format!(
                    "target.local.git_identity.{name} is too long or has control characters; leave it out"
                ),
            ));
        }
    }
    Ok(identity)
}
