//! The public door: checks, one lock, then the state.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::config::{Config, MOST_COPIES};
use crate::engine::Engine;
use crate::error::{Error, MAX_PROMPT_BLOCKS, Result};
use crate::events::{Action, GroupKind, NumberedBatch, Prepared, Residence, StoreEvent, apply, contents, read};
use crate::first_blocks::FirstBlocks;
use crate::hash::{ExtraKey, NamespaceSpec, TokenChain};
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::lock::{Shared, WORD_BYTES};
use crate::outcome::{Applied, Contents, FeedStats, Inserted, Removed, Stats, Stored, StoredEvent};
use crate::registry::{Registry, ReplicaKey};
use crate::snapshot;

/// Which replica holds how much of a prompt's prefix. Usable from many threads: readers run beside each other, a writer
/// alone. Lengths are tokens in results and blocks in capacities and counts.
#[derive(Debug)]
pub struct Index {
    config: Config,
    state: Shared<State>,
    /// What needs no lock to be read: what prompts can begin with, and the length of a result array.
    firsts: FirstBlocks,
    slots: AtomicUsize,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    engine: Engine,
}

impl State {
    /// Works so that `max_bytes` holds.
    fn within_bound<R>(&mut self, work: impl FnOnce(&mut Engine, &Registry) -> R) -> R {
        if self.engine.config.max_bytes.is_none() {
            return work(&mut self.engine, &self.registry);
        }
        self.engine.begin(around(&self.registry));
        let done = work(&mut self.engine, &self.registry);
        self.engine.end();
        done
    }
}

impl Index {
    /// An empty index.
    ///
    /// # Errors
    ///
    /// What [`Config::check`] finds, and [`Error::Budget`] where `max_bytes` is less than an empty index takes.
    pub fn new(config: Config) -> Result<Self> {
        Index::with_table_key(config, RandomState::new().hash_one(config.block_size))
    }

    /// The same with a given key of its hash tables. Results do not depend on it, instruction counts do.
    ///
    /// # Errors
    ///
    /// As [`Self::new`].
    pub fn with_table_key(config: Config, key: u64) -> Result<Self> {
        config.check()?;
        let engine = Engine::new(config, key);
        engine.check_room(0, around(&Registry::default()))?;
        Ok(Index::of(engine, Registry::default()))
    }

    fn of(engine: Engine, registry: Registry) -> Self {
        Index {
            config: engine.config,
            firsts: engine.held.trie.runs.firsts().clone(),
            slots: AtomicUsize::new(registry.slots()),
            state: Shared::new(State { registry, engine }),
        }
    }

    /// What the index was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds an empty replica. `capacity_blocks` overrides the index's own.
    ///
    /// # Errors
    ///
    /// [`Error::Name`] of an empty or too long name, [`Error::ReplicaExists`], [`Error::TooManyReplicas`], and [`Error::Budget`] where
    /// `max_bytes` has no room for one more.
    pub fn add_replica(&self, name: &str, capacity_blocks: Option<u64>) -> Result<Slot> {
        self.add_replica_with(name, capacity_blocks, false)
    }

    /// The same for a replica whose engine may report reuse, in the shape of a store: a block stored again is then no
    /// further copy, and one removal ends it.
    ///
    /// # Errors
    ///
    /// As [`Self::add_replica`].
    pub fn add_replica_with(&self, name: &str, capacity_blocks: Option<u64>, reuse_reports: bool) -> Result<Slot> {
        self.state.write(|state| {
            let bytes = around(&state.registry) + state.registry.growth(name);
            let slots = state.registry.slots_with(state.registry.live() + 1);
            state.engine.check_room(slots, bytes)?;
            state.registry.check(name)?;
            state.engine.admit_slots(state.registry.slots(), slots, bytes)?;
            let slot = state.registry.add(name)?;
            state.within_bound(|engine, _| engine.open(slot, capacity_blocks, reuse_reports));
            self.slots.store(state.registry.slots(), Ordering::Release);
            Ok(slot)
        })
    }

    /// Typed error if `max_bytes` leaves no room for so many replicas, so that a caller who adds several can ask before the
    /// first.
    ///
    /// # Errors
    ///
    /// [`Error::Budget`], with the least that so many replicas allow.
    pub fn check_room(&self, replicas: usize) -> Result<()> {
        self.state.read(|state| {
            state
                .engine
                .check_room(state.registry.slots_with(replicas), WORD_BYTES + state.registry.bytes_with(replicas))
        })
    }

    /// The slot of a replica.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.state.read(|state| name.slot_in(&state.registry).ok())
    }

    /// Names in slot order; a freed slot is `None` until it is given again.
    pub fn replicas(&self) -> Vec<Option<String>> {
        self.state.read(|state| state.registry.names().to_vec())
    }

    /// Length of a result array: live and freed slots.
    pub fn slots(&self) -> usize {
        self.slots.load(Ordering::Acquire)
    }

    /// Removes a replica with all it holds. Costs what it holds.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn remove_replica(&self, replica: impl ReplicaKey) -> Result<()> {
        self.state.write(|state| {
            let slot = replica.slot_in(&state.registry)?;
            state.registry.remove(slot);
            state.within_bound(|engine, _| engine.open(slot, None, false));
            Ok(())
        })
    }

    /// Forgets what a replica holds, believed and known; pins too. The next batch of its events may have any number.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn clear(&self, replica: impl ReplicaKey) -> Result<()> {
        self.live(replica, |engine, slot| {
            engine.clear(slot);
            engine.begin_feed_anew(slot);
        })
    }

    /// Another capacity, in blocks of belief; evicts down to it.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn set_capacity(&self, replica: impl ReplicaKey, capacity_blocks: Option<u64>) -> Result<()> {
        self.live(replica, |engine, slot| engine.belief.set_capacity(&mut engine.held, slot, capacity_blocks))
    }

    /// Belief from a decision: all blocks of the path are held and touched, older ones make room. Drops what of this
    /// replica is over its time first. Time that goes back counts as the latest seen.
    ///
    /// # Errors
    ///
    /// [`Error::Time`] of a time that is not finite, [`Error::TooManyBlocks`], [`Error::Full`], and [`Error::UnknownSlot`] or
    /// [`Error::UnknownReplica`] of a replica that is not there.
    pub fn insert(&self, replica: impl ReplicaKey, hashes: &[BlockHash], now: f64) -> Result<Inserted> {
        check_time(now)?;
        self.grow(replica, hashes.len(), |engine, slot| engine.insert(slot, hashes, now))
    }

    /// Takes back belief at positions from `keep` on that was last touched by the insert with this stamp and is not
    /// pinned; how many blocks. `keep` is at least the insert's `held_before`, as older blocks are not distinguished.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn retract(&self, replica: impl ReplicaKey, hashes: &[BlockHash], keep: usize, stamp: u64) -> Result<usize> {
        self.live(replica, |engine, slot| engine.belief.retract(&mut engine.held, slot, hashes, keep, stamp))
    }

    /// Touches the leading blocks held; how many blocks lead.
    ///
    /// # Errors
    ///
    /// [`Error::Time`] of a time that is not finite, and [`Error::UnknownSlot`] or [`Error::UnknownReplica`].
    pub fn touch(&self, replica: impl ReplicaKey, hashes: &[BlockHash], now: f64) -> Result<usize> {
        check_time(now)?;
        self.live(replica, |engine, slot| engine.touch(slot, hashes, now))
    }

    /// Pins the leading blocks held, so that neither capacity nor time takes them; how many blocks lead. Unpin with as
    /// many.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn pin(&self, replica: impl ReplicaKey, hashes: &[BlockHash]) -> Result<usize> {
        self.live(replica, |engine, slot| engine.belief.pin(&mut engine.held, slot, hashes))
    }

    /// Takes one pin from each of these blocks and evicts what is over capacity.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn unpin(&self, replica: impl ReplicaKey, hashes: &[BlockHash]) -> Result<()> {
        self.live(replica, |engine, slot| engine.belief.unpin(&mut engine.held, slot, hashes))
    }

    /// Tokens of the prompt's prefix that each slot holds, written to `out`; slots beyond its end are left out, the rest
    /// of it is zeroed. Gives the number of slots.
    pub fn match_blocks(&self, hashes: &[BlockHash], out: &mut [u32]) -> usize {
        out.fill(0);
        if !hashes.first().is_some_and(|&first| self.firsts.may_start(first)) {
            return self.slots(); // nobody holds such a prompt, which is known without the lock
        }
        self.state.read(|state| {
            state.engine.match_blocks(hashes, out);
            state.registry.slots()
        })
    }

    /// The same from tokens: hashes as it walks and stops where the prompt leaves the index.
    ///
    /// # Errors
    ///
    /// [`Error::ExtraKeyOrder`] where a key stands behind one of a later position; `out` is unchanged.
    pub fn match_tokens(&self, tokens: &[u32], seed: u64, extra: &[ExtraKey<'_>], out: &mut [u32]) -> Result<usize> {
        let mut chain = TokenChain::new(tokens, self.config.block_size, seed, extra, self.config.hash_key)?;
        out.fill(0);
        let mut first = [BlockHash(0)];
        if chain.clone().fill(&mut first) == 0 || !self.firsts.may_start(first[0]) {
            return Ok(self.slots());
        }
        self.state.read(|state| {
            state.engine.match_chain(&mut chain, out);
            Ok(state.registry.slots())
        })
    }

    /// The same, and appends the hashes of all full blocks to `hashes`.
    ///
    /// # Errors
    ///
    /// As [`Self::match_tokens`]; `hashes` is unchanged too.
    pub fn hash_and_match(
        &self,
        tokens: &[u32],
        seed: u64,
        extra: &[ExtraKey<'_>],
        hashes: &mut Vec<BlockHash>,
        out: &mut [u32],
    ) -> Result<usize> {
        let from = hashes.len();
        TokenChain::new(tokens, self.config.block_size, seed, extra, self.config.hash_key)?.append(hashes);
        Ok(self.match_blocks(&hashes[from..], out))
    }

    /// Leading tokens held per slot, by the best medium of each block; belief counts as GPU.
    pub fn match_media(&self, hashes: &[BlockHash]) -> Vec<[u32; 3]> {
        self.state.read(|state| state.engine.match_media(hashes))
    }

    /// Truth from a store event.
    ///
    /// # Errors
    ///
    /// Those of [`Self::insert`], and [`Error::EventLengths`] unless there is a content for each name.
    pub fn stored(&self, replica: impl ReplicaKey, event: &StoredEvent<'_>, now: f64) -> Result<Stored> {
        check_time(now)?;
        if event.engine.len() != event.contents.len() {
            return Err(Error::EventLengths { hashes: event.engine.len(), contents: event.contents.len() });
        }
        self.grow(replica, event.engine.len(), |engine, slot| engine.store_blocks(slot, event, 0, now))
    }

    /// Truth from a store event of any shape: of any attention group, in blocks of any size, with or without content.
    ///
    /// # Errors
    ///
    /// Those of [`Self::insert`], and [`Error::EventTokens`] where an event of full attention has tokens, but not those of its
    /// blocks.
    pub fn store(&self, replica: impl ReplicaKey, event: &StoreEvent<'_>, now: f64) -> Result<Stored> {
        check_time(now)?;
        let contents = self.contents_of(event)?;
        self.grow(replica, self.blocks_of(event), |engine, slot| engine.store(slot, event, &contents, now))
    }

    /// The same from a replica whose engine hashes prompts as this index does: its hashes say what the blocks hold.
    ///
    /// # Errors
    ///
    /// As [`Self::insert`].
    pub fn store_hashes(
        &self,
        replica: impl ReplicaKey,
        blocks: &[BlockHash],
        parent: Option<EngineHash>,
        residence: Residence,
        now: f64,
    ) -> Result<Stored> {
        check_time(now)?;
        let names: Vec<EngineHash> = blocks.iter().map(|block| EngineHash(block.0)).collect();
        let Residence { medium, tag } = residence;
        let event = StoredEvent { engine: &names, parent, contents: Contents::Prefixes(blocks), seed: 0, medium };
        self.grow(replica, blocks.len(), |engine, slot| engine.store_blocks(slot, &event, tag, now))
    }

    /// Content hashes of an event's blocks, made before the lock is taken. None where they are no whole blocks of the index.
    fn contents_of(&self, event: &StoreEvent<'_>) -> Result<Vec<u64>> {
        let &StoreEvent { names, tokens, keys, block_size, .. } = event;
        let fits = tokens.len() == names.len() * block_size;
        // Only groups of full attention name every block of their tokens.
        let indexed = event.group.index == 0 || event.group.kind == Some(GroupKind::Full);
        if !tokens.is_empty()
            && !fits
            && indexed
            && !matches!(event.group.kind, Some(GroupKind::Sliding(_) | GroupKind::Other))
        {
            return Err(Error::EventTokens { tokens: tokens.len(), blocks: names.len(), block_size });
        }
        let whole = block_size > 0 && block_size % self.config.block_size == 0;
        Ok(if fits && whole {
            contents(tokens, keys, self.config.block_size, self.config.hash_key)
        } else {
            Vec::new()
        })
    }

    fn blocks_of(&self, event: &StoreEvent<'_>) -> usize {
        event.names.len().max(event.tokens.len() / self.config.block_size)
    }

    /// Truth from a removal event of any shape: one copy less of each of these blocks at that residence.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn remove(
        &self,
        replica: impl ReplicaKey,
        names: &[EngineHash],
        residence: Residence,
        group: u32,
    ) -> Result<Removed> {
        self.live(replica, |engine, slot| engine.remove(slot, names, residence, group))
    }

    /// Applies an engine's batch of events, `MessagePack` as `vLLM` and `SGLang` send it. Bytes that are no batch are an error
    /// and change nothing; an event that is malformed costs itself alone.
    ///
    /// `base` is the namespace where events are silent: they name no model. With `sequence`, the batch's number, gaps are
    /// counted, and a number that goes back is judged by [`Numbers`](crate::Numbers): a batch that came before, or comes too late to be applied
    /// in order, does nothing, and any other means that the engine began again: what it held is forgotten first.
    ///
    /// # Errors
    ///
    /// [`Error::PayloadBytes`] and [`Error::Payload`] of bytes that are no batch, [`Error::Time`] of a time that is not finite, and
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`].
    pub fn apply(
        &self,
        replica: impl ReplicaKey,
        payload: &[u8],
        base: &NamespaceSpec<'_>,
        sequence: Option<u64>,
        now: f64,
    ) -> Result<Applied> {
        check_time(now)?;
        let batch = read(payload)?;
        let actions: Vec<Prepared<'_>> = batch.events.iter().map(|event| self.prepare(event.action(base))).collect();
        let numbered = sequence.map(|number| NumberedBatch::new(number, payload));
        self.live(replica, |engine, slot| apply(engine, slot, &batch, &actions, numbered, now))
    }

    /// Hashes what an event stores, before the lock is taken.
    fn prepare<'a>(&self, action: Action<'a>) -> Prepared<'a> {
        let Action::Store(store) = &action else { return Prepared { action, contents: Vec::new() } };
        let blocks = self.blocks_of(&store.event());
        let contents = if blocks > MAX_PROMPT_BLOCKS {
            Err(Error::TooManyBlocks(blocks))
        } else {
            self.contents_of(&store.event())
        };
        match contents {
            Ok(contents) => Prepared { action, contents },
            Err(why) => Prepared { action: Action::Refuse(format!("BlockStored: {why}")), contents: Vec::new() },
        }
    }

    /// Counters of a replica's event feed.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn feed_stats(&self, replica: impl ReplicaKey) -> Result<FeedStats> {
        self.state.read(|state| {
            let slot = replica.slot_in(&state.registry)?;
            Ok(state.engine.feed(slot).map_or_else(FeedStats::default, |feed| feed.counters))
        })
    }

    /// The replica sends events, though none has come yet: what is inserted there is provisional.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn expect_events(&self, replica: impl ReplicaKey) -> Result<()> {
        self.live(replica, Engine::expect_events)
    }

    /// Truth from a removal event: one copy less of each of these blocks on that medium.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownSlot`] or [`Error::UnknownReplica`] of a replica that is not there.
    pub fn removed(&self, replica: impl ReplicaKey, names: &[EngineHash], medium: Medium) -> Result<Removed> {
        self.live(replica, |engine, slot| engine.remove(slot, names, medium.into(), 0))
    }

    /// Bytes that its tables have from the system past the allocator, for who counts what the allocator gives.
    #[cfg(feature = "testing")]
    pub fn mapped_bytes(&self) -> usize {
        self.state.read(|state| state.engine.held.names.mapped_bytes())
    }

    /// Forgets what all replicas hold (their weights changed, say).
    pub fn new_epoch(&self) {
        self.state.write(|state| state.within_bound(|engine, _| engine.new_epoch()));
    }

    /// Drops belief whose time is over; how many blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Time`] of a time that is not finite.
    pub fn expire(&self, now: f64) -> Result<usize> {
        check_time(now)?;
        Ok(self.state.write(|state| state.within_bound(|engine, _| engine.expire(now))))
    }

    /// Blocks that each slot holds, believed and known.
    pub fn held_blocks(&self) -> Vec<u64> {
        self.state.read(|state| {
            let held = state.engine.held.holders.replicas().iter().map(|held| held.believed + held.known);
            held.take(state.registry.slots()).collect()
        })
    }

    /// Blocks from store events of each slot since a query last matched there.
    pub fn unmatched_event_blocks(&self) -> Vec<u64> {
        self.state.read(|state| {
            let slots = (0..state.registry.slots()).map(|slot| Slot(slot as u16));
            slots.map(|slot| state.engine.truth.unmatched.blocks_of(slot)).collect()
        })
    }

    /// Blocks of each replica that have more copies on a medium than requests can have made: [`MOST_COPIES`] run at once. Its
    /// engine reports reuse then, or removals are lost. Costs O(runs).
    pub fn crowded_blocks(&self) -> Vec<u64> {
        self.state.read(|state| {
            let slots = (0..state.registry.slots()).map(|slot| Slot(slot as u16));
            slots.map(|slot| state.engine.held.blocks_above(slot, MOST_COPIES)).collect()
        })
    }

    /// The index as bytes: replicas, blocks, names, LRU order, counters. Pins belong to requests of this process and are
    /// not saved. Costs O(blocks).
    pub fn to_bytes(&self) -> Vec<u8> {
        self.state.read(|state| snapshot::save(&state.engine, &state.registry))
    }

    /// The index that `to_bytes` wrote. Bytes that were cut or altered are `Error::Corrupt`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] of bytes that were cut or altered, or are of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (mut engine, registry) = snapshot::load(bytes, RandomState::new().hash_one(bytes.len()))?;
        engine.enforce_bound(around(&registry));
        Ok(Index::of(engine, registry))
    }

    /// State and counters.
    pub fn stats(&self) -> Stats {
        self.state.read(|state| Stats {
            replicas: state.registry.live(),
            reserved_bytes: state.engine.reserved_bytes(around(&state.registry)),
            ..state.engine.stats()
        })
    }

    /// Works on a live replica, alone.
    fn live<R>(&self, replica: impl ReplicaKey, work: impl FnOnce(&mut Engine, Slot) -> R) -> Result<R> {
        self.state.write(|state| {
            state.within_bound(|engine, registry| replica.slot_in(registry).map(|slot| work(engine, slot)))
        })
    }

    /// The same for a call that may add so many blocks.
    fn grow<R>(&self, replica: impl ReplicaKey, blocks: usize, work: impl FnOnce(&mut Engine, Slot) -> R) -> Result<R> {
        if blocks > MAX_PROMPT_BLOCKS {
            return Err(Error::TooManyBlocks(blocks));
        }
        self.live(replica, |engine, slot| if engine.is_full() { Err(Error::Full) } else { Ok(work(engine, slot)) })?
    }
}

/// Bytes reserved around the engine.
fn around(registry: &Registry) -> usize {
    WORD_BYTES + registry.bytes()
}

fn check_time(now: f64) -> Result<()> {
    if now.is_finite() { Ok(()) } else { Err(Error::Time(now)) }
}

#[cfg(any(test, feature = "testing"))]
impl Index {
    /// Checks every invariant of the inside; the first one that does not hold.
    ///
    /// # Errors
    ///
    /// The invariant that does not hold, and where.
    pub fn validate(&self) -> std::result::Result<(), String> {
        self.state.read(|state| state.engine.held.validate())
    }

    /// A replica's believed blocks in the order in which they would go.
    pub fn lru_order(&self, slot: Slot) -> Vec<BlockHash> {
        self.state.read(|state| state.engine.held.lru_order(slot))
    }
}
