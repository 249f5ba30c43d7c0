// SPDX-License-Identifier: GPL-2.0
//! The header for kernels in C and the constants of the board name the same hardware.

use std::collections::BTreeMap;

use ochre_rv64::isa;

const HEADER: &str = include_str!("../../../include/ochre/og1_kernel.h");
const CONSTANTS: &str = include_str!("../../../include/ochre/og1_isa.rs");

/// Numbers that C kernels need, by their name in Rust.
fn shared() -> BTreeMap<&'static str, u64> {
    let csrs = [
        ("CSR_BLOCK_ID_X", isa::CSR_BLOCK_ID_X),
        ("CSR_BLOCK_ID_Y", isa::CSR_BLOCK_ID_Y),
        ("CSR_BLOCK_ID_Z", isa::CSR_BLOCK_ID_Z),
        ("CSR_THREAD_ID_X", isa::CSR_THREAD_ID_X),
        ("CSR_THREAD_ID_Y", isa::CSR_THREAD_ID_Y),
        ("CSR_THREAD_ID_Z", isa::CSR_THREAD_ID_Z),
        ("CSR_GRID_DIM_X", isa::CSR_GRID_DIM_X),
        ("CSR_GRID_DIM_Y", isa::CSR_GRID_DIM_Y),
        ("CSR_GRID_DIM_Z", isa::CSR_GRID_DIM_Z),
        ("CSR_BLOCK_DIM_X", isa::CSR_BLOCK_DIM_X),
        ("CSR_BLOCK_DIM_Y", isa::CSR_BLOCK_DIM_Y),
        ("CSR_BLOCK_DIM_Z", isa::CSR_BLOCK_DIM_Z),
        ("CSR_LANE", isa::CSR_LANE),
        ("CSR_LDS_BASE", isa::CSR_LDS_BASE),
        ("CSR_LDS_SIZE", isa::CSR_LDS_SIZE),
        ("CSR_BARRIER", isa::CSR_BARRIER),
        ("CSR_CYCLE", isa::CSR_CYCLE),
        ("CSR_TIME", isa::CSR_TIME),
        ("CSR_INSTRET", isa::CSR_INSTRET),
    ];
    let windows = [
        ("LDS_BASE", isa::LDS_BASE),
        ("LDS_MAX", isa::LDS_MAX),
        ("STACK_BASE", isa::STACK_BASE),
        ("STACK_SIZE", isa::STACK_SIZE),
    ];
    let csrs = csrs.map(|(name, csr)| (name, u64::from(csr)));
    csrs.into_iter().chain(windows).collect()
}

/// The header's `#define OG1_NAME 0x…` lines.
fn defined() -> BTreeMap<&'static str, u64> {
    HEADER
        .lines()
        .filter_map(|line| line.strip_prefix("#define OG1_"))
        .map(|line| {
            let (name, value) = line.split_once(char::is_whitespace).expect("a value");
            let digits = value.trim().trim_start_matches("0x").trim_end_matches("UL");
            let value = u64::from_str_radix(digits, 16).expect("a hexadecimal number");
            (name, value)
        })
        .collect()
}

#[test]
fn the_header_defines_the_numbers_of_the_board() {
    assert_eq!(defined(), shared());
}

#[test]
fn no_csr_of_work_items_is_missing_from_the_header() {
    let standard = ["CSR_FFLAGS", "CSR_FRM", "CSR_FCSR"];
    let defined = defined();
    let missing: Vec<&str> = CONSTANTS
        .lines()
        .filter_map(|line| line.strip_prefix("pub const ")?.split(':').next())
        .filter(|name| name.starts_with("CSR_") && !standard.contains(name))
        .filter(|name| !defined.contains_key(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}
