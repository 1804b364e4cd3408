//! Two threads on one index: lookups beside lookups, and lookups beside a writer that never rests.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

use super::{Effort, Task, each_shared};
use crate::contender::Contender;
use crate::lane::fill;
use crate::report::{Figure, Row};
use crate::timing::{Timing, nanoseconds};
use crate::workload::{Asking, Chain, Fleet, Numbers, W1, W3};

/// Lookups of one thread in one round.
const LOOKUPS: usize = 20_000;

pub fn together(task: &Task, emit: &mut dyn FnMut(Row)) {
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: needs two cores");
        return;
    }
    for (shape, lookups) in [(W1, LOOKUPS), (W3, LOOKUPS / 10)] {
        let fleet = shape.fleet(Asking::HitAll, 64);
        let figures = each_shared!(task.contender, speedup(&fleet, lookups, task.effort)).into_iter().collect();
        let what = format!("threads, {} lookups, two threads against one", shape.name);
        emit(Row { what, unit: "times".into(), figures, more_is_better: true });
    }
    let fleet = W1.fleet(Asking::HitAll, 64);
    let figures = each_shared!(task.contender, beside_a_writer(&fleet, task.clock, task.effort)).into_iter().collect();
    let what = "threads, W1 lookup beside a thread that stores and removes prompts".to_owned();
    emit(Row { what, unit: "ns".into(), figures, more_is_better: false });
}

fn speedup<C: Contender + Sync>(fleet: &Fleet, lookups: usize, effort: Effort) -> Figure {
    let index: C = fill(fleet);
    let queries: Vec<Chain> = fleet.queries.clone();
    let ratio = |_| {
        2.0 * spent(&index, &queries, fleet.replicas, lookups, 1) / spent(&index, &queries, fleet.replicas, lookups, 2)
    };
    Figure::plain(C::NAME, Timing::of((0..effort.builds * 3).map(ratio).collect()).p50)
}

/// Seconds until each of so many threads has done its lookups.
fn spent<C: Contender + Sync>(index: &C, queries: &[Chain], replicas: usize, lookups: usize, threads: usize) -> f64 {
    let barrier = Barrier::new(threads + 1);
    let work = || {
        let prepared: Vec<_> = queries.iter().map(C::query).collect();
        let mut out = vec![0; replicas];
        barrier.wait();
        for turn in 0..lookups {
            index.lookup(&mut prepared[turn % prepared.len()].clone(), &mut out);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        barrier.wait();
        let start = Instant::now();
        for worker in workers {
            worker.join().expect("lookups do not panic");
        }
        start.elapsed().as_secs_f64()
    })
}

fn beside_a_writer<C: Contender<Event: Send> + Sync>(fleet: &Fleet, clock: f64, effort: Effort) -> Figure {
    let index: C = fill(fleet);
    let queries: Vec<_> = fleet.queries.iter().map(C::query).collect();
    let mut out = vec![0; fleet.replicas];
    let mut samples = Vec::new();
    for round in 0..effort.builds as u64 {
        let mut events = writes::<C>(fleet, &mut Numbers(round));
        let (ready, done) = (Barrier::new(2), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                ready.wait();
                events.iter_mut().for_each(|event| index.apply(event));
                index.finish();
                done.store(true, Relaxed);
            });
            ready.wait();
            for query in queries.iter().cycle() {
                let mut query = query.clone();
                samples.push(nanoseconds(|| index.lookup(&mut query, &mut out), clock));
                if done.load(Relaxed) {
                    break;
                }
            }
        });
    }
    Figure::timed(C::NAME, Timing::of(samples))
}

/// New prompts, each removed again a while later.
fn writes<C: Contender>(fleet: &Fleet, numbers: &mut Numbers) -> Vec<C::Event> {
    let batch = |_| {
        let prompts: Vec<(usize, Chain)> =
            (0..16).map(|_| (numbers.below(fleet.replicas), Chain::random(W1.blocks, numbers))).collect();
        let stored = prompts.iter().map(|(replica, chain)| C::stored(*replica, None, chain.from(0)));
        let removed = prompts.iter().map(|(replica, chain)| C::removed(*replica, &chain.names));
        stored.chain(removed).collect::<Vec<_>>()
    };
    (0..64).flat_map(batch).collect()
}
