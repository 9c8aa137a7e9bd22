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
/// Paths in a receipt's list; a `…_count` beside the list says how many there were.
pub const RECEIPT_PATHS_MAX: usize = 1_000;
/// Paths one mutation may touch (a recursive removal counts each).
pub const CHANGED_PATHS_MAX: usize = 1_000_000;
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
/// Links followed while one path is resolved, as the kernel's own limit.
pub const LINKS_MAX: usize = 40;
/// Pre-images kept for a session when it does not say otherwise.
pub const SNAPSHOT_BYTES_DEFAULT: u64 = 1 << 30;
/// A unified diff in a receipt.
pub const DIFF_BYTES_MAX: usize = 1 << 20;
/// Files larger than this get no line diff, only a note.
pub const DIFF_FILE_BYTES_MAX: usize = 4 << 20;
