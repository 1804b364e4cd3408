//! Messages as bytes.

use super::{Binding, HAS_PARENT, HAS_SESSION, Message, Open, Part, Register};

fn put(frame: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        frame.push(number as u8 | 0x80);
        number >>= 7;
    }
    frame.push(number as u8);
}

/// A part of a chain; `has_parent` among the flags says whether its head was carried before.
fn put_part(frame: &mut Vec<u8>, part: &Part<'_>) {
    if part.known > 0 {
        put(frame, part.known as u64);
        frame.extend(part.parent.0.to_le_bytes());
    }
    put(frame, part.rest.len() as u64);
    frame.reserve(8 * part.rest.len());
    for hash in &*part.rest {
        frame.extend_from_slice(&hash.0.to_le_bytes());
    }
}

fn has_parent(part: &Part<'_>) -> u8 {
    if part.known > 0 { HAS_PARENT } else { 0 }
}

/// Writes a message behind those that a frame has. Its fields are within the limits of this module.
pub fn write(frame: &mut Vec<u8>, sequence: u64, message: &Message<'_>) {
    frame.push(message.kind() as u8);
    let distance = |attempt: u64| sequence.wrapping_sub(attempt);
    match message {
        Message::Booked { process, session, uncached, context, part } => {
            frame.push(has_parent(part) | if *session == 0 { 0 } else { HAS_SESSION });
            frame.extend(process.to_le_bytes());
            if *session != 0 {
                frame.extend(session.to_le_bytes());
            }
            put(frame, (*uncached).into());
            put(frame, (*context).into());
            put_part(frame, part);
        }
        Message::Started(attempt) => put(frame, distance(*attempt)),
        Message::Ended { attempt, how, part } => {
            frame.push(has_parent(part) | *how as u8);
            put(frame, distance(*attempt));
            put_part(frame, part);
        }
        Message::Beat(rows) => put_rows(frame, rows, |frame, row| put_open(frame, row, distance(row.attempt))),
        Message::Fleet(register) => put_register(frame, register),
        Message::Cleared(replica) => frame.extend(replica.to_le_bytes()),
        Message::Bound(rows) => put_rows(frame, rows, put_binding),
        Message::Held(process, part) => {
            frame.extend(process.to_le_bytes());
            frame.push(has_parent(part));
            put_part(frame, part);
        }
        Message::Missing { peer, known, parent } => {
            frame.extend(peer.to_le_bytes());
            put(frame, *known as u64);
            frame.extend(parent.0.to_le_bytes());
        }
        Message::Chain(part) => {
            frame.push(has_parent(part));
            put_part(frame, part);
        }
        Message::Hello | Message::Welcome | Message::Left => {}
    }
}

fn put_rows<T>(frame: &mut Vec<u8>, rows: &[T], put_row: impl Fn(&mut Vec<u8>, &T)) {
    put(frame, rows.len() as u64);
    for row in rows {
        put_row(frame, row);
    }
}

fn put_open(frame: &mut Vec<u8>, row: &Open, distance: u64) {
    put(frame, distance);
    frame.extend(row.process.to_le_bytes());
    put(frame, row.uncached.into());
    put(frame, u64::from(row.context) << 1 | u64::from(row.started));
}

fn put_binding(frame: &mut Vec<u8>, row: &Binding) {
    frame.extend(row.session.to_le_bytes());
    frame.extend(row.process.to_le_bytes());
    frame.extend(row.age.to_le_bytes());
}

fn put_register(frame: &mut Vec<u8>, register: &Register<'_>) {
    frame.extend(register.replica.to_le_bytes());
    put(frame, register.version);
    frame.extend(register.author.to_le_bytes());
    frame.push(register.state);
    frame.extend(register.left.to_le_bytes());
    put(frame, register.incarnation.len() as u64);
    frame.extend_from_slice(&register.incarnation);
}
