//! A SQLite VFS that opens every file read-only, the WAL included.
//!
//! SQLite opens the WAL read-write even when the database is opened read-only. Replay must not open anything for
//! writing (I8), so it uses a copy of the default VFS whose `xOpen` asks for read access only.

use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use rusqlite::ffi::{
    SQLITE_ERROR, SQLITE_IOERR_DELETE, SQLITE_OK, SQLITE_OPEN_CREATE, SQLITE_OPEN_READONLY,
    SQLITE_OPEN_READWRITE, sqlite3_file, sqlite3_filename, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};

pub(crate) const NAME: &CStr = c"aos-read-only";

type Open =
    unsafe extern "C" fn(*mut sqlite3_vfs, sqlite3_filename, *mut sqlite3_file, c_int, *mut c_int) -> c_int;

static DEFAULT_OPEN: OnceLock<Open> = OnceLock::new();

#[expect(
    unsafe_code,
    reason = "a SQLite VFS is a C structure; this copies the default one and replaces two functions"
)]
unsafe extern "C" fn open(
    vfs: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let Some(default_open) = DEFAULT_OPEN.get() else { return SQLITE_ERROR };
    let flags = (flags & !(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
    // SAFETY: the arguments come from SQLite and go unchanged, but for `flags`, to the function that it would have
    // called.
    unsafe { default_open(vfs, name, file, flags, out) }
}

/// Refuses every deletion: SQLite deletes the WAL of an empty database, even one that is opened read-only.
#[expect(unsafe_code, reason = "SQLite calls this function of the VFS from C")]
unsafe extern "C" fn delete(_: *mut sqlite3_vfs, _: *const c_char, _: c_int) -> c_int {
    SQLITE_IOERR_DELETE
}

/// Registers the VFS once per process. False when SQLite has no default VFS to copy.
#[expect(
    unsafe_code,
    reason = "a SQLite VFS is a C structure; this copies the default one and replaces two functions"
)]
pub(crate) fn register() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: a null name asks for the default VFS, which lives as long as the process.
        let default = unsafe { sqlite3_vfs_find(std::ptr::null::<c_char>()) };
        if default.is_null() {
            return false;
        }
        // SAFETY: not null, and never changed once SQLite is initialised; the copy is leaked, so it is never
        // freed.
        let vfs = unsafe {
            let Some(default_open) = (*default).xOpen else { return false };
            if DEFAULT_OPEN.set(default_open).is_err() {
                return false;
            }
            Box::leak(Box::new(sqlite3_vfs {
                zName: NAME.as_ptr(),
                pNext: std::ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                ..*default
            }))
        };
        // SAFETY: the structure is complete and is never freed.
        unsafe { sqlite3_vfs_register(vfs, 0) == SQLITE_OK }
    })
}
