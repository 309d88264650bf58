//! Damage that was met is known after a power cut, and what was written instead is not taken for it.

use super::*;
use std::os::unix::fs::FileExt;

const BLOCK: usize = 4096;

#[test]
fn what_is_told_of_a_block_is_on_stable_storage() {
    for is_written_first in [false, true] {
        let mut machine = Machine::new(1);
        let ino = machine.synced("file", 7, 9 * BLOCK);
        machine.settle();
        let write = |machine: &Machine, block: usize| {
            machine.store().write(ino, (block * BLOCK) as u64, &[5; BLOCK], at(3)).unwrap();
        };
        let is_error = |machine: &Machine| machine.store().read(ino, 4 * BLOCK as u64, &mut [0; BLOCK]).is_err();
        if is_written_first {
            write(&machine, 0);
        }
        let object = std::fs::File::options().write(true).open(&machine.object_paths()[0]).unwrap();
        object.write_all_at(&[5; BLOCK], 4 * BLOCK as u64).unwrap();
        assert!(is_error(&machine));
        write(&machine, 0);
        machine.cut_power();
        assert!(is_error(&machine), "{is_written_first}");
        // Just the bytes that were found, which are right from now on.
        write(&machine, 4);
        machine.cut_power();
        assert!(!is_error(&machine), "{is_written_first}");
        assert_eq!(machine.content(ino)[4 * BLOCK..5 * BLOCK], [5; BLOCK]);
    }
}
