// SPDX-License-Identifier: GPL-2.0
//! From an instruction word to an [`Insn`]. Total: each word that is not an instruction of RV64IMAFD
//! (compressed ones included) decodes to [`Op::Illegal`].

use crate::op::{Insn, Op};

/// Bits `hi..=lo` of the word.
fn bits(word: u32, hi: u32, lo: u32) -> u32 {
    (word >> lo) & (u32::MAX >> (31 - (hi - lo)))
}

fn imm_i(word: u32) -> i32 {
    word as i32 >> 20
}

fn imm_s(word: u32) -> i32 {
    (word as i32 >> 25 << 5) | bits(word, 11, 7) as i32
}

fn imm_b(word: u32) -> i32 {
    (word as i32 >> 31 << 12)
        | (bits(word, 7, 7) << 11) as i32
        | (bits(word, 30, 25) << 5) as i32
        | (bits(word, 11, 8) << 1) as i32
}

fn imm_u(word: u32) -> i32 {
    (word & 0xffff_f000) as i32
}

fn imm_j(word: u32) -> i32 {
    (word as i32 >> 31 << 20)
        | (word & 0x000f_f000) as i32
        | (bits(word, 20, 20) << 11) as i32
        | (bits(word, 30, 21) << 1) as i32
}

/// Decodes one word.
pub(crate) fn decode(word: u32) -> Insn {
    let illegal = Insn {
        op: Op::Illegal,
        rd: 0,
        rs1: 0,
        rs2: 0,
        imm: 0,
    };
    let Some((op, imm)) = operation(word) else {
        return illegal;
    };
    Insn {
        op,
        rd: bits(word, 11, 7) as u8,
        rs1: bits(word, 19, 15) as u8,
        rs2: bits(word, 24, 20) as u8,
        imm,
    }
}

/// The operation and its immediate; `None` for an illegal encoding.
fn operation(word: u32) -> Option<(Op, i32)> {
    let funct3 = bits(word, 14, 12) as usize;
    let funct7 = bits(word, 31, 25);
    Some(match bits(word, 6, 0) {
        0x37 => (Op::Lui, imm_u(word)),
        0x17 => (Op::Auipc, imm_u(word)),
        0x6f => (Op::Jal, imm_j(word)),
        0x67 if funct3 == 0 => (Op::Jalr, imm_i(word)),
        0x63 => (branch(funct3)?, imm_b(word)),
        0x03 => (load(funct3)?, imm_i(word)),
        0x23 => (*[Op::Sb, Op::Sh, Op::Sw, Op::Sd].get(funct3)?, imm_s(word)),
        0x13 => op_imm(word, funct3)?,
        0x1b => op_imm_32(word, funct3, funct7)?,
        0x33 => (op_reg(funct3, funct7)?, 0),
        0x3b => (op_reg_32(funct3, funct7)?, 0),
        0x0f if funct3 == 0 => (Op::Fence, 0),
        0x0f if funct3 == 1 => (Op::FenceI, 0),
        0x73 => system(word, funct3)?,
        0x2f => atomic(word, funct3)?,
        0x07 => (load_fp(funct3)?, imm_i(word)),
        0x27 => (store_fp(funct3)?, imm_s(word)),
        0x43 => fused(word, [Op::FmaddS, Op::FmaddD])?,
        0x47 => fused(word, [Op::FmsubS, Op::FmsubD])?,
        0x4b => fused(word, [Op::FnmsubS, Op::FnmsubD])?,
        0x4f => fused(word, [Op::FnmaddS, Op::FnmaddD])?,
        0x53 => op_fp(word, funct3, funct7)?,
        _ => return None,
    })
}

fn branch(funct3: usize) -> Option<Op> {
    Some(match funct3 {
        0 => Op::Beq,
        1 => Op::Bne,
        4 => Op::Blt,
        5 => Op::Bge,
        6 => Op::Bltu,
        7 => Op::Bgeu,
        _ => return None,
    })
}

#[rustfmt::skip]
fn load(funct3: usize) -> Option<Op> {
    [Op::Lb, Op::Lh, Op::Lw, Op::Ld, Op::Lbu, Op::Lhu, Op::Lwu].get(funct3).copied()
}

fn load_fp(funct3: usize) -> Option<Op> {
    match funct3 {
        2 => Some(Op::Flw),
        3 => Some(Op::Fld),
        _ => None,
    }
}

fn store_fp(funct3: usize) -> Option<Op> {
    match funct3 {
        2 => Some(Op::Fsw),
        3 => Some(Op::Fsd),
        _ => None,
    }
}

fn op_imm(word: u32, funct3: usize) -> Option<(Op, i32)> {
    let shamt = bits(word, 25, 20) as i32;
    Some(match (funct3, bits(word, 31, 26)) {
        (0, _) => (Op::Addi, imm_i(word)),
        (1, 0x00) => (Op::Slli, shamt),
        (2, _) => (Op::Slti, imm_i(word)),
        (3, _) => (Op::Sltiu, imm_i(word)),
        (4, _) => (Op::Xori, imm_i(word)),
        (5, 0x00) => (Op::Srli, shamt),
        (5, 0x10) => (Op::Srai, shamt),
        (6, _) => (Op::Ori, imm_i(word)),
        (7, _) => (Op::Andi, imm_i(word)),
        _ => return None,
    })
}

fn op_imm_32(word: u32, funct3: usize, funct7: u32) -> Option<(Op, i32)> {
    let shamt = bits(word, 24, 20) as i32;
    Some(match (funct3, funct7) {
        (0, _) => (Op::Addiw, imm_i(word)),
        (1, 0x00) => (Op::Slliw, shamt),
        (5, 0x00) => (Op::Srliw, shamt),
        (5, 0x20) => (Op::Sraiw, shamt),
        _ => return None,
    })
}

#[rustfmt::skip]
fn op_reg(funct3: usize, funct7: u32) -> Option<Op> {
    const BASE: [Op; 8] =
        [Op::Add, Op::Sll, Op::Slt, Op::Sltu, Op::Xor, Op::Srl, Op::Or, Op::And];
    const MULDIV: [Op; 8] =
        [Op::Mul, Op::Mulh, Op::Mulhsu, Op::Mulhu, Op::Div, Op::Divu, Op::Rem, Op::Remu];
    match (funct7, funct3) {
        (0x00, f) => BASE.get(f).copied(),
        (0x01, f) => MULDIV.get(f).copied(),
        (0x20, 0) => Some(Op::Sub),
        (0x20, 5) => Some(Op::Sra),
        _ => None,
    }
}

fn op_reg_32(funct3: usize, funct7: u32) -> Option<Op> {
    Some(match (funct7, funct3) {
        (0x00, 0) => Op::Addw,
        (0x00, 1) => Op::Sllw,
        (0x00, 5) => Op::Srlw,
        (0x20, 0) => Op::Subw,
        (0x20, 5) => Op::Sraw,
        (0x01, 0) => Op::Mulw,
        (0x01, 4) => Op::Divw,
        (0x01, 5) => Op::Divuw,
        (0x01, 6) => Op::Remw,
        (0x01, 7) => Op::Remuw,
        _ => return None,
    })
}

fn system(word: u32, funct3: usize) -> Option<(Op, i32)> {
    let csr = bits(word, 31, 20) as i32;
    Some(match funct3 {
        0 if word == 0x0000_0073 => (Op::Ecall, 0),
        0 if word == 0x0010_0073 => (Op::Ebreak, 0),
        1 => (Op::Csrrw, csr),
        2 => (Op::Csrrs, csr),
        3 => (Op::Csrrc, csr),
        5 => (Op::Csrrwi, csr),
        6 => (Op::Csrrsi, csr),
        7 => (Op::Csrrci, csr),
        _ => return None,
    })
}

/// The A extension. The immediate is the five-bit function; aq and rl are ignored, since each atomic
/// operation is sequentially consistent.
fn atomic(word: u32, funct3: usize) -> Option<(Op, i32)> {
    let double = match funct3 {
        2 => false,
        3 => true,
        _ => return None,
    };
    let pick = |w, d| if double { d } else { w };
    let function = bits(word, 31, 27);
    let op = match function {
        0x02 if bits(word, 24, 20) == 0 => pick(Op::LrW, Op::LrD),
        0x03 => pick(Op::ScW, Op::ScD),
        0x00 | 0x01 | 0x04 | 0x08 | 0x0c | 0x10 | 0x14 | 0x18 | 0x1c => pick(Op::AmoW, Op::AmoD),
        _ => return None,
    };
    Some((op, function as i32))
}

/// Rounding-mode field in the place where [`Insn::rm`] looks; `None` for the reserved values.
fn rounding(word: u32) -> Option<i32> {
    match bits(word, 14, 12) {
        5 | 6 => None,
        rm => Some((rm << 8) as i32),
    }
}

fn fused(word: u32, [single, double]: [Op; 2]) -> Option<(Op, i32)> {
    let op = match bits(word, 26, 25) {
        0 => single,
        1 => double,
        _ => return None,
    };
    Some((op, rounding(word)? | bits(word, 31, 27) as i32))
}

#[rustfmt::skip]
fn op_fp(word: u32, funct3: usize, funct7: u32) -> Option<(Op, i32)> {
    let double = match funct7 & 3 {
        0 => false,
        1 => true,
        _ => return None,
    };
    let pick = |s, d| if double { d } else { s };
    let rs2 = bits(word, 24, 20) as usize;

    // Operations that round have a rounding mode in funct3.
    let rounded = match funct7 >> 2 {
        0x00 => Some(pick(Op::FaddS, Op::FaddD)),
        0x01 => Some(pick(Op::FsubS, Op::FsubD)),
        0x02 => Some(pick(Op::FmulS, Op::FmulD)),
        0x03 => Some(pick(Op::FdivS, Op::FdivD)),
        0x0b if rs2 == 0 => Some(pick(Op::FsqrtS, Op::FsqrtD)),
        // fcvt.s.d and fcvt.d.s: fmt names the destination, rs2 the source.
        0x08 if !double && rs2 == 1 => Some(Op::FcvtSD),
        0x08 if double && rs2 == 0 => Some(Op::FcvtDS),
        0x18 => [[Op::FcvtWS, Op::FcvtWuS, Op::FcvtLS, Op::FcvtLuS],
                 [Op::FcvtWD, Op::FcvtWuD, Op::FcvtLD, Op::FcvtLuD]]
                [usize::from(double)].get(rs2).copied(),
        0x1a => [[Op::FcvtSW, Op::FcvtSWu, Op::FcvtSL, Op::FcvtSLu],
                 [Op::FcvtDW, Op::FcvtDWu, Op::FcvtDL, Op::FcvtDLu]]
                [usize::from(double)].get(rs2).copied(),
        _ => None,
    };
    if let Some(op) = rounded {
        return Some((op, rounding(word)?));
    }

    let op = match (funct7 >> 2, funct3) {
        (0x04, 0) => pick(Op::FsgnjS, Op::FsgnjD),
        (0x04, 1) => pick(Op::FsgnjnS, Op::FsgnjnD),
        (0x04, 2) => pick(Op::FsgnjxS, Op::FsgnjxD),
        (0x05, 0) => pick(Op::FminS, Op::FminD),
        (0x05, 1) => pick(Op::FmaxS, Op::FmaxD),
        (0x14, 0) => pick(Op::FleS, Op::FleD),
        (0x14, 1) => pick(Op::FltS, Op::FltD),
        (0x14, 2) => pick(Op::FeqS, Op::FeqD),
        (0x1c, 0) if rs2 == 0 => pick(Op::FmvXW, Op::FmvXD),
        (0x1c, 1) if rs2 == 0 => pick(Op::FclassS, Op::FclassD),
        (0x1e, 0) if rs2 == 0 => pick(Op::FmvWX, Op::FmvDX),
        _ => return None,
    };
    Some((op, 0))
}
