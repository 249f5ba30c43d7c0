// SPDX-License-Identifier: GPL-2.0

#include <linux/capability.h>
#include <linux/fdtable.h>
#include <linux/folio_batch.h>
#include <linux/gfp.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>
#include <linux/virtio_dma_buf.h>
#include <linux/vmalloc.h>

#include <drm/drm_device.h>
#include <drm/drm_vma_manager.h>
#include <uapi/drm/drm.h>

#include "helpers.h"

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "ochre_trace.h"

/* uapi.rs treats the ABI's structures as plain bytes, so none may have padding. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include <drm/ochre_drm.h>
#include <drm/virtgpu_drm.h>
#pragma GCC diagnostic pop

MODULE_IMPORT_NS("DMA_BUF");

void ochre_dma_fence_get(struct dma_fence *fence)
{
	dma_fence_get(fence);
}

void ochre_dma_fence_put(struct dma_fence *fence)
{
	dma_fence_put(fence);
}

bool ochre_dma_fence_is_signaled(struct dma_fence *fence)
{
	return dma_fence_is_signaled(fence);
}

void ochre_dma_fence_set_error(struct dma_fence *fence, int error)
{
	dma_fence_set_error(fence, error);
}

ktime_t ochre_dma_fence_timestamp(struct dma_fence *fence)
{
	return dma_fence_timestamp(fence);
}

/* A link of a chain does not take over the error of the fence that it carries. */
int ochre_dma_fence_status(struct dma_fence *fence)
{
	int status = dma_fence_get_status(fence);

	if (status > 0)
		status = dma_fence_get_status(dma_fence_chain_contained(fence));
	return status;
}

struct dma_fence_chain *ochre_dma_fence_chain_alloc(void)
{
	return dma_fence_chain_alloc();
}

void ochre_dma_fence_chain_free(struct dma_fence_chain *chain)
{
	dma_fence_chain_free(chain);
}

int ochre_dma_resv_lock_interruptible(struct dma_resv *resv)
{
	return dma_resv_lock_interruptible(resv, NULL);
}

void ochre_close_fd(int fd)
{
	close_fd(fd);
}

static_assert(TASK_COMM_LEN == 16);

void ochre_current_comm(char *name)
{
	strscpy_pad(name, current->comm, TASK_COMM_LEN);
}

/* The methods are macros with BIT(), which bindgen does not see. */
void ochre_drm_wedged_event(struct drm_device *dev, bool given_up)
{
	unsigned long method = DRM_WEDGE_RECOVERY_NONE;

	if (given_up)
		method = DRM_WEDGE_RECOVERY_REBIND | DRM_WEDGE_RECOVERY_BUS_RESET;
	/* The only error is that there was nobody to tell. */
	drm_dev_wedged_event(dev, method, NULL);
}

void ochre_drm_syncobj_get(struct drm_syncobj *syncobj)
{
	drm_syncobj_get(syncobj);
}

void ochre_drm_syncobj_put(struct drm_syncobj *syncobj)
{
	drm_syncobj_put(syncobj);
}

struct dma_fence *ochre_drm_syncobj_fence_get(struct drm_syncobj *syncobj)
{
	return drm_syncobj_fence_get(syncobj);
}

/*
 * A private writable mapping would make vmf_insert_pfn() BUG(), and its copies
 * would not be the object's memory anyway.
 */
int ochre_gem_vma_setup(struct vm_area_struct *vma)
{
	if (vma_is_cow_mapping(vma))
		return -EINVAL;

	vm_flags_set(vma, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP);
	vma->vm_page_prot = pgprot_decrypted(vma_get_page_prot(vma));
	return 0;
}

/*
 * Gives an area the memory type that @caching names, for page faults to map the
 * frames from @pfn on. Where the kernel keeps track of memory types, only
 * remap_pfn_range() reserves one for the life of an area, and a fault then takes
 * the type that it finds reserved. But what is mapped before the area is known to
 * the file would be missed by unmap_mapping_range(): hence nothing is left mapped.
 */
int ochre_gem_set_caching(struct vm_area_struct *vma, unsigned long pfn,
			  enum ochre_caching caching)
{
	pgprot_t prot = pgprot_decrypted(vma_get_page_prot(vma));

	switch (caching) {
	case OCHRE_CACHED:
		break;
	case OCHRE_WRITE_COMBINED:
		prot = pgprot_writecombine(prot);
		break;
	case OCHRE_UNCACHED:
		prot = pgprot_noncached(prot);
		break;
	}
	vma->vm_page_prot = prot;

#ifdef __HAVE_PFNMAP_TRACKING
	{
		unsigned long size = vma->vm_end - vma->vm_start;
		int ret;

		ret = io_remap_pfn_range(vma, vma->vm_start, pfn, size, prot);
		if (ret)
			return ret;
		zap_special_vma_range(vma, vma->vm_start, size);
	}
#endif
	return 0;
}

/*
 * An imported object is mapped by its exporter, which has its own functions for the
 * area and its own reference to the memory.
 */
int ochre_gem_mmap_imported(struct drm_gem_object *obj,
			    struct vm_area_struct *vma)
{
	int ret;

	vma->vm_private_data = NULL;
	vma->vm_ops = NULL;
	vm_flags_set(vma, VM_DONTEXPAND);

	ret = dma_buf_mmap(obj->import_attach->dmabuf, vma, 0);
	/* Success drops the reference that the caller took for the area. */
	if (!ret)
		drm_gem_object_put(obj);
	return ret;
}

int ochre_gem_vmap(struct page **pages, unsigned int count,
		   struct iosys_map *map)
{
	void *addr = vmap(pages, count, VM_MAP, PAGE_KERNEL);

	if (!addr)
		return -ENOMEM;
	iosys_map_set_vaddr(map, addr);
	return 0;
}

void ochre_gem_vunmap(struct iosys_map *map)
{
	vunmap(map->vaddr);
}

/* Maps one page frame, @ahead pages after the one that faulted. */
vm_fault_t ochre_vmf_insert_pfn(struct vm_fault *vmf, unsigned long ahead,
				unsigned long pfn, bool write_combined)
{
	pgprot_t prot = vmf->vma->vm_page_prot;

	if (write_combined)
		prot = pgprot_writecombine(prot);

	return vmf_insert_pfn_prot(vmf->vma, vmf->address + ahead * PAGE_SIZE,
				   pfn, prot);
}

struct ochre_run {
	struct mm_struct *mm;
	pte_t first;
	unsigned long done;
};

static int ochre_continue_pte(pte_t *pte, unsigned long addr, void *data)
{
	struct ochre_run *run = data;

	if (!run->done++) {
		run->first = ptep_get(pte);
		return pte_none(run->first) ? -ENOENT : 0;
	}
	if (pte_none(ptep_get(pte)))
		set_pte_at(run->mm, addr, pte, pte_advance_pfn(run->first, run->done - 1));
	return 0;
}

/*
 * Maps the @count page frames behind the one that was just mapped where the fault
 * was, in the same way: vmf_insert_pfn_prot() would look up the memory type of each.
 * What does not work is left to the next fault.
 *
 * The fault holds the area, so page tables and protection stay as they are. Who takes
 * the pages away meanwhile, unmap_mapping_range(), has the same lock of the page
 * table, and comes after all of this: drm_dev_unplug() waits for the fault first.
 */
void ochre_vmf_continue_pfn(struct vm_fault *vmf, unsigned long count)
{
	struct ochre_run run = { .mm = vmf->vma->vm_mm };

	apply_to_page_range(run.mm, vmf->address, (count + 1) * PAGE_SIZE,
			    ochre_continue_pte, &run);
}

unsigned long ochre_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

void ochre_gem_unmap(struct drm_gem_object *obj)
{
	drm_vma_node_unmap(&obj->vma_node, obj->dev->anon_inode->i_mapping);
}

void ochre_dma_buf_get(struct dma_buf *dma_buf)
{
	get_dma_buf(dma_buf);
}

/*
 * Weak, since the module that has it is not needed. Its address is taken from data,
 * where no relocation is too far from 0.
 */
extern __weak typeof(virtio_dma_buf_attach) virtio_dma_buf_attach;
static ochre_dma_buf_attach_t virtio_attach = virtio_dma_buf_attach;

ochre_dma_buf_attach_t ochre_virtio_dma_buf_attach(void)
{
	return READ_ONCE(virtio_attach);
}

bool ochre_sgtable_needs_sync(struct device *dev, struct sg_table *table)
{
	struct scatterlist *sg;
	int i;

	for_each_sgtable_dma_sg(table, sg, i) {
		if (dma_need_sync(dev, sg_dma_address(sg)))
			return true;
	}
	return false;
}

void ochre_sync_sgtable_for_device(struct device *dev, struct sg_table *table,
				   enum dma_data_direction direction)
{
	dma_sync_sgtable_for_device(dev, table, direction);
}

void ochre_sync_sgtable_for_cpu(struct device *dev, struct sg_table *table,
				enum dma_data_direction direction)
{
	dma_sync_sgtable_for_cpu(dev, table, direction);
}

/* A table of one entry without a page: memory behind a BAR of another device. */
struct sg_table *ochre_map_window(struct device *dev, phys_addr_t start,
				  size_t len, enum dma_data_direction direction)
{
	struct sg_table *table;
	dma_addr_t addr;

	if (len > UINT_MAX)
		return ERR_PTR(-EFBIG);
	table = kzalloc_obj(*table);
	if (!table)
		return ERR_PTR(-ENOMEM);
	if (sg_alloc_table(table, 1, GFP_KERNEL))
		goto err_free;

	addr = dma_map_resource(dev, start, len, direction,
				DMA_ATTR_SKIP_CPU_SYNC);
	if (dma_mapping_error(dev, addr))
		goto err_free_table;
	sg_set_page(table->sgl, NULL, len, 0);
	sg_dma_address(table->sgl) = addr;
	sg_dma_len(table->sgl) = len;
	return table;

err_free_table:
	sg_free_table(table);
err_free:
	kfree(table);
	return ERR_PTR(-ENOMEM);
}

/* Undoes ochre_map_window(), and tells whether @table is from there. */
bool ochre_unmap_window(struct device *dev, struct sg_table *table,
			enum dma_data_direction direction)
{
	if (sg_page(table->sgl))
		return false;

	dma_unmap_resource(dev, sg_dma_address(table->sgl),
			   sg_dma_len(table->sgl), direction,
			   DMA_ATTR_SKIP_CPU_SYNC);
	sg_free_table(table);
	kfree(table);
	return true;
}

bool ochre_pci_bar_is_memory(struct pci_dev *pdev, int bar)
{
	return pci_resource_flags(pdev, bar) & IORESOURCE_MEM;
}

struct page *ochre_shmem_read_page(struct file *file, pgoff_t index)
{
	return shmem_read_mapping_page(file->f_mapping, index);
}

/* Pages that are about to be pinned one by one: reclaim need not look at them. */
void ochre_shmem_pin(struct file *file)
{
	mapping_set_unevictable(file->f_mapping);
}

void ochre_shmem_unpin(struct file *file)
{
	mapping_clear_unevictable(file->f_mapping);
}

/* As drm_gem_put_pages(), which wants a GEM object that still has its file. */
void ochre_shmem_put_pages(struct page **pages, unsigned long count, bool dirty)
{
	struct folio_batch batch;
	unsigned long i;

	folio_batch_init(&batch);
	for (i = 0; i < count; i++) {
		struct folio *folio = page_folio(pages[i]);

		if (dirty)
			folio_mark_dirty(folio);
		folio_mark_accessed(folio);

		if (!folio_batch_add(&batch, folio) || i + 1 == count) {
			check_move_unevictable_folios(&batch);
			__folio_batch_release(&batch);
		}
	}
}

/* @pages is what ochre_pages_alloc() filled. */
void ochre_pages_free(struct page **pages, unsigned long count)
{
	unsigned long i = 0;

	while (i < count) {
		unsigned int order = compound_order(pages[i]);

		__free_pages(pages[i], order);
		i += 1UL << order;
	}
}

/*
 * Fills @pages with @count zeroed pages, in runs as long as there are without
 * effort. Returns -ENOMEM, or -ERESTARTSYS for a task that is being killed.
 */
int ochre_pages_alloc(struct page **pages, unsigned long count)
{
	const gfp_t gfp = GFP_HIGHUSER | __GFP_ZERO | __GFP_ACCOUNT |
			  __GFP_RETRY_MAYFAIL | __GFP_NOWARN;
	const gfp_t run = (gfp & ~__GFP_RECLAIM & ~__GFP_RETRY_MAYFAIL) |
			  __GFP_COMP | __GFP_NORETRY;
	unsigned int order = MAX_PAGE_ORDER;
	unsigned long done = 0;

	while (done < count) {
		struct page *page;
		unsigned long i;

		order = min_t(unsigned int, order, ilog2(count - done));
		page = alloc_pages(order ? run : gfp, order);
		if (!page && order) {
			order--;
			continue;
		}
		if (!page || fatal_signal_pending(current)) {
			if (page)
				__free_pages(page, order);
			ochre_pages_free(pages, done);
			return page ? -ERESTARTSYS : -ENOMEM;
		}
		for (i = 0; i < 1UL << order; i++)
			pages[done++] = page + i;
		cond_resched();
	}
	return 0;
}

bool ochre_perfmon_capable(void)
{
	return perfmon_capable();
}

bool ochre_sys_nice_capable(void)
{
	return capable(CAP_SYS_NICE);
}

bool ochre_sys_admin_capable(void)
{
	return capable(CAP_SYS_ADMIN);
}

bool ochre_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

u64 ochre_total_bytes(void)
{
	return (u64)totalram_pages() << PAGE_SHIFT;
}

u64 ochre_available_bytes(void)
{
	return (u64)max(si_mem_available(), 0L) << PAGE_SHIFT;
}

int ochre_io_reserve_wc(resource_size_t start, resource_size_t size)
{
	return arch_io_reserve_memtype_wc(start, size);
}

void ochre_io_free_wc(resource_size_t start, resource_size_t size)
{
	arch_io_free_memtype_wc(start, size);
}

struct workqueue_struct *ochre_alloc_workqueue(const char *name,
					       unsigned int flags, int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

/*
 * Which addresses @dev has to use for memory. Finds out by mapping a page, since
 * there is no one place that knows.
 */
int ochre_dma_addressing(struct device *dev, enum ochre_dma_addressing *kind)
{
	struct page *page = alloc_page(GFP_KERNEL);
	dma_addr_t addr;

	if (!page)
		return -ENOMEM;

	addr = dma_map_page(dev, page, 0, PAGE_SIZE, DMA_BIDIRECTIONAL);
	if (dma_mapping_error(dev, addr)) {
		__free_page(page);
		return -ENOMEM;
	}

	if (dma_max_mapping_size(dev) != SIZE_MAX)
		*kind = OCHRE_DMA_BOUNCED;
	else if (addr != page_to_phys(page))
		*kind = OCHRE_DMA_TRANSLATED;
	else
		*kind = OCHRE_DMA_PHYSICAL;

	dma_unmap_page(dev, addr, PAGE_SIZE, DMA_BIDIRECTIONAL);
	__free_page(page);
	return 0;
}

void ochre_ida_init(struct ida *ida)
{
	ida_init(ida);
}

#ifdef CONFIG_PERF_EVENTS
/* Both strings have to outlive @file. */
void ochre_perf_attr_init(struct perf_pmu_events_attr *file, const char *name,
			  const char *text)
{
	sysfs_attr_init(&file->attr.attr);
	file->attr.attr.name = name;
	file->attr.attr.mode = 0444;
	file->attr.show = perf_event_sysfs_show;
	file->event_str = text;
}

bool ochre_perf_has_branch_stack(struct perf_event *event)
{
	return has_branch_stack(event);
}

bool ochre_perf_has_more_config(struct perf_event *event)
{
	return event->attr.config1 || event->attr.config2 ||
	       event->attr.config3 || event->attr.config4;
}

void ochre_perf_event_begin(struct perf_event *event, u64 value)
{
	local64_set(&event->hw.prev_count, value);
}

/* Counts what a counter that is at @value has gained since the last look. */
void ochre_perf_event_count(struct perf_event *event, u64 value)
{
	s64 before = local64_xchg(&event->hw.prev_count, value);

	local64_add(value - before, &event->count);
}

/*
 * Adds a reading of a level. When an event stops there may be no other one, or there
 * may be one in a moment: unless it is to @keep, the next replaces it.
 */
void ochre_perf_event_level(struct perf_event *event, u64 value, bool keep)
{
	s64 before = local64_xchg(&event->hw.prev_count, keep ? 0 : value);

	local64_add(value - before, &event->count);
}

bool ochre_perf_event_is_stopped(struct perf_event *event)
{
	return event->hw.state & PERF_HES_STOPPED;
}

void ochre_perf_event_set_stopped(struct perf_event *event, bool stopped)
{
	event->hw.state = stopped ? PERF_HES_STOPPED | PERF_HES_UPTODATE : 0;
}
#endif

struct module *ochre_this_module(void)
{
	return THIS_MODULE;
}

void ochre_raw_spin_lock_init(raw_spinlock_t *lock, const char *name,
			      struct lock_class_key *key)
{
#ifdef CONFIG_DEBUG_SPINLOCK
	__raw_spin_lock_init(lock, name, key, LD_WAIT_SPIN);
#else
	raw_spin_lock_init(lock);
#endif
}

unsigned long ochre_raw_spin_lock_irqsave(raw_spinlock_t *lock)
{
	unsigned long flags;

	raw_spin_lock_irqsave(lock, flags);
	return flags;
}

bool ochre_raw_spin_trylock_irqsave(raw_spinlock_t *lock, unsigned long *flags)
{
	return raw_spin_trylock_irqsave(lock, *flags);
}

void ochre_raw_spin_unlock_irqrestore(raw_spinlock_t *lock, unsigned long flags)
{
	raw_spin_unlock_irqrestore(lock, flags);
}

void ochre_raw_spin_assert_held(raw_spinlock_t *lock)
{
	lockdep_assert_held(lock);
}

/* With lock debugging each attribute needs a key that is not on the heap. */
void ochre_sysfs_attr_init(struct attribute *attr)
{
	sysfs_attr_init(attr);
}

int ochre_device_add_group(struct device *dev,
			   const struct attribute_group *group)
{
	return sysfs_create_group(&dev->kobj, group);
}

void ochre_device_remove_group(struct device *dev,
			       const struct attribute_group *group)
{
	sysfs_remove_group(&dev->kobj, group);
}

/* Runs the governor if it is this one. 1: it is. */
int ochre_devfreq_update(struct devfreq *devfreq,
			 const struct devfreq_governor *governor)
{
	int ret = 0;

	mutex_lock(&devfreq->lock);
	if (governor && devfreq->governor == governor) {
		ret = update_devfreq(devfreq);
		if (!ret)
			ret = 1;
	}
	mutex_unlock(&devfreq->lock);
	return ret;
}

/* The range of an instance, and whether it has this governor. */
bool ochre_devfreq_range(struct devfreq *devfreq,
			 const struct devfreq_governor *governor,
			 unsigned long *min, unsigned long *max)
{
	bool ours;

	mutex_lock(&devfreq->lock);
	ours = governor && devfreq->governor == governor;
	devfreq_get_freq_range(devfreq, min, max);
	mutex_unlock(&devfreq->lock);
	return ours;
}

void *ochre_thermal_cooling_data(struct thermal_cooling_device *cdev)
{
	return cdev->devdata;
}

/*
 * Calls @each with every object that @file has a handle for, under a spinlock. What is
 * shared is as drm_show_memory_stats() sees it.
 */
void ochre_drm_walk_objects(struct drm_file *file, ochre_each_object_t each,
			    void *data)
{
	struct drm_gem_object *obj;
	int id;

	spin_lock(&file->table_lock);
	idr_for_each_entry(&file->object_idr, obj, id)
		each(obj, drm_gem_object_is_shared_for_memory_stats(obj), data);
	spin_unlock(&file->table_lock);
}

static int ochre_debugfs_open(struct inode *inode, struct file *file)
{
	struct ochre_debugfs_file *info = inode->i_private;

	/* Large enough that what is shown is seldom worked out twice. */
	return single_open_size(file, info->show, info, SZ_16K);
}

static const struct file_operations ochre_debugfs_fops = {
	.owner = THIS_MODULE,
	.open = ochre_debugfs_open,
	.read = seq_read,
	.llseek = seq_lseek,
	.release = single_release,
};

struct dentry *ochre_debugfs_folder(const char *name, struct dentry *parent)
{
	return debugfs_create_dir(name, parent);
}

struct dentry *ochre_debugfs_of_device(struct drm_device *dev)
{
	return dev->debugfs_root;
}

void ochre_debugfs_add(const char *name, struct dentry *folder,
		       struct ochre_debugfs_file *file)
{
	debugfs_create_file(name, 0400, folder, file, &ochre_debugfs_fops);
}

/* With all that is in it; waits for who is reading. */
void ochre_debugfs_remove(struct dentry *folder)
{
	debugfs_remove(folder);
}
