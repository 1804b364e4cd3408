//! What a name means: a block that a replica has named keeps its identity, whatever a later event says of it.
//!
//! An engine's hash commits to all that a block holds, while an event can leave some of it out: connectors tell of a block on
//! another medium without its adapter, salt or media. So a name that is known says what the block is, and what follows it in
//! the event goes on from there. Only a block of which no copy on the GPU is known is what a store on the GPU says: it moves
//! there, with its other copies.

use std::collections::VecDeque;

use super::truth::{Adding, Truth, add_copy};
use crate::holders::Hold;
use crate::holdings::Holdings;
use crate::ids::{BlockHash, EngineHash, Medium, Slot};
use crate::outcome::{Content, Stored, StoredEvent};
use crate::trie::{Place, RunId};

/// What becomes of a block of an event.
#[derive(Clone, Copy)]
enum Step {
    /// It is this one, which follows the one before.
    Chained(BlockHash),
    /// It is the one that its name is known for.
    Known(BlockHash),
    /// It waits for the one before, which nobody knows.
    Waits,
}

/// Where a block lies that this replica holds by events and calls so, and its copies.
fn held_place(held: &Holdings, slot: Slot, name: EngineHash) -> Option<(Place, RunId, [u16; 3])> {
    let place = held.place_of(slot, name)?;
    let run = held.trie.chunks.view(place)?;
    match held.hold(run, slot) {
        Some(Hold::Truth { copies }) => Some((place, run, copies)),
        _ => None,
    }
}

impl Step {
    /// The block, if it is known.
    fn block(self) -> Option<BlockHash> {
        match self {
            Step::Chained(block) | Step::Known(block) => Some(block),
            Step::Waits => None,
        }
    }

    fn chained(&self) -> Option<BlockHash> {
        self.block().filter(|_| matches!(self, Step::Chained(_)))
    }
}

impl Truth {
    /// Stores blocks whose names may be known. Gives those that are stored now.
    pub(super) fn store_named(
        &mut self,
        held: &mut Holdings,
        event: &StoredEvent<'_>,
        adding: Adding,
        done: &mut Stored,
    ) -> VecDeque<EngineHash> {
        let above = match event.parent {
            None => Some(event.seed),
            Some(name) => held.place_of(adding.slot, name).map(|place| held.trie.chunks.block(place).0),
        };
        let (steps, moves) = steps_of(held, event, adding, above);
        let take = |at| take_all(held, adding.slot, event.engine[at]).map(|copies| (at, copies));
        let carried: Vec<_> = moves.into_iter().filter_map(take).collect();
        let named = self.take_steps(held, event, adding, above, &steps, done);
        for (at, copies) in carried {
            carry(held, adding.slot, event.engine[at], steps[at], copies);
        }
        named
    }

    /// Takes the steps in order, those that follow on each other together.
    fn take_steps(
        &mut self,
        held: &mut Holdings,
        event: &StoredEvent<'_>,
        adding: Adding,
        mut above: Option<u64>,
        steps: &[Step],
        done: &mut Stored,
    ) -> VecDeque<EngineHash> {
        let (mut named, mut parent, mut at) = (VecDeque::new(), event.parent, 0);
        while at < steps.len() {
            let chain: Vec<BlockHash> = steps[at..].iter().map_while(Step::chained).collect();
            let end = at + chain.len().max(1);
            let place = parent.and_then(|parent| held.place_of(adding.slot, parent));
            // The block before can have gone with one that has moved.
            let is_there = place.map(|place| held.trie.chunks.block(place).0) == above;
            match (steps[at], parent) {
                (Step::Known(block), _) => {
                    copy_known(held, adding, event.engine[at], block, done);
                    named.push_back(event.engine[at]);
                }
                (Step::Chained(_), parent) if parent.is_none() || is_there => {
                    if !has_room(held, adding.slot, place, &chain) {
                        done.dropped += chain.len();
                        break;
                    }
                    self.store_chain(held, place, &chain, &event.engine[at..end], adding, done);
                    named.extend(&event.engine[at..end]);
                }
                (_, Some(parent)) => self.wait(held, event, at..end, parent, adding, done),
                (_, None) => {} // the start of a prompt waits for nothing
            }
            above = steps[end - 1].block().map(|block| block.0);
            parent = Some(event.engine[end - 1]);
            at = end;
        }
        named
    }
}

/// What becomes of each block, and which ones move.
fn steps_of(
    held: &Holdings,
    event: &StoredEvent<'_>,
    adding: Adding,
    mut above: Option<u64>,
) -> (Vec<Step>, Vec<usize>) {
    let (mut steps, mut moves) = (Vec::with_capacity(event.engine.len()), Vec::new());
    for (at, (&name, content)) in event.engine.iter().zip(event.contents.iter()).enumerate() {
        let told = above.map(|above| content.chained(above));
        let known = held_place(held, adding.slot, name);
        let known = known.map(|(place, _, copies)| (held.trie.chunks.block(place), copies));
        let step = match (told, known) {
            (Some(told), Some((block, copies))) if told != block => {
                let knows_better = adding.residence.medium == Medium::Gpu && copies[Medium::Gpu.index()] == 0;
                if knows_better || matches!(content, Content::Prefix(_)) {
                    moves.push(at);
                    Step::Chained(told)
                } else {
                    Step::Known(block)
                }
            }
            (Some(told), _) => Step::Chained(told),
            (None, Some((block, _))) => Step::Known(block),
            (None, None) => Step::Waits,
        };
        above = step.block().map(|block| block.0);
        steps.push(step);
    }
    (steps, moves)
}

/// Takes all copies of a block that is to move.
fn take_all(held: &mut Holdings, slot: Slot, name: EngineHash) -> Option<[u16; 3]> {
    let (place, run, copies) = held_place(held, slot, name)?;
    let from = place.at - held.trie.run(run).start;
    held.drop_range(run, from, from + 1, slot);
    held.names.drop_own(slot, name);
    Some(copies)
}

/// The run with the block that a name is known for, and where in it.
fn run_known(held: &Holdings, slot: Slot, name: EngineHash, block: BlockHash) -> Option<(RunId, u32)> {
    let (place, run, _) = held_place(held, slot, name)?;
    (held.trie.chunks.block(place) == block).then(|| (run, place.at - held.trie.run(run).start))
}

/// Whether the bound leaves room for a chain below a place, some of whose names can be the replica's own.
fn has_room(held: &Holdings, slot: Slot, parent: Option<Place>, chain: &[BlockHash]) -> bool {
    held.limit.is_none() || {
        let names = held.names.growth(slot, chain.len(), chain.len());
        held.fits(&held.chain_growth(slot, parent, chain, Some(names)))
    }
}

/// One more copy of the block that a name is known for.
fn copy_known(held: &mut Holdings, adding: Adding, name: EngineHash, block: BlockHash, done: &mut Stored) {
    let Some((run, at)) = run_known(held, adding.slot, name, block) else {
        done.placeless += 1; // it has moved meanwhile
        return;
    };
    if let Some(piece) = held.try_cut(run, at, at + 1) {
        add_copy(held, piece, adding, done);
        held.tidy(piece);
    } else {
        done.dropped += 1;
    }
}

/// Adds the copies that a block had before it moved.
fn carry(held: &mut Holdings, slot: Slot, name: EngineHash, step: Step, carried: [u16; 3]) {
    let Some((run, at)) = step.chained().and_then(|block| run_known(held, slot, name, block)) else { return };
    let Some(piece) = held.try_cut(run, at, at + 1) else { return };
    if let Hold::Truth { copies } = held.hold_mut(piece, slot) {
        for (copies, carried) in copies.iter_mut().zip(carried) {
            *copies = copies.saturating_add(carried);
        }
    }
    held.tidy(piece);
}
