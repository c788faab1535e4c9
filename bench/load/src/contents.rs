//! Bytes that tell where in a file they stand, so that a block in the wrong place is not taken for the right one.

/// The bytes of a file at `offset`.
pub fn fill(offset: u64, buffer: &mut [u8]) {
    for_each_word(offset, buffer.len(), |range, bytes| buffer[range].copy_from_slice(bytes));
}

/// Whether `bytes` are those of a file at `offset`.
pub fn are_at(offset: u64, bytes: &[u8]) -> bool {
    let mut are_equal = true;
    for_each_word(offset, bytes.len(), |range, expected| are_equal &= bytes[range] == *expected);
    are_equal
}

/// Calls with each part of `0..len` that lies within one word of the file, and with its bytes.
fn for_each_word(offset: u64, len: usize, mut each: impl FnMut(std::ops::Range<usize>, &[u8])) {
    let mut at = 0;
    while at < len {
        let position = offset + at as u64;
        let word = (position / 8 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        let within = (position % 8) as usize;
        let part = (8 - within).min(len - at);
        each(at..at + part, &word[within..within + part]);
        at += part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_file_have_the_bytes_of_the_whole_wherever_they_are_cut() {
        let mut whole = vec![0; 64];
        fill(1000, &mut whole);
        for from in 0..20 {
            for to in from..64 {
                let mut part = vec![0; to - from];
                fill(1000 + from as u64, &mut part);
                assert_eq!(part, whole[from..to], "{from}..{to}");
                assert!(are_at(1000 + from as u64, &part));
            }
        }
    }

    #[test]
    fn a_block_in_the_wrong_place_or_with_another_byte_is_noticed() {
        let mut block = vec![0; 4096];
        fill(8192, &mut block);
        assert!(!are_at(8193, &block) && !are_at(4096, &block) && !are_at(0, &block));
        block[4000] ^= 1;
        assert!(!are_at(8192, &block));
        assert!(!are_at(0, &[0; 16]));
    }
}
