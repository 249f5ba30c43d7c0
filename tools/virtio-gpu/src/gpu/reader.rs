// SPDX-License-Identifier: GPL-2.0
//! A command's bytes, which are spread over the readable descriptors of its chain.

use ochre_vfio_user as vfu;
use vfu::Memory;
use vfu::View;

use crate::gpu::Fail;
use crate::judge::Rule;
use crate::ring::RingFault;
use crate::ring::Segment;
use crate::wire::Resp;

/// Reads from front to back.
pub struct Reader<'a> {
    memory: &'a View<'a>,
    segments: &'a [Segment],
    /// Bytes of the first segment that were read.
    done: u32,
    read: u64,
}

impl<'a> Reader<'a> {
    /// At the start of these.
    pub fn new(memory: &'a View<'a>, segments: &'a [Segment]) -> Self {
        Self {
            memory,
            segments,
            done: 0,
            read: 0,
        }
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    ///
    /// The command ends before, or its address is no memory.
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<(), Fail> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((first, others)) = self.segments.split_first() else {
                return Err(Fail::Broke(Rule::CommandShort, self.read, Resp::ErrUnspec));
            };
            let left = first.len - self.done;
            if left == 0 {
                self.segments = others;
                self.done = 0;
                continue;
            }
            let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = std::mem::take(&mut rest).split_at_mut(n);
            let at = first.addr.checked_add(self.done.into());
            let found = match at {
                Some(at) => self.memory.read(at, now),
                None => Err(vfu::MemoryError::Overflow),
            };
            found.map_err(|error| Fail::memory(RingFault::from(error)))?;
            // Fits: it is at most `left`.
            self.done += n as u32;
            self.read += n as u64;
            rest = later;
        }
        Ok(())
    }
}
