//! Decisions into an index that keeps each replica at its capacity: hash a prompt of 8,800 tokens, insert, evict.

use prefixroute_core::{BlockHash, Config, Index, Slot};

use super::{Effort, Task};
#[cfg(feature = "smg")]
use crate::contender::SmgTokenTree;
use crate::contender::{Belief, Believer};
use crate::report::{Figure, Row};
use crate::timing::{Timing, processor_time};
use crate::workload::{Chain, Numbers, W1};

const CAPACITY: usize = 18_750;
const SYSTEM: usize = 68;
/// Inserts between two sweeps of an index that evicts by sweeping.
const SWEEP: usize = 64;
/// Inserts of a round.
const TURN: usize = 128;

/// Names of those that take part.
pub fn contenders() -> Vec<&'static str> {
    vec![
        Belief::NAME,
        #[cfg(feature = "smg")]
        SmgTokenTree::NAME,
    ]
}

/// Steady state: every replica is full, each prompt shares its first 68 blocks and brings 482 new ones.
pub fn insert_and_evict(task: &Task, emit: &mut dyn FnMut(Row)) {
    let mut row = |what: &str, figure| {
        let unit = "ns a new block".into();
        emit(Row { what: what.to_owned(), unit, figures: vec![figure], more_is_better: false });
    };
    let what = "belief, W1, hash 550 blocks of tokens + insert + evict";
    #[cfg(feature = "smg")]
    if task.contender == SmgTokenTree::NAME {
        return row(what, steady::<SmgTokenTree>(task.effort));
    }
    row(what, steady::<Belief>(task.effort));
    row("belief, W1, insert + evict, hashes given", Figure::timed(Belief::NAME, hashed(task.effort)));
}

struct Steady<B: Believer> {
    index: B,
    numbers: Numbers,
    system: Vec<u32>,
    inserted: usize,
}

fn steady<B: Believer>(effort: Effort) -> Figure {
    let mut numbers = Numbers(9);
    let system = tokens(SYSTEM, &mut numbers);
    let mut lane = Steady { index: B::with_capacity(W1.replicas, CAPACITY), numbers, system, inserted: 0 };
    for _ in 0..5 {
        lane.turn();
    }
    Figure::timed(B::NAME, Timing::of((0..effort.rounds).map(|_| lane.turn()).collect()))
}

fn tokens(blocks: usize, numbers: &mut Numbers) -> Vec<u32> {
    (0..16 * blocks).map(|_| numbers.below(150_000) as u32).collect()
}

impl<B: Believer> Steady<B> {
    /// Time of `TURN` inserts and what evictions they make due, in nanoseconds a new block.
    fn turn(&mut self) -> f64 {
        let new = W1.blocks - SYSTEM;
        let prompts: Vec<B::Prompt> =
            (0..TURN).map(|_| B::prompt(&[self.system.clone(), tokens(new, &mut self.numbers)].concat())).collect();
        let spent = processor_time(|| {
            for prompt in &prompts {
                self.index.insert(self.inserted % W1.replicas, prompt);
                self.inserted += 1;
                if self.inserted.is_multiple_of(SWEEP) {
                    self.index.evict();
                }
            }
        });
        let last = self.index.best(&prompts[TURN - 1]);
        assert_eq!(last, 16 * W1.blocks, "{} forgot the newest prompt", B::NAME);
        spent / (TURN * new) as f64
    }
}

fn hashed(effort: Effort) -> Timing {
    let config = Config { capacity_blocks: Some(CAPACITY as u64), ..Config::default() };
    let index = Index::new(config).expect("a valid configuration");
    for replica in 0..W1.replicas {
        index.add_replica(&replica.to_string(), None).expect("fewer replicas than the limit");
    }
    let mut numbers = Numbers(10);
    let system = Chain::random(SYSTEM, &mut numbers);
    let new = W1.blocks - SYSTEM;
    let mut samples = Vec::new();
    for turn in 0..effort.rounds + 5 {
        let prompts: Vec<Vec<BlockHash>> = (0..TURN)
            .map(|_| system.followed_by(new, &mut numbers).hashes().into_iter().map(BlockHash).collect())
            .collect();
        let spent = processor_time(|| {
            for (at, prompt) in prompts.iter().enumerate() {
                index.insert(Slot((at % W1.replicas) as u16), prompt, turn as f64).expect("a live slot");
            }
        });
        if turn >= 5 {
            samples.push(spent / (TURN * new) as f64);
        }
    }
    Timing::of(samples)
}
