//! Frames of the commit feed: their layout is pinned, what is written is read, and nothing that can come does harm.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use prefixroute_core::BlockHash;
use prefixroute_core::peers::Outbox;
use prefixroute_core::peers::wire::{Binding, End, Kind, Message, Open, Part, Register, Seal, VERSION};
use prefixroute_core::testing::peers;
use proptest::prelude::*;

/// Under the key of block size 16, hash key 7 and the secret of sixteen zeros' text, see `tests/peers/test_golden.py`.
fn seal(line: &str) -> Seal {
    let (fingerprint, key) = line.split_once(' ').expect("a fingerprint and a key");
    let fingerprint = u32::from_str_radix(fingerprint, 16).expect("hexadecimal");
    Seal::new(fingerprint, u128::from_str_radix(key, 16).expect("hexadecimal"))
}

fn part(known: usize, rest: &'static [BlockHash]) -> Part<'static> {
    let parent = BlockHash(if known == 0 { 0 } else { 0x0123_4567_89ab_cdef });
    Part { known, parent, rest: Cow::Borrowed(rest) }
}

const REST: &[BlockHash] = &[BlockHash(0x1111_2222_3333_4444), BlockHash(0x5555_6666_7777_8888)];

/// A message of each kind, and more where a field may be absent.
fn messages() -> Vec<Message<'static>> {
    let open = |attempt, started| Open { attempt, process: 0xa0a1, uncached: 300, context: 70_000, started };
    vec![
        Message::Booked { process: 0xa0a1, session: 0xb0b1, uncached: 300, context: 70_000, part: part(200, REST) },
        Message::Booked { process: 0xa0a1, session: 0, uncached: 0, context: u32::MAX, part: part(0, &[]) },
        Message::Started(1_000_000),
        Message::Ended { attempt: 1_000_000, how: End::Finished, part: part(202, REST) },
        Message::Ended { attempt: 1_000_001, how: End::Retracted, part: part(0, &[]) },
        Message::Beat(Cow::Owned(vec![open(3, true), open(1_000_001, false)])),
        Message::Fleet(Register {
            replica: 0xc0c1,
            version: 300,
            author: 0xd0d1,
            state: 2,
            left: 2.5,
            incarnation: Cow::Borrowed(b"pod-7"),
        }),
        Message::Cleared(0xc0c1),
        Message::Bound(Cow::Owned(vec![Binding { session: 0xb0b1, process: 0xa0a1, age: 1.5 }])),
        Message::Held(0xa0a1, part(202, REST)),
        Message::Missing { peer: 0xe0e1, known: 202, parent: BlockHash(0x5555_6666_7777_8888) },
        Message::Chain(part(0, REST)),
        Message::Hello,
        Message::Welcome,
        Message::Left,
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// A change of the layout needs another version, and another file.
#[test]
fn the_layout_of_a_version_never_changes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/golden/peer_frames_v{VERSION}.txt"));
    let text = fs::read_to_string(&path).expect("each version has a file");
    let mut lines = text.lines();
    let seal = seal(lines.next().expect("the seal"));
    let mut outbox = Outbox::new(seal, 0xf0f1, 1_000_000);
    let mut told = messages();
    assert_eq!(Kind::ALL.map(|(kind, _)| told.iter().any(|message| message.kind() == kind)), [true; Kind::ALL.len()]);
    let mut frames = Vec::new();
    for message in &told {
        outbox.tell(message);
        frames.extend(outbox.take());
    }
    for message in &told {
        outbox.tell(message);
    }
    frames.extend(outbox.take());
    let written: Vec<String> = frames.iter().map(|frame| hex(frame)).collect();
    assert_eq!(written, lines.collect::<Vec<_>>(), "raise VERSION");
    let last = frames.pop().expect("a frame");
    let frame = seal.open(&last).expect("a frame");
    let read = frame.messages().expect("messages");
    assert_eq!(read.first().map(|message| message.0), Some(1_000_000 + told.len() as u64));
    assert_eq!(read.into_iter().map(|message| message.1).collect::<Vec<_>>(), told.split_off(0));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400), first in any::<u64>()) {
        let seal = Seal::new(1, 2);
        let _ = seal.open(&bytes);
        let mut frame = Vec::new();
        seal.begin(&mut frame, 9, first);
        frame.extend_from_slice(&bytes);
        seal.close(&mut frame);
        if let Ok(frame) = seal.open(&frame) {
            let _ = frame.messages();
        }
    }

    #[test]
    fn no_traffic_leaves_load(bytes in prop::collection::vec(any::<u8>(), 0..3_000)) {
        peers::run(&bytes).expect("load is what is in flight");
    }
}
