//! What a caller can do wrong, with the value given and what is allowed.

use std::fmt;

use crate::ids::Slot;

/// Replicas that can live in one index at once.
pub const MAX_REPLICAS: usize = 1024;
/// Bytes of a replica's name.
pub const MAX_NAME_BYTES: usize = 65_536;
/// Tokens of a block. Engines for hybrid models have sizes such as 1,536 and 2,096.
pub const MAX_BLOCK_SIZE: usize = 65_536;

/// Blocks of a prompt, or of a store event.
pub const MAX_PROMPT_BLOCKS: usize = 1 << 22;
/// Bytes of a batch of events.
pub const MAX_PAYLOAD_BYTES: usize = 64 << 20;
/// Runs of the tree.
pub const MAX_RUNS: usize = 1 << 26;

/// An error of the core. Whatever raises one has changed nothing.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// The block size is not one the index can have.
    BlockSize(usize),
    /// The index has another block size than the caller's hashes.
    BlockSizeMismatch {
        /// Block size of the index.
        index: usize,
        /// Block size that was given.
        given: usize,
    },
    /// The time to live is not a positive number of seconds.
    Ttl(f64),
    /// `max_bytes` is below what the index reserves while it holds nothing.
    Budget {
        /// The bound that was given.
        given: u64,
        /// The least that so many replicas allow.
        least: u64,
        /// Replicas, freed slots included.
        replicas: usize,
    },
    /// Not a positive, finite number of seconds that provisional belief lasts.
    Provisional(f64),
    /// The time given is not a finite number of seconds.
    Time(f64),
    /// The name is empty or too long.
    Name(usize),
    /// A replica of that name is there already.
    ReplicaExists(String),
    /// No room for another replica.
    TooManyReplicas,
    /// The prompt or event has too many blocks.
    TooManyBlocks(usize),
    /// The tree is full.
    Full,
    /// No replica lives in that slot.
    UnknownSlot(Slot),
    /// No replica has that name.
    UnknownReplica(String),
    /// An event names so many engine hashes, but so many block contents.
    EventLengths {
        /// Engine hashes in the event.
        hashes: usize,
        /// Block contents in the event.
        contents: usize,
    },
    /// The bytes are no batch of events.
    Payload(&'static str),
    /// The batch of events has too many bytes.
    PayloadBytes(usize),
    /// A store event has so many token ids for so many blocks.
    EventTokens {
        /// Token ids in the event.
        tokens: usize,
        /// Blocks that it names.
        blocks: usize,
        /// Tokens of one of them.
        block_size: usize,
    },
    /// Extra keys must stand in the order of their token positions.
    ExtraKeyOrder {
        /// Position of the key that stands too late.
        position: usize,
    },
    /// The bytes are not a saved index, or not one this version reads, or were altered.
    Corrupt(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = "a positive number of seconds";
        match self {
            Error::BlockSize(given) => must(f, "block size must be", format_args!("1..={MAX_BLOCK_SIZE}"), given),
            Error::BlockSizeMismatch { index, given } => {
                must(f, "block size must be", format_args!("{index} as in the index"), given)
            }
            Error::Ttl(given) => must(f, "ttl must be", seconds, given),
            Error::Budget { given, least, replicas } => {
                must(f, "max_bytes must be", format_args!("at least {least} for {replicas} replicas"), given)
            }
            Error::Provisional(given) => must(f, "provisional_s must be", seconds, given),
            Error::Time(given) => must(f, "time must be", "a finite number of seconds", given),
            Error::Name(given) => must(f, "replica name must have", format_args!("1..={MAX_NAME_BYTES} bytes"), given),
            Error::ReplicaExists(name) => write!(f, "replica {name:?} exists already"),
            Error::TooManyReplicas => write!(f, "an index holds at most {MAX_REPLICAS} replicas at once"),
            Error::TooManyBlocks(given) => {
                must(f, "a prompt or event has", format_args!("at most {MAX_PROMPT_BLOCKS} blocks"), given)
            }
            Error::Full => write!(f, "an index has at most {MAX_RUNS} runs"),
            Error::UnknownSlot(slot) => write!(f, "no replica in slot {}", slot.0),
            Error::UnknownReplica(name) => write!(f, "no replica is named {name:?}"),
            Error::EventLengths { hashes, contents } => {
                write!(f, "a store event needs one content per hash, got {hashes} hashes and {contents} contents")
            }
            Error::Payload(why) => write!(f, "not a batch of events: {why}"),
            Error::PayloadBytes(given) => {
                must(f, "a batch of events has", format_args!("at most {MAX_PAYLOAD_BYTES} bytes"), given)
            }
            Error::EventTokens { tokens, blocks, block_size } => {
                let (all, block) = (blocks * block_size, if *blocks == 1 { "block" } else { "blocks" });
                write!(f, "{blocks} {block} of {block_size} tokens have {all} token ids, got {tokens}")
            }
            Error::ExtraKeyOrder { position } => {
                write!(f, "extra keys must be in order of token position, position {position} comes too late")
            }
            Error::Corrupt(why) => write!(f, "not a saved index: {why}"),
        }
    }
}

/// What something must be, and what was given.
fn must(f: &mut fmt::Formatter<'_>, what: &str, allowed: impl fmt::Display, given: &impl fmt::Display) -> fmt::Result {
    write!(f, "{what} {allowed}, got {given}")
}

impl std::error::Error for Error {}

/// Result of the core.
pub type Result<T> = std::result::Result<T, Error>;
