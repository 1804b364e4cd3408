//! Numbers and strings to bytes and back.

use crate::error::{Error, Result};

/// Bytes being written.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    pub(super) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn option(&mut self, value: Option<u64>) {
        self.u8(u8::from(value.is_some()));
        self.u64(value.unwrap_or(0));
    }

    pub(super) fn text(&mut self, value: &str) {
        self.u32(value.len() as u32);
        self.bytes.extend_from_slice(value.as_bytes());
    }
}

/// Bytes being read; every read is bounded by what is there.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    pub bytes: &'a [u8],
}

/// What is wrong with bytes that do not fit together.
pub(super) fn corrupt<T>(why: &'static str) -> Result<T> {
    Err(Error::Corrupt(why))
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.bytes.split_at_checked(len) else { return corrupt("it ends too early") };
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn flag(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => corrupt("a flag is neither 0 nor 1"),
        }
    }

    pub(super) fn option(&mut self) -> Result<Option<u64>> {
        let (some, value) = (self.flag()?, self.u64()?);
        Ok(some.then_some(value))
    }

    /// `len` numbers; nothing is allocated for more than there are bytes.
    pub(super) fn numbers(&mut self, len: usize) -> Result<Vec<u64>> {
        let Some(size) = len.checked_mul(8) else { return corrupt("a length is out of range") };
        let bytes = self.take(size)?;
        let number = |chunk: &[u8]| chunk.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        Ok(bytes.chunks_exact(8).map(number).collect())
    }

    pub(super) fn text(&mut self) -> Result<&'a str> {
        let len = self.u32()? as usize;
        std::str::from_utf8(self.take(len)?).or_else(|_| corrupt("a name is not UTF-8"))
    }
}
