//! `max_bytes`, measured: what the allocator gives out in an index's calls stays within the bound, whatever comes.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]
#![expect(unsafe_code, reason = "an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prefixroute_core::hash::{NamespaceSpec, hash_tokens, mix, namespace_seed};
use prefixroute_core::testing::history::Choices;
use prefixroute_core::testing::payloads::{StoreForm, batch, removal};
use prefixroute_core::{BlockHash, Config, EngineHash, Error, Group, GroupKind, Index, Residence, StoreEvent};

struct Counting;

static GIVEN: AtomicU64 = AtomicU64::new(0);
static BACK: AtomicU64 = AtomicU64::new(0);

/// Bytes that `work` takes and does not give back, and what it gives.
fn counted<R>(work: impl FnOnce() -> R) -> (u64, u64, R) {
    let (given, back) = (GIVEN.load(Relaxed), BACK.load(Relaxed));
    let done = work();
    (GIVEN.load(Relaxed) - given, BACK.load(Relaxed) - back, done)
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BACK.fetch_add(layout.size() as u64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// An index and the bytes that its calls have taken and not given back.
struct Measured {
    index: Index,
    taken: u64,
    most: u64,
}

const REPLICAS: u16 = 6;
const MEDIA: [&str; 5] = ["GPU", "cpu", "DISK", "EXTERNAL", "tape"];

impl Measured {
    fn new(most: u64) -> Self {
        let config = Config { max_bytes: Some(most), block_size: 4, capacity_blocks: Some(4_000), ..Config::default() };
        let (given, back, index) = counted(|| Index::with_table_key(config, 7).expect("a valid config"));
        Measured { taken: given - back, index, most }
    }

    /// What a call gives back is dropped before it counts.
    fn call<R>(&mut self, what: &str, work: impl FnOnce(&Index) -> R) {
        let (given, back, ()) = counted(|| drop(work(&self.index)));
        self.taken = self.taken + given - back;
        self.check(what);
    }

    fn check(&self, what: &str) {
        let taken = self.taken + self.index.mapped_bytes() as u64;
        let reserved = self.index.stats().reserved_bytes;
        assert!(taken <= reserved, "{what}: {taken} bytes are taken, {reserved} said");
        assert!(reserved <= self.most, "{what}: {reserved} bytes of {}", self.most);
    }

    /// The index that was saved takes the place of this one.
    fn load(&mut self) {
        let bytes = self.index.to_bytes();
        let (given, back, again) = counted(|| Index::from_bytes(&bytes).expect("it was saved"));
        (self.taken, self.index) = (given - back, again);
        self.check("loading");
    }
}

fn prompt(choices: &mut Choices<'_>) -> Vec<u32> {
    let (family, len) = (u32::from(choices.below(6)), u32::from(choices.below(200)) + 1);
    let (fork, branch) = (u32::from(choices.below(200)), u32::from(choices.below(250)));
    (0..len).map(|at| if at < fork { family * 1_000 + at } else { 100_000 + branch * 1_000 + at }).collect()
}

fn names_of(tokens: &[u32], size: usize) -> Vec<EngineHash> {
    let mut name = 5;
    let step = |block: &[u32]| {
        name = block.iter().fold(name, |name, &token| mix(name, u64::from(token)));
        EngineHash(name)
    };
    tokens.chunks_exact(size).map(step).collect()
}

fn step(measured: &mut Measured, choices: &mut Choices<'_>) {
    let base = NamespaceSpec::default();
    let kind = choices.below(24);
    let name = choices.below(REPLICAS).to_string();
    let tokens = prompt(choices);
    let mut hashes: Vec<BlockHash> = Vec::new();
    hash_tokens(&tokens, 4, namespace_seed(&base), &[], &mut hashes).expect("a valid size");
    let size = [4, 4, 4, 1, 2, 8, 3][usize::from(choices.below(7))];
    let names = names_of(&tokens, size);
    let medium = MEDIA[usize::from(choices.below(12)).saturating_sub(7)];
    let (from, sequence) = (usize::from(choices.below(8)), u64::from(choices.below(200)));
    let from = if from > 4 && names.len() > from { from } else { 0 };
    match kind {
        0..=9 if from < names.len() => {
            let form = StoreForm {
                names: &names[from..],
                parent: from.checked_sub(1).map(|before| names[before]),
                tokens: &tokens[from * size..names.len() * size],
                block_size: size,
                medium,
                form: 0,
                is_array: false,
            };
            let payload = batch(&[form.packed()]);
            let sequence = (kind == 0).then_some(sequence);
            measured.call("store", |index| index.apply(&*name, &payload, &base, sequence, 0.0).map(drop));
        }
        10 | 11 => {
            let window = Group { index: 1 + u32::from(kind - 10), kind: Some(GroupKind::Sliding(16)) };
            let (residence, _) = Residence::of(Some(medium.as_bytes()), (kind == 10).then_some(b"owner"));
            let event = StoreEvent {
                names: &names,
                parent: None,
                tokens: &tokens[..names.len() * size],
                keys: &[],
                block_size: size,
                seed: namespace_seed(&base),
                residence,
                group: window,
            };
            measured.call("window", |index| index.store(&*name, &event, 0.0).map(drop));
        }
        12..=15 => {
            let some: Vec<EngineHash> = names.iter().copied().skip(from).step_by(1 + from % 3).collect();
            let payload = batch(&[removal(&some, medium, 0, false)]);
            measured.call("removal", |index| index.apply(&*name, &payload, &base, None, 0.0).map(drop));
        }
        16..=19 => measured.call("insert", |index| index.insert(&*name, &hashes, 0.0).map(drop)),
        20 => {
            measured.call("touch", |index| index.touch(&*name, &hashes, 0.0).map(drop));
            measured.call("pin", |index| index.pin(&*name, &hashes).map(drop));
        }
        21 => measured.call("unpin", |index| index.unpin(&*name, &hashes)),
        22 if sequence < 8 => {
            measured.call("clear", |index| index.clear(&*name));
            measured.load();
        }
        23 if sequence < 20 => {
            let long = format!("{sequence}{}", "x".repeat(sequence as usize * 50));
            measured.call("addition", |index| index.add_replica(&long, None).map(drop));
            measured.call("departure", |index| index.remove_replica(&*long));
        }
        _ => {}
    }
}

#[test]
fn the_bound_holds_for_all_that_is_allocated() {
    for (most, steps) in [(12_000, 300), (24_000, 600), (60_000, 1_000), (250_000, 2_500), (1_000_000, 5_000)] {
        for seed in 0..2 {
            let mut measured = Measured::new(most);
            for name in 0..REPLICAS {
                measured.call("replica", |index| {
                    let added = index.add_replica(&name.to_string(), None);
                    assert!(matches!(added, Ok(_) | Err(Error::Budget { .. })), "{added:?}");
                });
            }
            for at in 0..steps {
                let bytes: Vec<u8> = (0..12).map(|byte| mix(mix(seed, at), byte) as u8).collect();
                step(&mut measured, &mut Choices::new(&bytes));
                if at % 500 == 0 {
                    measured.index.validate().expect("every invariant holds");
                }
            }
            let stats = measured.index.stats();
            measured.index.validate().expect("every invariant holds");
            // Maps double: what is left is less than the next step.
            let used = stats.reserved_bytes * 2 >= most;
            assert!(used && stats.dropped > 0, "the stream fills the bound of {most}: {stats:?}");
        }
    }
}
