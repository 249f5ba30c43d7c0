// SPDX-License-Identifier: GPL-2.0
//! Prints how many million instructions per second one hart executes, for a few loops: in one run, and
//! in slices as short as those of work-items that wait for each other.

use std::time::Instant;

use ochre_rv64::{
    AmoOp, AtomicWidth, Bus, CodeCache, Hart, Stop, Width, WorkItem, CODE_PAGE_BYTES,
    CODE_PAGE_WORDS,
};

/// Base of the memory in the hart's address space.
const BASE: u64 = 0x10_0000;
/// Where the program is; the data is at `BASE`.
const CODE: u64 = BASE + 0x8000;

/// Flat memory behind a one-entry TLB, the shape of a bus with a real one.
struct Flat {
    memory: Vec<u8>,
    page: u64,
    offset: usize,
}

impl Flat {
    fn place(&mut self, addr: u64) -> Option<usize> {
        let page = addr & !(CODE_PAGE_BYTES - 1);
        if page != self.page {
            let offset = usize::try_from(page.checked_sub(BASE)?).ok()?;
            self.memory.get(offset)?;
            (self.page, self.offset) = (page, offset);
        }
        Some(self.offset + (addr % CODE_PAGE_BYTES) as usize)
    }
}

impl Bus for Flat {
    type Fault = ();

    #[inline(always)]
    fn load<W: Width>(&mut self, addr: u64) -> Result<W, ()> {
        let at = self.place(addr).ok_or(())?;
        self.memory.get(at..).and_then(W::from_le).ok_or(())
    }

    #[inline(always)]
    fn store<W: Width>(&mut self, addr: u64, value: W) -> Result<(), ()> {
        let at = self.place(addr).ok_or(())?;
        self.memory
            .get_mut(at..)
            .and_then(|to| value.put_le(to))
            .ok_or(())
    }

    fn amo<W: AtomicWidth>(&mut self, addr: u64, op: AmoOp, operand: W) -> Result<W, ()> {
        let old = self.load(addr)?;
        self.store(addr, W::apply(op, old, operand))?;
        Ok(old)
    }

    fn load_reserved<W: AtomicWidth>(&mut self, addr: u64) -> Result<W, ()> {
        self.load(addr)
    }

    fn store_conditional<W: AtomicWidth>(
        &mut self,
        addr: u64,
        expected: W,
        new: W,
    ) -> Result<bool, ()> {
        let equal = self.load::<W>(addr)? == expected;
        if equal {
            self.store(addr, new)?;
        }
        Ok(equal)
    }

    fn fetch(&mut self, page: u64) -> Result<u64, ()> {
        self.place(page).map(|at| at as u64).ok_or(())
    }

    fn read_code(&mut self, page: u64, code: &mut [u32; CODE_PAGE_WORDS]) -> Result<(), ()> {
        for (addr, word) in (page..).step_by(4).zip(code) {
            *word = self.load(addr)?;
        }
        Ok(())
    }

    fn cycle(&self, retired: u64) -> u64 {
        retired
    }

    fn time(&self, retired: u64) -> u64 {
        retired
    }
}

/// A loop body for `a0` rounds; each ends in `addi a0, a0, -1; bnez a0, start; ret`.
struct Loop {
    name: &'static str,
    body: &'static [u32],
}

const LOOPS: &[Loop] = &[
    Loop {
        name: "integer (xor, shift, add)",
        body: &[
            0x00d6_4633, // xor a2, a2, a3
            0x0036_1693, // slli a3, a2, 3
            0x00c6_8733, // add a4, a3, a2
            0x0077_5793, // srli a5, a4, 7
            0x00e7_c6b3, // xor a3, a5, a4
            0x0016_8693, // addi a3, a3, 1
        ],
    },
    Loop {
        name: "memory (ld, add, sd)",
        body: &[
            0x0005_b603, // ld a2, 0(a1)
            0x00c6_8633, // add a2, a3, a2
            0x00c5_b023, // sd a2, 0(a1)
            0x0085_b683, // ld a3, 8(a1)
        ],
    },
    Loop {
        name: "binary32 (flw, fmadd, fsw)",
        body: &[
            0x0005_a007, // flw f0, 0(a1)
            0x0045_a087, // flw f1, 4(a1)
            0x1010_7143, // fmadd.s f2, f0, f1, f2
            0x0025_a427, // fsw f2, 8(a1)
        ],
    },
    Loop {
        name: "binary64 (fmul, fadd)",
        body: &[
            0x0205_b007, // fld f0, 32(a1)
            0x1200_7053, // fmul.d f0, f0, f0
            0x0200_f0d3, // fadd.d f1, f1, f0
        ],
    },
];

/// Executes `body` for `rounds` rounds in slices of `slice` instructions; returns the speed.
fn measure(body: &[u32], rounds: u64, slice: u64) -> f64 {
    let mut bus = Flat {
        memory: vec![0; 1 << 20],
        page: u64::MAX,
        offset: 0,
    };
    let branch = branch_back(body.len() as u32 + 1);
    let tail = [0xfff5_0513, branch, 0x0000_8067];
    let code = body.iter().copied().chain(tail);
    for (word, addr) in code.zip((CODE..).step_by(4)) {
        assert_eq!(bus.store(addr, word), Ok(()));
    }
    for (addr, value) in [(BASE, 1.1_f32), (BASE + 4, 0.7)] {
        assert_eq!(bus.store(addr, value.to_bits()), Ok(()));
    }
    assert_eq!(bus.store(BASE + 32, 1.1_f64.to_bits()), Ok(()));

    let mut hart = Hart::new(CODE, rounds, WorkItem::default());
    hart.set_x(11, BASE);
    let mut cache = CodeCache::new();
    let start = Instant::now();
    let stop = loop {
        let run = hart.run(&mut bus, &mut cache, slice);
        if run.stop != Stop::Budget {
            break run.stop;
        }
    };
    assert_eq!(stop, Stop::Exit, "{:#x}", hart.pc());
    hart.instret() as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// `bnez a0` to the instruction `count` before it.
fn branch_back(count: u32) -> u32 {
    let offset = (4 * count).wrapping_neg();
    let fields = [
        ((offset >> 11) & 1) << 7,
        ((offset >> 1) & 0xf) << 8,
        ((offset >> 5) & 0x3f) << 25,
        ((offset >> 12) & 1) << 31,
    ];
    fields.iter().fold(0x0005_1063, |word, field| word | field)
}

fn main() {
    const ROUNDS: u64 = 10_000_000;
    for Loop { name, body } in LOOPS {
        let whole = measure(body, ROUNDS, u64::MAX);
        let sliced = measure(body, ROUNDS, 64);
        println!("{name}: {whole:.0} million instructions per second, {sliced:.0} in slices of 64");
    }
}
