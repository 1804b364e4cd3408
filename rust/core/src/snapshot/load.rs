//! Reading. Nothing is trusted: a checksum can be made to fit.

use std::cmp::Reverse;

use xxhash_rust::xxh3::xxh3_64;

use super::codec::{Reader, corrupt};
use super::{MAGIC, VERSION, counters, feeds};
use crate::config::Config;
use crate::engine::Engine;
use crate::error::{MAX_PROMPT_BLOCKS, MAX_REPLICAS, MAX_RUNS, Result};
use crate::events::{Orphan, Residence};
use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::lock::WORD_BYTES;
use crate::outcome::{Content, Stats};
use crate::registry::Registry;
use crate::trie::{NO_NAME, RunId};

/// The index that these bytes are; `key` places entries in its tables.
pub(crate) fn load(bytes: &[u8], key: u64) -> Result<(Engine, Registry)> {
    let Some((body, sum)) = bytes.split_last_chunk::<8>() else { return corrupt("it is too short") };
    let mut input = Reader { bytes: body };
    if input.take(MAGIC.len()).ok() != Some(MAGIC) {
        return corrupt("it does not begin like one");
    }
    if input.u16()? != VERSION {
        return corrupt("another version wrote it");
    }
    if xxh3_64(body) != u64::from_le_bytes(*sum) {
        return corrupt("its checksum is wrong");
    }
    let mut engine = read_settings(&mut input, key)?;
    let registry = read_replicas(&mut input, &mut engine)?;
    let runs = read_runs(&mut input, &mut engine, &registry)?;
    read_own_names(&mut input, &mut engine, &runs)?;
    read_orphans(&mut input, &mut engine, &registry)?;
    feeds::read(&mut input, &mut engine)?;
    engine.check_room(registry.slots(), WORD_BYTES + registry.bytes())?;
    if !input.bytes.is_empty() {
        return corrupt("something follows its end");
    }
    for &run in &runs {
        engine.held.tidy(run);
    }
    Ok((engine, registry))
}

fn read_settings(input: &mut Reader<'_>, key: u64) -> Result<Engine> {
    let config = Config {
        block_size: input.u32()? as usize,
        hash_key: input.u64()?,
        capacity_blocks: input.option()?,
        max_bytes: input.option()?,
        ttl: input.option()?.map(f64::from_bits),
        provisional: input.option()?.map(f64::from_bits),
        orphan_blocks: input.option()?.and_then(|blocks| usize::try_from(blocks).ok()).unwrap_or(0),
    };
    if config.check().is_err() {
        return corrupt("its settings are out of range");
    }
    let mut engine = Engine::new(config, key);
    engine.belief.stamp = input.u64()?;
    engine.belief.clock = f64::from_bits(input.u64()?);
    let mut stats = Stats::default();
    for counter in counters(&mut stats) {
        *counter = input.u64()?;
    }
    let highest = counters(&mut stats).into_iter().map(|counter| *counter).fold(engine.belief.stamp, u64::max);
    if engine.belief.clock.is_nan() || engine.belief.clock == f64::INFINITY || highest > u64::MAX / 2 {
        return corrupt("its counters are out of range");
    }
    engine.held.counters = stats;
    Ok(engine)
}

fn read_replicas(input: &mut Reader<'_>, engine: &mut Engine) -> Result<Registry> {
    let slots = usize::from(input.u16()?);
    if slots > MAX_REPLICAS {
        return corrupt("it has too many replicas");
    }
    let mut names = Vec::with_capacity(slots);
    for slot in (0..slots as u16).map(Slot) {
        let (live, name) = (input.flag()?, input.text()?);
        names.push(live.then(|| name.to_owned()));
        let (capacity, reuse_reports, fed) = (input.option()?, input.flag()?, input.flag()?);
        engine.open(slot, None, reuse_reports);
        engine.belief.open(slot, capacity);
        engine.truth.set_fed(slot, fed);
        engine.truth.unmatched.set(slot, input.u64()?);
    }
    Registry::restore(names).map_or_else(|| corrupt("its replicas' names clash"), Ok)
}

fn read_runs(input: &mut Reader<'_>, engine: &mut Engine, registry: &Registry) -> Result<Vec<RunId>> {
    let count = input.u32()? as usize;
    if count > MAX_RUNS {
        return corrupt("it has too many runs");
    }
    let mut runs = vec![RunId::ROOT];
    let mut recency: Vec<Touch> = Vec::new();
    for _ in 0..count {
        let Some(&parent) = runs.get(input.u32()? as usize) else { return corrupt("a run has no parent") };
        let run = read_run(input, engine, parent)?;
        let before = recency.len();
        read_holders(input, engine, run, &mut recency)?;
        if recency[before..].iter().any(|&(_, _, slot, _)| !registry.is_live(slot)) {
            return corrupt("a holder is no replica");
        }
        runs.push(run);
    }
    if runs.iter().skip(1).any(|&run| engine.held.is_needless(run)) {
        return corrupt("nobody holds a run");
    }
    recency.sort_unstable();
    let key = |&(stamp, depth, slot, _): &Touch| (stamp, depth, slot);
    let alike = |pair: &[Touch]| pair[0].0 > 0 && key(&pair[0]) == key(&pair[1]);
    if recency.windows(2).any(alike) {
        return corrupt("one touch went two ways");
    }
    for (_, _, slot, run) in recency {
        engine.held.holders.link_last(&engine.held.trie.runs, run, slot);
    }
    Ok(runs)
}

fn read_run(input: &mut Reader<'_>, engine: &mut Engine, parent: RunId) -> Result<RunId> {
    let len = input.u32()? as usize;
    let depth = (engine.held.trie.run(parent).depth + engine.held.trie.run(parent).len) as usize;
    if len == 0 || len > MAX_PROMPT_BLOCKS || depth + len > u32::MAX as usize {
        return corrupt("a run's length is out of range");
    }
    let blocks: Vec<BlockHash> = input.numbers(len)?.into_iter().map(BlockHash).collect();
    if engine.held.trie.runs.head(parent, blocks[0]).is_some() {
        return corrupt("two runs begin alike");
    }
    let run = engine.held.trie.graft(parent, &blocks);
    if input.flag()? {
        for (offset, name) in input.numbers(len)?.into_iter().map(EngineHash).enumerate() {
            let Holdings { names, trie, .. } = &mut engine.held;
            let place = trie.run(run).place(offset as u32);
            if name != NO_NAME && !names.name_one(place, name, trie) {
                return corrupt("two blocks have one name");
            }
        }
    }
    Ok(run)
}

/// When a run was touched, how deep it lies, by which replica: the order of the LRU lists.
type Touch = (u64, Reverse<u32>, Slot, RunId);

fn read_holders(input: &mut Reader<'_>, engine: &mut Engine, run: RunId, recency: &mut Vec<Touch>) -> Result<()> {
    let mut last = None;
    for _ in 0..input.u16()? {
        let slot = Slot(input.u16()?);
        if slot.index() >= engine.held.holders.replicas().len() || last.is_some_and(|last| last >= slot) {
            return corrupt("its holders are out of order");
        }
        last = Some(slot);
        let hold = read_hold(input, engine)?;
        engine.held.holders.add_unlinked(&mut engine.held.trie.runs, run, slot, hold);
        recency.push((hold.stamp(), Reverse(engine.held.trie.run(run).depth), slot, run));
    }
    Ok(())
}

fn read_hold(input: &mut Reader<'_>, engine: &Engine) -> Result<Hold> {
    if input.flag()? {
        let copies = [input.u16()?, input.u16()?, input.u16()?];
        return if copies == [0; 3] { corrupt("a holder has no copy") } else { Ok(Hold::Truth { copies }) };
    }
    let (stamp, at) = (input.u64()?, f64::from_bits(input.u64()?));
    if stamp == 0 || stamp > engine.belief.stamp || !at.is_finite() {
        return corrupt("a touch lies in the future");
    }
    Ok(Hold::Belief { stamp, at, pins: 0, parked: false })
}

fn read_own_names(input: &mut Reader<'_>, engine: &mut Engine, runs: &[RunId]) -> Result<()> {
    for slot in (0..engine.held.holders.replicas().len()).map(|index| Slot(index as u16)) {
        for _ in 0..input.u32()? {
            let (name, run, offset) = (EngineHash(input.u64()?), input.u32()? as usize, input.u32()?);
            let known = runs.get(run).filter(|&&run| run != RunId::ROOT && offset < engine.held.trie.run(run).len);
            let Some(&run) = known else { return corrupt("a name leads nowhere") };
            let Holdings { names, trie, .. } = &mut engine.held;
            names.restore_own(slot, trie.run(run).place(offset), name, trie);
        }
    }
    Ok(())
}

fn read_orphans(input: &mut Reader<'_>, engine: &mut Engine, registry: &Registry) -> Result<()> {
    for _ in 0..input.u64()? {
        let (slot, medium, tag) = (Slot(input.u16()?), usize::from(input.u8()?), input.u64()?);
        let (parent, name) = (EngineHash(input.u64()?), EngineHash(input.u64()?));
        let (chained, content) = (input.flag()?, input.u64()?);
        let content = if chained { Content::Prefix(BlockHash(content)) } else { Content::Block(content) };
        let Some(&medium) = Medium::ALL.get(medium) else { return corrupt("a medium is unknown") };
        if !registry.is_live(slot) {
            return corrupt("an orphan has no replica");
        }
        let residence = Residence { medium, tag };
        engine.truth.orphans.push(Orphan { slot, parent, name, content, residence }, usize::MAX);
    }
    Ok(())
}
