//! The hot paths of the index on fixed inputs, for counting instructions: `hot_paths PATH` prepares outside of `counted`
//! and works inside of it. `benches/instructions.py` runs each under callgrind and holds the counts to their budgets.

#![expect(clippy::unwrap_used, reason = "inputs are fixed; what cannot be made of them is a bug of this file")]

use std::hint::black_box;
use std::process::ExitCode;

use prefixroute_core::hash::{NamespaceSpec, content_hash, hash_tokens, namespace_seed};
use prefixroute_core::{BlockHash, Config, Contents, EngineHash, Index, Medium, Slot, StoredEvent};

/// W1 of the design: 8 replicas x 34 prompts of 550 blocks (8,800 tokens), a system prompt of 68 blocks before all.
const REPLICAS: u16 = 8;
const PROMPTS: u32 = 34;
const BLOCKS: u32 = 550;
const SYSTEM: u32 = 68;
const BLOCK_SIZE: usize = 16;
/// Times that `counted` does a lookup.
const REPEATS: u32 = 64;

type Path = (&'static str, fn());

const PATHS: [Path; 14] = [
    ("hash-8800-tokens", hash),
    ("match-hit", || lookup(REPLICAS, |i| prompt(i % PROMPTS, BLOCKS))),
    ("match-hit-256-replicas", || lookup(256, |i| prompt(i % PROMPTS, BLOCKS))),
    ("match-divergence", || lookup(REPLICAS, |i| diverging(i, SYSTEM + 7 * i))),
    ("match-miss", || lookup(REPLICAS, |i| diverging(i, 0))),
    ("match-tokens", match_tokens),
    ("insert-new", || insert(None, 0)),
    ("insert-touch", touch),
    ("insert-evict", || insert(Some(u64::from(4 * BLOCKS)), 8)),
    ("stored-new", stored_new),
    ("stored-by-second-replica", stored_again),
    ("stored-one-block", stored_one_by_one),
    ("removed", removed),
    ("hole-and-refill", hole_and_refill),
];

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1);
    if let Some((_, run)) = PATHS.iter().find(|(name, _)| Some(*name) == wanted.as_deref()) {
        run();
        return ExitCode::SUCCESS;
    }
    // Without a path: their names, for the script.
    for (name, _) in PATHS {
        println!("{name}");
    }
    if wanted.is_none() { ExitCode::SUCCESS } else { ExitCode::from(2) }
}

/// All that is counted happens in here.
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    work();
}

fn tokens(conversation: u32, blocks: u32) -> Vec<u32> {
    let token = |at: u32| {
        let of = if at / 16 < SYSTEM { u32::MAX } else { conversation };
        (of.wrapping_mul(0x9E37_79B9) ^ at).wrapping_mul(0x85EB_CA6B) >> 15
    };
    (0..16 * blocks).map(token).collect()
}

fn prompt(conversation: u32, blocks: u32) -> Vec<BlockHash> {
    hashed(&tokens(conversation, blocks))
}

fn hashed(tokens: &[u32]) -> Vec<BlockHash> {
    let mut hashes = Vec::new();
    hash_tokens(tokens, BLOCK_SIZE, seed(), &[], &mut hashes).unwrap();
    hashes
}

/// A held prompt that nobody holds from block `at` on.
fn diverging(conversation: u32, at: u32) -> Vec<BlockHash> {
    let mut tokens = tokens(conversation % PROMPTS, BLOCKS);
    tokens[16 * at as usize] += 1;
    hashed(&tokens)
}

fn seed() -> u64 {
    namespace_seed(&NamespaceSpec::default())
}

fn open(replicas: u16, capacity_blocks: Option<u64>) -> Index {
    let config = Config { block_size: BLOCK_SIZE, capacity_blocks, ..Config::default() };
    let index = Index::with_table_key(config, 0x5DEE_CE66_D1CE_4E5B).unwrap();
    for replica in 0..replicas {
        index.add_replica(&replica.to_string(), None).unwrap();
    }
    index
}

/// Every replica believes every prompt held.
fn full(replicas: u16) -> Index {
    let index = open(replicas, None);
    for conversation in 0..PROMPTS {
        let hashes = prompt(conversation, BLOCKS);
        for slot in 0..replicas {
            index.insert(Slot(slot), &hashes, 0.0).unwrap();
        }
    }
    index
}

fn hash() {
    let tokens = tokens(1, BLOCKS);
    let mut hashes = Vec::with_capacity(BLOCKS as usize);
    counted(&mut || hash_tokens(black_box(&tokens), BLOCK_SIZE, 1, &[], &mut hashes).unwrap());
}

fn lookup(replicas: u16, query: impl Fn(u32) -> Vec<BlockHash>) {
    let index = full(replicas);
    let queries: Vec<_> = (0..REPEATS).map(query).collect();
    let mut out = vec![0; replicas as usize];
    counted(&mut || {
        for query in &queries {
            index.match_blocks(query, black_box(&mut out));
        }
    });
}

fn match_tokens() {
    let index = full(REPLICAS);
    let mut query = tokens(3, BLOCKS);
    query[16 * 64] += 1;
    let mut out = vec![0; REPLICAS as usize];
    counted(&mut || {
        index.match_tokens(&query, seed(), &[], black_box(&mut out)).unwrap();
    });
}

/// Prompts that nobody holds but for their system prompt, to one replica that has room for `capacity` blocks and had
/// `before` other prompts.
fn insert(capacity: Option<u64>, before: u32) {
    let index = open(REPLICAS, capacity);
    for conversation in 0..=before {
        index.insert(Slot(0), &prompt(1_000 + conversation, BLOCKS), 0.0).unwrap();
    }
    let prompts: Vec<_> = (0..PROMPTS).map(|conversation| prompt(conversation, BLOCKS)).collect();
    counted(&mut || {
        for prompt in &prompts {
            index.insert(Slot(0), prompt, 0.0).unwrap();
        }
    });
}

fn touch() {
    let index = full(REPLICAS);
    let prompts: Vec<_> = (0..PROMPTS).map(|conversation| prompt(conversation, BLOCKS)).collect();
    counted(&mut || {
        for prompt in &prompts {
            index.insert(Slot(3), prompt, 1.0).unwrap();
        }
    });
}

/// What an engine says of a prompt: its own names, which are chained as well, and the contents.
struct Event {
    names: Vec<EngineHash>,
    contents: Vec<u64>,
}

fn events() -> Vec<Event> {
    let event = |conversation| {
        let tokens = tokens(conversation, BLOCKS);
        let names = hashed(&tokens).into_iter().map(|hash| EngineHash(hash.0 ^ 0x2A)).collect();
        Event { names, contents: tokens.chunks_exact(BLOCK_SIZE).map(content_hash).collect() }
    };
    (0..PROMPTS).map(event).collect()
}

/// Blocks `from..` of each prompt; those before are held already.
fn store(index: &Index, slot: Slot, events: &[Event], first: bool) {
    for (at, event) in events.iter().enumerate() {
        let from = if first && at == 0 { 0 } else { SYSTEM as usize };
        let parent = from.checked_sub(1).map(|before| event.names[before]);
        let (engine, contents) = (&event.names[from..], &event.contents[from..]);
        let event =
            StoredEvent { engine, parent, contents: Contents::Blocks(contents), seed: seed(), medium: Medium::Gpu };
        index.stored(slot, &event, 0.0).unwrap();
    }
}

fn stored_new() {
    let (index, events) = (open(REPLICAS, None), events());
    counted(&mut || store(&index, Slot(0), &events, true));
}

fn stored_again() {
    let (index, events) = (open(REPLICAS, None), events());
    store(&index, Slot(0), &events, true);
    counted(&mut || store(&index, Slot(1), &events, true));
}

/// A replica that decodes: each block is an event of its own.
fn stored_one_by_one() {
    let (index, events) = (open(REPLICAS, None), events());
    counted(&mut || {
        let event = &events[0];
        for at in 0..event.names.len() {
            let parent = at.checked_sub(1).map(|before| event.names[before]);
            let (engine, contents) = (&event.names[at..=at], &event.contents[at..=at]);
            let event =
                StoredEvent { engine, parent, contents: Contents::Blocks(contents), seed: seed(), medium: Medium::Gpu };
            index.stored(Slot(0), &event, 0.0).unwrap();
        }
    });
}

fn removed() {
    let (index, events) = (open(REPLICAS, None), events());
    store(&index, Slot(0), &events, true);
    counted(&mut || {
        for event in &events {
            index.removed(Slot(0), &event.names[SYSTEM as usize..], Medium::Gpu).unwrap();
        }
    });
}

/// A block in the middle goes and comes back: two splits, a removal, a store and two joins.
fn hole_and_refill() {
    let (index, events) = (open(REPLICAS, None), events());
    store(&index, Slot(0), &events, true);
    counted(&mut || {
        for Event { names, contents } in &events {
            let (at, parent) = (SYSTEM as usize + 200, Some(names[SYSTEM as usize + 199]));
            index.removed(Slot(0), &names[at..=at], Medium::Gpu).unwrap();
            let contents = Contents::Blocks(&contents[at..=at]);
            let event = StoredEvent { engine: &names[at..=at], parent, contents, seed: seed(), medium: Medium::Gpu };
            index.stored(Slot(0), &event, 0.0).unwrap();
        }
    });
}
