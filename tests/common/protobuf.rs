//! Protocol buffer fields, encoded by hand.

/// An integer without its field.
pub(crate) fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// An integer field.
pub(crate) fn int(field: u64, value: u64) -> Vec<u8> {
    [number(field << 3), number(value)].concat()
}

/// A field with a message, a text or a packed list.
pub(crate) fn bytes(field: u64, content: &[u8]) -> Vec<u8> {
    [number(field << 3 | 2), number(content.len() as u64), content.to_vec()].concat()
}
