//! `PeerChains`: the chains that a commit feed has carried.

use prefixroute_core::BlockHash;
use prefixroute_core::peers::Chains;
use pyo3::prelude::*;

use crate::errors;
use crate::hashes::BlockHashes;
use crate::lock::Lock;

const HASH_BYTES: usize = size_of::<u64>();

/// The chains of blocks that a commit feed has carried, so that a message names only the blocks beyond the first unknown one.
///
/// Bounded: the chain that was used longest ago goes first. Safe to use from many threads.
///
/// Args:
///     block_size: tokens of a block.
///     capacity: blocks kept at most, about 11 bytes each.
#[pyclass(frozen, module = "prefixroute._core")]
pub struct PeerChains {
    chains: Lock<Chains>,
    block_size: usize,
}

impl PeerChains {
    /// Works on the table alone.
    pub fn with<R>(&self, work: impl FnOnce(&mut Chains) -> R) -> R {
        work(&mut self.chains.lock())
    }
}

#[pymethods]
impl PeerChains {
    #[new]
    fn py_new(block_size: usize, capacity: usize) -> Self {
        Self { chains: Lock::new(Chains::new(capacity)), block_size }
    }

    /// The chain that goes on behind a known one, stored; None if that one is not known.
    ///
    /// Args:
    ///     start: blocks of the known chain.
    ///     parent: hash of its last block; without blocks it is not looked at.
    ///     rest: the further hashes as little-endian bytes.
    ///
    /// Raises:
    ///     ConfigError: the bytes are no whole number of hashes.
    fn extend(&self, start: usize, parent: u64, rest: &[u8]) -> PyResult<Option<BlockHashes>> {
        if rest.len() % HASH_BYTES != 0 {
            return Err(errors::config(format!("hashes must have 8 bytes each, got {} bytes", rest.len())));
        }
        let words = rest.chunks_exact(HASH_BYTES).filter_map(<[u8]>::first_chunk);
        let rest: Vec<BlockHash> = words.map(|word| BlockHash(u64::from_le_bytes(*word))).collect();
        let chain = self.with(|chains| chains.extend(start, BlockHash(parent), &rest));
        Ok(chain.map(|chain| self.hashes(chain)))
    }

    /// The chain of so many blocks that ends with this hash; None if it is not known.
    fn chain(&self, last: u64, blocks: usize) -> Option<BlockHashes> {
        let chain = self.with(|chains| chains.chain(BlockHash(last), blocks))?;
        Some(self.hashes(chain))
    }

    /// The chains used last, newest first: at most so many, of so many blocks in all.
    fn newest(&self, most: usize, most_blocks: usize) -> Vec<BlockHashes> {
        self.with(|chains| chains.newest(most, most_blocks)).into_iter().map(|chain| self.hashes(chain)).collect()
    }

    /// Blocks stored.
    fn __len__(&self) -> usize {
        self.with(|chains| chains.len())
    }
}

impl PeerChains {
    /// A chain as Python has it.
    pub fn hashes(&self, chain: Vec<BlockHash>) -> BlockHashes {
        let tokens = chain.len() * self.block_size;
        BlockHashes::given(chain, tokens, self.block_size)
    }
}
