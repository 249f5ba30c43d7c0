// SPDX-License-Identifier: GPL-2.0
//! The C header of user packets says the same as the definitions that board and driver share.

use std::collections::BTreeMap;

use og1::hw::mem::*;
use og1::hw::packets::*;

const HEADER: &str = include_str!("../../../include/uapi/drm/ochre_og1.h");

/// A number as the header writes it: decimal, hexadecimal, or `(1 << n)`.
fn value(text: &str) -> Option<u64> {
    let text = text.trim_start_matches('(').trim_end_matches(')');
    if let Some((one, shift)) = text.split_once("<<") {
        return Some(value(one.trim())? << value(shift.trim())?);
    }
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn defines() -> BTreeMap<&'static str, u64> {
    let lines = HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define OG1_"));
    lines
        .map(|line| {
            let (name, text) = line.split_once(char::is_whitespace).expect("a value");
            (
                name,
                value(text.trim()).unwrap_or_else(|| panic!("value of {line}")),
            )
        })
        .collect()
}

macro_rules! same {
    ($($name:ident)*) => { vec![$((stringify!($name), u64::from($name))),*] };
}

#[test]
fn each_number_of_the_c_header_is_that_of_the_board() {
    let mut numbers = same! {
        PKT_NOP PKT_COPY PKT_COPY_2D PKT_FILL PKT_DISPATCH PKT_SEM_WAIT PKT_SEM_SIGNAL
        PKT_ATOMIC_ADD PKT_WRITE_IMM PKT_PREDICATE PKT_TIMESTAMP PKT_WAIT_UNTIL PKT_CACHE
        PKT_LEN_SHIFT PKT_FLAGS_SHIFT PKT_IMM_SHIFT
        FLAG_32BIT FLAG_RELATIVE
        CMP_EQ CMP_NE CMP_GE CMP_GT CMP_LE CMP_LT
        CACHE_FLUSH CACHE_INVALIDATE
        FAULT_NOT_PRESENT FAULT_PERMISSION FAULT_PTE FAULT_POISON FAULT_ALIGNMENT FAULT_RANGE
        FAULT_BUS FAULT_CONTEXT FAULT_PACKET FAULT_PRIVILEGE FAULT_ENGINE FAULT_RING
        FAULT_ILLEGAL FAULT_BARRIER
    };
    let longest = (1..PKT_PRIVILEGED).filter_map(pkt_words).max().unwrap();
    numbers.push(("PKT_MAX_WORDS", longest.into()));
    let mut header = defines();
    for (name, number) in numbers {
        assert_eq!(header.remove(name), Some(number), "OG1_{name}");
    }
    assert!(header.is_empty(), "the board does not know {header:?}");
}

#[test]
fn each_packet_of_the_c_header_has_the_length_that_the_board_wants() {
    let mut seen = 0;
    for line in HEADER
        .lines()
        .filter_map(|line| line.trim().strip_prefix("p[0] = og1_pkt_header(OG1_"))
    {
        let mut parts = line.split(", ");
        let name = parts.next().unwrap();
        let words: u8 = parts.next().unwrap().parse().unwrap();
        let opcode = u8::try_from(defines()[name]).unwrap();
        assert_eq!(words, pkt_words(opcode).unwrap_or(1), "{name}");
        seen += 1;
    }
    let user = (0..PKT_PRIVILEGED)
        .filter(|&op| op == PKT_NOP || pkt_words(op).is_some())
        .count();
    // All but indirect buffers, which only the kernel starts.
    assert_eq!(seen, user - 1);
}
