// SPDX-License-Identifier: GPL-2.0

//! Random VM_BINDs through [`super::page_table`], walked as a board walks, against a plain map.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    algo::{
        prng::{
            for_each_seed,
            Prng, //
        },
        va::{
            Attrs,
            Backing,
            LeafSize,
            Mapping,
            VaRange,
            VaSpace, //
        }, //
    },
    gpu::{
        bo::Piece,
        device::Gpu,
        mock::Mock,
        page_table::{
            Backed,
            PageTable, //
        }, //
    },
    hal::BoardAddr, //
};

const PAGE: u64 = 4096;
/// Where the tested addresses begin: 4 MiB below a boundary of 1 GiB, so that tables of all levels
/// take part.
const BASE: u64 = (5 << 30) - (4 << 20);
/// Tested pages: 16 MiB.
const PAGES: u64 = 4096;
/// Operations of one run.
const OPERATIONS: u64 = 60;

/// An object that is nothing but addresses.
#[derive(Clone)]
struct Fake(Arc<KVec<Piece>>);

impl PartialEq for Fake {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Backed for Fake {
    fn pieces_from(&self, offset: u64) -> &[Piece] {
        let after = self.0.partition_point(|p| p.offset <= offset);
        self.0.get(after.saturating_sub(1)..).unwrap_or(&[])
    }
}

impl Fake {
    /// An object of `pages` pages in pieces of at most `most` pages, each at an address of its own.
    fn new(rng: &mut Prng, pages: u64, most: u64, place: &mut u64) -> Result<Self> {
        let mut pieces = KVec::new();
        let mut done = 0;
        while done < pages {
            let count = (1 + rng.below(most)).min(pages - done);
            // Large pieces begin at large boundaries, as the allocators give them.
            let align = if count >= 512 { 512 } else { 16 };
            *place = (*place / align + 1) * align;
            let piece = Piece {
                offset: done * PAGE,
                addr: BoardAddr::Vram(*place * PAGE),
                len: count * PAGE,
            };
            pieces.push(piece, GFP_KERNEL)?;
            *place += count;
            done += count;
        }
        Ok(Self(Arc::new(pieces, GFP_KERNEL)?))
    }

    /// Address of page `n`.
    fn page(&self, n: u64) -> Option<u64> {
        let piece = self.pieces_from(n * PAGE).first()?;
        Some(piece.addr.offset() + n * PAGE - piece.offset)
    }
}

/// What a page leads to: [`None`] is nothing, `Some(None)` sparse.
type Page = Option<Option<u64>>;

/// An address space with its tables and the plain map beside it.
struct Bench {
    mock: Arc<Mock>,
    gpu: Arc<Gpu>,
    space: VaSpace<Fake>,
    tables: PageTable,
    model: KVec<Page>,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.gpu.unplug();
    }
}

enum Operation {
    Map(Fake, u64),
    Sparse,
    Unmap,
}

impl Bench {
    fn new() -> Result<Self> {
        let (mock, gpu) = Mock::new()?;
        let tables = PageTable::new(gpu.hal_arc())?;
        Ok(Self {
            mock,
            gpu,
            space: VaSpace::new(),
            tables,
            model: KVec::from_elem(None, usize::try_from(PAGES)?, GFP_KERNEL)?,
        })
    }

    /// Carries an operation out on `count` pages from page `first` on.
    fn apply(&mut self, first: u64, count: u64, operation: &Operation) -> Result {
        self.bind(VaRange::new(BASE + first * PAGE, count * PAGE)?, operation)?;

        for n in 0..count {
            let page = match operation {
                Operation::Map(object, page) => Some(Some(object.page(page + n).ok_or(EINVAL)?)),
                Operation::Sparse => Some(None),
                Operation::Unmap => None,
            };
            *self
                .model
                .get_mut(usize::try_from(first + n)?)
                .ok_or(EINVAL)? = page;
        }
        Ok(())
    }

    /// Carries an operation out on a range, and on the tables only.
    fn bind(&mut self, range: VaRange, operation: &Operation) -> Result {
        let mut plan = self.space.plan();
        match operation {
            Operation::Map(object, page) => plan.map(Mapping {
                range,
                backing: Backing::Object {
                    object: object.clone(),
                    offset: page * PAGE,
                },
                attrs: Attrs::default(),
            })?,
            Operation::Sparse => plan.map(Mapping {
                range,
                backing: Backing::Sparse,
                attrs: Attrs::default(),
            })?,
            Operation::Unmap => plan.unmap(range)?,
        }
        let update = self.tables.prepare(plan.steps())?;
        drop(plan.apply());
        let (_, garbage) = self.tables.commit(update);
        drop(garbage);
        Ok(())
    }

    /// Whether the board sees what the plain map says.
    fn agrees(&self) -> Result<bool> {
        for (n, want) in (0..).zip(&self.model) {
            let va = BASE + n * PAGE;
            let walk = self.mock.tables.walk(self.tables.root(), va);
            let got = walk.inspect_err(|e| pr_info!("walk of {va:#x}: {e:?}\n"))?;
            if got.map(|t| t.addr) != *want {
                pr_info!("{va:#x} leads to {got:?}, should be {want:?}\n");
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn leaf_size(&self, page: u64) -> Result<Option<LeafSize>> {
        let found = self
            .mock
            .tables
            .walk(self.tables.root(), BASE + page * PAGE)?;
        Ok(found.map(|t| t.size))
    }
}

#[kunit_tests(ochre_gpu_page_table)]
mod tests {
    use super::*;

    #[test]
    fn board_sees_what_was_bound_after_any_binds() -> Result {
        for_each_seed("page table", |rng| {
            let mut bench = Bench::new()?;
            let empty = bench.mock.tables.count();
            let mut place = 1 << 20;
            let objects = [
                Fake::new(rng, 2048, 1, &mut place)?,
                Fake::new(rng, 2048, 64, &mut place)?,
                Fake::new(rng, 2048, 2048, &mut place)?,
            ];
            for _ in 0..OPERATIONS {
                let mut first = rng.below(PAGES);
                if rng.chance(50) {
                    first -= first % 512;
                }
                let count = (1 + rng.below(1200)).min(PAGES - first);
                let operation = match rng.below(5) {
                    0 => Operation::Unmap,
                    1 => Operation::Sparse,
                    _ => {
                        let object = objects.get(rng.index(objects.len())).ok_or(EINVAL)?;
                        let from = rng.below(2048 - count + 1);
                        let from = if rng.chance(50) { 0 } else { from };
                        Operation::Map(object.clone(), from)
                    }
                };
                let applied = bench.apply(first, count, &operation);
                applied.inspect_err(|e| pr_info!("{count} pages from {first}: {e:?}\n"))?;
            }
            assert!(bench.agrees()?);
            assert!(!bench.mock.tables.any_spoiled());

            bench.apply(0, PAGES, &Operation::Unmap)?;
            assert!(bench.agrees()?);
            assert_eq!(bench.mock.tables.count(), empty);
            Ok(())
        })
    }

    #[test]
    fn range_of_hundreds_of_gigabytes_is_bound_and_emptied_in_one_operation() -> Result {
        let mut bench = Bench::new()?;
        let empty = bench.mock.tables.count();
        let range = VaRange::new(1 << 40, 256 << 30)?;
        bench.bind(range, &Operation::Sparse)?;
        let last = bench
            .mock
            .tables
            .walk(bench.tables.root(), range.end() - PAGE)?;
        assert!(last.is_some_and(|t| t.addr.is_none() && t.size == LeafSize::Size2M));
        bench.bind(range, &Operation::Unmap)?;
        assert_eq!(bench.mock.tables.count(), empty);
        Ok(())
    }

    #[test]
    fn leaves_are_as_large_as_addresses_allow_and_small_again_when_cut() -> Result {
        let mut rng = Prng::new(1);
        let mut place = 1 << 20;
        let mut bench = Bench::new()?;
        let large = Fake::new(&mut rng, 512, 1, &mut place)?;
        // One piece at a large boundary.
        let piece = Piece {
            offset: 0,
            addr: BoardAddr::Vram(1 << 30),
            len: 512 * PAGE,
        };
        let mut pieces = KVec::new();
        pieces.push(piece, GFP_KERNEL)?;
        let whole = Fake(Arc::new(pieces, GFP_KERNEL)?);

        bench.apply(0, 512, &Operation::Map(whole, 0))?;
        assert_eq!(bench.leaf_size(0)?, Some(LeafSize::Size2M));
        bench.apply(100, 1, &Operation::Unmap)?;
        assert_eq!(bench.leaf_size(0)?, Some(LeafSize::Size64K));
        assert_eq!(bench.leaf_size(99)?, Some(LeafSize::Size4K));
        assert_eq!(bench.leaf_size(100)?, None);
        bench.apply(512, 512, &Operation::Map(large, 0))?;
        assert_eq!(bench.leaf_size(512)?, Some(LeafSize::Size4K));
        assert!(bench.agrees()?);
        Ok(())
    }
}
