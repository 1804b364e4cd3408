//! Replay of a Mooncake trace: each request is matched, then stored at the replica that held most of it; each replica
//! keeps its most recent blocks. Counts block operations: looked up, stored and removed.

use std::time::Instant;

use prefixroute_core::testing::Prompt;
use prefixroute_core::{Config, Index, Slot};

/// Blocks of 512 tokens that a replica keeps: 300,000 tokens.
const CAPACITY: u64 = 586;

/// Requests as content hashes. The trace repeats `times` times with other ids, so that nothing is shared between repeats.
fn prompts(times: u64) -> Option<Vec<Prompt>> {
    let folder = std::env::var("PREFIXROUTE_TRACES").unwrap_or_else(|_| "../../../shared/traces".into());
    let path = format!("{folder}/mooncake_conversation.jsonl.gz");
    let output = std::process::Command::new("gzip").args(["-dc", &path]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok().filter(|text| !text.is_empty())?;
    let ids: Vec<Vec<u64>> = text.lines().filter_map(ids_of).collect();
    let shifted = |shift: u64| ids.iter().map(move |ids| Prompt::new(ids.iter().map(|id| (id + 1) << 8 | shift)));
    Some((0..times).flat_map(shifted).collect())
}

fn ids_of(line: &str) -> Option<Vec<u64>> {
    let (_, rest) = line.split_once("\"hash_ids\":")?;
    let (list, _) = rest.trim_start().strip_prefix('[')?.split_once(']')?;
    list.split(',').map(|id| id.trim().parse().ok()).collect()
}

/// Times the replay on 8 replicas, once and 32 times over.
pub fn mooncake() {
    println!();
    for (repeats, goal) in [(1, 20.0), (32, 42.0)] {
        let Some(prompts) = prompts(repeats) else {
            println!("  13  no trace: set PREFIXROUTE_TRACES to the folder of mooncake_conversation.jsonl.gz");
            return;
        };
        let config = Config { block_size: 512, capacity_blocks: Some(CAPACITY), ..Config::default() };
        let index = Index::with_table_key(config, 1).unwrap();
        let slots: Vec<Slot> = (0..8).map(|i| index.add_replica(&i.to_string(), None).unwrap()).collect();
        let mut out = vec![0; 8];
        let (mut operations, mut removed) = (0, 0);
        let start = Instant::now();
        for (turn, prompt) in prompts.iter().enumerate() {
            index.match_blocks(&prompt.chain, &mut out);
            let best = out.iter().copied().max().unwrap_or(0);
            let slot = if best >= 1_024 { out.iter().position(|&held| held == best).unwrap_or(0) } else { turn % 8 };
            let done = index.insert(slots[slot], &prompt.chain, 0.0).unwrap();
            operations += 2 * prompt.chain.len();
            removed += done.evicted + done.dropped;
        }
        let rate = (operations + removed) as f64 / start.elapsed().as_secs_f64() / 1e6;
        println!(
            "  13  Mooncake conversation x{repeats}: {rate:.1} M block operations a second ({} requests), goal {goal}",
            prompts.len()
        );
    }
}
