/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Inline functions and macros of C headers, as functions that Rust can call. They
 * do what their namesakes do; the ext/ file of the same header holds the contracts.
 */
#ifndef _OCHRE_EXT_HELPERS_H_
#define _OCHRE_EXT_HELPERS_H_

#include <linux/types.h>
#include <linux/debugfs.h>
#include <linux/devfreq.h>
#include <linux/devfreq-governor.h>
#include <linux/dma-buf.h>
#include <linux/dma-fence-chain.h>
#include <linux/dma-fence.h>
#include <linux/dma-mapping.h>
#include <linux/dma-resv.h>
#include <linux/idr.h>
#include <linux/iosys-map.h>
#include <linux/mm.h>
#include <linux/pci.h>
#include <linux/perf_event.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/thermal.h>
#include <linux/workqueue.h>

#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_syncobj.h>

/* linux/dma-fence.h, linux/dma-fence-chain.h */
void ochre_dma_fence_get(struct dma_fence *fence);
void ochre_dma_fence_put(struct dma_fence *fence);
bool ochre_dma_fence_is_signaled(struct dma_fence *fence);
void ochre_dma_fence_set_error(struct dma_fence *fence, int error);
ktime_t ochre_dma_fence_timestamp(struct dma_fence *fence);
int ochre_dma_fence_status(struct dma_fence *fence);
struct dma_fence_chain *ochre_dma_fence_chain_alloc(void);
void ochre_dma_fence_chain_free(struct dma_fence_chain *chain);

/* linux/dma-resv.h */
int ochre_dma_resv_lock_interruptible(struct dma_resv *resv);

/* linux/dma-mapping.h */
enum ochre_dma_addressing {
	OCHRE_DMA_PHYSICAL,
	OCHRE_DMA_TRANSLATED,
	OCHRE_DMA_BOUNCED,
};

int ochre_dma_addressing(struct device *dev, enum ochre_dma_addressing *kind);

/* linux/idr.h */
void ochre_ida_init(struct ida *ida);

/* linux/fdtable.h, for tests */
void ochre_close_fd(int fd);

/* linux/sched.h */
void ochre_current_comm(char *name);

/* drm/drm_drv.h */
void ochre_drm_wedged_event(struct drm_device *dev, bool given_up);

/* drm/drm_file.h, drm/drm_gem.h */
typedef void (*ochre_each_object_t)(struct drm_gem_object *obj, bool shared,
				    void *data);

void ochre_drm_walk_objects(struct drm_file *file, ochre_each_object_t each,
			    void *data);

/* drm/drm_syncobj.h */
void ochre_drm_syncobj_get(struct drm_syncobj *syncobj);
void ochre_drm_syncobj_put(struct drm_syncobj *syncobj);
struct dma_fence *ochre_drm_syncobj_fence_get(struct drm_syncobj *syncobj);

/* drm/drm_gem.h, linux/mm.h */
enum ochre_caching {
	OCHRE_CACHED,
	OCHRE_WRITE_COMBINED,
	OCHRE_UNCACHED,
};

int ochre_gem_vma_setup(struct vm_area_struct *vma);
int ochre_gem_set_caching(struct vm_area_struct *vma, unsigned long pfn,
			  enum ochre_caching caching);
int ochre_gem_mmap_imported(struct drm_gem_object *obj,
			    struct vm_area_struct *vma);
int ochre_gem_vmap(struct page **pages, unsigned int count,
		   struct iosys_map *map);
void ochre_gem_vunmap(struct iosys_map *map);
vm_fault_t ochre_vmf_insert_pfn(struct vm_fault *vmf, unsigned long ahead,
				unsigned long pfn, bool write_combined);
void ochre_vmf_continue_pfn(struct vm_fault *vmf, unsigned long count);
unsigned long ochre_page_to_pfn(struct page *page);
void ochre_gem_unmap(struct drm_gem_object *obj);

/* linux/debugfs.h */
struct ochre_debugfs_file {
	int (*show)(struct seq_file *seq, void *unused);
};

struct dentry *ochre_debugfs_folder(const char *name, struct dentry *parent);
struct dentry *ochre_debugfs_of_device(struct drm_device *dev);
void ochre_debugfs_add(const char *name, struct dentry *folder,
		       struct ochre_debugfs_file *file);
void ochre_debugfs_remove(struct dentry *folder);

/* linux/dma-buf.h */
void ochre_dma_buf_get(struct dma_buf *dma_buf);

/* linux/virtio_dma_buf.h */
typedef int (*ochre_dma_buf_attach_t)(struct dma_buf *dma_buf,
				      struct dma_buf_attachment *attach);

ochre_dma_buf_attach_t ochre_virtio_dma_buf_attach(void);

/* linux/dma-mapping.h, linux/scatterlist.h */
bool ochre_sgtable_needs_sync(struct device *dev, struct sg_table *table);
void ochre_sync_sgtable_for_device(struct device *dev, struct sg_table *table,
				   enum dma_data_direction direction);
void ochre_sync_sgtable_for_cpu(struct device *dev, struct sg_table *table,
				enum dma_data_direction direction);
struct sg_table *ochre_map_window(struct device *dev, phys_addr_t start,
				  size_t len, enum dma_data_direction direction);
bool ochre_unmap_window(struct device *dev, struct sg_table *table,
			enum dma_data_direction direction);

/* linux/pci.h */
bool ochre_pci_bar_is_memory(struct pci_dev *pdev, int bar);

/* linux/shmem_fs.h */
struct page *ochre_shmem_read_page(struct file *file, pgoff_t index);
void ochre_shmem_pin(struct file *file);
void ochre_shmem_unpin(struct file *file);
void ochre_shmem_put_pages(struct page **pages, unsigned long count, bool dirty);

/* linux/gfp.h */
int ochre_pages_alloc(struct page **pages, unsigned long count);
void ochre_pages_free(struct page **pages, unsigned long count);

/* linux/capability.h, linux/mm.h, linux/sched/signal.h */
bool ochre_perfmon_capable(void);
bool ochre_sys_nice_capable(void);
bool ochre_sys_admin_capable(void);
bool ochre_fatal_signal_pending(void);
u64 ochre_total_bytes(void);
u64 ochre_available_bytes(void);

/* linux/io.h */
int ochre_io_reserve_wc(resource_size_t start, resource_size_t size);
void ochre_io_free_wc(resource_size_t start, resource_size_t size);

#ifdef CONFIG_PERF_EVENTS
/* linux/perf_event.h */
void ochre_perf_attr_init(struct perf_pmu_events_attr *file, const char *name,
			  const char *text);
bool ochre_perf_has_branch_stack(struct perf_event *event);
bool ochre_perf_has_more_config(struct perf_event *event);
void ochre_perf_event_begin(struct perf_event *event, u64 value);
void ochre_perf_event_count(struct perf_event *event, u64 value);
void ochre_perf_event_level(struct perf_event *event, u64 value, bool keep);
bool ochre_perf_event_is_stopped(struct perf_event *event);
void ochre_perf_event_set_stopped(struct perf_event *event, bool stopped);
#endif

/* linux/module.h */
struct module *ochre_this_module(void);

/* linux/spinlock.h */
void ochre_raw_spin_lock_init(raw_spinlock_t *lock, const char *name,
			      struct lock_class_key *key);
unsigned long ochre_raw_spin_lock_irqsave(raw_spinlock_t *lock);
bool ochre_raw_spin_trylock_irqsave(raw_spinlock_t *lock, unsigned long *flags);
void ochre_raw_spin_unlock_irqrestore(raw_spinlock_t *lock, unsigned long flags);
void ochre_raw_spin_assert_held(raw_spinlock_t *lock);

/* linux/sysfs.h, linux/device.h */
void ochre_sysfs_attr_init(struct attribute *attr);
int ochre_device_add_group(struct device *dev,
			   const struct attribute_group *group);
void ochre_device_remove_group(struct device *dev,
			       const struct attribute_group *group);

/* linux/devfreq-governor.h */
int ochre_devfreq_update(struct devfreq *devfreq,
			 const struct devfreq_governor *governor);
bool ochre_devfreq_range(struct devfreq *devfreq,
			 const struct devfreq_governor *governor,
			 unsigned long *min, unsigned long *max);

/* linux/thermal.h */
void *ochre_thermal_cooling_data(struct thermal_cooling_device *cdev);

/* linux/workqueue.h */
struct workqueue_struct *ochre_alloc_workqueue(const char *name,
					       unsigned int flags, int max_active);

#endif
