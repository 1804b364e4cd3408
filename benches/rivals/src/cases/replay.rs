//! The public Mooncake conversation trace through the index: each request is looked up, what its replica had not yet is
//! stored, what that pushes out is removed. The stream of operations is worked out before, by one LRU cache per replica, and
//! is the same for all. A block operation is a requested, stored or removed block; processor time counts until the last one is
//! applied, queues drained.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use super::{Task, each_native};
use crate::contender::Contender;
use crate::report::{Figure, Row};
use crate::timing::{median, processor_time};
use crate::workload::{Chain, Numbers};

const TRACE: &str = "mooncake_conversation.jsonl.gz";
const TRACE_BLOCK: usize = 512;
const REPLICAS: usize = 8;
/// Blocks of 512 tokens that a replica holds: 2 million tokens.
const CAPACITY: usize = 4_096;

pub fn mooncake(task: &Task, emit: &mut dyn FnMut(Row)) {
    let path = folder().join(TRACE);
    let prompts = match read(&path) {
        Ok(prompts) => prompts,
        Err(error) => {
            eprintln!("skipped: {}: {error} (PREFIXROUTE_TRACES names the folder)", path.display());
            return;
        }
    };
    // x1 = the trace's own blocks of 512 tokens; x32 = the same tokens in blocks of 16.
    for split in [1, 32] {
        let operations = operations(&prompts, split);
        let total: usize = operations.iter().map(Operation::blocks).sum();
        if split == 1 {
            each_native!(task.contender, verify(&operations));
        }
        let speed = |ns: f64| total as f64 * 1e3 / ns;
        let spent = (0..task.effort.builds).filter_map(|_| each_native!(task.contender, replay(&operations)));
        let speeds: Vec<f64> = spent.map(speed).collect();
        let what = format!("replay, mooncake_conversation x{split}, {total} block operations, queues drained");
        let figures = vec![Figure::plain(task.contender, median(speeds))];
        emit(Row { what, unit: "M block operations / s of one core".into(), figures, more_is_better: true });
    }
}

fn folder() -> PathBuf {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    std::env::var_os("PREFIXROUTE_TRACES").map_or(beside, PathBuf::from)
}

/// Ids of the full blocks of every request.
fn read(path: &Path) -> Result<Vec<Vec<u64>>, Box<dyn std::error::Error>> {
    let mut prompts = Vec::new();
    for line in BufReader::new(GzDecoder::new(File::open(path)?)).lines() {
        let request: serde_json::Value = serde_json::from_str(&line?)?;
        let full = request["input_length"].as_u64().ok_or("no input_length")? as usize / TRACE_BLOCK;
        let ids = request["hash_ids"].as_array().ok_or("no hash_ids")?;
        prompts.push(ids.iter().take(full).filter_map(serde_json::Value::as_u64).collect());
    }
    Ok(prompts)
}

enum Operation {
    /// `held` leading blocks lie at the replica that the request goes to.
    Query {
        chain: Chain,
        replica: usize,
        held: usize,
    },
    Stored {
        replica: usize,
        chain: Chain,
        from: usize,
    },
    Removed {
        replica: usize,
        names: Vec<u64>,
    },
}

impl Operation {
    fn blocks(&self) -> usize {
        match self {
            Operation::Query { chain, .. } => chain.len(),
            Operation::Stored { chain, from, .. } => chain.len() - from,
            Operation::Removed { names, .. } => names.len(),
        }
    }
}

/// What one replica holds; the least recently used goes first, and of one prompt the tail before the head.
#[derive(Default)]
struct Cache {
    stamps: HashMap<u64, (usize, usize)>,
    order: BTreeSet<(usize, usize, u64)>,
}

impl Cache {
    fn touch(&mut self, turn: usize, depth: usize, name: u64) {
        let stamp = (turn, usize::MAX - depth);
        if let Some(before) = self.stamps.insert(name, stamp) {
            self.order.remove(&(before.0, before.1, name));
        }
        self.order.insert((stamp.0, stamp.1, name));
    }

    fn evict(&mut self, capacity: usize) -> Vec<u64> {
        let over = self.stamps.len().saturating_sub(capacity);
        (0..over)
            .map_while(|_| self.order.pop_first())
            .map(|(_, _, name)| {
                self.stamps.remove(&name);
                name
            })
            .collect()
    }
}

fn operations(prompts: &[Vec<u64>], split: usize) -> Vec<Operation> {
    let mut caches: Vec<Cache> = (0..REPLICAS).map(|_| Cache::default()).collect();
    let mut operations = Vec::new();
    for (turn, ids) in prompts.iter().enumerate().filter(|(_, ids)| !ids.is_empty()) {
        let contents = ids.iter().flat_map(|id| (0..split as u64).map(move |part| Numbers(id * 64 + part).draw()));
        let chain = Chain::of(contents.collect());
        // All prompts share block 0: what follows it names the conversation.
        let replica = Numbers(ids[ids.len().min(2) - 1]).below(REPLICAS);
        let cache = &mut caches[replica];
        let from = chain.names.iter().take_while(|name| cache.stamps.contains_key(name)).count();
        for (depth, &name) in chain.names.iter().enumerate() {
            cache.touch(turn, depth, name);
        }
        let names = cache.evict(CAPACITY * split);
        operations.push(Operation::Query { chain: chain.clone(), replica, held: from });
        if from < chain.len() {
            operations.push(Operation::Stored { replica, chain, from });
        }
        if !names.is_empty() {
            operations.push(Operation::Removed { replica, names });
        }
    }
    operations
}

enum Prepared<C: Contender> {
    Query(C::Query),
    Event(C::Event),
}

fn prepare<C: Contender>(operation: &Operation) -> Prepared<C> {
    match operation {
        Operation::Query { chain, .. } => Prepared::Query(C::query(chain)),
        Operation::Stored { replica, chain, from } => {
            Prepared::Event(C::stored(*replica, chain.parent(*from), chain.from(*from)))
        }
        Operation::Removed { replica, names } => Prepared::Event(C::removed(*replica, names)),
    }
}

/// Every answer for the replica that the request goes to, compared with the cache that made the stream.
fn verify<C: Contender>(operations: &[Operation]) {
    let index = C::with_replicas(REPLICAS);
    let mut out = vec![0; REPLICAS];
    for operation in operations {
        match (operation, prepare::<C>(operation)) {
            (Operation::Query { chain, replica, held }, _) => {
                index.finish();
                index.answer(chain, &mut out);
                assert_eq!(out[*replica] as usize, *held, "{} answers wrongly in the replay", C::NAME);
            }
            (_, Prepared::Event(mut event)) => index.apply(&mut event),
            (_, Prepared::Query(_)) => unreachable!("only a query is prepared as one"),
        }
    }
}

/// Processor time in nanoseconds.
fn replay<C: Contender>(operations: &[Operation]) -> f64 {
    let mut prepared: Vec<Prepared<C>> = operations.iter().map(prepare).collect();
    let index = C::with_replicas(REPLICAS);
    let mut out = vec![0; REPLICAS];
    processor_time(|| {
        for operation in &mut prepared {
            match operation {
                Prepared::Query(query) => index.lookup(query, &mut out),
                Prepared::Event(event) => index.apply(event),
            }
        }
        index.finish();
    })
}
