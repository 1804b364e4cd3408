//! Writing.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::codec::Writer;
use super::{MAGIC, VERSION, counters, feeds, limits};
use crate::engine::Engine;
use crate::holders::Hold;
use crate::ids::{EngineHash, Slot};
use crate::outcome::Content;
use crate::registry::Registry;
use crate::trie::{NO_NAME, RunId};

/// An index as bytes.
pub(crate) fn save(engine: &Engine, registry: &Registry) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes.extend_from_slice(MAGIC);
    out.u16(VERSION);
    write_settings(&mut out, engine);
    write_replicas(&mut out, engine, registry);
    let numbers = write_runs(&mut out, engine);
    write_own_names(&mut out, engine, &numbers);
    out.u64(engine.truth.orphans.len() as u64);
    for orphan in engine.truth.orphans.iter() {
        out.u16(orphan.slot.0);
        out.u8(orphan.residence.medium as u8);
        out.u64(orphan.residence.tag);
        out.u64(orphan.parent.0);
        out.u64(orphan.name.0);
        let (chained, content) = match orphan.content {
            Content::Block(content) => (false, content),
            Content::Prefix(block) => (true, block.0),
        };
        out.u8(u8::from(chained));
        out.u64(content);
    }
    feeds::write(&mut out, engine);
    let sum = xxh3_64(&out.bytes);
    out.u64(sum);
    out.bytes
}

fn write_settings(out: &mut Writer, engine: &Engine) {
    out.u32(engine.config.block_size as u32);
    out.u64(engine.config.hash_key);
    for limit in limits(&engine.config) {
        out.option(limit);
    }
    out.u64(engine.belief.stamp);
    out.u64(engine.belief.clock.to_bits());
    for counter in counters(&mut engine.stats()) {
        out.u64(*counter);
    }
}

fn write_replicas(out: &mut Writer, engine: &Engine, registry: &Registry) {
    out.u16(registry.slots() as u16);
    for (slot, name) in registry.names().iter().enumerate() {
        out.u8(u8::from(name.is_some()));
        out.text(name.as_deref().unwrap_or(""));
        let slot = Slot(slot as u16);
        let sender = engine.truth.sender(slot);
        out.option(engine.belief.capacity(slot));
        out.u8(u8::from(sender.reuse_reports));
        out.u8(u8::from(sender.fed));
        out.u64(engine.truth.unmatched.blocks_of(slot));
    }
}

/// Writes all runs, each after its parent; gives their numbers, from 1 on in the order written.
fn write_runs(out: &mut Writer, engine: &Engine) -> HashMap<RunId, u32> {
    let trie = &engine.held.trie;
    let mut runs: Vec<RunId> = trie.runs.ids().collect();
    runs.sort_by_key(|&run| (trie.run(run).depth, trie.run(run).first));
    let mut numbers = HashMap::from([(RunId::ROOT, 0)]);
    out.u32(runs.len() as u32);
    for run in runs {
        numbers.insert(run, numbers.len() as u32);
        out.u32(numbers[&trie.run(run).parent]);
        write_run(out, engine, run);
    }
    numbers
}

fn write_run(out: &mut Writer, engine: &Engine, id: RunId) {
    let run = engine.held.trie.run(id);
    let (start, end) = (run.start as usize, run.end() as usize);
    out.u32(run.len);
    for block in engine.held.trie.blocks(id) {
        out.u64(block.0);
    }
    let names = engine.held.trie.chunks.names(run.chunk).get(start..end).unwrap_or(&[]);
    let any = names.iter().any(|&name| name != NO_NAME);
    out.u8(u8::from(any));
    for name in names.iter().filter(|_| any) {
        out.u64(name.0);
    }
    out.u16(run.records.len);
    for slot in engine.held.trie.runs.holders(id) {
        out.u16(slot.0);
        match engine.held.holders.record(&engine.held.trie.runs, id, slot).hold {
            Hold::Belief { stamp, at, .. } => {
                out.u8(0);
                out.u64(stamp);
                out.u64(at.to_bits());
            }
            Hold::Truth { copies } => {
                out.u8(1);
                for count in copies {
                    out.u16(count);
                }
            }
        }
    }
}

/// Own names that still hold: name, run and offset, in order of names.
fn write_own_names(out: &mut Writer, engine: &Engine, numbers: &HashMap<RunId, u32>) {
    let chunks = &engine.held.trie.chunks;
    for slot in (0..engine.held.holders.replicas().len()).map(|index| Slot(index as u16)) {
        let mut own: Vec<(EngineHash, u32, u32)> = Vec::new();
        for (name, place, block) in engine.held.names.all_own(slot) {
            let run = if chunks.is_at(place, block) { chunks.view(place) } else { None };
            own.extend(run.map(|run| (name, numbers[&run], place.at - engine.held.trie.run(run).start)));
        }
        own.sort_unstable();
        out.u32(own.len() as u32);
        for (name, run, offset) in own {
            out.u64(name.0);
            out.u32(run);
            out.u32(offset);
        }
    }
}
