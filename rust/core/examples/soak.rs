//! Long runs of the event path, in minutes: `soak events [MILLIONS]` applies a fleet's event stream as bytes and shows that memory
//! is flat; `soak decode [MILLIONS]` applies altered batches and shows that none panics or breaks the index.
//! `cargo run --release -p prefixroute-core --features testing --example soak -- events 100`

#![expect(clippy::unwrap_used, reason = "a soak fails by panicking")]

use std::process::ExitCode;
use std::time::Instant;

use prefixroute_core::hash::{NamespaceSpec, mix, namespace_seed};
use prefixroute_core::testing::payloads::{Packed, StoreForm, batch, removal};
use prefixroute_core::{Config, EngineHash, Index, Slot};

const BLOCK_SIZE: usize = 16;
const REPLICAS: u64 = 8;
/// Blocks that an engine's cache holds: 300,000 tokens and a little more.
const CAPACITY: usize = 20_000;
/// As random as that of an index in use, and the same in each run.
const TABLE_KEY: u64 = 0x5DEE_CE66_D1CE_4E5B;
/// Events of a batch.
const BATCH: usize = 32;
/// Parts of a run after which memory is read.
const PARTS: u64 = 10;
/// Children of a block that differ in content.
const BRANCHES: u64 = 8;
/// Longest chain, in blocks.
const DEEPEST: u32 = 200;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let millions = words.get(1).map_or(Ok(10), |word| word.parse::<u64>());
    match (words.first().map(String::as_str), millions) {
        (Some("events"), Ok(millions)) => events(millions * 1_000_000),
        (Some("decode"), Ok(millions)) => decode(millions * 1_000_000),
        _ => {
            eprintln!("usage: soak events|decode [MILLIONS]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

/// A stream of numbers that repeats.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(0x5EED, self.0) % limit
    }
}

/// A block that an engine holds.
#[derive(Clone, Copy)]
struct Node {
    name: EngineHash,
    parent: Option<usize>,
    /// Which child of its parent it is: its content.
    branch: u64,
    depth: u32,
    /// Children that are held, by branch, as bits.
    children: u64,
}

/// An engine's cache: blocks at the end of chains are stored and evicted, so that a prefix outlives what follows it.
struct Engine {
    nodes: Vec<Node>,
    /// Places of nodes that are no more.
    free: Vec<usize>,
    /// Nodes that are held, in any order.
    held: Vec<usize>,
    first: u64,
    number: u64,
    named: u64,
}

fn tokens_of(node: &Node) -> [u32; BLOCK_SIZE] {
    std::array::from_fn(|at| (u64::from(node.depth) * BRANCHES + node.branch) as u32 * 31 + at as u32)
}

impl Engine {
    fn new(number: u64) -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), held: Vec::new(), first: 0, number, named: 0 }
    }

    /// Add a block behind one that is held, or at the start of a prompt; `None` if that is held already.
    fn store(&mut self, draw: &mut Draw) -> Option<Packed> {
        let start = self.held.is_empty() || draw.below(64) == 0;
        let parent = if start { None } else { Some(self.held[draw.below(self.held.len() as u64) as usize]) };
        let branch = draw.below(BRANCHES);
        let above = parent.map(|at| self.nodes[at]);
        let children = above.map_or(self.first, |node| node.children);
        let depth = above.map_or(0, |node| node.depth + 1);
        if children >> branch & 1 == 1 || depth >= DEEPEST {
            return None;
        }
        *parent.map_or(&mut self.first, |at| &mut self.nodes[at].children) |= 1 << branch;
        self.named += 1;
        let node = Node { name: EngineHash(mix(self.number, self.named)), parent, branch, depth, children: 0 };
        let place = self.free.pop().unwrap_or(self.nodes.len());
        if place == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[place] = node;
        }
        self.held.push(place);
        let event = StoreForm {
            names: &[node.name],
            parent: above.map(|node| node.name),
            tokens: &tokens_of(&node),
            block_size: BLOCK_SIZE,
            medium: "GPU",
            form: (self.named % 3) as u16,
            is_array: self.named % 2 == 0,
        };
        Some(event.packed())
    }

    /// Evict a block that has nothing behind it; `None` if the one drawn has.
    fn evict(&mut self, draw: &mut Draw) -> Option<Packed> {
        let at = draw.below(self.held.len() as u64) as usize;
        let place = self.held[at];
        let node = self.nodes[place];
        if node.children != 0 {
            return None;
        }
        self.held.swap_remove(at);
        self.free.push(place);
        *node.parent.map_or(&mut self.first, |at| &mut self.nodes[at].children) &= !(1 << node.branch);
        Some(removal(&[node.name], "GPU", 0, draw.below(2) == 0))
    }

    fn event(&mut self, draw: &mut Draw) -> Packed {
        loop {
            let event = if self.held.len() > CAPACITY { self.evict(draw) } else { self.store(draw) };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// The tokens of a prompt that is held whole.
    fn prompt(&self, draw: &mut Draw) -> Vec<u32> {
        let mut blocks = Vec::new();
        let mut next = Some(self.held[draw.below(self.held.len() as u64) as usize]);
        while let Some(at) = next {
            blocks.push(tokens_of(&self.nodes[at]));
            next = self.nodes[at].parent;
        }
        blocks.iter().rev().flatten().copied().collect()
    }
}

/// Megabytes that this process has in memory.
fn resident_mb() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: f64 = statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    pages * 4096.0 / 1e6
}

fn events(total: u64) {
    let config = Config { block_size: BLOCK_SIZE, ..Config::default() };
    let index = Index::with_table_key(config, TABLE_KEY).unwrap();
    let slots: Vec<Slot> =
        (0..REPLICAS).map(|number| index.add_replica(&format!("replica-{number}"), None).unwrap()).collect();
    let mut engines: Vec<Engine> = (0..REPLICAS).map(Engine::new).collect();
    let (base, mut draw, mut numbers) = (NamespaceSpec::default(), Draw(1), [0; REPLICAS as usize]);
    let begun = Instant::now();
    println!("{:>12} {:>9} {:>10} {:>10} {:>9} {:>9}", "events", "seconds", "held", "in index", "MB", "matched");
    let (mut done, mut checked) = (0, 0_u64);
    for part in 1..=PARTS {
        while done < total * part / PARTS {
            let replica = draw.below(REPLICAS) as usize;
            let told: Vec<Packed> = (0..BATCH).map(|_| engines[replica].event(&mut draw)).collect();
            let applied = index.apply(slots[replica], &batch(&told), &base, Some(numbers[replica]), 0.0).unwrap();
            numbers[replica] += 1;
            done += BATCH as u64;
            assert_eq!(applied.refused + applied.stored.orphaned as usize + applied.removed.unknown as usize, 0);
            if numbers[replica] % 1_024 == 0 {
                check(&index, &slots, &engines[replica], replica, &mut draw);
                checked += 1;
            }
        }
        let held: usize = engines.iter().map(|engine| engine.held.len()).sum();
        let stats = index.stats();
        assert_eq!(stats.memberships, held as u64, "the index holds what the engines hold");
        let seconds = begun.elapsed().as_secs_f64();
        println!("{done:>12} {seconds:>9.1} {held:>10} {:>10} {:>9.1} {checked:>9}", stats.memberships, resident_mb());
    }
    index.validate().unwrap();
}

/// A prompt that an engine holds matches there to its end.
fn check(index: &Index, slots: &[Slot], engine: &Engine, replica: usize, draw: &mut Draw) {
    let prompt = engine.prompt(draw);
    let mut out = vec![0; slots.len()];
    index.match_tokens(&prompt, namespace_seed(&NamespaceSpec::default()), &[], &mut out).unwrap();
    assert_eq!(out[slots[replica].index()] as usize, prompt.len());
}

/// Batches of a small engine, each altered: a byte, a stretch, the end.
fn decode(total: u64) {
    let base = NamespaceSpec::default();
    let (mut draw, begun) = (Draw(2), Instant::now());
    let (mut done, mut whole, mut refused, mut failed) = (0_u64, 0_u64, 0_u64, 0_u64);
    while done < total {
        let index = Index::with_table_key(Config { block_size: BLOCK_SIZE, ..Config::default() }, TABLE_KEY).unwrap();
        let slot = index.add_replica("a", None).unwrap();
        let mut engine = Engine::new(0);
        for number in 0..1_000 {
            let told: Vec<Packed> = (0..=draw.below(4)).map(|_| engine.event(&mut draw)).collect();
            let bytes = altered(batch(&told), &mut draw);
            match index.apply(slot, &bytes, &base, Some(number), 0.0) {
                Ok(applied) if applied.refused == 0 => whole += 1,
                Ok(_) => refused += 1,
                Err(_) => failed += 1,
            }
            done += 1;
        }
        index.validate().unwrap();
        if done % (total / PARTS).max(1) < 1_000 {
            let seconds = begun.elapsed().as_secs_f64();
            println!(
                "{done} batches in {seconds:.1} s: {whole} applied whole, {refused} with an event refused, {failed} refused; \
                 {:.1} MB",
                resident_mb()
            );
        }
    }
}

fn altered(mut bytes: Vec<u8>, draw: &mut Draw) -> Vec<u8> {
    for _ in 0..=draw.below(3) {
        let at = draw.below(bytes.len() as u64) as usize;
        match draw.below(8) {
            0 => bytes.truncate(at.max(1)),
            1 => {
                let end = (at + 1 + draw.below(16) as usize).min(bytes.len());
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            // Heads of arrays, maps and texts with lengths that are not true.
            2 => bytes[at] = [0xC0, 0xC6, 0xDB, 0xDD, 0xDF, 0xCF, 0xD3, 0x90][draw.below(8) as usize],
            3 => bytes[at] ^= 1 << draw.below(8),
            _ => bytes[at] = draw.below(256) as u8,
        }
    }
    bytes
}
