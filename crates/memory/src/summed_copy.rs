//! Copying blocks out of memory that another process may change, and summing the copy on the way.
//!
//! A copy, and then a sum of the copy, touch every byte twice, which takes half as long as the host's own work on a small
//! request. Here each 64 bytes go through a register from the one memory to the other, and into the sum while they are
//! there. Measured, a block in the second-level cache: 43 ns with AVX-512 and 61 ns with AVX2.
//! Without the copy it is 38 and 59 ns, where the library takes 140.
//!
//! What a client wrote lies in the caches of another core, and the loads of one block are too few to have enough of it under way: the
//! processor's own look ahead begins anew with each page. So the next block is asked for while one is copied, and
//! the second half of one that is the last.
//!
//! The sum is XXH3-64 without a seed, as its specification says for long inputs
//! (<https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md>), of one length: [`BLOCK_LEN`]. It is what
//! [`XxHash3_64`] gives, which serves where the processor has neither, and which the tests compare with.

use crate::copy::copy_unseen;
use std::mem::MaybeUninit;
use twox_hash::XxHash3_64;

/// Bytes of a block.
pub const BLOCK_LEN: usize = 4096;
/// So many bytes or more that another processor wrote, and will write again, are better copied by the processor's own instruction
/// for that, and summed afterwards ([`copy_and_then_sum`]). Loads bring them to the caches of whoever copies, from which the other
/// has to take them back: a read of 1 MiB took 590 us by them where the two are far from each other, and takes 340.
pub(crate) const LONG_COPY_LEN: usize = 128 << 10;

/// The sum of a block that is this process's own.
pub fn sum_of_block(block: &[u8; BLOCK_LEN]) -> u64 {
    let mut found = 0;
    sum_blocks(std::slice::from_ref(block), |_, sum| found = sum);
    found
}

/// Calls `each` with the number of each block, from 0 on, and its sum.
pub(crate) fn sum_blocks(blocks: &[[u8; BLOCK_LEN]], mut each: impl FnMut(usize, u64)) {
    #[cfg(target_arch = "x86_64")]
    {
        let (from, nowhere) = (blocks.as_ptr().cast(), std::ptr::null_mut());
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the blocks are readable and nothing is written; the processor has the instructions.
            return unsafe { vector::sum_avx512::<false>(from, nowhere, blocks.len(), each) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the blocks are readable and nothing is written; the processor has the instructions.
            return unsafe { vector::sum_avx2::<false>(from, nowhere, blocks.len(), each) };
        }
    }
    blocks.iter().enumerate().for_each(|(number, block)| each(number, XxHash3_64::oneshot(block)));
}

/// Room for a block.
pub(crate) type Room = [MaybeUninit<u8>; BLOCK_LEN];

/// Fills `to` with blocks that follow each other at `from`. `each` gets the number of each of them, from 0 on, and the sum of what is in `to`.
///
/// # Safety
/// `from` may be read for as many bytes as `to` has, and is no part of it. Others may write to it meanwhile.
pub(crate) unsafe fn copy_blocks(from: *const u8, to: &mut [Room], each: impl FnMut(usize, u64)) {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the caller's promise; the processor has the instructions.
            return unsafe { vector::sum_avx512::<true>(from, to.as_mut_ptr(), to.len(), each) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the caller's promise; the processor has the instructions.
            return unsafe { vector::sum_avx2::<true>(from, to.as_mut_ptr(), to.len(), each) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { copy_and_then_sum(from, to, each) }
}

/// The same in two passes over each block, the second of which finds it in the nearest cache.
///
/// # Safety
/// As for [`copy_blocks`].
pub(crate) unsafe fn copy_and_then_sum(from: *const u8, to: &mut [Room], mut each: impl FnMut(usize, u64)) {
    for (number, block) in to.iter_mut().enumerate() {
        // SAFETY: the caller's promise; as many bytes are filled as `block` has.
        let copied = unsafe {
            copy_unseen(from.add(number * BLOCK_LEN), block.as_mut_ptr().cast(), BLOCK_LEN);
            &*block.as_ptr().cast::<[u8; BLOCK_LEN]>()
        };
        each(number, sum_of_block(copied));
    }
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use super::{BLOCK_LEN, Room};
    use std::arch::asm;
    use std::arch::x86_64::*;
    use twox_hash::xxhash3_64::DEFAULT_SECRET_LENGTH;

    const PRIME32_1: u64 = 0x9e37_79b1;
    const PRIME64_1: u64 = 0x9e37_79b1_85eb_ca87;
    const PRIME_MX1: u64 = 0x1656_6791_9e37_79f9;
    /// What the eight sums begin with.
    const INITIAL: [u64; 8] = [
        0xc2b2_ae3d,
        PRIME64_1,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x85eb_ca77,
        0x27d4_eb2f_1656_67c5,
        PRIME32_1,
    ];
    /// As long as a line of the cache.
    const STRIPE_LEN: usize = 64;
    /// Stripes of a round, which ends with a scrambling: each takes its key 8 bytes further on in the secret than the one before.
    const STRIPES: usize = 16;
    const ROUND_LEN: usize = STRIPES * STRIPE_LEN;
    const ROUNDS: usize = BLOCK_LEN / ROUND_LEN;
    const KEY_OF_SCRAMBLING: usize = DEFAULT_SECRET_LENGTH - STRIPE_LEN;
    /// The last stripe of all has a key that is no multiple of 8 bytes away.
    const KEY_OF_LAST: usize = DEFAULT_SECRET_LENGTH - STRIPE_LEN - 7;
    const KEY_OF_MERGING: usize = 11;
    const _: () = assert!(ROUNDS * ROUND_LEN == BLOCK_LEN);

    #[rustfmt::skip]
    const SECRET: [u8; DEFAULT_SECRET_LENGTH] = [
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
        0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
        0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
        0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
        0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
        0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
        0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
        0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
        0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
        0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
    ];

    /// The keys of a round's stripes one behind the other, because a load that touches two lines of the cache takes twice as long.
    static KEYS: Keys = Keys::new();

    #[repr(align(64))]
    struct Keys([[u8; STRIPE_LEN]; STRIPES]);

    impl Keys {
        const fn new() -> Self {
            let mut keys = [[0; STRIPE_LEN]; STRIPES];
            let mut at = 0;
            while at < ROUND_LEN {
                let (stripe, byte) = (at / STRIPE_LEN, at % STRIPE_LEN);
                keys[stripe][byte] = SECRET[8 * stripe + byte];
                at += 1;
            }
            Self(keys)
        }
    }

    /// The eight sums become one.
    fn merge(sums: &[u64; 8]) -> u64 {
        let (keys, _) = SECRET[KEY_OF_MERGING..].as_chunks::<8>();
        let (pairs, _) = sums.as_chunks::<2>();
        let (keys, _) = keys.as_chunks::<2>();
        let mut sum = (BLOCK_LEN as u64).wrapping_mul(PRIME64_1);
        for ([left, right], [left_key, right_key]) in pairs.iter().zip(keys) {
            let left = left ^ u64::from_le_bytes(*left_key);
            let right = right ^ u64::from_le_bytes(*right_key);
            let product = u128::from(left) * u128::from(right);
            sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        sum ^= sum >> 37;
        sum = sum.wrapping_mul(PRIME_MX1);
        sum ^ sum >> 32
    }

    /// Does the same for each stripe of a round, without a loop, whose steps would take longer than some stripes.
    macro_rules! each_stripe {
        ($stripe:ident, $body:block) => {
            each_stripe!($stripe, $body, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
        };
        ($stripe:ident, $body:block, $($number:literal),*) => {$({
            const $stripe: usize = $number;
            $body
        })*};
    }

    /// Sums by vectors of one length, of blocks that are copied or stay where they are. Only the loads look at memory that others may change:
    /// the compiler does not see into them.
    macro_rules! sums {
        (
            $name:ident, $one_name:ident, $feature:literal, $vector:ty, $register:ident, $load_unseen:literal, $load:ident, $store:ident,
            $xor:ident, $shuffle:ident, $right:ident, $left:ident, $multiply:ident, $add:ident, $all:ident
        ) => {
            /// Calls `each` with the number and the sum of each of `count` blocks that follow each other at `from`. If it `COPIES`, they are in
            /// `to` then, and the sums are those of what is there.
            ///
            /// # Safety
            /// The blocks may be read, and if it `COPIES`, as many written, which are no part of those.
            #[target_feature(enable = $feature)]
            pub unsafe fn $name<const COPIES: bool>(
                from: *const u8,
                to: *mut Room,
                count: usize,
                mut each: impl FnMut(usize, u64),
            ) {
                for number in 0..count {
                    let (from, to) = (from.wrapping_add(number * BLOCK_LEN), to.wrapping_add(number).cast());
                    // SAFETY: it is one of them.
                    each(number, unsafe { $one_name::<COPIES>(from, to, number + 1 < count) });
                }
            }

            /// Gives the sum of one block, and asks for what `follows` it meanwhile.
            ///
            /// # Safety
            /// As for the other.
            #[target_feature(enable = $feature)]
            unsafe fn $one_name<const COPIES: bool>(from: *const u8, to: *mut u8, follows: bool) -> u64 {
                const LEN: usize = size_of::<$vector>();
                const COUNT: usize = STRIPE_LEN / LEN;
                let key = |keys: &[u8], part: usize| {
                    let key = &keys[part * LEN..][..LEN];
                    // SAFETY: as many bytes are there.
                    unsafe { $load(key.as_ptr().cast()) }
                };
                let prime = $all(PRIME32_1 as i64);
                // SAFETY: as long as all vectors together.
                let mut sums: [$vector; COUNT] = unsafe { std::mem::transmute(INITIAL) };
                for round in 0..ROUNDS {
                    let is_last = round == ROUNDS - 1;
                    let at = round * ROUND_LEN;
                    let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
                    // What is here already is asked for at no cost.
                    let ahead = from.wrapping_add(match follows {
                        true => BLOCK_LEN,
                        false if round < ROUNDS / 2 => BLOCK_LEN / 2,
                        false => 0,
                    });
                    // Else the compiler loads all keys before the first round, for which there are too few registers.
                    let round_keys = std::hint::black_box(&KEYS);
                    // Apart from the sums, so that no addition waits for more than one other.
                    let mut products = [$all(0); COUNT];
                    each_stripe!(STRIPE, {
                        let last = STRIPE == STRIPES - 1 && is_last;
                        let keys = if last { &SECRET[KEY_OF_LAST..] } else { &round_keys.0[STRIPE][..] };
                        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(STRIPE * STRIPE_LEN).cast());
                        for part in 0..COUNT {
                            let bytes: $vector;
                            // SAFETY: within the block on both sides.
                            unsafe {
                                asm!(
                                    $load_unseen,
                                    bytes = lateout($register) bytes,
                                    from = in(reg) from.add(part * LEN),
                                    at = const STRIPE * STRIPE_LEN,
                                    options(nostack, preserves_flags, readonly)
                                );
                                if COPIES {
                                    $store(to.add(STRIPE * STRIPE_LEN + part * LEN).cast(), bytes);
                                }
                            }
                            let keyed = $xor(bytes, key(keys, part));
                            sums[part] = $add(sums[part], $shuffle::<0b01_00_11_10>(bytes));
                            products[part] = $add(products[part], $multiply(keyed, $right::<32>(keyed)));
                        }
                    });
                    for (part, (sum, product)) in sums.iter_mut().zip(products).enumerate() {
                        *sum = $add(*sum, product);
                        if !is_last {
                            let mixed = $xor($xor(*sum, $right::<47>(*sum)), key(&SECRET[KEY_OF_SCRAMBLING..], part));
                            let high = $multiply($right::<32>(mixed), prime);
                            *sum = $add($multiply(mixed, prime), $left::<32>(high));
                        }
                    }
                }
                // SAFETY: as long as all vectors together.
                merge(&unsafe { std::mem::transmute::<[$vector; COUNT], [u64; 8]>(sums) })
            }
        };
    }

    sums!(
        sum_avx512,
        sum_one_avx512,
        "avx512f",
        __m512i,
        zmm_reg,
        "vmovdqu64 {bytes}, [{from} + {at}]",
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_xor_si512,
        _mm512_shuffle_epi32,
        _mm512_srli_epi64,
        _mm512_slli_epi64,
        _mm512_mul_epu32,
        _mm512_add_epi64,
        _mm512_set1_epi64
    );
    sums!(
        sum_avx2,
        sum_one_avx2,
        "avx2",
        __m256i,
        ymm_reg,
        "vmovdqu {bytes}, [{from} + {at}]",
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_xor_si256,
        _mm256_shuffle_epi32,
        _mm256_srli_epi64,
        _mm256_slli_epi64,
        _mm256_mul_epu32,
        _mm256_add_epi64,
        _mm256_set1_epi64x
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Each<'e> = &'e mut dyn FnMut(usize, u64);
    type Copy = unsafe fn(*const u8, &mut [Room], Each<'_>);

    /// All ways that this processor has.
    fn ways() -> Vec<(&'static str, Copy)> {
        // SAFETY: the caller's promise.
        let mut ways: Vec<(_, Copy)> = vec![
            ("plain", |from, to, each| unsafe { copy_and_then_sum(from, to, each) }),
            ("chosen", |from, to, each| unsafe { copy_blocks(from, to, each) }),
        ];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512f") {
                // SAFETY: the processor has the instructions; the rest is the caller's promise.
                ways.push(("avx512", |from, to, each| unsafe {
                    vector::sum_avx512::<true>(from, to.as_mut_ptr(), to.len(), each)
                }));
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has the instructions; the rest is the caller's promise.
                ways.push(("avx2", |from, to, each| unsafe {
                    vector::sum_avx2::<true>(from, to.as_mut_ptr(), to.len(), each)
                }));
            }
        }
        ways
    }

    proptest! {
        #[test]
        fn every_way_copies_all_and_sums_as_the_library(
            seed in proptest::collection::vec(any::<u8>(), 1..200),
            (from_skip, to_skip) in (0usize..65, 0usize..65),
            count in 0usize..6,
        ) {
            let len = count * BLOCK_LEN;
            let bytes: Vec<u8> = seed.iter().copied().cycle().take(len + from_skip).collect();
            let expected = &bytes[from_skip..];
            let (blocks, _) = expected.as_chunks::<BLOCK_LEN>();
            let expected_sums: Vec<_> = blocks.iter().map(|block| XxHash3_64::oneshot(block)).enumerate().collect();
            let mut sums = Vec::new();
            sum_blocks(blocks, |number, sum| sums.push((number, sum)));
            prop_assert_eq!(&sums, &expected_sums);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // A processor with wider instructions does not choose these.
                let mut sums = Vec::new();
                let (from, nowhere) = (blocks.as_ptr().cast(), std::ptr::null_mut());
                // SAFETY: the blocks are readable and nothing is written; the processor has the instructions.
                unsafe { vector::sum_avx2::<false>(from, nowhere, count, |number, sum| sums.push((number, sum))) };
                prop_assert_eq!(&sums, &expected_sums);
            }
            for (name, copy) in ways() {
                let mut room = vec![MaybeUninit::new(0xa5_u8); len + to_skip + 64];
                let (to, _) = room[to_skip..].as_chunks_mut();
                let mut sums = Vec::new();
                // SAFETY: as many blocks are there on both sides, which are two vectors.
                unsafe { copy(expected.as_ptr(), &mut to[..count], &mut |number, sum| sums.push((number, sum))) };
                prop_assert_eq!(&sums, &expected_sums, "{}", name);
                // SAFETY: all of it was filled when it was made.
                let room = unsafe { room.assume_init_ref() };
                prop_assert_eq!(&room[to_skip..to_skip + len], expected, "{}", name);
                prop_assert!(room[..to_skip].iter().chain(&room[to_skip + len..]).all(|byte| *byte == 0xa5));
            }
        }
    }

    #[test]
    fn any_changed_bit_changes_the_sum() {
        let (mut bytes, mut room) = ([0x5a; 2 * BLOCK_LEN], [[MaybeUninit::uninit(); BLOCK_LEN]; 2]);
        for (name, copy) in ways() {
            let mut sums = |bytes: &[u8; 2 * BLOCK_LEN]| {
                let mut sums = [0; 2];
                // SAFETY: two blocks are there on both sides.
                unsafe { copy(bytes.as_ptr(), &mut room, &mut |number, sum| sums[number] = sum) };
                sums
            };
            let before = sums(&bytes);
            for bit in (0..2 * BLOCK_LEN * 8).step_by(7) {
                let block = bit / 8 / BLOCK_LEN;
                bytes[bit / 8] ^= 1 << (bit % 8);
                let after = sums(&bytes);
                assert_ne!(after[block], before[block], "{name}, bit {bit}");
                assert_eq!(after[1 - block], before[1 - block], "{name}, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
