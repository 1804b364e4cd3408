//! Times of the index core against the goals of the design. Run on a quiet machine, pinned:
//! `taskset -c 1 cargo bench -p prefixroute-core --bench index [-- hash match update payload evict memory growth replay threads]`.

#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

mod fleet;
mod measure;
mod replay;
mod threads;

use std::time::Instant;

use fleet::{Draw, Feed, Fleet, PROMPT, conversation};
use measure::{each, line, rounds};
use prefixroute_core::hash;
use prefixroute_core::hash::NamespaceSpec;
use prefixroute_core::testing::Prompt;
use prefixroute_core::testing::payloads::{StoreForm, batch};
use prefixroute_core::{Config, EngineHash, Index, Medium};

fn main() {
    println!("goal  what{:56}      best       p50       p99  unit      goal", "");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let sections: [(&str, fn()); 9] = [
        ("hash", hashing),
        ("match", matching),
        ("update", updates),
        ("payload", payloads),
        ("evict", eviction),
        ("memory", memory),
        ("growth", growth),
        ("replay", replay::mooncake),
        ("threads", threads::speedup),
    ];
    for (name, run) in sections {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            run();
        }
    }
}

fn hashing() {
    let tokens: Vec<u32> = (0..8_800).map(|i| i * 7 + 3).collect();
    let mut out = Vec::with_capacity(PROMPT);
    let times = each(1, |_| {
        out.clear();
        hash::hash_tokens(&tokens, 16, 1, &[], &mut out).unwrap();
        out.len()
    });
    line("1", "hash 8,800 tokens", times, "ns", "2,300 by the prototype");
}

fn matching() {
    for (goal, replicas) in [("4", 8), ("", 64), ("", 256)] {
        let fleet = Fleet::new(replicas, 18_750, PROMPT, Feed::Belief);
        let mut out = vec![0; replicas];
        let hot = &fleet.prompts[fleet.prompts.len() / 2].1.chain;
        let times = each(1, |_| fleet.index.match_blocks(hot, &mut out));
        line(goal, &format!("match 550 blocks, full hit, {replicas} replicas, one prompt"), times, "ns", "250");
        let times =
            each(1, |i| fleet.index.match_blocks(&fleet.prompts[i * 7_919 % fleet.prompts.len()].1.chain, &mut out));
        line("", &format!("match 550 blocks, full hit, {replicas} replicas, all prompts"), times, "ns", "");
        let miss = conversation(1 << 40, PROMPT);
        let times = each(1, |_| fleet.index.match_blocks(&miss.chain, &mut out));
        line("", &format!("match 550 blocks, divergence at 125, {replicas} replicas"), times, "ns", "");
    }
    let fleet = Fleet::new(8, 625_000, PROMPT, Feed::Belief);
    let mut out = vec![0; 8];
    let mut draw = Draw(7);
    let picks: Vec<usize> = (0..1 << 16).map(|_| draw.next() as usize % fleet.prompts.len()).collect();
    let times = each(1, |i| fleet.index.match_blocks(&fleet.prompts[picks[i % picks.len()]].1.chain, &mut out));
    line("", "match 550 blocks, 5 M blocks, random prompts (cold)", times, "ns", "");
}

fn updates() {
    for replicas in [8, 256] {
        let empty = Fleet::new(replicas, 0, PROMPT, Feed::Events);
        let full = Fleet::shared(replicas, 18_750, Feed::Belief);
        let total = full.prompts.len() * PROMPT;
        for (feed, what) in [(Feed::Events, "events"), (Feed::Belief, "belief")] {
            let times = rounds(if replicas == 8 { 40 } else { 3 }, total, || {
                empty.index.new_epoch();
                let start = Instant::now();
                empty.give_all(&full.prompts, feed);
                start.elapsed()
            });
            let limit = if replicas == 8 { "55" } else { "45" };
            let what = format!("insert 18,750 blocks each, {what}, {replicas} replicas, from empty");
            line("8", &what, times, "ns/block", limit);
        }
        churn(&full, replicas);
        let times = rounds(if replicas == 8 { 40 } else { 3 }, total, || {
            empty.index.new_epoch();
            empty.give_all(&full.prompts, Feed::Events);
            let start = Instant::now();
            for (slot, prompt) in &full.prompts {
                empty.index.removed(*slot, &prompt.names, Medium::Gpu).unwrap();
            }
            start.elapsed()
        });
        let limit = if replicas == 8 { "70" } else { "50" };
        line("10", &format!("remove 18,750 blocks each, {replicas} replicas"), times, "ns/block", limit);
    }
    one_block();
}

/// Stores beside as many blocks that stay, so that no table grows.
fn churn(full: &Fleet, replicas: usize) {
    let (stay, change) = full.prompts.split_at(full.prompts.len() / 2);
    let steady = Fleet::new(replicas, 0, PROMPT, Feed::Events);
    steady.give_all(stay, Feed::Events);
    let blocks = change.iter().map(|(_, prompt)| prompt.chain.len()).sum();
    let times = rounds(if replicas == 8 { 40 } else { 3 }, blocks, || {
        let start = Instant::now();
        steady.give_all(change, Feed::Events);
        let took = start.elapsed();
        for (slot, prompt) in change {
            steady.index.removed(*slot, &prompt.names, Medium::Gpu).unwrap();
        }
        took
    });
    let limit = if replicas == 8 { "55" } else { "45" };
    let what = format!("insert half of them again and again, events, {replicas} replicas");
    line("8", &what, times, "ns/block", limit);
}

/// Batches of 34 blocks with their token ids, as bytes.
fn payloads() {
    let base = NamespaceSpec::default();
    let index = Index::with_table_key(Config::default(), 1).unwrap();
    let slot = index.add_replica("a", None).unwrap();
    let mut draw = fleet::Draw(7);
    let mut batches = Vec::new();
    for _ in 0..600 {
        let tokens: Vec<u32> = (0..34 * 16).map(|_| (draw.next() >> 47) as u32).collect();
        let names: Vec<_> = (0..34).map(|_| EngineHash(draw.next())).collect();
        let event = StoreForm {
            names: &names,
            parent: None,
            tokens: &tokens,
            block_size: 16,
            medium: "GPU",
            form: 0,
            is_array: false,
        };
        batches.push(batch(&[event.packed()]));
    }
    let times = rounds(40, 34 * batches.len(), || {
        index.clear(slot).unwrap();
        let start = Instant::now();
        for payload in &batches {
            index.apply(slot, payload, &base, None, 0.0).unwrap();
        }
        start.elapsed()
    });
    line("11", "apply event batches of 34 blocks, from bytes", times, "ns/block", "150");
}

fn one_block() {
    let fleet = Fleet::new(8, 18_750, PROMPT, Feed::Events);
    let (slot, prompt) = &fleet.prompts[20];
    for (at, which) in [(PROMPT - 1, "the last block"), (300, "a block in the middle")] {
        let times = each(2, |_| {
            fleet.index.removed(*slot, &prompt.names[at..=at], Medium::Gpu).unwrap();
            fleet.index.stored(*slot, &prompt.event(at..at + 1), 0.0).unwrap()
        });
        line("9", &format!("remove {which}, store it again"), times, "ns/call", "350 from Python");
    }
}

fn eviction() {
    for (what, new) in [("new conversations", PROMPT - fleet::SYSTEM), ("16-block turns", 16)] {
        let index = Index::with_table_key(Config { capacity_blocks: Some(18_750), ..Config::default() }, 1).unwrap();
        let slots: Vec<_> = (0..8).map(|i| index.add_replica(&i.to_string(), None).unwrap()).collect();
        let prompts: Vec<Prompt> = (0..4_000).map(|id| conversation(id, fleet::SYSTEM + new)).collect();
        let mut cycle = prompts.iter().cycle().enumerate();
        for (i, prompt) in cycle.by_ref().take(60_000 / new.max(16)) {
            index.insert(slots[i % 8], &prompt.chain, 0.0).unwrap();
        }
        let times = each(new, |i| index.insert(slots[i % 8], &cycle.next().unwrap().1.chain, 0.0).unwrap().evicted);
        line("18", &format!("belief: insert + evict, {what}"), times, "ns/block", "90");
    }
}

fn memory() {
    println!();
    for replicas in [8, 256] {
        for (feed, what) in [(Feed::Belief, "without names, per block"), (Feed::Events, "with names, per membership")] {
            let stats = Fleet::shared(replicas, 18_750, feed).index.stats();
            let over = if feed == Feed::Belief { stats.blocks } else { stats.memberships };
            let bytes = stats.reserved_bytes as f64 / over as f64;
            let live = stats.live_bytes as f64 / over as f64;
            let limit = if feed == Feed::Belief {
                "12"
            } else if replicas == 8 {
                "32"
            } else {
                "22"
            };
            println!(
                "  12  bytes {what}, {replicas} replicas: {bytes:.1} reserved, {live:.1} live, goal {limit}; {} runs",
                stats.runs
            );
        }
    }
}

fn growth() {
    println!();
    for blocks in [10_000, 100_000, 1_000_000, 5_000_000] {
        let fleet = Fleet::new(8, blocks / 8, PROMPT, Feed::Belief);
        let mut out = vec![0; 8];
        let hot = &fleet.prompts[0].1.chain;
        let times = each(1, |_| fleet.index.match_blocks(hot, &mut out));
        line("19", &format!("match 550 blocks, hot path, {blocks} blocks in the index"), times, "ns", "flat in 2x");
    }
    for len in [64, 550, 2_000, 8_000] {
        let fleet = Fleet::new(8, 18_750, len, Feed::Belief);
        let mut out = vec![0; 8];
        let hot = &fleet.prompts[0].1.chain;
        let times = each(1, |_| fleet.index.match_blocks(hot, &mut out));
        line("19", &format!("match a prompt of {len} blocks"), times, "ns", "flat in 2x");
    }
}
