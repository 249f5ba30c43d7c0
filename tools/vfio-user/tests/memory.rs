// SPDX-License-Identifier: GPL-2.0
//! Guest memory against a simple model, and its words under several threads.

mod common;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;

use common::Random;
use ochre_vfio_user as vfu;
use vfu::Access;
use vfu::Errno;
use vfu::GuestMemory;
use vfu::Memory;
use vfu::MemoryError;
use vfu::SharedMemory;

const PAGE: u64 = vfu::PAGE_SIZE;
/// Pages of the address space that the model test plays in.
const PAGES: u64 = 24;
const FILE_PAGES: u64 = 8;

fn both() -> Access {
    Access::READ | Access::WRITE
}

fn file(pages: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, pages * PAGE).unwrap();
    fd
}

/// What one page of the address space is, as the model sees it.
#[derive(Clone, Copy, PartialEq)]
struct ModelPage {
    /// First page and number of pages of the map it came with.
    map: (u64, u64),
    access: Access,
    /// File and page in it.
    backing: Option<(usize, u64)>,
}

/// Files are byte vectors; the map is a tree of pages.
struct Model {
    files: Vec<Vec<u8>>,
    pages: BTreeMap<u64, ModelPage>,
}

impl Model {
    /// Where the byte at `address` is, or why it cannot be reached.
    fn find(&self, address: u64, access: Access) -> Result<(usize, usize), MemoryError> {
        let page = self
            .pages
            .get(&(address / PAGE))
            .ok_or(MemoryError::Unmapped { address })?;
        let (file, at) = page.backing.ok_or(MemoryError::NoBacking { address })?;
        if !page.access.contains(access) {
            return Err(MemoryError::Denied { address });
        }
        Ok((file, (at * PAGE + address % PAGE) as usize))
    }

    fn read(&self, address: u64, len: u64) -> Result<Vec<u8>, MemoryError> {
        (address..address + len)
            .map(|at| {
                self.find(at, Access::READ)
                    .map(|(file, at)| self.files[file][at])
            })
            .collect()
    }

    /// Writes as far as it goes.
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        for (at, byte) in (address..).zip(data) {
            let (file, at) = self.find(at, Access::WRITE)?;
            self.files[file][at] = *byte;
        }
        Ok(())
    }
}

/// A failed access names the first address of the failing page or piece, which the model knows bytewise.
#[test]
fn guest_memory_behaves_like_bytes_in_files() {
    let mut random = Random::new("guest_memory");
    let files: Vec<OwnedFd> = (0..3).map(|_| file(FILE_PAGES)).collect();
    let memory = GuestMemory::new();
    let mut model = Model {
        files: vec![vec![0; (FILE_PAGES * PAGE) as usize]; files.len()],
        pages: BTreeMap::new(),
    };
    let mut accesses = 0;
    for _ in 0..common::rounds(6_000) {
        let address = random.below(PAGES * PAGE);
        let len = match random.below(3) {
            0 => random.below(16),
            1 => random.below(PAGE),
            _ => random.below(4 * PAGE),
        };
        match random.below(10) {
            0 | 1 => {
                let (first, count) = (address / PAGE, random.below(4) + 1);
                let access = Access::from_bits_truncate(random.below(5).min(3) as u32);
                let backing = (random.below(8) != 0).then(|| {
                    (
                        random.below(3) as usize,
                        random.below(FILE_PAGES - count + 1),
                    )
                });
                let free = (first..first + count).all(|page| !model.pages.contains_key(&page));
                let fd = backing.map(|(file, at)| (files[file].as_fd(), at * PAGE));
                let result = memory.map(first * PAGE, count * PAGE, access, fd);
                assert_eq!(result, if free { Ok(()) } else { Err(Errno::EXIST) });
                if free {
                    for i in 0..count {
                        let backing = backing.map(|(file, at)| (file, at + i));
                        let page = ModelPage {
                            map: (first, count),
                            access,
                            backing,
                        };
                        model.pages.insert(first + i, page);
                    }
                }
            }
            2 => {
                let (first, count) = (address / PAGE, random.below(8) + 1);
                let range = first..first + count;
                let cut = model
                    .pages
                    .range(range.clone())
                    .any(|(_, page)| page.map.0 < first || page.map.0 + page.map.1 > first + count);
                let mut maps: Vec<_> = model
                    .pages
                    .range(range.clone())
                    .map(|(_, page)| page.map)
                    .collect();
                maps.dedup();
                let result = memory.unmap(first * PAGE, count * PAGE);
                assert_eq!(
                    result,
                    if cut {
                        Err(Errno::INVAL)
                    } else {
                        Ok(maps.len())
                    }
                );
                if !cut {
                    model.pages.retain(|page, _| !range.contains(page));
                }
            }
            3..=5 => {
                let mut data = vec![0; len as usize];
                let result = memory.view().read(address, &mut data);
                assert_eq!(result.map(|()| data), model.read(address, len));
                accesses += 1;
            }
            6 | 7 => {
                let data = random.bytes(len as usize);
                let result = memory.view().write(address, &data);
                assert_eq!(result, model.write(address, &data));
                accesses += 1;
            }
            8 => {
                let address = address & !7;
                let (count, value) = (len / 8, random.next());
                let bytes = value.to_le_bytes().repeat(count as usize);
                let result = memory.view().fill(address, count, value);
                assert_eq!(result, model.write(address, &bytes));
                accesses += 1;
            }
            _ => {
                // Only where source and destination are apart, by address and by file.
                let view = memory.view();
                let to = random.below(PAGES * PAGE);
                let Ok(data) = model.read(address, len) else {
                    continue;
                };
                let used = |from: u64, access| -> Option<Vec<(usize, usize)>> {
                    (from..from + len)
                        .map(|at| model.find(at, access).ok())
                        .collect()
                };
                let (Some(source), Some(target)) =
                    (used(address, Access::READ), used(to, Access::WRITE))
                else {
                    continue;
                };
                let target: std::collections::HashSet<_> = target.into_iter().collect();
                if source.iter().any(|byte| target.contains(byte)) {
                    continue;
                }
                vfu::copy(&view, to, &view, address, len).unwrap();
                model.write(to, &data).unwrap();
                accesses += 1;
            }
        }
    }
    assert!(accesses > 0);
    // Every byte of every file, also those that no access named.
    for (fd, bytes) in files.iter().zip(&model.files) {
        let mapping = vfu::Mapping::new(fd.as_fd(), 0, FILE_PAGES * PAGE, Access::READ).unwrap();
        let mut real = vec![0; bytes.len()];
        mapping.read(0, &mut real).unwrap();
        assert!(real == *bytes, "the files differ");
    }
}

#[test]
fn copies_are_exact_at_every_alignment() {
    let vram = SharedMemory::new("a", 4 * PAGE).unwrap();
    let other = SharedMemory::new("b", 4 * PAGE).unwrap();
    let pattern: Vec<u8> = (0..4 * PAGE).map(|at| (at * 7 + at / 251) as u8).collect();
    for (from, to) in (0..9).flat_map(|from| (0..9).map(move |to| (from, to))) {
        for len in [0, 1, 2, 7, 8, 9, 15, 16, 17, 63, 4095, 4096, 4097, 9000] {
            vram.write(0, &pattern).unwrap();
            other.zero().unwrap();
            vfu::copy(&*other, to, &*vram, from, len).unwrap();
            let mut real = vec![0; pattern.len()];
            other.read(0, &mut real).unwrap();
            let mut expected = vec![0; pattern.len()];
            let (from, to, len) = (from as usize, to as usize, len as usize);
            expected[to..to + len].copy_from_slice(&pattern[from..from + len]);
            assert!(real == expected, "{from} to {to}, {len} bytes");
        }
    }
    // Downwards inside one memory, as when a buffer is moved to the front.
    vram.write(0, &pattern).unwrap();
    vfu::copy(&*vram, 3, &*vram, 8, 8000).unwrap();
    let mut real = vec![0; 8000];
    vram.read(3, &mut real).unwrap();
    assert!(real == pattern[8..8008]);
}

#[test]
fn ranges_are_checked_to_the_last_byte() {
    let vram = SharedMemory::new("vram", 2 * PAGE).unwrap();
    let end = 2 * PAGE;
    let unmapped = |address| Err(MemoryError::Unmapped { address });
    assert_eq!(vram.write(end - 3, &[0; 3]), Ok(()));
    assert_eq!(vram.write(end - 3, &[0; 4]), unmapped(end));
    assert_eq!(vram.read(end, &mut [0; 1]), unmapped(end));
    assert_eq!(vram.read(end, &mut []), Ok(()));
    assert_eq!(vram.read(u64::MAX, &mut [0; 2]), Err(MemoryError::Overflow));
    assert_eq!(vram.read(u64::MAX, &mut [0; 1]), unmapped(u64::MAX));
    assert_eq!(vram.load::<u64>(end - 8), Ok(0));
    assert_eq!(vram.load::<u64>(end).map(drop), unmapped(end));
    assert_eq!(vram.fill(0, u64::MAX, 0u64), Err(MemoryError::Overflow));
    assert_eq!(
        vram.fill(16, u64::MAX / 8, 0u64),
        Err(MemoryError::Overflow)
    );
    assert_eq!(vram.fill(end - 8, 2, 0u64), unmapped(end));
    assert_eq!(
        vfu::copy(&*vram, u64::MAX, &*vram, 0, 2),
        Err(MemoryError::Overflow)
    );
    assert_eq!(
        vfu::copy(&*vram, 0, &*vram, u64::MAX, 2),
        Err(MemoryError::Overflow)
    );
    assert_eq!(vfu::copy(&*vram, 0, &*vram, PAGE + 1, PAGE), unmapped(end));
    for address in [1, 2, 3] {
        assert_eq!(
            vram.load::<u32>(address),
            Err(MemoryError::Misaligned { address })
        );
        assert_eq!(
            vram.store(address, 0u32),
            Err(MemoryError::Misaligned { address })
        );
        assert_eq!(
            vram.update(address, |x: u32| x),
            Err(MemoryError::Misaligned { address })
        );
        assert_eq!(
            vram.fill(address, 1, 0u32),
            Err(MemoryError::Misaligned { address })
        );
    }
}

#[test]
fn page_is_good_for_its_own_memory_and_map_only() {
    let (guest, other) = (GuestMemory::new(), GuestMemory::new());
    let fd = file(4);
    guest
        .map(0x10_000, 2 * PAGE, both(), Some((fd.as_fd(), 0)))
        .unwrap();
    guest
        .map(0x20_000, PAGE, Access::READ, Some((fd.as_fd(), 0)))
        .unwrap();
    guest.map(0x30_000, PAGE, both(), None).unwrap();
    other
        .map(0x10_000, 2 * PAGE, both(), Some((fd.as_fd(), 0)))
        .unwrap();
    let vram = SharedMemory::new("vram", PAGE).unwrap();

    let view = guest.view();
    let page = view.page(0x11_abc).unwrap();
    let read_only = view.page(0x20_000).unwrap();
    view.store(0x11_ff8, 0x1122_3344_5566_7788u64).unwrap();
    assert_eq!(
        view.page_load::<u64>(&page, 0xff8),
        Ok(0x1122_3344_5566_7788)
    );
    assert_eq!(view.page_load::<u8>(&page, 0xfff), Ok(0x11));
    assert_eq!(view.page_store(&page, 0, 5u16), Ok(()));
    assert_eq!(view.page_update(&page, 0, |x: u16| x + 1), Ok(5));
    assert_eq!(view.page_compare_exchange(&page, 0, 6u16, 9), Ok(6));
    assert_eq!(view.page_compare_exchange(&page, 0, 6u16, 7), Ok(9));
    assert_eq!(view.load::<u16>(0x11_000), Ok(9));

    // Neither beyond the page nor across its end, neither unaligned nor against its permissions.
    let misaligned = |address| Some(MemoryError::Misaligned { address });
    assert_eq!(
        view.page_load::<u8>(&page, 0x1000).err(),
        misaligned(0x1000)
    );
    assert_eq!(view.page_load::<u32>(&page, 0xffe).err(), misaligned(0xffe));
    let wild = usize::MAX - 7;
    assert_eq!(
        view.page_load::<u64>(&page, wild).err(),
        misaligned(wild as u64)
    );
    assert_eq!(read_only.access(), Access::READ);
    assert_eq!(view.page_load::<u16>(&read_only, 0), Ok(0));
    assert_eq!(
        view.page_store(&read_only, 8, 1u16),
        Err(MemoryError::Denied { address: 8 })
    );
    let denied = Err(MemoryError::Denied { address: 8 });
    assert_eq!(view.page_update(&read_only, 8, |x: u16| x), denied);
    assert_eq!(
        view.page(0x12_000).err(),
        Some(MemoryError::Unmapped { address: 0x12_000 })
    );
    assert_eq!(
        view.page(0x30_010).err(),
        Some(MemoryError::NoBacking { address: 0x30_000 })
    );

    // Not for another memory, with the same addresses or not.
    assert_eq!(
        other.view().page_load::<u8>(&page, 0),
        Err(MemoryError::Stale)
    );
    assert_eq!(vram.page_load::<u8>(&page, 0), Err(MemoryError::Stale));
    let own = vram.page(0).unwrap();
    assert_eq!(view.page_load::<u8>(&own, 0), Err(MemoryError::Stale));
    drop(view);

    // The map of another memory may change; the page's own may not, though it comes back.
    other.unmap_all();
    assert_eq!(guest.view().page_load::<u16>(&page, 0), Ok(9));
    guest.unmap(0x10_000, 2 * PAGE).unwrap();
    guest
        .map(0x10_000, 2 * PAGE, both(), Some((fd.as_fd(), 0)))
        .unwrap();
    assert_eq!(
        guest.view().page_load::<u16>(&page, 0),
        Err(MemoryError::Stale)
    );
    assert_eq!(vram.page_load::<u8>(&own, 0), Ok(0));
}

#[test]
fn updates_of_several_threads_do_not_lose_each_other() {
    let guest = Arc::new(GuestMemory::new());
    let fd = file(1);
    guest
        .map(0x1000, PAGE, both(), Some((fd.as_fd(), 0)))
        .unwrap();
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let guest = Arc::clone(&guest);
            thread::spawn(move || {
                let view = guest.view();
                let page = view.page(0x1000).unwrap();
                for _ in 0..10_000 {
                    view.update(0x1008, |x: u64| x + 1).unwrap();
                    view.page_update(&page, 0x10, |x: u32| x + 1).unwrap();
                    let mut old = view.load::<u32>(0x1018).unwrap();
                    loop {
                        let seen = view.compare_exchange(0x1018, old, old + 1).unwrap();
                        if seen == old {
                            break;
                        }
                        old = seen;
                    }
                }
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let view = guest.view();
    assert_eq!(view.load::<u64>(0x1008), Ok(40_000));
    assert_eq!(view.load::<u32>(0x1010), Ok(40_000));
    assert_eq!(view.load::<u32>(0x1018), Ok(40_000));
}

#[test]
fn map_may_change_under_running_engines() {
    let guest = Arc::new(GuestMemory::new());
    let fd = file(2);
    guest.map(0, PAGE, both(), Some((fd.as_fd(), 0))).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let engines: Vec<_> = (0..2)
        .map(|_| {
            let (guest, stop) = (Arc::clone(&guest), Arc::clone(&stop));
            thread::spawn(move || {
                let mut page = None;
                let (mut hits, mut refills) = (0u64, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    let view = guest.view();
                    while !guest.change_pending() && !stop.load(Ordering::Relaxed) {
                        match page.map(|page| view.page_load::<u32>(&page, 0)) {
                            Some(Ok(_)) => hits += 1,
                            _ => {
                                refills += 1;
                                page = view.page(0x1000).ok();
                                if page.is_none() {
                                    break;
                                }
                            }
                        }
                    }
                    drop(view);
                    thread::yield_now();
                }
                (hits, refills)
            })
        })
        .collect();
    for _ in 0..200 {
        guest
            .map(PAGE, PAGE, both(), Some((fd.as_fd(), PAGE)))
            .unwrap();
        thread::yield_now();
        assert_eq!(guest.unmap(PAGE, PAGE), Ok(1));
    }
    stop.store(true, Ordering::Relaxed);
    for engine in engines {
        let (_hits, refills) = engine.join().unwrap();
        assert!(refills > 0);
    }
}

#[test]
fn shared_memory_is_made_of_pages_and_can_be_zeroed() {
    for size in [0, 1, 4095, 4097, u64::MAX] {
        assert!(SharedMemory::new("bad", size).is_err(), "{size:#x}");
    }
    let memory = SharedMemory::new("vram", 1 << 20).unwrap();
    assert_eq!((memory.len(), memory.access()), (1 << 20, both()));
    memory.fill(0, 1 << 18, !0u32).unwrap();
    assert_eq!(memory.load::<u64>((1 << 20) - 8), Ok(!0));
    memory.zero().unwrap();
    let mut bytes = vec![1; 1 << 20];
    memory.read(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}
