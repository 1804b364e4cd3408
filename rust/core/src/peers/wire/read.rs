//! Bytes as messages: every field is looked at before anything is made of it.

use std::borrow::Cow;

use super::{
    Binding, End, HAS_PARENT, HAS_SESSION, Kind, MAX_BINDINGS, MAX_HASHES, MAX_NUMBER, MAX_SECONDS, MAX_TEXT_BYTES,
    Message, Open, Part, Register, STATES, WireError,
};
use crate::error::MAX_PROMPT_BLOCKS;
use crate::ids::BlockHash;
use crate::peers::table::MAX_OPEN;

/// What is left of a frame, within a message of this kind.
pub(super) struct Bytes<'a> {
    pub data: &'a [u8],
    pub kind: u8,
}

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        let (taken, data) = self.data.split_at_checked(count).ok_or(WireError::Cut(self.kind))?;
        self.data = data;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, data) = self.data.split_first_chunk().ok_or(WireError::Cut(self.kind))?;
        self.data = data;
        Ok(*taken)
    }

    pub fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub fn u64(&mut self) -> Result<u64, WireError> {
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

    pub fn message(&mut self, sequence: u64) -> Result<Message<'static>, WireError> {
        let byte = self.u8()?;
        self.kind = byte;
        let (kind, _) = Kind::ALL.get(usize::from(byte).wrapping_sub(1)).ok_or(WireError::Kind(byte))?;
        let message = match kind {
            Kind::Booked => self.booked()?,
            Kind::Started => Message::Started(sequence.wrapping_sub(self.number()?)),
            Kind::Ended => self.ended(sequence)?,
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

    fn booked(&mut self) -> Result<Message<'static>, WireError> {
        let flags = self.flags(HAS_SESSION | HAS_PARENT)?;
        let process = self.u64()?;
        let session = if flags & HAS_SESSION != 0 { u128::from_le_bytes(self.array()?) } else { 0 };
        let (uncached, context) = self.tokens()?;
        Ok(Message::Booked { process, session, uncached, context, part: self.part(flags)? })
    }

    fn ended(&mut self, sequence: u64) -> Result<Message<'static>, WireError> {
        let flags = self.flags(3 | HAS_PARENT)?;
        let how = match flags & 3 {
            0 => End::Finished,
            1 => End::Aborted,
            2 => End::Retracted,
            how => return Err(WireError::Field(self.kind, "the end", how.into(), 2.0)),
        };
        let attempt = sequence.wrapping_sub(self.number()?);
        Ok(Message::Ended { attempt, how, part: self.part(flags)? })
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
