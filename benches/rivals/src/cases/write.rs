//! Events, decoded, into the index: a prompt's new blocks in one call; then their removal, the same blocks in one call.

use super::{Effort, each};
use crate::contender::Contender;
use crate::report::{Figure, Row};
use crate::timing::{Timing, processor_time};
use crate::workload::{Asking, Fleet, W1, W4_256};

/// Stores of a whole fleet, then removals of all, in nanoseconds a block (tables grow inside the clock).
pub fn events(effort: Effort, _: f64, emit: &mut dyn FnMut(Row)) {
    for (shape, builds) in [(W1, effort.builds * 3), (W4_256, effort.builds.min(3))] {
        let fleet = shape.fleet(Asking::HitAll, 0);
        let mut all: Vec<Samples> = Vec::new();
        for _ in 0..builds {
            let round = each!(build_and_remove(&fleet));
            if all.is_empty() {
                all = round.iter().map(|once| Samples::new(once.contender)).collect();
            }
            all.iter_mut().zip(round).for_each(|(samples, once)| samples.push(&once));
        }
        emit(row(format!("store, {}, one event a prompt", shape.name), &all, |samples| &samples.store));
        emit(row(format!("remove, {}, one event a prompt", shape.name), &all, |samples| &samples.remove));
    }
}

struct Once {
    contender: &'static str,
    store: f64,
    remove: f64,
}

struct Samples {
    contender: &'static str,
    store: Vec<f64>,
    remove: Vec<f64>,
}

impl Samples {
    fn new(contender: &'static str) -> Self {
        Samples { contender, store: Vec::new(), remove: Vec::new() }
    }

    fn push(&mut self, once: &Once) {
        self.store.push(once.store);
        self.remove.push(once.remove);
    }
}

fn row(what: String, all: &[Samples], of: impl Fn(&Samples) -> &Vec<f64>) -> Row {
    let figures =
        all.iter().map(|samples| Figure::plain(samples.contender, Timing::of(of(samples).clone()).p50)).collect();
    Row { what, unit: "ns a block", figures, more_is_better: false }
}

fn build_and_remove<C: Contender>(fleet: &Fleet) -> Once {
    let blocks = fleet.memberships() as f64;
    let index = C::with_replicas(fleet.replicas);
    let stored = fleet.stores.iter().map(|store| {
        let chain = &fleet.chains[store.chain];
        C::stored(store.replica, chain.parent(store.from), chain.from(store.from))
    });
    let store = apply_all(&index, stored.collect());
    let removed = fleet.stores.iter().rev().map(|store| {
        let chain = &fleet.chains[store.chain];
        C::removed(store.replica, chain.from(store.from).names)
    });
    let remove = apply_all(&index, removed.collect());
    for store in &fleet.stores {
        assert_empty(&index, fleet, store.chain);
    }
    Once { contender: C::NAME, store: store / blocks, remove: remove / blocks }
}

fn assert_empty<C: Contender>(index: &C, fleet: &Fleet, chain: usize) {
    let mut out = vec![0; fleet.replicas];
    index.answer(&fleet.chains[chain], &mut out);
    assert!(out.iter().all(|&blocks| blocks == 0), "{} holds what was removed", C::NAME);
}

fn apply_all<C: Contender>(index: &C, mut events: Vec<C::Event>) -> f64 {
    processor_time(|| {
        events.iter_mut().for_each(|event| index.apply(event));
        index.finish();
    })
}
