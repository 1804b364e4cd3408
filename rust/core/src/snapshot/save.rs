//! Writing.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::codec::Writer;
use super::{MAGIC, VERSION, counters, feeds, limits};
use crate::arena::{Hold, NO_NAME, Place};
use crate::engine::Engine;
use crate::ids::{EngineHash, Slot};
use crate::outcome::Content;
use crate::radix::RunId;
use crate::registry::Registry;

/// An index as bytes.
pub(crate) fn save(engine: &Engine, registry: &Registry) -> Vec<u8> {
    let mut out = Writer::default();
    out.bytes.extend_from_slice(MAGIC);
    out.u16(VERSION);
    write_settings(&mut out, engine);
    write_replicas(&mut out, engine, registry);
    let numbers = write_runs(&mut out, engine);
    write_own_names(&mut out, engine, &numbers);
    out.u64(engine.orphans.len() as u64);
    for orphan in engine.orphans.iter() {
        out.u16(orphan.slot.0);
        out.u8(orphan.medium as u8);
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
    out.u64(engine.stamp);
    out.u64(engine.clock.to_bits());
    for counter in counters(&mut engine.stats()) {
        out.u64(*counter);
    }
}

fn write_replicas(out: &mut Writer, engine: &Engine, registry: &Registry) {
    out.u16(registry.slots() as u16);
    for (slot, name) in registry.names().iter().enumerate() {
        out.u8(u8::from(name.is_some()));
        out.text(name.as_deref().unwrap_or(""));
        out.option(engine.replicas[slot].capacity);
        out.u8(u8::from(engine.replicas[slot].reuse_reports));
        out.u8(u8::from(engine.is_fed(Slot(slot as u16))));
        out.u64(engine.unmatched.blocks_of(Slot(slot as u16)));
    }
}

/// Writes all runs, each after its parent; gives their numbers, from 1 on in the order written.
fn write_runs(out: &mut Writer, engine: &Engine) -> HashMap<RunId, u32> {
    let mut numbers = HashMap::from([(RunId::ROOT, 0)]);
    let mut open = vec![RunId::ROOT];
    out.u32(engine.tree.live() as u32);
    while let Some(parent) = open.pop() {
        let mut child = engine.tree.run(parent).child;
        while !child.is_none() {
            open.push(child);
            child = engine.tree.run(child).next;
        }
        if parent != RunId::ROOT {
            numbers.insert(parent, numbers.len() as u32);
            out.u32(numbers[&engine.tree.run(parent).parent]);
            write_run(out, engine, parent);
        }
    }
    numbers
}

fn write_run(out: &mut Writer, engine: &Engine, id: RunId) {
    let run = engine.tree.run(id);
    let (start, end) = (run.start as usize, run.end() as usize);
    out.u32(run.len);
    for block in &engine.chunks.blocks(run.chunk)[start..end] {
        out.u64(block.0);
    }
    let names = engine.chunks.names(run.chunk).get(start..end).unwrap_or(&[]);
    let any = names.iter().any(|&name| name != NO_NAME);
    out.u8(u8::from(any));
    for name in names.iter().filter(|_| any) {
        out.u64(name.0);
    }
    out.u16(run.holders);
    for slot in engine.tree.holders(id) {
        out.u16(slot.0);
        match engine.record(id, slot).hold {
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
    for replica in &engine.replicas {
        let mut own: Vec<(EngineHash, u32, u32)> = Vec::new();
        for (&name, &(place, block)) in &replica.own_names {
            let run = if engine.chunks.is_at(place, block) { engine.chunks.view(place) } else { None };
            own.extend(run.map(|run| (name, numbers[&run], offset_in(engine, run, place))));
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

fn offset_in(engine: &Engine, run: RunId, place: Place) -> u32 {
    place.at - engine.tree.run(run).start
}
