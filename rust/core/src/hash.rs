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

/// Length of the common prefix of two stretches of chains. An equal hash proves all before it, so the last one is compared
/// first, and where they part is searched by halves.
#[inline]
pub(crate) fn common_prefix(a: &[BlockHash], b: &[BlockHash]) -> usize {
    let (mut low, mut high) = (0, a.len().min(b.len()));
    if high > 0 && a[high - 1] == b[high - 1] {
        return high;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if a[middle] == b[middle] {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
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
    let bytes = as_le_bytes(tokens);
    // The compiler works out what it can of a seed that it knows.
    if key == CONTENT_SEED { xxh3_64_with_seed(&bytes, CONTENT_SEED) } else { xxh3_64_with_seed(&bytes, key) }
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
pub fn hash_text(text: &[u8], block_size: usize, seed: u64, out: &mut Vec<BlockHash>) -> Result<()> {
    hash_text_keyed(text, block_size, seed, CONTENT_SEED, out)
}

/// The same under any key.
pub fn hash_text_keyed(text: &[u8], block_size: usize, seed: u64, key: u64, out: &mut Vec<BlockHash>) -> Result<()> {
    check_block_size(block_size)?;
    let mut hash = text_seed(seed);
    let blocks = text.chunks_exact(TEXT_BYTES_PER_TOKEN * block_size);
    out.extend(blocks.map(|block| {
        hash = mix(hash, xxh3_64_with_seed(block, key));
        BlockHash(hash)
    }));
    Ok(())
}

/// Typed error unless an index can have this block size.
pub fn check_block_size(block_size: usize) -> Result<()> {
    if (1..=MAX_BLOCK_SIZE).contains(&block_size) { Ok(()) } else { Err(Error::BlockSize(block_size)) }
}

/// The hashes of a prompt, produced a few blocks at a time.
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
            self.hash = if self.key == CONTENT_SEED {
                append_plain(self.tokens, self.hash, CONTENT_SEED, out)
            } else {
                append_plain(self.tokens, self.hash, self.key, out)
            };
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
            for (block, out) in now.chunks_exact(PLAIN).zip(out) {
                self.hash = mix(self.hash, content_hash_keyed(block, self.key));
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

/// Appends the hashes of the blocks of the usual size; the last of them.
#[expect(clippy::inline_always, reason = "a key that is known where it is called is worked out by the compiler")]
#[inline(always)]
fn append_plain(tokens: &[u32], mut hash: u64, key: u64, out: &mut Vec<BlockHash>) -> u64 {
    out.extend(tokens.chunks_exact(PLAIN).map(|block| {
        hash = mix(hash, content_hash_keyed(block, key));
        BlockHash(hash)
    }));
    hash
}

fn append_tagged(bytes: &mut Vec<u8>, tag: u8, part: &[u8]) {
    bytes.push(tag);
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}
