//! The coarse model: whole entries, least recently used first, no blocks.

use std::collections::HashMap;
use std::sync::Arc;

use crate::linked_slab::{Element, Id, Linked, Links, List, Slab, ids};

ids! {
    /// Id of an entry.
    EntryId
}

#[derive(Debug)]
struct Entry {
    name: Arc<str>,
    tokens: usize,
    links: Links<EntryId>,
}

impl Default for Entry {
    fn default() -> Self {
        Entry { name: "".into(), tokens: 0, links: Links::NONE }
    }
}

impl Element for Entry {
    type Id = EntryId;

    fn next_free(&mut self) -> &mut EntryId {
        &mut self.links.next
    }
}

impl Linked for Slab<Entry> {
    type Id = EntryId;

    fn links(&mut self, id: EntryId) -> &mut Links<EntryId> {
        &mut self.get_mut(id).links
    }
}

/// Cache of one replica that keeps whole entries (a conversation, a document), each weighed in tokens.
///
/// A shared head (a system prompt) is one more entry: resident from the first request on, inside the capacity, and still
/// counted again in every entry that begins with it.
#[derive(Debug)]
pub struct EntryCache {
    capacity: Option<usize>,
    entries: Slab<Entry>,
    by_name: HashMap<Arc<str>, EntryId>,
    /// Least recently used first.
    by_use: List<EntryId>,
    shared: usize,
    tokens: usize,
    evicted: u64,
}

impl EntryCache {
    /// A cache of `capacity` tokens (`None`: unlimited).
    pub fn new(capacity: Option<usize>) -> Self {
        Self {
            capacity,
            entries: Slab::default(),
            by_name: HashMap::new(),
            by_use: List::default(),
            shared: 0,
            tokens: 0,
            evicted: 0,
        }
    }

    /// Tokens of `entry` that are cached now: its size, else the shared head's, else none.
    pub fn cached(&self, entry: &str, prompt_tokens: usize, shared_tokens: usize) -> usize {
        let held = self.by_name.get(entry).map(|&id| self.entries.get(id).tokens);
        held.unwrap_or(self.shared.min(shared_tokens)).min(prompt_tokens)
    }

    /// Serve a prompt, and hold `context_tokens` as `entry` afterwards. Returns the cached tokens.
    pub fn serve(&mut self, entry: &str, prompt_tokens: usize, context_tokens: usize, shared_tokens: usize) -> usize {
        let cached = self.cached(entry, prompt_tokens, shared_tokens);
        self.shared = self.shared.max(shared_tokens);
        let id = if let Some(&id) = self.by_name.get(entry) {
            self.by_use.unlink(&mut self.entries, id);
            self.tokens -= self.entries.get(id).tokens;
            self.entries.get_mut(id).tokens = context_tokens;
            id
        } else {
            let name: Arc<str> = entry.into();
            let id = self.entries.insert(Entry { name: name.clone(), tokens: context_tokens, ..Entry::default() });
            self.by_name.insert(name, id);
            id
        };
        self.tokens += context_tokens;
        self.by_use.push_last(&mut self.entries, id);
        self.evict();
        cached
    }

    fn evict(&mut self) {
        let Some(capacity) = self.capacity else { return };
        while self.cached_tokens() > capacity {
            let Some(oldest) = self.by_use.first.some() else { break };
            self.by_use.unlink(&mut self.entries, oldest);
            let entry = self.entries.remove(oldest);
            self.by_name.remove(&entry.name);
            self.tokens -= entry.tokens;
            self.evicted += 1;
        }
    }

    /// Tokens held, the shared head included.
    pub fn cached_tokens(&self) -> usize {
        self.tokens + self.shared
    }

    /// Entries held, the shared head left out.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Nothing was served yet, or nothing fits.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
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
