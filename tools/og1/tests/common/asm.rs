// SPDX-License-Identifier: GPL-2.0
//! Enough of an RV64 assembler for kernels of a few lines.

pub const ZERO: u32 = 0;
pub const RA: u32 = 1;
pub const SP: u32 = 2;
pub const T0: u32 = 5;
pub const T1: u32 = 6;
pub const T2: u32 = 7;
pub const A0: u32 = 10;
pub const A1: u32 = 11;
pub const A2: u32 = 12;

fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32) -> u32 {
    ((imm as u32) << 20) | (rs1 << 15) | (funct3 << 12) | (rd << 7) | opcode
}

fn r(opcode: u32, funct3: u32, funct7: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
    (funct7 << 25) | (rs2 << 20) | (rs1 << 15) | (funct3 << 12) | (rd << 7) | opcode
}

fn s(funct3: u32, rs1: u32, rs2: u32, imm: i32) -> u32 {
    let imm = imm as u32;
    (((imm >> 5) & 0x7f) << 25)
        | (rs2 << 20)
        | (rs1 << 15)
        | (funct3 << 12)
        | ((imm & 0x1f) << 7)
        | 0x23
}

fn b(funct3: u32, rs1: u32, rs2: u32, to: i32) -> u32 {
    let o = to as u32;
    (((o >> 12) & 1) << 31)
        | (((o >> 5) & 0x3f) << 25)
        | (rs2 << 20)
        | (rs1 << 15)
        | (funct3 << 12)
        | (((o >> 1) & 0xf) << 8)
        | (((o >> 11) & 1) << 7)
        | 0x63
}

pub fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x13, 0, rd, rs1, imm)
}
pub fn slli(rd: u32, rs1: u32, n: i32) -> u32 {
    i(0x13, 1, rd, rs1, n)
}
pub fn add(rd: u32, rs1: u32, rs2: u32) -> u32 {
    r(0x33, 0, 0, rd, rs1, rs2)
}
pub fn mul(rd: u32, rs1: u32, rs2: u32) -> u32 {
    r(0x33, 0, 1, rd, rs1, rs2)
}
pub fn ld(rd: u32, rs1: u32, imm: i32) -> u32 {
    i(0x03, 3, rd, rs1, imm)
}
pub fn sd(rs2: u32, rs1: u32, imm: i32) -> u32 {
    s(3, rs1, rs2, imm)
}
pub fn amoadd_d(rd: u32, rs1: u32, rs2: u32) -> u32 {
    r(0x2f, 3, 0, rd, rs1, rs2)
}
pub fn lr_d(rd: u32, rs1: u32) -> u32 {
    r(0x2f, 3, 2 << 2, rd, rs1, 0)
}
pub fn sc_d(rd: u32, rs1: u32, rs2: u32) -> u32 {
    r(0x2f, 3, 3 << 2, rd, rs1, rs2)
}
pub fn beq(rs1: u32, rs2: u32, to: i32) -> u32 {
    b(0, rs1, rs2, to)
}
pub fn bne(rs1: u32, rs2: u32, to: i32) -> u32 {
    b(1, rs1, rs2, to)
}
/// Jumps to itself.
pub fn spin() -> u32 {
    0x6f
}
pub fn csrr(rd: u32, csr: u16) -> u32 {
    i(0x73, 2, rd, ZERO, i32::from(csr as i16))
}
pub fn csrw(csr: u16, rs1: u32) -> u32 {
    i(0x73, 1, ZERO, rs1, i32::from(csr as i16))
}
pub fn ret() -> u32 {
    i(0x67, 0, ZERO, RA, 0)
}
pub fn ecall() -> u32 {
    0x73
}

/// The program as bytes.
pub fn code(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}
