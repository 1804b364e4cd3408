//! Events, decoded, into the index: a prompt's new blocks in one call; then their removal, the same blocks in one call.

use super::{Task, each};
use crate::contender::Contender;
use crate::report::{Figure, Row};
use crate::timing::{median, processor_time};
use crate::workload::{Asking, Fleet, Shape, W1, W4_256};

/// Stores of a whole fleet, then removals of all, in nanoseconds a block (tables grow inside the clock).
pub fn events(task: &Task, emit: &mut dyn FnMut(Row)) {
    for (shape, builds) in [(W1, task.effort.builds * 3), (W4_256, task.effort.builds)] {
        let fleet = shape.fleet(Asking::HitAll, 0);
        let done: Vec<Once> = (0..builds).filter_map(|_| each!(task.contender, build_and_remove(&fleet))).collect();
        emit(row("store", &shape, &done, |once| once.store));
        emit(row("remove", &shape, &done, |once| once.remove));
    }
}

struct Once {
    contender: &'static str,
    store: f64,
    remove: f64,
}

fn row(call: &str, shape: &Shape, done: &[Once], of: fn(&Once) -> f64) -> Row {
    let figure = |first: &Once| Figure::plain(first.contender, median(done.iter().map(of).collect()));
    let what = format!("{call}, {}, one event a prompt", shape.name);
    let figures = done.first().map(figure).into_iter().collect();
    Row { what, unit: "ns a block".into(), figures, more_is_better: false }
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
