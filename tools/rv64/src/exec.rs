// SPDX-License-Identifier: GPL-2.0
//! The inner loop: executes decoded code of one page until control leaves it.

use crate::bus::{Bus, Width, CODE_PAGE_WORDS};
use crate::code_cache::Page;
use crate::csr::{Effect, Update};
use crate::hart::{Access, Cause, Fault, Hart, Stop};
use crate::int::{self, sext};
use crate::op::{Insn, Op};

/// Counts instructions against a budget.
pub(crate) struct Meter {
    budget: u64,
    left: u64,
}

impl Meter {
    pub(crate) fn new(budget: u64) -> Self {
        Self {
            budget,
            left: budget,
        }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.left == 0
    }

    #[inline(always)]
    fn count(&mut self) {
        self.left -= 1;
    }

    #[inline(always)]
    pub(crate) fn executed(&self) -> u64 {
        self.budget - self.left
    }
}

/// Why the inner loop ended; the hart's pc says where.
pub(crate) enum Leave<F> {
    /// Control went to another page, or the budget is used up.
    Page,
    /// FENCE.I was executed.
    FenceI,
    /// The run ends.
    Stop(Stop<F>),
}

/// What follows an executed instruction.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    /// The instruction with this number, counted from the start of the page modulo 2^62.
    At(u64),
    /// The one behind it, after the code cache has been told.
    FenceI,
    /// The one behind it, when the block has met.
    Barrier,
}

/// An instruction that could not be executed.
pub(crate) struct Trap<F> {
    cause: Cause<F>,
    access: Access,
    /// `None`: the address of the instruction.
    addr: Option<u64>,
}

impl<F> Trap<F> {
    #[cold]
    pub(crate) fn new(cause: Cause<F>, access: Access, addr: u64) -> Self {
        let addr = Some(addr);
        Self {
            cause,
            access,
            addr,
        }
    }

    #[cold]
    pub(crate) fn plain(cause: Cause<F>) -> Self {
        Self {
            cause,
            access: Access::Fetch,
            addr: None,
        }
    }

    /// The instruction is illegal; its word is filled in by `at`.
    #[cold]
    pub(crate) fn illegal() -> Self {
        Self::plain(Cause::IllegalInstruction(0))
    }

    /// The fault of the instruction `word` at `pc`.
    #[cold]
    fn at(self, pc: u64, word: u32) -> Fault<F> {
        let cause = match self.cause {
            Cause::IllegalInstruction(_) => Cause::IllegalInstruction(word),
            other => other,
        };
        Fault {
            cause,
            access: self.access,
            pc,
            addr: self.addr.unwrap_or(pc),
        }
    }
}

/// Where a jump of `offset` bytes from instruction `index` at `pc` leads.
#[inline(always)]
fn jump<F>(pc: u64, index: u64, offset: i32) -> Result<Next, Trap<F>> {
    if offset & 3 != 0 {
        let target = pc.wrapping_add(offset as u64);
        return Err(Trap::new(Cause::Misaligned, Access::Fetch, target));
    }
    Ok(Next::At(index.wrapping_add((offset >> 2) as u64)))
}

impl Hart {
    /// Executes from `self.pc`, which lies in the page `code` at virtual address `base`.
    pub(crate) fn run_page<B: Bus>(
        &mut self,
        bus: &mut B,
        code: &Page,
        base: u64,
        meter: &mut Meter,
    ) -> Leave<B::Fault> {
        // A jump out of the page in either direction gives a number that is not below
        // CODE_PAGE_WORDS.
        let mut index = self.pc.wrapping_sub(base) >> 2;
        let leave = loop {
            if index >= CODE_PAGE_WORDS as u64 || meter.is_empty() {
                break Leave::Page;
            }
            let slot = index as usize % CODE_PAGE_WORDS;
            let pc = base.wrapping_add(index << 2);
            match self.step(bus, code.ops[slot], pc, index, meter) {
                Ok(next) => {
                    meter.count();
                    match next {
                        Next::At(next) => index = next,
                        Next::FenceI => {
                            index += 1;
                            break Leave::FenceI;
                        }
                        Next::Barrier => {
                            index += 1;
                            break Leave::Stop(Stop::Barrier);
                        }
                    }
                }
                Err(trap) => break Leave::Stop(Stop::Fault(trap.at(pc, code.words[slot]))),
            }
        };
        self.pc = base.wrapping_add(index << 2);
        leave
    }

    /// Address of a load or store: rs1 + imm, checked for alignment.
    #[inline(always)]
    fn mem_addr<W: Width, F>(&self, i: Insn, access: Access) -> Result<u64, Trap<F>> {
        let addr = self.read_x(i.rs1).wrapping_add(i.imm as u64);
        if addr % W::BYTES != 0 {
            return Err(Trap::new(Cause::Misaligned, access, addr));
        }
        Ok(addr)
    }

    /// Loads from rs1 + imm, widened with zeros.
    #[inline(always)]
    pub(crate) fn load<W: Width, B: Bus>(
        &self,
        bus: &mut B,
        i: Insn,
    ) -> Result<u64, Trap<B::Fault>> {
        let addr = self.mem_addr::<W, _>(i, Access::Load)?;
        match bus.load::<W>(addr) {
            Ok(value) => Ok(value.to_u64()),
            Err(fault) => Err(Trap::new(Cause::Memory(fault), Access::Load, addr)),
        }
    }

    /// Stores the low bits of `value` to rs1 + imm.
    #[inline(always)]
    pub(crate) fn store<W: Width, B: Bus>(
        &self,
        bus: &mut B,
        i: Insn,
        value: u64,
    ) -> Result<(), Trap<B::Fault>> {
        let addr = self.mem_addr::<W, _>(i, Access::Store)?;
        bus.store(addr, W::truncate(value))
            .map_err(|fault| Trap::new(Cause::Memory(fault), Access::Store, addr))
    }

    /// Executes one instruction: the integer ones here, floating point in `exec_fp`.
    ///
    /// Inlined into the loop, so that each arm ends in a jump to its head.
    #[inline(always)]
    fn step<B: Bus>(
        &mut self,
        bus: &mut B,
        i: Insn,
        pc: u64,
        index: u64,
        meter: &Meter,
    ) -> Result<Next, Trap<B::Fault>> {
        let a = self.read_x(i.rs1);
        let b = self.read_x(i.rs2);
        let imm = i.imm as u64;
        let shamt = i.imm as u32;
        match i.op {
            Op::Lui => self.write_x(i.rd, imm),
            Op::Auipc => self.write_x(i.rd, pc.wrapping_add(imm)),
            Op::Jal => {
                let next = jump(pc, index, i.imm)?;
                self.write_x(i.rd, pc.wrapping_add(4));
                return Ok(next);
            }
            Op::Jalr => {
                let target = a.wrapping_add(imm) & !1;
                if target % 4 != 0 {
                    return Err(Trap::new(Cause::Misaligned, Access::Fetch, target));
                }
                self.write_x(i.rd, pc.wrapping_add(4));
                let distance = target.wrapping_sub(pc) >> 2;
                return Ok(Next::At(index.wrapping_add(distance)));
            }
            Op::Beq if a == b => return jump(pc, index, i.imm),
            Op::Bne if a != b => return jump(pc, index, i.imm),
            Op::Blt if (a as i64) < b as i64 => return jump(pc, index, i.imm),
            Op::Bge if a as i64 >= b as i64 => return jump(pc, index, i.imm),
            Op::Bltu if a < b => return jump(pc, index, i.imm),
            Op::Bgeu if a >= b => return jump(pc, index, i.imm),
            Op::Beq | Op::Bne | Op::Blt | Op::Bge | Op::Bltu | Op::Bgeu => {}
            Op::Sb => self.store::<u8, B>(bus, i, b)?,
            Op::Sh => self.store::<u16, B>(bus, i, b)?,
            Op::Sw => self.store::<u32, B>(bus, i, b)?,
            Op::Sd => self.store::<u64, B>(bus, i, b)?,
            Op::Lb => {
                let value = self.load::<u8, B>(bus, i)?;
                self.write_x(i.rd, value as i8 as u64);
            }
            Op::Lh => {
                let value = self.load::<u16, B>(bus, i)?;
                self.write_x(i.rd, value as i16 as u64);
            }
            Op::Lw => {
                let value = self.load::<u32, B>(bus, i)?;
                self.write_x(i.rd, sext(value));
            }
            Op::Ld => {
                let value = self.load::<u64, B>(bus, i)?;
                self.write_x(i.rd, value);
            }
            Op::Lbu => {
                let value = self.load::<u8, B>(bus, i)?;
                self.write_x(i.rd, value);
            }
            Op::Lhu => {
                let value = self.load::<u16, B>(bus, i)?;
                self.write_x(i.rd, value);
            }
            Op::Lwu => {
                let value = self.load::<u32, B>(bus, i)?;
                self.write_x(i.rd, value);
            }
            Op::Addi => self.write_x(i.rd, a.wrapping_add(imm)),
            Op::Slti => self.write_x(i.rd, u64::from((a as i64) < imm as i64)),
            Op::Sltiu => self.write_x(i.rd, u64::from(a < imm)),
            Op::Xori => self.write_x(i.rd, a ^ imm),
            Op::Ori => self.write_x(i.rd, a | imm),
            Op::Andi => self.write_x(i.rd, a & imm),
            Op::Slli => self.write_x(i.rd, a << (shamt & 63)),
            Op::Srli => self.write_x(i.rd, a >> (shamt & 63)),
            Op::Srai => self.write_x(i.rd, (a as i64 >> (shamt & 63)) as u64),
            Op::Add => self.write_x(i.rd, a.wrapping_add(b)),
            Op::Sub => self.write_x(i.rd, a.wrapping_sub(b)),
            Op::Sll => self.write_x(i.rd, a << (b & 63)),
            Op::Slt => self.write_x(i.rd, u64::from((a as i64) < b as i64)),
            Op::Sltu => self.write_x(i.rd, u64::from(a < b)),
            Op::Xor => self.write_x(i.rd, a ^ b),
            Op::Srl => self.write_x(i.rd, a >> (b & 63)),
            Op::Sra => self.write_x(i.rd, (a as i64 >> (b & 63)) as u64),
            Op::Or => self.write_x(i.rd, a | b),
            Op::And => self.write_x(i.rd, a & b),
            Op::Addiw => self.write_x(i.rd, sext(a.wrapping_add(imm))),
            Op::Slliw => self.write_x(i.rd, sext(a << (shamt & 31))),
            Op::Srliw => self.write_x(i.rd, sext(u64::from(a as u32 >> (shamt & 31)))),
            Op::Sraiw => self.write_x(i.rd, (a as i32 >> (shamt & 31)) as u64),
            Op::Addw => self.write_x(i.rd, sext(a.wrapping_add(b))),
            Op::Subw => self.write_x(i.rd, sext(a.wrapping_sub(b))),
            Op::Sllw => self.write_x(i.rd, sext(a << (b & 31))),
            Op::Srlw => self.write_x(i.rd, sext(u64::from(a as u32 >> (b & 31)))),
            Op::Sraw => self.write_x(i.rd, (a as i32 >> (b & 31)) as u64),
            Op::Mul => self.write_x(i.rd, a.wrapping_mul(b)),
            Op::Mulh => self.write_x(i.rd, int::mulh(a, b)),
            Op::Mulhsu => self.write_x(i.rd, int::mulhsu(a, b)),
            Op::Mulhu => self.write_x(i.rd, int::mulhu(a, b)),
            Op::Div => self.write_x(i.rd, int::div(a, b)),
            Op::Divu => self.write_x(i.rd, int::divu(a, b)),
            Op::Rem => self.write_x(i.rd, int::rem(a, b)),
            Op::Remu => self.write_x(i.rd, int::remu(a, b)),
            Op::Mulw => self.write_x(i.rd, sext(a.wrapping_mul(b))),
            Op::Divw => self.write_x(i.rd, int::divw(a, b)),
            Op::Divuw => self.write_x(i.rd, int::divuw(a, b)),
            Op::Remw => self.write_x(i.rd, int::remw(a, b)),
            Op::Remuw => self.write_x(i.rd, int::remuw(a, b)),
            Op::Fence => bus.fence(),
            Op::FenceI => return Ok(Next::FenceI),
            Op::Ecall => return Err(Trap::plain(Cause::EnvironmentCall)),
            Op::Ebreak => return Err(Trap::plain(Cause::Breakpoint)),
            Op::Illegal => return Err(Trap::illegal()),
            Op::Csrrw | Op::Csrrs | Op::Csrrc | Op::Csrrwi | Op::Csrrsi | Op::Csrrci => {
                let effect = self.csr(bus, i, meter.executed());
                if effect.ok_or_else(Trap::illegal)? == Effect::Barrier {
                    return Ok(Next::Barrier);
                }
            }
            Op::LrW | Op::LrD | Op::ScW | Op::ScD | Op::AmoW | Op::AmoD => self.atomic(bus, i)?,
            _ => self.step_fp(bus, i)?,
        }
        Ok(Next::At(index + 1))
    }

    fn csr<B: Bus>(&mut self, bus: &B, i: Insn, retired: u64) -> Option<Effect> {
        let immediate = u64::from(i.rs1);
        let (update, operand) = match i.op {
            Op::Csrrw => (Update::Write, self.read_x(i.rs1)),
            Op::Csrrs => (Update::Set, self.read_x(i.rs1)),
            Op::Csrrc => (Update::Clear, self.read_x(i.rs1)),
            Op::Csrrwi => (Update::Write, immediate),
            Op::Csrrsi => (Update::Set, immediate),
            _ => (Update::Clear, immediate),
        };
        // Set and clear with x0 or with the immediate 0 only read; rs1 is that number in both forms.
        let writes = update == Update::Write || i.rs1 != 0;
        let csr = (i.imm & 0xfff) as u16;
        self.csr_access(bus, csr, update, writes.then_some(operand), i.rd, retired)
    }

    fn atomic<B: Bus>(&mut self, bus: &mut B, i: Insn) -> Result<(), Trap<B::Fault>> {
        match i.op {
            Op::LrW => self.load_reserved::<u32, B>(bus, i, sext),
            Op::LrD => self.load_reserved::<u64, B>(bus, i, |v| v),
            Op::ScW => self.store_conditional::<u32, B>(bus, i),
            Op::ScD => self.store_conditional::<u64, B>(bus, i),
            Op::AmoW => self.amo::<u32, B>(bus, i, sext),
            _ => self.amo::<u64, B>(bus, i, |v| v),
        }
        .map_err(|(cause, addr)| Trap::new(cause, Access::Atomic, addr))
    }
}
