// SPDX-License-Identifier: GPL-2.0
//! Programs that clang builds, and clang's own idea of what an instruction is.
//!
//! Needs clang, lld, llvm-objcopy and llvm-mc; their names can be given in `OCHRE_CLANG`, `OCHRE_LLD`,
//! `OCHRE_OBJCOPY` and `OCHRE_LLVM_MC`.

mod common;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{is_illegal, rng, rounds, Ram, Refusal, CODE, DATA};
use ochre_rv64::{
    isa, AmoOp, AtomicWidth, Bus, CodeCache, Hart, Stop, Width, WorkItem, CODE_PAGE_WORDS,
};

/// Where results of the programs go.
const OUT: u64 = DATA + 0x4_0000;

/// The name of a tool, from the environment or as Debian has it.
fn tool(variable: &str, default: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| default.to_owned())
}

/// Runs a command to success and returns its standard output.
fn output(command: &mut Command, input: &str) -> String {
    let program = command.get_program().to_owned();
    let name = program.to_string_lossy();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| {
            panic!("{name}: {error}; install clang-19, lld-19 and llvm-19, or name others in OCHRE_CLANG, OCHRE_LLD, OCHRE_OBJCOPY, OCHRE_LLVM_MC")
        });
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    // From a thread: the child may fill its output before it has read its input.
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child
        .wait_with_output()
        .expect("the child can be waited for");
    assert!(output.status.success(), "{name}: {}", output.status);
    writer.join().expect("no panic").expect("the child reads");
    String::from_utf8(output.stdout).expect("plain text")
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
}

/// A path for what a test builds.
fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// Builds `source` for the hart, linked to start at `CODE` with `entry`; returns the bytes to load
/// there.
fn build(source: &str, entry: &str, optimise: &str) -> Vec<u8> {
    let elf = built(&format!("{source}{optimise}.elf"));
    let image = elf.with_extension("bin");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/ochre");
    let args = [
        "--target=riscv64-unknown-elf",
        "-march=rv64imafd",
        "-mabi=lp64d",
        "-mcmodel=medany",
        "-ffreestanding",
        "-nostdlib",
        "-static",
        "-ffp-contract=off",
        "-fno-math-errno",
        "-Wall",
        "-Werror",
        optimise,
        // The entry function must be the first.
        "-ffunction-sections",
    ];
    output(
        Command::new(tool("OCHRE_CLANG", "clang-19"))
            .args(args)
            .arg(format!("-fuse-ld={}", tool("OCHRE_LLD", "lld-19")))
            .arg(format!("-Wl,--image-base={CODE},-Ttext={CODE},-e{entry}"))
            .arg(format!(
                "-Wl,--symbol-ordering-file={}",
                symbols(entry).display()
            ))
            .arg("-I")
            .arg(include)
            .arg(program(source))
            .arg("-o")
            .arg(&elf),
        "",
    );
    output(
        Command::new(tool("OCHRE_OBJCOPY", "llvm-objcopy-19")).args([
            OsStr::new("-O"),
            OsStr::new("binary"),
            elf.as_ref(),
            image.as_ref(),
        ]),
        "",
    );
    std::fs::read(&image).expect("the image was written")
}

/// A file that asks the linker to put `entry` first.
fn symbols(entry: &str) -> PathBuf {
    let path = built(&format!("{entry}.order"));
    std::fs::write(&path, entry).expect("the target folder is writable");
    path
}

#[test]
fn a_program_of_everyday_c_computes_what_it_computes_on_the_host() {
    let host = built("mixed");
    output(
        Command::new(tool("OCHRE_CLANG", "clang-19"))
            .args(["-O1", "-ffp-contract=off", "-fno-math-errno", "-o"])
            .arg(&host)
            .arg(program("mixed.c"))
            .arg("-lm"),
        "",
    );
    let expected = output(&mut Command::new(&host), "");
    for optimise in ["-O0", "-O2"] {
        let image = build("mixed.c", "program", optimise);
        let mut ram = Ram::new();
        ram.bytes[..image.len()].copy_from_slice(&image);
        let mut hart = Hart::new(CODE, OUT, WorkItem::default());
        hart.set_x(isa::ENTRY_SP, OUT);
        let run = hart.run(&mut ram, &mut CodeCache::new(), 1 << 32);
        assert_eq!(run.stop, Stop::Exit, "{optimise}");
        let lines = (0..hart.x(10)).map(|n| format!("{:016x}\n", ram.peek::<u64>(OUT + 8 * n)));
        assert!(
            lines.collect::<String>() == expected,
            "{optimise}: results differ"
        );
    }
}

/// The memory of a block: the common one, with block-local memory in its window.
struct Block {
    ram: Ram,
    local: Ram,
}

impl Block {
    /// The memory behind `addr` and the address in it.
    fn route(&mut self, addr: u64) -> (&mut Ram, u64) {
        match addr.checked_sub(isa::LDS_BASE) {
            Some(offset) => (&mut self.local, common::BASE + offset),
            None => (&mut self.ram, addr),
        }
    }
}

impl Bus for Block {
    type Fault = Refusal;

    fn load<W: Width>(&mut self, addr: u64) -> Result<W, Refusal> {
        let (ram, addr) = self.route(addr);
        ram.load(addr)
    }
    fn store<W: Width>(&mut self, addr: u64, value: W) -> Result<(), Refusal> {
        let (ram, addr) = self.route(addr);
        ram.store(addr, value)
    }
    fn amo<W: AtomicWidth>(&mut self, addr: u64, op: AmoOp, operand: W) -> Result<W, Refusal> {
        let (ram, addr) = self.route(addr);
        ram.amo(addr, op, operand)
    }
    fn load_reserved<W: AtomicWidth>(&mut self, addr: u64) -> Result<W, Refusal> {
        let (ram, addr) = self.route(addr);
        ram.load_reserved(addr)
    }
    fn store_conditional<W: AtomicWidth>(
        &mut self,
        addr: u64,
        expected: W,
        new: W,
    ) -> Result<bool, Refusal> {
        let (ram, addr) = self.route(addr);
        ram.store_conditional(addr, expected, new)
    }
    fn fetch(&mut self, page: u64) -> Result<u64, Refusal> {
        self.ram.fetch(page)
    }
    fn read_code(&mut self, page: u64, code: &mut [u32; CODE_PAGE_WORDS]) -> Result<(), Refusal> {
        self.ram.read_code(page, code)
    }
    fn cycle(&self, retired: u64) -> u64 {
        retired
    }
    fn time(&self, retired: u64) -> u64 {
        retired
    }
}

/// Work-items of a block and blocks of the grid.
const LANES: u32 = 64;
const BLOCKS: u32 = 4;

/// Runs `reduce.c` on all blocks in slices of `slice` instructions; returns memory and the trace.
fn reduce(image: &[u8], slice: u64) -> (Ram, Vec<(u32, u64)>) {
    let input: Vec<u32> = (0..LANES * BLOCKS).map(|i| i * i + 7).collect();
    let mut ram = Ram::new();
    ram.bytes[..image.len()].copy_from_slice(image);
    ram.put(OUT + 0x1000, &input);
    let arguments = [OUT + 0x1000, OUT, OUT + 8];
    for (addr, value) in (DATA..).step_by(8).zip(arguments) {
        ram.store(addr, value).expect("in memory");
    }
    let mut block = Block {
        ram,
        local: Ram::new(),
    };
    let mut cache = CodeCache::new();
    let mut trace = Vec::new();
    for id in 0..BLOCKS {
        let item = |lane| WorkItem {
            block_id: [id, 0, 0],
            thread_id: [lane, 0, 0],
            grid_dim: [BLOCKS, 1, 1],
            block_dim: [LANES, 1, 1],
            lds_size: 4 * u64::from(LANES),
        };
        let mut harts: Vec<Hart> = (0..LANES)
            .map(|lane| {
                let mut hart = Hart::new(CODE, DATA, item(lane));
                // A stack of 1 KiB for each.
                hart.set_x(isa::ENTRY_SP, OUT + 0x2_0000 + 1024 * u64::from(lane + 1));
                hart
            })
            .collect();
        // None: runs; Some(false): waits at the barrier; Some(true): has returned.
        let mut states = vec![None; harts.len()];
        while states.iter().any(|state| *state != Some(true)) {
            for ((lane, hart), state) in (0..).zip(&mut harts).zip(&mut states) {
                if state.is_some() {
                    continue;
                }
                let run = hart.run(&mut block, &mut cache, slice);
                hart.clear_reservation();
                trace.push((lane, run.executed));
                match run.stop {
                    Stop::Budget => {}
                    Stop::Barrier => *state = Some(false),
                    Stop::Exit => *state = Some(true),
                    Stop::Fault(fault) => panic!("{fault:x?}"),
                }
            }
            if states.iter().all(Option::is_some) {
                for state in states.iter_mut().filter(|state| **state == Some(false)) {
                    *state = None;
                }
            }
        }
    }
    (block.ram, trace)
}

#[test]
fn a_block_meets_at_barriers_and_reduces_in_local_memory() {
    let image = build("reduce.c", "entry", "-O2");
    let total: u64 = (0..u64::from(LANES * BLOCKS)).map(|i| i * i + 7).sum();
    let spin = (0..LANES * BLOCKS).fold(0_u32, |n, _| n.wrapping_mul(3).wrapping_add(1));
    for slice in [64, 65, 1000, u64::MAX] {
        let (ram, trace) = reduce(&image, slice);
        assert_eq!(ram.peek::<u64>(OUT), total, "{slice}");
        assert_eq!(ram.peek::<u32>(OUT + 8), spin, "{slice}");
        let (again, same) = reduce(&image, slice);
        assert!(
            trace == same && ram.bytes == again.bytes,
            "{slice}: runs differ"
        );
    }
}

/// For each word, whether LLVM's disassembler knows it as an instruction of RV64IMAFD.
fn known_to_llvm(words: &[u32]) -> Vec<bool> {
    let text = words.iter().fold(String::new(), |text, word| {
        let [a, b, c, d] = word.to_le_bytes();
        text + &format!("0x{a:02x} 0x{b:02x} 0x{c:02x} 0x{d:02x}\n")
    });
    let listing = output(
        Command::new(tool("OCHRE_LLVM_MC", "llvm-mc-19"))
            .args(["--disassemble", "--triple=riscv64", "--show-encoding"])
            .arg("--mattr=+m,+a,+f,+d,+zicsr,+zifencei")
            // Each word that is no instruction is a warning.
            .stderr(Stdio::null()),
        &text,
    );
    let mut shown = listing.lines().filter_map(|line| {
        let bytes = line.split_once("encoding: [")?.1.strip_suffix(']')?;
        bytes.split(',').rev().try_fold(0_u32, |word, byte| {
            let byte = u8::from_str_radix(byte.trim_start_matches("0x"), 16).ok()?;
            Some((word << 8) | u32::from(byte))
        })
    });
    let mut next = shown.next();
    let known = words
        .iter()
        .map(|&word| {
            let known = next == Some(word);
            if known {
                next = shown.next();
            }
            known
        })
        .collect();
    assert_eq!(next, None, "each line of the listing belongs to a word");
    known
}

#[test]
fn the_decoder_and_llvm_agree_on_what_an_instruction_is() {
    let mut rng = rng();
    let opcodes = [
        0x03, 0x07, 0x0f, 0x13, 0x17, 0x1b, 0x23, 0x27, 0x2f, 0x33, 0x37, 0x3b, 0x43, 0x47, 0x4b,
        0x4f, 0x53, 0x63, 0x67, 0x6f, 0x73,
    ];
    let words: Vec<u32> = (0..rounds(20_000))
        .map(|_| {
            let word = (rng.u32(..) & !0x7f) | opcodes[rng.usize(..opcodes.len())];
            match rng.u8(..4) {
                // Function and register fields that are often zero in what is legal.
                0 => word & 0x01ff_ffff,
                1 => word & 0xfe0f_ffff,
                2 => word & 0xfa1f_ffff,
                _ => word,
            }
        })
        .collect();
    let known = known_to_llvm(&words);
    for (&word, known) in words.iter().zip(known) {
        let legal = !is_illegal(&mut common::hart(), word);
        match word & 0x7f {
            // Reserved fields of fences are ignored by the hart, as the manual asks.
            0x0f => assert_eq!(legal, (word >> 12) & 7 < 2, "{word:#010x}"),
            // Which CSRs exist, and privileged instructions, are not the disassembler's affair.
            0x73 => assert!(known || !legal, "{word:#010x}"),
            _ => assert_eq!(legal, known, "{word:#010x}"),
        }
    }
}
