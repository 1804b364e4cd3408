//! `MessagePack`, read from untrusted bytes: nothing is allocated, every length is checked against what is left, depth is bounded.

/// Arrays and maps inside of one another at most; engines nest six deep.
const MAX_DEPTH: usize = 32;

/// What is wrong with bytes that are no `MessagePack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub &'static str);

/// Bytes of an integer by its first byte, in the forms that most have: looked up, because widths follow each other at random, and a
/// branch that is guessed wrong costs more than the number. 0 = in another form.
pub(super) const WIDTHS: [u8; 256] = {
    let mut widths = [0; 256];
    let mut head = 0;
    while head < 0x80 {
        widths[head] = 1;
        head += 1;
    }
    (widths[0xCC], widths[0xCD], widths[0xCE], widths[0xCF], widths[0xD3]) = (2, 3, 5, 9, 9);
    widths
};

const ENDS: Broken = Broken("it ends too early");

/// A value, or the head of an array or a map whose elements follow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool,
    /// An integer of at least 0.
    Uint(u64),
    /// An integer below 0.
    Int(i64),
    Float(f64),
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Array(usize),
    Map(usize),
    Extension,
}

/// Bytes and how far they are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    pub rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(ENDS)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn number<const N: usize>(&mut self) -> Result<u64, Broken> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(ENDS)?;
        self.rest = rest;
        Ok(taken.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn signed<const N: usize>(&mut self) -> Result<Value<'a>, Broken> {
        let unused = 64 - 8 * N as u32;
        let value = signed(self.number::<N>()? << unused) >> unused;
        Ok(u64::try_from(value).map_or(Value::Int(value), Value::Uint))
    }

    fn text(&mut self, len: u64) -> Result<Value<'a>, Broken> {
        Ok(Value::Text(self.take(usize::try_from(len).map_err(|_| ENDS)?)?))
    }

    fn bytes(&mut self, len: u64) -> Result<Value<'a>, Broken> {
        Ok(Value::Bytes(self.take(usize::try_from(len).map_err(|_| ENDS)?)?))
    }

    fn extension(&mut self, len: u64) -> Result<Value<'a>, Broken> {
        self.take(usize::try_from(len).map_err(|_| ENDS)?.saturating_add(1))?;
        Ok(Value::Extension)
    }

    /// An element takes a byte at least, so that a head which promises more than there are bytes is refused here.
    fn array(&self, len: u64) -> Result<Value<'a>, Broken> {
        if len > self.rest.len() as u64 { Err(ENDS) } else { Ok(Value::Array(len as usize)) }
    }

    fn map(&self, len: u64) -> Result<Value<'a>, Broken> {
        if len > self.rest.len() as u64 / 2 { Err(ENDS) } else { Ok(Value::Map(len as usize)) }
    }

    /// The next value; of an array or a map only its head.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Broken> {
        let (&head, rest) = self.rest.split_first().ok_or(ENDS)?;
        self.rest = rest;
        match head {
            0x00..=0x7F => Ok(Value::Uint(u64::from(head))),
            0xCC => self.number::<1>().map(Value::Uint),
            0xCD => self.number::<2>().map(Value::Uint),
            0xCE => self.number::<4>().map(Value::Uint),
            0xCF => self.number::<8>().map(Value::Uint),
            _ => self.other(head),
        }
    }

    fn other(&mut self, head: u8) -> Result<Value<'a>, Broken> {
        match head {
            0x80..=0x8F => self.map(u64::from(head & 0x0F)),
            0x90..=0x9F => self.array(u64::from(head & 0x0F)),
            0xA0..=0xBF => self.text(u64::from(head & 0x1F)),
            0xC0 => Ok(Value::Nil),
            0xC2 | 0xC3 => Ok(Value::Bool),
            0xC4 => self.number::<1>().and_then(|len| self.bytes(len)),
            0xC5 => self.number::<2>().and_then(|len| self.bytes(len)),
            0xC6 => self.number::<4>().and_then(|len| self.bytes(len)),
            0xC7 => self.number::<1>().and_then(|len| self.extension(len)),
            0xC8 => self.number::<2>().and_then(|len| self.extension(len)),
            0xC9 => self.number::<4>().and_then(|len| self.extension(len)),
            0xCA => self.number::<4>().map(|bits| Value::Float(f64::from(f32::from_bits(bits as u32)))),
            0xCB => self.number::<8>().map(|bits| Value::Float(f64::from_bits(bits))),
            0xD0 => self.signed::<1>(),
            0xD1 => self.signed::<2>(),
            0xD2 => self.signed::<4>(),
            0xD3 => self.signed::<8>(),
            0xD4..=0xD8 => self.extension(1 << (head - 0xD4)),
            0xD9 => self.number::<1>().and_then(|len| self.text(len)),
            0xDA => self.number::<2>().and_then(|len| self.text(len)),
            0xDB => self.number::<4>().and_then(|len| self.text(len)),
            0xDC => self.number::<2>().and_then(|len| self.array(len)),
            0xDD => self.number::<4>().and_then(|len| self.array(len)),
            0xDE => self.number::<2>().and_then(|len| self.map(len)),
            0xDF => self.number::<4>().and_then(|len| self.map(len)),
            0xE0..=0xFF => Ok(Value::Int(i64::from(head) - 256)),
            _ => Err(Broken("it has the byte 0xc1, which begins no value")),
        }
    }

    /// Passes over the leading plain integers of an array or map; how many elements follow them.
    #[inline]
    fn pass_numbers(&mut self, mut elements: usize) -> usize {
        while elements > 0 {
            let Some(&head) = self.rest.first() else { break };
            let len = usize::from(WIDTHS[usize::from(head)]);
            let Some(rest) = self.rest.get(len..).filter(|_| len > 0) else { break };
            self.rest = rest;
            elements -= 1;
        }
        elements
    }

    /// The bytes of the next value, with all that is inside of it.
    pub(crate) fn skip(&mut self) -> Result<&'a [u8], Broken> {
        let before = self.rest;
        let mut open = [0_usize; MAX_DEPTH];
        let mut depth = 0;
        loop {
            let inside = match self.value()? {
                Value::Array(len) => len,
                Value::Map(len) => 2 * len,
                _ => 0,
            };
            if inside > 0 {
                let level = open.get_mut(depth).ok_or(Broken("it is nested deeper than 32 levels"))?;
                *level = self.pass_numbers(inside);
                depth += 1;
            }
            // What has been read was the last of some arrays perhaps.
            while depth > 0 && open[depth - 1] == 0 {
                depth -= 1;
            }
            if depth == 0 {
                return Ok(&before[..before.len() - self.rest.len()]);
            }
            open[depth - 1] -= 1;
        }
    }
}

/// The same bits.
fn signed(bits: u64) -> i64 {
    i64::from_ne_bytes(bits.to_ne_bytes())
}
