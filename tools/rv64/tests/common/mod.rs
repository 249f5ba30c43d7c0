// SPDX-License-Identifier: GPL-2.0
//! What the tests share: a plain memory as bus, an encoder that knows nothing of the decoder, seeds.
#![allow(dead_code)]

pub mod float;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;

use ochre_rv64::{
    AmoOp, AtomicWidth, Bus, Cause, CodeCache, Fault, Hart, Run, Stop, Width, WorkItem,
    CODE_PAGE_WORDS,
};

/// Where the memory starts.
pub const BASE: u64 = 0x10_0000;
/// Where programs go by default.
pub const CODE: u64 = BASE;
/// Memory that programs may write.
pub const DATA: u64 = BASE + 0x8000;
/// Bytes of memory.
pub const SIZE: usize = 1 << 20;

/// Why the memory refused an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no memory.
    Unmapped,
    /// The address is in [`Ram::denied`].
    Denied,
}

/// Flat memory, with a second view of its first page of code for the cache's tests.
pub struct Ram {
    /// Content from [`BASE`].
    pub bytes: Vec<u8>,
    /// Data accesses here fail.
    pub denied: Range<u64>,
    /// Alias: this page of addresses shows the page at [`CODE`].
    pub alias: Option<u64>,
    /// How often code was read.
    pub code_reads: u64,
    /// FENCEs executed.
    pub fences: u64,
    /// Decoded code between two calls of [`execute`].
    cache: Option<CodeCache>,
}

impl Ram {
    /// Zeros.
    pub fn new() -> Self {
        Self {
            bytes: vec![0; SIZE],
            denied: 0..0,
            alias: None,
            code_reads: 0,
            fences: 0,
            cache: None,
        }
    }

    /// A memory with a program at [`CODE`].
    pub fn with_code(words: &[u32]) -> Self {
        let mut ram = Self::new();
        ram.put(CODE, words);
        ram
    }

    /// Stores instruction words.
    pub fn put(&mut self, addr: u64, words: &[u32]) {
        for (addr, &word) in (addr..).step_by(4).zip(words) {
            self.store(addr, word).expect("code fits the memory");
        }
    }

    /// Reads without the restrictions of a program.
    pub fn peek<W: Width>(&self, addr: u64) -> W {
        self.at(addr)
            .and_then(|at| W::from_le(&self.bytes[at..]))
            .expect("address in memory")
    }

    fn at(&self, addr: u64) -> Option<usize> {
        let at = usize::try_from(addr.checked_sub(BASE)?).ok()?;
        (at < self.bytes.len()).then_some(at)
    }

    fn data(&self, addr: u64) -> Result<usize, Refusal> {
        if self.denied.contains(&addr) {
            return Err(Refusal::Denied);
        }
        self.at(addr).ok_or(Refusal::Unmapped)
    }

    fn code(&self, page: u64) -> Result<usize, Refusal> {
        let page = if self.alias == Some(page) { CODE } else { page };
        self.at(page).ok_or(Refusal::Unmapped)
    }
}

impl Bus for Ram {
    type Fault = Refusal;

    fn load<W: Width>(&mut self, addr: u64) -> Result<W, Refusal> {
        assert_eq!(addr % W::BYTES, 0, "the hart aligns");
        let at = self.data(addr)?;
        W::from_le(&self.bytes[at..]).ok_or(Refusal::Unmapped)
    }

    fn store<W: Width>(&mut self, addr: u64, value: W) -> Result<(), Refusal> {
        assert_eq!(addr % W::BYTES, 0, "the hart aligns");
        let at = self.data(addr)?;
        value.put_le(&mut self.bytes[at..]).ok_or(Refusal::Unmapped)
    }

    fn amo<W: AtomicWidth>(&mut self, addr: u64, op: AmoOp, operand: W) -> Result<W, Refusal> {
        let old = self.load(addr)?;
        self.store(addr, W::apply(op, old, operand))?;
        Ok(old)
    }

    fn load_reserved<W: AtomicWidth>(&mut self, addr: u64) -> Result<W, Refusal> {
        self.load(addr)
    }

    fn store_conditional<W: AtomicWidth>(
        &mut self,
        addr: u64,
        expected: W,
        new: W,
    ) -> Result<bool, Refusal> {
        let equal = self.load::<W>(addr)? == expected;
        if equal {
            self.store(addr, new)?;
        }
        Ok(equal)
    }

    fn fetch(&mut self, page: u64) -> Result<u64, Refusal> {
        self.code(page).map(|at| at as u64)
    }

    fn read_code(&mut self, page: u64, code: &mut [u32; CODE_PAGE_WORDS]) -> Result<(), Refusal> {
        let at = self.code(page)?;
        self.code_reads += 1;
        for (word, bytes) in code.iter_mut().zip(self.bytes[at..].chunks(4)) {
            *word = Width::from_le(bytes).ok_or(Refusal::Unmapped)?;
        }
        Ok(())
    }

    fn fence(&mut self) {
        self.fences += 1;
    }

    fn cycle(&self, retired: u64) -> u64 {
        1000 + 2 * retired
    }

    fn time(&self, retired: u64) -> u64 {
        5000 + 3 * retired
    }
}

/// A hart at [`CODE`] of work-item zero.
pub fn hart() -> Hart {
    Hart::new(CODE, 0, WorkItem::default())
}

/// Runs with a fresh code cache.
pub fn run(hart: &mut Hart, ram: &mut Ram, budget: u64) -> Run<Refusal> {
    hart.run(ram, &mut CodeCache::with_pages(8), budget)
}

/// Runs the one instruction `word`, placed at [`CODE`].
fn run_word(hart: &mut Hart, ram: &mut Ram, word: u32) -> Run<Refusal> {
    let mut cache = ram.cache.take().unwrap_or_default();
    if ram.peek::<u32>(CODE) != word {
        ram.put(CODE, &[word]);
        cache.invalidate_all();
    }
    hart.set_pc(CODE);
    let run = hart.run(ram, &mut cache, 1);
    ram.cache = Some(cache);
    run
}

/// Executes the one instruction `word` on `hart`, which must come through it.
pub fn execute(hart: &mut Hart, ram: &mut Ram, word: u32) {
    let run = run_word(hart, ram, word);
    assert_eq!((run.executed, run.stop), (1, Stop::Budget), "{word:#010x}");
}

/// The fault of the one instruction `word` on `hart`, which must not be counted.
pub fn fault_of(hart: &mut Hart, ram: &mut Ram, word: u32) -> Fault<Refusal> {
    let run = run_word(hart, ram, word);
    assert_eq!((run.executed, hart.pc()), (0, CODE), "{word:#010x}");
    match run.stop {
        Stop::Fault(fault) => fault,
        stop => panic!("{word:#010x} stopped with {stop:?}"),
    }
}

/// True if `word` is an illegal instruction for `hart`.
pub fn is_illegal(hart: &mut Hart, word: u32) -> bool {
    let mut ram = Ram::with_code(&[word]);
    hart.set_pc(CODE);
    match run(hart, &mut ram, 1).stop {
        Stop::Fault(fault) => fault.cause == Cause::IllegalInstruction(word),
        _ => false,
    }
}

/// Seed of a property test: from `OCHRE_SEED`, else random; printed, so that a failure can be repeated.
pub fn rng() -> fastrand::Rng {
    let seed = match std::env::var("OCHRE_SEED") {
        Ok(seed) => seed.parse().expect("OCHRE_SEED is a decimal number"),
        Err(_) => RandomState::new().build_hasher().finish(),
    };
    println!("repeat with OCHRE_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Rounds of a property test: `default`, or `OCHRE_ROUNDS` for a long search.
pub fn rounds(default: usize) -> usize {
    match std::env::var("OCHRE_ROUNDS") {
        Ok(rounds) => rounds.parse().expect("OCHRE_ROUNDS is a decimal number"),
        Err(_) => default,
    }
}

/// An operand that is interesting more often than a uniform one.
pub fn operand(rng: &mut fastrand::Rng) -> u64 {
    const EDGES: &[u64] = &[
        0,
        1,
        2,
        31,
        32,
        63,
        64,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        i64::MAX as u64,
        i64::MIN as u64,
    ];
    let edge = EDGES[rng.usize(..EDGES.len())];
    match rng.u8(..4) {
        0 => edge,
        1 => edge
            .wrapping_neg()
            .wrapping_add(rng.u64(..3))
            .wrapping_sub(1),
        2 => rng.u64(..) >> rng.u32(..64),
        _ => rng.u64(..),
    }
}

/// Encoders of the instruction formats, written from the manual's tables.
pub mod encode {
    fn field(value: u32, bits: u32, at: u32) -> u32 {
        assert!(value < 1 << bits, "{value:#x} does not fit {bits} bits");
        value << at
    }

    fn low(imm: i32, bits: u32) -> u32 {
        let limit = 1 << (bits - 1);
        assert!(
            (-limit..limit).contains(&imm),
            "{imm} does not fit {bits} bits"
        );
        imm as u32 & ((1 << bits) - 1)
    }

    /// R format.
    pub fn r(opcode: u32, funct3: u32, funct7: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
        field(opcode, 7, 0)
            | field(rd, 5, 7)
            | field(funct3, 3, 12)
            | field(rs1, 5, 15)
            | field(rs2, 5, 20)
            | field(funct7, 7, 25)
    }

    /// R4 format: fused multiply-add.
    pub fn r4(opcode: u32, rm: u32, fmt: u32, regs: [u32; 4]) -> u32 {
        let [rd, rs1, rs2, rs3] = regs;
        r(opcode, rm, fmt, rd, rs1, rs2) | field(rs3, 5, 27)
    }

    /// I format.
    pub fn i(opcode: u32, funct3: u32, rd: u32, rs1: u32, imm: i32) -> u32 {
        r(opcode, funct3, 0, rd, rs1, 0) | (low(imm, 12) << 20)
    }

    /// S format.
    pub fn s(opcode: u32, funct3: u32, rs1: u32, rs2: u32, imm: i32) -> u32 {
        let imm = low(imm, 12);
        r(opcode, funct3, imm >> 5, imm & 31, rs1, rs2)
    }

    /// B format, a branch by `offset` bytes.
    pub fn b(funct3: u32, rs1: u32, rs2: u32, offset: i32) -> u32 {
        let imm = low(offset, 13);
        let bit = |n: u32| (imm >> n) & 1;
        let funct7 = (bit(12) << 6) | ((imm >> 5) & 0x3f);
        r(0x63, funct3, funct7, (imm & 0x1e) | bit(11), rs1, rs2)
    }

    /// U format; `imm` is the upper 20 bits.
    pub fn u(opcode: u32, rd: u32, imm: u32) -> u32 {
        field(opcode, 7, 0) | field(rd, 5, 7) | field(imm, 20, 12)
    }

    /// JAL.
    pub fn jal(rd: u32, offset: i32) -> u32 {
        let imm = low(offset, 21);
        let bit = |n: u32| (imm >> n) & 1;
        let upper =
            (bit(20) << 19) | (((imm >> 1) & 0x3ff) << 9) | (bit(11) << 8) | ((imm >> 12) & 0xff);
        u(0x6f, rd, upper)
    }

    /// ADDI.
    pub fn addi(rd: u32, rs1: u32, imm: i32) -> u32 {
        i(0x13, 0, rd, rs1, imm)
    }

    /// JALR.
    pub fn jalr(rd: u32, rs1: u32, imm: i32) -> u32 {
        i(0x67, 0, rd, rs1, imm)
    }

    /// CSR instruction: funct3 1–3 with register, 5–7 with immediate `rs1`.
    pub fn csr(funct3: u32, rd: u32, rs1: u32, csr: u16) -> u32 {
        r(0x73, funct3, 0, rd, rs1, 0) | field(u32::from(csr), 12, 20)
    }

    /// AMO, LR, SC by the five-bit function; funct3 2 for words, 3 for doublewords.
    pub fn amo(function: u32, funct3: u32, rd: u32, rs1: u32, rs2: u32) -> u32 {
        r(0x2f, funct3, function << 2, rd, rs1, rs2)
    }

    /// RET.
    pub fn ret() -> u32 {
        jalr(0, 1, 0)
    }
}
