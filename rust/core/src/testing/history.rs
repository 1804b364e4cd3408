//! Random histories from bytes: every call of an index with prompts that share, part, grow and come back, against the twin.
//! Property tests and fuzz targets share it.

use super::{Prompt, Twin};
use crate::{BlockHash, Config, Contents, EngineHash, Index, Inserted, MAX_REPLICAS, Medium, Slot, StoredEvent};

/// Replicas that a history uses: side by side, or so far apart that coverage takes three words.
const LAYOUTS: [[Slot; 3]; 2] = [[Slot(0), Slot(1), Slot(2)], [Slot(0), Slot(70), Slot(129)]];
/// Blocks of a prompt at most.
const LONGEST: u16 = 24;

/// A source of choices: bytes, and zeros behind their end.
#[derive(Clone, Debug)]
pub struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    /// Choices from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Choices { bytes }
    }

    /// Whether any byte is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// A number below `limit`, which is 1..=256.
    pub fn below(&mut self, limit: u16) -> u16 {
        let Some((&byte, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        u16::from(byte) % limit
    }
}

/// A prompt of at most so many blocks. There are few families and few places where prompts part, so that they share, nest and
/// branch.
pub(super) fn pick(choices: &mut Choices<'_>, longest: u16) -> Prompt {
    let family = u64::from(choices.below(2));
    let (len, fork, branch) = (choices.below(longest) + 1, choices.below(longest), u64::from(choices.below(3)));
    Prompt::new((0..len).map(|at| if at < fork { 1 + family } else { 10 + branch }))
}

/// How engines name blocks in a history.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Naming {
    /// All alike.
    Shared,
    /// Each replica in its own way.
    Own,
    /// Two names for each block: every call goes by one of them.
    Twofold,
    /// One name for several blocks; stores begin at block 0, so a parent's name never leads to another prompt.
    Clashing,
    /// The same, and stores begin anywhere: a replica may give one block two names. Only the invariants are promised then.
    Wild,
    /// Hashes that are no chains, as a caller may make up. Only the invariants are promised then.
    Unchained,
}

impl Naming {
    /// The name by which a call of a replica speaks of a block; `second` is the choice where there are two.
    fn name(self, slot: Slot, block: BlockHash, second: bool) -> EngineHash {
        EngineHash(match self {
            Naming::Shared => block.0.rotate_left(7),
            Naming::Twofold => block.0 ^ u64::from(second),
            Naming::Own => block.0 ^ u64::from(slot.0),
            Naming::Clashing | Naming::Wild | Naming::Unchained => block.0 % 61,
        })
    }
}

/// An index and its twin that live through the same history.
#[derive(Debug)]
pub struct History {
    index: Index,
    twin: Twin,
    naming: Naming,
    slots: [Slot; 3],
    now: f64,
    inserted: Vec<(Slot, Prompt, Inserted)>,
    pinned: Vec<(Slot, Vec<BlockHash>)>,
}

/// Runs the history that these bytes describe; what differed, or which invariant broke.
///
/// # Errors
///
/// What differs, or the invariant that broke.
pub fn run(bytes: &[u8]) -> Result<(), String> {
    let mut choices = Choices::new(bytes);
    let mut history = History::new(&mut choices)?;
    let mut steps = 0;
    while !choices.is_empty() {
        let what = history.step(&mut choices)?;
        steps += 1;
        history.compare(&mut choices.clone()).map_err(|why| format!("step {steps}, {what}: {why}"))?;
    }
    history.empty()
}

/// The saved index after the history that these bytes describe.
///
/// # Errors
///
/// What differs, or the invariant that broke.
pub fn saved(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut choices = Choices::new(bytes);
    let mut history = History::new(&mut choices)?;
    while !choices.is_empty() {
        history.step(&mut choices)?;
    }
    Ok(history.index.to_bytes())
}

/// The first replica of a history reports reuse, the others count copies.
fn is_reporting(slot: Slot) -> bool {
    slot.0 == 0
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, engine: &T, twin: &T) -> Result<(), String> {
    if engine == twin { Ok(()) } else { Err(format!("{what}: engine {engine:?}, twin {twin:?}")) }
}

impl History {
    fn new(choices: &mut Choices<'_>) -> Result<Self, String> {
        let capacity = choices.below(40);
        let config = Config {
            capacity_blocks: (capacity > 0).then_some(u64::from(capacity)),
            ttl: (choices.below(3) == 0).then_some(5.0),
            provisional: (choices.below(3) > 0).then_some(2.0),
            orphan_blocks: usize::from(choices.below(32)),
            ..Config::default()
        };
        let namings = [Naming::Shared, Naming::Own, Naming::Clashing, Naming::Wild, Naming::Unchained, Naming::Twofold];
        let naming = namings[usize::from(choices.below(6))];
        let index = Index::with_table_key(config, 0x5DEE_CE66_D1CE_4E5B).map_err(|error| error.to_string())?;
        let slots = LAYOUTS[usize::from(choices.below(4) / 3)];
        let (inserted, pinned) = (Vec::new(), Vec::new());
        let mut history = History { index, twin: Twin::new(config), naming, slots, now: 0.0, inserted, pinned };
        history.widen(usize::from(slots[2].0) + 1)?;
        for slot in slots {
            history.twin.open(slot, None, is_reporting(slot));
        }
        Ok(history)
    }

    /// Adds replicas that hold nothing, up to so many.
    fn widen(&mut self, replicas: usize) -> Result<(), String> {
        for slot in self.index.slots()..replicas {
            let reuse_reports = is_reporting(Slot(slot as u16));
            let added = self.index.add_replica_with(&slot.to_string(), None, reuse_reports);
            added.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Whether the twin is promised the same results.
    fn is_exact(&self) -> bool {
        !matches!(self.naming, Naming::Wild | Naming::Unchained)
    }

    fn pick(&self, choices: &mut Choices<'_>) -> Prompt {
        let mut prompt = pick(choices, LONGEST);
        if self.naming == Naming::Unchained {
            let period = u64::from(choices.below(5)) + 1;
            prompt.chain = (0..prompt.chain.len() as u64).map(|at| BlockHash(at % period)).collect();
        }
        prompt
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, engine: &T, twin: &T) -> Result<(), String> {
        if self.is_exact() { same(what, engine, twin) } else { Ok(()) }
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Result<String, String> {
        let kind = choices.below(24);
        let slot = self.slots[usize::from(choices.below(3))];
        self.now += f64::from(choices.below(3)) / 2.0;
        let what = match kind {
            0..=6 => self.insert(slot, self.pick(choices)),
            7 => self.touch(slot, &self.pick(choices)),
            8 => self.pin(slot, &self.pick(choices)),
            9 => self.unpin(choices),
            10 => self.retract(choices),
            11..=15 => self.stored(slot, choices),
            16..=20 => self.removed(slot, choices),
            21 => self.set_capacity(slot, choices),
            22 => self.expire(),
            _ => self.forget(slot, choices),
        };
        what.map_err(|why| format!("kind {kind} at {slot:?}: {why}"))
    }

    fn insert(&mut self, slot: Slot, prompt: Prompt) -> Result<String, String> {
        let done = self.index.insert(slot, &prompt.chain, self.now).map_err(|error| error.to_string())?;
        let twin = self.twin.insert(slot, &prompt.chain, self.now);
        self.same("insert", &done, &twin)?;
        let what = format!("insert of {} at {slot:?}", prompt.chain.len());
        self.inserted.push((slot, prompt, done));
        Ok(what)
    }

    fn touch(&mut self, slot: Slot, prompt: &Prompt) -> Result<String, String> {
        let done = self.index.touch(slot, &prompt.chain, self.now).map_err(|error| error.to_string())?;
        let twin = self.twin.touch(slot, &prompt.chain, self.now);
        self.same("touch", &done, &twin)?;
        Ok(format!("touch of {done} at {slot:?}"))
    }

    fn pin(&mut self, slot: Slot, prompt: &Prompt) -> Result<String, String> {
        let done = self.index.pin(slot, &prompt.chain).map_err(|error| error.to_string())?;
        let twin = self.twin.pin(slot, &prompt.chain);
        self.same("pin", &done, &twin)?;
        self.pinned.push((slot, prompt.chain[..done].to_vec()));
        Ok(format!("pin of {done} at {slot:?}"))
    }

    fn unpin(&mut self, choices: &mut Choices<'_>) -> Result<String, String> {
        let Some(last) = self.pinned.len().checked_sub(1) else { return Ok("no pin".into()) };
        let (slot, chain) = self.pinned.swap_remove(usize::from(choices.below(8)).min(last));
        self.index.unpin(slot, &chain).map_err(|error| error.to_string())?;
        self.twin.unpin(slot, &chain);
        Ok(format!("unpin of {} at {slot:?}", chain.len()))
    }

    fn retract(&mut self, choices: &mut Choices<'_>) -> Result<String, String> {
        let Some(last) = self.inserted.len().checked_sub(1) else { return Ok("no insert".into()) };
        let (slot, prompt, done) = self.inserted.swap_remove(last - usize::from(choices.below(4)).min(last));
        let keep = done.held_before + usize::from(choices.below(4));
        let gone = self.index.retract(slot, &prompt.chain, keep, done.stamp).map_err(|error| error.to_string())?;
        let twin = self.twin.retract(slot, &prompt.chain, keep, done.stamp);
        self.same("retract", &gone, &twin)?;
        Ok(format!("retract of {gone} at {slot:?}"))
    }

    /// Part of a prompt, or all of it, as an event: so there are gaps, copies, tiers and orphans.
    fn stored(&mut self, slot: Slot, choices: &mut Choices<'_>) -> Result<String, String> {
        let prompt = self.pick(choices);
        let from = match (self.naming, usize::from(choices.below(4) * choices.below(8))) {
            (Naming::Clashing, _) => 0,
            (_, from) => from % prompt.chain.len(),
        };
        let to = (from + 1 + usize::from(choices.below(24))).min(prompt.chain.len());
        let medium = Medium::ALL[usize::from(choices.below(8).saturating_sub(5))];
        let second = choices.below(2) == 1;
        let name = |block: &BlockHash| self.naming.name(slot, *block, second);
        let engine: Vec<EngineHash> = prompt.chain[from..to].iter().map(name).collect();
        let parent = from.checked_sub(1).map(|before| name(&prompt.chain[before]));
        let mut event = StoredEvent { engine: &engine, parent, medium, ..prompt.event(from..to) };
        if choices.below(4) == 0 {
            event.contents = Contents::Prefixes(&prompt.chain[from..to]);
        }
        let done = self.index.stored(slot, &event, self.now).map_err(|error| error.to_string())?;
        let twin = self.twin.stored(slot, &event, self.now);
        self.same("stored", &done, &twin)?;
        Ok(format!("store of {from}..{to} at {slot:?} on {medium:?}"))
    }

    fn removed(&mut self, slot: Slot, choices: &mut Choices<'_>) -> Result<String, String> {
        let prompt = self.pick(choices);
        let from = usize::from(choices.below(24)) % prompt.chain.len();
        let to = (from + 1 + usize::from(choices.below(6))).min(prompt.chain.len());
        let medium = Medium::ALL[usize::from(choices.below(8).saturating_sub(5))];
        let order = choices.below(4);
        let mut engine: Vec<EngineHash> =
            prompt.chain[from..to].iter().map(|&block| self.naming.name(slot, block, order > 1)).collect();
        if order % 2 == 0 {
            engine.reverse();
        }
        let done = self.index.removed(slot, &engine, medium).map_err(|error| error.to_string())?;
        let twin = self.twin.removed(slot, &engine, medium);
        self.same("removed", &done, &twin)?;
        Ok(format!("removal of {from}..{to} at {slot:?} on {medium:?}"))
    }

    fn set_capacity(&mut self, slot: Slot, choices: &mut Choices<'_>) -> Result<String, String> {
        let capacity = Some(u64::from(choices.below(50)));
        self.index.set_capacity(slot, capacity).map_err(|error| error.to_string())?;
        self.twin.set_capacity(slot, capacity);
        Ok(format!("capacity {capacity:?} at {slot:?}"))
    }

    fn expire(&mut self) -> Result<String, String> {
        let gone = self.index.expire(self.now).map_err(|error| error.to_string())?;
        let twin = self.twin.expire(self.now);
        self.same("expire", &gone, &twin)?;
        Ok(format!("expiry of {gone}"))
    }

    fn forget(&mut self, slot: Slot, choices: &mut Choices<'_>) -> Result<String, String> {
        match choices.below(8) {
            3 | 4 => {
                let bytes = self.index.to_bytes();
                self.index = Index::from_bytes(&bytes).map_err(|error| error.to_string())?;
                self.twin.unpin_all();
                self.pinned.clear();
            }
            5 => self.widen((self.index.slots() + 40).min(MAX_REPLICAS))?,
            0 => {
                self.index.new_epoch();
                self.twin.new_epoch();
            }
            1 => {
                self.index.remove_replica(slot).map_err(|error| error.to_string())?;
                let again = self.index.add_replica("again", None).map_err(|error| error.to_string())?;
                same("slot", &again, &slot)?;
                self.index.remove_replica(slot).map_err(|error| error.to_string())?;
                let reuse_reports = is_reporting(slot);
                let added = self.index.add_replica_with(&slot.0.to_string(), None, reuse_reports);
                added.map_err(|error| error.to_string())?;
                self.twin.open(slot, None, reuse_reports);
            }
            6 => {
                self.index.expect_events(slot).map_err(|error| error.to_string())?;
                self.twin.expect_events(slot);
            }
            given => {
                let all = given == 2;
                for slot in self.slots.into_iter().filter(|&other| all || other == slot) {
                    self.index.clear(slot).map_err(|error| error.to_string())?;
                    self.twin.clear(slot);
                }
            }
        }
        Ok(format!("forgetting {slot:?}"))
    }

    /// Matches of some prompts, eviction orders, counters, invariants.
    fn compare(&mut self, choices: &mut Choices<'_>) -> Result<(), String> {
        self.index.validate()?;
        Index::from_bytes(&self.index.to_bytes()).map_err(|error| format!("saved, it does not load: {error}"))?;
        if !self.is_exact() {
            return Ok(());
        }
        for _ in 0..3 {
            let prompt = pick(choices, LONGEST);
            self.compare_match(&prompt)?;
        }
        for slot in self.slots {
            same(&format!("LRU order of {slot:?}"), &self.index.lru_order(slot), &self.twin.order(slot))?;
        }
        let (engine, mut twin) = (self.index.stats(), self.twin.stats());
        twin.replicas = engine.replicas;
        (twin.runs, twin.table_entries) = (engine.runs, engine.table_entries);
        (twin.live_bytes, twin.reserved_bytes) = (engine.live_bytes, engine.reserved_bytes);
        same("stats", &engine, &twin)
    }

    fn compare_match(&mut self, prompt: &Prompt) -> Result<(), String> {
        let mut out = vec![u32::MAX; self.index.slots()];
        self.index.match_blocks(&prompt.chain, &mut out);
        let media = self.index.match_media(&prompt.chain);
        for slot in self.slots {
            let held = self.twin.held(slot, &prompt.chain);
            same(&format!("match at {slot:?}"), &out[slot.index()], &(held as u32 * 16))?;
            same(&format!("media at {slot:?}"), &media[slot.index()], &self.twin.held_media(slot, &prompt.chain))?;
            if held > 0 {
                self.twin.matched(slot);
            }
        }
        Ok(())
    }

    /// After everything is forgotten the index is as empty as new.
    fn empty(self) -> Result<(), String> {
        for slot in self.slots {
            self.index.remove_replica(slot).map_err(|error| error.to_string())?;
            self.index.validate()?;
        }
        let stats = self.index.stats();
        same("runs at the end", &(stats.runs, stats.blocks, stats.memberships), &(0, 0, 0))?;
        same("names and orphans at the end", &(stats.event_names, stats.orphans), &(0, 0))
    }
}

/// Loads these bytes as a saved index, with a checksum made to fit; what loads must be valid and save and load again.
///
/// # Errors
///
/// What differs, or the invariant that broke.
pub fn load(bytes: &[u8]) -> Result<(), String> {
    let mut bytes = bytes.to_vec();
    let sum = xxhash_rust::xxh3::xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let Ok(index) = Index::from_bytes(&bytes) else { return Ok(()) };
    index.validate()?;
    let again = Index::from_bytes(&index.to_bytes()).map_err(|error| error.to_string())?;
    same("stats after loading again", &again.stats().memberships, &index.stats().memberships)?;
    index.new_epoch();
    index.validate()
}
