//! A group as one statement: the parts of a pipeline as data-modifying CTEs behind its fence.
//!
//! They see one state of the tables and run in no promised order. So a group becomes one statement where no two of its parts
//! change the same table; what is removed and put again goes in order, as a pipeline.

use std::collections::BTreeSet;

/// Combinations of parts that are kept prepared.
pub const WHOLES_MAX: usize = 64;

/// Text between the fence and the question how many rows passed it.
const QUESTION: &str = " SELECT 1 /";

/// Whether no part waits for another.
pub fn is_unordered(parts: &[&'static str]) -> bool {
    let mut tables = BTreeSet::new();
    parts.iter().skip(1).all(|part| tables.insert(table(part)))
}

fn table(part: &str) -> Option<&str> {
    part.split_whitespace().skip(1).find(|word| !["INTO", "FROM"].contains(word))
}

/// The first part is the fence. Values follow each other in the order of the parts.
pub fn compose(parts: &[&'static str], values: &[usize]) -> Option<String> {
    let (fence, question) = parts.first()?.split_once(QUESTION)?;
    let mut whole = fence.to_owned();
    let mut before = *values.first()?;
    for (number, (part, values)) in parts.iter().zip(values).enumerate().skip(1) {
        whole.push_str(&format!(", part_{number} AS ({})", shifted(part, before)));
        before += values;
    }
    whole.push_str(QUESTION);
    whole.push_str(question);
    Some(whole)
}

/// `$1` as the parameter behind so many others.
fn shifted(part: &str, by: usize) -> String {
    let mut pieces = part.split('$');
    let mut shifted = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let len = piece.bytes().take_while(u8::is_ascii_digit).count();
        let number = piece[..len].parse::<usize>().unwrap_or_default();
        shifted.push_str(&format!("${}{}", number + by, &piece[len..]));
    }
    shifted
}

#[cfg(test)]
mod tests {
    use super::*;

    const FENCE: &str =
        "WITH moved AS (UPDATE progress SET groups = $1 RETURNING 1) SELECT 1 / (SELECT count(*) FROM moved)";
    const PUT: &str = "INSERT INTO inodes SELECT * FROM unnest($1, $2)";
    const REMOVE: &str = "DELETE FROM dentries WHERE inode = ANY($1)";

    #[test]
    fn parts_stand_between_the_fence_and_its_question_with_parameters_of_their_own() {
        let whole = compose(&[FENCE, PUT, REMOVE], &[1, 2, 1]).unwrap();
        assert_eq!(
            whole,
            "WITH moved AS (UPDATE progress SET groups = $1 RETURNING 1), \
             part_1 AS (INSERT INTO inodes SELECT * FROM unnest($2, $3)), \
             part_2 AS (DELETE FROM dentries WHERE inode = ANY($4)) SELECT 1 / (SELECT count(*) FROM moved)"
        );
        assert_eq!(compose(&[FENCE], &[1]).as_deref(), Some(FENCE));
    }

    #[test]
    fn two_parts_of_one_table_keep_their_order() {
        assert!(is_unordered(&[FENCE, PUT, REMOVE]));
        assert!(!is_unordered(&[FENCE, PUT, "DELETE FROM inodes WHERE id = ANY($1)"]));
        assert!(!is_unordered(&[FENCE, REMOVE, "UPDATE dentries d SET inode = k.inode"]));
    }
}
