//! The contents of virtual and staged files: blobs, with a bounded cache in memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use aos_model::limits::TREE_CACHE_BYTES_MAX;
use aos_model::refusal::{Code, Refusal};
use aos_model::vfs::Body;
use aos_store::Blobs;

use crate::content::{CachedBytes, Source};

#[derive(Debug)]
pub(crate) struct Contents {
    blobs: Arc<Blobs>,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    blobs: HashMap<String, Cached>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Cached {
    bytes: Arc<CachedBytes>,
    used: u64,
}

/// A larger blob is not cached; it is read from its file in pieces.
const MEMORY_BYTES_MAX: u64 = 8 << 20;

impl Contents {
    pub(crate) fn new(blobs: Arc<Blobs>) -> Contents {
        Contents { blobs, cache: Mutex::default() }
    }

    /// Opens the content of a file.
    pub(crate) fn open(&self, shown: &str, body: &Body) -> Result<Source, Refusal> {
        if body.offset_bytes.is_none() && body.size_bytes > MEMORY_BYTES_MAX {
            return self.blobs.open_blob(&body.blob_ref)?.map(Source::disk).ok_or_else(|| lost(shown, body));
        }
        let blob = self.blob(shown, body)?;
        let from = usize::try_from(body.offset_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
        let len = usize::try_from(body.size_bytes).unwrap_or(usize::MAX);
        match from.checked_add(len) {
            Some(end) if end <= blob.len() => Ok(Source::Memory { blob, from, len }),
            _ => Err(lost(shown, body)),
        }
    }

    /// Stores content as a blob and caches it.
    pub(crate) fn put(&self, bytes: Vec<u8>) -> Result<Body, Refusal> {
        let (blob_ref, size) = (self.blobs.put(&bytes)?, bytes.len() as u64);
        if size <= MEMORY_BYTES_MAX {
            self.keep(&blob_ref, Arc::new(CachedBytes::new(bytes)));
        }
        Ok(Body::whole(blob_ref, size))
    }

    fn blob(&self, shown: &str, body: &Body) -> Result<Arc<CachedBytes>, Refusal> {
        let mut cache = self.cache.lock().expect("BUG: lock poisoned");
        cache.clock += 1;
        let now = cache.clock;
        if let Some(cached) = cache.blobs.get_mut(&body.blob_ref) {
            cached.used = now;
            return Ok(cached.bytes.clone());
        }
        drop(cache);
        let read = self.blobs.read(&body.blob_ref, u64::MAX)?.ok_or_else(|| lost(shown, body))?;
        let bytes = Arc::new(CachedBytes::new(read));
        self.keep(&body.blob_ref, bytes.clone());
        Ok(bytes)
    }

    /// Caches a blob; the least recently used ones are evicted.
    pub(crate) fn keep(&self, blob_ref: &str, bytes: Arc<CachedBytes>) {
        let mut cache = self.cache.lock().expect("BUG: lock poisoned");
        if bytes.len() > TREE_CACHE_BYTES_MAX / 2 {
            return;
        }
        cache.clock += 1;
        let used = cache.clock;
        cache.bytes += bytes.len();
        if let Some(same) = cache.blobs.insert(blob_ref.to_owned(), Cached { bytes, used }) {
            cache.bytes -= same.bytes.len();
        }
        if cache.bytes > TREE_CACHE_BYTES_MAX {
            cache.make_room();
        }
    }
}

impl Cache {
    /// Evicts down to three quarters at once, so that not every insertion searches for the oldest blob.
    fn make_room(&mut self) {
        let mut by_age: Vec<(u64, String)> =
            self.blobs.iter().map(|(name, cached)| (cached.used, name.clone())).collect();
        by_age.sort_unstable();
        for (_, name) in by_age {
            if self.bytes <= TREE_CACHE_BYTES_MAX / 4 * 3 {
                break;
            }
            if let Some(gone) = self.blobs.remove(&name) {
                self.bytes -= gone.bytes.len();
            }
        }
    }
}

fn lost(shown: &str, body: &Body) -> Refusal {
    Refusal::new(
        Code::IoError,
        format!("{shown}: its content {} is missing from the store; `aos verify` says more", body.blob_ref),
    )
}
