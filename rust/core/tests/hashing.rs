//! Laws of hashing and of matching from tokens, for any block size.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::hash::{CONTENT_SEED, ExtraKey, content_hash, hash_text, hash_tokens};
use prefixroute_core::{BlockHash, Config, Error, Index};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any};
use proptest::proptest;
use proptest::sample::select;
use xxhash_rust::xxh3::xxh3_64_with_seed;

const SEED: u64 = 11;

fn hashed(tokens: &[u32], block_size: usize, extra: &[ExtraKey<'_>]) -> Vec<BlockHash> {
    let mut out = Vec::new();
    hash_tokens(tokens, block_size, SEED, extra, &mut out).expect("valid arguments");
    out
}

/// The content of a block of any size is the hash of its bytes, whatever way they are fed.
#[test]
fn contents_are_plain_xxh3() {
    for len in [0_u32, 1, 16, 17, 64, 65, 1_024, 1_025, 1_536, 2_048, 2_096, 5_000, 65_536] {
        let tokens: Vec<u32> = (0..len).map(|at| at.wrapping_mul(0x9E37_79B9)).collect();
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        assert_eq!(content_hash(&tokens), xxh3_64_with_seed(&bytes, CONTENT_SEED), "{len} tokens");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Equal up to a block: equal prefixes, and nothing else.
    #[test]
    fn a_hash_commits_to_its_prefix(
        tokens in vec(any::<u32>(), 1..200), at in any::<usize>(), block_size in select(vec![1, 3, 16, 64])
    ) {
        let at = at % tokens.len();
        let mut other = tokens.clone();
        other[at] ^= 1;
        let (a, b) = (hashed(&tokens, block_size, &[]), hashed(&other, block_size, &[]));
        assert_eq!(a.len(), tokens.len() / block_size);
        for (block, (a, b)) in a.iter().zip(&b).enumerate() {
            assert_eq!(a == b, block < at / block_size);
        }
        assert_eq!(hashed(&tokens[..at], block_size, &[]), a[..at / block_size]);
    }

    /// An extra key changes the hashes from its block on.
    #[test]
    fn an_extra_key_is_part_of_its_block(
        tokens in vec(any::<u32>(), 1..100), position in 0_usize..120, key in vec(any::<u8>(), 0..20)
    ) {
        let with = hashed(&tokens, 16, &[ExtraKey { position, key: &key }]);
        for (block, (a, b)) in hashed(&tokens, 16, &[]).iter().zip(&with).enumerate() {
            assert_eq!(a == b, block < position / 16);
        }
    }

    /// Matching from tokens is hashing and matching, also where hashing stops early.
    #[test]
    fn fused_match_is_the_same(
        tokens in vec(any::<u32>(), 0..1_500), held in any::<usize>(), change in any::<usize>(),
        block_size in select(vec![1, 5, 16]), position in 0_usize..200
    ) {
        let index = Index::new(Config { block_size, ..Config::default() }).expect("a valid block size");
        let slot = index.add_replica("a", None).expect("room");
        let extra = [ExtraKey { position, key: b"digest" }];
        let hashes = hashed(&tokens, block_size, &extra);
        index.insert(slot, &hashes[..held % (hashes.len() + 1)], 0.0).expect("a is live");
        let mut query = tokens.clone();
        if let Some(token) = query.get_mut(change % (tokens.len() + 1)) {
            *token ^= 1;
        }
        for extra in [&extra[..], &[]] {
            let (mut apart, mut fused, mut both) = ([0], [1], [2]);
            index.match_blocks(&hashed(&query, block_size, extra), &mut apart);
            index.match_tokens(&query, SEED, extra, &mut fused).expect("valid arguments");
            let mut hashes = Vec::new();
            index.hash_and_match(&query, SEED, extra, &mut hashes, &mut both).expect("valid arguments");
            assert_eq!((apart, apart), (fused, both));
            assert_eq!(hashes, hashed(&query, block_size, extra));
        }
    }

    /// Any text hashes, in blocks of four bytes a token, and never as tokens do.
    #[test]
    fn text_is_apart_from_tokens(text in vec(any::<u8>(), 64..400)) {
        let mut as_text = Vec::new();
        hash_text(&text, 16, SEED, &mut as_text).expect("a valid block size");
        let tokens: Vec<u32> = text.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let as_tokens = hashed(&tokens, 16, &[]);
        assert_eq!(as_text.len(), text.len() / 64);
        assert!(as_text.iter().all(|hash| !as_tokens.contains(hash)));
    }
}

#[test]
fn wrong_arguments_are_typed_errors() {
    let mut out = Vec::new();
    let key = |position| ExtraKey { position, key: b"k" };
    assert_eq!(hash_tokens(&[1], 0, 0, &[], &mut out), Err(Error::BlockSize(0)));
    assert_eq!(hash_text(b"abcd", 65_537, 0, &mut out), Err(Error::BlockSize(65_537)));
    let swapped = [key(5), key(4)];
    assert_eq!(hash_tokens(&[1; 16], 16, 0, &swapped, &mut out), Err(Error::ExtraKeyOrder { position: 4 }));
    assert!(out.is_empty(), "an error leaves nothing behind");
}
