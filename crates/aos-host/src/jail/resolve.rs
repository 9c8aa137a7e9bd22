//! Resolving: from the spelled path to a place. The one resolver of the product.

use std::collections::VecDeque;
use std::sync::Arc;

use aos_model::capability::FollowSymlinks;
use aos_model::limits::{LINKS_MAX, PATH_BYTES_MAX};
use aos_model::path::RequestPath;
use aos_model::records::Kind;
use aos_model::refusal::{Code, Refusal};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Dir, Found, Jail, Place};
use crate::disk::{Meta, RACE_TRIES, open_beneath};
use crate::fault;
use aos_model::path::is_below;

/// What to do when the last name is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Follow,
    Itself,
    /// The link itself, and none on the way is followed either: below a link there is nothing.
    NoLinks,
}

/// A path made clean as text: absolute, without `.` and `..`, beginning with a root.
pub(crate) struct Clean {
    root: usize,
    pub(crate) absolute: Vec<u8>,
}

/// Why an attempt to open did not settle the result.
enum Again {
    Refused(Refusal),
    /// A link is on the way: the text must be made link-free first.
    Link,
}

/// The literal spelling and where it leads; policy checks both.
#[derive(Debug, Clone)]
pub(crate) struct ResolvedPath {
    pub(crate) literal: Vec<u8>,
    pub(crate) found: Found,
}

/// Resolves a path as a request spelled it.
pub(crate) fn resolve(jail: &Jail, text: &str, last: Last) -> Result<ResolvedPath, Refusal> {
    let spelled = RequestPath::parse(text)
        .map_err(|fault| Refusal::new(Code::InvalidPath, format!("{}: {fault}", shorten(text))))?;
    let clean = jail.clean(&spelled)?;
    let literal = clean.absolute.clone();
    let plain = !spelled.names().any(|name| name == b"..");
    let mut next = if plain { Some(clean) } else { None };
    for _ in 0..RACE_TRIES {
        // The fast path: no `..`, and the kernel finds no link either.
        let clean = match next.take() {
            Some(clean) => clean,
            None => match jail.follow_links(&spelled, last)? {
                Some(clean) => clean,
                None => {
                    return Ok(ResolvedPath {
                        found: Found::Unresolvable {
                            shown: jail.display(&literal),
                            absolute: literal.clone(),
                        },
                        literal,
                    });
                }
            },
        };
        match open(jail, &clean, last) {
            Ok(found) => return Ok(ResolvedPath { literal, found }),
            Err(Again::Refused(refusal)) => return Err(refusal),
            Err(Again::Link) => {}
        }
    }
    Err(Refusal::new(Code::SymlinkNotAllowed, format!("{}: links keep changing on the way", shorten(text))))
}

fn shorten(text: &str) -> String {
    let shown: String = text.chars().take(200).collect();
    aos_model::text::escape(&shown)
}

impl Jail {
    /// The absolute names a request means, before links: the workdir's and its own, or its own alone.
    pub(crate) fn start(&self, spelled: &RequestPath) -> Vec<u8> {
        let mut absolute = Vec::with_capacity(self.workdir.len() + spelled.as_bytes().len() + 1);
        if !spelled.is_absolute() {
            absolute.extend_from_slice(&self.workdir);
        }
        for name in spelled.names() {
            absolute.push(b'/');
            absolute.extend_from_slice(name);
        }
        match &self.workdir_alias {
            Some(alias) if spelled.is_absolute() && is_below(&absolute, alias) => {
                [self.workdir.as_slice(), &absolute[alias.len()..]].concat()
            }
            _ => absolute,
        }
    }

    /// Cleans as text. A `..` that leaves the root is refused even where the path comes back in.
    pub(crate) fn clean(&self, spelled: &RequestPath) -> Result<Clean, Refusal> {
        let start = self.start(spelled);
        let outside = || Err(outside(&aos_model::path::show(spelled.as_bytes()), self));
        let Some(root) = self.root_of(&start) else { return outside() };
        let root_path = &self.roots[root].path;
        let mut absolute = root_path.clone();
        for name in start[root_path.len()..].split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            if name != b".." {
                absolute.push(b'/');
                absolute.extend_from_slice(name);
            } else if absolute.len() == root_path.len() {
                return outside();
            } else {
                let cut =
                    absolute.iter().rposition(|b| *b == b'/').expect("BUG: there is a name to take away");
                absolute.truncate(cut);
            }
        }
        if self.is_hidden(&absolute) {
            return outside();
        }
        Ok(Clean { root, absolute })
    }

    /// The innermost root that `absolute` begins with.
    pub(crate) fn root_of(&self, absolute: &[u8]) -> Option<usize> {
        let inside = |(_, root): &(usize, &Arc<super::Root>)| is_below(absolute, &root.path);
        self.roots
            .iter()
            .enumerate()
            .filter(inside)
            .max_by_key(|(_, root)| root.path.len())
            .map(|(index, _)| index)
    }

    /// Follows the links on the way, as text, under the session's rule. What comes out is opened with links
    /// forbidden, so that a change made meanwhile is detected. `None`: a missing name is followed by `..`.
    fn follow_links(&self, spelled: &RequestPath, last: Last) -> Result<Option<Clean>, Refusal> {
        self.clean(spelled)?;
        let subject = || aos_model::path::show(spelled.as_bytes());
        let start = self.start(spelled);
        let root = self.root_of(&start).expect("BUG: cleaning found a root");
        let walk = Walk {
            inside: &|path| self.root_of(path).is_some(),
            everywhere: self.follow == FollowSymlinks::Allow,
            past_missing: false,
        };
        let base = &self.roots[root].path;
        let (absolute, links) = match walk.follow(base, &start[base.len()..], last) {
            Ok(followed) => followed,
            Err(Followed::Missing) => return Ok(None),
            Err(Followed::Loop) => {
                let why = format!("{}: more than {LINKS_MAX} links on the way, or a link loop", subject());
                return Err(Refusal::new(Code::InvalidPath, why));
            }
            Err(Followed::Outside) => {
                return Err(link_refused(&subject(), "a link on the way leads outside the roots"));
            }
            Err(Followed::Failed(why)) => {
                return Err(fault::refusal(&format!("cannot resolve {}", subject()), why));
            }
        };
        if links && self.follow == FollowSymlinks::Deny {
            return Err(link_refused(&subject(), "the capability's `follow_symlinks` is `deny`"));
        }
        if self.is_hidden(&absolute) {
            return Err(outside(&subject(), self));
        }
        match self.root_of(&absolute) {
            Some(root) => Ok(Some(Clean { root, absolute })),
            None if self.follow == FollowSymlinks::Allow => Ok(Some(Clean { root: OUTSIDE, absolute })),
            None => Err(link_refused(&subject(), "a link on the way leads outside the roots")),
        }
    }
}

/// Not a root: the link rule is `allow` and the target is elsewhere.
const OUTSIDE: usize = usize::MAX;

enum Followed {
    Loop,
    Missing,
    Outside,
    Failed(Errno),
}

/// Reading links as text.
struct Walk<'a> {
    inside: &'a dyn Fn(&[u8]) -> bool,
    /// Links may lead anywhere.
    everywhere: bool,
    /// A `..` after a missing name takes that name away, as if it were a folder.
    past_missing: bool,
}

impl Walk<'_> {
    /// Walks `rest` from `base` (link-free). Returns the link-free path, and whether there were links. Names that are
    /// missing stay as they are, so that a file can be made there.
    ///
    /// Each link must lead to a place inside, even where the path would come back in later; and a path
    /// outside gives the same answer whether it exists or not.
    fn follow(&self, base: &[u8], rest: &[u8], last: Last) -> Result<(Vec<u8>, bool), Followed> {
        let mut path = base.to_vec();
        let mut todo = names_of(rest);
        let (mut links, mut missing) = (0, false);
        // How many names were left to do behind each link that is being followed.
        let mut behind: Vec<usize> = Vec::new();
        while let Some(name) = todo.pop_front() {
            if name == b".." && !self.past_missing && (missing || !is_folder(&path)) {
                return Err(self.hide_outside(&path, Followed::Missing));
            } else if name == b".." {
                missing = false;
                let cut = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
                path.truncate(cut);
            } else {
                path.push(b'/');
                path.extend_from_slice(&name);
                let itself = todo.is_empty() && last != Last::Follow;
                let target = if path.len() > PATH_BYTES_MAX || itself {
                    None
                } else {
                    self.read(&path, &mut missing)?
                };
                if let Some(target) = target {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(self.hide_outside(&path, Followed::Loop));
                    }
                    let link_is_ours = (self.inside)(&path);
                    path.truncate(if target.starts_with(b"/") { 0 } else { path.len() - name.len() - 1 });
                    if link_is_ours {
                        behind.push(todo.len());
                    }
                    let mut ahead = names_of(&target);
                    ahead.append(&mut todo);
                    todo = ahead;
                }
            }
            while behind.last().is_some_and(|left| todo.len() <= *left) {
                behind.pop();
                if !self.everywhere && !(self.inside)(&path) {
                    return Err(Followed::Outside);
                }
            }
        }
        Ok((path, links > 0))
    }

    fn read(&self, path: &[u8], missing: &mut bool) -> Result<Option<Vec<u8>>, Followed> {
        // As text only, by the whole path: folders above a root may be closed to the user that the session acts for.
        let _own = aos_store::own_rights();
        match rustix::fs::readlink(path, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::INVAL) => Ok(None),
            Err(Errno::NOENT | Errno::NOTDIR) => {
                *missing = true;
                Ok(None)
            }
            Err(why) => Err(self.hide_outside(path, Followed::Failed(why))),
        }
    }

    /// A path outside of the roots reveals only that it is outside.
    fn hide_outside(&self, path: &[u8], why: Followed) -> Followed {
        if self.everywhere || (self.inside)(path) { why } else { Followed::Outside }
    }
}

/// `file/..` is nothing, as for the kernel.
fn is_folder(path: &[u8]) -> bool {
    let _own = aos_store::own_rights();
    path.is_empty()
        || rustix::fs::lstat(path)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

fn names_of(text: &[u8]) -> VecDeque<Vec<u8>> {
    text.split(|b| *b == b'/').filter(|n| !n.is_empty() && *n != b".").map(<[u8]>::to_vec).collect()
}

/// Where an absolute path leads, for advice only: nothing is opened by what this says.
pub(crate) fn follow_text(absolute: &[u8]) -> Option<Vec<u8>> {
    follow_anywhere(absolute, false)
}

/// As [`follow_text`], but a missing name counts as a folder: a command may make it before it uses the path.
pub(crate) fn follow_text_past_missing(absolute: &[u8]) -> Option<Vec<u8>> {
    follow_anywhere(absolute, true)
}

fn follow_anywhere(absolute: &[u8], past_missing: bool) -> Option<Vec<u8>> {
    let walk = Walk { inside: &|_| true, everywhere: true, past_missing };
    walk.follow(b"", absolute, Last::Follow).ok().map(|(path, _)| path)
}

/// Opens the folder of a clean path beneath its root and looks at the name in it.
fn open(jail: &Jail, clean: &Clean, last: Last) -> Result<Found, Again> {
    let shown = jail.display(&clean.absolute);
    let (base, rest): (Dir, &[u8]) = if clean.root == OUTSIDE {
        (Dir::Opened(Arc::new(open_slash()?)), &clean.absolute)
    } else {
        (Dir::Root(jail.roots[clean.root].clone()), &clean.absolute[jail.roots[clean.root].path.len()..])
    };
    let cross_mounts = jail.cross_mounts || clean.root == OUTSIDE;
    let rest = rest.strip_prefix(b"/").unwrap_or(rest);
    let place = |dir: Dir, name: &[u8], absolute: &[u8], meta: Option<Meta>| Place {
        dir: dir.into(),
        name: name.to_vec(),
        absolute: absolute.to_vec(),
        shown: jail.display(absolute),
        meta,
        cross_mounts,
        leaf: None,
    };
    if rest.is_empty() {
        let meta = Meta::of(&base).map_err(|why| Again::Refused(fault::refusal(&shown, why)))?;
        refuse_own(jail, clean, &base, Some(&meta), &shown)?;
        return Ok(Found::Resolved(place(base, b"", &clean.absolute, Some(meta))));
    }
    let (parent, name) = match rest.iter().rposition(|b| *b == b'/') {
        Some(slash) => (&rest[..slash], &rest[slash + 1..]),
        None => (&b""[..], rest),
    };
    let dir = match open_parent(&base, parent, cross_mounts) {
        Ok(Some(dir)) => Dir::Opened(Arc::new(dir)),
        Ok(None) => base,
        Err(Errno::LOOP) if last == Last::NoLinks => return deepest(jail, base, rest, clean, last),
        Err(Errno::NOENT | Errno::NOTDIR) => return deepest(jail, base, rest, clean, last),
        Err(why) => return Err(lookup_error(why, &shown)),
    };
    let meta = match Meta::at(&dir, name) {
        // A folder without search permission opens by O_PATH; the look-up in it fails.
        Ok(meta) => meta,
        Err(why) => return Err(lookup_error(why, &shown)),
    };
    if meta.is_some_and(|meta| meta.kind == Kind::Symlink) && last == Last::Follow {
        return Err(Again::Link);
    }
    refuse_own(jail, clean, &dir, meta.as_ref(), &shown)?;
    let found = place(dir, name, &clean.absolute, meta);
    // A mount point below a root is outside: the name is inside, the mounted file system is not.
    let elsewhere =
        |meta: Meta| meta.kind != Kind::Symlink && meta.mount != jail.roots[clean.root].meta.mount;
    if !cross_mounts && meta.is_some_and(elsewhere) {
        return Err(Again::Refused(found.refusal("open", Errno::XDEV)));
    }
    Ok(Found::Resolved(found))
}

/// Our own state is outside every root, wherever it was moved.
fn refuse_own(jail: &Jail, clean: &Clean, dir: &Dir, meta: Option<&Meta>, shown: &str) -> Result<(), Again> {
    let root = jail.roots.get(clean.root).map_or((0, 0), |root| (root.meta.dev, root.meta.ino));
    let fail = |why| Again::Refused(fault::refusal(&format!("cannot resolve {shown}"), why));
    let is_root = matches!(dir, Dir::Root(_));
    if meta.is_some_and(|meta| jail.own.is(meta))
        || (!is_root && jail.own.contain(dir, root).map_err(fail)?)
    {
        return Err(Again::Refused(outside(shown, jail)));
    }
    Ok(())
}

fn open_slash() -> Result<std::os::fd::OwnedFd, Again> {
    rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|why| Again::Refused(fault::refusal("cannot open /", why)))
}

fn open_parent(base: &Dir, parent: &[u8], cross_mounts: bool) -> Result<Option<std::os::fd::OwnedFd>, Errno> {
    if parent.is_empty() {
        return Ok(None);
    }
    open_beneath(base, parent, OFlags::PATH | OFlags::DIRECTORY, cross_mounts).map(Some)
}

/// Finds how far the folders of a path exist.
fn deepest(jail: &Jail, base: Dir, rest: &[u8], clean: &Clean, last: Last) -> Result<Found, Again> {
    let cross_mounts = jail.cross_mounts || clean.root == OUTSIDE;
    let shown = jail.display(&clean.absolute);
    let names: Vec<&[u8]> = rest.split(|b| *b == b'/').collect();
    let mut dir = base;
    let mut depth = 0;
    for name in &names[..names.len() - 1] {
        match open_beneath(&dir, *name, OFlags::PATH | OFlags::DIRECTORY, cross_mounts) {
            Ok(next) => dir = Dir::Opened(Arc::new(next)),
            Err(Errno::NOENT | Errno::NOTDIR) => break,
            Err(Errno::LOOP) if last == Last::NoLinks => break,
            Err(why) => return Err(lookup_error(why, &shown)),
        }
        depth += 1;
    }
    let missing: Vec<Vec<u8>> = names[depth..].iter().map(|n| n.to_vec()).collect();
    let tail: usize = missing.iter().map(|name| name.len() + 1).sum();
    let base_absolute = clean.absolute[..clean.absolute.len() - tail].to_vec();
    // A dangling link among the missing names would be followed when they are made: check it first.
    let first = Meta::at(&dir, &missing[0]).map_err(|why| lookup_error(why, &shown))?;
    if first.is_some_and(|meta| meta.kind == Kind::Symlink) && last != Last::NoLinks {
        return Err(Again::Link);
    }
    refuse_own(jail, clean, &dir, first.as_ref(), &shown)?;
    let base = Place {
        shown: jail.display(&base_absolute),
        dir: dir.into(),
        name: Vec::new(),
        absolute: base_absolute,
        meta: first,
        cross_mounts,
        leaf: None,
    };
    Ok(Found::ParentMissing { base, missing, absolute: clean.absolute.clone(), shown })
}

fn lookup_error(why: Errno, shown: &str) -> Again {
    match why {
        Errno::LOOP => Again::Link,
        Errno::XDEV => Again::Refused(Refusal::new(
            Code::PathOutsideRoots,
            format!("{shown} is on another mount, which is outside the roots"),
        )),
        why => Again::Refused(fault::refusal(&format!("cannot open the folder of {shown}"), why)),
    }
}

pub(crate) fn outside(shown: &str, jail: &Jail) -> Refusal {
    let roots: Vec<String> = jail.roots.iter().map(|root| root.display()).collect();
    let inside = if roots.is_empty() {
        "this session has no roots".to_owned()
    } else {
        format!("the roots are {}", roots.join(", "))
    };
    Refusal::new(Code::PathOutsideRoots, format!("{shown} is outside the roots of this session; {inside}"))
}

pub(crate) fn link_refused(shown: &str, why: &str) -> Refusal {
    Refusal::new(
        Code::SymlinkNotAllowed,
        format!("{shown}: {why}; name the target itself or open a session whose roots hold it"),
    )
}
