//! The reference disk: every path with its object, in memory.

use std::collections::BTreeMap;

use aos_model::records::{Attributes, Identity, Image, Kind};
use aos_model::request::Base64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Obj {
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) xattrs: BTreeMap<String, u64>,
    pub(crate) hash: u64,
    pub(crate) ino: u64,
    pub(crate) mtime: u64,
    /// A person made or changed it last.
    pub(crate) by_person: bool,
}

/// What is compared: all but inode and time.
pub(crate) type Key = (u8, u32, BTreeMap<String, u64>, u64);

impl Obj {
    pub(crate) fn new(kind: Kind, hash: u64, stamp: u64) -> Obj {
        let mode = if kind == Kind::Dir { 0o755 } else { 0o644 };
        let hash = if kind == Kind::Dir { 0 } else { hash };
        Obj { kind, mode, xattrs: BTreeMap::new(), hash, ino: stamp, mtime: stamp, by_person: false }
    }

    pub(crate) fn by_person(self) -> Obj {
        Obj { by_person: true, ..self }
    }

    pub(crate) fn key(&self) -> Key {
        let mode = if self.kind == Kind::Symlink { 0 } else { self.mode };
        (self.kind as u8, mode, self.xattrs.clone(), self.hash)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity { dev: 1, ino: self.ino, mtime_ns: i64::try_from(self.mtime).expect("small") }
    }

    pub(crate) fn image(&self, with_hash: bool) -> Image {
        Image {
            kind: self.kind,
            mode: self.mode,
            size_bytes: 1,
            hash: (with_hash && self.kind != Kind::Dir).then(|| self.hash.to_string()),
            preimage: None,
            identity: Some(self.identity()),
            xattrs: Some(encode(&self.xattrs)),
        }
    }
}

pub(crate) fn encode(xattrs: &BTreeMap<String, u64>) -> Attributes {
    xattrs.iter().map(|(name, value)| (name.clone(), Base64(value.to_le_bytes().to_vec()))).collect()
}

pub(crate) fn decode(xattrs: Option<Attributes>) -> BTreeMap<String, u64> {
    let value = |value: Base64| u64::from_le_bytes(value.0.try_into().expect("eight bytes"));
    xattrs.unwrap_or_default().into_iter().map(|(name, one)| (name, value(one))).collect()
}

pub(crate) type Files = BTreeMap<String, Obj>;

pub(crate) fn key_at(files: &Files, path: &str) -> Option<Key> {
    files.get(path).map(Obj::key)
}

pub(crate) fn keys(files: &Files) -> BTreeMap<&str, Key> {
    files.iter().map(|(path, obj)| (path.as_str(), obj.key())).collect()
}

pub(crate) fn is_dir(files: &Files, path: &str) -> bool {
    path.is_empty() || files.get(path).is_some_and(|obj| obj.kind == Kind::Dir)
}

pub(crate) fn is_or_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(crate) fn below(files: &Files, path: &str) -> Vec<String> {
    let prefix = format!("{path}/");
    let range = files.range(prefix.clone()..).map(|(path, _)| path);
    range.take_while(|path| path.starts_with(&prefix)).cloned().collect()
}

pub(crate) fn names_in(files: &Files, path: &str) -> Vec<String> {
    let names = below(files, path).into_iter().map(|below| below[path.len() + 1..].to_owned());
    names.filter(|name| !name.contains('/')).collect()
}

pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(above, _)| above)
}

pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter(|(slash, _)| *slash > 0).map(|(slash, _)| &path[..slash])
}

pub(crate) fn remove(files: &mut Files, path: &str) -> Files {
    let mut gone = Files::new();
    for path in below(files, path).into_iter().chain([path.to_owned()]) {
        gone.extend(files.remove(&path).map(|obj| (path, obj)));
    }
    gone
}

pub(crate) fn rename(files: &mut Files, from: &str, to: &str) {
    for (path, obj) in remove(files, from) {
        files.insert(format!("{to}{}", &path[from.len()..]), obj);
    }
}

pub(crate) fn can_rename(files: &Files, from: &str, to: &str) -> bool {
    files.contains_key(from) && is_dir(files, parent(to)) && !is_or_below(to, from) && !is_or_below(from, to)
}

pub(crate) fn print(files: &Files) -> String {
    let one = |(path, obj): (&String, &Obj)| {
        let kind = match obj.kind {
            Kind::Dir => "/".to_owned(),
            Kind::Symlink => format!("->{}", obj.hash),
            Kind::File | Kind::Other => format!("={}", obj.hash),
        };
        let attrs = obj.xattrs.values().next().map_or(String::new(), |value| format!("x{value}"));
        let person = if obj.by_person { "P" } else { "" };
        format!("{path}{kind}:{:o}{attrs}#{}{person}", obj.mode, obj.ino)
    };
    files.iter().map(one).collect::<Vec<_>>().join(" ")
}
