// SPDX-License-Identifier: GPL-2.0
//! Decoded instructions: what [`decode`](crate::decode) makes and `exec` runs.

/// Operation of a decoded instruction, named as in the RISC-V manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[rustfmt::skip]
pub(crate) enum Op {
    /// Any encoding that is not an instruction of RV64IMAFD.
    Illegal,
    // RV64I
    Lui, Auipc, Jal, Jalr,
    Beq, Bne, Blt, Bge, Bltu, Bgeu,
    Lb, Lh, Lw, Ld, Lbu, Lhu, Lwu,
    Sb, Sh, Sw, Sd,
    Addi, Slti, Sltiu, Xori, Ori, Andi, Slli, Srli, Srai,
    Add, Sub, Sll, Slt, Sltu, Xor, Srl, Sra, Or, And,
    Addiw, Slliw, Srliw, Sraiw,
    Addw, Subw, Sllw, Srlw, Sraw,
    Fence, FenceI, Ecall, Ebreak,
    // Zicsr: `imm` is the CSR number; rs1 of the immediate forms is the immediate.
    Csrrw, Csrrs, Csrrc, Csrrwi, Csrrsi, Csrrci,
    // M
    Mul, Mulh, Mulhsu, Mulhu, Div, Divu, Rem, Remu,
    Mulw, Divw, Divuw, Remw, Remuw,
    // A: `imm` of the AMOs is the five-bit function.
    LrW, LrD, ScW, ScD, AmoW, AmoD,
    // F and D: `imm` packs rm and rs3, see `Insn::rm` and `Insn::rs3`.
    Flw, Fld, Fsw, Fsd,
    FmaddS, FmsubS, FnmsubS, FnmaddS,
    FmaddD, FmsubD, FnmsubD, FnmaddD,
    FaddS, FsubS, FmulS, FdivS, FsqrtS,
    FaddD, FsubD, FmulD, FdivD, FsqrtD,
    FsgnjS, FsgnjnS, FsgnjxS, FminS, FmaxS, FeqS, FltS, FleS, FclassS,
    FsgnjD, FsgnjnD, FsgnjxD, FminD, FmaxD, FeqD, FltD, FleD, FclassD,
    FcvtWS, FcvtWuS, FcvtLS, FcvtLuS, FcvtSW, FcvtSWu, FcvtSL, FcvtSLu,
    FcvtWD, FcvtWuD, FcvtLD, FcvtLuD, FcvtDW, FcvtDWu, FcvtDL, FcvtDLu,
    FcvtSD, FcvtDS, FmvXW, FmvWX, FmvXD, FmvDX,
}

/// One decoded instruction, in eight bytes: a page of code is two pages decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Insn {
    pub(crate) op: Op,
    pub(crate) rd: u8,
    pub(crate) rs1: u8,
    pub(crate) rs2: u8,
    /// Immediate, sign-extended, of the formats that have one; else see [`Op`].
    pub(crate) imm: i32,
}
const _: () = assert!(size_of::<Insn>() == 8);

impl Insn {
    /// The rounding-mode field of a floating-point instruction.
    pub(crate) fn rm(self) -> u8 {
        (self.imm >> 8) as u8 & 7
    }

    /// The third source register of a fused multiply-add.
    pub(crate) fn rs3(self) -> u8 {
        self.imm as u8 & 31
    }
}
