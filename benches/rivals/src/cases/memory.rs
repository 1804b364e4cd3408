//! Live bytes after a fleet has been stored, as asked of the allocator.

use prefixroute_core::{BlockHash, Config, Index};

use super::{Task, each_native};
use crate::contender::{Contender, Ours};
use crate::lane::fill;
use crate::memory::live_bytes;
use crate::report::{Figure, Row};
use crate::workload::{Asking, Fleet, W1, W4_256, conversations};

pub fn bytes(task: &Task, emit: &mut dyn FnMut(Row)) {
    for shape in [W1, W4_256] {
        let fleet = shape.fleet(Asking::HitAll, 0);
        let figures = each_native!(task.contender, per_membership(&fleet)).into_iter().collect();
        let what = format!("memory, {}, fed by events, per (block, replica) held", shape.name);
        emit(Row { what, unit: "bytes".into(), figures, more_is_better: false });
    }
    if task.contender != Ours::NAME {
        return;
    }
    let fleet = conversations(16_384, 1, 0, 8);
    let figures = vec![believed(&fleet)];
    let what = "memory, 4.9 M blocks, belief alone, per distinct block".to_owned();
    emit(Row { what, unit: "bytes".into(), figures, more_is_better: false });
}

fn per_membership<C: Contender>(fleet: &Fleet) -> Figure {
    let (index, bytes) = live_bytes(|| fill::<C>(fleet));
    let bytes = bytes + index.mapped_bytes() as f64;
    Figure::plain(C::NAME, bytes / fleet.memberships() as f64)
}

fn believed(fleet: &Fleet) -> Figure {
    let (index, bytes) = live_bytes(|| {
        let index = Index::new(Config::default()).expect("a valid configuration");
        for replica in 0..fleet.replicas {
            index.add_replica(&replica.to_string(), None).expect("fewer replicas than the limit");
        }
        for store in &fleet.stores {
            let hashes: Vec<BlockHash> = fleet.chains[store.chain].hashes().into_iter().map(BlockHash).collect();
            let slot = index.slot(&store.replica.to_string()).expect("added above");
            index.insert(slot, &hashes, 0.0).expect("a live slot");
        }
        index
    });
    drop(index);
    Figure::plain(Ours::NAME, bytes / fleet.distinct() as f64)
}
