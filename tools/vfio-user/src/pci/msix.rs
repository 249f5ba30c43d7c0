// SPDX-License-Identifier: GPL-2.0
//! The MSI-X table and pending bits, as contents of a BAR.
//!
//! QEMU emulates the table of a vfio device on top of the BAR and programs vectors with SET_IRQS, so
//! what is written here has no effect on [`crate::Interrupts`]. Reads of the pending bits do arrive.

/// Size of a table entry in bytes.
const ENTRY: usize = 16;
/// Offset of Vector Control in an entry.
const CONTROL: usize = 12;
/// Vector Control: the vector is masked.
const MASKED: u8 = 1;

/// An MSI-X table (PCI Express 5.0, 7.7.2) in a BAR.
#[derive(Clone, Debug)]
pub struct MsixTable {
    entries: Vec<u8>,
    table_offset: u64,
    pba_offset: u64,
}

impl MsixTable {
    /// A table of `vectors` entries, all masked, and its pending bits, at these offsets of the BAR.
    pub fn new(vectors: u16, table_offset: u64, pba_offset: u64) -> Self {
        let mut entries = vec![0; usize::from(vectors) * ENTRY];
        entries
            .chunks_exact_mut(ENTRY)
            .for_each(|entry| entry[CONTROL] = MASKED);
        Self {
            entries,
            table_offset,
            pba_offset,
        }
    }

    /// Reads from the BAR; `pending` says of a vector whether its interrupt waits. What is neither
    /// table nor pending bits reads 0.
    pub fn read(&self, offset: u64, data: &mut [u8], pending: impl Fn(u32) -> bool) {
        let vectors = self.entries.len() / ENTRY;
        // Pending bits come in units of 64.
        let pba_size = vectors.div_ceil(64) * 8;
        data.fill(0);
        for (at, byte) in (offset..=u64::MAX).zip(data) {
            *byte = if let Some(at) = place(at, self.table_offset, self.entries.len()) {
                self.entries[at]
            } else if let Some(at) = place(at, self.pba_offset, pba_size) {
                (0..8u8)
                    .filter(|bit| {
                        let vector = at * 8 + usize::from(*bit);
                        vector < vectors && u32::try_from(vector).is_ok_and(&pending)
                    })
                    .fold(0, |bits, bit| bits | (1 << bit))
            } else {
                0
            };
        }
    }

    /// Writes to the BAR. Only the table's defined bits can be written.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (at, &byte) in (offset..=u64::MAX).zip(data) {
            if let Some(at) = place(at, self.table_offset, self.entries.len()) {
                let writable = match at % ENTRY {
                    // Message addresses are multiples of 4.
                    0 => !3,
                    1..CONTROL => !0,
                    CONTROL => MASKED,
                    _ => 0,
                };
                let entry = &mut self.entries[at];
                *entry = (*entry & !writable) | (byte & writable);
            }
        }
    }

    /// Whether the vector is masked; a vector that does not exist is.
    pub fn masked(&self, vector: u16) -> bool {
        let control = self.entries.get(usize::from(vector) * ENTRY + CONTROL);
        control.is_none_or(|control| control & MASKED != 0)
    }
}

/// `at` as an offset into the `len` bytes from `start`.
fn place(at: u64, start: u64, len: usize) -> Option<usize> {
    let at = usize::try_from(at.checked_sub(start)?).ok()?;
    (at < len).then_some(at)
}
