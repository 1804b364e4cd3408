//! The golden vectors that the Rust and Python tests share.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use prefixroute_core::BlockHash;
use prefixroute_core::hash::{self, ExtraKey, NamespaceSpec};
use serde_json::Value;

fn golden() -> Value {
    let text = include_str!("../../../tests/golden/hash_v1.json");
    serde_json::from_str(text).expect("the golden file is JSON")
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a u64")
}

fn tokens(case: &Value) -> Vec<u32> {
    case["tokens"].as_array().expect("a list").iter().map(|token| token.as_u64().expect("an id") as u32).collect()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    let list = value[key].as_array().expect("a list");
    assert!(!list.is_empty());
    list
}

fn text<'a>(case: &'a Value, key: &str) -> &'a [u8] {
    case[key].as_str().unwrap_or_default().as_bytes()
}

fn seed(case: &Value) -> u64 {
    let spec = NamespaceSpec { model: text(case, "model"), lora: text(case, "lora"), salt: text(case, "salt") };
    hash::namespace_seed(&spec)
}

fn hashes(case: &Value) -> Vec<BlockHash> {
    list(case, "hashes").iter().map(|hash| BlockHash(number(hash))).collect()
}

#[test]
fn steps_and_contents() {
    for case in list(&golden(), "mix") {
        assert_eq!(hash::mix(number(&case[0]), number(&case[1])), number(&case[2]));
    }
    for case in list(&golden(), "content") {
        assert_eq!(hash::content_hash(&tokens(case)), number(&case["hash"]));
    }
}

#[test]
fn namespaces() {
    let mut seen = std::collections::HashSet::new();
    for case in list(&golden(), "namespace") {
        assert_eq!(seed(case), number(&case["seed"]), "{case}");
        assert!(seen.insert(seed(case)), "two namespaces share a seed: {case}");
    }
}

#[test]
fn token_chains() {
    for case in list(&golden(), "tokens") {
        let extra: Vec<(usize, &str)> = case["extra"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|key| (key[0].as_u64().expect("a position") as usize, key[1].as_str().expect("a key")))
            .collect();
        let extra: Vec<ExtraKey<'_>> =
            extra.iter().map(|&(position, key)| ExtraKey { position, key: key.as_bytes() }).collect();
        let block_size = case["block_size"].as_u64().expect("a size") as usize;
        let mut out = Vec::new();
        hash::hash_tokens(&tokens(case), block_size, seed(case), &extra, &mut out).expect("a valid case");
        assert_eq!(out, hashes(case), "{case}");
    }
}

#[test]
fn text_chains() {
    for case in list(&golden(), "text") {
        let block_size = case["block_size"].as_u64().expect("a size") as usize;
        let mut out = Vec::new();
        hash::hash_text(text(case, "text"), block_size, seed(case), &mut out).expect("a valid case");
        assert_eq!(out, hashes(case), "{case}");
    }
}
