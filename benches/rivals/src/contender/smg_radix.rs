use std::cell::RefCell;

use radix_tree::{BlockKey, Config, ContentHash, HolderId, Overlap, OverlapScratch, RadixTree};

use super::Contender;
use crate::workload::{Blocks, Chain};

/// `smg-radix-tree` 0.1: the chain-native tree that SMG's index service is built on. Exact; one thread writes or reads.
pub struct SmgRadix {
    tree: RefCell<RadixTree>,
    holders: Vec<HolderId>,
    answers: RefCell<(OverlapScratch, Vec<Overlap>)>,
}

pub enum Event {
    Stored { replica: usize, parent: Option<BlockKey>, blocks: Vec<(BlockKey, ContentHash)> },
    Removed { replica: usize, names: Vec<BlockKey> },
}

impl Contender for SmgRadix {
    const NAME: &'static str = "smg-radix-tree";
    type Query = Vec<ContentHash>;
    type Event = Event;

    fn with_replicas(replicas: usize) -> Self {
        let mut tree = RadixTree::new(Config::default());
        let holders: Vec<HolderId> = (0..replicas).map(|replica| tree.create_holder(&replica.to_string())).collect();
        let dense = holders.iter().enumerate().all(|(replica, holder)| holder.parts().0 as usize == replica);
        assert!(dense, "holder ids are dense");
        SmgRadix { tree: RefCell::new(tree), holders, answers: RefCell::default() }
    }

    fn query(chain: &Chain) -> Self::Query {
        chain.contents.clone()
    }

    fn stored(replica: usize, parent: Option<u64>, blocks: Blocks<'_>) -> Event {
        Event::Stored { replica, parent, blocks: blocks.pairs().collect() }
    }

    fn removed(replica: usize, names: &[u64]) -> Event {
        Event::Removed { replica, names: names.to_vec() }
    }

    fn apply(&self, event: &mut Event) {
        let mut tree = self.tree.borrow_mut();
        match event {
            Event::Stored { replica, parent, blocks } => {
                tree.store(self.holders[*replica], *parent, blocks).expect("a known parent");
            }
            Event::Removed { replica, names } => {
                tree.remove(self.holders[*replica], names);
            }
        }
    }

    fn lookup(&self, query: &mut Self::Query, out: &mut [u32]) {
        let mut answers = self.answers.borrow_mut();
        let (scratch, found) = &mut *answers;
        self.tree.borrow().overlap(query, scratch, found);
        out.fill(0);
        for overlap in &*found {
            out[overlap.holder.parts().0 as usize] = overlap.depth;
        }
    }

    fn answer(&self, chain: &Chain, out: &mut [u32]) {
        self.lookup(&mut Self::query(chain), out);
    }
}
