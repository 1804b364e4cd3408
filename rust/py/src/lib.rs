//! `prefixroute._core`: converts, works, converts back; nothing else.
// A PyO3 method takes what Python passes, by value; docstrings for Python users are in `_core.pyi` and the facade modules.
#![expect(clippy::needless_pass_by_value, reason = "arguments of Python functions arrive by value")]
#![expect(clippy::doc_markdown, reason = "docstrings that Python users read, in the Google style")]

mod batch;
mod cache;
mod columns;
mod draws;
mod errors;
mod event;
mod hashes;
mod index;
mod ints;
mod lock;
mod namespace;
mod numbers;
mod out;
mod outcomes;
mod peers;
mod policies;
mod routing;
mod sim;
mod sizes;
mod text;
mod tokens;

use pyo3::prelude::*;

/// The compiled core of prefixroute.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::cache::{Admitted, CacheEvent, EntryCache, Finished, NoRoom, ReplicaCache};
    #[pymodule_export]
    use super::columns::is_answer;
    #[pymodule_export]
    use super::draws::{chain, draw, scattered};
    #[pymodule_export]
    use super::hashes::{BlockHashes, hash_blocks};
    #[pymodule_export]
    use super::index::PrefixIndex;
    #[pymodule_export]
    use super::numbers::BatchNumbers;
    #[pymodule_export]
    use super::outcomes::{Applied, FeedStats, IndexStats, Insertion, Removed, Stored};
    #[pymodule_export]
    use super::peers::{PeerChains, PeerFrame, PeerInbox, PeerOutbox, PeerRing, PeerRings, PeerSeal};
    #[pymodule_export]
    use super::policies::{Formula, Kernel, Roster, best_of, start_seconds};
    #[pymodule_export]
    use super::routing::{Attempt, Lease, Ledger, Lens, LoadCounts, Sight};
    #[pymodule_export]
    use super::sim::{Cluster, ReplicaStore, StepPrices, TransferPrices, duplicated_tokens};
    use super::{Bound, PyModule, PyResult};
    use prefixroute_core::hash::{CONTENT_SEED, TEXT_BYTES_PER_TOKEN};
    use prefixroute_core::peers::wire;
    use prefixroute_core::policies::ASSUMED_TOKENS_PER_S;
    use prefixroute_core::routing::{DURATIONS_S, ZERO_STREAK};
    use prefixroute_core::{
        MAX_BLOCK_SIZE, MAX_NAME_BYTES, MAX_PAYLOAD_BYTES, MAX_PROMPT_BLOCKS, MAX_REPLICAS, PROVISIONAL_S,
        REMEMBERED_BATCHES,
    };
    use pyo3::types::PyModuleMethods;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::out::load_numpy(module.py())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        module.add("MAX_REPLICAS", MAX_REPLICAS)?;
        module.add("MAX_NAME_BYTES", MAX_NAME_BYTES)?;
        module.add("MAX_BLOCK_SIZE", MAX_BLOCK_SIZE)?;
        module.add("MAX_BLOCKS", MAX_PROMPT_BLOCKS)?;
        module.add("MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES)?;
        module.add("BYTES_PER_TOKEN", TEXT_BYTES_PER_TOKEN)?;
        module.add("PROVISIONAL_S", PROVISIONAL_S)?;
        module.add("REMEMBERED_BATCHES", REMEMBERED_BATCHES)?;
        module.add("FIXED_HASH_KEY", CONTENT_SEED)?;
        module.add("DURATIONS_S", DURATIONS_S)?;
        module.add("ZERO_STREAK", ZERO_STREAK)?;
        module.add("ASSUMED_TOKENS_PER_S", ASSUMED_TOKENS_PER_S)?;
        module.add("PEER_VERSION", wire::VERSION)?;
        module.add("MAX_PEER_FRAME_BYTES", wire::MAX_FRAME_BYTES)?;
        module.add("MAX_PEER_VERSION", wire::MAX_NUMBER)?;
        module.add("DEBUG_BUILD", cfg!(debug_assertions))
    }
}
