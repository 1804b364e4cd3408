//! Hashes of a prompt in, leading blocks of every replica out.

use super::{Effort, each};
use crate::lane::{Lane, lane};
use crate::report::{Figure, Row};
use crate::timing::Samples;
use crate::workload::{Asking, Fleet, Oracle, W1, W2, W3, W4_64, W4_256, conversations};

/// Lookups of one contender before the next one's turn; the first ones only warm its caches up.
const TURN: usize = 256;
const WARM: usize = 64;

/// The workloads W1 to W4.
pub fn hot(effort: Effort, clock: f64, emit: &mut dyn FnMut(Row)) {
    let askings = [Asking::HitAll, Asking::HitOne, Asking::NextTurn, Asking::Divergence, Asking::Miss];
    for asking in askings {
        emit(compare(&W1.fleet(asking, 200), WARM, effort, clock));
    }
    for shape in [W2, W3, W4_64, W4_256] {
        for asking in [Asking::HitAll, Asking::NextTurn] {
            emit(compare(&shape.fleet(asking, 200), WARM, effort, clock));
        }
    }
}

/// 4.9 million distinct blocks, every lookup in another conversation.
pub fn cold(effort: Effort, clock: f64, emit: &mut dyn FnMut(Row)) {
    for replicas in [8, 64, 256] {
        let mut fleet = conversations(16_384, 16_384, 8_192, replicas);
        fleet.name = format!("cold, 4.9 M blocks, {replicas} replicas, 428-block prompt held + 16 new");
        emit(compare(&fleet, 0, effort, clock));
    }
}

/// The same hot prompts in ever larger indexes, and ever longer prompts.
pub fn growth(effort: Effort, clock: f64, emit: &mut dyn FnMut(Row)) {
    for count in [32, 320, 3_200, 16_384] {
        let mut fleet = conversations(count, 16, 64, 8);
        fleet.name =
            format!("growth, {} k blocks held, the same 16 prompts", (count * 300 + 64.min(count) * 128) / 1_000);
        emit(compare(&fleet, WARM, effort, clock));
    }
    for blocks in [64, 256, 1_024, 4_096, 8_000] {
        let shape = crate::workload::Shape { name: "growth", blocks, ..W3 };
        let mut fleet = shape.fleet(Asking::HitOne, 16);
        fleet.name = format!("growth, prompt of {blocks} blocks");
        emit(compare(&fleet, WARM, effort, clock));
    }
}

fn compare(fleet: &Fleet, warm: usize, effort: Effort, clock: f64) -> Row {
    let mut lanes: Vec<Box<dyn Lane>> = each!(lane(fleet));
    let oracle = Oracle::of(fleet);
    lanes.iter().for_each(|lane| lane.verify(fleet, &oracle));
    drop(oracle);
    let mut samples: Vec<Samples> = lanes.iter().map(|_| Samples::default()).collect();
    for round in 0..effort.rounds {
        for (lane, samples) in lanes.iter_mut().zip(&mut samples) {
            lane.sample(round * TURN, warm, clock, &mut Samples::default());
            lane.sample(round * TURN, TURN, clock, samples);
        }
    }
    let figures = lanes.iter().zip(samples).map(|(lane, samples)| Figure::timed(lane.name(), samples.timing()));
    Row { what: format!("lookup, {}", fleet.name), unit: "ns", figures: figures.collect(), more_is_better: false }
}
