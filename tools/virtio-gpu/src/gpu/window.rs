// SPDX-License-Identifier: GPL-2.0
//! The host-visible window: which part of it shows which blob.
//!
//! While a blob is mapped its bytes are in the window; they are copied there when it is mapped and
//! back when the unmapping is answered, because the window is one piece of memory for the guest.

use std::collections::BTreeMap;
use std::sync::Arc;

use ochre_vfio_user as vfu;
use vfu::Memory;
use vfu::SharedMemory;

use crate::gpu::resource::Resource;
use crate::gpu::Fail;
use crate::judge::Rule;
use crate::wire::Resp;

/// A mapped blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The resource.
    pub resource: u32,
    /// Its bytes.
    pub bytes: u64,
    /// The driver has asked for the end of it, and has no answer yet.
    pub unmapping: bool,
}

/// The window.
#[derive(Debug, Default)]
pub struct Window {
    memory: Option<Arc<SharedMemory>>,
    /// By offset; no two overlap.
    mappings: BTreeMap<u64, Mapping>,
}

impl Window {
    /// A window onto this memory.
    pub fn new(memory: Option<Arc<SharedMemory>>) -> Self {
        let mappings = BTreeMap::new();
        Self { memory, mappings }
    }

    /// All mappings by offset.
    pub fn mappings(&self) -> impl Iterator<Item = (u64, &Mapping)> {
        self.mappings.iter().map(|(at, mapping)| (*at, mapping))
    }

    /// The mapping of a resource, also one that is about to end.
    pub fn find(&self, resource: u32) -> Option<(u64, Mapping)> {
        let mut all = self.mappings.iter();
        let found = all.find(|(_, mapping)| mapping.resource == resource)?;
        Some((*found.0, *found.1))
    }

    /// Shows a resource at an offset.
    ///
    /// # Errors
    ///
    /// It does not fit there.
    pub fn map(&mut self, id: u32, resource: &mut Resource, offset: u64) -> Result<(), Fail> {
        let broke = |rule| Fail::Broke(rule, offset, Resp::ErrParameter);
        let memory = self.memory.as_ref().ok_or(broke(Rule::Map))?;
        let bytes = resource.bytes();
        let end = offset.checked_add(bytes).ok_or(broke(Rule::Map))?;
        if end > memory.len() {
            return Err(broke(Rule::Map));
        }
        let before = self.mappings.range(..end).next_back();
        if let Some((_, mapping)) = before.filter(|(at, m)| *at + m.bytes > offset) {
            let rule = if mapping.unmapping {
                Rule::WindowBusy
            } else {
                Rule::Map
            };
            return Err(broke(rule));
        }
        let shown = if resource.is_touched() {
            memory.write(offset, resource.host())
        } else {
            memory.fill::<u64>(offset, bytes.div_ceil(8), 0)
        };
        shown.map_err(|_| broke(Rule::Map))?;
        let mapping = Mapping {
            resource: id,
            bytes,
            unmapping: false,
        };
        self.mappings.insert(offset, mapping);
        Ok(())
    }

    /// Begins to unmap what is at an offset.
    pub fn begin_unmap(&mut self, offset: u64) {
        if let Some(mapping) = self.mappings.get_mut(&offset) {
            mapping.unmapping = true;
        }
    }

    /// Takes away what is at an offset. The bytes go back to the resource, if that still exists.
    pub fn finish_unmap(&mut self, offset: u64, resource: Option<&mut Resource>) {
        let Some(mapping) = self.mappings.remove(&offset) else {
            return;
        };
        let host = resource.filter(|resource| resource.host_bytes() == mapping.bytes);
        if let (Some(memory), Some(resource)) = (&self.memory, host) {
            if let Err(error) = memory.read(offset, resource.host()) {
                log::warn!("window at {offset:#x}: {error}");
            }
        }
    }

    /// The word of a mapped blob, if it is in the window.
    pub fn word(&self, resource: u32, offset: u32) -> Option<u32> {
        let (at, mapping) = self.find(resource)?;
        if u64::from(offset) + 4 > mapping.bytes {
            return None;
        }
        let mut word = [0; 4];
        let memory = self.memory.as_ref()?;
        memory.read(at + u64::from(offset), &mut word).ok()?;
        Some(u32::from_le_bytes(word))
    }

    /// Sets a word of a mapped blob; false if it is not in the window.
    pub fn set_word(&self, resource: u32, offset: u32, value: u32) -> bool {
        let Some((at, mapping)) = self.find(resource) else {
            return false;
        };
        let Some(memory) = &self.memory else {
            return false;
        };
        u64::from(offset) + 4 <= mapping.bytes
            && memory
                .write(at + u64::from(offset), &value.to_le_bytes())
                .is_ok()
    }

    /// Nothing is mapped.
    pub fn reset(&mut self) {
        self.mappings.clear();
    }
}
