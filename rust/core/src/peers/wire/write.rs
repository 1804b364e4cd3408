//! Messages as bytes.

use super::{HAS_PARENT, HAS_SESSION, Message, Part};

fn put(frame: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        frame.push(number as u8 | 0x80);
        number >>= 7;
    }
    frame.push(number as u8);
}

fn put_parent(frame: &mut Vec<u8>, part: &Part<'_>) {
    if part.known > 0 {
        put(frame, part.known as u64);
        frame.extend_from_slice(&part.parent.0.to_le_bytes());
    }
}

fn put_rest(frame: &mut Vec<u8>, part: &Part<'_>) {
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
            frame.extend_from_slice(&process.to_le_bytes());
            if *session != 0 {
                frame.extend_from_slice(&session.to_le_bytes());
            }
            put(frame, (*uncached).into());
            put(frame, (*context).into());
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Started(attempt) => put(frame, distance(*attempt)),
        Message::Ended { attempt, how, part } => {
            frame.push(has_parent(part) | *how as u8);
            put(frame, distance(*attempt));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Beat(rows) => {
            put(frame, rows.len() as u64);
            for row in &**rows {
                put(frame, distance(row.attempt));
                frame.extend_from_slice(&row.process.to_le_bytes());
                put(frame, row.uncached.into());
                put(frame, u64::from(row.context) << 1 | u64::from(row.started));
            }
        }
        Message::Fleet(register) => {
            frame.extend_from_slice(&register.replica.to_le_bytes());
            put(frame, register.version);
            frame.extend_from_slice(&register.author.to_le_bytes());
            frame.push(register.state);
            frame.extend_from_slice(&register.left.to_le_bytes());
            put(frame, register.incarnation.len() as u64);
            frame.extend_from_slice(&register.incarnation);
        }
        Message::Cleared(replica) => frame.extend_from_slice(&replica.to_le_bytes()),
        Message::Bound(rows) => {
            put(frame, rows.len() as u64);
            for row in &**rows {
                frame.extend_from_slice(&row.session.to_le_bytes());
                frame.extend_from_slice(&row.process.to_le_bytes());
                frame.extend_from_slice(&row.age.to_le_bytes());
            }
        }
        Message::Held(process, part) => {
            frame.extend_from_slice(&process.to_le_bytes());
            frame.push(has_parent(part));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Missing { peer, known, parent } => {
            frame.extend_from_slice(&peer.to_le_bytes());
            put(frame, *known as u64);
            frame.extend_from_slice(&parent.0.to_le_bytes());
        }
        Message::Chain(part) => {
            frame.push(has_parent(part));
            put_parent(frame, part);
            put_rest(frame, part);
        }
        Message::Hello | Message::Welcome | Message::Left => {}
    }
}
