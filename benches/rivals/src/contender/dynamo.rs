use std::cell::RefCell;
use std::hint::black_box;

use dynamo_kv_router::indexer::{SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, RadixTree};

use super::Contender;
use crate::workload::{Blocks, Chain};

/// Dynamo's `RadixTree`, the single-threaded tree that its Python wheel offers.
pub struct DynamoRadix {
    tree: RefCell<RadixTree>,
}

/// Dynamo's `ConcurrentRadixTreeCompressed`, its router's default: lookups on the caller's thread, events by a queue to one
/// worker thread.
pub struct DynamoConcurrent {
    pool: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
}

fn query(chain: &Chain) -> Vec<LocalBlockHash> {
    chain.contents.iter().copied().map(LocalBlockHash).collect()
}

fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Option<RouterEvent> {
    let stored = blocks
        .pairs()
        .map(|(name, content)| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(name),
            tokens_hash: LocalBlockHash(content),
            mm_extra_info: None,
        })
        .collect();
    let parent_hash = parent.map(ExternalSequenceBlockHash);
    event(replica, KvCacheEventData::Stored(KvCacheStoreData { parent_hash, start_position: None, blocks: stored }))
}

fn removed(replica: usize, names: &[u64]) -> Option<RouterEvent> {
    let block_hashes = names.iter().copied().map(ExternalSequenceBlockHash).collect();
    event(replica, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
}

fn event(replica: usize, data: KvCacheEventData) -> Option<RouterEvent> {
    Some(RouterEvent::new(replica as u64, KvCacheEvent { event_id: 0, data, dp_rank: 0 }))
}

fn write(scores: &OverlapScores, out: &mut [u32]) {
    out.fill(0);
    for (worker, &blocks) in &scores.scores {
        out[worker.worker_id as usize] = blocks;
    }
}

impl Contender for DynamoRadix {
    const NAME: &'static str = "Dynamo RadixTree";
    type Query = Vec<LocalBlockHash>;
    type Event = Option<RouterEvent>;

    fn with_replicas(_: usize) -> Self {
        DynamoRadix { tree: RefCell::new(RadixTree::new()) }
    }

    fn query(chain: &Chain) -> Self::Query {
        query(chain)
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Self::Event {
        stored(replica, parent, blocks)
    }

    fn removed(replica: usize, names: &[u64]) -> Self::Event {
        removed(replica, names)
    }

    fn apply(&self, event: &mut Self::Event) {
        let event = event.take().expect("each event is applied once");
        self.tree.borrow_mut().apply_event(event).expect("a known parent");
    }

    // The tree takes the hashes by value and answers with a hash map, which is left as it is.
    fn lookup(&self, query: &mut Self::Query, _: &mut [u32]) {
        black_box(self.tree.borrow().find_matches(std::mem::take(query), false));
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        write(&self.tree.borrow().find_matches(query(chain), false), out);
    }
}

impl Contender for DynamoConcurrent {
    const NAME: &'static str = "Dynamo CRTC";
    type Query = Vec<LocalBlockHash>;
    type Event = Option<RouterEvent>;

    fn with_replicas(_: usize) -> Self {
        DynamoConcurrent { pool: ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16) }
    }

    fn query(chain: &Chain) -> Self::Query {
        query(chain)
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Self::Event {
        stored(replica, parent, blocks)
    }

    fn removed(replica: usize, names: &[u64]) -> Self::Event {
        removed(replica, names)
    }

    fn apply(&self, event: &mut Self::Event) {
        let event = event.take().expect("each event is applied once");
        self.pool.enqueue_event(event).expect("a live worker thread");
    }

    fn lookup(&self, query: &mut Self::Query, _: &mut [u32]) {
        black_box(self.pool.backend().find_matches(query, false));
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        write(&self.pool.backend().find_matches(&query(chain), false), out);
    }

    fn finish(&self) {
        pollster::block_on(self.pool.flush_and_wait()).expect("a live worker thread");
    }
}
