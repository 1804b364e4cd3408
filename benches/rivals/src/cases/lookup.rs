//! Hashes of a prompt in, leading blocks of every replica out.

use super::{Task, each};
use crate::contender::Contender;
use crate::lane::Lane;
use crate::report::{Figure, Row};
use crate::timing::Samples;
use crate::workload::{Asking, Fleet, W1, W2, W3, W4_64, W4_256, conversations};

/// Lookups of a round.
const TURN: usize = 256;
/// Lookups before the first round that only warm the caches up.
const WARM: usize = 64;

/// The workloads W1 to W4.
pub fn hot(task: &Task, emit: &mut dyn FnMut(Row)) {
    let askings = [Asking::HitAll, Asking::HitOne, Asking::NextTurn, Asking::Divergence, Asking::Miss];
    for asking in askings {
        emit(compare(&W1.fleet(asking, 200), WARM, task));
    }
    for shape in [W2, W3, W4_64, W4_256] {
        for asking in [Asking::HitAll, Asking::NextTurn] {
            emit(compare(&shape.fleet(asking, 200), WARM, task));
        }
    }
    emit(compare(&W4_256.fleet(Asking::Divergence, 8_192), 0, task));
}

/// 4.9 million distinct blocks, every lookup in another conversation.
pub fn cold(task: &Task, emit: &mut dyn FnMut(Row)) {
    for replicas in [8, 64, 256] {
        let mut fleet = conversations(16_384, 16_384, 8_192, replicas);
        fleet.name = format!("cold, 4.9 M blocks, {replicas} replicas, 428-block prompt held + 16 new");
        emit(compare(&fleet, 0, task));
    }
}

/// The same hot prompts in ever larger indexes, and ever longer prompts.
pub fn growth(task: &Task, emit: &mut dyn FnMut(Row)) {
    for count in [32, 320, 3_200, 16_384] {
        let mut fleet = conversations(count, 16, 64, 8);
        fleet.name =
            format!("growth, {} k blocks held, the same 16 prompts", (count * 300 + 64.min(count) * 128) / 1_000);
        emit(compare(&fleet, WARM, task));
    }
    for blocks in [64, 256, 1_024, 4_096, 8_000] {
        let shape = crate::workload::Shape { name: "growth", blocks, ..W3 };
        let mut fleet = shape.fleet(Asking::HitOne, 16);
        fleet.name = format!("growth, prompt of {blocks} blocks");
        emit(compare(&fleet, WARM, task));
    }
}

fn compare(fleet: &Fleet, warm: usize, task: &Task) -> Row {
    let figures = each!(task.contender, timed(fleet, warm, task)).into_iter().collect();
    Row { what: format!("lookup, {}", fleet.name), unit: "ns".into(), figures, more_is_better: false }
}

fn timed<C: Contender>(fleet: &Fleet, warm: usize, task: &Task) -> Figure {
    let mut lane = Lane::<C>::new(fleet);
    lane.verify(fleet);
    let mut samples = Samples::default();
    lane.sample(0, warm, task.clock, &mut Samples::default());
    for round in 0..task.effort.rounds {
        lane.sample(round * TURN, TURN, task.clock, &mut samples);
    }
    Figure::timed(C::NAME, samples.timing())
}
