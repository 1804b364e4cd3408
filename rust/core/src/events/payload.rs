//! An engine's batch of events as bytes: `[time, [event, ...], rank?]` in `MessagePack`.
//!
//! The whole batch is read once before anything is made of it, so that bytes which are no `MessagePack` change nothing. Each
//! event is a map with a `type` or an array that begins with it; unknown keys, types and tails are passed over.

use super::groups::{Group, GroupKind};
use super::msgpack::{Broken, Reader, Value, WIDTHS};
use super::residence::Residence;
use crate::error::{Error, MAX_BLOCK_SIZE, MAX_PAYLOAD_BYTES, Result};
use crate::hash::{ExtraKey, NamespaceSpec, namespace_seed};
use crate::ids::EngineHash;

/// Events of a batch: a byte can stand for one, which takes hundreds once it is read. Engines have thousands.
const MAX_EVENTS: usize = 1 << 17;
/// Extra keys of an event, of which a byte can stand for one, too.
const MAX_KEYS: usize = 1 << 16;
/// Characters of what an engine wrote that a message repeats.
const SHOWN: usize = 40;

/// Fields of events that count here, in the order in which array events have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    LoraName,
    ExtraKeys,
    Group,
    Kind,
    Window,
    Ownership,
    Salt,
}

const FIELDS: usize = 13;
/// What an array's elements behind its type are; the gaps have no meaning here (locality, session, look-ahead tokens).
const STORED: [Option<Field>; 13] = [
    Some(Field::Hashes),
    Some(Field::Parent),
    Some(Field::Tokens),
    Some(Field::BlockSize),
    Some(Field::LoraId),
    Some(Field::Medium),
    Some(Field::LoraName),
    Some(Field::ExtraKeys),
    Some(Field::Group),
    Some(Field::Kind),
    Some(Field::Window),
    None,
    Some(Field::Ownership),
];
const REMOVED: [Option<Field>; 5] =
    [Some(Field::Hashes), Some(Field::Medium), Some(Field::Group), None, Some(Field::Ownership)];

impl Field {
    fn of_key(key: &[u8]) -> Option<Self> {
        Some(match key {
            b"block_hashes" => Field::Hashes,
            b"parent_block_hash" => Field::Parent,
            b"token_ids" => Field::Tokens,
            b"block_size" => Field::BlockSize,
            b"lora_id" => Field::LoraId,
            b"medium" => Field::Medium,
            b"lora_name" => Field::LoraName,
            b"extra_keys" => Field::ExtraKeys,
            b"group_idx" => Field::Group,
            b"kv_cache_spec_kind" => Field::Kind,
            b"kv_cache_spec_sliding_window" => Field::Window,
            b"ownership" => Field::Ownership,
            b"cache_salt" => Field::Salt,
            _ => return None,
        })
    }
}

/// A batch whose bytes are well formed.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    pub timestamp: f64,
    pub rank: Option<i64>,
    pub events: Vec<Raw<'a>>,
}

/// An event whose fields are still bytes. An empty field is not there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    kind: Option<&'a [u8]>,
    is_array: bool,
    fields: [&'a [u8]; FIELDS],
}

/// Why an event is not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(pub String);

fn refuse<T>(why: impl Into<String>) -> std::result::Result<T, Refusal> {
    Err(Refusal(why.into()))
}

/// Reads a batch; nothing is made of it yet.
pub(crate) fn read(payload: &[u8]) -> Result<Batch<'_>> {
    if payload.len() > MAX_PAYLOAD_BYTES {
        return Err(Error::PayloadBytes(payload.len()));
    }
    read_batch(&mut Reader::new(payload)).map_err(|Broken(why)| Error::Payload(why))
}

fn read_batch<'a>(input: &mut Reader<'a>) -> std::result::Result<Batch<'a>, Broken> {
    let Value::Array(len @ 2..) = input.value()? else { return Err(Broken("it is not an array of two or more")) };
    let timestamp = match input.value()? {
        Value::Float(time) => time,
        Value::Uint(time) => time as f64,
        Value::Int(time) => time as f64,
        _ => return Err(Broken("it does not begin with a time")),
    };
    let Value::Array(count) = input.value()? else { return Err(Broken("its events are not an array")) };
    if count > MAX_EVENTS {
        return Err(Broken("it has more than 131,072 events"));
    }
    let mut events = Vec::new();
    for _ in 0..count {
        events.push(read_event(input)?);
    }
    let mut rank = None;
    for at in 2..len {
        let mut element = Reader::new(input.skip()?);
        match element.value()? {
            Value::Uint(number) if at == 2 => rank = i64::try_from(number).ok(),
            _ => {}
        }
    }
    if !input.rest.is_empty() {
        return Err(Broken("something follows its end"));
    }
    Ok(Batch { timestamp, rank, events })
}

fn read_event<'a>(input: &mut Reader<'a>) -> std::result::Result<Raw<'a>, Broken> {
    let mut event = Raw { kind: None, is_array: false, fields: [&[]; FIELDS] };
    let mut inside = Reader::new(input.rest);
    match inside.value()? {
        Value::Map(len) => {
            for _ in 0..len {
                let key = Reader::new(inside.skip()?).value()?;
                let value = inside.skip()?;
                match key {
                    Value::Text(b"type") => event.kind = text_of(value),
                    Value::Text(key) => {
                        if let Some(field) = Field::of_key(key) {
                            event.fields[field as usize] = value;
                        }
                    }
                    _ => {}
                }
            }
        }
        Value::Array(len) => {
            event.is_array = true;
            let mut order: &[Option<Field>] = &[];
            for at in 0..len {
                let value = inside.skip()?;
                if at == 0 {
                    event.kind = text_of(value);
                    order = match event.kind {
                        Some(b"BlockStored") => &STORED,
                        Some(b"BlockRemoved") => &REMOVED,
                        _ => &[],
                    };
                } else if let Some(&Some(field)) = order.get(at - 1) {
                    event.fields[field as usize] = value;
                }
            }
        }
        _ => {
            input.skip()?;
            return Ok(event);
        }
    }
    input.rest = inside.rest;
    Ok(event)
}

fn text_of(value: &[u8]) -> Option<&[u8]> {
    match Reader::new(value).value() {
        Ok(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// What to do, once the fields are understood.
#[derive(Debug)]
pub(crate) enum Action<'a> {
    Store(Store<'a>),
    Remove { names: Vec<EngineHash>, residence: Residence, known_medium: bool, group: u32 },
    Clear,
    Refuse(String),
    PassOver(String),
}

/// A store event.
#[derive(Debug)]
pub(crate) struct Store<'a> {
    pub names: Vec<EngineHash>,
    pub parent: Option<EngineHash>,
    pub tokens: Vec<u32>,
    /// Extra keys by position from the event's first token.
    pub keys: Vec<ExtraKey<'a>>,
    pub block_size: usize,
    pub seed: u64,
    pub residence: Residence,
    pub known_medium: bool,
    pub group: Group,
    /// Name of the adapter, as the event has it.
    pub adapter: Option<Vec<u8>>,
}

impl<'a> Raw<'a> {
    /// What the event says. `base` is what the replica's namespace is where the event is silent.
    pub(crate) fn action(&self, base: &NamespaceSpec<'_>) -> Action<'a> {
        let name = |kind: &[u8]| String::from_utf8_lossy(&kind[..kind.len().min(SHOWN)]).into_owned();
        let done = match self.kind {
            Some(b"BlockStored") => self.store(base).map(Action::Store),
            Some(b"BlockRemoved") => self.removal(),
            Some(b"AllBlocksCleared") => Ok(Action::Clear),
            Some(kind) => return Action::PassOver(format!("type {:?} is unknown", name(kind))),
            None => refuse("it has no type"),
        };
        done.unwrap_or_else(|Refusal(why)| {
            Action::Refuse(format!("{}: {why}", self.kind.map_or_else(|| "event".into(), name)))
        })
    }

    fn get(&self, field: Field) -> Value<'a> {
        Reader::new(self.fields[field as usize]).value().unwrap_or(Value::Nil)
    }

    /// A text that an array may have elsewhere: there what is no text is passed over.
    fn text(&self, field: Field, name: &str) -> std::result::Result<Option<&'a [u8]>, Refusal> {
        match self.get(field) {
            Value::Text(text) => Ok(Some(text)),
            Value::Nil => Ok(None),
            _ if self.is_array => Ok(None),
            _ => refuse(format!("{name} must be text")),
        }
    }

    fn residence(&self) -> std::result::Result<(Residence, bool), Refusal> {
        let (medium, owner) = (self.text(Field::Medium, "medium")?, self.text(Field::Ownership, "ownership")?);
        Ok(Residence::of(medium, owner))
    }

    fn group(&self) -> std::result::Result<u32, Refusal> {
        match self.get(Field::Group) {
            Value::Uint(group) => u32::try_from(group).or_else(|_| refuse("group_idx must be less than 2**32")),
            Value::Nil => Ok(0),
            _ if self.is_array => Ok(0),
            _ => refuse("group_idx must be a whole number"),
        }
    }

    fn hashes(&self) -> std::result::Result<Vec<EngineHash>, Refusal> {
        let mut input = Reader::new(self.fields[Field::Hashes as usize]);
        let Ok(Value::Array(len)) = input.value() else { return refuse("block_hashes must be an array") };
        let mut names = Vec::with_capacity(len);
        for _ in 0..len {
            match input.value().ok().and_then(hash_of) {
                Some(name) => names.push(name),
                None => return refuse("block_hashes must be integers of 64 bits, or bytes, eight or more"),
            }
        }
        Ok(names)
    }

    fn removal(&self) -> std::result::Result<Action<'a>, Refusal> {
        let (residence, known_medium) = self.residence()?;
        Ok(Action::Remove { names: self.hashes()?, residence, known_medium, group: self.group()? })
    }

    fn store(&self, base: &NamespaceSpec<'_>) -> std::result::Result<Store<'a>, Refusal> {
        let names = self.hashes()?;
        let parent = match self.get(Field::Parent) {
            Value::Nil => None,
            other => match hash_of(other) {
                Some(parent) if names.first() != Some(&parent) => Some(parent),
                Some(_) => return refuse("a block is its own parent"),
                None => return refuse("parent_block_hash must be an integer of 64 bits, or bytes, eight or more"),
            },
        };
        let tokens = self.tokens()?;
        let block_size = match self.get(Field::BlockSize) {
            Value::Uint(size) if size <= MAX_BLOCK_SIZE as u64 => size as usize,
            Value::Nil if tokens.is_empty() => 0,
            _ => return refuse(format!("block_size must be a whole number up to {MAX_BLOCK_SIZE}")),
        };
        let (residence, known_medium) = self.residence()?;
        let window = match self.get(Field::Window) {
            Value::Uint(tokens) => u32::try_from(tokens).ok(),
            _ => None,
        };
        let kind = self.text(Field::Kind, "kv_cache_spec_kind")?.and_then(|kind| GroupKind::of(kind, window));
        let group = Group { index: self.group()?, kind };
        let adapter = self.adapter()?;
        let mut salt = self.text(Field::Salt, "cache_salt")?;
        let keys = self.keys(adapter.as_deref(), parent.is_none(), block_size, &mut salt)?;
        let seed = if parent.is_some() || tokens.is_empty() {
            0
        } else {
            namespace_seed(&NamespaceSpec {
                model: base.model,
                lora: adapter.as_deref().unwrap_or(base.lora),
                salt: salt.unwrap_or(base.salt),
            })
        };
        Ok(Store { names, parent, tokens, keys, block_size, seed, residence, known_medium, group, adapter })
    }

    /// The adapter's name, or its number where old events have no name.
    fn adapter(&self) -> std::result::Result<Option<Vec<u8>>, Refusal> {
        if let Some(name) = self.text(Field::LoraName, "lora_name")? {
            return Ok(Some(name.to_vec()));
        }
        Ok(match self.get(Field::LoraId) {
            Value::Uint(id) => Some(id.to_string().into_bytes()),
            _ => None,
        })
    }

    /// Token ids; of pairs (EAGLE) the first of each.
    fn tokens(&self) -> std::result::Result<Vec<u32>, Refusal> {
        let mut input = Reader::new(self.fields[Field::Tokens as usize]);
        let Ok(Value::Array(len)) = input.value() else { return refuse("token_ids must be an array") };
        let mut tokens = Vec::with_capacity(len);
        while tokens.len() < len {
            input.rest = plain_tokens(input.rest, len, &mut tokens);
            if tokens.len() == len {
                break;
            }
            let id = match input.value() {
                Ok(Value::Array(2)) => {
                    let pair = (input.value(), input.value());
                    pair.1.and(pair.0)
                }
                other => other,
            };
            match id {
                Ok(Value::Uint(id @ 0..=0xFFFF_FFFF)) => tokens.push(id as u32),
                _ => return refuse("token_ids must be whole numbers below 2**32, or pairs of them"),
            }
        }
        Ok(tokens)
    }

    /// Extra keys by position, in order. Engines publish them untagged and, within a block, in this order: the adapter's bare
    /// name, `(media id, offset from the block's start)`, in the first block the salt's bare text, prompt embeddings as bytes.
    fn keys(
        &self,
        adapter: Option<&[u8]>,
        first: bool,
        block_size: usize,
        salt: &mut Option<&'a [u8]>,
    ) -> std::result::Result<Vec<ExtraKey<'a>>, Refusal> {
        let mut keys = Vec::new();
        let mut blocks = Reader::new(self.fields[Field::ExtraKeys as usize]);
        let Ok(Value::Array(count)) = blocks.value() else { return Ok(keys) };
        for block in 0..count {
            let items = match blocks.value() {
                Ok(Value::Array(items)) => items,
                Ok(Value::Nil) => continue,
                _ => return refuse("extra_keys must have an array or nil for each block"),
            };
            if keys.len() + items > MAX_KEYS {
                return refuse(format!("extra_keys must have at most {MAX_KEYS} keys"));
            }
            let text = block_keys(&mut blocks, items, adapter, block * block_size, block_size, &mut keys)?;
            if let Some(text) = text.filter(|_| first && block == 0 && salt.is_none()) {
                *salt = Some(keys.remove(text).key);
            }
        }
        keys.sort_by_key(|key| key.position);
        Ok(keys)
    }
}

/// Appends the extra keys of the block that starts at `start`, without the adapter's name. Returns which of `keys` is a text
/// in the salt's place: nothing but bytes follows it.
fn block_keys<'a>(
    input: &mut Reader<'a>,
    items: usize,
    mut adapter: Option<&[u8]>,
    start: usize,
    block_size: usize,
    keys: &mut Vec<ExtraKey<'a>>,
) -> std::result::Result<Option<usize>, Refusal> {
    let mut last_text = None;
    for _ in 0..items {
        match input.value() {
            // Once a block: a salt or a media id may equal the adapter's name.
            Ok(Value::Text(text)) if adapter == Some(text) => adapter = None,
            Ok(Value::Text(key)) => {
                last_text = Some(keys.len());
                keys.push(ExtraKey { position: start, key });
            }
            Ok(Value::Bytes(key)) => keys.push(ExtraKey { position: start, key }),
            Ok(Value::Array(2)) => {
                last_text = None;
                match (input.value(), input.value()) {
                    // Media that began in an earlier block are part of this one's hash by the chain.
                    (Ok(Value::Text(_) | Value::Bytes(_)), Ok(Value::Int(_))) => {}
                    (Ok(Value::Text(key) | Value::Bytes(key)), Ok(Value::Uint(offset)))
                        if offset < block_size as u64 =>
                    {
                        keys.push(ExtraKey { position: start + offset as usize, key });
                    }
                    _ => return refuse("extra_keys has a pair that is no (media, offset)"),
                }
            }
            _ => return refuse("extra_keys must be texts, bytes or (media, offset)"),
        }
    }
    Ok(last_text)
}

/// Bits of the number in a token id of so many bytes.
const MASKS: [u64; 6] = [0, 0xFF, 0xFF, 0xFFFF, 0, 0xFFFF_FFFF];

/// Reads token ids up to the first one in another form, or the last few bytes; what is left of the bytes. Ids of two and of four bytes
/// follow each other at random, so no branch depends on their width.
#[inline]
fn plain_tokens<'a>(mut bytes: &'a [u8], len: usize, tokens: &mut Vec<u32>) -> &'a [u8] {
    while tokens.len() < len {
        let Some(&[head, a, b, c, d]) = bytes.first_chunk() else { break };
        let width = usize::from(WIDTHS[usize::from(head)]);
        if !matches!(width, 1..=5) {
            break;
        }
        let all = u64::from(head) << 32 | u64::from(u32::from_be_bytes([a, b, c, d]));
        tokens.push((all >> (40 - 8 * width) & MASKS[width]) as u32);
        bytes = &bytes[width..];
    }
    bytes
}

/// A block's name: an integer of either sign, or the last eight bytes of a digest, big-endian.
fn hash_of(value: Value<'_>) -> Option<EngineHash> {
    match value {
        Value::Uint(name) => Some(EngineHash(name)),
        Value::Int(name) => Some(EngineHash(u64::from_ne_bytes(name.to_ne_bytes()))),
        Value::Bytes(digest) => digest.last_chunk::<8>().map(|last| EngineHash(u64::from_be_bytes(*last))),
        _ => None,
    }
}
