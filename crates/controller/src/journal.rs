//! How the changes of one decision get into a store that takes only so much at once, all of them or none, whenever the writer is
//! killed. (etcd takes 128 operations and 1.5 MB in a transaction.)
//!
//! What fits into one transaction is one. The others are written into a *journal* first, piece by piece, which changes nothing; a
//! mark, in a transaction of its own, says that it is complete, and from then on the decision is made. Its changes are made in
//! several transactions, and the last one removes mark and journal. Whoever reads the records ([`recover`]) takes a journal
//! with a mark for made, and makes its changes, which may be done twice, before he writes anything else. One without a mark is of
//! a decision that was never made.
//!
//! | key | value |
//! |---|---|
//! | `COUPONS/j/` number | a piece of the journal; the number is big-endian, in 4 bytes |
//! | `COUPONS/J` | how many pieces it has |

use crate::kept::{BadKept, Change, decode, encode};
use std::collections::BTreeMap;

/// Operations in one transaction at most: etcd takes 128, some of which are left to whoever makes it.
pub const OPERATIONS_MAX: usize = 120;
/// Bytes of keys and values in one transaction at most: etcd takes 1.5 MiB, with what is around them.
pub const BYTES_MAX: usize = 1 << 20;

const PIECE: &[u8] = b"COUPONS/j/";
const MARK: &[u8] = b"COUPONS/J";

/// Changes that are made together.
pub type Transaction = Vec<Change>;
/// Key and value.
pub type Record = (Vec<u8>, Vec<u8>);

/// The transactions, in this order, that make these changes together; none if there are no changes.
pub fn transactions(changes: Vec<Change>) -> Vec<Transaction> {
    if fits(&changes) {
        return if changes.is_empty() { Vec::new() } else { vec![changes] };
    }
    let journal = encode(&changes);
    let pieces: Vec<&[u8]> = journal.chunks(BYTES_MAX / 2).collect();
    let write = (0..).zip(&pieces).map(|(at, piece)| vec![(piece_key(at), Some(piece.to_vec()))]);
    let mark = vec![(MARK.to_vec(), Some(encode(&(pieces.len() as u32))))];
    let mut all: Vec<Transaction> = write.chain([mark]).collect();
    let count = pieces.len() as u32;
    all.extend(batches(changes));
    all.extend(removal(0..count));
    all
}

/// What these records are once what was begun is finished, and the transactions, in this order, that finish it.
///
/// # Errors
/// The journal is none that this program knows.
pub fn recover(records: Vec<Record>) -> Result<(Vec<Record>, Vec<Transaction>), BadKept> {
    let mut records: BTreeMap<Vec<u8>, Vec<u8>> = records.into_iter().collect();
    let pieces: BTreeMap<Vec<u8>, Vec<u8>> = records.extract_if(.., |key, _| key.starts_with(PIECE)).collect();
    let mut finish = Vec::new();
    if let Some(mark) = records.remove(MARK) {
        let count: u32 = decode(MARK, &mark)?;
        let piece = |at: u32| pieces.get(&piece_key(at)).ok_or_else(|| BadKept::Malformed(name(&piece_key(at))));
        let journal: Vec<&[u8]> = (0..count).map(|at| piece(at).map(Vec::as_slice)).collect::<Result<_, _>>()?;
        let changes: Vec<Change> = decode(MARK, &journal.concat())?;
        for (key, value) in &changes {
            match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
        }
        finish.extend(batches(changes));
    }
    let numbers = pieces.keys().filter_map(|key| Some(u32::from_be_bytes(key.strip_prefix(PIECE)?.try_into().ok()?)));
    if !pieces.is_empty() {
        finish.extend(removal(numbers));
    }
    Ok((records.into_iter().collect(), finish))
}

/// The mark goes first: pieces without it are of no account.
fn removal(pieces: impl IntoIterator<Item = u32>) -> Vec<Transaction> {
    let keys = [MARK.to_vec()].into_iter().chain(pieces.into_iter().map(piece_key));
    batches(keys.map(|key| (key, None)).collect())
}

fn piece_key(at: u32) -> Vec<u8> {
    [PIECE, &at.to_be_bytes()].concat()
}

fn name(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

fn len((key, value): &Change) -> usize {
    key.len() + value.as_ref().map_or(0, Vec::len)
}

fn fits(changes: &[Change]) -> bool {
    changes.len() <= OPERATIONS_MAX && changes.iter().map(len).sum::<usize>() <= BYTES_MAX
}

/// The same changes, as many at once as fit.
fn batches(changes: Vec<Change>) -> Vec<Transaction> {
    let mut batches: Vec<Transaction> = Vec::new();
    let mut bytes = 0;
    for change in changes {
        let is_full = |batch: &&mut Transaction| batch.len() < OPERATIONS_MAX && bytes + len(&change) <= BYTES_MAX;
        match batches.last_mut().filter(is_full) {
            Some(batch) => {
                bytes += len(&change);
                batch.push(change);
            }
            None => {
                bytes = len(&change);
                batches.push(vec![change]);
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Records = BTreeMap<Vec<u8>, Vec<u8>>;

    fn apply(records: &mut Records, transaction: &[Change]) {
        assert!(fits(transaction), "{} operations", transaction.len());
        for (key, value) in transaction {
            match value {
                Some(value) => records.insert(key.clone(), value.clone()),
                None => records.remove(key),
            };
        }
    }

    fn read(records: &Records) -> (Records, Vec<Transaction>) {
        let (records, finish) = recover(records.clone().into_iter().collect()).unwrap();
        (records.into_iter().collect(), finish)
    }

    /// So many changes of records, each of so many bytes.
    fn changes(count: u16, len: usize, mark: u8) -> Vec<Change> {
        let change = |at: u16| {
            let value = (!(at + u16::from(mark)).is_multiple_of(5)).then(|| vec![mark; len]);
            ([&b"COUPONS/a/"[..], &at.to_be_bytes()].concat(), value)
        };
        (0..count).map(change).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

        /// Writers are killed between any two transactions, those that finish what others began as well: what is read is always
        /// the records after a number of whole decisions, and never before one that was finished.
        #[test]
        fn a_decision_is_made_or_not_whoever_is_killed(
            decisions in proptest::collection::vec(
                (prop_oneof![0..20_u16, 100..400_u16], prop_oneof![Just(40_usize), Just(9_000)], 0..40_usize, 0..9_usize),
                1..8,
            ),
        ) {
            let (mut stored, mut model) = (Records::new(), Records::new());
            for (mark, (count, len, killed_after, again_after)) in (1_u8..).zip(decisions) {
                let changes = changes(count, len, mark);
                let mut after = model.clone();
                changes.iter().for_each(|change| apply(&mut after, std::slice::from_ref(change)));
                let all = transactions(changes);
                all.iter().take(killed_after).for_each(|transaction| apply(&mut stored, transaction));
                let (found, finish) = read(&stored);
                prop_assert!(found == model || found == after, "half of decision {}", mark);
                prop_assert!(killed_after < all.len() || found == after, "a decision was lost");
                // The next one is killed too while it finishes that, and then one is not.
                finish.iter().take(again_after).for_each(|transaction| apply(&mut stored, transaction));
                let (again, finish) = read(&stored);
                prop_assert_eq!(&again, &found);
                finish.iter().for_each(|transaction| apply(&mut stored, transaction));
                prop_assert_eq!(&stored, &found, "nothing of the journal is left");
                model = found;
            }
        }
    }

    #[test]
    fn what_fits_is_one_transaction() {
        assert_eq!(transactions(Vec::new()).len(), 0);
        assert_eq!(transactions(changes(OPERATIONS_MAX as u16, 40, 1)).len(), 1);
        // Journal, mark, changes, and the end of it.
        assert_eq!(transactions(changes(OPERATIONS_MAX as u16 + 1, 40, 1)).len(), 1 + 1 + 2 + 1);
    }

    #[test]
    fn a_journal_that_lacks_a_piece_is_refused() {
        let all = transactions(changes(400, 9_000, 1));
        let mut stored = Records::new();
        let marked = all.iter().position(|transaction| transaction[0].0 == MARK).unwrap();
        all[1..=marked].iter().for_each(|transaction| apply(&mut stored, transaction));
        let refused = recover(stored.into_iter().collect()).unwrap_err().to_string();
        assert_eq!(refused, "record COUPONS/j/\\x00\\x00\\x00\\x00 of the ledger cannot be read");
    }
}
