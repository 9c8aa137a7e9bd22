//! Undo on the disk: from recorded changes to the steps that take them back, all or none.
//!
//! `aos_model::undo` decides what each path becomes and what is a conflict. This module lets it look at the disk and at
//! the snapshots, and turns its plan into a change that passes the same stages as any other.

mod build;
mod conflicts;
mod repositories;
mod world;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use aos_model::acl;
use aos_model::policy::Op;
use aos_model::records::{Image, Kind, RecordedChange};
use aos_model::refusal::{Code, Conflict, Refusal};
use aos_model::undo::{self, Group, Plan, Source, Undo};

use crate::host::Host;
use crate::jail::{Jail, Last};
use crate::session::OpenSession;
use crate::steps::Step;
use crate::target::Target;
use world::{DiskWorld, Manifests};

/// Changes of the disk that are to be undone, and the paths that this takes.
#[derive(Debug)]
pub(crate) struct DiskUndo {
    /// With absolute paths.
    groups: Vec<Vec<RecordedChange>>,
    /// Only these paths and what is below them, absolute.
    only: Option<Vec<String>>,
    manifests: Manifests,
    targets: BTreeMap<String, Op>,
    /// What the session's own commands changed in git folders: protected names are not checked there.
    own_repositories: BTreeSet<String>,
}

/// The steps, and the path lists for the receipt.
#[derive(Debug, Default)]
pub(crate) struct DiskRestoration {
    pub(crate) steps: Vec<Step>,
    pub(crate) restored: Vec<String>,
    pub(crate) deleted: Vec<String>,
    pub(crate) conflicts: Vec<Conflict>,
}

impl DiskUndo {
    /// Finds the paths that undoing these changes takes. Their snapshots must be finalized, unless this is a preview.
    pub(crate) fn of(
        host: &Host,
        session: &Arc<OpenSession>,
        mut groups: Vec<Vec<RecordedChange>>,
        only: Option<&[String]>,
        is_preview: bool,
    ) -> Result<DiskUndo, Refusal> {
        let jail = &session.jail;
        let mut own_repositories = repositories::own(groups.iter().flatten());
        let removed = repositories::removed(groups.iter().flatten());
        groups.iter_mut().flatten().for_each(|change| make_absolute(jail, change));
        let only = only.filter(|_| !groups.iter().all(Vec::is_empty));
        let only =
            only.map(|only| only.iter().map(|path| requested(jail, path)).collect::<Result<Vec<_>, _>>());
        // The folder of everything restricts nothing.
        let only = only.transpose()?.filter(|only| only.iter().all(|path| !path.is_empty()));
        let manifests = Manifests { is_preview, read: RefCell::default() };
        let mut found =
            DiskUndo { groups, only, manifests, targets: BTreeMap::new(), own_repositories: BTreeSet::new() };
        found.targets = found.find_targets(host, session)?;
        let removed_with = |path: &String| repositories::removed_with(&removed, path);
        own_repositories.extend(found.targets.keys().filter_map(removed_with));
        found.own_repositories = own_repositories;
        Ok(found)
    }

    /// The paths that change with `force`; without it, no others do.
    fn find_targets(&self, host: &Host, session: &Arc<OpenSession>) -> Result<BTreeMap<String, Op>, Refusal> {
        let world = self.world(host, session);
        let plan = self.plan_on(&world, true, &[])?;
        let op = |goal: bool| if goal { Op::Write } else { Op::Remove };
        Ok(plan.differences.iter().map(|(path, one)| (world.shown(path), op(one.goal.is_some()))).collect())
    }

    fn world<'a>(&'a self, host: &'a Host, session: &'a Arc<OpenSession>) -> DiskWorld<'a> {
        DiskWorld::new(host, session, &self.manifests, &self.groups)
    }

    fn plan_on<'w, 'a>(
        &self,
        world: &'w DiskWorld<'a>,
        force: bool,
        later: &[&RecordedChange],
    ) -> Result<Plan<'w, DiskWorld<'a>>, Refusal> {
        let groups: Vec<Group<'_>> = self.groups.iter().map(|group| group.iter().collect()).collect();
        let plan = undo::plan(world, &Undo { groups: &groups, paths: self.only.as_deref(), force, later });
        world.failure()?;
        Ok(plan)
    }

    /// The paths that may change, for the jail and the policy.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        self.targets.iter().map(|(path, op)| match Target::new(path, *op, Last::NoLinks) {
            target if self.own_repositories.iter().any(|own| is_or_below(path, own)) => target.unprotected(),
            target => target,
        })
    }

    /// Compares with the current state and makes the steps. The targets are locked.
    pub(crate) fn plan(
        &self,
        host: &Host,
        session: &Arc<OpenSession>,
        force: bool,
    ) -> Result<DiskRestoration, Refusal> {
        let world = self.world(host, session);
        let plan = self.plan_on(&world, force, &[])?;
        if !plan.conflicts.is_empty() && !force {
            let later = conflicts::later(host, &self.groups)?;
            let plan = self.plan_on(&world, force, &later.iter().collect::<Vec<_>>())?;
            let named = |conflict| conflicts::named(host, &world, conflict, &later);
            return Ok(DiskRestoration {
                conflicts: plan.conflicts.iter().map(named).collect(),
                ..DiskRestoration::default()
            });
        }
        self.check(&world, &plan)?;
        let list = |paths: Vec<String>| {
            let mut paths: Vec<String> = paths.iter().map(|path| world.shown(path)).collect();
            paths.sort_unstable();
            paths
        };
        Ok(DiskRestoration {
            restored: list(plan.restored()),
            deleted: list(plan.deleted()),
            steps: build::steps(&world, &plan)?,
            conflicts: Vec::new(),
        })
    }

    /// Refuses what was not authorized, because another process changed the paths meanwhile, and what a snapshot should
    /// have and does not.
    fn check(&self, world: &DiskWorld<'_>, plan: &Plan<'_, DiskWorld<'_>>) -> Result<(), Refusal> {
        let records = self.groups.iter().flatten().flat_map(|change| &change.paths);
        let named: HashSet<&str> = records.map(|record| record.path.as_str()).collect();
        for (path, difference) in &plan.differences {
            let shown = world.shown(path);
            let is = |image: &Option<Image>, kind| image.as_ref().is_some_and(|image| image.kind == kind);
            // Not even with `force`: the link is not what the calls changed.
            if is(&difference.now, Kind::Symlink)
                && is(&difference.goal, Kind::Dir)
                && !named.contains(path.as_str())
            {
                let why =
                    format!("{shown} is a symbolic link now; nothing was changed. Remove the link first");
                return Err(Refusal::new(Code::SymlinkNotAllowed, why));
            }
            if !self.targets.contains_key(&shown) {
                let why =
                    format!("{shown} changed while the undo was planned; nothing was changed. Try again");
                return Err(Refusal::new(Code::ChangedSince, why));
            }
            let is_content = difference.goal.as_ref().is_some_and(|goal| goal.kind != Kind::Dir);
            if is_content && plan.goal.get(path).is_some_and(|node| node.source == Source::Made) {
                return Err(damaged(&format!("the pre-image of {shown} is missing or was changed")));
            }
        }
        Ok(())
    }
}

/// Prepares a recorded change for the planner.
fn make_absolute(jail: &Jail, change: &mut RecordedChange) {
    for record in &mut change.paths {
        record.path = world::absolute(jail, &record.path);
        record.moved_to = record.moved_to.as_deref().map(|to| world::absolute(jail, to));
        for image in [&mut record.before, &mut record.after].into_iter().flatten() {
            // A folder may have been open to its owner when its ACL was read.
            image.xattrs = image.xattrs.as_ref().map(|xattrs| acl::with_mode(xattrs, image.mode));
        }
    }
    // The attributes of `/` itself are not restored.
    change.paths.retain(|record| !record.path.is_empty());
}

/// A path of the request.
fn requested(jail: &Jail, path: &str) -> Result<String, Refusal> {
    let literal = crate::jail::resolve(jail, path, Last::NoLinks)?.literal;
    Ok(aos_model::path::show(&literal))
}

pub(crate) fn is_or_below(path: &str, root: &str) -> bool {
    root == "." || path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn damaged(why: &str) -> Refusal {
    Refusal::new(Code::PreimageDamaged, format!("{why}; nothing was changed. Run `aos verify` for details"))
}
