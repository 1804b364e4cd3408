//! Frames of the commit feed: how each message is laid out in bytes. The only place that knows; `docs/design/peers.md` has the
//! table.
//!
//! A frame is a header and up to [`MAX_MESSAGES`] messages of one router, whose sequences follow on each other. Its tag is a
//! SipHash-2-4 of all that follows it, under a key that only those have who may speak. Numbers are little-endian; lengths,
//! tokens and distances between sequences are LEB128.

mod read;
mod write;

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use self::read::Bytes;
pub use self::write::write;
use crate::ids::BlockHash;

/// Raised by every change of the layout.
pub const VERSION: u8 = 2;
/// Bytes of a frame at most.
pub const MAX_FRAME_BYTES: usize = 1 << 20;
/// Messages of a frame at most, so that none takes long.
pub const MAX_MESSAGES: usize = 1_024;
/// Hashes of a message at most; a longer chain is sent in pieces.
pub const MAX_HASHES: usize = 1 << 15;
/// Bindings of a message at most.
pub const MAX_BINDINGS: usize = 1 << 12;
/// Bytes of an incarnation at most.
pub const MAX_TEXT_BYTES: usize = 4_096;
/// States that a register can have.
pub const STATES: u8 = 3;
/// Seconds that a suspension can have left.
pub const MAX_SECONDS: f64 = 1e12;
/// The highest sequence, and the highest version of a register.
pub const MAX_NUMBER: u64 = 1 << 63;
/// Bytes before the messages: tag, version, fingerprint, peer, first sequence.
pub const HEADER_BYTES: usize = 8 + 1 + 4 + 8 + 8;
const TAG_BYTES: usize = 8;
/// Flags of a message: a session follows; blocks are known, and the last of them follows.
const HAS_SESSION: u8 = 1;
const HAS_PARENT: u8 = 4;

/// Why bytes are no frame.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum WireError {
    /// So many bytes are too few or too many.
    Bytes(usize),
    /// It has another version.
    Version(u8),
    /// It was changed, or sealed by somebody without the key.
    Tag,
    /// It is of routers that do not hash alike, or have another secret: the fingerprint that is wanted, and its own.
    Stranger(u32, u32),
    /// It ends in the middle of a message of this kind.
    Cut(u8),
    /// A message has no such kind.
    Kind(u8),
    /// It has too many messages.
    Messages,
    /// A field of a message of this kind is outside of its limits: the field, its value, and what is allowed.
    Field(u8, &'static str, f64, f64),
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(given) => {
                write!(f, "a peer's frame must have {HEADER_BYTES} to {MAX_FRAME_BYTES} bytes, got {given}")
            }
            Self::Version(given) => write!(f, "a peer's frame must be of version {VERSION}, got {given}"),
            Self::Tag => write!(f, "a peer's frame is broken: its tag is that of other bytes, or of another secret"),
            Self::Stranger(wanted, given) => write!(
                f,
                "a peer's frame must have the fingerprint {wanted:08x}, got {given:08x}: block_size, hash_key and peer_secret \
                 must be equal"
            ),
            Self::Cut(kind) => write!(f, "a peer's message of kind {kind} is cut off"),
            Self::Kind(given) => {
                write!(f, "a peer's message must be of a kind from 1 to {}, got {given}", Kind::ALL.len())
            }
            Self::Messages => write!(f, "a peer's frame must have 1 to {MAX_MESSAGES} messages"),
            Self::Field(kind, field, given, allowed) => {
                write!(f, "{field} of a peer's message of kind {kind} must be at most {allowed}, got {given}")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// What a message says. The discriminant is its byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An attempt is booked.
    Booked = 1,
    /// It has its first token.
    Started,
    /// It has ended.
    Ended,
    /// All that is in flight.
    Beat,
    /// A register of the fleet.
    Fleet,
    /// A cache was cleared.
    Cleared,
    /// Bindings of sessions.
    Bound,
    /// A replica holds a chain.
    Held,
    /// A chain is asked for.
    Missing,
    /// A chain, or a piece of one.
    Chain,
    /// A router begins.
    Hello,
    /// A snapshot begins.
    Welcome,
    /// A router leaves.
    Left,
}

impl Kind {
    /// All, with the words for them.
    pub const ALL: [(Kind, &'static str); 13] = [
        (Kind::Booked, "booked"),
        (Kind::Started, "started"),
        (Kind::Ended, "ended"),
        (Kind::Beat, "beat"),
        (Kind::Fleet, "fleet"),
        (Kind::Cleared, "cleared"),
        (Kind::Bound, "bound"),
        (Kind::Held, "held"),
        (Kind::Missing, "missing"),
        (Kind::Chain, "chain"),
        (Kind::Hello, "hello"),
        (Kind::Welcome, "welcome"),
        (Kind::Left, "left"),
    ];
}

/// How an attempt has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum End {
    /// With an answer.
    Finished,
    /// Without one, after its first token.
    Aborted,
    /// Before it: its predicted blocks go back.
    Retracted,
}

/// A chain of blocks: so many that were carried before, the last of them, and the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Blocks before the rest.
    pub known: usize,
    /// The last of them; zero if there are none.
    pub parent: BlockHash,
    /// What follows.
    pub rest: Cow<'a, [BlockHash]>,
}

impl Part<'_> {
    /// The part of no chain.
    pub const NONE: Part<'static> = Part { known: 0, parent: BlockHash(0), rest: Cow::Borrowed(&[]) };

    /// Whether it is of no block.
    pub fn is_empty(&self) -> bool {
        self.known == 0 && self.rest.is_empty()
    }
}

/// One open attempt of a beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Sequence of its booking.
    pub attempt: u64,
    /// Mark of the process that it is at.
    pub process: u64,
    /// Tokens that it waits for.
    pub uncached: u32,
    /// Tokens of its prompt.
    pub context: u32,
    /// Whether it has its first token.
    pub started: bool,
}

/// A session and where it is bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Binding {
    /// Name of the session; zero = all sessions.
    pub session: u128,
    /// Mark of the process; zero = it is no longer bound.
    pub process: u64,
    /// Seconds since it was used.
    pub age: f32,
}

/// A register of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct Register<'a> {
    /// Mark of the replica's name.
    pub replica: u64,
    /// Raised by every change.
    pub version: u64,
    /// The router that made the change.
    pub author: u64,
    /// Below [`STATES`].
    pub state: u8,
    /// Seconds that a suspension has left; below zero: no end.
    pub left: f64,
    /// The incarnation's text.
    pub incarnation: Cow<'a, [u8]>,
}

/// One message.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// An attempt is booked. Its number is the sequence of this message.
    Booked {
        /// Mark of the process.
        process: u64,
        /// The session that is now bound there; zero = none.
        session: u128,
        /// Tokens to compute.
        uncached: u32,
        /// Tokens of the prompt.
        context: u32,
        /// Its blocks.
        part: Part<'a>,
    },
    /// An attempt has its first token.
    Started(u64),
    /// An attempt has ended.
    Ended {
        /// Sequence of its booking.
        attempt: u64,
        /// How.
        how: End,
        /// What the process then holds.
        part: Part<'a>,
    },
    /// All that is in flight.
    Beat(Cow<'a, [Open]>),
    /// A register of the fleet.
    Fleet(Register<'a>),
    /// The cache of a replica, by the mark of its name, was cleared; zero = the weights have changed everywhere.
    Cleared(u64),
    /// Bindings of sessions.
    Bound(Cow<'a, [Binding]>),
    /// A process, by its mark, holds a chain.
    Held(u64, Part<'a>),
    /// A router is asked for the chain of so many blocks that ends with this hash.
    Missing {
        /// The router.
        peer: u64,
        /// Blocks.
        known: usize,
        /// Hash of the last.
        parent: BlockHash,
    },
    /// A chain, or a piece of one.
    Chain(Part<'a>),
    /// A router begins.
    Hello,
    /// A snapshot begins.
    Welcome,
    /// A router leaves.
    Left,
}

impl Message<'_> {
    /// What it says.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Booked { .. } => Kind::Booked,
            Self::Started(_) => Kind::Started,
            Self::Ended { .. } => Kind::Ended,
            Self::Beat(_) => Kind::Beat,
            Self::Fleet(_) => Kind::Fleet,
            Self::Cleared(_) => Kind::Cleared,
            Self::Bound(_) => Kind::Bound,
            Self::Held(..) => Kind::Held,
            Self::Missing { .. } => Kind::Missing,
            Self::Chain(_) => Kind::Chain,
            Self::Hello => Kind::Hello,
            Self::Welcome => Kind::Welcome,
            Self::Left => Kind::Left,
        }
    }
}

/// What routers must have in common: a fingerprint that tells strangers, and the key of the tags.
#[derive(Clone, Copy, Debug)]
pub struct Seal {
    fingerprint: u32,
    key: (u64, u64),
}

impl Seal {
    /// The seal of these routers.
    pub fn new(fingerprint: u32, key: u128) -> Self {
        Self { fingerprint, key: (key as u64, (key >> 64) as u64) }
    }

    fn tag(&self, sealed: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write(sealed);
        hasher.finish()
    }

    /// Begins a frame.
    pub fn begin(&self, frame: &mut Vec<u8>, peer: u64, first: u64) {
        frame.clear();
        frame.extend_from_slice(&[0; TAG_BYTES]);
        frame.push(VERSION);
        frame.extend_from_slice(&self.fingerprint.to_le_bytes());
        frame.extend_from_slice(&peer.to_le_bytes());
        frame.extend_from_slice(&first.to_le_bytes());
    }

    /// Writes the tag into a frame that is complete.
    pub fn close(&self, frame: &mut [u8]) {
        let (tag, sealed) = frame.split_at_mut(TAG_BYTES);
        tag.copy_from_slice(&self.tag(sealed).to_le_bytes());
    }

    /// Takes a frame's header off, once its tag is found to be right.
    ///
    /// # Errors
    /// The bytes are no frame, or none of these routers.
    pub fn open<'a>(&self, data: &'a [u8]) -> Result<Frame<'a>, WireError> {
        if data.len() > MAX_FRAME_BYTES {
            return Err(WireError::Bytes(data.len()));
        }
        let mut bytes = Bytes { data, kind: 0 };
        let short = |_| WireError::Bytes(data.len());
        let tag = bytes.u64().map_err(short)?;
        let version = bytes.u8().map_err(short)?;
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        let fingerprint = u32::from_le_bytes(bytes.array().map_err(short)?);
        if fingerprint != self.fingerprint {
            return Err(WireError::Stranger(self.fingerprint, fingerprint));
        }
        let (peer, first) = (bytes.u64().map_err(short)?, bytes.u64().map_err(short)?);
        if tag != self.tag(&data[TAG_BYTES..]) {
            return Err(WireError::Tag);
        }
        if first > MAX_NUMBER {
            return Err(WireError::Field(0, "the first sequence", first as f64, MAX_NUMBER as f64));
        }
        Ok(Frame { peer, first, rest: bytes.data })
    }
}

/// A frame that belongs here.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The router that sent it.
    pub peer: u64,
    /// Sequence of its first message.
    pub first: u64,
    rest: &'a [u8],
}

impl Frame<'_> {
    /// Its messages with their sequences, all of them or none.
    ///
    /// # Errors
    /// One of them is none.
    pub fn messages(&self) -> Result<Vec<(u64, Message<'static>)>, WireError> {
        let mut bytes = Bytes { data: self.rest, kind: 0 };
        let mut found = Vec::new();
        while !bytes.data.is_empty() {
            if found.len() == MAX_MESSAGES {
                return Err(WireError::Messages);
            }
            let sequence = self.first + found.len() as u64;
            found.push((sequence, bytes.message(sequence)?));
        }
        if found.is_empty() { Err(WireError::Messages) } else { Ok(found) }
    }
}
