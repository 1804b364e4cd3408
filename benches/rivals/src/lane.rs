//! A contender with a fleet in it.

use std::hint::black_box;

use crate::contender::Contender;
use crate::timing::{BATCH, Samples, nanoseconds};
use crate::workload::{Fleet, Oracle};

const VERIFIED: usize = 64;

pub struct Lane<C: Contender> {
    index: C,
    queries: Vec<C::Query>,
    out: Vec<u32>,
}

/// Fills an index with what the fleet holds.
pub fn fill<C: Contender>(fleet: &Fleet) -> C {
    let index = C::with_replicas(fleet.replicas);
    for store in &fleet.stores {
        let chain = &fleet.chains[store.chain];
        index.apply(&mut C::stored(store.replica, chain.parent(store.from), chain.from(store.from)));
    }
    index.finish();
    index
}

impl<C: Contender> Lane<C> {
    pub fn new(fleet: &Fleet) -> Self {
        let queries = fleet.queries.iter().map(C::query).collect();
        Lane { index: fill::<C>(fleet), queries, out: vec![0; fleet.replicas] }
    }

    /// Compares the answers to the first queries with the oracle's: a fast wrong answer is no result.
    pub fn verify(&mut self, fleet: &Fleet) {
        let oracle = Oracle::of(fleet);
        for query in fleet.queries.iter().take(VERIFIED) {
            self.index.answer(query, &mut self.out);
            assert_eq!(self.out, oracle.answer(query), "{} answers wrongly in {}", C::NAME, fleet.name);
        }
    }

    /// Times `count` lookups of one query after the other, beginning with query `first`; half in batches, half alone.
    pub fn sample(&mut self, first: usize, count: usize, clock: f64, samples: &mut Samples) {
        for turn in (first..first + count).step_by(2 * BATCH) {
            let mut batch: [C::Query; BATCH] = std::array::from_fn(|at| self.at(turn + at));
            let all = nanoseconds(
                || batch.iter_mut().for_each(|query| self.index.lookup(query, black_box(&mut self.out))),
                clock,
            );
            samples.batches.push(all / BATCH as f64);
            for at in BATCH..2 * BATCH {
                let mut query = self.at(turn + at);
                samples.singles.push(nanoseconds(|| self.index.lookup(&mut query, black_box(&mut self.out)), clock));
            }
        }
    }

    /// A copy of a query: it leaves the prompt in the cache, where hashing would have left it.
    fn at(&self, turn: usize) -> C::Query {
        self.queries[turn % self.queries.len()].clone()
    }
}
