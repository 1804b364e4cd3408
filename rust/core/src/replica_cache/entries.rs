//! The coarse model: whole entries, least recently used first, no blocks.

use std::collections::{BTreeMap, HashMap};

/// Cache of one replica that keeps whole entries (a conversation, a document), each weighed in tokens.
///
/// A shared head (a system prompt) is one more entry: resident from the first request on, inside the capacity, and still
/// counted again in every entry that begins with it.
#[derive(Debug)]
pub struct EntryCache {
    capacity: Option<usize>,
    /// Entry -> (tokens, last use).
    entries: HashMap<String, (usize, u64)>,
    by_use: BTreeMap<u64, String>,
    turn: u64,
    shared: usize,
    tokens: usize,
    evicted: u64,
}

impl EntryCache {
    /// A cache of `capacity` tokens (`None`: unlimited).
    pub fn new(capacity: Option<usize>) -> Self {
        Self { capacity, entries: HashMap::new(), by_use: BTreeMap::new(), turn: 0, shared: 0, tokens: 0, evicted: 0 }
    }

    /// Tokens of `entry` that are cached now: its size, else the shared head's, else none.
    pub fn cached(&self, entry: &str, prompt_tokens: usize, shared_tokens: usize) -> usize {
        let held = self.entries.get(entry).map_or(self.shared.min(shared_tokens), |(tokens, _)| *tokens);
        held.min(prompt_tokens)
    }

    /// Serve a prompt, and hold `context_tokens` as `entry` afterwards. Returns the cached tokens.
    pub fn serve(&mut self, entry: &str, prompt_tokens: usize, context_tokens: usize, shared_tokens: usize) -> usize {
        let cached = self.cached(entry, prompt_tokens, shared_tokens);
        self.shared = self.shared.max(shared_tokens);
        self.turn += 1;
        if let Some((tokens, used)) = self.entries.insert(entry.to_owned(), (context_tokens, self.turn)) {
            self.tokens -= tokens;
            self.by_use.remove(&used);
        }
        self.tokens += context_tokens;
        self.by_use.insert(self.turn, entry.to_owned());
        self.evict();
        cached
    }

    fn evict(&mut self) {
        let Some(capacity) = self.capacity else { return };
        while self.cached_tokens() > capacity {
            let Some((_, entry)) = self.by_use.pop_first() else { break };
            if let Some((tokens, _)) = self.entries.remove(&entry) {
                self.tokens -= tokens;
                self.evicted += 1;
            }
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
