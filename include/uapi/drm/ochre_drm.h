/* SPDX-License-Identifier: MIT */
/*
 * The userspace ABI of the ochre driver on boards of its own, DRM driver name "ochre".
 *
 * Rules that hold for every ioctl:
 *
 * - All structures have the same layout for 32-bit and 64-bit programs; integers are native endian;
 *   a pointer travels as __u64.
 * - A flag, mode or property that this header does not define is refused with EINVAL, as is a pad or
 *   reserved field that is not 0. New meanings can therefore be added without breaking a program.
 * - Structures may grow at their end. The DRM core fills what an old program did not pass with zeros,
 *   and zero always means what the field meant before it existed. Arrays carry the size of one
 *   element (a "stride"), so that elements can grow in the same way: an element may be longer than
 *   the kernel knows if the rest is zero (otherwise E2BIG), or shorter, but not shorter than here.
 * - An ioctl that fails leaves nothing behind, and what it returns in its structure is then undefined.
 *   The one exception is EFAULT because the structure itself became unwritable meanwhile: what was made
 *   then lives until the file is closed.
 * - Errors common to all: EFAULT (a pointer that cannot be read or written), EINVAL, ENOMEM, ENODEV
 *   (the device is gone: unplugged, unbound, or given up after failed resets), EINTR/ERESTARTSYS.
 *
 * Objects: a GEM handle is a BO, a piece of VRAM or system memory. A VM is a 48-bit GPU address space; BOs
 * are placed in it by VM_BIND. A queue belongs to a VM and to an engine class and runs the jobs
 * given to it by SUBMIT, in order. Handles of BOs, VMs and queues are local to the open file.
 * Synchronisation uses DRM syncobjs (binary and timeline) and 64-bit words in memory (user fences).
 *
 * What a job may contain is the hardware's matter: see ochre_og1.h for the packets of the og1 board.
 */
#ifndef _UAPI_OCHRE_DRM_H_
#define _UAPI_OCHRE_DRM_H_

#include "drm.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* ioctl numbers, relative to DRM_COMMAND_BASE. */
#define DRM_OCHRE_QUERY			0x00
#define DRM_OCHRE_GEM_CREATE		0x01
#define DRM_OCHRE_GEM_MMAP_OFFSET	0x02
#define DRM_OCHRE_VM_CREATE		0x03
#define DRM_OCHRE_VM_DESTROY		0x04
#define DRM_OCHRE_VM_BIND		0x05
#define DRM_OCHRE_QUEUE_CREATE		0x06
#define DRM_OCHRE_QUEUE_DESTROY		0x07
#define DRM_OCHRE_SUBMIT		0x08
#define DRM_OCHRE_WAIT			0x09
#define DRM_OCHRE_RESET_QUERY		0x0a

/**
 * struct drm_ochre_ext - Head of an optional extension
 *
 * Fields named @extensions hold a pointer to a list of these, or 0. Each extension structure
 * begins with one. None is defined yet, so a list that is not empty is refused with EINVAL.
 */
struct drm_ochre_ext {
	/** @next: Pointer to the next extension, or 0. */
	__u64 next;
	/** @name: What the extension is. */
	__u32 name;
	/** @pad: Must be 0. */
	__u32 pad;
};

/* ------------------------------------------------------------------------------------------------
 * QUERY
 */

/** enum drm_ochre_engine_class - What an engine is made for */
enum drm_ochre_engine_class {
	/** @DRM_OCHRE_ENGINE_COMPUTE: Runs compute kernels; also copies and fills. */
	DRM_OCHRE_ENGINE_COMPUTE = 0,
	/** @DRM_OCHRE_ENGINE_COPY: Copies and fills. */
	DRM_OCHRE_ENGINE_COPY = 1,
};

/** enum drm_ochre_region_class - Kind of a memory region */
enum drm_ochre_region_class {
	/** @DRM_OCHRE_REGION_SYSTEM: Memory of the host, seen through the bus. */
	DRM_OCHRE_REGION_SYSTEM = 0,
	/** @DRM_OCHRE_REGION_VRAM: Memory of the board. */
	DRM_OCHRE_REGION_VRAM = 1,
};

/** enum drm_ochre_query_kind - What QUERY returns */
enum drm_ochre_query_kind {
	/** @DRM_OCHRE_QUERY_HARDWARE: One struct drm_ochre_query_hardware. */
	DRM_OCHRE_QUERY_HARDWARE = 0,
	/** @DRM_OCHRE_QUERY_REGIONS: An array of struct drm_ochre_query_region. */
	DRM_OCHRE_QUERY_REGIONS = 1,
	/** @DRM_OCHRE_QUERY_ENGINES: An array of struct drm_ochre_query_engine. */
	DRM_OCHRE_QUERY_ENGINES = 2,
	/** @DRM_OCHRE_QUERY_CLOCKS: One struct drm_ochre_query_clocks. */
	DRM_OCHRE_QUERY_CLOCKS = 3,
	/**
	 * @DRM_OCHRE_QUERY_TIME: One struct drm_ochre_query_time, which is also read: the program
	 * chooses the CPU's clock in it.
	 */
	DRM_OCHRE_QUERY_TIME = 4,
};

/**
 * struct drm_ochre_query - Argument of DRM_IOCTL_OCHRE_QUERY
 *
 * With @size 0 the ioctl stores the bytes that the answer needs. With @size at least that it stores
 * the answer at @data and in @size the bytes stored. A @size that is neither is refused with EINVAL.
 */
struct drm_ochre_query {
	/** @kind: &enum drm_ochre_query_kind. */
	__u32 kind;
	/** @size: Bytes at @data; see above. */
	__u32 size;
	/** @data: Pointer to where the answer goes. */
	__u64 data;
	/** @extensions: 0. */
	__u64 extensions;
};

/** struct drm_ochre_query_hardware - The board */
struct drm_ochre_query_hardware {
	/** @name: Name of the board, ends in NUL. */
	char name[32];
	/** @vendor: PCI vendor id. */
	__u32 vendor;
	/** @device: PCI device id. */
	__u32 device;
	/** @revision: Version of the board's specification: major << 16 | minor. */
	__u32 revision;
	/** @firmware: Version of the firmware that runs: major << 16 | minor. */
	__u32 firmware;
	/** @va_start: Lowest GPU address that may be mapped. */
	__u64 va_start;
	/** @va_end: First address beyond the highest that may be mapped. */
	__u64 va_end;
	/** @page_sizes: Mask of the page sizes of the GPU: bit n for 2^n bytes. */
	__u64 page_sizes;
	/** @job_words_max: Most 64-bit words of one job. */
	__u32 job_words_max;
	/** @jobs_max: Most jobs of one SUBMIT. */
	__u32 jobs_max;
	/** @binds_max: Most operations of one VM_BIND. */
	__u32 binds_max;
	/** @syncs_max: Most syncs of one job, one VM_BIND or one WAIT. */
	__u32 syncs_max;
	/** @timeout_ms: Default time without progress after which a queue is reset, in ms. */
	__u32 timeout_ms;
	/** @timeout_max_ms: Longest that a queue may ask for. */
	__u32 timeout_max_ms;
	/** @resets: Resets of the whole device since it was bound. */
	__u64 resets;
	/** @reserved: 0. */
	__u64 reserved[6];
};

/** struct drm_ochre_query_region - A memory region */
struct drm_ochre_query_region {
	/** @klass: &enum drm_ochre_region_class. */
	__u32 klass;
	/** @instance: Number of the region, from 0, the bit of &drm_ochre_gem_create.regions. */
	__u32 instance;
	/** @alignment: Sizes and GPU addresses of BOs are multiples of this. */
	__u64 alignment;
	/** @size: Bytes in all. */
	__u64 size;
	/** @free: Bytes that nobody uses. Without CAP_PERFMON the same as @size. */
	__u64 free;
	/** @cpu_visible_size: Bytes that the CPU can map. */
	__u64 cpu_visible_size;
	/** @cpu_visible_free: Of those, bytes that nobody uses; see @free. */
	__u64 cpu_visible_free;
	/** @page_size: Page size that makes the fewest address translations. */
	__u64 page_size;
	/** @reserved: 0. */
	__u64 reserved[5];
};

/** struct drm_ochre_query_engine - An engine */
struct drm_ochre_query_engine {
	/** @klass: &enum drm_ochre_engine_class. */
	__u16 klass;
	/** @instance: Number within its class, from 0. */
	__u16 instance;
	/** @slots: Queues that the hardware holds at a time. */
	__u32 slots;
	/** @lanes: Compute: instructions that it starts per clock; otherwise 0. */
	__u32 lanes;
	/** @block_items_max: Compute: most work-items of a block; otherwise 0. */
	__u32 block_items_max;
	/** @local_bytes: Compute: bytes of block-local memory; otherwise 0. */
	__u32 local_bytes;
	/** @pad: 0. */
	__u32 pad;
	/** @reserved: 0. */
	__u64 reserved[4];
};

/** struct drm_ochre_query_clocks - Clocks */
struct drm_ochre_query_clocks {
	/** @core_khz: Core clock now, in kHz. */
	__u32 core_khz;
	/** @core_max_khz: Fastest core clock of the firmware's table. */
	__u32 core_max_khz;
	/** @memory_khz: Memory clock now, in kHz. */
	__u32 memory_khz;
	/** @memory_max_khz: Fastest memory clock of the firmware's table. */
	__u32 memory_max_khz;
	/** @timestamp_hz: Rate of the board's time, in Hz. */
	__u64 timestamp_hz;
	/** @reserved: 0. */
	__u64 reserved[5];
};

/**
 * struct drm_ochre_query_time - The board's time beside the CPU's
 *
 * The board's time was taken between two readings of the CPU's clock, @cpu_ns and
 * @cpu_ns + @cpu_delta_ns.
 */
struct drm_ochre_query_time {
	/** @clock: In: CLOCK_MONOTONIC (1), CLOCK_MONOTONIC_RAW (4), CLOCK_BOOTTIME (7) or CLOCK_REALTIME (0). */
	__u32 clock;
	/** @pad: 0. */
	__u32 pad;
	/** @cpu_ns: Out: the CPU's clock just before, in ns. */
	__u64 cpu_ns;
	/** @cpu_delta_ns: Out: how long the reading took on the CPU's clock. */
	__u64 cpu_delta_ns;
	/** @gpu_ticks: Out: the board's time, in units of 1 / &drm_ochre_query_clocks.timestamp_hz. */
	__u64 gpu_ticks;
	/** @reserved: 0. */
	__u64 reserved[4];
};

/* ------------------------------------------------------------------------------------------------
 * GEM
 */

/** DRM_OCHRE_GEM_CPU_VISIBLE - In VRAM, place the BO where the CPU can map it. */
#define DRM_OCHRE_GEM_CPU_VISIBLE	(1 << 0)
/** DRM_OCHRE_GEM_CONTIGUOUS - In VRAM, use one run of addresses. */
#define DRM_OCHRE_GEM_CONTIGUOUS	(1 << 1)

/**
 * struct drm_ochre_gem_create - Argument of DRM_IOCTL_OCHRE_GEM_CREATE
 *
 * Makes a BO filled with zeros. Errors: EINVAL (size 0 or no multiple of the region's alignment,
 * no region, an unknown one, or a flag for VRAM without VRAM among the regions),
 * E2BIG (larger than the region), ENOSPC (VRAM is full), ENOMEM.
 */
struct drm_ochre_gem_create {
	/** @size: Bytes, a multiple of the region's alignment. */
	__u64 size;
	/** @regions: Mask of allowed regions by instance; VRAM is preferred when it is among them. */
	__u32 regions;
	/** @flags: DRM_OCHRE_GEM_*. */
	__u32 flags;
	/** @handle: Out: GEM handle. */
	__u32 handle;
	/** @pad: Must be 0. */
	__u32 pad;
	/** @extensions: 0. */
	__u64 extensions;
};

/**
 * struct drm_ochre_gem_mmap_offset - Argument of DRM_IOCTL_OCHRE_GEM_MMAP_OFFSET
 *
 * Gives the offset at which mmap() of the DRM file shows the BO. Errors: ENOENT (no such handle),
 * EINVAL (VRAM that was not made DRM_OCHRE_GEM_CPU_VISIBLE).
 */
struct drm_ochre_gem_mmap_offset {
	/** @handle: GEM handle. */
	__u32 handle;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @offset: Out: offset for mmap(). */
	__u64 offset;
	/** @extensions: 0. */
	__u64 extensions;
};

/* ------------------------------------------------------------------------------------------------
 * Synchronisation
 */

/** enum drm_ochre_sync_type - Kind of a sync */
enum drm_ochre_sync_type {
	/** @DRM_OCHRE_SYNC_SYNCOBJ: A binary syncobj. */
	DRM_OCHRE_SYNC_SYNCOBJ = 0,
	/**
	 * @DRM_OCHRE_SYNC_TIMELINE: A point of a timeline syncobj. It is reached with all points
	 * before it. The error of a point that is not the last may be forgotten once it is reached.
	 */
	DRM_OCHRE_SYNC_TIMELINE = 1,
	/**
	 * @DRM_OCHRE_SYNC_USER_FENCE: A 64-bit word at a GPU address of the queue's VM, aligned to 8.
	 * Waiting: until the word is at least the value, unsigned; the queue waits on the GPU.
	 * Signalling: the value is stored there when the job has ended well.
	 * Only in SUBMIT.
	 */
	DRM_OCHRE_SYNC_USER_FENCE = 2,
};

/** DRM_OCHRE_SYNC_SIGNAL - Signal when the work is done; without it: wait before it begins. */
#define DRM_OCHRE_SYNC_SIGNAL		(1 << 0)

/** struct drm_ochre_sync - Something to wait for or to signal */
struct drm_ochre_sync {
	/** @type: &enum drm_ochre_sync_type. */
	__u32 type;
	/** @flags: DRM_OCHRE_SYNC_SIGNAL or 0. */
	__u32 flags;
	/** @handle: Syncobj handle; 0 for a user fence. */
	__u32 handle;
	/** @pad: Must be 0. */
	__u32 pad;
	/** @value: Point of a timeline, not 0; value of a user fence; 0 for a binary syncobj. */
	__u64 value;
	/** @addr: GPU address of a user fence, otherwise 0. */
	__u64 addr;
};

/* ------------------------------------------------------------------------------------------------
 * VM
 */

/**
 * struct drm_ochre_vm_create - Argument of DRM_IOCTL_OCHRE_VM_CREATE
 *
 * Errors: ENOSPC (the hardware has no more contexts).
 */
struct drm_ochre_vm_create {
	/** @flags: Must be 0. */
	__u32 flags;
	/** @vm: Out: VM handle, never 0. */
	__u32 vm;
	/** @extensions: 0. */
	__u64 extensions;
};

/**
 * struct drm_ochre_vm_destroy - Argument of DRM_IOCTL_OCHRE_VM_DESTROY
 *
 * The handle is gone at once; the address space lives on until its queues are gone.
 * Errors: ENOENT.
 */
struct drm_ochre_vm_destroy {
	/** @vm: VM handle. */
	__u32 vm;
	/** @pad: Must be 0. */
	__u32 pad;
};

/** enum drm_ochre_bind_op - What a VM_BIND operation does */
enum drm_ochre_bind_op {
	/** @DRM_OCHRE_BIND_MAP: Places a BO, replacing what the range held. */
	DRM_OCHRE_BIND_MAP = 0,
	/** @DRM_OCHRE_BIND_UNMAP: Empties the range, whatever it held. */
	DRM_OCHRE_BIND_UNMAP = 1,
	/**
	 * @DRM_OCHRE_BIND_SPARSE: Reads of the range give zeros, writes are dropped. One operation
	 * covers 1 TiB at most.
	 */
	DRM_OCHRE_BIND_SPARSE = 2,
};

/** DRM_OCHRE_BIND_READ - The GPU may read. */
#define DRM_OCHRE_BIND_READ		(1 << 0)
/** DRM_OCHRE_BIND_WRITE - The GPU may write. */
#define DRM_OCHRE_BIND_WRITE		(1 << 1)
/** DRM_OCHRE_BIND_EXEC - The GPU may fetch instructions. */
#define DRM_OCHRE_BIND_EXEC		(1 << 2)
/** DRM_OCHRE_BIND_ATOMIC - The GPU may use atomic operations; needs both READ and WRITE. */
#define DRM_OCHRE_BIND_ATOMIC		(1 << 3)

/** enum drm_ochre_memory_type - How the GPU caches a mapping */
enum drm_ochre_memory_type {
	/** @DRM_OCHRE_MEMORY_WB: Cached, written back; coherent with the CPU in system memory. */
	DRM_OCHRE_MEMORY_WB = 0,
	/** @DRM_OCHRE_MEMORY_WT: Cached, written through. */
	DRM_OCHRE_MEMORY_WT = 1,
	/** @DRM_OCHRE_MEMORY_WC: Writes are gathered. */
	DRM_OCHRE_MEMORY_WC = 2,
	/** @DRM_OCHRE_MEMORY_UC: Not cached. */
	DRM_OCHRE_MEMORY_UC = 3,
};

/** struct drm_ochre_bind - One operation of VM_BIND */
struct drm_ochre_bind {
	/** @op: &enum drm_ochre_bind_op. */
	__u32 op;
	/** @flags: DRM_OCHRE_BIND_* for MAP (at least one of READ, WRITE, EXEC); otherwise 0. */
	__u32 flags;
	/** @handle: GEM handle for MAP; otherwise 0. */
	__u32 handle;
	/** @memory_type: &enum drm_ochre_memory_type for MAP; otherwise 0. */
	__u32 memory_type;
	/** @offset: First byte of the BO, a multiple of 4096, for MAP; otherwise 0. */
	__u64 offset;
	/** @addr: GPU address, a multiple of 4096. */
	__u64 addr;
	/** @range: Bytes, a multiple of 4096, not 0. */
	__u64 range;
	/** @reserved: Must be 0. */
	__u64 reserved[3];
};

/**
 * struct drm_ochre_vm_bind - Argument of DRM_IOCTL_OCHRE_VM_BIND
 *
 * Carries out the operations in their order, all or none. They are done when the ioctl returns,
 * the GPU's translation caches included. Waiting syncs are waited for first (that wait can be
 * interrupted); signalling syncs are signalled at the end.
 *
 * Errors: ENOENT (VM, BO or syncobj), EINVAL (addresses, ranges beyond the BO, counts beyond
 * &drm_ochre_query_hardware.binds_max or @syncs_max, user fences), EIO (a fence waited for carries
 * an error).
 */
struct drm_ochre_vm_bind {
	/** @vm: VM handle. */
	__u32 vm;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @binds: Pointer to an array of struct drm_ochre_bind. */
	__u64 binds;
	/** @bind_count: Number of elements, not 0. */
	__u32 bind_count;
	/** @bind_stride: Bytes from one element to the next. */
	__u32 bind_stride;
	/** @syncs: Pointer to an array of struct drm_ochre_sync, or 0. */
	__u64 syncs;
	/** @sync_count: Number of elements. */
	__u32 sync_count;
	/** @sync_stride: Bytes from one element to the next; 0 if there is none. */
	__u32 sync_stride;
	/** @extensions: 0. */
	__u64 extensions;
};

/* ------------------------------------------------------------------------------------------------
 * Queues and jobs
 */

/** enum drm_ochre_priority - Priority of a queue */
enum drm_ochre_priority {
	/** @DRM_OCHRE_PRIORITY_NORMAL: The default. */
	DRM_OCHRE_PRIORITY_NORMAL = 0,
	/** @DRM_OCHRE_PRIORITY_LOW: Runs when nothing else wants the engine. */
	DRM_OCHRE_PRIORITY_LOW = 1,
	/** @DRM_OCHRE_PRIORITY_HIGH: Before normal ones; needs CAP_SYS_NICE or DRM master. */
	DRM_OCHRE_PRIORITY_HIGH = 2,
	/** @DRM_OCHRE_PRIORITY_REALTIME: Before all; needs CAP_SYS_NICE. */
	DRM_OCHRE_PRIORITY_REALTIME = 3,
};

/** enum drm_ochre_queue_property - Name of a property of a queue */
enum drm_ochre_queue_property {
	/** @DRM_OCHRE_QUEUE_PRIORITY: &enum drm_ochre_priority. Error: EACCES (not allowed). */
	DRM_OCHRE_QUEUE_PRIORITY = 0,
	/** @DRM_OCHRE_QUEUE_TIMEOUT_MS: Time without progress before a reset, in ms, at least 1. */
	DRM_OCHRE_QUEUE_TIMEOUT_MS = 1,
	/** @DRM_OCHRE_QUEUE_QUANTUM_US: Time slice in µs, 100 to 1,000,000. */
	DRM_OCHRE_QUEUE_QUANTUM_US = 2,
	/**
	 * @DRM_OCHRE_QUEUE_BOOST: 1: while the queue has jobs that are not over, clocks are as
	 * fast as limits and locks allow. A hint; 0, the default, leaves it to the governor.
	 */
	DRM_OCHRE_QUEUE_BOOST = 3,
};

/** struct drm_ochre_queue_prop - A property with its value */
struct drm_ochre_queue_prop {
	/** @name: &enum drm_ochre_queue_property; each at most once. */
	__u32 name;
	/** @pad: Must be 0. */
	__u32 pad;
	/** @value: Its value. */
	__u64 value;
};

/** DRM_OCHRE_ENGINE_ANY - Any engine of the class. */
#define DRM_OCHRE_ENGINE_ANY		0xffff

/**
 * struct drm_ochre_queue_create - Argument of DRM_IOCTL_OCHRE_QUEUE_CREATE
 *
 * Errors: ENOENT (VM), EINVAL (engine, property, value), EACCES (priority), ENOSPC (no more queues).
 */
struct drm_ochre_queue_create {
	/** @vm: VM handle. */
	__u32 vm;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @engine_class: &enum drm_ochre_engine_class. */
	__u16 engine_class;
	/** @engine_instance: Number of the engine in its class, or DRM_OCHRE_ENGINE_ANY. */
	__u16 engine_instance;
	/** @prop_count: Number of properties. */
	__u32 prop_count;
	/** @props: Pointer to an array of struct drm_ochre_queue_prop, or 0. */
	__u64 props;
	/** @prop_stride: Bytes from one property to the next; 0 if there is none. */
	__u32 prop_stride;
	/** @queue: Out: queue handle, never 0. */
	__u32 queue;
	/** @extensions: 0. */
	__u64 extensions;
};

/**
 * struct drm_ochre_queue_destroy - Argument of DRM_IOCTL_OCHRE_QUEUE_DESTROY
 *
 * Jobs that have not begun are cancelled (their fences carry ECANCELED), one that runs is stopped;
 * the ioctl does not wait for it. Errors: ENOENT.
 */
struct drm_ochre_queue_destroy {
	/** @queue: Queue handle. */
	__u32 queue;
	/** @pad: Must be 0. */
	__u32 pad;
};

/** struct drm_ochre_job - A job: a stream of user packets in the VM of its queue */
struct drm_ochre_job {
	/** @addr: GPU address of the first word, aligned to 8. */
	__u64 addr;
	/** @words: Number of 64-bit words; 0 for a job that only synchronises (then @addr is 0). */
	__u32 words;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @syncs: Pointer to an array of struct drm_ochre_sync, or 0. */
	__u64 syncs;
	/** @sync_count: Number of elements. */
	__u32 sync_count;
	/** @sync_stride: Bytes from one element to the next; 0 if there is none. */
	__u32 sync_stride;
	/** @reserved: Must be 0. */
	__u64 reserved[2];
};

/**
 * struct drm_ochre_submit - Argument of DRM_IOCTL_OCHRE_SUBMIT
 *
 * Gives jobs to a queue, all or none. They run in order; each begins when its waiting syncs and the
 * job before it are done. A job whose awaited fence carries an error does not run and carries
 * that error itself. The ioctl does not wait for work, only for room in the queue, and that can be
 * interrupted.
 *
 * Errors: ENOENT (queue or syncobj), EINVAL, ECANCELED (the queue was lost in a reset; see
 * RESET_QUERY; make a new one).
 */
struct drm_ochre_submit {
	/** @queue: Queue handle. */
	__u32 queue;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @jobs: Pointer to an array of struct drm_ochre_job. */
	__u64 jobs;
	/** @job_count: Number of elements, not 0. */
	__u32 job_count;
	/** @job_stride: Bytes from one element to the next. */
	__u32 job_stride;
	/** @extensions: 0. */
	__u64 extensions;
};

/** DRM_OCHRE_WAIT_ANY - Return when one is signalled; without it: when all are. */
#define DRM_OCHRE_WAIT_ANY		(1 << 0)

/**
 * struct drm_ochre_wait - Argument of DRM_IOCTL_OCHRE_WAIT
 *
 * Waits for binary syncobjs and timeline points. DRM_IOCTL_SYNCOBJ_WAIT does so as well; this one
 * also returns the error that a fence carries.
 *
 * Errors: ENOENT, EINVAL (a syncobj that has no fence yet, a signalling sync, a user fence),
 * ETIME, ENODEV (the device went away meanwhile).
 */
struct drm_ochre_wait {
	/** @syncs: Pointer to an array of struct drm_ochre_sync. */
	__u64 syncs;
	/** @sync_count: Number of elements, not 0. */
	__u32 sync_count;
	/** @sync_stride: Bytes from one element to the next. */
	__u32 sync_stride;
	/** @timeout_ns: End of the wait on CLOCK_MONOTONIC, in ns; at most 0: do not wait. */
	__s64 timeout_ns;
	/** @flags: DRM_OCHRE_WAIT_*. */
	__u32 flags;
	/** @first: Out: index of the first sync in the array that is signalled. */
	__u32 first;
	/**
	 * @error: Out: 0, or the errno (positive) that the first failed fence carries: ETIME (hung and
	 * reset), EFAULT (a fault of the GPU), ECANCELED (its queue was reset or destroyed),
	 * EIO (the device was reset under it), ENODEV.
	 */
	__s32 error;
	/** @pad: Must be 0. */
	__u32 pad;
	/** @extensions: 0. */
	__u64 extensions;
};

/** enum drm_ochre_queue_state - What became of a queue */
enum drm_ochre_queue_state {
	/** @DRM_OCHRE_QUEUE_OK: Takes jobs. */
	DRM_OCHRE_QUEUE_OK = 0,
	/** @DRM_OCHRE_QUEUE_HUNG: Made no progress and was reset. Guilty. */
	DRM_OCHRE_QUEUE_HUNG = 1,
	/** @DRM_OCHRE_QUEUE_FAULTED: Faulted and was reset. Guilty. */
	DRM_OCHRE_QUEUE_FAULTED = 2,
	/** @DRM_OCHRE_QUEUE_INNOCENT: Was lost when its engine or device was reset for another's sake. */
	DRM_OCHRE_QUEUE_INNOCENT = 3,
};

/**
 * struct drm_ochre_reset_query - Argument of DRM_IOCTL_OCHRE_RESET_QUERY
 *
 * Errors: ENOENT.
 */
struct drm_ochre_reset_query {
	/** @queue: Queue handle. */
	__u32 queue;
	/** @flags: Must be 0. */
	__u32 flags;
	/** @state: Out: &enum drm_ochre_queue_state. */
	__u32 state;
	/** @fault_code: Out: hardware's code of the fault (OG1_FAULT_*), or 0. */
	__u32 fault_code;
	/** @fault_addr: Out: address of the fault, or 0. */
	__u64 fault_addr;
	/** @fault_pc: Out: program counter of the fault, or 0. */
	__u64 fault_pc;
	/** @fault_access: Out: 0 read, 1 write, 2 execute, 3 atomic. */
	__u32 fault_access;
	/** @pad: Must be 0. */
	__u32 pad;
	/** @device_resets: Out: resets of the whole device since it was bound. */
	__u64 device_resets;
	/** @queue_resets: Out: resets that this queue caused. */
	__u64 queue_resets;
	/** @extensions: 0. */
	__u64 extensions;
};

#define DRM_IOCTL_OCHRE_QUERY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_QUERY, struct drm_ochre_query)
#define DRM_IOCTL_OCHRE_GEM_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_GEM_CREATE, struct drm_ochre_gem_create)
#define DRM_IOCTL_OCHRE_GEM_MMAP_OFFSET \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_GEM_MMAP_OFFSET, struct drm_ochre_gem_mmap_offset)
#define DRM_IOCTL_OCHRE_VM_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_VM_CREATE, struct drm_ochre_vm_create)
#define DRM_IOCTL_OCHRE_VM_DESTROY \
	DRM_IOW(DRM_COMMAND_BASE + DRM_OCHRE_VM_DESTROY, struct drm_ochre_vm_destroy)
#define DRM_IOCTL_OCHRE_VM_BIND \
	DRM_IOW(DRM_COMMAND_BASE + DRM_OCHRE_VM_BIND, struct drm_ochre_vm_bind)
#define DRM_IOCTL_OCHRE_QUEUE_CREATE \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_QUEUE_CREATE, struct drm_ochre_queue_create)
#define DRM_IOCTL_OCHRE_QUEUE_DESTROY \
	DRM_IOW(DRM_COMMAND_BASE + DRM_OCHRE_QUEUE_DESTROY, struct drm_ochre_queue_destroy)
#define DRM_IOCTL_OCHRE_SUBMIT \
	DRM_IOW(DRM_COMMAND_BASE + DRM_OCHRE_SUBMIT, struct drm_ochre_submit)
#define DRM_IOCTL_OCHRE_WAIT \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_WAIT, struct drm_ochre_wait)
#define DRM_IOCTL_OCHRE_RESET_QUERY \
	DRM_IOWR(DRM_COMMAND_BASE + DRM_OCHRE_RESET_QUERY, struct drm_ochre_reset_query)

#if defined(__cplusplus)
}
#endif

#endif /* _UAPI_OCHRE_DRM_H_ */
