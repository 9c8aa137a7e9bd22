//! Resolves a path in a view, name by name: a node of the layer decides, else the host folder.
//!
//! Links are followed here, not by the kernel, because their targets may be in the layer. Each host folder is opened from
//! its parent with links forbidden (I3).

use std::collections::VecDeque;
use std::sync::Arc;

use aos_model::capability::FollowSymlinks;
use aos_model::limits::LINKS_MAX;
use aos_model::path::RequestPath;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use aos_model::vfs::{Node, NodeKind, VfsPath};
use rustix::fs::OFlags;

use crate::jail::{Leaf, View};

use crate::disk::{Meta, open_beneath};
use crate::jail::{Dir, Found, Last, Place, ResolvedPath, link_refused, outside};

/// Resolves `text` in a view; `None` means the workdir.
pub(crate) fn resolve(view: &Arc<View>, text: Option<&str>, last: Last) -> Result<ResolvedPath, Refusal> {
    if view.layer.is_staged {
        in_staged(view, text.unwrap_or("."), last)
    } else {
        in_virtual(view, text, last)
    }
}

fn in_virtual(view: &Arc<View>, text: Option<&str>, last: Last) -> Result<ResolvedPath, Refusal> {
    let path = VfsPath::parse(text.unwrap_or("/"))?;
    let names: VecDeque<Vec<u8>> = path
        .as_str()
        .split('/')
        .filter(|name| !name.is_empty())
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let literal: Vec<u8> = names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect();
    if !view.layer.is_inside(&literal) {
        return Err(outside(text.unwrap_or("/"), &view.jail));
    }
    let start = Frame { absolute: Vec::new(), folder: None };
    let found = Walk { view, last, links: 0, rest: names, root: None, frames: vec![start] }.run()?;
    Ok(ResolvedPath { literal, found })
}

fn in_staged(view: &Arc<View>, text: &str, last: Last) -> Result<ResolvedPath, Refusal> {
    let jail = &view.jail;
    let shown = || aos_model::text::escape(&text.chars().take(200).collect::<String>());
    let spelled = RequestPath::parse(text)
        .map_err(|fault| Refusal::new(Code::InvalidPath, format!("{}: {fault}", shown())))?;
    let literal = jail.clean(&spelled)?.absolute;
    let start = jail.start(&spelled);
    let root = jail.root_of(&start).expect("BUG: normalizing found a root");
    let rest = names_of(&start[jail.roots[root].path.len()..]);
    let mut walk = Walk { view, last, links: 0, rest, root: None, frames: Vec::new() };
    walk.begin_at(root);
    Ok(ResolvedPath { literal, found: walk.run()? })
}

fn names_of(text: &[u8]) -> VecDeque<Vec<u8>> {
    text.split(|b| *b == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec).collect()
}

/// A folder of the path, and the host folder if it is visible.
struct Frame {
    absolute: Vec<u8>,
    folder: Option<Dir>,
}

struct Walk<'a> {
    view: &'a Arc<View>,
    last: Last,
    links: usize,
    rest: VecDeque<Vec<u8>>,
    /// The index of the jail root that the walk is in.
    root: Option<usize>,
    frames: Vec<Frame>,
}

/// What a name refers to.
enum EntryAt {
    Nothing,
    Node(Arc<Node>, Meta),
    Base(Meta),
}

impl Walk<'_> {
    fn begin_at(&mut self, root: usize) {
        let path = self.view.jail.roots[root].path.clone();
        let hidden = self.view.tree.cover(&self.view.key(&path)).is_some();
        let folder = (!hidden).then(|| Dir::Root(self.view.jail.roots[root].clone()));
        self.root = Some(root);
        self.frames = vec![Frame { absolute: path, folder }];
    }

    fn at(&self) -> &Frame {
        self.frames.last().expect("BUG: a walk has at least one frame")
    }

    fn run(mut self) -> Result<Found, Refusal> {
        loop {
            let Some(name) = self.rest.pop_front() else { return Ok(Found::Resolved(self.final_folder()?)) };
            if name == b".." {
                self.frames.pop();
                if self.frames.is_empty() {
                    return Err(link_refused(
                        &aos_model::path::show(&name),
                        "a link on the way leads outside the roots",
                    ));
                }
                continue;
            }
            let absolute = [self.at().absolute.as_slice(), b"/", &name].concat();
            if self.view.jail.is_hidden(&absolute) {
                return Err(outside(&self.view.jail.display(&absolute), &self.view.jail));
            }
            let entry = self.lookup(&absolute, &name)?;
            let is_last = self.rest.is_empty();
            match &entry {
                EntryAt::Node(_, meta) | EntryAt::Base(meta)
                    if meta.kind == Kind::Symlink && self.follows(is_last) =>
                {
                    self.follow(&absolute, &name, &entry)?;
                }
                _ if is_last => return Ok(Found::Resolved(self.place(absolute, &name, entry))),
                EntryAt::Node(_, meta) | EntryAt::Base(meta) if meta.kind == Kind::Dir => {
                    self.enter(absolute, &name, &entry)?;
                }
                _ => return Ok(self.below(&name, &entry)),
            }
        }
    }

    fn follows(&self, is_last: bool) -> bool {
        match self.last {
            Last::Follow => true,
            Last::Itself => !is_last,
            Last::NoLinks => false,
        }
    }

    fn lookup(&self, absolute: &[u8], name: &[u8]) -> Result<EntryAt, Refusal> {
        if let Some(node) = self.view.node(absolute) {
            let meta = self.view.meta(absolute, node);
            return Ok(meta.map_or(EntryAt::Nothing, |meta| EntryAt::Node(node.clone(), meta)));
        }
        let Some(folder) = &self.at().folder else { return Ok(EntryAt::Nothing) };
        let shown = || self.view.jail.display(absolute);
        let fail = |why| crate::fault::refusal(&format!("cannot stat {}", shown()), why);
        let Some(meta) = Meta::at(folder, name).map_err(fail)? else { return Ok(EntryAt::Nothing) };
        let jail = &self.view.jail;
        let mount = self.root.map(|root| jail.roots[root].meta.mount);
        if meta.kind != Kind::Symlink && !jail.cross_mounts && Some(meta.mount) != mount {
            return Err(Refusal::new(
                Code::PathOutsideRoots,
                format!("{} is on another mount, which is outside the roots", shown()),
            ));
        }
        if jail.own.is(&meta) {
            return Err(outside(&shown(), jail));
        }
        Ok(EntryAt::Base(meta))
    }

    fn enter(&mut self, absolute: Vec<u8>, name: &[u8], entry: &EntryAt) -> Result<(), Refusal> {
        let folder = match (entry, &self.at().folder) {
            (EntryAt::Base(_), Some(folder)) => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
                let jail = &self.view.jail;
                let opened = open_beneath(folder, name, flags, jail.cross_mounts).map_err(|why| {
                    crate::fault::refusal(&format!("cannot open {}", jail.display(&absolute)), why)
                })?;
                Some(Dir::Opened(Arc::new(opened)))
            }
            _ => None,
        };
        self.frames.push(Frame { absolute, folder });
        Ok(())
    }

    /// Replaces the name of a link by its target.
    fn follow(&mut self, absolute: &[u8], name: &[u8], entry: &EntryAt) -> Result<(), Refusal> {
        let jail = &self.view.jail;
        let shown = jail.display(absolute);
        self.links += 1;
        if self.links > LINKS_MAX {
            let why = format!("{shown}: more than {LINKS_MAX} links in the path, or a link loop");
            return Err(Refusal::new(Code::InvalidPath, why));
        }
        if jail.follow == FollowSymlinks::Deny {
            return Err(link_refused(&shown, "the capability's `follow_symlinks` is `deny`"));
        }
        let target = match (entry, &self.at().folder) {
            (EntryAt::Node(node, _), _) => match &node.what {
                NodeKind::Link { target } => RequestPath::parse(target)
                    .map_err(|fault| Refusal::new(Code::InvalidPath, format!("{shown}: {fault}")))?
                    .as_bytes()
                    .to_vec(),
                NodeKind::File(_) | NodeKind::Dir | NodeKind::Gone => Vec::new(),
            },
            (_, Some(folder)) => crate::disk::read_link(folder, name)
                .map_err(|why| crate::fault::refusal(&format!("cannot resolve {shown}"), why))?,
            (_, None) => Vec::new(),
        };
        let mut names = names_of(&target);
        if target.starts_with(b"/") {
            let clean: Vec<u8> = names.iter().flat_map(|name| [b"/", name.as_slice()].concat()).collect();
            let Some(root) = jail.root_of(&clean) else {
                return Err(link_refused(&shown, "a link on the way leads outside the roots"));
            };
            names = names_of(&clean[jail.roots[root].path.len()..]);
            self.begin_at(root);
        }
        names.append(&mut self.rest);
        self.rest = names;
        Ok(())
    }

    fn place(&self, absolute: Vec<u8>, name: &[u8], entry: EntryAt) -> Place {
        let (node, meta) = match entry {
            EntryAt::Nothing => (None, None),
            EntryAt::Node(node, meta) => (Some(node), Some(meta)),
            EntryAt::Base(meta) => (None, Some(meta)),
        };
        let no_folder = || Dir::Opened(self.view.layer.no_folder.clone());
        Place {
            dir: self.at().folder.clone().filter(|_| node.is_none()).unwrap_or_else(no_folder).into(),
            name: name.to_vec(),
            shown: self.view.jail.display(&absolute),
            absolute,
            meta,
            cross_mounts: self.view.jail.cross_mounts,
            leaf: Some(Leaf { view: self.view.clone(), node }),
        }
    }

    /// The folder where the walk ended: a root, or the target of a link or `..`.
    fn final_folder(mut self) -> Result<Place, Refusal> {
        let frame = self.frames.pop().expect("BUG: a walk has at least one frame");
        if self.frames.is_empty() {
            let meta = match &frame.folder {
                Some(folder) => {
                    Meta::of(folder).map_err(|why| crate::fault::refusal("cannot stat the root", why))?
                }
                None => self.view.meta(b"", &root_node()).expect("BUG: a folder node has metadata"),
            };
            let place = self.place_in(frame.folder, frame.absolute, Vec::new());
            return Ok(Place { meta: Some(meta), ..place });
        }
        let slash = frame.absolute.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        let name = frame.absolute[slash..].to_vec();
        let entry = self.lookup(&frame.absolute, &name)?;
        Ok(self.place(frame.absolute, &name, entry))
    }

    fn place_in(&self, folder: Option<Dir>, absolute: Vec<u8>, name: Vec<u8>) -> Place {
        Place {
            dir: folder.unwrap_or_else(|| Dir::Opened(self.view.layer.no_folder.clone())).into(),
            name,
            shown: self.view.jail.display(&absolute),
            absolute,
            meta: None,
            cross_mounts: self.view.jail.cross_mounts,
            leaf: Some(Leaf { view: self.view.clone(), node: None }),
        }
    }

    /// The rest of the path does not exist: a name is missing, or is not a folder.
    fn below(mut self, name: &[u8], entry: &EntryAt) -> Found {
        let jail = &self.view.jail;
        let mut absolute = [self.at().absolute.as_slice(), b"/", name].concat();
        for next in &self.rest {
            absolute = [absolute.as_slice(), b"/", next].concat();
        }
        let shown = jail.display(&absolute);
        if self.rest.iter().any(|name| name == b"..") {
            return Found::Unresolvable { absolute, shown };
        }
        let frame = self.frames.pop().expect("BUG: a walk has at least one frame");
        let base = self.place_in(frame.folder, frame.absolute, Vec::new());
        let meta = match entry {
            EntryAt::Nothing => None,
            EntryAt::Node(_, meta) | EntryAt::Base(meta) => Some(*meta),
        };
        let mut missing = vec![name.to_vec()];
        missing.extend(self.rest);
        Found::ParentMissing { base: Place { meta, ..base }, missing, absolute, shown }
    }
}

/// The root of a virtual tree, which always exists.
pub(crate) fn root_node() -> Node {
    Node { what: NodeKind::Dir, mode: 0o755, version: 1, created_at_ns: 0, updated_at_ns: 0, base: None }
}
