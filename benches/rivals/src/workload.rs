//! Prompts as chains of block hashes, who stores them, and who asks. Every contender gets the same, and so does the dull
//! oracle that says what the right answers are.

use std::collections::HashSet;

use prefixroute_core::hash::{NamespaceSpec, mix, namespace_seed};

/// A deterministic stream of numbers (SplitMix64).
#[derive(Clone)]
pub struct Numbers(pub u64);

impl Numbers {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }
}

/// Some consecutive blocks of a chain: an engine's names and the hashes of their contents.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    pub names: &'a [u64],
    pub contents: &'a [u64],
}

impl Blocks<'_> {
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.names.iter().copied().zip(self.contents.iter().copied())
    }
}

/// A prompt's blocks from its start: hashes of their contents, and the names an engine gives them.
#[derive(Clone)]
pub struct Chain {
    pub contents: Vec<u64>,
    pub names: Vec<u64>,
}

impl Chain {
    /// An engine's names are chained, too, under a seed of its own.
    pub fn of(contents: Vec<u64>) -> Self {
        let names = chained(&contents, 42);
        Chain { contents, names }
    }

    pub fn random(blocks: usize, numbers: &mut Numbers) -> Self {
        Chain::of((0..blocks).map(|_| numbers.draw()).collect())
    }

    pub fn from(&self, first: usize) -> Blocks<'_> {
        Blocks { names: &self.names[first..], contents: &self.contents[first..] }
    }

    /// The engine's name of the block before this one.
    pub fn parent(&self, block: usize) -> Option<u64> {
        block.checked_sub(1).map(|before| self.names[before])
    }

    pub fn len(&self) -> usize {
        self.contents.len()
    }

    pub fn head(&self, blocks: usize) -> Chain {
        Chain::of(self.contents[..blocks].to_vec())
    }

    pub fn followed_by(&self, blocks: usize, numbers: &mut Numbers) -> Chain {
        let mut contents = self.contents.clone();
        contents.extend((0..blocks).map(|_| numbers.draw()));
        Chain::of(contents)
    }

    /// Our own chained hashes.
    pub fn hashes(&self) -> Vec<u64> {
        chained(&self.contents, root())
    }
}

/// Seed of the one namespace that all prompts here are in.
pub fn root() -> u64 {
    namespace_seed(&NamespaceSpec::default())
}

fn chained(contents: &[u64], seed: u64) -> Vec<u64> {
    let mut hash = seed;
    contents
        .iter()
        .map(|&content| {
            hash = mix(hash, content);
            hash
        })
        .collect()
}

/// One replica stores one prompt: the blocks from `from` on, as it holds those before.
pub struct Store {
    pub replica: usize,
    pub chain: usize,
    pub from: usize,
}

/// A fleet of replicas, what they hold, and the prompts that are looked up.
pub struct Fleet {
    pub name: String,
    pub replicas: usize,
    pub chains: Vec<Chain>,
    pub stores: Vec<Store>,
    pub queries: Vec<Chain>,
}

impl Fleet {
    /// Pairs of a block and a replica that holds it.
    pub fn memberships(&self) -> usize {
        self.stores.iter().map(|store| self.chains[store.chain].len() - store.from).sum()
    }

    /// Blocks held by at least one replica.
    pub fn distinct(&self) -> usize {
        let names: HashSet<u64> = self.stores.iter().flat_map(|store| self.chains[store.chain].names.clone()).collect();
        names.len()
    }
}

/// What the prompts of a lookup case have to do with what is held.
#[derive(Clone, Copy)]
pub enum Asking {
    /// Held whole by every replica.
    HitAll,
    /// Held whole by one replica; all hold the system prompt.
    HitOne,
    /// Held, and 16 new blocks after it: the next turn of a conversation.
    NextTurn,
    /// Leaves a held prompt in its middle.
    Divergence,
    /// No block is held.
    Miss,
}

/// Shape of a fleet: `prompts` per replica, of which a quarter is held by all; all begin with one system prompt.
pub struct Shape {
    pub name: &'static str,
    pub replicas: usize,
    pub prompts: usize,
    pub blocks: usize,
}

/// 8 replicas x 18,700 blocks (300,000 tokens), prompts of 550 blocks (8,800 tokens).
pub const W1: Shape = Shape { name: "W1", replicas: 8, prompts: 34, blocks: 550 };
/// Prompts of 64 blocks (1,024 tokens).
pub const W2: Shape = Shape { name: "W2", replicas: 8, prompts: 292, blocks: 64 };
/// Prompts of 8,000 blocks (128,000 tokens).
pub const W3: Shape = Shape { name: "W3", replicas: 8, prompts: 4, blocks: 8_000 };
/// W1 on 64 replicas.
pub const W4_64: Shape = Shape { name: "W4-64", replicas: 64, prompts: 34, blocks: 550 };
/// W1 on 256 replicas.
pub const W4_256: Shape = Shape { name: "W4-256", replicas: 256, prompts: 34, blocks: 550 };

impl Shape {
    /// Blocks of the system prompt: an eighth of a prompt.
    fn system(&self) -> usize {
        (self.blocks / 8).max(1)
    }

    pub fn fleet(&self, asking: Asking, queries: usize) -> Fleet {
        let mut numbers = Numbers(self.blocks as u64);
        let system = Chain::random(self.system(), &mut numbers);
        let shared = self.prompts / 4;
        let own = self.prompts - shared;
        let conversations = shared + own * self.replicas;
        let tail = self.blocks - system.len();
        let chains: Vec<Chain> = (0..conversations).map(|_| system.followed_by(tail, &mut numbers)).collect();
        let mut stores = Vec::new();
        for round in 0..self.prompts {
            for replica in 0..self.replicas {
                let chain = if round < shared { round } else { shared + replica * own + round - shared };
                stores.push(Store { replica, chain, from: if round == 0 { 0 } else { system.len() } });
            }
        }
        let queries = (0..queries).map(|_| self.query(asking, &chains, shared, &mut numbers)).collect();
        Fleet { name: format!("{} {}", self.name, asking.name()), replicas: self.replicas, chains, stores, queries }
    }

    fn query(&self, asking: Asking, chains: &[Chain], shared: usize, numbers: &mut Numbers) -> Chain {
        let owned = &chains[shared + numbers.below(chains.len() - shared)];
        match asking {
            Asking::HitAll => chains[numbers.below(shared)].clone(),
            Asking::HitOne => owned.clone(),
            Asking::NextTurn => owned.followed_by(16, numbers),
            Asking::Divergence => {
                let middle = self.system() + numbers.below(self.blocks - self.system() - 1) + 1;
                owned.head(middle).followed_by(self.blocks - middle, numbers)
            }
            Asking::Miss => Chain::random(self.blocks, numbers),
        }
    }
}

impl Asking {
    pub fn name(self) -> &'static str {
        match self {
            Asking::HitAll => "hit, all replicas",
            Asking::HitOne => "hit, one replica",
            Asking::NextTurn => "hit + 16 new blocks",
            Asking::Divergence => "divergence inside",
            Asking::Miss => "miss",
        }
    }
}

/// 64 system prompts of 128 blocks x conversations of 300 more blocks, each at one replica: `conversations` = 16,384 makes
/// 4.9 million distinct blocks, larger than a last-level cache. `hot` limits the queries to so many conversations.
pub fn conversations(conversations: usize, hot: usize, queries: usize, replicas: usize) -> Fleet {
    let mut numbers = Numbers(conversations as u64);
    let systems: Vec<Chain> = (0..64).map(|_| Chain::random(128, &mut numbers)).collect();
    let chains: Vec<Chain> =
        (0..conversations).map(|i| systems[i % systems.len()].followed_by(300, &mut numbers)).collect();
    let mut started = HashSet::new();
    let stores = (0..conversations)
        .map(|chain| {
            let replica = numbers.below(replicas);
            let from = if started.insert((replica, chain % systems.len())) { 0 } else { 128 };
            Store { replica, chain, from }
        })
        .collect();
    let queries = (0..queries)
        .map(|_| {
            let chain = numbers.below(hot.min(conversations));
            chains[chain].followed_by(16, &mut numbers)
        })
        .collect();
    Fleet { name: String::new(), replicas, chains, stores, queries }
}

/// The dull oracle: leading blocks of the query that each replica holds.
pub struct Oracle {
    held: HashSet<(usize, u64)>,
    replicas: usize,
}

impl Oracle {
    pub fn of(fleet: &Fleet) -> Self {
        let held = fleet
            .stores
            .iter()
            .flat_map(|store| fleet.chains[store.chain].hashes().into_iter().map(|hash| (store.replica, hash)))
            .collect();
        Oracle { held, replicas: fleet.replicas }
    }

    pub fn answer(&self, query: &Chain) -> Vec<u32> {
        let hashes = query.hashes();
        let leading = |replica: usize| hashes.iter().take_while(|&&hash| self.held.contains(&(replica, hash))).count();
        (0..self.replicas).map(|replica| leading(replica) as u32).collect()
    }
}
