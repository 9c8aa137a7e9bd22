//! Opening a session: validates the request, pins the roots and records the session. A restart reopens it from the record.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use aos_model::capability::{Capability, FollowSymlinks};
use aos_model::entry::Fact;
use aos_model::id;
use aos_model::limits::{LABEL_BYTES_MAX, LABELS_MAX, ROOTS_MAX, SNAPSHOT_BYTES_DEFAULT};
use aos_model::path::{RequestPath, is_below};
use aos_model::policy::{Policy, PolicySpec, exclude_problem};
use aos_model::receipt::{Body, Opened, Warning};
use aos_model::records::{RootRecord, SessionRecord, SessionState};
use aos_model::refusal::{Code, Refusal, Status};
use aos_model::request::{Isolation, OnFailure, SessionOpen, TargetSpec};
use aos_model::strict::{self, JsonError};
use aos_model::vfs::{Tree, TreeChange, VfsPath};

use super::{expire_all, worktree};
use crate::exec::acts_for;
use crate::exec::{ExecConfig, account};
use crate::host::Host;
use crate::jail::Layer;
use crate::jail::{Jail, Root};
use crate::layer::{self};
use crate::led_to::LedTo;
use crate::ledger::Ledger;
use crate::outcome::Done;
use crate::policy::invalid;
use crate::programs;
use crate::session::{OpenSession, Preimages};

/// `host.session.open`. `can_enforce` tells whether what the session denies can be denied to its commands.
pub(crate) fn open(
    host: &Host,
    request: &SessionOpen,
    can_enforce: fn(&OpenSession) -> Result<(), Refusal>,
) -> Result<Done, Refusal> {
    // The second half of the reserve of a full disk is for reads, closing and garbage collection.
    if !host.reserve.has_spare() {
        host.reserve.check()?;
    }
    if host.sessions.len() >= host.sessions_max {
        expire_all(host);
    }
    if host.sessions.len() >= host.sessions_max {
        return Err(Refusal::new(
            Code::TooManySessions,
            format!("{} sessions are open already; close some with `aos session close`", host.sessions.len()),
        ));
    }
    let (isolation_applied, warning) = isolation(host, request)?;
    check_labels(request)?;
    check_excluded(request)?;
    let capability: Capability = inner(request.capability.as_deref(), Code::InvalidCapability)?;
    let spec: PolicySpec = inner(request.policy.as_deref(), Code::InvalidPolicy)?;
    let policy = Policy::compile(spec).map_err(invalid)?;
    let (record, change) = describe(host, request, capability, &policy)?;
    check_reach(&record, &policy)?;
    let mut tree = Tree::default();
    change.iter().for_each(|change| tree.apply(change));
    let session = open_recorded(host, &record, policy, Ledger::empty(), tree)?;
    programs::check_places(&session, &host.executor.surroundings.path)?;
    can_enforce(&session)?;
    let opened = Opened {
        session_id: record.session_id.clone(),
        started_at_ns: record.started_at_ns,
        expires_at_ns: record.expires_at_ns,
        isolation_applied,
        capability: session.capability.clone(),
        policy: session.policy.clone(),
    };
    host.sessions.insert(session);
    let mut done = Done::new(Status::Ready, Body::Opened(Box::new(opened)), warning.into_iter().collect());
    done.at_ns = Some(record.started_at_ns);
    done.facts.push(Fact::SessionOpened(Box::new(record)));
    done.facts.extend(change.map(Fact::Tree));
    Ok(done)
}

/// Refuses rules about absolute paths that no file effect of the session can reach.
fn check_reach(record: &SessionRecord, policy: &Policy) -> Result<(), Refusal> {
    if record.capability.follow_symlinks == FollowSymlinks::Allow {
        return Ok(());
    }
    let mut folders: Vec<&str> = record.roots.iter().map(|root| root.path.as_str()).collect();
    let workdirs = workdirs(record);
    folders.extend(workdirs.iter().map(String::as_str));
    folders.sort_unstable();
    folders.dedup();
    policy.check_reach(&folders).map_err(invalid)
}

/// The workdir as absolute paths spell it: resolved, and as the request spelled it.
fn workdirs(record: &SessionRecord) -> Vec<String> {
    let alias =
        RequestPath::parse(&record.workdir.path).ok().and_then(|workdir| alias(record, workdir.as_bytes()));
    let alias = alias.map(|alias| crate::jail::absolute_shown(&alias));
    [Some(record.workdir.path.clone()), alias].into_iter().flatten().collect()
}

/// The isolation of the session's commands. Only `local` sessions run commands.
fn isolation(host: &Host, request: &SessionOpen) -> Result<(String, Option<Warning>), Refusal> {
    match &request.target {
        TargetSpec::Local(local) => {
            let wanted = request.isolation.unwrap_or(Isolation::Auto);
            let (applied, warning) = host.executor.abilities().apply(wanted, local.network_mode)?;
            Ok((applied.receipt_text(), warning))
        }
        TargetSpec::Vfs(_) | TargetSpec::Staged(_) => Ok(("none".to_owned(), None)),
    }
}

/// Parses a capability or a policy inside the request. Errors in it have their own code.
fn inner<T: serde::de::DeserializeOwned>(
    raw: Option<&serde_json::value::RawValue>,
    code: Code,
) -> Result<T, Refusal> {
    let field = if code == Code::InvalidPolicy { "policy" } else { "capability" };
    strict::parse(raw.map_or("{}", serde_json::value::RawValue::get)).map_err(|invalid| match invalid {
        JsonError::Syntax(why) | JsonError::Shape(why) => Refusal::new(code, format!("{field}: {why}")),
    })
}

/// A folder in which something is protected cannot be left out of capture.
fn check_excluded(request: &SessionOpen) -> Result<(), Refusal> {
    let workdir = workdir_of(&request.target).unwrap_or_default().trim_end_matches('/');
    for glob in request.capture_exclude.iter().flatten() {
        let is_root = glob.starts_with('/') && glob.trim_end_matches(['/', '*']) == workdir;
        if let Some(why) =
            exclude_problem(glob).or(is_root.then(|| "it leaves out the root itself".to_owned()))
        {
            let glob = aos_model::text::escape(glob);
            return Err(Refusal::new(
                Code::InvalidParams,
                format!("field `capture_exclude`: {glob}: {why}; name build folders such as `target`"),
            ));
        }
    }
    Ok(())
}

fn check_labels(request: &SessionOpen) -> Result<(), Refusal> {
    let Some(labels) = &request.labels else { return Ok(()) };
    let too_long = |text: &String| text.len() > LABEL_BYTES_MAX;
    if labels.0.len() > LABELS_MAX || labels.0.iter().any(|(key, value)| too_long(key) || too_long(value)) {
        return Err(Refusal::new(
            Code::InvalidParams,
            format!("field `labels`: at most {LABELS_MAX} labels of at most {LABEL_BYTES_MAX} bytes each"),
        ));
    }
    Ok(())
}

/// Pins the workdir and the roots once. Returns the session record and the initial nodes of a virtual tree.
fn describe(
    host: &Host,
    request: &SessionOpen,
    mut capability: Capability,
    policy: &Policy,
) -> Result<(SessionRecord, Option<TreeChange>), Refusal> {
    let now_ns = (host.machine.now_ns)();
    let (mut mounts, mut change) = (Vec::new(), None);
    let (workdir, roots) = match (&request.target, workdir_of(&request.target)) {
        (_, Some(workdir)) => {
            let workdir = pin_workdir(workdir)?;
            let mut roots = pin_roots(capability.fs_roots.as_deref(), &workdir)?;
            add_git_roots(&mut roots);
            capability.fs_roots = Some(roots.iter().map(Root::display).collect());
            (workdir.record(), roots.iter().map(Root::record).collect())
        }
        (TargetSpec::Vfs(target), None) => {
            capability.fs_roots = Some(virtual_roots(capability.fs_roots.as_deref())?);
            let (deltas, shown) = layer::mount(host, target, now_ns)?;
            change = (!deltas.is_empty()).then_some(TreeChange { version: 1, deltas });
            mounts = shown;
            (RootRecord { path: "/".to_owned(), dev: 0, ino: 0 }, Vec::new())
        }
        (TargetSpec::Local(_) | TargetSpec::Staged(_), None) => unreachable!("BUG: these have a workdir"),
    };
    let record = SessionRecord {
        session_id: id::make(id::SESSION, now_ns, (host.machine.random)()),
        state: SessionState::Open,
        started_at_ns: now_ns,
        expires_at_ns: request.session_ttl_ns.map(|ttl| now_ns.saturating_add(ttl)),
        target: serde_json::value::to_raw_value(&request.target).expect("BUG: a target is plain data"),
        workdir,
        roots,
        capability,
        policy: policy.spec(),
        isolation: request.isolation.unwrap_or(Isolation::Auto),
        allow_reduced: request.allow_reduced.unwrap_or(false),
        auto_snapshot: request.auto_snapshot.unwrap_or(true),
        snapshot_bytes_max: request.snapshot_bytes_max.unwrap_or(SNAPSHOT_BYTES_DEFAULT),
        capture_exclude: request.capture_exclude.clone().unwrap_or_default(),
        on_failure: request.on_failure.unwrap_or(OnFailure::Keep),
        labels: request.labels.as_ref().map(|labels| labels.0.clone()),
        mounts,
    };
    Ok((record, change))
}

/// The host folder of a session, unless it is virtual.
fn workdir_of(target: &TargetSpec) -> Option<&str> {
    match target {
        TargetSpec::Local(local) => Some(&local.workdir),
        TargetSpec::Staged(staged) => Some(&staged.workdir),
        TargetSpec::Vfs(_) => None,
    }
}

/// The roots of a virtual tree, normalized. They need not exist yet.
fn virtual_roots(given: Option<&[String]>) -> Result<Vec<String>, Refusal> {
    let Some(given) = given else { return Ok(vec!["/".to_owned()]) };
    let spell = |text: &String| match VfsPath::parse(if text == "." { "/" } else { text }) {
        Ok(path) => Ok(format!("/{}", path.as_str())),
        Err(refusal) => Err(Refusal::new(
            Code::InvalidCapability,
            format!("capability: field `fs_roots`: {}: {}", aos_model::text::escape(text), refusal.message),
        )),
    };
    given.iter().map(spell).collect()
}

fn pin_workdir(text: &str) -> Result<Root, Refusal> {
    let bad = |why: &str| {
        Refusal::new(Code::InvalidWorkdir, format!("workdir {}: {why}", aos_model::text::escape(text)))
    };
    let spelled = RequestPath::parse(text).map_err(|fault| bad(&fault.to_string()))?;
    if !spelled.is_absolute() {
        return Err(bad("give an absolute path"));
    }
    let root = Root::pin(as_path(&spelled))
        .map_err(|why| bad(&format!("{why}; it must be an existing directory")))?;
    if root.path.ends_with(b" (deleted)") && !crate::disk::leads_somewhere(&root.path) {
        return Err(bad("it was deleted"));
    }
    Ok(root)
}

fn pin_roots(given: Option<&[String]>, workdir: &Root) -> Result<Vec<Root>, Refusal> {
    let pin = |text: &str| {
        let bad = |why: &str| {
            Refusal::new(
                Code::InvalidCapability,
                format!("capability: field `fs_roots`: {}: {why}", aos_model::text::escape(text)),
            )
        };
        let spelled = RequestPath::parse(text).map_err(|fault| bad(&fault.to_string()))?;
        let absolute = if spelled.is_absolute() {
            spelled.as_bytes().to_vec()
        } else {
            [workdir.path.as_slice(), b"/", spelled.as_bytes()].concat()
        };
        let path = Path::new(std::ffi::OsStr::from_bytes(&absolute));
        Root::pin(path).map_err(|why| bad(&format!("{why}; a root is an existing directory")))
    };
    match given {
        None => Ok(vec![pin(&workdir.display())?]),
        Some(texts) if texts.len() > ROOTS_MAX => Err(Refusal::new(
            Code::InvalidCapability,
            format!("capability: field `fs_roots`: at most {ROOTS_MAX} roots"),
        )),
        Some(texts) => texts.iter().map(|text| pin(text)).collect(),
    }
}

/// Adds the git folders of linked worktrees that are not in a root already.
fn add_git_roots(roots: &mut Vec<Root>) {
    let linked: Vec<Root> = roots.iter().flat_map(worktree::git_roots).collect();
    for git in linked {
        if roots.len() < ROOTS_MAX && !roots.iter().any(|root| is_below(&git.path, &root.path)) {
            roots.push(git);
        }
    }
}

fn as_path(spelled: &RequestPath) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(spelled.as_bytes()))
}

fn gone(root: &str, why: rustix::io::Errno) -> Refusal {
    Refusal::new(
        Code::InvalidWorkdir,
        format!("root {root}: {why}; it is not the folder the session was opened on"),
    )
}

/// The boundary of a recorded session, with its roots pinned again.
fn jail(host: &Host, record: &SessionRecord) -> Result<Jail, Refusal> {
    let roots = record
        .roots
        .iter()
        .map(|root| Root::pin_again(root).map(Arc::new).map_err(|why| gone(&root.path, why)))
        .collect::<Result<Vec<_>, _>>()?;
    let workdir = RequestPath::parse(&record.workdir.path)
        .map_err(|_| gone(&record.workdir.path, rustix::io::Errno::INVAL))?;
    let workdir = if workdir.as_bytes() == b"/" { Vec::new() } else { workdir.as_bytes().to_vec() };
    Ok(Jail {
        workdir_alias: alias(record, &workdir),
        roots,
        workdir,
        follow: record.capability.follow_symlinks,
        cross_mounts: record.capability.cross_mounts,
        hidden: host.hidden.clone(),
        own: host.own_folders.clone(),
    })
}

/// Opens a recorded session: pins its roots and compares them with the record.
pub(super) fn open_recorded(
    host: &Host,
    record: &SessionRecord,
    policy: Policy,
    ledger: Ledger,
    tree: Tree,
) -> Result<OpenSession, Refusal> {
    let jail = jail(host, record)?;
    let target: TargetSpec = serde_json::from_str(record.target.get())
        .map_err(|why| Refusal::new(Code::UnsupportedTarget, why.to_string()))?;
    let is_virtual = matches!(target, TargetSpec::Vfs(_));
    // A virtual tree has no host folder to pin, and no host paths to hide.
    let jail = Jail { hidden: if is_virtual { Vec::new() } else { jail.hidden }, ..jail };
    let fs_roots = record.capability.fs_roots.as_deref().unwrap_or_default();
    let workspaces =
        if is_virtual { fs_roots.to_vec() } else { jail.roots.iter().map(|root| root.display()).collect() };
    let pinned = || Root::pin_again(&record.workdir).map_err(|why| gone(&record.workdir.path, why));
    let exec_config = match &target {
        TargetSpec::Local(local) => {
            ExecConfig::new(record, local, &pinned()?, &host.hidden, &host.executor.command_dirs)?
        }
        TargetSpec::Staged(_) | TargetSpec::Vfs(_) => ExecConfig::unused(record, &host.executor.command_dirs),
    };
    let acts_for = if is_virtual { None } else { acts_for(&pinned()?) };
    let layer = match &target {
        TargetSpec::Local(_) => None,
        TargetSpec::Staged(_) => {
            pinned()?;
            Some(Arc::new(Layer::new(&host.contents, true, &[], tree)?))
        }
        TargetSpec::Vfs(_) => Some(Arc::new(Layer::new(&host.contents, false, fs_roots, tree)?)),
    };
    Ok(OpenSession {
        id: record.session_id.clone(),
        workspaces,
        workdir_shown: record.workdir.path.clone(),
        holds_home: !is_virtual && jail.roots.iter().any(|root| holds_home(root)),
        led_to: if is_virtual { LedTo::default() } else { led_to(&jail.roots) },
        jail: Arc::new(jail),
        capability: record.capability.clone(),
        policy: policy.in_workdir(workdirs(record)),
        expires_at_ns: record.expires_at_ns,
        lane: Arc::default(),
        auto_snapshot: record.auto_snapshot,
        snapshot_bytes_max: record.snapshot_bytes_max,
        capture_exclude: record.capture_exclude.clone(),
        on_failure: record.on_failure,
        ledger,
        exec_config,
        layer,
        preimages: Preimages::new(&record.session_id, acts_for, &host.preimages, &host.manifests),
        acts_for,
        ended: AtomicBool::new(false),
    })
}

/// The homes of a root's users: of its owner, of the daemon's user, and `$HOME`.
fn homes_of(root: &Root) -> impl Iterator<Item = String> {
    let users = [root.meta.uid, rustix::process::geteuid().as_raw()];
    users.into_iter().filter_map(|uid| Some(account(uid)?.home)).chain(std::env::var("HOME"))
}

fn led_to(roots: &[Arc<Root>]) -> LedTo {
    let homes: BTreeSet<String> = roots.iter().flat_map(|root| homes_of(root)).collect();
    LedTo::find(roots, &homes, roots.iter().any(|root| holds_home(root)))
}

/// Whether a root is a home folder or holds one.
fn holds_home(root: &Root) -> bool {
    homes_of(root).filter(|home| home != "/").any(|home| {
        let is_it = crate::disk::hold_path(home.as_bytes()).and_then(crate::disk::id_of);
        is_it.is_ok_and(|id| id == (root.meta.dev, root.meta.ino))
            || crate::jail::follow_text(home.as_bytes()).is_some_and(|home| is_below(&home, &root.path))
    })
}

/// The workdir as the request spelled it, if that differs from the resolved path.
fn alias(record: &SessionRecord, workdir: &[u8]) -> Option<Vec<u8>> {
    let target: TargetSpec = serde_json::from_str(record.target.get()).ok()?;
    let spelled = RequestPath::parse(workdir_of(&target)?).ok()?;
    let clean = spelled.names().flat_map(|name| [b"/", name].concat()).collect::<Vec<u8>>();
    (clean != workdir).then_some(clean)
}
