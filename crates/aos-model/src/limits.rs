//! Every ceiling that holds whether or not a capability sets a lower one. Units come last in the names.

/// One line on the socket. Larger content goes by blob.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// A line up to this length needs no share of the next.
pub const FRAME_BYTES_FREE: usize = 64 << 10;
/// All longer lines that are being received or answered at one time, together.
pub const FRAMES_BYTES_MAX: usize = 64 << 20;
/// What a receipt carries inline when the capability does not say otherwise.
pub const INLINE_BYTES_DEFAULT: u64 = 16_384;
/// What one read returns.
pub const READ_BYTES_MAX: u64 = 256 << 20;
/// The largest file that edit and patch take.
pub const EDIT_FILE_BYTES_MAX: u64 = 64 << 20;
/// What is kept of each stream of a command when the capability does not say otherwise.
pub const OUTPUT_BYTES_DEFAULT: u64 = 256 << 20;
/// Open files of a command, soft and hard.
pub const COMMAND_FILES: (u64, u64) = (1_024, 65_536);
/// Mounts of a session.
pub const MOUNTS_MAX: usize = 64;
/// The preview a blob carries beside its reference.
pub const PREVIEW_BYTES_MAX: usize = 1_024;
/// How much of the written content the journal keeps inline; more is recorded by digest.
pub const RECORDED_CONTENT_BYTES_MAX: usize = 16_384;
/// How much of a request that made no sense is kept in the record.
pub const RECORDED_RAW_BYTES_MAX: usize = 4_096;
/// Entries of a listing when the request does not say otherwise.
pub const LIST_RESULTS_DEFAULT: u64 = 1_000;
/// Entries of one folder that are read at all; a larger folder is listed `truncated`.
pub const LIST_ENTRIES_MAX: usize = 1_000_000;
/// Matches of a grep and paths of a glob when the request does not say otherwise.
pub const GREP_RESULTS_DEFAULT: u64 = 100;
pub const GLOB_RESULTS_DEFAULT: u64 = 1_000;
/// Paths of one glob, whatever is asked for.
pub const GLOB_RESULTS_MAX: u64 = 1_000_000;
/// What one search returns.
pub const SEARCH_OUTPUT_BYTES_MAX: usize = 64 << 20;
/// How long one search looks; then it answers with what it has.
pub const SCAN_TIME_NS_MAX: u64 = 30_000_000_000;
/// Threads that work at one search.
pub const SCAN_THREADS_MAX: usize = 12;
/// A line of a grep as it is shown.
pub const GREP_LINE_BYTES_MAX: usize = 64 << 10;
/// A line that is searched as a whole; a longer one is searched in windows of this size.
pub const GREP_WINDOW_BYTES: usize = 4 << 20;
/// The longest pattern of a grep or a glob.
pub const PATTERN_BYTES_MAX: usize = 64 << 10;
/// A compiled pattern, and what its automaton may remember on each thread.
pub const PATTERN_COMPILED_BYTES_MAX: usize = 16 << 20;
/// An ignore file; what is behind is not read.
pub const IGNORE_FILE_BYTES_MAX: usize = 1 << 20;
/// Unreadable paths that a search names.
pub const SCAN_WARNINGS_MAX: usize = 20;
/// Paths in a receipt's list; a `…_count` beside the list says how many there were.
pub const RECEIPT_PATHS_MAX: usize = 1_000;
/// Paths one mutation may change (a recursive removal counts each). Each is held in memory while it is changed, and
/// again, in more detail, while it is taken back.
pub const CHANGED_PATHS_MAX: usize = 80_000;
/// Paths below a folder that moves in one piece. They are judged and not held.
pub const MOVED_PATHS_MAX: usize = 1_000_000;
/// Paths of the roots that are compared before and after a command where it cannot run over an overlay.
pub const SCANNED_PATHS_MAX: usize = 50_000;
/// Folders that are looked at for those that a session leaves out of capture.
pub const EXCLUDE_FOLDERS_MAX: usize = 20_000;
/// Diagnostics of a patch.
pub const PATCH_ERRORS_MAX: usize = 20;
/// Sessions open at one time.
pub const SESSIONS_OPEN_MAX: usize = 16_384;
/// Connections served at one time.
pub const CONNECTIONS_MAX: usize = 4_096;
/// Requests of one connection that may be under way at one time.
pub const CONNECTION_REQUESTS_MAX: usize = 256;
/// Labels of a session, and the bytes of each key and value.
pub const LABELS_MAX: usize = 64;
pub const LABEL_BYTES_MAX: usize = 1_024;
/// Roots of a session.
pub const ROOTS_MAX: usize = 64;
/// The longest name and path the system takes.
pub const NAME_BYTES_MAX: usize = 255;
pub const PATH_BYTES_MAX: usize = 4_095;
/// Folders within folders, counted from the top of the machine, that a mutation takes as a whole.
pub const FOLDERS_DEEP_MAX: usize = 500;
/// The stack of a thread that walks folders: one as deep as that fits.
pub const WALK_STACK_BYTES: usize = 8 << 20;
/// Links followed while one path is resolved, as the kernel's own limit.
pub const LINKS_MAX: usize = 40;
/// Pre-images kept for a session when it does not say otherwise.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 1 << 30;
/// A path of a virtual tree, and each name in it.
pub const VFS_SEGMENTS_MAX: usize = 16;
pub const VFS_SEGMENT_CHARACTERS_MAX: usize = 80;
/// What one write brings into a virtual tree.
pub const VFS_CONTENT_CHARACTERS_MAX: usize = 48_000;
/// What one mount brings into a virtual tree when it does not say otherwise.
pub const VFS_MOUNT_BYTES_DEFAULT: u64 = 64 << 20;
/// Files of one mount.
pub const VFS_MOUNT_FILES_MAX: usize = 200_000;
/// What is shown of a mount's top level.
pub const VFS_MOUNT_ENTRIES_SHOWN: usize = 20;
/// Contents of virtual and staged files that are kept in memory, of all sessions together.
pub const TREE_CACHE_BYTES_MAX: usize = 96 << 20;
/// What `host.vfs.latest` carries of contents; the files behind are told without.
pub const VFS_LATEST_BYTES_MAX: usize = 16 << 20;
/// A unified diff in a receipt.
pub const DIFF_BYTES_MAX: usize = 1 << 20;
/// Files larger than this get no line diff, only a note.
pub const DIFF_FILE_BYTES_MAX: usize = 4 << 20;
