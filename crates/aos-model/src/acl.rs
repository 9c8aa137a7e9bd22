//! POSIX ACLs as extended attributes: the entries that repeat the permission bits of the mode.
//!
//! The kernel keeps both in step: `chmod` rewrites these entries of `system.posix_acl_access`. The value is a 4-byte
//! header and 8-byte entries (tag, permissions, id), little-endian, as in `<linux/posix_acl_xattr.h>`.

use crate::records::Attributes;

const ATTRIBUTE: &str = "system.posix_acl_access";
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// The attributes as the kernel shows them on an object with this mode.
pub fn with_mode(attributes: &Attributes, mode: u32) -> Attributes {
    let mut shown = attributes.clone();
    if let Some(list) = shown.get_mut(ATTRIBUTE) {
        set_mode(&mut list.0, mode);
    }
    shown
}

fn set_mode(list: &mut [u8], mode: u32) {
    let Some(entries) = list.get_mut(HEADER_BYTES..) else { return };
    let tag_of = |entry: &[u8]| u16::from_le_bytes([entry[0], entry[1]]);
    let has_mask = entries.chunks_exact(ENTRY_BYTES).any(|entry| tag_of(entry) == MASK);
    for entry in entries.chunks_exact_mut(ENTRY_BYTES) {
        let bits = match tag_of(entry) {
            OWNER => mode >> 6,
            // With a mask entry, the group bits of the mode are the mask (acl(5)).
            GROUP if !has_mask => mode >> 3,
            MASK => mode >> 3,
            OTHERS => mode,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&((bits & 7) as u16).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Base64;

    fn list(entries: &[(u16, u16)]) -> Attributes {
        let entry =
            |(tag, bits): &(u16, u16)| [tag.to_le_bytes(), bits.to_le_bytes(), [0xff; 2], [0xff; 2]].concat();
        let bytes = [vec![2, 0, 0, 0], entries.iter().flat_map(entry).collect()].concat();
        Attributes::from([(ATTRIBUTE.to_owned(), Base64(bytes)), ("user.x".to_owned(), Base64(vec![1]))])
    }

    #[test]
    fn a_mode_sets_only_the_entries_that_repeat_it() {
        let before = list(&[(OWNER, 7), (0x02, 4), (GROUP, 4), (MASK, 5), (OTHERS, 1)]);
        let closed = list(&[(OWNER, 5), (0x02, 4), (GROUP, 4), (MASK, 0), (OTHERS, 0)]);
        assert_eq!(with_mode(&before, 0o500), closed);
        let bare = list(&[(OWNER, 7), (GROUP, 4), (OTHERS, 1)]);
        assert_eq!(with_mode(&bare, 0o2640), list(&[(OWNER, 6), (GROUP, 4), (OTHERS, 0)]));
    }

    #[test]
    fn a_malformed_acl_is_left_unchanged() {
        for bytes in [vec![], vec![2, 0], vec![2, 0, 0, 0, 1], vec![2, 0, 0, 0, 9, 0, 7, 0, 0, 0, 0, 0, 1]] {
            let odd = Attributes::from([(ATTRIBUTE.to_owned(), Base64(bytes))]);
            assert_eq!(with_mode(&odd, 0o777), odd);
        }
    }
}
