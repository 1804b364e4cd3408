//! The coarse model: whole entries, least recently used first, no blocks.

use std::sync::Arc;

use crate::recency::RecencyMap;

/// Cache of one replica that keeps whole entries (a conversation, a document), each weighed in tokens.
///
/// A shared head (a system prompt) is one more entry: resident from the first request on, inside the capacity, and still
/// counted again in every entry that begins with it.
#[derive(Debug)]
pub struct EntryCache {
    capacity: Option<usize>,
    /// Tokens of each, by name.
    entries: RecencyMap<Arc<str>, usize>,
    shared: usize,
    tokens: usize,
    evicted: u64,
}

impl EntryCache {
    /// A cache of `capacity` tokens (`None`: unlimited).
    pub fn new(capacity: Option<usize>) -> Self {
        Self { capacity, entries: RecencyMap::default(), shared: 0, tokens: 0, evicted: 0 }
    }

    /// Tokens of `entry` that are cached now: its size, else the shared head's, else none.
    pub fn cached(&self, entry: &str, prompt_tokens: usize, shared_tokens: usize) -> usize {
        self.entries.get(entry).copied().unwrap_or(self.shared.min(shared_tokens)).min(prompt_tokens)
    }

    /// Serve a prompt, and hold `context_tokens` as `entry` afterwards. Returns the cached tokens.
    pub fn serve(&mut self, entry: &str, prompt_tokens: usize, context_tokens: usize, shared_tokens: usize) -> usize {
        let cached = self.cached(entry, prompt_tokens, shared_tokens);
        self.shared = self.shared.max(shared_tokens);
        if let Some(tokens) = self.entries.touch(entry) {
            self.tokens -= std::mem::replace(tokens, context_tokens);
        } else {
            self.entries.insert(entry.into(), context_tokens);
        }
        self.tokens += context_tokens;
        self.evict();
        cached
    }

    fn evict(&mut self) {
        let Some(capacity) = self.capacity else { return };
        while self.cached_tokens() > capacity {
            let Some((_, tokens)) = self.entries.pop_first() else { break };
            self.tokens -= tokens;
            self.evicted += 1;
        }
    }

    /// Tokens held, the shared head included.
    pub fn cached_tokens(&self) -> usize {
        self.tokens + self.shared
    }

    /// Entries held, the shared head left out.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing was served yet, or nothing fits.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Entries evicted so far.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Forget everything, the shared head included.
    pub fn clear(&mut self) {
        let evicted = self.evicted;
        *self = Self { evicted, ..Self::new(self.capacity) };
    }
}
