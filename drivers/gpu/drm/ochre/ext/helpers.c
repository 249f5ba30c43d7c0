// SPDX-License-Identifier: GPL-2.0

#include <linux/capability.h>
#include <linux/folio_batch.h>
#include <linux/fdtable.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/sched/signal.h>
#include <linux/shmem_fs.h>
#include <linux/swap.h>

#include <drm/drm_device.h>
#include <drm/drm_vma_manager.h>
#include <uapi/drm/drm.h>

#include "helpers.h"

/* uapi.rs treats the ABI's structures as plain bytes, so none may have padding. */
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wpadded"
#include <drm/ochre_drm.h>
#include <drm/virtgpu_drm.h>
#pragma GCC diagnostic pop

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

unsigned long ochre_page_to_pfn(struct page *page)
{
	return page_to_pfn(page);
}

void ochre_gem_unmap(struct drm_gem_object *obj)
{
	drm_vma_node_unmap(&obj->vma_node, obj->dev->anon_inode->i_mapping);
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

bool ochre_perfmon_capable(void)
{
	return perfmon_capable();
}

bool ochre_sys_nice_capable(void)
{
	return capable(CAP_SYS_NICE);
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
