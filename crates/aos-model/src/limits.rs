//! Every limit that holds whether or not a capability sets a lower one (I10). Names end in the unit.

/// One line on the socket. Larger content is passed as a blob.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Lines up to this length do not count towards `FRAMES_BYTES_MAX`: every connection may have one.
pub const FRAME_BYTES_FREE: usize = 16 << 10;
/// The total of all longer lines that are being received or answered at one time.
pub const FRAMES_BYTES_MAX: usize = 64 << 20;
/// Requests in one JSON-RPC batch.
pub const BATCH_REQUESTS_MAX: usize = 100;
/// The size of an inline payload, unless the capability sets another.
pub const INLINE_BYTES_DEFAULT: u64 = 16_384;
/// The size of an inline payload, whatever the capability sets: it is in memory several times while it is answered.
pub const INLINE_BYTES_MAX: u64 = 16 << 20;
/// The content of one read.
pub const READ_BYTES_MAX: u64 = 256 << 20;
/// The largest file that edit and patch accept.
pub const EDIT_FILE_BYTES_MAX: u64 = 64 << 20;
/// How much of each output stream of a command is stored, unless the capability sets another limit.
pub const OUTPUT_BYTES_DEFAULT: u64 = 256 << 20;
/// `RLIMIT_NOFILE` of a command, soft and hard.
pub const COMMAND_FILES: (u64, u64) = (1_024, 65_536);
/// Mounts of a session.
pub const MOUNTS_MAX: usize = 64;
/// The preview beside a blob reference.
pub const PREVIEW_BYTES_MAX: usize = 1_024;
/// Written content up to this size is in the journal; larger content is recorded by its hash.
pub const RECORDED_CONTENT_BYTES_MAX: usize = 16_384;
/// How much of an unparsable request the journal stores.
pub const RECORDED_RAW_BYTES_MAX: usize = 4_096;
/// Entries of a listing, unless the request sets another number.
pub const LIST_RESULTS_DEFAULT: u64 = 1_000;
/// Entries of one folder that are read; a larger folder is listed as `truncated`.
pub const LIST_ENTRIES_MAX: usize = 1_000_000;
/// Matches of a grep and paths of a glob, unless the request sets another number.
pub const GREP_RESULTS_DEFAULT: u64 = 100;
pub const GLOB_RESULTS_DEFAULT: u64 = 1_000;
/// Paths of one glob, whatever the request asks for.
pub const GLOB_RESULTS_MAX: u64 = 1_000_000;
/// The output of one search.
pub const SEARCH_OUTPUT_BYTES_MAX: usize = 64 << 20;
/// The time of one search; after it the search returns what it has found.
pub const SCAN_TIME_NS_MAX: u64 = 30_000_000_000;
/// Threads of one search.
pub const SCAN_THREADS_MAX: usize = 12;
/// One line in the output of a grep.
pub const GREP_LINE_BYTES_MAX: usize = 64 << 10;
/// A line up to this size is searched as a whole; a longer one in windows of this size.
pub const GREP_WINDOW_BYTES: usize = 4 << 20;
/// The longest pattern of a grep or a glob.
pub const PATTERN_BYTES_MAX: usize = 64 << 10;
/// A compiled pattern, and the lazy DFA cache of each thread.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 16 << 20;
/// How much of an ignore file is read.
pub const IGNORE_FILE_BYTES_MAX: usize = 64 << 10;
/// The patterns of ignore files that apply to one folder of a search, its own and those from above, and about what they
/// take when compiled. Counted along the folders and not over the whole search, so that the result does not depend on
/// the order in which threads visit folders.
pub const IGNORE_PATTERNS_MAX: usize = 2_000;
pub const IGNORE_COMPILED_BYTES_MAX: usize = 1 << 20;
/// Unreadable paths that the warnings of a search name.
pub const SCAN_WARNINGS_MAX: usize = 20;
/// Paths in a list of a receipt; the `…_count` field beside the list has the full number.
pub const RECEIPT_PATHS_MAX: usize = 1_000;
/// Paths that one mutation may change; a recursive removal counts each. Each path is in memory while it is changed, and
/// in more detail while it is undone.
pub const CHANGED_PATHS_MAX: usize = 80_000;
/// Paths below a folder that is moved as a whole. Policy checks each one, but they are not kept in memory.
pub const MOVED_PATHS_MAX: usize = 1_000_000;
/// Paths of the roots that are compared before and after a command that runs without an overlay.
pub const SCANNED_PATHS_MAX: usize = 50_000;
/// Entries that are looked at to find what rules forbid a command to read, and the time for it.
pub const MASK_WALK_ENTRIES_MAX: usize = 2_000_000;
pub const MASK_WALK_TIME_NS_MAX: u64 = 10_000_000_000;
/// Paths that are masked in the view of one command. The kernel permits 100 000 mounts.
pub const MASKS_MAX: usize = 20_000;
/// Paths of the roots in which set-id bits are looked for after a command that ran without an overlay.
pub const PRIVILEGE_SCAN_PATHS_MAX: usize = 200_000;
/// Paths of the roots that are compared before and after a command without an overlay, to put back what is denied.
pub const GUARDED_PATHS_MAX: usize = 200_000;
/// What rules deny writing and is copied before such a command.
pub const DENIED_FILES_MAX: usize = 10_000;
pub const DENIED_BYTES_MAX: u64 = 256 << 20;
/// Folders that are visited to find those that `capture_exclude` names.
pub const EXCLUDE_FOLDERS_MAX: usize = 20_000;
/// Errors that are reported for one patch.
pub const PATCH_ERRORS_MAX: usize = 20;
/// Sessions open at one time.
pub const SESSIONS_OPEN_MAX: usize = 16_384;
/// Connections served at one time.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Requests of one connection that may run at one time.
pub const CONNECTION_REQUESTS_MAX: usize = 256;
/// Labels of a session, and the bytes of each key and value.
pub const LABELS_MAX: usize = 64;
pub const LABEL_BYTES_MAX: usize = 1_024;
/// Roots of a session.
pub const ROOTS_MAX: usize = 64;
/// The longest name (`NAME_MAX`) and path (`PATH_MAX` without the NUL byte) of Linux.
pub const NAME_BYTES_MAX: usize = 255;
pub const PATH_BYTES_MAX: usize = 4_095;
/// The depth of a folder, counted from `/`, that a mutation changes as a whole.
pub const FOLDERS_DEEP_MAX: usize = 500;
/// The stack of a thread that walks folders. It is enough for the depth above.
pub const WALK_STACK_BYTES: usize = 8 << 20;
/// Symbolic links that are followed while one path is resolved: the kernel's limit (`MAXSYMLINKS`).
pub const LINKS_MAX: usize = 40;
/// The size of all pre-images of a session, unless it sets another limit.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 1 << 30;
/// The depth of a path in a virtual tree, and the length of each name.
pub const VFS_SEGMENTS_MAX: usize = 16;
pub const VFS_SEGMENT_CHARACTERS_MAX: usize = 80;
/// The content of one write to a virtual tree.
pub const VFS_CONTENT_CHARACTERS_MAX: usize = 48_000;
/// The content of one mount in a virtual tree, unless the mount sets another limit.
pub const VFS_MOUNT_BYTES_DEFAULT: u64 = 64 << 20;
/// Files of one mount.
pub const VFS_MOUNT_FILES_MAX: usize = 200_000;
/// Entries of a mount's top level that the prompt for models lists.
pub const VFS_MOUNT_ENTRIES_SHOWN: usize = 20;
/// The cache of contents of virtual and staged files, for all sessions together.
pub const TREE_CACHE_BYTES_MAX: usize = 96 << 20;
/// The contents in one answer of `host.vfs.latest`; further files are listed without content.
pub const VFS_LATEST_BYTES_MAX: usize = 16 << 20;
/// A file up to this size is hashed when it is moved, for its record.
pub const MOVED_HASHED_BYTES_MAX: u64 = 1 << 20;
/// A unified diff in a receipt.
pub const DIFF_BYTES_MAX: usize = 1 << 20;
/// Larger files get a note instead of a line diff.
pub const DIFF_FILE_BYTES_MAX: usize = 4 << 20;

/// What the private home and `/tmp` of a session may hold together, where its capability does not say.
pub const SCRATCH_BYTES_DEFAULT: u64 = 8 << 30;

/// A command ends when less than this, or less than 5 % of the disk, is left on the disk of the state.
pub const FREE_BYTES_MIN: u64 = 1 << 30;

/// The same for inodes.
pub const FREE_FILES_MIN: u64 = 10_000;

/// `/dev/shm` of a command.
pub const SHARED_MEMORY_BYTES: u64 = 256 << 20;
