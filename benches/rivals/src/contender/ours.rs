use prefixroute_core::hash::hash_tokens;
use prefixroute_core::{BlockHash, Config, Contents, EngineHash, Index, Medium, Slot, StoredEvent};

use super::{Believer, Contender};
use crate::workload::{Blocks, Chain, root};

const BLOCK: usize = 16;

/// `prefixroute_core::Index`, fed by events.
pub struct Ours {
    index: Index,
}

pub enum Event {
    Stored { slot: Slot, engine: Vec<EngineHash>, parent: Option<EngineHash>, contents: Vec<u64> },
    Removed { slot: Slot, engine: Vec<EngineHash> },
}

fn open(config: Config, replicas: usize) -> Index {
    let index = Index::new(config).expect("a valid configuration");
    for replica in 0..replicas {
        index.add_replica(&replica.to_string(), None).expect("fewer replicas than the limit");
    }
    index
}

fn engine(names: &[u64]) -> Vec<EngineHash> {
    names.iter().copied().map(EngineHash).collect()
}

impl Ours {
    fn matched(&self, hashes: &[BlockHash], out: &mut [u32]) {
        self.index.match_blocks(hashes, out);
    }
}

impl Contender for Ours {
    const NAME: &'static str = "prefixroute";
    type Query = Vec<BlockHash>;
    type Event = Event;

    fn with_replicas(replicas: usize) -> Self {
        Ours { index: open(Config::default(), replicas) }
    }

    fn query(chain: &Chain) -> Self::Query {
        chain.hashes().into_iter().map(BlockHash).collect()
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Event {
        let contents = blocks.contents.to_vec();
        Event::Stored {
            slot: Slot(replica as u16),
            engine: engine(blocks.names),
            parent: parent.map(EngineHash),
            contents,
        }
    }

    fn removed(replica: usize, names: &[u64]) -> Event {
        Event::Removed { slot: Slot(replica as u16), engine: engine(names) }
    }

    fn apply(&self, event: &mut Event) {
        match event {
            Event::Stored { slot, engine, parent, contents } => {
                let event = StoredEvent {
                    engine,
                    parent: *parent,
                    contents: Contents::Blocks(contents),
                    seed: root(),
                    medium: Medium::Gpu,
                };
                self.index.stored(*slot, &event, 0.0).expect("a live slot");
            }
            Event::Removed { slot, engine } => {
                self.index.removed(*slot, engine, Medium::Gpu).expect("a live slot");
            }
        }
    }

    fn mapped_bytes(&self) -> usize {
        self.index.mapped_bytes()
    }

    fn lookup(&self, query: &mut Self::Query, out: &mut [u32]) {
        self.matched(query, out);
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        self.matched(&Self::query(chain), out);
        out.iter_mut().for_each(|tokens| *tokens /= BLOCK as u32);
    }
}

/// `prefixroute_core::Index`, fed by decisions: `insert` evicts by itself.
pub struct Belief {
    index: Index,
    replicas: usize,
}

impl Believer for Belief {
    const NAME: &'static str = "prefixroute";
    type Prompt = Vec<u32>;

    fn with_capacity(replicas: usize, blocks: usize) -> Self {
        let config = Config { capacity_blocks: Some(blocks as u64), ..Config::default() };
        Belief { index: open(config, replicas), replicas }
    }

    fn prompt(tokens: &[u32]) -> Self::Prompt {
        tokens.to_vec()
    }

    fn insert(&mut self, replica: usize, prompt: &Self::Prompt) {
        let mut hashes = Vec::new();
        hash_tokens(prompt, BLOCK, root(), &[], &mut hashes).expect("a valid block size");
        self.index.insert(Slot(replica as u16), &hashes, 0.0).expect("a live slot");
    }

    fn best(&self, prompt: &Self::Prompt) -> usize {
        let mut out = vec![0; self.replicas];
        self.index.match_tokens(prompt, root(), &[], &mut out).expect("a valid block size");
        out.into_iter().max().unwrap_or(0) as usize
    }
}
