//! Chained block hashes, version 1.
//!
//! Content of a block = XXH3-64, seed 1337, over its tokens as little-endian `u32` (the local hash that Dynamo, Mooncake
//! and SMG use too). Chain: `h_i = mix(h_{i-1}, c_i)`, begun by the seed of a namespace. For a given predecessor `mix` is a
//! bijection of the content, and for a given content a bijection of the predecessor: two chains that start from different
//! seeds never meet over equal contents, however long.
//!
//! The values are a wire format: `tests/golden/hash_v1.json` holds golden vectors that the Rust and Python tests share.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::{Error, MAX_BLOCK_SIZE, Result};
use crate::ids::{BlockHash, ContentHash};

/// Seed of every content hash (Dynamo, Mooncake and SMG have the same).
pub const CONTENT_SEED: u64 = 1337;
/// Bytes of text that count as one token until calibrated.
pub const TEXT_BYTES_PER_TOKEN: usize = 4;

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

/// Seed of a namespace's chains. Every part is written with a tag and its length, so no two specs share an encoding.
pub fn namespace_seed(spec: &NamespaceSpec<'_>) -> u64 {
    let mut bytes = NAMESPACE_TAG.to_vec();
    for (tag, part) in [(1_u8, spec.model), (2, spec.lora), (3, spec.salt)] {
        append_tagged(&mut bytes, tag, part);
    }
    xxh3_64_with_seed(&bytes, CONTENT_SEED)
}

/// Seed of the chains of text blocks in a namespace: text never equals tokens.
pub const fn text_seed(seed: u64) -> u64 {
    mix(seed, TEXT_TAG)
}

/// Content hash of one block of tokens without extra keys.
#[inline]
pub fn content_hash(tokens: &[u32]) -> u64 {
    match tokens.len() {
        16 => content_of::<64>(tokens),
        _ => content_of_any(tokens),
    }
}

/// Content hash of one block of tokens with extra keys, given by their offset inside the block.
pub fn content_hash_with(tokens: &[u32], extra: &[(u32, &[u8])]) -> ContentHash {
    let plain = content_hash(tokens);
    if extra.is_empty() {
        return ContentHash(plain);
    }
    let mut bytes = Vec::new();
    for (offset, key) in extra {
        bytes.extend_from_slice(&offset.to_le_bytes());
        append_tagged(&mut bytes, 4, key);
    }
    ContentHash(mix(mix(EXTRA_TAG, plain), xxh3_64_with_seed(&bytes, CONTENT_SEED)))
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
    let mut chain = TokenChain::new(tokens, block_size, seed, extra)?;
    out.reserve(tokens.len() / block_size);
    chain.append(usize::MAX, out);
    Ok(())
}

/// Appends the hashes of the full blocks of a text to `out`; a block is `4 * block_size` bytes, cut wherever it falls.
pub fn hash_text(text: &[u8], block_size: usize, seed: u64, out: &mut Vec<BlockHash>) -> Result<()> {
    check_block_size(block_size)?;
    let mut hash = text_seed(seed);
    let blocks = text.chunks_exact(TEXT_BYTES_PER_TOKEN * block_size);
    out.extend(blocks.map(|block| {
        hash = mix(hash, xxh3_64_with_seed(block, CONTENT_SEED));
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
}

impl<'a> TokenChain<'a> {
    pub(crate) fn new(tokens: &'a [u32], block_size: usize, seed: u64, extra: &'a [ExtraKey<'a>]) -> Result<Self> {
        check_block_size(block_size)?;
        if let Some(pair) = extra.windows(2).find(|pair| pair[1].position < pair[0].position) {
            return Err(Error::ExtraKeyOrder { position: pair[1].position });
        }
        Ok(TokenChain { tokens, block_size, hash: seed, extra, position: 0 })
    }

    /// Appends up to `limit` further hashes.
    #[inline]
    pub(crate) fn append(&mut self, limit: usize, out: &mut Vec<BlockHash>) {
        let take = (self.tokens.len() / self.block_size).min(limit) * self.block_size;
        let (now, later) = self.tokens.split_at(take);
        self.tokens = later;
        match (self.extra.is_empty(), self.block_size) {
            (true, 16) => self.append_plain::<64>(now, out),
            (true, _) => self.append_plain_any(now, out),
            (false, _) => self.append_with_extra(now, out),
        }
    }

    /// Writes the next hashes to the front of `out`; how many.
    #[inline]
    pub(crate) fn fill(&mut self, out: &mut [BlockHash]) -> usize {
        let blocks = (self.tokens.len() / self.block_size).min(out.len());
        if self.extra.is_empty() && self.block_size == 16 {
            let (now, later) = self.tokens.split_at(blocks * 16);
            self.tokens = later;
            for (block, out) in now.chunks_exact(16).zip(out) {
                self.hash = mix(self.hash, content_of::<64>(block));
                *out = BlockHash(self.hash);
            }
            return blocks;
        }
        let mut hashes = Vec::with_capacity(blocks);
        self.append(blocks, &mut hashes);
        out[..blocks].copy_from_slice(&hashes);
        blocks
    }

    #[inline]
    fn append_plain<const BYTES: usize>(&mut self, tokens: &[u32], out: &mut Vec<BlockHash>) {
        let mut hash = self.hash;
        out.extend(tokens.chunks_exact(BYTES / 4).map(|block| {
            hash = mix(hash, content_of::<BYTES>(block));
            BlockHash(hash)
        }));
        self.hash = hash;
    }

    fn append_plain_any(&mut self, tokens: &[u32], out: &mut Vec<BlockHash>) {
        let mut hash = self.hash;
        out.extend(tokens.chunks_exact(self.block_size).map(|block| {
            hash = mix(hash, content_of_any(block));
            BlockHash(hash)
        }));
        self.hash = hash;
    }

    fn append_with_extra(&mut self, tokens: &[u32], out: &mut Vec<BlockHash>) {
        let mut inside = Vec::new();
        for block in tokens.chunks_exact(self.block_size) {
            let end = self.position + self.block_size;
            inside.clear();
            while let Some((key, later)) = self.extra.split_first() {
                if key.position >= end {
                    break;
                }
                inside.push(((key.position - self.position) as u32, key.key));
                self.extra = later;
            }
            self.hash = mix(self.hash, content_hash_with(block, &inside).0);
            self.position = end;
            out.push(BlockHash(self.hash));
        }
    }
}

fn append_tagged(bytes: &mut Vec<u8>, tag: u8, part: &[u8]) {
    bytes.push(tag);
    bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
    bytes.extend_from_slice(part);
}

#[inline]
fn content_of<const BYTES: usize>(tokens: &[u32]) -> u64 {
    let mut bytes = [0_u8; BYTES];
    write_le(tokens, &mut bytes);
    xxh3_64_with_seed(&bytes, CONTENT_SEED)
}

fn content_of_any(tokens: &[u32]) -> u64 {
    let mut small = [0_u8; 4 * MAX_BLOCK_SIZE];
    if let Some(bytes) = small.get_mut(..4 * tokens.len()) {
        write_le(tokens, bytes);
        return xxh3_64_with_seed(bytes, CONTENT_SEED);
    }
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, CONTENT_SEED)
}

#[inline]
fn write_le(tokens: &[u32], bytes: &mut [u8]) {
    for (to, token) in bytes.chunks_exact_mut(4).zip(tokens) {
        to.copy_from_slice(&token.to_le_bytes());
    }
}
