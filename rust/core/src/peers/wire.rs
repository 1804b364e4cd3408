//! Frames of the commit feed: how each message is laid out in bytes. The only place that knows; `docs/design/peers.md` has the
//! table.
//!
//! A frame is a header and up to [`MAX_MESSAGES`] messages of one router, whose sequences follow on each other. Its tag is a
//! SipHash-2-4 of all that follows it, under a key that only those have who may speak. Numbers are little-endian; lengths,
//! tokens and distances between sequences are LEB128.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use super::table::MAX_OPEN;
use crate::error::MAX_PROMPT_BLOCKS;
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

// -- writing -------------------------------------------------------------------------------------------------------

const HAS_SESSION: u8 = 1;
const HAS_PARENT: u8 = 4;

fn put(frame: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        frame.push(number as u8 | 0x80);
        number >>= 7;
    }
    frame.push(number as u8);
}

fn put_parent(frame: &mut Vec<u8>, part: &Part<'_>) {
    if part.known > 0 {
        put(frame, part.known as u64);
        frame.extend_from_slice(&part.parent.0.to_le_bytes());
    }
}

fn put_rest(frame: &mut Vec<u8>, part: &Part<'_>) {
    put(frame, part.rest.len() as u64);
    frame.reserve(8 * part.rest.len());
    for hash in &*part.rest {
        frame.extend_from_slice(&hash.0.to_le_bytes());
    }
}

fn has_parent(part: &Part<'_>) -> u8 {
    if part.known > 0 { HAS_PARENT } else { 0 }
}

/// Writes a message behind those that a frame has. Its fields are within the limits of this module.
pub fn write(frame: &mut Vec<u8>, sequence: u64, message: &Message<'_>) {
    frame.push(message.kind() as u8);
    let distance = |attempt: u64| sequence.wrapping_sub(attempt);
    match message {
        Message::Booked { process, session, uncached, context, part } => {
            frame.push(has_parent(part) | if *session == 0 { 0 } else { HAS_SESSION });
            frame.extend_from_slice(&process.to_le_bytes());
            if *session != 0 {
                frame.extend_from_slice(&session.to_le_bytes());
            }
            put(frame, (*uncached).into());
            put(frame, (*context).into());
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Started(attempt) => put(frame, distance(*attempt)),
        Message::Ended { attempt, how, part } => {
            frame.push(has_parent(part) | *how as u8);
            put(frame, distance(*attempt));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Beat(rows) => {
            put(frame, rows.len() as u64);
            for row in &**rows {
                put(frame, distance(row.attempt));
                frame.extend_from_slice(&row.process.to_le_bytes());
                put(frame, row.uncached.into());
                put(frame, u64::from(row.context) << 1 | u64::from(row.started));
            }
        }
        Message::Fleet(register) => {
            frame.extend_from_slice(&register.replica.to_le_bytes());
            put(frame, register.version);
            frame.extend_from_slice(&register.author.to_le_bytes());
            frame.push(register.state);
            frame.extend_from_slice(&register.left.to_le_bytes());
            put(frame, register.incarnation.len() as u64);
            frame.extend_from_slice(&register.incarnation);
        }
        Message::Cleared(replica) => frame.extend_from_slice(&replica.to_le_bytes()),
        Message::Bound(rows) => {
            put(frame, rows.len() as u64);
            for row in &**rows {
                frame.extend_from_slice(&row.session.to_le_bytes());
                frame.extend_from_slice(&row.process.to_le_bytes());
                frame.extend_from_slice(&row.age.to_le_bytes());
            }
        }
        Message::Held(process, part) => {
            frame.extend_from_slice(&process.to_le_bytes());
            frame.push(has_parent(part));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Missing { peer, known, parent } => {
            frame.extend_from_slice(&peer.to_le_bytes());
            put(frame, *known as u64);
            frame.extend_from_slice(&parent.0.to_le_bytes());
        }
        Message::Chain(part) => {
            frame.push(has_parent(part));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Hello | Message::Welcome | Message::Left => {}
    }
}

// -- reading -------------------------------------------------------------------------------------------------------

/// What is left of a frame, within a message of this kind.
struct Bytes<'a> {
    data: &'a [u8],
    kind: u8,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, data) = self.data.split_at_checked(count).ok_or(WireError::Cut(self.kind))?;
        self.data = data;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, data) = self.data.split_first_chunk().ok_or(WireError::Cut(self.kind))?;
        self.data = data;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_le_bytes)
    }

    fn number(&mut self) -> Result<u64, WireError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(WireError::Cut(self.kind))
    }

    fn limited(&mut self, field: &'static str, most: u64) -> Result<u64, WireError> {
        let number = self.number()?;
        self.check(number <= most, field, number as f64, most as f64)?;
        Ok(number)
    }

    fn check(&self, allowed: bool, field: &'static str, given: f64, most: f64) -> Result<(), WireError> {
        if allowed { Ok(()) } else { Err(WireError::Field(self.kind, field, given, most)) }
    }

    fn tokens(&mut self) -> Result<(u32, u32), WireError> {
        let most = u32::MAX.into();
        let (uncached, context) = (self.limited("uncached tokens", most)?, self.limited("prompt tokens", most)?);
        self.check(uncached <= context, "uncached tokens", uncached as f64, context as f64)?;
        Ok((uncached as u32, context as u32))
    }

    fn part(&mut self, flags: u8) -> Result<Part<'static>, WireError> {
        let (mut known, mut parent) = (0, BlockHash(0));
        if flags & HAS_PARENT != 0 {
            known = self.limited("known blocks", MAX_PROMPT_BLOCKS as u64)? as usize;
            parent = BlockHash(self.u64()?);
        }
        let most = MAX_HASHES.min(MAX_PROMPT_BLOCKS - known);
        let count = self.limited("block hashes", most as u64)? as usize;
        let words = self.take(8 * count)?.chunks_exact(8).filter_map(<[u8]>::first_chunk);
        let rest = words.map(|word| BlockHash(u64::from_le_bytes(*word))).collect();
        Ok(Part { known, parent, rest: Cow::Owned(rest) })
    }

    fn flags(&mut self, allowed: u8) -> Result<u8, WireError> {
        let flags = self.u8()?;
        self.check(flags & !allowed == 0, "flags", flags.into(), allowed.into())?;
        Ok(flags)
    }

    fn message(&mut self, sequence: u64) -> Result<Message<'static>, WireError> {
        let byte = self.u8()?;
        self.kind = byte;
        let (kind, _) = Kind::ALL.get(usize::from(byte).wrapping_sub(1)).ok_or(WireError::Kind(byte))?;
        let message = match kind {
            Kind::Booked => {
                let flags = self.flags(HAS_SESSION | HAS_PARENT)?;
                let process = self.u64()?;
                let session = if flags & HAS_SESSION != 0 { u128::from_le_bytes(self.array()?) } else { 0 };
                let (uncached, context) = self.tokens()?;
                Message::Booked { process, session, uncached, context, part: self.part(flags)? }
            }
            Kind::Started => Message::Started(sequence.wrapping_sub(self.number()?)),
            Kind::Ended => {
                let flags = self.flags(3 | HAS_PARENT)?;
                let how = match flags & 3 {
                    0 => End::Finished,
                    1 => End::Aborted,
                    2 => End::Retracted,
                    how => return Err(WireError::Field(byte, "the end", how.into(), 2.0)),
                };
                let attempt = sequence.wrapping_sub(self.number()?);
                Message::Ended { attempt, how, part: self.part(flags)? }
            }
            Kind::Beat => Message::Beat(Cow::Owned(self.opens(sequence)?)),
            Kind::Fleet => Message::Fleet(self.register()?),
            Kind::Cleared => Message::Cleared(self.u64()?),
            Kind::Bound => Message::Bound(Cow::Owned(self.bindings()?)),
            Kind::Held => {
                let process = self.u64()?;
                let flags = self.flags(HAS_PARENT)?;
                Message::Held(process, self.part(flags)?)
            }
            Kind::Missing => {
                let peer = self.u64()?;
                let known = self.limited("known blocks", MAX_PROMPT_BLOCKS as u64)? as usize;
                Message::Missing { peer, known, parent: BlockHash(self.u64()?) }
            }
            Kind::Chain => {
                let flags = self.flags(HAS_PARENT)?;
                Message::Chain(self.part(flags)?)
            }
            Kind::Hello => Message::Hello,
            Kind::Welcome => Message::Welcome,
            Kind::Left => Message::Left,
        };
        Ok(message)
    }

    fn opens(&mut self, sequence: u64) -> Result<Vec<Open>, WireError> {
        let count = self.limited("open attempts", MAX_OPEN as u64)? as usize;
        let mut rows = Vec::with_capacity(count.min(self.data.len() / 11)); // no row is shorter
        for _ in 0..count {
            let attempt = sequence.wrapping_sub(self.number()?);
            let (process, uncached) = (self.u64()?, self.limited("uncached tokens", u32::MAX.into())?);
            let context = self.limited("prompt tokens", u64::from(u32::MAX) << 1 | 1)?;
            let (started, context) = (context & 1 == 1, (context >> 1) as u32);
            self.check(uncached <= context.into(), "uncached tokens", uncached as f64, context.into())?;
            rows.push(Open { attempt, process, uncached: uncached as u32, context, started });
        }
        Ok(rows)
    }

    fn bindings(&mut self) -> Result<Vec<Binding>, WireError> {
        let count = self.limited("bindings", MAX_BINDINGS as u64)? as usize;
        let mut rows = Vec::with_capacity(count.min(self.data.len() / 28));
        for _ in 0..count {
            let (session, process) = (u128::from_le_bytes(self.array()?), self.u64()?);
            let age = f32::from_le_bytes(self.array()?);
            self.check((0.0..=f32::MAX).contains(&age), "the age", age.into(), f32::MAX.into())?;
            rows.push(Binding { session, process, age });
        }
        Ok(rows)
    }

    fn register(&mut self) -> Result<Register<'static>, WireError> {
        let (replica, version) = (self.u64()?, self.limited("the version", MAX_NUMBER)?);
        let (author, state) = (self.u64()?, self.u8()?);
        self.check(state < STATES, "the state", state.into(), f64::from(STATES - 1))?;
        let left = f64::from_le_bytes(self.array()?);
        self.check(left <= MAX_SECONDS, "the seconds left", left, MAX_SECONDS)?;
        let bytes = self.limited("bytes of the incarnation", MAX_TEXT_BYTES as u64)? as usize;
        let incarnation = Cow::Owned(self.take(bytes)?.to_vec());
        Ok(Register { replica, version, author, state, left, incarnation })
    }
}
