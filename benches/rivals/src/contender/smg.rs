use std::sync::{Mutex, MutexGuard};

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock, TenantId, TokenTree};

use super::{Believer, Contender};
use crate::workload::{Blocks, Chain};

/// SMG's `ChainIndex` (kv-index 2.0; the index is line for line that of 1.7), each worker's lane map kept beside it.
pub struct SmgChain {
    index: ChainIndex,
    maps: Vec<Mutex<ChainBlockMap>>,
}

pub enum Event {
    Stored { worker: u32, blocks: Vec<StoredBlock>, parent: Option<SequenceHash> },
    Removed { worker: u32, names: Vec<SequenceHash> },
}

impl SmgChain {
    fn map(&self, worker: u32) -> MutexGuard<'_, ChainBlockMap> {
        self.maps[worker as usize].lock().expect("no writer panicked")
    }
}

impl Contender for SmgChain {
    const NAME: &'static str = "SMG ChainIndex";
    type Query = Vec<ContentHash>;
    type Event = Event;

    fn with_replicas(replicas: usize) -> Self {
        let index = ChainIndex::with_max_workers(replicas);
        for replica in 0..replicas {
            let worker = index.intern_worker(&replica.to_string()).expect("fewer workers than the limit");
            assert_eq!(worker as usize, replica, "worker ids are dense");
        }
        SmgChain { index, maps: (0..replicas).map(|_| Mutex::default()).collect() }
    }

    fn query(chain: &Chain) -> Self::Query {
        chain.contents.iter().copied().map(ContentHash).collect()
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Event {
        let stored = blocks
            .pairs()
            .map(|(name, content)| StoredBlock { seq_hash: SequenceHash(name), content_hash: ContentHash(content) })
            .collect();
        Event::Stored { worker: replica as u32, blocks: stored, parent: parent.map(SequenceHash) }
    }

    fn removed(replica: usize, names: &[u64]) -> Event {
        Event::Removed { worker: replica as u32, names: names.iter().copied().map(SequenceHash).collect() }
    }

    fn apply(&self, event: &mut Event) {
        match event {
            Event::Stored { worker, blocks, parent } => {
                let mut map = self.map(*worker);
                self.index.apply_stored(*worker, blocks, *parent, &mut map).expect("a known parent");
            }
            Event::Removed { worker, names } => {
                self.index.apply_removed(*worker, names, &mut self.map(*worker));
            }
        }
    }

    // The closure form allocates nothing; `find_matches` builds a hash map of the same scores.
    fn lookup(&self, query: &mut Self::Query, out: &mut [u32]) {
        out.fill(0);
        self.index.score_into(query, |content| content.0, false, |worker, blocks| out[worker as usize] = blocks);
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        self.lookup(&mut Self::query(chain), out);
    }
}

/// SMG's `TokenTree`, what its gateway keeps where engines send no events: tokens in, eviction by a sweep of the leaves.
pub struct SmgTokenTree {
    tree: TokenTree,
    tenants: Vec<TenantId>,
    capacity_tokens: usize,
}

impl Believer for SmgTokenTree {
    const NAME: &'static str = "SMG TokenTree";
    type Prompt = Vec<u32>;

    fn with_capacity(replicas: usize, blocks: usize) -> Self {
        let tenants = (0..replicas).map(|replica| replica.to_string().into()).collect();
        SmgTokenTree { tree: TokenTree::new(), tenants, capacity_tokens: blocks * 16 }
    }

    fn prompt(tokens: &[u32]) -> Self::Prompt {
        tokens.to_vec()
    }

    fn insert(&mut self, replica: usize, prompt: &Self::Prompt) {
        self.tree.insert_tokens(prompt, &self.tenants[replica]);
    }

    fn evict(&mut self) {
        for tenant in &self.tenants {
            self.tree.evict_tenant(tenant, self.capacity_tokens);
        }
    }

    fn best(&self, prompt: &Self::Prompt) -> usize {
        self.tree.match_prefix_with_counts(prompt).matched_token_count
    }
}
