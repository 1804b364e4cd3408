//! The public door: checks, one lock, then the state.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::hash::{ExtraKey, TokenChain};
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Inserted, Removed, Stats, Stored, StoredEvent};
use crate::registry::Registry;
use crate::testing::Twin;

/// Which replica holds how much of a prompt's prefix. Usable from many threads: readers run beside each other, a writer
/// alone. Lengths are tokens in results and blocks in capacities and counts.
#[derive(Debug)]
pub struct Index {
    config: Config,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    registry: Registry,
    twin: Twin,
}

impl Index {
    /// An empty index.
    pub fn new(config: Config) -> Result<Self> {
        config.check()?;
        let state = State { registry: Registry::default(), twin: Twin::new(config) };
        Ok(Index { config, state: RwLock::new(state) })
    }

    /// What the index was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Adds an empty replica. `capacity_blocks` overrides the index's own.
    pub fn add_replica(&self, name: &str, capacity_blocks: Option<u64>) -> Result<Slot> {
        let mut state = self.write();
        let slot = state.registry.add(name)?;
        state.twin.open(slot, capacity_blocks);
        Ok(slot)
    }

    /// The slot of a replica.
    pub fn slot(&self, name: &str) -> Option<Slot> {
        self.read().registry.slot(name)
    }

    /// Names in slot order; a freed slot is `None` until it is given again.
    pub fn replicas(&self) -> Vec<Option<String>> {
        self.read().registry.names().to_vec()
    }

    /// Length of a result array: live and freed slots.
    pub fn slots(&self) -> usize {
        self.read().registry.slots()
    }

    /// Removes a replica with all it holds. Costs what it holds.
    pub fn remove_replica(&self, slot: Slot) -> Result<()> {
        let mut state = self.write();
        state.registry.remove(slot)?;
        state.twin.open(slot, None);
        Ok(())
    }

    /// Forgets what a replica holds, believed and known; pins too.
    pub fn clear(&self, slot: Slot) -> Result<()> {
        self.live(slot)?.twin.clear(slot);
        Ok(())
    }

    /// Another capacity, in blocks of belief; evicts down to it.
    pub fn set_capacity(&self, slot: Slot, capacity_blocks: Option<u64>) -> Result<()> {
        self.live(slot)?.twin.set_capacity(slot, capacity_blocks);
        Ok(())
    }

    /// Belief from a decision: all blocks of the path are held and touched, older ones make room. Drops what of this
    /// replica is over its time first. Time that goes back counts as the latest seen.
    pub fn insert(&self, slot: Slot, hashes: &[BlockHash], now: f64) -> Result<Inserted> {
        check_time(now)?;
        Ok(self.live(slot)?.twin.insert(slot, hashes, now))
    }

    /// Takes back belief at positions from `keep` on that was last touched by the insert with this stamp and is not
    /// pinned; how many blocks. `keep` is at least the insert's `held_before`, as older blocks are not distinguished.
    pub fn retract(&self, slot: Slot, hashes: &[BlockHash], keep: usize, stamp: u64) -> Result<usize> {
        Ok(self.live(slot)?.twin.retract(slot, hashes, keep, stamp))
    }

    /// Touches the leading blocks held; how many blocks lead.
    pub fn touch(&self, slot: Slot, hashes: &[BlockHash], now: f64) -> Result<usize> {
        check_time(now)?;
        Ok(self.live(slot)?.twin.touch(slot, hashes, now))
    }

    /// Pins the leading blocks held, so that neither capacity nor time takes them; how many blocks lead. Unpin with as
    /// many.
    pub fn pin(&self, slot: Slot, hashes: &[BlockHash]) -> Result<usize> {
        Ok(self.live(slot)?.twin.pin(slot, hashes))
    }

    /// Takes one pin from each of these blocks and evicts what is over capacity.
    pub fn unpin(&self, slot: Slot, hashes: &[BlockHash]) -> Result<()> {
        self.live(slot)?.twin.unpin(slot, hashes);
        Ok(())
    }

    /// Tokens of the prompt's prefix that each slot holds, written to `out`; slots beyond its end are left out, the rest
    /// of it is zeroed. Gives the number of slots.
    pub fn match_blocks(&self, hashes: &[BlockHash], out: &mut [u32]) -> usize {
        let mut state = self.write();
        self.fill(&mut state, hashes, out)
    }

    /// The same from tokens: hashes as it walks and stops where the prompt leaves the index.
    pub fn match_tokens(&self, tokens: &[u32], seed: u64, extra: &[ExtraKey<'_>], out: &mut [u32]) -> Result<usize> {
        let mut hashes = Vec::new();
        self.hash_and_match(tokens, seed, extra, &mut hashes, out)
    }

    /// The same, and appends the hashes of all full blocks to `hashes`.
    pub fn hash_and_match(
        &self,
        tokens: &[u32],
        seed: u64,
        extra: &[ExtraKey<'_>],
        hashes: &mut Vec<BlockHash>,
        out: &mut [u32],
    ) -> Result<usize> {
        let from = hashes.len();
        TokenChain::new(tokens, self.config.block_size, seed, extra)?.append(usize::MAX, hashes);
        Ok(self.match_blocks(&hashes[from..], out))
    }

    /// Leading tokens held per slot, by the best medium of each block; belief counts as GPU.
    pub fn match_media(&self, hashes: &[BlockHash]) -> Vec<[u32; 3]> {
        let state = self.read();
        (0..state.registry.slots()).map(|slot| state.twin.held_media(Slot(slot as u16), hashes)).collect()
    }

    /// Truth from a store event.
    pub fn stored(&self, slot: Slot, event: &StoredEvent<'_>, now: f64) -> Result<Stored> {
        check_time(now)?;
        if event.engine.len() != event.contents.len() {
            return Err(Error::EventLengths { hashes: event.engine.len(), contents: event.contents.len() });
        }
        Ok(self.live(slot)?.twin.stored(slot, event, now))
    }

    /// Truth from a removal event: one copy less of each of these blocks on that medium.
    pub fn removed(&self, slot: Slot, engine: &[EngineHash], medium: Medium) -> Result<Removed> {
        Ok(self.live(slot)?.twin.removed(slot, engine, medium))
    }

    /// Truth from a clear event.
    pub fn cleared(&self, slot: Slot) -> Result<()> {
        self.clear(slot)
    }

    /// Forgets what all replicas hold (their weights changed, say).
    pub fn new_epoch(&self) {
        self.write().twin.new_epoch();
    }

    /// Drops belief whose time is over; how many blocks.
    pub fn expire(&self, now: f64) -> Result<usize> {
        check_time(now)?;
        Ok(self.write().twin.expire(now))
    }

    /// State and counters.
    pub fn stats(&self) -> Stats {
        let state = self.read();
        Stats { replicas: state.registry.live(), ..state.twin.stats() }
    }

    fn fill(&self, state: &mut State, hashes: &[BlockHash], out: &mut [u32]) -> usize {
        let slots = state.registry.slots();
        for (slot, tokens) in out.iter_mut().enumerate() {
            let held = if slot < slots { state.twin.held(Slot(slot as u16), hashes) } else { 0 };
            if held > 0 {
                state.twin.matched(Slot(slot as u16));
            }
            *tokens = (held * self.config.block_size) as u32;
        }
        slots
    }

    // A panic in the core is a bug, but it must not turn every later call into another one: the state is still memory-safe.
    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self, slot: Slot) -> Result<RwLockWriteGuard<'_, State>> {
        let state = self.write();
        state.registry.check(slot)?;
        Ok(state)
    }
}

fn check_time(now: f64) -> Result<()> {
    if now.is_finite() { Ok(()) } else { Err(Error::Time(now)) }
}
