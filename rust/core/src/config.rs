//! What an index is told when it is made.

use crate::error::{Error, Result};
use crate::hash::{CONTENT_SEED, check_block_size};

/// Copies of a block that requests can have made: so many run at once (`vLLM`'s largest default of `max_num_seqs`), and each computes a
/// block once.
pub const MOST_COPIES: u16 = 1_024;

/// Seconds that belief lasts at a replica that sends events, unless they confirm it (llm-d's speculative entries: 2).
pub const PROVISIONAL_S: f64 = 2.0;
/// Blocks of store events without a known parent that wait for it (550 blocks is an 8,800-token prompt).
pub const ORPHAN_BLOCKS: usize = 65_536;

/// Settings of an index. `Config::default()` has 16-token blocks and no limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Tokens of a block, 1..=65,536.
    pub block_size: usize,
    /// Key of content hashes. A secret one keeps users from crafting tokens that match another namespace's blocks.
    pub hash_key: u64,
    /// Believed blocks per replica, unless the replica has a capacity of its own. Blocks that come from events do not count.
    pub capacity_blocks: Option<u64>,
    /// Bound of the bytes the index reserves.
    pub max_bytes: Option<u64>,
    /// Seconds after its last touch that a believed block is dropped: by the replica's next insert, or by `expire`.
    pub ttl: Option<f64>,
    /// The same at a replica that sends events, where belief is provisional: its own events confirm it or it goes.
    /// `None`: as elsewhere.
    pub provisional: Option<f64>,
    /// Blocks that wait in the orphan buffer before the oldest is dropped.
    pub orphan_blocks: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            block_size: 16,
            hash_key: CONTENT_SEED,
            capacity_blocks: None,
            max_bytes: None,
            ttl: None,
            provisional: Some(PROVISIONAL_S),
            orphan_blocks: ORPHAN_BLOCKS,
        }
    }
}

impl Config {
    /// Typed error unless an index can be made of this.
    ///
    /// # Errors
    ///
    /// [`Error::BlockSize`], [`Error::Ttl`] and [`Error::Provisional`] of what is outside of its limits.
    pub fn check(&self) -> Result<()> {
        check_block_size(self.block_size)?;
        let wrong = |seconds: &f64| !(*seconds > 0.0 && seconds.is_finite());
        if let Some(ttl) = self.ttl.filter(wrong) {
            return Err(Error::Ttl(ttl));
        }
        self.provisional.filter(wrong).map_or(Ok(()), |seconds| Err(Error::Provisional(seconds)))
    }

    /// Seconds that a belief lives at a replica, which may have events of its own.
    pub(crate) fn ttl_of(&self, fed: bool) -> Option<f64> {
        match (self.ttl, self.provisional.filter(|_| fed)) {
            (Some(ttl), Some(provisional)) => Some(ttl.min(provisional)),
            (ttl, provisional) => ttl.or(provisional),
        }
    }
}
