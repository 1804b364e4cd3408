//! A contender with a fleet in it, behind one type, so that all of them can take turns.

use std::hint::black_box;

use crate::contender::Contender;
use crate::timing::{BATCH, Samples, nanoseconds};
use crate::workload::{Fleet, Oracle};

pub trait Lane {
    fn name(&self) -> &'static str;
    /// Compares the answers to the first queries with the oracle's: a fast wrong answer is no result.
    fn verify(&self, fleet: &Fleet, oracle: &Oracle);
    /// Times `count` lookups of one query after the other, beginning with query `first`; half in batches, half alone.
    fn sample(&mut self, first: usize, count: usize, clock: f64, samples: &mut Samples);
}

const VERIFIED: usize = 64;

struct Filled<C: Contender> {
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

pub fn lane<C: Contender + 'static>(fleet: &Fleet) -> Box<dyn Lane> {
    let queries = fleet.queries.iter().map(C::query).collect();
    Box::new(Filled { index: fill::<C>(fleet), queries, out: vec![0; fleet.replicas] })
}

impl<C: Contender> Lane for Filled<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn verify(&self, fleet: &Fleet, oracle: &Oracle) {
        let mut out = vec![0; fleet.replicas];
        for query in fleet.queries.iter().take(VERIFIED) {
            self.index.answer(query, &mut out);
            assert_eq!(out, oracle.answer(query), "{} answers wrongly in {}", C::NAME, fleet.name);
        }
    }

    fn sample(&mut self, first: usize, count: usize, clock: f64, samples: &mut Samples) {
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
}

impl<C: Contender> Filled<C> {
    /// A copy of a query: it leaves the prompt in the cache, where hashing would have left it.
    fn at(&self, turn: usize) -> C::Query {
        self.queries[turn % self.queries.len()].clone()
    }
}
