//! Where an engine says that a copy lies: a tier, and what else keeps copies apart.

use xxhash_rust::xxh3::xxh3_64;

use crate::ids::Medium;

/// A tier, and a tag that keeps copies apart which have to be removed each by its own name: two owners of one tier, or two
/// media that count as one tier. The tag of GPU, CPU and disk without an owner is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Residence {
    /// The tier.
    pub medium: Medium,
    /// Hash of the medium's name and the owner's, or 0.
    pub tag: u64,
}

impl From<Medium> for Residence {
    fn from(medium: Medium) -> Self {
        Residence { medium, tag: 0 }
    }
}

impl Residence {
    /// The residence of a medium that an engine names in whatever case; unnamed means GPU. A name that nobody knows is the
    /// slowest tier, and false.
    pub fn of(medium: Option<&[u8]>, ownership: Option<&[u8]>) -> (Self, bool) {
        let name = medium.unwrap_or(b"GPU").to_ascii_uppercase();
        let (medium, plain, known) = match &name[..] {
            b"GPU" => (Medium::Gpu, true, true),
            b"CPU" | b"CPU_PINNED" => (Medium::Cpu, true, true),
            b"DISK" | b"STORAGE" => (Medium::Disk, true, true),
            b"EXTERNAL" => (Medium::Disk, false, true),
            _ => (Medium::Disk, false, false),
        };
        let tag = match ownership {
            None if plain => 0,
            owner => {
                let name = if plain { &[] } else { &name[..] };
                let mut bytes = (name.len() as u64).to_le_bytes().to_vec();
                bytes.extend_from_slice(name);
                bytes.extend_from_slice(owner.unwrap_or_default());
                xxh3_64(&bytes).max(1)
            }
        };
        (Residence { medium, tag }, known)
    }
}
