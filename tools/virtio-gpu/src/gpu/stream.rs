// SPDX-License-Identifier: GPL-2.0
//! What SUBMIT_3D runs: a language of four words, so that tests can make the GPU do something.
//!
//! A stream is words of 32 bits: an opcode, then its operands.
//!
//! ```text
//! 0 NOP
//! 1 DELAY  milliseconds               the answer is given so much later
//! 2 FAIL   response                   the command ends with this response, for example 0x1205
//! 3 WRITE  resource  offset  value    a word of a resource that the context was given
//! ```
//!
//! Programs write streams, not the driver: one that is wrong fails, and breaks no rule.

use std::time::Duration;

use crate::gpu::Fail;
use crate::gpu::Reader;
use crate::wire::Resp;

/// Does nothing.
pub const NOP: u32 = 0;
/// Takes time.
pub const DELAY: u32 = 1;
/// Fails.
pub const FAIL: u32 = 2;
/// Writes a word.
pub const WRITE: u32 = 3;

/// Longest stream, in bytes.
pub const STREAM_MAX: u32 = 64 << 20;
/// Longest delay of a stream.
const DELAY_MAX: Duration = Duration::from_secs(600);
/// Bytes that are read at a time.
const PART: usize = 4096;

/// What a stream does to its surroundings.
pub trait Machine {
    /// Stores a word of a resource.
    ///
    /// # Errors
    ///
    /// The context has no such resource, or the resource no such word.
    fn write(&mut self, resource: u32, offset: u32, value: u32) -> Result<(), Fail>;
}

/// Words that follow an opcode.
fn operands(opcode: u32) -> Option<usize> {
    match opcode {
        NOP => Some(0),
        DELAY | FAIL => Some(1),
        WRITE => Some(3),
        _ => None,
    }
}

/// Runs a stream of `size` bytes; returns how long it takes.
///
/// # Errors
///
/// The stream ends early, is malformed, or says so.
pub fn run(
    reader: &mut Reader<'_>,
    size: u32,
    machine: &mut impl Machine,
) -> Result<Duration, Fail> {
    let refused = |resp| Err(Fail::Refused(resp));
    if size > STREAM_MAX {
        return refused(Resp::ErrParameter);
    }
    let mut took = Duration::ZERO;
    let mut part = [0; PART];
    // Fits: it is at most STREAM_MAX.
    let mut left = size as usize;
    let mut words: Vec<u32> = Vec::with_capacity(4);
    while left > 0 {
        let bytes = &mut part[..left.min(PART)];
        reader.read(bytes)?;
        left -= bytes.len();
        for word in bytes.chunks_exact(4) {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            if words.is_empty() && word == NOP {
                continue;
            }
            words.push(word);
            let Some(count) = operands(words[0]) else {
                return refused(Resp::ErrParameter);
            };
            if words.len() <= count {
                continue;
            }
            match words[..] {
                [DELAY, ms] => {
                    let delay = Duration::from_millis(ms.into());
                    took = (took + delay).min(DELAY_MAX);
                }
                [FAIL, code] => {
                    let resp = Resp::from_code(code).filter(|r| *r >= Resp::ErrUnspec);
                    return refused(resp.unwrap_or(Resp::ErrUnspec));
                }
                [WRITE, resource, offset, value] => machine.write(resource, offset, value)?,
                _ => {}
            }
            words.clear();
        }
    }
    if words.is_empty() {
        Ok(took)
    } else {
        refused(Resp::ErrParameter)
    }
}
