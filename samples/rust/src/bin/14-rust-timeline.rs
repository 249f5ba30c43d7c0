// SPDX-License-Identifier: GPL-2.0
//! Two queues of different engines take turns on one buffer, linked by the points of a timeline
//! syncobj: each fill has to wait for the copy before it, and each copy for its fill.

use anyhow::ensure;
use ochre::abi::*;
use ochre::access::READ_WRITE;
use ochre::in_seconds;
use ochre::region::SYSTEM;
use ochre::region::VRAM;
use ochre::Gpu;
use ochre::Packets;
use ochre::Queue;
use ochre::Stream;
use ochre::Syncobj;
use ochre::Vm;

const ROUNDS: u32 = 8;
const BYTES: u32 = 65536;

fn value(round: u32) -> u32 {
    0x00c0_de00 + round
}

fn main() -> anyhow::Result<()> {
    let gpu = Gpu::open()?;
    let vm = Vm::new(&gpu)?;
    let scratch = vm.buffer(VRAM, BYTES.into(), READ_WRITE)?;
    let result = vm.buffer(SYSTEM, u64::from(ROUNDS * BYTES), READ_WRITE)?;
    let filler = Queue::with(&vm, DRM_OCHRE_ENGINE_COMPUTE, 0, &[])?;
    let copier = Queue::with(&vm, DRM_OCHRE_ENGINE_COPY, 0, &[])?;
    let timeline = Syncobj::new(&gpu)?;

    let mut packets = Vec::new();
    for round in 0..ROUNDS {
        let to = result.addr + u64::from(round * BYTES);
        let fill = Stream::new().fill(scratch.addr, BYTES.into(), value(round));
        let copy = Stream::new().copy(scratch.addr, to, BYTES.into());
        let (fill, copy) = (Packets::new(&vm, &fill)?, Packets::new(&vm, &copy)?);

        let copied = u64::from(2 * round);
        let filled = copied + 1;
        let around_fill = [timeline.point(filled).signal(), timeline.point(copied)];
        let around_copy = [timeline.point(filled), timeline.point(copied + 2).signal()];
        // The first fill has nothing to wait for.
        filler.submit_stream(&fill, &around_fill[..if round == 0 { 1 } else { 2 }])?;
        copier.submit_stream(&copy, &around_copy)?;
        packets.push((fill, copy));
    }
    let last = timeline.point(u64::from(2 * ROUNDS));
    let waited = gpu.wait(&[last], in_seconds(100))?;
    ensure!(waited.error == 0, "a job ended with errno {}", waited.error);

    for round in 0..ROUNDS {
        let words = BYTES as usize / 4;
        let got = result
            .cpu
            .read::<u32>(round as usize * BYTES as usize, words);
        ensure!(got == vec![value(round); words], "round {round} went wrong");
    }
    println!("two queues, {ROUNDS} turns over a timeline: verified");
    Ok(())
}
