//! Chained block hashes, version 1.
//!
//! Content of a block = XXH3-64, seed 1337, over its tokens as little-endian `u32` (the local hash that Dynamo, Mooncake
//! and SMG use too). Chain: `h_i = mix(h_{i-1}, c_i)`, begun by the seed of a namespace. For a given predecessor `mix` is a
//! bijection of the content, and for a given content a bijection of the predecessor: two chains that start from different
//! seeds never meet over equal contents, however long.
//!
//! The values are a wire format: `tests/golden/hash_v1.json` holds golden vectors that the Rust and Python tests share.

use std::borrow::Cow;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, MAX_BLOCK_SIZE, Result};
use crate::ids::{BlockHash, ContentHash};

/// The fixed key: seed of content hashes in golden vectors, traces and wherever nobody gave another (Dynamo, Mooncake and
/// SMG have the same).
pub const CONTENT_SEED: u64 = 1337;
/// Bytes of text that count as one token until calibrated.
pub const TEXT_BYTES_PER_TOKEN: usize = 4;

/// Tokens of the usual block.
const PLAIN: usize = 16;
const MULTIPLIER: u64 = 0x9FB2_1C65_1E98_DF25;
const EXTRA_TAG: u64 = 0x7072_6566_7874_7261;
const TEXT_TAG: u64 = 0x7072_6566_7465_7874;
const NAMESPACE_TAG: &[u8] = b"prefixroute/namespace/1";

/// What separates two prompts with equal tokens: part of the chain's seed, never of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamespaceSpec<'a> {
    /// Model name.
    pub model: &'a [u8],
    /// Adapter name (with its version, if one name is loaded twice).
    pub lora: &'a [u8],
    /// Tenant's salt.
    pub salt: &'a [u8],
}

/// A key that enters the hash of the block that contains its position: media by digest, for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtraKey<'a> {
    /// Token position in the prompt.
    pub position: usize,
    /// The key itself.
    pub key: &'a [u8],
}

/// One step of the chain, version 1.
#[inline]
pub const fn mix(previous: u64, content: u64) -> u64 {
    let x = (previous.rotate_left(23) ^ content).wrapping_mul(MULTIPLIER);
    x ^ (x >> 32)
}

/// The chain of these contents behind the block with the hash `before`, or from a seed on.
pub fn chained(before: u64, contents: impl IntoIterator<Item = u64>) -> impl Iterator<Item = BlockHash> {
    let mut hash = before;
    contents.into_iter().map(move |content| {
        hash = mix(hash, content);
        BlockHash(hash)
    })
}

/// Places of a stretch that are compared at once where two chains part. Their loads overlap, so a search in memory that is
/// not in the cache waits three times for 550 blocks, where halves wait ten times, each after a guess.
const WAYS: usize = 8;

/// Length of the common prefix of two stretches of chains. An equal hash proves all before it, so the last one is compared
/// first, and where they part is searched by eighths.
#[inline]
pub(crate) fn common_prefix(a: &[BlockHash], b: &[BlockHash]) -> usize {
    let length = a.len().min(b.len());
    if length > 0 && a[length - 1] == b[length - 1] {
        return length;
    }
    let (mut low, mut a, mut b) = (0, &a[..length], &b[..length]);
    while a.len() > WAYS {
        let step = a.len() / WAYS;
        let equal =
            (1..WAYS).fold(0_u32, |seen, way| seen | u32::from(a[way * step - 1] == b[way * step - 1]) << (way - 1));
        // Of hashes that are no chains, some place where they part: the one before is equal, and this one is not.
        let before = equal.trailing_ones() as usize;
        let part = before * step..if before + 1 < WAYS { (before + 1) * step } else { a.len() };
        low += part.start;
        (a, b) = (&a[part.clone()], &b[part]);
    }
    low + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Seed of a namespace's chains. Every part is written with a tag and its length, so no two specs share an encoding.
pub fn namespace_seed(spec: &NamespaceSpec<'_>) -> u64 {
    let parts = [(1_u8, spec.model), (2, spec.lora), (3, spec.salt)];
    let lengths: usize = parts.iter().map(|(_, part)| part.len() + 9).sum();
    let mut bytes = Vec::with_capacity(NAMESPACE_TAG.len() + lengths);
    bytes.extend_from_slice(NAMESPACE_TAG);
    for (tag, part) in parts {
        append_tagged(&mut bytes, tag, part);
    }
    xxh3_64_with_seed(&bytes, CONTENT_SEED)
}

/// Seed of the chains of text blocks in a namespace: text never equals tokens.
pub const fn text_seed(seed: u64) -> u64 {
    mix(seed, TEXT_TAG)
}

/// Content hash of one block of tokens without extra keys, under the fixed key.
#[inline]
pub fn content_hash(tokens: &[u32]) -> u64 {
    content_hash_keyed(tokens, CONTENT_SEED)
}

/// The same under any key: who does not know it cannot choose tokens whose hash is that of others.
#[inline]
pub fn content_hash_keyed(tokens: &[u32], key: u64) -> u64 {
    xxh3_64_with_seed(&as_le_bytes(tokens), key)
}

/// Tokens as little-endian bytes: the memory itself wherever that is the machine's order. A copy on the stack costs more
/// than the hash, and twice that where it happens to lie across cache lines.
#[inline]
fn as_le_bytes(tokens: &[u32]) -> Cow<'_, [u8]> {
    if cfg!(target_endian = "little") {
        // SAFETY: any four bytes of a u32 are bytes, and the slice's memory is as long as this.
        Cow::Borrowed(unsafe { std::slice::from_raw_parts(tokens.as_ptr().cast(), size_of_val(tokens)) })
    } else {
        Cow::Owned(tokens.iter().flat_map(|token| token.to_le_bytes()).collect())
    }
}

/// Content hash of one block of tokens with extra keys, given by their offset inside the block.
pub fn content_hash_with(tokens: &[u32], extra: &[(u32, &[u8])], key: u64) -> ContentHash {
    let plain = content_hash_keyed(tokens, key);
    if extra.is_empty() {
        return ContentHash(plain);
    }
    let mut bytes = Vec::new();
    for (offset, key) in extra {
        bytes.extend_from_slice(&offset.to_le_bytes());
        append_tagged(&mut bytes, 4, key);
    }
    ContentHash(mix(mix(EXTRA_TAG, plain), xxh3_64_with_seed(&bytes, key)))
}

/// Appends the hashes of the full blocks of `tokens` to `out`. Extra keys stand in order of position; one that lies in the
/// last, partial block is not part of any hash.
///
/// # Errors
///
/// [`Error::BlockSize`], and [`Error::ExtraKeyOrder`] where a key stands behind one of a later position. `out` is unchanged.
pub fn hash_tokens(
    tokens: &[u32],
    block_size: usize,
    seed: u64,
    extra: &[ExtraKey<'_>],
    out: &mut Vec<BlockHash>,
) -> Result<()> {
    hash_tokens_keyed(tokens, block_size, seed, extra, CONTENT_SEED, out)
}

/// The same under any key.
///
/// # Errors
///
/// As [`hash_tokens`].
pub fn hash_tokens_keyed(
    tokens: &[u32],
    block_size: usize,
    seed: u64,
    extra: &[ExtraKey<'_>],
    key: u64,
    out: &mut Vec<BlockHash>,
) -> Result<()> {
    TokenChain::new(tokens, block_size, seed, extra, key)?.append(out);
    Ok(())
}

/// Appends the hashes of the full blocks of a text to `out`; a block is `4 * block_size` bytes, cut wherever it falls.
///
/// # Errors
///
/// [`Error::BlockSize`]; `out` is unchanged.
pub fn hash_text(text: &[u8], block_size: usize, seed: u64, out: &mut Vec<BlockHash>) -> Result<()> {
    hash_text_keyed(text, block_size, seed, CONTENT_SEED, out)
}

/// The same under any key.
///
/// # Errors
///
/// As [`hash_text`].
pub fn hash_text_keyed(text: &[u8], block_size: usize, seed: u64, key: u64, out: &mut Vec<BlockHash>) -> Result<()> {
    check_block_size(block_size)?;
    let blocks = text.chunks_exact(TEXT_BYTES_PER_TOKEN * block_size);
    out.extend(chained(text_seed(seed), blocks.map(|block| xxh3_64_with_seed(block, key))));
    Ok(())
}

/// Typed error unless an index can have this block size.
///
/// # Errors
///
/// [`Error::BlockSize`] of a size of 0, or above [`MAX_BLOCK_SIZE`].
pub fn check_block_size(block_size: usize) -> Result<()> {
    if (1..=MAX_BLOCK_SIZE).contains(&block_size) { Ok(()) } else { Err(Error::BlockSize(block_size)) }
}

/// The hashes of a prompt, produced a few blocks at a time.
#[derive(Clone)]
pub(crate) struct TokenChain<'a> {
    tokens: &'a [u32],
    block_size: usize,
    hash: u64,
    extra: &'a [ExtraKey<'a>],
    position: usize,
    key: u64,
}

impl<'a> TokenChain<'a> {
    pub(crate) fn new(
        tokens: &'a [u32],
        block_size: usize,
        seed: u64,
        extra: &'a [ExtraKey<'a>],
        key: u64,
    ) -> Result<Self> {
        check_block_size(block_size)?;
        if let Some(pair) = extra.windows(2).find(|pair| pair[1].position < pair[0].position) {
            return Err(Error::ExtraKeyOrder { position: pair[1].position });
        }
        Ok(TokenChain { tokens, block_size, hash: seed, extra, position: 0, key })
    }

    /// Appends all further hashes.
    #[inline]
    pub(crate) fn append(&mut self, out: &mut Vec<BlockHash>) {
        out.reserve(self.tokens.len() / self.block_size);
        if self.is_plain() {
            let content = PlainHash::new(self.key);
            out.extend(plain_blocks(self.tokens).map(|block| {
                self.hash = mix(self.hash, content.of(block));
                BlockHash(self.hash)
            }));
            self.tokens = &[];
            return;
        }
        while let Some(hash) = self.step() {
            out.push(hash);
        }
    }

    /// Writes the next hashes to the front of `out`; how many.
    #[inline]
    pub(crate) fn fill(&mut self, out: &mut [BlockHash]) -> usize {
        if self.is_plain() {
            let blocks = (self.tokens.len() / PLAIN).min(out.len());
            let (now, later) = self.tokens.split_at(blocks * PLAIN);
            self.tokens = later;
            let content = PlainHash::new(self.key);
            for (block, out) in plain_blocks(now).zip(out) {
                self.hash = mix(self.hash, content.of(block));
                *out = BlockHash(self.hash);
            }
            return blocks;
        }
        let mut filled = 0;
        for (out, hash) in out.iter_mut().zip(std::iter::from_fn(|| self.step())) {
            *out = hash;
            filled += 1;
        }
        filled
    }

    /// Whether the rest is blocks of the usual size without extra keys, for which hashing is a tight loop.
    #[inline]
    fn is_plain(&self) -> bool {
        self.extra.is_empty() && self.block_size == PLAIN
    }

    /// The next hash, of a block of any size with any extra keys.
    fn step(&mut self) -> Option<BlockHash> {
        let (block, later) = self.tokens.split_at_checked(self.block_size)?;
        let end = self.position + self.block_size;
        let (inside, beyond) = self.extra.split_at(self.extra.partition_point(|key| key.position < end));
        let content = if inside.is_empty() {
            content_hash_keyed(block, self.key)
        } else {
            let offsets = inside.iter().map(|key| ((key.position - self.position) as u32, key.key));
            content_hash_with(block, &offsets.collect::<Vec<_>>(), self.key).0
        };
        self.hash = mix(self.hash, content);
        (self.tokens, self.extra, self.position) = (later, beyond, end);
        Some(BlockHash(self.hash))
    }
}

/// XXH3-64 of a block of the usual size, with what depends on the key alone worked out once: for a key that the compiler does
/// not know, the library takes a quarter longer.
struct PlainHash {
    /// What each pair of words is combined with: a word of XXH3's secret plus the key, and one less the key.
    keyed: [(u64, u64); PLAIN / 4],
}

impl PlainHash {
    /// XXH3's secret, in the order in which 64 bytes meet it.
    const SECRET: [(u64, u64); PLAIN / 4] = [
        (0xBE4B_A423_396C_FEB8, 0x1CAD_21F7_2C81_017C),
        (0x78E5_C0CC_4EE6_79CB, 0x2172_FFCC_7DD0_5A82),
        (0x8E24_43F7_7446_08B8, 0x4C26_3A81_E690_35E0),
        (0xDB97_9083_E96D_D4DE, 0x1F67_B3B7_A4A4_4072),
    ];
    const LENGTH: u64 = 0x9E37_79B1_85EB_CA87_u64.wrapping_mul(4 * PLAIN as u64);
    const AVALANCHE: u64 = 0x1656_6791_9E37_79F9;

    fn new(key: u64) -> Self {
        Self { keyed: Self::SECRET.map(|(first, second)| (first.wrapping_add(key), second.wrapping_sub(key))) }
    }

    #[inline]
    fn of(&self, block: &[u32; PLAIN]) -> u64 {
        let word = |at: usize| u64::from(block[2 * at]) | u64::from(block[2 * at + 1]) << 32;
        let mut sum = Self::LENGTH;
        for (pair, (first, second)) in self.keyed.iter().enumerate() {
            let product = u128::from(word(2 * pair) ^ first) * u128::from(word(2 * pair + 1) ^ second);
            sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        sum = (sum ^ (sum >> 37)).wrapping_mul(Self::AVALANCHE);
        sum ^ (sum >> 32)
    }
}

/// Blocks of the usual size.
#[inline]
fn plain_blocks(tokens: &[u32]) -> impl Iterator<Item = &[u32; PLAIN]> {
    tokens.chunks_exact(PLAIN).filter_map(|block| block.try_into().ok())
}

fn append_tagged(bytes: &mut Vec<u8>, tag: u8, part: &[u8]) {
    bytes.push(tag);
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chains of any length up to several rounds of the search, parting at any place or ending there.
    #[test]
    fn a_common_prefix_ends_where_chains_part() {
        let chain = |blocks: usize, other: usize| {
            let content = |at: usize| if at < other { at as u64 } else { !at as u64 };
            (0..blocks).map(|at| BlockHash(mix(at as u64, content(at)))).collect::<Vec<_>>()
        };
        for length in (0..80).chain([550, 1000]) {
            let whole = chain(length, length);
            for parting in 0..=length {
                assert_eq!(common_prefix(&whole, &chain(length, parting)), parting, "{length} blocks");
                assert_eq!(common_prefix(&chain(parting, parting), &whole), parting, "{length} blocks");
            }
        }
    }

    /// Engines' names may clash: whatever the hashes are, the blocks there differ and those before are equal.
    #[test]
    fn a_common_prefix_of_hashes_that_are_no_chains_ends_between_equal_and_different_ones() {
        for case in 0..20_000_u64 {
            let length = 1 + mix(case, 0) as usize % 40;
            let of =
                |side: u64| (0..length as u64).map(|at| BlockHash(mix(case ^ side << 40, at) % 2)).collect::<Vec<_>>();
            let (a, b) = (of(1), of(2));
            let shared = common_prefix(&a, &b);
            assert!(shared == 0 || a[shared - 1] == b[shared - 1], "{a:?} {b:?} {shared}");
            assert!(shared == length || a[shared] != b[shared], "{a:?} {b:?} {shared}");
        }
    }

    #[test]
    fn a_plain_block_has_the_hash_of_any_block() {
        for key in [0, 1, CONTENT_SEED, u64::MAX, 0x0123_4567_89AB_CDEF] {
            for first in [0, 7, u32::MAX - 20] {
                let block = std::array::from_fn(|at| first.wrapping_add(at as u32).wrapping_mul(0x9E37_79B1));
                assert_eq!(PlainHash::new(key).of(&block), content_hash_keyed(&block, key));
            }
        }
    }
}
