//! Attention groups of a hybrid model: which one the index follows, which ones bound it, which ones it only counts.
//!
//! An engine's hash is a key within its group: the 8-token block of one group has the hash of every second 4-token block
//! of another. What kind a group is only its stores say, so it is remembered for its removals.

/// Groups of a replica that are remembered; those beyond are counted.
const MAX_GROUPS: usize = 64;

/// What an engine says of a group, by `kv_cache_spec_kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// Full or MLA attention: a prefix is what it holds from the start on.
    Full,
    /// A sliding window of so many tokens.
    Sliding(u32),
    /// Mamba state, chunked and cross attention and the like.
    Other,
}

impl GroupKind {
    /// The kind that engines call so; a name that says nothing is none.
    pub fn of(name: &[u8], window: Option<u32>) -> Option<Self> {
        match name {
            b"full_attention" | b"mla_attention" | b"sink_full_attention" => Some(GroupKind::Full),
            b"sliding_window" | b"sliding_window_mla" => {
                Some(window.filter(|&tokens| tokens > 0).map_or(GroupKind::Other, GroupKind::Sliding))
            }
            b"mamba" | b"chunked_local_attention" | b"encoder_only_attention" | b"cross_attention" => {
                Some(GroupKind::Other)
            }
            _ => None,
        }
    }
}

/// A group as an event names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// Its number; an event without one means 0.
    pub index: u32,
    /// Its kind, which stores may say.
    pub kind: Option<GroupKind>,
}

/// What the index does with a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its blocks are the replica's.
    Indexed,
    /// What it holds of so many tokens bounds what is usable.
    Window(u32),
    /// Its blocks are counted.
    Counted,
}

/// The groups of a replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    /// Number, role, and whether an event has said the kind.
    pub(crate) known: Vec<(u32, Role, bool)>,
}

impl Groups {
    pub(crate) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<(u32, Role, bool)>()
    }

    /// What one more group takes.
    pub(crate) fn growth(&self) -> usize {
        if self.known.len() < self.known.capacity() { 0 } else { size_of::<(u32, Role, bool)>() }
    }

    /// The role of a removal's group.
    pub(crate) fn role(&self, group: u32) -> Role {
        let known = self.known.iter().find(|(index, _, _)| *index == group);
        known.map_or_else(
            || if group == 0 && self.indexed().is_none() { Role::Indexed } else { Role::Counted },
            |known| known.1,
        )
    }

    /// The group that is indexed, and whether an event has said that it is one of full attention.
    fn indexed(&self) -> Option<(u32, bool)> {
        let indexed = self.known.iter().find(|(_, role, _)| *role == Role::Indexed);
        indexed.map(|&(index, _, said)| (index, said))
    }

    /// The role of a store's group, which the store may tell. True if blocks were indexed that should not have been: those of
    /// a group of unknown kind in place 0, which a group of full attention replaces.
    pub(crate) fn learn(&mut self, group: Group) -> (Role, bool) {
        let at = self.known.iter().position(|(index, _, _)| *index == group.index);
        let before = at.map(|at| self.known[at]);
        if let Some((_, role, _)) = before.filter(|&(_, _, said)| said || group.kind.is_none()) {
            return (role, false);
        }
        let other = self.indexed().filter(|&(index, _)| index != group.index);
        let role = match group.kind {
            Some(GroupKind::Sliding(tokens)) => Role::Window(tokens),
            Some(GroupKind::Full) if other.is_none_or(|(_, said)| !said) => Role::Indexed,
            None if group.index == 0 && other.is_none() => Role::Indexed,
            _ => Role::Counted,
        };
        let now = (group.index, role, group.kind.is_some());
        match at {
            Some(at) => self.known[at] = now,
            None if self.known.len() < MAX_GROUPS => {
                self.known.reserve_exact(1);
                self.known.push(now);
            }
            None => return (Role::Counted, false),
        }
        let mut wrong = before.is_some_and(|(_, before, _)| before == Role::Indexed) && role != Role::Indexed;
        if let Some((replaced, _)) = other.filter(|_| role == Role::Indexed) {
            self.known.iter_mut().filter(|known| known.0 == replaced).for_each(|known| known.1 = Role::Counted);
            wrong = true;
        }
        (role, wrong)
    }
}
